// RUN: kiln-alias-results

// AdamW: each result overwrites its own argument, though the new weight could take the moment's.
// CASE: in_place
// NO-RUN: it only marks arguments
// CHECK: %arg0: tensor<8xf32> {kiln.aliases = 0 : i64
// CHECK: %arg1: tensor<8xf32> {kiln.aliases = 1 : i64
// CHECK-NOT: kiln.not_aliased
module attributes {kiln.level = "tiled"} {
  func.func @main(%w: tensor<8xf32> {kiln.donated = "results"}, %m: tensor<8xf32> {kiln.donated = "results"}, %g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %e0 = tensor.empty() : tensor<8xf32>
    %e1 = tensor.empty() : tensor<8xf32>
    %0:2 = kiln.launch @update ins(%w, %m, %g : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) outs(%e0, %e1 : tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>, tensor<8xf32>
    return %0#0, %0#1 : tensor<8xf32>, tensor<8xf32>
  }
  module @update attributes {kiln.kernel = {in_place = array<i64: 0, 1, 0, 0, 1, 1>, kind = "pointwise"}} {}
}

// -----
// A mutated argument has its new value's memory or none: the results could take each other's.
// CASE: mutated_arguments
// NO-RUN: it only marks arguments
// CHECK: %arg0: tensor<8xf32> {kiln.aliases = 1 : i64
// CHECK: %arg1: tensor<8xf32> {kiln.aliases = 0 : i64
// CHECK: kernel l reads it after kernel update has written result 2
module attributes {kiln.level = "tiled"} {
  func.func @main(%w: tensor<8xf32> {kiln.donated = 1 : i64}, %m: tensor<8xf32> {kiln.donated = 0 : i64}, %v: tensor<8xf32> {kiln.donated = 2 : i64}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>) {
    %e0 = tensor.empty() : tensor<8xf32>
    %e1 = tensor.empty() : tensor<8xf32>
    %e2 = tensor.empty() : tensor<8xf32>
    %0:3 = kiln.launch @update ins(%w, %m, %v : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) outs(%e0, %e1, %e2 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
    %e3 = tensor.empty() : tensor<f32>
    %1 = kiln.launch @l ins(%v, %0#0 : tensor<8xf32>, tensor<8xf32>) outs(%e3 : tensor<f32>) -> tensor<f32>
    return %0#0, %0#1, %0#2, %1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>
  }
  module @update attributes {kiln.kernel = {in_place = array<i64: 0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2, 2, 0, 2, 1, 2, 2>, kind = "pointwise"}} {}
  module @l attributes {kiln.kernel = {kind = "rows"}} {}
}

// -----
// %x is dead when @l writes the result; %y is read by that launch, which may not overwrite it.
// CASE: dead_argument
// NO-RUN: it only marks arguments
// CHECK: %arg0: tensor<8xf32> {kiln.aliases = 0 : i64
// CHECK: kernel l may read it after it has written that element of result 1
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<8xf32> {kiln.donated = "results"}, %y: tensor<8xf32> {kiln.donated = "results"}) -> (tensor<8xf32>, tensor<8xf32>) {
    %e0 = tensor.empty() : tensor<8xf32>
    %0 = kiln.launch @k ins(%x : tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
    %e1 = tensor.empty() : tensor<8xf32>
    %e2 = tensor.empty() : tensor<8xf32>
    %1:2 = kiln.launch @l ins(%0, %y : tensor<8xf32>, tensor<8xf32>) outs(%e1, %e2 : tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>, tensor<8xf32>
    return %1#0, %1#1 : tensor<8xf32>, tensor<8xf32>
  }
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
  module @l attributes {kiln.kernel = {kind = "transpose"}} {}
}

// -----
// The old weights are read after the new ones are there, which the second launch takes.
// CASE: read_afterwards
// NO-RUN: it only marks arguments
// CHECK: kernel l reads it after kernel k has written result 0
// CHECK-NOT: kiln.aliases
module attributes {kiln.level = "tiled"} {
  func.func @main(%w: tensor<8xf32> {kiln.donated = "results"}) -> (tensor<8xf32>, tensor<f32>) {
    %e0 = tensor.empty() : tensor<8xf32>
    %0 = kiln.launch @k ins(%w : tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
    %e1 = tensor.empty() : tensor<f32>
    %1 = kiln.launch @l ins(%w, %0 : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<f32>) -> tensor<f32>
    return %0, %1 : tensor<8xf32>, tensor<f32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 0>, kind = "pointwise"}} {}
  module @l attributes {kiln.kernel = {kind = "rows"}} {}
}

// -----
// The update moves behind the launch that reads the old weights, with the view of its result.
// CASE: update_moves
// NO-RUN: it moves launches, whose kernels are not here
// CHECK: kiln.aliases = 0 : i64
// CHECK: kiln.launch @l
// CHECK: kiln.launch @k
// CHECK: kiln.reshape
module attributes {kiln.level = "tiled"} {
  func.func @main(%w: tensor<2x4xf32> {kiln.donated = "results"}) -> (tensor<2x4xf32>, tensor<f32>) {
    %flat = kiln.reshape %w sizes = [8] : tensor<2x4xf32>
    %e0 = tensor.empty() : tensor<8xf32>
    %0 = kiln.launch @k ins(%flat : tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
    %1 = kiln.reshape %0 sizes = [2, 4] : tensor<8xf32>
    %e1 = tensor.empty() : tensor<f32>
    %2 = kiln.launch @l ins(%w : tensor<2x4xf32>) outs(%e1 : tensor<f32>) -> tensor<f32>
    return %1, %2 : tensor<2x4xf32>, tensor<f32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 0>, kind = "pointwise"}} {}
  module @l attributes {kiln.kernel = {kind = "rows"}} {}
}

// -----
// Neither an argument of another type, nor one that is a result itself; one that is not donated for
// results is left alone.
// CASE: not_at_all
// NO-RUN: it only marks arguments
// CHECK: no result is of its dtype and sizes
// CHECK: it is itself a result
// CHECK: %arg2: tensor<8xf32> {kiln.donated}
module attributes {kiln.level = "tiled"} {
  func.func @main(%x: tensor<8xf16> {kiln.donated = "results"}, %y: tensor<8xf32> {kiln.donated = "results"}, %z: tensor<8xf32> {kiln.donated}) -> (tensor<8xf32>, tensor<8xf32>) {
    %e0 = tensor.empty() : tensor<8xf32>
    %0 = kiln.launch @k ins(%x, %y, %z : tensor<8xf16>, tensor<8xf32>, tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
    return %0, %y : tensor<8xf32>, tensor<8xf32>
  }
  module @k attributes {kiln.kernel = {in_place = array<i64: 0, 1>, kind = "pointwise"}} {}
}

// -----
// A launch writes a slice into each state. Each new value stays in the memory of its own state, in
// whatever order they come; a state that is no launch's destination takes no other one's result.
// CASE: states
// NO-RUN: it only marks arguments
// CHECK: kiln.aliases = 1 : i64
// CHECK: kiln.aliases = 0 : i64
// CHECK: kiln.aliases = 2 : i64
// CHECK-NOT: kiln.not_aliased
module attributes {kiln.level = "tiled"} {
  func.func @main(%a: tensor<8xf32> {kiln.donated = "results", kiln.state = {result = 1 : i64, source = ""}}, %b: tensor<8xf32> {kiln.donated = "results", kiln.state = {result = 0 : i64, source = ""}}, %c: tensor<8xf32> {kiln.donated = "results", kiln.state = {result = 2 : i64, source = ""}}, %x: tensor<1xf32>, %i: tensor<i64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    %0 = kiln.launch @put ins(%x, %i, %a : tensor<1xf32>, tensor<i64>, tensor<8xf32>) outs(%a : tensor<8xf32>) -> tensor<8xf32>
    %1 = kiln.launch @put ins(%x, %i, %b : tensor<1xf32>, tensor<i64>, tensor<8xf32>) outs(%b : tensor<8xf32>) -> tensor<8xf32>
    %e = tensor.empty() : tensor<8xf32>
    %2 = kiln.launch @k ins(%0 : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %1, %0, %2 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }
  module @put attributes {kiln.kernel = {kind = "single", pieces = [array<i64: 0, 1>]}} {}
  module @k attributes {kiln.kernel = {kind = "pointwise"}} {}
}
