// RUN: kiln-generalize

// The left factor is computed and rounded, as a prologue.
// CASE: contraction_with_a_prologue
// CHECK: linalg.generic
// CHECK: arith.mulf
// CHECK: arith.addf
// IMPLICIT-CHECK-NOT: kiln.structured
#lhs = affine_map<(m, n, k) -> (m, k)>
#scale = affine_map<(m, n, k) -> (k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#result = affine_map<(m, n, k) -> (m, n)>
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
func.func @k(%x: tensor<4x8xbf16> {kiln.sizes = array<i64: 4, 8>}, %s: tensor<8xf32> {kiln.sizes = array<i64: 8>}, %w: tensor<6x8xbf16> {kiln.sizes = array<i64: 6, 8>}) -> tensor<4x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %r = kiln.structured.contract ins(%x, %s, %w : tensor<4x8xbf16>, tensor<8xf32>, tensor<6x8xbf16>) outs(%f : tensor<4x6xf32>)
      maps = [#lhs, #scale, #rhs, #result] {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.mulf %0, %b : f32
    %2 = arith.truncf %1 : f32 to bf16
    %3 = arith.extf %2 : bf16 to f32
    %4 = arith.extf %c : bf16 to f32
    kiln.yield %3, %4 : f32, f32
  } -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
}
}

// -----
// Products of f32 are added in f64; a factor depends on the index of a loop.
// CASE: wide_accumulator
// CHECK: linalg.index 1
// CHECK: arith.extf
// CHECK: arith.addf {{.*}} : f64
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "contract"}} {
func.func @k(%x: tensor<4x8xf32> {kiln.sizes = array<i64: 4, 8>}, %w: tensor<8xf32> {kiln.sizes = array<i64: 8>}) -> tensor<4xf64> {
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<4xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<4xf64>) -> tensor<4xf64>
  %r = kiln.structured.contract ins(%x, %w : tensor<4x8xf32>, tensor<8xf32>) outs(%f : tensor<4xf64>)
      maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (k)>, affine_map<(m, k) -> (m)>] {
  ^bb0(%a: f32, %b: f32):
    %0 = kiln.structured.index 1
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.sitofp %1 : i32 to f32
    %3 = arith.addf %b, %2 : f32
    kiln.yield %a, %3 : f32, f32
  } -> tensor<4xf64>
  return %r : tensor<4xf64>
}
}
}

// -----
// Each element is a reduction of the whole axis, in which later elements are the identity.
// CASE: scan
// CHECK: arith.cmpi ule
// CHECK: arith.addf
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "scan"}} {
func.func @k(%x: tensor<3x5x2xf32> {kiln.sizes = array<i64: 3, 5, 2>}) -> tensor<3x5x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5x2xf32>) -> tensor<3x5x2xf32>
  %r = kiln.structured.scan sum along 1 ins(%x : tensor<3x5x2xf32>) outs(%f : tensor<3x5x2xf32>)
      maps = [affine_map<(a, i, b) -> (a, i, b)>, affine_map<(a, i, b) -> (a, i, b)>] {
  ^bb0(%a: f32):
    %0 = math.exp %a : f32
    kiln.yield %0 : f32
  } -> tensor<3x5x2xf32>
  return %r : tensor<3x5x2xf32>
}
}
}

// -----
// Each number is a sum over the operand, times roots of unity; the body is the prologue.
// CASE: fft
// CHECK: math.cos
// CHECK: math.sin
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "fft"}} {
func.func @k(%x: tensor<3x6xf32> {kiln.sizes = array<i64: 3, 6>}, %y: tensor<3x6xf32> {kiln.sizes = array<i64: 3, 6>}) -> (tensor<3x6xf32>, tensor<3x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x6xf32>) -> tensor<3x6xf32>
  %h = tensor.empty() : tensor<3x6xf32>
  %g = linalg.fill ins(%zero : f32) outs(%h : tensor<3x6xf32>) -> tensor<3x6xf32>
  %r:2 = kiln.structured.fft c2c length 6 inverse ins(%x, %y : tensor<3x6xf32>, tensor<3x6xf32>) outs(%f, %g : tensor<3x6xf32>, tensor<3x6xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.negf %b : f32
    kiln.yield %a, %0 : f32, f32
  } -> tensor<3x6xf32>, tensor<3x6xf32>
  return %r#0, %r#1 : tensor<3x6xf32>, tensor<3x6xf32>
}
}
}

// -----
// Half a spectrum: what is between the ends counts twice.
// CASE: fft_to_real_numbers
// CHECK: arith.select
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "fft"}} {
func.func @k(%x: tensor<4x2xf64> {kiln.sizes = array<i64: 4, 2>}, %y: tensor<2x4xf64> {kiln.sizes = array<i64: 2, 4>}) -> tensor<2x6xf64> {
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<2x6xf64>
  %f = linalg.fill ins(%zero : f64) outs(%e : tensor<2x6xf64>) -> tensor<2x6xf64>
  %r = kiln.structured.fft c2r length 6 ins(%x, %y : tensor<4x2xf64>, tensor<2x4xf64>) outs(%f : tensor<2x6xf64>)
      maps = [affine_map<(a, k, j) -> (j, a)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f64, %b: f64):
    kiln.yield %a, %b : f64, f64
  } -> tensor<2x6xf64>
  return %r : tensor<2x6xf64>
}
}
}

// -----
// CASE: exclusive_scan_of_bytes
// CHECK: arith.cmpi ult
// CHECK: arith.maxui
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "scan"}} {
func.func @k(%x: tensor<6xi8> {kiln.sizes = array<i64: 6>}) -> tensor<6xi8> {
  %zero = arith.constant 0 : i8
  %e = tensor.empty() : tensor<6xi8>
  %f = linalg.fill ins(%zero : i8) outs(%e : tensor<6xi8>) -> tensor<6xi8>
  %r = kiln.structured.scan unsigned max along 0 exclusive ins(%x : tensor<6xi8>) outs(%f : tensor<6xi8>)
      maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>] {
  ^bb0(%a: i8):
    kiln.yield %a : i8
  } -> tensor<6xi8>
  return %r : tensor<6xi8>
}
}
}

// -----
// Scores, masked scores, maximum, weights, sum, weighted sum, result, log-sum-exp.
// CASE: attention
// CHECK: arith.cmpi sle
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: arith.divf
// CHECK: math.log
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
func.func @k(%q: tensor<2x4x8xf32> {kiln.sizes = array<i64: 2, 4, 8>}, %k: tensor<2x6x8xf32> {kiln.sizes = array<i64: 2, 6, 8>}, %v: tensor<2x6x3xf32> {kiln.sizes = array<i64: 2, 6, 3>}, %l: tensor<2xi64> {kiln.sizes = array<i64: 2>}) -> (tensor<2x4x3xf32>, tensor<2x4xf32>) {
  %e = tensor.empty() : tensor<2x4x3xf32>
  %f = tensor.empty() : tensor<2x4xf32>
  %r:2 = kiln.structured.attention causal sizes [2, 4, 6, 8, 3] lengths [1]
      inputs(%q, %k : tensor<2x4x8xf32>, tensor<2x6x8xf32>) modifiers(%l : tensor<2xi64>) values(%v : tensor<2x6x3xf32>)
      outs(%e, %f : tensor<2x4x3xf32>, tensor<2x4xf32>)
      maps = [affine_map<(b, q, k, d) -> (b, q, d)>, affine_map<(b, q, k, d) -> (b, k, d)>, affine_map<(b, q, k) -> (b)>,
              affine_map<(b, q, c, k) -> (b, k, c)>, affine_map<(b, q, c) -> (b, q, c)>, affine_map<(b, q) -> (b, q)>] factors {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } score {
  ^bb0(%s: f32, %n: i64):
    %scale = arith.constant 0.35355338 : f32
    %low = arith.constant 0xFF800000 : f32
    %0 = arith.mulf %s, %scale : f32
    %i = kiln.structured.index 1
    %j = kiln.structured.index 2
    %1 = arith.index_cast %j : index to i64
    %2 = arith.cmpi slt, %1, %n : i64
    %3 = arith.select %2, %0, %low : f32
    %4 = arith.cmpi sle, %j, %i : index
    %5 = arith.select %4, %3, %low : f32
    kiln.yield %5, %0, %n : f32, f32, i64
  } weighted {
  ^bb0(%a: f32):
    kiln.yield %a : f32
  } -> tensor<2x4x3xf32>, tensor<2x4xf32>
  return %r#0, %r#1 : tensor<2x4x3xf32>, tensor<2x4xf32>
}
}
}

// -----
// Scores, weights, products of cotangents and values, gradients of scores; then the sums of products of each result. Those by keys are sums over the batch, too.
// CASE: attention_gradient
// CHECK: math.exp
// CHECK: arith.subf
// IMPLICIT-CHECK-NOT: kiln.structured
module attributes {kiln.level = "linalg"} {
module @k attributes {kiln.kernel = {kind = "attention"}} {
func.func @k(%q: tensor<2x4x8xf32> {kiln.sizes = array<i64: 2, 4, 8>}, %k: tensor<2x6x8xf32> {kiln.sizes = array<i64: 2, 6, 8>}, %v: tensor<2x6x3xf32> {kiln.sizes = array<i64: 2, 6, 3>}, %c: tensor<2x4x3xf32> {kiln.sizes = array<i64: 2, 4, 3>}, %l: tensor<2x4xf32> {kiln.sizes = array<i64: 2, 4>}, %d: tensor<2x4xf32> {kiln.sizes = array<i64: 2, 4>}) -> (tensor<2x4x8xf32>, tensor<6x8xf32>, tensor<3x6xf32>) {
  %e = tensor.empty() : tensor<2x4x8xf32>
  %f = tensor.empty() : tensor<6x8xf32>
  %g = tensor.empty() : tensor<3x6xf32>
  %r = kiln.structured.attention_gradient causal scale 0.5 sizes [2, 4, 6, 8, 3] ins(%q, %k, %v, %c, %l, %d : tensor<2x4x8xf32>, tensor<2x6x8xf32>, tensor<2x6x3xf32>, tensor<2x4x3xf32>, tensor<2x4xf32>, tensor<2x4xf32>) outs(%e : tensor<2x4x8xf32>)
      maps = [affine_map<(b, q, k, d) -> (b, q, d)>, affine_map<(b, q, k, d) -> (b, k, d)>, affine_map<(b, q, k, c) -> (b, k, c)>, affine_map<(b, q, k, c) -> (b, q, c)>,
              affine_map<(b, q) -> (b, q)>, affine_map<(b, q) -> (b, q)>, affine_map<(b, q, d) -> (b, q, d)>] -> tensor<2x4x8xf32>
  %s:2 = kiln.structured.attention_gradient scale 0.5 sizes [2, 4, 6, 8, 3] ins(%q, %k, %v, %c, %l, %d : tensor<2x4x8xf32>, tensor<2x6x8xf32>, tensor<2x6x3xf32>, tensor<2x4x3xf32>, tensor<2x4xf32>, tensor<2x4xf32>) outs(%f, %g : tensor<6x8xf32>, tensor<3x6xf32>)
      maps = [affine_map<(b, q, k, d) -> (b, q, d)>, affine_map<(b, q, k, d) -> (b, k, d)>, affine_map<(b, q, k, c) -> (b, k, c)>, affine_map<(b, q, k, c) -> (b, q, c)>,
              affine_map<(b, q) -> (b, q)>, affine_map<(b, q) -> (b, q)>, affine_map<(b, k, d) -> (k, d)>, affine_map<(b, k, c) -> (c, k)>] -> tensor<6x8xf32>, tensor<3x6xf32>
  return %r, %s#0, %s#1 : tensor<2x4x8xf32>, tensor<6x8xf32>, tensor<3x6xf32>
}
}
}
