/* Codecs: see compression/quantization.py, whose bits these loops give. */
#define quantize FOR_TYPE(quantize)
#define numbers FOR_TYPE(numbers)
#define received FOR_TYPE(received)
#define add_squares FOR_TYPE(add_squares)
#define add_eight FOR_TYPE(add_eight)

/* Bytes of packed fields at a time, which stay in a near cache. Reading pieces much shorter than this takes longer. */
#define FIELDS 131072

/* Adding a number whose last bit is worth 2^-32 rounds to a multiple of that. The integer part is then in bits 32 and
 * above, plus BASE, which vanishes where a field is cut to 8 or 16 bits. */
#define BASE 0x41380000
#define FIELD_BITS(FIELD) ((int64_t)((BASE + (FIELD)) * 0x1p32))

/* `DO` with BASE plus each field of a row. SHARE(k) is the k-th number times the factor. */
#define FOR_FIELDS(N, WORDS, SIZE, Q, DO)                                                                    \
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
#undef FACTOR
#undef SHARE
#if SINGLE
#define FACTOR(Q, DIVISOR) ((Q)->factor / (DIVISOR))
#define SHARE(k) ((double)x[k] * factor)
#else
#define FACTOR(Q, DIVISOR) ((Q)->factor)
#define SHARE(k) (x[k] / size * factor)
#endif

/* The fields of n numbers of a row: as 16 bits, as bytes, or in a plane of packed bytes, as `unit` times the field. */
static inline void quantize(uint8_t *restrict out, const T *restrict x, const uint32_t *restrict words,
                            double size, const Quantizer *q, int64_t plane, int64_t n) {
    const double factor = FACTOR(q, size);
    const uint8_t mask = (uint8_t)((1 << q->bits) - 1), unit = (uint8_t)(1 << plane * q->bits);
    Unaligned16 *restrict wide = (Unaligned16 *)out;
    if (q->bits == 16)
        FOR_FIELDS(n, words, size, q, wide[k] = (int16_t)field);
    else if (q->bits == 8)
        FOR_FIELDS(n, words, size, q, out[k] = (uint8_t)field);
    else if (plane == 0)
        FOR_FIELDS(n, words, size, q, out[k] = (uint8_t)field & mask);
    else
        FOR_FIELDS(n, words, size, q,
                   out[k] = (uint8_t)(out[k] | (uint8_t)(((uint8_t)field & mask) * unit)));
}

/* The fields of rows first <= i < last in the bytes from <= j < to of each. Byte j of `step` has the fields j, j + step,
 * j + 2 step, ...; fields of 16 bits have two bytes each, and j counts fields. */
LOOP(tacit_quantize)(const T *x, int64_t x_stride, const uint32_t *words, int64_t words_stride, const T *divisor,
                     const Quantizer *q, uint8_t *out, int64_t out_stride, int64_t width, int64_t first,
                     int64_t last, int64_t from, int64_t to) {
    const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;
    for (int64_t i = first; i < last; i++)
        for (int64_t low = from; low < to; low += FIELDS) {
            const int64_t bytes = to - low < FIELDS ? to - low : FIELDS;
            uint8_t *packed = out + i * out_stride + (q->bits == 16 ? 2 * low : low);
            for (int64_t plane = 0; plane < planes; plane++) {
                const int64_t at = plane * step + low, rest = width - at;
                quantize(packed, x + i * x_stride + at, words + i * words_stride + at,
                         (double)divisor[i], q, plane, rest < bytes ? rest : bytes);
            }
        }
}

/* A small integer as a number. Adding 1.5 2^23 in integers and subtracting it in float32 is faster on ARM. */
#undef SET
#if SINGLE && defined(__aarch64__)
#define SET(NUMBER, INTEGER)                                                                                 \
    do {                                                                                                     \
        const int32_t bits_ = 0x4B400000 + (INTEGER);                                                        \
        memcpy(&NUMBER, &bits_, sizeof NUMBER);                                                              \
        NUMBER -= 0x1.8p23f;                                                                                 \
    } while (0)
#else
#define SET(NUMBER, INTEGER) NUMBER = (T)(INTEGER)
#endif

/* The numbers that the fields in a plane of packed bytes stand for. A field stays where it is in its byte, and is a
 * multiple of a power of two, which the scale makes up for without rounding. */
static inline void numbers(T *restrict row, const uint8_t *restrict bytes, T size, const Quantizer *q,
                           int64_t plane, int64_t n) {
    const T scale = (T)q->scale, shift = (T)q->shift;
    T number;
    if (q->bits == 16) {
        const Unaligned16 *restrict wide = (const Unaligned16 *)bytes;
        SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {
            SET(number, wide[k]);
            row[k] = number * scale * size;
        }
    } else if (q->bits == 8) {
        SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {
            SET(number, (int8_t)bytes[k]);
            row[k] = number * scale * size;
        }
    } else if (q->bits == 1) {
        const T zero = shift * size, one = (scale + shift) * size;
        const uint8_t bit = (uint8_t)(1 << plane);
        SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) row[k] = bytes[k] & bit ? one : zero;
    } else {
        const int unit = 1 << plane * q->bits;
        const uint8_t mask = (uint8_t)(((1 << q->bits) - 1) * unit);
        const uint8_t sign = (uint8_t)(unit << (q->bits - 1));
        const T part = scale / (T)unit;
        SEVERAL_VECTORS for (int64_t k = 0; k < n; k++) {
            SET(number, (int8_t)(uint8_t)(((bytes[k] & mask) ^ sign) - sign));
            row[k] = number * part * size;
        }
    }
}

/* The same for fields of 2 or 4 bits on ARM: their few numbers are looked up in registers, byte by byte. Returns how many
 * numbers of n it wrote. */
#undef few_levels
#if SINGLE && defined(__aarch64__)
#define few_levels FOR_TYPE(few_levels)
static inline int64_t few_levels(float *restrict row, const uint8_t *restrict bytes, float size, const Quantizer *q,
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
#define few_levels(ROW, BYTES, SIZE, Q, PLANE, N) 0
#endif

/* The numbers that the fields of rows stand for: the other direction of tacit_quantize. */
LOOP(tacit_restore)(const uint8_t *packed, int64_t packed_stride, const T *divisor, const Quantizer *q, T *out,
                    int64_t out_stride, int64_t width, int64_t first, int64_t last, int64_t from, int64_t to) {
    const int64_t planes = q->bits < 8 ? 8 / q->bits : 1, step = (width + planes - 1) / planes;
    for (int64_t i = first; i < last; i++)
        for (int64_t plane = 0; plane < planes; plane++) {
            const int64_t at = plane * step + from, rest = width - at;
            const int64_t n = rest < to - from ? rest : to - from;
            const uint8_t *bytes = packed + i * packed_stride + (q->bits == 16 ? 2 * from : from);
            T *row = out + i * out_stride + at;
            const int64_t done = few_levels(row, bytes, divisor[i], q, plane, n);
            numbers(row + done, bytes + done, divisor[i], q, plane, n - done);
        }
}

/* What the other end restores, without the bytes. */
static inline void received(T *restrict row, const T *restrict x, const uint32_t *restrict words, T divisor,
                            const Quantizer *q, int64_t n) {
    const double size = (double)divisor, factor = FACTOR(q, size);
    const T scale = (T)q->scale, shift = (T)q->shift;
    const T zero = shift * divisor, one = (scale + shift) * divisor;
    T number;
    if (q->bits == 1)
        FOR_FIELDS(n, words, size, q, row[k] = field & 1 ? one : zero);
    else
        FOR_FIELDS(n, words, size, q, {
            SET(number, field - BASE);
            row[k] = number * scale * divisor;
        });
}

LOOP(tacit_received)(const T *x, int64_t x_stride, const uint32_t *words, int64_t words_stride, const T *divisor,
                     const Quantizer *q, T *out, int64_t out_stride, int64_t first, int64_t last, int64_t from,
                     int64_t to) {
    for (int64_t i = first; i < last; i++)
        received(out + i * out_stride + from, x + i * x_stride + from, words + i * words_stride + from,
                 divisor[i], q, to - from);
}

/* One bit per number, whether it is at least zero, packed as above. */
LOOP(tacit_signs)(const T *x, int64_t x_stride, uint8_t *out, int64_t out_stride, int64_t width, int64_t first,
                  int64_t last, int64_t from, int64_t to) {
    const int64_t step = (width + 7) / 8;
    for (int64_t i = first; i < last; i++) {
        uint8_t *restrict packed = out + i * out_stride;
        for (int64_t low = from; low < to; low += FIELDS)
            for (int plane = 0; plane < 8; plane++) {
                const T *restrict row = x + i * x_stride + plane * step;
                const int64_t most = low + FIELDS < to ? low + FIELDS : to, rest = width - plane * step;
                const int64_t end = most < rest ? most : rest;
                if (plane == 0)
                    for (int64_t k = low; k < end; k++) packed[k] = row[k] >= 0;
                else
                    for (int64_t k = low; k < end; k++) packed[k] |= (uint8_t)((row[k] >= 0) << plane);
            }
    }
}

/* low[i] and high[i] become the bits of the smallest and the largest magnitude of row i; the latter is NaN if a number is
 * not finite. */
LOOP(tacit_extremes)(const Bits *x, int64_t stride, Bits *low, Bits *high, int64_t first, int64_t last,
                     int64_t width) {
    for (int64_t i = first; i < last; i++) {
        const Bits *restrict row = x + i * stride;
        Bits least = (Bits)-1, most = 0;
        for (int64_t k = 0; k < width; k++) {
            const Bits magnitude = row[k] << 1 >> 1;
            least = magnitude < least ? magnitude : least;
            most = magnitude > most ? magnitude : most;
        }
        low[i] = least;
        high[i] = most < INFINITE ? most : QUIET_NAN;
    }
}

/* The square of a float32 is exact in double precision, so that a fused multiplication and addition gives the same
 * bits. float64 is measured in units. */
#undef NUMBER_OF
#undef ADD_SQUARE
#if SINGLE
#define NUMBER_OF(ROW) ((double)ROW[k])
#else
#define NUMBER_OF(ROW) (ROW[k] / size)
#endif
#if SINGLE && HAS_FMA
#define ADD_SQUARE(SUM, NUMBER) __builtin_fma(NUMBER, NUMBER, SUM)
#else
#define ADD_SQUARE(SUM, NUMBER) ((SUM) + (NUMBER) * (NUMBER))
#endif

/* sum[k] = the sum of (x[k + m stride] / size)^2 over m in order. */
static inline void add_squares(double *restrict sum, const T *x, double size, int64_t stride, int64_t n,
                               int64_t width) {
    int64_t at = 0;
    (void)size;
    if (3 * stride + n <= width) {
        const T *restrict a = x, *restrict b = a + stride, *restrict c = b + stride,
                         *restrict d = c + stride;
        for (int64_t k = 0; k < n; k++) {
            const double first = NUMBER_OF(a);
            sum[k] = ADD_SQUARE(ADD_SQUARE(ADD_SQUARE(first * first, NUMBER_OF(b)), NUMBER_OF(c)), NUMBER_OF(d));
        }
        at = 4 * stride;
    } else {
        for (int64_t k = 0; k < n; k++) sum[k] = 0;
    }
    for (; at + 3 * stride + n <= width; at += 4 * stride) {
        const T *restrict a = x + at, *restrict b = a + stride, *restrict c = b + stride,
                         *restrict d = c + stride;
        for (int64_t k = 0; k < n; k++)
            sum[k] = ADD_SQUARE(ADD_SQUARE(ADD_SQUARE(ADD_SQUARE(sum[k], NUMBER_OF(a)), NUMBER_OF(b)), NUMBER_OF(c)),
                                NUMBER_OF(d));
    }
    for (; at < width; at += stride) {
        const T *restrict a = x + at;
        const int64_t end = n < width - at ? n : width - at;
        for (int64_t k = 0; k < end; k++) sum[k] = ADD_SQUARE(sum[k], NUMBER_OF(a));
    }
}

/* The same for one square each, of columns that are `apart`; eight of them are added at once, the second half to the
 * first, repeatedly. */
static inline void add_eight(double *restrict sum, const T *restrict x, double size, int64_t apart,
                             int64_t n) {
    const T *restrict a = x, *restrict b = a + apart, *restrict c = b + apart, *restrict d = c + apart;
    const T *restrict e = d + apart, *restrict f = e + apart, *restrict g = f + apart,
                     *restrict h = g + apart;
    (void)size;
    for (int64_t k = 0; k < n; k++) {
        const double ae = ADD_SQUARE(NUMBER_OF(a) * NUMBER_OF(a), NUMBER_OF(e));
        const double bf = ADD_SQUARE(NUMBER_OF(b) * NUMBER_OF(b), NUMBER_OF(f));
        const double cg = ADD_SQUARE(NUMBER_OF(c) * NUMBER_OF(c), NUMBER_OF(g));
        const double dh = ADD_SQUARE(NUMBER_OF(d) * NUMBER_OF(d), NUMBER_OF(h));
        sum[k] = (ae + cg) + (bf + dh);
    }
}

/* Sums of squares a `stride` apart are sums of columns. total[k], for from <= k < to of row i, becomes the sum of the
 * columns k, k + stride / parts, k + 2 stride / parts, ..., of which the second half is added to the first, repeatedly.
 * In the order of reversed bits, the next to add is the last that was computed. */
#define DEPTH 4
#define SQUARES 8192
LOOP(tacit_squares)(const T *x, int64_t x_stride, const T *unit, double *total, int64_t total_stride,
                    int64_t stride, int64_t parts, int64_t width, int64_t first, int64_t last, int64_t from,
                    int64_t to) {
    double sums[DEPTH][SQUARES];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = from; low < to; low += SQUARES) {
            const int64_t n = to - low < SQUARES ? to - low : SQUARES;
            const double size = unit ? (double)unit[i] : 1;
            if (parts == 8 && width <= stride) {
                double *total_here = total + i * total_stride + low;
                add_eight(total_here, x + i * x_stride + low, size, stride / parts, n);
                continue;
            }
            int depth = 0;
            for (int64_t count = 0; count < parts; count++) {
                int64_t part = 0;
                for (int64_t bit = 1; bit < parts; bit *= 2) part = 2 * part + (count / bit & 1);
                const int64_t column = low + part * (stride / parts);
                add_squares(sums[depth++], x + i * x_stride + column, size, stride, n, width - column);
                for (int64_t rest = count; rest & 1; rest >>= 1) {
                    depth--;
                    for (int64_t k = 0; k < n; k++) sums[depth - 1][k] += sums[depth][k];
                }
            }
            memcpy(total + i * total_stride + low, sums[0], (size_t)n * sizeof sums[0][0]);
        }
}

/* norm[i] = the root of the sum of row i, in which the second half is added to the first, repeatedly, times the unit; NaN
 * if that is not finite. Overwrites the row. */
LOOP(tacit_norms)(double *total, int64_t stride, int64_t width, const T *unit, T *norm, int64_t first,
                  int64_t last) {
    for (int64_t i = first; i < last; i++) {
        double *row = total + i * stride;
        for (int64_t size = width; size > 1; size = (size + 1) / 2) {
            const int64_t half = (size + 1) / 2;
            double *restrict one = row;
            const double *restrict other = row + half;
            for (int64_t k = 0; k < size - half; k++) one[k] += other[k];
        }
        const T size = (T)(sqrt(row[0]) * (unit ? (double)unit[i] : 1));
        norm[i] = size - size == 0 ? size : (T)NAN;
    }
}
