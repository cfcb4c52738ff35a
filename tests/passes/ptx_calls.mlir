// RUN: kiln-ptx-calls

// A target that runs no PTX has the ops of the region, also of a call inside of it.
// CASE: ops_in_its_place
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
// Inside of a loop as well.
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
// A target that runs PTX needs no region.
// CASE: launched
// RUN: kiln-ptx-calls{keep=true}
// NO-RUN: nothing computes PTX here
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
// CASE: ptx_alone
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{is PTX alone, which the target does not run}}
  %0 = kiln.ptx_call "mine::twice"(%x) blocks = [1] sizes = [4] entry = "twice" threads = 64 shared = 0 ptx = ".entry twice" : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
