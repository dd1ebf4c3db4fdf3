// The recurrence and its gradients, written out step by step for each row, in double precision.
//
// Each step starts from the kernel's own state of the step before (and the gradients use the kernel's states), so
// rounding does not grow with the number of steps and the limits on errors can be tight. By induction over the steps
// this is as strict as comparing whole trajectories.
#pragma once

#include "shapes.hpp"

namespace selftest {

struct ScanProblem {
  int cell, nonlinearity, input_kind;
  bool is_complex, reverse;
  int64_t steps, batch, inputs, gates, units, state;
  std::vector<Sum> matrices;  // one for each gate
  Values part, x, weight, bias, recurrent_bias, h0, c0, leak, initial, dstates, dh, dc;  // empty where there is none
  std::vector<int64_t> symbols, lengths;
  std::vector<uint8_t> reset;

  int64_t width() const { return gates * state; }
  int64_t length(int64_t row) const { return lengths.empty() ? steps : lengths[size_t(row)]; }
  bool own_bias() const { return cell == KRU_ELMAN && nonlinearity == KRU_MODRELU; }

  // Row (t, row) of a tensor (T, B, size) or, with t = 0, (B, size); complex numbers have a plane each.
  Row read(const Values& from, int64_t t, int64_t row, int64_t size) const {
    const int64_t count = is_complex ? size / 2 : size;
    Row out(static_cast<size_t>(count));
    if (from.empty()) return out;
    const double* at = from.data() + (t * batch + row) * size;
    for (int64_t i = 0; i < count; ++i) out[size_t(i)] = Complex(at[i], is_complex ? at[count + i] : 0);
    return out;
  }
  void write(Values& to, int64_t t, int64_t row, int64_t size, const Row& from) const {
    const int64_t count = int64_t(from.size());
    double* at = to.data() + (t * batch + row) * size;
    for (int64_t i = 0; i < count; ++i) {
      at[i] = from[size_t(i)].real();
      if (is_complex) at[count + i] = from[size_t(i)].imag();
    }
  }

  // The k-th step of a row in the order of the recurrence.
  int64_t step(int64_t row, int64_t k) const { return reverse ? length(row) - 1 - k : k; }
  // Whether a sequence begins between the k-th step and the one before it.
  bool restarts(int64_t row, int64_t k) const {
    if (reset.empty() || k == length(row)) return false;
    const int64_t begin = reverse ? step(row, k) + 1 : step(row, k);
    return begin < length(row) && reset[size_t(begin * batch + row)];
  }
  Row before(const Values& history, const Values& first, const Values& after_reset, int64_t row, int64_t k) const {
    if (restarts(row, k)) return read(after_reset, 0, 0, state);
    return k == 0 ? read(first, 0, row, state) : read(history, step(row, k - 1), row, state);
  }

  Row input_part(int64_t t, int64_t row) const {
    if (input_kind == KRU_PART) return read(part, t, row, width());
    Values a(static_cast<size_t>(width()));
    for (int64_t i = 0; i < width(); ++i) {
      if (!own_bias() && !bias.empty()) a[size_t(i)] = bias[size_t(i)];
      for (int64_t d = 0; d < inputs; ++d) a[size_t(i)] += weight[size_t(i * inputs + d)] * input(t, row, d);
    }
    Row out(static_cast<size_t>(gates * units));
    for (int64_t i = 0; i < gates * units; ++i)
      out[size_t(i)] = Complex(a[size_t(i)], is_complex ? a[size_t(units + i)] : 0);
    return out;
  }
  double input(int64_t t, int64_t row, int64_t d) const {
    if (input_kind == KRU_SYMBOLS) return symbols[size_t(t * batch + row)] == d ? 1 : 0;
    return x[size_t((t * batch + row) * inputs + d)];
  }
};

inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
constexpr double kFloor = 1e-6, kLeak = 0.1;

inline double leaky(double x) { return x < 0 ? kLeak * x : x; }

inline Complex nonlinear(Complex z, int nonlinearity, double b, bool is_complex) {
  if (nonlinearity == KRU_TANH) return {tanh(z.real()), is_complex ? tanh(z.imag()) : 0};
  if (nonlinearity == KRU_RELU) return {fmax(z.real(), 0), is_complex ? fmax(z.imag(), 0) : 0};
  if (nonlinearity == KRU_LEAKY_RELU) return {leaky(z.real()), is_complex ? leaky(z.imag()) : 0};
  if (nonlinearity == KRU_MODRELU) return fmax(std::abs(z) + b, 0) / fmax(std::abs(z), kFloor) * z;
  return z;
}

// The gradient at z. Which side of a kink z is on is decided by the kernel's h; *db is added to.
inline Complex nonlinear_gradient(Complex z, Complex h, Complex g, int nonlinearity, double b, double* db) {
  if (nonlinearity == KRU_TANH) {
    const double u = tanh(z.real()), v = tanh(z.imag());
    return {g.real() * (1 - u * u), g.imag() * (1 - v * v)};
  }
  if (nonlinearity == KRU_RELU) return {h.real() > 0 ? g.real() : 0, h.imag() > 0 ? g.imag() : 0};
  if (nonlinearity == KRU_LEAKY_RELU)
    return {h.real() > 0 ? g.real() : kLeak * g.real(), h.imag() > 0 ? g.imag() : kLeak * g.imag()};
  if (nonlinearity != KRU_MODRELU) return g;
  const double size = std::abs(z);
  if (size == 0) return b >= 0 ? g : 0;
  if (h == Complex(0)) return 0;
  // Along z and across it, each by its own slope.
  const double divisor = fmax(size, kFloor), across = (size + b) / divisor;
  const double along = size < kFloor ? (2 * size + b) / kFloor : 1;
  const Complex direction = z / size, turned = std::conj(direction) * g;
  *db += turned.real() * size / divisor;
  return direction * Complex(along * turned.real(), across * turned.imag());
}

struct ScanForward {
  Values states, cells, gates, slack;
};

// What the kernel should have written, given what it wrote the step before.
inline ScanForward scan_forward(const ScanProblem& s, const Values& kernel_states, const Values& kernel_cells) {
  const size_t rows = size_t(s.steps * s.batch), n = size_t(s.units);
  ScanForward out;
  out.states.assign(rows * size_t(s.state), 0.0);
  out.slack.assign(s.own_bias() ? out.states.size() : 0, 1.0);
  if (s.cell != KRU_ELMAN) {
    out.cells.assign(rows * n, kAny);
    out.gates.assign(rows * size_t(s.gates) * n, kAny);
  }
  for (int64_t row = 0; row < s.batch; ++row)
    for (int64_t k = 0; k < s.length(row); ++k) {
      const int64_t t = s.step(row, k);
      const Row h = s.before(kernel_states, s.h0, s.initial, row, k), a = s.input_part(t, row);
      std::vector<Row> z;
      for (const Sum& matrix : s.matrices) z.push_back(matrix.apply(h));
      Row next(n), cell(n), gates(size_t(s.gates) * n), slack(n, Complex(1, 1));
      if (s.cell == KRU_ELMAN) {
        for (size_t i = 0; i < n; ++i) {
          const double b = s.own_bias() && !s.bias.empty() ? s.bias[i] : 0;
          next[i] = nonlinear(z[0][i] + a[i], s.nonlinearity, b, s.is_complex);
          if (!s.leak.empty()) next[i] = (1 - s.leak[i]) * h[i] + s.leak[i] * next[i];
          // Close to z = 0 a positive bias turns a rounding of z into a turn of h.
          const double most = 1 + fmax(b, 0) / fmax(std::abs(z[0][i] + a[i]), kFloor);
          slack[i] = Complex(most, most);
        }
        if (s.own_bias()) s.write(out.slack, t, row, s.state, slack);
      } else if (s.cell == KRU_LSTM) {
        const Row c = s.before(kernel_cells, s.c0, {}, row, k);
        for (size_t i = 0; i < n; ++i) {
          for (size_t g = 0; g < 4; ++g) {
            const double sum = (z[g][i] + a[g * n + i]).real();
            gates[g * n + i] = g == 2 ? tanh(sum) : sigmoid(sum);
          }
          cell[i] = gates[n + i] * c[i] + gates[i] * gates[2 * n + i];
          next[i] = gates[3 * n + i] * tanh(cell[i].real());
        }
      } else {
        for (size_t i = 0; i < n; ++i) {
          gates[i] = sigmoid((z[0][i] + a[i]).real());
          gates[n + i] = sigmoid((z[1][i] + a[n + i]).real());
          cell[i] = z[2][i] + (s.recurrent_bias.empty() ? 0 : s.recurrent_bias[i]);
          gates[2 * n + i] = tanh((a[2 * n + i] + gates[i] * cell[i]).real());
          next[i] = (1.0 - gates[n + i]) * gates[2 * n + i] + gates[n + i] * h[i];
        }
      }
      s.write(out.states, t, row, s.state, next);
      if (s.cell == KRU_ELMAN) continue;
      s.write(out.cells, t, row, s.units, cell);
      s.write(out.gates, t, row, s.gates * s.units, gates);
    }
  return out;
}

// What comes last in the recurrence of each row: the initial state where a row has no steps.
inline Values last_states(const ScanProblem& s, const Values& history, const Values& first) {
  Values out(static_cast<size_t>(s.batch * s.state));
  for (int64_t row = 0; row < s.batch; ++row)
    s.write(out, 0, row, s.state, s.before(history, first, {}, row, s.length(row)));
  return out;
}

// Of x and of the input map, by that of a_t.
inline void input_gradients(const ScanProblem& s, const Values& part, Values& x, Values& weight) {
  for (int64_t row = 0; row < s.batch; ++row)
    for (int64_t t = 0; t < s.length(row); ++t)
      for (int64_t i = 0; i < s.width(); ++i) {
        const double g = part[size_t((t * s.batch + row) * s.width() + i)];
        for (int64_t d = 0; d < s.inputs; ++d) {
          weight[size_t(i * s.inputs + d)] += g * s.input(t, row, d);
          if (s.input_kind == KRU_DENSE) x[size_t((t * s.batch + row) * s.inputs + d)] += g * s.weight[size_t(i * s.inputs + d)];
        }
      }
}

struct ScanGradients {
  Values part, x, weight, bias, recurrent_bias, h0, c0, leak, initial;
  std::vector<Row> factors;  // term by term, gate by gate
};

// Reverse mode by hand, with h and c those of the kernel's forward pass.
inline ScanGradients scan_backward(ScanProblem s, const Values& states, const Values& cells, int factor_count) {
  ScanGradients out;
  const size_t n = size_t(s.units);
  const auto zeros = [](int64_t count) { return Values(static_cast<size_t>(count)); };
  out.part = zeros(s.steps * s.batch * s.width());
  out.x = zeros(s.steps * s.batch * s.inputs);
  out.weight = zeros(s.width() * s.inputs);
  out.bias = zeros(s.own_bias() ? s.units : s.width());
  out.recurrent_bias = zeros(s.units);
  out.leak = zeros(s.units);
  out.initial = zeros(s.state);
  out.h0 = out.c0 = zeros(s.batch * s.state);
  for (int64_t row = 0; row < s.batch; ++row) {
    Row dh = s.read(s.dh, 0, row, s.state), dc = s.read(s.dc, 0, row, s.state);
    for (int64_t k = s.length(row) - 1; k >= 0; --k) {
      const int64_t t = s.step(row, k);
      const Row h_before = s.before(states, s.h0, s.initial, row, k), h = s.read(states, t, row, s.state);
      const Row a = s.input_part(t, row), arrived = s.read(s.dstates, t, row, s.state);
      for (size_t i = 0; i < n; ++i) dh[i] += arrived[i];
      std::vector<Row> z, dz(size_t(s.gates), Row(n)), dproduct;
      for (size_t g = 0; g < size_t(s.gates); ++g) z.push_back(s.matrices[g].apply(h_before));
      Row around(n);  // the part of the gradient at h_{t-1} that passes by the matrices
      if (s.cell == KRU_ELMAN) {
        for (size_t i = 0; i < n; ++i) {
          double unused = 0;
          double* db = s.own_bias() ? &out.bias[i] : &unused;
          const double b = s.own_bias() && !s.bias.empty() ? s.bias[i] : 0;
          Complex output = h[i], arrived = dh[i];
          if (!s.leak.empty()) {
            output = nonlinear(z[0][i] + a[i], s.nonlinearity, b, s.is_complex);
            out.leak[i] += (std::conj(arrived) * (output - h_before[i])).real();
            around[i] = (1 - s.leak[i]) * arrived;
            arrived *= s.leak[i];
          }
          dz[0][i] = nonlinear_gradient(z[0][i] + a[i], output, arrived, s.nonlinearity, b, db);
        }
        dproduct = dz;
      } else if (s.cell == KRU_LSTM) {
        const Row c_before = s.before(cells, s.c0, {}, row, k);
        for (size_t m = 0; m < n; ++m) {
          const double i = sigmoid((z[0][m] + a[m]).real()), f = sigmoid((z[1][m] + a[n + m]).real());
          const double g = tanh((z[2][m] + a[2 * n + m]).real()), o = sigmoid((z[3][m] + a[3 * n + m]).real());
          const Complex c = f * c_before[m] + i * g;
          const double squashed = tanh(c.real());
          dc[m] += dh[m] * o * (1 - squashed * squashed);
          dz[0][m] = dc[m] * g * i * (1 - i);
          dz[1][m] = dc[m] * c_before[m] * f * (1 - f);
          dz[2][m] = dc[m] * i * (1 - g * g);
          dz[3][m] = dh[m] * squashed * o * (1 - o);
          dc[m] *= f;
        }
        dproduct = dz;
      } else {
        dproduct.resize(3, Row(n));
        for (size_t m = 0; m < n; ++m) {
          const double r = sigmoid((z[0][m] + a[m]).real()), u = sigmoid((z[1][m] + a[n + m]).real());
          const Complex kept = z[2][m] + (s.recurrent_bias.empty() ? 0 : s.recurrent_bias[m]);
          const double c = tanh((a[2 * n + m] + r * kept).real());
          dz[2][m] = dh[m] * (1 - u) * (1 - c * c);
          dz[0][m] = dz[2][m] * kept * r * (1 - r);
          dz[1][m] = dh[m] * (h_before[m] - c) * u * (1 - u);
          dproduct[0][m] = dz[0][m];
          dproduct[1][m] = dz[1][m];
          dproduct[2][m] = dz[2][m] * r;
          out.recurrent_bias[m] += dproduct[2][m].real();
          around[m] = dh[m] * u;
        }
      }
      Row joined;
      for (const Row& gate : dz) joined.insert(joined.end(), gate.begin(), gate.end());
      s.write(out.part, t, row, s.width(), joined);
      dh = around;
      for (size_t g = 0; g < size_t(s.gates); ++g) {
        const Row through = s.matrices[g].adjoint(dproduct[g]);
        for (size_t i = 0; i < n; ++i) dh[i] += through[i];
        s.matrices[g].accumulate(h_before, dproduct[g]);
      }
      if (!s.restarts(row, k)) continue;
      Row total = s.read(out.initial, 0, 0, s.state);
      for (size_t i = 0; i < n; ++i) total[i] += dh[i];
      s.write(out.initial, 0, 0, s.state, total);
      dh.assign(n, 0);
      dc.assign(n, 0);
    }
    s.write(out.h0, 0, row, s.state, dh);
    s.write(out.c0, 0, row, s.state, dc);
  }
  for (int64_t r = 0; r < s.matrices[0].rank(); ++r)
    for (const Sum& matrix : s.matrices)
      for (int f = 0; f < factor_count; ++f) out.factors.push_back(matrix.gradient(r, f));
  if (s.input_kind == KRU_PART) return out;
  input_gradients(s, out.part, out.x, out.weight);
  for (size_t i = 0; i < out.part.size() && !s.own_bias(); ++i) out.bias[i % size_t(s.width())] += out.part[i];
  return out;
}

}  // namespace selftest
