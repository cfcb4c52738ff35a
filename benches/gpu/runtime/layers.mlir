// Ten small layers of one weight, tanh(x w + b), for any number of rows: as many launches, with memory between them.
module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> {
    %n = kiln.sym @n {min = 1}
    kiln.bind_shape %x, [%n, 64] : tensor<?x64xf32>
    %l0 = kiln.linear %x, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y0 = kiln.tanh %l0 : tensor<?x64xf32>
    %l1 = kiln.linear %y0, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y1 = kiln.tanh %l1 : tensor<?x64xf32>
    %l2 = kiln.linear %y1, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y2 = kiln.tanh %l2 : tensor<?x64xf32>
    %l3 = kiln.linear %y2, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y3 = kiln.tanh %l3 : tensor<?x64xf32>
    %l4 = kiln.linear %y3, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y4 = kiln.tanh %l4 : tensor<?x64xf32>
    %l5 = kiln.linear %y4, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y5 = kiln.tanh %l5 : tensor<?x64xf32>
    %l6 = kiln.linear %y5, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y6 = kiln.tanh %l6 : tensor<?x64xf32>
    %l7 = kiln.linear %y6, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y7 = kiln.tanh %l7 : tensor<?x64xf32>
    %l8 = kiln.linear %y7, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y8 = kiln.tanh %l8 : tensor<?x64xf32>
    %l9 = kiln.linear %y8, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>
    %y9 = kiln.tanh %l9 : tensor<?x64xf32>
    return %y9 : tensor<?x64xf32>
  }
}
