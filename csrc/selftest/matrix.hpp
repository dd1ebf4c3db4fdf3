// Kronecker matrices, sums of them, and the gradients of their factors, as literally as memory allows, in double
// precision.
#pragma once

#include "harness.hpp"

namespace selftest {

struct Shapes {
  std::vector<int64_t> p, q;

  int count() const { return int(p.size()); }
  int64_t rows() const { return product(p, 0, count()); }
  int64_t columns() const { return product(q, 0, count()); }
  static int64_t product(const std::vector<int64_t>& sizes, int first, int last) {
    int64_t out = 1;
    for (int f = first; f < last; ++f) out *= sizes[size_t(f)];
    return out;
  }
  std::string text() const {
    std::string out;
    for (int f = 0; f < count(); ++f)
      out += (f ? " x (" : "(") + std::to_string(p[size_t(f)]) + "," + std::to_string(q[size_t(f)]) + ")";
    return out;
  }
};

class Matrix {
 public:
  Matrix(const Shapes& shapes, const std::vector<Row>& factors)
      : shapes_(shapes), factors_(factors), n_(shapes.rows()), k_(shapes.columns()), dense_(n_ * k_ <= kLargest) {
    for (const Row& factor : factors) gradients_.emplace_back(factor.size());
    if (!dense_) return;
    matrix_.resize(size_t(n_ * k_));
    total_.resize(size_t(n_ * k_));
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < k_; ++j) matrix_[size_t(i * k_ + j)] = entry(i, j, -1);
  }

  Row apply(const Row& x) const {
    if (!dense_) return through(x, shapes_.count() - 1, -1, false);
    Row y(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < k_; ++j) y[size_t(i)] += matrix_[size_t(i * k_ + j)] * x[size_t(j)];
    return y;
  }

  Row adjoint(const Row& g) const {
    if (!dense_) return through(g, 0, shapes_.count(), true);
    Row out(static_cast<size_t>(k_));
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < k_; ++j) out[size_t(j)] += std::conj(matrix_[size_t(i * k_ + j)]) * g[size_t(i)];
    return out;
  }

  // The gradient g arrived at the product with x.
  void accumulate(const Row& x, const Row& g) {
    if (dense_) {
      for (int64_t i = 0; i < n_; ++i)
        for (int64_t j = 0; j < k_; ++j) total_[size_t(i * k_ + j)] += g[size_t(i)] * std::conj(x[size_t(j)]);
      return;
    }
    for (int f = 0; f < shapes_.count(); ++f) {
      const Row in = through(x, shapes_.count() - 1, f, false), out = through(g, 0, f, true);
      const int64_t p = shapes_.p[size_t(f)], q = shapes_.q[size_t(f)], right = after(f);
      for (int64_t l = 0; l < before(f); ++l)
        for (int64_t i = 0; i < p; ++i)
          for (int64_t j = 0; j < q; ++j)
            for (int64_t r = 0; r < right; ++r)
              gradients_[size_t(f)][size_t(i * q + j)] +=
                  out[size_t((l * p + i) * right + r)] * std::conj(in[size_t((l * q + j) * right + r)]);
    }
  }

  Row gradient(int f) const {
    if (!dense_) return gradients_[size_t(f)];
    Row out(factors_[size_t(f)].size());
    const int64_t p = shapes_.p[size_t(f)], q = shapes_.q[size_t(f)];
    const int64_t i_step = Shapes::product(shapes_.p, f + 1, shapes_.count());
    const int64_t j_step = Shapes::product(shapes_.q, f + 1, shapes_.count());
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < k_; ++j)
        out[size_t(i / i_step % p * q + j / j_step % q)] += total_[size_t(i * k_ + j)] * std::conj(entry(i, j, f));
    return out;
  }

 private:
  static constexpr int64_t kLargest = int64_t(1) << 18;  // above, the matrix is applied factor by factor

  // Entry (i, j) of the product of all factors except `without`.
  Complex entry(int64_t i, int64_t j, int without) const {
    Complex out = 1;
    for (int f = shapes_.count() - 1; f >= 0; --f) {
      const int64_t p = shapes_.p[size_t(f)], q = shapes_.q[size_t(f)];
      if (f != without) out *= factors_[size_t(f)][size_t(i % p * q + j % q)];
      i /= p;
      j /= q;
    }
    return out;
  }

  int64_t before(int f) const { return Shapes::product(shapes_.q, 0, f); }
  int64_t after(int f) const { return Shapes::product(shapes_.p, f + 1, shapes_.count()); }

  // The factors from `first` on up or down to `end`, which is left out, or their adjoints.
  Row through(Row x, int first, int end, bool adjoint) const {
    for (int f = first; f != end; f += end > first ? 1 : -1) {
      const int64_t p = shapes_.p[size_t(f)], q = shapes_.q[size_t(f)], right = after(f);
      const int64_t in = adjoint ? p : q, out = adjoint ? q : p;
      Row y(static_cast<size_t>(before(f) * out * right));
      for (int64_t l = 0; l < before(f); ++l)
        for (int64_t i = 0; i < out; ++i)
          for (int64_t j = 0; j < in; ++j) {
            const Row& w = factors_[size_t(f)];
            const Complex coefficient = adjoint ? std::conj(w[size_t(j * q + i)]) : w[size_t(i * q + j)];
            for (int64_t r = 0; r < right; ++r)
              y[size_t((l * out + i) * right + r)] += coefficient * x[size_t((l * in + j) * right + r)];
          }
      x = y;
    }
    return x;
  }

  Shapes shapes_;
  std::vector<Row> factors_, gradients_;
  int64_t n_, k_;
  bool dense_;
  Row matrix_, total_;
};

// A sum of matrices of equal shapes.
class Sum {
 public:
  void add(Matrix term) { terms_.push_back(std::move(term)); }
  int64_t rank() const { return int64_t(terms_.size()); }

  Row apply(const Row& x) const {
    Row y = terms_[0].apply(x);
    for (size_t r = 1; r < terms_.size(); ++r) add_to(y, terms_[r].apply(x));
    return y;
  }
  Row adjoint(const Row& g) const {
    Row out = terms_[0].adjoint(g);
    for (size_t r = 1; r < terms_.size(); ++r) add_to(out, terms_[r].adjoint(g));
    return out;
  }
  void accumulate(const Row& x, const Row& g) {
    for (Matrix& term : terms_) term.accumulate(x, g);
  }
  Row gradient(int64_t r, int f) const { return terms_[size_t(r)].gradient(f); }

 private:
  static void add_to(Row& to, const Row& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  std::vector<Matrix> terms_;
};

}  // namespace selftest
