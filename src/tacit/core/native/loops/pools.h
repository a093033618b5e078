/* Max-pooling of images [height, width, batch] in windows that do not overlap, with b and ReLU. */

#define keep_larger FOR_TYPE(keep_larger)
#define positive FOR_TYPE(positive)
#define chosen FOR_TYPE(chosen)

/* Samples at a time, whose numbers stay in registers or the nearest cache. */
#define POOLED 64

/* In functions of their own, these loops are vectorised. */
#if defined(__GNUC__)
#define SEPARATE __attribute__((noinline))
#else
#define SEPARATE
#endif

static SEPARATE void keep_larger(T *restrict best, Index *restrict at, const T *restrict own, Index place, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        const T number = own[k];
        const int larger = (number > best[k]) | (number != number);
        best[k] = larger ? number : best[k];
        at[k] = larger ? place : at[k];
    }
}

static inline void positive(T *out, const T *condition, const T *x, int64_t n) {
    SAME_PLACE for (int64_t k = 0; k < n; k++) {
        const T number = x[k];
        const int keep = (condition[k] > 0) | (condition[k] != condition[k]);
        out[k] = keep ? number : 0;
    }
}

static inline void chosen(T *restrict own, const Index *restrict at, const T *restrict gradient, Index place,
                          int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        const T number = gradient[k];
        own[k] = at[k] == place ? number : 0;
    }
}

/* y = the largest number of each window (the first among equals, or a NaN), plus b[client][filter]; with ReLU, at least
 * zero. `where` is its place in the window. */
LOOP(tacit_pool)(const T *x, int64_t images, const Windows *g, const T *b, int64_t b_client, T *y, uint8_t *where) {
    T best[POOLED];
    Index at[POOLED];
    for (int64_t m = 0; m < images; m++, x += g->height * g->width * g->batch) {
        const T shift = b ? b[m / g->filters * b_client + m % g->filters] : 0;
        for (int64_t row = 0; row < g->rows; row++)
            for (int64_t column = 0; column < g->columns; column++, y += g->batch, where += g->batch)
                for (int64_t low = 0; low < g->batch; low += POOLED) {
                    const int64_t n = g->batch - low < POOLED ? g->batch - low : POOLED;
                    const T *corner = x + (row * g->down * g->width + column * g->across) * g->batch + low;
                    for (int64_t k = 0; k < n; k++) best[k] = corner[k], at[k] = 0;
                    for (int64_t w = 1; w < g->window_height * g->window_width; w++) {
                        const int64_t place = w / g->window_width * g->width + w % g->window_width;
                        keep_larger(best, at, corner + place * g->batch, (Index)w, n);
                    }
                    if (b)
                        for (int64_t k = 0; k < n; k++) best[k] += shift;
                    if (g->relu) positive(best, best, best, n);
                    for (int64_t k = 0; k < n; k++) y[low + k] = best[k];
                    for (int64_t k = 0; k < n; k++) where[low + k] = (uint8_t)at[k];
                }
    }
}

/* dx = the gradient of x from that of y, and db[client][filter] that of b, if there is a db. */
LOOP(tacit_unpool)(const T *dy, const T *y, const uint8_t *where, int64_t images, const Windows *g, T *dx, T *db,
                   int64_t b_client) {
    T gradient[POOLED], sums[POOLED];
    Index at[POOLED];
    const int64_t pixels = g->height * g->width * g->batch;
    const int covers = g->window_height == g->down && g->window_width == g->across &&
                       g->rows * g->down == g->height && g->columns * g->across == g->width;
    for (int64_t m = 0; m < images; m++, dx += pixels) {
        if (!covers) memset(dx, 0, (size_t)pixels * sizeof(T));
        for (int64_t k = 0; k < POOLED; k++) sums[k] = 0;
        for (int64_t row = 0; row < g->rows; row++)
            for (int64_t column = 0; column < g->columns;
                 column++, y += g->batch, dy += g->batch, where += g->batch)
                for (int64_t low = 0; low < g->batch; low += POOLED) {
                    const int64_t n = g->batch - low < POOLED ? g->batch - low : POOLED;
                    T *corner = dx + (row * g->down * g->width + column * g->across) * g->batch + low;
                    for (int64_t k = 0; k < n; k++) at[k] = where[low + k];
                    if (g->relu)
                        positive(gradient, y + low, dy + low, n);
                    else
                        memcpy(gradient, dy + low, (size_t)n * sizeof(T));
                    for (int64_t k = 0; k < n; k++) sums[k] += gradient[k];
                    for (int64_t w = 0; w < g->window_height * g->window_width; w++) {
                        const int64_t place = w / g->window_width * g->width + w % g->window_width;
                        chosen(corner + place * g->batch, at, gradient, (Index)w, n);
                    }
                }
        for (int64_t k = 1; k < POOLED; k++) sums[0] += sums[k];
        if (db) db[m / g->filters * b_client + m % g->filters] = sums[0];
    }
}

