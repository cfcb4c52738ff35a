func.func @f(%m: memref<64xf32>) {
  %c = arith.constant 1.0 : f32
  affine.for %i = 0 to 64 {
    affine.store %c, %m[%i] : memref<64xf32>
  }
  return
}
