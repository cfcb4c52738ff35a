// RUN: kiln-fft-calls{cufft=true},canonicalize,cse

// Complex numbers that are pairs in memory are given as they are.
// CASE: complex_argument_and_result
// CHECK: kiln.custom_call "kiln.fft.c2c"(%{{.*}}) : (tensor<?x8x2xf32>) -> tensor<?x8x2xf32>
// CHECK: kiln.bind_shape
// IMPLICIT-CHECK-NOT: kiln.slice
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%z: tensor<?x8x2xf32>) -> tensor<?x8x2xf32> {
  %s = kiln.sym @s0
  kiln.bind_shape %z, [%s, 8, 2] : tensor<?x8x2xf32>
  %a = kiln.slice %z offsets = [0, 0, 0] sizes = [%s, 8, 1] strides = [1, 1, 1] : tensor<?x8x2xf32>
  %re = kiln.reshape %a sizes = [%s, 8] : tensor<?x8x1xf32>
  %b = kiln.slice %z offsets = [0, 0, 1] sizes = [%s, 8, 1] strides = [1, 1, 1] : tensor<?x8x2xf32>
  %im = kiln.reshape %b sizes = [%s, 8] : tensor<?x8x1xf32>
  %0:2 = kiln.fft c2c %re, %im length = 8 : tensor<?x8xf32>, tensor<?x8xf32>
  %c = kiln.reshape %0#0 sizes = [%s, 8, 1] : tensor<?x8xf32>
  %d = kiln.reshape %0#1 sizes = [%s, 8, 1] : tensor<?x8xf32>
  %r = kiln.concat %c, %d axis = 2 : tensor<?x8x1xf32>, tensor<?x8x1xf32>
  return %r : tensor<?x8x2xf32>
}

// -----
// What became dead when pairs were found is no second call.
// CASE: one_call
// RUN: kiln-fft-calls{cufft=true}
// CHECK-COUNT-1: kiln.custom_call
// IMPLICIT-CHECK-NOT: = kiln.fft
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<2x6xf64>) -> tensor<2x4x2xf64> {
  %0:2 = kiln.fft r2c %x length = 6 : tensor<2x6xf64>
  %c = kiln.reshape %0#0 sizes = [2, 4, 1] : tensor<2x4xf64>
  %d = kiln.reshape %0#1 sizes = [2, 4, 1] : tensor<2x4xf64>
  %r = kiln.concat %c, %d axis = 2 : tensor<2x4x1xf64>, tensor<2x4x1xf64>
  return %r : tensor<2x4x2xf64>
}

// -----
// Parts are put together before the call and taken apart after it.
// CASE: parts
// CHECK: kiln.concat
// CHECK: "kiln.fft.c2c_inverse"
// CHECK-COUNT-2: kiln.slice
func.func @f(%x: tensor<3x5xf64>, %y: tensor<3x5xf64>) -> (tensor<3x5xf64>, tensor<3x5xf64>) {
  %0:2 = kiln.fft c2c %x, %y length = 5 inverse : tensor<3x5xf64>, tensor<3x5xf64>
  return %0#0, %0#1 : tensor<3x5xf64>, tensor<3x5xf64>
}

// -----
// Half spectra of even and of odd lengths, there and back: what one call gives, the next one takes.
// CASE: half_spectra
// IMPLICIT-CHECK-NOT: kiln.slice
// CHECK: "kiln.fft.r2c"{{.*}} (tensor<2x6xf32>) -> tensor<2x4x2xf32>
// CHECK: "kiln.fft.c2r"{{.*}} (tensor<2x4x2xf32>) -> tensor<2x7xf32>
func.func @f(%x: tensor<2x6xf32>) -> tensor<2x7xf32> {
  %0:2 = kiln.fft r2c %x length = 6 : tensor<2x6xf32>
  %1 = kiln.fft c2r %0#0, %0#1 length = 7 inverse : tensor<2x4xf32>, tensor<2x4xf32>
  return %1 : tensor<2x7xf32>
}

// -----
// Of two dimensions: pairs are transposed between the calls, and after them.
// CASE: two_dimensions
// CHECK: "kiln.fft.r2c"
// CHECK: kiln.transpose {{.*}} permutation = [1, 0, 2]
// CHECK: "kiln.fft.c2c"
// CHECK: kiln.transpose {{.*}} permutation = [1, 0, 2]
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<3x8xf32>) -> tensor<3x5x2xf32> {
  %0:2 = kiln.fft r2c %x length = 8 : tensor<3x8xf32>
  %a = kiln.transpose %0#0 permutation = [1, 0] : tensor<3x5xf32>
  %b = kiln.transpose %0#1 permutation = [1, 0] : tensor<3x5xf32>
  %1:2 = kiln.fft c2c %a, %b length = 3 : tensor<5x3xf32>, tensor<5x3xf32>
  %c = kiln.transpose %1#0 permutation = [1, 0] : tensor<5x3xf32>
  %d = kiln.transpose %1#1 permutation = [1, 0] : tensor<5x3xf32>
  %re = kiln.reshape %c sizes = [3, 5, 1] : tensor<3x5xf32>
  %im = kiln.reshape %d sizes = [3, 5, 1] : tensor<3x5xf32>
  %r = kiln.concat %re, %im axis = 2 : tensor<3x5x1xf32>, tensor<3x5x1xf32>
  return %r : tensor<3x5x2xf32>
}

// -----
// The library has the other direction of these: they are of conjugate numbers.
// CASE: other_directions
// CHECK: "kiln.fft.r2c"
// CHECK: kiln.neg
// CHECK: kiln.neg
// CHECK: "kiln.fft.c2r"
func.func @f(%x: tensor<6xf32>, %z: tensor<4x2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<6xf32>) {
  %0:2 = kiln.fft r2c %x length = 6 inverse : tensor<6xf32>
  %1 = kiln.fft c2r %z length = 6 interleaved_input : tensor<4x2xf32>
  return %0#0, %0#1, %1 : tensor<4xf32>, tensor<4xf32>, tensor<6xf32>
}

// -----
// Without the library transforms stay what they are.
// CASE: without_the_library
// RUN: kiln-fft-calls
// CHECK: kiln.fft r2c
func.func @f(%x: tensor<2x6xf32>) -> tensor<2x4xf32> {
  %0:2 = kiln.fft r2c %x length = 6 : tensor<2x6xf32>
  return %0#0 : tensor<2x4xf32>
}
