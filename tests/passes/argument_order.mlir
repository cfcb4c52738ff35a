// RUN: kiln-argument-order

// CASE: channels_last
// CHECK: kiln.order = array<i64: 0, 2, 3, 1>
func.func @f(%x: tensor<2x3x4x5xf32> {kiln.layout = #kiln.layout<[60, 1, 15, 3], offset = 0, alignment = 0>}) -> tensor<2x3x4x5xf32> {
  %0 = kiln.exp %x : tensor<2x3x4x5xf32>
  return %0 : tensor<2x3x4x5xf32>
}

// -----
// The symbol is bound by the argument's transposed type.
// CASE: dynamic_batch
// CHECK: kiln.order
func.func @f(%x: tensor<?x3x4xf32> {kiln.layout = #kiln.layout<[12, 1, 3], offset = 0, alignment = 0>}, %y: tensor<?xf32>) -> tensor<?x3x4xf32> {
  %s0 = kiln.sym @s0 {min = 1 : i64, max = 64 : i64}
  kiln.bind_shape %x, [%s0, 3, 4] : tensor<?x3x4xf32>
  %0 = kiln.exp %x : tensor<?x3x4xf32>
  return %0 : tensor<?x3x4xf32>
}

// -----
// Padded rows and broadcast rows are copied by the call.
// CASE: not_dense
// CHECK-NOT: kiln.order
func.func @f(%x: tensor<4x3xf32> {kiln.layout = #kiln.layout<[1, 5], offset = 0, alignment = 0>}, %y: tensor<4x3xf32> {kiln.layout = #kiln.layout<[0, 1], offset = 0, alignment = 0>}) -> tensor<4x3xf32> {
  %0 = kiln.add %x, %y : tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
