// Small matrix products, real or complex in separate planes: C[i, j] = sum_k A[i, k] B[k, j], vectors along j.
//
// A tile of C (6 rows by 2 vectors real, 2 by 2 complex) stays in registers over the whole sum. Entries of A are
// broadcast, so A may have any strides; B's rows are read as vectors, possibly past column J into memory that must exist.
#pragma once

#include "memory.hpp"

namespace kru {
namespace KRU_ISA {

// Where row i of an operand starts: rows come in groups of `inner` with stride 1 and `outer` from group to group.
struct RowMap {
  int64_t inner, outer;
  KRU_INLINE int64_t at(int64_t i) const { return inner == 1 ? i * outer : (i / inner) * outer + i % inner; }
};

template <class T> struct Operand {
  T* data;
  int64_t plane;  // the imaginary plane lies this many values after the real one
};

template <class T, bool C> constexpr int kTileRows = C ? 2 : 6;
template <class T> constexpr int64_t kPanel = 2 * kLanes<T>;

// What a tile is multiplied from. Panels of kPanel columns of B start `panel` values apart.
template <class T> struct Product {
  int64_t rows, columns, inner;
  Operand<const T> a;
  RowMap a_rows;
  int64_t a_step;  // from k to k + 1
  Operand<const T> b;
  int64_t b_step, panel;
  Operand<T> c;
  RowMap c_rows;
  int64_t c_step;  // from j to j + 1
};

// ConjugateB: B's complex conjugate is meant. Add: C is added to instead of overwritten.
template <class T, bool C, bool ConjugateB, bool Add, int I, int J>
void tile(const Product<T>& m, int64_t row, int64_t column) {
  using V = Vec<T>;
  const T* a[I];
  for (int i = 0; i < I; ++i) a[i] = m.a.data + m.a_rows.at(row + i);
  const T* b = m.b.data + column / kPanel<T> * m.panel;
  const int64_t a_plane = m.a.plane, b_plane = m.b.plane;
  V re[I][J], im[I][J];
#pragma GCC unroll 6
  for (int i = 0; i < I; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) re[i][j] = im[i][j] = V{};
  int64_t at = 0;
  for (int64_t k = 0; k < m.inner; ++k, b += m.b_step, at += m.a_step) {
    V b_re[J], b_im[J];
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) {
      b_re[j] = load(b + j * kLanes<T>);
      if (C) b_im[j] = load(b + b_plane + j * kLanes<T>);
    }
#pragma GCC unroll 6
    for (int i = 0; i < I; ++i) {
      const V x = splat<T>(a[i][at]);
#pragma GCC unroll 2
      for (int j = 0; j < J; ++j) re[i][j] += x * b_re[j];
      if (C) {
        const V y = splat<T>(a[i][at + a_plane]);
#pragma GCC unroll 2
        for (int j = 0; j < J; ++j) {
          if (ConjugateB) {
            re[i][j] += y * b_im[j];
            im[i][j] += y * b_re[j];
            im[i][j] -= x * b_im[j];
          } else {
            re[i][j] -= y * b_im[j];
            im[i][j] += y * b_re[j];
            im[i][j] += x * b_im[j];
          }
        }
      }
    }
  }
  const int64_t width = smaller(m.columns - column, J * kLanes<T>);
  for (int i = 0; i < I; ++i) {
    T* c = m.c.data + m.c_rows.at(row + i) + column * m.c_step;
    for (int plane = 0; plane < (C ? 2 : 1); ++plane, c += m.c.plane) {
      for (int j = 0; j < J; ++j) {
        V v = plane ? im[i][j] : re[i][j];
        const int64_t count = smaller(width - j * kLanes<T>, kLanes<T>);
        if (m.c_step == 1) {
          T* to = c + j * kLanes<T>;
          if (Add) v += load_part(to, count);
          store_part(to, v, count);
        } else {
          T* to = c + j * kLanes<T> * m.c_step;
          for (int64_t lane = 0; lane < count; ++lane) {
            if (Add)
              to[lane * m.c_step] += v[lane];
            else
              to[lane * m.c_step] = v[lane];
          }
        }
      }
    }
  }
}

template <class T, bool C, bool ConjugateB, bool Add, int I>
KRU_INLINE void tile_row(const Product<T>& m, int64_t row, int64_t column) {
  if (m.columns - column > kLanes<T>)
    tile<T, C, ConjugateB, Add, I, 2>(m, row, column);
  else
    tile<T, C, ConjugateB, Add, I, 1>(m, row, column);
}

// Columns [first, last) of the product, first on a panel boundary.
template <class T, bool C, bool ConjugateB = false, bool Add = false>
void multiply(const Product<T>& m, int64_t first, int64_t last) {
  constexpr int kRows = kTileRows<T, C>;
  // Tiles of equal height: 25 rows are five tiles of 5, not four of 6 and one of 1.
  const int64_t tiles = (m.rows + kRows - 1) / kRows;
  for (int64_t column = first; column < last; column += kPanel<T>) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t row = m.rows * t / tiles;
      switch (m.rows * (t + 1) / tiles - row) {
        case 1: tile_row<T, C, ConjugateB, Add, 1>(m, row, column); break;
        case 2: tile_row<T, C, ConjugateB, Add, 2>(m, row, column); break;
        case 3: if constexpr (!C) tile_row<T, C, ConjugateB, Add, 3>(m, row, column); break;
        case 4: if constexpr (!C) tile_row<T, C, ConjugateB, Add, 4>(m, row, column); break;
        case 5: if constexpr (!C) tile_row<T, C, ConjugateB, Add, 5>(m, row, column); break;
        case 6: if constexpr (!C) tile_row<T, C, ConjugateB, Add, 6>(m, row, column); break;
        default: break;
      }
    }
  }
}

template <class T, bool C> void multiply(const Product<T>& m) { multiply<T, C>(m, 0, m.columns); }

// One panel of B: (rows, kPanel) with entry (k, j) from from[k row_step + j column_step], zero past the last column.
template <class T>
void pack_panel(const T* from, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns, T* to) {
  const int64_t width = smaller(columns, kPanel<T>);
  for (int64_t k = 0; k < rows; ++k, from += row_step, to += kPanel<T>) {
    if (column_step == 1 && width == kPanel<T>) {
      store(to, load(from));
      store(to + kLanes<T>, load(from + kLanes<T>));
      continue;
    }
    for (int64_t j = 0; j < width; ++j) to[j] = from[j * column_step];
    for (int64_t j = width; j < kPanel<T>; ++j) to[j] = 0;
  }
}

inline int64_t panels(int64_t columns, int64_t panel) { return (columns + panel - 1) / panel; }

// dM[p, q] += sum over n, r of G[n, p, r] conj(X[n, q, r]), sums along the contiguous r in vector lanes: for r at least
// a vector long. Tiles of dM stay in registers over all n; lanes are added once, at the end.
template <class T, bool C, int I, int J>
void dot_tile(int64_t count, int64_t p, int64_t q, int64_t r, Operand<const T> g, Operand<const T> x, int64_t row,
              int64_t column, Operand<T> out) {
  using V = Vec<T>;
  V re[I][J], im[I][J];
#pragma GCC unroll 4
  for (int i = 0; i < I; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) re[i][j] = im[i][j] = V{};
  for (int64_t n = 0; n < count; ++n) {
    const T* g_at = g.data + (n * p + row) * r;
    const T* x_at = x.data + (n * q + column) * r;
    each_vector<T>(r, [&](int64_t k, int64_t part) KRU_LAMBDA {
      V x_re[J], x_im[J];
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) {
        x_re[j] = load_part(x_at + j * r + k, part);
        if (C) x_im[j] = load_part(x_at + x.plane + j * r + k, part);
      }
#pragma GCC unroll 4
      for (int i = 0; i < I; ++i) {
        const V g_re = load_part(g_at + i * r + k, part);
        V g_im{};
        if (C) g_im = load_part(g_at + g.plane + i * r + k, part);
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) {
          re[i][j] += g_re * x_re[j];
          if (C) {
            re[i][j] += g_im * x_im[j];
            im[i][j] += g_im * x_re[j];
            im[i][j] -= g_re * x_im[j];
          }
        }
      }
    });
  }
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) {
      T* to = out.data + (row + i) * q + column + j;
      to[0] += T(sum<T>(re[i][j]));
      if (C) to[out.plane] += T(sum<T>(im[i][j]));
    }
}

template <class T, bool C, int I, int J>
void dot_row(int64_t count, int64_t p, int64_t q, int64_t r, Operand<const T> g, Operand<const T> x, int64_t row,
             Operand<T> out) {
  int64_t column = 0;
  for (; column + J <= q; column += J) dot_tile<T, C, I, J>(count, p, q, r, g, x, row, column, out);
  for (; column < q; ++column) dot_tile<T, C, I, 1>(count, p, q, r, g, x, row, column, out);
}

template <class T, bool C>
void dot_products(int64_t count, int64_t p, int64_t q, int64_t r, Operand<const T> g, Operand<const T> x,
                  Operand<T> out) {
  constexpr int kI = C ? 2 : 3, kJ = C ? 2 : 4;
  int64_t row = 0;
  for (; row + kI <= p; row += kI) dot_row<T, C, kI, kJ>(count, p, q, r, g, x, row, out);
  for (; row < p; ++row) dot_row<T, C, 1, kJ>(count, p, q, r, g, x, row, out);
}

}  // namespace KRU_ISA
}  // namespace kru
