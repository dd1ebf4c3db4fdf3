// Compares every entry point of the C interface with literal loops in double precision, on random shapes.
//
//   selftest [cases [seed]]
//
// Runs that many cases each of the product, of the recurrence and of that with a chain. Needs no more than the library,
// so that it also runs under the sanitizers and on machines without Python.
#include <stdlib.h>

#include "activation_cases.hpp"
#include "chain_cases.hpp"
#include "kron_cases.hpp"
#include "scan_cases.hpp"

namespace selftest {

void check_helpers(Report& report) {
  report.start("kru_fma_rate");
  for (int dtype : {KRU_FLOAT32, KRU_FLOAT64})
    if (!(kru_fma_rate(dtype, 1e-3) > 0)) report.fail("not a rate");
  report.end();
}

}  // namespace selftest

int main(int argc, char** argv) {
  using namespace selftest;
  const int64_t cases = argc > 1 ? atoll(argv[1]) : 300;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
  Report of_float, of_double;
  for (int64_t number = 0; number < cases; ++number) {
    // A generator for each case: a failure shows again when the number of cases is changed.
    Random random(seed * 1000003 + uint64_t(number));
    if (number / 2 % 2 == 0) kron_case<float>(random, of_float, number);
    else kron_case<double>(random, of_double, number);
    if (number / 12 % 2 == 0) scan_case<float>(random, of_float, number);
    else scan_case<double>(random, of_double, number);
    if (number % 2 == 0) chain_case<float>(random, of_float, number);
    else chain_case<double>(random, of_double, number);
  }
  for (int nonlinearity : {KRU_IDENTITY, KRU_TANH, KRU_RELU, KRU_MODRELU, KRU_LEAKY_RELU})
    for (bool is_complex : {false, true})
      for (double value : {double(NAN), double(INFINITY)}) {
        not_finite_case<float>(of_float, nonlinearity, is_complex, value);
        not_finite_case<double>(of_double, nonlinearity, is_complex, value);
      }
  for (bool sigmoid : {false, true}) {
    activation_case<float>(of_float, sigmoid);
    activation_case<double>(of_double, sigmoid);
  }
  check_helpers(of_double);
  const int64_t passed = of_float.passed + of_double.passed, failed = of_float.failed + of_double.failed;
  printf("instruction set %s, %lld cases, worst relative error %.2g in float, %.2g in double\n", kru_simd(),
         (long long)(passed + failed), of_float.worst, of_double.worst);
  printf("%lld passed, %lld failed\n", (long long)passed, (long long)failed);
  return failed == 0 ? 0 : 1;
}
