// RUN: kiln-vmap

// CASE: the_batch_is_in_front
// CHECK: kiln.exp %{{.*}} : tensor<5x4xf32>
// CHECK: kiln.reduce sum {{.*}} dims = [1]
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x4xf32>) -> tensor<5xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x4xf32>) -> tensor<5xf32> {
  ^bb0(%row: tensor<4xf32>):
    %1 = kiln.exp %row : tensor<4xf32>
    %2 = kiln.reduce sum %1 dims = [0] : tensor<4xf32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<5xf32>
}

// -----
// CASE: what_all_examples_share_is_computed_once
// CHECK: kiln.sin %{{.*}} : tensor<3x4xf32>
// CHECK: kiln.linear %{{.*}}, %{{.*}} : tensor<5x2x4xf32>, tensor<3x4xf32>
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x2x4xf32>, %w: tensor<3x4xf32>) -> tensor<5x2x3xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x2x4xf32>) -> tensor<5x2x3xf32> {
  ^bb0(%row: tensor<2x4xf32>):
    %1 = kiln.sin %w : tensor<3x4xf32>
    %2 = kiln.linear %row, %1 : tensor<2x4xf32>, tensor<3x4xf32>
    kiln.yield %2 : tensor<2x3xf32>
  }
  return %0 : tensor<5x2x3xf32>
}

// -----
// What is the same for all examples is repeated.
// CASE: fft
// CHECK: kiln.fft c2c {{.*}} length = 4 : tensor<5x4xf32>, tensor<5x4xf32>
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x4xf32>, %y: tensor<4xf32>) -> tensor<5x4xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x4xf32>) -> tensor<5x4xf32> {
  ^bb0(%row: tensor<4xf32>):
    %1:2 = kiln.fft c2c %row, %y length = 4 : tensor<4xf32>, tensor<4xf32>
    kiln.yield %1#1 : tensor<4xf32>
  }
  return %0 : tensor<5x4xf32>
}

// -----
// CASE: both_sides_of_a_product
// CHECK: kiln.dot_general {{.*}} : tensor<5x2x4xf32>, tensor<5x3x4xf32>
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x2x4xf32>, %w: tensor<5x3x4xf32>) -> tensor<5x2x3xf32> {
  %0 = kiln.scan inits() over(%x, %w : tensor<5x2x4xf32>, tensor<5x3x4xf32>) -> tensor<5x2x3xf32> {
  ^bb0(%row: tensor<2x4xf32>, %own: tensor<3x4xf32>):
    %1 = kiln.linear %row, %own : tensor<2x4xf32>, tensor<3x4xf32>
    kiln.yield %1 : tensor<2x3xf32>
  }
  return %0 : tensor<5x2x3xf32>
}

// -----
// CASE: an_op_without_a_rule_has_a_scan_of_its_own
// CHECK: kiln.exp %{{.*}} : tensor<5x1x2x6xf32>
// CHECK: kiln.scan
// CHECK-NEXT: ^bb0
// CHECK-NEXT: kiln.convolution
// CHECK: kiln.neg {{.*}} : tensor<5x1x3x4xf32>
func.func @f(%x: tensor<5x1x2x6xf32>, %w: tensor<5x3x2x3xf32>) -> tensor<5x1x3x4xf32> {
  %0 = kiln.scan inits() over(%x, %w : tensor<5x1x2x6xf32>, tensor<5x3x2x3xf32>) -> tensor<5x1x3x4xf32> {
  ^bb0(%row: tensor<1x2x6xf32>, %weight: tensor<3x2x3xf32>):
    %1 = kiln.exp %row : tensor<1x2x6xf32>
    %2 = kiln.convolution %1, %weight strides = [1] pad = [0] x [0] dilation = [1] : tensor<1x2x6xf32>, tensor<3x2x3xf32>
    %3 = kiln.neg %2 : tensor<1x3x4xf32>
    kiln.yield %3 : tensor<1x3x4xf32>
  }
  return %0 : tensor<5x1x3x4xf32>
}

// -----
// Starts that differ are indices.
// CASE: slices_at_other_places
// CHECK: kiln.gather
// CHECK: kiln.scatter assign
// IMPLICIT-CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x4xf32>, %i: tensor<5xi64>) -> tensor<5x4xf32> {
  %0 = kiln.scan inits() over(%x, %i : tensor<5x4xf32>, tensor<5xi64>) -> tensor<5x4xf32> {
  ^bb0(%row: tensor<4xf32>, %at: tensor<i64>):
    %1 = kiln.dynamic_slice %row[%at : tensor<i64>] sizes = [2] : tensor<4xf32>
    %2 = kiln.exp %1 : tensor<2xf32>
    %3 = kiln.dynamic_update_slice %row[%at : tensor<i64>], %2 : tensor<4xf32>, tensor<2xf32>
    kiln.yield %3 : tensor<4xf32>
  }
  return %0 : tensor<5x4xf32>
}

// -----
// The same start for all examples stays one.
// CASE: slices_at_one_place
// CHECK: kiln.dynamic_slice %{{.*}}[%{{.*}}, %{{.*}} : tensor<i64>, tensor<i64>] sizes = [5, 2]
// IMPLICIT-CHECK-NOT: kiln.gather
func.func @f(%x: tensor<5x4xf32>, %at: tensor<i64>) -> tensor<5x2xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x4xf32>) -> tensor<5x2xf32> {
  ^bb0(%row: tensor<4xf32>):
    %1 = kiln.dynamic_slice %row[%at : tensor<i64>] sizes = [2] : tensor<4xf32>
    kiln.yield %1 : tensor<2xf32>
  }
  return %0 : tensor<5x2xf32>
}

// -----
// Each update's example is one more index.
// CASE: scatters
// CHECK: kiln.scatter add {{.*}} dims = [0, 1] : tensor<5x4xf32>[tensor<5x3xi64>, tensor<5x3xi64>], tensor<5x3xf32>
func.func @f(%x: tensor<5x4xf32>, %u: tensor<5x3xf32>) -> tensor<5x4xf32> {
  %i = kiln.constant dense<[3, 1, 3]> : tensor<3xi64>
  %0 = kiln.scan inits() over(%x, %u : tensor<5x4xf32>, tensor<5x3xf32>) -> tensor<5x4xf32> {
  ^bb0(%row: tensor<4xf32>, %updates: tensor<3xf32>):
    %1 = kiln.scatter add %row[%i], %updates dims = [0] : tensor<4xf32>[tensor<3xi64>], tensor<3xf32>
    kiln.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<5x4xf32>
}

// -----
// Examples are more batches; a bias that they share stays one.
// CASE: attention
// CHECK: kiln.attention %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} : tensor<6x6xf32> {{.*}}tensor<10x4x6x8xf32>
// IMPLICIT-CHECK-NOT: kiln.scan
func.func @f(%q: tensor<5x2x4x6x8xf32>, %k: tensor<5x2x2x6x8xf32>, %bias: tensor<6x6xf32>) -> tensor<5x2x4x6x8xf32> {
  %0 = kiln.scan inits() over(%q, %k : tensor<5x2x4x6x8xf32>, tensor<5x2x2x6x8xf32>) -> tensor<5x2x4x6x8xf32> {
  ^bb0(%query: tensor<2x4x6x8xf32>, %key: tensor<2x2x6x8xf32>):
    %1 = kiln.attention %query, %key, %key bias %bias : tensor<6x6xf32> causal : tensor<2x4x6x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x8xf32>
    kiln.yield %1 : tensor<2x4x6x8xf32>
  }
  return %0 : tensor<5x2x4x6x8xf32>
}

// -----
// CASE: more_images_of_a_convolution
// CHECK: kiln.convolution %{{.*}} : tensor<10x3x8x8xf32>
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<5x2x4x6x6xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x2x3x8x8xf32>) -> tensor<5x2x4x6x6xf32> {
  ^bb0(%row: tensor<2x3x8x8xf32>):
    %1 = kiln.convolution %row, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] : tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>
    kiln.yield %1 : tensor<2x4x6x6xf32>
  }
  return %0 : tensor<5x2x4x6x6xf32>
}

// -----
// CASE: loop_carried_values_keep_the_loop
// CHECK: kiln.scan
func.func @f(%x: tensor<5x4xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {
  %0 = kiln.scan inits(%c : tensor<4xf32>) over(%x : tensor<5x4xf32>) -> tensor<4xf32> {
  ^bb0(%sum: tensor<4xf32>, %row: tensor<4xf32>):
    %1 = kiln.add %sum, %row : tensor<4xf32>
    kiln.yield %1 : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----
// CASE: checkpoints_stay
// CHECK: kiln.checkpoint -> tensor<5x2x3xf32>
// CHECK: kiln.linear %{{.*}}, %{{.*}} : tensor<5x2x4xf32>, tensor<3x4xf32>
// CHECK: kiln.gelu %{{.*}} : tensor<5x2x3xf32>
// CHECK-NOT: kiln.scan
func.func @f(%x: tensor<5x2x4xf32>, %w: tensor<3x4xf32>) -> tensor<5x2x3xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5x2x4xf32>) -> tensor<5x2x3xf32> {
  ^bb0(%row: tensor<2x4xf32>):
    %1 = kiln.checkpoint -> tensor<2x3xf32> {
      %2 = kiln.linear %row, %w : tensor<2x4xf32>, tensor<3x4xf32>
      %3 = kiln.gelu %2 : tensor<2x3xf32>
      kiln.yield %3 : tensor<2x3xf32>
    }
    kiln.yield %1 : tensor<2x3xf32>
  }
  return %0 : tensor<5x2x3xf32>
}

// -----
// CASE: effects
func.func @f(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5xf32>) -> tensor<5xf32> {
  ^bb0(%row: tensor<f32>):
    // expected-error @+1 {{cannot be batched: it has effects, whose order a batch does not keep}}
    %1 = kiln.custom_call effect "test.identity"(%row) : (tensor<f32>) -> tensor<f32>
    kiln.yield %1 : tensor<f32>
  }
  return %0 : tensor<5xf32>
}

// -----
// One that is the same for all examples would run once instead of once for each.
// CASE: effects_of_what_all_examples_share
func.func @f(%x: tensor<5xf32>, %y: tensor<f32>) -> tensor<5xf32> {
  %0 = kiln.scan inits() over(%x : tensor<5xf32>) -> tensor<5xf32> {
  ^bb0(%row: tensor<f32>):
    // expected-error @+1 {{cannot be batched: it has effects, whose order a batch does not keep}}
    %1 = kiln.custom_call effect "test.identity"(%y) : (tensor<f32>) -> tensor<f32>
    %2 = kiln.add %row, %1 : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }
  return %0 : tensor<5xf32>
}
