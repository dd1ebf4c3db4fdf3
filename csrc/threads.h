// Threads of our own: they need no runtime library, which some platforms lack, and work in forked processes.
#pragma once

namespace kru {

// Calls part(body, 0), ..., part(body, threads - 1) and returns when all are done. The threads start with the first call
// that needs them and are kept. Whoever runs a part, its result is the same: part t knows no more than its number.
void run_threads(int threads, void (*part)(const void* body, int thread), const void* body);

}  // namespace kru
