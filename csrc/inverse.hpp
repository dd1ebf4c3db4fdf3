// The inverse of a small complex matrix, in double precision, and whether it is worth anything.
#pragma once

#include <math.h>

#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

// M^{-1} of M (n, n); entries are real and imaginary part in turn. Null where |M| |M^{-1}|, by Frobenius' norm n for a
// unitary matrix, is above `limit`, or where M is out of proportion.
inline const double* inverse(Arena& arena, int64_t n, const double* matrix, double limit) {
  // [M | I] becomes [I | M^{-1}] by elimination, with the largest entry of a column as its pivot.
  const int64_t width = 4 * n;
  double* rows = arena.take_zeros<double>(n * width);
  double* out = arena.take<double>(2 * n * n);
  double norm = 0, inverse_norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    rows[i * width + 2 * (n + i)] = 1;
    for (int64_t j = 0; j < 2 * n; ++j) {
      rows[i * width + j] = matrix[i * 2 * n + j];
      norm += rows[i * width + j] * rows[i * width + j];
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    const auto size = [&](int64_t i) {
      const double* at = rows + i * width + 2 * k;
      return at[0] * at[0] + at[1] * at[1];
    };
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (size(i) > size(best)) best = i;
    const double square = size(best);
    if (!(square > 0)) return nullptr;
    double *pivot = rows + k * width, *other = rows + best * width;
    const double re = other[2 * k] / square, im = -other[2 * k + 1] / square;
    for (int64_t j = 0; j < width; j += 2) {
      const double x = other[j], y = other[j + 1];
      other[j] = pivot[j], other[j + 1] = pivot[j + 1];
      pivot[j] = x * re - y * im, pivot[j + 1] = x * im + y * re;
    }
    for (int64_t i = 0; i < n; ++i) {
      double* row = rows + i * width;
      const double x = row[2 * k], y = row[2 * k + 1];
      if (i == k) continue;
      for (int64_t j = 0; j < width; j += 2) {
        row[j] -= x * pivot[j] - y * pivot[j + 1];
        row[j + 1] -= x * pivot[j + 1] + y * pivot[j];
      }
    }
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < 2 * n; ++j) {
      out[i * 2 * n + j] = rows[i * width + 2 * n + j];
      inverse_norm += out[i * 2 * n + j] * out[i * 2 * n + j];
    }
  return sqrt(norm * inverse_norm) <= limit && norm > 1e-12 && norm < 1e12 ? out : nullptr;
}

}  // namespace KRU_ISA
}  // namespace kru
