// Composite ops.

// CASE: activations
func.func @f(%x: tensor<?x?x6xf32>) -> (tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 6] : tensor<?x?x6xf32>
  %sigmoid = kiln.sigmoid %x : tensor<?x?x6xf32>
  %silu = kiln.silu %x : tensor<?x?x6xf32>
  %relu = kiln.relu %x : tensor<?x?x6xf32>
  %hardtanh = kiln.hardtanh %x {high = 6.0 : f64, low = 0.0 : f64} : tensor<?x?x6xf32>
  %hardsigmoid = kiln.hardsigmoid %x : tensor<?x?x6xf32>
  %hardswish = kiln.hardswish %x : tensor<?x?x6xf32>
  %gelu = kiln.gelu %x : tensor<?x?x6xf32>
  %softplus = kiln.softplus %x : tensor<?x?x6xf32>
  %tanh = kiln.gelu tanh %x : tensor<?x?x6xf32>
  %b = kiln.softplus %x {beta = 2.0 : f64, threshold = 1.0 : f64} : tensor<?x?x6xf32>
  return %sigmoid, %silu, %relu, %hardtanh, %hardsigmoid, %hardswish, %gelu, %softplus, %tanh, %b : tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>, tensor<?x?x6xf32>
}

// -----

// CASE: checkpoints
func.func @f(%x: tensor<4xf32>, %n: tensor<2xi64>) -> (tensor<4xf32>, tensor<2xi64>, tensor<4xf32>) {
  %0, %1 = kiln.checkpoint -> tensor<4xf32>, tensor<2xi64> {
    %2 = kiln.exp %x : tensor<4xf32>
    kiln.yield %2, %n : tensor<4xf32>, tensor<2xi64>
  }
  %3 = kiln.optimization_barrier %0 : tensor<4xf32>
  return %0, %1, %3 : tensor<4xf32>, tensor<2xi64>, tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{yields (tensor<4xf32>) where (tensor<3xf32>) is needed}}
  %0 = kiln.checkpoint -> tensor<3xf32> {
    kiln.yield %x : tensor<4xf32>
  }
  return
}

// -----

// CASE: products
func.func @f(%x: tensor<?x?x6xf32>, %w: tensor<4x6xf32>, %b: tensor<4xf32>, %y: tensor<6x?xf32>, %z: tensor<6xf32>, %i: tensor<?x2xi64>) -> (tensor<?x?x4xf32>, tensor<?x?x4xf32>, tensor<?x?x?xf32>, tensor<?x?xf32>, tensor<f32>, tensor<?x2x6xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 6] : tensor<?x?x6xf32>
  kiln.bind_shape %y, [6, %t] : tensor<6x?xf32>
  kiln.bind_shape %i, [%s, 2] : tensor<?x2xi64>
  %0 = kiln.linear %x, %w bias %b : tensor<4xf32> : tensor<?x?x6xf32>, tensor<4x6xf32>
  %1 = kiln.linear %x, %w : tensor<?x?x6xf32>, tensor<4x6xf32>
  %2 = kiln.matmul %x, %y : tensor<?x?x6xf32>, tensor<6x?xf32>
  %3 = kiln.matmul %x, %z : tensor<?x?x6xf32>, tensor<6xf32>
  %4 = kiln.matmul %z, %z : tensor<6xf32>, tensor<6xf32>
  %5 = kiln.embedding %w, %i : tensor<4x6xf32>, tensor<?x2xi64>
  return %0, %1, %2, %3, %4, %5 : tensor<?x?x4xf32>, tensor<?x?x4xf32>, tensor<?x?x?xf32>, tensor<?x?xf32>, tensor<f32>, tensor<?x2x6xf32>
}

// -----

// CASE: normalisations
func.func @f(%x: tensor<?x4x6xbf16>, %w: tensor<6xf32>, %b: tensor<6xbf16>, %c: tensor<4xf32>) -> (tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 4, 6] : tensor<?x4x6xbf16>
  %v = kiln.mul %c, %c : tensor<4xf32>
  %0 = kiln.layer_norm %x weight %w : tensor<6xf32> bias %b : tensor<6xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<?x4x6xbf16>
  %1 = kiln.rms_norm %x weight %w : tensor<6xf32> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<?x4x6xbf16>
  %2 = kiln.group_norm %x weight %c : tensor<4xf32> {groups = 2 : i64, epsilon = 1.0e-05 : f64} : tensor<?x4x6xbf16>
  %3 = kiln.batch_norm %x mean %c : tensor<4xf32> variance %v : tensor<4xf32> bias %c : tensor<4xf32> {epsilon = 1.0e-05 : f64} : tensor<?x4x6xbf16>
  %4 = kiln.softmax %x axis = 0 : tensor<?x4x6xbf16>
  %5 = kiln.log_softmax %x axis = 2 : tensor<?x4x6xbf16>
  return %0, %1, %2, %3, %4, %5 : tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>, tensor<?x4x6xbf16>
}

// -----

// CASE: losses and statistics
func.func @f(%x: tensor<?x?x6xf32>, %t0: tensor<?x6xi64>, %k: tensor<2xi64>) -> (tensor<?x6xf32>, tensor<f32>, tensor<f32>, tensor<?x?x6xf32>, tensor<?x6xf32>, tensor<1x?x1xf32>, tensor<?x?xf32>, tensor<?x?x6xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 6] : tensor<?x?x6xf32>
  kiln.bind_shape %t0, [%s, 6] : tensor<?x6xi64>
  %0 = kiln.cross_entropy none %x, %t0 : tensor<?x?x6xf32>, tensor<?x6xi64>
  %1 = kiln.cross_entropy mean %x, %t0 {ignore_index = 1 : i64, label_smoothing = 0.5 : f64} : tensor<?x?x6xf32>, tensor<?x6xi64>
  %2 = kiln.cross_entropy sum %x, %t0 : tensor<?x?x6xf32>, tensor<?x6xi64>
  %3 = kiln.dropout %x key %k p = 0.5 : tensor<?x?x6xf32>
  %4 = kiln.mean %x dims = [1] : tensor<?x?x6xf32>
  %5 = kiln.var %x dims = [0, 2] keep_dims : tensor<?x?x6xf32>
  %6 = kiln.std %x dims = [2] {correction = 0.0 : f64} : tensor<?x?x6xf32>
  %7 = kiln.stop_gradient %x : tensor<?x?x6xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<?x6xf32>, tensor<f32>, tensor<f32>, tensor<?x?x6xf32>, tensor<?x6xf32>, tensor<1x?x1xf32>, tensor<?x?xf32>, tensor<?x?x6xf32>
}

// -----

// CASE: images
func.func @f(%x: tensor<?x3x?x8xf32>) -> (tensor<?x3x?x4xf32>, tensor<?x3x?x3xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>, tensor<?x3x2x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, 3, %t, 8] : tensor<?x3x?x8xf32>
  %0 = kiln.interpolate %x sizes = [%s, 4] : tensor<?x3x?x8xf32>
  %1 = kiln.max_pool %x window = [3, 2] strides = [2, 2] padding = [1, 0] dilation = [1, 2] : tensor<?x3x?x8xf32>
  %2 = kiln.max_pool %x window = [3, 3] strides = [2, 2] padding = [0, 0] dilation = [1, 1] ceil_mode : tensor<?x3x?x8xf32>
  %3 = kiln.avg_pool %x window = [3, 2] strides = [1, 2] padding = [1, 0] count_include_pad : tensor<?x3x?x8xf32>
  %4 = kiln.avg_pool %x window = [2, 2] strides = [2, 2] padding = [0, 0] ceil_mode {divisor_override = 3 : i64} : tensor<?x3x?x8xf32>
  %5 = kiln.adaptive_avg_pool %x sizes = [2, 3] : tensor<?x3x?x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<?x3x?x4xf32>, tensor<?x3x?x3xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>, tensor<?x3x2x3xf32>
}

// -----

// CASE: attention
func.func @f(%q: tensor<?x4x?x8xf16>, %k: tensor<?x2x?x8xf16>, %v: tensor<?x2x?x3xf16>, %bias: tensor<4x1x1xf16>, %l: tensor<?xi32>, %key: tensor<2xi64>) -> (tensor<?x4x?x3xf16>, tensor<?x4x?x3xf16>, tensor<?x4x?xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  %u = kiln.sym @s2
  kiln.bind_shape %q, [%s, 4, %t, 8] : tensor<?x4x?x8xf16>
  kiln.bind_shape %k, [%s, 2, %u, 8] : tensor<?x2x?x8xf16>
  kiln.bind_shape %v, [%s, 2, %u, 3] : tensor<?x2x?x3xf16>
  kiln.bind_shape %l, [%s] : tensor<?xi32>
  %0 = kiln.attention %q, %k, %v : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>
  %1, %2 = kiln.attention %q, %k, %v bias %bias : tensor<4x1x1xf16> lengths %l : tensor<?xi32> key_lengths %l : tensor<?xi32> dropout %key causal with_lse : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16> score {
  ^bb0(%a: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %e = kiln.tanh %a : tensor<f32>
    kiln.yield %e : tensor<f32>
  } mask {
  ^bb0(%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %m = kiln.compare le %j, %i : tensor<i64>
    kiln.yield %m : tensor<i1>
  } {scale = 0.5 : f64, dropout_p = 0.25 : f64}
  %3 = kiln.attention %q, %k, %v unsafe_softmax : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>
  return %0, %1, %2 : tensor<?x4x?x3xf16>, tensor<?x4x?x3xf16>, tensor<?x4x?xf32>
}

// -----

// CASE: attention_gradient
func.func @f(%q: tensor<?x4x?x8xf16>, %k: tensor<?x2x?x8xf16>, %v: tensor<?x2x?x3xf16>, %c: tensor<?x4x?x3xf16>, %l: tensor<?x4x?xf32>) -> (tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  %u = kiln.sym @s2
  kiln.bind_shape %q, [%s, 4, %t, 8] : tensor<?x4x?x8xf16>
  kiln.bind_shape %k, [%s, 2, %u, 8] : tensor<?x2x?x8xf16>
  kiln.bind_shape %v, [%s, 2, %u, 3] : tensor<?x2x?x3xf16>
  kiln.bind_shape %c, [%s, 4, %t, 3] : tensor<?x4x?x3xf16>
  kiln.bind_shape %l, [%s, 4, %t] : tensor<?x4x?xf32>
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %l causal : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>, tensor<?x4x?x3xf16>, tensor<?x4x?xf32>, tensor<?x4x?xf32>
  %1, %2 = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %l {scale = 0.5 : f64} : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>, tensor<?x4x?x3xf16>, tensor<?x4x?xf32>, tensor<?x4x?xf32>
  return %0, %1, %2 : tensor<?x4x?x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x3xf16>
}

// -----

func.func @f(%q: tensor<2x4x5x8xf16>, %k: tensor<2x2x6x8xf16>, %v: tensor<2x2x6x3xf16>, %c: tensor<2x4x5x3xf16>, %l: tensor<2x4x5xf16>, %d: tensor<2x4x5xf32>) {
  // expected-error @+1 {{needs f32 as lse, has f16}}
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %d : tensor<2x4x5x8xf16>, tensor<2x2x6x8xf16>, tensor<2x2x6x3xf16>, tensor<2x4x5x3xf16>, tensor<2x4x5xf16>, tensor<2x4x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %c: tensor<2x4x6x3xf32>, %l: tensor<2x4x5xf32>) {
  // expected-error @+1 {{of queries and cotangent}}
  %0 = kiln.attention_gradient %q, %k, %v, %c, %l, %l : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, tensor<2x4x6x3xf32>, tensor<2x4x5xf32>, tensor<2x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi32>) {
  // expected-error @+1 {{is not defined on i32}}
  %0 = kiln.gelu %x : tensor<4xi32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{has beta 0}}
  %0 = kiln.softplus %x {beta = 0.0 : f64} : tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<f32>, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{needs an input of rank 1 or more}}
  %0 = kiln.linear %x, %w : tensor<f32>, tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<6xf32>) {
  // expected-error @+1 {{needs a weight [N, K], has rank 1}}
  %0 = kiln.linear %x, %w : tensor<4x6xf32>, tensor<6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<5x7xf32>) {
  // expected-error @+1 {{has sizes 6 and 7 of the input's last dimension and the weight's}}
  %0 = kiln.linear %x, %w : tensor<4x6xf32>, tensor<5x7xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<5x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has sizes 5 and 6 in dimension 0 of weight rows and bias}}
  %0 = kiln.linear %x, %w bias %b : tensor<6xf32> : tensor<4x6xf32>, tensor<5x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<5x6xf16>) {
  // expected-error @+1 {{mixes f32 and f16; convert first}}
  %0 = kiln.linear %x, %w : tensor<4x6xf32>, tensor<5x6xf16>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %y: tensor<f32>) {
  // expected-error @+1 {{needs operands of rank 1 or more}}
  %0 = kiln.matmul %x, %y : tensor<4x6xf32>, tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has sizes 6 and 4 of the contracted dimensions}}
  %0 = kiln.matmul %x, %x : tensor<4x6xf32>, tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x4xf32>, %y: tensor<3x4x5xf32>) {
  // expected-error @+1 {{has sizes 2 and 3 in leading dimension 0 that do not broadcast}}
  %0 = kiln.matmul %x, %y : tensor<2x3x4xf32>, tensor<3x4x5xf32>
  return
}

// -----

func.func @f(%w: tensor<4xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{needs a table [V, D], has rank 1}}
  %0 = kiln.embedding %w, %i : tensor<4xf32>, tensor<2xi64>
  return
}

// -----

func.func @f(%w: tensor<4x6xf32>, %i: tensor<2xf32>) {
  // expected-error @+1 {{needs integer indices, has f32}}
  %0 = kiln.embedding %w, %i : tensor<4x6xf32>, tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{normalises 3 of 2 dimensions}}
  %0 = kiln.layer_norm %x {rank = 3 : i64, epsilon = 0.0 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has epsilon -1, which is negative}}
  %0 = kiln.layer_norm %x {rank = 1 : i64, epsilon = -1.0 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{has sizes 6 and 4 in dimension 0 of the input and weight}}
  %0 = kiln.layer_norm %x weight %w : tensor<4xf32> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %w: tensor<6xf64>) {
  // expected-error @+1 {{has a weight of f64 beside an input of f32}}
  %0 = kiln.rms_norm %x weight %w : tensor<6xf64> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{divides 6 channels into 4 groups}}
  %0 = kiln.group_norm %x {groups = 4 : i64, epsilon = 0.0 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<6xf32>) {
  // expected-error @+1 {{needs [N, C, ...], has rank 1}}
  %0 = kiln.group_norm %x {groups = 4 : i64, epsilon = 0.0 : f64} : tensor<6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{has sizes 6 and 4 in dimension 0 of the input and mean}}
  %0 = kiln.batch_norm %x mean %m : tensor<4xf32> variance %m : tensor<4xf32> {epsilon = 0.0 : f64} : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has axis 2 out of range for rank 2}}
  %0 = kiln.softmax %x axis = 2 : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{needs class numbers in i64, has i32}}
  %0 = kiln.cross_entropy mean %x, %t : tensor<4x6xf32>, tensor<4xi32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %t: tensor<4xi64>) {
  // expected-error @+1 {{has label_smoothing 2 outside of [0, 1]}}
  %0 = kiln.cross_entropy mean %x, %t {label_smoothing = 2.0 : f64} : tensor<4x6xf32>, tensor<4xi64>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %t: tensor<6xi64>) {
  // expected-error @+1 {{has sizes 4 and 6 in dimension 0 of logits without their classes, and target}}
  %0 = kiln.cross_entropy mean %x, %t : tensor<4x6xf32>, tensor<6xi64>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>, %k: tensor<2xi64>) {
  // expected-error @+1 {{has p 1.5 outside of [0, 1]}}
  %0 = kiln.dropout %x key %k p = 1.5 : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi64>) {
  // expected-error @+1 {{is not defined on i64}}
  %0 = kiln.mean %x dims = [0] : tensor<4xi64>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{repeats dimension 0 in 'dims'}}
  %0 = kiln.var %x dims = [0, 0] : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{needs [N, C, ...] with spatial dimensions, has rank 2}}
  %0 = kiln.interpolate %x sizes = [2] : tensor<4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has 2 entries in 'sizes' where 1 are needed}}
  %0 = kiln.interpolate %x sizes = [2, 2] : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has 0 in 'sizes', which is below 1}}
  %0 = kiln.interpolate %x sizes = [0] : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has padding 2 of more than half of its window 3}}
  %0 = kiln.max_pool %x window = [3] strides = [1] padding = [2] dilation = [1] : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has a window of 9 over a padded size of 8}}
  %0 = kiln.max_pool %x window = [9] strides = [1] padding = [0] dilation = [1] : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.max_pool %x window = [2] strides = [1] padding = [0] dilation = [1] : tensor<2x3x8xi1>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xi32>) {
  // expected-error @+1 {{is not defined on i32}}
  %0 = kiln.avg_pool %x window = [2] strides = [1] padding = [0] : tensor<2x3x8xi32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has divisor_override 0}}
  %0 = kiln.avg_pool %x window = [2] strides = [1] padding = [0] {divisor_override = 0 : i64} : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{has 2 entries in 'sizes' where 1 are needed}}
  %0 = kiln.adaptive_avg_pool %x sizes = [1, 1] : tensor<2x3x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{needs [B, H, S, D], has rank 3}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf16>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{mixes f32 and f16; convert first}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf16>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xi8>, %k: tensor<2x2x6x8xi8>, %v: tensor<2x2x6x3xi8>) {
  // expected-error @+1 {{is not defined on i8}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xi8>, tensor<2x2x6x8xi8>, tensor<2x2x6x3xi8>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<3x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{has sizes 2 and 3 of the batch}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<3x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x4x6x3xf32>) {
  // expected-error @+1 {{has sizes 2 and 4 of key and value heads}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x4x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x3x6x8xf32>, %v: tensor<2x3x6x3xf32>) {
  // expected-error @+1 {{has 4 query heads for 3 key heads}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x3x6x8xf32>, tensor<2x3x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x7x3xf32>) {
  // expected-error @+1 {{has sizes 6 and 7 of keys and values}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x7x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x9xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{has sizes 8 and 9 of query and key features}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x9xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %b: tensor<1x1x1x1x1xf32>) {
  // expected-error @+1 {{has a bias of rank 5}}
  %0 = kiln.attention %q, %k, %v bias %b : tensor<1x1x1x1x1xf32> : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %b: tensor<5x5xf32>) {
  // expected-error @+1 {{has a bias of size 5 for scores of size 6}}
  %0 = kiln.attention %q, %k, %v bias %b : tensor<5x5xf32> : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %l: tensor<2xf32>) {
  // expected-error @+1 {{needs integers as query_lengths, has f32}}
  %0 = kiln.attention %q, %k, %v lengths %l : tensor<2xf32> : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %l: tensor<3xi64>) {
  // expected-error @+1 {{has sizes 2 and 3 in dimension 0 of the batch and key_lengths}}
  %0 = kiln.attention %q, %k, %v key_lengths %l : tensor<3xi64> : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{needs dropout_p in [0, 1) and a key where it is not 0; has 0.5}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> {dropout_p = 0.5 : f64}
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{has score arguments (tensor<f64>) where (tensor<f32>, tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>) is needed}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> score { ^bb0(%s: tensor<f64>): kiln.yield %s : tensor<f64> }
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{has mask arguments (tensor<i64>) where (tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>) is needed}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> mask { ^bb0(%b: tensor<i64>): kiln.yield %b : tensor<i64> }
  return
}

// -----

func.func @f(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>) {
  // expected-error @+1 {{yields (tensor<i64>) where (tensor<i1>) is needed}}
  %0 = kiln.attention %q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32> mask { ^bb0(%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>): kiln.yield %b : tensor<i64> }
  return
}

// -----

// CASE: matmul of sizes that may be 1
func.func @f(%x: tensor<?x2x3xf32>, %y: tensor<?x3x4xf32>, %z: tensor<?x?x8xf32>) -> (tensor<?x2x4xf32>, tensor<?x?x5xf32>) {
  %one = kiln.sym @s0 {max = 1 : i64}
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%one, 2, 3] : tensor<?x2x3xf32>
  kiln.bind_shape %y, [%t, 3, 4] : tensor<?x3x4xf32>
  kiln.bind_shape %z, [%t, %t, 8] : tensor<?x?x8xf32>
  %0 = kiln.matmul %x, %y : tensor<?x2x3xf32>, tensor<?x3x4xf32>
  %1 = kiln.max_pool %z window = [3] strides = [2] padding = [1] dilation = [1] ceil_mode : tensor<?x?x8xf32>
  return %0, %1 : tensor<?x2x4xf32>, tensor<?x?x5xf32>
}
