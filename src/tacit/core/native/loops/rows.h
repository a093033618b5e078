/* Weighted sums and checks of rows. */
#define pair_f32 FOR_TARGET(pair_f32)
#define pair_f64 FOR_TARGET(pair_f64)
#define pair_terms_f32 FOR_TARGET(pair_terms_f32)
#define pair_terms_f64 FOR_TARGET(pair_terms_f64)
#define terms_f32 FOR_TARGET(terms_f32)
#define terms_f64 FOR_TARGET(terms_f64)
#define is_finite_f32 FOR_TARGET(is_finite_f32)
#define is_finite_f64 FOR_TARGET(is_finite_f64)
#define stream FOR_TARGET(stream)
#define stream_pair_f32 FOR_TARGET(stream_pair_f32)
#define stream_pair_f64 FOR_TARGET(stream_pair_f64)

/* Numbers of a row at a time, so that what is read twice stays in a near cache. */
#define TILE 12544
/* Numbers of two rows at a time, so that they stay in the nearest cache; bytes from which on rows are streamed. */
#define PIECE 1024
#define STREAMED (1 << 22)
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

/* sum + a x with one rounding where the target can, as torch's own addition does on every processor: on x86-64 both
 * round the product without FMA, and do not with AVX2 or AVX-512. */
#undef PLUS_f32
#undef PLUS_f64
#if HAS_FMA
#define PLUS_f32(SUM, A, X) __builtin_fmaf(A, X, SUM)
#define PLUS_f64(SUM, A, X) __builtin_fma(A, X, SUM)
#else
#define PLUS_f32(SUM, A, X) ((SUM) + (A) * (X))
#define PLUS_f64(SUM, A, X) ((SUM) + (A) * (X))
#endif

/* out = sum + a x, and then + b y if there is a y. `out` may be any of the others. */
#define DEFINE_TERMS(NAME, T, PLUS)                                                                          \
    static inline void NAME(T *out, const T *sum, T a, const T *x, T b, const T *y, int64_t n) {             \
        if (y)                                                                                               \
            SAME_PLACE for (int64_t k = 0; k < n; k++) out[k] = PLUS(PLUS(sum[k], a, x[k]), b, y[k]);        \
        else                                                                                                 \
            SAME_PLACE for (int64_t k = 0; k < n; k++) out[k] = PLUS(sum[k], a, x[k]);                       \
    }

DEFINE_TERMS(terms_f32, float, PLUS_f32)
DEFINE_TERMS(terms_f64, double, PLUS_f64)

/* As a pair, plus the terms of both rows: p y and, if there is a z, q z. `one` and `next` may be rows of y or z. */
#define DEFINE_PAIR_TERMS(NAME, T, PLUS)                                                                    \
    static inline void NAME(T *one, T *next, const T *a, const T *b, const T *c, const T *d, const T *weight,\
                            T s, const T *y, const T *y_next, T t, const T *z, const T *z_next, int64_t n) {\
        const T u = weight[0], v = weight[1], w = weight[2], p = weight[3], q = weight[4], r = weight[5];   \
        if (z)                                                                                              \
            SAME_PLACE for (int64_t k = 0; k < n; k++) {                                                    \
                const T left = b[k], right = c[k];                                                          \
                one[k] = PLUS(PLUS(u * a[k] + v * left + w * right, s, y[k]), t, z[k]);                     \
                next[k] = PLUS(PLUS(p * left + q * right + r * d[k], s, y_next[k]), t, z_next[k]);          \
            }                                                                                               \
        else                                                                                                \
            SAME_PLACE for (int64_t k = 0; k < n; k++) {                                                    \
                const T left = b[k], right = c[k];                                                          \
                one[k] = PLUS(u * a[k] + v * left + w * right, s, y[k]);                                    \
                next[k] = PLUS(p * left + q * right + r * d[k], s, y_next[k]);                              \
            }                                                                                               \
    }

DEFINE_PAIR_TERMS(pair_terms_f32, float, PLUS_f32)
DEFINE_PAIR_TERMS(pair_terms_f64, double, PLUS_f64)

/* Whether all numbers are finite: without the sign, the bits of infinity and NaN are at least those of infinity. */
#define DEFINE_IS_FINITE(NAME, T, BITS, MAGNITUDE, INFINITE)                                                 \
    static inline int NAME(const T *numbers, int64_t n) {                                                    \
        BITS largest[LANES] = {0}, number;                                                                   \
        int64_t k = 0;                                                                                       \
        for (; k + LANES <= n; k += LANES)                                                                   \
            for (int64_t j = 0; j < LANES; j++) {                                                            \
                memcpy(&number, numbers + k + j, sizeof number);                                             \
                number &= MAGNITUDE;                                                                         \
                largest[j] = number > largest[j] ? number : largest[j];                                      \
            }                                                                                                \
        for (; k < n; k++) {                                                                                 \
            memcpy(&number, numbers + k, sizeof number);                                                     \
            number &= MAGNITUDE;                                                                             \
            largest[0] = number > largest[0] ? number : largest[0];                                          \
        }                                                                                                    \
        for (int64_t j = 1; j < LANES; j++) largest[0] = largest[j] > largest[0] ? largest[j] : largest[0];  \
        return largest[0] < INFINITE;                                                                        \
    }

DEFINE_IS_FINITE(is_finite_f32, float, uint32_t, 0x7FFFFFFFu, 0x7F800000u)
DEFINE_IS_FINITE(is_finite_f64, double, uint64_t, 0x7FFFFFFFFFFFFFFFu, 0x7FF0000000000000u)

/* Writes that pass the caches by, where a processor would first read what is overwritten. */
#undef STREAM_VECTOR
#if defined(__x86_64__) && defined(__GNUC__)
#if VECTOR_BYTES == 64
#define STREAM_VECTOR(OUT, FROM) _mm512_stream_si512((void *)(OUT), _mm512_loadu_si512((const void *)(FROM)))
#elif VECTOR_BYTES == 32
#define STREAM_VECTOR(OUT, FROM) _mm256_stream_si256((__m256i *)(OUT), _mm256_loadu_si256((const __m256i *)(FROM)))
#else
#define STREAM_VECTOR(OUT, FROM) _mm_stream_si128((__m128i *)(OUT), _mm_loadu_si128((const __m128i *)(FROM)))
#endif
#define STREAMS(BYTES) ((BYTES) >= STREAMED)
#define AFTER_STREAMS() _mm_sfence()
#else
#define STREAM_VECTOR(OUT, FROM) memcpy(OUT, FROM, VECTOR_BYTES)
#define STREAMS(BYTES) 0
#define AFTER_STREAMS() (void)0
#endif

static inline void stream(void *out, const void *from, int64_t bytes) {
    char *to = out;
    const char *at = from;
    int64_t k = -(intptr_t)to & (VECTOR_BYTES - 1);
    k = k < bytes ? k : bytes;
    memcpy(to, at, (size_t)k);
    for (; k + VECTOR_BYTES <= bytes; k += VECTOR_BYTES) STREAM_VECTOR(to + k, at + k);
    memcpy(to + k, at + k, (size_t)(bytes - k));
}

/* Two neighbours on a ring with their terms, if there are any, streamed in pieces that are computed in the nearest
 * cache. bad_one and bad_next, if there are any, become 1 if a number is not finite. */
#define DEFINE_STREAM_PAIR(NAME, PAIR, PAIR_TERMS, IS_FINITE, T)                                            \
    static inline void NAME(T *one, T *next, const T *a, const T *b, const T *c, const T *d, const T *weight,\
                            T s, const T *y, const T *y_next, T t, const T *z, const T *z_next, int64_t n,  \
                            uint8_t *bad_one, uint8_t *bad_next) {                                          \
        T first[PIECE], second[PIECE];                                                                      \
        for (int64_t k = 0; k < n; k += PIECE) {                                                            \
            const int64_t some = n - k < PIECE ? n - k : PIECE;                                             \
            if (y)                                                                                          \
                PAIR_TERMS(first, second, a + k, b + k, c + k, d + k, weight, s, y + k, y_next + k, t,      \
                           z ? z + k : z, z ? z_next + k : z, some);                                        \
            else                                                                                            \
                PAIR(first, second, a + k, b + k, c + k, d + k, weight, some);                              \
            if (bad_one) *bad_one |= !IS_FINITE(first, some);                                               \
            if (bad_next) *bad_next |= !IS_FINITE(second, some);                                            \
            stream(one + k, first, some * (int64_t)sizeof(T));                                              \
            stream(next + k, second, some * (int64_t)sizeof(T));                                            \
        }                                                                                                   \
    }

DEFINE_STREAM_PAIR(stream_pair_f32, pair_f32, pair_terms_f32, is_finite_f32, float)
DEFINE_STREAM_PAIR(stream_pair_f64, pair_f64, pair_terms_f64, is_finite_f64, double)

/* out[i] = sum over e in begin[i] .. begin[i + 1] of weight[e] x[source[e]], for first <= i < last;
 * with `onto`, added to out[i]. With a y, + p y[i], and with a z, + q z[i]; then `out` may be y or z, and `onto` must be
 * zero. If there is a `bad`, bad[i] = whether out[i] has an infinity or NaN, found while it is in a near cache. */
#define DEFINE_MIX(NAME, PAIR, PAIR_TERMS, STREAM_PAIR, TERMS, IS_FINITE, T)                                \
    LOOP(NAME)(const int64_t *begin, const int64_t *source, const T *weight, const T *x,                    \
                          int64_t x_stride, T *out, int64_t out_stride, int64_t first, int64_t last,        \
               int64_t width, int64_t onto, const double *p, const T *y, int64_t y_stride, const double *q, \
               const T *z, int64_t z_stride, uint8_t *bad) {                                                \
        const int64_t tiles = (width + TILE - 1) / TILE;                                                    \
        const int streams = !onto && out != y && out != z && STREAMS((last - first) * width * (int64_t)sizeof(T));\
        T sums[TILE];                                                                                       \
        if (bad) memset(bad + first, 0, (size_t)(last - first));                                            \
        for (int64_t tile = 0; tile < tiles; tile++) {                                                      \
            const int64_t low = width * tile / tiles, n = width * (tile + 1) / tiles - low;                 \
            for (int64_t i = first; i < last; i++) {                                                        \
                T *const row = out + i * out_stride + low, *restrict const o = y || streams ? sums : row;   \
                int64_t e = begin[i];                                                                       \
                const int64_t end = begin[i + 1];                                                           \
                if (!onto && end - e >= 3) {                                                                \
                    const T *a = x + source[e] * x_stride + low, *b = x + source[e + 1] * x_stride + low,   \
                            *c = x + source[e + 2] * x_stride + low;                                        \
                    const T u = weight[e], v = weight[e + 1], w = weight[e + 2];                            \
                    if (end - e == 3 && i + 1 < last && begin[i + 2] - end == 3 &&                          \
                        source[end] == source[e + 1] && source[end + 1] == source[e + 2]) {                 \
                        const T *d = x + source[end + 2] * x_stride + low;                                  \
                        if (streams) {                                                                      \
                            STREAM_PAIR(row, row + out_stride, a, b, c, d, weight + e, (T)*p, y ? y + i * y_stride + low : y,\
                                        y ? y + (i + 1) * y_stride + low : y, (T)*q, z ? z + i * z_stride + low : z,\
                                        z ? z + (i + 1) * z_stride + low : z, n, bad ? bad + i : bad,       \
                                        bad ? bad + i + 1 : bad);                                           \
                            i++;                                                                            \
                            continue;                                                                       \
                        }                                                                                   \
                        if (y)                                                                              \
                            PAIR_TERMS(row, row + out_stride, a, b, c, d, weight + e, (T)*p, y + i * y_stride + low,\
                                       y + (i + 1) * y_stride + low, (T)*q, z ? z + i * z_stride + low : z, \
                                       z ? z + (i + 1) * z_stride + low : z, n);                            \
                        else                                                                                \
                            PAIR(row, row + out_stride, a, b, c, d, weight + e, n);                         \
                        if (bad) {                                                                          \
                            bad[i] |= !IS_FINITE(row, n);                                                   \
                            bad[i + 1] |= !IS_FINITE(row + out_stride, n);                                  \
                        }                                                                                   \
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
                T *const done = streams ? sums : row;                                                       \
                if (y)                                                                                      \
                    TERMS(done, o, (T)*p, y + i * y_stride + low, (T)*q, z ? z + i * z_stride + low : z, n);\
                if (bad) bad[i] |= !IS_FINITE(done, n);                                                     \
                if (streams) stream(row, sums, n * (int64_t)sizeof(T));                                     \
            }                                                                                               \
        }                                                                                                   \
        if (streams) AFTER_STREAMS();                                                                       \
    }

DEFINE_MIX(tacit_mix_f32, pair_f32, pair_terms_f32, stream_pair_f32, terms_f32, is_finite_f32, float)
DEFINE_MIX(tacit_mix_f64, pair_f64, pair_terms_f64, stream_pair_f64, terms_f64, is_finite_f64, double)

/* out[i] += a x[i], and then b y[i] if there is a y, for rows first <= i < last. */
#define DEFINE_ADD(NAME, TERMS, T)                                                                           \
    LOOP(NAME)(T *out, int64_t out_stride, const double *a, const T *x, int64_t x_stride,         \
                          const double *b, const T *y, int64_t y_stride, int64_t first, int64_t last,        \
                          int64_t width) {                                                                   \
        for (int64_t i = first; i < last; i++) {                                                             \
            T *o = out + i * out_stride;                                                                     \
            const T *u = x + i * x_stride, *v = y ? y + i * y_stride : y;                                    \
            TERMS(o, o, (T)*a, u, (T)*b, v, width);                                                          \
        }                                                                                                    \
    }

DEFINE_ADD(tacit_add_f32, terms_f32, float)
DEFINE_ADD(tacit_add_f64, terms_f64, double)

/* bad[i] = whether row i has an infinity or NaN. */
#define DEFINE_NOT_FINITE(NAME, IS_FINITE, T)                                                                \
    LOOP(NAME)(const T *x, int64_t stride, uint8_t *bad, int64_t first, int64_t last, int64_t width) {       \
        for (int64_t i = first; i < last; i++) bad[i] = !IS_FINITE(x + i * stride, width);                   \
    }

DEFINE_NOT_FINITE(tacit_not_finite_f32, is_finite_f32, float)
DEFINE_NOT_FINITE(tacit_not_finite_f64, is_finite_f64, double)

/* out[k] += the sum over rows of round(scale x[i][k]), ties to even, limited to +-limit, for columns from <= k < to. Sums
 * of integers below 2^53 are exact in any order. *largest becomes at least the largest magnitude before the limit. What
 * is not a number counts as the limit. */
#define DEFINE_ENCODED_SUM(NAME, T)                                                                          \
    LOOP(NAME)(const T *x, int64_t stride, int64_t rows, const double *scale, const double *limit, \
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
