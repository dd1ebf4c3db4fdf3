// One loop over threads: OpenMP where it is (shared with torch's own threads), else threads of the standard library.
#pragma once

#if defined(_OPENMP)
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace kru {
namespace KRU_ISA {

template <class Body> void parallel(int threads, const Body& body) {
  if (threads <= 1) {
    body(0);
    return;
  }
#if defined(_OPENMP)
  // A runtime that grants fewer threads than asked for must still run every part.
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int thread = 0; thread < threads; ++thread) body(thread);
#else
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back([&body, thread] { body(thread); });
  body(0);
  for (std::thread& other : others) other.join();
#endif
}

}  // namespace KRU_ISA
}  // namespace kru
