// RUN: kiln-pad-biases{chip=sm_90a launch=0}

// Rows of 197 elements get three more in memory; attention reads the first 197.
// CASE: rows_of_197
// CHECK: low = [0, 0, 0] high = [0, 0, 3] {kiln.stored} : tensor<2x70x197xbf16>
// CHECK: kiln.slice
// CHECK-SAME: tensor<2x70x200xbf16>
// CHECK: bias {{.*}} : tensor<2x70x197xbf16>
func.func @f(%q: tensor<4x2x70x64xbf16>, %k: tensor<4x2x197x64xbf16>, %v: tensor<4x2x197x64xbf16>, %b: tensor<2x70x197xbf16>) -> tensor<4x2x70x64xbf16> {
  %0 = kiln.attention %q, %k, %v bias %b : tensor<2x70x197xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x197x64xbf16>, tensor<4x2x197x64xbf16>
  return %0 : tensor<4x2x70x64xbf16>
}

// -----
// Two layers share the padded bias, a broadcast of which the second one reads.
// CASE: shared_by_a_broadcast
// CHECK-COUNT-1: kiln.pad
// CHECK: kiln.broadcast_in_dim
// CHECK-NOT: kiln.pad
func.func @f(%q: tensor<4x2x70x64xbf16>, %k: tensor<4x2x50x64xbf16>, %v: tensor<4x2x50x64xbf16>, %b: tensor<70x50xbf16>) -> (tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>) {
  %0 = kiln.attention %q, %k, %v bias %b : tensor<70x50xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x50x64xbf16>, tensor<4x2x50x64xbf16>
  %c = kiln.broadcast_in_dim %b dims = [2, 3] sizes = [4, 2, 70, 50] : tensor<70x50xbf16>
  %1 = kiln.attention %0, %k, %v bias %c : tensor<4x2x70x50xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x50x64xbf16>, tensor<4x2x50x64xbf16>
  return %0, %1 : tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>
}

// -----
// A bias by key alone, one of aligned rows, and f32 scores, which have no such kernel.
// CASE: no_tiles
// CHECK-NOT: kiln.pad
func.func @f(%q: tensor<4x2x70x64xbf16>, %k: tensor<4x2x50x64xbf16>, %b: tensor<4x1x1x50xbf16>, %c: tensor<70x56xbf16>, %l: tensor<4x2x56x64xbf16>, %x: tensor<4x2x70x64xf32>, %y: tensor<4x2x50x64xf32>, %d: tensor<70x50xf32>) -> (tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>, tensor<4x2x70x64xf32>) {
  %0 = kiln.attention %q, %k, %k bias %b : tensor<4x1x1x50xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x50x64xbf16>, tensor<4x2x50x64xbf16>
  %e = kiln.broadcast_in_dim %b dims = [0, 1, 2, 3] sizes = [4, 1, 70, 50] : tensor<4x1x1x50xbf16>
  %1 = kiln.attention %q, %k, %k bias %e : tensor<4x1x70x50xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x50x64xbf16>, tensor<4x2x50x64xbf16>
  %2 = kiln.attention %q, %l, %l bias %c : tensor<70x56xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x56x64xbf16>, tensor<4x2x56x64xbf16>
  %3 = kiln.attention %x, %y, %y bias %d : tensor<70x50xf32> : tensor<4x2x70x64xf32>, tensor<4x2x50x64xf32>, tensor<4x2x50x64xf32>
  return %0, %1, %2, %3 : tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>, tensor<4x2x70x64xbf16>, tensor<4x2x70x64xf32>
}

// -----
// The copy would take longer than the reads of one batch entry.
// CASE: too_small_to_be_profitable
// RUN: kiln-pad-biases{chip=sm_90a}
// CHECK-NOT: kiln.pad
func.func @f(%q: tensor<1x2x70x64xbf16>, %k: tensor<1x2x197x64xbf16>, %v: tensor<1x2x197x64xbf16>, %b: tensor<2x70x197xbf16>) -> tensor<1x2x70x64xbf16> {
  %0 = kiln.attention %q, %k, %v bias %b : tensor<2x70x197xbf16> : tensor<1x2x70x64xbf16>, tensor<1x2x197x64xbf16>, tensor<1x2x197x64xbf16>
  return %0 : tensor<1x2x70x64xbf16>
}

// -----
// Other GPUs have no kernel that reads a bias by TMA.
// CASE: before_hopper
// RUN: kiln-pad-biases{chip=sm_80 launch=0}
// CHECK-NOT: kiln.pad
func.func @f(%q: tensor<4x2x70x64xbf16>, %k: tensor<4x2x197x64xbf16>, %v: tensor<4x2x197x64xbf16>, %b: tensor<2x70x197xbf16>) -> tensor<4x2x70x64xbf16> {
  %0 = kiln.attention %q, %k, %v bias %b : tensor<2x70x197xbf16> : tensor<4x2x70x64xbf16>, tensor<4x2x197x64xbf16>, tensor<4x2x197x64xbf16>
  return %0 : tensor<4x2x70x64xbf16>
}
