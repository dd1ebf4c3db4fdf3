// A matrix that is a product of cheap unitary stages, times as many rows at once as a vector has lanes.
#pragma once

#include "fourier.hpp"
#include "kru.h"

namespace kru {
namespace KRU_ISA {

template <class T> KRU_INLINE Number<T> operator+(Number<T> a, Number<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> KRU_INLINE Number<T> operator-(Number<T> a, Number<T> b) { return {a.re - b.re, a.im - b.im}; }

// x times y or, with Conjugate, times the conjugate of y. y is one number for all rows, or one for each.
template <bool Conjugate, class T, class Y> KRU_INLINE Number<T> product(Number<T> x, Y re, Y im) {
  return Conjugate ? Number<T>{x.re * re + x.im * im, x.im * re - x.re * im}
                   : Number<T>{x.re * re - x.im * im, x.im * re + x.re * im};
}

template <class T> class Chain {
 public:
  Chain(Arena& arena, int64_t size, int count, const kru_stage* stages) : size_(size), count_(count), stages_(stages) {
    scales_ = arena.take_zeros<double>(count);
    for (int k = 0; k < count; ++k) {
      if (stages[k].kind == KRU_FOURIER && fourier_ == nullptr)
        fourier_ = new (arena.take<Fourier<T>>(1)) Fourier<T>(arena, size);
      if (stages[k].kind != KRU_REFLECTION) continue;
      const T* v = static_cast<const T*>(stages[k].numbers);
      for (int64_t i = 0; i < 2 * size; ++i) scales_[k] += double(v[i]) * double(v[i]);
      scales_[k] = 2 / scales_[k];
    }
  }

  // What a thread needs: the rows before each stage and after the last one, and, for the gradient, all of them kept, the
  // projections of the reflections, and sums of the gradient over time, lane by lane.
  class Worker {
   public:
    Worker(Arena& arena, const Chain& chain, bool gradient) {
      at_ = arena.take<Number<T>*>(chain.count_ + 1);
      // The input is never written over: a forward pass has its states there.
      for (int k = 0; k <= chain.count_; ++k)
        at_[k] = gradient || k < 3 ? arena.take<Number<T>>(chain.size_) : at_[k - 2];
      if (chain.fourier_ != nullptr) scratch_ = arena.take<Number<T>>(chain.fourier_->scratch());
      input = at_[0];
      output = at_[chain.count_];
      if (!gradient) return;
      for (Number<T>*& side : sides_) side = arena.take<Number<T>>(chain.size_);
      sums_ = arena.take<Sums>(chain.count_);
      for (int k = 0; k < chain.count_; ++k) {
        const kru_stage& stage = chain.stages_[k];
        const bool turns = stage.kind == KRU_ROTATIONS;
        const int64_t entries = turns ? stage.pairs : chain.size_;
        sums_[k].numbers = wants(stage) ? arena.take_zeros<Number<T>>(entries) : nullptr;
        sums_[k].turns = wants(stage) && turns ? arena.take_zeros<Number<T>>(entries) : nullptr;
        sums_[k].across = Vec<T>{};
      }
    }
    Number<T>*input, *output;

   private:
    friend class Chain;
    struct Sums {
      Number<T>* numbers;  // of d, of v or of p
      Number<T>* turns;    // of c and s
      Vec<T> across;       // of Re((v^H g)^* v^H x)
      Number<T> along;     // not a sum: v^H x of the last `apply`
    };
    Number<T>** at_;
    Number<T>* scratch_ = nullptr;
    Number<T>* sides_[2];
    Sums* sums_ = nullptr;
  };

  // worker.output = W worker.input
  void apply(Worker& worker) const {
    for (int k = 0; k < count_; ++k) {
      const Number<T>* x = worker.at_[k];
      if (stages_[k].kind == KRU_REFLECTION) {
        const Number<T> along = projected(k, x);
        if (worker.sums_ != nullptr) worker.sums_[k].along = along;
        reflect(k, along, x, worker.at_[k + 1]);
      } else {
        stage<false>(k, x, worker.at_[k + 1], worker.scratch_);
      }
    }
  }

  // to = W^H g, for the rows of the last `apply`; the gradients of the stages' numbers are added up on the way. `to` is
  // not g.
  void adjoint(Worker& worker, const Number<T>* g, Number<T>* to) const {
    if (count_ == 0) __builtin_memcpy(static_cast<void*>(to), g, size_t(size_) * sizeof(Number<T>));
    for (int k = count_ - 1; k >= 0; --k) {
      Number<T>* next = k == 0 ? to : worker.sides_[k % 2];
      if (wants(stages_[k]))
        stage_with_sums(worker, k, g, next);
      else if (stages_[k].kind == KRU_REFLECTION)
        reflect(k, projected(k, g), g, next);
      else
        stage<true>(k, g, next, worker.scratch_);
      g = next;
    }
  }

  // The gradients, from the sums of all threads.
  void finish(Worker* const* workers, int threads) const {
    for (int k = 0; k < count_; ++k) {
      const kru_stage& stage = stages_[k];
      if (!wants(stage)) continue;
      T *numbers = static_cast<T*>(stage.dnumbers), *c = static_cast<T*>(stage.dc), *s = static_cast<T*>(stage.ds);
      const double scale = -scales_[k];
      double across = 0;
      for (int t = 0; t < threads; ++t) across += sum<T>(workers[t]->sums_[k].across);
      const T* v = static_cast<const T*>(stage.numbers);
      const int64_t entries = stage.kind == KRU_ROTATIONS ? stage.pairs : size_;
      for (int64_t i = 0; i < entries; ++i) {
        double re = 0, im = 0, of_c = 0, of_s = 0;
        for (int t = 0; t < threads; ++t) {
          const typename Worker::Sums& sums = workers[t]->sums_[k];
          re += sum<T>(sums.numbers[i].re), im += sum<T>(sums.numbers[i].im);
          if (sums.turns != nullptr) of_c += sum<T>(sums.turns[i].re), of_s += sum<T>(sums.turns[i].im);
        }
        if (stage.kind == KRU_REFLECTION) {
          re = scale * re + scale * scale * across * v[2 * i];
          im = scale * im + scale * scale * across * v[2 * i + 1];
        }
        if (numbers != nullptr) numbers[2 * i] = T(re), numbers[2 * i + 1] = T(im);
        if (c != nullptr) c[i] = T(of_c);
        if (s != nullptr) s[i] = T(of_s);
      }
    }
  }

 private:
  static bool wants(const kru_stage& stage) {
    return stage.dnumbers != nullptr || stage.dc != nullptr || stage.ds != nullptr;
  }

  // y = stage k, or its conjugate transpose, times x; reflections have a function of their own.
  template <bool Adjoint> void stage(int k, const Number<T>* x, Number<T>* y, Number<T>* scratch) const {
    const kru_stage& stage = stages_[k];
    const T* numbers = static_cast<const T*>(stage.numbers);
    switch (stage.kind) {
      case KRU_DIAGONAL:
        for (int64_t i = 0; i < size_; ++i) y[i] = product<Adjoint>(x[i], numbers[2 * i], numbers[2 * i + 1]);
        break;
      case KRU_FOURIER: fourier_->apply(x, y, scratch, (stage.inverse != 0) != Adjoint); break;
      case KRU_PERMUTATION:
        for (int64_t i = 0; i < size_; ++i) y[Adjoint ? stage.order[i] : i] = x[Adjoint ? i : stage.order[i]];
        break;
      default:
        keep_others(stage, x, y);
        each_pair(stage, [&](int64_t i, int64_t one, int64_t other) KRU_LAMBDA {
          const T c = static_cast<const T*>(stage.c)[i], s = static_cast<const T*>(stage.s)[i];
          Number<T> a = x[one], b = x[other];
          if (Adjoint) {
            a = product<true>(a, numbers[2 * i], numbers[2 * i + 1]);
            y[one] = {c * a.re + s * b.re, c * a.im + s * b.im};
            y[other] = {c * b.re - s * a.re, c * b.im - s * a.im};
          } else {
            const Number<T> mixed{c * a.re - s * b.re, c * a.im - s * b.im};
            y[one] = product<false>(mixed, numbers[2 * i], numbers[2 * i + 1]);
            y[other] = {s * a.re + c * b.re, s * a.im + c * b.im};
          }
        });
    }
  }

  // y = the conjugate transpose of stage k times g, and the stage's sums by its input x, in one pass over the numbers:
  // they are in the second cache, and it is there that the time goes.
  //   d: x^* g      v: s^* g + r^* x with s = v^H x, r = v^H g, and Re(r^* s), see `finish`
  //   p: (c a - s b)^* g_a      c: Re((p a)^* g_a + b^* g_b)      s: Re(a^* g_b - (p b)^* g_a)
  void stage_with_sums(Worker& worker, int k, const Number<T>* g, Number<T>* y) const {
    const kru_stage& stage = stages_[k];
    const T* numbers = static_cast<const T*>(stage.numbers);
    const Number<T>* x = worker.at_[k];
    typename Worker::Sums& sums = worker.sums_[k];
    if (stage.kind == KRU_DIAGONAL) {
      for (int64_t i = 0; i < size_; ++i) {
        sums.numbers[i] = sums.numbers[i] + product<true>(g[i], x[i].re, x[i].im);
        y[i] = product<true>(g[i], numbers[2 * i], numbers[2 * i + 1]);
      }
    } else if (stage.kind == KRU_REFLECTION) {
      const Number<T> s = sums.along, r = projected(k, g);
      sums.across += r.re * s.re + r.im * s.im;
      reflect(k, r, g, y, [&](int64_t i) KRU_LAMBDA {
        sums.numbers[i] = sums.numbers[i] + (product<true>(g[i], s.re, s.im) + product<true>(x[i], r.re, r.im));
      });
    } else {
      keep_others(stage, g, y);
      each_pair(stage, [&](int64_t i, int64_t one, int64_t other) KRU_LAMBDA {
        const T c = static_cast<const T*>(stage.c)[i], s = static_cast<const T*>(stage.s)[i];
        const Number<T> a = x[one], b = x[other], g_b = g[other];
        const Number<T> back = product<true>(g[one], numbers[2 * i], numbers[2 * i + 1]);
        const Number<T> mixed{c * a.re - s * b.re, c * a.im - s * b.im};
        sums.numbers[i] = sums.numbers[i] + product<true>(g[one], mixed.re, mixed.im);
        sums.turns[i].re += a.re * back.re + a.im * back.im + b.re * g_b.re + b.im * g_b.im;
        sums.turns[i].im += a.re * g_b.re + a.im * g_b.im - b.re * back.re - b.im * back.im;
        y[one] = {c * back.re + s * g_b.re, c * back.im + s * g_b.im};
        y[other] = {c * g_b.re - s * back.re, c * g_b.im - s * back.im};
      });
    }
  }

  // The units that are in no pair of a stage of rotations.
  void keep_others(const kru_stage& stage, const Number<T>* x, Number<T>* y) const {
    for (int64_t i = 0; i < stage.first; ++i) y[i] = x[i];
    for (int64_t i = stage.first + 2 * stage.pairs; i < size_; ++i) y[i] = x[i];
  }

  // body(i, first unit, second unit) for each pair of a stage of rotations.
  template <class Body> static KRU_INLINE void each_pair(const kru_stage& stage, const Body& body) {
    for (int64_t i = 0; i < stage.pairs; i += stage.distance)
      for (int64_t j = 0; j < stage.distance; ++j) {
        const int64_t one = stage.first + 2 * i + j;
        body(i + j, one, one + stage.distance);
      }
  }

  // v^H x, in four sums: one would wait for each addition to end.
  Number<T> projected(int k, const Number<T>* x) const {
    const T* v = static_cast<const T*>(stages_[k].numbers);
    Number<T> parts[4] = {};
    int64_t i = 0;
    for (; i + 4 <= size_; i += 4)
#pragma GCC unroll 4
      for (int64_t j = 0; j < 4; ++j)
        parts[j] = parts[j] + product<true>(x[i + j], v[2 * (i + j)], v[2 * (i + j) + 1]);
    for (; i < size_; ++i) parts[0] = parts[0] + product<true>(x[i], v[2 * i], v[2 * i + 1]);
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }

  // y = x - 2 v (v^H x) / |v|^2, where along = v^H x; also(i) on the way. The matrix is its own conjugate transpose.
  template <class Also>
  KRU_INLINE void reflect(int k, Number<T> along, const Number<T>* x, Number<T>* y, const Also& also) const {
    const T* v = static_cast<const T*>(stages_[k].numbers);
    const T scale = T(scales_[k]);
    along = {scale * along.re, scale * along.im};
    for (int64_t i = 0; i < size_; ++i) {
      also(i);
      y[i] = x[i] - product<false>(along, v[2 * i], v[2 * i + 1]);
    }
  }
  void reflect(int k, Number<T> along, const Number<T>* x, Number<T>* y) const { reflect(k, along, x, y, [](int64_t) {}); }

  int64_t size_;
  int count_;
  const kru_stage* stages_;
  double* scales_;  // 2 / |v|^2 of each reflection
  Fourier<T>* fourier_ = nullptr;
};

}  // namespace KRU_ISA
}  // namespace kru
