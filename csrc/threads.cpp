// Not a header: compiled once, without the flags of an instruction set, since the templates of the standard library are
// shared by all objects of the library.
#include "threads.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace kru {

namespace {

using Part = void (*)(const void*, int);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits without sleeping, since waking a thread takes longer than many a call, but not for long: others need the cores.
template <class Ready> bool spin(const Ready& ready) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::microseconds(100);
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (clock::now() < end);
  return ready();
}

// One thread of the pool. A part that it has not begun when the caller is free is taken back: on a busy machine nobody
// waits for a thread that waits for a core.
class Worker {
 public:
  explicit Worker(int number) : number_(number) {
    std::thread([this] { live(); }).detach();
  }

  void give(Part part, const void* body) {
    part_ = part;
    body_ = body;
    state_ = kGiven;
    if (asleep_) wake(given_);
  }

  void finish() {
    int given = kGiven;
    if (state_.compare_exchange_strong(given, kIdle)) {
      part_(body_, number_);
      return;
    }
    if (!spin([this] { return state_ == kDone; })) {
      std::unique_lock<std::mutex> lock(mutex_);
      caller_asleep_ = true;
      done_.wait(lock, [this] { return state_ == kDone; });
      caller_asleep_ = false;
    }
    state_ = kIdle;
  }

 private:
  enum { kIdle, kGiven, kTaken, kDone };

  void live() {
    for (;;) {
      if (!spin([this] { return state_ == kGiven; })) {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_ = true;
        given_.wait(lock, [this] { return state_ == kGiven; });
        asleep_ = false;
      }
      int given = kGiven;
      if (!state_.compare_exchange_strong(given, kTaken)) continue;  // taken back
      part_(body_, number_);
      state_ = kDone;
      if (caller_asleep_) wake(done_);
    }
  }

  // Sequential consistency of the flags: either the sleeper sees the new state, or we see that it is about to sleep.
  // Then it holds the mutex until it waits.
  void wake(std::condition_variable& who) {
    { std::lock_guard<std::mutex> lock(mutex_); }
    who.notify_one();
  }

  const int number_;
  Part part_ = nullptr;
  const void* body_ = nullptr;
  std::atomic<int> state_{kIdle};
  std::atomic<bool> asleep_{false}, caller_asleep_{false};
  std::mutex mutex_;
  std::condition_variable given_, done_;
};

class Pool {
 public:
  // False if another thread is using the pool.
  bool run(int threads, Part part, const void* body) {
    std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    if (!lock) return false;
    const int helpers = have(threads - 1);
    for (int i = 0; i < helpers; ++i) workers_[i]->give(part, body);
    part(body, 0);
    for (int t = helpers + 1; t < threads; ++t) part(body, t);
    for (int i = 0; i < helpers; ++i) workers_[i]->finish();
    return true;
  }

 private:
  // How many of this many workers there are, after starting those that are missing.
  int have(int wanted) {
    try {
      while (int(workers_.size()) < wanted) {
        workers_.reserve(workers_.size() + 1);
        workers_.emplace_back(new Worker(int(workers_.size()) + 1));
      }
    } catch (...) {
      // No memory or no more threads: the caller runs the remaining parts.
    }
    return int(workers_.size()) < wanted ? int(workers_.size()) : wanted;
  }

  std::mutex busy_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Never deleted: its threads use it until the process ends.
std::atomic<Pool*> pool{nullptr};

Pool* the_pool() {
  Pool* here = pool;
  if (here != nullptr) return here;
  Pool* made = new (std::nothrow) Pool;
  if (made == nullptr || pool.compare_exchange_strong(here, made)) return made;
  delete made;
  return here;
}

#if !defined(_WIN32)
// A forked process has none of its parent's threads, so it starts a pool of its own. The handler runs before the child
// has a second thread.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { pool = nullptr; });
#endif

}  // namespace

void run_threads(int threads, Part part, const void* body) {
  Pool* ours = the_pool();
  if (ours != nullptr && ours->run(threads, part, body)) return;
  // Several callers at once keep the cores busy already.
  for (int thread = 0; thread < threads; ++thread) part(body, thread);
}

}  // namespace kru
