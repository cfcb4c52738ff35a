// RUN: kiln-pad-products{chip=sm_90a launch=0 rate=1}

// Both operands are padded with seven zeros per row (K).
// CASE: rows_of_1001
// CHECK: high = [0, 7] : tensor<70x1001xbf16>, tensor<bf16>
// CHECK: high = [0, 7] : tensor<90x1001xbf16>, tensor<bf16>
// CHECK: contract = [1] x [1] : tensor<70x1008xbf16>, tensor<90x1008xbf16>
func.func @f(%x: tensor<70x1001xbf16>, %w: tensor<90x1001xbf16>) -> tensor<70x90xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<70x1001xbf16>, tensor<90x1001xbf16>
  return %0 : tensor<70x90xbf16>
}

// -----
// The second operand is MN-major and aligned: it is padded with rows of zeros. The first has a
// dynamic M.
// CASE: mn_major_with_dynamic_m
// CHECK: low = [0, 0, 0] high = [0, 0, 3] : tensor<3x?x13xf16>
// CHECK: low = [0, 0, 0] high = [0, 3, 0] : tensor<3x13x40xf16>
// CHECK: batch = [0] x [0] contract = [2] x [1]
// CHECK: to f32
module {
  func.func @f(%x: tensor<3x?x13xf16>, %w: tensor<3x13x40xf16>) -> tensor<3x?x40xf32> {
    %n = kiln.sym @n {min = 1, max = 9}
    kiln.bind_shape %x, [3, %n, 13] : tensor<3x?x13xf16>
    %0 = kiln.dot_general %x, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x?x13xf16>, tensor<3x13x40xf16> to f32
    return %0 : tensor<3x?x40xf32>
  }
}

// -----
// Rows of dynamic length are aligned if 16 divides it, and unaligned if nothing is known.
// CASE: mn_major_with_divisible_m
// RUN: kiln-pad-products{chip=sm_90a launch=0 rate=1}
// CHECK: low = [0, 0] high = [0, 3] : tensor<?x13xf16>
// CHECK: low = [0, 0] high = [3, 0] : tensor<13x?xf16>
// CHECK: contract = [1] x [0] : tensor<?x16xf16>, tensor<16x?xf16>
// IMPLICIT-CHECK-NOT: high = [5, 0]
module {
  func.func @f(%x: tensor<?x13xf16>, %w: tensor<13x?xf16>, %y: tensor<?x11xf16>, %v: tensor<11x?xf16>) -> (tensor<?x?xf16>, tensor<?x?xf16>) {
    %n = kiln.sym @n {min = 16, divisor = 16}
    %m = kiln.sym @m {min = 1}
    kiln.bind_shape %x, [%m, 13] : tensor<?x13xf16>
    kiln.bind_shape %w, [13, %n] : tensor<13x?xf16>
    kiln.bind_shape %y, [%n, 11] : tensor<?x11xf16>
    kiln.bind_shape %v, [11, %m] : tensor<11x?xf16>
    %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<?x13xf16>, tensor<13x?xf16>
    %1 = kiln.dot_general %y, %v batch = [] x [] contract = [1] x [0] : tensor<?x11xf16>, tensor<11x?xf16>
    return %0, %1 : tensor<?x?xf16>, tensor<?x?xf16>
  }
}

// -----
// Two more launches would cost more than the matmul.
// CASE: too_small_to_be_profitable
// RUN: kiln-pad-products{chip=sm_90a}
// CHECK-NOT: kiln.pad
func.func @f(%x: tensor<70x33xbf16>, %w: tensor<90x33xbf16>) -> tensor<70x90xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<70x33xbf16>, tensor<90x33xbf16>
  return %0 : tensor<70x90xbf16>
}

// -----
// N is contiguous and 13 is not aligned either: a padded K would not help.
// CASE: unaligned_columns
// CHECK-NOT: kiln.pad
func.func @f(%x: tensor<70x33xbf16>, %w: tensor<33x13xbf16>) -> tensor<70x13xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<70x33xbf16>, tensor<33x13xbf16>
  return %0 : tensor<70x13xbf16>
}

// -----
// CASE: f32_has_no_tensor_cores
// CHECK-NOT: kiln.pad
func.func @f(%x: tensor<70x33xf32>, %w: tensor<90x33xf32>) -> tensor<70x90xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<70x33xf32>, tensor<90x33xf32>
  return %0 : tensor<70x90xf32>
}
