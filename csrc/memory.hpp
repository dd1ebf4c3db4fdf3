// Scratch memory of one call: pieces that live until the arena goes. Taken before the threads start.
#pragma once

#include <stdlib.h>
#if defined(_WIN32)
#include <malloc.h>
#endif

#include "simd.hpp"

namespace kru {
namespace KRU_ISA {

struct OutOfMemory {};

// Windows has no aligned_alloc, since its free() could not tell such memory from any other.
#if defined(_WIN32)
inline void* take_memory(size_t bytes) { return _aligned_malloc(bytes, 64); }
inline void give_back(void* memory) { _aligned_free(memory); }
#else
inline void* take_memory(size_t bytes) { return aligned_alloc(64, bytes); }
inline void give_back(void* memory) { free(memory); }
#endif

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    while (last_ != nullptr) {
      void* before = *static_cast<void**>(last_);
      give_back(last_);
      last_ = before;
    }
  }

  // A piece starts on a cache line and is followed by room for one vector: kernels may read, never write, past its end.
  template <class T> T* take(int64_t count) {
    const size_t bytes = size_t(count) * sizeof(T) + KRU_VECTOR_BYTES;
    const size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded <= sizeof first_ - used_) {
      used_ += rounded;
      return reinterpret_cast<T*>(first_ + used_ - rounded);
    }
    char* memory = static_cast<char*>(take_memory(64 + rounded));
    if (memory == nullptr) throw OutOfMemory{};
    *reinterpret_cast<void**>(memory) = last_;
    last_ = memory;
    return reinterpret_cast<T*>(memory + 64);
  }

  template <class T> T* take_zeros(int64_t count) {
    T* piece = take<T>(count);
    __builtin_memset(static_cast<void*>(piece), 0, size_t(count) * sizeof(T));
    return piece;
  }

 private:
  // Small calls need no more than this, and so no allocation at all.
  alignas(64) char first_[8192];
  size_t used_ = 0;
  void* last_ = nullptr;  // each other piece's first 64 bytes hold the address of the one before
};

}  // namespace KRU_ISA
}  // namespace kru
