// The recurrence whose matrix is a chain of stages: a thread takes groups of rows, one for each lane of a vector, through
// all their steps.
#pragma once

#include <new>

#include "denormals.hpp"
#include "activation.hpp"
#include "chain.hpp"
#include "input.hpp"
#include "parallel.hpp"

namespace kru {
namespace KRU_ISA {

// Lanes become vectors and vectors become lanes, where lane and vector differ in the bit S.
template <int S, class T> KRU_INLINE void transpose_bit(Vec<T>* v) {
  if constexpr (S < kLanes<T>) {
    Mask<T> upper;
    for (int i = 0; i < kLanes<T>; ++i) upper[i] = i & S ? -1 : 0;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if (i & S) continue;
      const Vec<T> a = v[i], b = v[i | S];
      v[i] = upper ? exchange<S, T>(b) : a;
      v[i | S] = upper ? b : exchange<S, T>(a);
    }
  }
}

template <class T> KRU_INLINE void transpose(Vec<T>* v) {
  transpose_bit<1, T>(v);
  transpose_bit<2, T>(v);
  transpose_bit<4, T>(v);
  transpose_bit<8, T>(v);
}

// One thread's part of the recurrence.
template <class T> class ChainPart {
 public:
  static constexpr int64_t L = kLanes<T>;
  using V = Vec<T>;
  using Worker = typename Chain<T>::Worker;

  ChainPart(Arena& arena, const kru_chain& call, const Chain<T>& chain, const Input<T>& input, bool backward)
      : worker(arena, chain, backward), input(arena, input, backward, L), call_(call), chain_(chain), n_(call.size) {
    zeros_ = arena.take_zeros<T>(2 * n_);
    sink_ = arena.take<T>(2 * n_);
    h_ = backward ? arena.take<Number<T>>(n_) : worker.input;
    if (backward && call.lengths != nullptr) back_ = arena.take<Number<T>>(n_);
    if (backward && call.input_kind != KRU_PART) dz_ = arena.take<T>(L * 2 * n_);
    if (backward && call.dbias != nullptr) dbias = arena.take_zeros<V>(n_);
  }

  void forward(int64_t group) {
    start(group);
    gather(rows(call_.h0), h_);
    for (int64_t step = 0; step < call_.steps; ++step) {
      const int64_t t = call_.reverse ? call_.steps - 1 - step : step;
      const Rows to = rows(call_.states, t);
      if (t >= longest_) {
        clear(to);
        continue;
      }
      const Rows part = input_rows(t);
      const Mask<T> active = active_at(t);
      chain_.apply(worker);
      each_block([&](int64_t first, int64_t count) KRU_LAMBDA {
        V re[L], im[L];
        load_block(part, first, count, re, im);
#pragma GCC unroll 1
        for (int64_t i = 0; i < count; ++i) {
          const Number<T> w = worker.output[first + i];
          V new_re = re[i] + w.re, new_im = im[i] + w.im;
          modrelu<T, true>(new_re, new_im, bias_at(first + i));
          Number<T>& h = h_[first + i];
          h = {active ? new_re : h.re, active ? new_im : h.im};
          re[i] = active ? new_re : V{}, im[i] = active ? new_im : V{};
        }
        store_block(to, first, count, re, im);
      });
    }
    scatter(h_, rows(call_.h));
  }

  void backward(int64_t group) {
    start(group);
    gather(rows(call_.dh), h_);
    for (int64_t step = call_.steps - 1; step >= 0; --step) {
      const int64_t t = call_.reverse ? call_.steps - 1 - step : step;
      const Rows to = gradient_rows(t);
      if (t >= longest_) {
        clear(to);
        give(t, to);
        continue;
      }
      const Rows part = input_rows(t), dstates = rows(call_.dstates, t);
      const Mask<T> active = active_at(t);
      gather(rows_before(t), worker.input);
      chain_.apply(worker);
      Number<T>* dz = worker.output;
      each_block([&](int64_t first, int64_t count) KRU_LAMBDA {
        V re[L], im[L], out_re[L], out_im[L];
        load_block(part, first, count, re, im);
        load_block(dstates, first, count, out_re, out_im);
#pragma GCC unroll 1
        for (int64_t i = 0; i < count; ++i) {
          const Number<T> w = dz[first + i];
          Number<T>& carried = h_[first + i];
          V g_re = carried.re + out_re[i], g_im = carried.im + out_im[i];
          const V db = modrelu_gradient<T, true>(re[i] + w.re, im[i] + w.im, bias_at(first + i), g_re, g_im);
          if (dbias != nullptr) dbias[first + i] += active ? db : V{};
          // A row beyond its end carries its gradient on as it is.
          if (call_.lengths != nullptr) carried = {active ? V{} : carried.re, active ? V{} : carried.im};
          re[i] = active ? g_re : V{}, im[i] = active ? g_im : V{};
          dz[first + i] = {re[i], im[i]};
        }
        store_block(to, first, count, re, im);
      });
      give(t, to);
      chain_.adjoint(worker, dz, back_ == nullptr ? h_ : back_);
      if (back_ != nullptr)
        for (int64_t i = 0; i < n_; ++i) h_[i] = h_[i] + back_[i];
    }
    scatter(h_, rows(call_.dh0));
  }

  Worker worker;
  InputPart<T> input;
  V* dbias = nullptr;

 private:
  // Where the rows of the group are, lane by lane.
  struct Rows {
    T* at[L];
  };

  void start(int64_t group) {
    first_ = group * L;
    count_ = smaller(L, call_.batch - first_);
    longest_ = call_.lengths == nullptr ? call_.steps : 0;
    for (int64_t lane = 0; lane < count_ && call_.lengths != nullptr; ++lane)
      longest_ = larger(longest_, call_.lengths[first_ + lane]);
  }

  // Of a tensor (T, B, 2N) or (B, 2N). Lanes without a row read zeros, as from a tensor that is not there, ...
  Rows rows(const void* tensor, int64_t t = 0) const {
    Rows out;
    for (int64_t lane = 0; lane < L; ++lane)
      out.at[lane] = tensor == nullptr || lane >= count_ ? zeros_ : row(tensor, t, lane);
    return out;
  }
  // ... and write where nothing is read.
  Rows rows(void* tensor, int64_t t = 0) const {
    Rows out;
    for (int64_t lane = 0; lane < L; ++lane)
      out.at[lane] = tensor == nullptr || lane >= count_ ? sink_ : row(tensor, t, lane);
    return out;
  }

  T* row(const void* tensor, int64_t t, int64_t lane) const {
    return static_cast<T*>(const_cast<void*>(tensor)) + (t * call_.batch + first_ + lane) * 2 * n_;
  }

  Rows input_rows(int64_t t) const {
    Rows out;
    for (int64_t lane = 0; lane < L; ++lane)
      out.at[lane] = lane < count_ ? const_cast<T*>(input.row(t, first_ + lane, lane)) : zeros_;
    return out;
  }

  // Where the gradient at a_t is written: where it is wanted, or where the input can take it from.
  Rows gradient_rows(int64_t t) const {
    if (dz_ == nullptr) return rows(call_.dpart, t);
    Rows out;
    for (int64_t lane = 0; lane < L; ++lane) out.at[lane] = dz_ + lane * 2 * n_;
    return out;
  }

  void give(int64_t t, const Rows& gradient) {
    if (dz_ == nullptr) return;
    for (int64_t lane = 0; lane < count_; ++lane)
      t < length(lane) ? input.accumulate(t, first_ + lane, gradient.at[lane]) : input.skip(t, first_ + lane);
  }

  // The states before step t: those of the step before it, or the first ones.
  Rows rows_before(int64_t t) const {
    Rows out = rows(call_.h0);
    for (int64_t lane = 0; lane < count_; ++lane) {
      const int64_t before = call_.reverse ? t + 1 : t - 1;
      if (before >= 0 && before < length(lane)) out.at[lane] = row(call_.states, before, lane);
    }
    return out;
  }

  int64_t length(int64_t lane) const { return call_.lengths == nullptr ? call_.steps : call_.lengths[first_ + lane]; }

  Mask<T> active_at(int64_t t) const {
    Mask<T> active{};
    for (int64_t lane = 0; lane < count_; ++lane) active[lane] = t < length(lane) ? -1 : 0;
    return active;
  }

  KRU_INLINE V bias_at(int64_t i) const {
    return call_.bias == nullptr ? V{} : splat<T>(static_cast<const T*>(call_.bias)[i]);
  }

  template <class Body> KRU_INLINE void each_block(const Body& body) const {
    int64_t first = 0;
    for (; first + L <= n_; first += L) body(first, L);
    if (first < n_) body(first, n_ - first);
  }

  // `count` units from `first` on: vectors of rows in memory, vectors of lanes here.
  KRU_INLINE void load_block(const Rows& rows, int64_t first, int64_t count, V* re, V* im) const {
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < L; ++lane) {
      re[lane] = load_part(rows.at[lane] + first, count);
      im[lane] = load_part(rows.at[lane] + n_ + first, count);
    }
    transpose<T>(re);
    transpose<T>(im);
  }

  KRU_INLINE void store_block(const Rows& rows, int64_t first, int64_t count, V* re, V* im) const {
    transpose<T>(re);
    transpose<T>(im);
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < L; ++lane) {
      store_part(rows.at[lane] + first, re[lane], count);
      store_part(rows.at[lane] + n_ + first, im[lane], count);
    }
  }

  void gather(const Rows& rows, Number<T>* out) const {
    each_block([&](int64_t first, int64_t count) KRU_LAMBDA {
      V re[L], im[L];
      load_block(rows, first, count, re, im);
      for (int64_t i = 0; i < count; ++i) out[first + i] = {re[i], im[i]};
    });
  }

  void scatter(const Number<T>* in, const Rows& rows) const {
    each_block([&](int64_t first, int64_t count) KRU_LAMBDA {
      V re[L] = {}, im[L] = {};
      for (int64_t i = 0; i < count; ++i) re[i] = in[first + i].re, im[i] = in[first + i].im;
      store_block(rows, first, count, re, im);
    });
  }

  void clear(const Rows& rows) const {
    for (int64_t lane = 0; lane < L; ++lane) __builtin_memset(rows.at[lane], 0, size_t(2 * n_) * sizeof(T));
  }

  const kru_chain& call_;
  const Chain<T>& chain_;
  int64_t n_, first_ = 0, count_ = 0, longest_ = 0;
  T *zeros_, *sink_;
  T* dz_ = nullptr;  // the gradient at a_t, row by row
  Number<T>* h_;  // forward: the states; backward: the gradient that is carried to the step before
  Number<T>* back_ = nullptr;  // with lengths: the part of it that goes through W
};

template <class T> void chain_scan(const kru_chain& call, bool backward) {
  Arena arena;
  const Chain<T> chain(arena, call.size, call.stage_count, call.stages);
  const Input<T> input(arena, call, 2 * call.size, true);
  const int64_t groups = (call.batch + kLanes<T> - 1) / kLanes<T>;
  const int threads = int(larger(1, smaller(call.threads, groups)));
  using Part = ChainPart<T>;
  Part** parts = arena.take<Part*>(threads);
  for (int t = 0; t < threads; ++t) parts[t] = new (arena.take<Part>(1)) Part(arena, call, chain, input, backward);
  parallel(threads, [&](int t) {
    const FlushDenormals flush;
    for (int64_t group = t; group < groups; group += threads)
      backward ? parts[t]->backward(group) : parts[t]->forward(group);
  });
  if (!backward) return;
  typename Chain<T>::Worker** workers = arena.take<typename Chain<T>::Worker*>(threads);
  InputPart<T>** inputs = arena.take<InputPart<T>*>(threads);
  for (int t = 0; t < threads; ++t) workers[t] = &parts[t]->worker, inputs[t] = &parts[t]->input;
  chain.finish(workers, threads);
  InputPart<T>::finish(input, inputs, threads);
  if (call.dbias == nullptr) return;
  for (int64_t i = 0; i < call.size; ++i) {
    double total = 0;
    for (int t = 0; t < threads; ++t) total += sum<T>(parts[t]->dbias[i]);
    static_cast<T*>(call.dbias)[i] = T(total);
  }
}

}  // namespace KRU_ISA
}  // namespace kru
