/* Max-pooling of images [height, width, batch] in windows that do not overlap, with b and ReLU. */

#define larger_f32 FOR_TARGET(larger_f32)
#define larger_f64 FOR_TARGET(larger_f64)
#define positive_f32 FOR_TARGET(positive_f32)
#define chosen_f32 FOR_TARGET(chosen_f32)
#define positive_f64 FOR_TARGET(positive_f64)
#define chosen_f64 FOR_TARGET(chosen_f64)

/* Samples at a time, whose numbers stay in registers or the nearest cache. */
#define POOLED 64

#if !defined(HAS_WINDOWS)
#define HAS_WINDOWS
typedef struct {
    int64_t height, width, batch, window_height, window_width, down, across, rows, columns, filters, relu;
} Windows;
#endif

/* In functions of their own, these loops are vectorised. */
#if defined(__GNUC__)
#define SEPARATE __attribute__((noinline))
#else
#define SEPARATE
#endif
#define DEFINE_LARGER(LARGER, POSITIVE, CHOSEN, T, INDEX)                                                    \
    static SEPARATE void LARGER(T *restrict best, INDEX *restrict at, const T *restrict own, INDEX place, int64_t n) {\
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const T number = own[k];                                                                         \
            const int larger = (number > best[k]) | (number != number);                                      \
            best[k] = larger ? number : best[k];                                                             \
            at[k] = larger ? place : at[k];                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    static inline void POSITIVE(T *out, const T *condition, const T *x, int64_t n) {                         \
        SAME_PLACE for (int64_t k = 0; k < n; k++) {                                                         \
            const T number = x[k];                                                                           \
            const int keep = (condition[k] > 0) | (condition[k] != condition[k]);                            \
            out[k] = keep ? number : 0;                                                                      \
        }                                                                                                    \
    }                                                                                                        \
    static inline void CHOSEN(T *restrict own, const INDEX *restrict at, const T *restrict gradient, INDEX place,\
                              int64_t n) {                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const T number = gradient[k];                                                                    \
            own[k] = at[k] == place ? number : 0;                                                            \
        }                                                                                                    \
    }

DEFINE_LARGER(larger_f32, positive_f32, chosen_f32, float, int32_t)
DEFINE_LARGER(larger_f64, positive_f64, chosen_f64, double, int64_t)

/* y = the largest number of each window (the first among equals, or a NaN), plus b[client][filter]; with ReLU, at least
 * zero. `where` is its place in the window. */
#define DEFINE_POOL(NAME, LARGER, POSITIVE, T, INDEX)                                                        \
    LOOP(NAME)(const T *x, int64_t images, const Windows *g, const T *b, int64_t b_client, T *y, uint8_t *where) {\
        T best[POOLED];                                                                                      \
        INDEX at[POOLED];                                                                                    \
        for (int64_t m = 0; m < images; m++, x += g->height * g->width * g->batch) {                         \
            const T shift = b ? b[m / g->filters * b_client + m % g->filters] : 0;                           \
            for (int64_t row = 0; row < g->rows; row++)                                                      \
                for (int64_t column = 0; column < g->columns; column++, y += g->batch, where += g->batch)    \
                    for (int64_t low = 0; low < g->batch; low += POOLED) {                                   \
                        const int64_t n = g->batch - low < POOLED ? g->batch - low : POOLED;                 \
                        const T *corner = x + (row * g->down * g->width + column * g->across) * g->batch + low;\
                        for (int64_t k = 0; k < n; k++) best[k] = corner[k], at[k] = 0;                      \
                        for (int64_t w = 1; w < g->window_height * g->window_width; w++) {                   \
                            const int64_t place = w / g->window_width * g->width + w % g->window_width;      \
                            LARGER(best, at, corner + place * g->batch, (INDEX)w, n);                        \
                        }                                                                                    \
                        if (b)                                                                               \
                            for (int64_t k = 0; k < n; k++) best[k] += shift;                                \
                        if (g->relu)                                                                         \
                            POSITIVE(best, best, best, n);                                                   \
                        for (int64_t k = 0; k < n; k++) y[low + k] = best[k];                                \
                        for (int64_t k = 0; k < n; k++) where[low + k] = (uint8_t)at[k];                     \
                    }                                                                                        \
        }                                                                                                    \
    }

DEFINE_POOL(tacit_pool_f32, larger_f32, positive_f32, float, int32_t)
DEFINE_POOL(tacit_pool_f64, larger_f64, positive_f64, double, int64_t)

/* dx = the gradient of x from that of y, and db[client][filter] that of b, if there is a db. */
#define DEFINE_UNPOOL(NAME, CHOSEN, POSITIVE, T, INDEX)                                                      \
    LOOP(NAME)(const T *dy, const T *y, const uint8_t *where, int64_t images, const Windows *g, T *dx, T *db,\
               int64_t b_client) {                                                                           \
        T gradient[POOLED], sums[POOLED];                                                                    \
        INDEX at[POOLED];                                                                                    \
        const int64_t pixels = g->height * g->width * g->batch;                                              \
        const int covers = g->window_height == g->down && g->window_width == g->across &&                    \
                           g->rows * g->down == g->height && g->columns * g->across == g->width;             \
        for (int64_t m = 0; m < images; m++, dx += pixels) {                                                 \
            if (!covers) memset(dx, 0, (size_t)pixels * sizeof(T));                                          \
            for (int64_t k = 0; k < POOLED; k++) sums[k] = 0;                                                \
            for (int64_t row = 0; row < g->rows; row++)                                                      \
                for (int64_t column = 0; column < g->columns;                                                \
                     column++, y += g->batch, dy += g->batch, where += g->batch)                             \
                    for (int64_t low = 0; low < g->batch; low += POOLED) {                                   \
                        const int64_t n = g->batch - low < POOLED ? g->batch - low : POOLED;                 \
                        T *corner = dx + (row * g->down * g->width + column * g->across) * g->batch + low;   \
                        for (int64_t k = 0; k < n; k++) at[k] = where[low + k];                              \
                        if (g->relu)                                                                         \
                            POSITIVE(gradient, y + low, dy + low, n);                                        \
                        else                                                                                 \
                            memcpy(gradient, dy + low, (size_t)n * sizeof(T));                               \
                        for (int64_t k = 0; k < n; k++) sums[k] += gradient[k];                              \
                        for (int64_t w = 0; w < g->window_height * g->window_width; w++) {                   \
                            const int64_t place = w / g->window_width * g->width + w % g->window_width;      \
                            CHOSEN(corner + place * g->batch, at, gradient, (INDEX)w, n);                    \
                        }                                                                                    \
                    }                                                                                        \
            for (int64_t k = 1; k < POOLED; k++) sums[0] += sums[k];                                         \
            if (db) db[m / g->filters * b_client + m % g->filters] = sums[0];                                \
        }                                                                                                    \
    }

DEFINE_UNPOOL(tacit_unpool_f32, chosen_f32, positive_f32, float, int32_t)
DEFINE_UNPOOL(tacit_unpool_f64, chosen_f64, positive_f64, double, int64_t)
