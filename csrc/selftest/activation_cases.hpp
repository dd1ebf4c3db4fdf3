// The accuracy of tanh and the sigmoid, value by value: the other cases compare with the largest value of a tensor, which
// hides what happens to small ones.
#pragma once

#include "harness.hpp"

namespace selftest {

// Roundings that a value may be off by.
template <class T> constexpr double kActivationLimit = sizeof(T) == 4 ? 8 : 4;

// From far below zero to far above it, dense around the places where the kernels change their formula.
template <class T> Values activation_values() {
  Values out;
  for (double x = 1e-12; x < 60; x *= 1.013) out.push_back(T(x)), out.push_back(T(-x));
  for (int64_t i = -40; i <= 40; ++i) out.push_back(T(0.5 + double(i) * 1e-3)), out.push_back(T(double(i) * 0.34657));
  out.push_back(0);
  return out;
}

// One step of a cell without recurrence: tanh is the state of the Elman cell, the sigmoid the update gate of a GRU with
// the candidate 0 and the state 1 before.
template <class T> void activation_case(Report& report, bool sigmoid) {
  const Values x = activation_values<T>();
  const int64_t count = int64_t(x.size()), gates = sigmoid ? 3 : 1, one = 1;
  report.start(sigmoid ? "accuracy of the sigmoid" : "accuracy of tanh");
  Values part(size_t(gates * count), 0.0);
  for (int64_t i = 0; i < count; ++i) part[size_t(sigmoid ? 3 * i + 1 : i)] = x[size_t(i)];
  const Buffer<T> input(part), factor(Values(size_t(gates), 0.0)), h0(Values(size_t(count), 1.0));
  const Buffer<T> states(count), h(count);
  const void* factors[] = {factor.get()};
  kru_scan call{};
  call.dtype = sizeof(T) == 4 ? KRU_FLOAT32 : KRU_FLOAT64;
  call.threads = call.factor_count = 1;
  call.cell = sigmoid ? KRU_GRU : KRU_ELMAN;
  call.nonlinearity = KRU_TANH;
  call.steps = call.rank = 1;
  call.batch = count;
  call.p = call.q = &one;
  call.factors = factors;
  call.part = input.get();
  call.h0 = sigmoid ? h0.get() : nullptr;
  call.states = states.get();
  call.h = h.get();
  if (kru_scan_forward(&call) != 0) report.fail("out of memory");
  for (int64_t i = 0; i < count; ++i) {
    const double from = x[size_t(i)], expected = sigmoid ? 1 / (1 + exp(-from)) : tanh(from);
    const double error = fabs(states.get()[i] - expected) / std::numeric_limits<T>::epsilon();
    if (error <= kActivationLimit<T> * fabs(expected)) continue;
    char text[120];
    snprintf(text, sizeof text, "at %.9g it is %.17g, expected %.17g", from, double(states.get()[i]), expected);
    report.fail(text);
  }
  report.end();
}

}  // namespace selftest
