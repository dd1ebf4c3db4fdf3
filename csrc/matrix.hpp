// The choice between the two forms of a Kronecker matrix, or of the terms of a sum of them.
#pragma once

#include <new>

#include "butterfly.hpp"
#include "merged.hpp"
#include "sum.hpp"

namespace kru {
namespace KRU_ISA {

template <class P> struct Pointee;
template <class M> struct Pointee<M*> { using type = M; };
template <class M> struct Pointee<const M*> { using type = M; };

template <class M> typename M::Worker* make_worker(Arena& arena, const M& matrix, int64_t block, bool gradient) {
  return new (arena.take<typename M::Worker>(1)) typename M::Worker(arena, matrix, block, gradient);
}

// body(const M* matrices) with one matrix for each gate; factors are (gates, rank, count). `adjoint`: W^H is needed too.
// `gradient`: that of the factors is, from so many `rows`.
template <class T, bool C, class Body>
void with_matrices(Arena& arena, int gates, int64_t rank, int count, const Factor<T>* factors, bool adjoint,
                   bool gradient, int64_t rows, const Body& body) {
  bool butterflies = true;
  for (int64_t term = 0; term < gates * rank; ++term) {
    const Factor<T>* own = factors + term * count;
    butterflies = butterflies && Butterfly<T, C>::suits(count, own) &&
                  (!gradient || Butterfly<T, C>::gradient_suits(count, own));
  }
  const auto run = [&](auto* matrices) {
    using M = typename Pointee<decltype(matrices)>::type;
    for (int g = 0; g < gates; ++g)
      new (matrices + g) M(arena, rank, count, factors + g * rank * count, adjoint, gradient ? rows : 0);
    body(static_cast<const M*>(matrices));
  };
  if (butterflies)
    run(arena.take<Sum<T, Butterfly<T, C>>>(gates));
  else
    run(arena.take<Sum<T, Merged<T, C>>>(gates));
}

}  // namespace KRU_ISA
}  // namespace kru
