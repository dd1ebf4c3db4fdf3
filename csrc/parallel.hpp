// One loop over threads.
#pragma once

#include "threads.h"

namespace kru {
namespace KRU_ISA {

template <class Body> void parallel(int threads, const Body& body) {
  if (threads <= 1) {
    body(0);
    return;
  }
  run_threads(threads, [](const void* b, int thread) { (*static_cast<const Body*>(b))(thread); }, &body);
}

}  // namespace KRU_ISA
}  // namespace kru
