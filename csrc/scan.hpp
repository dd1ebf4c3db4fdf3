// The recurrence over time: each thread takes its rows through all steps, then the threads' gradients are added up.
#pragma once

#include "denormals.hpp"
#include "elman.hpp"
#include "gated.hpp"

namespace kru {
namespace KRU_ISA {

// One matrix for each gate, what each thread needs for it, and each thread's view of the input.
template <class T, class M> struct ScanThreads {
  typename M::Worker*** workers;  // (threads, gates)
  InputPart<T>** inputs;          // (threads)
  int64_t block_rows;

  ScanThreads(Arena& arena, const ScanCall<T>& scan, const M* matrices, bool backward) {
    block_rows = matrices[0].block_rows((scan.batch + scan.threads - 1) / scan.threads);
    workers = arena.take<typename M::Worker**>(scan.threads);
    inputs = arena.take<InputPart<T>*>(scan.threads);
    for (int t = 0; t < scan.threads; ++t) {
      workers[t] = arena.take<typename M::Worker*>(scan.gates);
      for (int g = 0; g < scan.gates; ++g)
        workers[t][g] = make_worker(arena, matrices[g], block_rows, backward && scan.wants_factors);
      inputs[t] = new (arena.take<InputPart<T>>(1)) InputPart<T>(arena, *scan.input, backward);
    }
  }

  void finish(Arena& arena, const ScanCall<T>& scan, const M* matrices) const {
    InputPart<T>::finish(*scan.input, inputs, scan.threads);
    if (!scan.wants_factors) return;
    typename M::Worker** own = arena.take<typename M::Worker*>(scan.threads);
    for (int g = 0; g < scan.gates; ++g) {
      for (int t = 0; t < scan.threads; ++t) own[t] = workers[t][g];
      matrices[g].finish(arena, own, scan.threads, scan.gradients + g * scan.call.rank * scan.call.factor_count);
    }
  }
};

// The sum of one vector of every thread, or nothing if it was not wanted.
template <class T> void add_threads(void* out, T* const* parts, int threads, int64_t size) {
  if (out == nullptr || parts[0] == nullptr) return;
  T* to = static_cast<T*>(out);
  for (int64_t i = 0; i < size; ++i) to[i] = parts[0][i];
  for (int t = 1; t < threads; ++t) add_scaled(to, parts[t], T(1), size);
}

template <class T, bool C, class M>
void run_elman(Arena& arena, const ScanCall<T>& scan, const M* matrix, const ScanThreads<T, M>& own, bool backward) {
  if (!backward) {
    using Part = ElmanForward<T, C, M>;
    Part** parts = arena.take<Part*>(scan.threads);
    for (int t = 0; t < scan.threads; ++t)
      parts[t] = new (arena.take<Part>(1)) Part(arena, scan, *matrix, *own.workers[t][0], *own.inputs[t], own.block_rows);
    parallel(scan.threads, [&](int t) {
      const FlushDenormals flush;
      parts[t]->run(t);
    });
    return;
  }
  using Part = ElmanBackward<T, C, M>;
  Part** parts = arena.take<Part*>(scan.threads);
  T **dbias = arena.take<T*>(scan.threads), **dleak = arena.take<T*>(scan.threads);
  T** dinitial = arena.take<T*>(scan.threads);
  for (int t = 0; t < scan.threads; ++t) {
    parts[t] = new (arena.take<Part>(1)) Part(arena, scan, *matrix, *own.workers[t][0], *own.inputs[t], own.block_rows);
    dbias[t] = parts[t]->dbias;
    dleak[t] = parts[t]->dleak;
    dinitial[t] = parts[t]->dinitial;
  }
  parallel(scan.threads, [&](int t) {
    const FlushDenormals flush;
    parts[t]->run(t);
  });
  if (scan.call.nonlinearity == KRU_MODRELU) add_threads(scan.call.dbias, dbias, scan.threads, scan.units);
  add_threads(scan.call.dleak, dleak, scan.threads, scan.units);
  add_threads(scan.call.dinitial, dinitial, scan.threads, scan.state);
}

template <class T, class Cell, class M>
void run_gated(Arena& arena, const ScanCall<T>& scan, const M* matrices, const ScanThreads<T, M>& own, bool backward) {
  using Part = Gated<T, Cell, M>;
  Part** parts = arena.take<Part*>(scan.threads);
  T **dbias = arena.take<T*>(scan.threads), **dinitial = arena.take<T*>(scan.threads);
  for (int t = 0; t < scan.threads; ++t) {
    parts[t] = new (arena.take<Part>(1))
        Part(arena, scan, matrices, own.workers[t], *own.inputs[t], own.block_rows, backward);
    dbias[t] = parts[t]->drecurrent_bias;
    dinitial[t] = parts[t]->dinitial;
  }
  parallel(scan.threads, [&](int t) {
    const FlushDenormals flush;
    backward ? parts[t]->backward(t) : parts[t]->forward(t);
  });
  if (!backward) return;
  add_threads(scan.call.drecurrent_bias, dbias, scan.threads, scan.units);
  add_threads(scan.call.dinitial, dinitial, scan.threads, scan.units);
}

template <class T, bool C> void scan(const kru_scan& call, bool backward) {
  Arena arena;
  const ScanCall<T> scan(arena, call);
  with_matrices<T, C>(
      arena, scan.gates, call.rank, call.factor_count, scan.factors, backward, scan.wants_factors,
      call.steps * call.batch, [&](const auto* matrices) {
        using M = typename Pointee<decltype(matrices)>::type;
        const ScanThreads<T, M> own(arena, scan, matrices, backward);
        if (call.cell == KRU_ELMAN)
          run_elman<T, C>(arena, scan, matrices, own, backward);
        else if constexpr (!C) {
          if (call.cell == KRU_LSTM)
            run_gated<T, Lstm>(arena, scan, matrices, own, backward);
          else
            run_gated<T, Gru>(arena, scan, matrices, own, backward);
        }
        if (backward) own.finish(arena, scan, matrices);
      });
}

}  // namespace KRU_ISA
}  // namespace kru
