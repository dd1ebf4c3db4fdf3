// The LSTM and GRU cells, real, one Kronecker matrix for each gate. What differs between them are the functions on one
// row; the way through time is the same.
#pragma once

#include "activation.hpp"
#include "scan_call.hpp"

namespace kru {
namespace KRU_ISA {

// A row's pointers at one step. kept: what the backward pass needs besides the gates. Any of them may be null.
template <class T> struct GatedRow {
  int64_t n;
  const T* a;               // (G n) input part
  const T* z;               // gate g's recurrent product at z + g * z_step
  int64_t z_step;
  const T* recurrent_bias;  // (n)
  T* gates;                 // (G n)
  T* kept;                  // (n)
};

// i, f, g, o; kept = c_t.   c_t = f c + i g,  h_t = o tanh(c_t)
struct Lstm {
  static constexpr int kGates = 4;
  template <class T> static void forward(const GatedRow<T>& row, const T*, T* h, T* c) {
    using V = Vec<T>;
    each_vector<T>(row.n, [&](int64_t j, int64_t part) KRU_LAMBDA {
      V gate[4];
      for (int g = 0; g < 4; ++g)
        gate[g] = load_part(row.a + g * row.n + j, part) + load_part(row.z + g * row.z_step + j, part);
      for (int g = 0; g < 4; ++g) gate[g] = g == 2 ? hyperbolic_tangent(gate[g]) : sigmoid(gate[g]);
      const V cell = gate[1] * load_part(c + j, part) + gate[0] * gate[2];
      store_part(c + j, cell, part);
      store_part(h + j, gate[3] * hyperbolic_tangent(cell), part);
      if (row.gates == nullptr) return;
      for (int g = 0; g < 4; ++g) store_part(row.gates + g * row.n + j, gate[g], part);
      store_part(row.kept + j, cell, part);
    });
  }

  // dh and dc arrive at h_t and c_t; dz (4 n) at the gates' sums; dc becomes the gradient at c_{t-1}; dh the part of
  // the gradient at h_{t-1} that goes around the matrices.
  template <class T>
  static void backward(const GatedRow<T>& row, const T*, const T* c_before, T* dh, T* dc, T* dz, T*) {
    using V = Vec<T>;
    each_vector<T>(row.n, [&](int64_t j, int64_t part) KRU_LAMBDA {
      V gate[4];
      for (int g = 0; g < 4; ++g) gate[g] = load_part(row.gates + g * row.n + j, part);
      const V squashed = hyperbolic_tangent(load_part(row.kept + j, part));
      const V at_h = load_part(dh + j, part);
      const V at_c = load_part(dc + j, part) + at_h * gate[3] * (1 - squashed * squashed);
      const V before = load_part(c_before + j, part);
      store_part(dz + j, at_c * gate[2] * gate[0] * (1 - gate[0]), part);
      store_part(dz + row.n + j, at_c * before * gate[1] * (1 - gate[1]), part);
      store_part(dz + 2 * row.n + j, at_c * gate[0] * (1 - gate[2] * gate[2]), part);
      store_part(dz + 3 * row.n + j, at_h * squashed * gate[3] * (1 - gate[3]), part);
      store_part(dc + j, at_c * gate[1], part);
      store_part(dh + j, V{}, part);
    });
  }
};

// r, z, n; kept = W_n h + recurrent_bias.   n = tanh(a_n + r kept),  h_t = (1 - z) n + z h
struct Gru {
  static constexpr int kGates = 3;
  template <class T> static void forward(const GatedRow<T>& row, const T* h_before, T* h, T*) {
    using V = Vec<T>;
    each_vector<T>(row.n, [&](int64_t j, int64_t part) KRU_LAMBDA {
      const V r = sigmoid(load_part(row.a + j, part) + load_part(row.z + j, part));
      const V z = sigmoid(load_part(row.a + row.n + j, part) + load_part(row.z + row.z_step + j, part));
      V kept = load_part(row.z + 2 * row.z_step + j, part);
      if (row.recurrent_bias != nullptr) kept += load_part(row.recurrent_bias + j, part);
      const V n = hyperbolic_tangent(load_part(row.a + 2 * row.n + j, part) + r * kept);
      store_part(h + j, n + z * (load_part(h_before + j, part) - n), part);
      if (row.gates == nullptr) return;
      store_part(row.gates + j, r, part);
      store_part(row.gates + row.n + j, z, part);
      store_part(row.gates + 2 * row.n + j, n, part);
      store_part(row.kept + j, kept, part);
    });
  }

  // dkept: the gradient at W_n h + recurrent_bias, which differs from that at the sum of gate n by the factor r.
  template <class T>
  static void backward(const GatedRow<T>& row, const T* h_before, const T*, T* dh, T*, T* dz, T* dkept) {
    using V = Vec<T>;
    each_vector<T>(row.n, [&](int64_t j, int64_t part) KRU_LAMBDA {
      const V r = load_part(row.gates + j, part), z = load_part(row.gates + row.n + j, part);
      const V n = load_part(row.gates + 2 * row.n + j, part), at_h = load_part(dh + j, part);
      const V at_n = at_h * (1 - z) * (1 - n * n);
      store_part(dz + j, at_n * load_part(row.kept + j, part) * r * (1 - r), part);
      store_part(dz + row.n + j, at_h * (load_part(h_before + j, part) - n) * z * (1 - z), part);
      store_part(dz + 2 * row.n + j, at_n, part);
      store_part(dkept + j, at_n * r, part);
      store_part(dh + j, at_h * z, part);
    });
  }
};

// One thread's way through time, in either direction. matrices and workers have one entry for each gate.
template <class T, class Cell, class M> class Gated {
 public:
  Gated(Arena& arena, const ScanCall<T>& scan, const M* matrices, typename M::Worker* const* workers,
        InputPart<T>& input, int64_t block_rows, bool backward)
      : scan_(scan), matrices_(matrices), workers_(workers), input_(input), n_(scan.units), block_rows_(block_rows),
        states_{scan, n_, block_rows, static_cast<T*>(scan.call.states)},
        gates_{scan, Cell::kGates * n_, block_rows, static_cast<T*>(scan.call.gates)},
        cells_{scan, n_, block_rows, static_cast<T*>(scan.call.cells)} {
    const int64_t size = block_rows * n_;
    h_ = arena.take<T>(size);
    c_ = arena.take<T>(size);
    z_ = arena.take<T>(Cell::kGates * size);
    row_h_ = arena.take<T>(n_);
    zeros_ = scan.zeros;
    if (!backward) return;
    dh_ = arena.take<T>(size);
    dc_ = arena.take<T>(size);
    dz_ = arena.take<T>(Cell::kGates * n_);
    dkept_ = arena.take<T>(n_);
    adjoint_ = arena.take<T>(size);
    if (scan.call.drecurrent_bias != nullptr) drecurrent_bias = arena.take_zeros<T>(n_);
    if (scan.call.dinitial != nullptr) dinitial = arena.take_zeros<T>(n_);
    if (scan.kept_count() == 0) return;
    states_.open_window(arena);
    gates_.open_window(arena);
    cells_.open_window(arena);
  }

  void forward(int thread) {
    const kru_scan& call = scan_.call;
    clear_after_end(scan_, call.states, n_, thread);
    clear_after_end(scan_, call.gates, Cell::kGates * n_, thread);
    clear_after_end(scan_, call.cells, n_, thread);
    const int64_t kept = scan_.kept_count(), every = kept > 0 ? call.every : larger(1, scan_.steps);
    for (int64_t first = 0; first < scan_.rows(thread); first += block_rows_) {
      Block<T> block(scan_, thread, first, block_rows_);
      for (int64_t r = 0; r < block.rows; ++r) {
        copy(h_ + r * n_, scan_.first(call.h0, block.order[r]));
        copy(c_ + r * n_, scan_.first(call.c0, block.order[r]));
      }
      for (int64_t step = 0; step < block.longest; step += every) {
        if (kept > 0) store(block, call.kept_h, call.kept_c, step / every);
        steps(block, step, smaller(step + every, block.longest));
      }
      for (int64_t k = (block.longest + every - 1) / every; k < kept; ++k)
        for (int64_t r = 0; r < block.rows; ++r) {
          copy(scan_.at(call.kept_h, k, block.order[r], n_), nullptr);
          if (call.kept_c != nullptr) copy(scan_.at(call.kept_c, k, block.order[r], n_), nullptr);
        }
      store(block, call.h, call.c, 0);
    }
  }

  void backward(int thread) {
    const kru_scan& call = scan_.call;
    clear_after_end(scan_, call.dpart, Cell::kGates * n_, thread);
    clear_after_end(scan_, call.dx, call.inputs, thread);
    for (int64_t first = 0; first < scan_.rows(thread); first += block_rows_) {
      Block<T> block(scan_, thread, first, block_rows_);
      for (int64_t r = 0; r < block.rows; ++r) {
        copy(dh_ + r * n_, scan_.first(call.dh, block.order[r]));
        copy(dc_ + r * n_, scan_.first(call.dc, block.order[r]));
      }
      for (int64_t step = block.longest - 1; step >= 0; --step) {
        if (states_.window != nullptr && (step == block.longest - 1 || step % states_.count == states_.count - 1))
          again(block, step - step % states_.count, step + 1);
        const int64_t t = block.time(step);
        const int64_t running = block.running(t);
        for (int64_t r = 0; r < running; ++r) gates_backward(block, step, r);
        for (int g = 0; g < Cell::kGates; ++g) {
          const T* dz = z_ + g * block_rows_ * n_;
          matrices_[g].adjoint(*workers_[g], running, dz, adjoint_, 0);
          for (int64_t r = 0; r < running; ++r) {
            const T* h = h_before(block, step, r);
            if (scan_.wants_factors && h != zeros_)
              matrices_[g].accumulate(*workers_[g], h, 0, dz + r * n_, 0, adjoint_ + r * n_, 0);
            add_scaled(dh_ + r * n_, adjoint_ + r * n_, T(1), n_);
          }
        }
        for (int64_t r = 0; call.reset != nullptr && r < running; ++r)
          if (scan_.restarts(t, block.order[r])) end_at_reset(r);
      }
      for (int g = 0; g < Cell::kGates && scan_.wants_factors; ++g) matrices_[g].flush(*workers_[g]);
      for (int64_t r = 0; r < block.rows; ++r) {
        if (call.dh0 != nullptr) copy(scan_.at(call.dh0, 0, block.order[r], n_), dh_ + r * n_);
        if (call.dc0 != nullptr) copy(scan_.at(call.dc0, 0, block.order[r], n_), dc_ + r * n_);
      }
    }
  }

  T *drecurrent_bias = nullptr, *dinitial = nullptr;

 private:
  // Forward from h_ and c_, which hold the states before step `from`, to those before step `to`.
  void steps(Block<T>& block, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      const int64_t t = block.time(step);
      const int64_t running = block.running(t);
      for (int64_t r = 0; scan_.call.reset != nullptr && r < running; ++r) {
        if (!scan_.restarts(t, block.order[r])) continue;
        copy(h_ + r * n_, scan_.initial);
        copy(c_ + r * n_, nullptr);
      }
      for (int g = 0; g < Cell::kGates; ++g)
        matrices_[g].apply(*workers_[g], running, h_, z_ + g * block_rows_ * n_, 0);
      for (int64_t r = 0; r < running; ++r) {
        GatedRow<T> at = pointers(block, step, r);
        at.a = input_.row(t, block.order[r]);
        at.z = z_ + r * n_;
        at.z_step = block_rows_ * n_;
        Cell::forward(at, h_ + r * n_, row_h_, c_ + r * n_);
        copy(h_ + r * n_, row_h_);
        if (has(states_)) copy(states_.at(block, step, r), row_h_);
      }
    }
  }

  // Steps `from` to `to` - 1 again, from the states that were kept before them.
  void again(Block<T>& block, int64_t from, int64_t to) {
    const kru_scan& call = scan_.call;
    const int64_t at = from / call.every;
    for (int64_t r = 0; r < block.rows; ++r) {
      copy(h_ + r * n_, scan_.at(static_cast<const void*>(call.kept_h), at, block.order[r], n_));
      if (call.kept_c != nullptr)
        copy(c_ + r * n_, scan_.at(static_cast<const void*>(call.kept_c), at, block.order[r], n_));
    }
    steps(block, from, to);
  }

  void store(const Block<T>& block, void* h, void* c, int64_t at) const {
    for (int64_t r = 0; r < block.rows; ++r) {
      copy(scan_.at(h, at, block.order[r], n_), h_ + r * n_);
      if (c != nullptr) copy(scan_.at(c, at, block.order[r], n_), c_ + r * n_);
    }
  }

  static bool has(const Steps<T>& values) { return values.window != nullptr || values.history != nullptr; }

  // What has been carried to a reset belongs to the initial state; nothing goes on to the step before.
  void end_at_reset(int64_t r) {
    if (dinitial != nullptr) add_scaled(dinitial, dh_ + r * n_, T(1), n_);
    copy(dh_ + r * n_, nullptr);
    copy(dc_ + r * n_, nullptr);
  }

  void copy(T* to, const T* from) const {
    if (from != nullptr)
      __builtin_memcpy(to, from, size_t(n_) * sizeof(T));
    else
      __builtin_memset(to, 0, size_t(n_) * sizeof(T));
  }

  GatedRow<T> pointers(const Block<T>& block, int64_t step, int64_t r) const {
    GatedRow<T> at{};
    at.n = n_;
    at.recurrent_bias = static_cast<const T*>(scan_.call.recurrent_bias);
    at.gates = has(gates_) ? gates_.at(block, step, r) : nullptr;
    at.kept = has(cells_) ? cells_.at(block, step, r) : nullptr;
    return at;
  }

  const T* h_before(const Block<T>& block, int64_t step, int64_t r) const {
    return state_before(block, states_, scan_.call.kept_h, scan_.call.h0, scan_.initial, step, r);
  }

  void gates_backward(const Block<T>& block, int64_t step, int64_t r) {
    const kru_scan& call = scan_.call;
    const int64_t t = block.time(step), row = block.order[r];
    if (call.dstates != nullptr) add_scaled(dh_ + r * n_, scan_.at(call.dstates, t, row, n_), T(1), n_);
    // Only the LSTM has a second state.
    const T* c_before =
        Cell::kGates == 4 ? state_before(block, cells_, call.kept_c, call.c0, zeros_, step, r) : nullptr;
    Cell::backward(pointers(block, step, r), h_before(block, step, r), c_before, dh_ + r * n_, dc_ + r * n_, dz_, dkept_);
    input_.accumulate(t, row, dz_);
    for (int g = 0; g < Cell::kGates; ++g) {
      const bool scaled = Cell::kGates == 3 && g == 2;
      copy(z_ + (g * block_rows_ + r) * n_, scaled ? dkept_ : dz_ + g * n_);
    }
    if (drecurrent_bias != nullptr) add_scaled(drecurrent_bias, dkept_, T(1), n_);
  }

  const ScanCall<T>& scan_;
  const M* matrices_;
  typename M::Worker* const* workers_;
  InputPart<T>& input_;
  int64_t n_, block_rows_;
  Steps<T> states_, gates_, cells_;
  const T* zeros_;
  T *h_, *c_, *z_, *row_h_;  // z_: in the backward pass the gradients at each gate's product
  T *dh_ = nullptr, *dc_ = nullptr, *dz_ = nullptr, *dkept_ = nullptr, *adjoint_ = nullptr;
};

}  // namespace KRU_ISA
}  // namespace kru
