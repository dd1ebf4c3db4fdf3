// Which instruction sets the processor has and the system lets programs use. The compilers' own __builtin_cpu_supports
// needs a part of their runtime that not every target has.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

namespace kru {

struct Cpu {
  bool avx2 = false, avx512 = false;

  Cpu() {
#if defined(KRU_EVERY_LEVEL)
    avx2 = avx512 = true;
#else
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    const bool fma = c >> 12 & 1, system_saves = c >> 27 & 1;
    if (!system_saves || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    uint32_t saved, high;
    asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    avx2 = ymm && fma && (b >> 5 & 1);
    avx512 = avx2 && zmm && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 31 & 1);  // F, DQ, VL
#endif
  }
};

}  // namespace kru
#endif
