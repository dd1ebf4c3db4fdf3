// Threads of the standard library, for builds without OpenMP and for forked processes.
#pragma once

namespace kru {

// Whether this process was forked after the library was loaded. GNU OpenMP keeps the threads of the process that forked
// in its books; they do not exist in the child, which would wait for them forever.
extern bool forked __attribute__((visibility("hidden")));

// Calls part(body, 0), ..., part(body, threads - 1), each on a thread of its own as far as the system grants them.
__attribute__((visibility("hidden"))) void run_threads(int threads, void (*part)(const void* body, int thread),
                                                       const void* body);

}  // namespace kru
