// RUN: kiln-outline-control

// The ops before a branch become a function, and so does each branch that computes something.
// CASE: a_branch
// CHECK: func.func @f_0(
// CHECK: func.func @f_1(
// IMPLICIT-CHECK-NOT: func.func @f_2(
// CHECK: attributes {kiln.control}
func.func @f(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.exp %x : tensor<4xf32>
  %1 = kiln.mul %0, %x : tensor<4xf32>
  %2 = kiln.if %c : tensor<i1> -> tensor<4xf32> {
    kiln.yield %x : tensor<4xf32>
  } else {
    %3 = kiln.add %1, %0 : tensor<4xf32>
    kiln.yield %3 : tensor<4xf32>
  }
  return %2 : tensor<4xf32>
}

// -----
// Functions read weights themselves; a weight as initial loop value is a function's result.
// CASE: weights_are_not_passed
// CHECK: func.func @f_2(%arg0: tensor<2xf32>) -> tensor<2xf32>
// CHECK: call @f_0() : () -> tensor<2xf32>
module {
  kiln.global "private" @w : tensor<2xf32> = dense<[1.0, 2.0]> : tensor<2xf32>
  func.func @f(%limit: tensor<f32>) -> tensor<2xf32> {
    %w = kiln.get_global @w : tensor<2xf32>
    %0 = kiln.while(%w) : (tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%a: tensor<2xf32>):
      %s = kiln.reduce sum %a dims = [0] : tensor<2xf32>
      %t = kiln.compare lt %s, %limit : tensor<f32>
      kiln.yield %t : tensor<i1>
    } do {
    ^bb0(%a: tensor<2xf32>):
      %n = kiln.add %a, %w : tensor<2xf32>
      kiln.yield %n : tensor<2xf32>
    }
    return %0 : tensor<2xf32>
  }
}

// -----
// Sizes are recomputed from symbols; a function whose arguments do not bind a symbol takes one that
// does.
// CASE: sizes_are_recomputed
// CHECK: func.func @f_1(%arg0: tensor<?xf32>)
// CHECK: kiln.bind_shape
func.func @f(%c: tensor<i1>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %n = kiln.sym @n {max = 100 : i64, min = 2 : i64}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %two = arith.constant 2 : index
  %m = kiln.sym_expr mul %n, %two
  %0 = kiln.concat %x, %x axis = 0 : tensor<?xf32>, tensor<?xf32>
  %1 = kiln.if %c : tensor<i1> -> tensor<?xf32> {
    %2 = kiln.splat [%m], 1.0 : f32
    kiln.yield %2 : tensor<?xf32>
  } else {
    kiln.yield %0 : tensor<?xf32>
  }
  kiln.bind_shape %1, [%m] : tensor<?xf32>
  return %1 : tensor<?xf32>
}

// -----
// A kiln.dim of a value before the branch takes the value along.
// CASE: dim_of_an_earlier_value
// CHECK: func.func @f_0(
// IMPLICIT-CHECK-NOT: kiln.dim %
func.func @f(%c: tensor<i1>, %x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 2] : tensor<?x2xf32>
  %0 = kiln.exp %x : tensor<?x2xf32>
  %1 = kiln.if %c : tensor<i1> -> tensor<?x2xf32> {
    kiln.yield %0 : tensor<?x2xf32>
  } else {
    kiln.yield %x : tensor<?x2xf32>
  }
  %d = kiln.dim %0, 0 : tensor<?x2xf32>
  %2 = kiln.splat [%d], 2.0 : f32
  return %1, %2 : tensor<?x2xf32>, tensor<?xf32>
}

// -----
// A custom call is a step between programs, which compute its operands and use its result.
// CASE: a_custom_call
// CHECK: call @f_0
// CHECK: kiln.custom_call "test.identity"
// CHECK: call @f_1
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.neg %x : tensor<4xf32>
  %1 = kiln.custom_call "test.identity"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = kiln.exp %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----
// What needs the symbol takes the value without elements, whose first size it is.
// CASE: a_size_that_depends_on_data
// CHECK: call @f_0
// CHECK: kiln.unbacked_size @u0
// CHECK: call @f_1
func.func @f(%x: tensor<4xf32>) -> (tensor<?xf32>, tensor<i64>) attributes {kiln.size_results = ["u0"]} {
  %0 = kiln.splat [4], 0.0 : f32
  %1 = kiln.compare gt %x, %0 : tensor<4xf32>
  %2 = kiln.convert %1 : tensor<4xi1> to i64
  %3 = kiln.reduce sum %2 dims = [0] : tensor<4xi64>
  %4 = kiln.unbacked_size @u0, %3 max [4] : tensor<i64> -> tensor<?x0xi8>
  %u0 = kiln.sym @u0
  %5, %6 = kiln.sort %x axis = 0 : tensor<4xf32>
  %7 = kiln.slice %5 offsets = [0] sizes = [%u0] strides = [1] : tensor<4xf32>
  return %7, %3 : tensor<?xf32>, tensor<i64>
}

// -----
// CASE: no_control_flow
// CHECK-NOT: call @
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.neg %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
