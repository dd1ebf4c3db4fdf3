#include "../../csrc/threads.h"

namespace kru {

void run_threads(int threads, void (*part)(const void* body, int thread), const void* body) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int thread = 0; thread < threads; ++thread) part(body, thread);
}

}  // namespace kru
