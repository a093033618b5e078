/* Random subsets of columns: see compression/subsets.py, whose bits these loops give. */
#if SINGLE
#define hashed FOR_TARGET(hashed)
#define moved FOR_TARGET(moved)
#define flip FOR_TARGET(flip)
#define shuffled FOR_TARGET(shuffled)
#define shuffle FOR_TARGET(shuffle)
#define draw_keys FOR_TARGET(draw_keys)

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
UNTYPED_LOOP(tacit_permuted)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, int64_t *out,
                             int64_t stride, int64_t first, int64_t last, int64_t from, int64_t to) {
    FOR_COLUMNS(for (int64_t k = 0; k < n; k++) out[i * stride + low + k] = columns[k]);
}
#endif

/* kept[i][k] = x[i][where k goes]. */
LOOP(tacit_gather)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, const T *x,
                   int64_t x_stride, T *kept, int64_t kept_stride, int64_t first, int64_t last, int64_t from,
                   int64_t to) {
    FOR_COLUMNS(for (int64_t k = 0; k < n; k++)
                    kept[i * kept_stride + low + k] = x[i * x_stride + columns[k]]);
}

/* out[i][where k goes] = factor kept[i][k]; with `clear`, zero elsewhere. */
LOOP(tacit_spread)(const int64_t *seed, int64_t key, int64_t width, int64_t s, int64_t b, const T *kept,
                   int64_t kept_stride, const double *factor, T *out, int64_t out_stride, int64_t clear,
                   int64_t first, int64_t last, int64_t from, int64_t to) {
    const T scale = (T)*factor;
    FOR_COLUMNS(if (clear && low == from) memset(out + i * out_stride, 0, (size_t)width * sizeof(T));
                for (int64_t k = 0; k < n; k++)
                    out[i * out_stride + columns[k]] = scale * kept[i * kept_stride + low + k]);
}

