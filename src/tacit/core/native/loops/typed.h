/* All loops for one TARGET and numbers of type T. What has no type is compiled with the first one. */
ROUND_PRODUCTS
#include "rows.h"
#include "noise.h"
#include "codecs.h"
#include "subsets.h"
FUSE_PRODUCTS
#include "samples.h"
#include "layers.h"
#include "pools.h"
