/* All loops for one TARGET: for numbers of one type T, float (SINGLE) and then double. Index and Bits are integers of
 * the same size, with a sign and without. */
#define T float
#define TYPE f32
#define SINGLE 1
#define Bits uint32_t
#define Index int32_t
#define INDEX_TYPE i32
#define INFINITE 0x7F800000u
#define QUIET_NAN 0x7FC00000u
#include "typed.h"
#undef T
#undef TYPE
#undef SINGLE
#undef Bits
#undef Index
#undef INDEX_TYPE
#undef INFINITE
#undef QUIET_NAN

#define T double
#define TYPE f64
#define SINGLE 0
#define Bits uint64_t
#define Index int64_t
#define INDEX_TYPE i64
#define INFINITE 0x7FF0000000000000u
#define QUIET_NAN 0x7FF8000000000000u
#include "typed.h"
#undef T
#undef TYPE
#undef SINGLE
#undef Bits
#undef Index
#undef INDEX_TYPE
#undef INFINITE
#undef QUIET_NAN
