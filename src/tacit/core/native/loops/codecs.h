/* Codecs: see compression/quantization.py and compression/subsets.py, whose bits these loops give. */
#define quantize_f32 FOR_TARGET(quantize_f32)
#define quantize_f64 FOR_TARGET(quantize_f64)
#define numbers_f32 FOR_TARGET(numbers_f32)
#define numbers_f64 FOR_TARGET(numbers_f64)
#define received_f32 FOR_TARGET(received_f32)
#define received_f64 FOR_TARGET(received_f64)
#define add_squares_f32 FOR_TARGET(add_squares_f32)
#define add_squares_f64 FOR_TARGET(add_squares_f64)
#define add_eight_f32 FOR_TARGET(add_eight_f32)
#define add_eight_f64 FOR_TARGET(add_eight_f64)
#define hashed FOR_TARGET(hashed)
#define moved FOR_TARGET(moved)
#define flip FOR_TARGET(flip)
#define shuffled FOR_TARGET(shuffled)
#define shuffle FOR_TARGET(shuffle)
#define draw_keys FOR_TARGET(draw_keys)

/* Bytes of packed fields at a time, which stay in a near cache. Reading pieces much shorter than this takes longer. */
#define FIELDS 131072

#if defined(__GNUC__)
typedef int16_t __attribute__((aligned(1))) Unaligned16;
#else
typedef int16_t Unaligned16;
#endif

#if !defined(HAS_CODECS)
#define HAS_CODECS
/* fields = floor(factor x / divisor + offset + word / 2^32) of `bits` bits; `otherwise` in rows whose divisor is not
 * positive. The number of a field is (field scale + shift) divisor. Fields of one bit are 0 or 1; others are in two's
 * complement and have no shift. */
typedef struct {
    double factor, offset, scale, shift;
    int64_t bits, otherwise;
} Quantizer;
#endif

/* Adding a number whose last bit is worth 2^-32 rounds to a multiple of that. The integer part is then in bits 32 and
 * above, plus BASE, which vanishes where a field is cut to 8 or 16 bits. */
#define BASE 0x41380000
#define FIELD_BITS(FIELD) ((int64_t)((BASE + (FIELD)) * 0x1p32))

/* `DO` with BASE plus each field of a row. SHARE(k) is the k-th number times the factor. */
#define FOR_FIELDS(N, SHARE, WORDS, SIZE, Q, DO)                                                             \
    do {                                                                                                     \
        const int64_t base_ = FIELD_BITS((Q)->offset);                                                       \
        int32_t field;                                                                                       \
        if ((SIZE) > 0)                                                                                      \
            for (int64_t k = 0; k < (N); k++) {                                                              \
                const int64_t bits_ = (int64_t)(WORDS)[k] + base_;                                           \
                double based_;                                                                               \
                memcpy(&based_, &bits_, sizeof based_);                                                      \
                based_ += SHARE(k);                                                                          \
                int64_t sum_;                                                                                \
                memcpy(&sum_, &based_, sizeof sum_);                                                         \
                field = (int32_t)(sum_ >> 32);                                                               \
                DO;                                                                                          \
            }                                                                                                \
        else {                                                                                               \
            field = BASE + (int32_t)(Q)->otherwise;                                                          \
            for (int64_t k = 0; k < (N); k++) DO;                                                            \
        }                                                                                                    \
    } while (0)

/* float32 is multiplied by factor / divisor, which is faster. The inverse of a tiny float64 would overflow. */
#define FACTOR_f32(Q, DIVISOR) ((Q)->factor / (DIVISOR))
#define FACTOR_f64(Q, DIVISOR) ((Q)->factor)
#define SHARE_f32(k) ((double)x[k] * factor)
#define SHARE_f64(k) (x[k] / size * factor)

/* The fields of n numbers of a row: as 16 bits, as bytes, or in a plane of packed bytes, as `unit` times the field. */
#define DEFINE_FIELDS(NAME, TYPE, T)                                                                         \
    static inline void NAME(uint8_t *restrict out, const T *restrict x, const uint32_t *restrict words,      \
                            double size, const Quantizer *q, int64_t plane, int64_t n) {                     \
        const double factor = FACTOR_##TYPE(q, size);                                                        \
        const uint8_t mask = (uint8_t)((1 << q->bits) - 1), unit = (uint8_t)(1 << plane * q->bits);          \
        Unaligned16 *restrict wide = (Unaligned16 *)out;                                                     \
        if (q->bits == 16)                                                                                   \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q, wide[k] = (int16_t)field);                           \
        else if (q->bits == 8)                                                                               \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q, out[k] = (uint8_t)field);                            \
        else if (plane == 0)                                                                                 \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q, out[k] = (uint8_t)field & mask);                     \
        else                                                                                                 \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q,                                                      \
                       out[k] = (uint8_t)(out[k] | (uint8_t)(((uint8_t)field & mask) * unit)));              \
    }

DEFINE_FIELDS(quantize_f32, f32, float)
DEFINE_FIELDS(quantize_f64, f64, double)

/* The fields of rows first <= i < last in the bytes from <= j < to of each. Byte j of `step` has the fields j, j + step,
 * j + 2 step, ...; fields of 16 bits have two bytes each, and j counts fields. */
#define DEFINE_QUANTIZE(NAME, FIELDS_OF_ROW, T)                                                              \
    LOOP(NAME)(const T *x, int64_t x_stride, const uint32_t *words, int64_t words_stride, const T *divisor,  \
               const Quantizer *q, uint8_t *out, int64_t out_stride, int64_t width, int64_t first,           \
               int64_t last, int64_t from, int64_t to) {                                                     \
        const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;          \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += FIELDS) {                                              \
                const int64_t bytes = to - low < FIELDS ? to - low : FIELDS;                                 \
                uint8_t *packed = out + i * out_stride + (q->bits == 16 ? 2 * low : low);                    \
                for (int64_t plane = 0; plane < planes; plane++) {                                           \
                    const int64_t at = plane * step + low, rest = width - at;                                \
                    FIELDS_OF_ROW(packed, x + i * x_stride + at, words + i * words_stride + at,              \
                                  (double)divisor[i], q, plane, rest < bytes ? rest : bytes);                \
                }                                                                                            \
            }                                                                                                \
    }

DEFINE_QUANTIZE(tacit_quantize_f32, quantize_f32, float)
DEFINE_QUANTIZE(tacit_quantize_f64, quantize_f64, double)

/* A small integer as a number. Adding 1.5 2^23 in integers and subtracting it in float32 is faster on ARM. */
#if defined(__aarch64__)
#define SET_f32(NUMBER, INTEGER)                                                                             \
    do {                                                                                                     \
        const int32_t bits_ = 0x4B400000 + (INTEGER);                                                        \
        memcpy(&NUMBER, &bits_, sizeof NUMBER);                                                              \
        NUMBER -= 0x1.8p23f;                                                                                 \
    } while (0)
#else
#define SET_f32(NUMBER, INTEGER) NUMBER = (float)(INTEGER)
#endif
#define SET_f64(NUMBER, INTEGER) NUMBER = (double)(INTEGER)

/* The numbers that the fields in a plane of packed bytes stand for. A field stays where it is in its byte, and is a
 * multiple of a power of two, which the scale makes up for without rounding. */
#define DEFINE_NUMBERS(NAME, TYPE, T)                                                                        \
    static inline void NAME(T *restrict row, const uint8_t *restrict bytes, T size, const Quantizer *q,      \
                            int64_t plane, int64_t n) {                                                      \
        const T scale = (T)q->scale, shift = (T)q->shift;                                                    \
        T number;                                                                                            \
        if (q->bits == 16) {                                                                                 \
            const Unaligned16 *restrict wide = (const Unaligned16 *)bytes;                                   \
            SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {                                                \
                SET_##TYPE(number, wide[k]);                                                                 \
                row[k] = number * scale * size;                                                              \
            }                                                                                                \
        } else if (q->bits == 8) {                                                                           \
            SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {                                                \
                SET_##TYPE(number, (int8_t)bytes[k]);                                                        \
                row[k] = number * scale * size;                                                              \
            }                                                                                                \
        } else if (q->bits == 1) {                                                                           \
            const T zero = shift * size, one = (scale + shift) * size;                                       \
            const uint8_t bit = (uint8_t)(1 << plane);                                                       \
            SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) row[k] = bytes[k] & bit ? one : zero;            \
        } else {                                                                                             \
            const int unit = 1 << plane * q->bits;                                                           \
            const uint8_t mask = (uint8_t)(((1 << q->bits) - 1) * unit);                                     \
            const uint8_t sign = (uint8_t)(unit << (q->bits - 1));                                           \
            const T part = scale / (T)unit;                                                                  \
            SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {                                                \
                SET_##TYPE(number, (int8_t)(uint8_t)(((bytes[k] & mask) ^ sign) - sign));                    \
                row[k] = number * part * size;                                                               \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_NUMBERS(numbers_f32, f32, float)
DEFINE_NUMBERS(numbers_f64, f64, double)

/* The same for fields of 2 or 4 bits on ARM: their few numbers are looked up in registers, byte by byte. Returns how many
 * numbers of n it wrote. */
#define few_levels_f64(ROW, BYTES, SIZE, Q, PLANE, N) 0
#if defined(__aarch64__)
static inline int64_t few_levels_f32(float *restrict row, const uint8_t *restrict bytes, float size, const Quantizer *q,
                                     int64_t plane, int64_t n) {
    if (q->bits != 2 && q->bits != 4) return 0;
    const int levels = 1 << q->bits;
    uint8_t tables[4][16] = {{0}};
    for (int field = 0; field < levels; field++) {
        const float number = (float)(field < levels / 2 ? field : field - levels) * (float)q->scale * size;
        uint8_t parts[sizeof number];
        memcpy(parts, &number, sizeof number);
        for (int j = 0; j < 4; j++) tables[j][field] = parts[j];
    }
    const uint8x16_t a = vld1q_u8(tables[0]), b = vld1q_u8(tables[1]), c = vld1q_u8(tables[2]), d = vld1q_u8(tables[3]);
    const uint8x16_t mask = vdupq_n_u8((uint8_t)(levels - 1));
    const int8x16_t down = vdupq_n_s8((int8_t)(-plane * q->bits));
    int64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        const uint8x16_t field = vandq_u8(vshlq_u8(vld1q_u8(bytes + k), down), mask);
        const uint8x16x2_t low = vzipq_u8(vqtbl1q_u8(a, field), vqtbl1q_u8(b, field));
        const uint8x16x2_t high = vzipq_u8(vqtbl1q_u8(c, field), vqtbl1q_u8(d, field));
        for (int j = 0; j < 2; j++) {
            const uint16x8x2_t both = vzipq_u16(vreinterpretq_u16_u8(low.val[j]), vreinterpretq_u16_u8(high.val[j]));
            vst1q_f32(row + k + 8 * j, vreinterpretq_f32_u16(both.val[0]));
            vst1q_f32(row + k + 8 * j + 4, vreinterpretq_f32_u16(both.val[1]));
        }
    }
    return k;
}
#else
#define few_levels_f32(ROW, BYTES, SIZE, Q, PLANE, N) 0
#endif

/* The numbers that the fields of rows stand for: the other direction of tacit_quantize. */
#define DEFINE_RESTORE(NAME, NUMBERS, FEW_LEVELS, T)                                                         \
    LOOP(NAME)(const uint8_t *packed, int64_t packed_stride, const T *divisor, const Quantizer *q, T *out,   \
               int64_t out_stride, int64_t width, int64_t first, int64_t last, int64_t from, int64_t to) {   \
        const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;          \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t plane = 0; plane < planes; plane++) {                                               \
                const int64_t at = plane * step + from, rest = width - at;                                   \
                const int64_t n = rest < to - from ? rest : to - from;                                       \
                const uint8_t *bytes = packed + i * packed_stride + (q->bits == 16 ? 2 * from : from);       \
                T *row = out + i * out_stride + at;                                                          \
                const int64_t done = FEW_LEVELS(row, bytes, divisor[i], q, plane, n);                        \
                NUMBERS(row + done, bytes + done, divisor[i], q, plane, n - done);                           \
            }                                                                                                \
    }

DEFINE_RESTORE(tacit_restore_f32, numbers_f32, few_levels_f32, float)
DEFINE_RESTORE(tacit_restore_f64, numbers_f64, few_levels_f64, double)

/* What the other end restores, without the bytes. */
#define DEFINE_RECEIVED_NUMBERS(NAME, TYPE, T)                                                               \
    static inline void NAME(T *restrict row, const T *restrict x, const uint32_t *restrict words, T divisor, \
                            const Quantizer *q, int64_t n) {                                                 \
        const double size = (double)divisor, factor = FACTOR_##TYPE(q, size);                                \
        const T scale = (T)q->scale, shift = (T)q->shift;                                                    \
        const T zero = shift * divisor, one = (scale + shift) * divisor;                                     \
        T number;                                                                                            \
        if (q->bits == 1)                                                                                    \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q, row[k] = field & 1 ? one : zero);                    \
        else                                                                                                 \
            FOR_FIELDS(n, SHARE_##TYPE, words, size, q, {                                                    \
                SET_##TYPE(number, field - BASE);                                                            \
                row[k] = number * scale * divisor;                                                           \
            });                                                                                              \
    }

DEFINE_RECEIVED_NUMBERS(received_f32, f32, float)
DEFINE_RECEIVED_NUMBERS(received_f64, f64, double)

#define DEFINE_RECEIVED(NAME, RECEIVED, T)                                                                   \
    LOOP(NAME)(const T *x, int64_t x_stride, const uint32_t *words, int64_t words_stride, const T *divisor,  \
               const Quantizer *q, T *out, int64_t out_stride, int64_t first, int64_t last, int64_t from,    \
               int64_t to) {                                                                                 \
        for (int64_t i = first; i < last; i++)                                                               \
            RECEIVED(out + i * out_stride + from, x + i * x_stride + from, words + i * words_stride + from,  \
                     divisor[i], q, to - from);                                                              \
    }

DEFINE_RECEIVED(tacit_received_f32, received_f32, float)
DEFINE_RECEIVED(tacit_received_f64, received_f64, double)

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

/* low[i] and high[i] become the bits of the smallest and the largest magnitude of row i; the latter is NaN if a number is
 * not finite. */
#define DEFINE_EXTREMES(NAME, BITS, INFINITE, QUIET_NAN)                                                                        \
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
            high[i] = most < INFINITE ? most : QUIET_NAN;                                                    \
        }                                                                                                    \
    }

DEFINE_EXTREMES(tacit_extremes_f32, uint32_t, 0x7F800000u, 0x7FC00000u)
DEFINE_EXTREMES(tacit_extremes_f64, uint64_t, 0x7FF0000000000000u, 0x7FF8000000000000u)

/* sum[k] = the sum of (x[k + m stride] / size)^2 over m in order. The square of a float32 is exact in double precision,
 * so that a fused multiplication and addition gives the same bits. */
#define DEFINE_ADD_SQUARES(NAME, T, NUMBER, ADD)                                                             \
    static inline void NAME(double *restrict sum, const T *x, double size, int64_t stride, int64_t n,        \
                            int64_t width) {                                                                 \
        int64_t at = 0;                                                                                      \
        (void)size;                                                                                          \
        if (3 * stride + n <= width) {                                                                       \
            const T *restrict a = x, *restrict b = a + stride, *restrict c = b + stride,                     \
                             *restrict d = c + stride;                                                       \
            for (int64_t k = 0; k < n; k++) {                                                \
                const double first = NUMBER(a);                                                              \
                sum[k] = ADD(ADD(ADD(first * first, NUMBER(b)), NUMBER(c)), NUMBER(d));                      \
            }                                                                                                \
            at = 4 * stride;                                                                                 \
        } else {                                                                                             \
            for (int64_t k = 0; k < n; k++) sum[k] = 0;                                                      \
        }                                                                                                    \
        for (; at + 3 * stride + n <= width; at += 4 * stride) {                                             \
            const T *restrict a = x + at, *restrict b = a + stride, *restrict c = b + stride,                \
                             *restrict d = c + stride;                                                       \
            for (int64_t k = 0; k < n; k++)                                                  \
                sum[k] = ADD(ADD(ADD(ADD(sum[k], NUMBER(a)), NUMBER(b)), NUMBER(c)), NUMBER(d));             \
        }                                                                                                    \
        for (; at < width; at += stride) {                                                                   \
            const T *restrict a = x + at;                                                                    \
            const int64_t end = n < width - at ? n : width - at;                                             \
            for (int64_t k = 0; k < end; k++) sum[k] = ADD(sum[k], NUMBER(a));               \
        }                                                                                                    \
    }

/* The same for one square each, of columns that are `apart`; eight of them are added at once, the second half to the
 * first, repeatedly. */
#define DEFINE_ADD_EIGHT(NAME, T, NUMBER, ADD)                                                               \
    static inline void NAME(double *restrict sum, const T *restrict x, double size, int64_t apart,           \
                            int64_t n) {                                                                     \
        const T *restrict a = x, *restrict b = a + apart, *restrict c = b + apart, *restrict d = c + apart;  \
        const T *restrict e = d + apart, *restrict f = e + apart, *restrict g = f + apart,                   \
                         *restrict h = g + apart;                                                            \
        (void)size;                                                                                          \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const double ae = ADD(NUMBER(a) * NUMBER(a), NUMBER(e)), cg = ADD(NUMBER(c) * NUMBER(c), NUMBER(g)); \
            const double bf = ADD(NUMBER(b) * NUMBER(b), NUMBER(f)), dh = ADD(NUMBER(d) * NUMBER(d), NUMBER(h)); \
            sum[k] = (ae + cg) + (bf + dh);                                                                  \
        }                                                                                                    \
    }

#define AS_DOUBLE(ROW) ((double)ROW[k])
#define IN_UNITS(ROW) (ROW[k] / size)
#define ADD_SQUARE(SUM, NUMBER) ((SUM) + (NUMBER) * (NUMBER))
#define FUSE_SQUARE(SUM, NUMBER) __builtin_fma(NUMBER, NUMBER, SUM)
#if HAS_FMA
DEFINE_ADD_SQUARES(add_squares_f32, float, AS_DOUBLE, FUSE_SQUARE)
DEFINE_ADD_EIGHT(add_eight_f32, float, AS_DOUBLE, FUSE_SQUARE)
#else
DEFINE_ADD_SQUARES(add_squares_f32, float, AS_DOUBLE, ADD_SQUARE)
DEFINE_ADD_EIGHT(add_eight_f32, float, AS_DOUBLE, ADD_SQUARE)
#endif
DEFINE_ADD_SQUARES(add_squares_f64, double, IN_UNITS, ADD_SQUARE)
DEFINE_ADD_EIGHT(add_eight_f64, double, IN_UNITS, ADD_SQUARE)

/* Sums of squares a `stride` apart are sums of columns. total[k], for from <= k < to of row i, becomes the sum of the
 * columns k, k + stride / parts, k + 2 stride / parts, ..., of which the second half is added to the first, repeatedly.
 * In the order of reversed bits, the next to add is the last that was computed. */
#define DEPTH 4
#define SQUARES 8192
#define DEFINE_SQUARES(NAME, ADD_SQUARES, ADD_EIGHT, T)                                                      \
    LOOP(NAME)(const T *x, int64_t x_stride, const T *unit, double *total, int64_t total_stride,             \
               int64_t stride, int64_t parts, int64_t width, int64_t first, int64_t last, int64_t from,      \
               int64_t to) {                                                                                 \
        double sums[DEPTH][SQUARES];                                                                         \
        for (int64_t i = first; i < last; i++)                                                               \
            for (int64_t low = from; low < to; low += SQUARES) {                                             \
                const int64_t n = to - low < SQUARES ? to - low : SQUARES;                                   \
                const double size = unit ? (double)unit[i] : 1;                                              \
                if (parts == 8 && width <= stride) {                                                         \
                    double *total_here = total + i * total_stride + low;                                     \
                    ADD_EIGHT(total_here, x + i * x_stride + low, size, stride / parts, n);                  \
                    continue;                                                                                \
                }                                                                                            \
                int depth = 0;                                                                               \
                for (int64_t count = 0; count < parts; count++) {                                            \
                    int64_t part = 0;                                                                        \
                    for (int64_t bit = 1; bit < parts; bit *= 2) part = 2 * part + (count / bit & 1);        \
                    const int64_t column = low + part * (stride / parts);                                    \
                    ADD_SQUARES(sums[depth++], x + i * x_stride + column, size, stride, n, width - column);  \
                    for (int64_t rest = count; rest & 1; rest >>= 1) {                                       \
                        depth--;                                                                             \
                        for (int64_t k = 0; k < n; k++) sums[depth - 1][k] += sums[depth][k];                \
                    }                                                                                        \
                }                                                                                            \
                memcpy(total + i * total_stride + low, sums[0], (size_t)n * sizeof sums[0][0]);              \
            }                                                                                                \
    }

DEFINE_SQUARES(tacit_squares_f32, add_squares_f32, add_eight_f32, float)
DEFINE_SQUARES(tacit_squares_f64, add_squares_f64, add_eight_f64, double)

/* norm[i] = the root of the sum of row i, in which the second half is added to the first, repeatedly, times the unit; NaN
 * if that is not finite. Overwrites the row. */
#define DEFINE_NORMS(NAME, T)                                                                                \
    LOOP(NAME)(double *total, int64_t stride, int64_t width, const T *unit, T *norm, int64_t first,          \
               int64_t last) {                                                                               \
        for (int64_t i = first; i < last; i++) {                                                             \
            double *row = total + i * stride;                                                                \
            for (int64_t size = width; size > 1; size = (size + 1) / 2) {                                    \
                const int64_t half = (size + 1) / 2;                                                         \
                double *restrict one = row;                                                                  \
                const double *restrict other = row + half;                                                   \
                for (int64_t k = 0; k < size - half; k++) one[k] += other[k];                                \
            }                                                                                                \
            const T size = (T)(sqrt(row[0]) * (unit ? (double)unit[i] : 1));                                 \
            norm[i] = size - size == 0 ? size : (T)NAN;                                                      \
        }                                                                                                    \
    }

DEFINE_NORMS(tacit_norms_f32, float)
DEFINE_NORMS(tacit_norms_f64, double)

/* A generalized Feistel network on the numbers below b 2^s, with 4 pairs of rounds. b is at most 2^10. */
#define MULTIPLIER 0x2C1B3C6Du
#define WAYS 8
/* Columns at a time. */
#define AT_ONCE 256

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
    for (int at = 0; at < 16; at += 4) {
        right = moved(left, right, keys + at, b);
        left ^= flip(right, keys + at, s, lowest);
    }
    return (uint32_t)right << s | left;
}

/* Where the numbers from, from + 1, ... go. Writes up to WAYS - 1 numbers too many. */
static void shuffle(uint32_t *restrict columns, int64_t from, int64_t n, const uint32_t *keys, uint32_t s, uint32_t b) {
    const uint32_t lowest = (1u << s) - 1;
    for (int64_t k = 0; k < n; k += WAYS) {
        uint32_t left[WAYS];
        int32_t right[WAYS];
        for (int j = 0; j < WAYS; j++) {
            const uint32_t number = (uint32_t)(from + k + j);
            left[j] = number & lowest;
            right[j] = (int32_t)(number >> s);
        }
        for (int at = 0; at < 16; at += 4) {
            for (int j = 0; j < WAYS; j++) right[j] = moved(left[j], right[j], keys + at, b);
            for (int j = 0; j < WAYS; j++) left[j] ^= flip(right[j], keys + at, s, lowest);
        }
        for (int j = 0; j < WAYS; j++) columns[k + j] = (uint32_t)right[j] << s | left[j];
    }
}

/* The keys of a row's permutation are Philox words, addressed by the row's seed. */
static inline void draw_keys(uint32_t *keys, uint64_t key, const int64_t *seed) {
    for (uint32_t block = 0; block < 4; block++) {
        uint32_t x[4] = {block, (uint32_t)seed[0], (uint32_t)seed[1], 0};
        philox_counter(x, key);
        memcpy(keys + 4 * block, x, sizeof x);
    }
}

/* `DO` with where each of the numbers from <= k < to goes in a permutation of those below the width, for rows
 * first <= i < last with a seed each: columns[j] for low + j, AT_ONCE of them at a time. */
#define FOR_COLUMNS(DO)                                                                                      \
    do {                                                                                                     \
        uint32_t columns[AT_ONCE + WAYS];                                                                    \
        for (int64_t i = first; i < last; i++) {                                                             \
            uint32_t own[16];                                                                                \
            draw_keys(own, (uint64_t)key, seed + 2 * i);                                                     \
            for (int64_t low = from; low < to; low += AT_ONCE) {                                             \
                const int64_t n = to - low < AT_ONCE ? to - low : AT_ONCE;                                   \
                shuffle(columns, low, n, own, (uint32_t)s, (uint32_t)b);                                     \
                int beyond = 0;                                                                              \
                for (int64_t k = 0; k < n; k++) beyond |= columns[k] >= (uint64_t)width;                     \
                for (int64_t k = 0; beyond && k < n; k++)                                                    \
                    while (columns[k] >= (uint64_t)width)                                                    \
                        columns[k] = shuffled(columns[k], own, (uint32_t)s, (uint32_t)b);                    \
                DO;                                                                                          \
            }                                                                                                \
        }                                                                                                    \
    } while (0)

/* out[i][k] = where k goes. */
LOOP(tacit_permuted)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, int64_t *out,
                     int64_t stride, int64_t first, int64_t last, int64_t from, int64_t to) {
    FOR_COLUMNS(for (int64_t k = 0; k < n; k++) out[i * stride + low + k] = columns[k]);
}

/* kept[i][k] = x[i][where k goes]. */
#define DEFINE_GATHER(NAME, T)                                                                               \
    LOOP(NAME)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, const T *x,            \
               int64_t x_stride, T *kept, int64_t kept_stride, int64_t first, int64_t last, int64_t from,    \
               int64_t to) {                                                                                 \
        FOR_COLUMNS(for (int64_t k = 0; k < n; k++)                                                          \
                        kept[i * kept_stride + low + k] = x[i * x_stride + columns[k]]);                     \
    }

DEFINE_GATHER(tacit_gather_f32, float)
DEFINE_GATHER(tacit_gather_f64, double)

/* out[i][where k goes] = factor kept[i][k]; with `clear`, zero elsewhere. */
#define DEFINE_SPREAD(NAME, T)                                                                               \
    LOOP(NAME)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, const T *kept,         \
               int64_t kept_stride, const double *factor, T *out, int64_t out_stride, int64_t clear,         \
               int64_t first, int64_t last, int64_t from, int64_t to) {                                      \
        const T scale = (T)*factor;                                                                          \
        FOR_COLUMNS(if (clear && low == from) memset(out + i * out_stride, 0, (size_t)width * sizeof(T));    \
                    for (int64_t k = 0; k < n; k++)                                                          \
                        out[i * out_stride + columns[k]] = scale * kept[i * kept_stride + low + k]);         \
    }

DEFINE_SPREAD(tacit_spread_f32, float)
DEFINE_SPREAD(tacit_spread_f64, double)
