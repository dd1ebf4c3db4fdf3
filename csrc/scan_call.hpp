// What the cells share: the call with typed pointers, and the rows of each thread.
#pragma once

#include <new>

#include "input.hpp"
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
  const Input<T>* input;
  const T *zeros, *initial;       // (state): what a row without an initial state starts from, and what a reset leads to

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
    zeros = arena.take_zeros<T>(state);
    initial = c.initial == nullptr ? zeros : static_cast<const T*>(c.initial);
    const bool own_bias = c.cell == KRU_ELMAN && c.nonlinearity == KRU_MODRELU;
    input = new (arena.take<Input<T>>(1)) Input<T>(arena, c, width(), own_bias);
  }

  int64_t width() const { return gates * state; }
  int64_t length(int64_t row) const { return call.lengths == nullptr ? steps : call.lengths[row]; }
  int64_t rows(int thread) const { return bounds[thread + 1] - bounds[thread]; }

  const T* h0(int64_t row) const { return first(call.h0, row); }
  const T* c0(int64_t row) const { return first(call.c0, row); }
  T* at(void* base, int64_t t, int64_t row, int64_t size) const {
    return static_cast<T*>(base) + (t * batch + row) * size;
  }
  const T* at(const void* base, int64_t t, int64_t row, int64_t size) const {
    return static_cast<const T*>(base) + (t * batch + row) * size;
  }

  // Whether a reset makes step t start anew.
  bool restarts(int64_t t, int64_t row) const {
    if (call.reset == nullptr) return false;
    const int64_t begin = call.reverse ? t + 1 : t;
    return begin < length(row) && call.reset[begin * batch + row] != 0;
  }

  // How many states before a step are kept instead of the history.
  int64_t kept_count() const { return call.every > 0 ? (steps + call.every - 1) / call.every : 0; }

  // A row of first states, NULL for zeros.
  const T* first(const void* base, int64_t row) const {
    return base == nullptr ? nullptr : static_cast<const T*>(base) + row * state;
  }

 private:
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
  // Rows go through their steps in the order 0, 1, ..., longest - 1, which is that of time or the reverse.
  int64_t time(int64_t step) const { return scan.call.reverse ? longest - 1 - step : step; }
  // How many rows are running at time t, for steps in either direction.
  int64_t running(int64_t t) {
    while (active < rows && scan.length(order[active]) > t) ++active;
    while (active > 0 && scan.length(order[active - 1]) <= t) --active;
    return active;
  }
};

// Where the values of a block's steps are, `size` for each row: in the history of the whole call, or in a window of the
// last few steps where the call keeps no history.
template <class T> struct Steps {
  const ScanCall<T>& scan;
  int64_t size, rows;     // rows of a block
  T* history;             // or NULL
  T* window = nullptr;    // (count, rows, size), or NULL
  int64_t count = 0;

  void open_window(Arena& arena) {
    count = smaller(scan.call.every, scan.steps);
    window = arena.take<T>(count * rows * size);
  }
  T* at(const Block<T>& block, int64_t step, int64_t r) const {
    if (window == nullptr) return scan.at(static_cast<void*>(history), block.time(step), block.order[r], size);
    return window + (step % count * rows + r) * size;
  }
};

// The state from which row r of a block takes a step: of the step before, of those that are `kept` instead, the `first`
// one (NULL: zeros), or what a reset leads to. All but the first two are recognised by their address.
template <class T>
const T* state_before(const Block<T>& block, const Steps<T>& states, const void* kept, const void* first,
                      const T* after_reset, int64_t step, int64_t r) {
  const ScanCall<T>& scan = block.scan;
  const int64_t row = block.order[r], t = block.time(step), length = scan.length(row);
  if (scan.restarts(t, row)) return after_reset;
  if (step == 0 || (scan.call.reverse && t + 1 >= length)) {
    const T* start = scan.first(first, row);
    return start != nullptr ? start : scan.zeros;
  }
  if (states.window != nullptr && step % states.count == 0)
    return scan.at(kept, step / states.count, row, scan.state);
  return states.at(block, step - 1, r);
}

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
