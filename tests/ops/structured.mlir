// Structured ops of kernels.

// CASE: wide_accumulator
// NO-RUN: kernels are not interpreted; tests/passes/generalize.mlir runs them
func.func @k(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4xf64> {
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

// -----

// CASE: scan
// NO-RUN: kernels are not interpreted; tests/passes/generalize.mlir runs them
func.func @k(%x: tensor<3x5x2xf32>) -> tensor<3x5x2xf32> {
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

// -----

// CASE: fft
// NO-RUN: kernels are not interpreted; tests/passes/generalize.mlir runs them
func.func @k(%x: tensor<3x6xf32>, %y: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x7xf32>) {
  %e = tensor.empty() : tensor<3x4xf32>
  %f = tensor.empty() : tensor<3x7xf32>
  %r:2 = kiln.structured.fft r2c length 6 inverse ins(%x : tensor<3x6xf32>) outs(%e, %e : tensor<3x4xf32>, tensor<3x4xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32):
    %0 = math.exp %a : f32
    kiln.yield %0 : f32
  } -> tensor<3x4xf32>, tensor<3x4xf32>
  %s = kiln.structured.fft c2r length 7 ins(%y, %y : tensor<3x4xf32>, tensor<3x4xf32>) outs(%f : tensor<3x7xf32>)
      maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] {
  ^bb0(%a: f32, %b: f32):
    kiln.yield %a, %b : f32, f32
  } -> tensor<3x7xf32>
  return %r#0, %r#1, %s : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x7xf32>
}

// -----

// CASE: attention_gradient
// NO-RUN: kernels are not interpreted; tests/passes/generalize.mlir runs them
func.func @k(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x3xf32>, %c: tensor<2x4x3xf32>, %l: tensor<2x4xf32>, %d: tensor<2x4xf32>) -> (tensor<2x4x8xf32>, tensor<6x8xf32>, tensor<3x6xf32>) {
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

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x3xf32>, %c: tensor<4x3xf32>, %l: tensor<4xf32>, %e: tensor<4x8xf32>) {
  // expected-error @+1 {{has 6 indexing maps for 7 operands}}
  %r = kiln.structured.attention_gradient scale 0.5 sizes [4, 6, 8, 3] ins(%q, %k, %v, %c, %l, %l : tensor<4x8xf32>, tensor<6x8xf32>, tensor<6x3xf32>, tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4x8xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, k, c) -> (k, c)>, affine_map<(q, k, c) -> (q, c)>, affine_map<(q) -> (q)>, affine_map<(q) -> (q)>] -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x3xf32>, %c: tensor<4x3xf32>, %l: tensor<4xf32>, %e: tensor<4x8xf32>) {
  // expected-error @+1 {{has a map of 3 loops where 1 are needed}}
  %r = kiln.structured.attention_gradient scale 0.5 sizes [4, 6, 8, 3] ins(%q, %k, %v, %c, %l, %l : tensor<4x8xf32>, tensor<6x8xf32>, tensor<6x3xf32>, tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4x8xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, k, c) -> (k, c)>, affine_map<(q, k, c) -> (q, c)>, affine_map<(q, k, d) -> (q)>, affine_map<(q) -> (q)>, affine_map<(q, d) -> (q, d)>] -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x3xf32>, %c: tensor<4x3xf32>, %l: tensor<4xf32>, %e: tensor<8xf32>) {
  // expected-error @+1 {{has a result whose map is no projection of the inner loops}}
  %r = kiln.structured.attention_gradient scale 0.5 sizes [4, 6, 8, 3] ins(%q, %k, %v, %c, %l, %l : tensor<4x8xf32>, tensor<6x8xf32>, tensor<6x3xf32>, tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<8xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, k, c) -> (k, c)>, affine_map<(q, k, c) -> (q, c)>, affine_map<(q) -> (q)>, affine_map<(q) -> (q)>, affine_map<(q, d) -> (d)>] -> tensor<8xf32>
  return
}

// -----

// CASE: attention
// NO-RUN: kernels are not interpreted; tests/passes/generalize.mlir runs them
func.func @k(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x3xf32>, %l: tensor<2xi64>) -> (tensor<2x4x3xf32>, tensor<2x4xf32>) {
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

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{yields 1 values, not two factors}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has 1 indexing maps for 2 operands}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has a map of 1 loops for operand 1 beside 2}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m) -> (m)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has a map of 1 indices for operand 0 of rank 2}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has a result whose map is no projected permutation}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m * 2)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{sums over no loop}}
  %r = kiln.structured.contract ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has a loop whose size no operand states}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k, l) -> (m, k + l)>, affine_map<(m, k, l) -> (m)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has result type}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf64>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has region arguments (f64) where (f32) is needed}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f64): kiln.yield %a, %a : f64, f64 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{adds products of f64 to f32}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f32): %b = arith.extf %a : f32 to f64 kiln.yield %b, %b : f64, f64 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{yields factors of f32 and f64}}
  %r = kiln.structured.contract ins(%x : tensor<4x8xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>] { ^bb0(%a: f32): %b = arith.extf %a : f32 to f64 kiln.yield %a, %b : f32, f64 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{scans along 1 of 1}}
  %r = kiln.structured.scan sum along 1 ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>] { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{has a result whose map is no identity}}
  %r = kiln.structured.scan sum along 0 ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i + 1)>] { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{scans unsigned floats}}
  %r = kiln.structured.scan unsigned sum along 0 ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>] { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %f: tensor<4xf32>, %g: tensor<4xf64>) {
  // expected-error @+1 {{yields something else than an element of f32}}
  %r = kiln.structured.scan sum along 0 ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>] { ^bb0(%a: f32): kiln.yield %a, %a : f32, f32 } -> tensor<4xf32>
  return
}

// -----

func.func @f(%f: tensor<4xf32>) {
  %r = kiln.structured.scan sum along 0 ins(%f : tensor<4xf32>) outs(%f : tensor<4xf32>) maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>] {
  ^bb0(%a: f32):
    // expected-error @+1 {{asks for loop 1 of 1}}
    %0 = kiln.structured.index 1
    kiln.yield %a : f32
  } -> tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{is in no structured op}}
  %0 = kiln.structured.index 0
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{has lengths of axes [2], not 0 and 1}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [2] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, c, k) -> (k, c)>, affine_map<(q, c) -> (q, c)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s, %s : f32, f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{has 0 maps of results}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, c, k) -> (k, c)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s, %s : f32, f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{has a map of 2 loops where 3 are needed}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(k, c) -> (k, c)>, affine_map<(q, c) -> (q, c)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s, %s : f32, f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{has a result whose map is no projected permutation}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, c, k) -> (k, c)>, affine_map<(q, c) -> (q, q)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s, %s : f32, f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{yields no masked score and score without limits}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, c, k) -> (k, c)>, affine_map<(q, c) -> (q, c)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s : f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %v: tensor<6x3xf32>, %k: tensor<6x8xf32>, %e: tensor<4x3xf32>) {
  // expected-error @+1 {{yields 0 lengths, or no integers, for axes [1]}}
  %r = kiln.structured.attention sizes [4, 6, 8, 3] lengths [1] inputs(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) modifiers() values(%v : tensor<6x3xf32>) outs(%e : tensor<4x3xf32>) maps = [affine_map<(q, k, d) -> (q, d)>, affine_map<(q, k, d) -> (k, d)>, affine_map<(q, c, k) -> (k, c)>, affine_map<(q, c) -> (q, c)>] factors { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } score { ^bb0(%s: f32): kiln.yield %s, %s : f32, f32 } weighted { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<4x3xf32>
  return
}

// -----

// CASE: fft with one result of two
func.func @k(%x: tensor<3x6xf32>) {
  %e = tensor.empty() : tensor<3x6xf32>
  // expected-error @+1 {{has 1 results and 1 inits, not 2 of each}}
  %r = kiln.structured.fft c2c length 6 ins(%x, %x : tensor<3x6xf32>, tensor<3x6xf32>) outs(%e : tensor<3x6xf32>) maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } -> tensor<3x6xf32>
  return
}

// -----

// CASE: fft of a transposed result
func.func @k(%x: tensor<3x6xf32>) {
  %e = tensor.empty() : tensor<10x3xf32>
  // expected-error @+1 {{has a result whose map is not that of the outer loops and the first of the last two}}
  %r = kiln.structured.fft c2r length 10 ins(%x, %x : tensor<3x6xf32>, tensor<3x6xf32>) outs(%e : tensor<10x3xf32>) maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (k, a)>] { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } -> tensor<10x3xf32>
  return
}

// -----

// CASE: fft of another length
func.func @k(%x: tensor<3x6xf32>) {
  %e = tensor.empty() : tensor<3x10xf32>
  // expected-error @+1 {{of length 12 has a last dimension of 10 in its result, not 12}}
  %r = kiln.structured.fft c2r length 12 ins(%x, %x : tensor<3x6xf32>, tensor<3x6xf32>) outs(%e : tensor<3x10xf32>) maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] { ^bb0(%a: f32, %b: f32): kiln.yield %a, %b : f32, f32 } -> tensor<3x10xf32>
  return
}

// -----

// CASE: fft of a real part alone
func.func @k(%x: tensor<3x6xf32>) {
  %e = tensor.empty() : tensor<3x10xf32>
  // expected-error @+1 {{yields something else than 2 values of f32}}
  %r = kiln.structured.fft c2r length 10 ins(%x : tensor<3x6xf32>) outs(%e : tensor<3x10xf32>) maps = [affine_map<(a, k, j) -> (a, j)>, affine_map<(a, k, j) -> (a, k)>] { ^bb0(%a: f32): kiln.yield %a : f32 } -> tensor<3x10xf32>
  return
}
