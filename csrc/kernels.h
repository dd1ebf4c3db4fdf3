// What one instruction set's build of the kernels offers.
#pragma once

#include "kru.h"

namespace kru {

struct Kernels {
  int (*kron)(const kru_kron*, bool backward);
  int (*scan)(const kru_scan*, bool backward);
  int (*chain)(const kru_chain*, bool backward);
  double (*fma_work)(int dtype, int64_t rounds, double* result);  // returns the number of operations done
};

#if defined(__x86_64__)
extern const Kernels kernels_baseline, kernels_avx2, kernels_avx512;
#elif defined(__aarch64__)
extern const Kernels kernels_neon;
#else
extern const Kernels kernels_baseline;
#endif

}  // namespace kru
