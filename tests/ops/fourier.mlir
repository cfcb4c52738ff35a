// Fourier transforms.

// CASE: kinds
func.func @f(%x: tensor<?x12xf32>, %y: tensor<?x12xf32>, %z: tensor<2x?x7xf64>) -> (tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x7xf32>, tensor<?x7xf32>, tensor<2x?x12xf64>, tensor<2x?x13xf64>) {
  %s = kiln.sym @s0
  %t = kiln.sym @s1
  kiln.bind_shape %x, [%s, 12] : tensor<?x12xf32>
  kiln.bind_shape %y, [%s, 12] : tensor<?x12xf32>
  kiln.bind_shape %z, [2, %t, 7] : tensor<2x?x7xf64>
  %a, %b = kiln.fft c2c %x, %y length = 12 : tensor<?x12xf32>, tensor<?x12xf32>
  %c, %d = kiln.fft c2c %x, %y length = 12 inverse : tensor<?x12xf32>, tensor<?x12xf32>
  %e, %f = kiln.fft r2c %x length = 12 : tensor<?x12xf32>
  %g = kiln.fft c2r %z, %z length = 12 inverse : tensor<2x?x7xf64>, tensor<2x?x7xf64>
  %h = kiln.fft c2r %z, %z length = 13 : tensor<2x?x7xf64>, tensor<2x?x7xf64>
  return %a, %b, %c, %d, %e, %f, %g, %h : tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x7xf32>, tensor<?x7xf32>, tensor<2x?x12xf64>, tensor<2x?x13xf64>
}

// -----

// CASE: shortest
func.func @f(%x: tensor<1xf32>, %y: tensor<0x2xf64>) -> (tensor<1xf32>, tensor<1xf32>, tensor<0x2xf64>) {
  %a, %b = kiln.fft r2c %x length = 1 : tensor<1xf32>
  %c = kiln.fft c2r %a, %b length = 1 : tensor<1xf32>, tensor<1xf32>
  %d = kiln.fft c2r %y, %y length = 2 : tensor<0x2xf64>, tensor<0x2xf64>
  return %b, %c, %d : tensor<1xf32>, tensor<1xf32>, tensor<0x2xf64>
}

// -----

// CASE: pairs
func.func @f(%x: tensor<?x12xf32>, %z: tensor<?x12x2xf32>) -> (tensor<?x12x2xf32>, tensor<?x12xf32>, tensor<?x7x2xf32>, tensor<?x23xf32>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 12] : tensor<?x12xf32>
  kiln.bind_shape %z, [%s, 12, 2] : tensor<?x12x2xf32>
  %a = kiln.fft c2c %z length = 12 interleaved_input interleaved_result : tensor<?x12x2xf32>
  %b, %c = kiln.fft c2c %z length = 12 inverse interleaved_input : tensor<?x12x2xf32>
  %d = kiln.fft r2c %x length = 12 interleaved_result : tensor<?x12xf32>
  %e = kiln.fft c2r %z length = 23 interleaved_input : tensor<?x12x2xf32>
  return %a, %c, %d, %e : tensor<?x12x2xf32>, tensor<?x12xf32>, tensor<?x7x2xf32>, tensor<?x23xf32>
}

// -----

// CASE: pairs of real numbers
func.func @f(%x: tensor<4x2xf32>) {
  // expected-error @+1 {{of kind r2c has interleaved_input, which is for complex numbers}}
  %0:2 = kiln.fft r2c %x length = 4 interleaved_input : tensor<4x2xf32>
  return
}

// -----

// CASE: pairs of three
func.func @f(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{has no last dimension of 2}}
  %0:2 = kiln.fft c2c %x length = 4 interleaved_input : tensor<4x3xf32>
  return
}

// -----

// CASE: half
func.func @f(%x: tensor<4xf16>) {
  // expected-error @+1 {{has dtype f16, not f32 or f64}}
  %0:2 = kiln.fft r2c %x length = 4 : tensor<4xf16>
  return
}

// -----

// CASE: real part alone
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{of kind c2c lacks an imaginary part}}
  %0:2 = kiln.fft c2c %x length = 4 : tensor<4xf32>
  return
}

// -----

// CASE: imaginary part of real numbers
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{of kind r2c has an imaginary part}}
  %0:2 = kiln.fft r2c %x, %x length = 4 : tensor<4xf32>, tensor<4xf32>
  return
}

// -----

// CASE: two dtypes
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf64>) {
  // expected-error @+1 {{has a real part of f32 and an imaginary one of f64}}
  %0:2 = kiln.fft c2c %x, %y length = 4 : tensor<4xf32>, tensor<4xf64>
  return
}

// -----

// CASE: no numbers
func.func @f(%x: tensor<0xf32>) {
  // expected-error @+1 {{has length 0, which is below 1}}
  %0:2 = kiln.fft r2c %x length = 0 : tensor<0xf32>
  return
}

// -----

// CASE: other length
func.func @f(%x: tensor<3x4xf32>) {
  // expected-error @+1 {{has a last dimension of size 4; c2r of length 8 takes 5}}
  %0 = kiln.fft c2r %x, %x length = 8 : tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

// CASE: dynamic length
func.func @f(%x: tensor<?xf32>) {
  // expected-error @+1 {{r2c of length 8 takes 8}}
  %0:2 = kiln.fft r2c %x length = 8 : tensor<?xf32>
  return
}

// -----

// CASE: scalar
func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{has no dimension to transform}}
  %0:2 = kiln.fft r2c %x length = 1 : tensor<f32>
  return
}
