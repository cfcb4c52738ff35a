// RUN: kiln-expand-updates

// CASE: kv_cache_row
// CHECK: kiln.select
// IMPLICIT-CHECK-NOT: kiln.dynamic_update_slice
func.func @f(%x: tensor<2x5x3xf32>, %u: tensor<2x1x3xf32>, %s: tensor<i64>) -> tensor<2x5x3xf32> {
  %z = kiln.splat [], 0 : i64
  %0 = kiln.dynamic_update_slice %x[%z, %s, %z : tensor<i64>, tensor<i64>, tensor<i64>], %u : tensor<2x5x3xf32>, tensor<2x1x3xf32>
  return %0 : tensor<2x5x3xf32>
}

// -----
// CASE: dynamic_slice_size
// CHECK: kiln.pad
func.func @f(%x: tensor<4x?xi32>, %u: tensor<2x?xi32>, %s: tensor<i32>, %t: tensor<i32>) -> tensor<4x?xi32> {
  %n = kiln.sym @n
  kiln.bind_shape %x, [4, %n] : tensor<4x?xi32>
  kiln.bind_shape %u, [2, %n] : tensor<2x?xi32>
  %0 = kiln.dynamic_update_slice %x[%s, %t : tensor<i32>, tensor<i32>], %u : tensor<4x?xi32>, tensor<2x?xi32>
  return %0 : tensor<4x?xi32>
}

// -----
// CASE: full_and_empty_update
// CHECK: return %arg1, %arg0
func.func @f(%x: tensor<4xf32>, %u: tensor<4xf32>, %e: tensor<0xf32>, %s: tensor<i64>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = kiln.dynamic_update_slice %x[%s : tensor<i64>], %u : tensor<4xf32>, tensor<4xf32>
  %1 = kiln.dynamic_update_slice %x[%s : tensor<i64>], %e : tensor<4xf32>, tensor<0xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
