// The nonlinearities and their derivatives, on vectors.
#pragma once

#include <math.h>

#include "kru.h"
#include "simd.hpp"

namespace kru {
namespace KRU_ISA {

// 1 / sqrt(x); large and finite for x = 0, so that x / sqrt(x) is 0 there.
KRU_INLINE Float64 inverse_root(Float64 x) {
#if defined(__AVX512F__) && KRU_VECTOR_BYTES == 64
  const Float64 root = (Float64)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__) && KRU_VECTOR_BYTES == 32
  const Float64 root = (Float64)_mm256_sqrt_pd((__m256d)x);
#else
  Float64 root;
  for (int i = 0; i < kLanes<double>; ++i) root[i] = sqrt(x[i]);
#endif
  return x > 0 ? 1 / root : splat<double>(1e150);
}

KRU_INLINE Float32 inverse_root(Float32 x) {
#if (defined(__AVX2__) && KRU_VECTOR_BYTES == 32) || (defined(__AVX512F__) && KRU_VECTOR_BYTES == 64)
  // The estimate has 11 to 14 bits; one Newton step doubles them. It is infinite for 0 and denormal numbers.
#if KRU_VECTOR_BYTES == 64
  Float32 y = (Float32)_mm512_rsqrt14_ps((__m512)x);
#else
  Float32 y = (Float32)_mm256_rsqrt_ps((__m256)x);
#endif
  y = minimum<float>(y, splat<float>(1e18f));
  return y * (1.5f - 0.5f * x * y * y);
#else
  Float32 out;
  for (int i = 0; i < kLanes<float>; ++i) out[i] = x[i] > 0 ? 1 / sqrtf(x[i]) : 1e18f;
  return out;
#endif
}

// 2^n e^r with x = n ln 2 + r, |r| <= ln(2) / 2, and e^r by its Taylor series, whose next term is below 2^-57 (in float
// below 2^-26). The terms are added in pairs, as one long chain would wait for each product. NaN stays NaN.
KRU_INLINE Float64 exponential(Float64 x) {
  const Float64 clamped = minimum<double>(maximum<double>(x, splat<double>(-708.3)), splat<double>(709.4));
  const Float64 shift = splat<double>(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const Float64 shifted = clamped * 1.4426950408889634 + shift;
  const Float64 n = shifted - shift;
  // ln 2 in two parts, the first with so few bits that its product with n is exact.
  const Float64 r = (clamped - n * 0.693145751953125) - n * 1.42860682030941723212e-6;
  const Float64 s = r * r, q = s * s;
  const Float64 low = (0.5 + r * (1.0 / 6)) + s * ((1.0 / 24 + r * (1.0 / 120)) + s * (1.0 / 720 + r * (1.0 / 5040)));
  const Float64 high = (1.0 / 40320 + r * (1.0 / 362880)) + s * (1.0 / 3628800 + r * (1.0 / 39916800)) +
                       q * (1.0 / 479001600 + r * (1.0 / 6227020800));
  const Int64 power = ((Int64)shifted - (Int64)shift + 1023) << 52;
  const Float64 out = (1 + (r + s * (low + s * q * high))) * (Float64)power;
  return x == x ? out : x;
}

KRU_INLINE Float32 exponential(Float32 x) {
  const Float32 clamped = minimum<float>(maximum<float>(x, splat<float>(-87.3f)), splat<float>(88.3f));
  const Float32 shift = splat<float>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float32 shifted = clamped * 1.44269504f + shift;
  const Float32 n = shifted - shift;
  const Float32 r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  Float32 p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Int32 power = ((Int32)shifted - (Int32)shift + 127) << 23;
  const Float32 out = p * (Float32)power;
  return x == x ? out : x;
}

template <class V> KRU_INLINE V sigmoid(V x) { return 1 / (1 + exponential(-x)); }

// (e - 1) / (e + 1) with e = exp(2 |x|). Near zero that difference cancels: the continued fraction of tanh,
// x / (1 + x^2 / (3 + x^2 / (5 + ...))), there, up to 15. Both have the same one division.
KRU_INLINE Float64 hyperbolic_tangent(Float64 x) {
  const Float64 size = x < 0 ? -x : x;
  const Float64 e = exponential(2 * minimum<double>(splat<double>(20), size));
  const Float64 s = x * x;
  const Float64 above = size * (2027025 + s * (270270 + s * (6930 + s * 36)));
  const Float64 below = 2027025 + s * (945945 + s * (51975 + s * (630 + s)));
  const Mask<double> small = size < 0.5;
  const Float64 out = (small ? above : e - 1) / (small ? below : e + 1);
  return x < 0 ? -out : out;
}

KRU_INLINE Float32 hyperbolic_tangent(Float32 x) {
  const Float32 size = x < 0 ? -x : x;
  const Float32 large = 1 - 2 / (exponential(2 * size) + 1);
  // Near zero that difference cancels: the continued fraction of tanh, x / (1 + x^2 / (3 + x^2 / (5 + x^2 / 7))).
  const Float32 s = x * x;
  const Float32 small = x * (105 + 10 * s) / (105 + s * (45 + s));
  const Float32 signed_large = x < 0 ? -large : large;
  return size < 0.5f ? small : signed_large;
}

constexpr double kModreluFloor = 1e-6;
constexpr double kLeak = 0.1;  // the slope of the leaky ReLU below zero

// h = (|z| + b) z / max(|z|, floor) where |z| + b >= 0, else 0.
template <class T, bool C> KRU_INLINE void modrelu(Vec<T>& re, Vec<T>& im, Vec<T> b) {
  using V = Vec<T>;
  V squares = re * re;
  if (C) squares += im * im;
  const V inverse = inverse_root(squares);
  const V size = squares * inverse;
  // In this order the maximum with NaN is NaN: a NaN in one plane reaches the other.
  const V gain = maximum<T>(V{}, size + b) * minimum<T>(inverse, splat<T>(T(1 / kModreluFloor)));
  re *= gain;
  if (C) im *= gain;
}

// The gradient at z from that at h, by z itself. g becomes dz; db is returned.
template <class T, bool C> Vec<T> modrelu_gradient(Vec<T> re, Vec<T> im, Vec<T> b, Vec<T>& g_re, Vec<T>& g_im) {
  using V = Vec<T>;
  const T floor = T(kModreluFloor);
  V squares = re * re, along = re * g_re;
  if (C) squares += im * im, along += im * g_im;
  const V inverse = inverse_root(squares), size = squares * inverse;
  const V active = (size + b >= 0) ? splat<T>(1) : V{};
  const V divisor = size < floor ? splat<T>(1 / floor) : inverse;
  const V gain = (size + b) * divisor;
  // d gain / d size, over size: -b / size^3 above the floor, 1 / (floor size) below.
  const V change = size < floor ? inverse / floor : -b * inverse * inverse * inverse;
  const V zero_gain = b >= 0 ? splat<T>(1) : V{};
  const Mask<T> zero = squares == 0;
  if (C) {
    g_re = zero ? zero_gain * g_re : active * (gain * g_re + change * along * re);
    g_im = zero ? zero_gain * g_im : active * (gain * g_im + change * along * im);
  } else {
    // The same sum, in which b / size cancels: left to rounding, it would remain for small z.
    const V slope = size < floor ? (2 * size + b) / floor : splat<T>(1);
    g_re = zero ? zero_gain * g_re : active * slope * g_re;
  }
  return zero ? V{} : active * along * divisor;
}

// The same by h alone: |z| = |h| - b and z / |z| = h / |h|. `unsure` marks lanes where |h| - b cancels or the floor
// matters; there z is needed.
template <class T, bool C>
KRU_INLINE Vec<T> modrelu_gradient_from_output(Vec<T> re, Vec<T> im, Vec<T> b, Vec<T>& g_re, Vec<T>& g_im,
                                               Mask<T>& unsure) {
  using V = Vec<T>;
  V squares = re * re, along = re * g_re;
  if (C) squares += im * im, along += im * g_im;
  const V inverse = inverse_root(squares), output = squares * inverse, size = output - b;
  const Mask<T> zero = squares == 0;
  unsure |= ~zero & (size < T(4 * kModreluFloor));
  if (C) unsure |= ~zero & (size * 32 < b);  // the real derivative does not depend on |z| above the floor
  const V db = along * inverse;
  if (C) {
    const V gain = output / size, rest = (1 - gain) * db * inverse;
    const V zero_gain = b >= 0 ? splat<T>(1) : V{};
    g_re = zero ? zero_gain * g_re : gain * g_re + rest * re;
    g_im = zero ? zero_gain * g_im : gain * g_im + rest * im;
  } else {
    const Mask<T> dead = zero & (b < 0);
    g_re = dead ? V{} : g_re;
  }
  return zero ? V{} : db;
}

// z becomes h, for the nonlinearities without a bias of their own.
template <class T> KRU_INLINE Vec<T> activate(Vec<T> z, int nonlinearity) {
  if (nonlinearity == KRU_TANH) return hyperbolic_tangent(z);
  // Written so that NaN stays NaN.
  if (nonlinearity == KRU_RELU) return z < 0 ? Vec<T>{} : z;
  if (nonlinearity == KRU_LEAKY_RELU) return z < 0 ? T(kLeak) * z : z;
  return z;
}

template <class T> KRU_INLINE Vec<T> activation_gradient(Vec<T> h, Vec<T> g, int nonlinearity) {
  if (nonlinearity == KRU_TANH) return g * (1 - h * h);
  if (nonlinearity == KRU_RELU) return h > 0 ? g : Vec<T>{};
  if (nonlinearity == KRU_LEAKY_RELU) return h > 0 ? g : T(kLeak) * g;
  return g;
}

}  // namespace KRU_ISA
}  // namespace kru
