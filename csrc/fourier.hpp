// The unitary discrete Fourier transform of as many rows at once as a vector has lanes: each number is a vector, and no
// lane ever meets another one.
#pragma once

#include <math.h>

#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

// A complex number of each row.
template <class T> struct Number {
  Vec<T> re, im;
};

// y_j = N^-1/2 sum_k x_k exp(-2 pi i j k / N), for any N.
//
// Stockham's algorithm: a pass for each factor r of N takes transforms of r numbers, m r s = N of them apart by m s,
// turns the results by roots of unity and stores them apart by s, where the next pass expects them. Factors are 8, at
// most two 4s or one 2, so that passes are few, and odd primes; a prime r costs r^2 / 4 complex products, all else is
// cheap.
template <class T> class Fourier {
 public:
  Fourier(Arena& arena, int64_t size) : size_(size) {
    int64_t rest = size, stride = 1;
    passes_ = arena.take<Pass>(64);
    for (int64_t odd = 3; rest > 1;) {
      const int twos = __builtin_ctzll(uint64_t(rest));
      if (twos == 0 && rest % odd != 0) {
        odd = odd * odd > rest ? rest : odd + 2;
        continue;
      }
      const int64_t radix = twos == 0 ? odd : twos == 1 ? 2 : twos == 2 || twos == 4 ? 4 : 8;
      rest /= radix;
      passes_[count_++] = pass(arena, radix, rest, stride, stride == 1 ? 1 / sqrt(double(size)) : 1);
      stride *= radix;
      largest_ = larger(largest_, radix);
    }
  }

  // Numbers of memory beside input and output, for each thread.
  int64_t scratch() const { return size_ + 2 * largest_; }

  // The inverse is the transform with real and imaginary parts exchanged, before and after. Input and output differ.
  void apply(const Number<T>* in, Number<T>* out, Number<T>* scratch, bool inverse) const {
    const Vec<T>* from = &in->re;
    if (count_ == 0) *out = *in;
    for (int k = 0; k < count_; ++k) {
      Vec<T>* to = (count_ - k) % 2 == 1 ? &out->re : &scratch->re;
      run(passes_[k], Planes<const Vec<T>>(from, inverse), Planes<Vec<T>>(to, inverse), scratch + size_);
      from = to;
    }
  }

 private:
  struct Pass {
    int64_t radix, rest, stride;  // r, m and s
    T scale;                      // of all results, in the first pass that of the whole transform
    T* roots;                     // (m, r - 1): the scale times exp(-2 pi i p j / (m r)), j > 0
    T* waves;                     // (h, h) with h = (r - 1) / 2: cos and sin of 2 pi j k / r, j > 0, k > 0; odd r
  };

  // Pointers to real and imaginary parts, which alternate in memory.
  template <class V> struct Planes {
    Planes(V* first, bool exchanged) : re(first + (exchanged ? 1 : 0)), im(first + (exchanged ? 0 : 1)) {}
    KRU_INLINE Number<T> get(int64_t i) const { return {re[2 * i], im[2 * i]}; }
    KRU_INLINE void set(int64_t i, Number<T> x) const { re[2 * i] = x.re, im[2 * i] = x.im; }
    V *re, *im;
  };
  using From = Planes<const Vec<T>>;
  using To = Planes<Vec<T>>;

  static Pass pass(Arena& arena, int64_t radix, int64_t rest, int64_t stride, double scale) {
    const double full = 6.283185307179586476925;
    Pass out{radix, rest, stride, T(scale), arena.take<T>(2 * rest * (radix - 1)), nullptr};
    T* root = out.roots;
    for (int64_t p = 0; p < rest; ++p)
      for (int64_t j = 1; j < radix; ++j) {
        const double angle = full * double(p * j % (rest * radix)) / double(rest * radix);
        *root++ = T(scale * cos(angle)), *root++ = T(-scale * sin(angle));
      }
    if (radix % 2 == 0) return out;
    const int64_t half = (radix - 1) / 2;
    T* wave = out.waves = arena.take<T>(2 * half * half);
    for (int64_t j = 1; j <= half; ++j)
      for (int64_t k = 1; k <= half; ++k) {
        const double angle = full * double(j * k % radix) / double(radix);
        *wave++ = T(cos(angle)), *wave++ = T(sin(angle));
      }
    return out;
  }

  static KRU_INLINE Number<T> turned(Number<T> x, const T* root) {
    return {x.re * root[0] - x.im * root[1], x.re * root[1] + x.im * root[0]};
  }

  static void run(const Pass& pass, From x, To y, Number<T>* scratch) {
    // Without a scale, the roots of p = 0 are all 1: in the last pass there are no others.
    const bool plain = pass.scale == 1;
    for (int64_t p = 0; p < pass.rest; ++p) {
      if (pass.radix == 8)
        p == 0 && plain ? eight<false>(pass, p, x, y) : eight<true>(pass, p, x, y);
      else if (pass.radix == 4)
        p == 0 && plain ? four<false>(pass, p, x, y) : four<true>(pass, p, x, y);
      else if (pass.radix == 2)
        two(pass, p, x, y);
      else
        odd(pass, p, x, y, scratch);
    }
  }

  struct Four {
    Number<T> y[4];
  };
  static KRU_INLINE Four transformed(Number<T> a, Number<T> b, Number<T> c, Number<T> d) {
    const Number<T> even{a.re + c.re, a.im + c.im}, odd{a.re - c.re, a.im - c.im};
    const Number<T> others{b.re + d.re, b.im + d.im}, across{b.im - d.im, d.re - b.re};  // -i (b - d)
    return {{{even.re + others.re, even.im + others.im}, {odd.re + across.re, odd.im + across.im},
             {even.re - others.re, even.im - others.im}, {odd.re - across.re, odd.im - across.im}}};
  }

  // Result j of a pass, for the numbers (p, q) of it.
  template <bool Turn>
  static KRU_INLINE void put(const Pass& pass, int64_t p, int64_t j, Number<T> value, To y, int64_t to) {
    if (Turn && j == 0) value = {pass.scale * value.re, pass.scale * value.im};
    if (Turn && j != 0) value = turned(value, pass.roots + 2 * (p * (pass.radix - 1) + j - 1));
    y.set(to + j * pass.stride, value);
  }

  // Two transforms of four: y_j and y_{j+4} are e_j +- w^j o_j with w = exp(-i pi / 4).
  template <bool Turn> static void eight(const Pass& pass, int64_t p, From x, To y) {
    const int64_t s = pass.stride, apart = pass.rest * s;
    const T half = T(0.707106781186547524400844);
    for (int64_t q = 0; q < s; ++q) {
      const int64_t at = q + s * p, to = q + 8 * s * p;
      const Four e = transformed(x.get(at), x.get(at + 2 * apart), x.get(at + 4 * apart), x.get(at + 6 * apart));
      const Four o = transformed(x.get(at + apart), x.get(at + 3 * apart), x.get(at + 5 * apart), x.get(at + 7 * apart));
      const Number<T> turns[4] = {
          o.y[0],
          {half * (o.y[1].re + o.y[1].im), half * (o.y[1].im - o.y[1].re)},
          {o.y[2].im, -o.y[2].re},
          {half * (o.y[3].im - o.y[3].re), -half * (o.y[3].re + o.y[3].im)},
      };
#pragma GCC unroll 4
      for (int64_t j = 0; j < 4; ++j) {
        put<Turn>(pass, p, j, {e.y[j].re + turns[j].re, e.y[j].im + turns[j].im}, y, to);
        put<Turn>(pass, p, j + 4, {e.y[j].re - turns[j].re, e.y[j].im - turns[j].im}, y, to);
      }
    }
  }

  template <bool Turn> static void four(const Pass& pass, int64_t p, From x, To y) {
    const int64_t s = pass.stride, apart = pass.rest * s;
    for (int64_t q = 0; q < s; ++q) {
      const int64_t at = q + s * p, to = q + 4 * s * p;
      const Four f = transformed(x.get(at), x.get(at + apart), x.get(at + 2 * apart), x.get(at + 3 * apart));
#pragma GCC unroll 4
      for (int64_t j = 0; j < 4; ++j) put<Turn>(pass, p, j, f.y[j], y, to);
    }
  }

  static void two(const Pass& pass, int64_t p, From x, To y) {
    const int64_t s = pass.stride, apart = pass.rest * s;
    for (int64_t q = 0; q < s; ++q) {
      const Number<T> a = x.get(q + s * p), b = x.get(q + s * p + apart);
      y.set(q + 2 * s * p, {pass.scale * (a.re + b.re), pass.scale * (a.im + b.im)});
      y.set(q + 2 * s * p + s, turned({a.re - b.re, a.im - b.im}, pass.roots + 2 * p));
    }
  }

  // x_k and x_{r-k} meet results j and r - j in the same cosine and in sines of opposite sign: with their sums u_k and
  // differences w_k, these are A -+ iB of A = x_0 + sum_k u_k cos, B = sum_k w_k sin.
  static void odd(const Pass& pass, int64_t p, From x, To y, Number<T>* scratch) {
    const int64_t r = pass.radix, s = pass.stride, apart = pass.rest * s, half = (r - 1) / 2;
    for (int64_t q = 0; q < s; ++q) {
      const int64_t at = q + s * p;
      const Number<T> first = x.get(at);
      Number<T> total = first;
      for (int64_t k = 1; k <= half; ++k) {
        const Number<T> a = x.get(at + k * apart), b = x.get(at + (r - k) * apart);
        scratch[2 * k - 2] = {a.re + b.re, a.im + b.im};
        scratch[2 * k - 1] = {a.re - b.re, a.im - b.im};
        total.re += scratch[2 * k - 2].re, total.im += scratch[2 * k - 2].im;
      }
      const int64_t to = q + r * s * p;
      y.set(to, {pass.scale * total.re, pass.scale * total.im});
      int64_t j = 1;
      for (; j + 2 <= half; j += 3) pairs<3>(pass, p, j, first, scratch, y, to);
      for (; j <= half; ++j) pairs<1>(pass, p, j, first, scratch, y, to);
    }
  }

  // Results j, r - j and as many following pairs as `Count` says: enough to be busy with arithmetic, not with loads.
  template <int Count>
  static KRU_INLINE void pairs(const Pass& pass, int64_t p, int64_t j, Number<T> first, const Number<T>* scratch, To y,
                               int64_t to) {
    const int64_t r = pass.radix, s = pass.stride, half = (r - 1) / 2;
    const T* waves = pass.waves + 2 * (j - 1) * half;
    Number<T> a[Count], b[Count];
    for (int c = 0; c < Count; ++c) a[c] = first, b[c] = {Vec<T>{}, Vec<T>{}};
    for (int64_t k = 0; k < half; ++k) {
      const Number<T> u = scratch[2 * k], w = scratch[2 * k + 1];
#pragma GCC unroll 3
      for (int c = 0; c < Count; ++c) {
        const T* wave = waves + 2 * (c * half + k);
        a[c].re += wave[0] * u.re, a[c].im += wave[0] * u.im;
        b[c].re += wave[1] * w.re, b[c].im += wave[1] * w.im;
      }
    }
    const T* roots = pass.roots + 2 * p * (r - 1);
    for (int c = 0; c < Count; ++c) {
      const int64_t one = j + c, other = r - one;
      y.set(to + one * s, turned({a[c].re + b[c].im, a[c].im - b[c].re}, roots + 2 * (one - 1)));
      y.set(to + other * s, turned({a[c].re - b[c].im, a[c].im + b[c].re}, roots + 2 * (other - 1)));
    }
  }

  int64_t size_, largest_ = 1;
  int count_ = 0;
  Pass* passes_;
};

}  // namespace KRU_ISA
}  // namespace kru
