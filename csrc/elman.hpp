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

// One thread's way forward through time.
template <class T, bool C, class M> class ElmanForward {
 public:
  ElmanForward(Arena& arena, const ScanCall<T>& scan, const M& matrix, typename M::Worker& worker,
               InputPart<T>& input, int64_t block_rows)
      : scan_(scan), matrix_(matrix), worker_(worker), input_(input), n_(scan.units), block_rows_(block_rows) {
    // A single row's state is read where it was written; several rows are kept together in a block of their own.
    direct_ = block_rows == 1 && !M::kReadsPastEnd;
    plane_ = direct_ ? n_ : block_rows * n_;
    block_ = arena.take<T>(scan.planes * block_rows * n_);
    z_ = arena.take<T>(scan.planes * block_rows * n_);
    bias_ = scan.call.bias == nullptr ? scan.zeros : static_cast<const T*>(scan.call.bias);
    leak_ = static_cast<const T*>(scan.call.leak);
    // Two steps, as the leak reads the state of the step before.
    if (scan.call.states == nullptr) window_ = arena.take<T>(2 * block_rows * scan.state);
  }

  void run(int thread) {
    const kru_scan& call = scan_.call;
    const int64_t s = scan_.state, kept = scan_.kept_count(), every = kept > 0 ? call.every : larger(1, scan_.steps);
    if (call.states != nullptr) clear_after_end(scan_, call.states, s, thread);
    const Steps<T> states{scan_, s, block_rows_, static_cast<T*>(call.states), window_, 2};
    for (int64_t first = 0; first < scan_.rows(thread); first += block_rows_) {
      Block<T> block(scan_, thread, first, block_rows_);
      for (int64_t r = 0; r < block.rows; ++r) load(r, scan_.first(call.h0, block.order[r]));
      for (int64_t step = 0; step < block.longest; step += every) {
        if (kept > 0) store(block, call.kept_h, step / every);
        steps(block, step, smaller(step + every, block.longest), states);
      }
      for (int64_t k = (block.longest + every - 1) / every; k < kept; ++k)
        for (int64_t r = 0; r < block.rows; ++r)
          __builtin_memset(scan_.at(call.kept_h, k, block.order[r], s), 0, size_t(s) * sizeof(T));
      store(block, call.h, 0);
    }
  }

  // The states of steps `from` to `to` - 1, again, from the one that was kept before them.
  void again(Block<T>& block, int64_t from, int64_t to, const Steps<T>& states) {
    for (int64_t r = 0; r < block.rows; ++r)
      load(r, scan_.at(static_cast<const void*>(scan_.call.kept_h), from / scan_.call.every, block.order[r], scan_.state));
    steps(block, from, to, states);
  }

 private:
  void load(int64_t r, const T* from) {
    for (int c = 0; c < scan_.planes; ++c) {
      T* to = block_ + c * plane_ + r * n_;
      if (from != nullptr)
        __builtin_memcpy(to, from + c * n_, size_t(n_) * sizeof(T));
      else
        __builtin_memset(to, 0, size_t(n_) * sizeof(T));
    }
    h_ = block_;
  }

  void store(const Block<T>& block, void* tensor, int64_t at) const {
    for (int64_t r = 0; r < block.rows; ++r)
      for (int c = 0; c < scan_.planes; ++c)
        __builtin_memcpy(scan_.at(tensor, at, block.order[r], scan_.state) + c * n_, h_ + c * plane_ + r * n_,
                         size_t(n_) * sizeof(T));
  }

  void steps(Block<T>& block, int64_t from, int64_t to, const Steps<T>& states) {
    const kru_scan& call = scan_.call;
    for (int64_t step = from; step < to; ++step) {
      const int64_t t = block.time(step);
      const int64_t running = block.running(t);
      for (int64_t r = 0; call.reset != nullptr && r < running; ++r) {
        if (!scan_.restarts(t, block.order[r])) continue;
        if (direct_)
          h_ = scan_.initial;
        else
          load(r, scan_.initial);
      }
      matrix_.apply(worker_, running, h_, z_, plane_);
      for (int64_t r = 0; r < running; ++r) {
        T* out = states.at(block, step, r);
        const T* ahead = step + 1 < block.longest ? states.at(block, step + 1, r) : out;
        elman_activate<T, C>(call.nonlinearity, z_ + r * n_, plane_, input_.row(t, block.order[r]), bias_, n_, out, ahead);
        if (leak_ != nullptr) elman_leak<T>(leak_, h_ + r * n_, plane_, scan_.planes, n_, out);
        if (direct_)
          h_ = out;
        else
          load(r, out);
      }
    }
  }

  const ScanCall<T>& scan_;
  const M& matrix_;
  typename M::Worker& worker_;
  InputPart<T>& input_;
  int64_t n_, block_rows_, plane_;
  bool direct_;
  T *block_, *z_, *window_ = nullptr;
  const T *bias_, *leak_;
  const T* h_ = nullptr;  // (planes, rows, n), planes plane_ apart
};

// One thread's part of the backward pass.
template <class T, bool C, class M> class ElmanBackward {
  using Forward = ElmanForward<T, C, M>;

 public:
  ElmanBackward(Arena& arena, const ScanCall<T>& scan, const M& matrix, typename M::Worker& worker,
                InputPart<T>& input, int64_t block_rows)
      : scan_(scan), matrix_(matrix), worker_(worker), input_(input), block_rows_(block_rows),
        states_{scan, scan.state, block_rows, static_cast<T*>(scan.call.states)} {
    n_ = scan.units;
    s_ = scan.state;
    if (scan.kept_count() > 0) {
      forward_ = new (arena.take<Forward>(1)) Forward(arena, scan, matrix, worker, input, block_rows);
      states_.open_window(arena);
    }
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
        if (forward_ != nullptr && (step == block.longest - 1 || step % states_.count == states_.count - 1))
          forward_->again(block, step - step % states_.count, step + 1, states_);
        const int64_t t = block.time(step);
        const int64_t running = block.running(t);
        for (int64_t r = 0; r < running; ++r) {
          const int64_t row = block.order[r];
          ahead_ = states_.at(block, step >= 2 ? step - 2 : step, r);
          at_nonlinearity(block, step, r);
          input_.accumulate(t, row, dz_);
          if (dz_ == dz_block_) continue;
          for (int c = 0; c < scan_.planes; ++c)
            __builtin_memcpy(dz_block_ + c * plane_ + r * n_, dz_ + c * n_, size_t(n_) * sizeof(T));
        }
        matrix_.adjoint(worker_, running, dz_block_, carry_, plane_);
        for (int64_t r = 0; scan_.wants_factors && r < running; ++r) {
          const T* h = before(block, step, r);
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

  const T* before(const Block<T>& block, int64_t step, int64_t r) const {
    return state_before(block, states_, scan_.call.kept_h, scan_.call.h0, scan_.initial, step, r);
  }

  // dz_ of one row from the gradient that arrives at h_t: the carried one plus that of the output.
  void at_nonlinearity(const Block<T>& block, int64_t step, int64_t r) {
    const kru_scan& call = scan_.call;
    const T* h = states_.at(block, step, r);
    const T* g = carry_ + r * n_;
    const T* dout = call.dstates == nullptr ? zeros_ : scan_.at(call.dstates, block.time(step), block.order[r], s_);
    if (leak_ != nullptr) return at_leak(block, step, r, g, dout);
    if (call.nonlinearity != KRU_MODRELU) {
      for (int c = 0; c < scan_.planes; ++c)
        each_vector<T>(n_, [&](int64_t i, int64_t part) KRU_LAMBDA {
          const int64_t at = c * n_ + i;
          const Vec<T> arrived = load_part(g + c * plane_ + i, part) + load_part(dout + at, part);
          store_part(dz_ + at, activation_gradient<T>(load_part(h + at, part), arrived, call.nonlinearity), part);
        });
      return;
    }
    if (!modrelu_row<false>(h, g, dout)) modrelu_row<true>(pre_activation(block, step, r), g, dout);
  }

  // The same where h_t = h_{t-1} + leak (s - h_{t-1}), s = sigma(z). Neither s nor z can be had from h_t without loss, so
  // z is computed again. A part of the gradient goes around the nonlinearity and the matrix.
  void at_leak(const Block<T>& block, int64_t step, int64_t r, const T* g, const T* dout) {
    const int nonlinearity = scan_.call.nonlinearity;
    const T *z = pre_activation(block, step, r), *before = previous_;
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

  const T* pre_activation(const Block<T>& block, int64_t step, int64_t r) {
    __builtin_memcpy(previous_, before(block, step, r), size_t(s_) * sizeof(T));
    matrix_.apply(worker_, 1, previous_, z_, n_);
    const T* a = input_.row(block.time(step), block.order[r]);
    for (int64_t i = 0; i < s_; ++i) z_[i] += a[i];
    return z_;
  }

  const ScanCall<T>& scan_;
  const M& matrix_;
  typename M::Worker& worker_;
  InputPart<T>& input_;
  int64_t n_, s_, block_rows_, plane_;
  Steps<T> states_;
  Forward* forward_ = nullptr;  // where the states are computed again
  T *carry_, *dz_block_, *dz_, *z_, *previous_;
  const T *zeros_, *bias_, *leak_;
  T *around_, *arrived_;  // with a leak: of the block, and of one row
  const T* ahead_ = nullptr;  // the state needed in the next step but one, fetched on the way
};

}  // namespace KRU_ISA
}  // namespace kru
