// The C interface: picks the instruction set once and hands each call to its kernels.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "cpu.hpp"
#include "kernels.h"

namespace {

struct Level {
  const char* name;
  const kru::Kernels* kernels;
  bool here;
};

// The best level of this machine that KRU_SIMD, if set, allows. Levels are listed from the best on.
const Level& level() {
  static const Level chosen = [] {
#if defined(__x86_64__)
    const kru::Cpu cpu;
    const Level levels[] = {
        {"avx512", &kru::kernels_avx512, cpu.avx512},
        {"avx2", &kru::kernels_avx2, cpu.avx2},
        {"baseline", &kru::kernels_baseline, true},
    };
#elif defined(__aarch64__)
    const Level levels[] = {{"neon", &kru::kernels_neon, true}};
#else
    const Level levels[] = {{"baseline", &kru::kernels_baseline, true}};
#endif
    const char* wanted = std::getenv("KRU_SIMD");
    bool allowed = wanted == nullptr || *wanted == 0;
    const Level* last = nullptr;
    for (const Level& candidate : levels) {
      allowed = allowed || std::strcmp(candidate.name, wanted) == 0;
      last = &candidate;
      if (allowed && candidate.here) break;
    }
    return *last;
  }();
  return chosen;
}

// The kernels for a chain. Each lane of a vector has a row, and a vector with a few of them costs as much as a full one:
// where vectors of half the size leave fewer lanes empty, they are faster, if only because they read less memory.
const kru::Kernels& chain_kernels(const kru_chain& call) {
#if defined(__x86_64__)
  const int64_t lanes = call.dtype == KRU_FLOAT32 ? 16 : 8, rest = call.batch % lanes;
  if (level().kernels == &kru::kernels_avx512 && rest > 0 && rest <= lanes / 2) return kru::kernels_avx2;
#endif
  return *level().kernels;
}

}  // namespace

extern "C" {

int kru_kron_forward(const kru_kron* call) { return level().kernels->kron(call, false); }
int kru_kron_backward(const kru_kron* call) { return level().kernels->kron(call, true); }
int kru_scan_forward(const kru_scan* call) { return level().kernels->scan(call, false); }
int kru_scan_backward(const kru_scan* call) { return level().kernels->scan(call, true); }
int kru_chain_forward(const kru_chain* call) { return chain_kernels(*call).chain(call, false); }
int kru_chain_backward(const kru_chain* call) { return chain_kernels(*call).chain(call, true); }
int32_t kru_interface(void) { return KRU_INTERFACE; }
const char* kru_simd(void) { return level().name; }

double kru_fma_rate(int32_t dtype, double seconds) {
  using clock = std::chrono::steady_clock;
  double work = 0, result = 0;
  const auto start = clock::now();
  double passed = 0;
  do {
    work += level().kernels->fma_work(dtype, 100000, &result);
    passed = std::chrono::duration<double>(clock::now() - start).count();
  } while (passed < seconds && result == result);
  return work / passed;
}

}  // extern "C"
