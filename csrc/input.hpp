// The input part a_t = U x_t + bias of each row, handed over or made row by row, and where its gradient goes.
#pragma once

#include "kru.h"
#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

// Of a call of any kind, with typed pointers. `width` values a row; without a bias where modReLU has it.
template <class T> struct Input {
  int kind;
  int64_t batch, inputs, width;
  const T *part, *x, *weight, *bias;
  const int64_t* symbols;
  T *dpart, *dx, *dweight, *dbias;
  T* table = nullptr;  // (inputs, width): the transposed input map, for symbols plus the bias

  template <class Call> Input(Arena& arena, const Call& call, int64_t values, bool own_bias)
      : kind(call.input_kind), batch(call.batch), inputs(call.inputs), width(values) {
    part = static_cast<const T*>(call.part);
    x = static_cast<const T*>(call.x);
    weight = static_cast<const T*>(call.weight);
    bias = own_bias ? nullptr : static_cast<const T*>(call.bias);
    symbols = call.symbols;
    dpart = static_cast<T*>(call.dpart);
    dx = static_cast<T*>(call.dx);
    dweight = static_cast<T*>(call.dweight);
    dbias = own_bias ? nullptr : static_cast<T*>(call.dbias);
    if (kind == KRU_PART) return;
    table = arena.take<T>(inputs * width);
    const bool add = kind == KRU_SYMBOLS && bias != nullptr;
    for (int64_t d = 0; d < inputs; ++d)
      for (int64_t i = 0; i < width; ++i) table[d * width + i] = weight[i * inputs + d] + (add ? bias[i] : T(0));
  }
};

template <class T> KRU_INLINE void add_scaled(T* to, const T* from, T scale, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

template <class T> KRU_INLINE T dot(const T* a, const T* b, int64_t count) {
  Vec<T> total{};
  each_vector<T>(count, [&](int64_t i, int64_t part) KRU_LAMBDA { total += load_part(a + i, part) * load_part(b + i, part); });
  return T(sum<T>(total));
}

// One thread's view of the input.
template <class T> class InputPart {
 public:
  // `rows`: how many rows are in use at a time.
  InputPart(Arena& arena, const Input<T>& input, bool gradient, int64_t rows = 1) : input_(input) {
    if (input.kind == KRU_PART) return;
    if (input.kind == KRU_DENSE) made_ = arena.take<T>(rows * input.width);
    const bool from_table = input.dbias != nullptr && input.kind == KRU_SYMBOLS;
    if (gradient && (input.dweight != nullptr || from_table)) dtable_ = arena.take_zeros<T>(input.inputs * input.width);
    if (gradient && input.dbias != nullptr && !from_table) dbias_ = arena.take_zeros<T>(input.width);
  }

  // a_t of one row, until the `place` is asked for again.
  const T* row(int64_t t, int64_t row, int64_t place = 0) const {
    const int64_t at = t * input_.batch + row, width = input_.width;
    if (input_.kind == KRU_PART) return input_.part + at * width;
    if (input_.kind == KRU_SYMBOLS) return input_.table + input_.symbols[at] * width;
    const T *x = input_.x + at * input_.inputs, *bias = input_.bias;
    T* out = made_ + place * width;
    for (int64_t i = 0; i < width; ++i) out[i] = (bias ? bias[i] : T(0)) + x[0] * input_.table[i];
    for (int64_t d = 1; d < input_.inputs; ++d) add_scaled(out, input_.table + d * width, x[d], width);
    return out;
  }

  // dz is the gradient at a_t.
  void accumulate(int64_t t, int64_t row, const T* dz) {
    const int64_t at = t * input_.batch + row, width = input_.width;
    if (input_.kind == KRU_PART) {
      if (input_.dpart == nullptr) return;
      T* to = input_.dpart + at * width;
      if (to != dz) __builtin_memcpy(to, dz, size_t(width) * sizeof(T));
    } else if (input_.kind == KRU_SYMBOLS) {
      if (dtable_ != nullptr) add_scaled(dtable_ + input_.symbols[at] * width, dz, T(1), width);
    } else {
      const T* x = input_.x + at * input_.inputs;
      if (dtable_ != nullptr)
        for (int64_t d = 0; d < input_.inputs; ++d) add_scaled(dtable_ + d * width, dz, x[d], width);
      if (dbias_ != nullptr) add_scaled(dbias_, dz, T(1), width);
      if (input_.dx != nullptr)
        for (int64_t d = 0; d < input_.inputs; ++d)
          input_.dx[at * input_.inputs + d] = dot(dz, input_.table + d * width, width);
    }
  }

  // A step after the row's end: its input counts for nothing, whatever it is.
  void skip(int64_t t, int64_t row) {
    if (input_.kind != KRU_DENSE || input_.dx == nullptr) return;
    __builtin_memset(input_.dx + (t * input_.batch + row) * input_.inputs, 0, size_t(input_.inputs) * sizeof(T));
  }

  // The gradients of all threads together, written to where the caller wants them.
  static void finish(const Input<T>& input, InputPart* const* parts, int threads) {
    if (input.kind == KRU_PART) return;
    const int64_t width = input.width;
    T *table = parts[0]->dtable_, *dbias = parts[0]->dbias_;
    for (int t = 1; t < threads; ++t) {
      if (table != nullptr) add_scaled(table, parts[t]->dtable_, T(1), input.inputs * width);
      if (dbias != nullptr) add_scaled(dbias, parts[t]->dbias_, T(1), width);
    }
    if (input.dweight != nullptr)
      for (int64_t i = 0; i < width; ++i)
        for (int64_t d = 0; d < input.inputs; ++d) input.dweight[i * input.inputs + d] = table[d * width + i];
    if (input.dbias == nullptr) return;
    for (int64_t i = 0; i < width; ++i) {
      double total = dbias != nullptr ? dbias[i] : 0;
      for (int64_t d = 0; d < input.inputs && dbias == nullptr; ++d) total += table[d * width + i];
      input.dbias[i] = T(total);
    }
  }

 private:
  const Input<T>& input_;
  T *made_ = nullptr, *dtable_ = nullptr, *dbias_ = nullptr;
};

}  // namespace KRU_ISA
}  // namespace kru
