// RUN: kiln-rematerialize{min-elements=1024}

// CASE: gradients_of_a_norm_of_channels
// CHECK-COUNT-3: kiln.compare
// CHECK: return
func.func @f(%g: tensor<64x32xbf16>, %y: tensor<64x32xbf16>, %x: tensor<64x32xbf16>, %mean: tensor<32xf32>) -> (tensor<64x32xbf16>, tensor<32xf32>, tensor<32xf32>) {
  %zero = kiln.splat [64, 32], 0.0 : bf16
  %0 = kiln.compare le %y, %zero : tensor<64x32xbf16>
  %1 = kiln.select %0, %zero, %g : tensor<64x32xi1>, tensor<64x32xbf16>
  %2 = kiln.convert %1 : tensor<64x32xbf16> to f32
  %3 = kiln.convert %x : tensor<64x32xbf16> to f32
  %4 = kiln.broadcast_in_dim %mean dims = [1] sizes = [64, 32] : tensor<32xf32>
  %5 = kiln.sub %3, %4 : tensor<64x32xf32>
  %6 = kiln.mul %2, %5 : tensor<64x32xf32>
  %7 = kiln.reduce sum %6 dims = [0] : tensor<64x32xf32>
  %8 = kiln.reduce sum %2 dims = [0] : tensor<64x32xf32>
  %9 = kiln.broadcast_in_dim %7 dims = [1] sizes = [64, 32] : tensor<32xf32>
  %10 = kiln.mul %5, %9 : tensor<64x32xf32>
  %11 = kiln.sub %2, %10 : tensor<64x32xf32>
  %12 = kiln.convert %11 : tensor<64x32xf32> to bf16
  return %12, %7, %8 : tensor<64x32xbf16>, tensor<32xf32>, tensor<32xf32>
}

// -----
// CASE: a_value_that_no_other_op_reads
// CHECK-COUNT-1: kiln.mul
// IMPLICIT-CHECK-NOT: kiln.mul
func.func @f(%x: tensor<64x32xf32>) -> tensor<32xf32> {
  %0 = kiln.mul %x, %x : tensor<64x32xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<64x32xf32>
  return %1 : tensor<32xf32>
}

// -----
// CASE: rows_share_their_kernel
// CHECK-COUNT-1: kiln.mul
// IMPLICIT-CHECK-NOT: kiln.mul
func.func @f(%x: tensor<64x32xf32>) -> (tensor<64xf32>, tensor<64x32xf32>) {
  %0 = kiln.mul %x, %x : tensor<64x32xf32>
  %1 = kiln.reduce sum %0 dims = [1] : tensor<64x32xf32>
  %2 = kiln.neg %0 : tensor<64x32xf32>
  return %1, %2 : tensor<64xf32>, tensor<64x32xf32>
}

// -----
// CASE: an_exponential_is_computed_once
// CHECK-COUNT-1: kiln.exp
// IMPLICIT-CHECK-NOT: kiln.exp
func.func @f(%x: tensor<64x32xf32>) -> (tensor<32xf32>, tensor<64x32xf32>) {
  %0 = kiln.exp %x : tensor<64x32xf32>
  %1 = kiln.add %0, %x : tensor<64x32xf32>
  %2 = kiln.reduce sum %1 dims = [0] : tensor<64x32xf32>
  %3 = kiln.neg %1 : tensor<64x32xf32>
  return %2, %3 : tensor<32xf32>, tensor<64x32xf32>
}

// -----
// CASE: the_epilogue_of_a_product_is_stored
// CHECK-COUNT-1: kiln.add
// IMPLICIT-CHECK-NOT: kiln.add
func.func @f(%x: tensor<64x16xf32>, %w: tensor<16x32xf32>, %r: tensor<64x32xf32>) -> (tensor<32xf32>, tensor<64x32xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<64x16xf32>, tensor<16x32xf32>
  %1 = kiln.add %0, %r : tensor<64x32xf32>
  %2 = kiln.reduce sum %1 dims = [0] : tensor<64x32xf32>
  %3 = kiln.neg %1 : tensor<64x32xf32>
  return %2, %3 : tensor<32xf32>, tensor<64x32xf32>
}

// -----
// The masked product is an epilogue, whose narrow result is stored: both sums read it, and the
// second computes what it is multiplied by.
// CASE: sums_of_an_epilogue
// CHECK-COUNT-1: kiln.select
// CHECK-COUNT-2: kiln.sub
// IMPLICIT-CHECK-NOT: kiln.select
func.func @f(%a: tensor<64x16xbf16>, %b: tensor<16x32xbf16>, %mask: tensor<64x32xi1>, %x: tensor<64x32xbf16>, %mean: tensor<32xf32>) -> (tensor<64x32xf32>, tensor<64x32xbf16>, tensor<32xf32>, tensor<32xf32>) {
  %0 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [0] : tensor<64x16xbf16>, tensor<16x32xbf16>
  %1 = kiln.convert %0 : tensor<64x32xbf16> to f32
  %zero = kiln.splat [64, 32], 0.0 : f32
  %2 = kiln.select %mask, %zero, %1 : tensor<64x32xi1>, tensor<64x32xf32>
  %3 = kiln.convert %2 : tensor<64x32xf32> to bf16
  %4 = kiln.convert %3 : tensor<64x32xbf16> to f32
  %5 = kiln.convert %x : tensor<64x32xbf16> to f32
  %6 = kiln.broadcast_in_dim %mean dims = [1] sizes = [64, 32] : tensor<32xf32>
  %7 = kiln.sub %5, %6 : tensor<64x32xf32>
  %8 = kiln.mul %4, %7 : tensor<64x32xf32>
  %9 = kiln.reduce sum %8 dims = [0] : tensor<64x32xf32>
  %10 = kiln.reduce sum %4 dims = [0] : tensor<64x32xf32>
  %11 = kiln.neg %7 : tensor<64x32xf32>
  return %11, %3, %9, %10 : tensor<64x32xf32>, tensor<64x32xbf16>, tensor<32xf32>, tensor<32xf32>
}

// -----
// A sum reads the product, which is stored for it: the other sum reads it as well, and computes
// what it is multiplied by.
// CASE: a_product_that_a_reduction_reads
// CHECK-COUNT-2: kiln.sub
func.func @f(%a: tensor<64x16xbf16>, %b: tensor<16x32xbf16>, %x: tensor<64x32xf32>, %mean: tensor<64xf32>) -> (tensor<64x32xf32>, tensor<32xf32>, tensor<32xf32>) {
  %0 = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [0] : tensor<64x16xbf16>, tensor<16x32xbf16>
  %1 = kiln.convert %0 : tensor<64x32xbf16> to f32
  %2 = kiln.broadcast_in_dim %mean dims = [0] sizes = [64, 32] : tensor<64xf32>
  %3 = kiln.sub %x, %2 : tensor<64x32xf32>
  %4 = kiln.mul %1, %3 : tensor<64x32xf32>
  %5 = kiln.reduce sum %4 dims = [0] : tensor<64x32xf32>
  %6 = kiln.reduce sum %1 dims = [0] : tensor<64x32xf32>
  %7 = kiln.neg %3 : tensor<64x32xf32>
  return %7, %5, %6 : tensor<64x32xf32>, tensor<32xf32>, tensor<32xf32>
}

// -----
// CASE: two_sums_of_one_value
// CHECK-COUNT-2: kiln.mul
func.func @f(%x: tensor<64x32xf32>) -> (tensor<32xf32>, tensor<32xf32>) {
  %0 = kiln.mul %x, %x : tensor<64x32xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<64x32xf32>
  %2 = kiln.reduce max %0 dims = [0] : tensor<64x32xf32>
  return %1, %2 : tensor<32xf32>, tensor<32xf32>
}

// -----
// What a sum computes again is rounded as what is stored; what it alone reads is not.
// CASE: clones_of_16_bit_values
// CHECK-COUNT-2: kiln.mul {{.*}} {kiln.rounded}
// IMPLICIT-CHECK-NOT: kiln.sub {{.*}} {kiln.rounded}
func.func @f(%x: tensor<64x32xbf16>, %y: tensor<64x32xbf16>) -> (tensor<64x32xf32>, tensor<32xbf16>) {
  %0 = kiln.mul %x, %y : tensor<64x32xbf16>
  %1 = kiln.convert %0 : tensor<64x32xbf16> to f32
  %2 = kiln.neg %1 : tensor<64x32xf32>
  %3 = kiln.sub %0, %y : tensor<64x32xbf16>
  %4 = kiln.reduce sum %3 dims = [0] : tensor<64x32xbf16>
  return %2, %4 : tensor<64x32xf32>, tensor<32xbf16>
}
