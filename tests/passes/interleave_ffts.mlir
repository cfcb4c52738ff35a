// RUN: kiln-interleave-ffts,canonicalize

// CASE: complex_argument_and_result
// CHECK: kiln.fft c2c %{{.*}} length = 8 interleaved_input interleaved_result : tensor<?x8x2xf32>
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
// CASE: real_argument
// CHECK: kiln.fft r2c %{{.*}} length = 6 interleaved_result : tensor<2x6xf64>
func.func @f(%x: tensor<2x6xf64>) -> tensor<2x4x2xf64> {
  %0:2 = kiln.fft r2c %x length = 6 : tensor<2x6xf64>
  %c = kiln.reshape %0#0 sizes = [2, 4, 1] : tensor<2x4xf64>
  %d = kiln.reshape %0#1 sizes = [2, 4, 1] : tensor<2x4xf64>
  %r = kiln.concat %c, %d axis = 2 : tensor<2x4x1xf64>, tensor<2x4x1xf64>
  return %r : tensor<2x4x2xf64>
}

// -----
// Results that are transposed before they are put together: pairs are transposed.
// CASE: transposed_result
// CHECK: kiln.fft c2c {{.*}} length = 8 interleaved_result
// CHECK: kiln.transpose {{.*}} permutation = [0, 2, 1, 3]
// IMPLICIT-CHECK-NOT: kiln.concat
func.func @f(%x: tensor<3x5x8xf32>, %y: tensor<3x5x8xf32>) -> tensor<3x8x5x2xf32> {
  %0:2 = kiln.fft c2c %x, %y length = 8 : tensor<3x5x8xf32>, tensor<3x5x8xf32>
  %a = kiln.transpose %0#0 permutation = [0, 2, 1] : tensor<3x5x8xf32>
  %b = kiln.transpose %0#1 permutation = [0, 2, 1] : tensor<3x5x8xf32>
  %c = kiln.reshape %a sizes = [3, 8, 5, 1] : tensor<3x8x5xf32>
  %d = kiln.reshape %b sizes = [3, 8, 5, 1] : tensor<3x8x5xf32>
  %r = kiln.concat %c, %d axis = 3 : tensor<3x8x5x1xf32>, tensor<3x8x5x1xf32>
  return %r : tensor<3x8x5x2xf32>
}

// -----
// A part of the numbers, the parts in the other order, a part that something else reads.
// CASE: what_stays
// CHECK-COUNT-3: kiln.fft c2c %{{.*}}, %
// IMPLICIT-CHECK-NOT: interleaved
func.func @f(%z: tensor<5x4x2xf32>) -> (tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4x2xf32>, tensor<5x4xf32>) {
  %a = kiln.slice %z offsets = [0, 0, 0] sizes = [3, 4, 1] strides = [1, 1, 1] : tensor<5x4x2xf32>
  %re = kiln.reshape %a sizes = [3, 4] : tensor<3x4x1xf32>
  %b = kiln.slice %z offsets = [0, 0, 1] sizes = [3, 4, 1] strides = [1, 1, 1] : tensor<5x4x2xf32>
  %im = kiln.reshape %b sizes = [3, 4] : tensor<3x4x1xf32>
  %0:2 = kiln.fft c2c %re, %im length = 4 : tensor<3x4xf32>, tensor<3x4xf32>
  %c = kiln.slice %z offsets = [0, 0, 0] sizes = [5, 4, 1] strides = [1, 1, 1] : tensor<5x4x2xf32>
  %x = kiln.reshape %c sizes = [5, 4] : tensor<5x4x1xf32>
  %d = kiln.slice %z offsets = [0, 0, 1] sizes = [5, 4, 1] strides = [1, 1, 1] : tensor<5x4x2xf32>
  %y = kiln.reshape %d sizes = [5, 4] : tensor<5x4x1xf32>
  %1:2 = kiln.fft c2c %y, %x length = 4 : tensor<5x4xf32>, tensor<5x4xf32>
  %n = kiln.neg %x : tensor<5x4xf32>
  %2:2 = kiln.fft c2c %n, %y length = 4 : tensor<5x4xf32>, tensor<5x4xf32>
  %e = kiln.reshape %2#0 sizes = [5, 4, 1] : tensor<5x4xf32>
  %f = kiln.reshape %2#1 sizes = [5, 4, 1] : tensor<5x4xf32>
  %r = kiln.concat %e, %f axis = 2 : tensor<5x4x1xf32>, tensor<5x4x1xf32>
  return %0#0, %1#1, %r, %2#0 : tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4x2xf32>, tensor<5x4xf32>
}
