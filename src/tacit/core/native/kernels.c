/* Loops that pass over memory once where tensor operations would pass over it several times.
 *
 * Plain C without state, called by address (see __init__.py) from several threads at once. Tensor
 * operations do the same where this could not be compiled.
 *
 * The loops are compiled once per target: for the baseline of the architecture and, on x86-64, for
 * processors with AVX2 and with AVX-512. A loop's name ends with its target. All targets give the
 * same bits, except that products in sums of rows are not rounded where there are fused
 * multiplications (all but the baseline of x86-64), and that layers and gradients of single samples
 * also use vectors of the target's length.
 *
 * Within a target, the files in loops/ are compiled for float and for double, by including them twice
 * with another T. So a loop is an ordinary function, which a debugger can step through.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define JOIN_NAMES(NAME, TARGET) NAME##_##TARGET
#define JOIN(NAME, TARGET) JOIN_NAMES(NAME, TARGET)
#define FOR_TARGET(NAME) JOIN(NAME, TARGET)
#define FOR_TYPE(NAME) JOIN(JOIN(NAME, TYPE), TARGET)
#define LOOP(NAME) EXPORT void FOR_TYPE(NAME)
#define LOOP_OF_INTEGERS(NAME) EXPORT void JOIN(JOIN(NAME, INDEX_TYPE), TARGET)
#define UNTYPED_LOOP(NAME) EXPORT void FOR_TARGET(NAME)

/* a * b + c is rounded twice: the same on processors with and without fused multiplications. */
#if defined(__clang__)
#define ROUND_PRODUCTS _Pragma("clang fp contract(off)")
#define FUSE_PRODUCTS _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define ROUND_PRODUCTS _Pragma("GCC optimize(\"fp-contract=off\")")
#define FUSE_PRODUCTS _Pragma("GCC optimize(\"fp-contract=fast\")")
#else
#define ROUND_PRODUCTS
#define FUSE_PRODUCTS
#endif

/* Several vectors per turn, so that more operations are independent of each other. */
#if defined(__GNUC__) && !defined(__clang__)
#define SEVERAL_VECTORS _Pragma("GCC unroll 4")
#else
#define SEVERAL_VECTORS
#endif

/* A loop whose operands are the same memory or do not overlap. */
#if defined(__clang__)
#define SAME_PLACE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SAME_PLACE _Pragma("GCC ivdep")
#else
#define SAME_PLACE
#endif

/* What Python hands over, in this order. */

/* A convolution of images with channels x height x width pixels. */
typedef struct {
    int64_t channels, height, width, kernel_height, kernel_width, down, across, dilation_down, dilation_across, rows,
        columns, filters, bias;
} Geometry;

/* Windows of pooling. */
typedef struct {
    int64_t height, width, batch, window_height, window_width, down, across, rows, columns, filters, relu;
} Windows;

/* fields = floor(factor x / divisor + offset + word / 2^32) of `bits` bits; `otherwise` in rows whose divisor is not
 * positive. The number of a field is (field scale + shift) divisor. Fields of one bit are 0 or 1; others are in two's
 * complement and have no shift. */
typedef struct {
    double factor, offset, scale, shift;
    int64_t bits, otherwise;
} Quantizer;

/* A law of integer noise. */
typedef struct {
    const uint32_t *guide, *thresholds; /* four words per threshold, the first of 31 bits */
    int64_t count;
    int32_t factor;
} Law;

#if defined(__GNUC__)
typedef int16_t __attribute__((aligned(1))) Unaligned16;
#else
typedef int16_t Unaligned16;
#endif

/* HAS_FMA: whether a target multiplies and adds with one rounding. */
#if defined(__aarch64__)
#define HAS_FMA 1
#else
#define HAS_FMA 0
#endif
#define TARGET baseline
#define VECTOR_BYTES 16
#include "loops/all.h"
#undef TARGET
#undef VECTOR_BYTES
#undef HAS_FMA

#if defined(__x86_64__) && defined(__GNUC__)
#define SEVERAL_TARGETS
#define HAS_FMA 1

#define TARGET avx2
#define VECTOR_BYTES 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#include "loops/all.h"
#pragma clang attribute pop
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "loops/all.h"
#pragma GCC pop_options
#endif
#undef TARGET
#undef VECTOR_BYTES

#define TARGET avx512
#define VECTOR_BYTES 64
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#include "loops/all.h"
#pragma clang attribute pop
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#include "loops/all.h"
#pragma GCC pop_options
#endif
#undef TARGET
#undef VECTOR_BYTES
#endif

/* The targets that this processor can run: one bit each, of the baseline, AVX2 and AVX-512. */
EXPORT int64_t tacit_targets(void) {
    int64_t targets = 1;
#if defined(SEVERAL_TARGETS)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        targets |= 2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            targets |= 4;
    }
#endif
    return targets;
}

/* An empty module, so that the file is built, found and shipped like any extension. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, NULL, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
