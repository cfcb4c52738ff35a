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

// -----
// The first element is the lower half.
// CASE: pair_rounded_to_bf16
// NO-RUN: the interpreter runs kiln ops
// CHECK: vector.bitcast
// CHECK-NOT: arith.extf
func.func @f(%x: vector<2xf32>) -> vector<2xf32> {
  %0 = arith.truncf %x : vector<2xf32> to vector<2xbf16>
  %1 = arith.extf %0 : vector<2xbf16> to vector<2xf32>
  return %1 : vector<2xf32>
}
