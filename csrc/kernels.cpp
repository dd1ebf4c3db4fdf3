// Compiled once for each instruction set, with KRU_ISA its name: the table of that set's entry points.
#include "kernels.h"

#include "chain_scan.hpp"
#include "kron.hpp"
#include "scan.hpp"

namespace kru {
namespace KRU_ISA {

template <class Body> int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const OutOfMemory&) {
    return -1;
  }
}

int run_kron(const kru_kron* call, bool backward) {
  return guarded([&] {
    if (call->dtype == KRU_FLOAT32)
      call->is_complex ? kron<float, true>(*call, backward) : kron<float, false>(*call, backward);
    else
      call->is_complex ? kron<double, true>(*call, backward) : kron<double, false>(*call, backward);
  });
}

int run_scan(const kru_scan* call, bool backward) {
  return guarded([&] {
    if (call->dtype == KRU_FLOAT32)
      call->is_complex ? scan<float, true>(*call, backward) : scan<float, false>(*call, backward);
    else
      call->is_complex ? scan<double, true>(*call, backward) : scan<double, false>(*call, backward);
  });
}

int run_chain(const kru_chain* call, bool backward) {
  return guarded([&] {
    call->dtype == KRU_FLOAT32 ? chain_scan<float>(*call, backward) : chain_scan<double>(*call, backward);
  });
}

// Ten independent chains hide the latency of the multiply-adds; factors just below one keep the numbers finite.
template <class T> double fma_chains(int64_t rounds) {
  using V = Vec<T>;
  V chain[10];
  for (int i = 0; i < 10; ++i) chain[i] = splat<T>(T(1 + i));
  V scale = splat<T>(T(0.999)), shift = splat<T>(T(0.001));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) chain[i] = chain[i] * scale + shift;
  }
  V total{};
  for (const V& v : chain) total += v;
  return sum<T>(total);
}

double fma_work(int dtype, int64_t rounds, double* result) {
  *result = dtype == KRU_FLOAT32 ? fma_chains<float>(rounds) : fma_chains<double>(rounds);
  const int64_t lanes = dtype == KRU_FLOAT32 ? kLanes<float> : kLanes<double>;
  return 2.0 * 10.0 * double(lanes) * double(rounds);
}

}  // namespace KRU_ISA

#define KRU_JOIN(a, b) a##b
#define KRU_NAME(isa) KRU_JOIN(kernels_, isa)
extern const Kernels KRU_NAME(KRU_ISA) = {KRU_ISA::run_kron, KRU_ISA::run_scan, KRU_ISA::run_chain,
                                            KRU_ISA::fma_work};

}  // namespace kru
