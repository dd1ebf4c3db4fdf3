// A sum of Kronecker matrices of equal shapes, W = W_1 + ... + W_R, each of the kind M. With R = 1, that matrix itself.
#pragma once

#include <new>

#include "factors.hpp"
#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

template <class T, class M> class Sum {
 public:
  static constexpr int kPlanes = M::kPlanes;
  static constexpr bool kReadsPastEnd = M::kReadsPastEnd;

  // factors are (rank, count).
  // `rows`: how many the gradient comes from, 0 where none is wanted.
  Sum(Arena& arena, int64_t rank, int count, const Factor<T>* factors, bool adjoint, int64_t rows)
      : rank_(rank), count_(count) {
    terms_ = arena.take<M>(rank);
    for (int64_t r = 0; r < rank; ++r) new (terms_ + r) M(arena, count, factors + r * count, adjoint, rank == 1 ? rows : 0);
  }

  bool gradient_from_adjoint() const { return terms_[0].gradient_from_adjoint(); }
  int64_t block_rows(int64_t rows) const { return terms_[0].block_rows(rows); }

  class Worker {
   public:
    Worker(Arena& arena, const Sum& matrix, int64_t block, bool gradient) {
      terms = arena.take<typename M::Worker*>(matrix.rank_);
      for (int64_t r = 0; r < matrix.rank_; ++r)
        terms[r] = new (arena.take<typename M::Worker>(1)) typename M::Worker(arena, matrix.terms_[r], block, gradient);
      if (matrix.rank_ == 1) return;
      keeps_adjoints = gradient && matrix.gradient_from_adjoint();
      const M& first = matrix.terms_[0];
      const int64_t size = kPlanes * block * larger(first.inputs(), first.outputs());
      products = arena.take<T*>(matrix.rank_);
      for (int64_t r = 0; r < matrix.rank_; ++r)
        products[r] = r == 0 || keeps_adjoints ? arena.take<T>(size) : products[0];
    }
    typename M::Worker** terms;
    T** products = nullptr;  // one term's product; a memory for each term where their gradients need W_r^H g
    bool keeps_adjoints = false;
  };

  void apply(Worker& worker, int64_t rows, const T* in, T* out, int64_t plane) const {
    terms_[0].apply(*worker.terms[0], rows, in, out, plane);
    for (int64_t r = 1; r < rank_; ++r) {
      terms_[r].apply(*worker.terms[r], rows, in, worker.products[0], plane);
      add(out, worker.products[0], rows * terms_[0].outputs(), plane);
    }
  }

  void adjoint(Worker& worker, int64_t rows, const T* in, T* out, int64_t plane) const {
    terms_[0].adjoint(*worker.terms[0], rows, in, out, plane);
    const int64_t size = rows * terms_[0].inputs();
    if (worker.keeps_adjoints)
      for (int c = 0; c < kPlanes; ++c)
        __builtin_memcpy(worker.products[0] + c * plane, out + c * plane, size_t(size) * sizeof(T));
    for (int64_t r = 1; r < rank_; ++r) {
      terms_[r].adjoint(*worker.terms[r], rows, in, worker.products[r], plane);
      add(out, worker.products[r], size, plane);
    }
  }

  // One row of the last `adjoint`. Kinds that need a = W_r^H g take one row at a time, so it is that row's.
  void accumulate(Worker& worker, const T* h, int64_t h_plane, const T* g, int64_t g_plane, const T* a,
                  int64_t a_plane) const {
    for (int64_t r = 0; r < rank_; ++r)
      terms_[r].accumulate(*worker.terms[r], h, h_plane, g, g_plane, worker.keeps_adjoints ? worker.products[r] : a,
                           a_plane);
  }

  void flush(Worker& worker) const {
    for (int64_t r = 0; r < rank_; ++r) terms_[r].flush(*worker.terms[r]);
  }

  // gradients are (rank, count).
  void finish(Arena& arena, Worker* const* workers, int threads, FactorGradient<T>* gradients) const {
    typename M::Worker** own = arena.take<typename M::Worker*>(threads);
    for (int64_t r = 0; r < rank_; ++r) {
      for (int t = 0; t < threads; ++t) own[t] = workers[t]->terms[r];
      terms_[r].finish(own, threads, gradients + r * count_);
    }
  }

 private:
  static void add(T* to, const T* from, int64_t size, int64_t plane) {
    for (int c = 0; c < kPlanes; ++c)
      for (int64_t i = 0; i < size; ++i) to[c * plane + i] += from[c * plane + i];
  }

  int64_t rank_;
  int count_;
  M* terms_;
};

}  // namespace KRU_ISA
}  // namespace kru
