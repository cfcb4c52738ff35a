// RUN: kiln-order-launches{from=64}

// @mask is the last reader of %0 and writes less: it moves up, with the view that it reads, behind
// @pool, which reads %0 too.
// CASE: last_reader
// NO-RUN: it only moves launches
// CHECK: kiln.launch @product
// CHECK: kiln.launch @pool
// CHECK: kiln.launch @mask
// CHECK: kiln.launch @next
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<64xf32>) -> (tensor<16xf32>, tensor<64xi8>) {
    %e0 = tensor.empty() : tensor<64xf32>
    %0 = kiln.launch @product ins(%x : tensor<64xf32>) outs(%e0 : tensor<64xf32>) -> tensor<64xf32>
    %e1 = tensor.empty() : tensor<16xf32>
    %1 = kiln.launch @pool ins(%0 : tensor<64xf32>) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %2 = kiln.launch @next ins(%1 : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    %v = kiln.reshape %0 sizes = [8, 8] : tensor<64xf32>
    %e3 = tensor.empty() : tensor<64xi8>
    %3 = kiln.launch @mask ins(%v : tensor<8x8xf32>) outs(%e3 : tensor<64xi8>) -> tensor<64xi8>
    return %2, %3 : tensor<16xf32>, tensor<64xi8>
  }
  module @product attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @pool attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @next attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @mask attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// @widen frees less than it writes.
// CASE: larger_result
// NO-RUN: it only moves launches
// CHECK: kiln.launch @product
// CHECK: kiln.launch @other
// CHECK: kiln.launch @widen
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<64xbf16>) -> (tensor<64xbf16>, tensor<f32>) {
    %e0 = tensor.empty() : tensor<64xbf16>
    %0 = kiln.launch @product ins(%x : tensor<64xbf16>) outs(%e0 : tensor<64xbf16>) -> tensor<64xbf16>
    %e1 = tensor.empty() : tensor<64xbf16>
    %1 = kiln.launch @other ins(%x : tensor<64xbf16>) outs(%e1 : tensor<64xbf16>) -> tensor<64xbf16>
    %e2 = tensor.empty() : tensor<64xf32>
    %2 = kiln.launch @widen ins(%0 : tensor<64xbf16>) outs(%e2 : tensor<64xf32>) -> tensor<64xf32>
    %e3 = tensor.empty() : tensor<f32>
    %3 = kiln.launch @sum ins(%2 : tensor<64xf32>) outs(%e3 : tensor<f32>) -> tensor<f32>
    return %1, %3 : tensor<64xbf16>, tensor<f32>
  }
  module @product attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @other attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @widen attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @sum attributes {kiln.kernel = {kind = "rows"}} {}
}

// -----
// The derivative of logits may overwrite them once the bias' gradient has been computed of them.
// CASE: donated_argument
// NO-RUN: it only moves launches
// CHECK: kiln.launch @bias
// CHECK: kiln.launch @derivative
// CHECK: kiln.launch @product
module attributes {kiln.level = "tiled"} {
  func.func @main(%logits: tensor<8x64xbf16> {kiln.donated}, %w: tensor<64x4xbf16>) -> (tensor<64xf32>, tensor<8x4xbf16>) {
    %e0 = tensor.empty() : tensor<8x64xbf16>
    %0 = kiln.launch @derivative ins(%logits : tensor<8x64xbf16>) outs(%e0 : tensor<8x64xbf16>) -> tensor<8x64xbf16>
    %e1 = tensor.empty() : tensor<64xf32>
    %1 = kiln.launch @bias ins(%logits : tensor<8x64xbf16>) outs(%e1 : tensor<64xf32>) -> tensor<64xf32>
    %e2 = tensor.empty() : tensor<8x4xbf16>
    %2 = kiln.launch @product ins(%0, %w : tensor<8x64xbf16>, tensor<64x4xbf16>) outs(%e2 : tensor<8x4xbf16>) -> tensor<8x4xbf16>
    return %1, %2 : tensor<64xf32>, tensor<8x4xbf16>
  }
  module @derivative attributes {kiln.kernel = {in_place = array<i64: 0, 0>, kind = "pointwise"}} {}
  module @bias attributes {kiln.kernel = {kind = "rows"}} {}
  module @product attributes {kiln.kernel = {kind = "contraction"}} {}
}

// -----
// @read comes before @write changes the cache, whose kernel is the last reader of %0.
// CASE: written_argument
// NO-RUN: it only moves launches
// CHECK: kiln.launch @product
// CHECK: kiln.launch @read
// CHECK: kiln.launch @write
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<64xf32>, %cache: tensor<64xf32> {kiln.donated = 0 : i64}) -> (tensor<64xf32>, tensor<f32>) {
    %e0 = tensor.empty() : tensor<64xf32>
    %0 = kiln.launch @product ins(%x : tensor<64xf32>) outs(%e0 : tensor<64xf32>) -> tensor<64xf32>
    %e1 = tensor.empty() : tensor<f32>
    %1 = kiln.launch @read ins(%cache : tensor<64xf32>) outs(%e1 : tensor<f32>) -> tensor<f32>
    %2 = kiln.launch @write ins(%cache, %0 : tensor<64xf32>, tensor<64xf32>) outs(%cache : tensor<64xf32>) -> tensor<64xf32>
    return %2, %1 : tensor<64xf32>, tensor<f32>
  }
  module @product attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @read attributes {kiln.kernel = {kind = "rows"}} {}
  module @write attributes {kiln.kernel = {kind = "pointwise"}} {}
}

// -----
// The same where a launch that may overwrite %g reads the cache, too: it stays in front of @write.
// CASE: reader_of_a_written_argument
// NO-RUN: it only moves launches
// CHECK: kiln.launch @derivative
// CHECK: kiln.launch @write
module attributes {kiln.level = "tiled"} {
  func.func @main(%g: tensor<64xf32> {kiln.donated}, %cache: tensor<64xf32> {kiln.donated = 0 : i64}) -> (tensor<64xf32>, tensor<f32>, tensor<f32>) {
    %e0 = tensor.empty() : tensor<64xf32>
    %0 = kiln.launch @derivative ins(%g, %cache : tensor<64xf32>, tensor<64xf32>) outs(%e0 : tensor<64xf32>) -> tensor<64xf32>
    %1 = kiln.launch @write ins(%cache : tensor<64xf32>) outs(%cache : tensor<64xf32>) -> tensor<64xf32>
    %e2 = tensor.empty() : tensor<f32>
    %2 = kiln.launch @sum ins(%g : tensor<64xf32>) outs(%e2 : tensor<f32>) -> tensor<f32>
    %e3 = tensor.empty() : tensor<f32>
    %3 = kiln.launch @sum ins(%0 : tensor<64xf32>) outs(%e3 : tensor<f32>) -> tensor<f32>
    return %1, %2, %3 : tensor<64xf32>, tensor<f32>, tensor<f32>
  }
  module @derivative attributes {kiln.kernel = {in_place = array<i64: 0, 0>, kind = "pointwise"}} {}
  module @write attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @sum attributes {kiln.kernel = {kind = "rows"}} {}
}
