// relu((x w + b) / 2) summed over rows, of 32x64: little work, so that what a call costs beside its kernels shows.
module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<32x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<32xf32> {
    %0 = kiln.matmul %x, %w : tensor<32x64xf32>, tensor<64x64xf32>
    %1 = kiln.broadcast_in_dim %b dims = [1] sizes = [32, 64] : tensor<64xf32>
    %2 = kiln.add %0, %1 : tensor<32x64xf32>
    %half = kiln.splat [32, 64], 0.5 : f32
    %zero = kiln.splat [32, 64], 0.0 : f32
    %3 = kiln.mul %2, %half : tensor<32x64xf32>
    %4 = kiln.max %3, %zero : tensor<32x64xf32>
    %5 = kiln.reduce sum %4 dims = [1] : tensor<32x64xf32>
    return %5 : tensor<32xf32>
  }
}
