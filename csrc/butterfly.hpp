// Kronecker products of 2x2 factors: N = 2^F, in place, one row at a time.
//
// Factor f pairs the entries i and i ^ s, s = 2^(F-1-f). Where s is at least a vector, the pair are two vectors, and two
// (complex) or three (real) factors are applied on each pass over the row, in registers. The last factors, s shorter
// than a vector, are a lane exchange within it: y = A x + B exchange(x) with coefficients that differ by lane.
//
// Gradient. With a = W^H g the part of the gradient that arrives at the input h, and
//     T_f[p, q] = sum over l, r of a[l, p, r] conj(h[l, q, r]),
// dL/dW_f = W_f^{-H} T_f, because W with W_f replaced by E is W (I x W_f^{-1} E x I). So all F gradients come from a
// and h themselves; no intermediate product is computed again. T_f is linear in a h^H: it is summed over all rows and
// steps and solved once. The diagonals of all T_f share the products a[i] conj(h[i]). This needs factors that are not
// close to singular (`suits`); merged.hpp serves the others.
#pragma once

#include <math.h>

#include "factors.hpp"
#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

template <class T, bool C> class Butterfly {
 public:
  using V = Vec<T>;
  static constexpr int64_t kWidth = kLanes<T>;
  static constexpr int kPlanes = C ? 2 : 1;
  static constexpr int kRadix = C ? 2 : 3;          // factors on one pass
  static constexpr int64_t kBlock = 8192 / sizeof(T);  // values of a row that stay in the first-level cache
  static constexpr bool kReadsPastEnd = false;

  static bool suits(int count, const Factor<T>* factors) {
    for (int f = 0; f < count; ++f)
      if (factors[f].p != 2 || factors[f].q != 2) return false;
    return count < 40 && (int64_t(1) << count) >= 2 * kWidth;
  }

  // Whether the gradient's solve loses at most a few bits: the condition number of a 2x2 matrix is at most
  // |W|_F^2 / |det W|.
  static bool gradient_suits(int count, const Factor<T>* factors) {
    for (int f = 0; f < count; ++f) {
      double re[4], im[4], norm = 0;
      read(factors[f], re, im);
      for (int e = 0; e < 4; ++e) norm += re[e] * re[e] + im[e] * im[e];
      const double det_re = re[0] * re[3] - im[0] * im[3] - re[1] * re[2] + im[1] * im[2];
      const double det_im = re[0] * im[3] + im[0] * re[3] - re[1] * im[2] - im[1] * re[2];
      const double det = sqrt(det_re * det_re + det_im * det_im);
      if (!(det * (sizeof(T) == 4 ? 32.0 : 1e4) >= norm) || !(norm > 1e-12 && norm < 1e12)) return false;
    }
    return true;
  }

  Butterfly(Arena& arena, int count, const Factor<T>* factors, bool with_adjoint, int64_t)
      : count_(count), n_(int64_t(1) << count) {
    while ((int64_t(1) << lane_factors_) < kWidth) ++lane_factors_;
    big_ = count_ - lane_factors_;
    factors_ = arena.take<Factor<T>>(count);
    for (int f = 0; f < count; ++f) factors_[f] = factors[f];
    for (int adjoint = 0; adjoint < (with_adjoint ? 2 : 1); ++adjoint) {
      coefs_[adjoint] = arena.take<V>(count * 4 * kPlanes);
      fill(coefs_[adjoint], adjoint != 0);
    }
  }

  // Whether `accumulate` reads a = W^H g.
  bool gradient_from_adjoint() const { return true; }
  int64_t inputs() const { return n_; }
  int64_t outputs() const { return n_; }
  int64_t block_rows(int64_t) const { return 1; }

  // What one thread needs: for the gradient, sums over steps in T and over rows in double.
  class Worker {
   public:
    Worker(Arena& arena, const Butterfly& matrix, int64_t, bool gradient) {
      if (!gradient) return;
      diagonal = arena.take_zeros<T>(kPlanes * matrix.n_);
      diagonal_total = arena.take_zeros<double>(kPlanes * matrix.n_);
      exchange_sums = arena.take_zeros<V>(matrix.count_ * 2 * kPlanes);
      exchange_total = arena.take_zeros<double>(matrix.count_ * 4);
    }
    T* diagonal = nullptr;
    double* diagonal_total = nullptr;
    V* exchange_sums = nullptr;
    double* exchange_total = nullptr;
  };

  // out = W in (or W^H in). The imaginary planes lie `plane` values after the real ones. rows is always 1.
  void apply(Worker&, int64_t, const T* in, T* out, int64_t plane) const { run(coefs_[0], in, out, plane, plane); }
  void adjoint(Worker&, int64_t, const T* in, T* out, int64_t plane) const { run(coefs_[1], in, out, plane, plane); }

  void accumulate(Worker& worker, const T* h, int64_t h_plane, const T*, int64_t, const T* a, int64_t a_plane) const {
    for (int f = 0; f < big_; ++f) pair_sums(worker, f, h, h_plane, a, a_plane);
    lane_sums(worker, h, h_plane, a, a_plane);
  }

  // Called after each row's sequence: sums in T stay short.
  void flush(Worker& worker) const {
    for (int64_t i = 0; i < kPlanes * n_; ++i) {
      worker.diagonal_total[i] += worker.diagonal[i];
      worker.diagonal[i] = 0;
    }
    for (int f = 0; f < count_; ++f) {
      for (int plane = 0; plane < kPlanes; ++plane) {
        double* total = worker.exchange_total + f * 4 + plane;  // [entry (0,1) re, im, entry (1,0) re, im]
        V* sums = worker.exchange_sums + f * 2 * kPlanes;
        if (f < big_) {
          total[0] += sum<T>(sums[plane]);
          total[2] += sum<T>(sums[kPlanes + plane]);
          sums[kPlanes + plane] = V{};
        } else {
          const int64_t stride = int64_t(1) << (count_ - 1 - f);
          for (int64_t lane = 0; lane < kWidth; ++lane) total[(lane & stride) ? 2 : 0] += sums[plane][lane];
        }
        sums[plane] = V{};
      }
    }
  }

  void finish(Worker* const* workers, int threads, FactorGradient<T>* gradients) const {
    for (int f = 0; f < count_; ++f) {
      if (gradients[f].re == nullptr) continue;
      double re[4] = {}, im[4] = {};
      const int64_t stride = int64_t(1) << (count_ - 1 - f);
      for (int thread = 0; thread < threads; ++thread) {
        const Worker& worker = *workers[thread];
        for (int64_t i = 0; i < n_; ++i) {
          const int entry = (i & stride) ? 3 : 0;
          re[entry] += worker.diagonal_total[i];
          if (C) im[entry] += worker.diagonal_total[n_ + i];
        }
        for (int entry = 1; entry < 3; ++entry) {
          re[entry] += worker.exchange_total[f * 4 + (entry - 1) * 2];
          if (C) im[entry] += worker.exchange_total[f * 4 + (entry - 1) * 2 + 1];
        }
      }
      solve(factors_[f], re, im, gradients[f]);
    }
  }

 private:
  static void read(const Factor<T>& factor, double* re, double* im) {
    for (int e = 0; e < 4; ++e) {
      re[e] = factor.re[e * factor.step];
      im[e] = C ? factor.im[e * factor.step] : 0.0;
    }
  }

  // dW = W^{-H} T for 2x2 matrices: W^{-H} is the adjugate of W^H over conj(det W).
  static void solve(const Factor<T>& factor, const double* t_re, const double* t_im, FactorGradient<T> out) {
    double re[4], im[4];
    read(factor, re, im);
    const double det_re = re[0] * re[3] - im[0] * im[3] - re[1] * re[2] + im[1] * im[2];
    const double det_im = re[0] * im[3] + im[0] * re[3] - re[1] * im[2] - im[1] * re[2];
    const double size = det_re * det_re + det_im * det_im;
    // conj(W)^{-T}: entries of [[conj d, -conj c], [-conj b, conj a]] for W = [[a, b], [c, d]].
    const double a_re[4] = {re[3], -re[2], -re[1], re[0]};
    const double a_im[4] = {-im[3], im[2], im[1], -im[0]};
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        double x = 0, y = 0;
        for (int k = 0; k < 2; ++k) {
          x += a_re[2 * i + k] * t_re[2 * k + j] - a_im[2 * i + k] * t_im[2 * k + j];
          y += a_re[2 * i + k] * t_im[2 * k + j] + a_im[2 * i + k] * t_re[2 * k + j];
        }
        // 1 / conj(det) = det / |det|^2
        out.re[(2 * i + j) * out.step] = T((x * det_re - y * det_im) / size);
        if (C) out.im[(2 * i + j) * out.step] = T((x * det_im + y * det_re) / size);
      }
  }

  // Big factors: entries 00, 01, 10, 11, each re (and im), in every lane. Lane factors: A then B, by lane.
  void fill(V* coefs, bool adjoint) const {
    for (int f = 0; f < count_; ++f) {
      double re[4], im[4];
      read(factors_[f], re, im);
      if (adjoint) {
        const double swap_re = re[1], swap_im = im[1];
        re[1] = re[2], im[1] = im[2];
        re[2] = swap_re, im[2] = swap_im;
        for (int e = 0; e < 4; ++e) im[e] = -im[e];
      }
      V* at = coefs + f * 4 * kPlanes;
      if (f < big_) {
        for (int e = 0; e < 4; ++e) {
          at[e * kPlanes] = splat<T>(T(re[e]));
          if (C) at[e * kPlanes + 1] = splat<T>(T(im[e]));
        }
      } else {
        const int64_t stride = int64_t(1) << (count_ - 1 - f);
        for (int64_t lane = 0; lane < kWidth; ++lane) {
          const int own = (lane & stride) ? 3 : 0, other = (lane & stride) ? 2 : 1;
          at[0][lane] = T(re[own]);
          at[kPlanes][lane] = T(re[other]);
          if (C) {
            at[1][lane] = T(im[own]);
            at[kPlanes + 1][lane] = T(im[other]);
          }
        }
      }
    }
  }

  // Passes over the whole row for the long strides, then everything else block by block.
  void run(const V* coefs, const T* in, T* out, int64_t in_plane, int64_t out_plane) const {
    int f = 0;
    const T* source = in;
    int64_t source_plane = in_plane;
    const int64_t block = smaller(n_, kBlock / kPlanes);
    while ((n_ >> f) > block) {
      f += passes(coefs, f, source, source_plane, out, out_plane, n_);
      source = out;
      source_plane = out_plane;
    }
    const int64_t length = n_ >> f;
    for (int64_t at = 0; at < n_; at += length) {
      const T* from = source + at;
      int64_t from_plane = source_plane;
      for (int g = f; g < big_;) {
        g += passes(coefs, g, from, from_plane, out + at, out_plane, length);
        from = out + at;
        from_plane = out_plane;
      }
      lanes(coefs, from, from_plane, out + at, out_plane, length);
    }
  }

  int passes(const V* coefs, int f, const T* in, int64_t in_plane, T* out, int64_t out_plane, int64_t n) const {
    const int left = big_ - f;
    const V* at = coefs + f * 4 * kPlanes;
    if (left >= kRadix && left != kRadix + 1) {
      pass<kRadix>(at, in, in_plane, out, out_plane, n, n_ >> (f + kRadix));
      return kRadix;
    }
    if (left >= 2) {
      pass<2>(at, in, in_plane, out, out_plane, n, n_ >> (f + 2));
      return 2;
    }
    pass<1>(at, in, in_plane, out, out_plane, n, n_ >> (f + 1));
    return 1;
  }

  template <int K>
  static void pass(const V* coefs, const T* in, int64_t in_plane, T* out, int64_t out_plane, int64_t n,
                   int64_t stride) {
    constexpr int kGroup = 1 << K;
    for (int64_t base = 0; base < n; base += stride * kGroup) {
      for (int64_t j = base; j < base + stride; j += kWidth) {
        V re[kGroup], im[kGroup];
#pragma GCC unroll 8
        for (int g = 0; g < kGroup; ++g) {
          re[g] = load(in + j + g * stride);
          if (C) im[g] = load(in + in_plane + j + g * stride);
        }
#pragma GCC unroll 4
        for (int k = 0; k < K; ++k) {
          const int distance = 1 << (K - 1 - k);
          const V* w = coefs + k * 4 * kPlanes;
#pragma GCC unroll 8
          for (int g = 0; g < kGroup; ++g)
            if (!(g & distance)) turn(w, re[g], im[g], re[g | distance], im[g | distance]);
        }
#pragma GCC unroll 8
        for (int g = 0; g < kGroup; ++g) {
          store(out + j + g * stride, re[g]);
          if (C) store(out + out_plane + j + g * stride, im[g]);
        }
      }
    }
  }

  // (x, y) <- W (x, y)
  static KRU_INLINE void turn(const V* w, V& x_re, V& x_im, V& y_re, V& y_im) {
    if (C) {
      const V a = w[0] * x_re - w[1] * x_im + w[2] * y_re - w[3] * y_im;
      const V b = w[0] * x_im + w[1] * x_re + w[2] * y_im + w[3] * y_re;
      const V c = w[4] * x_re - w[5] * x_im + w[6] * y_re - w[7] * y_im;
      const V d = w[4] * x_im + w[5] * x_re + w[6] * y_im + w[7] * y_re;
      x_re = a, x_im = b, y_re = c, y_im = d;
    } else {
      const V a = w[0] * x_re + w[1] * y_re;
      y_re = w[2] * x_re + w[3] * y_re;
      x_re = a;
    }
  }

  void lanes(const V* coefs, const T* in, int64_t in_plane, T* out, int64_t out_plane, int64_t n) const {
    const V* w = coefs + big_ * 4 * kPlanes;
    for (int64_t j = 0; j < n; j += kWidth) {
      V re = load(in + j), im{};
      if (C) im = load(in + in_plane + j);
      lane_turns<kWidth / 2>(w, re, im);
      store(out + j, re);
      if (C) store(out + out_plane + j, im);
    }
  }

  template <int S> static KRU_INLINE void lane_turns(const V* w, V& re, V& im) {
    const V other_re = exchange<S, T>(re);
    if (C) {
      const V other_im = exchange<S, T>(im);
      const V new_re = w[0] * re - w[1] * im + w[2] * other_re - w[3] * other_im;
      im = w[0] * im + w[1] * re + w[2] * other_im + w[3] * other_re;
      re = new_re;
    } else {
      re = w[0] * re + w[1] * other_re;
    }
    if constexpr (S > 1) lane_turns<S / 2>(w + 4 * kPlanes, re, im);
  }

  // Entries (0,1) and (1,0) of T_f. Each product has a sum of its own: chains of additions would wait for each other.
  void pair_sums(Worker& worker, int f, const T* h, int64_t h_plane, const T* a, int64_t a_plane) const {
    const int64_t stride = n_ >> (f + 1);
    V* sums = worker.exchange_sums + f * 2 * kPlanes;
    V upper_rr{}, upper_ii{}, upper_ir{}, upper_ri{}, lower_rr{}, lower_ii{}, lower_ir{}, lower_ri{};
    for (int64_t base = 0; base < n_; base += 2 * stride) {
      for (int64_t j = base; j < base + stride; j += kWidth) {
        const V a0_re = load(a + j), a1_re = load(a + j + stride);
        const V h0_re = load(h + j), h1_re = load(h + j + stride);
        upper_rr += a0_re * h1_re;
        lower_rr += a1_re * h0_re;
        if (C) {
          const V a0_im = load(a + a_plane + j), a1_im = load(a + a_plane + j + stride);
          const V h0_im = load(h + h_plane + j), h1_im = load(h + h_plane + j + stride);
          upper_ii += a0_im * h1_im;
          upper_ir += a0_im * h1_re;
          upper_ri += a0_re * h1_im;
          lower_ii += a1_im * h0_im;
          lower_ir += a1_im * h0_re;
          lower_ri += a1_re * h0_im;
        }
      }
    }
    sums[0] += upper_rr + upper_ii;
    sums[kPlanes] += lower_rr + lower_ii;
    if (C) {
      sums[1] += upper_ir - upper_ri;
      sums[kPlanes + 1] += lower_ir - lower_ri;
    }
  }

  // The diagonals of all T_f, entry by entry, and the exchange sums of the lane factors.
  void lane_sums(Worker& worker, const T* h, int64_t h_plane, const T* a, int64_t a_plane) const {
    V* sums = worker.exchange_sums + big_ * 2 * kPlanes;
    V total[8 * kPlanes];
    for (int s = 0; s < lane_factors_ * kPlanes; ++s) total[s] = sums[(s / kPlanes) * 2 * kPlanes + s % kPlanes];
    for (int64_t j = 0; j < n_; j += kWidth) {
      const V a_re = load(a + j), h_re = load(h + j);
      if (C) {
        const V a_im = load(a + a_plane + j), h_im = load(h + h_plane + j);
        T* at = worker.diagonal + j;
        store(at, load(at) + a_re * h_re + a_im * h_im);
        store(at + n_, load(at + n_) + a_im * h_re - a_re * h_im);
        lane_products<kWidth / 2>(total, a_re, a_im, h_re, h_im);
      } else {
        T* at = worker.diagonal + j;
        store(at, load(at) + a_re * h_re);
        lane_products<kWidth / 2>(total, a_re, V{}, h_re, V{});
      }
    }
    for (int s = 0; s < lane_factors_ * kPlanes; ++s) sums[(s / kPlanes) * 2 * kPlanes + s % kPlanes] = total[s];
  }

  template <int S> static KRU_INLINE void lane_products(V* total, V a_re, V a_im, V h_re, V h_im) {
    const V x = exchange<S, T>(h_re);
    if (C) {
      const V y = exchange<S, T>(h_im);
      total[0] += a_re * x;
      total[0] += a_im * y;
      total[1] += a_im * x;
      total[1] -= a_re * y;
    } else {
      total[0] += a_re * x;
    }
    if constexpr (S > 1) lane_products<S / 2>(total + kPlanes, a_re, a_im, h_re, h_im);
  }

  int count_, big_ = 0, lane_factors_ = 0;
  int64_t n_;
  Factor<T>* factors_;
  V* coefs_[2];
};

}  // namespace KRU_ISA
}  // namespace kru
