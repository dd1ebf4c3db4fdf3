// Numbers too small for full precision (below 1e-38 in float) count as zero while one of these lives. States and gradients
// that die out over time pass through them, and the processor takes many times as long for each operation on one.
#pragma once

#include <stdint.h>

namespace kru {
namespace KRU_ISA {

class FlushDenormals {
 public:
  FlushDenormals() : before_(get()) { set(before_ | kFlush); }
  ~FlushDenormals() { set(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040;  // results, and operands
  static uint64_t get() { return __builtin_ia32_stmxcsr(); }
  static void set(uint64_t control) { __builtin_ia32_ldmxcsr(unsigned(control)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t(1) << 24;
  static uint64_t get() {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t get() { return 0; }
  static void set(uint64_t) {}
#endif
  uint64_t before_;
};

}  // namespace KRU_ISA
}  // namespace kru
