// The self-test's cases with their choices made by libFuzzer: sizes, kinds of input, threads, what is wanted.
//
// The first two bytes choose the function, the precision and the kind of recurrence, the next two the tensors' values.
// A wrong result ends the process as a fault of memory does.
#include <stdlib.h>

#include "chain_cases.hpp"
#include "kron_cases.hpp"
#include "scan_cases.hpp"

namespace selftest {

template <class T> void fuzz_case(Random& random, Report& report, int function, int64_t number) {
  if (function == 0) kron_case<T>(random, report, number);
  else if (function == 1) scan_case<T>(random, report, number);
  else chain_case<T>(random, report, number);
}

}  // namespace selftest

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace selftest;
  if (size < 4) return -1;
  Random random(uint64_t(data[2]) | uint64_t(data[3]) << 8, data + 4, size - 4);
  Report report;
  // No number of a large case: those take too long for their number.
  const int64_t number = data[1] % 48;
  if (data[0] & 4) fuzz_case<double>(random, report, data[0] % 4 % 3, number);
  else fuzz_case<float>(random, report, data[0] % 4 % 3, number);
  if (report.failed > 0) abort();
  return 0;
}
