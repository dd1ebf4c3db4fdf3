// What the cases share: random numbers, memory that notices what is done to it, and the account of the comparisons.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include <complex>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../kru.h"

namespace selftest {

using Complex = std::complex<double>;
using Values = std::vector<double>;
using Row = std::vector<Complex>;

// In expected values: whatever is there is right.
const double kAny = std::numeric_limits<double>::quiet_NaN();

// Limits on errors, in roundings of the largest value of a tensor. The gradients of nearly singular 2x2 factors may
// lose as many as the bound on their condition allows.
constexpr double kForwardLimit = 64, kBackwardLimit = 2048;

// SplitMix64: the same numbers on every platform, which distributions of the standard library do not promise. A fuzzer
// gives bytes that decide instead, two for each choice, as long as there are some; the values of tensors stay random.
class Random {
 public:
  explicit Random(uint64_t seed, const uint8_t* choices = nullptr, size_t size = 0)
      : state_(seed), choices_(choices), left_(size / 2) {}

  uint64_t bits() {
    if (left_ > 0) {
      --left_;
      const uint64_t choice = uint64_t(choices_[0]) | uint64_t(choices_[1]) << 8;
      choices_ += 2;
      return choice * 0x0001000100010001u;  // the same in its high bits, which decide in `uniform`, and its low ones
    }
    return drawn();
  }
  double uniform(double low, double high) { return low + (high - low) * (double(bits() >> 11) * 0x1p-53); }
  int64_t integer(int64_t low, int64_t high) { return low + int64_t(bits() % uint64_t(high - low + 1)); }
  bool chance(double p) { return uniform(0, 1) < p; }
  template <class T> T pick(std::initializer_list<T> of) { return of.begin()[integer(0, int64_t(of.size()) - 1)]; }

  // As a T holds them, so that the kernel and the reference start from the same numbers.
  template <class T> Values values(int64_t count, double size) {
    Values out(static_cast<size_t>(count));
    for (double& v : out) v = T(-size + 2 * size * (double(drawn() >> 11) * 0x1p-53));
    return out;
  }

 private:
  uint64_t drawn() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
  const uint8_t* choices_;
  size_t left_;
};

// Memory of a tensor, or none. It is aligned to its element and no more, as a view of a torch tensor is. Outputs hold
// NaN beforehand; guards on both sides show writes outside, except under AddressSanitizer, which does that itself and
// for reads too.
template <class T> class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) : Buffer(Values(size_t(count), kAny)) {}
  explicit Buffer(const Values& values)
      : count_(int64_t(values.size())), memory_(new T[size_t(kBefore + count_ + kAfter)]) {
    for (int64_t i = 0; i < kBefore + count_ + kAfter; ++i) memory_[i] = kGuard;
    for (int64_t i = 0; i < count_; ++i) memory_[kBefore + i] = T(values[size_t(i)]);
  }

  T* get() const { return memory_ ? memory_.get() + kBefore : nullptr; }
  int64_t count() const { return count_; }
  Values values() const { return Values(get(), get() + count_); }

  bool guarded() const {
    for (int64_t i = 0; memory_ && i < kBefore + count_ + kAfter; ++i)
      if ((i < kBefore || i >= kBefore + count_) && memory_[i] != kGuard) return false;
    return true;
  }
  bool same_bits(const Buffer& other) const {
    if (count_ != other.count_) return false;
    return count_ == 0 || __builtin_memcmp(get(), other.get(), size_t(count_) * sizeof(T)) == 0;
  }

 private:
  static constexpr int64_t kBefore = 1;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr int64_t kAfter = 0;
#else
  static constexpr int64_t kAfter = 64 / sizeof(T) + 3;
#endif
  static constexpr T kGuard = T(-1234.5);
  int64_t count_ = 0;
  std::unique_ptr<T[]> memory_;
};

class Report {
 public:
  void start(const std::string& what) {
    what_ = what;
    good_ = true;
  }
  void end() { ++(good_ ? passed : failed); }

  void fail(const std::string& message) {
    if (good_ && failed < 20) printf("FAILED %s: %s\n", what_.c_str(), message.c_str());
    good_ = false;
  }

  // Errors count relative to the largest expected value, in units of T's rounding; the limit is in these units.
  // `slack`, if given, multiplies the limit entry by entry.
  template <class T>
  void compare(const char* name, const Values& expected, const Buffer<T>& got, double limit, const Values& slack = {}) {
    if (int64_t(expected.size()) != got.count()) return fail(std::string(name) + " has the wrong size");
    double scale = 0;
    for (double e : expected) scale = fmax(scale, fabs(e));  // fmax passes over NaN
    const double unit = std::numeric_limits<T>::epsilon() * fmax(scale, 1e-30);
    for (int64_t i = 0; i < got.count(); ++i) {
      const double e = expected[size_t(i)], g = got.get()[i];
      if (std::isnan(e)) continue;
      const double error = fabs(e - g) / (unit * (slack.empty() ? 1 : slack[size_t(i)]));
      worst = fmax(worst, error * std::numeric_limits<T>::epsilon());
      if (error <= limit) continue;
      char text[200];
      snprintf(text, sizeof text, "%s[%lld of %lld] is %.9g, expected %.9g, %.3g roundings of %.3g off", name,
               (long long)i, (long long)got.count(), g, e, error, scale);
      return fail(text);
    }
  }

  template <class T> void check_memory(const char* name, const Buffer<T>& first, const Buffer<T>& second) {
    if (!first.guarded() || !second.guarded()) fail(std::string("written outside ") + name);
    if (!first.same_bits(second)) fail(std::string("two runs differ in ") + name);
  }

  int64_t passed = 0, failed = 0;
  double worst = 0;

 private:
  std::string what_;
  bool good_ = true;
};

// Both at once: calls from several threads of a program must not disturb each other.
template <class A, class B> void together(const A& a, const B& b) {
  std::thread other(b);
  a();
  other.join();
}

}  // namespace selftest
