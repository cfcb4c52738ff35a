// RUN: kiln-decompose

// CASE: silu
// CHECK: kiln.exp
// IMPLICIT-CHECK-NOT: kiln.silu
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.silu %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----
// CASE: linear in bf16
// CHECK: : tensor<2x3xbf16>, tensor<4x3xbf16> to f32
// The f32 accumulator is rounded once, after the bias.
// IMPLICIT-CHECK-NOT: kiln.linear
func.func @f(%x: tensor<2x3xbf16>, %w: tensor<4x3xbf16>, %b: tensor<4xbf16>) -> tensor<2x4xbf16> {
  %0 = kiln.linear %x, %w bias %b : tensor<4xbf16> : tensor<2x3xbf16>, tensor<4x3xbf16>
  return %0 : tensor<2x4xbf16>
}

// -----
// CASE: matmul that broadcasts
// CHECK: batch = [0, 1] x [0, 1]
// IMPLICIT-CHECK-NOT: kiln.matmul
func.func @f(%x: tensor<3x1x2x5xf32>, %y: tensor<4x5x2xf32>) -> tensor<3x4x2x2xf32> {
  %0 = kiln.matmul %x, %y : tensor<3x1x2x5xf32>, tensor<4x5x2xf32>
  return %0 : tensor<3x4x2x2xf32>
}

// -----
// CASE: layer norm of dynamic size
// CHECK: kiln.iota
// The size becomes data as the last element of an iota.
// IMPLICIT-CHECK-NOT: kiln.layer_norm
func.func @f(%x: tensor<2x?xf32>, %w: tensor<?xf32>) -> tensor<2x?xf32> {
  %0 = kiln.layer_norm %x weight %w : tensor<?xf32> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<2x?xf32>
  return %0 : tensor<2x?xf32>
}

// -----
// One group is all dimensions but the first: no reshape fixes their order.
// CASE: group norm of one group
// CHECK: kiln.reduce sum {{.*}} dims = [1, 2, 3]
// IMPLICIT-CHECK-NOT: kiln.reshape
func.func @f(%x: tensor<2x3x4x5xf32>, %w: tensor<3xf32>) -> tensor<2x3x4x5xf32> {
  %0 = kiln.group_norm %x weight %w : tensor<3xf32> {groups = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<2x3x4x5xf32>
  return %0 : tensor<2x3x4x5xf32>
}

// -----
// CASE: softmax in f16
// CHECK: tensor<2x5xf16> to f32
// CHECK: kiln.reduce max
func.func @f(%x: tensor<2x5xf16>) -> tensor<2x5xf16> {
  %0 = kiln.softmax %x axis = 1 : tensor<2x5xf16>
  return %0 : tensor<2x5xf16>
}

// -----
// The maximum over no elements is -inf.
// CASE: softmax of dynamic length
// CHECK: maybe_empty
func.func @f(%x: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [2, %n] : tensor<2x?xf32>
  %0 = kiln.softmax %x axis = 1 : tensor<2x?xf32>
  return %0 : tensor<2x?xf32>
}

// -----
// CASE: variance
// CHECK: 2.000000e+00
func.func @f(%x: tensor<2x3xf32>) -> tensor<2x1xf32> {
  %0 = kiln.var %x dims = [1] keep_dims : tensor<2x3xf32>
  return %0 : tensor<2x1xf32>
}

// -----
// CASE: cross entropy
// CHECK: dims = [0, 1]
// IMPLICIT-CHECK-NOT: kiln.cross_entropy
func.func @f(%x: tensor<6x4xf32>, %t: tensor<6xi64>) -> tensor<f32> {
  %0 = kiln.cross_entropy mean %x, %t : tensor<6x4xf32>, tensor<6xi64>
  return %0 : tensor<f32>
}

// -----
// CASE: dropout
// CHECK: kiln.random_uniform
// CHECK: kiln.splat [4], 2.500000e-01 : f64
// CHECK: kiln.compare ge
// CHECK: kiln.splat [4], 7.500000e-01 : f32
// CHECK: kiln.div %arg0
func.func @f(%x: tensor<4xf32>, %k: tensor<2xi64>) -> tensor<4xf32> {
  %0 = kiln.dropout %x key %k p = 0.25 : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----
// CASE: max pool with ceil_mode
// CHECK: pad = [0, 0, 0] x [0, 0, 1]
func.func @f(%x: tensor<1x2x7xi8>) -> tensor<1x2x4xi8> {
  %0 = kiln.max_pool %x window = [2] strides = [2] padding = [0] dilation = [1] ceil_mode : tensor<1x2x7xi8>
  return %0 : tensor<1x2x4xi8>
}

// -----
// CASE: average pool without count_include_pad
// CHECK: kiln.reduce_window sum
// IMPLICIT-CHECK-NOT: kiln.avg_pool
func.func @f(%x: tensor<1x2x8xf32>) -> tensor<1x2x8xf32> {
  %0 = kiln.avg_pool %x window = [3] strides = [1] padding = [1] : tensor<1x2x8xf32>
  return %0 : tensor<1x2x8xf32>
}

// -----
// CASE: resize
// CHECK: kiln.gather
func.func @f(%x: tensor<1x2x3xf32>) -> tensor<1x2x6xf32> {
  %0 = kiln.interpolate %x sizes = [6] : tensor<1x2x3xf32>
  return %0 : tensor<1x2x6xf32>
}

// -----
// CASE: attention is kept
// CHECK: kiln.attention
// Composites in its regions are decomposed.
// IMPLICIT-CHECK-NOT: kiln.sigmoid
func.func @f(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x8xf32>, %v: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = kiln.attention %q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32> score {
  ^bb0(%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %1 = kiln.sigmoid %s : tensor<f32>
    kiln.yield %1 : tensor<f32>
  }
  return %0 : tensor<1x2x4x8xf32>
}

// -----
// CASE: in a loop
// CHECK: kiln.scan
// IMPLICIT-CHECK-NOT: kiln.softmax
func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = kiln.scan inits() over(%x : tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %1 = kiln.softmax %a axis = 0 : tensor<4xf32>
    kiln.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<3x4xf32>
}

// -----
// CASE: grouped heads and an embedding
// RUN: kiln-decompose{keep=}
// CHECK: tensor<1x2x2x3x8xf32>
// IMPLICIT-CHECK-NOT: kiln.attention
func.func @f(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x3x8xf32>, %v: tensor<1x2x3x8xf32>, %table: tensor<4xf32>) -> tensor<1x4x3x8xf32> {
  %0 = kiln.attention %q, %k, %v causal : tensor<1x4x3x8xf32>, tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32> score {
  ^bb0(%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %1 = kiln.gather %table[%h] dims = [0] : tensor<4xf32>[tensor<i64>]
    %2 = kiln.mul %s, %1 : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<1x4x3x8xf32>
}

// -----
// CASE: a region that cannot be vectorised
// RUN: kiln-decompose{keep=}
func.func @f(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x3x8xf32>, %v: tensor<1x2x3x8xf32>, %table: tensor<4xf32>) -> tensor<1x4x3x8xf32> {
  // expected-error @+1 {{'kiln.attention' op has a region with kiln.dynamic_slice, which cannot be vectorised over elements}}
  %0 = kiln.attention %q, %k, %v causal : tensor<1x4x3x8xf32>, tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32> score {
  ^bb0(%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %1 = kiln.dynamic_slice %table[%h : tensor<i64>] sizes = [1] : tensor<4xf32>
    %2 = kiln.reduce sum %1 dims = [0] : tensor<1xf32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<1x4x3x8xf32>
}

// -----
// What the target's attention kernels lack is kept as the reason why nothing is fused.
// CASE: attention_with_lse
// RUN: kiln-decompose{keep=kernels}
// CHECK: kiln.dot_general
// CHECK-SAME: kiln.not_fused = "attention not fused: it has dropout or returns the log-sum-exp"
// IMPLICIT-CHECK-NOT: kiln.attention
func.func @f(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x8xf32>, %v: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) {
  %0, %1 = kiln.attention %q, %k, %v with_lse : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>
}

// -----
// CASE: checkpoint
// CHECK-NOT: kiln.checkpoint
// CHECK: kiln.exp
// CHECK: kiln.tanh
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0, %1 = kiln.checkpoint -> tensor<4xf32>, tensor<4xf32> {
    %2 = kiln.exp %x : tensor<4xf32>
    %3 = kiln.checkpoint -> tensor<4xf32> {
      %4 = kiln.tanh %2 : tensor<4xf32>
      kiln.yield %4 : tensor<4xf32>
    }
    kiln.yield %3, %2 : tensor<4xf32>, tensor<4xf32>
  }
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----
// The weights are computed again from the log-sum-exp; products are of all heads at once.
// CASE: attention_gradient
// RUN: kiln-decompose{keep=kernels chip=sm_80}
// CHECK: kiln.not_fused = "attention_gradient not fused: it takes the tensor cores of Hopper"
// IMPLICIT-CHECK-NOT: kiln.attention_gradient
func.func @f(%q: tensor<1x4x3x8xbf16>, %k: tensor<1x2x5x8xbf16>, %v: tensor<1x2x5x4xbf16>, %c: tensor<1x4x3x4xbf16>, %l: tensor<1x4x3xf32>, %d: tensor<1x4x3xf32>) -> tensor<1x4x3x8xbf16> {
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d causal : tensor<1x4x3x8xbf16>, tensor<1x2x5x8xbf16>, tensor<1x2x5x4xbf16>, tensor<1x4x3x4xbf16>, tensor<1x4x3xf32>, tensor<1x4x3xf32>
  return %0 : tensor<1x4x3x8xbf16>
}

// -----
// CASE: attention_gradient_of_hopper
// RUN: kiln-decompose{keep=kernels chip=sm_90a}
// CHECK: kiln.attention_gradient by_keys
func.func @f(%q: tensor<1x4x3x16xbf16>, %k: tensor<1x2x5x16xbf16>, %v: tensor<1x2x5x24xbf16>, %c: tensor<1x4x3x24xbf16>, %l: tensor<1x4x3xf32>, %d: tensor<1x4x3xf32>) -> (tensor<1x2x5x16xbf16>, tensor<1x2x5x24xbf16>) {
  %0, %1 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d : tensor<1x4x3x16xbf16>, tensor<1x2x5x16xbf16>, tensor<1x2x5x24xbf16>, tensor<1x4x3x24xbf16>, tensor<1x4x3xf32>, tensor<1x4x3xf32>
  return %0, %1 : tensor<1x2x5x16xbf16>, tensor<1x2x5x24xbf16>
}
