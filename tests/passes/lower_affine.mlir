// RUN: kiln-lower-affine,cse

// CASE: sums_and_products
// CHECK: arith.muli
// CHECK-NEXT: arith.addi
// CHECK-NEXT: arith.subi
// CHECK-NOT: overflow
// CHECK-NOT: affine.apply
func.func @f(%i: index, %j: index) -> index {
  %0 = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1)>(%i, %j)
  %1 = affine.apply affine_map<(d0, d1) -> (d0 - d1)>(%0, %i)
  return %1 : index
}

// -----
// Operands are not negative: no selects, as lower-affine has them.
// CASE: quotients_and_remainders
// CHECK: arith.divui
// CHECK: arith.remui
// CHECK: arith.addi
// CHECK-NEXT: arith.divui
// IMPLICIT-CHECK-NOT: arith.select
func.func @f(%i: index) -> (index, index, index) {
  %0 = affine.apply affine_map<(d0) -> (d0 floordiv 8)>(%i)
  %1 = affine.apply affine_map<(d0) -> (d0 mod 8)>(%i)
  %2 = affine.apply affine_map<(d0) -> ((d0 + 3) ceildiv 8)>(%i)
  return %0, %1, %2 : index, index, index
}

// -----
// CASE: bounds_of_a_block
// CHECK: arith.addi
// CHECK: arith.minsi
// CHECK: arith.maxsi
// IMPLICIT-CHECK-NOT: affine.m
func.func @f(%i: index, %n: index) -> (index, index) {
  %0 = affine.min affine_map<(d0)[s0] -> (d0 + 64, s0)>(%i)[%n]
  %1 = affine.max affine_map<(d0) -> (d0, 7)>(%i)
  return %0, %1 : index, index
}

// -----
// Upstream's folding splits quotients of differences.
// CASE: a_quotient_of_a_difference
// CHECK: arith.remsi
// CHECK: arith.divsi
func.func @f(%i: index, %j: index) -> index {
  %0 = affine.apply affine_map<(d0, d1) -> ((d0 - d1) floordiv 8)>(%i, %j)
  return %0 : index
}

// -----
// The induction variable of the outer loop is an operand inside.
// CASE: loops
// CHECK: scf.for
// CHECK-NEXT: arith.addi
// CHECK-NEXT: arith.minsi
// CHECK-NEXT: scf.for
// CHECK: scf.yield
// IMPLICIT-CHECK-NOT: affine.
func.func @f(%n: index) -> f32 {
  %zero = arith.constant 0.0 : f32
  %0 = affine.for %i = 0 to %n step 64 iter_args(%a = %zero) -> (f32) {
    %1 = affine.for %j = affine_map<(d0) -> (d0)>(%i) to min affine_map<(d0, d1) -> (d0 + 64, d1)>(%i, %n)
        iter_args(%b = %a) -> (f32) {
      %k = arith.index_cast %j : index to i32
      %v = arith.sitofp %k : i32 to f32
      %c = arith.addf %b, %v : f32
      affine.yield %c : f32
    }
    affine.yield %1 : f32
  }
  return %0 : f32
}

// -----
// CASE: a_loop_that_llvm_does_not_unroll
// CHECK: loop_annotation
// IMPLICIT-CHECK-NOT: affine.
func.func @f(%n: index) -> f32 {
  %zero = arith.constant 0.0 : f32
  %0 = affine.for %i = max affine_map<(d0) -> (d0 - 8, 0)>(%n) to affine_map<(d0) -> (d0 floordiv 2 + 4)>(%n)
      iter_args(%a = %zero) -> (f32) {
    %k = arith.index_cast %i : index to i32
    %v = arith.sitofp %k : i32 to f32
    %b = arith.addf %a, %v : f32
    affine.yield %b : f32
  } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
  return %0 : f32
}
