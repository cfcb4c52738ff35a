// Reductions, scans, sorts, contractions, windows, random numbers.

// CASE: reduce
func.func @f(%x: tensor<?x?x3xf32>, %i: tensor<?x2xi1>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xi1>, tensor<i1>, tensor<?x?x3xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  %sum = kiln.reduce sum %x dims = [0, 2] : tensor<?x?x3xf32>
  %prod = kiln.reduce prod %x dims = [0, 2] : tensor<?x?x3xf32>
  %max = kiln.reduce max %x dims = [0, 2] : tensor<?x?x3xf32>
  %min = kiln.reduce min %x dims = [0, 2] : tensor<?x?x3xf32>
  %any = kiln.reduce any %i dims = [1] : tensor<?x2xi1>
  %all = kiln.reduce all %i dims = [0, 1] : tensor<?x2xi1>
  %n = kiln.reduce sum %x dims = [] : tensor<?x?x3xf32>
  return %sum, %prod, %max, %min, %any, %all, %n : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xi1>, tensor<i1>, tensor<?x?x3xf32>
}

// -----

// CASE: extremes of nothing
func.func @f(%x: tensor<3x0xf32>, %i: tensor<2x0xi8>) -> (tensor<3xf32>, tensor<2xi8>) {
  %0 = kiln.reduce max %x dims = [1] maybe_empty : tensor<3x0xf32>
  %1 = kiln.reduce min %i dims = [1] maybe_empty : tensor<2x0xi8>
  return %0, %1 : tensor<3xf32>, tensor<2xi8>
}

// -----

// CASE: arg, cumulative, sort, top_k
func.func @f(%x: tensor<?x?x3xf32>) -> (tensor<?x3xi64>, tensor<?x?xi64>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xi64>, tensor<?x?x3xf32>, tensor<?x?x3xi64>, tensor<?x2x3xf32>, tensor<?x2x3xi64>, tensor<?x?x3xf32>, tensor<?x?x3xi64>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  %0 = kiln.arg_max %x axis = 1 : tensor<?x?x3xf32>
  %1 = kiln.arg_min %x axis = 2 : tensor<?x?x3xf32>
  %sum = kiln.cumulative sum %x axis = 1 : tensor<?x?x3xf32>
  %prod = kiln.cumulative prod %x axis = 1 : tensor<?x?x3xf32>
  %max = kiln.cumulative max %x axis = 1 : tensor<?x?x3xf32>
  %min = kiln.cumulative min %x axis = 1 : tensor<?x?x3xf32>
  %v, %i = kiln.sort %x axis = 0 : tensor<?x?x3xf32>
  %w, %j = kiln.sort %x axis = 1 descending : tensor<?x?x3xf32>
  %a, %b = kiln.top_k %x axis = 1 k = 2 : tensor<?x?x3xf32>
  %c, %d = kiln.top_k %x axis = 2 k = 3 smallest : tensor<?x?x3xf32>
  return %0, %1, %sum, %prod, %max, %min, %v, %i, %w, %j, %a, %b, %c, %d : tensor<?x3xi64>, tensor<?x?xi64>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xf32>, tensor<?x?x3xi64>, tensor<?x?x3xf32>, tensor<?x?x3xi64>, tensor<?x2x3xf32>, tensor<?x2x3xi64>, tensor<?x?x3xf32>, tensor<?x?x3xi64>
}

// -----

// CASE: dot_general
func.func @f(%x: tensor<?x?x3xf32>, %y: tensor<?x3x7xf32>, %h: tensor<2x3xbf16>, %i: tensor<2x3xi8>) -> (tensor<?x?x7xf32>, tensor<?x7xf32>, tensor<?x?x3x?x3x7xf32>, tensor<2x2xf32>, tensor<2x2xi32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  kiln.bind_shape %y, [%s, 3, 7] : tensor<?x3x7xf32>
  %0 = kiln.dot_general %x, %y batch = [0] x [0] contract = [2] x [1] : tensor<?x?x3xf32>, tensor<?x3x7xf32>
  %1 = kiln.dot_general %x, %y batch = [] x [] contract = [2, 0] x [1, 0] : tensor<?x?x3xf32>, tensor<?x3x7xf32>
  %2 = kiln.dot_general %x, %y batch = [] x [] contract = [] x [] : tensor<?x?x3xf32>, tensor<?x3x7xf32>
  %3 = kiln.dot_general %h, %h batch = [] x [] contract = [1] x [1] : tensor<2x3xbf16>, tensor<2x3xbf16> to f32
  %4 = kiln.dot_general %i, %i batch = [] x [] contract = [1] x [1] : tensor<2x3xi8>, tensor<2x3xi8> to i32
  return %0, %1, %2, %3, %4 : tensor<?x?x7xf32>, tensor<?x7xf32>, tensor<?x?x3x?x3x7xf32>, tensor<2x2xf32>, tensor<2x2xi32>
}

// -----

// CASE: convolution
func.func @f(%x: tensor<?x4x?x9xf32>, %w: tensor<6x2x3x3xf32>, %v: tensor<4x3x2x2xf32>) -> (tensor<?x6x?x3xf32>, tensor<?x3x?x10xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, 4, %t, 9] : tensor<?x4x?x9xf32>
  %0 = kiln.convolution %x, %w strides = [1, 2] pad = [1, 0] x [1, 1] dilation = [1, 2] {groups = 2 : i64} : tensor<?x4x?x9xf32>, tensor<6x2x3x3xf32>
  %1 = kiln.convolution transposed %x, %v strides = [2, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {output_padding = array<i64: 1, 0>} : tensor<?x4x?x9xf32>, tensor<4x3x2x2xf32>
  return %0, %1 : tensor<?x6x?x3xf32>, tensor<?x3x?x10xf32>
}

// -----

// CASE: convolution of one dimension
func.func @f(%x: tensor<2x4x9xi32>, %w: tensor<6x4x3xi32>) -> (tensor<2x6x7xi32>) {
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xi32>, tensor<6x4x3xi32>
  return %0 : tensor<2x6x7xi32>
}

// -----

// CASE: reduce_window
func.func @f(%x: tensor<?x?x3xf32>) -> (tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, %t, 3] : tensor<?x?x3xf32>
  %sum = kiln.reduce_window sum %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 1, 0] dilation = [1, 1, 1] : tensor<?x?x3xf32>
  %prod = kiln.reduce_window prod %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 1, 0] dilation = [1, 1, 1] : tensor<?x?x3xf32>
  %max = kiln.reduce_window max %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 1, 0] dilation = [1, 1, 1] : tensor<?x?x3xf32>
  %min = kiln.reduce_window min %x window = [1, 3, 2] strides = [1, 2, 1] pad = [0, 1, 0] x [0, 1, 0] dilation = [1, 1, 1] : tensor<?x?x3xf32>
  return %sum, %prod, %max, %min : tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>
}

// -----

// CASE: random
func.func @f(%k: tensor<2xi64>, %x: tensor<?xf32>) -> (tensor<?x3xi32>, tensor<3xi64>, tensor<?xf16>, tensor<2xf64>, tensor<?xbf16>, tensor<2xf32>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s] : tensor<?xf32>
  %0 = kiln.random_bits %k sizes = [%s, 3] : i32
  %1 = kiln.random_bits %k sizes = [3] : i64
  %2 = kiln.random_uniform %k sizes = [%s] : f16
  %3 = kiln.random_uniform %k sizes = [2] {low = -1.0 : f64, high = 3.0 : f64} : f64
  %4 = kiln.random_normal %k sizes = [%s] : bf16
  %5 = kiln.random_normal %k sizes = [2] {mean = 1.0 : f64, std = 0.0 : f64} : f32
  return %0, %1, %2, %3, %4, %5 : tensor<?x3xi32>, tensor<3xi64>, tensor<?xf16>, tensor<2xf64>, tensor<?xbf16>, tensor<2xf32>
}

// -----

// CASE: philox
func.func @f(%seed: tensor<?xi64>, %block: tensor<?xi64>) -> (tensor<?xi32>, tensor<?xi32>) {
  %s = kiln.sym @s0
  kiln.bind_shape %seed, [%s] : tensor<?xi64>
  kiln.bind_shape %block, [%s] : tensor<?xi64>
  %0:4 = kiln.philox %seed, %block, %block : tensor<?xi64>
  kiln.advance_rng %s
  return %0#0, %0#3 : tensor<?xi32>, tensor<?xi32>
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has reduction any, which is not defined on f32}}
  %0 = kiln.reduce any %x dims = [0] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{has reduction sum, which is not defined on i1}}
  %0 = kiln.reduce sum %x dims = [0] : tensor<4xi1>
  return
}

// -----

func.func @f(%x: tensor<0xf32>) {
  // expected-error @+1 {{has reduction max over no elements, which needs maybe_empty}}
  %0 = kiln.reduce max %x dims = [0] : tensor<0xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{repeats dimension 0 in 'dims'}}
  %0 = kiln.reduce sum %x dims = [0, 0] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x0xf32>) {
  // expected-error @+1 {{has an axis without elements}}
  %0 = kiln.arg_max %x axis = 1 : tensor<2x0xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has axis 2 out of range for rank 2}}
  %0 = kiln.arg_min %x axis = 2 : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{accumulates i1}}
  %0 = kiln.cumulative sum %x axis = 0 : tensor<4xi1>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has k = 4 for an axis of size 3}}
  %0, %1 = kiln.top_k %x axis = 1 k = 4 : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has k = -1 for an axis of size 3}}
  %0, %1 = kiln.top_k %x axis = 1 k = -1 : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<3xf64>) {
  // expected-error @+1 {{mixes f32 and f64; convert first}}
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [0] : tensor<4x3xf32>, tensor<3xf64>
  return
}

// -----

func.func @f(%x: tensor<3xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.dot_general %x, %x batch = [] x [] contract = [0] x [0] : tensor<3xi1>, tensor<3xi1>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has sizes 4 and 3 in dimension 0 of the contracted dimensions}}
  %0 = kiln.dot_general %x, %x batch = [] x [] contract = [0] x [1] : tensor<4x3xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has sizes 4 and 3 in dimension 0 of the batch}}
  %0 = kiln.dot_general %x, %x batch = [0] x [1] contract = [] x [] : tensor<4x3xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{repeats dimension 0 in 'lhs_batch and lhs_contract'}}
  %0 = kiln.dot_general %x, %x batch = [0] x [0] contract = [0] x [1] : tensor<4x3xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has ranks 0 and 1 of the batch}}
  %0 = kiln.dot_general %x, %x batch = [] x [0] contract = [1] x [1] : tensor<4x3xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{contracts f32 to i32}}
  %0 = kiln.dot_general %x, %x batch = [] x [] contract = [1] x [1] : tensor<4x3xf32>, tensor<4x3xf32> to i32
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %w: tensor<4x3xf32>) {
  // expected-error @+1 {{needs [N, C, ...] with spatial dimensions, has rank 2}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<4x3xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xi1>, %w: tensor<6x4x3xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xi1>, tensor<6x4x3xi1>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf16>) {
  // expected-error @+1 {{mixes f32 and f16; convert first}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<6x4x3xf16>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4xf32>) {
  // expected-error @+1 {{has an input of rank 3 and a weight of rank 2}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<6x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has 2 entries in 'strides' where 1 are needed}}
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has 0 in 'strides', which is below 1}}
  %0 = kiln.convolution %x, %w strides = [0] pad = [0] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has -1 in 'pad_low', which is below 0}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [-1] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has output_padding without being transposed}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] {output_padding = array<i64: 1>} : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has 0 groups}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] {groups = 0 : i64} : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has sizes 4 and 8 of input channels and weight times groups}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] {groups = 2 : i64} : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<5x2x3xf32>) {
  // expected-error @+1 {{divides 5 channels into 2 groups}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] {groups = 2 : i64} : tensor<2x4x9xf32>, tensor<5x2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<5x2x3xf32>) {
  // expected-error @+1 {{has sizes 4 and 5 of input channels and weight}}
  %0 = kiln.convolution transposed %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<2x4x9xf32>, tensor<5x2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<4x2x3xf32>) {
  // expected-error @+1 {{divides 4 channels into 3 groups}}
  %0 = kiln.convolution transposed %x, %w strides = [1] pad = [0] x [0] dilation = [1] {groups = 3 : i64} : tensor<2x4x9xf32>, tensor<4x2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x1xf32>, %w: tensor<4x2x1xf32>) {
  // expected-error @+1 {{gives 0 elements in spatial dimension 0}}
  %0 = kiln.convolution transposed %x, %w strides = [1] pad = [1] x [0] dilation = [1] : tensor<2x4x1xf32>, tensor<4x2x1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9xf32>, %w: tensor<6x4x3xf32>) {
  // expected-error @+1 {{has a window of 11 over a padded size of 9}}
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [5] : tensor<2x4x9xf32>, tensor<6x4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has 1 entries in 'window' where 2 are needed}}
  %0 = kiln.reduce_window sum %x window = [1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has a window of 4 over a padded size of 3}}
  %0 = kiln.reduce_window sum %x window = [1, 4] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.reduce_window max %x window = [1] strides = [1] pad = [0] x [0] dilation = [1] : tensor<4xi1>
  return
}

// -----

// CASE: winograd
func.func @f(%x: tensor<?x6x10x?xf32>, %y: tensor<16x2x1x3x5xf64>) -> (tensor<36x?x1x2x?xf32>, tensor<?x1x4x2x4x?xf32>, tensor<2x1x2x3x2x5xf64>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, 6, 10, %t] : tensor<?x6x10x?xf32>
  %0 = kiln.winograd_input %x tile = 4 : tensor<?x6x10x?xf32>
  %1 = kiln.winograd_output %0 tile = 4 : tensor<36x?x1x2x?xf32>
  %2 = kiln.winograd_output %y tile = 2 : tensor<16x2x1x3x5xf64>
  return %0, %1, %2 : tensor<36x?x1x2x?xf32>, tensor<?x1x4x2x4x?xf32>, tensor<2x1x2x3x2x5xf64>
}

// -----

func.func @f(%x: tensor<4x7x8x3xbf16>, %g: tensor<4x3x8x5xbf16>) -> tensor<2x5x3x2x3xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 2] strides = [2, 1] pad = [0, 0] x [0, 1] dilation = [1, 1] {splits = 2 : i64} : tensor<4x7x8x3xbf16>, tensor<4x3x8x5xbf16>
  return %0 : tensor<2x5x3x2x3xf32>
}

// -----

func.func @f(%x: tensor<4x7x8x3xf64>) {
  // expected-error @+1 {{takes two tensors of one float dtype of at most 32 bits, has f64 and f64}}
  %0 = kiln.convolution_weight_gradient %x, %x window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x7x8x3xf64>, tensor<4x7x8x3xf64>
  return
}

// -----

func.func @f(%x: tensor<4x7x8x3xf32>) {
  // expected-error @+1 {{has sizes 5 and 7 of windows and gradient along dimension 1}}
  %0 = kiln.convolution_weight_gradient %x, %x window = [3, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x7x8x3xf32>, tensor<4x7x8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x7x8x3xf32>) {
  // expected-error @+1 {{has 4 images, which 3 splits do not divide}}
  %0 = kiln.convolution_weight_gradient %x, %x window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {splits = 3 : i64} : tensor<4x7x8x3xf32>, tensor<4x7x8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x7x8x3xf16>, %g: tensor<4x3x8x3xf16>) -> tensor<2x3x2x3xf32> {
  %0 = kiln.convolution_weight_gradient depthwise %x, %g window = [3, 2] strides = [2, 1] pad = [0, 0] x [0, 1] dilation = [1, 1] {splits = 2 : i64} : tensor<4x7x8x3xf16>, tensor<4x3x8x3xf16>
  return %0 : tensor<2x3x2x3xf32>
}

// -----

func.func @f(%x: tensor<4x7x8x3xf32>, %g: tensor<4x7x8x4xf32>) {
  // expected-error @+1 {{has sizes 3 and 4 of input and gradient, their channels}}
  %0 = kiln.convolution_weight_gradient depthwise %x, %g window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x7x8x3xf32>, tensor<4x7x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x7x8x6xf16>, %g: tensor<4x3x8x4xf16>) -> tensor<2x2x2x3x2x3xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 2] strides = [2, 1] pad = [0, 0] x [0, 1] dilation = [1, 1] {groups = 2 : i64, splits = 2 : i64} : tensor<4x7x8x6xf16>, tensor<4x3x8x4xf16>
  return %0 : tensor<2x2x2x3x2x3xf32>
}

// -----

func.func @f(%x: tensor<4x7x8x6xf32>, %g: tensor<4x7x8x4xf32>) {
  // expected-error @+1 {{has 4 filters, which 3 groups do not divide}}
  %0 = kiln.convolution_weight_gradient %x, %g window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 3 : i64} : tensor<4x7x8x6xf32>, tensor<4x7x8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x7x8x6xf32>) {
  // expected-error @+1 {{is depthwise and has 2 groups}}
  %0 = kiln.convolution_weight_gradient depthwise %x, %x window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<4x7x8x6xf32>, tensor<4x7x8x6xf32>
  return
}

// -----

func.func @f(%x: tensor<4x7x3xf32>) {
  // expected-error @+1 {{takes rank 4, has rank 3 and 3}}
  %0 = kiln.convolution_weight_gradient %x, %x window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<4x7x3xf32>, tensor<4x7x3xf32>
  return
}

// -----

func.func @f(%x: tensor<1x7x6x1xf32>) {
  // expected-error @+1 {{has 7 pixels, which are not 2 more than tiles of 4}}
  %0 = kiln.winograd_input %x tile = 4 : tensor<1x7x6x1xf32>
  return
}

// -----

func.func @f(%x: tensor<1x5x5x1xf32>) {
  // expected-error @+1 {{has tile 3; tiles are of 2 or 4 results}}
  %0 = kiln.winograd_input %x tile = 3 : tensor<1x5x5x1xf32>
  return
}

// -----

func.func @f(%x: tensor<36x1x1x1x1xi32>) {
  // expected-error @+1 {{is not defined on i32}}
  %0 = kiln.winograd_output %x tile = 4 : tensor<36x1x1x1x1xi32>
  return
}

// -----

func.func @f(%x: tensor<16x1x1x1x1xf32>) {
  // expected-error @+1 {{has 16 elements, not 36}}
  %0 = kiln.winograd_output %x tile = 4 : tensor<16x1x1x1x1xf32>
  return
}

// -----

func.func @f(%x: tensor<1x6x6xf32>) {
  // expected-error @+1 {{takes rank 4, has rank 3}}
  %0 = kiln.winograd_input %x tile = 4 : tensor<1x6x6xf32>
  return
}

// -----

func.func @f(%k: tensor<2xi32>) {
  // expected-error @+1 {{has a seed of dtype i32, not i64}}
  %0:4 = kiln.philox %k, %k, %k : tensor<2xi32>
  return
}

// -----

func.func @f(%k: tensor<2xi64>) {
  // expected-error @+1 {{has dtype i16, not i32 or i64}}
  %0 = kiln.random_bits %k sizes = [3] : i16
  return
}

// -----

func.func @f(%k: tensor<2xi64>) {
  // expected-error @+1 {{has dtype i32, not f64, f32, f16 or bf16}}
  %0 = kiln.random_uniform %k sizes = [3] : i32
  return
}

// -----

func.func @f(%k: tensor<2xi64>) {
  // expected-error @+1 {{has the empty range [1, 1)}}
  %0 = kiln.random_uniform %k sizes = [3] {low = 1.0 : f64} : f32
  return
}

// -----

func.func @f(%k: tensor<2xi64>) {
  // expected-error @+1 {{has a standard deviation of -1}}
  %0 = kiln.random_normal %k sizes = [3] {std = -1.0 : f64} : f32
  return
}

// -----

func.func @f(%k: tensor<3xi64>) {
  // expected-error @+1 {{must be tensor<2xi64> (seed, offset)}}
  %0 = "kiln.random_bits"(%k) {sizes = array<i64: 3>, dtype = i32} : (tensor<3xi64>) -> tensor<3xi32>
  return
}
