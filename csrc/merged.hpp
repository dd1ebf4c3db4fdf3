// Kronecker products of any factors, a block of rows at a time.
//
// Neighbouring factors form groups, each merged into one matrix of at most 8 x 8. The group with matrix M (p, q)
// sees a row as (left, q, right) and computes y[l, i, r] = sum_j M[i, j] x[l, j, r]: a matrix product with vectors along
// r where right is at least a vector long ("wide"), else along i with M^T packed in panels ("narrow"). Where M itself is
// smaller than a vector ("tiny"), the block is turned to (q, rows left right) and back: all else is then one long r.
//
// Gradient: pairs of rows (h, g) are collected; when enough have come, the intermediate products of h and of g are
// computed for all of them at once, and each dM is one matrix product over all collected rows. One of these products is
// with the costliest matrix, again. Where all matrices are square and all but the costliest one are small and far from
// singular, it is spared: their gradients are M^{-H} T as in butterfly.hpp, from a = W^H g and h themselves, and the
// costliest one's needs the products of g with the small matrices only.
#pragma once

#include "factors.hpp"
#include "gemm.hpp"
#include "inverse.hpp"

namespace kru {
namespace KRU_ISA {

template <class T, bool C> class Merged {
 public:
  static constexpr int kPlanes = C ? 2 : 1;
  static constexpr int64_t kMerge = 8;
  static constexpr bool kReadsPastEnd = true;
  static constexpr int64_t kSolve = 64;  // rows of a matrix that is small enough to be inverted

  // `rows`: how many the gradient comes from, 0 where none is wanted or their a = W^H g is not that of this matrix.
  Merged(Arena& arena, int count, const Factor<T>* factors, bool adjoint, int64_t rows) {
    factors_ = arena.take<Factor<T>>(count);
    for (int f = 0; f < count; ++f) factors_[f] = factors[f];
    groups_ = arena.take<Group>(count);
    // From the last factor on; groups_[0] ends up as the last one applied.
    Group* reversed = arena.take<Group>(count);
    for (int f = count - 1; f >= 0;) {
      Group group{};
      group.p = group.q = 1;
      group.last = f;
      do {
        group.p *= factors[f].p;
        group.q *= factors[f].q;
        group.first = f--;
      } while (f >= 0 && group.p * factors[f].p <= kMerge && group.q * factors[f].q <= kMerge);
      reversed[count_++] = group;
    }
    for (int s = 0; s < count_; ++s) groups_[s] = reversed[count_ - 1 - s];
    for (int s = 0; s < count_; ++s) {
      outputs_ *= groups_[s].p;
      inputs_ *= groups_[s].q;
    }
    int64_t left = inputs_, right = 1;
    largest_ = larger(inputs_, outputs_);
    for (int s = count_ - 1; s >= 0; --s) {
      left /= groups_[s].q;
      groups_[s].left = left;
      groups_[s].right = right;
      const bool small = larger(groups_[s].p, groups_[s].q) < kLanes<T>;
      groups_[s].kind = right >= kLanes<T> ? kWide : small ? kTiny : kNarrow;
      right *= groups_[s].p;
      largest_ = larger(largest_, left * right);
    }
    for (int s = 0; s < count_; ++s) prepare(arena, groups_[s], adjoint);
    solves_ = adjoint && count_ > 1 && inverted(arena, rows);
  }

  bool gradient_from_adjoint() const { return solves_; }
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // How many rows to work on together: enough that a large matrix, read once a block, is used many times.
  int64_t block_rows(int64_t rows) const {
    int64_t block = 1;
    for (int s = 0; s < count_; ++s) {
      const Group& group = groups_[s];
      if (group.p * group.q < 256) continue;
      const int64_t uses = group.kind == kWide ? group.left * group.right / kLanes<T> : group.left * group.right;
      block = larger(block, (32 + uses - 1) / uses);
    }
    const int64_t blocks = (rows + block - 1) / block;
    return blocks == 0 ? 1 : (rows + blocks - 1) / blocks;
  }

  class Worker {
   public:
    Worker(Arena& arena, const Merged& matrix, int64_t block, bool gradient) {
      const int64_t size = kPlanes * block * matrix.largest_;
      if (matrix.count_ > 1) swap[0] = arena.take<T>(size);
      if (matrix.count_ > 2) swap[1] = arena.take<T>(size);
      capacity = larger(block, smaller(256, larger(16, (int64_t(1) << 18) / (kPlanes * matrix.largest_))));
      bool turns = gradient;
      for (int s = 0; s < matrix.count_; ++s) turns = turns || matrix.groups_[s].kind == kTiny;
      const int64_t collected = kPlanes * (gradient ? capacity : block) * matrix.largest_;
      if (turns)
        for (T*& t : turned) t = arena.take<T>(collected);
      if (!gradient) return;
      inputs = arena.take<T*>(matrix.count_);
      for (int s = matrix.solves_ ? matrix.count_ - 1 : 0; s < matrix.count_; ++s) inputs[s] = arena.take<T>(collected);
      if (matrix.solves_) adjoints = arena.take<T>(collected);
      for (T*& g : gradients) g = arena.take<T>(collected);
      int64_t deepest = 0;
      matrices = arena.take<T*>(matrix.count_);
      for (int s = 0; s < matrix.count_; ++s) {
        const Group& group = matrix.groups_[s];
        matrices[s] = arena.take_zeros<T>(kPlanes * group.p * group.q);
        if (group.kind == kNarrow) deepest = larger(deepest, group.left * group.right);
      }
      panel = arena.take<T>(kPlanes * capacity * deepest * kPanel<T>);
    }
    T* swap[2] = {};
    int64_t capacity = 0, held = 0;
    T** inputs = nullptr;     // what enters each group, for all rows held; plane stride capacity * largest
    T* gradients[2] = {};     // what arrives at a group's output, and at its input
    T* adjoints = nullptr;    // a = W^H g
    T* turned[2] = {};        // a block with its indices in another order, for narrow and tiny groups
    T** matrices = nullptr;   // dM of each group
    T* panel = nullptr;
  };

  // out (rows, outputs) = in (rows, inputs) W^T, planes `plane` values apart in both.
  void apply(Worker& worker, int64_t rows, const T* in, T* out, int64_t plane) const {
    Operand<const T> from{in, plane};
    for (int s = count_ - 1, turn = 0; s >= 0; --s, turn ^= 1) {
      const Operand<T> to = s == 0 ? Operand<T>{out, plane} : Operand<T>{worker.swap[turn], rows * largest_};
      forward(worker, groups_[s], rows, from, to);
      from = {to.data, to.plane};
    }
  }

  void adjoint(Worker& worker, int64_t rows, const T* in, T* out, int64_t plane) const {
    Operand<const T> from{in, plane};
    for (int s = 0, turn = 0; s < count_; ++s, turn ^= 1) {
      const Operand<T> to = s == count_ - 1 ? Operand<T>{out, plane} : Operand<T>{worker.swap[turn], rows * largest_};
      backward(worker, groups_[s], rows, from, to);
      from = {to.data, to.plane};
    }
  }

  // One row each of the matrix's input h, of the gradient g at its output and of a = W^H g.
  void accumulate(Worker& worker, const T* h, int64_t h_plane, const T* g, int64_t g_plane, const T* a,
                  int64_t a_plane) const {
    const int64_t plane = worker.capacity * largest_;
    for (int c = 0; c < kPlanes; ++c) {
      __builtin_memcpy(worker.inputs[count_ - 1] + c * plane + worker.held * inputs_, h + c * h_plane,
                       size_t(inputs_) * sizeof(T));
      __builtin_memcpy(worker.gradients[0] + c * plane + worker.held * outputs_, g + c * g_plane,
                       size_t(outputs_) * sizeof(T));
      if (solves_)
        __builtin_memcpy(worker.adjoints + c * plane + worker.held * inputs_, a + c * a_plane,
                         size_t(inputs_) * sizeof(T));
    }
    if (++worker.held == worker.capacity) collect(worker);
  }

  void flush(Worker&) const {}

  void finish(Worker* const* workers, int threads, FactorGradient<T>* gradients) const {
    for (int thread = 0; thread < threads; ++thread) collect(*workers[thread]);
    for (int s = 0; s < count_; ++s) {
      const Group& group = groups_[s];
      const int64_t entries = kPlanes * group.p * group.q;
      T* total = workers[0]->matrices[s];
      for (int thread = 1; thread < threads; ++thread)
        for (int64_t e = 0; e < entries; ++e) total[e] += workers[thread]->matrices[s][e];
      if (solves_ && s != costliest_) solve(group, total);
      for (int f = group.first; f <= group.last; ++f)
        if (gradients[f].re != nullptr) contract(group, total, f, gradients[f]);
    }
  }

 private:
  enum Kind { kWide, kNarrow, kTiny };
  struct Group {
    int64_t p, q, left, right;
    Kind kind;
    int first, last;   // the factors merged into this matrix
    const T* matrix;   // M (p, q), planes p q apart; narrow: panels of M^T
    const T* adjoint;  // M^H (q, p); narrow: panels of conj(M)
    const T* dense;    // M (p, q) itself, planes p q apart
    const double* inverse;  // M^{-1}, where the gradient is solved for
  };

  // Entry (i, j) of the product of factors first..last except `without`.
  void entry(int first, int last, int without, int64_t i, int64_t j, T* re, T* im) const {
    *re = 1;
    *im = 0;
    for (int f = last; f >= first; --f) {
      const Factor<T>& factor = factors_[f];
      if (f != without) {
        const int64_t at = (i % factor.p * factor.q + j % factor.q) * factor.step;
        const T x = factor.re[at], y = C ? factor.im[at] : T(0);
        const T product = *re * x - *im * y;
        *im = *re * y + *im * x;
        *re = product;
      }
      i /= factor.p;
      j /= factor.q;
    }
  }

  void prepare(Arena& arena, Group& group, bool adjoint) const {
    const int64_t size = group.p * group.q;
    const Factor<T>& only = factors_[group.first];
    const bool plain = group.first == group.last && (!C || only.step == 1) && (!C || only.im == only.re + size);
    const T* dense = only.re;
    if (!plain) {
      T* merged = arena.take<T>(kPlanes * size);
      const bool single = group.first == group.last;
      for (int64_t i = 0; i < group.p; ++i)
        for (int64_t j = 0; j < group.q; ++j) {
          const int64_t at = i * group.q + j;
          T re, im = 0;
          if (single)
            re = only.re[at * only.step], im = C ? only.im[at * only.step] : T(0);
          else
            entry(group.first, group.last, -1, i, j, &re, &im);
          merged[at] = re;
          if (C) merged[size + at] = im;
        }
      dense = merged;
    }
    group.dense = dense;
    const int64_t p = group.p, q = group.q;
    const bool packed = group.kind == kNarrow;
    group.matrix = packed ? pack(arena, dense, q, p, 1, q, T(1)) : dense;
    if (adjoint)
      group.adjoint = packed ? pack(arena, dense, p, q, q, 1, T(-1)) : transpose(arena, dense, p, q, T(-1));
  }

  // Whether the gradients of all but the costliest matrix can be solved for; their inverses are there then.
  bool inverted(Arena& arena, int64_t rows) {
    if (rows == 0) return false;
    for (int s = 0; s < count_; ++s) {
      if (groups_[s].p != groups_[s].q) return false;
      if (groups_[s].p > groups_[costliest_].p) costliest_ = s;
    }
    // Inverses are scalar code: worth it where the product that is spared is a thousand times their size.
    int64_t work = 0;
    for (int s = 0; s < count_; ++s)
      if (s != costliest_ && groups_[s].p > 4) work += 1000 * groups_[s].p * groups_[s].p * groups_[s].p;
    if (rows * inputs_ * groups_[costliest_].p * kPlanes * kPlanes < work) return false;
    for (int s = 0; s < count_; ++s)
      if (s != costliest_ && (groups_[s].p > kSolve || !invert(arena, groups_[s]))) return false;
    return true;
  }

  // Whether it can: the solve is to lose at most a few bits, as in butterfly.hpp.
  bool invert(Arena& arena, Group& group) {
    const int64_t n = group.p, size = n * n;
    double* matrix = arena.take<double>(2 * size);
    for (int64_t e = 0; e < size; ++e) {
      matrix[2 * e] = group.dense[e];
      matrix[2 * e + 1] = C ? group.dense[size + e] : T(0);
    }
    group.inverse = inverse(arena, n, matrix, double(n) * (sizeof(T) == 4 ? 16.0 : 5e3));
    return group.inverse != nullptr;
  }

  // T <- M^{-H} T
  static void solve(const Group& group, T* total) {
    const int64_t n = group.p, size = n * n;
    double re[kSolve], im[kSolve];
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        re[i] = im[i] = 0;
        for (int64_t k = 0; k < n; ++k) {
          const double x = group.inverse[2 * (k * n + i)], y = group.inverse[2 * (k * n + i) + 1];
          const double t_re = total[k * n + j], t_im = C ? total[size + k * n + j] : T(0);
          re[i] += x * t_re + y * t_im;
          im[i] += x * t_im - y * t_re;
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        total[i * n + j] = T(re[i]);
        if (C) total[size + i * n + j] = T(im[i]);
      }
    }
  }

  // (rows, columns) -> (columns, rows), imaginary parts times sign.
  static T* transpose(Arena& arena, const T* from, int64_t rows, int64_t columns, T sign) {
    const int64_t size = rows * columns;
    T* to = arena.take<T>(kPlanes * size);
    for (int c = 0; c < kPlanes; ++c)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          to[c * size + j * rows + i] = (c ? sign : T(1)) * from[c * size + i * columns + j];
    return to;
  }

  // Panels of a matrix (rows, columns) with these steps between its entries, imaginary parts times sign.
  static T* pack(Arena& arena, const T* from, int64_t rows, int64_t columns, int64_t row_step, int64_t column_step,
                 T sign) {
    const int64_t size = panels(columns, kPanel<T>) * rows * kPanel<T>;
    T* to = arena.take<T>(kPlanes * size);
    for (int c = 0; c < kPlanes; ++c) {
      const T* plane = from + c * rows * columns;
      for (int64_t j = 0; j < columns; j += kPanel<T>)
        pack_panel(plane + j * column_step, row_step, column_step, rows, columns - j, to + c * size + j * rows);
      if (c && sign < 0)
        for (int64_t e = 0; e < size; ++e) to[size + e] = -to[size + e];
    }
    return to;
  }

  void forward(Worker& worker, const Group& group, int64_t rows, Operand<const T> in, Operand<T> out) const {
    product(worker, group, group.matrix, group.p, group.q, rows, in, out);
  }
  void backward(Worker& worker, const Group& group, int64_t rows, Operand<const T> in, Operand<T> out) const {
    product(worker, group, group.adjoint, group.q, group.p, rows, in, out);
  }

  // y[n, i, r] = sum over j < q of matrix[i, j] x[n, j, r], n over rows and left.
  void product(Worker& worker, const Group& group, const T* matrix, int64_t p, int64_t q, int64_t rows,
               Operand<const T> in, Operand<T> out) const {
    const int64_t count = rows * group.left, right = group.right;
    if (group.kind == kNarrow) {
      Product<T> m;
      m.inner = q;
      m.rows = count * right;
      m.columns = p;
      m.a = in;
      m.a_rows = right > 1 ? RowMap{right, q * right} : RowMap{1, q};
      m.a_step = right;
      m.b = {matrix, panels(p, kPanel<T>) * q * kPanel<T>};
      m.b_step = kPanel<T>;
      m.panel = q * kPanel<T>;
      m.c = out;
      m.c_rows = right > 1 ? RowMap{right, p * right} : RowMap{1, p};
      m.c_step = right;
      multiply<T, C>(m);
    } else if (group.kind == kTiny) {
      const Operand<T> x{worker.turned[0], q * count * right}, y{worker.turned[1], p * count * right};
      gather(in, count, q, right, x);
      along(matrix, p, q, count * right, 1, {x.data, x.plane}, y);
      scatter({y.data, y.plane}, count, p, right, out);
    } else {
      along(matrix, p, q, right, count, in, out);
    }
  }

  // For each of `count` matrices (q, right): matrix times it.
  static void along(const T* matrix, int64_t p, int64_t q, int64_t right, int64_t count, Operand<const T> in,
                    Operand<T> out) {
    Product<T> m;
    m.rows = p;
    m.inner = q;
    m.columns = right;
    m.a = {matrix, p * q};
    m.a_rows = {1, q};
    m.a_step = 1;
    m.b_step = right;
    m.panel = kPanel<T>;
    m.c_rows = {1, right};
    m.c_step = 1;
    for (int64_t n = 0; n < count; ++n) {
      m.b = {in.data + n * q * right, in.plane};
      m.c = {out.data + n * p * right, out.plane};
      multiply<T, C>(m);
    }
  }

  // (count, size, right) -> (size, count, right), and back.
  static void gather(Operand<const T> from, int64_t count, int64_t size, int64_t right, Operand<T> to) {
    for (int c = 0; c < kPlanes; ++c)
      for (int64_t i = 0; i < size; ++i)
        exchange_steps(from.data + c * from.plane + i * right, size * right,
                       to.data + c * to.plane + i * count * right, right, count, right);
  }
  static void scatter(Operand<const T> from, int64_t count, int64_t size, int64_t right, Operand<T> to) {
    for (int c = 0; c < kPlanes; ++c)
      for (int64_t i = 0; i < size; ++i)
        exchange_steps(from.data + c * from.plane + i * count * right, right,
                       to.data + c * to.plane + i * right, size * right, count, right);
  }
  // `count` pieces of `length` values from one step apart to another.
  static KRU_INLINE void exchange_steps(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t count,
                                        int64_t length) {
    if (length == 1) {
      for (int64_t n = 0; n < count; ++n) to[n * to_step] = from[n * from_step];
      return;
    }
    for (int64_t n = 0; n < count; ++n, from += from_step, to += to_step)
      for (int64_t r = 0; r < length; ++r) to[r] = from[r];
  }

  // The gradients of all matrices from the rows held, which are then let go.
  void collect(Worker& worker) const {
    const int64_t rows = worker.held, plane = worker.capacity * largest_;
    if (rows == 0) return;
    worker.held = 0;
    if (solves_) return collect_to_solve(worker, rows);
    for (int s = count_ - 1; s > 0; --s)
      forward(worker, groups_[s], rows, {worker.inputs[s], plane}, {worker.inputs[s - 1], plane});
    T* arrived = worker.gradients[0];
    T* passed = worker.gradients[1];
    for (int s = 0; s < count_; ++s) {
      outer(worker, groups_[s], rows, {arrived, plane}, {worker.inputs[s], plane}, worker.matrices[s]);
      if (s + 1 == count_) break;
      backward(worker, groups_[s], rows, {arrived, plane}, {passed, plane});
      T* exchange = arrived;
      arrived = passed;
      passed = exchange;
    }
  }

  // The costliest matrix's dM, and T of the others.
  void collect_to_solve(Worker& worker, int64_t rows) const {
    const int64_t plane = worker.capacity * largest_;
    const Operand<const T> h{worker.inputs[count_ - 1], plane};
    T* arrived = worker.gradients[0];
    T* passed = worker.gradients[1];
    for (int s = 0; s < count_; ++s) {
      if (s == costliest_) continue;
      outer(worker, groups_[s], rows, {worker.adjoints, plane}, h, worker.matrices[s]);
      backward(worker, groups_[s], rows, {arrived, plane}, {passed, plane});
      T* exchange = arrived;
      arrived = passed;
      passed = exchange;
    }
    outer(worker, groups_[costliest_], rows, {arrived, plane}, h, worker.matrices[costliest_]);
  }

  // dM += sum over rows, left and right of G conj(X)
  void outer(Worker& worker, const Group& group, int64_t rows, Operand<const T> g, Operand<const T> x, T* out) const {
    const int64_t count = rows * group.left, p = group.p, q = group.q, right = group.right;
    if (group.kind == kWide) {
      dot_products<T, C>(count, p, q, right, g, x, {out, p * q});
      return;
    }
    if (group.kind == kTiny) {
      const Operand<T> long_g{worker.turned[0], p * count * right}, long_x{worker.turned[1], q * count * right};
      gather(g, count, p, right, long_g);
      gather(x, count, q, right, long_x);
      dot_products<T, C>(1, p, q, count * right, {long_g.data, long_g.plane}, {long_x.data, long_x.plane},
                         {out, p * q});
      return;
    }
    if (right > 1) {
      const int64_t plane = worker.capacity * largest_;
      turn(g, count, p, right, {worker.turned[0], plane});
      turn(x, count, q, right, {worker.turned[1], plane});
      g = {worker.turned[0], plane};
      x = {worker.turned[1], plane};
    }
    Product<T> m;
    m.rows = p;
    m.columns = q;
    m.inner = count * right;
    m.a = g;
    m.a_rows = {1, 1};
    m.a_step = p;
    const int64_t panel = m.inner * kPanel<T>;
    m.b_step = kPanel<T>;
    m.panel = 0;
    m.c_rows = {1, q};
    m.c_step = 1;
    m.c = {out, p * q};
    m.b = {worker.panel, panel};
    for (int64_t j = 0; j < q; j += kPanel<T>) {
      for (int c = 0; c < kPlanes; ++c)
        pack_panel(x.data + c * x.plane + j, q, 1, m.inner, q - j, worker.panel + c * panel);
      multiply<T, C, true, true>(m, j, smaller(q, j + kPanel<T>));
    }
  }

  // (count, size, right) -> (count, right, size)
  static void turn(Operand<const T> from, int64_t count, int64_t size, int64_t right, Operand<T> to) {
    for (int c = 0; c < kPlanes; ++c)
      for (int64_t n = 0; n < count; ++n) {
        const T* x = from.data + c * from.plane + n * size * right;
        T* y = to.data + c * to.plane + n * size * right;
        for (int64_t i = 0; i < size; ++i)
          for (int64_t r = 0; r < right; ++r) y[r * size + i] = x[i * right + r];
      }
  }

  // dW_f from dM: sum over the other factors' indices of their conjugated entries times dM.
  void contract(const Group& group, const T* total, int f, FactorGradient<T> out) const {
    const int64_t size = group.p * group.q;
    const Factor<T>& factor = factors_[f];
    for (int64_t e = 0; e < factor.p * factor.q; ++e) {
      out.re[e * out.step] = 0;
      if (C) out.im[e * out.step] = 0;
    }
    int64_t p_after = 1, q_after = 1;
    for (int g = f + 1; g <= group.last; ++g) {
      p_after *= factors_[g].p;
      q_after *= factors_[g].q;
    }
    for (int64_t i = 0; i < group.p; ++i)
      for (int64_t j = 0; j < group.q; ++j) {
        T re = 1, im = 0;
        if (group.first != group.last) entry(group.first, group.last, f, i, j, &re, &im);
        const int64_t to = (i / p_after % factor.p * factor.q + j / q_after % factor.q) * out.step;
        const T x = total[i * group.q + j], y = C ? total[size + i * group.q + j] : T(0);
        out.re[to] += x * re + y * im;
        if (C) out.im[to] += y * re - x * im;
      }
  }

  int count_ = 0, costliest_ = 0;
  bool solves_ = false;
  int64_t inputs_ = 1, outputs_ = 1, largest_ = 1;
  Factor<T>* factors_;
  Group* groups_;
};

}  // namespace KRU_ISA
}  // namespace kru
