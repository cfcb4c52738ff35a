// The op definitions that TableGen writes. Compiled once per shard, with GET_OP_DEFS_<n> defined on the command line.
#include "Kiln.h"
using namespace mlir;
#include "KilnOps.cpp.inc"
