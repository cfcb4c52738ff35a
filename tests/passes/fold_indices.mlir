// RUN: kiln-fold-indices,kiln-simplify,canonicalize

// How transformers detects packed sequences: a position id that does not increase starts a new one.
// CASE: position_ids_of_one_sequence
// IMPLICIT-CHECK-NOT: kiln.cumulative
// IMPLICIT-CHECK-NOT: kiln.gather
// CHECK: kiln.compare le
// IMPLICIT-CHECK-NOT: kiln.compare eq
func.func @f() -> tensor<2x2048x2048xi1> {
  %positions = kiln.iota [2, 2048] axis = 1 : i64
  %ones = kiln.splat [2, 2047], 1 : i64
  %later = kiln.slice %positions offsets = [0, 1] sizes = [2, 2047] strides = [1, 1] : tensor<2x2048xi64>
  %earlier = kiln.slice %positions offsets = [0, 0] sizes = [2, 2047] strides = [1, 1] : tensor<2x2048xi64>
  %step = kiln.sub %later, %earlier : tensor<2x2047xi64>
  %jumps = kiln.compare ne %step, %ones : tensor<2x2047xi64>
  %jump = kiln.convert %jumps : tensor<2x2047xi1> to i64
  %zero = kiln.splat [2, 1], 0 : i64
  %padded = kiln.concat %zero, %jump axis = 1 : tensor<2x1xi64>, tensor<2x2047xi64>
  %sequence = kiln.cumulative sum %padded axis = 1 : tensor<2x2048xi64>
  %of_query = kiln.broadcast_in_dim %sequence dims = [0, 1] sizes = [2, 2048, 2048] : tensor<2x2048xi64>
  %of_key = kiln.broadcast_in_dim %sequence dims = [0, 2] sizes = [2, 2048, 2048] : tensor<2x2048xi64>
  %together = kiln.compare eq %of_query, %of_key : tensor<2x2048x2048xi64>
  %query = kiln.iota [2, 2048, 2048] axis = 1 : i64
  %key = kiln.iota [2, 2048, 2048] axis = 2 : i64
  %causal = kiln.compare le %key, %query : tensor<2x2048x2048xi64>
  %seen = kiln.and %together, %causal : tensor<2x2048x2048xi1>
  return %seen : tensor<2x2048x2048xi1>
}

// -----
// One position restarts, so the running sums differ.
// CASE: position_ids_of_two_sequences
// CHECK: kiln.cumulative
func.func @f() -> tensor<8xi64> {
  %a = kiln.iota [2048] axis = 0 : i64
  %limit = kiln.splat [2048], 1000 : i64
  %jumps = kiln.compare eq %a, %limit : tensor<2048xi64>
  %jump = kiln.convert %jumps : tensor<2048xi1> to i64
  %sequence = kiln.cumulative sum %jump axis = 0 : tensor<2048xi64>
  %0 = kiln.slice %sequence offsets = [996] sizes = [8] strides = [1] : tensor<2048xi64>
  return %0 : tensor<8xi64>
}

// -----
// The wrap-around of negative indices folds away.
// CASE: no_negative_index
// CHECK-NOT: kiln.select
func.func @f(%x: tensor<4096x8xf32>) -> tensor<4096x8xf32> {
  %i = kiln.iota [4096] axis = 0 : i64
  %zero = kiln.splat [4096], 0 : i64
  %size = kiln.splat [4096], 4096 : i64
  %negative = kiln.compare lt %i, %zero : tensor<4096xi64>
  %from_end = kiln.add %i, %size : tensor<4096xi64>
  %index = kiln.select %negative, %from_end, %i : tensor<4096xi1>, tensor<4096xi64>
  %0 = kiln.gather %x[%index] dims = [0] : tensor<4096x8xf32>[tensor<4096xi64>]
  return %0 : tensor<4096x8xf32>
}

// -----
// A gather of position ids from an iota table.
// CASE: iota_table_lookup
// IMPLICIT-CHECK-NOT: kiln.gather
// CHECK: kiln.iota [2, 1, 1024] axis = 2
func.func @f() -> tensor<2x1x1024xi64> {
  %table = kiln.iota [2, 1024] axis = 1 : i64
  %batch = kiln.iota [2, 1, 1024] axis = 0 : i64
  %position = kiln.iota [2, 1, 1024] axis = 2 : i64
  %0 = kiln.gather %table[%batch, %position] dims = [0, 1] : tensor<2x1024xi64>[tensor<2x1x1024xi64>, tensor<2x1x1024xi64>]
  return %0 : tensor<2x1x1024xi64>
}

// -----
// Values that differ only in the sign of zero, or depend on an input, do not fold.
// CASE: bitwise_different
// CHECK: kiln.sub
// CHECK: kiln.mul %arg0
func.func @f(%x: tensor<2048xf32>) -> (tensor<2048xf32>, tensor<2048xf32>) {
  %i = kiln.iota [2048] axis = 0 : f32
  %middle = kiln.splat [2048], 1.0e3 : f32
  %zero = kiln.splat [2048], 0.0 : f32
  %signed = kiln.sub %i, %middle : tensor<2048xf32>
  %0 = kiln.mul %signed, %zero : tensor<2048xf32>
  %1 = kiln.mul %x, %zero : tensor<2048xf32>
  return %0, %1 : tensor<2048xf32>, tensor<2048xf32>
}

// -----
// An index out of range is a run-time error and must stay one.
// CASE: out_of_range
// FAILS: index 9 is out of range
// CHECK: kiln.gather
func.func @f() -> tensor<2xi64> {
  %x = kiln.iota [4] axis = 0 : i64
  %i = kiln.splat [2], 9 : i64
  %0 = kiln.gather %x[%i] dims = [0] : tensor<4xi64>[tensor<2xi64>]
  return %0 : tensor<2xi64>
}

// -----
// An i1 that equals its index is not an iota.
// CASE: i1_is_not_an_iota
// CHECK-NOT: kiln.iota [2, 3] axis = 0 : i1
func.func @f() -> tensor<2x3xi1> {
  %i = kiln.iota [2, 3] axis = 0 : i32
  %one = kiln.splat [2, 3], 1 : i32
  %0 = kiln.compare ge %i, %one : tensor<2x3xi32>
  return %0 : tensor<2x3xi1>
}

// -----
// A gather by an arithmetic sequence is a slice, with the dimension in front.
// CASE: gather_by_a_sequence
// CHECK: kiln.slice %arg0 offsets = [0, 1, 0] sizes = [3, 4, 2] strides = [1, 2, 1]
// CHECK: kiln.transpose
// CHECK-NOT: kiln.gather
func.func @f(%x: tensor<3x9x2xf32>) -> tensor<4x3x2xf32> {
  %i = kiln.iota [4] axis = 0 : i64
  %two = kiln.splat [4], 2 : i64
  %one = kiln.splat [4], 1 : i64
  %j = kiln.mul %i, %two : tensor<4xi64>
  %k = kiln.add %j, %one : tensor<4xi64>
  %0 = kiln.gather %x[%k] dims = [1] : tensor<3x9x2xf32>[tensor<4xi64>]
  return %0 : tensor<4x3x2xf32>
}

// -----
// A sequence that leaves the dimension is a run-time error and must stay one.
// CASE: sequence_out_of_range
// FAILS: index 3 is out of range
// CHECK: kiln.gather
func.func @f() -> tensor<4xf32> {
  %x = kiln.iota [3] axis = 0 : f32
  %i = kiln.iota [4] axis = 0 : i64
  %0 = kiln.gather %x[%i] dims = [0] : tensor<3xf32>[tensor<4xi64>]
  return %0 : tensor<4xf32>
}
