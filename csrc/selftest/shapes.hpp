// Random factors: the lists of 2x2 matrices that the butterflies take, and everything else.
#pragma once

#include <algorithm>

#include "matrix.hpp"

namespace selftest {

inline Shapes equal(int64_t size, int64_t count) {
  const std::vector<int64_t> sizes(static_cast<size_t>(count), size);
  return {sizes, sizes};
}

// A list with as many rows as columns, `large` with thousands of them.
inline Shapes square_shapes(Random& random, bool large) {
  if (large) return equal(2, random.integer(11, 12));
  switch (random.integer(0, 7)) {
    case 0:
    case 1:
    case 2: return equal(2, random.integer(1, 8));
    case 3: return equal(random.integer(1, 70), 1);
    case 4: return equal(random.integer(1, 5), random.integer(1, 3));
    case 5: {
      Shapes out = equal(random.pick<int64_t>({1, 2, 3}), 2);
      const size_t at = size_t(random.integer(0, 1));
      out.p[at] = out.q[at] = random.pick<int64_t>({1, 17, 64, 97, 137});
      return out;
    }
    default: {
      // Square or, with the columns in another order than the rows, of rectangular factors.
      Shapes out;
      do out.p.push_back(random.integer(1, 11));
      while (random.chance(0.7) && out.rows() < 28);
      out.q = out.p;
      if (random.chance(0.5)) std::reverse(out.q.begin(), out.q.end());
      return out;
    }
  }
}

inline Shapes any_shapes(Random& random, bool large) {
  if (large || random.chance(0.4)) return square_shapes(random, large);
  Shapes out;
  do {
    out.p.push_back(random.integer(1, 9));
    out.q.push_back(random.integer(1, 9));
  } while (random.chance(0.7) && out.rows() < 50 && out.columns() < 50);
  if (random.chance(0.2)) out.q[0] = random.pick<int64_t>({1, 33, 100});
  return out;
}

// The number of terms of a sum; of large matrices one.
inline int64_t any_rank(Random& random, bool large) { return large || random.chance(0.6) ? 1 : random.integer(2, 4); }

// Entries of one factor: about norm-preserving but for `scale`, 2x2 ones mostly close to unitary, now and then singular.
template <class T>
Row factor_entries(Random& random, int64_t p, int64_t q, bool is_complex, bool unitary, double scale) {
  Row out(static_cast<size_t>(p * q));
  const auto number = [&](double size) {
    const double re = random.uniform(-size, size);
    return Complex(re, is_complex ? random.uniform(-size, size) : 0);
  };
  if (unitary && p == 2 && q == 2) {
    const double angle = random.uniform(0, 6.28);
    const Complex a = is_complex ? std::polar(cos(angle), random.uniform(0, 6.28)) : Complex(cos(angle));
    const Complex b = is_complex ? std::polar(sin(angle), random.uniform(0, 6.28)) : Complex(sin(angle));
    const double sign = random.chance(0.5) ? 1 : -1;
    out = {a, b, -sign * std::conj(b), sign * std::conj(a)};
    for (Complex& entry : out) entry += number(0.05);
  } else {
    for (Complex& entry : out) entry = number((is_complex ? 0.8 : 1.1) / sqrt(double(q)));
    if (p * q > 1 && random.chance(0.1))
      for (int64_t j = 0; j < q; ++j) out[size_t((p - 1) * q + j)] = p > 1 ? out[size_t(j)] : Complex(0);
  }
  for (Complex& entry : out) entry = Complex(T(scale * entry.real()), T(scale * entry.imag()));
  return out;
}

}  // namespace selftest
