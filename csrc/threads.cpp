// Not a header: compiled once, without the flags of an instruction set, since the templates of the standard library are
// shared by all objects of the library.
#include "threads.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <memory>
#include <new>
#include <thread>

namespace kru {

bool forked = false;

#if !defined(_WIN32)
namespace {
// Runs before the child has a second thread, so that the flag needs no lock.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
}  // namespace
#endif

void run_threads(int threads, void (*part)(const void*, int), const void* body) {
  std::unique_ptr<std::thread[]> others(new (std::nothrow) std::thread[threads]);
  int started = 1;
  try {
    for (; others && started < threads; ++started) others[started] = std::thread(part, body, started);
  } catch (...) {
    // No memory or no more threads: the calling thread runs the remaining parts.
  }
  part(body, 0);
  for (int thread = started; thread < threads; ++thread) part(body, thread);
  for (int thread = 1; thread < started; ++thread) others[thread].join();
}

}  // namespace kru
