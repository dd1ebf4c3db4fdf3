// The Elman cell: h_t = sigma(W h_{t-1} + a_t), real or complex, or the leaky one that moves only a part of the way there.
#pragma once

#include "activation.hpp"
#include "scan_call.hpp"

namespace kru {
namespace KRU_ISA {

// out = sigma(z + a); planes of z `plane` apart, those of a and out `units` apart. `ahead` is the row written next: it is
// fetched line by line on the way, as rows of neighbouring steps lie too far apart for the processor to guess.
template <class T, bool C, int Nonlinearity>
void elman_activate(const T* z, int64_t plane, const T* a, const T* bias, int64_t units, T* out, const T* ahead) {
  using V = Vec<T>;
  each_vector<T>(units, [&](int64_t i, int64_t part) KRU_LAMBDA {
    __builtin_prefetch(ahead + (C ? 2 : 1) * i, 1);
    V re = load_part(z + i, part) + load_part(a + i, part), im{};
    if (C) im = load_part(z + plane + i, part) + load_part(a + units + i, part);
    if (Nonlinearity == KRU_MODRELU) {
      modrelu<T, C>(re, im, load_part(bias + i, part));
    } else {
      re = activate<T>(re, Nonlinearity);
      if (C) im = activate<T>(im, Nonlinearity);
    }
    store_part(out + i, re, part);
    if (C) store_part(out + units + i, im, part);
  });
}

template <class T, bool C>
void elman_activate(int nonlinearity, const T* z, int64_t plane, const T* a, const T* bias, int64_t units, T* out,
                    const T* ahead) {
  switch (nonlinearity) {
    case KRU_MODRELU: return elman_activate<T, C, KRU_MODRELU>(z, plane, a, bias, units, out, ahead);
    case KRU_TANH: return elman_activate<T, C, KRU_TANH>(z, plane, a, bias, units, out, ahead);
    case KRU_RELU: return elman_activate<T, C, KRU_RELU>(z, plane, a, bias, units, out, ahead);
    case KRU_LEAKY_RELU: return elman_activate<T, C, KRU_LEAKY_RELU>(z, plane, a, bias, units, out, ahead);
    default: return elman_activate<T, C, KRU_IDENTITY>(z, plane, a, bias, units, out, ahead);
  }
}

// out = before + leak (out - before), the planes of `before` `plane` apart.
template <class T>
void elman_leak(const T* leak, const T* before, int64_t plane, int planes, int64_t units, T* out) {
  for (int c = 0; c < planes; ++c)
    each_vector<T>(units, [&](int64_t i, int64_t part) KRU_LAMBDA {
      const Vec<T> old = load_part(before + c * plane + i, part);
      T* to = out + c * units + i;
      store_part(to, old + load_part(leak + i, part) * (load_part(static_cast<const T*>(to), part) - old), part);
    });
}

template <class T, bool C, class M>
void elman_forward(const ScanCall<T>& scan, const M& matrix, typename M::Worker& worker, InputPart<T>& input,
                   int thread, int64_t block_rows, T* h_block, T* z_block) {
  const kru_scan& call = scan.call;
  const int64_t n = scan.units, s = scan.state;
  const T* bias = call.bias == nullptr ? scan.zeros : static_cast<const T*>(call.bias);
  const T* leak = static_cast<const T*>(call.leak);
  clear_after_end(scan, call.states, s, thread);
  for (int64_t first = 0; first < scan.rows(thread); first += block_rows) {
    Block<T> block(scan, thread, first, block_rows);
    // A single row's state is read where it was written; several rows are kept together in a block of their own.
    const bool direct = block_rows == 1 && !M::kReadsPastEnd;
    const int64_t plane = direct ? n : block_rows * n;
    for (int64_t r = 0; r < block.rows; ++r)
      for (int c = 0; c < scan.planes; ++c) {
        const T* h0 = scan.h0(block.order[r]);
        T* to = h_block + c * plane + r * n;
        if (h0 != nullptr)
          __builtin_memcpy(to, h0 + c * n, size_t(n) * sizeof(T));
        else
          __builtin_memset(to, 0, size_t(n) * sizeof(T));
      }
    const T* h = h_block;
    for (int64_t step = 0; step < block.longest; ++step) {
      const int64_t t = call.reverse ? block.longest - 1 - step : step;
      const int64_t running = block.running(t);
      for (int64_t r = 0; call.reset != nullptr && r < running; ++r) {
        if (!scan.restarts(t, block.order[r])) continue;
        if (direct)
          h = scan.initial;
        else
          for (int c = 0; c < scan.planes; ++c)
            __builtin_memcpy(h_block + c * plane + r * n, scan.initial + c * n, size_t(n) * sizeof(T));
      }
      matrix.apply(worker, running, h, z_block, plane);
      for (int64_t r = 0; r < running; ++r) {
        const int64_t row = block.order[r];
        T* out = scan.at(call.states, t, row, s);
        const int64_t next = call.reverse ? t - 1 : t + 1;
        const T* ahead = next >= 0 && next < scan.steps ? scan.at(call.states, next, row, s) : out;
        elman_activate<T, C>(call.nonlinearity, z_block + r * n, plane, input.row(t, row), bias, n, out, ahead);
        if (leak != nullptr) elman_leak<T>(leak, h + r * n, plane, scan.planes, n, out);
        if (direct)
          h = out;
        else
          for (int c = 0; c < scan.planes; ++c)
            __builtin_memcpy(h_block + c * plane + r * n, out + c * n, size_t(n) * sizeof(T));
      }
    }
    for (int64_t r = 0; r < block.rows; ++r)
      for (int c = 0; c < scan.planes; ++c)
        __builtin_memcpy(scan.at(call.h, 0, block.order[r], s) + c * n, h + c * plane + r * n, size_t(n) * sizeof(T));
  }
}

// One thread's part of the backward pass.
template <class T, bool C, class M> class ElmanBackward {
 public:
  ElmanBackward(Arena& arena, const ScanCall<T>& scan, const M& matrix, typename M::Worker& worker,
                InputPart<T>& input, int64_t block_rows)
      : scan_(scan), matrix_(matrix), worker_(worker), input_(input), block_rows_(block_rows) {
    n_ = scan.units;
    s_ = scan.state;
    plane_ = block_rows * n_;
    carry_ = arena.take<T>(scan.planes * plane_);
    dz_block_ = arena.take<T>(scan.planes * plane_);
    dz_ = block_rows == 1 ? dz_block_ : arena.take<T>(s_);
    z_ = arena.take<T>(s_);
    previous_ = arena.take<T>(s_);
    zeros_ = scan.zeros;
    const bool modrelu = scan.call.nonlinearity == KRU_MODRELU;
    dbias = modrelu && scan.call.dbias != nullptr ? arena.take_zeros<T>(n_) : nullptr;
    leak_ = static_cast<const T*>(scan.call.leak);
    dleak = leak_ != nullptr && scan.call.dleak != nullptr ? arena.take_zeros<T>(n_) : nullptr;
    dinitial = scan.call.dinitial != nullptr ? arena.take_zeros<T>(s_) : nullptr;
    around_ = leak_ != nullptr ? arena.take<T>(scan.planes * plane_) : nullptr;
    arrived_ = leak_ != nullptr ? arena.take<T>(scan.planes * plane_) : nullptr;
    bias_ = modrelu && scan.call.bias != nullptr ? static_cast<const T*>(scan.call.bias) : zeros_;
  }

  void run(int thread) {
    const kru_scan& call = scan_.call;
    clear_after_end(scan_, call.dpart, s_, thread);
    clear_after_end(scan_, call.dx, call.inputs, thread);
    for (int64_t first = 0; first < scan_.rows(thread); first += block_rows_) {
      Block<T> block(scan_, thread, first, block_rows_);
      for (int64_t r = 0; r < block.rows; ++r) move(carry_ + r * n_, call.dh, block.order[r], true);
      for (int64_t step = block.longest - 1; step >= 0; --step) {
        const int64_t t = call.reverse ? block.longest - 1 - step : step;
        const int64_t running = block.running(t);
        for (int64_t r = 0; r < running; ++r) {
          const int64_t row = block.order[r];
          const int64_t next = call.reverse ? t + 2 : t - 2;
          ahead_ = scan_.at(static_cast<const void*>(call.states), next >= 0 && next < scan_.steps ? next : t, row, s_);
          at_nonlinearity(t, row, r);
          input_.accumulate(t, row, dz_);
          if (dz_ == dz_block_) continue;
          for (int c = 0; c < scan_.planes; ++c)
            __builtin_memcpy(dz_block_ + c * plane_ + r * n_, dz_ + c * n_, size_t(n_) * sizeof(T));
        }
        matrix_.adjoint(worker_, running, dz_block_, carry_, plane_);
        for (int64_t r = 0; scan_.wants_factors && r < running; ++r) {
          const T* h = state_before(t, block.order[r]);
          if (h != zeros_)
            matrix_.accumulate(worker_, h, n_, dz_block_ + r * n_, plane_, carry_ + r * n_, plane_);
        }
        // Only now: the matrix may have read its own adjoint product from carry_.
        for (int c = 0; leak_ != nullptr && c < scan_.planes; ++c)
          add_scaled(carry_ + c * plane_, around_ + c * plane_, T(1), running * n_);
        for (int64_t r = 0; call.reset != nullptr && r < running; ++r)
          if (scan_.restarts(t, block.order[r])) end_at_reset(carry_ + r * n_);
      }
      if (scan_.wants_factors) matrix_.flush(worker_);
      if (call.dh0 != nullptr)
        for (int64_t r = 0; r < block.rows; ++r) move(carry_ + r * n_, call.dh0, block.order[r], false);
    }
  }

  T *dbias, *dleak, *dinitial;

 private:
  // What has been carried to a reset belongs to the initial state; nothing goes on to the step before.
  void end_at_reset(T* carry) {
    for (int c = 0; c < scan_.planes; ++c) {
      if (dinitial != nullptr) add_scaled(dinitial + c * n_, carry + c * plane_, T(1), n_);
      __builtin_memset(carry + c * plane_, 0, size_t(n_) * sizeof(T));
    }
  }

  // A row of a (B, S) tensor into a row of a block, or back.
  void move(T* block, const void* tensor, int64_t row, bool in) {
    for (int c = 0; c < scan_.planes; ++c) {
      T* own = block + c * plane_;
      const size_t bytes = size_t(n_) * sizeof(T);
      if (tensor == nullptr)
        __builtin_memset(own, 0, bytes);
      else if (in)
        __builtin_memcpy(own, scan_.at(tensor, 0, row, s_) + c * n_, bytes);
      else
        __builtin_memcpy(const_cast<T*>(scan_.at(tensor, 0, row, s_)) + c * n_, own, bytes);
    }
  }

  const T* state_before(int64_t t, int64_t row) const {
    return scan_.before(scan_.call.states, scan_.call.h0, scan_.initial, t, row);
  }

  // dz_ of one row from the gradient that arrives at h_t: the carried one plus that of the output.
  void at_nonlinearity(int64_t t, int64_t row, int64_t r) {
    const kru_scan& call = scan_.call;
    const T* h = scan_.at(static_cast<const void*>(call.states), t, row, s_);
    const T* g = carry_ + r * n_;
    const T* dout = call.dstates == nullptr ? zeros_ : scan_.at(call.dstates, t, row, s_);
    if (leak_ != nullptr) return at_leak(t, row, r, g, dout);
    if (call.nonlinearity != KRU_MODRELU) {
      for (int c = 0; c < scan_.planes; ++c)
        each_vector<T>(n_, [&](int64_t i, int64_t part) KRU_LAMBDA {
          const int64_t at = c * n_ + i;
          const Vec<T> arrived = load_part(g + c * plane_ + i, part) + load_part(dout + at, part);
          store_part(dz_ + at, activation_gradient<T>(load_part(h + at, part), arrived, call.nonlinearity), part);
        });
      return;
    }
    if (!modrelu_row<false>(h, g, dout)) modrelu_row<true>(pre_activation(t, row), g, dout);
  }

  // The same where h_t = h_{t-1} + leak (s - h_{t-1}), s = sigma(z). Neither s nor z can be had from h_t without loss, so
  // z is computed again. A part of the gradient goes around the nonlinearity and the matrix.
  void at_leak(int64_t t, int64_t row, int64_t r, const T* g, const T* dout) {
    const int nonlinearity = scan_.call.nonlinearity;
    const T *z = pre_activation(t, row), *before = previous_;
    each_vector<T>(n_, [&](int64_t i, int64_t part) KRU_LAMBDA {
      const Vec<T> leak = load_part(leak_ + i, part);
      Vec<T> s[2] = {load_part(z + i, part), Vec<T>{}}, change{};
      if (C) s[1] = load_part(z + n_ + i, part);
      if (nonlinearity == KRU_MODRELU)
        modrelu<T, C>(s[0], s[1], load_part(bias_ + i, part));
      else
        for (int c = 0; c < (C ? 2 : 1); ++c) s[c] = activate<T>(s[c], nonlinearity);
      for (int c = 0; c < (C ? 2 : 1); ++c) {
        const Vec<T> arrived = load_part(g + c * plane_ + i, part) + load_part(dout + c * n_ + i, part);
        change += arrived * (s[c] - load_part(before + c * n_ + i, part));
        store_part(around_ + c * plane_ + r * n_ + i, arrived - leak * arrived, part);
        store_part(arrived_ + c * plane_ + i, leak * arrived, part);
        if (nonlinearity != KRU_MODRELU)
          store_part(dz_ + c * n_ + i, activation_gradient<T>(s[c], leak * arrived, nonlinearity), part);
      }
      if (dleak != nullptr) store_part(dleak + i, load_part(static_cast<const T*>(dleak) + i, part) + change, part);
    });
    if (nonlinearity == KRU_MODRELU) modrelu_row<true>(z, arrived_, zeros_);
  }

  // From h, or with `Exact` from z. Returns false, having changed nothing that lasts, where h does not suffice.
  template <bool Exact> bool modrelu_row(const T* from, const T* g, const T* dout) {
    using V = Vec<T>;
    Mask<T> unsure{};
    T* db = z_;  // z_ holds z only for Exact, where db is added at once
    each_vector<T>(n_, [&](int64_t i, int64_t part) KRU_LAMBDA {
      __builtin_prefetch(ahead_ + (C ? 2 : 1) * i, 0);
      const V re = load_part(from + i, part), b = load_part(bias_ + i, part);
      V im{}, g_re = load_part(g + i, part) + load_part(dout + i, part), g_im{};
      if (C) {
        im = load_part(from + n_ + i, part);
        g_im = load_part(g + plane_ + i, part) + load_part(dout + n_ + i, part);
      }
      if (Exact) {
        const V change = modrelu_gradient<T, C>(re, im, b, g_re, g_im);
        if (dbias != nullptr) store_part(dbias + i, load_part(dbias + i, part) + change, part);
      } else {
        store_part(db + i, modrelu_gradient_from_output<T, C>(re, im, b, g_re, g_im, unsure), part);
      }
      store_part(dz_ + i, g_re, part);
      if (C) store_part(dz_ + n_ + i, g_im, part);
    });
    if (Exact) return true;
    if (any<T>(unsure)) return false;
    if (dbias != nullptr)
      for (int64_t i = 0; i < n_; ++i) dbias[i] += db[i];
    return true;
  }

  const T* pre_activation(int64_t t, int64_t row) {
    __builtin_memcpy(previous_, state_before(t, row), size_t(s_) * sizeof(T));
    matrix_.apply(worker_, 1, previous_, z_, n_);
    const T* a = input_.row(t, row);
    for (int64_t i = 0; i < s_; ++i) z_[i] += a[i];
    return z_;
  }

  const ScanCall<T>& scan_;
  const M& matrix_;
  typename M::Worker& worker_;
  InputPart<T>& input_;
  int64_t n_, s_, block_rows_, plane_;
  T *carry_, *dz_block_, *dz_, *z_, *previous_;
  const T *zeros_, *bias_, *leak_;
  T *around_, *arrived_;  // with a leak: of the block, and of one row
  const T* ahead_ = nullptr;  // the state needed in the next step but one, fetched on the way
};

}  // namespace KRU_ISA
}  // namespace kru
