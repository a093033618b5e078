/* Random words, and noise made of them. */
#if SINGLE
#define philox_counter FOR_TARGET(philox_counter)
#define philox FOR_TARGET(philox)
#define logarithm FOR_TARGET(logarithm)
#define laplace FOR_TARGET(laplace)
#define cell_of FOR_TARGET(cell_of)
#define with_sign FOR_TARGET(with_sign)
#define draw_by_guide FOR_TARGET(draw_by_guide)
#define thresholds_below FOR_TARGET(thresholds_below)
#define ties FOR_TARGET(ties)
#define is_at_most FOR_TARGET(is_at_most)
#define decide FOR_TARGET(decide)

/* Keyed noise: see randomness.py. Four words per counter (block, source, target, tick), BLOCKS counters at a time. */
#define BLOCKS 128

/* Philox4x32-10 of one counter, in place. Loops over counters are vectorised only with the rounds unrolled. */
static inline void philox_counter(uint32_t *x, uint64_t key) {
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++, low += 0x9E3779B9u, high += 0xBB67AE85u) {
        const uint64_t p = (uint64_t)x[0] * 0xD2511F53u, q = (uint64_t)x[2] * 0xCD9E8D57u;
        x[0] = (uint32_t)(q >> 32) ^ x[1] ^ low;
        x[1] = (uint32_t)q;
        x[2] = (uint32_t)(p >> 32) ^ x[3] ^ high;
        x[3] = (uint32_t)p;
    }
}

/* Each round waits for the one before: two counters in turn fill the waiting time. */
static inline void philox(uint32_t *restrict words, uint32_t block, uint32_t source, uint32_t target, uint32_t tick,
                          uint64_t key) {
    uint32_t *restrict others = words + 2 * BLOCKS;
    for (uint32_t j = 0; j < BLOCKS / 2; j++) {
        uint32_t x[4] = {block + j, source, target, tick}, y[4] = {block + j + BLOCKS / 2, source, target, tick};
        philox_counter(x, key);
        philox_counter(y, key);
        for (int i = 0; i < 4; i++) words[4 * j + i] = x[i], others[4 * j + i] = y[i];
    }
}

/* ln x for 0 < x <= 1: x = 2^e (1 + f) with 1 + f within sqrt(2) of 1, and ln(1 + f) = 2 artanh(f / (2 + f)). */
static inline double logarithm(double x) {
    const uint64_t one = 0x3FF0000000000000u, root = 0x3FE6A09E667F3BCDu; /* the bits of 1 and of sqrt(1/2) */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t moved = bits + (one - root);
    const double e = (double)((int32_t)(moved >> 52) - 1023);
    bits = (moved & 0xFFFFFFFFFFFFFu) + root;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double f = m - 1.0, s = f / (2.0 + f), t = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2) sum = sum * t + 1.0 / k;
    return e * 0.69314718055994530942 + 2.0 * s * sum;
}

/* Words of rows first <= i < last from the column `from`, a multiple of four. */
UNTYPED_LOOP(tacit_words_u32)(const int64_t *source, const int64_t *target, int64_t tick, int64_t key, int64_t from,
                              uint32_t *out, int64_t stride, int64_t first, int64_t last, int64_t width) {
    uint32_t words[4 * BLOCKS];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = 0; low < width; low += 4 * BLOCKS) {
            const int64_t n = width - low < 4 * BLOCKS ? width - low : 4 * BLOCKS;
            uint32_t *row = out + i * stride + low;
            /* Whole pieces need no copy. */
            const int whole = n == 4 * BLOCKS;
            philox(whole ? row : words, (uint32_t)((from + low) / 4), (uint32_t)source[i],
                   (uint32_t)target[i], (uint32_t)tick, (uint64_t)key);
            if (!whole) memcpy(row, words, (size_t)n * sizeof *words);
        }
}

/* A word stands for the middle of its cell of (0, 1): the noise is -scale ln(x) above one half and
 * scale ln(x) below, with x twice the distance to the nearer end. */
static inline void laplace(double *restrict noise, const uint32_t *restrict words, double scale) {
    for (int k = 0; k < 4 * BLOCKS; k++) {
        const int32_t word = (int32_t)words[k], half = word >> 31; /* all ones above the middle */
        const double depth = scale * logarithm((2.0 * (word ^ half) + 1.0) * 0x1p-32);
        noise[k] = half ? -depth : depth;
    }
}
#endif

/* out[i] += Laplace noise of (source[e], target[e]) for e in begin[i] .. begin[i + 1], in order. */
LOOP(tacit_laplace)(const int64_t *begin, const int64_t *source, const int64_t *target, int64_t tick,
                    int64_t key, const double *scale, T *out, int64_t stride, int64_t first,
                    int64_t last, int64_t width) {
    uint32_t words[4 * BLOCKS];
    double noise[4 * BLOCKS];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = 0; low < width; low += 4 * BLOCKS) {
            const int64_t n = width - low < 4 * BLOCKS ? width - low : 4 * BLOCKS;
            T *restrict row = out + i * stride + low;
            for (int64_t e = begin[i]; e < begin[i + 1]; e++) {
                philox(words, (uint32_t)(low / 4), (uint32_t)source[e], (uint32_t)target[e],
                       (uint32_t)tick, (uint64_t)key);
                laplace(noise, words, *scale);
                for (int64_t k = 0; k < n; k++) row[k] += (T)noise[k];
            }
        }
}

#if SINGLE
/* Integer noise: see discrete_gaussian.py. The guide has one entry per cell of magnitudes, 2^18 wide, and 2^14 wide in
 * the last sixteenth, where thresholds are dense. An entry is k 2^18 + (2^18 - t) for the k thresholds below the cell
 * and the lowest 18 bits t of the one in it, if there is one: adding the lowest bits of the magnitude carries into k if
 * they are at least t. With more thresholds in the cell, it is k + 2^31. */
#define TAIL_CELL 7680
#define LOW 0x3FFFFu
#define MAGNITUDE 0x7FFFFFFFu

/* Grows by 1 every 2^18, from TAIL_CELL on by 1 every 2^14. */
static inline int32_t cell_of(uint32_t magnitude) {
    const int32_t body = (int32_t)(magnitude >> 18), tail = (int32_t)(magnitude >> 14) - 15 * TAIL_CELL;
    return body > tail ? body : tail;
}

static inline int32_t with_sign(uint32_t magnitude, uint32_t word) {
    const uint32_t negative = 0u - (word >> 31);
    return (int32_t)((magnitude ^ negative) - negative);
}

/* One draw per word. In doubt: several thresholds are in the word's cell, or it may tie with the only one. */
static inline void draw_by_guide(int32_t *restrict drawn, uint8_t *restrict doubt, const uint32_t *restrict words,
                                 const uint32_t *restrict guide) {
    for (int k = 0; k < 4 * BLOCKS; k++) {
        const uint32_t word = words[k], sum = guide[cell_of(word & MAGNITUDE)] + (word & LOW);
        drawn[k] = with_sign(sum >> 18, word);
        doubt[k] = (uint8_t)((sum | ((sum & LOW) - 1)) >> 31);
    }
}

/* How many thresholds have first words below the magnitude. */
static int64_t thresholds_below(const Law *law, uint32_t magnitude) {
    const uint32_t entry = law->guide[cell_of(magnitude)];
    int64_t k = entry >> 31 ? entry & MAGNITUDE : entry >> 18;
    /* The entry of a threshold at the beginning of its cell counts it. */
    if (!(entry >> 31) && k > 0) k--;
    while (k < law->count && law->thresholds[4 * k] < magnitude) k++;
    return k;
}

static int ties(const Law *law, int64_t k, uint32_t magnitude) {
    return k < law->count && law->thresholds[4 * k] == magnitude;
}

static int is_at_most(const uint32_t *one, const uint32_t *other) {
    for (int i = 0; i < 3; i++)
        if (one[i] != other[i]) return one[i] < other[i];
    return 1;
}

/* Decide what the guide leaves in doubt for the words 4 block, 4 block + 1, ... of a row. Where a word ties, further ones
 * are those of the counter (its position, source, 0, tick) and the key `further`. */
static inline void decide(int32_t *restrict drawn, const uint8_t *restrict doubt, const uint32_t *restrict words,
                          const Law *law, uint32_t block, uint32_t source, uint32_t tick, uint64_t further) {
    for (int low = 0; low < 4 * BLOCKS; low += 8) {
        uint64_t any;
        memcpy(&any, doubt + low, sizeof any);
        for (int at = low; any && at < low + 8; at++) {
            if (!doubt[at]) continue;
            const uint32_t magnitude = words[at] & MAGNITUDE;
            int64_t k = thresholds_below(law, magnitude);
            if (ties(law, k, magnitude)) {
                uint32_t rest[4] = {4 * block + (uint32_t)at, source, 0, tick};
                philox_counter(rest, further);
                while (ties(law, k, magnitude) && is_at_most(law->thresholds + 4 * k + 1, rest)) k++;
            }
            drawn[at] = with_sign((uint32_t)k, words[at]);
        }
    }
}

/* The numbers that n or 2n words stand for; INT32_MIN where one of a number's words ties. */
UNTYPED_LOOP(tacit_integers_of_words)(const uint32_t *guide, const uint32_t *thresholds, int64_t count,
                                      int64_t factor, const uint32_t *words, int32_t *out, int64_t n) {
    const Law law = {guide, thresholds, count, (int32_t)factor};
    const int64_t each = factor ? 2 : 1, most = 4 * BLOCKS / each;
    uint32_t part[4 * BLOCKS] = {0};
    int32_t drawn[4 * BLOCKS];
    uint8_t doubt[4 * BLOCKS];
    for (int64_t low = 0; low < n; low += most) {
        const int64_t size = n - low < most ? n - low : most;
        memcpy(part, words + each * low, (size_t)(each * size) * sizeof *words);
        draw_by_guide(drawn, doubt, part, guide);
        for (int64_t k = 0; k < size; k++) {
            int tied = 0;
            for (int64_t at = each * k; at < each * (k + 1); at++)
                if (doubt[at]) {
                    const uint32_t magnitude = part[at] & MAGNITUDE;
                    const int64_t below = thresholds_below(&law, magnitude);
                    drawn[at] = with_sign((uint32_t)below, part[at]);
                    tied |= ties(&law, below, magnitude);
                }
            const int32_t number = factor ? law.factor * drawn[2 * k] + drawn[2 * k + 1] : drawn[k];
            out[low + k] = tied ? INT32_MIN : number;
        }
    }
}
#endif

/* out[i] += noise of source[e] for e in begin[i] .. begin[i + 1], for rows first <= i < last and columns from <= c < to,
 * where `from` is a multiple of four; sums wrap around, as those of Bits do. Without a factor, a number takes one word
 * instead of two. */
LOOP_OF_INTEGERS(tacit_integers)(const uint32_t *guide, const uint32_t *thresholds, int64_t count, int64_t factor,
                                 const int64_t *begin, const int64_t *source, int64_t tick, int64_t key,
                                 int64_t further, Index *out, int64_t stride, int64_t first, int64_t last,
                                 int64_t from, int64_t to) {
    const Law law = {guide, thresholds, count, (int32_t)factor};
    const int64_t each = factor ? 2 : 1, most = 4 * BLOCKS / each;
    uint32_t words[4 * BLOCKS];
    int32_t drawn[4 * BLOCKS];
    uint8_t doubt[4 * BLOCKS];
    for (int64_t i = first; i < last; i++)
        for (int64_t low = from; low < to; low += most) {
            const int64_t n = to - low < most ? to - low : most;
            Index *restrict row = out + i * stride + low;
            for (int64_t e = begin[i]; e < begin[i + 1]; e++) {
                const uint32_t block = (uint32_t)(each * low / 4), client = (uint32_t)source[e];
                philox(words, block, client, 0, (uint32_t)tick, (uint64_t)key);
                draw_by_guide(drawn, doubt, words, guide);
                decide(drawn, doubt, words, &law, block, client, (uint32_t)tick, (uint64_t)further);
                if (factor)
                    for (int64_t k = 0; k < n; k++)
                        row[k] = (Index)((Bits)row[k] + (Bits)(law.factor * drawn[2 * k] + drawn[2 * k + 1]));
                else
                    for (int64_t k = 0; k < n; k++) row[k] = (Index)((Bits)row[k] + (Bits)drawn[k]);
            }
        }
}
