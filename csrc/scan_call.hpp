// What the cells share: the call with typed pointers, the rows of each thread, and the input part.
#pragma once

#include "kru.h"
#include "matrix.hpp"
#include "parallel.hpp"

namespace kru {
namespace KRU_ISA {

template <class T> struct ScanCall {
  const kru_scan& call;
  int planes, gates, threads;
  int64_t units = 1, state, steps, batch;
  bool wants_factors = false;
  Factor<T>* factors;             // (gates, rank, factor_count)
  FactorGradient<T>* gradients;   // the same
  int64_t* order;                 // rows, thread by thread, the longest first within a thread
  int64_t* bounds;                // thread t has order[bounds[t]] ... order[bounds[t + 1] - 1]
  T* table = nullptr;             // (inputs, G S): the transposed input map, for symbols plus the bias

  ScanCall(Arena& arena, const kru_scan& c) : call(c), steps(c.steps), batch(c.batch) {
    planes = c.is_complex ? 2 : 1;
    gates = c.cell == KRU_LSTM ? 4 : c.cell == KRU_GRU ? 3 : 1;
    const int64_t terms = gates * c.rank;
    factors = arena.take<Factor<T>>(terms * c.factor_count);
    gradients = arena.take<FactorGradient<T>>(terms * c.factor_count);
    for (int f = 0; f < c.factor_count; ++f) {
      const int64_t size = c.p[f] * c.q[f];
      units *= c.p[f];
      T* gradient = c.dfactors == nullptr ? nullptr : static_cast<T*>(c.dfactors[f]);
      wants_factors = wants_factors || gradient != nullptr;
      for (int64_t term = 0; term < terms; ++term) {
        const int64_t g = term / c.rank, r = term % c.rank, at = (r * gates + g) * planes * size;
        const T* data = static_cast<const T*>(c.factors[f]) + at;
        factors[term * c.factor_count + f] = {data, planes == 2 ? data + size : nullptr, 1, c.p[f], c.q[f]};
        T* to = gradient == nullptr ? nullptr : gradient + at;
        gradients[term * c.factor_count + f] = {to, to != nullptr && planes == 2 ? to + size : nullptr, 1};
      }
    }
    state = planes * units;
    threads = int(larger(1, smaller(c.threads, batch)));
    share_rows(arena);
    if (c.input_kind != KRU_PART) transpose_weight(arena);
  }

  int64_t width() const { return gates * state; }
  int64_t length(int64_t row) const { return call.lengths == nullptr ? steps : call.lengths[row]; }
  int64_t rows(int thread) const { return bounds[thread + 1] - bounds[thread]; }

  const T* h0(int64_t row) const { return initial(call.h0, row); }
  const T* c0(int64_t row) const { return initial(call.c0, row); }
  T* at(void* base, int64_t t, int64_t row, int64_t size) const {
    return static_cast<T*>(base) + (t * batch + row) * size;
  }
  const T* at(const void* base, int64_t t, int64_t row, int64_t size) const {
    return static_cast<const T*>(base) + (t * batch + row) * size;
  }

  // The step before t in the order of the recurrence, or -1 if t is the first.
  int64_t before(int64_t t, int64_t row) const {
    if (!call.reverse) return t - 1;
    return t + 1 < length(row) ? t + 1 : -1;
  }

 private:
  const T* initial(const void* base, int64_t row) const {
    return base == nullptr ? nullptr : static_cast<const T*>(base) + row * state;
  }

  void share_rows(Arena& arena) {
    order = arena.take<int64_t>(batch);
    bounds = arena.take<int64_t>(threads + 1);
    for (int t = 0; t <= threads; ++t) bounds[t] = batch * t / threads;
    if (call.lengths == nullptr) {
      for (int64_t row = 0; row < batch; ++row) order[row] = row;
      return;
    }
    // Longest first (a counting sort), then dealt out in turn, so that the threads have equal work.
    int64_t* start = arena.take_zeros<int64_t>(steps + 2);
    for (int64_t row = 0; row < batch; ++row) ++start[steps - call.lengths[row] + 1];
    for (int64_t l = 0; l < steps; ++l) start[l + 1] += start[l];
    int64_t* sorted = arena.take<int64_t>(batch);
    for (int64_t row = 0; row < batch; ++row) sorted[start[steps - call.lengths[row]]++] = row;
    int64_t to = 0;
    for (int t = 0; t < threads; ++t) {
      bounds[t] = to;
      for (int64_t i = t; i < batch; i += threads) order[to++] = sorted[i];
    }
    bounds[threads] = to;
  }

  void transpose_weight(Arena& arena) {
    const int64_t inputs = call.inputs;
    table = arena.take<T>(inputs * width());
    const T* weight = static_cast<const T*>(call.weight);
    const bool add = call.input_kind == KRU_SYMBOLS && call.bias != nullptr && call.nonlinearity != KRU_MODRELU;
    const T* bias = static_cast<const T*>(call.bias);
    for (int64_t d = 0; d < inputs; ++d)
      for (int64_t i = 0; i < width(); ++i) table[d * width() + i] = weight[i * inputs + d] + (add ? bias[i] : T(0));
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

// a_t of one row, and where its gradient goes. One for each thread.
template <class T> class InputPart {
 public:
  InputPart(Arena& arena, const ScanCall<T>& scan, bool gradient) : scan_(scan), width_(scan.width()) {
    const kru_scan& call = scan.call;
    if (call.input_kind == KRU_PART) return;
    if (call.input_kind == KRU_DENSE) row_ = arena.take<T>(width_);
    if (gradient && (call.dweight != nullptr || (call.dbias != nullptr && call.input_kind == KRU_SYMBOLS)))
      dtable = arena.take_zeros<T>(call.inputs * width_);
    if (gradient && call.dbias != nullptr && call.input_kind == KRU_DENSE) dbias = arena.take_zeros<T>(width_);
  }

  const T* row(int64_t t, int64_t row) const {
    const kru_scan& call = scan_.call;
    if (call.input_kind == KRU_PART) return scan_.at(call.part, t, row, width_);
    if (call.input_kind == KRU_SYMBOLS) return scan_.table + call.symbols[t * scan_.batch + row] * width_;
    const T* x = scan_.at(call.x, t, row, call.inputs);
    const T* bias = call.nonlinearity == KRU_MODRELU ? nullptr : static_cast<const T*>(call.bias);
    for (int64_t i = 0; i < width_; ++i) row_[i] = (bias ? bias[i] : T(0)) + x[0] * scan_.table[i];
    for (int64_t d = 1; d < call.inputs; ++d) add_scaled(row_, scan_.table + d * width_, x[d], width_);
    return row_;
  }

  // dz is the gradient at a_t.
  void accumulate(int64_t t, int64_t row, const T* dz) {
    const kru_scan& call = scan_.call;
    if (call.input_kind == KRU_PART) {
      if (call.dpart == nullptr) return;
      T* to = scan_.at(call.dpart, t, row, width_);
      if (to != dz) __builtin_memcpy(to, dz, size_t(width_) * sizeof(T));
    } else if (call.input_kind == KRU_SYMBOLS) {
      if (dtable != nullptr) add_scaled(dtable + call.symbols[t * scan_.batch + row] * width_, dz, T(1), width_);
    } else {
      const T* x = scan_.at(call.x, t, row, call.inputs);
      if (dtable != nullptr)
        for (int64_t d = 0; d < call.inputs; ++d) add_scaled(dtable + d * width_, dz, x[d], width_);
      if (dbias != nullptr) add_scaled(dbias, dz, T(1), width_);
      if (call.dx != nullptr) {
        T* dx = scan_.at(call.dx, t, row, call.inputs);
        for (int64_t d = 0; d < call.inputs; ++d) dx[d] = dot(dz, scan_.table + d * width_, width_);
      }
    }
  }

  // The gradients of all threads together, written to where the caller wants them.
  static void finish(const ScanCall<T>& scan, InputPart* const* parts) {
    const kru_scan& call = scan.call;
    if (call.input_kind == KRU_PART) return;
    const int64_t width = scan.width();
    T* table = parts[0]->dtable;
    for (int t = 1; t < scan.threads; ++t) {
      if (table != nullptr) add_scaled(table, parts[t]->dtable, T(1), call.inputs * width);
      if (parts[0]->dbias != nullptr) add_scaled(parts[0]->dbias, parts[t]->dbias, T(1), width);
    }
    if (call.dweight != nullptr)
      for (int64_t i = 0; i < width; ++i)
        for (int64_t d = 0; d < call.inputs; ++d) static_cast<T*>(call.dweight)[i * call.inputs + d] = table[d * width + i];
    if (call.dbias == nullptr || call.nonlinearity == KRU_MODRELU) return;
    T* out = static_cast<T*>(call.dbias);
    for (int64_t i = 0; i < width; ++i) {
      double total = 0;
      if (call.input_kind == KRU_DENSE)
        total = parts[0]->dbias[i];
      else
        for (int64_t d = 0; d < call.inputs; ++d) total += table[d * width + i];
      out[i] = T(total);
    }
  }

  T* dtable = nullptr;
  T* dbias = nullptr;

 private:
  const ScanCall<T>& scan_;
  int64_t width_;
  T* row_ = nullptr;
};

// A block of rows that go through time together. Rows are sorted by length, so those still running come first.
template <class T> struct Block {
  const ScanCall<T>& scan;
  const int64_t* order;
  int64_t rows, longest, active;

  Block(const ScanCall<T>& s, int thread, int64_t first, int64_t block) : scan(s), order(s.order + s.bounds[thread] + first) {
    rows = smaller(block, s.rows(thread) - first);
    longest = s.length(order[0]);
    active = s.call.reverse ? 0 : rows;
  }
  // How many rows are running at step t, for steps in either direction.
  int64_t running(int64_t t) {
    while (active < rows && scan.length(order[active]) > t) ++active;
    while (active > 0 && scan.length(order[active - 1]) <= t) --active;
    return active;
  }
};

// Steps after a row's end are zero, in the states and in the gradients that are written for each step.
template <class T> void clear_after_end(const ScanCall<T>& scan, void* base, int64_t size, int thread) {
  if (base == nullptr || scan.call.lengths == nullptr) return;
  for (int64_t i = scan.bounds[thread]; i < scan.bounds[thread + 1]; ++i) {
    const int64_t row = scan.order[i];
    for (int64_t t = scan.length(row); t < scan.steps; ++t)
      __builtin_memset(scan.at(base, t, row, size), 0, size_t(size) * sizeof(T));
  }
}

}  // namespace KRU_ISA
}  // namespace kru
