// Differentiated by all arguments of floats, and compared with central differences.
// What a case may say:
// - RANGE: the range of random arguments, else -2 2;
// - RESULTS: the results that are differentiated, else all;
// - KINKS: why its gradient is not differentiated again.
// CASE: unary
func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = kiln.neg %x : tensor<4xf64>
  %1 = kiln.abs %x : tensor<4xf64>
  %2 = kiln.exp %0 : tensor<4xf64>
  %3 = kiln.exp2 %x : tensor<4xf64>
  %4 = kiln.expm1 %x : tensor<4xf64>
  %5 = kiln.sin %x : tensor<4xf64>
  %6 = kiln.cos %x : tensor<4xf64>
  %7 = kiln.atan %x : tensor<4xf64>
  %8 = kiln.sinh %x : tensor<4xf64>
  %9 = kiln.cosh %x : tensor<4xf64>
  %10 = kiln.tanh %x : tensor<4xf64>
  %11 = kiln.erf %x : tensor<4xf64>
  %a = kiln.mul %1, %2 : tensor<4xf64>
  %b = kiln.mul %3, %4 : tensor<4xf64>
  %c = kiln.mul %5, %6 : tensor<4xf64>
  %d = kiln.mul %7, %8 : tensor<4xf64>
  %e = kiln.mul %9, %10 : tensor<4xf64>
  %g = kiln.add %a, %b : tensor<4xf64>
  %h = kiln.add %c, %d : tensor<4xf64>
  %i = kiln.add %e, %11 : tensor<4xf64>
  %j = kiln.add %g, %h : tensor<4xf64>
  %k = kiln.add %i, %j : tensor<4xf64>
  return %k : tensor<4xf64>
}

// -----
// CASE: unary_of_positive
// RANGE: 0.2 0.8
func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = kiln.log %x : tensor<4xf64>
  %1 = kiln.log1p %x : tensor<4xf64>
  %2 = kiln.log2 %x : tensor<4xf64>
  %3 = kiln.sqrt %x : tensor<4xf64>
  %4 = kiln.rsqrt %x : tensor<4xf64>
  %5 = kiln.tan %x : tensor<4xf64>
  %6 = kiln.asin %x : tensor<4xf64>
  %7 = kiln.acos %x : tensor<4xf64>
  %a = kiln.mul %0, %1 : tensor<4xf64>
  %b = kiln.mul %2, %3 : tensor<4xf64>
  %c = kiln.mul %4, %5 : tensor<4xf64>
  %d = kiln.mul %6, %7 : tensor<4xf64>
  %e = kiln.add %a, %b : tensor<4xf64>
  %f = kiln.add %c, %d : tensor<4xf64>
  %g = kiln.add %e, %f : tensor<4xf64>
  return %g : tensor<4xf64>
}

// -----
// CASE: binary
func.func @f(%x: tensor<5xf64>, %y: tensor<5xf64>) -> tensor<5xf64> {
  %0 = kiln.add %x, %y : tensor<5xf64>
  %1 = kiln.sub %x, %y : tensor<5xf64>
  %2 = kiln.mul %0, %1 : tensor<5xf64>
  %3 = kiln.div %2, %y : tensor<5xf64>
  %4 = kiln.rem %x, %y : tensor<5xf64>
  %5 = kiln.max %x, %y : tensor<5xf64>
  %6 = kiln.min %3, %4 : tensor<5xf64>
  %7 = kiln.atan2 %x, %y : tensor<5xf64>
  %8 = kiln.mul %5, %6 : tensor<5xf64>
  %9 = kiln.mul %7, %8 : tensor<5xf64>
  return %9 : tensor<5xf64>
}

// -----
// CASE: power
// RANGE: 0.3 2.0
func.func @f(%x: tensor<5xf64>, %y: tensor<5xf64>) -> tensor<5xf64> {
  %0 = kiln.pow %x, %y : tensor<5xf64>
  return %0 : tensor<5xf64>
}

// -----
// CASE: power_of_negative
func.func @f(%x: tensor<5xf64>) -> tensor<5xf64> {
  %n = kiln.splat [5], 3.0 : f64
  %0 = kiln.pow %x, %n : tensor<5xf64>
  return %0 : tensor<5xf64>
}

// -----
// CASE: one_value_twice
func.func @f(%x: tensor<3xf64>) -> tensor<3xf64> {
  %0 = kiln.mul %x, %x : tensor<3xf64>
  %1 = kiln.div %x, %x : tensor<3xf64>
  %2 = kiln.add %0, %1 : tensor<3xf64>
  return %2 : tensor<3xf64>
}

// -----
// CASE: select_and_clamp
func.func @f(%x: tensor<8xf64>, %y: tensor<8xf64>, %c: tensor<8xi1>) -> tensor<8xf64> {
  %low = kiln.splat [8], -1.0 : f64
  %0 = kiln.select %c, %x, %y : tensor<8xi1>, tensor<8xf64>
  %1 = kiln.clamp %x, %low, %y : tensor<8xf64>
  %2 = kiln.clamp %low, %x, %y : tensor<8xf64>
  %3 = kiln.mul %0, %1 : tensor<8xf64>
  %4 = kiln.mul %3, %2 : tensor<8xf64>
  return %4 : tensor<8xf64>
}

// -----
// CASE: convert_between_floats
func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = kiln.convert %x : tensor<4xf64> to f32
  %1 = kiln.mul %0, %0 : tensor<4xf32>
  %2 = kiln.convert %1 : tensor<4xf32> to f64
  %3 = kiln.convert %y : tensor<4xf64> to i64
  %4 = kiln.convert %3 : tensor<4xi64> to f64
  %5 = kiln.mul %2, %4 : tensor<4xf64>
  return %5 : tensor<4xf64>
}

// -----
// CASE: zeros
// KINKS: its factors have derivative 0
func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
  %0 = kiln.sign %x : tensor<4xf64>
  %1 = kiln.ceil %x : tensor<4xf64>
  %2 = kiln.floor %x : tensor<4xf64>
  %3 = kiln.round_even %x : tensor<4xf64>
  %4 = kiln.trunc %x : tensor<4xf64>
  %5 = kiln.floor_div %x, %y : tensor<4xf64>
  %6 = kiln.add %0, %1 : tensor<4xf64>
  %7 = kiln.add %2, %3 : tensor<4xf64>
  %8 = kiln.add %4, %5 : tensor<4xf64>
  %9 = kiln.add %6, %7 : tensor<4xf64>
  %10 = kiln.add %8, %9 : tensor<4xf64>
  %11 = kiln.mul %10, %x : tensor<4xf64>
  return %11 : tensor<4xf64>
}

// -----
// CASE: movement
func.func @f(%x: tensor<4x3xf64>, %y: tensor<1x3xf64>, %v: tensor<f64>) -> tensor<3x9xf64> {
  %0 = kiln.broadcast_in_dim %y dims = [0, 1] sizes = [4, 3] : tensor<1x3xf64>
  %1 = kiln.mul %x, %0 : tensor<4x3xf64>
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<4x3xf64>
  %3 = kiln.pad %2, %v low = [1, -1] high = [0, 2] : tensor<3x4xf64>, tensor<f64>
  %4 = kiln.reverse %3 dims = [0, 1] : tensor<4x5xf64>
  %5 = kiln.slice %4 offsets = [1, 0] sizes = [3, 2] strides = [1, 3] : tensor<4x5xf64>
  %6 = kiln.reshape %1 sizes = [3, 4] : tensor<4x3xf64>
  %7 = kiln.broadcast_in_dim %y dims = [0, 1] sizes = [3, 3] : tensor<1x3xf64>
  %8 = kiln.concat %5, %6, %7 axis = 1 : tensor<3x2xf64>, tensor<3x4xf64>, tensor<3x3xf64>
  %9 = kiln.mul %8, %8 : tensor<3x9xf64>
  return %9 : tensor<3x9xf64>
}

// -----
// CASE: movement_of_dynamic_sizes
func.func @f(%x: tensor<?x3xf64>, %y: tensor<?xf64>, %z: tensor<1x?xf64>) -> tensor<?x?x3xf64> {
  %s = kiln.sym @s {min = 2 : i64}
  %t = kiln.sym @t
  kiln.bind_shape %x, [%s, 3] : tensor<?x3xf64>
  kiln.bind_shape %y, [%t] : tensor<?xf64>
  kiln.bind_shape %z, [1, %s] : tensor<1x?xf64>
  %0 = kiln.broadcast_in_dim %x dims = [0, 2] sizes = [%s, %t, 3] : tensor<?x3xf64>
  %1 = kiln.broadcast_in_dim %y dims = [1] sizes = [%s, %t, 3] : tensor<?xf64>
  %2 = kiln.transpose %z permutation = [1, 0] : tensor<1x?xf64>
  %3 = kiln.broadcast_in_dim %2 dims = [0, 1] sizes = [%s, %t] : tensor<?x1xf64>
  %4 = kiln.broadcast_in_dim %3 dims = [0, 1] sizes = [%s, %t, 3] : tensor<?x?xf64>
  %5 = kiln.mul %0, %1 : tensor<?x?x3xf64>
  %6 = kiln.mul %5, %4 : tensor<?x?x3xf64>
  %one = arith.constant 1 : index
  %minus = arith.constant -1 : index
  %less = kiln.sym_expr add %s, %minus
  %7 = kiln.slice %6 offsets = [%one, 0, 1] sizes = [%less, %t, 2] strides = [1, 1, 1] : tensor<?x?x3xf64>
  %v = kiln.splat [], 0.5 : f64
  %8 = kiln.pad %7, %v low = [%one, 0, 0] high = [0, 0, 1] : tensor<?x?x2xf64>, tensor<f64>
  %9 = kiln.reshape %8 sizes = [%s, %t, 3] : tensor<?x?x3xf64>
  %10 = kiln.mul %9, %6 : tensor<?x?x3xf64>
  return %10 : tensor<?x?x3xf64>
}

// -----
// CASE: broadcast_of_a_size_that_may_be_1
func.func @f(%x: tensor<?xf64>, %y: tensor<4x3xf64>) -> tensor<4x3xf64> {
  %s = kiln.sym @s {min = 1 : i64, max = 1 : i64}
  kiln.bind_shape %x, [%s] : tensor<?xf64>
  %0 = kiln.broadcast_in_dim %x dims = [0] sizes = [4, 3] : tensor<?xf64>
  %1 = kiln.mul %0, %y : tensor<4x3xf64>
  %2 = kiln.mul %1, %0 : tensor<4x3xf64>
  return %2 : tensor<4x3xf64>
}

// -----
// CASE: broadcast_of_a_size_that_is_not
func.func @f(%x: tensor<?xf64>, %y: tensor<4x3xf64>) -> tensor<4x3xf64> {
  %s = kiln.sym @s {min = 1 : i64, max = 4 : i64}
  kiln.bind_shape %x, [%s] : tensor<?xf64>
  %0 = kiln.broadcast_in_dim %x dims = [0] sizes = [4, 3] : tensor<?xf64>
  %1 = kiln.mul %0, %y : tensor<4x3xf64>
  %2 = kiln.mul %1, %0 : tensor<4x3xf64>
  return %2 : tensor<4x3xf64>
}

// -----
// CASE: gather_and_embedding
func.func @f(%x: tensor<3x4x5xf64>, %w: tensor<4x2xf64>, %i: tensor<2x3xi64>) -> (tensor<2x3x4xf64>, tensor<2x3x2xf64>) {
  %0 = kiln.gather %x[%i, %i] dims = [0, 2] : tensor<3x4x5xf64>[tensor<2x3xi64>, tensor<2x3xi64>]
  %1 = kiln.mul %0, %0 : tensor<2x3x4xf64>
  %2 = kiln.embedding %w, %i : tensor<4x2xf64>, tensor<2x3xi64>
  %3 = kiln.mul %2, %2 : tensor<2x3x2xf64>
  return %1, %3 : tensor<2x3x4xf64>, tensor<2x3x2xf64>
}

// -----
// CASE: scatter
func.func @f(%x: tensor<3x4xf64>, %u: tensor<5x4xf64>, %i: tensor<5xi64>) -> tensor<3x4xf64> {
  %0 = kiln.scatter assign %x[%i], %u dims = [0] : tensor<3x4xf64>[tensor<5xi64>], tensor<5x4xf64>
  %1 = kiln.scatter add %0[%i], %u dims = [0] : tensor<3x4xf64>[tensor<5xi64>], tensor<5x4xf64>
  %2 = kiln.scatter max %x[%i], %u dims = [0] : tensor<3x4xf64>[tensor<5xi64>], tensor<5x4xf64>
  %3 = kiln.scatter min %x[%i], %u dims = [0] : tensor<3x4xf64>[tensor<5xi64>], tensor<5x4xf64>
  %4 = kiln.scatter mul %x[%i], %u dims = [0] : tensor<3x4xf64>[tensor<5xi64>], tensor<5x4xf64>
  %5 = kiln.mul %0, %1 : tensor<3x4xf64>
  %6 = kiln.mul %2, %3 : tensor<3x4xf64>
  %7 = kiln.add %5, %6 : tensor<3x4xf64>
  %8 = kiln.add %7, %4 : tensor<3x4xf64>
  return %8 : tensor<3x4xf64>
}

// -----
// CASE: dynamic_slices
func.func @f(%x: tensor<5x4xf64>, %u: tensor<2x3xf64>, %i: tensor<i64>) -> tensor<3x4xf64> {
  %0 = kiln.dynamic_update_slice %x[%i, %i : tensor<i64>, tensor<i64>], %u : tensor<5x4xf64>, tensor<2x3xf64>
  %1 = kiln.mul %0, %x : tensor<5x4xf64>
  %2 = kiln.dynamic_slice %1[%i, %i : tensor<i64>, tensor<i64>] sizes = [3, 4] : tensor<5x4xf64>
  return %2 : tensor<3x4xf64>
}

// -----
// CASE: reduce
func.func @f(%x: tensor<3x4x2xf64>) -> tensor<4xf64> {
  %0 = kiln.reduce sum %x dims = [0, 2] : tensor<3x4x2xf64>
  %1 = kiln.reduce prod %x dims = [0, 2] : tensor<3x4x2xf64>
  %2 = kiln.reduce max %x dims = [0, 2] : tensor<3x4x2xf64>
  %3 = kiln.reduce min %x dims = [0, 2] : tensor<3x4x2xf64>
  %4 = kiln.mul %0, %1 : tensor<4xf64>
  %5 = kiln.mul %2, %3 : tensor<4xf64>
  %6 = kiln.mul %4, %5 : tensor<4xf64>
  return %6 : tensor<4xf64>
}

// -----
// CASE: products_with_zeros
// KINKS: the second derivative beside a zero
func.func @f(%x: tensor<5xf64>, %u: tensor<2xf64>) -> (tensor<f64>, tensor<5xf64>, tensor<5xf64>) {
  %m = kiln.constant dense<[1.0, 0.0, 1.0, 0.0, 1.0]> : tensor<5xf64>
  %i = kiln.constant dense<[1, 4]> : tensor<2xi64>
  %z = kiln.mul %x, %m : tensor<5xf64>
  %one = kiln.slice %z offsets = [0] sizes = [3] strides = [1] : tensor<5xf64>
  %0 = kiln.reduce prod %one dims = [0] : tensor<3xf64>
  %1 = kiln.cumulative prod %z axis = 0 : tensor<5xf64>
  %2 = kiln.scatter mul %z[%i], %u dims = [0] : tensor<5xf64>[tensor<2xi64>], tensor<2xf64>
  return %0, %1, %2 : tensor<f64>, tensor<5xf64>, tensor<5xf64>
}

// -----
// CASE: fourier_transforms
func.func @f(%x: tensor<2x6xf64>, %y: tensor<2x6xf64>) -> (tensor<2x6xf64>, tensor<2x6xf64>, tensor<2x4xf64>, tensor<2x4xf64>, tensor<2x10xf64>, tensor<2x11xf64>) {
  %0:2 = kiln.fft c2c %x, %y length = 6 : tensor<2x6xf64>, tensor<2x6xf64>
  %1:2 = kiln.fft r2c %x length = 6 inverse : tensor<2x6xf64>
  %2 = kiln.fft c2r %x, %y length = 10 inverse : tensor<2x6xf64>, tensor<2x6xf64>
  %3 = kiln.fft c2r %x, %y length = 11 : tensor<2x6xf64>, tensor<2x6xf64>
  return %0#0, %0#1, %1#0, %1#1, %2, %3 : tensor<2x6xf64>, tensor<2x6xf64>, tensor<2x4xf64>, tensor<2x4xf64>, tensor<2x10xf64>, tensor<2x11xf64>
}

// -----
// CASE: fourier_transforms_of_pairs
func.func @f(%z: tensor<2x6x2xf64>, %x: tensor<2x6xf64>) -> (tensor<2x6x2xf64>, tensor<2x4x2xf64>, tensor<2x10xf64>) {
  %0 = kiln.fft c2c %z length = 6 inverse interleaved_input interleaved_result : tensor<2x6x2xf64>
  %1 = kiln.fft r2c %x length = 6 interleaved_result : tensor<2x6xf64>
  %2 = kiln.fft c2r %z length = 10 inverse interleaved_input : tensor<2x6x2xf64>
  return %0, %1, %2 : tensor<2x6x2xf64>, tensor<2x4x2xf64>, tensor<2x10xf64>
}

// -----
// CASE: fourier_transforms_of_odd_length
// RESULTS: 1
func.func @f(%x: tensor<7xf64>) -> (tensor<4xf64>, tensor<4xf64>) {
  %0:2 = kiln.fft r2c %x length = 7 : tensor<7xf64>
  return %0#0, %0#1 : tensor<4xf64>, tensor<4xf64>
}

// -----
// CASE: cumulative
func.func @f(%x: tensor<2x5xf64>) -> tensor<2x5xf64> {
  %0 = kiln.cumulative sum %x axis = 1 : tensor<2x5xf64>
  %1 = kiln.cumulative prod %x axis = 1 : tensor<2x5xf64>
  %2 = kiln.cumulative max %x axis = 1 : tensor<2x5xf64>
  %3 = kiln.cumulative min %x axis = 0 : tensor<2x5xf64>
  %4 = kiln.mul %0, %1 : tensor<2x5xf64>
  %5 = kiln.mul %2, %3 : tensor<2x5xf64>
  %6 = kiln.mul %4, %5 : tensor<2x5xf64>
  return %6 : tensor<2x5xf64>
}

// -----
// CASE: sort_and_top_k
func.func @f(%x: tensor<3x5xf64>) -> (tensor<3x5xf64>, tensor<3x2xf64>) {
  %v, %i = kiln.sort %x axis = 1 descending : tensor<3x5xf64>
  %a, %b = kiln.top_k %x axis = 1 k = 2 : tensor<3x5xf64>
  %0 = kiln.mul %v, %x : tensor<3x5xf64>
  %1 = kiln.mul %a, %a : tensor<3x2xf64>
  return %0, %1 : tensor<3x5xf64>, tensor<3x2xf64>
}

// -----
// CASE: windows
func.func @f(%x: tensor<2x6x5xf64>) -> (tensor<2x3x4xf64>, tensor<2x3x4xf64>) {
  %0 = kiln.reduce_window sum %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<2x6x5xf64>
  %1 = kiln.reduce_window prod %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<2x6x5xf64>
  %2 = kiln.reduce_window max %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<2x6x5xf64>
  %3 = kiln.reduce_window min %x window = [1, 2, 2] strides = [1, 2, 1] pad = [0, 0, 0] x [0, 1, 0] dilation = [1, 2, 1] : tensor<2x6x5xf64>
  %4 = kiln.mul %0, %1 : tensor<2x3x4xf64>
  %5 = kiln.mul %2, %3 : tensor<2x3x4xf64>
  return %4, %5 : tensor<2x3x4xf64>, tensor<2x3x4xf64>
}

// -----
// CASE: dot_general
func.func @f(%x: tensor<2x3x4x5xf64>, %y: tensor<5x2x6x3xf64>) -> tensor<2x4x6xf64> {
  %0 = kiln.dot_general %x, %y batch = [0] x [1] contract = [3, 1] x [0, 3] : tensor<2x3x4x5xf64>, tensor<5x2x6x3xf64>
  return %0 : tensor<2x4x6xf64>
}

// -----
// CASE: linear_and_matmul
func.func @f(%x: tensor<2x3x4xf64>, %w: tensor<5x4xf64>, %b: tensor<5xf64>, %y: tensor<5x2xf64>) -> tensor<2x3x2xf64> {
  %0 = kiln.linear %x, %w bias %b : tensor<5xf64> : tensor<2x3x4xf64>, tensor<5x4xf64>
  %1 = kiln.matmul %0, %y : tensor<2x3x5xf64>, tensor<5x2xf64>
  return %1 : tensor<2x3x2xf64>
}

// -----
// CASE: products_of_dynamic_sizes
func.func @f(%x: tensor<?x4xf64>, %w: tensor<3x4xf64>, %b: tensor<3xf64>) -> tensor<?x?xf64> {
  %s = kiln.sym @s
  kiln.bind_shape %x, [%s, 4] : tensor<?x4xf64>
  %0 = kiln.linear %x, %w bias %b : tensor<3xf64> : tensor<?x4xf64>, tensor<3x4xf64>
  %1 = kiln.softmax %0 axis = 1 : tensor<?x3xf64>
  %2 = kiln.transpose %1 permutation = [1, 0] : tensor<?x3xf64>
  %3 = kiln.matmul %0, %2 : tensor<?x3xf64>, tensor<3x?xf64>
  return %3 : tensor<?x?xf64>
}

// -----
// CASE: convolution
func.func @f(%x: tensor<2x4x6x5xf64>, %w: tensor<6x2x3x2xf64>) -> tensor<2x6x5x3xf64> {
  %0 = kiln.convolution %x, %w strides = [1, 2] pad = [1, 0] x [0, 2] dilation = [1, 2] {groups = 2 : i64} : tensor<2x4x6x5xf64>, tensor<6x2x3x2xf64>
  return %0 : tensor<2x6x5x3xf64>
}

// -----
// CASE: convolution_of_groups
func.func @f(%x: tensor<2x4x5x4xf64>, %w: tensor<6x2x3x2xf64>) -> tensor<2x6x5x3xf64> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 0] x [1, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<2x4x5x4xf64>, tensor<6x2x3x2xf64>
  return %0 : tensor<2x6x5x3xf64>
}

// -----
// CASE: strided_convolution_of_groups
func.func @f(%x: tensor<2x4x7x6xf64>, %w: tensor<6x2x3x2xf64>) -> tensor<2x6x4x3xf64> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 0] x [1, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<2x4x7x6xf64>, tensor<6x2x3x2xf64>
  return %0 : tensor<2x6x4x3xf64>
}

// -----
// CASE: strided_convolution_of_groups_by_one_pixel
func.func @f(%x: tensor<2x4x5x7xf64>, %w: tensor<2x2x1x1xf64>) -> tensor<2x2x3x3xf64> {
  %0 = kiln.convolution %x, %w strides = [2, 3] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<2x4x5x7xf64>, tensor<2x2x1x1xf64>
  return %0 : tensor<2x2x3x3xf64>
}

// -----
// CASE: convolution_with_a_rest
func.func @f(%x: tensor<2x2x8xf64>, %w: tensor<3x2x3xf64>) -> tensor<2x3x3xf64> {
  %0 = kiln.convolution %x, %w strides = [3] pad = [1] x [1] dilation = [1] : tensor<2x2x8xf64>, tensor<3x2x3xf64>
  return %0 : tensor<2x3x3xf64>
}

// -----
// CASE: strided_convolution_of_even_and_odd_sizes
func.func @f(%x: tensor<2x3x6x7xf64>, %w: tensor<4x3x3x3xf64>) -> tensor<2x4x3x4xf64> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x3x6x7xf64>, tensor<4x3x3x3xf64>
  return %0 : tensor<2x4x3x4xf64>
}

// -----
// CASE: strided_convolution_of_one_pixel
func.func @f(%x: tensor<2x3x6x5xf64>, %w: tensor<4x3x1x1xf64>) -> tensor<2x4x3x3xf64> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x6x5xf64>, tensor<4x3x1x1xf64>
  return %0 : tensor<2x4x3x3xf64>
}

// -----
// CASE: strided_convolution_of_wide_windows
func.func @f(%x: tensor<1x2x9x7xf64>, %w: tensor<3x2x5x4xf64>) -> tensor<1x3x3x4xf64> {
  %0 = kiln.convolution %x, %w strides = [3, 2] pad = [2, 1] x [2, 2] dilation = [1, 1] : tensor<1x2x9x7xf64>, tensor<3x2x5x4xf64>
  return %0 : tensor<1x3x3x4xf64>
}

// -----
// CASE: strided_convolution_of_patches
func.func @f(%x: tensor<1x2x6x4xf64>, %w: tensor<3x2x3x2xf64>) -> tensor<1x3x2x2xf64> {
  %0 = kiln.convolution %x, %w strides = [3, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x2x6x4xf64>, tensor<3x2x3x2xf64>
  return %0 : tensor<1x3x2x2xf64>
}

// -----
// CASE: strided_along_one_dimension
func.func @f(%x: tensor<1x2x5x6xf64>, %w: tensor<3x2x3x3xf64>) -> tensor<1x3x5x3xf64> {
  %0 = kiln.convolution %x, %w strides = [1, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<1x2x5x6xf64>, tensor<3x2x3x3xf64>
  return %0 : tensor<1x3x5x3xf64>
}

// -----
// CASE: convolution_of_dynamic_sizes
func.func @f(%x: tensor<?x2x?xf64>, %w: tensor<3x2x3xf64>) -> tensor<?x3x?xf64> {
  %s = kiln.sym @s
  %t = kiln.sym @t {min = 3 : i64}
  kiln.bind_shape %x, [%s, 2, %t] : tensor<?x2x?xf64>
  %0 = kiln.convolution %x, %w strides = [2] pad = [1] x [1] dilation = [1] : tensor<?x2x?xf64>, tensor<3x2x3xf64>
  return %0 : tensor<?x3x?xf64>
}

// -----
// CASE: transposed_convolution
func.func @f(%x: tensor<2x4x3x4xf64>, %w: tensor<4x3x2x3xf64>) -> tensor<2x6x6x5xf64> {
  %0 = kiln.convolution transposed %x, %w strides = [2, 1] pad = [1, 1] x [0, 0] dilation = [1, 1] {groups = 2 : i64, output_padding = array<i64: 1, 0>} : tensor<2x4x3x4xf64>, tensor<4x3x2x3xf64>
  return %0 : tensor<2x6x6x5xf64>
}

// -----
// CASE: activations
func.func @f(%x: tensor<6xf64>) -> tensor<6xf64> {
  %0 = kiln.sigmoid %x : tensor<6xf64>
  %1 = kiln.silu %x : tensor<6xf64>
  %2 = kiln.gelu %x : tensor<6xf64>
  %3 = kiln.gelu tanh %x : tensor<6xf64>
  %4 = kiln.softplus %x {beta = 2.0 : f64, threshold = 1.0 : f64} : tensor<6xf64>
  %5 = kiln.mul %0, %1 : tensor<6xf64>
  %6 = kiln.mul %2, %3 : tensor<6xf64>
  %7 = kiln.add %5, %6 : tensor<6xf64>
  %8 = kiln.mul %7, %4 : tensor<6xf64>
  return %8 : tensor<6xf64>
}

// -----
// CASE: hard_activations
// RANGE: -5 5
func.func @f(%x: tensor<8xf64>) -> tensor<8xf64> {
  %0 = kiln.hardsigmoid %x : tensor<8xf64>
  %1 = kiln.hardswish %x : tensor<8xf64>
  %2 = kiln.relu %x : tensor<8xf64>
  %3 = kiln.hardtanh %x {high = 2.0 : f64, low = -3.0 : f64} : tensor<8xf64>
  %4 = kiln.mul %2, %3 : tensor<8xf64>
  %5 = kiln.add %0, %1 : tensor<8xf64>
  %6 = kiln.add %4, %5 : tensor<8xf64>
  return %6 : tensor<8xf64>
}

// -----
// CASE: layer_norm
func.func @f(%x: tensor<2x3x4xf64>, %w: tensor<3x4xf64>, %b: tensor<3x4xf64>) -> tensor<2x3x4xf64> {
  %0 = kiln.layer_norm %x weight %w : tensor<3x4xf64> bias %b : tensor<3x4xf64> {rank = 2 : i64, epsilon = 1.0e-03 : f64} : tensor<2x3x4xf64>
  return %0 : tensor<2x3x4xf64>
}

// -----
// CASE: rms_norm
func.func @f(%x: tensor<?x4xf64>, %w: tensor<4xf64>) -> tensor<?x4xf64> {
  %0 = kiln.rms_norm %x weight %w : tensor<4xf64> {rank = 1 : i64, epsilon = 1.0e-03 : f64} : tensor<?x4xf64>
  %1 = kiln.layer_norm %0 {rank = 1 : i64, epsilon = 1.0e-03 : f64} : tensor<?x4xf64>
  %2 = kiln.mul %0, %1 : tensor<?x4xf64>
  return %2 : tensor<?x4xf64>
}

// -----
// CASE: group_and_batch_norm
func.func @f(%x: tensor<2x4x3xf64>, %w: tensor<4xf64>, %b: tensor<4xf64>) -> tensor<2x4x3xf64> {
  %v = kiln.splat [4], 1.5 : f64
  %0 = kiln.group_norm %x weight %w : tensor<4xf64> bias %b : tensor<4xf64> {groups = 2 : i64, epsilon = 1.0e-03 : f64} : tensor<2x4x3xf64>
  %1 = kiln.batch_norm %0 mean %b : tensor<4xf64> variance %v : tensor<4xf64> weight %w : tensor<4xf64> bias %b : tensor<4xf64> {epsilon = 1.0e-03 : f64} : tensor<2x4x3xf64>
  return %1 : tensor<2x4x3xf64>
}

// -----
// CASE: softmaxes
func.func @f(%x: tensor<3x4x2xf64>) -> tensor<3x4x2xf64> {
  %0 = kiln.softmax %x axis = 1 : tensor<3x4x2xf64>
  %1 = kiln.log_softmax %x axis = 0 : tensor<3x4x2xf64>
  %2 = kiln.mul %0, %1 : tensor<3x4x2xf64>
  return %2 : tensor<3x4x2xf64>
}

// -----
// CASE: statistics
func.func @f(%x: tensor<3x4x2xf64>) -> tensor<3x2xf64> {
  %0 = kiln.mean %x dims = [1] : tensor<3x4x2xf64>
  %1 = kiln.var %x dims = [1] : tensor<3x4x2xf64>
  %2 = kiln.std %x dims = [1] {correction = 0.0 : f64} : tensor<3x4x2xf64>
  %3 = kiln.mul %0, %1 : tensor<3x2xf64>
  %4 = kiln.mul %3, %2 : tensor<3x2xf64>
  return %4 : tensor<3x2xf64>
}

// -----
// CASE: cross_entropy
func.func @f(%x: tensor<4x3xf64>, %t: tensor<4xi64>) -> tensor<f64> {
  %0 = kiln.cross_entropy mean %x, %t : tensor<4x3xf64>, tensor<4xi64>
  return %0 : tensor<f64>
}

// -----
// CASE: cross_entropy_in_full
func.func @f(%x: tensor<4x3x2xf64>, %t: tensor<4x2xi64>) -> (tensor<f64>, tensor<4x2xf64>, tensor<f64>) {
  %w = kiln.constant dense<[0.5, 1.5, 2.0]> : tensor<3xf64>
  %0 = kiln.cross_entropy mean %x, %t weight %w : tensor<3xf64> {ignore_index = 1 : i64, label_smoothing = 0.25 : f64} : tensor<4x3x2xf64>, tensor<4x2xi64>
  %1 = kiln.cross_entropy none %x, %t weight %w : tensor<3xf64> {ignore_index = 1 : i64} : tensor<4x3x2xf64>, tensor<4x2xi64>
  %2 = kiln.cross_entropy sum %x, %t {label_smoothing = 0.25 : f64} : tensor<4x3x2xf64>, tensor<4x2xi64>
  return %0, %1, %2 : tensor<f64>, tensor<4x2xf64>, tensor<f64>
}

// -----
// CASE: cross_entropy_by_weight
// RANGE: 0.5 2.0
func.func @f(%x: tensor<4x3xf64>, %t: tensor<4xi64>, %w: tensor<3xf64>) -> tensor<f64> {
  %0 = kiln.cross_entropy mean %x, %t weight %w : tensor<3xf64> {label_smoothing = 0.25 : f64} : tensor<4x3xf64>, tensor<4xi64>
  return %0 : tensor<f64>
}

// -----
// CASE: dropout
func.func @f(%x: tensor<4x6xf64>) -> tensor<4x6xf64> {
  %k = kiln.constant dense<[7, 3]> : tensor<2xi64>
  %0 = kiln.dropout %x key %k p = 0.5 : tensor<4x6xf64>
  %1 = kiln.mul %0, %x : tensor<4x6xf64>
  return %1 : tensor<4x6xf64>
}

// -----
// CASE: images
func.func @f(%x: tensor<2x2x5x6xf64>) -> tensor<2x2x3x3xf64> {
  %0 = kiln.interpolate %x sizes = [7, 6] : tensor<2x2x5x6xf64>
  %1 = kiln.max_pool %0 window = [3, 2] strides = [2, 2] padding = [1, 0] dilation = [1, 1] ceil_mode : tensor<2x2x7x6xf64>
  %2 = kiln.avg_pool %x window = [2, 2] strides = [2, 2] padding = [0, 0] ceil_mode : tensor<2x2x5x6xf64>
  %3 = kiln.adaptive_avg_pool %1 sizes = [3, 3] : tensor<2x2x4x3xf64>
  %4 = kiln.mul %2, %3 : tensor<2x2x3x3xf64>
  return %4 : tensor<2x2x3x3xf64>
}

// -----
// CASE: pools_of_dynamic_sizes
func.func @f(%x: tensor<?x2x?xf64>) -> tensor<?x2x?xf64> {
  %s = kiln.sym @s
  %t = kiln.sym @t {min = 3 : i64}
  kiln.bind_shape %x, [%s, 2, %t] : tensor<?x2x?xf64>
  %0 = kiln.max_pool %x window = [3] strides = [2] padding = [1] dilation = [1] : tensor<?x2x?xf64>
  %1 = kiln.avg_pool %x window = [3] strides = [2] padding = [1] count_include_pad : tensor<?x2x?xf64>
  %2 = kiln.mul %0, %1 : tensor<?x2x?xf64>
  return %2 : tensor<?x2x?xf64>
}

// -----
// CASE: attention
func.func @f(%q: tensor<2x4x3x2xf64>, %k: tensor<2x2x5x2xf64>, %v: tensor<2x2x5x3xf64>, %b: tensor<4x1x5xf64>) -> tensor<2x4x3x3xf64> {
  %0 = kiln.attention %q, %k, %v bias %b : tensor<4x1x5xf64> causal : tensor<2x4x3x2xf64>, tensor<2x2x5x2xf64>, tensor<2x2x5x3xf64>
  return %0 : tensor<2x4x3x3xf64>
}

// -----
// CASE: attention_with_its_log_sum_exp
func.func @f(%q: tensor<2x4x3x2xf64>, %k: tensor<2x2x5x2xf64>, %v: tensor<2x2x5x3xf64>) -> (tensor<2x4x3x3xf64>, tensor<2x4x3xf64>) {
  %b = kiln.splat [3, 5], 0.5 : f64
  %0, %1 = kiln.attention %q, %k, %v bias %b : tensor<3x5xf64> causal with_lse : tensor<2x4x3x2xf64>, tensor<2x2x5x2xf64>, tensor<2x2x5x3xf64>
  return %0, %1 : tensor<2x4x3x3xf64>, tensor<2x4x3xf64>
}

// -----
// CASE: attention_and_its_log_sum_exp
// RESULTS: 0,1
func.func @f(%q: tensor<1x1x3x2xf64>, %k: tensor<1x1x4x2xf64>, %v: tensor<1x1x4x3xf64>) -> (tensor<1x1x3x3xf64>, tensor<1x1x3xf64>) {
  %0, %1 = kiln.attention %q, %k, %v with_lse : tensor<1x1x3x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x3xf64>
  return %0, %1 : tensor<1x1x3x3xf64>, tensor<1x1x3xf64>
}

// -----
// Derivatives of the derivatives, whose log-sum-exp is a number like any other.
// CASE: attention_gradients
func.func @f(%q: tensor<1x2x3x2xf64>, %k: tensor<1x1x4x2xf64>, %v: tensor<1x1x4x3xf64>, %c: tensor<1x2x3x3xf64>, %l: tensor<1x2x3xf64>, %d: tensor<1x2x3xf64>) -> (tensor<1x2x3x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x3xf64>) {
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d causal : tensor<1x2x3x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x3xf64>, tensor<1x2x3x3xf64>, tensor<1x2x3xf64>, tensor<1x2x3xf64>
  %1, %2 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d {scale = 0.5 : f64} : tensor<1x2x3x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x3xf64>, tensor<1x2x3x3xf64>, tensor<1x2x3xf64>, tensor<1x2x3xf64>
  return %0, %1, %2 : tensor<1x2x3x2xf64>, tensor<1x1x4x2xf64>, tensor<1x1x4x3xf64>
}

// -----
// CASE: attention_with_a_score
func.func @f(%q: tensor<1x2x3x2xf64>, %k: tensor<1x2x4x2xf64>, %v: tensor<1x2x4x3xf64>, %table: tensor<8xf64>) -> tensor<1x2x3x3xf64> {
  %0 = kiln.attention %q, %k, %v : tensor<1x2x3x2xf64>, tensor<1x2x4x2xf64>, tensor<1x2x4x3xf64> score {
  ^bb0(%s: tensor<f64>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %at = kiln.add %i, %j : tensor<i64>
    %t = kiln.gather %table[%at] dims = [0] : tensor<8xf64>[tensor<i64>]
    %1 = kiln.tanh %s : tensor<f64>
    %2 = kiln.add %1, %t : tensor<f64>
    kiln.yield %2 : tensor<f64>
  }
  return %0 : tensor<1x2x3x3xf64>
}

// -----
// CASE: branch
func.func @f(%x: tensor<3xf64>, %y: tensor<3xf64>, %c: tensor<i1>) -> tensor<3xf64> {
  %0 = kiln.exp %x : tensor<3xf64>
  %r:2 = kiln.if %c : tensor<i1> -> tensor<3xf64>, tensor<3xf64> {
    %1 = kiln.mul %0, %y : tensor<3xf64>
    %2 = kiln.sin %1 : tensor<3xf64>
    kiln.yield %2, %1 : tensor<3xf64>, tensor<3xf64>
  } else {
    %3 = kiln.mul %x, %x : tensor<3xf64>
    kiln.yield %3, %y : tensor<3xf64>, tensor<3xf64>
  }
  %4 = kiln.mul %r#0, %r#1 : tensor<3xf64>
  return %4 : tensor<3xf64>
}

// -----
// CASE: branch_of_dynamic_sizes
func.func @f(%x: tensor<?xf64>, %c: tensor<i1>) -> tensor<?xf64> {
  %s = kiln.sym @s
  kiln.bind_shape %x, [%s] : tensor<?xf64>
  %r = kiln.if %c : tensor<i1> -> tensor<?xf64> {
    %m = kiln.reduce max %x dims = [0] : tensor<?xf64>
    %1 = kiln.broadcast_in_dim %m dims = [] sizes = [%s] : tensor<f64>
    %2 = kiln.mul %1, %x : tensor<?xf64>
    kiln.yield %2 : tensor<?xf64>
  } else {
    %3 = kiln.tanh %x : tensor<?xf64>
    kiln.yield %3 : tensor<?xf64>
  }
  return %r : tensor<?xf64>
}

// -----
// CASE: scan
// RESULTS: 0,1
func.func @f(%x: tensor<4x2x3xf64>, %h: tensor<2x3xf64>, %w: tensor<3x3xf64>) -> (tensor<2x3xf64>, tensor<4x2x3xf64>) {
  %r:2 = kiln.scan inits(%h : tensor<2x3xf64>) over(%x : tensor<4x2x3xf64>) -> tensor<2x3xf64>, tensor<4x2x3xf64> {
  ^bb0(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>):
    %0 = kiln.linear %a, %w : tensor<2x3xf64>, tensor<3x3xf64>
    %1 = kiln.mul %0, %b : tensor<2x3xf64>
    %2 = kiln.tanh %1 : tensor<2x3xf64>
    kiln.yield %2, %1 : tensor<2x3xf64>, tensor<2x3xf64>
  }
  return %r#0, %r#1 : tensor<2x3xf64>, tensor<4x2x3xf64>
}

// -----
// CASE: reverse_scan_of_dynamic_length
// RESULTS: 1
func.func @f(%x: tensor<?x2xf64>, %g: tensor<2xf64>) -> (tensor<i64>, tensor<?x2xf64>) {
  %s = kiln.sym @s
  kiln.bind_shape %x, [%s, 2] : tensor<?x2xf64>
  %n = kiln.splat [], 0 : i64
  %one = kiln.splat [], 1 : i64
  %r:3 = kiln.scan reverse inits(%n, %g : tensor<i64>, tensor<2xf64>) over(%x : tensor<?x2xf64>) -> tensor<i64>, tensor<2xf64>, tensor<?x2xf64> {
  ^bb0(%i: tensor<i64>, %a: tensor<2xf64>, %b: tensor<2xf64>):
    %next = kiln.add %i, %one : tensor<i64>
    %t = kiln.convert %next : tensor<i64> to f64
    %u = kiln.broadcast_in_dim %t dims = [] sizes = [2] : tensor<f64>
    %0 = kiln.mul %a, %b : tensor<2xf64>
    %1 = kiln.add %0, %u : tensor<2xf64>
    %2 = kiln.mul %1, %g : tensor<2xf64>
    kiln.yield %next, %2, %2 : tensor<i64>, tensor<2xf64>, tensor<2xf64>
  }
  return %r#0, %r#2 : tensor<i64>, tensor<?x2xf64>
}

// -----
// CASE: checkpoint
func.func @f(%x: tensor<4x3xf64>, %w: tensor<2x3xf64>) -> (tensor<4x2xf64>, tensor<4x3xf64>) {
  %0 = kiln.sin %x : tensor<4x3xf64>
  %1, %2 = kiln.checkpoint -> tensor<4x2xf64>, tensor<4x3xf64> {
    %3 = kiln.mul %0, %x : tensor<4x3xf64>
    %4 = kiln.linear %3, %w : tensor<4x3xf64>, tensor<2x3xf64>
    %5 = kiln.checkpoint -> tensor<4x2xf64> {
      %6 = kiln.tanh %4 : tensor<4x2xf64>
      kiln.yield %6 : tensor<4x2xf64>
    }
    kiln.yield %5, %3 : tensor<4x2xf64>, tensor<4x3xf64>
  }
  %7 = kiln.mul %1, %1 : tensor<4x2xf64>
  return %7, %2 : tensor<4x2xf64>, tensor<4x3xf64>
}

// -----
// CASE: optimization_barrier
func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = kiln.optimization_barrier %x : tensor<4xf64>
  %1 = kiln.mul %0, %x : tensor<4xf64>
  return %1 : tensor<4xf64>
}

// -----
// CASE: rms_norm_of_known_sizes
func.func @f(%x: tensor<2x3x4xf64>, %w: tensor<4xf64>) -> tensor<2x3x4xf64> {
  %0 = kiln.rms_norm %x weight %w : tensor<4xf64> {rank = 1 : i64, epsilon = 0.125 : f64} : tensor<2x3x4xf64>
  return %0 : tensor<2x3x4xf64>
}
