// One kernel over a vector of any length: relu(2x + 1).
module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %n = kiln.sym @n {min = 0}
    kiln.bind_shape %x, [%n] : tensor<?xf32>
    %two = kiln.splat [%n], 2.0 : f32
    %one = kiln.splat [%n], 1.0 : f32
    %zero = kiln.splat [%n], 0.0 : f32
    %0 = kiln.mul %x, %two : tensor<?xf32>
    %1 = kiln.add %0, %one : tensor<?xf32>
    %2 = kiln.max %1, %zero : tensor<?xf32>
    return %2 : tensor<?xf32>
  }
}
