// Vectors of the compiler's own vector extension, so that one source serves every instruction set. Each kernel file is
// compiled once for each instruction set, inside a namespace of its own (KRU_ISA): an inline function of the AVX2
// build must never be linked into the baseline.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef KRU_VECTOR_BYTES
#if defined(__AVX512F__)
#define KRU_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define KRU_VECTOR_BYTES 32
#else
#define KRU_VECTOR_BYTES 16
#endif
#endif

#define KRU_INLINE inline __attribute__((always_inline))
#define KRU_LAMBDA __attribute__((always_inline))

namespace kru {
namespace KRU_ISA {

typedef float Float32 __attribute__((vector_size(KRU_VECTOR_BYTES)));
typedef double Float64 __attribute__((vector_size(KRU_VECTOR_BYTES)));
typedef int32_t Int32 __attribute__((vector_size(KRU_VECTOR_BYTES)));
typedef int64_t Int64 __attribute__((vector_size(KRU_VECTOR_BYTES)));

template <class T> struct VectorOf;
template <> struct VectorOf<float> { using type = Float32; using mask = Int32; };
template <> struct VectorOf<double> { using type = Float64; using mask = Int64; };
template <class T> using Vec = typename VectorOf<T>::type;
template <class T> using Mask = typename VectorOf<T>::mask;
template <class T> constexpr int64_t kLanes = KRU_VECTOR_BYTES / sizeof(T);

template <class T> KRU_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class T> KRU_INLINE void store(T* p, Vec<T> v) { __builtin_memcpy(p, &v, sizeof v); }

template <class T> KRU_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }

// The first `count` lanes; the others are zero.
template <class T> KRU_INLINE Vec<T> load_part(const T* p, int64_t count) {
  if (count >= kLanes<T>) return load(p);
  Vec<T> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
}

template <class T> KRU_INLINE void store_part(T* p, Vec<T> v, int64_t count) {
  if (count >= kLanes<T>) return store(p, v);
  for (int64_t i = 0; i < count; ++i) p[i] = v[i];
}

// body(i, lanes) for a row of n values, vector by vector; all but the last know at compile time that they are full.
template <class T, class Body> KRU_INLINE void each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, kLanes<T>);
  if (i < n) body(i, n - i);
}

template <class T> KRU_INLINE double sum(Vec<T> v) {
  double total = 0;
  for (int64_t i = 0; i < kLanes<T>; ++i) total += v[i];
  return total;
}

template <class T> KRU_INLINE bool any(Mask<T> mask) {
  auto lanes = mask[0];
  for (int64_t i = 1; i < kLanes<T>; ++i) lanes |= mask[i];
  return lanes != 0;
}
#if defined(__AVX2__) && KRU_VECTOR_BYTES == 32
template <> KRU_INLINE bool any<float>(Int32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
template <> KRU_INLINE bool any<double>(Int64 mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
#elif defined(__AVX512F__) && KRU_VECTOR_BYTES == 64
template <> KRU_INLINE bool any<float>(Int32 mask) { return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0; }
template <> KRU_INLINE bool any<double>(Int64 mask) { return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0; }
#endif

// Lane i of the result is lane i ^ S of v.
template <int S, class T> KRU_INLINE Vec<T> exchange(Vec<T> v) {
#if defined(__clang__)
  Vec<T> out;
  for (int i = 0; i < kLanes<T>; ++i) out[i] = v[i ^ S];
  return out;
#else
  Mask<T> index;
  for (int i = 0; i < kLanes<T>; ++i) index[i] = i ^ S;
  return __builtin_shuffle(v, index);
#endif
}

template <class T> KRU_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) { return a < b ? a : b; }
template <class T> KRU_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) { return a > b ? a : b; }

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace KRU_ISA
}  // namespace kru
