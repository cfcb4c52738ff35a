// y = x wᵀ + b with a dynamic number of rows, and a count.
kiln.global @w : tensor<2x3xf32> from "weights.safetensors"
kiln.global @b : tensor<2xf32> from "weights.safetensors#bias"
func.func @main(%x: tensor<?x3xf32>, %n: tensor<i64>) -> (tensor<?x2xf32>, tensor<i64>) {
  %w = kiln.get_global @w : tensor<2x3xf32>
  %b = kiln.get_global @b : tensor<2xf32>
  %0 = kiln.linear %x, %w bias %b : tensor<2xf32> : tensor<?x3xf32>, tensor<2x3xf32>
  return %0, %n : tensor<?x2xf32>, tensor<i64>
}
func.func @all(%a: tensor<2xf64>, %b: tensor<2xf16>, %c: tensor<2xbf16>, %d: tensor<2xf8E4M3FN>, %e: tensor<2xf8E5M2>, %f: tensor<2xi32>,
    %g: tensor<2xi16>, %h: tensor<2xi8>, %i: tensor<2xui8>, %j: tensor<2xi1>)
    -> (tensor<2xf64>, tensor<2xf16>, tensor<2xbf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<2xui8>, tensor<2xi1>) {
  return %a, %b, %c, %d, %e, %f, %g, %h, %i, %j
      : tensor<2xf64>, tensor<2xf16>, tensor<2xbf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<2xui8>, tensor<2xi1>
}
func.func @unsupported(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.custom_call "nobody.knows"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
