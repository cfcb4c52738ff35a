// Functions compiled to machine code against the interpreter.

// CASE: groups of several channels
func.func @f(%x: tensor<2x6x9xf32>, %w: tensor<4x3x3xf32>) -> tensor<2x4x7xf32> {
  %0 = kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] {groups = 2 : i64} : tensor<2x6x9xf32>, tensor<4x3x3xf32>
  return %0 : tensor<2x4x7xf32>
}

// -----

// CASE: groups of one channel with several filters each, and an epilogue
func.func @f(%x: tensor<2x3x6x5xf16>, %w: tensor<6x1x3x2xf16>) -> tensor<2x6x3x4xf16> {
  %0 = kiln.convolution %x, %w strides = [2, 1] pad = [1, 0] x [1, 0] dilation = [1, 1] {groups = 3 : i64} : tensor<2x3x6x5xf16>, tensor<6x1x3x2xf16>
  %1 = kiln.tanh %0 : tensor<2x6x3x4xf16>
  return %1 : tensor<2x6x3x4xf16>
}

// -----

// CASE: transposed, with groups, over a dynamic size
func.func @f(%x: tensor<2x4x?xf32>, %w: tensor<4x3x3xf32>) -> tensor<2x6x?xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [2, 4, %n] : tensor<2x4x?xf32>
  %0 = kiln.convolution transposed %x, %w strides = [2] pad = [1] x [1] dilation = [1] {groups = 2 : i64} : tensor<2x4x?xf32>, tensor<4x3x3xf32>
  return %0 : tensor<2x6x?xf32>
}

// -----

// CASE: groups of four channels in bf16, joined to the width of a tile, with an epilogue
func.func @f(%x: tensor<2x128x9x10xbf16>, %w: tensor<128x4x3x3xbf16>, %b: tensor<128xbf16>) -> tensor<2x128x9x10xbf16> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 32 : i64} : tensor<2x128x9x10xbf16>, tensor<128x4x3x3xbf16>
  %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [2, 128, 9, 10] : tensor<128xbf16>
  %2 = kiln.add %0, %1 : tensor<2x128x9x10xbf16>
  %3 = kiln.tanh %2 : tensor<2x128x9x10xbf16>
  return %3 : tensor<2x128x9x10xbf16>
}

// -----

// CASE: groups of 24 channels and 40 filters in f16, with strides, of a dynamic batch
func.func @f(%x: tensor<?x96x11x13xf16>, %w: tensor<160x24x3x3xf16>) -> tensor<?x160x6x6xf16> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 96, 11, 13] : tensor<?x96x11x13xf16>
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 0] x [1, 0] dilation = [1, 1] {groups = 4 : i64} : tensor<?x96x11x13xf16>, tensor<160x24x3x3xf16>
  return %0 : tensor<?x160x6x6xf16>
}

// -----

// CASE: groups of 64 channels in bf16, dilated, between convolutions of one group
func.func @f(%x: tensor<1x32x10x9xbf16>, %u: tensor<192x32x1x1xbf16>, %w: tensor<192x64x3x3xbf16>, %v: tensor<32x192x1x1xbf16>) -> tensor<1x32x10x9xbf16> {
  %0 = kiln.convolution %x, %u strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x32x10x9xbf16>, tensor<192x32x1x1xbf16>
  %1 = kiln.convolution %0, %w strides = [1, 1] pad = [2, 2] x [2, 2] dilation = [2, 2] {groups = 3 : i64} : tensor<1x192x10x9xbf16>, tensor<192x64x3x3xbf16>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<1x192x10x9xbf16>, tensor<32x192x1x1xbf16>
  return %2 : tensor<1x32x10x9xbf16>
}

// -----

// CASE: few channels and a mutable weight in bf16: blocks of pixels become channels
func.func @f(%x: tensor<2x3x21x22xbf16>, %w: tensor<64x3x7x7xbf16>) -> tensor<2x64x11x11xbf16> {
  %0 = kiln.convolution %x, %w strides = [2, 2] pad = [3, 3] x [3, 3] dilation = [1, 1] : tensor<2x3x21x22xbf16>, tensor<64x3x7x7xbf16>
  return %0 : tensor<2x64x11x11xbf16>
}

// -----

// CASE: rows of a slice, of bf16: they do not merge, so that all but one are a batch of the left operand
func.func @f(%x: tensor<3x70x64xbf16>, %w: tensor<72x64xbf16>) -> tensor<3x69x72xbf16> {
  %0 = kiln.slice %x offsets = [0, 1, 0] sizes = [3, 69, 64] strides = [1, 1, 1] : tensor<3x70x64xbf16>
  %1 = kiln.dot_general %0, %w batch = [] x [] contract = [2] x [1] : tensor<3x69x64xbf16>, tensor<72x64xbf16>
  return %1 : tensor<3x69x72xbf16>
}

// -----

// CASE: a linear layer along the tokens of bf16 images, whose left operand is M-major
func.func @f(%x: tensor<3x64x200xbf16>, %w: tensor<80x64xbf16>, %b: tensor<80xbf16>) -> tensor<3x200x80xbf16> {
  %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<3x64x200xbf16>
  %1 = kiln.linear %0, %w bias %b : tensor<80xbf16> : tensor<3x200x64xbf16>, tensor<80x64xbf16>
  %2 = kiln.tanh %1 : tensor<3x200x80xbf16>
  return %2 : tensor<3x200x80xbf16>
}

// -----

// CASE: integer powers
func.func @f(%a: tensor<17xi32>, %b: tensor<17xi8>, %u: tensor<5xui8>, %l: tensor<9xi64>) -> (tensor<17xi32>, tensor<17xi8>, tensor<5xui8>, tensor<9xi64>, tensor<17xi8>) {
  %n = kiln.constant dense<[-3, -2, -1, 0, 1, 2, 3, 7, -128, 127, 5, 6, 4, 8, 9, 30, 31]> : tensor<17xi8>
  %m = kiln.convert %n : tensor<17xi8> to i32
  %0 = kiln.pow %m, %a : tensor<17xi32>
  %1 = kiln.pow %b, %n : tensor<17xi8>
  %2 = kiln.pow %u, %u : tensor<5xui8>
  %e = kiln.splat [9], 63 : i64
  %3 = kiln.pow %l, %e : tensor<9xi64>
  %4 = kiln.pow %n, %b : tensor<17xi8>
  return %0, %1, %2, %3, %4 : tensor<17xi32>, tensor<17xi8>, tensor<5xui8>, tensor<9xi64>, tensor<17xi8>
}

// -----

// CASE: dynamic padding
func.func @f(%y: tensor<2x?xf32>, %z: tensor<?xf32>) -> tensor<2x?xf32> {
  %n = kiln.sym @n
  %m = kiln.sym @m
  kiln.bind_shape %y, [2, %n] : tensor<2x?xf32>
  kiln.bind_shape %z, [%m] : tensor<?xf32>
  %four = kiln.splat [], 4.0 : f32
  %0 = kiln.pad %y, %four low = [0, %m] high = [0, 2] : tensor<2x?xf32>, tensor<f32>
  return %0 : tensor<2x?xf32>
}

// -----

// CASE: f64 to 16 bits is rounded once
func.func @f(%x: tensor<17xf64>) -> (tensor<17xf16>, tensor<17xbf16>) {
  %0 = kiln.convert %x : tensor<17xf64> to f16
  %1 = kiln.convert %x : tensor<17xf64> to bf16
  return %0, %1 : tensor<17xf16>, tensor<17xbf16>
}

// -----

// CASE: Fourier transforms of small factors, on a GPU one kernel each
func.func @f(%x: tensor<3x1001xf32>, %y: tensor<2x360xf32>, %z: tensor<2x360xf32>, %u: tensor<5x2048xf64>, %v: tensor<5x2048xf64>, %w: tensor<2x2x129xf32>) -> (tensor<3x501xf32>, tensor<3x501xf32>, tensor<2x360xf32>, tensor<2x360xf32>, tensor<5x2048xf64>, tensor<2x2x256xf32>, tensor<2x2x257xf32>) {
  %0, %1 = kiln.fft r2c %x length = 1001 : tensor<3x1001xf32>
  %2, %3 = kiln.fft c2c %y, %z length = 360 inverse : tensor<2x360xf32>, tensor<2x360xf32>
  %4, %5 = kiln.fft c2c %u, %v length = 2048 : tensor<5x2048xf64>, tensor<5x2048xf64>
  %6 = kiln.fft c2r %w, %w length = 256 inverse : tensor<2x2x129xf32>, tensor<2x2x129xf32>
  %7 = kiln.fft c2r %w, %w length = 257 : tensor<2x2x129xf32>, tensor<2x2x129xf32>
  return %0, %1, %2, %3, %5, %6, %7 : tensor<3x501xf32>, tensor<3x501xf32>, tensor<2x360xf32>, tensor<2x360xf32>, tensor<5x2048xf64>, tensor<2x2x256xf32>, tensor<2x2x257xf32>
}

// -----

// CASE: Fourier transforms of large primes, and of columns of dynamic count
func.func @f(%x: tensor<2x521xf32>, %y: tensor<34x?xf32>, %z: tensor<3x16384xf32>) -> (tensor<2x261xf32>, tensor<2x261xf32>, tensor<?x34xf32>, tensor<?x34xf32>, tensor<?x32xf32>, tensor<3x8193xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %y, [34, %n] : tensor<34x?xf32>
  %0, %1 = kiln.fft r2c %x length = 521 : tensor<2x521xf32>
  %2 = kiln.transpose %y permutation = [1, 0] : tensor<34x?xf32>
  %3, %4 = kiln.fft c2c %2, %2 length = 34 : tensor<?x34xf32>, tensor<?x34xf32>
  %5 = kiln.slice %2 offsets = [0, 3] sizes = [%n, 17] strides = [1, 1] : tensor<?x34xf32>
  %6 = kiln.fft c2r %5, %5 length = 32 inverse : tensor<?x17xf32>, tensor<?x17xf32>
  %7, %8 = kiln.fft r2c %z length = 16384 : tensor<3x16384xf32>
  return %0, %1, %3, %4, %6, %7 : tensor<2x261xf32>, tensor<2x261xf32>, tensor<?x34xf32>, tensor<?x34xf32>, tensor<?x32xf32>, tensor<3x8193xf32>
}

// -----

// CASE: Fourier transforms of complex arguments and results
func.func @f(%z: tensor<3x20x2xf32>, %x: tensor<5x12xf64>) -> (tensor<3x20x2xf32>, tensor<5x7x2xf64>, tensor<3x38xf32>) {
  %a = kiln.slice %z offsets = [0, 0, 0] sizes = [3, 20, 1] strides = [1, 1, 1] : tensor<3x20x2xf32>
  %re = kiln.reshape %a sizes = [3, 20] : tensor<3x20x1xf32>
  %b = kiln.slice %z offsets = [0, 0, 1] sizes = [3, 20, 1] strides = [1, 1, 1] : tensor<3x20x2xf32>
  %im = kiln.reshape %b sizes = [3, 20] : tensor<3x20x1xf32>
  %0:2 = kiln.fft c2c %re, %im length = 20 : tensor<3x20xf32>, tensor<3x20xf32>
  %c = kiln.reshape %0#0 sizes = [3, 20, 1] : tensor<3x20xf32>
  %d = kiln.reshape %0#1 sizes = [3, 20, 1] : tensor<3x20xf32>
  %1 = kiln.concat %c, %d axis = 2 : tensor<3x20x1xf32>, tensor<3x20x1xf32>
  %2 = kiln.fft r2c %x length = 12 inverse interleaved_result : tensor<5x12xf64>
  %3 = kiln.fft c2r %z length = 38 inverse interleaved_input : tensor<3x20x2xf32>
  return %1, %2, %3 : tensor<3x20x2xf32>, tensor<5x7x2xf64>, tensor<3x38xf32>
}

// -----

// CASE: library ops on dynamic sizes, with unused results
func.func @f(%x: tensor<?x17xbf16>, %i: tensor<3xi64>, %key: tensor<2xi64>) -> (tensor<?x17xi64>, tensor<?x2xbf16>, tensor<?x17xbf16>, tensor<?x17xbf16>, tensor<?x17xf16>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 17] : tensor<?x17xbf16>
  %0, %1 = kiln.sort %x axis = 0 : tensor<?x17xbf16>
  %2, %3 = kiln.top_k %x axis = 1 k = 2 : tensor<?x17xbf16>
  %4 = kiln.gather %x[%i] dims = [0] : tensor<?x17xbf16>[tensor<3xi64>]
  %5 = kiln.scatter add %x[%i], %4 dims = [0] : tensor<?x17xbf16>[tensor<3xi64>], tensor<3x17xbf16>
  %6 = kiln.cumulative sum %x axis = 0 : tensor<?x17xbf16>
  %7 = kiln.random_normal %key sizes = [%n, 17] : f16
  return %1, %2, %5, %6, %7 : tensor<?x17xi64>, tensor<?x2xbf16>, tensor<?x17xbf16>, tensor<?x17xbf16>, tensor<?x17xf16>
}

// -----

// CASE: written into a padded tensor, and as a result of its own
func.func @f(%x: tensor<2x5x14x15xf32>, %w: tensor<16x5x3x3xf32>, %v: tensor<16x16x3x3xf32>, %b: tensor<16xf32>) -> tensor<2x16x12x13xf32> {
  %bias = kiln.broadcast_in_dim %b dims = [1] sizes = [2, 16, 12, 13] : tensor<16xf32>
  %zero = kiln.splat [2, 16, 12, 13], 0.0 : f32
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x5x14x15xf32>, tensor<16x5x3x3xf32>
  %1 = kiln.add %0, %bias : tensor<2x16x12x13xf32>
  %2 = kiln.max %1, %zero : tensor<2x16x12x13xf32>
  %3 = kiln.convolution %2, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x16x12x13xf32>, tensor<16x16x3x3xf32>
  %4 = kiln.add %3, %2 : tensor<2x16x12x13xf32>
  return %4 : tensor<2x16x12x13xf32>
}

// -----

// CASE: the same, depthwise with long rows, dynamic batch
func.func @f(%x: tensor<?x8x5x33xf32>, %w: tensor<16x8x1x1xf32>, %v: tensor<16x1x3x3xf32>) -> tensor<?x16x5x33xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 8, 5, 33] : tensor<?x8x5x33xf32>
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x8x5x33xf32>, tensor<16x8x1x1xf32>
  %1 = kiln.tanh %0 : tensor<?x16x5x33xf32>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 16 : i64} : tensor<?x16x5x33xf32>, tensor<16x1x3x3xf32>
  return %2 : tensor<?x16x5x33xf32>
}

// -----

// CASE: a slice of a concatenation whose rows end within 16 bytes
func.func @f(%x: tensor<1x40x9x12xbf16>, %w: tensor<10x10x3x3xbf16>) -> tensor<1x40x9x12xbf16> {
  %a = kiln.slice %x offsets = [0, 0, 0, 0] sizes = [1, 10, 9, 12] strides = [1, 1, 1, 1] : tensor<1x40x9x12xbf16>
  %b = kiln.slice %x offsets = [0, 10, 0, 0] sizes = [1, 30, 9, 12] strides = [1, 1, 1, 1] : tensor<1x40x9x12xbf16>
  %0 = kiln.convolution %a, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 1 : i64} : tensor<1x10x9x12xbf16>, tensor<10x10x3x3xbf16>
  %1 = kiln.concat %0, %b axis = 1 : tensor<1x10x9x12xbf16>, tensor<1x30x9x12xbf16>
  return %1 : tensor<1x40x9x12xbf16>
}

// -----

// CASE: slices of a concatenation inserted in place
func.func @f(%x: tensor<2x8x6x7xf32>, %y: tensor<2x3x6x7xf32>, %w: tensor<16x8x1x1xf32>, %v: tensor<8x8x3x3xf32>) -> tensor<2x30x6x7xf32> {
  %0 = kiln.exp %y : tensor<2x3x6x7xf32>
  %1 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x8x6x7xf32>, tensor<16x8x1x1xf32>
  %2 = kiln.tanh %1 : tensor<2x16x6x7xf32>
  %3 = kiln.convolution %x, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x8x6x7xf32>, tensor<8x8x3x3xf32>
  %4 = kiln.concat %0, %2, %3, %y axis = 1 : tensor<2x3x6x7xf32>, tensor<2x16x6x7xf32>, tensor<2x8x6x7xf32>, tensor<2x3x6x7xf32>
  return %4 : tensor<2x30x6x7xf32>
}

// -----

// CASE: padded, and a result in bf16 as well
func.func @f(%x: tensor<?x4xbf16>) -> (tensor<?x2x4xbf16>, tensor<?x2x4xbf16>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xbf16>
  %0 = kiln.reshape %x sizes = [%n, 1, 4] : tensor<?x4xbf16>
  %w = kiln.splat [2, 1, 2], 2.0 : bf16
  %1 = kiln.convolution %0, %w strides = [1] pad = [1] x [0] dilation = [1] : tensor<?x1x4xbf16>, tensor<2x1x2xbf16>
  %2 = kiln.reduce_window max %1 window = [2, 2, 2] strides = [1, 1, 1] pad = [0, 0, 0] x [1, 1, 1] dilation = [1, 1, 1] : tensor<?x2x4xbf16>
  return %2, %1 : tensor<?x2x4xbf16>, tensor<?x2x4xbf16>
}

// -----

// CASE: slices of an inception block, dynamic batch, one with other users
func.func @f(%x: tensor<?x16x9x9xf32>, %w: tensor<8x16x1x1xf32>, %v: tensor<12x8x3x3xf32>, %u: tensor<5x16x1x1xf32>) -> (tensor<?x41x9x9xf32>, tensor<?x8x9x9xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 16, 9, 9] : tensor<?x16x9x9xf32>
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x16x9x9xf32>, tensor<8x16x1x1xf32>
  %z = kiln.splat [%n, 8, 9, 9], 0.0 : f32
  %1 = kiln.max %0, %z : tensor<?x8x9x9xf32>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<?x8x9x9xf32>, tensor<12x8x3x3xf32>
  %3 = kiln.tanh %2 : tensor<?x12x9x9xf32>
  %4 = kiln.convolution %x, %u strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<?x16x9x9xf32>, tensor<5x16x1x1xf32>
  %5 = kiln.exp %x : tensor<?x16x9x9xf32>
  %6 = kiln.concat %3, %5, %1, %4 axis = 1 : tensor<?x12x9x9xf32>, tensor<?x16x9x9xf32>, tensor<?x8x9x9xf32>, tensor<?x5x9x9xf32>
  %7 = kiln.neg %1 : tensor<?x8x9x9xf32>
  return %6, %7 : tensor<?x41x9x9xf32>, tensor<?x8x9x9xf32>
}

// -----

// CASE: a dense block in f16
func.func @f(%x: tensor<2x8x6x7xf16>, %w: tensor<4x8x3x3xf16>, %v: tensor<4x12x3x3xf16>, %u: tensor<4x16x3x3xf16>) -> tensor<2x20x6x7xf16> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x8x6x7xf16>, tensor<4x8x3x3xf16>
  %1 = kiln.concat %x, %0 axis = 1 : tensor<2x8x6x7xf16>, tensor<2x4x6x7xf16>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x12x6x7xf16>, tensor<4x12x3x3xf16>
  %3 = kiln.concat %x, %0, %2 axis = 1 : tensor<2x8x6x7xf16>, tensor<2x4x6x7xf16>, tensor<2x4x6x7xf16>
  %4 = kiln.convolution %3, %u strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x16x6x7xf16>, tensor<4x16x3x3xf16>
  %5 = kiln.concat %x, %0, %2, %4 axis = 1 : tensor<2x8x6x7xf16>, tensor<2x4x6x7xf16>, tensor<2x4x6x7xf16>, tensor<2x4x6x7xf16>
  return %5 : tensor<2x20x6x7xf16>
}

// -----

// CASE: a chain of pools that are all concatenated, dynamic batch
func.func @f(%x: tensor<?x5x9x8xf32>, %w: tensor<8x5x3x3xf32>, %v: tensor<8x8x3x3xf32>, %u: tensor<4x8x3x3xf32>) -> (tensor<?x20x9x8xf32>, tensor<?x8x9x8xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 5, 9, 8] : tensor<?x5x9x8xf32>
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<?x5x9x8xf32>, tensor<8x5x3x3xf32>
  %1 = kiln.tanh %0 : tensor<?x8x9x8xf32>
  %2 = kiln.convolution %1, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<?x8x9x8xf32>, tensor<8x8x3x3xf32>
  %3 = kiln.convolution %2, %u strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<?x8x9x8xf32>, tensor<4x8x3x3xf32>
  %4 = kiln.concat %3, %1, %2 axis = 1 : tensor<?x4x9x8xf32>, tensor<?x8x9x8xf32>, tensor<?x8x9x8xf32>
  return %4, %2 : tensor<?x20x9x8xf32>, tensor<?x8x9x8xf32>
}

// -----

// CASE: reductions and matmuls of a slice of a dynamic dimension
func.func @f(%x: tensor<?x4xf32>, %w: tensor<4x?xf32>) -> (tensor<4xf32>, tensor<?x4xf32>, tensor<4x4xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xf32>
  kiln.bind_shape %w, [4, %n] : tensor<4x?xf32>
  %two = arith.constant 2 : index
  %half = kiln.sym_expr floordiv %n, %two
  %0 = kiln.slice %x offsets = [0, 0] sizes = [%half, 4] strides = [1, 1] : tensor<?x4xf32>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<?x4xf32>
  %2 = kiln.softmax %0 axis = 0 : tensor<?x4xf32>
  %3 = kiln.slice %w offsets = [0, 0] sizes = [4, %half] strides = [1, 1] : tensor<4x?xf32>
  %4 = kiln.dot_general %3, %0 batch = [] x [] contract = [1] x [0] : tensor<4x?xf32>, tensor<?x4xf32>
  return %1, %2, %4 : tensor<4xf32>, tensor<?x4xf32>, tensor<4x4xf32>
}

// -----

// CASE: concatenated matmuls with epilogues, odd width, either axis
func.func @f(%x: tensor<37x40xf32>, %w: tensor<40x19xf32>, %v: tensor<40x29xf32>, %y: tensor<37x3xf32>) -> (tensor<37x51xf32>, tensor<74x19xf32>) {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<37x40xf32>, tensor<40x19xf32>
  %1 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [0] : tensor<37x40xf32>, tensor<40x29xf32>
  %2 = kiln.tanh %1 : tensor<37x29xf32>
  %3 = kiln.concat %0, %y, %2 axis = 1 : tensor<37x19xf32>, tensor<37x3xf32>, tensor<37x29xf32>
  %4 = kiln.neg %x : tensor<37x40xf32>
  %5 = kiln.dot_general %4, %w batch = [] x [] contract = [1] x [0] : tensor<37x40xf32>, tensor<40x19xf32>
  %6 = kiln.exp %x : tensor<37x40xf32>
  %7 = kiln.dot_general %6, %w batch = [] x [] contract = [1] x [0] : tensor<37x40xf32>, tensor<40x19xf32>
  %8 = kiln.concat %7, %5 axis = 0 : tensor<37x19xf32>, tensor<37x19xf32>
  return %3, %8 : tensor<37x51xf32>, tensor<74x19xf32>
}

// -----

// CASE: concatenated matmuls of 16-bit floats and dynamic sizes
func.func @f(%x: tensor<?x64xbf16>, %w: tensor<64x48xbf16>, %v: tensor<64x?xbf16>) -> tensor<?x?xbf16> {
  %n = kiln.sym @n
  %m = kiln.sym @m
  kiln.bind_shape %x, [%n, 64] : tensor<?x64xbf16>
  kiln.bind_shape %v, [64, %m] : tensor<64x?xbf16>
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<?x64xbf16>, tensor<64x48xbf16>
  %1 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [0] : tensor<?x64xbf16>, tensor<64x?xbf16>
  %2 = kiln.concat %0, %1 axis = 1 : tensor<?x48xbf16>, tensor<?x?xbf16>
  return %2 : tensor<?x?xbf16>
}

// -----

// CASE: concatenated skinny and blocked matmuls
func.func @f(%x: tensor<1x2304xf32>, %w: tensor<2304x40xf32>, %y: tensor<70x2304xf32>) -> tensor<71x40xf32> {
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<1x2304xf32>, tensor<2304x40xf32>
  %1 = kiln.dot_general %y, %w batch = [] x [] contract = [1] x [0] : tensor<70x2304xf32>, tensor<2304x40xf32>
  %2 = kiln.concat %0, %1 axis = 0 : tensor<1x40xf32>, tensor<70x40xf32>
  return %2 : tensor<71x40xf32>
}

// -----

// CASE: batched matmuls concatenated along the batch and the middle axis
func.func @f(%x: tensor<3x5x8xf32>, %w: tensor<3x8x7xf32>) -> (tensor<6x5x7xf32>, tensor<3x10x7xf32>) {
  %0 = kiln.dot_general %x, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x5x8xf32>, tensor<3x8x7xf32>
  %1 = kiln.neg %x : tensor<3x5x8xf32>
  %2 = kiln.dot_general %1, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x5x8xf32>, tensor<3x8x7xf32>
  %3 = kiln.concat %0, %2 axis = 0 : tensor<3x5x7xf32>, tensor<3x5x7xf32>
  %4 = kiln.tanh %x : tensor<3x5x8xf32>
  %5 = kiln.dot_general %4, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x5x8xf32>, tensor<3x8x7xf32>
  %6 = kiln.exp %x : tensor<3x5x8xf32>
  %7 = kiln.dot_general %6, %w batch = [0] x [0] contract = [2] x [1] : tensor<3x5x8xf32>, tensor<3x8x7xf32>
  %8 = kiln.concat %7, %5 axis = 1 : tensor<3x5x7xf32>, tensor<3x5x7xf32>
  return %3, %8 : tensor<6x5x7xf32>, tensor<3x10x7xf32>
}

// -----

// CASE: pools of pools, concatenated with their input convolution
func.func @f(%x: tensor<2x4x8x9xf32>, %w: tensor<5x4x1x1xf32>) -> tensor<2x15x8x9xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x4x8x9xf32>, tensor<5x4x1x1xf32>
  %1 = kiln.reduce_window max %0 window = [1, 1, 3, 3] strides = [1, 1, 1, 1] pad = [0, 0, 1, 1] x [0, 0, 1, 1] dilation = [1, 1, 1, 1] : tensor<2x5x8x9xf32>
  %2 = kiln.reduce_window max %1 window = [1, 1, 3, 3] strides = [1, 1, 1, 1] pad = [0, 0, 1, 1] x [0, 0, 1, 1] dilation = [1, 1, 1, 1] : tensor<2x5x8x9xf32>
  %3 = kiln.concat %0, %1, %2 axis = 1 : tensor<2x5x8x9xf32>, tensor<2x5x8x9xf32>, tensor<2x5x8x9xf32>
  return %3 : tensor<2x15x8x9xf32>
}

// -----

// CASE: concatenated pools, dynamic batch, narrow types
func.func @f(%x: tensor<?x3x9x17xf16>, %y: tensor<?x2x4x8xf16>) -> tensor<?x8x4x8xf16> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 3, 9, 17] : tensor<?x3x9x17xf16>
  kiln.bind_shape %y, [%n, 2, 4, 8] : tensor<?x2x4x8xf16>
  %0 = kiln.reduce_window max %x window = [1, 1, 3, 3] strides = [1, 1, 2, 2] pad = [0, 0, 0, 0] x [0, 0, 0, 0] dilation = [1, 1, 1, 1] : tensor<?x3x9x17xf16>
  %1 = kiln.reduce_window sum %x window = [1, 1, 3, 3] strides = [1, 1, 2, 2] pad = [0, 0, 0, 0] x [0, 0, 0, 0] dilation = [1, 1, 1, 1] : tensor<?x3x9x17xf16>
  %2 = kiln.concat %0, %y, %1 axis = 1 : tensor<?x3x4x8xf16>, tensor<?x2x4x8xf16>, tensor<?x3x4x8xf16>
  return %2 : tensor<?x8x4x8xf16>
}

// -----

// CASE: concatenated rows: softmax and a norm with an argument, odd widths and dynamic height
func.func @f(%x: tensor<?x33xf32>, %y: tensor<?x5xf32>) -> (tensor<?x71xf32>, tensor<?x33xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 33] : tensor<?x33xf32>
  kiln.bind_shape %y, [%n, 5] : tensor<?x5xf32>
  %0 = kiln.softmax %x axis = 1 : tensor<?x33xf32>
  %1 = kiln.tanh %x : tensor<?x33xf32>
  %2 = kiln.softmax %1 axis = 1 : tensor<?x33xf32>
  %3 = kiln.concat %0, %y, %2 axis = 1 : tensor<?x33xf32>, tensor<?x5xf32>, tensor<?x33xf32>
  %4 = kiln.neg %2 : tensor<?x33xf32>
  return %3, %4 : tensor<?x71xf32>, tensor<?x33xf32>
}

// -----

// CASE: concatenated row and column sums
func.func @f(%x: tensor<64x40xf32>, %y: tensor<3x40xf32>, %z: tensor<64x1xf32>) -> (tensor<5x40xf32>, tensor<64x3xf32>) {
  %0 = kiln.reduce sum %x dims = [0] : tensor<64x40xf32>
  %1 = kiln.reshape %0 sizes = [1, 40] : tensor<40xf32>
  %2 = kiln.reduce max %x dims = [0] : tensor<64x40xf32>
  %3 = kiln.reshape %2 sizes = [1, 40] : tensor<40xf32>
  %4 = kiln.concat %1, %y, %3 axis = 0 : tensor<1x40xf32>, tensor<3x40xf32>, tensor<1x40xf32>
  %5 = kiln.reduce sum %x dims = [1] : tensor<64x40xf32>
  %6 = kiln.tanh %5 : tensor<64xf32>
  %7 = kiln.reshape %6 sizes = [64, 1] : tensor<64xf32>
  %8 = kiln.reduce min %x dims = [1] : tensor<64x40xf32>
  %9 = kiln.reshape %8 sizes = [64, 1] : tensor<64xf32>
  %10 = kiln.concat %7, %z, %9 axis = 1 : tensor<64x1xf32>, tensor<64x1xf32>, tensor<64x1xf32>
  return %4, %10 : tensor<5x40xf32>, tensor<64x3xf32>
}

// -----

// CASE: attention heads computed separately and concatenated
func.func @f(%q: tensor<1x1x9x16xf32>, %k: tensor<1x1x12x16xf32>, %v: tensor<1x1x12x16xf32>) -> tensor<1x1x9x32xf32> {
  %0 = kiln.attention %q, %k, %v : tensor<1x1x9x16xf32>, tensor<1x1x12x16xf32>, tensor<1x1x12x16xf32>
  %1 = kiln.attention %q, %v, %k : tensor<1x1x9x16xf32>, tensor<1x1x12x16xf32>, tensor<1x1x12x16xf32>
  %2 = kiln.concat %0, %1 axis = 3 : tensor<1x1x9x16xf32>, tensor<1x1x9x16xf32>
  return %2 : tensor<1x1x9x32xf32>
}

// -----

// CASE: halves of a matmul and of a convolution, padded and concatenated
func.func @f(%x: tensor<?x4xf32>, %y: tensor<?x1x9xf32>, %w: tensor<2x1x2xf32>) -> (tensor<?x?xf32>, tensor<?x4x8xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n, 4] : tensor<?x4xf32>
  kiln.bind_shape %y, [%n, 1, 9] : tensor<?x1x9xf32>
  %two = arith.constant 2 : index
  %half = kiln.sym_expr floordiv %n, %two
  %zero = kiln.splat [], 0.0 : f32
  %0 = kiln.dot_general %x, %x batch = [] x [] contract = [1] x [1] : tensor<?x4xf32>, tensor<?x4xf32>
  %1 = kiln.slice %0 offsets = [0, 0] sizes = [%n, %half] strides = [1, 1] : tensor<?x?xf32>
  %2 = kiln.pad %1, %zero low = [0, 0] high = [1, 1] : tensor<?x?xf32>, tensor<f32>
  %3 = kiln.convolution %y, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<?x1x9xf32>, tensor<2x1x2xf32>
  %4 = kiln.slice %3 offsets = [0, 0, 0] sizes = [%half, 2, 8] strides = [1, 1, 1] : tensor<?x2x8xf32>
  %5 = kiln.splat [%half, 2, 8], 1.0 : f32
  %6 = kiln.concat %4, %5 axis = 1 : tensor<?x2x8xf32>, tensor<?x2x8xf32>
  return %2, %6 : tensor<?x?xf32>, tensor<?x4x8xf32>
}

// -----

// CASE: comparisons of bf16 whose results are 16 bits wide
func.func @f(%x: tensor<?xbf16>, %y: tensor<?xbf16>) -> (tensor<?xi16>, tensor<?xf16>, tensor<?xbf16>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [%n] : tensor<?xbf16>
  kiln.bind_shape %y, [%n] : tensor<?xbf16>
  %0 = kiln.convert %x : tensor<?xbf16> to i1
  %1 = kiln.convert %0 : tensor<?xi1> to i16
  %2 = kiln.compare lt %x, %y : tensor<?xbf16>
  %3 = kiln.convert %2 : tensor<?xi1> to f16
  %4 = kiln.compare ne %x, %y : tensor<?xbf16>
  %5 = kiln.convert %4 : tensor<?xi1> to bf16
  return %1, %3, %5 : tensor<?xi16>, tensor<?xf16>, tensor<?xbf16>
}

// -----

// CASE: a remainder of one f16, rounded from f64 by a function
func.func @f(%x: tensor<f16>, %y: tensor<f16>, %z: tensor<f64>) -> (tensor<f16>, tensor<f16>, tensor<bf16>) {
  %0 = kiln.rem %x, %y : tensor<f16>
  %1 = kiln.convert %z : tensor<f64> to f16
  %2 = kiln.convert %z : tensor<f64> to bf16
  return %0, %1, %2 : tensor<f16>, tensor<f16>, tensor<bf16>
}

// -----

// CASE: rows longer than a CTA's registers
func.func @f(%x: tensor<2x33000xf32>, %y: tensor<2x33001xbf16>, %w: tensor<33001xbf16>) -> (tensor<2x33000xf32>, tensor<2x33000xf32>, tensor<2x33001xbf16>) {
  %0 = kiln.softmax %x axis = 1 : tensor<2x33000xf32>
  %1 = kiln.log_softmax %x axis = 1 : tensor<2x33000xf32>
  %2 = kiln.layer_norm %y weight %w : tensor<33001xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<2x33001xbf16>
  return %0, %1, %2 : tensor<2x33000xf32>, tensor<2x33000xf32>, tensor<2x33001xbf16>
}

// -----

// CASE: split argmax of a long axis, and with a remainder
func.func @f(%x: tensor<2x150000xf32>, %y: tensor<270001xbf16>, %z: tensor<140000x2xi32>) -> (tensor<2xi64>, tensor<i64>, tensor<2xi64>, tensor<2xf32>) {
  %t = kiln.round_even %x : tensor<2x150000xf32>
  %0 = kiln.arg_max %t axis = 1 : tensor<2x150000xf32>
  %1 = kiln.arg_min %y axis = 0 : tensor<270001xbf16>
  %2 = kiln.arg_max %z axis = 0 : tensor<140000x2xi32>
  %3 = kiln.reduce min %t dims = [1] : tensor<2x150000xf32>
  return %0, %1, %2, %3 : tensor<2xi64>, tensor<i64>, tensor<2xi64>, tensor<2xf32>
}

// -----

// CASE: argmax with NaN, infinities and ties
func.func @f(%x: tensor<6x77xf32>, %y: tensor<40x9xi32>) -> (tensor<6xi64>, tensor<6xi64>, tensor<77xi64>, tensor<9xi64>, tensor<6xi1>, tensor<6xi1>) {
  %0 = kiln.round_even %x : tensor<6x77xf32>
  %1 = kiln.log %0 : tensor<6x77xf32>
  %2 = kiln.abs %0 : tensor<6x77xf32>
  %3 = kiln.log %2 : tensor<6x77xf32>
  %r0 = kiln.arg_max %1 axis = 1 : tensor<6x77xf32>
  %r1 = kiln.arg_min %3 axis = 1 : tensor<6x77xf32>
  %r2 = kiln.arg_max %3 axis = 0 : tensor<6x77xf32>
  %r3 = kiln.arg_min %y axis = 0 : tensor<40x9xi32>
  %4 = kiln.compare eq %0, %2 : tensor<6x77xf32>
  %r4 = kiln.reduce any %4 dims = [1] : tensor<6x77xi1>
  %r5 = kiln.reduce all %4 dims = [1] : tensor<6x77xi1>
  return %r0, %r1, %r2, %r3, %r4, %r5 : tensor<6xi64>, tensor<6xi64>, tensor<77xi64>, tensor<9xi64>, tensor<6xi1>, tensor<6xi1>
}

// -----

// CASE: norm over all of dynamic sizes, whose operand a triangle and a sum with a row read
func.func @f(%x: tensor<?x?x?xf32>, %b: tensor<?xf32>) -> (tensor<f32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>) {
  %l = kiln.sym @l
  %m = kiln.sym @m
  %n = kiln.sym @n
  kiln.bind_shape %x, [%l, %m, %n] : tensor<?x?x?xf32>
  kiln.bind_shape %b, [%n] : tensor<?xf32>
  %s = kiln.sin %x : tensor<?x?x?xf32>
  %q = kiln.mul %s, %s : tensor<?x?x?xf32>
  %t = kiln.reduce sum %q dims = [0, 1, 2] : tensor<?x?x?xf32>
  %r0 = kiln.sqrt %t : tensor<f32>
  %row = kiln.broadcast_in_dim %b dims = [2] sizes = [%l, %m, %n] : tensor<?xf32>
  %r1 = kiln.add %s, %row : tensor<?x?x?xf32>
  %i = kiln.iota [%l, %m, %n] axis = 1 : i64
  %j = kiln.iota [%l, %m, %n] axis = 2 : i64
  %u = kiln.compare ge %j, %i : tensor<?x?x?xi64>
  %zero = kiln.splat [%l, %m, %n], 0.0 : f32
  %r2 = kiln.select %u, %s, %zero : tensor<?x?x?xi1>, tensor<?x?x?xf32>
  return %r0, %r1, %r2 : tensor<f32>, tensor<?x?x?xf32>, tensor<?x?x?xf32>
}

// -----

// CASE: norm of more than the stack has room for, whose operand a triangle and a sum with a row read
func.func @f(%x: tensor<5x64x65xf32>, %b: tensor<65xf32>) -> (tensor<f32>, tensor<5x64x65xf32>, tensor<5x64x65xf32>) {
  %s = kiln.sin %x : tensor<5x64x65xf32>
  %q = kiln.mul %s, %s : tensor<5x64x65xf32>
  %t = kiln.reduce sum %q dims = [0, 1, 2] : tensor<5x64x65xf32>
  %r0 = kiln.sqrt %t : tensor<f32>
  %row = kiln.broadcast_in_dim %b dims = [2] sizes = [5, 64, 65] : tensor<65xf32>
  %r1 = kiln.add %s, %row : tensor<5x64x65xf32>
  %i = kiln.iota [5, 64, 65] axis = 1 : i64
  %j = kiln.iota [5, 64, 65] axis = 2 : i64
  %u = kiln.compare ge %j, %i : tensor<5x64x65xi64>
  %zero = kiln.splat [5, 64, 65], 0.0 : f32
  %r2 = kiln.select %u, %s, %zero : tensor<5x64x65xi1>, tensor<5x64x65xf32>
  return %r0, %r1, %r2 : tensor<f32>, tensor<5x64x65xf32>, tensor<5x64x65xf32>
}

// -----

// CASE: variances of dynamic sizes, whose operand a triangle of another dtype and a scaled copy read
func.func @f(%x: tensor<?x?x?x?xf32>, %b: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf64>) {
  %k = kiln.sym @k
  %l = kiln.sym @l
  %m = kiln.sym @m
  %n = kiln.sym @n
  kiln.bind_shape %x, [%k, %l, %m, %n] : tensor<?x?x?x?xf32>
  kiln.bind_shape %b, [%n] : tensor<?xf32>
  %s = kiln.sin %x : tensor<?x?x?x?xf32>
  %t = kiln.reduce sum %s dims = [2, 3] : tensor<?x?x?x?xf32>
  %t1 = kiln.broadcast_in_dim %t dims = [0, 1] sizes = [%k, %l, %m, %n] : tensor<?x?xf32>
  %d = kiln.sub %s, %t1 : tensor<?x?x?x?xf32>
  %q = kiln.mul %d, %d : tensor<?x?x?x?xf32>
  %r0 = kiln.reduce sum %q dims = [2, 3] : tensor<?x?x?x?xf32>
  %row = kiln.broadcast_in_dim %b dims = [3] sizes = [%k, %l, %m, %n] : tensor<?xf32>
  %r1 = kiln.mul %s, %row : tensor<?x?x?x?xf32>
  %i = kiln.iota [%k, %l, %m, %n] axis = 2 : i64
  %j = kiln.iota [%k, %l, %m, %n] axis = 3 : i64
  %u = kiln.compare ge %j, %i : tensor<?x?x?x?xi64>
  %w = kiln.convert %s : tensor<?x?x?x?xf32> to f64
  %zero = kiln.splat [%k, %l, %m, %n], 0.0 : f64
  %r2 = kiln.select %u, %w, %zero : tensor<?x?x?x?xi1>, tensor<?x?x?x?xf64>
  return %r0, %r1, %r2 : tensor<?x?xf32>, tensor<?x?x?x?xf32>, tensor<?x?x?x?xf64>
}

// -----

// CASE: two maxima of a dynamic size over two values that are computed again, one from the other
func.func @f(%x: tensor<?xf32>) -> (tensor<1xf32>, tensor<1xf32>) {
  %n = kiln.sym @n {min = 1 : i64}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %s = kiln.sin %x : tensor<?xf32>
  %e = kiln.expm1 %s : tensor<?xf32>
  %zero = kiln.splat [%n], 0.0 : f32
  %p = kiln.compare gt %s, %zero : tensor<?xf32>
  %c = kiln.select %p, %s, %e : tensor<?xi1>, tensor<?xf32>
  %a = kiln.reduce max %c dims = [0] : tensor<?xf32>
  %b = kiln.reduce min %c dims = [0] : tensor<?xf32>
  %a1 = kiln.exp %a : tensor<f32>
  %b1 = kiln.exp %b : tensor<f32>
  %r0 = kiln.reshape %a1 sizes = [1] : tensor<f32>
  %r1 = kiln.reshape %b1 sizes = [1] : tensor<f32>
  return %r0, %r1 : tensor<1xf32>, tensor<1xf32>
}

// -----

// CASE: values that are computed again after a result has taken the buffer of their source
func.func @f(%x: tensor<?x?xf32>) -> (tensor<?x?xf64>, tensor<?x?xf16>) {
  %m = kiln.sym @m
  %n = kiln.sym @n
  kiln.bind_shape %x, [%m, %n] : tensor<?x?xf32>
  %w = kiln.convert %x : tensor<?x?xf32> to f64
  %s = kiln.sin %w : tensor<?x?xf64>
  %v = kiln.convert %s : tensor<?x?xf64> to f32
  %e = kiln.exp %v : tensor<?x?xf32>
  %a = kiln.reduce sum %e dims = [1] : tensor<?x?xf32>
  %a1 = kiln.broadcast_in_dim %a dims = [0] sizes = [%m, %n] : tensor<?xf32>
  %b = kiln.convert %a1 : tensor<?x?xf32> to f64
  %r0 = kiln.div %s, %b : tensor<?x?xf64>
  %q = kiln.div %e, %a1 : tensor<?x?xf32>
  %c = kiln.mul %e, %q : tensor<?x?xf32>
  %d = kiln.reduce sum %c dims = [1] : tensor<?x?xf32>
  %d1 = kiln.broadcast_in_dim %d dims = [0] sizes = [%m, %n] : tensor<?xf32>
  %g = kiln.div %e, %d1 : tensor<?x?xf32>
  %r1 = kiln.convert %g : tensor<?x?xf32> to f16
  return %r0, %r1 : tensor<?x?xf64>, tensor<?x?xf16>
}

// -----

// CASE: few sums of many products of short rows, and an epilogue
func.func @f(%x: tensor<6144x4xbf16>, %y: tensor<6144x3xbf16>, %b: tensor<4x3xbf16>) -> tensor<4x3xbf16> {
  %0 = kiln.dot_general %x, %y batch = [] x [] contract = [0] x [0] : tensor<6144x4xbf16>, tensor<6144x3xbf16>
  %1 = kiln.add %0, %b : tensor<4x3xbf16>
  return %1 : tensor<4x3xbf16>
}

// -----

// CASE: few sums of a batch, of a K that is odd
func.func @f(%x: tensor<2x3x3075xf32>, %y: tensor<2x3075x5xf32>) -> tensor<2x3x5xf32> {
  %0 = kiln.dot_general %x, %y batch = [0] x [0] contract = [2] x [1] : tensor<2x3x3075xf32>, tensor<2x3075x5xf32>
  return %0 : tensor<2x3x5xf32>
}

// -----

// CASE: convolutions whose weights are arguments, packed in each call: a partial last block, groups, strides
func.func @f(%x: tensor<2x32x14x14xf32>, %w: tensor<40x32x3x3xf32>, %g: tensor<80x20x3x3xf32>, %v: tensor<64x80x1x1xf32>) -> tensor<2x64x6x6xf32> {
  %0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x32x14x14xf32>, tensor<40x32x3x3xf32>
  %1 = kiln.tanh %0 : tensor<2x40x12x12xf32>
  %2 = kiln.convolution %1, %g strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64} : tensor<2x40x12x12xf32>, tensor<80x20x3x3xf32>
  %3 = kiln.convolution %2, %v strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x80x12x12xf32>, tensor<64x80x1x1xf32>
  return %3 : tensor<2x64x6x6xf32>
}

// -----

// CASE: pixels of a matmul that a convolution pads, both weights arguments
func.func @f(%x: tensor<2x12x12x24xf32>, %u: tensor<32x24xf32>, %w: tensor<32x32x3x3xf32>) -> tensor<2x32x12x12xf32> {
  %0 = kiln.dot_general %x, %u batch = [] x [] contract = [3] x [1] : tensor<2x12x12x24xf32>, tensor<32x24xf32>
  %1 = kiln.transpose %0 permutation = [0, 3, 1, 2] : tensor<2x12x12x32xf32>
  %2 = kiln.convolution %1, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] : tensor<2x32x12x12xf32>, tensor<32x32x3x3xf32>
  return %2 : tensor<2x32x12x12xf32>
}

// -----

// CASE: products of a few tokens with one left operand, two of them over the same loops
func.func @f(%x: tensor<3x64xbf16>, %q: tensor<136x64xbf16>, %k: tensor<72x64xbf16>, %v: tensor<72x64xbf16>) -> (tensor<3x136xbf16>, tensor<3x72xbf16>, tensor<3x72xbf16>) {
  %0 = kiln.linear %x, %q : tensor<3x64xbf16>, tensor<136x64xbf16>
  %1 = kiln.linear %x, %k : tensor<3x64xbf16>, tensor<72x64xbf16>
  %2 = kiln.tanh %1 : tensor<3x72xbf16>
  %3 = kiln.linear %x, %v : tensor<3x64xbf16>, tensor<72x64xbf16>
  return %0, %2, %3 : tensor<3x136xbf16>, tensor<3x72xbf16>, tensor<3x72xbf16>
}

// -----

// CASE: products of more tokens with one left operand, a kernel each
func.func @f(%x: tensor<20x64xbf16>, %q: tensor<136x64xbf16>, %k: tensor<72x64xbf16>) -> (tensor<20x136xbf16>, tensor<20x72xbf16>) {
  %0 = kiln.linear %x, %q : tensor<20x64xbf16>, tensor<136x64xbf16>
  %1 = kiln.linear %x, %k : tensor<20x64xbf16>, tensor<72x64xbf16>
  return %0, %1 : tensor<20x136xbf16>, tensor<20x72xbf16>
}

// -----

// CASE: a norm of a token that each CTA of three products computes, of a K that no step divides
func.func @f(%x: tensor<1x200xbf16>, %w: tensor<200xbf16>, %q: tensor<136x200xbf16>, %k: tensor<72x200xbf16>, %v: tensor<72x200xbf16>) -> (tensor<1x136xbf16>, tensor<1x72xbf16>, tensor<1x72xbf16>) {
  %n = kiln.rms_norm %x weight %w : tensor<200xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<1x200xbf16>
  %0 = kiln.linear %n, %q : tensor<1x200xbf16>, tensor<136x200xbf16>
  %1 = kiln.linear %n, %k : tensor<1x200xbf16>, tensor<72x200xbf16>
  %2 = kiln.linear %n, %v : tensor<1x200xbf16>, tensor<72x200xbf16>
  return %0, %1, %2 : tensor<1x136xbf16>, tensor<1x72xbf16>, tensor<1x72xbf16>
}

// -----

// CASE: a norm of a few tokens before a gated pair
func.func @f(%x: tensor<3x320xbf16>, %w: tensor<320xbf16>, %u: tensor<96x320xbf16>, %v: tensor<96x320xbf16>) -> tensor<3x96xbf16> {
  %n = kiln.rms_norm %x weight %w : tensor<320xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<3x320xbf16>
  %0 = kiln.linear %n, %u : tensor<3x320xbf16>, tensor<96x320xbf16>
  %1 = kiln.linear %n, %v : tensor<3x320xbf16>, tensor<96x320xbf16>
  %2 = kiln.tanh %0 : tensor<3x96xbf16>
  %3 = kiln.mul %2, %1 : tensor<3x96xbf16>
  return %3 : tensor<3x96xbf16>
}

// -----

// CASE: products of a few tokens with more tiles than a GPU has SMs
func.func @f(%x: tensor<2x128xf16>, %y: tensor<2x128xf16>, %w: tensor<2600x128xf16>, %b: tensor<2600xf16>) -> tensor<2x2600xf16> {
  %0 = kiln.mul %x, %y : tensor<2x128xf16>
  %1 = kiln.linear %0, %w bias %b : tensor<2600xf16> : tensor<2x128xf16>, tensor<2600x128xf16>
  return %1 : tensor<2x2600xf16>
}

// -----

// CASE: small kernels of different sizes behind one product
func.func @f(%x: tensor<1x64xbf16>, %w: tensor<192x64xbf16>, %c: tensor<1x64xbf16>) -> (tensor<1x128xbf16>, tensor<1x64xbf16>) {
  %0 = kiln.linear %x, %w : tensor<1x64xbf16>, tensor<192x64xbf16>
  %1 = kiln.slice %0 offsets = [0, 0] sizes = [1, 64] strides = [1, 1] : tensor<1x192xbf16>
  %2 = kiln.slice %0 offsets = [0, 64] sizes = [1, 64] strides = [1, 1] : tensor<1x192xbf16>
  %3 = kiln.neg %2 : tensor<1x64xbf16>
  %4 = kiln.concat %3, %1 axis = 1 : tensor<1x64xbf16>, tensor<1x64xbf16>
  %5 = kiln.slice %0 offsets = [0, 128] sizes = [1, 64] strides = [1, 1] : tensor<1x192xbf16>
  %6 = kiln.mul %5, %c : tensor<1x64xbf16>
  return %4, %6 : tensor<1x128xbf16>, tensor<1x64xbf16>
}

// -----

// CASE: a norm before a gated pair whose gate is a result too
func.func @f(%x: tensor<2x128xbf16>, %w: tensor<128xbf16>, %u: tensor<96x128xbf16>, %v: tensor<96x128xbf16>) -> (tensor<2x96xbf16>, tensor<2x96xbf16>) {
  %n = kiln.rms_norm %x weight %w : tensor<128xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<2x128xbf16>
  %0 = kiln.linear %n, %u : tensor<2x128xbf16>, tensor<96x128xbf16>
  %1 = kiln.tanh %0 : tensor<2x96xbf16>
  %2 = kiln.linear %n, %v : tensor<2x128xbf16>, tensor<96x128xbf16>
  %3 = kiln.mul %1, %2 : tensor<2x96xbf16>
  return %1, %3 : tensor<2x96xbf16>, tensor<2x96xbf16>
}

// -----

// CASE: products of 16 rows that a CTA copies to shared memory
func.func @f(%x: tensor<16x512xbf16>, %w: tensor<8512x512xbf16>) -> tensor<16x8512xbf16> {
  %0 = kiln.linear %x, %w : tensor<16x512xbf16>, tensor<8512x512xbf16>
  return %0 : tensor<16x8512xbf16>
}

// -----

// CASE: products of a few tokens with int8 weights, of a K that no step divides, and a norm before them
func.func @f(%x: tensor<3x208xbf16>, %n: tensor<208xbf16>, %v: tensor<96x208xi8>, %s: tensor<96xbf16>, %w: tensor<72x208xi8>, %t: tensor<72xbf16>) -> (tensor<3x96xbf16>, tensor<3x72xbf16>) {
  %y = kiln.rms_norm %x weight %n : tensor<208xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<3x208xbf16>
  %0 = kiln.convert %v : tensor<96x208xi8> to bf16
  %1 = kiln.linear %y, %0 : tensor<3x208xbf16>, tensor<96x208xbf16>
  %2 = kiln.broadcast_in_dim %s dims = [1] sizes = [3, 96] : tensor<96xbf16>
  %3 = kiln.mul %1, %2 : tensor<3x96xbf16>
  %4 = kiln.convert %w : tensor<72x208xi8> to bf16
  %5 = kiln.linear %y, %4 : tensor<3x208xbf16>, tensor<72x208xbf16>
  %6 = kiln.broadcast_in_dim %t dims = [1] sizes = [3, 72] : tensor<72xbf16>
  %7 = kiln.mul %5, %6 : tensor<3x72xbf16>
  return %3, %7 : tensor<3x96xbf16>, tensor<3x72xbf16>
}

// -----

// CASE: two layers of f16 with int8 weights
func.func @f(%x: tensor<9x256xf16>, %v: tensor<320x256xi8>, %w: tensor<2600x320xi8>) -> tensor<9x2600xf16> {
  %0 = kiln.convert %v : tensor<320x256xi8> to f16
  %1 = kiln.linear %x, %0 : tensor<9x256xf16>, tensor<320x256xf16>
  %c = kiln.splat [9, 320], 7.8125e-03 : f16
  %2 = kiln.mul %1, %c : tensor<9x320xf16>
  %3 = kiln.reduce max %2 dims = [1] : tensor<9x320xf16>
  %4 = kiln.broadcast_in_dim %3 dims = [0] sizes = [9, 320] : tensor<9xf16>
  %5 = kiln.sub %2, %4 : tensor<9x320xf16>
  %6 = kiln.convert %w : tensor<2600x320xi8> to f16
  %7 = kiln.linear %5, %6 : tensor<9x320xf16>, tensor<2600x320xf16>
  %d = kiln.splat [9, 2600], 7.8125e-03 : f16
  %8 = kiln.mul %7, %d : tensor<9x2600xf16>
  return %8 : tensor<9x2600xf16>
}

// -----

// CASE: products of a few tokens with int4 weights in groups of 64, of a K that no step divides, and a norm before them
func.func @f(%x: tensor<3x192xbf16>, %n: tensor<192xbf16>) -> (tensor<3x96xbf16>, tensor<3x72xbf16>) {
  %y = kiln.rms_norm %x weight %n : tensor<192xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<3x192xbf16>
  %c7 = kiln.splat [96, 192], 7 : i32
  %c5 = kiln.splat [96, 192], 5 : i32
  %c15 = kiln.splat [96, 192], 15 : i32
  %k = kiln.iota [96, 192] axis = 1 : i32
  %r = kiln.iota [96, 192] axis = 0 : i32
  %k7 = kiln.mul %k, %c7 : tensor<96x192xi32>
  %r5 = kiln.mul %r, %c5 : tensor<96x192xi32>
  %sum = kiln.add %k7, %r5 : tensor<96x192xi32>
  %q = kiln.and %sum, %c15 : tensor<96x192xi32>
  %f = kiln.convert %q : tensor<96x192xi32> to bf16
  %g = kiln.reshape %f sizes = [96, 3, 64] : tensor<96x192xbf16>
  %c8 = kiln.splat [96, 3, 64], 8.0 : bf16
  %o = kiln.sub %g, %c8 : tensor<96x3x64xbf16>
  %ir = kiln.iota [96, 3] axis = 0 : bf16
  %ig = kiln.iota [96, 3] axis = 1 : bf16
  %ch = kiln.splat [96, 3], 0.0078125 : bf16
  %s0 = kiln.add %ir, %ig : tensor<96x3xbf16>
  %s1 = kiln.mul %s0, %ch : tensor<96x3xbf16>
  %s = kiln.broadcast_in_dim %s1 dims = [0, 1] sizes = [96, 3, 64] : tensor<96x3xbf16>
  %z = kiln.broadcast_in_dim %ig dims = [0, 1] sizes = [96, 3, 64] : tensor<96x3xbf16>
  %m = kiln.mul %o, %s : tensor<96x3x64xbf16>
  %a = kiln.add %m, %z : tensor<96x3x64xbf16>
  %w = kiln.reshape %a sizes = [96, 192] : tensor<96x3x64xbf16>
  %0 = kiln.linear %y, %w : tensor<3x192xbf16>, tensor<96x192xbf16>
  %low = kiln.slice %q offsets = [0, 0] sizes = [72, 192] strides = [1, 1] : tensor<96x192xi32>
  %d = kiln.convert %low : tensor<72x192xi32> to bf16
  %is = kiln.iota [72] axis = 0 : bf16
  %cs = kiln.splat [72], 0.0078125 : bf16
  %t0 = kiln.mul %is, %cs : tensor<72xbf16>
  %t = kiln.broadcast_in_dim %t0 dims = [0] sizes = [72, 192] : tensor<72xbf16>
  %e = kiln.mul %d, %t : tensor<72x192xbf16>
  %u = kiln.broadcast_in_dim %is dims = [0] sizes = [72, 192] : tensor<72xbf16>
  %v = kiln.add %e, %u : tensor<72x192xbf16>
  %1 = kiln.linear %y, %v : tensor<3x192xbf16>, tensor<72x192xbf16>
  return %0, %1 : tensor<3x96xbf16>, tensor<3x72xbf16>
}

// -----

// CASE: f16 with int4 and int8 weights that are transposed, with zero points and scales of groups
func.func @f(%x: tensor<9x256xf16>) -> (tensor<9x320xf16>, tensor<9x320xf16>) {
  %k = kiln.iota [256, 320] axis = 0 : i32
  %n = kiln.iota [256, 320] axis = 1 : i32
  %c3 = kiln.splat [256, 320], 3 : i32
  %c15 = kiln.splat [256, 320], 15 : i32
  %k3 = kiln.mul %k, %c3 : tensor<256x320xi32>
  %sum = kiln.add %k3, %n : tensor<256x320xi32>
  %q = kiln.and %sum, %c15 : tensor<256x320xi32>
  %f = kiln.convert %q : tensor<256x320xi32> to f32
  %g = kiln.reshape %f sizes = [8, 32, 320] : tensor<256x320xf32>
  %zi = kiln.iota [8, 320] axis = 0 : i8
  %zf = kiln.convert %zi : tensor<8x320xi8> to f32
  %zb = kiln.broadcast_in_dim %zf dims = [0, 2] sizes = [8, 32, 320] : tensor<8x320xf32>
  %o = kiln.sub %g, %zb : tensor<8x32x320xf32>
  %ig = kiln.iota [8, 320] axis = 0 : f16
  %h = kiln.splat [8, 320], 0.015625 : f16
  %s1 = kiln.mul %ig, %h : tensor<8x320xf16>
  %sf = kiln.convert %s1 : tensor<8x320xf16> to f32
  %s = kiln.broadcast_in_dim %sf dims = [0, 2] sizes = [8, 32, 320] : tensor<8x320xf32>
  %m = kiln.mul %o, %s : tensor<8x32x320xf32>
  %a = kiln.convert %m : tensor<8x32x320xf32> to f16
  %w = kiln.reshape %a sizes = [256, 320] : tensor<8x32x320xf16>
  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [0] : tensor<9x256xf16>, tensor<256x320xf16> to f32
  %1 = kiln.convert %0 : tensor<9x320xf32> to f16
  %b = kiln.convert %sum : tensor<256x320xi32> to i8
  %t = kiln.transpose %b permutation = [1, 0] : tensor<256x320xi8>
  %bf = kiln.convert %t : tensor<320x256xi8> to f32
  %bg = kiln.reshape %bf sizes = [320, 8, 32] : tensor<320x256xf32>
  %st = kiln.transpose %sf permutation = [1, 0] : tensor<8x320xf32>
  %sb = kiln.broadcast_in_dim %st dims = [0, 1] sizes = [320, 8, 32] : tensor<320x8xf32>
  %bm = kiln.mul %bg, %sb : tensor<320x8x32xf32>
  %br = kiln.reshape %bm sizes = [320, 256] : tensor<320x8x32xf32>
  %v = kiln.convert %br : tensor<320x256xf32> to f16
  %2 = kiln.dot_general %x, %v batch = [] x [] contract = [1] x [1] : tensor<9x256xf16>, tensor<320x256xf16> to f32
  %c = kiln.splat [9, 320], 0.0078125 : f32
  %3 = kiln.mul %2, %c : tensor<9x320xf32>
  %4 = kiln.convert %3 : tensor<9x320xf32> to f16
  return %1, %4 : tensor<9x320xf16>, tensor<9x320xf16>
}

// -----

// CASE: a gate of 8-bit float weights whose scales precede the product, and a norm before it
func.func @f(%x: tensor<3x208xbf16>, %n: tensor<208xbf16>, %v: tensor<96x208xf8E4M3FN>, %s: tensor<96x1xf32>, %w: tensor<96x208xf8E4M3FN>, %t: tensor<96x1xf32>) -> tensor<3x96xbf16> {
  %y = kiln.rms_norm %x weight %n : tensor<208xbf16> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : tensor<3x208xbf16>
  %0 = kiln.convert %v : tensor<96x208xf8E4M3FN> to f32
  %1 = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [96, 208] : tensor<96x1xf32>
  %2 = kiln.mul %0, %1 : tensor<96x208xf32>
  %3 = kiln.convert %2 : tensor<96x208xf32> to bf16
  %4 = kiln.linear %y, %3 : tensor<3x208xbf16>, tensor<96x208xbf16>
  %5 = kiln.convert %w : tensor<96x208xf8E4M3FN> to f32
  %6 = kiln.broadcast_in_dim %t dims = [0, 1] sizes = [96, 208] : tensor<96x1xf32>
  %7 = kiln.mul %5, %6 : tensor<96x208xf32>
  %8 = kiln.convert %7 : tensor<96x208xf32> to bf16
  %9 = kiln.linear %y, %8 : tensor<3x208xbf16>, tensor<96x208xbf16>
  %10 = kiln.silu %4 : tensor<3x96xbf16>
  %11 = kiln.mul %10, %9 : tensor<3x96xbf16>
  return %11 : tensor<3x96xbf16>
}

// -----

// CASE: int8 weights of f16 with a zero point, of more than a warp's rows
func.func @f(%x: tensor<17x320xf16>, %w: tensor<2600x320xi8>, %s: tensor<2600xf16>, %z: tensor<2600x1xi8>) -> tensor<17x2600xf16> {
  %0 = kiln.convert %w : tensor<2600x320xi8> to f16
  %1 = kiln.convert %z : tensor<2600x1xi8> to f16
  %2 = kiln.broadcast_in_dim %1 dims = [0, 1] sizes = [2600, 320] : tensor<2600x1xf16>
  %3 = kiln.sub %0, %2 : tensor<2600x320xf16>
  %4 = kiln.broadcast_in_dim %s dims = [0] sizes = [2600, 320] : tensor<2600xf16>
  %5 = kiln.mul %3, %4 : tensor<2600x320xf16>
  %6 = kiln.linear %x, %5 : tensor<17x320xf16>, tensor<2600x320xf16>
  return %6 : tensor<17x2600xf16>
}

// -----

// CASE: a product of a few rows of 8-bit floats
func.func @f(%x: tensor<16x256xf8E4M3FN>, %w: tensor<96x256xf8E4M3FN>, %s: tensor<96xf32>) -> tensor<16x96xbf16> {
  %0 = kiln.convert %w : tensor<96x256xf8E4M3FN> to bf16
  %1 = kiln.convert %x : tensor<16x256xf8E4M3FN> to bf16
  %2 = kiln.dot_general %1, %0 batch = [] x [] contract = [1] x [1] : tensor<16x256xbf16>, tensor<96x256xbf16> to f32
  %3 = kiln.broadcast_in_dim %s dims = [1] sizes = [16, 96] : tensor<96xf32>
  %4 = kiln.mul %2, %3 : tensor<16x96xf32>
  %5 = kiln.convert %4 : tensor<16x96xf32> to bf16
  return %5 : tensor<16x96xbf16>
}

// -----

// CASE: 8-bit float weights on the left in f16, of a batch
func.func @f(%x: tensor<2x64x5xf16>, %w: tensor<2x80x64xf8E4M3FN>) -> tensor<2x80x5xf16> {
  %0 = kiln.convert %w : tensor<2x80x64xf8E4M3FN> to f16
  %1 = kiln.transpose %x permutation = [0, 2, 1] : tensor<2x64x5xf16>
  %2 = kiln.dot_general %0, %1 batch = [0] x [0] contract = [2] x [2] : tensor<2x80x64xf16>, tensor<2x5x64xf16>
  return %2 : tensor<2x80x5xf16>
}

// -----

// CASE: a gate of 8-bit float products with scales a row and a column, of a K that no step divides
func.func @f(%x: tensor<65x144xf8E4M3FN>, %v: tensor<72x144xf8E4M3FN>, %w: tensor<72x144xf8E4M3FN>, %s: tensor<65x1xf32>, %t: tensor<1x72xf32>) -> tensor<65x72xbf16> {
  %0 = kiln.convert %x : tensor<65x144xf8E4M3FN> to bf16
  %1 = kiln.convert %v : tensor<72x144xf8E4M3FN> to bf16
  %2 = kiln.convert %w : tensor<72x144xf8E4M3FN> to bf16
  %3 = kiln.dot_general %0, %1 batch = [] x [] contract = [1] x [1] : tensor<65x144xbf16>, tensor<72x144xbf16> to f32
  %4 = kiln.dot_general %0, %2 batch = [] x [] contract = [1] x [1] : tensor<65x144xbf16>, tensor<72x144xbf16> to f32
  %5 = kiln.broadcast_in_dim %s dims = [0, 1] sizes = [65, 72] : tensor<65x1xf32>
  %6 = kiln.broadcast_in_dim %t dims = [0, 1] sizes = [65, 72] : tensor<1x72xf32>
  %7 = kiln.mul %3, %5 : tensor<65x72xf32>
  %8 = kiln.mul %7, %6 : tensor<65x72xf32>
  %9 = kiln.mul %4, %5 : tensor<65x72xf32>
  %10 = kiln.mul %9, %6 : tensor<65x72xf32>
  %11 = kiln.tanh %8 : tensor<65x72xf32>
  %12 = kiln.mul %11, %10 : tensor<65x72xf32>
  %13 = kiln.convert %12 : tensor<65x72xf32> to bf16
  return %13 : tensor<65x72xbf16>
}

// -----

// CASE: int8 products with int32 sums, one scaled and one as it is
func.func @f(%x: tensor<3x33x80xi8>, %v: tensor<3x24x80xi8>, %w: tensor<40x80xi8>, %s: tensor<40xf32>) -> (tensor<3x33x24xi32>, tensor<3x33x40xbf16>) {
  %0 = kiln.dot_general %x, %v batch = [0] x [0] contract = [2] x [2] : tensor<3x33x80xi8>, tensor<3x24x80xi8> to i32
  %1 = kiln.dot_general %x, %w batch = [] x [] contract = [2] x [1] : tensor<3x33x80xi8>, tensor<40x80xi8> to i32
  %2 = kiln.convert %1 : tensor<3x33x40xi32> to f32
  %3 = kiln.broadcast_in_dim %s dims = [2] sizes = [3, 33, 40] : tensor<40xf32>
  %4 = kiln.mul %2, %3 : tensor<3x33x40xf32>
  %5 = kiln.convert %4 : tensor<3x33x40xf32> to bf16
  return %0, %5 : tensor<3x33x24xi32>, tensor<3x33x40xbf16>
}

// -----

// CASE: a convolution's gradient by its weight, of two splits
func.func @f(%x: tensor<4x7x8x64xbf16>, %g: tensor<4x7x8x72xbf16>) -> tensor<2x72x3x3x64xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 3] strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {splits = 2 : i64} : tensor<4x7x8x64xbf16>, tensor<4x7x8x72xbf16>
  return %0 : tensor<2x72x3x3x64xf32>
}

// -----

// CASE: the same of strides and dilation
func.func @f(%x: tensor<3x13x12x128xf16>, %g: tensor<3x6x11x8xf16>) -> tensor<8x3x2x128xf16> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 2] strides = [2, 1] pad = [0, 0] x [0, 1] dilation = [1, 2] : tensor<3x13x12x128xf16>, tensor<3x6x11x8xf16>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<1x8x3x2x128xf32>
  %2 = kiln.convert %1 : tensor<8x3x2x128xf32> to f16
  return %2 : tensor<8x3x2x128xf16>
}

// -----

// CASE: the same where a position has less than 64 columns
func.func @f(%x: tensor<6x9x9x24xbf16>, %g: tensor<6x9x9x16xbf16>) -> tensor<3x16x3x3x24xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 3] strides = [1, 1] pad = [2, 2] x [2, 2] dilation = [2, 2] {splits = 3 : i64} : tensor<6x9x9x24xbf16>, tensor<6x9x9x16xbf16>
  return %0 : tensor<3x16x3x3x24xf32>
}

// -----

// CASE: the same of two groups, whose positions have whole tiles of columns
func.func @f(%x: tensor<4x7x8x128xbf16>, %g: tensor<4x7x8x48xbf16>) -> tensor<2x2x24x3x3x64xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 3] strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64, splits = 2 : i64} : tensor<4x7x8x128xbf16>, tensor<4x7x8x48xbf16>
  return %0 : tensor<2x2x24x3x3x64xf32>
}

// -----

// CASE: the same of three groups of 24 channels, in which a tile reads those of the next group
func.func @f(%x: tensor<6x9x10x72xf16>, %g: tensor<6x5x5x24xf16>) -> tensor<3x3x8x3x3x24xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [3, 3] strides = [2, 2] pad = [1, 1] x [1, 0] dilation = [1, 1] {groups = 3 : i64, splits = 3 : i64} : tensor<6x9x10x72xf16>, tensor<6x5x5x24xf16>
  return %0 : tensor<3x3x8x3x3x24xf32>
}

// -----

// CASE: the same of joined groups without splits, of which the diagonal is read
func.func @f(%x: tensor<2x9x9x64xbf16>, %g: tensor<2x9x9x64xbf16>) -> tensor<2x16x1x1x2xbf16> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [1, 1] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 2 : i64} : tensor<2x9x9x64xbf16>, tensor<2x9x9x64xbf16>
  %1 = kiln.reshape %0 sizes = [1, 2, 16, 2, 1, 1, 16, 2] : tensor<1x2x32x1x1x32xf32>
  %2 = kiln.iota [1, 2, 16, 2, 1, 1, 16, 2] axis = 2 : i64
  %3 = kiln.iota [1, 2, 16, 2, 1, 1, 16, 2] axis = 6 : i64
  %4 = kiln.compare eq %2, %3 : tensor<1x2x16x2x1x1x16x2xi64>
  %5 = kiln.splat [1, 2, 16, 2, 1, 1, 16, 2], 0.0 : f32
  %6 = kiln.select %4, %1, %5 : tensor<1x2x16x2x1x1x16x2xi1>, tensor<1x2x16x2x1x1x16x2xf32>
  %7 = kiln.reduce sum %6 dims = [0, 3, 6] : tensor<1x2x16x2x1x1x16x2xf32>
  %8 = kiln.convert %7 : tensor<2x16x1x1x2xf32> to bf16
  return %8 : tensor<2x16x1x1x2xbf16>
}

// -----

// CASE: the same whose window rows are contiguous
func.func @f(%x: tensor<2x15x17x8xbf16>, %g: tensor<2x5x6x16xbf16>) -> tensor<1x16x7x7x8xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [7, 7] strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x15x17x8xbf16>, tensor<2x5x6x16xbf16>
  return %0 : tensor<1x16x7x7x8xf32>
}

// -----

// CASE: the same of one row of pixels
func.func @f(%x: tensor<5x1x40x64xbf16>, %g: tensor<5x1x38x64xbf16>) -> tensor<5x64x1x3x64xf32> {
  %0 = kiln.convolution_weight_gradient %x, %g window = [1, 3] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {splits = 5 : i64} : tensor<5x1x40x64xbf16>, tensor<5x1x38x64xbf16>
  return %0 : tensor<5x64x1x3x64xf32>
}

// -----

// CASE: a depthwise convolution's gradient by its weight, of two splits
func.func @f(%x: tensor<4x9x30x24xbf16>, %g: tensor<4x9x30x24xbf16>) -> tensor<2x7x7x24xf32> {
  %0 = kiln.convolution_weight_gradient depthwise %x, %g window = [7, 7] strides = [1, 1] pad = [3, 3] x [3, 3] dilation = [1, 1] {splits = 2 : i64} : tensor<4x9x30x24xbf16>, tensor<4x9x30x24xbf16>
  return %0 : tensor<2x7x7x24xf32>
}

// -----

// CASE: the same of strides and dilation, and of channels that are no multiple of a CTA's
func.func @f(%x: tensor<3x13x17x130xf16>, %g: tensor<3x6x13x130xf16>) -> tensor<3x3x130xf16> {
  %0 = kiln.convolution_weight_gradient depthwise %x, %g window = [3, 3] strides = [2, 1] pad = [1, 0] x [0, 0] dilation = [1, 2] : tensor<3x13x17x130xf16>, tensor<3x6x13x130xf16>
  %1 = kiln.reduce sum %0 dims = [0] : tensor<1x3x3x130xf32>
  %2 = kiln.convert %1 : tensor<3x3x130xf32> to f16
  return %2 : tensor<3x3x130xf16>
}

// -----

// CASE: the same of a row of pixels and an odd number of channels
func.func @f(%x: tensor<5x1x40x7xf32>, %g: tensor<5x1x38x7xf32>) -> tensor<5x1x3x7xf32> {
  %0 = kiln.convolution_weight_gradient depthwise %x, %g window = [1, 3] strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {splits = 5 : i64} : tensor<5x1x40x7xf32>, tensor<5x1x38x7xf32>
  return %0 : tensor<5x1x3x7xf32>
}
