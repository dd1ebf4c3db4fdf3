// kru_chain_forward and kru_chain_backward against dense matrices of the stages, step by step from the kernel's own
// states, as in scan_reference.hpp.
#pragma once

#include <algorithm>

#include "kron_cases.hpp"
#include "scan_cases.hpp"

namespace selftest {

// A stage with its dense matrix M, and G = sum g x^H over all rows x that it takes and gradients g at its output.
struct DenseStage {
  kru_stage stage{};
  std::vector<int64_t> order;
  Row numbers;  // d, v or p
  Values c, s;
  std::vector<Row> matrix, total;

  void make(int64_t n) {
    matrix.assign(size_t(n), Row(size_t(n)));
    total = matrix;
    double squares = 0;
    for (const Complex& v : numbers) squares += std::norm(v);
    for (size_t i = 0; i < size_t(n); ++i)
      for (size_t j = 0; j < size_t(n); ++j) {
        const double angle = 2 * M_PI * double(i * j % size_t(n)) / double(n);
        Complex& entry = matrix[i][j];
        if (stage.kind == KRU_DIAGONAL) entry = i == j ? numbers[i] : 0;
        else if (stage.kind == KRU_REFLECTION) entry = double(i == j) - 2 / squares * numbers[i] * std::conj(numbers[j]);
        else if (stage.kind == KRU_FOURIER) entry = std::polar(1 / sqrt(double(n)), stage.inverse ? angle : -angle);
        else if (stage.kind == KRU_PERMUTATION) entry = double(order[i] == int64_t(j));
        else entry = double(i == j);
      }
    for (size_t k = 0; k < c.size(); ++k) {
      const size_t a = unit(k), b = a + size_t(stage.distance);
      matrix[a][a] = numbers[k] * c[k], matrix[a][b] = -numbers[k] * s[k];
      matrix[b][a] = s[k], matrix[b][b] = c[k];
    }
  }

  size_t unit(size_t pair) const {
    const size_t distance = size_t(stage.distance);
    return size_t(stage.first) + 2 * (pair / distance) * distance + pair % distance;
  }

  Row apply(const Row& x) const {
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j) y[i] += matrix[i][j] * x[j];
    return y;
  }

  Row adjoint(const Row& x, const Row& g) {
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j) {
        out[j] += std::conj(matrix[i][j]) * g[i];
        total[i][j] += g[i] * std::conj(x[j]);
      }
    return out;
  }

  // From G and the derivatives of M.
  Row dnumbers() const {
    Row out(numbers.size());
    double squares = 0;
    Complex across = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      squares += std::norm(numbers[i]);
      if (stage.kind == KRU_REFLECTION)
        for (size_t j = 0; j < numbers.size(); ++j) across += std::conj(numbers[i]) * total[i][j] * numbers[j];
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (stage.kind == KRU_DIAGONAL) out[i] = total[i][i];
      if (stage.kind == KRU_ROTATIONS) {
        const size_t a = unit(i), b = a + size_t(stage.distance);
        out[i] = c[i] * total[a][a] - s[i] * total[a][b];
      }
      if (stage.kind != KRU_REFLECTION) continue;
      for (size_t j = 0; j < numbers.size(); ++j)
        out[i] -= 2 / squares * (total[i][j] + std::conj(total[j][i])) * numbers[j];
      out[i] += 4 / squares / squares * across.real() * numbers[i];
    }
    return out;
  }
  Values dc() const {
    Values out;
    for (size_t k = 0; k < c.size(); ++k) {
      const size_t a = unit(k), b = a + size_t(stage.distance);
      out.push_back((numbers[k] * std::conj(total[a][a]) + std::conj(total[b][b])).real());
    }
    return out;
  }
  Values ds() const {
    Values out;
    for (size_t k = 0; k < c.size(); ++k) {
      const size_t a = unit(k), b = a + size_t(stage.distance);
      out.push_back((std::conj(total[b][a]) - numbers[k] * std::conj(total[a][b])).real());
    }
    return out;
  }
};

template <class T> DenseStage any_stage(Random& random, int64_t n) {
  DenseStage out;
  out.stage.kind = int32_t(random.integer(KRU_DIAGONAL, KRU_ROTATIONS));
  // The reflection of one number is -1 whatever v is: of its gradient, 0, there is only rounding.
  if (n == 1 && out.stage.kind == KRU_REFLECTION) out.stage.kind = KRU_DIAGONAL;
  out.stage.inverse = random.chance(0.5);
  int64_t numbers = n;
  if (out.stage.kind == KRU_PERMUTATION) {
    for (int64_t i = 0; i < n; ++i) out.order.push_back(i);
    for (int64_t i = n - 1; i > 0; --i) std::swap(out.order[size_t(i)], out.order[size_t(random.integer(0, i))]);
  }
  if (out.stage.kind == KRU_ROTATIONS) {
    out.stage.distance = random.integer(1, n > 1 ? n / 2 : 1);
    out.stage.pairs = n / 2 / out.stage.distance * out.stage.distance;
    out.stage.first = random.integer(0, n - 2 * out.stage.pairs);
    numbers = out.stage.pairs;
  }
  if (out.stage.kind == KRU_FOURIER || out.stage.kind == KRU_PERMUTATION) numbers = 0;
  for (int64_t i = 0; i < numbers; ++i) {
    const double angle = random.uniform(0, 6.28), size = out.stage.kind == KRU_REFLECTION ? random.uniform(0.1, 1) : 1;
    out.numbers.emplace_back(T(size * cos(angle)), T(size * sin(angle)));
    if (out.stage.kind != KRU_ROTATIONS) continue;
    const double turn = random.uniform(0, 6.28);
    out.c.push_back(T(cos(turn))), out.s.push_back(T(sin(turn)));
  }
  out.make(n);
  return out;
}

template <class T> struct ChainRun {
  Buffer<T> states, h, dpart, dx, dweight, dbias, dh0;
  std::vector<Buffer<T>> dnumbers, dc, ds;
  int status = 0;

  void run(kru_chain call, std::vector<kru_stage> stages, bool gradients) {
    call.stages = stages.data();
    call.states = states.get();
    call.h = h.get();
    status = kru_chain_forward(&call);
    if (!gradients) return;
    for (size_t k = 0; k < stages.size(); ++k)
      stages[k].dnumbers = dnumbers[k].get(), stages[k].dc = dc[k].get(), stages[k].ds = ds[k].get();
    call.h = nullptr;
    call.dpart = dpart.get();
    call.dx = dx.get();
    call.dweight = dweight.get();
    call.dbias = dbias.get();
    call.dh0 = dh0.get();
    status |= kru_chain_backward(&call);
  }
};

template <class T> void chain_case(Random& random, Report& report, int64_t number) {
  ScanProblem problem{};
  const int64_t n = random.chance(0.2) ? random.pick<int64_t>({32, 34, 45, 47, 64}) : random.integer(1, 18);
  problem.nonlinearity = KRU_MODRELU;
  problem.is_complex = true;
  problem.reverse = random.chance(0.5);
  problem.steps = random.integer(0, 5);
  // Up to half a vector of rows beyond full ones, the kernels of shorter vectors take over.
  problem.batch = random.chance(0.5) ? random.integer(9, 40) : random.integer(0, 9);
  problem.units = n;
  problem.state = 2 * n;
  problem.gates = 1;
  const int64_t all = problem.steps * problem.batch * 2 * n, rows = problem.batch * 2 * n;
  draw_input_part<T>(random, problem, 1);
  if (random.chance(0.7)) problem.bias = random.values<T>(n, 0.3);
  if (random.chance(0.7)) problem.h0 = random.values<T>(rows, 1);
  if (random.chance(0.8)) problem.dstates = random.values<T>(all, 1);
  if (random.chance(0.8) || problem.dstates.empty()) problem.dh = random.values<T>(rows, 1);
  if (random.chance(0.4))
    for (int64_t row = 0; row < problem.batch; ++row) problem.lengths.push_back(random.integer(0, problem.steps));
  poison_padding(problem);
  std::vector<DenseStage> chain;
  for (int64_t k = random.integer(0, 6); k > 0; --k) chain.push_back(any_stage<T>(random, n));
  const int threads = int(random.integer(1, 3));
  report.start("chain " + std::to_string(number) + (sizeof(T) == 4 ? " float, " : " double, ") + std::to_string(n) +
               " units, input " + std::to_string(problem.input_kind) + ", " + std::to_string(chain.size()) + " stages, " + std::to_string(problem.steps) + " steps, " +
               std::to_string(problem.batch) + " rows, " + std::to_string(threads) + " threads");

  std::vector<Buffer<T>> memory;
  const auto keep = [&](const Values& values) {
    memory.emplace_back(values);
    return static_cast<const void*>(values.empty() ? nullptr : memory.back().get());
  };
  std::vector<kru_stage> stages;
  for (const DenseStage& dense : chain) {
    kru_stage stage = dense.stage;
    stage.order = dense.order.data();
    stage.numbers = keep(interleaved(dense.numbers, true));
    stage.c = keep(dense.c);
    stage.s = keep(dense.s);
    stages.push_back(stage);
  }
  kru_chain call{};
  call.dtype = sizeof(T) == 4 ? KRU_FLOAT32 : KRU_FLOAT64;
  call.threads = threads;
  call.stage_count = int32_t(chain.size());
  call.reverse = problem.reverse;
  call.steps = problem.steps;
  call.batch = problem.batch;
  call.size = n;
  call.input_kind = problem.input_kind;
  call.inputs = problem.inputs;
  call.part = keep(problem.part);
  call.x = keep(problem.x);
  call.symbols = problem.symbols.data();
  call.weight = keep(problem.weight);
  call.bias = keep(problem.bias);
  call.h0 = keep(problem.h0);
  call.lengths = problem.lengths.empty() ? nullptr : problem.lengths.data();
  call.dstates = keep(problem.dstates);
  call.dh = keep(problem.dh);

  const bool gradients = random.chance(0.8), wants_bias = random.chance(0.8);
  const bool wants_part = problem.input_kind == KRU_PART && random.chance(0.8);
  const bool wants_x = problem.input_kind == KRU_DENSE && random.chance(0.8);
  const bool wants_weight = problem.input_kind != KRU_PART && random.chance(0.8);
  const bool wants_h0 = random.chance(0.8);
  ChainRun<T> runs[2];
  std::vector<bool> wants;
  for (size_t k = 0; k < chain.size(); ++k) wants.push_back(random.chance(0.8));
  for (ChainRun<T>& run : runs) {
    run.states = Buffer<T>(all);
    run.h = Buffer<T>(rows);
    if (wants_part) run.dpart = Buffer<T>(all);
    if (wants_x) run.dx = Buffer<T>(problem.steps * problem.batch * problem.inputs);
    if (wants_weight) run.dweight = Buffer<T>(2 * n * problem.inputs);
    if (wants_bias) run.dbias = Buffer<T>(n);
    if (wants_h0) run.dh0 = Buffer<T>(rows);
    for (size_t k = 0; k < chain.size(); ++k) {
      const auto buffer = [&](size_t count) { return wants[k] && count ? Buffer<T>(int64_t(count)) : Buffer<T>(); };
      run.dnumbers.push_back(buffer(2 * chain[k].numbers.size()));
      run.dc.push_back(buffer(chain[k].c.size()));
      run.ds.push_back(buffer(chain[k].s.size()));
    }
  }
  together([&] { runs[0].run(call, stages, gradients); }, [&] { runs[1].run(call, stages, gradients); });
  if (runs[0].status != 0 || runs[1].status != 0) report.fail("out of memory");

  const Values history = runs[0].states.values();
  Values states(static_cast<size_t>(all)), h(static_cast<size_t>(rows));
  Values dpart(static_cast<size_t>(all)), dbias(static_cast<size_t>(n)), dh0(static_cast<size_t>(rows));
  for (int64_t row = 0; row < problem.batch; ++row) {
    const int64_t length = problem.length(row);
    std::vector<std::vector<Row>> inputs(static_cast<size_t>(length));  // of each stage, and of modReLU
    Row last = problem.read(problem.h0, 0, row, 2 * n);
    for (int64_t k = 0; k < length; ++k) {
      const int64_t t = problem.step(row, k);
      std::vector<Row>& seen = inputs[size_t(k)];
      seen.push_back(problem.before(history, problem.h0, {}, row, k));
      for (const DenseStage& stage : chain) seen.push_back(stage.apply(seen.back()));
      const Row a = problem.input_part(t, row);
      last.resize(size_t(n));
      for (size_t i = 0; i < size_t(n); ++i) {
        seen.back()[i] += a[i];
        last[i] = nonlinear(seen.back()[i], KRU_MODRELU, problem.bias.empty() ? 0 : problem.bias[i], true);
      }
      problem.write(states, t, row, 2 * n, last);
    }
    problem.write(h, 0, row, 2 * n, last);
    Row carried = problem.read(problem.dh, 0, row, 2 * n);
    for (int64_t k = length - 1; k >= 0; --k) {
      const int64_t t = problem.step(row, k);
      const Row out = problem.read(problem.dstates, t, row, 2 * n), own = problem.read(history, t, row, 2 * n);
      const std::vector<Row>& seen = inputs[size_t(k)];
      for (size_t i = 0; i < size_t(n); ++i)
        carried[i] = nonlinear_gradient(seen.back()[i], own[i], carried[i] + out[i], KRU_MODRELU,
                                        problem.bias.empty() ? 0 : problem.bias[i], &dbias[i]);
      problem.write(dpart, t, row, 2 * n, carried);
      for (size_t s = chain.size(); s > 0; --s) carried = chain[s - 1].adjoint(seen[s - 1], carried);
    }
    problem.write(dh0, 0, row, 2 * n, carried);
  }
  report.compare("states", states, runs[0].states, kForwardLimit);
  report.compare("h", h, runs[0].h, kForwardLimit);
  report.check_memory("states", runs[0].states, runs[1].states);
  report.check_memory("h", runs[0].h, runs[1].h);
  if (!gradients) return report.end();
  if (wants_part) report.compare("dpart", dpart, runs[0].dpart, kBackwardLimit);
  Values dx(size_t(problem.steps * problem.batch * problem.inputs)), dweight(size_t(2 * n * problem.inputs));
  input_gradients(problem, dpart, dx, dweight);
  if (wants_x) report.compare("dx", dx, runs[0].dx, kBackwardLimit);
  if (wants_weight) report.compare("dweight", dweight, runs[0].dweight, kBackwardLimit);
  if (wants_bias) report.compare("dbias", dbias, runs[0].dbias, kBackwardLimit);
  if (wants_h0) report.compare("dh0", dh0, runs[0].dh0, kBackwardLimit);
  report.check_memory("dpart", runs[0].dpart, runs[1].dpart);
  report.check_memory("dx", runs[0].dx, runs[1].dx);
  report.check_memory("dweight", runs[0].dweight, runs[1].dweight);
  report.check_memory("dbias", runs[0].dbias, runs[1].dbias);
  report.check_memory("dh0", runs[0].dh0, runs[1].dh0);
  for (size_t k = 0; k < chain.size(); ++k) {
    if (runs[0].dnumbers[k].get() != nullptr)
      report.compare("dnumbers", interleaved(chain[k].dnumbers(), true), runs[0].dnumbers[k], kBackwardLimit);
    if (runs[0].dc[k].get() != nullptr) report.compare("dc", chain[k].dc(), runs[0].dc[k], kBackwardLimit);
    if (runs[0].ds[k].get() != nullptr) report.compare("ds", chain[k].ds(), runs[0].ds[k], kBackwardLimit);
    report.check_memory("dnumbers", runs[0].dnumbers[k], runs[1].dnumbers[k]);
    report.check_memory("dc", runs[0].dc[k], runs[1].dc[k]);
    report.check_memory("ds", runs[0].ds[k], runs[1].ds[k]);
  }
  report.end();
}

}  // namespace selftest
