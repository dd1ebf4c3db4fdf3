// kru_kron_forward and kru_kron_backward against the dense matrix.
#pragma once

#include "shapes.hpp"

namespace selftest {

// Complex numbers as this interface has them, interleaved.
inline Values interleaved(const Row& row, bool is_complex) {
  Values out;
  for (const Complex& value : row) {
    out.push_back(value.real());
    if (is_complex) out.push_back(value.imag());
  }
  return out;
}

inline void append(Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); }

inline Row row_of(const Values& values, int64_t row, int64_t size, bool is_complex) {
  Row out(static_cast<size_t>(size));
  const size_t planes = is_complex ? 2 : 1;
  for (size_t i = 0; i < out.size(); ++i) {
    const double* at = values.data() + (size_t(row * size) + i) * planes;
    out[i] = Complex(at[0], is_complex ? at[1] : 0);
  }
  return out;
}

template <class T> struct KronRun {
  Buffer<T> y, dx;
  std::vector<Buffer<T>> dfactors;
  int status = 0;

  void run(kru_kron call, bool any_factors) {
    std::vector<void*> pointers;
    for (const Buffer<T>& gradient : dfactors) pointers.push_back(gradient.get());
    call.y = y.get();
    call.dx = dx.get();
    call.dfactors = any_factors ? pointers.data() : nullptr;
    status = kru_kron_forward(&call);
    call.y = nullptr;
    if (dx.get() != nullptr || any_factors) status |= kru_kron_backward(&call);
  }
};

template <class T> void kron_case(Random& random, Report& report, int64_t number) {
  const bool is_complex = number % 2 == 1, large = number % 50 >= 48, unitary = random.chance(0.6);
  const Shapes shapes = any_shapes(random, large);
  const int64_t rank = any_rank(random, large);
  const int64_t n = shapes.rows(), k = shapes.columns(), planes = is_complex ? 2 : 1;
  // Enough rows, now and then, for the kernel to use more than one thread.
  const int64_t rows = large ? random.integer(1, 3) : n * k <= 4096 && random.chance(0.3) ? 200 : random.integer(0, 9);
  const int threads = int(random.integer(1, 3));
  report.start("kron " + std::to_string(number) + (sizeof(T) == 4 ? " float " : " double ") +
               (is_complex ? "complex " : "real ") + std::to_string(rank) + " x " + shapes.text() + ", " + std::to_string(rows) + " rows, " +
               std::to_string(threads) + " threads");

  Sum matrix;
  std::vector<Values> flat(size_t(shapes.count()));
  for (int64_t r = 0; r < rank; ++r) {
    std::vector<Row> entries;
    for (size_t f = 0; f < flat.size(); ++f) {
      const double scale = f == 0 ? 1.0 / double(rank) : 1.0;
      entries.push_back(factor_entries<T>(random, shapes.p[f], shapes.q[f], is_complex, unitary, scale));
      append(flat[f], interleaved(entries.back(), is_complex));
    }
    matrix.add(Matrix(shapes, entries));
  }
  std::vector<Buffer<T>> factors;
  std::vector<const void*> pointers;
  Values packed;
  for (const Values& values : flat) {
    append(packed, values);
    factors.emplace_back(values);
    pointers.push_back(factors.back().get());
  }
  const Values x_values = random.values<T>(rows * k * planes, 1), dy_values = random.values<T>(rows * n * planes, 1);
  const Buffer<T> x(x_values), dy(dy_values), packed_factors(packed);
  const bool use_packed = random.chance(0.3);

  kru_kron call{};
  call.dtype = sizeof(T) == 4 ? KRU_FLOAT32 : KRU_FLOAT64;
  call.is_complex = is_complex;
  call.threads = threads;
  call.factor_count = shapes.count();
  call.rows = rows;
  call.rank = rank;
  call.p = shapes.p.data();
  call.q = shapes.q.data();
  call.factors = use_packed ? nullptr : pointers.data();
  call.packed = use_packed ? packed_factors.get() : nullptr;
  call.x = x.get();
  call.dy = dy.get();

  const bool wants_x = random.chance(0.7), any_factors = random.chance(0.8);
  std::vector<bool> wants;
  for (int f = 0; f < shapes.count(); ++f) wants.push_back(any_factors && random.chance(0.8));
  KronRun<T> runs[2];
  for (KronRun<T>& run : runs) {
    run.y = Buffer<T>(rows * n * planes);
    if (wants_x) run.dx = Buffer<T>(rows * k * planes);
    for (int f = 0; f < shapes.count(); ++f)
      run.dfactors.push_back(wants[size_t(f)] ? Buffer<T>(factors[size_t(f)].count()) : Buffer<T>());
  }
  together([&] { runs[0].run(call, any_factors); }, [&] { runs[1].run(call, any_factors); });
  if (runs[0].status != 0 || runs[1].status != 0) report.fail("out of memory");

  Values y, dx;
  for (int64_t row = 0; row < rows; ++row) {
    const Row in = row_of(x_values, row, k, is_complex), arrived = row_of(dy_values, row, n, is_complex);
    append(y, interleaved(matrix.apply(in), is_complex));
    append(dx, interleaved(matrix.adjoint(arrived), is_complex));
    if (any_factors) matrix.accumulate(in, arrived);
  }
  report.compare("y", y, runs[0].y, kForwardLimit);
  report.check_memory("y", runs[0].y, runs[1].y);
  if (wants_x) report.compare("dx", dx, runs[0].dx, kForwardLimit);
  report.check_memory("dx", runs[0].dx, runs[1].dx);
  for (int f = 0; f < shapes.count(); ++f) {
    const Buffer<T>& gradient = runs[0].dfactors[size_t(f)];
    if (wants[size_t(f)]) {
      Values expected;
      for (int64_t r = 0; r < rank; ++r) append(expected, interleaved(matrix.gradient(r, f), is_complex));
      report.compare("dfactors", expected, gradient, kBackwardLimit);
    }
    report.check_memory("dfactors", gradient, runs[1].dfactors[size_t(f)]);
  }
  report.end();
}

}  // namespace selftest
