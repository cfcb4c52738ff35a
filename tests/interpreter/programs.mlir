// Programs whose results PyTorch gives: cases.json, made by gen_cases.py beside this file.

// CASE: if_by_sign
func.func @f(%x: tensor<3xf64>) -> tensor<3xf64> {
  %sum = kiln.reduce sum %x dims = [0] : tensor<3xf64>
  %zero = kiln.splat [], 0.0 : f64
  %c = kiln.compare lt %sum, %zero : tensor<f64>
  %r = kiln.if %c : tensor<i1> -> tensor<3xf64> {
    %0 = kiln.neg %x : tensor<3xf64>
    kiln.yield %0 : tensor<3xf64>
  } else {
    %c2 = kiln.compare eq %sum, %zero : tensor<f64>
    %1 = kiln.if %c2 : tensor<i1> -> tensor<3xf64> {
      kiln.yield %x : tensor<3xf64>
    } else {
      %2 = kiln.exp %x : tensor<3xf64>
      kiln.yield %2 : tensor<3xf64>
    }
    kiln.yield %1 : tensor<3xf64>
  }
  return %r : tensor<3xf64>
}

// -----
// CASE: newton
func.func @f(%a: tensor<f64>, %n: tensor<i64>) -> (tensor<f64>, tensor<i64>) {
  %zero = kiln.constant dense<0> : tensor<i64>
  %one = kiln.constant dense<1> : tensor<i64>
  %half = kiln.splat [], 0.5 : f64
  %r:2 = kiln.while(%a, %zero) : (tensor<f64>, tensor<i64>) -> (tensor<f64>, tensor<i64>) {
  ^bb0(%x: tensor<f64>, %i: tensor<i64>):
    %c = kiln.compare lt %i, %n : tensor<i64>
    kiln.yield %c : tensor<i1>
  } do {
  ^bb0(%x: tensor<f64>, %i: tensor<i64>):
    %q = kiln.div %a, %x : tensor<f64>
    %s = kiln.add %x, %q : tensor<f64>
    %y = kiln.mul %s, %half : tensor<f64>
    %j = kiln.add %i, %one : tensor<i64>
    kiln.yield %y, %j : tensor<f64>, tensor<i64>
  }
  return %r#0, %r#1 : tensor<f64>, tensor<i64>
}

// -----
// CASE: rnn
func.func @f(%h: tensor<2x3xf64>, %x: tensor<?x2x3xf64>, %w: tensor<3x3xf64>) -> (tensor<2x3xf64>, tensor<?x2x3xf64>) {
  %r:2 = kiln.scan inits(%h : tensor<2x3xf64>) over(%x : tensor<?x2x3xf64>) -> tensor<2x3xf64>, tensor<?x2x3xf64> {
  ^bb0(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>):
    %0 = kiln.linear %a, %w : tensor<2x3xf64>, tensor<3x3xf64>
    %1 = kiln.add %0, %b : tensor<2x3xf64>
    %2 = kiln.tanh %1 : tensor<2x3xf64>
    kiln.yield %2, %2 : tensor<2x3xf64>, tensor<2x3xf64>
  }
  return %r#0, %r#1 : tensor<2x3xf64>, tensor<?x2x3xf64>
}

// -----
// CASE: discounted_returns
func.func @f(%x: tensor<?x2xf64>) -> (tensor<2xf64>, tensor<?x2xf64>) {
  %zero = kiln.splat [2], 0.0 : f64
  %gamma = kiln.splat [2], 0.5 : f64
  %r:2 = kiln.scan reverse inits(%zero : tensor<2xf64>) over(%x : tensor<?x2xf64>) -> tensor<2xf64>, tensor<?x2xf64> {
  ^bb0(%a: tensor<2xf64>, %b: tensor<2xf64>):
    %0 = kiln.mul %a, %gamma : tensor<2xf64>
    %1 = kiln.add %0, %b : tensor<2xf64>
    kiln.yield %1, %1 : tensor<2xf64>, tensor<2xf64>
  }
  return %r#0, %r#1 : tensor<2xf64>, tensor<?x2xf64>
}

// -----
// CASE: scan_in_scan
func.func @f(%x: tensor<3x4xf64>) -> (tensor<f64>, tensor<3x4xf64>) {
  %zero = kiln.splat [], 0.0 : f64
  %r:2 = kiln.scan inits(%zero : tensor<f64>) over(%x : tensor<3x4xf64>) -> tensor<f64>, tensor<3x4xf64> {
  ^bb0(%a: tensor<f64>, %row: tensor<4xf64>):
    %s:2 = kiln.scan inits(%a : tensor<f64>) over(%row : tensor<4xf64>) -> tensor<f64>, tensor<4xf64> {
    ^bb0(%b: tensor<f64>, %e: tensor<f64>):
      %0 = kiln.add %b, %e : tensor<f64>
      kiln.yield %0, %0 : tensor<f64>, tensor<f64>
    }
    kiln.yield %s#0, %s#1 : tensor<f64>, tensor<4xf64>
  }
  return %r#0, %r#1 : tensor<f64>, tensor<3x4xf64>
}

// -----
// CASE: alibi_window
func.func @f(%q: tensor<2x4x5x8xf64>, %k: tensor<2x2x5x8xf64>, %v: tensor<2x2x5x3xf64>, %slopes: tensor<4xf64>) -> (tensor<2x4x5x3xf64>, tensor<2x4x5xf64>) {
  %two = kiln.constant dense<2> : tensor<i64>
  %r, %l = kiln.attention %q, %k, %v with_lse : tensor<2x4x5x8xf64>, tensor<2x2x5x8xf64>, tensor<2x2x5x3xf64> score {
  ^bb0(%s: tensor<f64>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %slope = kiln.gather %slopes[%h] dims = [0] : tensor<4xf64>[tensor<i64>]
    %d = kiln.sub %j, %i : tensor<i64>
    %f = kiln.convert %d : tensor<i64> to f64
    %p = kiln.mul %slope, %f : tensor<f64>
    %t = kiln.add %s, %p : tensor<f64>
    kiln.yield %t : tensor<f64>
  } mask {
  ^bb0(%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %past = kiln.compare le %j, %i : tensor<i64>
    %d = kiln.sub %i, %j : tensor<i64>
    %near = kiln.compare le %d, %two : tensor<i64>
    %m = kiln.and %past, %near : tensor<i1>
    kiln.yield %m : tensor<i1>
  }
  return %r, %l : tensor<2x4x5x3xf64>, tensor<2x4x5xf64>
}

// -----
// CASE: softcap_documents
func.func @f(%q: tensor<1x2x6x4xf64>, %k: tensor<1x2x6x4xf64>, %v: tensor<1x2x6x4xf64>, %doc: tensor<6xi64>) -> tensor<1x2x6x4xf64> {
  %cap = kiln.splat [], 2.0 : f64
  %r = kiln.attention %q, %k, %v causal : tensor<1x2x6x4xf64>, tensor<1x2x6x4xf64>, tensor<1x2x6x4xf64> score {
  ^bb0(%s: tensor<f64>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %0 = kiln.div %s, %cap : tensor<f64>
    %1 = kiln.tanh %0 : tensor<f64>
    %2 = kiln.mul %1, %cap : tensor<f64>
    kiln.yield %2 : tensor<f64>
  } mask {
  ^bb0(%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %x = kiln.gather %doc[%i] dims = [0] : tensor<6xi64>[tensor<i64>]
    %y = kiln.gather %doc[%j] dims = [0] : tensor<6xi64>[tensor<i64>]
    %m = kiln.compare eq %x, %y : tensor<i64>
    kiln.yield %m : tensor<i1>
  }
  return %r : tensor<1x2x6x4xf64>
}

// -----
// CASE: sdpa_bias
func.func @f(%q: tensor<2x2x3x4xf64>, %k: tensor<2x2x5x4xf64>, %v: tensor<2x2x5x6xf64>, %bias: tensor<2x1x3x5xf64>) -> tensor<2x2x3x6xf64> {
  %r = kiln.attention %q, %k, %v bias %bias : tensor<2x1x3x5xf64> : tensor<2x2x3x4xf64>, tensor<2x2x5x4xf64>, tensor<2x2x5x6xf64> {scale = 0.3 : f64}
  return %r : tensor<2x2x3x6xf64>
}
