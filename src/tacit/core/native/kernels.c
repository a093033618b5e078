/* Loops that pass over memory once where tensor operations would pass over it several times.
 *
 * Plain C without state, called by address (see __init__.py) from several threads at once. Tensor
 * operations do the same where this could not be compiled.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Use newer vector units where the processor has them. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* Numbers of a row at a time, so that what is read twice stays in a near cache. */
#define TILE 12544
/* Sums in double precision that stay in the nearest cache. */
#define SUMS 1024
/* Independent running maxima, which can be computed in parallel. */
#define LANES 16

/* Two neighbours on a ring share two of their three rows: read those once. */
#define DEFINE_PAIR(NAME, T)                                                                                \
    static inline void NAME(T *restrict one, T *restrict next, const T *a, const T *b, const T *c, const T *d,\
                            const T *weight, int64_t n) {                                                   \
        const T u = weight[0], v = weight[1], w = weight[2], p = weight[3], q = weight[4], r = weight[5];   \
        for (int64_t k = 0; k < n; k++) {                                                                   \
            const T left = b[k], right = c[k];                                                              \
            one[k] = u * a[k] + v * left + w * right;                                                       \
            next[k] = p * left + q * right + r * d[k];                                                      \
        }                                                                                                   \
    }

DEFINE_PAIR(pair_f32, float)
DEFINE_PAIR(pair_f64, double)

/* out[i] = sum over e in begin[i] .. begin[i + 1] of weight[e] x[source[e]], for first <= i < last;
 * with `onto`, added to out[i]. */
#define DEFINE_MIX(NAME, PAIR, T)                                                                           \
    WIDE EXPORT void NAME(const int64_t *begin, const int64_t *source, const T *weight, const T *x,         \
                          int64_t x_stride, T *out, int64_t out_stride, int64_t first, int64_t last,        \
                          int64_t width, int64_t onto) {                                                    \
        const int64_t tiles = (width + TILE - 1) / TILE;                                                    \
        for (int64_t tile = 0; tile < tiles; tile++) {                                                      \
            const int64_t low = width * tile / tiles, n = width * (tile + 1) / tiles - low;                 \
            for (int64_t i = first; i < last; i++) {                                                        \
                T *restrict o = out + i * out_stride + low;                                                 \
                int64_t e = begin[i];                                                                       \
                const int64_t end = begin[i + 1];                                                           \
                if (!onto && end - e >= 3) {                                                                \
                    const T *a = x + source[e] * x_stride + low, *b = x + source[e + 1] * x_stride + low,   \
                            *c = x + source[e + 2] * x_stride + low;                                        \
                    const T u = weight[e], v = weight[e + 1], w = weight[e + 2];                            \
                    if (end - e == 3 && i + 1 < last && begin[i + 2] - end == 3 &&                          \
                        source[end] == source[e + 1] && source[end + 1] == source[e + 2]) {                 \
                        PAIR(o, o + out_stride, a, b, c, x + source[end + 2] * x_stride + low, weight + e, n);\
                        i++;                                                                                \
                        continue;                                                                           \
                    }                                                                                       \
                    for (int64_t k = 0; k < n; k++) o[k] = u * a[k] + v * b[k] + w * c[k];                  \
                    e += 3;                                                                                 \
                } else if (!onto && e < end) {                                                              \
                    const T *a = x + source[e] * x_stride + low;                                            \
                    const T u = weight[e];                                                                  \
                    for (int64_t k = 0; k < n; k++) o[k] = u * a[k];                                        \
                    e += 1;                                                                                 \
                } else if (!onto) {                                                                         \
                    for (int64_t k = 0; k < n; k++) o[k] = 0;                                               \
                }                                                                                           \
                for (; e + 1 < end; e += 2) {                                                               \
                    const T *a = x + source[e] * x_stride + low, *b = x + source[e + 1] * x_stride + low;   \
                    const T u = weight[e], v = weight[e + 1];                                               \
                    for (int64_t k = 0; k < n; k++) o[k] += u * a[k] + v * b[k];                            \
                }                                                                                           \
                if (e < end) {                                                                              \
                    const T *a = x + source[e] * x_stride + low;                                            \
                    const T u = weight[e];                                                                  \
                    for (int64_t k = 0; k < n; k++) o[k] += u * a[k];                                       \
                }                                                                                           \
            }                                                                                               \
        }                                                                                                   \
    }

DEFINE_MIX(tacit_mix_f32, pair_f32, float)
DEFINE_MIX(tacit_mix_f64, pair_f64, double)

/* out[i] += a x[i], and then b y[i] if there is a y, for rows first <= i < last. */
#define DEFINE_ADD(NAME, T)                                                                                  \
    WIDE EXPORT void NAME(T *out, int64_t out_stride, const double *a, const T *x, int64_t x_stride,         \
                          const double *b, const T *y, int64_t y_stride, int64_t first, int64_t last,        \
                          int64_t width) {                                                                   \
        for (int64_t i = first; i < last; i++) {                                                             \
            T *restrict o = out + i * out_stride;                                                            \
            const T *u = x + i * x_stride, *v = y ? y + i * y_stride : y;                                    \
            const T p = (T)*a, q = (T)*b;                                                                    \
            if (v)                                                                                           \
                for (int64_t k = 0; k < width; k++) o[k] = (o[k] + p * u[k]) + q * v[k];                     \
            else                                                                                             \
                for (int64_t k = 0; k < width; k++) o[k] += p * u[k];                                        \
        }                                                                                                    \
    }

DEFINE_ADD(tacit_add_f32, float)
DEFINE_ADD(tacit_add_f64, double)

/* bad[i] = whether row i has an infinity or NaN: without the sign, its bits are at least those of infinity. */
#define DEFINE_NOT_FINITE(NAME, BITS, MAGNITUDE, INFINITE)                                                   \
    WIDE EXPORT void NAME(const BITS *x, int64_t stride, uint8_t *bad, int64_t first, int64_t last,          \
                          int64_t width) {                                                                   \
        for (int64_t i = first; i < last; i++) {                                                             \
            const BITS *row = x + i * stride;                                                                \
            BITS largest[LANES] = {0};                                                                       \
            int64_t k = 0;                                                                                   \
            for (; k + LANES <= width; k += LANES)                                                           \
                for (int64_t j = 0; j < LANES; j++) {                                                        \
                    const BITS magnitude = row[k + j] & MAGNITUDE;                                           \
                    largest[j] = magnitude > largest[j] ? magnitude : largest[j];                            \
                }                                                                                            \
            BITS all = 0;                                                                                    \
            for (; k < width; k++) all = (row[k] & MAGNITUDE) > all ? (row[k] & MAGNITUDE) : all;            \
            for (int64_t j = 0; j < LANES; j++) all = largest[j] > all ? largest[j] : all;                   \
            bad[i] = all >= INFINITE;                                                                        \
        }                                                                                                    \
    }

DEFINE_NOT_FINITE(tacit_not_finite_f32, uint32_t, 0x7FFFFFFFu, 0x7F800000u)
DEFINE_NOT_FINITE(tacit_not_finite_f64, uint64_t, 0x7FFFFFFFFFFFFFFFu, 0x7FF0000000000000u)

/* Keyed noise: see randomness.py. Four words per counter (block, source, target, tick), BLOCKS counters at a time. */
#define BLOCKS 128

/* Philox4x32-10 of one counter, in place. Loops over counters are vectorised only with the rounds unrolled. */
static inline void philox_counter(uint32_t *x, uint64_t key) {
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++, low += 0x9E3779B9u, high += 0xBB67AE85u) {
        const uint64_t p = (uint64_t)x[0] * 0xD2511F53u, q = (uint64_t)x[2] * 0xCD9E8D57u;
        x[0] = (uint32_t)(q >> 32) ^ x[1] ^ low;
        x[1] = (uint32_t)q;
        x[2] = (uint32_t)(p >> 32) ^ x[3] ^ high;
        x[3] = (uint32_t)p;
    }
}

/* Each round waits for the one before: two counters in turn fill the waiting time. */
static inline void philox(uint32_t *restrict words, uint32_t block, uint32_t source, uint32_t target, uint32_t tick,
                          uint64_t key) {
    uint32_t *restrict others = words + 2 * BLOCKS;
    for (uint32_t j = 0; j < BLOCKS / 2; j++) {
        uint32_t x[4] = {block + j, source, target, tick}, y[4] = {block + j + BLOCKS / 2, source, target, tick};
        philox_counter(x, key);
        philox_counter(y, key);
        for (int i = 0; i < 4; i++) words[4 * j + i] = x[i], others[4 * j + i] = y[i];
    }
}

/* counts[i] = how many of the first sizes[i] words of row i are below the threshold. */
WIDE EXPORT void tacit_count_below(const int64_t *words, int64_t width, int64_t threshold, const int64_t *sizes,
                                   int64_t clients, int64_t *counts) {
    for (int64_t i = 0; i < clients; i++, words += width) {
        int64_t count = 0;
        for (int64_t c = 0; c < sizes[i]; c++) count += words[c] < threshold;
        counts[i] = count;
    }
}

/* index[k] = order[first[i] + c] for all words[i, c] below the threshold with c < sizes[i], row after row. Writes one
 * number beyond the last. */
WIDE EXPORT void tacit_choose(const int64_t *words, int64_t width, int64_t threshold, const int64_t *first,
                              const int64_t *sizes, int64_t clients, const int64_t *order, int64_t *restrict index) {
    int64_t k = 0;
    for (int64_t i = 0; i < clients; i++, words += width) {
        const int64_t *own = order + first[i], size = sizes[i];
        for (int64_t c = 0; c < size; c++) {
            index[k] = own[c];
            k += words[c] < threshold;
        }
    }
}

/* ln x for 0 < x <= 1: x = 2^e (1 + f) with 1 + f within sqrt(2) of 1, and ln(1 + f) = 2 artanh(f / (2 + f)). */
static inline double logarithm(double x) {
    const uint64_t one = 0x3FF0000000000000u, root = 0x3FE6A09E667F3BCDu; /* the bits of 1 and of sqrt(1/2) */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t moved = bits + (one - root);
    const double e = (double)((int32_t)(moved >> 52) - 1023);
    bits = (moved & 0xFFFFFFFFFFFFFu) + root;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double f = m - 1.0, s = f / (2.0 + f), t = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2) sum = sum * t + 1.0 / k;
    return e * 0.69314718055994530942 + 2.0 * s * sum;
}

/* Words of rows first <= i < last from the column `from`, a multiple of four, as 64-bit numbers. */
WIDE EXPORT void tacit_words(const int64_t *source, const int64_t *target, int64_t tick, int64_t key, int64_t from,
                             int64_t *out, int64_t stride, int64_t first, int64_t last, int64_t width) {
    uint32_t words[4 * BLOCKS];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = 0; low < width; low += 4 * BLOCKS) {
            const int64_t n = width - low < 4 * BLOCKS ? width - low : 4 * BLOCKS;
            philox(words, (uint32_t)((from + low) / 4), (uint32_t)source[i], (uint32_t)target[i], (uint32_t)tick,
                   (uint64_t)key);
            for (int64_t k = 0; k < n; k++) out[i * stride + low + k] = words[k];
        }
}

/* A word stands for the middle of its cell of (0, 1): the noise is -scale ln(x) above one half and
 * scale ln(x) below, with x twice the distance to the nearer end. */
static inline void laplace(double *restrict noise, const uint32_t *restrict words, double scale) {
    for (int k = 0; k < 4 * BLOCKS; k++) {
        const int32_t word = (int32_t)words[k], half = word >> 31; /* all ones above the middle */
        const double depth = scale * logarithm((2.0 * (word ^ half) + 1.0) * 0x1p-32);
        noise[k] = half ? -depth : depth;
    }
}

/* out[i] += Laplace noise of (source[e], target[e]) for e in begin[i] .. begin[i + 1], in order. */
#define DEFINE_LAPLACE(NAME, T)                                                                              \
    WIDE EXPORT void NAME(const int64_t *begin, const int64_t *source, const int64_t *target, int64_t tick,  \
                          int64_t key, const double *scale, T *out, int64_t stride, int64_t first,           \
                          int64_t last, int64_t width) {                                                     \
        uint32_t words[4 * BLOCKS];                                                                          \
        double noise[4 * BLOCKS];                                                                            \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = 0; low < width; low += 4 * BLOCKS) {                                          \
                const int64_t n = width - low < 4 * BLOCKS ? width - low : 4 * BLOCKS;                       \
                T *restrict row = out + i * stride + low;                                                    \
                for (int64_t e = begin[i]; e < begin[i + 1]; e++) {                                          \
                    philox(words, (uint32_t)(low / 4), (uint32_t)source[e], (uint32_t)target[e],             \
                           (uint32_t)tick, (uint64_t)key);                                                   \
                    laplace(noise, words, *scale);                                                           \
                    for (int64_t k = 0; k < n; k++) row[k] += (T)noise[k];                                   \
                }                                                                                            \
            }                                                                                                \
    }

DEFINE_LAPLACE(tacit_laplace_f32, float)
DEFINE_LAPLACE(tacit_laplace_f64, double)

/* Integer noise: see discrete_gaussian.py. The guide has one entry per cell of magnitudes, 2^18 wide, and 2^14 wide in
 * the last sixteenth, where thresholds are dense. An entry is k 2^18 + (2^18 - t) for the k thresholds below the cell
 * and the lowest 18 bits t of the one in it, if there is one: adding the lowest bits of the magnitude carries into k if
 * they are at least t. With more thresholds in the cell, it is k + 2^31. */
#define TAIL_CELL 7680
#define LOW 0x3FFFFu
#define MAGNITUDE 0x7FFFFFFFu

typedef struct {
    const uint32_t *guide, *thresholds; /* four words per threshold, the first of 31 bits */
    int64_t count;
    int32_t factor;
} Law;

/* Grows by 1 every 2^18, from TAIL_CELL on by 1 every 2^14. */
static inline int32_t cell_of(uint32_t magnitude) {
    const int32_t body = (int32_t)(magnitude >> 18), tail = (int32_t)(magnitude >> 14) - 15 * TAIL_CELL;
    return body > tail ? body : tail;
}

static inline int32_t with_sign(uint32_t magnitude, uint32_t word) {
    const uint32_t negative = 0u - (word >> 31);
    return (int32_t)((magnitude ^ negative) - negative);
}

/* One draw per word. In doubt: several thresholds are in the word's cell, or it may tie with the only one. */
static inline void draw_by_guide(int32_t *restrict drawn, uint8_t *restrict doubt, const uint32_t *restrict words,
                                 const uint32_t *restrict guide) {
    for (int k = 0; k < 4 * BLOCKS; k++) {
        const uint32_t word = words[k], sum = guide[cell_of(word & MAGNITUDE)] + (word & LOW);
        drawn[k] = with_sign(sum >> 18, word);
        doubt[k] = (uint8_t)((sum | ((sum & LOW) - 1)) >> 31);
    }
}

/* How many thresholds have first words below the magnitude. */
static int64_t thresholds_below(const Law *law, uint32_t magnitude) {
    const uint32_t entry = law->guide[cell_of(magnitude)];
    int64_t k = entry >> 31 ? entry & MAGNITUDE : entry >> 18;
    /* The entry of a threshold at the beginning of its cell counts it. */
    if (!(entry >> 31) && k > 0) k--;
    while (k < law->count && law->thresholds[4 * k] < magnitude) k++;
    return k;
}

static int ties(const Law *law, int64_t k, uint32_t magnitude) {
    return k < law->count && law->thresholds[4 * k] == magnitude;
}

static int is_at_most(const uint32_t *one, const uint32_t *other) {
    for (int i = 0; i < 3; i++)
        if (one[i] != other[i]) return one[i] < other[i];
    return 1;
}

/* Decide what the guide leaves in doubt for the words 4 block, 4 block + 1, ... of a row. Where a word ties, further ones
 * are those of the counter (its position, source, 0, tick) and the key `further`. */
static inline void decide(int32_t *restrict drawn, const uint8_t *restrict doubt, const uint32_t *restrict words,
                          const Law *law, uint32_t block, uint32_t source, uint32_t tick, uint64_t further) {
    for (int low = 0; low < 4 * BLOCKS; low += 8) {
        uint64_t any;
        memcpy(&any, doubt + low, sizeof any);
        for (int at = low; any && at < low + 8; at++) {
            if (!doubt[at]) continue;
            const uint32_t magnitude = words[at] & MAGNITUDE;
            int64_t k = thresholds_below(law, magnitude);
            if (ties(law, k, magnitude)) {
                uint32_t rest[4] = {4 * block + (uint32_t)at, source, 0, tick};
                philox_counter(rest, further);
                while (ties(law, k, magnitude) && is_at_most(law->thresholds + 4 * k + 1, rest)) k++;
            }
            drawn[at] = with_sign((uint32_t)k, words[at]);
        }
    }
}

/* out[i] += noise of source[e] for e in begin[i] .. begin[i + 1], for rows first <= i < last and columns from <= c < to,
 * where `from` is a multiple of four; sums wrap around. Without a factor, a number takes one word instead of two. */
#define DEFINE_INTEGERS(NAME, T, UNSIGNED)                                                                   \
    WIDE EXPORT void NAME(const uint32_t *guide, const uint32_t *thresholds, int64_t count, int64_t factor,  \
                          const int64_t *begin, const int64_t *source, int64_t tick, int64_t key,            \
                          int64_t further, T *out, int64_t stride, int64_t first, int64_t last, int64_t from, \
                          int64_t to) {                                                                      \
        const Law law = {guide, thresholds, count, (int32_t)factor};                                         \
        const int64_t each = factor ? 2 : 1, most = 4 * BLOCKS / each;                                       \
        uint32_t words[4 * BLOCKS];                                                                          \
        int32_t drawn[4 * BLOCKS];                                                                           \
        uint8_t doubt[4 * BLOCKS];                                                                           \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += most) {                                                \
                const int64_t n = to - low < most ? to - low : most;                                         \
                T *restrict row = out + i * stride + low;                                                    \
                for (int64_t e = begin[i]; e < begin[i + 1]; e++) {                                          \
                    const uint32_t block = (uint32_t)(each * low / 4), client = (uint32_t)source[e];         \
                    philox(words, block, client, 0, (uint32_t)tick, (uint64_t)key);                          \
                    draw_by_guide(drawn, doubt, words, guide);                                               \
                    decide(drawn, doubt, words, &law, block, client, (uint32_t)tick, (uint64_t)further);     \
                    if (factor)                                                                              \
                        for (int64_t k = 0; k < n; k++)                                                      \
                            row[k] = (T)((UNSIGNED)row[k] +                                                  \
                                         (UNSIGNED)(law.factor * drawn[2 * k] + drawn[2 * k + 1]));          \
                    else                                                                                     \
                        for (int64_t k = 0; k < n; k++) row[k] = (T)((UNSIGNED)row[k] + (UNSIGNED)drawn[k]); \
                }                                                                                            \
            }                                                                                                \
    }

DEFINE_INTEGERS(tacit_integers_i32, int32_t, uint32_t)
DEFINE_INTEGERS(tacit_integers_i64, int64_t, uint64_t)

/* The numbers that n or 2n words stand for; INT32_MIN where one of a number's words ties. */
WIDE EXPORT void tacit_integers_of_words(const uint32_t *guide, const uint32_t *thresholds, int64_t count,
                                         int64_t factor, const uint32_t *words, int32_t *out, int64_t n) {
    const Law law = {guide, thresholds, count, (int32_t)factor};
    const int64_t each = factor ? 2 : 1, most = 4 * BLOCKS / each;
    uint32_t part[4 * BLOCKS] = {0};
    int32_t drawn[4 * BLOCKS];
    uint8_t doubt[4 * BLOCKS];
    for (int64_t low = 0; low < n; low += most) {
        const int64_t size = n - low < most ? n - low : most;
        memcpy(part, words + each * low, (size_t)(each * size) * sizeof *words);
        draw_by_guide(drawn, doubt, part, guide);
        for (int64_t k = 0; k < size; k++) {
            int tied = 0;
            for (int64_t at = each * k; at < each * (k + 1); at++)
                if (doubt[at]) {
                    const uint32_t magnitude = part[at] & MAGNITUDE;
                    const int64_t below = thresholds_below(&law, magnitude);
                    drawn[at] = with_sign((uint32_t)below, part[at]);
                    tied |= ties(&law, below, magnitude);
                }
            const int32_t number = factor ? law.factor * drawn[2 * k] + drawn[2 * k + 1] : drawn[k];
            out[low + k] = tied ? INT32_MIN : number;
        }
    }
}

/* out[k] += the sum over rows of round(scale x[i][k]), ties to even, limited to +-limit, for columns from <= k < to. Sums
 * of integers below 2^53 are exact in any order. *largest becomes at least the largest magnitude before the limit. What
 * is not a number counts as the limit. */
#define DEFINE_ENCODED_SUM(NAME, T)                                                                          \
    WIDE EXPORT void NAME(const T *x, int64_t stride, int64_t rows, const double *scale, const double *limit, \
                          double *out, double *largest, int64_t from, int64_t to) {                          \
        const double s = *scale, most = *limit, shift = 0x1.8p52; /* beyond which doubles are integers */    \
        double peak[SUMS];                                                                                   \
        for (int64_t low = from; low < to; low += SUMS) {                                                    \
            const int64_t n = to - low < SUMS ? to - low : SUMS;                                             \
            double *restrict sum = out + low;                                                                \
            for (int64_t k = 0; k < SUMS; k++) peak[k] = 0;                                                  \
            for (int64_t i = 0; i < rows; i++) {                                                             \
                const T *restrict row = x + i * stride + low;                                                \
                for (int64_t k = 0; k < n; k++) {                                                            \
                    const double v = s * (double)row[k], size = v < 0 ? -v : v;                              \
                    const double above = v < most ? v : most, within = above > -most ? above : -most;        \
                    peak[k] = size > peak[k] ? size : peak[k];                                               \
                    sum[k] += (within + shift) - shift;                                                      \
                }                                                                                            \
            }                                                                                                \
            for (int64_t k = 0; k < n; k++) *largest = peak[k] > *largest ? peak[k] : *largest;              \
        }                                                                                                    \
    }

DEFINE_ENCODED_SUM(tacit_encoded_sum_f32, float)
DEFINE_ENCODED_SUM(tacit_encoded_sum_f64, double)

/* Gradients of single samples. These loops are written in vectors, which not every compiler knows. */
#if defined(__GNUC__)

/* Bytes of a vector, and the taps of a convolution whose gradients stay in registers, for four filters. */
#if defined(__x86_64__)
#define BYTES 32
#define TAPS 2
#else
#define BYTES 16
#define TAPS 4
#endif
#define FILTERS 4
/* Vectors of weights whose sums stay in registers, for four factors. */
#define COLUMNS 4
#define FACTORS 4

/* As above, with fused multiplications and additions. */
#if defined(__x86_64__) && defined(__linux__)
#define FUSED __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define FUSED
#endif

/* Copy the numbers of n samples to a vector; all of a vector in one move. */
#define COPY(TO, FROM, N, VECTOR) \
    ((N) * sizeof *(FROM) == sizeof(VECTOR) ? memcpy(TO, FROM, sizeof(VECTOR)) : memcpy(TO, FROM, (N) * sizeof *(FROM)))

/* A convolution of images with channels x height x width pixels. */
typedef struct {
    int64_t channels, height, width, kernel_height, kernel_width, down, across, dilation_down, dilation_across, rows,
        columns, filters, bias;
} Geometry;

/* The gradient of each sample by the filters and b of a convolution: sample i is row i of out, and the sum of its
 * squares is squares[i]. The batch is the last dimension of the images x [channels, height, width, batch] and of dy
 * [filters, rows, columns, batch], so each vector holds one number of several samples. `scratch` has room for the
 * images, dy and the gradients by four filters of one such group of samples, and for an offset per tap. */
#define DEFINE_FILTER_GRADIENTS(NAME, T)                                                                     \
    FUSED EXPORT void NAME(const T *x, const T *dy, int64_t batch, const Geometry *g, T *out, int64_t stride,\
                           double *squares, T *scratch) {                                                    \
        enum { LANES_OF_T = BYTES / sizeof(T) };                                                             \
        typedef T Vector __attribute__((vector_size(BYTES)));                                                \
        typedef double Doubles __attribute__((vector_size(LANES_OF_T * 8)));                                 \
        const int64_t pixels = g->channels * g->height * g->width, positions = g->rows * g->columns;         \
        const int64_t area = g->kernel_height * g->kernel_width, taps = g->channels * area;                  \
        const int64_t padded = (taps + TAPS - 1) / TAPS * TAPS;                                              \
        Vector *image = (Vector *)scratch, *gradient = image + pixels, *strip = gradient + g->filters * positions;\
        int64_t *offset = (int64_t *)(strip + FILTERS * padded);                                             \
        for (int64_t t = 0; t < padded; t++) {                                                               \
            const int64_t tap = t < taps ? t : taps - 1, within = tap % area;                                \
            const int64_t row = within / g->kernel_width * g->dilation_down;                                 \
            offset[t] = (tap / area * g->height + row) * g->width + within % g->kernel_width * g->dilation_across;\
        }                                                                                                    \
        for (int64_t b = 0; b < batch; b += LANES_OF_T) {                                                    \
            const int64_t n = batch - b < LANES_OF_T ? batch - b : LANES_OF_T;                               \
            if (n < LANES_OF_T) memset(scratch, 0, (pixels + g->filters * positions) * sizeof(Vector));      \
            for (int64_t p = 0; p < pixels; p++) COPY(image + p, x + p * batch + b, n, Vector);              \
            for (int64_t p = 0; p < g->filters * positions; p++)                                             \
                COPY(gradient + p, dy + p * batch + b, n, Vector);                                           \
            Doubles total[4] = {{0}};                                                                        \
            for (int64_t f = 0; f < g->filters; f += FILTERS) {                                              \
                const Vector *d[FILTERS];                                                                    \
                for (int64_t i = 0; i < FILTERS; i++)                                                        \
                    d[i] = gradient + (f + i < g->filters ? f + i : g->filters - 1) * positions;             \
                for (int64_t t = 0; t < padded; t += TAPS) {                                                 \
                    const Vector *w[TAPS];                                                                   \
                    for (int j = 0; j < TAPS; j++) w[j] = image + offset[t + j];                             \
                    Vector sum[FILTERS][TAPS] = {{{0}}};                                                     \
                    for (int64_t row = 0, at = 0; row < g->rows; row++)                                      \
                        for (int64_t k = 0, from = row * g->down * g->width; k < g->columns;                 \
                             k++, at++, from += g->across) {                                                 \
                            Vector u[FILTERS], v[TAPS];                                                      \
                            for (int i = 0; i < FILTERS; i++) u[i] = d[i][at];                               \
                            for (int j = 0; j < TAPS; j++) v[j] = w[j][from];                                \
                            for (int i = 0; i < FILTERS; i++)                                                \
                                for (int j = 0; j < TAPS; j++) sum[i][j] += u[i] * v[j];                     \
                        }                                                                                    \
                    for (int i = 0; i < FILTERS; i++)                                                        \
                        for (int j = 0; j < TAPS; j++) strip[i * padded + t + j] = sum[i][j];                \
                }                                                                                            \
                for (int64_t i = 0; i < FILTERS && f + i < g->filters; i++) {                                \
                    const Vector *found = strip + i * padded;                                                \
                    int64_t t = 0;                                                                           \
                    for (; t + 4 <= taps; t += 4)                                                            \
                        for (int j = 0; j < 4; j++) {                                                        \
                            const Doubles number = __builtin_convertvector(found[t + j], Doubles);           \
                            total[j] += number * number;                                                     \
                        }                                                                                    \
                    for (; t < taps; t++) {                                                                  \
                        const Doubles number = __builtin_convertvector(found[t], Doubles);                   \
                        total[0] += number * number;                                                         \
                    }                                                                                        \
                    T *o = out + b * stride + (f + i) * taps;                                                \
                    if (n == LANES_OF_T)                                                                     \
                        for (t = 0; t < taps; t++)                                                           \
                            for (int lane = 0; lane < LANES_OF_T; lane++) o[lane * stride + t] = found[t][lane];\
                    else                                                                                     \
                        for (t = 0; t < taps; t++)                                                           \
                            for (int lane = 0; lane < n; lane++) o[lane * stride + t] = found[t][lane];      \
                }                                                                                            \
            }                                                                                                \
            for (int64_t f = 0; f < g->filters && g->bias; f++) {                                            \
                Vector sum = {0};                                                                            \
                for (int64_t p = 0; p < positions; p++) sum += gradient[f * positions + p];                  \
                const Doubles number = __builtin_convertvector(sum, Doubles);                                \
                total[0] += number * number;                                                                 \
                for (int64_t lane = 0; lane < n; lane++)                                                     \
                    out[(b + lane) * stride + g->filters * taps + f] = sum[lane];                            \
            }                                                                                                \
            total[0] = (total[0] + total[1]) + (total[2] + total[3]);                                        \
            for (int64_t lane = 0; lane < n; lane++) squares[b + lane] = total[0][lane];                     \
        }                                                                                                    \
    }

DEFINE_FILTER_GRADIENTS(tacit_filter_gradients_f32, float)
DEFINE_FILTER_GRADIENTS(tacit_filter_gradients_f64, double)

/* Sums of samples are added in double, also of floats: what a sample changes in a sum is then bounded by its own size,
 * up to one rounding of the sum. Columns at a time, whose sums fit into the cache. */
#define SUMMED 1024

/* out[0 .. width] = sum over b < n of left[b] right[b], for one number left[b]. */
#define DEFINE_WEIGHTED_SUM(NAME, T)                                                                         \
    static inline void NAME(const T *left, int64_t left_stride, const T *right, int64_t right_stride, int64_t n,\
                            T *out, int64_t width) {                                                         \
        double o[SUMMED];                                                                                    \
        for (int64_t low = 0; low < width; low += SUMMED) {                                                  \
            const int64_t some = width - low < SUMMED ? width - low : SUMMED;                                \
            int64_t b = 0;                                                                                   \
            memset(o, 0, some * sizeof(double));                                                             \
            for (; b + 4 <= n; b += 4) {                                                                     \
                const double p = left[b * left_stride], q = left[(b + 1) * left_stride],                     \
                             r = left[(b + 2) * left_stride], s = left[(b + 3) * left_stride];               \
                const T *u = right + b * right_stride + low, *v = u + right_stride, *w = v + right_stride,   \
                        *x = w + right_stride;                                                               \
                for (int64_t k = 0; k < some; k++) o[k] += (p * u[k] + q * v[k]) + (r * w[k] + s * x[k]);    \
            }                                                                                                \
            for (; b < n; b++) {                                                                             \
                const T *u = right + b * right_stride + low;                                                 \
                const double p = left[b * left_stride];                                                      \
                for (int64_t k = 0; k < some; k++) o[k] += p * u[k];                                         \
            }                                                                                                \
            for (int64_t k = 0; k < some; k++) out[low + k] = (T)o[k];                                       \
        }                                                                                                    \
    }

DEFINE_WEIGHTED_SUM(weighted_sum_f32, float)
DEFINE_WEIGHTED_SUM(weighted_sum_f64, double)

/* out[i] = sum over bounds[i] <= b < bounds[i + 1] of the outer product of left[b] and right[b], for i < n. */
#define DEFINE_OUTER_SUMS(NAME, WEIGHTED_SUM, T)                                                             \
    FUSED EXPORT void NAME(const T *left, int64_t left_stride, int64_t factors, const T *right,              \
                           int64_t right_stride, int64_t width, const int64_t *bounds, int64_t n, T *out,    \
                           int64_t stride) {                                                                 \
        enum { LANES_OF_SUM = BYTES / sizeof(double), TILE_OF_SUM = COLUMNS * LANES_OF_SUM };                \
        typedef double Sum __attribute__((vector_size(BYTES)));                                              \
        typedef T Few __attribute__((vector_size(LANES_OF_SUM * sizeof(T)), aligned(sizeof(T))));            \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            const int64_t first = bounds[i], last = bounds[i + 1];                                           \
            T *row = out + i * stride;                                                                       \
            int64_t f = factors == 1 ? 0 : factors / FACTORS * FACTORS;                                      \
            for (int64_t g = 0; g < f; g += FACTORS) {                                                       \
                int64_t k = 0;                                                                               \
                for (; k + TILE_OF_SUM <= width; k += TILE_OF_SUM) {                                         \
                    Sum sum[FACTORS][COLUMNS] = {{{0}}};                                                     \
                    for (int64_t b = first; b < last; b++) {                                                 \
                        const T *l = left + b * left_stride + g;                                             \
                        const Few *r = (const Few *)(right + b * right_stride + k);                          \
                        Sum v[COLUMNS];                                                                      \
                        for (int j = 0; j < COLUMNS; j++) v[j] = __builtin_convertvector(r[j], Sum);         \
                        for (int j = 0; j < FACTORS; j++)                                                    \
                            for (int c = 0; c < COLUMNS; c++) sum[j][c] += (double)l[j] * v[c];              \
                    }                                                                                        \
                    for (int j = 0; j < FACTORS; j++)                                                        \
                        for (int c = 0; c < COLUMNS; c++)                                                    \
                            *(Few *)(row + (g + j) * width + k + c * LANES_OF_SUM) =                         \
                                __builtin_convertvector(sum[j][c], Few);                                     \
                }                                                                                            \
                for (int j = 0; j < FACTORS && k < width; j++)                                               \
                    WEIGHTED_SUM(left + first * left_stride + g + j, left_stride,                            \
                                 right + first * right_stride + k, right_stride, last - first,               \
                                 row + (g + j) * width + k, width - k);                                      \
            }                                                                                                \
            for (; f < factors; f++)                                                                         \
                WEIGHTED_SUM(left + first * left_stride + f, left_stride, right + first * right_stride,      \
                             right_stride, last - first, row + f * width, width);                            \
        }                                                                                                    \
    }

DEFINE_OUTER_SUMS(tacit_outer_sums_f32, weighted_sum_f32, float)
DEFINE_OUTER_SUMS(tacit_outer_sums_f64, weighted_sum_f64, double)

#endif

/* The largest magnitude, as the bits of a number: those of NaN and infinity are larger than all others. */
#define DEFINE_LARGEST(NAME, BITS)                                                                           \
    WIDE EXPORT void NAME(const BITS *restrict x, int64_t count, BITS *restrict out) {                       \
        BITS largest = 0;                                                                                    \
        for (int64_t k = 0; k < count; k++) {                                                                \
            const BITS magnitude = x[k] << 1 >> 1;                                                           \
            largest = magnitude > largest ? magnitude : largest;                                             \
        }                                                                                                    \
        *out = largest;                                                                                      \
    }

DEFINE_LARGEST(tacit_largest_f32, uint32_t)
DEFINE_LARGEST(tacit_largest_f64, uint64_t)

/* An empty module, so that the file is built, found and shipped like any extension. */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, NULL, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
