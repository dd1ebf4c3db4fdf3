/* The kernels' C interface: plain pointers, no Python, no torch.
 *
 * Every function returns 0, or -1 when memory ran out; nothing is thrown, nothing is printed. Arguments are trusted:
 * the caller has checked shapes and types. Tensors are dense in the order of their shape as written here.
 */
#ifndef KRU_H
#define KRU_H

#include <stdint.h>

#if defined(_WIN32)
#define KRU_API __declspec(dllexport)
#else
#define KRU_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* To be raised with every change of a structure, a constant or a function here; `src/kru/ops/bindings.py` has the same
 * number and refuses a library with another one. */
#define KRU_INTERFACE 6

enum { KRU_FLOAT32 = 0, KRU_FLOAT64 = 1 };
enum { KRU_IDENTITY = 0, KRU_TANH = 1, KRU_RELU = 2, KRU_MODRELU = 3, KRU_LEAKY_RELU = 4 };
enum { KRU_ELMAN = 0, KRU_LSTM = 1, KRU_GRU = 2 };
/* How the input part a_t arrives: computed by the caller, as a small dense input, or as symbols. */
enum { KRU_PART = 0, KRU_DENSE = 1, KRU_SYMBOLS = 2 };

/* y (rows, N) = x (rows, K) times the transpose of a sum of `rank` Kronecker products. Factor f is (rank, p[f], q[f]),
 * one matrix for each term. Complex numbers are interleaved. The gradients are outputs and may be NULL where they are not wanted. */
typedef struct {
  int32_t dtype, is_complex, threads, factor_count;
  int64_t rows, rank;
  const int64_t *p, *q;
  const void* const* factors; /* or NULL with packed: the factors one after the other */
  const void* x;
  void* y;
  const void* dy;
  void* dx;
  void* const* dfactors; /* NULL, or one pointer for each factor */
  const void* packed;
} kru_kron;

/* The recurrence over time. N units; S = N values a state (2N complex, real plane first); G gates (1, 4 or 3).
 * Factor f is (rank, G or planes, p[f], q[f]): each gate's matrix is a sum of `rank` Kronecker products. */
typedef struct {
  int32_t dtype, is_complex, threads, factor_count;
  int32_t cell, nonlinearity, input_kind, reverse;
  int64_t steps, batch, inputs, rank;
  const int64_t *p, *q;
  const void* const* factors;
  const void* part;           /* (T, B, G S), KRU_PART */
  const void* x;              /* (T, B, D), KRU_DENSE */
  const int64_t* symbols;     /* (T, B), each in [0, D), KRU_SYMBOLS */
  const void* weight;         /* (G S, D), KRU_DENSE and KRU_SYMBOLS */
  const void* bias;           /* modReLU: (N); else (G S), only with KRU_DENSE and KRU_SYMBOLS; or NULL */
  const void* recurrent_bias; /* (N), GRU, or NULL */
  const void *h0, *c0;        /* (B, S) or NULL */
  const int64_t* lengths;     /* (B) or NULL */
  /* Outputs of the forward pass, inputs of the backward pass. */
  void* states; /* (T, B, S) */
  void* cells;  /* LSTM: c (T, B, N). GRU: W_n h + recurrent_bias. NULL keeps no history. */
  void* gates;  /* (T, B, G N) after their nonlinearity, NULL keeps no history; may be the memory of part */
  void *h, *c;  /* (B, S) the last states; forward only */
  /* Backward only: gradients that come in (NULL: zero) ... */
  const void *dstates, *dh, *dc;
  /* ... and that go out (NULL: not wanted). */
  void* const* dfactors;
  void* dpart; /* may be the memory of gates */
  void *dx, *dweight, *dbias, *drecurrent_bias, *dh0, *dc0;
  const void* leak; /* (N), Elman: h_t = (1 - leak) h_{t-1} + leak sigma(...), or NULL for 1 */
  void* dleak;      /* (N), backward only, or NULL */
  /* (T, B) or NULL: where not 0, a sequence begins. The state that step t of row b starts from is then `initial` and a
   * c of zero. In reverse this holds for step t - 1, which comes after step t. */
  const uint8_t* reset;
  const void* initial; /* (S) or NULL for zeros */
  void* dinitial;      /* (S), backward only, or NULL */
  /* 0, or k > 0: instead of the history only the states before every k-th step are kept, and the backward pass computes
   * the k steps in between again. states may then be NULL in the forward pass and is not read in the backward pass;
   * cells and gates are not used. Rows that go through time together begin with the first step of any of them. */
  int64_t every;
  void *kept_h, *kept_c; /* (ceil(T / k), B, S), kept_c for the LSTM: outputs of the forward pass, inputs of the other */
} kru_scan;

/* A unitary matrix of N units that is a factor of a chain. Complex numbers are interleaved. The gradients are outputs
 * and may be NULL where they are not wanted. */
enum { KRU_DIAGONAL = 0, KRU_REFLECTION = 1, KRU_FOURIER = 2, KRU_PERMUTATION = 3, KRU_ROTATIONS = 4 };
typedef struct {
  int32_t kind, inverse;         /* inverse: KRU_FOURIER */
  int64_t first, distance, pairs; /* KRU_ROTATIONS: units a and b = a + distance, the first a at `first` */
  const int64_t* order;          /* (N), KRU_PERMUTATION: y_i = x_{order_i} */
  const void* numbers;           /* complex: the diagonal (N), v (N) of I - 2 v v^H / |v|^2, or p (pairs) of ... */
  const void *c, *s;             /* ... (a, b) -> (p (c a - s b), s a + c b), real (pairs) */
  void *dnumbers, *dc, *ds;
} kru_stage;

/* h_t = modReLU(W h_{t-1} + a_t) in the complex field, W the product of the stages, the first one applied first. */
typedef struct {
  int32_t dtype, threads, stage_count, reverse;
  int32_t input_kind, unused;
  int64_t steps, batch, size, inputs;
  const kru_stage* stages;
  const void* part;       /* a_t (T, B, 2N), real plane first, as all states, KRU_PART */
  const void* x;          /* (T, B, D), KRU_DENSE */
  const int64_t* symbols; /* (T, B), each in [0, D), KRU_SYMBOLS */
  const void* weight;     /* (2N, D), KRU_DENSE and KRU_SYMBOLS */
  const void* bias;       /* (N) or NULL */
  const void* h0;         /* (B, 2N) or NULL */
  const int64_t* lengths; /* (B) or NULL */
  void* states;           /* (T, B, 2N): output of the forward pass, input of the backward pass */
  void* h;                /* (B, 2N) the last states; forward only */
  /* Backward only: gradients that come in (NULL: zero) and that go out (NULL: not wanted). */
  const void *dstates, *dh;
  void *dpart, *dx, *dweight, *dbias, *dh0;
} kru_chain;

KRU_API int kru_kron_forward(const kru_kron* call);
KRU_API int kru_kron_backward(const kru_kron* call);
KRU_API int kru_scan_forward(const kru_scan* call);
KRU_API int kru_scan_backward(const kru_scan* call);
KRU_API int kru_chain_forward(const kru_chain* call);
KRU_API int kru_chain_backward(const kru_chain* call);

/* KRU_INTERFACE of the header that the library was built with. */
KRU_API int32_t kru_interface(void);

/* The instruction set in use: "avx512", "avx2", "neon" or "baseline". KRU_SIMD in the environment lowers it. */
KRU_API const char* kru_simd(void);

/* Floating point operations a second of one core on chains of multiply-adds in registers; for benchmarks. */
KRU_API double kru_fma_rate(int32_t dtype, double seconds);

#ifdef __cplusplus
}
#endif
#endif
