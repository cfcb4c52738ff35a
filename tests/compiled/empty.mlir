// One axis has {n} elements, or a dynamic number. EMPTY is the result of each when there are none.

// CASE: rows of an unknown length
// EMPTY: NONE NONE ZEROS
func.func @f(%x: tensor<3x?xf32>) -> (tensor<3x?xf32>, tensor<3x?xf32>, tensor<3xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [3, %n] : tensor<3x?xf32>
  %0 = kiln.softmax %x axis = 1 : tensor<3x?xf32>
  %1 = kiln.log_softmax %x axis = 1 : tensor<3x?xf32>
  %2 = kiln.reduce sum %0 dims = [1] : tensor<3x?xf32>
  return %0, %1, %2 : tensor<3x?xf32>, tensor<3x?xf32>, tensor<3xf32>
}

// -----

// CASE: columns of an unknown length
// EMPTY: NONE NONE ZEROS
func.func @f(%x: tensor<2x?x5xbf16>) -> (tensor<2x?x5xbf16>, tensor<2x?x5xbf16>, tensor<2x5xbf16>) {
  %n = kiln.sym @n
  kiln.bind_shape %x, [2, %n, 5] : tensor<2x?x5xbf16>
  %0 = kiln.softmax %x axis = 1 : tensor<2x?x5xbf16>
  %1 = kiln.log_softmax %x axis = 1 : tensor<2x?x5xbf16>
  %2 = kiln.reduce sum %0 dims = [1] : tensor<2x?x5xbf16>
  return %0, %1, %2 : tensor<2x?x5xbf16>, tensor<2x?x5xbf16>, tensor<2x5xbf16>
}

// -----

// CASE: rows of a known length
// EMPTY: NONE NONE ZEROS
func.func @f(%x: tensor<3x{n}xf32>) -> (tensor<3x{n}xf32>, tensor<3x{n}xf32>, tensor<3xf32>) {
  %0 = kiln.softmax %x axis = 1 : tensor<3x{n}xf32>
  %1 = kiln.log_softmax %x axis = 1 : tensor<3x{n}xf32>
  %2 = kiln.reduce sum %0 dims = [1] : tensor<3x{n}xf32>
  return %0, %1, %2 : tensor<3x{n}xf32>, tensor<3x{n}xf32>, tensor<3xf32>
}

// -----

// CASE: a maximum that may be of nothing
// EMPTY: INFINITE
func.func @f(%x: tensor<3x?xf32>) -> tensor<3xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [3, %n] : tensor<3x?xf32>
  %0 = kiln.reduce max %x dims = [1] maybe_empty : tensor<3x?xf32>
  return %0 : tensor<3xf32>
}

// -----

// CASE: an unknown number of keys
// EMPTY: ZEROS
func.func @f(%q: tensor<2x2x3x8xf32>, %k: tensor<2x2x?x8xf32>, %v: tensor<2x2x?x4xf32>) -> tensor<2x2x3x4xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %k, [2, 2, %n, 8] : tensor<2x2x?x8xf32>
  kiln.bind_shape %v, [2, 2, %n, 4] : tensor<2x2x?x4xf32>
  %0 = kiln.attention %q, %k, %v : tensor<2x2x3x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x4xf32>
  return %0 : tensor<2x2x3x4xf32>
}

// -----

// CASE: a known number of keys
// EMPTY: ZEROS
func.func @f(%q: tensor<2x2x33x8xf32>, %k: tensor<2x2x{n}x8xf32>, %v: tensor<2x2x{n}x4xf32>) -> tensor<2x2x33x4xf32> {
  %0 = kiln.attention %q, %k, %v : tensor<2x2x33x8xf32>, tensor<2x2x{n}x8xf32>, tensor<2x2x{n}x4xf32>
  return %0 : tensor<2x2x33x4xf32>
}

// -----

// CASE: an unknown number of keys, decomposed
// EMPTY: ZEROS INFINITE
func.func @f(%q: tensor<2x4x3x8xf16>, %k: tensor<2x2x?x8xf16>, %v: tensor<2x2x?x4xf16>) -> (tensor<2x4x3x4xf16>, tensor<2x4x3xf32>) {
  %n = kiln.sym @n
  kiln.bind_shape %k, [2, 2, %n, 8] : tensor<2x2x?x8xf16>
  kiln.bind_shape %v, [2, 2, %n, 4] : tensor<2x2x?x4xf16>
  %0, %1 = kiln.attention %q, %k, %v causal with_lse : tensor<2x4x3x8xf16>, tensor<2x2x?x8xf16>, tensor<2x2x?x4xf16>
  return %0, %1 : tensor<2x4x3x4xf16>, tensor<2x4x3xf32>
}

// -----

// CASE: a known number of keys, decomposed
// EMPTY: ZEROS INFINITE
func.func @f(%q: tensor<2x4x3x8xf16>, %k: tensor<2x2x{n}x8xf16>, %v: tensor<2x2x{n}x4xf16>) -> (tensor<2x4x3x4xf16>, tensor<2x4x3xf32>) {
  %0, %1 = kiln.attention %q, %k, %v causal with_lse : tensor<2x4x3x8xf16>, tensor<2x2x{n}x8xf16>, tensor<2x2x{n}x4xf16>
  return %0, %1 : tensor<2x4x3x4xf16>, tensor<2x4x3xf32>
}

// -----

// CASE: no queries
// EMPTY: NONE
func.func @f(%q: tensor<1x2x?x8xf32>, %k: tensor<1x2x?x8xf32>, %v: tensor<1x2x?x4xf32>) -> tensor<1x2x?x4xf32> {
  %n = kiln.sym @n
  kiln.bind_shape %q, [1, 2, %n, 8] : tensor<1x2x?x8xf32>
  kiln.bind_shape %k, [1, 2, %n, 8] : tensor<1x2x?x8xf32>
  kiln.bind_shape %v, [1, 2, %n, 4] : tensor<1x2x?x4xf32>
  %0 = kiln.attention %q, %k, %v : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x4xf32>
  return %0 : tensor<1x2x?x4xf32>
}
