// One loop over threads: OpenMP where available (shared with torch's own threads), else threads of the standard library.
#pragma once

#include "threads.h"

namespace kru {
namespace KRU_ISA {

template <class Body> void parallel(int threads, const Body& body) {
  if (threads <= 1) {
    body(0);
    return;
  }
#if defined(_OPENMP)
  if (!forked) {
    // A runtime that grants fewer threads than asked for must still run every part.
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int thread = 0; thread < threads; ++thread) body(thread);
    return;
  }
#endif
  run_threads(threads, [](const void* b, int thread) { (*static_cast<const Body*>(b))(thread); }, &body);
}

}  // namespace KRU_ISA
}  // namespace kru
