// Where the numbers of a list of factors lie, for either layout of complex numbers.
#pragma once

#include "simd.hpp"

namespace kru {
namespace KRU_ISA {

// Factor f of one matrix: entry (i, j) is at re[(i q + j) step] and im[(i q + j) step]. A real factor has no im.
template <class T> struct Factor {
  const T* re;
  const T* im;
  int64_t step, p, q;
};

template <class T> struct FactorGradient {
  T* re;
  T* im;
  int64_t step;
};

}  // namespace KRU_ISA
}  // namespace kru
