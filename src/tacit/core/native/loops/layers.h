/* Layers of k clients with different weights: see gradients/linear.py and batch_last.py. Written in vectors,
 * which not every compiler knows. */
#if defined(__GNUC__)

/* Sums that stay in registers: COMBINED rows of VECTORS vectors, or products of LEFT and RIGHT vectors. */
#if VECTOR_BYTES == 64
#define COMBINED 8
#define VECTORS 2
#define LEFT 4
#define RIGHT 4
#elif defined(__x86_64__)
#define COMBINED 4
#define VECTORS 2
#define LEFT 4
#define RIGHT 2
#else
#define COMBINED 4
#define VECTORS 4
#define LEFT 4
#define RIGHT 4
#endif

#define Narrow FOR_TYPE(Narrow)
#define Wide FOR_TYPE(Wide)
#define Factors FOR_TYPE(Factors)
#define total_of_narrow FOR_TYPE(total_of_narrow)
#define total_of_wide FOR_TYPE(total_of_wide)
#define pack FOR_TYPE(pack)
#define combine FOR_TYPE(combine)

typedef T Narrow __attribute__((vector_size(16), aligned(sizeof(T))));
typedef T Wide __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T))));

/* The sum of all numbers of a vector: first of its parts of 16 bytes, then in halves. */
#undef TOTAL_OF_PART
#if SINGLE
#define TOTAL_OF_PART(V) (((V)[0] + (V)[2]) + ((V)[1] + (V)[3]))
#else
#define TOTAL_OF_PART(V) ((V)[0] + (V)[1])
#endif
#define DEFINE_TOTAL(NAME, VECTOR)                                                          \
    static inline T NAME(VECTOR numbers) {                                                  \
        enum { PARTS_ = sizeof(VECTOR) / sizeof(Narrow) };                                  \
        Narrow parts[PARTS_];                                                               \
        memcpy(parts, &numbers, sizeof parts);                                              \
        for (int part = 1; part < PARTS_; part++) parts[0] += parts[part];                  \
        return TOTAL_OF_PART(parts[0]);                                                     \
    }

DEFINE_TOTAL(total_of_narrow, Narrow)
DEFINE_TOTAL(total_of_wide, Wide)
#define TOTAL_OF_ONE(NUMBER) (NUMBER)

/* A loop that is unrolled, so that what it indexes is in registers. */
#define EACH(INDEX, COUNT) _Pragma("GCC unroll 16") for (int INDEX = 0; INDEX < (COUNT); INDEX++)

/* The COMBINED factors of one r. ARM multiplies by a lane of a vector, x86 by a number in memory. */
#if defined(__aarch64__)
typedef T Factors __attribute__((vector_size(COMBINED * sizeof(T)), aligned(sizeof(T))));
#define FACTORS_AT(W, AT) const Factors W = *(const Factors *)(AT)
#else
#define FACTORS_AT(W, AT) const T *W = AT
#endif

/* Factors [m][r] as groups of COMBINED factors per r, with zeros at the end. */
static inline void pack(T *restrict packed, const T *factor, int64_t m_stride, int64_t r_stride,
                        int64_t count, int64_t terms) {
    for (int64_t m = 0; m < count; m += COMBINED, packed += terms * COMBINED)
        for (int64_t j = 0; j < COMBINED; j++)
            for (int64_t r = 0; r < terms; r++)
                packed[r * COMBINED + j] = m + j < count ? factor[(m + j) * m_stride + r * r_stride] : 0;
}

/* out[to[m] + n] (+)= the sum over r of packed[r][m] x[from[r] + n], for m < rows and NUMBER vectors of n. */
#define COMBINE(VECTOR, NUMBER)                                                                              \
    for (; n + (int64_t)(NUMBER * sizeof(VECTOR) / sizeof(T)) <= width;                                      \
         n += (int64_t)(NUMBER * sizeof(VECTOR) / sizeof(T))) {                                              \
        enum { LANES_ = sizeof(VECTOR) / sizeof(T) };                                                        \
        VECTOR sum[COMBINED][NUMBER];                                                                        \
        EACH(j, COMBINED) EACH(c, NUMBER) sum[j][c] = (VECTOR){0};                                           \
        for (int64_t r = 0; r < terms; r++) {                                                                \
            const T *at = x + from[r] + n;                                                                   \
            FACTORS_AT(w, packed + r * COMBINED);                                                            \
            VECTOR v[NUMBER];                                                                                \
            EACH(c, NUMBER) v[c] = *(const VECTOR *)(at + c * LANES_);                                       \
            EACH(j, COMBINED) EACH(c, NUMBER) sum[j][c] += w[j] * v[c];                                      \
        }                                                                                                    \
        EACH(j, COMBINED) EACH(c, NUMBER) if (j < rows) {                                                    \
            VECTOR *o = (VECTOR *)(out + to[j] + n + c * LANES_);                                            \
            *o = onto ? *o + sum[j][c] : sum[j][c];                                                          \
        }                                                                                                    \
    }

static inline void combine(const T *packed, int64_t rows, int64_t terms, const T *x, const int64_t *from,
                           T *out, const int64_t *to, int64_t width, int onto) {
    int64_t n = 0;
    COMBINE(Wide, VECTORS)
    COMBINE(Wide, 1)
    if (sizeof(Wide) > sizeof(Narrow)) COMBINE(Narrow, 1)
    COMBINE(T, 1)
}

/* out[m] = the sum over r of factor[m][r] x[r], rows of `width` numbers, for each of k clients. The strides are of
 * clients, m, r; `scratch` has room for the factors, padded, and for an offset per r and m. If there is a `total`,
 * total[m] = the sum of all factors of m. */
LOOP(tacit_product)(int64_t clients, int64_t count, int64_t terms, int64_t width, const T *factor, int64_t f_client,
                    int64_t f_m, int64_t f_r, const T *x, int64_t x_client, int64_t x_r, T *out, int64_t o_client,
                    int64_t o_m, T *total, int64_t t_client, T *scratch) {
    const int64_t padded = (count + COMBINED - 1) / COMBINED * COMBINED;
    int64_t *from = (int64_t *)(scratch + padded * terms + (padded * terms) % 2), *to = from + terms;
    for (int64_t r = 0; r < terms; r++) from[r] = r * x_r;
    for (int64_t m = 0; m < count; m++) to[m] = m * o_m;
    for (int64_t i = 0; i < clients; i++) {
        pack(scratch, factor + i * f_client, f_m, f_r, count, terms);
        for (int64_t m = 0; m < count; m += COMBINED) {
            const T *packed = scratch + m * terms;
            combine(packed, count - m, terms, x + i * x_client, from, out + i * o_client, to + m, width, 0);
            if (!total) continue;
            T sum[COMBINED] = {0};
            for (int64_t r = 0; r < terms; r++) EACH(j, COMBINED) sum[j] += packed[r * COMBINED + j];
            for (int64_t j = 0; j < COMBINED && m + j < count; j++) total[i * t_client + m + j] = sum[j];
        }
    }
}

/* out[m][n] = the product of left[m] and right[n], rows of `width` numbers, plus start[m] if there is a start. */
LOOP(tacit_dots)(int64_t clients, int64_t rows, int64_t columns, int64_t width, const T *left, int64_t l_client,
                 int64_t l_m, const T *right, int64_t r_client, int64_t r_n, const T *start, T *out,
                 int64_t o_client, int64_t o_m, int64_t o_n) {
    enum { LANES_ = sizeof(Wide) / sizeof(T) };
    for (int64_t i = 0; i < clients; i++)
        for (int64_t m = 0; m < rows; m += LEFT)
            for (int64_t n = 0; n < columns; n += RIGHT) {
                const T *l[LEFT], *r[RIGHT];
                for (int a = 0; a < LEFT; a++)
                    l[a] = left + i * l_client + (m + a < rows ? m + a : rows - 1) * l_m;
                for (int b = 0; b < RIGHT; b++)
                    r[b] = right + i * r_client + (n + b < columns ? n + b : columns - 1) * r_n;
                Wide sum[LEFT][RIGHT];
                EACH(a, LEFT) EACH(b, RIGHT) sum[a][b] = (Wide){0};
                int64_t k = 0;
                for (; k + LANES_ <= width; k += LANES_) {
                    Wide u[LEFT], v[RIGHT];
                    EACH(a, LEFT) u[a] = *(const Wide *)(l[a] + k);
                    EACH(b, RIGHT) v[b] = *(const Wide *)(r[b] + k);
                    EACH(a, LEFT) EACH(b, RIGHT) sum[a][b] += u[a] * v[b];
                }
                EACH(a, LEFT) EACH(b, RIGHT) if (m + a < rows && n + b < columns) {
                    T total = start ? start[i * l_client + m + a] : 0;
                    total += total_of_wide(sum[a][b]);
                    for (int64_t rest = k; rest < width; rest++) total += l[a][rest] * r[b][rest];
                    out[i * o_client + (m + a) * o_m + (n + b) * o_n] = total;
                }
            }
}

/* Convolutions of padded images [channels, height, width, batch]. offset[t] is where tap t of the first window is. */
#define OFFSETS(OFFSET, G, BATCH)                                                                            \
    for (int64_t t = 0; t < taps; t++) {                                                                     \
        const int64_t within = t % area, row = within / (G)->kernel_width * (G)->dilation_down;              \
        OFFSET[t] = ((t / area * (G)->height + row) * (G)->width +                                           \
                     within % (G)->kernel_width * (G)->dilation_across) * (BATCH);                           \
    }

/* Samples at a time. They are copied: in their own place, pixels would compete for the same sets of the cache. */
#define SAMPLES (int64_t)(VECTORS * VECTOR_BYTES / sizeof(T))

/* out[i] [filters, rows, columns, batch] = the products of filters [filters, taps] and windows of x[i]. */
LOOP(tacit_convolve)(int64_t clients, const T *x, int64_t x_client, const T *weight, int64_t w_client, T *out,
                     int64_t batch, const Geometry *g, T *scratch) {
    const int64_t area = g->kernel_height * g->kernel_width, taps = g->channels * area;
    const int64_t positions = g->rows * g->columns, pixels = g->channels * g->height * g->width;
    const int64_t padded = (g->filters + COMBINED - 1) / COMBINED * COMBINED;
    int64_t *offset = (int64_t *)(scratch + padded * taps + (padded * taps) % 2), *to = offset + taps;
    T *image = (T *)(to + g->filters);
    for (int64_t f = 0; f < g->filters; f++) to[f] = f * positions * batch;
    for (int64_t i = 0; i < clients; i++) {
        pack(scratch, weight + i * w_client, taps, 1, g->filters, taps);
        for (int64_t n = 0; n < batch; n += SAMPLES) {
            const int64_t some = batch - n < SAMPLES ? batch - n : SAMPLES;
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t k = 0; k < some; k++) image[p * some + k] = x[i * x_client + p * batch + n + k];
            OFFSETS(offset, g, some)
            for (int64_t f = 0; f < g->filters; f += COMBINED)
                for (int64_t p = 0; p < positions; p++) {
                    const int64_t row = p / g->columns * g->down, column = p % g->columns * g->across;
                    combine(scratch + f * taps, g->filters - f, taps,
                            image + (row * g->width + column) * some, offset,
                            out + (i * g->filters * positions + p) * batch + n, to + f, some, 0);
                }
        }
    }
}

/* dx[i] = the gradient of the images x[i], from that of the output. */
LOOP(tacit_image_gradients)(int64_t clients, const T *dy, const T *weight, int64_t w_client, T *dx, int64_t x_client,
                            int64_t batch, const Geometry *g, T *scratch) {
    const int64_t area = g->kernel_height * g->kernel_width, taps = g->channels * area;
    const int64_t positions = g->rows * g->columns, pixels = g->channels * g->height * g->width;
    const int64_t padded = (taps + COMBINED - 1) / COMBINED * COMBINED;
    int64_t *offset = (int64_t *)(scratch + padded * g->filters + (padded * g->filters) % 2);
    int64_t *from = offset + taps;
    T *near = (T *)(from + g->filters), *image = near + g->filters * SAMPLES;
    for (int64_t f = 0; f < g->filters; f++) from[f] = f * SAMPLES;
    for (int64_t i = 0; i < clients; i++) {
        pack(scratch, weight + i * w_client, 1, taps, taps, g->filters);
        for (int64_t n = 0; n < batch; n += SAMPLES) {
            const int64_t some = batch - n < SAMPLES ? batch - n : SAMPLES;
            memset(image, 0, (size_t)(pixels * some) * sizeof(T));
            OFFSETS(offset, g, some)
            for (int64_t p = 0; p < positions; p++) {
                const int64_t row = p / g->columns * g->down, column = p % g->columns * g->across;
                const T *own = dy + (i * g->filters * positions + p) * batch + n;
                for (int64_t f = 0; f < g->filters; f++)
                    memcpy(near + f * SAMPLES, own + f * positions * batch, (size_t)some * sizeof(T));
                for (int64_t t = 0; t < taps; t += COMBINED)
                    combine(scratch + t * g->filters, taps - t, g->filters, near, from,
                            image + (row * g->width + column) * some, offset + t, some, 1);
            }
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t k = 0; k < some; k++) dx[i * x_client + p * batch + n + k] = image[p * some + k];
        }
    }
}

/* Sums over the batch from b on of products of LEFT gradients and RIGHT taps, added to total. */
#define ADD_PRODUCTS(VECTOR, TOTAL)                                                                          \
    if (b + (int64_t)(sizeof(VECTOR) / sizeof(T)) <= batch) {                                                \
        enum { LANES_ = sizeof(VECTOR) / sizeof(T) };                                                        \
        const int64_t end = b + (batch - b) / LANES_ * LANES_;                                               \
        VECTOR sum[LEFT][RIGHT];                                                                             \
        EACH(j, LEFT) EACH(c, RIGHT) sum[j][c] = (VECTOR){0};                                                \
        for (int64_t row = 0; row < g->rows; row++)                                                          \
            for (int64_t column = 0; column < g->columns; column++) {                                        \
                const int64_t at = (row * g->columns + column) * batch;                                      \
                const int64_t of = (row * g->down * g->width + column * g->across) * batch;                  \
                for (int64_t k = b; k < end; k += LANES_) {                                                  \
                    VECTOR u[LEFT], v[RIGHT];                                                                \
                    EACH(j, LEFT) u[j] = *(const VECTOR *)(d[j] + at + k);                                   \
                    EACH(j, RIGHT) v[j] = *(const VECTOR *)(w[j] + of + k);                                  \
                    EACH(j, LEFT) EACH(c, RIGHT) sum[j][c] += u[j] * v[c];                                   \
                }                                                                                            \
            }                                                                                                \
        EACH(j, LEFT) EACH(c, RIGHT) total[j][c] += TOTAL(sum[j][c]);                                        \
        b = end;                                                                                             \
    }

/* gradient[i] [filters, taps] = the sums over windows and samples of dy[i] times x[i]. */
LOOP(tacit_weight_gradients)(int64_t clients, const T *x, int64_t x_client, const T *dy, T *gradient, int64_t g_client,
                             int64_t batch, const Geometry *g, T *scratch) {
    const int64_t area = g->kernel_height * g->kernel_width, taps = g->channels * area;
    const int64_t positions = g->rows * g->columns;
    int64_t *offset = (int64_t *)scratch;
    OFFSETS(offset, g, batch)
    for (int64_t i = 0; i < clients; i++)
        for (int64_t f = 0; f < g->filters; f += LEFT) {
            const T *d[LEFT];
            for (int64_t j = 0; j < LEFT; j++)
                d[j] = dy + (i * g->filters + (f + j < g->filters ? f + j : g->filters - 1)) * positions * batch;
            for (int64_t t = 0; t < taps; t += RIGHT) {
                const T *w[RIGHT];
                for (int64_t j = 0; j < RIGHT; j++)
                    w[j] = x + i * x_client + offset[t + j < taps ? t + j : taps - 1];
                T total[LEFT][RIGHT] = {{0}};
                int64_t b = 0;
                ADD_PRODUCTS(Wide, total_of_wide)
                if (sizeof(Wide) > sizeof(Narrow)) ADD_PRODUCTS(Narrow, total_of_narrow)
                ADD_PRODUCTS(T, TOTAL_OF_ONE)
                for (int64_t j = 0; j < LEFT && f + j < g->filters; j++)
                    for (int64_t c = 0; c < RIGHT && t + c < taps; c++)
                        gradient[i * g_client + (f + j) * taps + t + c] = total[j][c];
            }
        }
}

#undef COMBINED
#undef VECTORS
#undef LEFT
#undef RIGHT
#endif
