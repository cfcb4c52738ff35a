// RUN: kiln-differentiate

// CASE: scalar_loss
// NO-RUN: it gets results; tests/gradients/ compares these with differences
// CHECK: %0 = kiln.exp
// CHECK: kiln.mul {{.*}}, %0
// CHECK: return {{.*}} : tensor<f32>, tensor<4xf32>
func.func @f(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = kiln.exp %x : tensor<4xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<4xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: cotangents_of_two_results
// NO-RUN: it gets arguments and results
// RUN: kiln-differentiate{wrt=1 results=0,1 cotangents=true}
// CHECK: func.func @f(%{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>)
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.mul %x, %y : tensor<4xf32>
  %1 = kiln.sin %y : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----
// CASE: only_what_depends_on_wrt
// NO-RUN: it gets results
// RUN: kiln-differentiate{wrt=1}
// CHECK-COUNT-1: kiln.dot_general
// CHECK-NOT: kiln.dot_general
func.func @f(%x: tensor<8x4xf32>, %w: tensor<2x4xf32>) -> tensor<f32> {
  %0 = kiln.linear %x, %w : tensor<8x4xf32>, tensor<2x4xf32>
  %1 = kiln.reduce sum %0 dims = [0, 1] : tensor<8x2xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: independent_argument
// NO-RUN: it gets results
// CHECK: kiln.splat [3], 0.000000e+00
func.func @f(%x: tensor<f32>, %y: tensor<3xf32>) -> tensor<f32> {
  %0 = kiln.tanh %x : tensor<f32>
  return %0 : tensor<f32>
}

// -----
// CASE: integers_stop_it
// NO-RUN: it gets results
// CHECK: kiln.splat [3], 0.000000e+00
func.func @f(%x: tensor<3xf32>) -> tensor<f32> {
  %0 = kiln.convert %x : tensor<3xf32> to i64
  %1 = kiln.convert %0 : tensor<3xi64> to f32
  %2 = kiln.reduce sum %1 dims = [0] : tensor<3xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: broadcast_of_symbolic_sizes
// NO-RUN: it gets results
// CHECK: kiln.reduce sum {{.*}} dims = [1]
// CHECK-NOT: floordiv
func.func @f(%x: tensor<?x8xf32>, %b: tensor<?xf32>) -> tensor<f32> {
  %s = kiln.sym @s
  kiln.bind_shape %x, [%s, 8] : tensor<?x8xf32>
  kiln.bind_shape %b, [%s] : tensor<?xf32>
  %0 = kiln.broadcast_in_dim %b dims = [0] sizes = [%s, 8] : tensor<?xf32>
  %1 = kiln.mul %x, %0 : tensor<?x8xf32>
  %2 = kiln.reduce sum %1 dims = [0, 1] : tensor<?x8xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: broadcast_of_unknown_size
// NO-RUN: it gets results
// CHECK: kiln.sym_expr floordiv
func.func @f(%x: tensor<4x8xf32>, %b: tensor<?xf32>) -> tensor<f32> {
  %0 = kiln.broadcast_in_dim %b dims = [0] sizes = [4, 8] : tensor<?xf32>
  %1 = kiln.mul %x, %0 : tensor<4x8xf32>
  %2 = kiln.reduce sum %1 dims = [0, 1] : tensor<4x8xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: softmax_by_its_result
// NO-RUN: it gets results
// CHECK-COUNT-1: kiln.softmax
// CHECK-NOT: kiln.exp
func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<f32> {
  %0 = kiln.softmax %x axis = 1 : tensor<4x8xf32>
  %1 = kiln.mul %0, %y : tensor<4x8xf32>
  %2 = kiln.reduce sum %1 dims = [0, 1] : tensor<4x8xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: layer_norm_of_bf16
// NO-RUN: it gets results
// CHECK: kiln.convert {{.*}} to bf16
func.func @f(%x: tensor<4x8xbf16>, %w: tensor<8xbf16>) -> tensor<bf16> {
  %0 = kiln.layer_norm %x weight %w : tensor<8xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<4x8xbf16>
  %1 = kiln.reduce sum %0 dims = [0, 1] : tensor<4x8xbf16>
  return %1 : tensor<bf16>
}

// -----
// CASE: cross_entropy_without_scatter
// NO-RUN: it gets results
// CHECK-NOT: kiln.scatter
func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>) -> tensor<f32> {
  %0 = kiln.cross_entropy mean %x, %t : tensor<4x10xf32>, tensor<4xi64>
  return %0 : tensor<f32>
}

// -----
// The adjoint of a transform of real numbers gives real numbers.
// CASE: fft
// NO-RUN: it gets results; tests/gradients/ compares these with differences
// CHECK: kiln.fft c2r {{.*}} length = 6 inverse
func.func @f(%x: tensor<2x6xf32>) -> tensor<f32> {
  %0:2 = kiln.fft r2c %x length = 6 : tensor<2x6xf32>
  %1 = kiln.mul %0#0, %0#1 : tensor<2x4xf32>
  %2 = kiln.reduce sum %1 dims = [0, 1] : tensor<2x4xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: convolution
// NO-RUN: it gets results
// CHECK-COUNT-3: kiln.convolution
func.func @f(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<f32> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>
  %1 = kiln.reduce sum %0 dims = [0, 1, 2, 3] : tensor<2x4x4x4xf32>
  return %1 : tensor<f32>
}

// -----
// Pixels of each phase of the stride are channels of a group: one convolution of two groups of four
// phases has all of them.
// CASE: strided_convolution_of_groups
// NO-RUN: it gets results; tests/gradients/ compares these with differences
// CHECK: kiln.convolution {{.*}} strides = [1, 1] {{.*}} {groups = 2 : i64} : tensor<2x8x4x4xf32>, tensor<16x4x2x2xf32>
// CHECK: kiln.transpose {{.*}} permutation = [0, 1, 4, 5, 2, 6, 3]
func.func @f(%x: tensor<2x4x8x8xf32>, %w: tensor<8x2x3x3xf32>) -> tensor<f32> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64} : tensor<2x4x8x8xf32>, tensor<8x2x3x3xf32>
  %1 = kiln.reduce sum %0 dims = [0, 1, 2, 3] : tensor<2x8x4x4xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: decomposed_mean
// NO-RUN: it gets results
// CHECK: kiln.mean
// CHECK: kiln.div
func.func @f(%x: tensor<2x4xf32>, %y: tensor<2xf32>) -> tensor<f32> {
  %0 = kiln.mean %x dims = [1] : tensor<2x4xf32>
  %1 = kiln.mul %0, %y : tensor<2xf32>
  %2 = kiln.reduce sum %1 dims = [0] : tensor<2xf32>
  return %2 : tensor<f32>
}

// -----
// CASE: branch
// NO-RUN: it gets results
// CHECK-COUNT-2: kiln.if
func.func @f(%x: tensor<f32>, %c: tensor<i1>) -> tensor<f32> {
  %0 = kiln.if %c : tensor<i1> -> tensor<f32> {
    %1 = kiln.mul %x, %x : tensor<f32>
    kiln.yield %1 : tensor<f32>
  } else {
    kiln.yield %x : tensor<f32>
  }
  return %0 : tensor<f32>
}

// -----
// CASE: scan
// NO-RUN: it gets results
// CHECK: kiln.scan inits
// CHECK: kiln.scan inits
// CHECK: kiln.scan reverse
func.func @f(%x: tensor<8xf32>, %w: tensor<f32>) -> tensor<f32> {
  %0 = kiln.splat [], 0.0 : f32
  %r = kiln.scan inits(%0 : tensor<f32>) over(%x : tensor<8xf32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = kiln.mul %a, %w : tensor<f32>
    %2 = kiln.add %1, %b : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }
  return %r : tensor<f32>
}

// -----
// CASE: loop
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  %n = kiln.splat [], 9.0 : f32
  // expected-error @+1 {{cannot be differentiated: it repeats an unknown number of times; a kiln.scan can be differentiated}}
  %0 = kiln.while(%x) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    %1 = kiln.compare lt %a, %n : tensor<f32>
    kiln.yield %1 : tensor<i1>
  } do {
  ^bb0(%a: tensor<f32>):
    %2 = kiln.mul %a, %a : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<f32>
}

// -----
// CASE: custom_call
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{cannot be differentiated: it calls a function outside of the graph}}
  %0 = kiln.custom_call "test.identity"(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----
// CASE: bits
func.func @f(%x: tensor<bf16>) -> tensor<f16> {
  // expected-error @+1 {{cannot be differentiated: it reads the bits of a number}}
  %0 = kiln.bitcast %x : tensor<bf16> to f16
  return %0 : tensor<f16>
}

// -----
// CASE: insert_slice
func.func @f(%x: tensor<2xf32>) -> tensor<f32> {
  // expected-error @+1 {{cannot be differentiated: it writes into the buffer of another value}}
  %0 = kiln.insert_slice %x offsets = [0] sizes = [4] : tensor<2xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<4xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: external_kernel
func.func @f(%x: tensor<4xf32>) -> tensor<f32> {
  // expected-error @+1 {{cannot be differentiated: it calls an external kernel}}
  %0 = kiln.ptx_call "mine::twice"(%x) blocks = [1] sizes = [] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<4xf32>) -> tensor<4xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<4xf32>
  return %1 : tensor<f32>
}

// -----
// CASE: no_scalar
// expected-error @+1 {{has result 0 of tensor<4xf32>, whose gradient needs a cotangent}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----
// CASE: integer_argument
// RUN: kiln-differentiate{wrt=0}
// expected-error @+1 {{has argument 0 of tensor<4xi64>, not of floats}}
func.func @f(%x: tensor<4xi64>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}

// -----
// CASE: no_such_result
// RUN: kiln-differentiate{results=2}
// expected-error @+1 {{has no result 2}}
func.func @f(%y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}

// -----
// CASE: stop_gradient
// NO-RUN: it gets results
// CHECK: kiln.stop_gradient
// CHECK-COUNT-1: kiln.mul
// CHECK: return
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  %0 = kiln.stop_gradient %x : tensor<f32>
  %1 = kiln.mul %0, %x : tensor<f32>
  return %1 : tensor<f32>
}

// -----
// CASE: checkpoint
// NO-RUN: it gets results
// CHECK: kiln.checkpoint
// CHECK: kiln.optimization_barrier %arg0
// CHECK-NEXT: kiln.sin
// CHECK: kiln.cos
// CHECK: return
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  %0 = kiln.checkpoint -> tensor<f32> {
    %1 = kiln.sin %x : tensor<f32>
    %2 = kiln.mul %1, %1 : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<f32>
}
