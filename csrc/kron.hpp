// Y = X W^T for a Kronecker matrix W, and its gradients, rows shared out over the threads.
#pragma once

#include "kru.h"
#include "matrix.hpp"
#include "parallel.hpp"

namespace kru {
namespace KRU_ISA {

// Below this many multiplications a second thread costs more than it brings.
constexpr int64_t kWorthAThread = int64_t(1) << 16;

template <class T, bool C> void read_row(const T* from, int64_t size, T* to, int64_t plane) {
  if (!C) {
    __builtin_memcpy(to, from, size_t(size) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    to[i] = from[2 * i];
    to[plane + i] = from[2 * i + 1];
  }
}

template <class T, bool C> void write_row(const T* from, int64_t plane, int64_t size, T* to) {
  if (!C) {
    __builtin_memcpy(to, from, size_t(size) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = from[plane + i];
  }
}

template <class T, bool C> struct KronCall {
  static constexpr int kPlanes = C ? 2 : 1;
  const kru_kron& call;
  Factor<T>* factors;            // (rank, factor_count)
  FactorGradient<T>* gradients;  // the same
  int64_t k = 1, n = 1, work = 0;
  bool wants_factors = false;

  KronCall(Arena& arena, const kru_kron& c) : call(c) {
    factors = arena.take<Factor<T>>(c.rank * c.factor_count);
    gradients = arena.take<FactorGradient<T>>(c.rank * c.factor_count);
    const T* packed = static_cast<const T*>(c.packed);
    for (int f = 0; f < c.factor_count; ++f) {
      const T* data = c.factors != nullptr ? static_cast<const T*>(c.factors[f]) : packed;
      T* gradient = c.dfactors == nullptr ? nullptr : static_cast<T*>(c.dfactors[f]);
      wants_factors = wants_factors || gradient != nullptr;
      const int64_t size = kPlanes * c.p[f] * c.q[f];
      packed += c.rank * size;
      for (int64_t r = 0; r < c.rank; ++r, data += size) {
        factors[r * c.factor_count + f] = {data, C ? data + 1 : nullptr, kPlanes, c.p[f], c.q[f]};
        T* to = gradient == nullptr ? nullptr : gradient + r * size;
        gradients[r * c.factor_count + f] = {to, C && to != nullptr ? to + 1 : nullptr, kPlanes};
      }
      k *= c.q[f];
      n *= c.p[f];
      work += c.p[f] + c.q[f];
    }
    work *= larger(k, n) * c.rows * c.rank;
  }

  int threads() const {
    return int(larger(1, smaller(smaller(call.threads, call.rows), work / kWorthAThread)));
  }
};

// Rows [first, last) of thread t out of `threads`.
inline int64_t share(int64_t rows, int threads, int t) { return rows * t / threads; }

template <class T, bool C, class M>
void kron_forward(Arena& arena, const KronCall<T, C>& kron, const M& matrix, int64_t block) {
  const int threads = kron.threads();
  typename M::Worker** workers = arena.take<typename M::Worker*>(threads);
  T** in = arena.take<T*>(threads);
  T** out = arena.take<T*>(threads);
  const int64_t plane = block * larger(kron.k, kron.n);
  constexpr bool direct = !C && !M::kReadsPastEnd;  // the kernel may work on the caller's memory
  for (int t = 0; t < threads; ++t) {
    workers[t] = make_worker(arena, matrix, block, false);
    in[t] = direct ? nullptr : arena.take<T>(kron.kPlanes * plane);
    out[t] = direct ? nullptr : arena.take<T>(kron.kPlanes * plane);
  }
  const T* x = static_cast<const T*>(kron.call.x);
  T* y = static_cast<T*>(kron.call.y);
  constexpr int kPlanes = KronCall<T, C>::kPlanes;
  parallel(threads, [&](int t) {
    const int64_t last = share(kron.call.rows, threads, t + 1);
    for (int64_t row = share(kron.call.rows, threads, t); row < last; row += block) {
      const int64_t count = smaller(block, last - row);
      if (direct) {
        matrix.apply(*workers[t], count, x + row * kron.k, y + row * kron.n, 0);
        continue;
      }
      for (int64_t r = 0; r < count; ++r)
        read_row<T, C>(x + (row + r) * kron.k * kPlanes, kron.k, in[t] + r * kron.k, plane);
      matrix.apply(*workers[t], count, in[t], out[t], plane);
      for (int64_t r = 0; r < count; ++r)
        write_row<T, C>(out[t] + r * kron.n, plane, kron.n, y + (row + r) * kron.n * kPlanes);
    }
  });
}

template <class T, bool C, class M>
void kron_backward(Arena& arena, const KronCall<T, C>& kron, const M& matrix, int64_t block) {
  constexpr int kPlanes = KronCall<T, C>::kPlanes;
  const int threads = kron.threads();
  typename M::Worker** workers = arena.take<typename M::Worker*>(threads);
  T** buffers = arena.take<T*>(threads);
  const int64_t plane = block * larger(kron.k, kron.n), size = kPlanes * plane;
  for (int t = 0; t < threads; ++t) {
    workers[t] = make_worker(arena, matrix, block, kron.wants_factors);
    buffers[t] = arena.take<T>(2 * size + kPlanes * kron.k);
  }
  const T* x = static_cast<const T*>(kron.call.x);
  const T* dy = static_cast<const T*>(kron.call.dy);
  T* dx = static_cast<T*>(kron.call.dx);
  const bool needs_adjoint = dx != nullptr || matrix.gradient_from_adjoint();
  parallel(threads, [&](int t) {
    T* g = buffers[t];
    T* a = g + size;
    T* h = a + size;
    const int64_t last = share(kron.call.rows, threads, t + 1);
    for (int64_t row = share(kron.call.rows, threads, t); row < last; row += block) {
      const int64_t count = smaller(block, last - row);
      for (int64_t r = 0; r < count; ++r)
        read_row<T, C>(dy + (row + r) * kron.n * kPlanes, kron.n, g + r * kron.n, plane);
      if (needs_adjoint) matrix.adjoint(*workers[t], count, g, a, plane);
      for (int64_t r = 0; r < count; ++r) {
        if (kron.wants_factors) {
          read_row<T, C>(x + (row + r) * kron.k * kPlanes, kron.k, h, kron.k);
          matrix.accumulate(*workers[t], h, kron.k, g + r * kron.n, plane, a + r * kron.k, plane);
        }
        if (dx != nullptr) write_row<T, C>(a + r * kron.k, plane, kron.k, dx + (row + r) * kron.k * kPlanes);
      }
      if (kron.wants_factors) matrix.flush(*workers[t]);
    }
  });
  if (kron.wants_factors) matrix.finish(arena, workers, threads, kron.gradients);
}

template <class T, bool C> void kron(const kru_kron& call, bool backward) {
  Arena arena;
  const KronCall<T, C> kron(arena, call);
  with_matrices<T, C>(
      arena, 1, call.rank, call.factor_count, kron.factors, backward, kron.wants_factors, call.rows,
      [&](const auto* matrix) {
        const int threads = kron.threads();
        const int64_t block = matrix->block_rows((call.rows + threads - 1) / threads);
        if (backward)
          kron_backward<T, C>(arena, kron, *matrix, block);
        else
          kron_forward<T, C>(arena, kron, *matrix, block);
      });
}

}  // namespace KRU_ISA
}  // namespace kru
