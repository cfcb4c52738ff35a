// A three-layer perceptron as PyTorch exports it: linear, relu, linear, gelu, layer_norm, linear, log_softmax; any batch from 1 to 64.
// Weights, an input and PyTorch's own result are in mlp.safetensors.
//
//   kiln-opt --from=graph --to=prims examples/mlp.mlir
//   kiln-opt examples/mlp.mlir --execute --inputs examples/mlp.safetensors --check
module attributes {kiln.level = "graph"} {
  kiln.global "private" @net.0.weight : tensor<128x64xf32> from "mlp.safetensors#net.0.weight"
  kiln.global "private" @net.0.bias : tensor<128xf32> from "mlp.safetensors#net.0.bias"
  kiln.global "private" @net.2.weight : tensor<128x128xf32> from "mlp.safetensors#net.2.weight"
  kiln.global "private" @net.2.bias : tensor<128xf32> from "mlp.safetensors#net.2.bias"
  kiln.global "private" @net.4.weight : tensor<128xf32> from "mlp.safetensors#net.4.weight"
  kiln.global "private" @net.4.bias : tensor<128xf32> from "mlp.safetensors#net.4.bias"
  kiln.global "private" @net.5.weight : tensor<10x128xf32> from "mlp.safetensors#net.5.weight"
  kiln.global "private" @net.5.bias : tensor<10xf32> from "mlp.safetensors#net.5.bias"

  func.func @main(%x: tensor<?x64xf32> {kiln.layout = #kiln.layout<[64, 1], offset = 0, alignment = 16>}) -> tensor<?x10xf32> {
    %n = kiln.sym @n {min = 1, max = 64}
    kiln.bind_shape %x, [%n, 64] : tensor<?x64xf32>
    %w0 = kiln.get_global @net.0.weight : tensor<128x64xf32>
    %b0 = kiln.get_global @net.0.bias : tensor<128xf32>
    %linear = kiln.linear %x, %w0 bias %b0 : tensor<128xf32> : tensor<?x64xf32>, tensor<128x64xf32>
    %zero = kiln.splat [%n, 128], 0.0 : f32
    %relu = kiln.max %linear, %zero : tensor<?x128xf32>
    %w2 = kiln.get_global @net.2.weight : tensor<128x128xf32>
    %b2 = kiln.get_global @net.2.bias : tensor<128xf32>
    %linear_1 = kiln.linear %relu, %w2 bias %b2 : tensor<128xf32> : tensor<?x128xf32>, tensor<128x128xf32>
    %gelu = kiln.gelu %linear_1 : tensor<?x128xf32>
    %w4 = kiln.get_global @net.4.weight : tensor<128xf32>
    %b4 = kiln.get_global @net.4.bias : tensor<128xf32>
    %layer_norm = kiln.layer_norm %gelu weight %w4 : tensor<128xf32> bias %b4 : tensor<128xf32> {rank = 1, epsilon = 1.0e-05} : tensor<?x128xf32>
    %w5 = kiln.get_global @net.5.weight : tensor<10x128xf32>
    %b5 = kiln.get_global @net.5.bias : tensor<10xf32>
    %linear_2 = kiln.linear %layer_norm, %w5 bias %b5 : tensor<10xf32> : tensor<?x128xf32>, tensor<10x128xf32>
    %log_softmax = kiln.log_softmax %linear_2 axis = 1 : tensor<?x10xf32>
    return %log_softmax : tensor<?x10xf32>
  }
}
