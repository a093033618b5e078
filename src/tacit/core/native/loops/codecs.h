/* Codecs: see compression/quantization.py and compression/subsets.py, whose bits these loops give. */
#define narrow_f32 FOR_TARGET(narrow_f32)
#define narrow_f64 FOR_TARGET(narrow_f64)
#define wide_f32 FOR_TARGET(wide_f32)
#define wide_f64 FOR_TARGET(wide_f64)
#define hashed FOR_TARGET(hashed)
#define moved FOR_TARGET(moved)
#define flip FOR_TARGET(flip)
#define shuffled FOR_TARGET(shuffled)
#define shuffle FOR_TARGET(shuffle)

/* Fields at a time, which stay in the nearest cache. */
#define FIELDS 8192

#if defined(__GNUC__)
typedef int16_t __attribute__((aligned(1))) Unaligned16;
#else
typedef int16_t Unaligned16;
#endif

#if !defined(HAS_CODECS)
#define HAS_CODECS
/* fields = floor(factor x / divisor + offset + word / 2^32) of `bits` bits; `otherwise` in rows whose divisor is not
 * positive. The number of a field is (field scale + shift) divisor. */
typedef struct {
    double factor, offset, scale, shift;
    int64_t bits, is_signed, otherwise;
} Quantizer;
#endif

/* Adding `base`, whose last bit is worth 2^-32, rounds to a multiple of that; the integer part is then in bits 32 and
 * above. */
#define BITS_OF_BASE 0x4138000000000000
#define DEFINE_FIELDS(NAME, T, INTO, SHARE)                                                                  \
    static inline void NAME(INTO *restrict fields, const T *restrict x, const int64_t *restrict words,       \
                            double divisor, double factor, double offset, int64_t n) {                       \
        (void)divisor;                                                                                       \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const int64_t bits = words[k] | BITS_OF_BASE;                                                    \
            double based;                                                                                    \
            memcpy(&based, &bits, sizeof based);                                                             \
            based = (SHARE) + based;                                                                         \
            uint64_t sum;                                                                                    \
            memcpy(&sum, &based, sizeof sum);                                                                \
            fields[k] = (INTO)(sum >> 32);                                                                   \
        }                                                                                                    \
    }

/* float32 is multiplied by factor / divisor, which is faster. The inverse of a tiny float64 would overflow. */
DEFINE_FIELDS(narrow_f32, float, uint8_t, (double)x[k] * factor + offset)
DEFINE_FIELDS(narrow_f64, double, uint8_t, x[k] / divisor * factor + offset)
DEFINE_FIELDS(wide_f32, float, int16_t, (double)x[k] * factor + offset)
DEFINE_FIELDS(wide_f64, double, int16_t, x[k] / divisor * factor + offset)

/* The factor that the loops above multiply by. */
#define FACTOR_f32(Q, DIVISOR) ((Q)->factor / (DIVISOR))
#define FACTOR_f64(Q, DIVISOR) ((Q)->factor)

/* Without an offset, and with one. */
#define DRAW(KIND, TYPE, FIELDS_OF_N, X, WORDS, DIVISOR, Q, N)                                               \
    do {                                                                                                     \
        const double factor_ = FACTOR_##TYPE(Q, DIVISOR);                                                    \
        if (!((DIVISOR) > 0))                                                                                \
            for (int64_t k = 0; k < (N); k++) FIELDS_OF_N[k] = (Q)->otherwise;                               \
        else if ((Q)->offset == 0)                                                                           \
            KIND##_##TYPE(FIELDS_OF_N, X, WORDS, DIVISOR, factor_, 0, N);                                    \
        else                                                                                                 \
            KIND##_##TYPE(FIELDS_OF_N, X, WORDS, DIVISOR, factor_, (Q)->offset, N);                          \
    } while (0)

/* The fields of rows first <= i < last in the bytes from <= j < to of each. Byte j of `step` has the fields j, j + step,
 * j + 2 step, ...; fields of 16 bits have two bytes each, and j counts fields. */
#define DEFINE_QUANTIZE(NAME, TYPE, T)                                                                       \
    LOOP(NAME)(const T *x, int64_t x_stride, const int64_t *words, int64_t words_stride, const T *divisor,   \
               const Quantizer *q, uint8_t *out, int64_t out_stride, int64_t width, int64_t first,           \
               int64_t last, int64_t from, int64_t to) {                                                     \
        const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;          \
        const uint8_t mask = (uint8_t)((1 << q->bits) - 1);                                                  \
        int16_t wide[FIELDS];                                                                                \
        uint8_t fields[FIELDS], packed[FIELDS];                                                              \
        for (int64_t i = first; i < last; i++) {                                                             \
            const T *row = x + i * x_stride;                                                                 \
            const int64_t *drawn = words + i * words_stride;                                                 \
            const double size = (double)divisor[i];                                                          \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t bytes = to - low < FIELDS ? to - low : FIELDS;                                 \
                if (q->bits == 16) {                                                                         \
                    DRAW(wide, TYPE, wide, row + low, drawn + low, size, q, bytes);                          \
                    memcpy(out + i * out_stride + 2 * low, wide, (size_t)(2 * bytes));                       \
                    continue;                                                                                \
                }                                                                                            \
                for (int64_t plane = 0; plane < planes; plane++) {                                           \
                    const int64_t at = plane * step + low, rest = width - at;                                \
                    const int64_t n = rest < 0 ? 0 : rest < bytes ? rest : bytes;                            \
                    const int shift = (int)(plane * q->bits);                                                \
                    if (n <= 0) break;                                                                       \
                    DRAW(narrow, TYPE, fields, row + at, drawn + at, size, q, n);                            \
                    if (plane == 0)                                                                          \
                        for (int64_t k = 0; k < n; k++) packed[k] = fields[k] & mask;                        \
                    else                                                                                     \
                        for (int64_t k = 0; k < n; k++) packed[k] |= (uint8_t)((fields[k] & mask) << shift); \
                }                                                                                            \
                memcpy(out + i * out_stride + low, packed, (size_t)bytes);                                   \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_QUANTIZE(tacit_quantize_f32, f32, float)
DEFINE_QUANTIZE(tacit_quantize_f64, f64, double)

/* The numbers that the fields of rows stand for: the other direction of the loop above. */
#define DEFINE_RESTORE(NAME, T)                                                                              \
    LOOP(NAME)(const uint8_t *packed, int64_t packed_stride, const T *divisor, const Quantizer *q, T *out,   \
               int64_t out_stride, int64_t width, int64_t first, int64_t last, int64_t from, int64_t to) {   \
        const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;          \
        const T scale = (T)q->scale, shift = (T)q->shift;                                                    \
        for (int64_t i = first; i < last; i++) {                                                             \
            const uint8_t *bytes = packed + i * packed_stride;                                               \
            const T size = divisor[i];                                                                       \
            for (int64_t plane = 0; plane < planes; plane++) {                                               \
                const int64_t at = plane * step, end = to < width - at ? to : width - at;                    \
                T *restrict row = out + i * out_stride + at;                                                 \
                const int up = (int)(32 - (plane + 1) * q->bits), down = (int)(32 - q->bits);                \
                if (q->bits == 16) {                                                                         \
                    const Unaligned16 *wide = (const Unaligned16 *)bytes;                                    \
                    for (int64_t k = from; k < end; k++) row[k] = (T)wide[k] * scale * size;                 \
                } else if (q->is_signed)                                                                     \
                    for (int64_t k = from; k < end; k++)                                                     \
                        row[k] = (T)((int32_t)((uint32_t)bytes[k] << up) >> down) * scale * size;            \
                else                                                                                         \
                    for (int64_t k = from; k < end; k++)                                                     \
                        row[k] = ((T)(int32_t)((uint32_t)bytes[k] << up >> down) * scale + shift) * size;    \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_RESTORE(tacit_restore_f32, float)
DEFINE_RESTORE(tacit_restore_f64, double)

/* What the other end restores, without the bytes. */
#define DEFINE_RECEIVED(NAME, TYPE, T)                                                                       \
    LOOP(NAME)(const T *x, int64_t x_stride, const int64_t *words, int64_t words_stride, const T *divisor,   \
               const Quantizer *q, T *out, int64_t out_stride, int64_t width, int64_t first, int64_t last,   \
               int64_t from, int64_t to) {                                                                   \
        const T scale = (T)q->scale, shift = (T)q->shift;                                                    \
        const int unused = (int)(32 - q->bits);                                                              \
        int16_t fields[FIELDS];                                                                              \
        (void)width;                                                                                         \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t n = to - low < FIELDS ? to - low : FIELDS;                                     \
                const T size = divisor[i];                                                                   \
                T *restrict row = out + i * out_stride + low;                                                \
                DRAW(wide, TYPE, fields, x + i * x_stride + low, words + i * words_stride + low,             \
                     (double)size, q, n);                                                                    \
                if (q->is_signed)                                                                            \
                    for (int64_t k = 0; k < n; k++)                                                          \
                        row[k] = (T)((int32_t)((uint32_t)fields[k] << unused) >> unused) * scale * size;     \
                else                                                                                         \
                    for (int64_t k = 0; k < n; k++)                                                          \
                        row[k] = ((T)(int32_t)((uint32_t)fields[k] << unused >> unused) * scale + shift) * size;\
            }                                                                                                \
    }

DEFINE_RECEIVED(tacit_received_f32, f32, float)
DEFINE_RECEIVED(tacit_received_f64, f64, double)

/* One bit per number, whether it is at least zero, packed as above. */
#define DEFINE_SIGNS(NAME, T)                                                                                \
    LOOP(NAME)(const T *x, int64_t x_stride, uint8_t *out, int64_t out_stride, int64_t width, int64_t first, \
               int64_t last, int64_t from, int64_t to) {                                                     \
        const int64_t step = (width + 7) / 8;                                                                \
        for (int64_t i = first; i < last; i++) {                                                             \
            uint8_t *restrict packed = out + i * out_stride;                                                 \
            for (int64_t low = from; low < to; low += FIELDS)                                                \
                for (int plane = 0; plane < 8; plane++) {                                                    \
                    const T *restrict row = x + i * x_stride + plane * step;                                 \
                    const int64_t most = low + FIELDS < to ? low + FIELDS : to, rest = width - plane * step; \
                    const int64_t end = most < rest ? most : rest;                                           \
                    if (plane == 0)                                                                          \
                        for (int64_t k = low; k < end; k++) packed[k] = row[k] >= 0;                         \
                    else                                                                                     \
                        for (int64_t k = low; k < end; k++) packed[k] |= (uint8_t)((row[k] >= 0) << plane);  \
                }                                                                                            \
        }                                                                                                    \
    }

DEFINE_SIGNS(tacit_signs_f32, float)
DEFINE_SIGNS(tacit_signs_f64, double)

/* low[i] and high[i] become the bits of the smallest and the largest magnitude of row i. */
#define DEFINE_EXTREMES(NAME, BITS)                                                                          \
    LOOP(NAME)(const BITS *x, int64_t stride, BITS *low, BITS *high, int64_t first, int64_t last,            \
               int64_t width) {                                                                              \
        for (int64_t i = first; i < last; i++) {                                                             \
            const BITS *restrict row = x + i * stride;                                                       \
            BITS least = (BITS)-1, most = 0;                                                                 \
            for (int64_t k = 0; k < width; k++) {                                                            \
                const BITS magnitude = row[k] << 1 >> 1;                                                     \
                least = magnitude < least ? magnitude : least;                                               \
                most = magnitude > most ? magnitude : most;                                                  \
            }                                                                                                \
            low[i] = least;                                                                                  \
            high[i] = most;                                                                                  \
        }                                                                                                    \
    }

DEFINE_EXTREMES(tacit_extremes_f32, uint32_t)
DEFINE_EXTREMES(tacit_extremes_f64, uint64_t)

/* total[j] = the sum of (x[j + m stride] / unit)^2 over m in order, for from <= j < to of row i. */
#define DEFINE_SQUARES(NAME, T, WIDE)                                                                        \
    LOOP(NAME)(const T *x, int64_t x_stride, const T *unit, double *total, int64_t total_stride,             \
               int64_t stride, int64_t width, int64_t first, int64_t last, int64_t from, int64_t to) {       \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t high = low + FIELDS < to ? low + FIELDS : to;                                  \
                const double size = unit ? (double)unit[i] : 1;                                              \
                double *restrict sum = total + i * total_stride;                                             \
                int64_t at = 0;                                                                              \
                (void)size;                                                                                  \
                for (int64_t k = low; k < high; k++) sum[k] = 0;                                             \
                for (; at + 3 * stride + high <= width; at += 4 * stride) {                                  \
                    const T *restrict a = x + i * x_stride + at, *restrict b = a + stride,                   \
                                     *restrict c = b + stride, *restrict d = c + stride;                     \
                    for (int64_t k = low; k < high; k++)                                                     \
                        sum[k] = (((sum[k] + SQUARE(WIDE(a))) + SQUARE(WIDE(b))) + SQUARE(WIDE(c))) +        \
                                 SQUARE(WIDE(d));                                                            \
                }                                                                                            \
                for (; at < width; at += stride) {                                                           \
                    const T *restrict a = x + i * x_stride + at;                                             \
                    const int64_t end = high < width - at ? high : width - at;                               \
                    for (int64_t k = low; k < end; k++) sum[k] += SQUARE(WIDE(a));                           \
                }                                                                                            \
            }                                                                                                \
    }

#define SQUARE(NUMBER) ((NUMBER) * (NUMBER))
#define AS_DOUBLE(ROW) (double)ROW[k]
#define IN_UNITS(ROW) (ROW[k] / size)
DEFINE_SQUARES(tacit_squares_f32, float, AS_DOUBLE)
DEFINE_SQUARES(tacit_squares_f64, double, IN_UNITS)

/* sums[i] = the sum of row i: the second half is added to the first, repeatedly. Overwrites the row. */
LOOP(tacit_halving_sums)(double *total, int64_t stride, int64_t width, double *sums, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        double *row = total + i * stride;
        for (int64_t size = width; size > 1; size = (size + 1) / 2) {
            const int64_t half = (size + 1) / 2;
            double *restrict one = row;
            const double *restrict other = row + half;
            for (int64_t k = 0; k < size - half; k++) one[k] += other[k];
        }
        sums[i] = row[0];
    }
}

/* A generalized Feistel network on the numbers below b 2^s, with 4 pairs of rounds. */
#define MULTIPLIER 0x2C1B3C6Du
#define WAYS 4

/* 32 bits of which the highest depend on all of `half` and the keys. */
static inline uint32_t hashed(uint32_t half, uint32_t factor, uint32_t term) {
    const uint32_t mixed = half * (factor | 1) + term;
    return (mixed ^ (uint32_t)((int32_t)mixed >> 15)) * MULTIPLIER;
}

/* `right` moved by a function of `left`, modulo b. */
static inline int32_t moved(uint32_t left, int32_t right, const uint32_t *keys, uint32_t b) {
    const uint32_t negative = (uint32_t)((int32_t)hashed(left, keys[0], keys[1]) >> 11) | 0xFFE00000u;
    const int32_t sum = right + ((int32_t)(negative * b) >> 21);
    return sum + ((sum >> 31) & (int32_t)b);
}

static inline uint32_t flip(int32_t right, const uint32_t *keys, uint32_t s, uint32_t lowest) {
    return (uint32_t)((int32_t)hashed((uint32_t)right, keys[2], keys[3]) >> (32 - s)) & lowest;
}

static inline uint32_t shuffled(uint32_t number, const uint32_t *keys, uint32_t s, uint32_t b) {
    const uint32_t lowest = (1u << s) - 1;
    uint32_t left = number & lowest;
    int32_t right = (int32_t)(number >> s);
#pragma GCC unroll 4
    for (int at = 0; at < 16; at += 4) {
        right = moved(left, right, keys + at, b);
        left ^= flip(right, keys + at, s, lowest);
    }
    return (uint32_t)right << s | left;
}

/* Where the numbers from, from + 1, ... go in a permutation of those below the width. Each step waits for the one before:
 * WAYS numbers in turn fill the waiting time. Writes up to WAYS - 1 numbers too many. */
static inline void shuffle(uint32_t *restrict columns, int64_t from, int64_t n, const uint32_t *keys, int64_t width,
                           int64_t s_, int64_t b_) {
    const uint32_t s = (uint32_t)s_, b = (uint32_t)b_, lowest = (1u << s) - 1, each = (uint32_t)((n + WAYS - 1) / WAYS);
    for (uint32_t k = 0; k < each; k++) {
        uint32_t left[WAYS];
        int32_t right[WAYS];
        for (uint32_t j = 0; j < WAYS; j++) {
            const uint32_t number = (uint32_t)from + k + j * each;
            left[j] = number & lowest;
            right[j] = (int32_t)(number >> s);
        }
#pragma GCC unroll 4
        for (int at = 0; at < 16; at += 4) {
            for (int j = 0; j < WAYS; j++) right[j] = moved(left[j], right[j], keys + at, b);
            for (int j = 0; j < WAYS; j++) left[j] ^= flip(right[j], keys + at, s, lowest);
        }
        for (uint32_t j = 0; j < WAYS; j++) columns[k + j * each] = (uint32_t)right[j] << s | left[j];
    }
    if (b_ << s == width) return;
    for (int64_t k = 0; k < n; k++)
        while (columns[k] >= (uint64_t)width) columns[k] = shuffled(columns[k], keys, s, b);
}

/* out[i][k] = where k goes, for rows first <= i < last with 16 keys each and from <= k < to. */
LOOP(tacit_permuted)(const uint32_t *keys, int64_t width, int64_t s, int64_t b, int64_t *out, int64_t stride,
                     int64_t first, int64_t last, int64_t from, int64_t to) {
    uint32_t columns[FIELDS + WAYS];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = from; low < to; low += FIELDS) {
            const int64_t n = to - low < FIELDS ? to - low : FIELDS;
            shuffle(columns, low, n, keys + 16 * i, width, s, b);
            for (int64_t k = 0; k < n; k++) out[i * stride + low + k] = columns[k];
        }
}

/* kept[i][k] = x[i][where k goes]. */
#define DEFINE_GATHER(NAME, T)                                                                               \
    LOOP(NAME)(const uint32_t *keys, int64_t width, int64_t s, int64_t b, const T *x, int64_t x_stride,      \
               T *kept, int64_t kept_stride, int64_t first, int64_t last, int64_t from, int64_t to) {        \
        uint32_t columns[FIELDS + WAYS];                                                                            \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t n = to - low < FIELDS ? to - low : FIELDS;                                     \
                const T *restrict row = x + i * x_stride;                                                    \
                T *restrict out = kept + i * kept_stride + low;                                              \
                shuffle(columns, low, n, keys + 16 * i, width, s, b);                                        \
                for (int64_t k = 0; k < n; k++) out[k] = row[columns[k]];                                    \
            }                                                                                                \
    }

DEFINE_GATHER(tacit_gather_f32, float)
DEFINE_GATHER(tacit_gather_f64, double)

/* out[i][where k goes] = factor kept[i][k]. */
#define DEFINE_SPREAD(NAME, T)                                                                               \
    LOOP(NAME)(const uint32_t *keys, int64_t width, int64_t s, int64_t b, const T *kept, int64_t kept_stride, \
               const double *factor, T *out, int64_t out_stride, int64_t first, int64_t last, int64_t from,  \
               int64_t to) {                                                                                 \
        uint32_t columns[FIELDS + WAYS];                                                                            \
        const T scale = (T)*factor;                                                                          \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t n = to - low < FIELDS ? to - low : FIELDS;                                     \
                const T *restrict row = kept + i * kept_stride + low;                                        \
                T *restrict spread = out + i * out_stride;                                                   \
                shuffle(columns, low, n, keys + 16 * i, width, s, b);                                        \
                for (int64_t k = 0; k < n; k++) spread[columns[k]] = scale * row[k];                         \
            }                                                                                                \
    }

DEFINE_SPREAD(tacit_spread_f32, float)
DEFINE_SPREAD(tacit_spread_f64, double)
