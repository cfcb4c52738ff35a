// RUN: kiln-ptx-calls

// Targets without PTX inline the region, nested calls too.
// CASE: inlined_region
// CHECK-NOT: ptx_call
func.func @f(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %n = kiln.sym @n {min = 1, max = 64}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %0:2 = kiln.ptx_call "mine::both"(%x) blocks = [1] sizes = [%n] entry = "both" threads = 64 shared = 0 ptx = ".entry both" : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    %1 = kiln.ptx_call "mine::twice"(%x) blocks = [%n] sizes = [] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<?xf32>) -> tensor<?xf32> {
      %2 = kiln.add %x, %x : tensor<?xf32>
      kiln.yield %2 : tensor<?xf32>
    }
    kiln.bind_shape %1, [%n] : tensor<?xf32>
    kiln.yield %1, %x : tensor<?xf32>, tensor<?xf32>
  }
  kiln.bind_shape %0#0, [%n] : tensor<?xf32>
  %3 = kiln.exp %0#0 : tensor<?xf32>
  return %3, %0#1 : tensor<?xf32>, tensor<?xf32>
}

// -----
// In a branch too.
// CASE: in_a_branch
// CHECK-NOT: ptx_call
func.func @f(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.if %c : tensor<i1> -> tensor<4xf32> {
    %1 = kiln.ptx_call "mine::twice"(%x) blocks = [1] sizes = [] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<4xf32>) -> tensor<4xf32> {
      %2 = kiln.add %x, %x : tensor<4xf32>
      kiln.yield %2 : tensor<4xf32>
    }
    kiln.yield %1 : tensor<4xf32>
  } else {
    kiln.yield %x : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----
// Targets with PTX drop the region.
// CASE: kept
// RUN: kiln-ptx-calls{keep=true}
// NO-RUN: only a GPU computes PTX; tests/gpu/ptx.rs runs some
// CHECK: kiln.ptx_call "mine::twice"
// IMPLICIT-CHECK-NOT: kiln.add
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.ptx_call "mine::twice"(%x) blocks = [1] sizes = [4] entry = "twice" threads = 64 shared = 128 ptx = ".entry twice" : (tensor<4xf32>) -> tensor<4xf32> {
    %2 = kiln.add %x, %x : tensor<4xf32>
    kiln.yield %2 : tensor<4xf32>
  }
  %1 = kiln.exp %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----
// CASE: no_region
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{has neither a host function nor a region, and the target does not run PTX}}
  %0 = kiln.ptx_call "mine::twice"(%x) blocks = [1] sizes = [4] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
