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
// CHECK: low = [0, 0, 0] high = [0, 0, 3] {kiln.stored} : tensor<3x?x13xf16>
// CHECK: kiln.slice
// CHECK-NOT: kiln.pad
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
// CHECK: low = [0, 0] high = [0, 3] {kiln.stored} : tensor<?x13xf16>
// CHECK: contract = [1] x [0] : tensor<?x13xf16>, tensor<13x?xf16>
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
// N is contiguous and 1301 is not aligned either: both are padded, and three columns sliced off.
// CASE: unaligned_columns
// CHECK: high = [0, 7] {kiln.stored} : tensor<700x33xbf16>, tensor<bf16>
// CHECK: high = [0, 3] : tensor<33x1301xbf16>, tensor<bf16>
// CHECK: contract = [1] x [0] : tensor<700x33xbf16>, tensor<33x1304xbf16>
// CHECK: kiln.slice
func.func @f(%x: tensor<700x33xbf16>, %w: tensor<33x1301xbf16>) -> tensor<700x1301xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<700x33xbf16>, tensor<33x1301xbf16>
  return %0 : tensor<700x1301xbf16>
}

// -----
// The gradient of a vocabulary: neither operand is K-major, so that K stays as it is.
// CASE: unaligned_rows_of_a_gradient
// CHECK: high = [0, 5] : tensor<70x1011xbf16>, tensor<bf16>
// CHECK: contract = [0] x [0] : tensor<70x1016xbf16>, tensor<70x400xbf16>
// CHECK: kiln.slice
func.func @f(%g: tensor<70x1011xbf16>, %x: tensor<70x400xbf16>) -> tensor<1011x400xbf16> {
  %0 = kiln.dot_general %g, %x batch = [] x [] contract = [0] x [0] : tensor<70x1011xbf16>, tensor<70x400xbf16>
  return %0 : tensor<1011x400xbf16>
}

// -----
// The same gradient as PyTorch writes it: products read through transposes, so that the rows of the
// first operand are those of what is transposed. The second needs nothing: it is K-major in memory.
// CASE: transposed_operands
// CHECK: kiln.pad %arg0, {{.*}} low = [0, 0] high = [0, 5] : tensor<70x1011xbf16>, tensor<bf16>
// CHECK: kiln.transpose
// CHECK: contract = [1] x [0] : tensor<1016x70xbf16>, tensor<70x400xbf16>
// IMPLICIT-CHECK-NOT: kiln.pad %arg1
func.func @f(%g: tensor<70x1011xbf16>, %x: tensor<70x400xbf16>, %h: tensor<700x80xbf16>, %w: tensor<1011x80xbf16>) -> (tensor<1011x400xbf16>, tensor<700x1011xbf16>) {
  %0 = kiln.transpose %g permutation = [1, 0] : tensor<70x1011xbf16>
  %1 = kiln.dot_general %0, %x batch = [] x [] contract = [1] x [0] : tensor<1011x70xbf16>, tensor<70x400xbf16>
  %2 = kiln.transpose %w permutation = [1, 0] : tensor<1011x80xbf16>
  %3 = kiln.dot_general %h, %2 batch = [] x [] contract = [1] x [0] : tensor<700x80xbf16>, tensor<80x1011xbf16>
  return %1, %3 : tensor<1011x400xbf16>, tensor<700x1011xbf16>
}

// -----
// Both gradients of a product read one padded value: K of the first are rows of the second.
// CASE: both_gradients_share_padding
// CHECK: kiln.pad
// CHECK-NOT: kiln.pad
// CHECK: kiln.slice
func.func @f(%g: tensor<140x1011xbf16>, %x: tensor<140x400xbf16>, %w: tensor<1011x400xbf16>) -> (tensor<2x70x400xbf16>, tensor<1011x400xbf16>) {
  %0 = kiln.reshape %g sizes = [2, 70, 1011] : tensor<140x1011xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [2] x [0] : tensor<2x70x1011xbf16>, tensor<1011x400xbf16>
  %2 = kiln.transpose %g permutation = [1, 0] : tensor<140x1011xbf16>
  %3 = kiln.dot_general %2, %x batch = [] x [] contract = [1] x [0] : tensor<1011x140xbf16>, tensor<140x400xbf16>
  return %1, %3 : tensor<2x70x400xbf16>, tensor<1011x400xbf16>
}

// -----
// The second product reads what is sliced of the first.
// CASE: a_chain_of_products
// CHECK-COUNT-2: kiln.dot_general
// IMPLICIT-CHECK-NOT: tensor<700x1301xbf16>, tensor<1301x1001xbf16>
func.func @f(%x: tensor<700x40xbf16>, %w: tensor<40x1301xbf16>, %v: tensor<1301x1001xbf16>) -> tensor<700x1001xbf16> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<700x40xbf16>, tensor<40x1301xbf16>
  %1 = kiln.dot_general %0, %v batch = [] x [] contract = [1] x [0] : tensor<700x1301xbf16>, tensor<1301x1001xbf16>
  return %1 : tensor<700x1001xbf16>
}

// -----
// CASE: f32_has_no_tensor_cores
// CHECK-NOT: kiln.pad
func.func @f(%x: tensor<70x33xf32>, %w: tensor<90x33xf32>) -> tensor<70x90xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<70x33xf32>, tensor<90x33xf32>
  return %0 : tensor<70x90xf32>
}
