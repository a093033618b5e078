/* Gradients of single samples. These loops are written in vectors, which not every compiler knows. */
#if defined(__GNUC__)
#define weighted_sum FOR_TYPE(weighted_sum)

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

/* Copy the numbers of n samples to a vector; all of a vector in one move. */
#define COPY(TO, FROM, N, VECTOR) \
    ((N) * sizeof *(FROM) == sizeof(VECTOR) ? memcpy(TO, FROM, sizeof(VECTOR)) : memcpy(TO, FROM, (N) * sizeof *(FROM)))

/* The gradient of each sample by the filters and b of a convolution: sample i is row i of out, and squares[i] the sum of
 * squares by the filters. The batch is the last dimension of the images x [channels, height, width, batch] and of dy
 * [filters, rows, columns, batch], so each vector holds one number of several samples. `scratch` has room for the
 * images, dy and the gradients by four filters of one such group of samples, and for an offset per tap. */
LOOP(tacit_filter_gradients)(const T *x, const T *dy, int64_t batch, const Geometry *g, T *out, int64_t stride,
                             double *squares, T *scratch) {
    enum { LANES_OF_T = BYTES / sizeof(T) };
    typedef T Vector __attribute__((vector_size(BYTES)));
    typedef double Doubles __attribute__((vector_size(LANES_OF_T * 8)));
    const int64_t pixels = g->channels * g->height * g->width, positions = g->rows * g->columns;
    const int64_t area = g->kernel_height * g->kernel_width, taps = g->channels * area;
    const int64_t padded = (taps + TAPS - 1) / TAPS * TAPS;
    Vector *image = (Vector *)scratch, *gradient = image + pixels, *strip = gradient + g->filters * positions;
    int64_t *offset = (int64_t *)(strip + FILTERS * padded);
    for (int64_t t = 0; t < padded; t++) {
        const int64_t tap = t < taps ? t : taps - 1, within = tap % area;
        const int64_t row = within / g->kernel_width * g->dilation_down;
        offset[t] = (tap / area * g->height + row) * g->width + within % g->kernel_width * g->dilation_across;
    }
    for (int64_t b = 0; b < batch; b += LANES_OF_T) {
        const int64_t n = batch - b < LANES_OF_T ? batch - b : LANES_OF_T;
        if (n < LANES_OF_T) memset(scratch, 0, (pixels + g->filters * positions) * sizeof(Vector));
        for (int64_t p = 0; p < pixels; p++) COPY(image + p, x + p * batch + b, n, Vector);
        for (int64_t p = 0; p < g->filters * positions; p++)
            COPY(gradient + p, dy + p * batch + b, n, Vector);
        Doubles total[4] = {{0}};
        for (int64_t f = 0; f < g->filters; f += FILTERS) {
            const Vector *d[FILTERS];
            for (int64_t i = 0; i < FILTERS; i++)
                d[i] = gradient + (f + i < g->filters ? f + i : g->filters - 1) * positions;
            for (int64_t t = 0; t < padded; t += TAPS) {
                const Vector *w[TAPS];
                for (int j = 0; j < TAPS; j++) w[j] = image + offset[t + j];
                Vector sum[FILTERS][TAPS] = {{{0}}};
                for (int64_t row = 0, at = 0; row < g->rows; row++)
                    for (int64_t k = 0, from = row * g->down * g->width; k < g->columns;
                         k++, at++, from += g->across) {
                        Vector u[FILTERS], v[TAPS];
                        for (int i = 0; i < FILTERS; i++) u[i] = d[i][at];
                        for (int j = 0; j < TAPS; j++) v[j] = w[j][from];
                        for (int i = 0; i < FILTERS; i++)
                            for (int j = 0; j < TAPS; j++) sum[i][j] += u[i] * v[j];
                    }
                for (int i = 0; i < FILTERS; i++)
                    for (int j = 0; j < TAPS; j++) strip[i * padded + t + j] = sum[i][j];
            }
            for (int64_t i = 0; i < FILTERS && f + i < g->filters; i++) {
                const Vector *found = strip + i * padded;
                int64_t t = 0;
                for (; t + 4 <= taps; t += 4)
                    for (int j = 0; j < 4; j++) {
                        const Doubles number = __builtin_convertvector(found[t + j], Doubles);
                        total[j] += number * number;
                    }
                for (; t < taps; t++) {
                    const Doubles number = __builtin_convertvector(found[t], Doubles);
                    total[0] += number * number;
                }
                T *o = out + b * stride + (f + i) * taps;
                if (n == LANES_OF_T)
                    for (t = 0; t < taps; t++)
                        for (int lane = 0; lane < LANES_OF_T; lane++) o[lane * stride + t] = found[t][lane];
                else
                    for (t = 0; t < taps; t++)
                        for (int lane = 0; lane < n; lane++) o[lane * stride + t] = found[t][lane];
            }
        }
        for (int64_t f = 0; f < g->filters && g->bias; f++) {
            Vector sum = {0};
            for (int64_t p = 0; p < positions; p++) sum += gradient[f * positions + p];
            for (int64_t lane = 0; lane < n; lane++)
                out[(b + lane) * stride + g->filters * taps + f] = sum[lane];
        }
        total[0] = (total[0] + total[1]) + (total[2] + total[3]);
        for (int64_t lane = 0; lane < n; lane++) squares[b + lane] = total[0][lane];
    }
}

/* Sums of samples are added in double, also of floats: what a sample changes in a sum is then bounded by its own size,
 * up to one rounding of the sum. Columns at a time, whose sums fit into the cache. */
#define SUMMED 1024

/* out[0 .. width] = sum over b < n of left[b] right[b], for one number left[b]. */
static inline void weighted_sum(const T *left, int64_t left_stride, const T *right, int64_t right_stride, int64_t n,
                                T *out, int64_t width) {
    double o[SUMMED];
    for (int64_t low = 0; low < width; low += SUMMED) {
        const int64_t some = width - low < SUMMED ? width - low : SUMMED;
        int64_t b = 0;
        memset(o, 0, some * sizeof(double));
        for (; b + 4 <= n; b += 4) {
            const double p = left[b * left_stride], q = left[(b + 1) * left_stride],
                         r = left[(b + 2) * left_stride], s = left[(b + 3) * left_stride];
            const T *u = right + b * right_stride + low, *v = u + right_stride, *w = v + right_stride,
                    *x = w + right_stride;
            for (int64_t k = 0; k < some; k++) o[k] += (p * u[k] + q * v[k]) + (r * w[k] + s * x[k]);
        }
        for (; b < n; b++) {
            const T *u = right + b * right_stride + low;
            const double p = left[b * left_stride];
            for (int64_t k = 0; k < some; k++) o[k] += p * u[k];
        }
        for (int64_t k = 0; k < some; k++) out[low + k] = (T)o[k];
    }
}

/* out[i] = sum over bounds[i] <= b < bounds[i + 1] of the outer product of left[b] and right[b], for i < n. */
LOOP(tacit_outer_sums)(const T *left, int64_t left_stride, int64_t factors, const T *right,
                       int64_t right_stride, int64_t width, const int64_t *bounds, int64_t n, T *out,
                       int64_t stride) {
    enum { LANES_OF_SUM = BYTES / sizeof(double), TILE_OF_SUM = COLUMNS * LANES_OF_SUM };
    typedef double Sum __attribute__((vector_size(BYTES)));
    typedef T Few __attribute__((vector_size(LANES_OF_SUM * sizeof(T)), aligned(sizeof(T))));
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = bounds[i], last = bounds[i + 1];
        T *row = out + i * stride;
        int64_t f = factors == 1 ? 0 : factors / FACTORS * FACTORS, k = 0;
        /* Columns outside, factors inside: some columns of `right` stay in the cache for all factors. */
        for (; k + TILE_OF_SUM <= width && f; k += TILE_OF_SUM)
            for (int64_t g = 0; g < f; g += FACTORS) {
                Sum sum[FACTORS][COLUMNS] = {{{0}}};
                for (int64_t b = first; b < last; b++) {
                    const T *l = left + b * left_stride + g;
                    const Few *r = (const Few *)(right + b * right_stride + k);
                    Sum v[COLUMNS];
                    for (int j = 0; j < COLUMNS; j++) v[j] = __builtin_convertvector(r[j], Sum);
                    for (int j = 0; j < FACTORS; j++)
                        for (int c = 0; c < COLUMNS; c++) sum[j][c] += (double)l[j] * v[c];
                }
                for (int j = 0; j < FACTORS; j++)
                    for (int c = 0; c < COLUMNS; c++)
                        *(Few *)(row + (g + j) * width + k + c * LANES_OF_SUM) =
                            __builtin_convertvector(sum[j][c], Few);
            }
        for (int64_t g = 0; g < f && k < width; g++)
            weighted_sum(left + first * left_stride + g, left_stride, right + first * right_stride + k, right_stride,
                         last - first, row + g * width + k, width - k);
        for (; f < factors; f++)
            weighted_sum(left + first * left_stride + f, left_stride, right + first * right_stride,
                         right_stride, last - first, row + f * width, width);
    }
}

#endif
