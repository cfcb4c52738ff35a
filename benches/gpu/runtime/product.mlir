// A bf16 product of a known depth for any number of rows.
module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<?x512xbf16>, %w: tensor<256x512xbf16>) -> tensor<?x256xbf16> {
    %n = kiln.sym @n {min = 1}
    kiln.bind_shape %x, [%n, 512] : tensor<?x512xbf16>
    %y = kiln.linear %x, %w : tensor<?x512xbf16>, tensor<256x512xbf16>
    return %y : tensor<?x256xbf16>
  }
}
