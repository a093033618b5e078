/* Weighted sums and checks of rows. */
#define pair FOR_TYPE(pair)
#define pair_terms FOR_TYPE(pair_terms)
#define add_terms FOR_TYPE(add_terms)
#define is_finite FOR_TYPE(is_finite)
#define stream FOR_TARGET(stream)
#define stream_pair FOR_TYPE(stream_pair)

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
static inline void pair(T *restrict one, T *restrict next, const T *a, const T *b, const T *c, const T *d,
                        const T *weight, int64_t n) {
    const T u = weight[0], v = weight[1], w = weight[2], p = weight[3], q = weight[4], r = weight[5];
    for (int64_t k = 0; k < n; k++) {
        const T left = b[k], right = c[k];
        one[k] = u * a[k] + v * left + w * right;
        next[k] = p * left + q * right + r * d[k];
    }
}

/* sum + a x with one rounding where the target can, as torch's own addition does on every processor: on x86-64 both
 * round the product without FMA, and do not with AVX2 or AVX-512. */
#undef PLUS
#if HAS_FMA && SINGLE
#define PLUS(SUM, A, X) __builtin_fmaf(A, X, SUM)
#elif HAS_FMA
#define PLUS(SUM, A, X) __builtin_fma(A, X, SUM)
#else
#define PLUS(SUM, A, X) ((SUM) + (A) * (X))
#endif

/* out = sum + a x, and then + b y if there is a y. `out` may be any of the others. */
static inline void add_terms(T *out, const T *sum, T a, const T *x, T b, const T *y, int64_t n) {
    if (y)
        SAME_PLACE for (int64_t k = 0; k < n; k++) out[k] = PLUS(PLUS(sum[k], a, x[k]), b, y[k]);
    else
        SAME_PLACE for (int64_t k = 0; k < n; k++) out[k] = PLUS(sum[k], a, x[k]);
}

/* As a pair, plus the terms of both rows: p y and, if there is a z, q z. `one` and `next` may be rows of y or z. */
static inline void pair_terms(T *one, T *next, const T *a, const T *b, const T *c, const T *d, const T *weight,
                              T s, const T *y, const T *y_next, T t, const T *z, const T *z_next, int64_t n) {
    const T u = weight[0], v = weight[1], w = weight[2], p = weight[3], q = weight[4], r = weight[5];
    if (z)
        SAME_PLACE for (int64_t k = 0; k < n; k++) {
            const T left = b[k], right = c[k];
            one[k] = PLUS(PLUS(u * a[k] + v * left + w * right, s, y[k]), t, z[k]);
            next[k] = PLUS(PLUS(p * left + q * right + r * d[k], s, y_next[k]), t, z_next[k]);
        }
    else
        SAME_PLACE for (int64_t k = 0; k < n; k++) {
            const T left = b[k], right = c[k];
            one[k] = PLUS(u * a[k] + v * left + w * right, s, y[k]);
            next[k] = PLUS(p * left + q * right + r * d[k], s, y_next[k]);
        }
}

/* Whether all numbers are finite: without the sign, the bits of infinity and NaN are at least those of infinity. */
static inline int is_finite(const T *numbers, int64_t n) {
    const Bits magnitude = (Bits)-1 >> 1;
    Bits largest[LANES] = {0}, number;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int64_t j = 0; j < LANES; j++) {
            memcpy(&number, numbers + k + j, sizeof number);
            number &= magnitude;
            largest[j] = number > largest[j] ? number : largest[j];
        }
    for (; k < n; k++) {
        memcpy(&number, numbers + k, sizeof number);
        number &= magnitude;
        largest[0] = number > largest[0] ? number : largest[0];
    }
    for (int64_t j = 1; j < LANES; j++) largest[0] = largest[j] > largest[0] ? largest[j] : largest[0];
    return largest[0] < INFINITE;
}

#if SINGLE
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
#endif

/* Two neighbours on a ring with their terms, if there are any, streamed in pieces that are computed in the nearest
 * cache. bad_one and bad_next, if there are any, become 1 if a number is not finite. */
static inline void stream_pair(T *one, T *next, const T *a, const T *b, const T *c, const T *d, const T *weight,
                               T s, const T *y, const T *y_next, T t, const T *z, const T *z_next, int64_t n,
                               uint8_t *bad_one, uint8_t *bad_next) {
    T first[PIECE], second[PIECE];
    for (int64_t k = 0; k < n; k += PIECE) {
        const int64_t some = n - k < PIECE ? n - k : PIECE;
        if (y)
            pair_terms(first, second, a + k, b + k, c + k, d + k, weight, s, y + k, y_next + k, t,
                       z ? z + k : z, z ? z_next + k : z, some);
        else
            pair(first, second, a + k, b + k, c + k, d + k, weight, some);
        if (bad_one) *bad_one |= !is_finite(first, some);
        if (bad_next) *bad_next |= !is_finite(second, some);
        stream(one + k, first, some * (int64_t)sizeof(T));
        stream(next + k, second, some * (int64_t)sizeof(T));
    }
}

/* out[i] = sum over e in begin[i] .. begin[i + 1] of weight[e] x[source[e]], for first <= i < last;
 * with `onto`, added to out[i]. With a y, + p y[i], and with a z, + q z[i]; then `out` may be y or z, and `onto` must be
 * zero. If there is a `bad`, bad[i] = whether out[i] has an infinity or NaN, found while it is in a near cache. */
LOOP(tacit_mix)(const int64_t *begin, const int64_t *source, const T *weight, const T *x,
                int64_t x_stride, T *out, int64_t out_stride, int64_t first, int64_t last,
                int64_t width, int64_t onto, const double *p, const T *y, int64_t y_stride, const double *q,
                const T *z, int64_t z_stride, uint8_t *bad) {
    const int64_t tiles = (width + TILE - 1) / TILE;
    const int streams = !onto && out != y && out != z && STREAMS((last - first) * width * (int64_t)sizeof(T));
    T sums[TILE];
    if (bad) memset(bad + first, 0, (size_t)(last - first));
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t low = width * tile / tiles, n = width * (tile + 1) / tiles - low;
        for (int64_t i = first; i < last; i++) {
            T *const row = out + i * out_stride + low, *restrict const o = y || streams ? sums : row;
            const T *y_row = y ? y + i * y_stride + low : y, *z_row = z ? z + i * z_stride + low : z;
            int64_t e = begin[i];
            const int64_t end = begin[i + 1];
            if (!onto && end - e >= 3) {
                const T *a = x + source[e] * x_stride + low, *b = x + source[e + 1] * x_stride + low,
                        *c = x + source[e + 2] * x_stride + low;
                const T u = weight[e], v = weight[e + 1], w = weight[e + 2];
                if (end - e == 3 && i + 1 < last && begin[i + 2] - end == 3 &&
                    source[end] == source[e + 1] && source[end + 1] == source[e + 2]) {
                    const T *d = x + source[end + 2] * x_stride + low;
                    const T *y_next = y ? y_row + y_stride : y, *z_next = z ? z_row + z_stride : z;
                    T *const next = row + out_stride;
                    if (streams) {
                        stream_pair(row, next, a, b, c, d, weight + e, (T)*p, y_row, y_next, (T)*q, z_row, z_next, n,
                                    bad ? bad + i : bad, bad ? bad + i + 1 : bad);
                        i++;
                        continue;
                    }
                    if (y)
                        pair_terms(row, next, a, b, c, d, weight + e, (T)*p, y_row, y_next, (T)*q, z_row, z_next, n);
                    else
                        pair(row, next, a, b, c, d, weight + e, n);
                    if (bad) {
                        bad[i] |= !is_finite(row, n);
                        bad[i + 1] |= !is_finite(next, n);
                    }
                    i++;
                    continue;
                }
                for (int64_t k = 0; k < n; k++) o[k] = u * a[k] + v * b[k] + w * c[k];
                e += 3;
            } else if (!onto && e < end) {
                const T *a = x + source[e] * x_stride + low;
                const T u = weight[e];
                for (int64_t k = 0; k < n; k++) o[k] = u * a[k];
                e += 1;
            } else if (!onto) {
                for (int64_t k = 0; k < n; k++) o[k] = 0;
            }
            for (; e + 1 < end; e += 2) {
                const T *a = x + source[e] * x_stride + low, *b = x + source[e + 1] * x_stride + low;
                const T u = weight[e], v = weight[e + 1];
                for (int64_t k = 0; k < n; k++) o[k] += u * a[k] + v * b[k];
            }
            if (e < end) {
                const T *a = x + source[e] * x_stride + low;
                const T u = weight[e];
                for (int64_t k = 0; k < n; k++) o[k] += u * a[k];
            }
            T *const done = streams ? sums : row;
            if (y) add_terms(done, o, (T)*p, y_row, (T)*q, z_row, n);
            if (bad) bad[i] |= !is_finite(done, n);
            if (streams) stream(row, sums, n * (int64_t)sizeof(T));
        }
    }
    if (streams) AFTER_STREAMS();
}

/* out[i] += a x[i], and then b y[i] if there is a y, for rows first <= i < last. */
LOOP(tacit_add)(T *out, int64_t out_stride, const double *a, const T *x, int64_t x_stride,
                const double *b, const T *y, int64_t y_stride, int64_t first, int64_t last,
                int64_t width) {
    for (int64_t i = first; i < last; i++) {
        T *o = out + i * out_stride;
        const T *u = x + i * x_stride, *v = y ? y + i * y_stride : y;
        add_terms(o, o, (T)*a, u, (T)*b, v, width);
    }
}

/* bad[i] = whether row i has an infinity or NaN. */
LOOP(tacit_not_finite)(const T *x, int64_t stride, uint8_t *bad, int64_t first, int64_t last, int64_t width) {
    for (int64_t i = first; i < last; i++) bad[i] = !is_finite(x + i * stride, width);
}

/* out[k] += the sum over rows of round(scale x[i][k]), ties to even, limited to +-limit, for columns from <= k < to. Sums
 * of integers below 2^53 are exact in any order. *largest becomes at least the largest magnitude before the limit. What
 * is not a number counts as the limit. */
LOOP(tacit_encoded_sum)(const T *x, int64_t stride, int64_t rows, const double *scale, const double *limit,
                        double *out, double *largest, int64_t from, int64_t to) {
    const double s = *scale, most = *limit, shift = 0x1.8p52; /* beyond which doubles are integers */
    double peak[SUMS];
    for (int64_t low = from; low < to; low += SUMS) {
        const int64_t n = to - low < SUMS ? to - low : SUMS;
        double *restrict sum = out + low;
        for (int64_t k = 0; k < SUMS; k++) peak[k] = 0;
        for (int64_t i = 0; i < rows; i++) {
            const T *restrict row = x + i * stride + low;
            for (int64_t k = 0; k < n; k++) {
                const double v = s * (double)row[k], size = v < 0 ? -v : v;
                const double above = v < most ? v : most, within = above > -most ? above : -most;
                peak[k] = size > peak[k] ? size : peak[k];
                sum[k] += (within + shift) - shift;
            }
        }
        for (int64_t k = 0; k < n; k++) *largest = peak[k] > *largest ? peak[k] : *largest;
    }
}

