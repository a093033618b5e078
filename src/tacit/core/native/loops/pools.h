/* Max-pooling of images [height, width, batch] in windows that do not overlap, with b and ReLU. A vector holds the same
 * pixel of several samples. */
#if defined(__GNUC__)

#define Places FOR_TYPE(Places)
#define Marks FOR_TYPE(Marks)
#define load FOR_TYPE(load)
#define kept FOR_TYPE(kept)

typedef Index Places __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t Marks __attribute__((vector_size(VECTOR_BYTES / sizeof(T))));
#define LANES_OF_POOL (int64_t)(VECTOR_BYTES / sizeof(T))

/* The numbers of n samples, and zeros. */
static inline Wide load(const T *from, int64_t n) {
    Wide numbers = {0};
    COPY(&numbers, from, n, Wide);
    return numbers;
}

/* The numbers where all bits of `chosen` are set; zeros elsewhere. */
static inline Wide kept(Places chosen, Wide numbers) { return (Wide)((Places)numbers & chosen); }

/* Numbers above zero, and what is not a number: that is where ReLU has the derivative 1. */
#define RISES(NUMBERS) ((Places)((NUMBERS) > (Wide){0}) | (Places)((NUMBERS) != (NUMBERS)))

/* y = the largest number of each window (the first among equals, or a NaN), plus b[client][filter]; with ReLU, at least
 * zero. `where` is its place in the window. */
LOOP(tacit_pool)(const T *x, int64_t images, const Windows *g, const T *b, int64_t b_client, T *y, uint8_t *where) {
    for (int64_t m = 0; m < images; m++, x += g->height * g->width * g->batch) {
        const T shift = b ? b[m / g->filters * b_client + m % g->filters] : 0;
        for (int64_t row = 0; row < g->rows; row++)
            for (int64_t column = 0; column < g->columns; column++, y += g->batch, where += g->batch)
                for (int64_t low = 0; low < g->batch; low += LANES_OF_POOL) {
                    const int64_t n = g->batch - low < LANES_OF_POOL ? g->batch - low : LANES_OF_POOL;
                    const T *corner = x + (row * g->down * g->width + column * g->across) * g->batch + low;
                    Wide best = load(corner, n);
                    Places at = {0};
                    Index place = 0;
                    for (int64_t i = 0; i < g->window_height; i++)
                        for (int64_t j = 0; j < g->window_width; j++, place++) {
                            const Wide own = load(corner + (i * g->width + j) * g->batch, n);
                            const Places larger = (Places)(own > best) | (Places)(own != own);
                            best = (Wide)((Places)kept(larger, own) | (Places)kept(~larger, best));
                            at = (larger & ((Places){0} + place)) | (~larger & at);
                        }
                    if (b) best += shift;
                    if (g->relu) best = kept(RISES(best), best);
                    const Marks marks = __builtin_convertvector(at, Marks);
                    COPY(y + low, (const T *)&best, n, Wide);
                    COPY(where + low, (const uint8_t *)&marks, n, Marks);
                }
    }
}

/* dx = the gradient of x from that of y, and db[client][filter] that of b, if there is a db. */
LOOP(tacit_unpool)(const T *dy, const T *y, const uint8_t *where, int64_t images, const Windows *g, T *dx, T *db,
                   int64_t b_client) {
    const int64_t pixels = g->height * g->width * g->batch;
    const int covers = g->window_height == g->down && g->window_width == g->across &&
                       g->rows * g->down == g->height && g->columns * g->across == g->width;
    for (int64_t m = 0; m < images; m++, dx += pixels) {
        if (!covers) memset(dx, 0, (size_t)pixels * sizeof(T));
        Wide sums = {0};
        for (int64_t row = 0; row < g->rows; row++)
            for (int64_t column = 0; column < g->columns;
                 column++, y += g->batch, dy += g->batch, where += g->batch)
                for (int64_t low = 0; low < g->batch; low += LANES_OF_POOL) {
                    const int64_t n = g->batch - low < LANES_OF_POOL ? g->batch - low : LANES_OF_POOL;
                    T *corner = dx + (row * g->down * g->width + column * g->across) * g->batch + low;
                    Marks marks = {0};
                    COPY(&marks, where + low, n, Marks);
                    const Places at = __builtin_convertvector(marks, Places);
                    Wide gradient = load(dy + low, n);
                    if (g->relu) gradient = kept(RISES(load(y + low, n)), gradient);
                    sums += gradient;
                    Index place = 0;
                    for (int64_t i = 0; i < g->window_height; i++)
                        for (int64_t j = 0; j < g->window_width; j++, place++) {
                            const Wide own = kept(at == place, gradient);
                            T *to = corner + (i * g->width + j) * g->batch;
                            COPY(to, (const T *)&own, n, Wide);
                        }
                }
        if (db) db[m / g->filters * b_client + m % g->filters] = total_of_wide(sums);
    }
}

#endif
