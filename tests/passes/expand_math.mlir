// RUN: kiln-expand-math,canonicalize,cse

// CASE: exp_of_a_vector
// CHECK: math.fma
// IMPLICIT-CHECK-NOT: math.exp
func.func @f(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// -----
// bf16 is widened, computed in f32 and rounded.
// CASE: tanh_of_a_bf16
// CHECK: arith.extf
// IMPLICIT-CHECK-NOT: math.tanh
func.func @f(%x: bf16) -> bf16 {
  %0 = math.tanh %x : bf16
  return %0 : bf16
}

// -----
// f64 has its own polynomial.
// CASE: log_of_f64
// CHECK: vector<8xi64>
// IMPLICIT-CHECK-NOT: math.log
func.func @f(%x: vector<8xf64>) -> vector<8xf64> {
  %0 = math.log %x : vector<8xf64>
  return %0 : vector<8xf64>
}

// -----
// Functions with an instruction are not expanded.
// CASE: square_roots_stay
// CHECK: math.sqrt
func.func @f(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.sqrt %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// -----
// AVX-512 scales a register of floats by powers of two in one instruction.
// CASE: scalef
// NEEDS: avx512f
// RUN: kiln-expand-math{scalef=true},canonicalize,cse
// CHECK: llvm.x86.avx512.mask.scalef.ps.512
func.func @f(%x: vector<16xf32>, %y: vector<8xf32>) -> (vector<16xf32>, vector<8xf32>) {
  %0 = math.exp2 %x : vector<16xf32>
  %1 = math.exp2 %y : vector<8xf32>
  return %0, %1 : vector<16xf32>, vector<8xf32>
}

// -----
// Computed from e^ln(erfc) - 1, which is accurate near 0.
// CASE: erf
// CHECK: math.copysign
// IMPLICIT-CHECK-NOT: arith.divf
func.func @f(%x: f32) -> f32 {
  %0 = math.erf %x : f32
  return %0 : f32
}

// -----
// CASE: remainder
// CHECK: scf.while
// IMPLICIT-CHECK-NOT: arith.remf
func.func @f(%x: f32, %y: f32) -> f32 {
  %0 = arith.remf %x, %y : f32
  return %0 : f32
}

// -----
// f8E5M2 is the upper half of an f16.
// CASE: fp8_to_f32
// CHECK: arith.shli
// IMPLICIT-CHECK-NOT: arith.extf %arg
func.func @f(%x: vector<16xf8E4M3FN>, %y: f8E5M2) -> (vector<16xf32>, f32) {
  %0 = arith.extf %x : vector<16xf8E4M3FN> to vector<16xf32>
  %1 = arith.extf %y : f8E5M2 to f32
  return %0, %1 : vector<16xf32>, f32
}

// -----
// CASE: f32_to_fp8
// CHECK: arith.minui
// IMPLICIT-CHECK-NOT: arith.truncf
func.func @f(%x: vector<16xf32>, %y: f32) -> (vector<16xf8E4M3FN>, f8E5M2) {
  %0 = arith.truncf %x : vector<16xf32> to vector<16xf8E4M3FN>
  %1 = arith.truncf %y : f32 to f8E5M2
  return %0, %1 : vector<16xf8E4M3FN>, f8E5M2
}

// -----
// CASE: f64_to_fp8
func.func @f(%x: f64) -> f8E5M2 {
  // expected-error @+1 {{converts a float of 8 bits from another type than f32}}
  %0 = arith.truncf %x : f64 to f8E5M2
  return %0 : f8E5M2
}

// -----
// Both vectors share one function for arguments that Cody-Waite reduction does not reach; the scalar
// has its own.
// RUN: kiln-expand-math{rare-functions=true},canonicalize,cse
// CASE: far_arguments_share_a_function
// CHECK: scf.if
// CHECK: call @kiln_reduce_far_4xf32
// CHECK: call @kiln_reduce_far_f32
// CHECK: func.func private @kiln_reduce_far_4xf32
// CHECK-SAME: "no_caller_saved_registers"
func.func @f(%x: vector<4xf32>, %y: vector<4xf32>, %z: f32) -> (vector<4xf32>, vector<4xf32>, f32) {
  %0 = math.sin %x : vector<4xf32>
  %1 = math.sin %y : vector<4xf32>
  %2 = math.sin %z : f32
  return %0, %1, %2 : vector<4xf32>, vector<4xf32>, f32
}
