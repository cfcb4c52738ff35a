// Creation, movement and indexed movement.

// CASE: creation
func.func @f(%x: tensor<?xf32>) -> (tensor<?x3xf32>, tensor<ui8>, tensor<2xi1>, tensor<?x?xi64>, tensor<3xbf16>, tensor<2x2xi16>, tensor<f8E5M2>, tensor<2xi1>, tensor<0xf16>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s] : tensor<?xf32>
  %two = arith.constant 2 : index
  %d = kiln.sym_expr mul %s, %two
  %0 = kiln.splat [%d, 3], 1.5 : f32
  %1 = kiln.splat [], 7 : ui8
  %2 = kiln.splat [2], true
  %3 = kiln.iota [%s, %d] axis = 1 : i64
  %4 = kiln.iota [3] axis = 0 : bf16
  %5 = kiln.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi16>
  %6 = kiln.constant dense<2.5> : tensor<f8E5M2>
  %7 = kiln.constant dense<[true, false]> : tensor<2xi1>
  %8 = kiln.splat [0], 1.0 : f16
  return %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<?x3xf32>, tensor<ui8>, tensor<2xi1>, tensor<?x?xi64>, tensor<3xbf16>, tensor<2x2xi16>, tensor<f8E5M2>, tensor<2xi1>, tensor<0xf16>
}

// -----

// CASE: broadcast, reshape, transpose, reverse
func.func @f(%x: tensor<?x?x3xf32>, %y: tensor<1x?xi32>) -> (tensor<2x?x?x3xf32>, tensor<?x2x?xi32>, tensor<?x3xf32>, tensor<?x1x?xf32>, tensor<4x5x3xf32>, tensor<3x?x?xf32>, tensor<?x?x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  kiln.bind_shape %y, [1, %t] : tensor<1x?xi32>
  %st = kiln.sym_expr mul %s, %t
  %three = arith.constant 3 : index
  %t3 = kiln.sym_expr mul %t, %three
  %0 = kiln.broadcast_in_dim %x dims = [1, 2, 3] sizes = [2, %s, %t, 3] : tensor<?x?x3xf32>
  %1 = kiln.broadcast_in_dim %y dims = [0, 2] sizes = [%s, 2, %t] : tensor<1x?xi32>
  %2 = kiln.reshape %x sizes = [%st, 3] : tensor<?x?x3xf32>
  %3 = kiln.reshape %x sizes = [%s, 1, %t3] : tensor<?x?x3xf32>
  %4 = kiln.reshape %x sizes = [4, 5, 3] : tensor<?x?x3xf32>
  %5 = kiln.transpose %x permutation = [2, 0, 1] : tensor<?x?x3xf32>
  %6 = kiln.reverse %x dims = [0, 2] : tensor<?x?x3xf32>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<2x?x?x3xf32>, tensor<?x2x?xi32>, tensor<?x3xf32>, tensor<?x1x?xf32>, tensor<4x5x3xf32>, tensor<3x?x?xf32>, tensor<?x?x3xf32>
}

// -----

// CASE: slice, pad, concat
func.func @f(%x: tensor<?x?x3xf32>, %v: tensor<f32>) -> (tensor<?x2x1xf32>, tensor<?x?x0xf32>, tensor<?x?x2xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  %one = arith.constant 1 : index
  %minus = arith.constant -1 : index
  %less = kiln.sym_expr add %s, %minus
  %0 = kiln.slice %x offsets = [%one, 0, 1] sizes = [%less, 2, 1] strides = [1, 2, 1] : tensor<?x?x3xf32>
  %1 = kiln.slice %x offsets = [0, 0, 0] sizes = [%s, %t, 0] strides = [1, 1, 5] : tensor<?x?x3xf32>
  %2 = kiln.pad %x, %v low = [%one, 0, -1] high = [2, %s, 0] : tensor<?x?x3xf32>, tensor<f32>
  %3 = kiln.concat %x, %x, %x axis = 1 : tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>
  %4 = kiln.concat %x axis = 0 : tensor<?x?x3xf32>
  return %0, %1, %2, %3, %4 : tensor<?x2x1xf32>, tensor<?x?x0xf32>, tensor<?x?x2xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>
}

// -----

// CASE: insert_slice
func.func @f(%x: tensor<?x2x3xf32>, %y: tensor<?x1x3xf32>) -> tensor<?x4x3xf32> {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 2, 3] : tensor<?x2x3xf32>
  kiln.bind_shape %y, [%s, 1, 3] : tensor<?x1x3xf32>
  %one = arith.constant 1 : index
  %0 = kiln.insert_slice %x offsets = [0, %one, 0] sizes = [%s, 4, 3] : tensor<?x2x3xf32>
  %1 = kiln.insert_slice %y into %0 offsets = [0, 3, 0] sizes = [%s, 4, 3] : tensor<?x1x3xf32> into tensor<?x4x3xf32>
  return %1 : tensor<?x4x3xf32>
}

// -----

// CASE: insert_slice at a start
func.func @f(%x: tensor<2x1xf32>, %state: tensor<2x4xf32> {kiln.state = {result = 0 : i64, source = ""}}, %i: tensor<i64>) -> tensor<2x4xf32> {
  %0 = kiln.insert_slice %x into %state at %i : tensor<i64> axis = 1 offsets = [0, 1] sizes = [2, 4] : tensor<2x1xf32> into tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// CASE: gather and scatter
func.func @f(%x: tensor<?x?x3xf32>, %i: tensor<?x2xi64>, %j: tensor<?x2xi64>, %u: tensor<?x2x?xf32>, %k: tensor<i32>) -> (tensor<?x2x?x3xf32>, tensor<?x2x?xf32>, tensor<?x?xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  %n = kiln.sym @s2
  kiln.bind_shape %i, [%n, 2] : tensor<?x2xi64>
  kiln.bind_shape %j, [%n, 2] : tensor<?x2xi64>
  kiln.bind_shape %u, [%n, 2, %t] : tensor<?x2x?xf32>
  %0 = kiln.gather %x[%i] dims = [1] : tensor<?x?x3xf32>[tensor<?x2xi64>]
  %1 = kiln.gather %x[%i, %j] dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>]
  %2 = kiln.gather %x[%k] dims = [2] : tensor<?x?x3xf32>[tensor<i32>]
  %assign = kiln.scatter assign %x[%i, %j], %u dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>], tensor<?x2x?xf32>
  %add = kiln.scatter add %x[%i, %j], %u dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>], tensor<?x2x?xf32>
  %mul = kiln.scatter mul %x[%i, %j], %u dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>], tensor<?x2x?xf32>
  %max = kiln.scatter max %x[%i, %j], %u dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>], tensor<?x2x?xf32>
  %min = kiln.scatter min %x[%i, %j], %u dims = [0, 2] : tensor<?x?x3xf32>[tensor<?x2xi64>, tensor<?x2xi64>], tensor<?x2x?xf32>
  return %0, %1, %2, %assign, %add, %mul, %max, %min : tensor<?x2x?x3xf32>, tensor<?x2x?xf32>, tensor<?x?xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>
}

// -----

// CASE: dynamic_slice and dynamic_update_slice
func.func @f(%x: tensor<?x?x3xf32>, %i: tensor<i64>, %u: tensor<2x?x1xf32>) -> (tensor<2x?x1xf32>, tensor<?x?x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  kiln.bind_shape %u, [2, %t, 1] : tensor<2x?x1xf32>
  %0 = kiln.dynamic_slice %x[%i, %i, %i : tensor<i64>, tensor<i64>, tensor<i64>] sizes = [2, %t, 1] : tensor<?x?x3xf32>
  %1 = kiln.dynamic_update_slice %x[%i, %i, %i : tensor<i64>, tensor<i64>, tensor<i64>], %u : tensor<?x?x3xf32>, tensor<2x?x1xf32>
  return %0, %1 : tensor<2x?x1xf32>, tensor<?x?x3xf32>
}

// -----

// CASE: dynamic_slice of a scalar
func.func @f(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %0 = kiln.dynamic_slice %x[] sizes = [] : tensor<f32>
  %1 = kiln.dynamic_update_slice %0[], %x : tensor<f32>, tensor<f32>
  return %0, %1 : tensor<f32>, tensor<f32>
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{has size -1, which is negative}}
  %0 = kiln.splat [-1], 1.0 : f32
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has axis 1 out of range for rank 1}}
  %0 = kiln.iota [4] axis = 1 : i64
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.iota [4] axis = 0 : i1
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has element type index, which is none of}}
  %0 = kiln.splat [4], 1 : index
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{repeats dimension 0 in 'dims'}}
  %0 = kiln.broadcast_in_dim %x dims = [0, 0] sizes = [4, 3] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has 1 entries in 'dims' where 2 are needed}}
  %0 = kiln.broadcast_in_dim %x dims = [0] sizes = [4, 3] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has dims [1, 0] that do not ascend}}
  %0 = kiln.broadcast_in_dim %x dims = [1, 0] sizes = [3, 4] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{broadcasts size 3 of dimension 1 to size 6}}
  %0 = kiln.broadcast_in_dim %x dims = [0, 1] sizes = [4, 6] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has axis 2 out of range for rank 2}}
  %0 = kiln.broadcast_in_dim %x dims = [0, 2] sizes = [4, 3] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{reshapes 12 elements to 15}}
  %0 = kiln.reshape %x sizes = [5, 3] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has size -4, which is negative}}
  %0 = kiln.reshape %x sizes = [-4, -3] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has 1 entries in 'permutation' where 2 are needed}}
  %0 = kiln.transpose %x permutation = [0] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{repeats dimension 1 in 'permutation'}}
  %0 = kiln.transpose %x permutation = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has 1 offsets, 2 sizes and 2 strides for rank 2}}
  %0 = kiln.slice %x offsets = [0] sizes = [4, 3] strides = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has stride 0, which is not positive}}
  %0 = kiln.slice %x offsets = [0, 0] sizes = [4, 3] strides = [1, 0] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has offset -1, which is negative}}
  %0 = kiln.slice %x offsets = [-1, 0] sizes = [4, 3] strides = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{reads element 4 of dimension 0 of size 4}}
  %0 = kiln.slice %x offsets = [1, 0] sizes = [2, 3] strides = [3, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %v: tensor<f32>) {
  // expected-error @+1 {{has 1 low and 2 high counts for rank 2}}
  %0 = kiln.pad %x, %v low = [1] high = [0, 0] : tensor<4x3xf32>, tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %v: tensor<f64>) {
  // expected-error @+1 {{needs a 0-d padding value of the input's dtype}}
  %0 = kiln.pad %x, %v low = [1, 0] high = [0, 0] : tensor<4x3xf32>, tensor<f64>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %v: tensor<f32>) {
  // expected-error @+1 {{crops more than dimension 0 of size 4}}
  %0 = kiln.pad %x, %v low = [-3, 0] high = [-2, 0] : tensor<4x3xf32>, tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+2 {{has no inputs}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = "kiln.concat"() {axis = 0 : i64} : () -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x3xf64>) {
  // expected-error @+1 {{has inputs of f32 and f64}}
  %0 = kiln.concat %x, %y axis = 0 : tensor<4x3xf32>, tensor<4x3xf64>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{has inputs of rank 2 and rank 1}}
  %0 = kiln.concat %x, %y axis = 0 : tensor<4x3xf32>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x2xf32>) {
  // expected-error @+1 {{has sizes 3 and 2 in dimension 1 of the inputs}}
  %0 = kiln.concat %x, %y axis = 0 : tensor<4x3xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has axis -1 out of range for rank 2}}
  %0 = kiln.reverse %x dims = [-1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xf32>) {
  // expected-error @+1 {{needs integer indices, has f32}}
  %0 = kiln.gather %x[%i] dims = [0] : tensor<4x3xf32>[tensor<2xf32>]
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{has 1 index tensors for 2 dims}}
  %0 = kiln.gather %x[%i] dims = [0, 1] : tensor<4x3xf32>[tensor<2xi64>]
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %j: tensor<3xi64>) {
  // expected-error @+1 {{has sizes 2 and 3 in dimension 0 of the index tensors}}
  %0 = kiln.gather %x[%i, %j] dims = [0, 1] : tensor<4x3xf32>[tensor<2xi64>, tensor<3xi64>]
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %u: tensor<2x3xf64>) {
  // expected-error @+1 {{scatters f64 into f32}}
  %0 = kiln.scatter add %x[%i], %u dims = [0] : tensor<4x3xf32>[tensor<2xi64>], tensor<2x3xf64>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %u: tensor<2x4xf32>) {
  // expected-error @+1 {{has sizes 3 and 4 in dimension 1 of indices with input, and updates}}
  %0 = kiln.scatter add %x[%i], %u dims = [0] : tensor<4x3xf32>[tensor<2xi64>], tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{has 1 starts for rank 2}}
  %0 = kiln.dynamic_slice %x[%i : tensor<i64>] sizes = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<f32>) {
  // expected-error @+1 {{needs integer indices, has f32}}
  %0 = kiln.dynamic_slice %x[%i, %i : tensor<f32>, tensor<f32>] sizes = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<1xi64>) {
  // expected-error @+1 {{needs 0-d starts, has rank 1}}
  %0 = kiln.dynamic_slice %x[%i, %i : tensor<1xi64>, tensor<1xi64>] sizes = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{has 1 sizes for rank 2}}
  %0 = kiln.dynamic_slice %x[%i, %i : tensor<i64>, tensor<i64>] sizes = [1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{slices 5 elements of dimension 0 of size 4}}
  %0 = kiln.dynamic_slice %x[%i, %i : tensor<i64>, tensor<i64>] sizes = [5, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>, %u: tensor<1x1xf64>) {
  // expected-error @+1 {{writes f64 into f32}}
  %0 = kiln.dynamic_update_slice %x[%i, %i : tensor<i64>, tensor<i64>], %u : tensor<4x3xf32>, tensor<1x1xf64>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>, %u: tensor<1xf32>) {
  // expected-error @+1 {{writes rank 1 into rank 2}}
  %0 = kiln.dynamic_update_slice %x[%i, %i : tensor<i64>, tensor<i64>], %u : tensor<4x3xf32>, tensor<1xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<i64>, %u: tensor<1x5xf32>) {
  // expected-error @+1 {{writes 5 elements into dimension 1 of size 3}}
  %0 = kiln.dynamic_update_slice %x[%i, %i : tensor<i64>, tensor<i64>], %u : tensor<4x3xf32>, tensor<1x5xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+2 {{has 0 SSA values for 1 dynamic entries of 'sizes'}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = "kiln.splat"() {value = 1.0 : f32, sizes = array<i64: -9223372036854775808>} : () -> tensor<?xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{overwrites an argument}}
  %0 = kiln.insert_slice %x into %y offsets = [0] sizes = [4] : tensor<2xf32> into tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>, %y: tensor<4xf32>) {
  %0 = kiln.neg %y : tensor<4xf32>
  // expected-error @+1 {{overwrites a value that no kiln.insert_slice defines}}
  %1 = kiln.insert_slice %x into %0 offsets = [0] sizes = [4] : tensor<2xf32> into tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>) -> tensor<4xf32> {
  %0 = kiln.insert_slice %x offsets = [0] sizes = [4] : tensor<2xf32>
  // expected-error @+1 {{overwrites a tensor that has other uses}}
  %1 = kiln.insert_slice %x into %0 offsets = [2] sizes = [4] : tensor<2xf32> into tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<2xf32>) -> tensor<4xf32> {
  %0 = kiln.insert_slice %x offsets = [0] sizes = [4] : tensor<2xf32>
  // expected-error @+1 {{overlaps an earlier slice}}
  %1 = kiln.insert_slice %x into %0 offsets = [1] sizes = [4] : tensor<2xf32> into tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<2xf32>, %i: tensor<1xi64>) {
  // expected-error @+1 {{starts at what is no 0-d integer}}
  %0 = kiln.insert_slice %x at %i : tensor<1xi64> axis = 0 offsets = [0] sizes = [4] : tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{moves along dimension 1 of rank 1}}
  %0 = kiln.insert_slice %x at %i : tensor<i64> axis = 1 offsets = [0] sizes = [4] : tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{inserts 2 elements at 3 of dimension 0 of size 4}}
  %0 = kiln.insert_slice %x offsets = [3] sizes = [4] : tensor<2xf32>
  return
}
