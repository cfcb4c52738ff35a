// x xᵀ x for any number of rows: the square of it lies between two kernels, so that few rows are small and 300,000 more than any card holds.
module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
    %n = kiln.sym @n {min = 1}
    kiln.bind_shape %x, [%n, 8] : tensor<?x8xf32>
    %t = kiln.transpose %x permutation = [1, 0] : tensor<?x8xf32>
    %s = kiln.matmul %x, %t : tensor<?x8xf32>, tensor<8x?xf32>
    %y = kiln.matmul %s, %x : tensor<?x?xf32>, tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
