// RUN: kiln-merge-groups{chip=sm_90a flops=0},cse

// Groups of 4 channels and 4 filters: 16 of them fill a tile of 64 columns and a K step.
// CASE: narrow
// CHECK: kiln.select
// CHECK: {groups = 2 : i64, kiln.groups = "joined by 16"}
module {
  func.func @main(%x: tensor<1x128x4x5xbf16>, %w: tensor<128x4x3x3xbf16>) -> tensor<1x128x4x5xbf16> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 32 : i64} : tensor<1x128x4x5xbf16>, tensor<128x4x3x3xbf16>
    return %0 : tensor<1x128x4x5xbf16>
  }
}

// -----
// Groups of 24: two make 48, which wastes less of a tile than eight, which would make 192.
// CASE: partial_tiles
// CHECK: {groups = 3 : i64, kiln.groups = "joined by 2"}
module {
  func.func @main(%x: tensor<1x144x4x4xf16>, %w: tensor<144x24x3x3xf16>) -> tensor<1x144x2x2xf16> {
    %0 = kiln.convolution %x, %w strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 6 : i64} : tensor<1x144x4x4xf16>, tensor<144x24x3x3xf16>
    return %0 : tensor<1x144x2x2xf16>
  }
}

// -----
// Wide groups stay apart, and are marked for the passes that pad and lay out.
// CASE: wide
// CHECK: {groups = 2 : i64, kiln.groups = "as given"}
// IMPLICIT-CHECK-NOT: kiln.select
module {
  func.func @main(%x: tensor<?x128x4x4xbf16>, %w: tensor<192x64x3x3xbf16>) -> tensor<?x192x4x4xbf16> {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 2 : i64} : tensor<?x128x4x4xbf16>, tensor<192x64x3x3xbf16>
    return %0 : tensor<?x192x4x4xbf16>
  }
}

// -----
// Five groups of 6 channels are no multiple of 16 bytes however they are joined; f32 has no tensor
// cores without tf32; a depthwise convolution has a kernel of its own.
// CASE: others
// CHECK-COUNT-3: kiln.convolution
// IMPLICIT-CHECK-NOT: kiln.groups
module {
  func.func @main(%x: tensor<1x30x4x4xbf16>, %w: tensor<30x6x3x3xbf16>, %y: tensor<1x128x4x4xf32>, %v: tensor<128x4x3x3xf32>, %z: tensor<1x64x4x4xbf16>, %u: tensor<64x1x3x3xbf16>) -> (tensor<1x30x4x4xbf16>, tensor<1x128x4x4xf32>, tensor<1x64x4x4xbf16>) {
    %0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 5 : i64} : tensor<1x30x4x4xbf16>, tensor<30x6x3x3xbf16>
    %1 = kiln.convolution %y, %v strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 32 : i64} : tensor<1x128x4x4xf32>, tensor<128x4x3x3xf32>
    %2 = kiln.convolution %z, %u strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 64 : i64} : tensor<1x64x4x4xbf16>, tensor<64x1x3x3xbf16>
    return %0, %1, %2 : tensor<1x30x4x4xbf16>, tensor<1x128x4x4xf32>, tensor<1x64x4x4xbf16>
  }
}
