// RUN: kiln-require-indices

// Two gathers of one size share a guard, an index behind a reshape and a widening included; another
// size has its own.
// CASE: gathers_by_arguments
// CHECK: kiln.require_index %arg2 below %c5 "kiln.gather of v0
// CHECK: kiln.require_index %arg2 below %c4 "kiln.gather of v4
func.func @f(%x: tensor<5x4xf32>, %y: tensor<4xf32>, %i: tensor<2xi32>) -> (tensor<2x4xf32>, tensor<1x2x4xf32>, tensor<2xf32>) {
  %0 = kiln.gather %x[%i] dims = [0] : tensor<5x4xf32>[tensor<2xi32>]
  %1 = kiln.convert %i : tensor<2xi32> to i64
  %2 = kiln.reshape %1 sizes = [1, 2] : tensor<2xi64>
  %3 = kiln.gather %x[%2] dims = [0] : tensor<5x4xf32>[tensor<1x2xi64>]
  %4 = kiln.gather %y[%i] dims = [0] : tensor<4xf32>[tensor<2xi32>]
  return %0, %3, %4 : tensor<2x4xf32>, tensor<1x2x4xf32>, tensor<2xf32>
}

// -----
// Negative indices that the program moves into range may be given.
// CASE: indices_from_the_end
// SIZES: n = 3
// CHECK: kiln.require_index %arg1 below %0 wraps "kiln.gather
func.func @f(%x: tensor<?xf32>, %i: tensor<2xi64>) -> tensor<2xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %zero = kiln.splat [2], 0 : i64
  %one = arith.constant 1 : index
  %more = kiln.sym_expr add %n, %one
  %all = kiln.iota [%more] axis = 0 : i64
  %last = kiln.slice %all offsets = [%n] sizes = [1] strides = [1] : tensor<?xi64>
  %scalar = kiln.reshape %last sizes = [] : tensor<1xi64>
  %size = kiln.broadcast_in_dim %scalar dims = [] sizes = [2] : tensor<i64>
  %negative = kiln.compare lt %i, %zero : tensor<2xi64>
  %moved = kiln.add %i, %size : tensor<2xi64>
  %index = kiln.select %negative, %moved, %i : tensor<2xi1>, tensor<2xi64>
  %0 = kiln.gather %x[%index] dims = [0] : tensor<?xf32>[tensor<2xi64>]
  return %0 : tensor<2xf32>
}

// -----
// The size of an argument that no symbol names is asked for.
// CASE: an_argument_without_symbols
// CHECK: kiln.dim %arg0, 0
// CHECK: kiln.require_index %arg1 below
func.func @f(%x: tensor<?x4xf32>, %i: tensor<2xi64>) -> tensor<2x4xf32> {
  %0 = kiln.gather %x[%i] dims = [0] : tensor<?x4xf32>[tensor<2xi64>]
  return %0 : tensor<2x4xf32>
}

// -----
// An index that another number is added to, one that is narrowed, and one that may be broadcast to
// no elements state nothing; the scatter's own index does.
// CASE: computed_indices
// SIZES: n = 2
// CHECK: kiln.require_index %arg1 below %c5 "kiln.scatter
// CHECK-NOT: kiln.require_index
func.func @f(%x: tensor<5xf32>, %i: tensor<2xi64>, %j: tensor<2xi64>, %k: tensor<i64>, %y: tensor<?xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<?xf32>, tensor<5xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %y, [%n] : tensor<?xf32>
  %two = kiln.splat [2], 2 : i64
  %more = kiln.add %j, %two : tensor<2xi64>
  %narrow = kiln.convert %j : tensor<2xi64> to i8
  %all = kiln.broadcast_in_dim %k dims = [] sizes = [%n] : tensor<i64>
  %0 = kiln.gather %x[%more] dims = [0] : tensor<5xf32>[tensor<2xi64>]
  %1 = kiln.gather %x[%narrow] dims = [0] : tensor<5xf32>[tensor<2xi8>]
  %2 = kiln.gather %x[%all] dims = [0] : tensor<5xf32>[tensor<?xi64>]
  %3 = kiln.scatter add %x[%i], %1 dims = [0] : tensor<5xf32>[tensor<2xi64>], tensor<2xf32>
  return %0, %1, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<?xf32>, tensor<5xf32>
}
