// kru_scan_forward and kru_scan_backward against the equations written out step by step.
#pragma once

#include "scan_reference.hpp"

namespace selftest {

enum Gradient { kPart, kX, kWeight, kBias, kRecurrentBias, kH0, kC0, kLeakRates, kInitial, kGradients };

// One of the three kinds of input, its values up to `size`.
template <class T> void draw_input_part(Random& random, ScanProblem& s, double size) {
  const int64_t rows = s.steps * s.batch;
  s.input_kind = int(random.integer(KRU_PART, KRU_SYMBOLS));
  s.inputs = s.input_kind == KRU_PART ? 0 : random.integer(1, 9);
  if (s.input_kind == KRU_PART) s.part = random.values<T>(rows * s.width(), size);
  if (s.input_kind == KRU_DENSE) s.x = random.values<T>(rows * s.inputs, size);
  for (int64_t i = 0; s.input_kind == KRU_SYMBOLS && i < rows; ++i) s.symbols.push_back(random.integer(0, s.inputs - 1));
  if (s.input_kind != KRU_PART) s.weight = random.values<T>(s.width() * s.inputs, 1);
}

// Padding is nobody's business: NaN there must not come out anywhere.
inline void poison_padding(ScanProblem& s) {
  const auto poison = [](Values& values, int64_t row, int64_t size) {
    for (int64_t i = row * size; !values.empty() && i < (row + 1) * size; ++i) values[size_t(i)] = kAny;
  };
  for (int64_t row = 0; row < s.batch; ++row)
    for (int64_t t = s.length(row); t < s.steps; ++t) {
      const int64_t at = t * s.batch + row;
      poison(s.part, at, s.width());
      poison(s.x, at, s.inputs);
      poison(s.dstates, at, s.state);
    }
}

// Everything random about a case. Tensors in double hold values of T.
template <class T> struct ScanCase {
  ScanProblem s{};
  Shapes shapes;
  int64_t rank;
  std::vector<Values> factors;
  int threads;
  bool part_is_gates, gates_are_dpart;
  bool wants[kGradients];
  std::vector<bool> wants_factor;
  std::string text;

  ScanCase(Random& random, int64_t number) {
    const int kind = int(number % 12);  // five nonlinearities real and complex, LSTM, GRU
    s.cell = kind < 10 ? KRU_ELMAN : kind == 10 ? KRU_LSTM : KRU_GRU;
    s.nonlinearity = kind < 10 ? kind % 5 : KRU_IDENTITY;
    s.is_complex = kind >= 5 && kind < 10;
    s.gates = s.cell == KRU_LSTM ? 4 : s.cell == KRU_GRU ? 3 : 1;
    const bool large = number / 12 % 7 == 6;  // in float and in double by turns
    shapes = square_shapes(random, large);
    rank = any_rank(random, large);
    s.units = shapes.rows();
    s.state = s.units * (s.is_complex ? 2 : 1);
    s.reverse = random.chance(0.5);
    threads = int(random.integer(1, 3));
    // Long enough, now and then, to fill what the kernels collect before they multiply.
    const bool many = s.units <= 24 && random.chance(0.3);
    const int64_t most = s.units * s.units * s.gates > 40000 ? 3 : 7;
    s.steps = large ? 2 : many ? 40 : random.integer(0, most);
    s.batch = large ? 2 : many ? 21 : s.units <= 70 && random.chance(0.2) ? 70 : random.integer(0, most);
    draw_matrices(random);
    draw_input(random);
    draw_gradients(random);
    describe(number);
  }

  int64_t rows() const { return s.steps * s.batch; }

 private:
  void draw_matrices(Random& random) {
    const bool unitary = random.chance(0.6);
    factors.resize(size_t(shapes.count()));
    s.matrices.resize(size_t(s.gates));
    for (int64_t term = 0; term < rank * s.gates; ++term) {
      std::vector<Row> entries;
      for (size_t f = 0; f < factors.size(); ++f) {
        const double scale = f == 0 ? 1.0 / double(rank) : 1.0;
        entries.push_back(factor_entries<T>(random, shapes.p[f], shapes.q[f], s.is_complex, unitary, scale));
        for (const Complex& entry : entries.back()) factors[f].push_back(entry.real());
        if (s.is_complex)
          for (const Complex& entry : entries.back()) factors[f].push_back(entry.imag());
      }
      s.matrices[size_t(term % s.gates)].add(Matrix(shapes, entries));
    }
  }

  void draw_input(Random& random) {
    if (random.chance(0.4))
      for (int64_t row = 0; row < s.batch; ++row) s.lengths.push_back(random.integer(0, s.steps));
    // Inputs near and at zero reach modReLU's floor.
    const double size = random.pick({1.0, 1.0, 1.0, 1e-7, 0.0});
    draw_input_part<T>(random, s, size);
    if (random.chance(0.7)) {
      if (s.own_bias()) s.bias = random.values<T>(s.units, 0.3);
      else if (s.input_kind != KRU_PART) s.bias = random.values<T>(s.width(), 0.5);
    }
    if (s.cell == KRU_GRU && random.chance(0.7)) s.recurrent_bias = random.values<T>(s.units, 0.5);
    if (s.cell == KRU_ELMAN && random.chance(0.4))
      for (const double v : random.values<T>(s.units, 0.5)) s.leak.push_back(double(T(0.5 + 0.999 * v)));
    if (random.chance(0.5)) s.h0 = random.values<T>(s.batch * s.state, 1);
    if (random.chance(0.4)) {
      for (int64_t i = 0; i < rows(); ++i) s.reset.push_back(random.chance(0.3));
      if (random.chance(0.5)) s.initial = random.values<T>(s.state, 1);
    }
    if (s.cell == KRU_LSTM && random.chance(0.5)) s.c0 = random.values<T>(s.batch * s.state, 1);
  }

  void draw_gradients(Random& random) {
    if (random.chance(0.7)) s.dstates = random.values<T>(rows() * s.state, 1);
    if (s.dstates.empty() || random.chance(0.5)) s.dh = random.values<T>(s.batch * s.state, 1);
    if (s.cell == KRU_LSTM && random.chance(0.5)) s.dc = random.values<T>(s.batch * s.state, 1);
    poison_padding(s);
    const bool dense = s.input_kind == KRU_DENSE, part = s.input_kind == KRU_PART;
    for (bool& want : wants) want = random.chance(0.7);
    wants[kPart] = wants[kPart] && part;
    wants[kX] = wants[kX] && dense;
    wants[kWeight] = wants[kWeight] && !part;
    wants[kBias] = wants[kBias] && !s.bias.empty();
    wants[kRecurrentBias] = wants[kRecurrentBias] && !s.recurrent_bias.empty();
    wants[kH0] = wants[kH0] && !s.h0.empty();
    wants[kC0] = wants[kC0] && !s.c0.empty();
    wants[kLeakRates] = wants[kLeakRates] && !s.leak.empty();
    wants[kInitial] = wants[kInitial] && !s.initial.empty();
    const bool any_factors = random.chance(0.8);
    for (int f = 0; f < shapes.count(); ++f) wants_factor.push_back(any_factors && random.chance(0.8));
    part_is_gates = s.cell != KRU_ELMAN && part && random.chance(0.5);
    gates_are_dpart = s.cell != KRU_ELMAN && wants[kPart] && random.chance(0.5);
  }

  void describe(int64_t number) {
    static const char* const cells[] = {"elman", "lstm", "gru"};
    static const char* const nonlinearities[] = {"identity", "tanh", "relu", "modrelu", "leaky relu"};
    static const char* const inputs[] = {"part", "dense", "symbols"};
    text = "scan " + std::to_string(number) + (sizeof(T) == 4 ? " float " : " double ") + cells[s.cell];
    if (s.cell == KRU_ELMAN) text += std::string(" ") + nonlinearities[s.nonlinearity];
    text += std::string(s.is_complex ? " complex " : " ") + std::to_string(rank) + " x " + shapes.text() + ", " + inputs[s.input_kind] + " " +
            std::to_string(s.steps) + " steps, batch " + std::to_string(s.batch) + ", " + std::to_string(threads) +
            " threads" + (s.reverse ? ", reversed" : "") + (s.lengths.empty() ? "" : ", lengths") + (s.leak.empty() ? "" : ", leak") +
            (s.reset.empty() ? "" : ", reset");
  }
};

// The case's inputs in T.
template <class T> struct ScanInputs {
  explicit ScanInputs(const ScanCase<T>& own)
      : part(buffer(own.s.part)), x(buffer(own.s.x)), weight(buffer(own.s.weight)), bias(buffer(own.s.bias)),
        recurrent_bias(buffer(own.s.recurrent_bias)), h0(buffer(own.s.h0)), c0(buffer(own.s.c0)), leak(buffer(own.s.leak)),
        initial(buffer(own.s.initial)),
        dstates(buffer(own.s.dstates)), dh(buffer(own.s.dh)), dc(buffer(own.s.dc)) {
    for (const Values& factor : own.factors) factors.emplace_back(factor);
    for (const Buffer<T>& factor : factors) pointers.push_back(factor.get());
    const ScanProblem& s = own.s;
    call.dtype = sizeof(T) == 4 ? KRU_FLOAT32 : KRU_FLOAT64;
    call.is_complex = s.is_complex;
    call.threads = own.threads;
    call.factor_count = own.shapes.count();
    call.cell = s.cell;
    call.nonlinearity = s.nonlinearity;
    call.input_kind = s.input_kind;
    call.reverse = s.reverse;
    call.steps = s.steps;
    call.batch = s.batch;
    call.inputs = s.inputs;
    call.rank = own.rank;
    call.p = own.shapes.p.data();
    call.q = own.shapes.q.data();
    call.factors = pointers.data();
    call.part = part.get();
    call.x = x.get();
    call.symbols = s.symbols.data();
    call.weight = weight.get();
    call.bias = bias.get();
    call.recurrent_bias = recurrent_bias.get();
    call.h0 = h0.get();
    call.c0 = c0.get();
    call.leak = leak.get();
    call.initial = initial.get();
    call.reset = s.reset.empty() ? nullptr : s.reset.data();
    call.lengths = s.lengths.empty() ? nullptr : s.lengths.data();
    call.dstates = dstates.get();
    call.dh = dh.get();
    call.dc = dc.get();
  }

  kru_scan call{};

 private:
  static Buffer<T> buffer(const Values& values) { return values.empty() ? Buffer<T>() : Buffer<T>(values); }

  Buffer<T> part, x, weight, bias, recurrent_bias, h0, c0, leak, initial, dstates, dh, dc;
  std::vector<Buffer<T>> factors;
  std::vector<const void*> pointers;
};

// One forward and backward pass with outputs of its own.
template <class T> struct ScanRun {
  Buffer<T> states, cells, gates, h, c, gradients[kGradients], kept_h, kept_c;
  std::vector<Buffer<T>> dfactors;
  Values gates_after_forward;
  int64_t every = 0;
  int status = 0;

  // every > 0: with the states before every so many steps instead of the history.
  explicit ScanRun(const ScanCase<T>& own, bool history = true, int64_t every_steps = 0) : every(every_steps) {
    const ScanProblem& s = own.s;
    if (every == 0) states = Buffer<T>(own.rows() * s.state);
    h = Buffer<T>(s.batch * s.state);
    if (s.cell == KRU_LSTM) c = Buffer<T>(s.batch * s.state);
    if (!history) return;
    const int64_t kept = every > 0 ? (s.steps + every - 1) / every * s.batch * s.state : 0;
    if (every > 0) kept_h = Buffer<T>(kept);
    if (every > 0 && s.cell == KRU_LSTM) kept_c = Buffer<T>(kept);
    if (every > 0 && own.gates_are_dpart) gradients[kPart] = Buffer<T>(own.rows() * s.width());
    if (every == 0 && s.cell != KRU_ELMAN) {
      cells = Buffer<T>(own.rows() * s.units);
      gates = own.part_is_gates ? Buffer<T>(s.part) : Buffer<T>(own.rows() * s.gates * s.units);
    }
    const int64_t counts[kGradients] = {own.rows() * s.width(), own.rows() * s.inputs, s.width() * s.inputs,
                                        int64_t(s.bias.size()), s.units, s.batch * s.state, s.batch * s.state,
                                        s.units, s.state};
    for (int g = 0; g < kGradients; ++g)
      if (own.wants[g] && gradients[g].get() == nullptr && !(g == kPart && own.gates_are_dpart)) gradients[g] = Buffer<T>(counts[g]);
    for (size_t f = 0; f < own.factors.size(); ++f)
      dfactors.push_back(own.wants_factor[f] ? Buffer<T>(int64_t(own.factors[f].size())) : Buffer<T>());
  }

  void forward(const ScanCase<T>& own, kru_scan call) {
    call.states = states.get();
    call.cells = cells.get();
    call.gates = gates.get();
    call.h = h.get();
    call.c = c.get();
    keep(call);
    if (own.part_is_gates && gates.get() != nullptr) call.part = gates.get();
    status |= kru_scan_forward(&call);
    gates_after_forward = gates.values();
  }

  void backward(const ScanCase<T>& own, kru_scan call) {
    std::vector<void*> pointers;
    bool any = false;
    for (const Buffer<T>& gradient : dfactors) {
      pointers.push_back(gradient.get());
      any = any || gradient.get() != nullptr;
    }
    keep(call);
    if (own.part_is_gates && every == 0) call.part = nullptr;
    call.states = states.get();
    call.cells = cells.get();
    call.gates = gates.get();
    call.dfactors = any ? pointers.data() : nullptr;
    call.dpart = own.gates_are_dpart && every == 0 ? gates.get() : gradients[kPart].get();
    call.dx = gradients[kX].get();
    call.dweight = gradients[kWeight].get();
    call.dbias = gradients[kBias].get();
    call.drecurrent_bias = gradients[kRecurrentBias].get();
    call.dh0 = gradients[kH0].get();
    call.dc0 = gradients[kC0].get();
    call.dleak = gradients[kLeakRates].get();
    call.dinitial = gradients[kInitial].get();
    status |= kru_scan_backward(&call);
  }

 private:
  void keep(kru_scan& call) {
    call.every = every;
    call.kept_h = kept_h.get();
    call.kept_c = kept_c.get();
  }
};

// What a rounding of the states does to the gradients: more than nothing where modReLU's bias meets a small z.
template <class T> Values rounded_differently(Random& random, Values states) {
  for (double& v : states) v *= 1 + random.uniform(-1, 1) * std::numeric_limits<T>::epsilon();
  return states;
}

template <class T>
void check_gradients(Random& random, Report& report, const ScanCase<T>& own, const ScanRun<T>& run, const Values& states,
                     const Values& cells) {
  static const char* const names[] = {"dpart", "dx", "dweight", "dbias", "drecurrent_bias", "dh0", "dc0", "dleak",
                                      "dinitial"};
  const int count = own.shapes.count();
  const ScanGradients expected = scan_backward(own.s, states, cells, count);
  const auto list = [](const ScanGradients& g) {
    return std::vector<const Values*>{&g.part, &g.x, &g.weight, &g.bias, &g.recurrent_bias, &g.h0, &g.c0, &g.leak,
                                      &g.initial};
  };
  double sensitive = 1;
  if (own.s.own_bias()) {
    ScanProblem changed = own.s;
    changed.h0 = rounded_differently<T>(random, own.s.h0);
    changed.initial = rounded_differently<T>(random, own.s.initial);
    const ScanGradients other = scan_backward(changed, rounded_differently<T>(random, states), cells, count);
    for (int g = 0; g < kGradients; ++g) {
      double change = 0, scale = 1e-30;
      for (size_t i = 0; i < list(expected)[size_t(g)]->size(); ++i) {
        change = fmax(change, fabs((*list(expected)[size_t(g)])[i] - (*list(other)[size_t(g)])[i]));
        scale = fmax(scale, fabs((*list(expected)[size_t(g)])[i]));
      }
      sensitive = fmax(sensitive, change / (scale * std::numeric_limits<T>::epsilon()));
    }
  }
  for (int g = 0; g < kGradients; ++g)
    if (own.wants[g]) {
      const Buffer<T>& got = g == kPart && own.gates_are_dpart && run.every == 0 ? run.gates : run.gradients[g];
      report.compare(names[g], *list(expected)[size_t(g)], got, kBackwardLimit * sensitive);
    }
  for (size_t f = 0; f < own.factors.size(); ++f) {
    if (!own.wants_factor[f]) continue;
    Values all;
    for (int64_t term = 0; term < own.rank * own.s.gates; ++term) {
      const Row& gradient = expected.factors[size_t(term) * own.factors.size() + f];
      for (const Complex& entry : gradient) all.push_back(entry.real());
      if (own.s.is_complex)
        for (const Complex& entry : gradient) all.push_back(entry.imag());
    }
    report.compare("dfactors", all, run.dfactors[f], kBackwardLimit * sensitive);
  }
}

template <class T> void scan_case(Random& random, Report& report, int64_t number) {
  const ScanCase<T> own(random, number);
  report.start(own.text);
  const ScanInputs<T> inputs(own);
  ScanRun<T> run(own), again(own), inference(own, false);
  const auto both = [&](ScanRun<T>& of) {
    of.forward(own, inputs.call);
    of.backward(own, inputs.call);
  };
  together([&] { both(run); }, [&] { both(again); });
  inference.forward(own, inputs.call);
  // As many steps as there are, fewer, or more.
  const int64_t every = random.integer(1, own.s.steps + 2);
  ScanRun<T> lean(own, true, every), lean_again(own, true, every);
  together([&] { both(lean); }, [&] { both(lean_again); });
  if (lean.status != 0 || lean_again.status != 0) report.fail("out of memory");
  if (run.status != 0 || again.status != 0 || inference.status != 0) report.fail("out of memory");

  const Values states = run.states.values(), cells = run.cells.values();
  const ScanForward expected = scan_forward(own.s, states, cells);
  report.compare("states", expected.states, run.states, kForwardLimit, expected.slack);
  report.compare("cells", expected.cells, run.cells, kForwardLimit);
  report.compare("gates", expected.gates, Buffer<T>(run.gates_after_forward), kForwardLimit);
  report.compare("h", last_states(own.s, states, own.s.h0), run.h, 0);
  if (own.s.cell == KRU_LSTM) report.compare("c", last_states(own.s, cells, own.s.c0), run.c, 0);
  report.compare("states without history", states, inference.states, kForwardLimit);
  report.compare("h without history", run.h.values(), inference.h, kForwardLimit);
  report.compare("c without history", run.c.values(), inference.c, kForwardLimit);
  check_gradients(random, report, own, run, states, cells);
  // The backward pass may choose another form of the matrix than the forward pass: equal to rounding, not to the bit.
  report.compare("h with some states kept", run.h.values(), lean.h, 0);
  report.compare("c with some states kept", run.c.values(), lean.c, 0);
  check_gradients(random, report, own, lean, states, cells);
  report.check_memory("kept h", lean.kept_h, lean_again.kept_h);
  report.check_memory("kept c", lean.kept_c, lean_again.kept_c);
  for (int g = 0; g < kGradients; ++g) report.check_memory("gradients, lean", lean.gradients[g], lean_again.gradients[g]);
  for (size_t f = 0; f < own.factors.size(); ++f)
    report.check_memory("dfactors, lean", lean.dfactors[f], lean_again.dfactors[f]);

  report.check_memory("states", run.states, again.states);
  report.check_memory("cells", run.cells, again.cells);
  report.check_memory("gates", run.gates, again.gates);
  report.check_memory("h", run.h, again.h);
  report.check_memory("c", run.c, again.c);
  report.check_memory("states without history", inference.states, inference.states);
  for (int g = 0; g < kGradients; ++g) report.check_memory("gradients", run.gradients[g], again.gradients[g]);
  for (size_t f = 0; f < own.factors.size(); ++f)
    report.check_memory("dfactors", run.dfactors[f], again.dfactors[f]);
  report.end();
}

// One step from zero with a NaN or an infinity in one value: nothing hides it, nothing else is touched.
template <class T> void not_finite_case(Report& report, int nonlinearity, bool is_complex, double value) {
  const int64_t units = 21, at = 19, state = is_complex ? 2 * units : units;
  report.start(std::string("not finite, ") + (is_complex ? "complex " : "real ") + std::to_string(nonlinearity));
  Values part(size_t(state), 0.5);
  part[size_t(at)] = value;
  const Buffer<T> input(part), factor(Values(size_t(state * units), 0.1));
  const Buffer<T> states(state), h(state);
  const void* factors[] = {factor.get()};
  kru_scan call{};
  call.dtype = sizeof(T) == 4 ? KRU_FLOAT32 : KRU_FLOAT64;
  call.is_complex = is_complex;
  call.threads = call.factor_count = 1;
  call.nonlinearity = nonlinearity;
  call.steps = call.batch = call.rank = 1;
  call.p = call.q = &units;
  call.factors = factors;
  call.part = input.get();
  call.states = states.get();
  call.h = h.get();
  if (kru_scan_forward(&call) != 0) report.fail("out of memory");
  for (int64_t i = 0; i < state; ++i) {
    const double got = states.get()[i];
    const bool touched = i == at || (nonlinearity == KRU_MODRELU && i == at + units);
    const bool kept = nonlinearity == KRU_MODRELU || std::isnan(value) ? std::isnan(got) : got > 0.9;
    if (touched ? !kept : !(fabs(got) < 1)) report.fail("state " + std::to_string(i) + " is " + std::to_string(got));
  }
  report.end();
}

}  // namespace selftest
