// RUN: kiln-partition{cotangents=1}

// CASE: saves_the_input_of_the_derivative
// NO-RUN: one function becomes two; tests/gradients/partition.rs compares these with it
// CHECK: func.func @f_forward(%{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<8x4xf32>)
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>)
// CHECK-NOT: kiln.linear
func.func @f(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.exp %x : tensor<8x4xf32>
  %1 = kiln.linear %0, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %2 = kiln.sin %1 : tensor<8x8xf32>
  %3 = kiln.cos %1 : tensor<8x8xf32>
  %4 = kiln.mul %g, %3 : tensor<8x8xf32>
  return %2, %4 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// CASE: without_a_budget_products_are_recomputed
// NO-RUN: one function becomes two
// RUN: kiln-partition{cotangents=1 budget=0}
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<8x8xf32>)
// CHECK-SAME: bytes = 0 : i64
// CHECK: kiln.linear
func.func @f(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.exp %x : tensor<8x4xf32>
  %1 = kiln.linear %0, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %2 = kiln.sin %1 : tensor<8x8xf32>
  %3 = kiln.cos %1 : tensor<8x8xf32>
  %4 = kiln.mul %g, %3 : tensor<8x8xf32>
  return %2, %4 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// CASE: half_a_budget_recomputes_the_cheaper_product
// NO-RUN: one function becomes two
// RUN: kiln-partition{cotangents=1 budget=0.5}
// CHECK: func.func @f_backward
// CHECK: kiln.matmul {{.*}} : tensor<8x2xf32>, tensor<2x8xf32>
// CHECK-NOT: kiln.matmul {{.*}} : tensor<8x64xf32>
func.func @f(%x: tensor<8x2xf32>, %y: tensor<2x8xf32>, %z: tensor<8x64xf32>, %w: tensor<64x8xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.matmul %x, %y : tensor<8x2xf32>, tensor<2x8xf32>
  %1 = kiln.matmul %z, %w : tensor<8x64xf32>, tensor<64x8xf32>
  %2 = kiln.sin %0 : tensor<8x8xf32>
  %3 = kiln.sin %1 : tensor<8x8xf32>
  %4 = kiln.mul %2, %3 : tensor<8x8xf32>
  %5 = kiln.add %0, %1 : tensor<8x8xf32>
  %6 = kiln.add %4, %5 : tensor<8x8xf32>
  %7 = kiln.cos %0 : tensor<8x8xf32>
  %8 = kiln.cos %1 : tensor<8x8xf32>
  %9 = kiln.mul %g, %7 : tensor<8x8xf32>
  %10 = kiln.mul %g, %8 : tensor<8x8xf32>
  return %6, %9, %10 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// CASE: the_smaller_end_of_a_chain_is_saved
// NO-RUN: one function becomes two
// CHECK: func.func @f_backward(%{{.*}}: tensor<8xf32>, %{{.*}}: tensor<8x64xf32>)
// CHECK-NEXT: kiln.broadcast_in_dim
func.func @f(%x: tensor<8x64xf32>, %g: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
  %0 = kiln.reduce sum %x dims = [1] : tensor<8x64xf32>
  %1 = kiln.exp %0 : tensor<8xf32>
  %2 = kiln.broadcast_in_dim %1 dims = [0] sizes = [8, 64] : tensor<8xf32>
  %3 = kiln.mul %g, %2 : tensor<8x64xf32>
  return %2, %3 : tensor<8x64xf32>, tensor<8x64xf32>
}

// -----
// CASE: random_numbers_are_not_drawn_again
// NO-RUN: one function becomes two
// RUN: kiln-partition{cotangents=1 budget=0}
// CHECK: func.func @f_backward
// CHECK-NOT: kiln.random_uniform
func.func @f(%x: tensor<8xf32>, %k: tensor<2xi64>, %g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = kiln.random_uniform %k sizes = [8] : f32
  %1 = kiln.mul %x, %0 : tensor<8xf32>
  %2 = kiln.mul %g, %0 : tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}

// -----
// CASE: symbolic_sizes_are_stated_in_both
// NO-RUN: one function becomes two
// CHECK: func.func @f_forward
// CHECK: kiln.bind_shape %arg0, [%{{.*}}, 4]
// CHECK: func.func @f_backward
// CHECK: kiln.sym @s
// CHECK: kiln.bind_shape
func.func @f(%x: tensor<?x4xf32>, %w: tensor<6x4xf32>, %g: tensor<?x6xf32>) -> (tensor<?x6xf32>, tensor<?x6xf32>) {
  %s = kiln.sym @s {min = 1 : i64}
  kiln.bind_shape %x, [%s, 4] : tensor<?x4xf32>
  kiln.bind_shape %g, [%s, 6] : tensor<?x6xf32>
  %0 = kiln.linear %x, %w : tensor<?x4xf32>, tensor<6x4xf32>
  %1 = kiln.sin %0 : tensor<?x6xf32>
  %2 = kiln.cos %0 : tensor<?x6xf32>
  %3 = kiln.mul %g, %2 : tensor<?x6xf32>
  return %1, %3 : tensor<?x6xf32>, tensor<?x6xf32>
}

// -----
// A derivative has put the barrier in front of what it recomputes.
// CASE: checkpoints_are_recomputed_in_the_backward_function
// NO-RUN: one function becomes two
// CHECK: func.func @f_forward
// CHECK-NOT: kiln.optimization_barrier
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<8x8xf32>)
// CHECK: kiln.optimization_barrier
// CHECK: kiln.linear
func.func @f(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.linear %x, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %1 = kiln.sin %0 : tensor<8x8xf32>
  %2 = kiln.optimization_barrier %x : tensor<8x4xf32>
  %3 = kiln.linear %2, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %4 = kiln.cos %3 : tensor<8x8xf32>
  %5 = kiln.mul %g, %4 : tensor<8x8xf32>
  return %1, %5 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// CASE: sizes_of_cotangents_are_the_backward_function_s
// NO-RUN: one function becomes two
// CHECK: func.func @f_backward
// CHECK: kiln.dim
// CHECK: kiln.random_uniform
func.func @f(%x: tensor<4xf32>, %k: tensor<2xi64>, %g: tensor<?xf32>) -> (tensor<4xf32>, tensor<?xf32>) {
  %0 = kiln.sin %x : tensor<4xf32>
  %d = kiln.dim %g, 0 : tensor<?xf32>
  %1 = kiln.random_uniform %k sizes = [%d] : f32
  return %0, %1 : tensor<4xf32>, tensor<?xf32>
}

// -----
// CASE: effects_of_cotangents_are_the_backward_function_s
// NO-RUN: one function becomes two
// CHECK: func.func @f_forward
// CHECK-NOT: kiln.require
// CHECK: func.func @f_backward
// CHECK: kiln.custom_call effect
// CHECK: kiln.bind_shape %{{.*}}, [%{{.*}}] : tensor<?xf32>
// CHECK: kiln.require
func.func @f(%x: tensor<?xf32>, %g: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %s = kiln.sym @s {min = 1 : i64}
  kiln.bind_shape %x, [%s] : tensor<?xf32>
  kiln.bind_shape %g, [%s] : tensor<?xf32>
  %0 = kiln.sin %x : tensor<?xf32>
  %1 = kiln.cos %x : tensor<?xf32>
  %2 = kiln.mul %g, %1 : tensor<?xf32>
  %3 = kiln.custom_call effect "test.identity"(%2) : (tensor<?xf32>) -> tensor<?xf32>
  kiln.bind_shape %3, [%s] : tensor<?xf32>
  %d = kiln.dim %3, 0 : tensor<?xf32>
  kiln.require le %d, %s "test: no more than there are"
  return %0, %2 : tensor<?xf32>, tensor<?xf32>
}

// -----
// CASE: layouts_of_arguments_and_results_stay
// NO-RUN: one function becomes two
// CHECK: func.func @f_forward(%{{.*}}: tensor<4x3xf32> {kiln.layout = {{.*}}[1, 4]{{.*}}}) -> (tensor<4x3xf32> {kiln.layout = {{.*}}[1, 6]
// CHECK: func.func @f_backward(%{{.*}}: tensor<4x3xf32> {kiln.layout = {{.*}}[1, 4]{{.*}}}, %{{.*}}: tensor<4x3xf32> {kiln.layout = {{.*}}[1, 5]{{.*}}}) -> (tensor<4x3xf32> {kiln.layout = {{.*}}[1, 7]
func.func @f(%x: tensor<4x3xf32> {kiln.layout = #kiln.layout<[1, 4], offset = 0, alignment = 0>}, %g: tensor<4x3xf32> {kiln.layout = #kiln.layout<[1, 5], offset = 0, alignment = 0>}) -> (tensor<4x3xf32> {kiln.layout = #kiln.layout<[1, 6], offset = 0, alignment = 0>}, tensor<4x3xf32> {kiln.layout = #kiln.layout<[1, 7], offset = 0, alignment = 0>}) {
  %0 = kiln.sin %x : tensor<4x3xf32>
  %1 = kiln.cos %x : tensor<4x3xf32>
  %2 = kiln.mul %g, %1 : tensor<4x3xf32>
  return %0, %2 : tensor<4x3xf32>, tensor<4x3xf32>
}

// -----
// CASE: statistics_of_what_is_saved_are_saved_too
// NO-RUN: it has several functions
// CHECK: func.func @f_forward
// CHECK-DAG: kiln.mean
// CHECK-DAG: kiln.var
// CHECK: func.func @f_backward
// CHECK-NOT: kiln.mean
// CHECK-NOT: kiln.var
func.func @f(%x: tensor<8x64xf32>, %g: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
  %0 = kiln.mean %x dims = [1] keep_dims : tensor<8x64xf32>
  %1 = kiln.var %x dims = [1] keep_dims {correction = 0.0 : f64} : tensor<8x64xf32>
  %2 = kiln.broadcast_in_dim %0 dims = [0, 1] sizes = [8, 64] : tensor<8x1xf32>
  %3 = kiln.broadcast_in_dim %1 dims = [0, 1] sizes = [8, 64] : tensor<8x1xf32>
  %4 = kiln.sub %x, %2 : tensor<8x64xf32>
  %5 = kiln.mul %4, %3 : tensor<8x64xf32>
  %6 = kiln.mul %g, %5 : tensor<8x64xf32>
  return %5, %6 : tensor<8x64xf32>, tensor<8x64xf32>
}

// -----
// CASE: heavy_ops_without_operands_are_saved
// NO-RUN: one function becomes two
// RUN: kiln-partition{cotangents=1 heavy=iota}
// CHECK: func.func @f_backward
// CHECK-NOT: kiln.iota
func.func @f(%x: tensor<8xf32>, %g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = kiln.iota [8] axis = 0 : f32
  %1 = kiln.mul %x, %0 : tensor<8xf32>
  %2 = kiln.mul %g, %0 : tensor<8xf32>
  return %1, %2 : tensor<8xf32>, tensor<8xf32>
}

// -----
// CASE: no_gradient
// expected-error @+1 {{has 1 results, of which 1 are forward: no gradient}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----
// CASE: too_many_cotangents
// RUN: kiln-partition{cotangents=2}
// expected-error @+1 {{has 1 arguments, not 2 cotangents}}
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}

// -----
// CASE: a_result_of_a_cotangent
func.func @f(%x: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error @+1 {{depends on a cotangent, but a forward result on it}}
  %0 = kiln.mul %x, %g : tensor<4xf32>
  return %0, %x : tensor<4xf32>, tensor<4xf32>
}

// -----
// The terms of a sum have 16 bits, but the first layer's derivative reads last what the last one's
// needs first: it would be alive meanwhile.
// CASE: a_value_that_lasts_is_saved
// NO-RUN: one function becomes two
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x64xf32>, %{{.*}}: tensor<64x64xf32>, %{{.*}}: tensor<8x64xf32>, %{{.*}}: tensor<8x64xbf16>, %{{.*}}: tensor<8x64xbf16>, %{{.*}}: tensor<8x64xf32>)
func.func @f(%x: tensor<8x64xf32>, %w: tensor<64x64xbf16>, %v: tensor<64x64xf32>, %g: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
  %s0 = kiln.sin %x : tensor<8x64xf32>
  %n0 = kiln.convert %s0 : tensor<8x64xf32> to bf16
  %l0 = kiln.linear %n0, %w : tensor<8x64xbf16>, tensor<64x64xbf16>
  %f0 = kiln.convert %l0 : tensor<8x64xbf16> to f32
  %x1 = kiln.add %x, %f0 : tensor<8x64xf32>
  %s1 = kiln.sin %x1 : tensor<8x64xf32>
  %n1 = kiln.convert %s1 : tensor<8x64xf32> to bf16
  %l1 = kiln.linear %n1, %w : tensor<8x64xbf16>, tensor<64x64xbf16>
  %f1 = kiln.convert %l1 : tensor<8x64xbf16> to f32
  %x2 = kiln.add %x1, %f1 : tensor<8x64xf32>
  %s2 = kiln.sin %x2 : tensor<8x64xf32>
  %n2 = kiln.convert %s2 : tensor<8x64xf32> to bf16
  %l2 = kiln.linear %n2, %w : tensor<8x64xbf16>, tensor<64x64xbf16>
  %f2 = kiln.convert %l2 : tensor<8x64xbf16> to f32
  %x3 = kiln.add %x2, %f2 : tensor<8x64xf32>
  %s3 = kiln.sin %x3 : tensor<8x64xf32>
  %n3 = kiln.convert %s3 : tensor<8x64xf32> to bf16
  %l3 = kiln.linear %n3, %w : tensor<8x64xbf16>, tensor<64x64xbf16>
  %f3 = kiln.convert %l3 : tensor<8x64xbf16> to f32
  %x4 = kiln.add %x3, %f3 : tensor<8x64xf32>
  %p3 = kiln.matmul %g, %v : tensor<8x64xf32>, tensor<64x64xf32>
  %c3 = kiln.cos %x3 : tensor<8x64xf32>
  %r3 = kiln.mul %p3, %c3 : tensor<8x64xf32>
  %d3 = kiln.add %g, %r3 : tensor<8x64xf32>
  %p2 = kiln.matmul %d3, %v : tensor<8x64xf32>, tensor<64x64xf32>
  %c2 = kiln.cos %x2 : tensor<8x64xf32>
  %r2 = kiln.mul %p2, %c2 : tensor<8x64xf32>
  %d2 = kiln.add %d3, %r2 : tensor<8x64xf32>
  %p1 = kiln.matmul %d2, %v : tensor<8x64xf32>, tensor<64x64xf32>
  %c1 = kiln.cos %x1 : tensor<8x64xf32>
  %r1 = kiln.mul %p1, %c1 : tensor<8x64xf32>
  %d1 = kiln.add %d2, %r1 : tensor<8x64xf32>
  %p0 = kiln.matmul %d1, %v : tensor<8x64xf32>, tensor<64x64xf32>
  %c0 = kiln.cos %x : tensor<8x64xf32>
  %r0 = kiln.mul %p0, %c0 : tensor<8x64xf32>
  %d0 = kiln.add %d1, %r0 : tensor<8x64xf32>
  return %x4, %d0 : tensor<8x64xf32>, tensor<8x64xf32>
}

// -----
// CASE: images_are_saved_with_channels_last
// NO-RUN: one function becomes two
// RUN: kiln-partition{cotangents=1 channels-last=true}
// CHECK: func.func @f_backward(%{{.*}}: tensor<2x5x5x8xf32>, %{{.*}}: tensor<2x8x5x5xf32>)
// CHECK-NEXT: kiln.transpose %{{.*}} permutation = [0, 3, 1, 2]
func.func @f(%x: tensor<2x3x5x5xf32>, %w: tensor<8x3x1x1xf32>, %g: tensor<2x8x5x5xf32>) -> (tensor<2x8x5x5xf32>, tensor<2x8x5x5xf32>) {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x5x5xf32>, tensor<8x3x1x1xf32>
  %1 = kiln.sin %0 : tensor<2x8x5x5xf32>
  %2 = kiln.cos %0 : tensor<2x8x5x5xf32>
  %3 = kiln.mul %g, %2 : tensor<2x8x5x5xf32>
  return %1, %3 : tensor<2x8x5x5xf32>, tensor<2x8x5x5xf32>
}

// -----
// The second product's weight has a gradient of %2. To compute it again %0 and %1 would be read, and
// %2 stored: it is saved beside them, and %4 is not, which is computed from %3 alone.
// CASE: what_is_stored_and_computed_from_several_tensors_is_saved
// NO-RUN: one function becomes two
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>)
// CHECK-NOT: kiln.add
// CHECK: kiln.exp
func.func @f(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %w: tensor<8x4xf32>, %v: tensor<8x8xf32>, %g: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = kiln.linear %x, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %1 = kiln.linear %y, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %2 = kiln.add %0, %1 : tensor<8x8xf32>
  %3 = kiln.linear %2, %v : tensor<8x8xf32>, tensor<8x8xf32>
  %4 = kiln.exp %3 : tensor<8x8xf32>
  %5 = kiln.linear %4, %v : tensor<8x8xf32>, tensor<8x8xf32>
  %6 = kiln.matmul %g, %2 : tensor<8x8xf32>, tensor<8x8xf32>
  %7 = kiln.matmul %g, %4 : tensor<8x8xf32>, tensor<8x8xf32>
  %8 = kiln.mul %7, %3 : tensor<8x8xf32>
  return %5, %6, %8 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
// CASE: a_transposed_value_is_saved_as_it_is
// NO-RUN: one function becomes two
// CHECK: func.func @f_backward(%{{.*}}: tensor<8x4xf32>, %{{.*}}: tensor<4x8xf32>)
// CHECK-NEXT: kiln.transpose
func.func @f(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>, %g: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = kiln.linear %x, %w : tensor<8x4xf32>, tensor<4x4xf32>
  %1 = kiln.transpose %0 permutation = [1, 0] : tensor<8x4xf32>
  %2 = kiln.sin %1 : tensor<4x8xf32>
  %3 = kiln.cos %1 : tensor<4x8xf32>
  %4 = kiln.mul %g, %3 : tensor<4x8xf32>
  %5 = kiln.mul %4, %2 : tensor<4x8xf32>
  return %2, %5 : tensor<4x8xf32>, tensor<4x8xf32>
}
