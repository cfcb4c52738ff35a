// RUN: kiln-float8-products{recipe=rowwise min-size=1}

// Each row of both operands along K has a scale; the product is f32 until both are divided out.
// CASE: a_scale_a_row
// CHECK: kiln.reduce max %{{.*}} dims = [1] : tensor<64x32xf32>
// CHECK: kiln.convert %{{.*}} : tensor<64x32xf32> to f8E4M3FN
// CHECK: kiln.reduce max %{{.*}} dims = [1] : tensor<96x32xf32>
// CHECK: kiln.convert %{{.*}} : tensor<96x32xf32> to f8E4M3FN
// CHECK: kiln.dot_general {{.*}} contract = [1] x [1] : tensor<64x32xbf16>, tensor<96x32xbf16> to f32
// CHECK: kiln.convert %{{.*}} : tensor<64x96xf32> to bf16
func.func @f(%x: tensor<64x32xbf16>, %w: tensor<96x32xbf16>) -> tensor<64x96xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<96x32xbf16>
  return %0 : tensor<64x96xbf16>
}

// -----
// CASE: a_scale_a_tensor
// RUN: kiln-float8-products{recipe=tensorwise min-size=1}
// CHECK: kiln.reduce max %{{.*}} dims = [0, 1] : tensor<64x32xf32>
// CHECK: kiln.mul %{{.*}} : tensor<f32>
// CHECK: kiln.convert %{{.*}} : tensor<64x96xf32> to f16
func.func @f(%x: tensor<64x32xf16>, %w: tensor<96x32xf16>) -> tensor<64x96xf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xf16>, tensor<96x32xf16>
  return %0 : tensor<64x96xf16>
}

// -----
// The three products of a linear layer and its gradients, of a batch of sequences. What two contract
// along different dimensions is quantised twice; once where they share K and its order.
// CASE: gradients_of_a_linear_layer
// CHECK-COUNT-6: to f8E4M3FN
// CHECK-NOT: to f8E4M3FN
func.func @f(%x: tensor<4x16x32xbf16>, %w: tensor<96x32xbf16>, %g: tensor<4x16x96xbf16>) -> (tensor<4x16x96xbf16>, tensor<4x16x32xbf16>, tensor<96x32xbf16>, tensor<4x16x96xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [2] x [1] : tensor<4x16x32xbf16>, tensor<96x32xbf16>
  %1 = kiln.dot_general %g, %w batch = [] x [] contract = [2] x [0] : tensor<4x16x96xbf16>, tensor<96x32xbf16>
  %2 = kiln.dot_general %g, %x batch = [] x [] contract = [0, 1] x [0, 1] : tensor<4x16x96xbf16>, tensor<4x16x32xbf16>
  %3 = kiln.transpose %w permutation = [1, 0] : tensor<96x32xbf16>
  %4 = kiln.dot_general %x, %3 batch = [] x [] contract = [2] x [0] : tensor<4x16x32xbf16>, tensor<32x96xbf16>
  return %0, %1, %2, %4 : tensor<4x16x96xbf16>, tensor<4x16x32xbf16>, tensor<96x32xbf16>, tensor<4x16x96xbf16>
}

// -----
// Six tensors with one scale each need three maxima.
// CASE: one_scale_for_both_orders
// RUN: kiln-float8-products{recipe=tensorwise min-size=1}
// CHECK-COUNT-3: kiln.reduce max
// CHECK-NOT: kiln.reduce max
func.func @f(%x: tensor<64x32xbf16>, %w: tensor<96x32xbf16>, %g: tensor<64x96xbf16>) -> (tensor<64x96xbf16>, tensor<64x32xbf16>, tensor<96x32xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<96x32xbf16>
  %1 = kiln.dot_general %g, %w batch = [] x [] contract = [1] x [0] : tensor<64x96xbf16>, tensor<96x32xbf16>
  %2 = kiln.dot_general %g, %x batch = [] x [] contract = [0] x [0] : tensor<64x96xbf16>, tensor<64x32xbf16>
  return %0, %1, %2 : tensor<64x96xbf16>, tensor<64x32xbf16>, tensor<96x32xbf16>
}

// -----
// A dynamic number of rows; K is a multiple of 16.
// CASE: dynamic_rows
// CHECK: kiln.dot_general {{.*}} to f32
func.func @f(%x: tensor<?x32xbf16>, %w: tensor<96x32xbf16>) -> tensor<?x96xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<?x32xbf16>, tensor<96x32xbf16>
  return %0 : tensor<?x96xbf16>
}

// -----
// The logits of a loss, and what its derivative by labels is multiplied with.
// CASE: loss_heads_stay
// CHECK: not_quantized = "a softmax reads its rows"
// CHECK: not_quantized = "an operand is the derivative of a loss by its logits"
// CHECK-NOT: f8E4M3FN
func.func @f(%x: tensor<16x32xbf16>, %w: tensor<96x32xbf16>, %t: tensor<16xi64>, %s: tensor<16x96xbf16>) -> (tensor<16xbf16>, tensor<16x32xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<16x32xbf16>, tensor<96x32xbf16>
  %1 = kiln.neg %0 : tensor<16x96xbf16>
  %2 = kiln.reduce max %1 dims = [1] : tensor<16x96xbf16>
  %3 = kiln.iota [16, 96] axis = 1 : i64
  %4 = kiln.broadcast_in_dim %t dims = [0] sizes = [16, 96] : tensor<16xi64>
  %5 = kiln.compare eq %3, %4 : tensor<16x96xi64>
  %6 = kiln.convert %5 : tensor<16x96xi1> to bf16
  %7 = kiln.sub %s, %6 : tensor<16x96xbf16>
  %8 = kiln.dot_general %7, %w batch = [] x [] contract = [1] x [0] : tensor<16x96xbf16>, tensor<96x32xbf16>
  return %2, %8 : tensor<16xbf16>, tensor<16x32xbf16>
}

// -----
// Quantising takes time for each element of an operand, which few rows do not repay.
// CASE: small_products_stay
// RUN: kiln-float8-products{recipe=rowwise min-size=64}
// CHECK: not_quantized = "quantising its operands would take longer than is saved"
// CHECK: not_quantized = "K is not known to be a multiple of 16"
// CHECK: not_quantized = "it has batch dimensions"
// CHECK: not_quantized = "an operand is quantised already"
// CHECK-NOT: to f8E4M3FN
func.func @f(%x: tensor<64x32xbf16>, %w: tensor<128x32xbf16>, %y: tensor<256x40xbf16>, %z: tensor<8x64x32xbf16>, %q: tensor<128x32xf8E4M3FN>, %v: tensor<256x32xbf16>) -> (tensor<64x128xbf16>, tensor<256x256xbf16>, tensor<8x64x64xbf16>, tensor<256x128xbf16>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<128x32xbf16>
  %1 = kiln.dot_general %y, %y batch = [] x [] contract = [1] x [1] : tensor<256x40xbf16>, tensor<256x40xbf16>
  %2 = kiln.dot_general %z, %z batch = [0] x [0] contract = [2] x [2] : tensor<8x64x32xbf16>, tensor<8x64x32xbf16>
  %3 = kiln.convert %q : tensor<128x32xf8E4M3FN> to bf16
  %4 = kiln.dot_general %v, %3 batch = [] x [] contract = [1] x [1] : tensor<256x32xbf16>, tensor<128x32xbf16>
  return %0, %1, %2, %4 : tensor<64x128xbf16>, tensor<256x256xbf16>, tensor<8x64x64xbf16>, tensor<256x128xbf16>
}

// -----
// A product in a branch reads another one's result.
// CASE: branches
// CHECK: kiln.dot_general {{.*}} to f32
// CHECK: kiln.if
// CHECK: kiln.dot_general {{.*}} to f32
func.func @f(%x: tensor<64x32xbf16>, %w: tensor<32x32xbf16>, %c: tensor<i1>) -> tensor<64x32xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<32x32xbf16>
  %1 = kiln.if %c : tensor<i1> -> tensor<64x32xbf16> {
    %2 = kiln.dot_general %0, %w batch = [] x [] contract = [1] x [1] : tensor<64x32xbf16>, tensor<32x32xbf16>
    kiln.yield %2 : tensor<64x32xbf16>
  } else {
    kiln.yield %0 : tensor<64x32xbf16>
  }
  return %1 : tensor<64x32xbf16>
}
