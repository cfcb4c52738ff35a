// TableGen's op definitions, compiled once per shard with GET_OP_DEFS_<n> defined.
#include "Kiln.h"
using namespace mlir;
#include "KilnOps.cpp.inc"
