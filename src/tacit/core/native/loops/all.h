/* All loops, for one TARGET. */
ROUND_PRODUCTS
#include "rows.h"
#include "noise.h"
#include "pools.h"
#include "codecs.h"
FUSE_PRODUCTS
#include "samples.h"
#include "layers.h"
