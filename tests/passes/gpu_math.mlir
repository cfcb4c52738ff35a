// RUN: kiln-gpu-math

// CASE: an_exponential
// CHECK: math.exp2
// IMPLICIT-CHECK-NOT: math.exp %
func.func @f(%x: vector<4xf32>) -> vector<4xf32> {
  %0 = math.exp %x : vector<4xf32>
  return %0 : vector<4xf32>
}

// -----
// No approximate power: the sum and the quotient would amplify its error.
// CASE: a_sigmoid
// CHECK: math.exp %
// IMPLICIT-CHECK-NOT: math.exp2
func.func @f(%x: f32) -> f32 {
  %one = arith.constant 1.0 : f32
  %n = arith.negf %x : f32
  %e = math.exp %n : f32
  %s = arith.addf %e, %one : f32
  %r = arith.divf %one, %s : f32
  return %r : f32
}

// -----
// The CPU and the GPU share the exact expansion.
// CASE: a_remainder_of_f32
// RUN: kiln-gpu-math,kiln-expand-math{keep=math.exp2}
// CHECK: arith.extf
// IMPLICIT-CHECK-NOT: arith.remf
func.func @f(%x: f32, %y: f32) -> f32 {
  %0 = arith.remf %x, %y : f32
  return %0 : f32
}

// -----
// f64 has no such instruction.
// CASE: an_exponential_of_f64
// CHECK: math.exp
func.func @f(%x: f64) -> f64 {
  %0 = math.exp %x : f64
  return %0 : f64
}

// -----
// CASE: results_of_16_bits
// CHECK: math.exp2
// CHECK: fastmath<afn>
// CHECK: fastmath<arcp,afn>
func.func @f(%x: memref<4xbf16>, %y: memref<4xbf16>) {
  %c0 = arith.constant 0 : index
  %one = arith.constant dense<1.0> : vector<4xf32>
  %0 = vector.load %x[%c0] : memref<4xbf16>, vector<4xbf16>
  %1 = arith.extf %0 : vector<4xbf16> to vector<4xf32>
  %2 = math.exp %1 : vector<4xf32>
  %3 = arith.addf %2, %one : vector<4xf32>
  %4 = arith.divf %one, %3 : vector<4xf32>
  %5 = arith.divf %1, %3 : vector<4xf32>
  %6 = arith.mulf %4, %5 : vector<4xf32>
  %7 = arith.truncf %6 : vector<4xf32> to vector<4xbf16>
  vector.store %7, %y[%c0] : memref<4xbf16>, vector<4xbf16>
  return
}

// -----
// An integer quotient of exact multiples must be exact.
// CASE: exact_integer_quotient
// CHECK-NOT: fastmath
func.func @f(%x: memref<1xbf16>, %y: memref<1xbf16>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %x[%c0] : memref<1xbf16>
  %1 = arith.extf %0 : bf16 to f32
  %2 = arith.divf %1, %1 : f32
  %3 = math.floor %2 : f32
  %4 = arith.truncf %3 : f32 to bf16
  memref.store %4, %y[%c0] : memref<1xbf16>
  return
}

// -----
// CASE: erf_and_tanh
// CHECK: fastmath<afn>
// IMPLICIT-CHECK-NOT: math.erf
// IMPLICIT-CHECK-NOT: math.tanh
func.func @f(%x: f32) -> (f32, f32) {
  %0 = math.erf %x : f32
  %1 = math.tanh %x : f32
  return %0, %1 : f32, f32
}

// -----
// gelu's approximation: a sigmoid instead of 1 + tanh, which cancels where tanh is near -1. Where
// tanh has another use it stays.
// CASE: one_plus_tanh
// CHECK: math.exp2
// CHECK: arith.divf
// CHECK: arith.mulf
// CHECK: arith.select
func.func @f(%x: vector<4xf32>, %y: vector<4xf32>) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>) {
  %one = arith.constant dense<1.0> : vector<4xf32>
  %0 = math.tanh %x : vector<4xf32>
  %1 = arith.addf %0, %one : vector<4xf32>
  %2 = math.tanh %y : vector<4xf32>
  %3 = arith.addf %one, %2 : vector<4xf32>
  return %1, %2, %3 : vector<4xf32>, vector<4xf32>, vector<4xf32>
}

// -----
// The first element is the lower half.
// CASE: pair_rounded_to_bf16
// CHECK: vector.bitcast
// IMPLICIT-CHECK-NOT: arith.extf
func.func @f(%x: vector<2xf32>) -> vector<2xf32> {
  %0 = arith.truncf %x : vector<2xf32> to vector<2xbf16>
  %1 = arith.extf %0 : vector<2xbf16> to vector<2xf32>
  return %1 : vector<2xf32>
}

// -----
// 16-bit results: one polynomial and 2^x; near 0 a series, unless 1 is added.
// CASE: erf_for_16_bits
// IMPLICIT-CHECK-NOT: math.erf
// CHECK: arith.cmpf olt
func.func @f(%x: memref<1xbf16>, %y: memref<1xbf16>, %z: memref<1xbf16>) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %0 = memref.load %x[%c0] : memref<1xbf16>
  %1 = arith.extf %0 : bf16 to f32
  %2 = math.erf %1 : f32
  %3 = arith.truncf %2 : f32 to bf16
  memref.store %3, %y[%c0] : memref<1xbf16>
  %4 = arith.negf %1 : f32
  %5 = math.erf %4 : f32
  %6 = arith.addf %5, %one : f32
  %7 = arith.truncf %6 : f32 to bf16
  memref.store %7, %z[%c0] : memref<1xbf16>
  return
}

// -----
// CASE: fast_math
// RUN: kiln-gpu-math{fast=true},kiln-expand-math{keep=math.exp2 approximations=true}
// CHECK: math.sin
// CHECK: math.log2
// CHECK: fastmath<afn>
// CHECK: fastmath<arcp,afn>
func.func @f(%x: vector<4xf32>) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
  %0 = math.sin %x : vector<4xf32>
  %1 = math.log %x : vector<4xf32>
  %2 = math.tanh %x : vector<4xf32>
  %3 = math.sqrt %x : vector<4xf32>
  return %0, %1, %2, %3 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
}
