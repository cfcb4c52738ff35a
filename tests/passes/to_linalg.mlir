// RUN: kiln-to-linalg

// Transposes become indexing maps, elementwise ops one body.
// CASE: movement_and_arithmetic
// CHECK: math.exp
// IMPLICIT-CHECK-NOT: kiln.transpose
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<4x6xf32>, %b: tensor<4xf32>) -> tensor<6x4xf32> {
    %0 = kiln.transpose %x permutation = [1, 0] : tensor<4x6xf32>
    %1 = kiln.exp %0 : tensor<6x4xf32>
    %2 = kiln.broadcast_in_dim %b dims = [1] sizes = [6, 4] : tensor<4xf32>
    %3 = kiln.mul %1, %2 : tensor<6x4xf32>
    return %3 : tensor<6x4xf32>
  }
}
}

// -----
// exp has two users, so it is a stage of its own; the cheap difference is recomputed by each.
// CASE: softmax_row
// CHECK: kiln.sizes = array<i64: -1, 8>
// CHECK: arith.maximumf
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "rows"}} {
  func.func @k(%x: tensor<?x8xf32>, %s: index) -> tensor<?x8xf32> {
    kiln.bind_shape %x, [%s, 8] : tensor<?x8xf32>
    %0 = kiln.reduce max %x dims = [1] : tensor<?x8xf32>
    %1 = kiln.broadcast_in_dim %0 dims = [0] sizes = [%s, 8] : tensor<?xf32>
    %2 = kiln.sub %x, %1 : tensor<?x8xf32>
    %3 = kiln.exp %2 : tensor<?x8xf32>
    %4 = kiln.reduce sum %3 dims = [1] : tensor<?x8xf32>
    %5 = kiln.broadcast_in_dim %4 dims = [0] sizes = [%s, 8] : tensor<?xf32>
    %6 = kiln.div %3, %5 : tensor<?x8xf32>
    return %6 : tensor<?x8xf32>
  }
}
}

// -----
// 16-bit floats are computed in f32 and rounded once; an i1 is a byte in memory.
// CASE: small_types
// CHECK: arith.extf
// CHECK: arith.trunci
// IMPLICIT-CHECK-NOT: xi1>
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%c: tensor<4xi1>, %x: tensor<4xbf16>) -> (tensor<4xbf16>, tensor<4xi1>) {
    %0 = kiln.add %x, %x : tensor<4xbf16>
    %1 = kiln.select %c, %0, %x : tensor<4xi1>, tensor<4xbf16>
    %2 = kiln.not %c : tensor<4xi1>
    return %1, %2 : tensor<4xbf16>, tensor<4xi1>
  }
}
}

// -----
// Gather indices are clamped to the bounds.
// CASE: embedding
// CHECK: arith.minsi
// CHECK: tensor.extract
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%t: tensor<10x4xf32>, %i: tensor<3xi64>) -> tensor<3x4xf32> {
    %0 = kiln.gather %t[%i] dims = [0] : tensor<10x4xf32>[tensor<3xi64>]
    return %0 : tensor<3x4xf32>
  }
}
}

// -----
// CASE: strided_convolution
// CHECK: d2 * 2 + d5
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<1x2x7x7xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x3x3xf32> {
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x7x7xf32>, tensor<3x2x3x3xf32>
    return %0 : tensor<1x3x3x3xf32>
  }
}
}

// -----
// Filters of one group read the same channels: two of six for each pair of filters.
// CASE: grouped_convolution
// CHECK: (d3 floordiv 2) * 2 + d6
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<1x7x7x6xf32>, %w: tensor<6x2x3x3xf32>) -> tensor<1x5x5x6xf32> {
    %t = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x7x7x6xf32>
    %0 = kiln.convolution %t, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 3 : i64} : tensor<1x6x7x7xf32>, tensor<6x2x3x3xf32>
    %r = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x6x5x5xf32>
    return %r : tensor<1x5x5x6xf32>
  }
}
}

// -----
// The inputs of a concatenation and the border of a pad are slices of the result.
// CASE: slices
// CHECK: tensor.insert_slice
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "single"}} {
  func.func @k(%x: tensor<2x3xf32>, %y: tensor<2x1xf32>) -> tensor<2x4xf32> {
    %0 = kiln.concat %x, %y axis = 1 : tensor<2x3xf32>, tensor<2x1xf32>
    return %0 : tensor<2x4xf32>
  }
}
module @p attributes {kiln.kernel = {kind = "single"}} {
  func.func @p(%x: tensor<2xf32>) -> tensor<4xf32> {
    %v = kiln.splat [], 1.0 : f32
    %0 = kiln.pad %x, %v low = [1] high = [1] : tensor<2xf32>, tensor<f32>
    return %0 : tensor<4xf32>
  }
}
}

// -----
// Grouped-query heads are a loop of their own; the result is written transposed.
// CASE: attention
// CHECK: kiln.structured.attention causal
// CHECK: tensor.collapse_shape
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
  func.func @k(%q: tensor<1x4x?x8xbf16>, %k: tensor<1x2x?x8xbf16>, %v: tensor<1x2x?x8xbf16>, %b: tensor<1x1x1x?xbf16>, %n: index) -> tensor<1x?x4x8xbf16> {
    kiln.bind_shape %q, [1, 4, %n, 8] : tensor<1x4x?x8xbf16>
    kiln.bind_shape %k, [1, 2, %n, 8] : tensor<1x2x?x8xbf16>
    kiln.bind_shape %v, [1, 2, %n, 8] : tensor<1x2x?x8xbf16>
    kiln.bind_shape %b, [1, 1, 1, %n] : tensor<1x1x1x?xbf16>
    %0 = kiln.attention %q, %k, %v bias %b : tensor<1x1x1x?xbf16> causal : tensor<1x4x?x8xbf16>, tensor<1x2x?x8xbf16>, tensor<1x2x?x8xbf16>
    %1 = kiln.transpose %0 permutation = [0, 2, 1, 3] : tensor<1x4x?x8xbf16>
    return %1 : tensor<1x?x4x8xbf16>
  }
}
}

// -----
// Padded queries and keys are masked by index.
// CASE: attention_with_lengths
// CHECK: arith.cmpi slt
// CHECK: 0xFF800000
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
  func.func @k(%q: tensor<2x4x9x8xbf16>, %k: tensor<2x2x7x8xbf16>, %v: tensor<2x2x7x8xbf16>, %l: tensor<2xi32>, %n: tensor<2xi64>) -> tensor<2x4x9x8xbf16> {
    %0 = kiln.attention %q, %k, %v lengths %l : tensor<2xi32> key_lengths %n : tensor<2xi64> : tensor<2x4x9x8xbf16>, tensor<2x2x7x8xbf16>, tensor<2x2x7x8xbf16>
    return %0 : tensor<2x4x9x8xbf16>
  }
}
}

// -----
// An attention that writes a slice of a larger tensor, without a copy.
// CASE: attention_of_a_slice
// CHECK: kiln.structured.attention
// CHECK: tensor.insert_slice
// IMPLICIT-CHECK-NOT: linalg.generic
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
  func.func @k(%q: tensor<?x4x9x8xf32>, %k: tensor<?x4x7x8xf32>, %v: tensor<?x4x7x8xf32>, %whole: tensor<?x9x4x24xf32>, %b: index) -> tensor<?x9x4x24xf32> {
    kiln.bind_shape %q, [%b, 4, 9, 8] : tensor<?x4x9x8xf32>
    kiln.bind_shape %k, [%b, 4, 7, 8] : tensor<?x4x7x8xf32>
    kiln.bind_shape %v, [%b, 4, 7, 8] : tensor<?x4x7x8xf32>
    kiln.bind_shape %whole, [%b, 9, 4, 24] : tensor<?x9x4x24xf32>
    %0 = kiln.attention %q, %k, %v : tensor<?x4x9x8xf32>, tensor<?x4x7x8xf32>, tensor<?x4x7x8xf32>
    %1 = kiln.transpose %0 permutation = [0, 2, 1, 3] : tensor<?x4x9x8xf32>
    %2 = kiln.insert_slice %1 into %whole offsets = [0, 0, 0, 8] sizes = [%b, 9, 4, 24] : tensor<?x9x4x8xf32> into tensor<?x9x4x24xf32>
    return %2 : tensor<?x9x4x24xf32>
  }
}
}

// -----
// A partially read dimension next to one whose size is an argument.
// CASE: slice_of_a_symbolic_size
// CHECK: tensor.extract_slice %arg0[0, 0] [1, %arg1] [1, 1]
// IMPLICIT-CHECK-NOT: tensor.dim
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<2x?xf32>, %n: index) -> tensor<1x?xf32> {
    kiln.bind_shape %x, [2, %n] : tensor<2x?xf32>
    %0 = kiln.slice %x offsets = [0, 0] sizes = [1, %n] strides = [1, 1] : tensor<2x?xf32>
    return %0 : tensor<1x?xf32>
  }
}
}

// -----
// Empty tensors compute nothing, and a sum over no elements is its initial value.
// CASE: no_elements
// CHECK: linalg.fill
// IMPLICIT-CHECK-NOT: linalg.generic
// IMPLICIT-CHECK-NOT: tensor.extract_slice
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<2x0xf32>) -> (tensor<1x0xf32>, tensor<2xf32>) {
    %0 = kiln.slice %x offsets = [1, 0] sizes = [1, 0] strides = [1, 1] : tensor<2x0xf32>
    %1 = kiln.reduce sum %x dims = [1] : tensor<2x0xf32>
    return %0, %1 : tensor<1x0xf32>, tensor<2xf32>
  }
}
}

// -----
// Remaining padding is for TMA; other users of the image see it unpadded.
// CASE: padded_convolution
// CHECK: tensor.pad %arg0 low[0, 1, 1, 0] high[0, 1, 1, 0]
// CHECK: tensor<1x7x7x8xbf16>
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<1x5x5x8xbf16>, %w: tensor<8x3x3x8xbf16>) -> tensor<1x5x5x8xbf16> {
    %i = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<1x5x5x8xbf16>
    %v = kiln.transpose %w permutation = [0, 3, 1, 2] : tensor<8x3x3x8xbf16>
    %0 = kiln.convolution %i, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x8x5x5xbf16>, tensor<8x8x3x3xbf16>
    %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<1x8x5x5xbf16>
    %2 = kiln.add %1, %x : tensor<1x5x5x8xbf16>
    return %2 : tensor<1x5x5x8xbf16>
  }
}
}

// -----
// The stated sizes of a dynamic result read no elements: the transpose is folded all the same.
// CASE: padded_convolution_of_dynamic_batches
// CHECK: tensor.pad %arg0 low[0, 1, 1, 0] high[0, 1, 1, 0]
// CHECK: tensor<?x7x7x8xf32>
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<?x5x5x8xf32>, %w: tensor<3x3x1x8xf32>, %n: index) -> tensor<?x5x5x8xf32> {
    kiln.bind_shape %x, [%n, 5, 5, 8] : tensor<?x5x5x8xf32>
    %i = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<?x5x5x8xf32>
    %v = kiln.transpose %w permutation = [3, 2, 0, 1] : tensor<3x3x1x8xf32>
    %0 = kiln.convolution %i, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 8 : i64} : tensor<?x8x5x5xf32>, tensor<8x1x3x3xf32>
    kiln.bind_shape %0, [%n, 8, 5, 5] : tensor<?x8x5x5xf32>
    %1 = kiln.transpose %0 permutation = [0, 2, 3, 1] : tensor<?x8x5x5xf32>
    %2 = kiln.max %1, %x : tensor<?x5x5x8xf32>
    return %2 : tensor<?x5x5x8xf32>
  }
}
}

// -----
// Cubes and fourth powers become products, inverses quotients; no exponent is left.
// CASE: powers
// IMPLICIT-CHECK-NOT: math.powf
// IMPLICIT-CHECK-NOT: constant 3.0
// IMPLICIT-CHECK-NOT: constant 4.0
// CHECK: arith.divf
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<8xbf16>) -> tensor<8xbf16> {
    %three = kiln.splat [8], 3.0 : bf16
    %four = kiln.splat [8], 4.0 : bf16
    %minus = kiln.splat [8], -1.0 : bf16
    %cube = kiln.pow %x, %three : tensor<8xbf16>
    %fourth = kiln.pow %x, %four : tensor<8xbf16>
    %inverse = kiln.pow %x, %minus : tensor<8xbf16>
    %0 = kiln.add %cube, %fourth : tensor<8xbf16>
    %1 = kiln.add %0, %inverse : tensor<8xbf16>
    return %1 : tensor<8xbf16>
  }
}
}

// -----
// CASE: arbitrary_power
// CHECK: math.powf
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<8xf32>) -> tensor<8xf32> {
    %half = kiln.splat [8], 0.5 : f32
    %0 = kiln.pow %x, %half : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
}

// -----
// External PTX is a declaration; its module records the launch as expressions of its operands.
// CASE: ptx_call
// NO-RUN: only a GPU computes PTX; tests/gpu/ptx.rs runs some
// CHECK: #map = affine_map<()[s0, s1] -> (s1)>
// CHECK: #map1 = affine_map<()[s0, s1] -> (s0, 8)>
// CHECK: kiln.grid = #map
// CHECK: kind = "ptx"
// CHECK: operands = array<i64: 0, 0>
// CHECK: sizes = #map1
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "single", ops = ["mine::halves"]}} {
  func.func @k(%x: tensor<?x8xf32>, %all: index, %n: index) -> (tensor<?x8xf32>, tensor<?xf32>) {
    kiln.bind_shape %x, [%n, 8] : tensor<?x8xf32>
    %0:2 = kiln.ptx_call "mine::halves"(%x, %x) blocks = [%n] sizes = [%all, 8] entry = "halves" threads = 64 shared = 16 ptx = ".entry halves" : (tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?xf32>)
    return %0#0, %0#1 : tensor<?x8xf32>, tensor<?xf32>
  }
}
}

// -----
// Divisors of sizes are propagated.
// CASE: divisors
// CHECK: %arg1: index {kiln.divisor = 16 : i64, kiln.least = 16 : i64}
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<2x?xf32>, %n: index {kiln.divisor = 16 : i64, kiln.least = 16 : i64}) -> tensor<2x?xf32> {
    kiln.bind_shape %x, [2, %n] : tensor<2x?xf32>
    %0 = kiln.abs %x : tensor<2x?xf32>
    return %0 : tensor<2x?xf32>
  }
}
}

// -----
// What a matmul computes of an operand is rounded as if it were stored, unlike other 16-bit ops.
// The mark kiln.prologue is for kiln-fuse, not for this pass.
// CASE: matmul_of_a_computed_operand
// CHECK: arith.mulf
// CHECK: arith.truncf {{.*}} : f32 to bf16
// CHECK-NEXT: arith.extf {{.*}} : bf16 to f32
// CHECK-NEXT: kiln.yield
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<20x8xbf16>, %c: tensor<8xbf16>, %w: tensor<6x8xbf16>) -> tensor<20x6xf32> {
    %0 = kiln.neg %x : tensor<20x8xbf16>
    %1 = kiln.broadcast_in_dim %c dims = [1] sizes = [20, 8] : tensor<8xbf16>
    %2 = kiln.mul %0, %1 : tensor<20x8xbf16>
    %3 = kiln.dot_general %2, %w batch = [] x [] contract = [1] x [1] : tensor<20x8xbf16>, tensor<6x8xbf16> to f32
    return %3 : tensor<20x6xf32>
  }
}
}

// -----
// A scan stays an op, with what is computed before it in its body.
// CASE: scan
// CHECK: kiln.structured.scan max along 1
// CHECK: math.exp
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "scan"}} {
  func.func @k(%x: tensor<3x?x5xf32>, %s: index) -> tensor<3x?x5xf32> {
    kiln.bind_shape %x, [3, %s, 5] : tensor<3x?x5xf32>
    %0 = kiln.exp %x : tensor<3x?x5xf32>
    %1 = kiln.cumulative max %0 axis = 1 {kiln.loops} : tensor<3x?x5xf32>
    %2 = kiln.neg %1 : tensor<3x?x5xf32>
    return %2 : tensor<3x?x5xf32>
  }
}
}

// -----
// A transform stays an op, with the slice that it reads in its indexing maps.
// CASE: fft
// CHECK: kiln.structured.fft r2c length 6
// CHECK: math.exp
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "fft"}} {
  func.func @k(%x: tensor<6x?xf32>, %s: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
    kiln.bind_shape %x, [6, %s] : tensor<6x?xf32>
    %0 = kiln.exp %x : tensor<6x?xf32>
    %1 = kiln.transpose %0 permutation = [1, 0] : tensor<6x?xf32>
    %2:2 = kiln.fft r2c %1 length = 6 {kiln.loops} : tensor<?x6xf32>
    return %2#0, %2#1 : tensor<?x4xf32>, tensor<?x4xf32>
  }
}
}

// -----
// Without loops it is a function of the runtime.
// CASE: fft_of_the_library
// NO-RUN: a function of the runtime; tests/compiled/ops.mlir calls it
// CHECK: config = array<i64: 2, 10, 1, 0, 0>
// CHECK: func.func private
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "fft"}} {
  func.func @k(%x: tensor<3x6xf64>, %y: tensor<3x6xf64>) -> tensor<3x10xf64> {
    %0 = kiln.fft c2r %x, %y length = 10 inverse : tensor<3x6xf64>, tensor<3x6xf64>
    return %0 : tensor<3x10xf64>
  }
}
}

// -----
// An outer product sums nothing: no contraction.
// CASE: outer_product
// CHECK: linalg.generic
// IMPLICIT-CHECK-NOT: linalg.contract
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
  func.func @k(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3x4xf32> {
    %0 = kiln.dot_general %x, %y batch = [] x [] contract = [] x [] : tensor<3xf32>, tensor<4xf32>
    return %0 : tensor<3x4xf32>
  }
}
}

// -----
// A sum of products that reuses an operand is a contraction.
// CASE: broadcast_product_sum
// CHECK: linalg.contract
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "reduce"}} {
  func.func @k(%x: tensor<3x8xf32>, %y: tensor<4x8xf32>) -> tensor<3x4xf32> {
    %0 = kiln.broadcast_in_dim %x dims = [0, 2] sizes = [3, 4, 8] : tensor<3x8xf32>
    %1 = kiln.broadcast_in_dim %y dims = [1, 2] sizes = [3, 4, 8] : tensor<4x8xf32>
    %2 = kiln.mul %0, %1 : tensor<3x4x8xf32>
    %3 = kiln.reduce sum %2 dims = [2] : tensor<3x4x8xf32>
    return %3 : tensor<3x4xf32>
  }
}
}

// -----
// The scan of block totals that kiln-expand-scans writes.
// CASE: masked_reduction
// CHECK: kiln.structured.scan sum along 1 exclusive
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "reduce"}} {
  func.func @k(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
    %0 = kiln.broadcast_in_dim %x dims = [0, 2] sizes = [3, 8, 8] : tensor<3x8xf32>
    %1 = kiln.iota [3, 8, 8] axis = 2 : i64
    %2 = kiln.iota [3, 8, 8] axis = 1 : i64
    %3 = kiln.compare lt %1, %2 : tensor<3x8x8xi64>
    %4 = kiln.splat [3, 8, 8], 0.0 : f32
    %5 = kiln.select %3, %0, %4 : tensor<3x8x8xi1>, tensor<3x8x8xf32>
    %6 = kiln.reduce sum %5 dims = [2] : tensor<3x8x8xf32>
    return %6 : tensor<3x8xf32>
  }
}
}

// -----
// One nest reads a square and writes an element of each slice; rows of opposite signs share sums.
// CASE: winograd_transforms
// CHECK-COUNT-2: linalg.generic
// IMPLICIT-CHECK-NOT: linalg.generic
module attributes {kiln.level = "kernels"} {
module @v attributes {kiln.kernel = {kind = "single"}} {
  func.func @v(%x: tensor<1x6x4x3xf32>) -> tensor<16x1x2x1x3xf32> {
    %0 = kiln.winograd_input %x tile = 2 : tensor<1x6x4x3xf32>
    return %0 : tensor<16x1x2x1x3xf32>
  }
}
module @y attributes {kiln.kernel = {kind = "single"}} {
  func.func @y(%x: tensor<16x1x2x1x3xf32>) -> tensor<1x2x2x1x2x3xf32> {
    %0 = kiln.winograd_output %x tile = 2 : tensor<16x1x2x1x3xf32>
    return %0 : tensor<1x2x2x1x2x3xf32>
  }
}
}

// -----
// The norm is a nest of its own, whose elements are stored as bf16.
// CASE: staged_operand
// CHECK: linalg.contract
// IMPLICIT-CHECK-NOT: kiln.structured.contract
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {}} {
func.func @k(%x: tensor<2x64xbf16>, %s: tensor<64xbf16>, %w: tensor<32x64xbf16>) -> tensor<2x32xbf16> {
  %0 = kiln.broadcast_in_dim %s dims = [1] sizes = [2, 64] : tensor<64xbf16>
  %1 = kiln.mul %x, %0 {kiln.staged} : tensor<2x64xbf16>
  %2 = kiln.dot_general %1, %w batch = [] x [] contract = [1] x [1] : tensor<2x64xbf16>, tensor<32x64xbf16>
  return %2 : tensor<2x32xbf16>
}
}
}

// -----
// A row of a cache, at a position that is loaded and moved into bounds.
// CASE: slice_at_a_position
// CHECK: tensor.extract %arg1
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: tensor.insert_slice
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "single"}} {
  func.func @k(%x: tensor<2x1x4xf32>, %at: tensor<1xi64>, %cache: tensor<2x6x4xf32>) -> tensor<2x6x4xf32> {
    %0 = kiln.neg %x : tensor<2x1x4xf32>
    %1 = kiln.reshape %at sizes = [] : tensor<1xi64>
    %2 = kiln.insert_slice %0 into %cache at %1 : tensor<i64> axis = 1 offsets = [0, 0, 0] sizes = [2, 6, 4] : tensor<2x1x4xf32> into tensor<2x6x4xf32>
    return %2 : tensor<2x6x4xf32>
  }
}
}

// -----
// The sum is rounded as another kernel reads it; the product stays in f32.
// CASE: rounded_where_computed
// CHECK: arith.addf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: arith.extf
// CHECK-NEXT: arith.mulf
module attributes {kiln.level = "kernels"} {
module @k attributes {kiln.kernel = {kind = "pointwise"}} {
  func.func @k(%x: tensor<8xbf16>, %y: tensor<8xbf16>) -> tensor<8xbf16> {
    %0 = kiln.add %x, %y {kiln.rounded} : tensor<8xbf16>
    %1 = kiln.mul %0, %y : tensor<8xbf16>
    return %1 : tensor<8xbf16>
  }
}
}
