// RUN: kiln-gpu-math

// CASE: an_exponential
// NO-RUN: the interpreter runs kiln ops
// CHECK: math.exp2
// CHECK-NOT: math.exp %
func.func @f(%x: vector<4xf32>) -> vector<4xf32> {
  %0 = math.exp %x : vector<4xf32>
  return %0 : vector<4xf32>
}

// -----
// CASE: a_remainder_of_f32
// NO-RUN: the interpreter runs kiln ops
// CHECK: arith.extf
// CHECK-NOT: arith.remf
func.func @f(%x: f32, %y: f32) -> f32 {
  %0 = arith.remf %x, %y : f32
  return %0 : f32
}

// -----
// There is no instruction for f64.
// CASE: an_exponential_of_f64
// NO-RUN: the interpreter runs kiln ops
// CHECK: math.exp
func.func @f(%x: f64) -> f64 {
  %0 = math.exp %x : f64
  return %0 : f64
}
