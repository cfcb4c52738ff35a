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
