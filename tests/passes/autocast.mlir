// RUN: kiln-autocast{dtype=bf16}

// What products make stays bf16 until an op wants f32; arguments and results stay f32.
// CASE: products_and_activations
// CHECK: kiln.linear {{.*}} bias {{.*}} : tensor<8xbf16> : tensor<4x8xbf16>, tensor<8x8xbf16>
// CHECK: kiln.relu %{{.*}} : tensor<4x8xbf16>
// CHECK: kiln.linear {{.*}} : tensor<4x8xbf16>, tensor<8x8xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<4x8xbf16> to f32
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-remark @+3 {{kiln-autocast: casts an operand of kiln.linear from f32 to bf16}}
  // expected-remark @+2 {{kiln-autocast: casts an operand of kiln.linear from f32 to bf16}}
  // expected-remark @+1 {{kiln-autocast: casts an operand of kiln.linear from f32 to bf16}}
  %0 = kiln.linear %x, %w bias %b : tensor<8xf32> : tensor<4x8xf32>, tensor<8x8xf32>
  %1 = kiln.relu %0 : tensor<4x8xf32>
  %2 = kiln.linear %1, %w : tensor<4x8xf32>, tensor<8x8xf32>
  // expected-remark @+1 {{kiln-autocast: casts an operand of func.return from bf16 to f32}}
  return %2 : tensor<4x8xf32>
}

// -----
// CASE: softmax_norms_and_sums_are_f32
// CHECK: kiln.softmax %{{.*}} axis = 1 : tensor<4x8xf32>
// CHECK: kiln.layer_norm {{.*}} : tensor<4x8xf32>
// CHECK: kiln.reduce sum {{.*}} : tensor<4x8xf32>
// CHECK: kiln.reduce max {{.*}} : tensor<4x8xbf16>
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %s: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %1 = kiln.softmax %0 axis = 1 : tensor<4x8xf32>
  %2 = kiln.layer_norm %0 weight %s : tensor<8xf32> {epsilon = 1.000000e-05 : f64, rank = 1 : i64} : tensor<4x8xf32>
  %3 = kiln.reduce sum %0 dims = [1] : tensor<4x8xf32>
  %4 = kiln.reduce max %0 dims = [1] : tensor<4x8xf32>
  return %1, %2, %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----
// A tensor of f32 widens what it meets; a number does not.
// CASE: the_widest_type
// CHECK: kiln.mul %{{.*}} : tensor<4x8xbf16>
// CHECK: kiln.add %{{.*}} : tensor<4x8xf32>
// CHECK: kiln.concat {{.*}} : tensor<4x8xbf16>, tensor<4x8xbf16>
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %1 = kiln.splat [4, 8], 2.000000e+00 : f32
  %2 = kiln.mul %0, %1 : tensor<4x8xf32>
  %3 = kiln.add %2, %x : tensor<4x8xf32>
  %4 = kiln.concat %0, %2 axis = 0 : tensor<4x8xf32>, tensor<4x8xf32>
  return %3, %4 : tensor<4x8xf32>, tensor<8x8xf32>
}

// -----
// Batch norm has its input's type, and parameters of f32.
// CASE: convolutions_and_batch_norm
// CHECK: kiln.convolution {{.*}} : tensor<1x3x6x6xbf16>, tensor<4x3x3x3xbf16>
// CHECK: kiln.batch_norm {{.*}} : tensor<1x4x6x6xbf16>
// CHECK: kiln.relu %{{.*}} : tensor<1x4x6x6xbf16>
func.func @f(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>) -> tensor<1x4x6x6xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>
  %1 = kiln.abs %v : tensor<4xf32>
  %2 = kiln.batch_norm %0 mean %m : tensor<4xf32> variance %1 : tensor<4xf32> {epsilon = 1.000000e-05 : f64} : tensor<1x4x6x6xf32>
  %3 = kiln.relu %2 : tensor<1x4x6x6xf32>
  return %3 : tensor<1x4x6x6xf32>
}

// -----
// The body of a checkpoint is cast; what it yields is f32.
// CASE: bodies
// CHECK: kiln.checkpoint -> tensor<4x4xf32>
// CHECK: kiln.matmul {{.*}} : tensor<4x4xbf16>, tensor<4x4xbf16>
// CHECK: kiln.tanh {{.*}} : tensor<4x4xbf16>
// CHECK: kiln.convert %{{.*}} : tensor<4x4xbf16> to f32
func.func @f(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kiln.matmul %x, %w : tensor<4x4xf32>, tensor<4x4xf32>
  %1 = kiln.checkpoint -> tensor<4x4xf32> {
    %2 = kiln.matmul %0, %w : tensor<4x4xf32>, tensor<4x4xf32>
    %3 = kiln.tanh %2 : tensor<4x4xf32>
    kiln.yield %3 : tensor<4x4xf32>
  }
  return %1 : tensor<4x4xf32>
}

// -----
// CASE: other_types_stay
// CHECK: kiln.matmul {{.*}} : tensor<4x4xf64>, tensor<4x4xf64>
// CHECK: kiln.matmul {{.*}} : tensor<4x4xbf16>, tensor<4x4xbf16>
// CHECK: kiln.exp {{.*}} : tensor<4x4xbf16>
// CHECK-NOT: kiln.convert
func.func @f(%x: tensor<4x4xf64>, %y: tensor<4x4xbf16>) -> (tensor<4x4xf64>, tensor<4x4xbf16>) {
  %0 = kiln.matmul %x, %x : tensor<4x4xf64>, tensor<4x4xf64>
  %1 = kiln.matmul %y, %y : tensor<4x4xbf16>, tensor<4x4xbf16>
  %2 = kiln.exp %1 : tensor<4x4xbf16>
  return %0, %2 : tensor<4x4xf64>, tensor<4x4xbf16>
}

// -----
// CASE: attention_in_f16
// RUN: kiln-autocast{dtype=f16}
// CHECK: kiln.attention {{.*}} with_lse : tensor<1x2x4x8xf16>, tensor<1x2x4x8xf16>, tensor<1x2x4x8xf16>
func.func @f(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) {
  %0, %1 = kiln.attention %q, %k, %k with_lse : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
}

// -----
// CASE: off
// RUN: kiln-autocast
// CHECK-NOT: bf16
func.func @f(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = kiln.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
