// Control flow and calls.

// CASE: if
func.func @f(%c: tensor<i1>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<i1>) {
  %0:2 = kiln.if %c : tensor<i1> -> tensor<?xf32>, tensor<i1> {
    %1 = kiln.neg %x : tensor<?xf32>
    kiln.yield %1, %c : tensor<?xf32>, tensor<i1>
  } else {
    kiln.yield %x, %c : tensor<?xf32>, tensor<i1>
  }
  kiln.if %c : tensor<i1> {
    kiln.yield
  } else {
    kiln.yield
  }
  return %0#0, %0#1 : tensor<?xf32>, tensor<i1>
}

// -----

// CASE: while
func.func @f(%n: tensor<i64>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %one = kiln.constant dense<1> : tensor<i64>
  %zero = kiln.constant dense<0> : tensor<i64>
  %0:2 = kiln.while(%n, %x) : (tensor<i64>, tensor<2xf32>) -> (tensor<i64>, tensor<2xf32>) {
  ^bb0(%i: tensor<i64>, %y: tensor<2xf32>):
    %c = kiln.compare gt %i, %zero : tensor<i64>
    kiln.yield %c : tensor<i1>
  } do {
  ^bb0(%i: tensor<i64>, %y: tensor<2xf32>):
    %j = kiln.sub %i, %one : tensor<i64>
    %z = kiln.add %y, %y : tensor<2xf32>
    kiln.yield %j, %z : tensor<i64>, tensor<2xf32>
  }
  return %0#1 : tensor<2xf32>
}

// -----

// CASE: scan
func.func @f(%c: tensor<2xf32>, %x: tensor<?x2xf32>, %i: tensor<?xi8>) -> (tensor<2xf32>, tensor<?x2xf32>, tensor<?xi8>) {
  %0:3 = kiln.scan reverse inits(%c : tensor<2xf32>) over(%x, %i : tensor<?x2xf32>, tensor<?xi8>) -> tensor<2xf32>, tensor<?x2xf32>, tensor<?xi8> {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>, %k: tensor<i8>):
    %1 = kiln.add %a, %b : tensor<2xf32>
    kiln.yield %1, %a, %k : tensor<2xf32>, tensor<2xf32>, tensor<i8>
  }
  %2 = kiln.scan inits() over(%x : tensor<?x2xf32>) -> tensor<?xi1> {
  ^bb0(%b: tensor<2xf32>):
    %3 = kiln.splat [], true
    kiln.yield %3 : tensor<i1>
  }
  return %0#0, %0#1, %0#2 : tensor<2xf32>, tensor<?x2xf32>, tensor<?xi8>
}

// -----

// CASE: custom_call
func.func @f(%x: tensor<2xf32>, %y: tensor<i1>) -> (tensor<2xf32>, tensor<i1>) {
  %0:2 = kiln.custom_call "test.identity"(%x, %y) config {level = 3 : i64} : (tensor<2xf32>, tensor<i1>) -> (tensor<2xf32>, tensor<i1>)
  kiln.custom_call effect "test.identity"() : () -> ()
  return %0#0, %0#1 : tensor<2xf32>, tensor<i1>
}

// -----

// CASE: unbacked_size
func.func @f(%x: tensor<4xf32>, %n: tensor<i64>) -> (tensor<?xf32>, tensor<i64>) attributes {kiln.size_results = ["u0"]} {
  %0 = kiln.unbacked_size @u0, %n max [4] : tensor<i64> -> tensor<?x0xi8>
  %u0 = kiln.sym @u0 {min = 1 : i64}
  %1 = kiln.slice %x offsets = [0] sizes = [%u0] strides = [1] : tensor<4xf32>
  return %1, %n : tensor<?xf32>, tensor<i64>
}

// -----

func.func @f(%n: tensor<i32>) {
  // expected-error @+1 {{needs a 0-d i64}}
  %0 = kiln.unbacked_size @u0, %n max [4] : tensor<i32> -> tensor<?x0xi8>
  return
}

// -----

func.func @f(%n: tensor<i64>) {
  // expected-error @+1 {{not of tensor<?x0xi8>}}
  %0 = kiln.unbacked_size @u0, %n max [4] : tensor<i64> -> tensor<?x1xi8>
  return
}

// -----

func.func @f(%c: tensor<i1>, %n: tensor<i64>) {
  kiln.if %c : tensor<i1> {
    // expected-error @+1 {{stands inside of control flow}}
    %0 = kiln.unbacked_size @u0, %n max [4] : tensor<i64> -> tensor<?x0xi8>
    kiln.yield
  } else {
    kiln.yield
  }
  return
}

// -----

// CASE: ptx_call
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = kiln.sym @n {min = 1, max = 8}
  kiln.bind_shape %x, [%n] : tensor<?xf32>
  %0 = kiln.ptx_call "test.twice"(%x) blocks = [%n] sizes = [%n, 3] entry = "twice" threads = 64 shared = 16 ptx = ".entry twice" : (tensor<?xf32>) -> tensor<?xf32> {
    %1 = kiln.custom_call "test.identity"(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %2 = kiln.add %1, %x : tensor<?xf32>
    kiln.yield %2 : tensor<?xf32>
  }
  return %0 : tensor<?xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{has entry 'two', which its PTX does not define}}
  %0 = kiln.ptx_call "a"(%x) blocks = [1] sizes = [] entry = "two" threads = 1 shared = 0 ptx = ".entry one" : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{has 2 block counts, not one}}
  %0 = kiln.ptx_call "a"(%x) blocks = [1, 2] sizes = [] entry = "one" threads = 1 shared = 0 ptx = ".entry one" : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{has 1025 threads per block, not 1 to 1024}}
  %0 = kiln.ptx_call "a"(%x) blocks = [1] sizes = [] entry = "one" threads = 1025 shared = 0 ptx = ".entry one" : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{has no result}}
  kiln.ptx_call "a"(%x) blocks = [1] sizes = [] entry = "one" threads = 1 shared = 0 ptx = ".entry one" : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{yields (tensor<5xf32>) where (tensor<4xf32>) is needed}}
  %0 = kiln.ptx_call "a"(%x) blocks = [1] sizes = [] entry = "one" threads = 1 shared = 0 ptx = ".entry one" : (tensor<4xf32>) -> tensor<4xf32> { kiln.yield %y : tensor<5xf32> }
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{needs a 0-d i1 condition}}
  kiln.if %p : tensor<4xi1> { kiln.yield } else { kiln.yield }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{region branch point has 0 operands, but region successor needs 1 inputs}}
  %0 = kiln.if %c : tensor<i1> -> tensor<4xf32> { kiln.yield %x : tensor<4xf32> } else { kiln.yield }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{failed to verify constraint: region with 1 blocks}}
  "kiln.if"(%c) ({ kiln.yield }, {}) : (tensor<i1>) -> ()
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{expects parent op 'func.func'}}
  kiln.if %c : tensor<i1> { "func.return"() : () -> () } else { kiln.yield }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has region arguments (tensor<i1>) where () is needed}}
  "kiln.if"(%c) ({ ^bb0(%a: tensor<i1>): kiln.yield }, { kiln.yield }) : (tensor<i1>) -> ()
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has results (tensor<5xf32>) where (tensor<4xf32>) is needed}}
  %0 = kiln.while(%x) : (tensor<4xf32>) -> (tensor<5xf32>) { ^bb0(%a: tensor<4xf32>): kiln.yield %c : tensor<i1> } do { ^bb0(%a: tensor<4xf32>): kiln.yield %a : tensor<4xf32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has condition arguments () where (tensor<4xf32>) is needed}}
  %0 = kiln.while(%x) : (tensor<4xf32>) -> (tensor<4xf32>) { kiln.yield %c : tensor<i1> } do { ^bb0(%a: tensor<4xf32>): kiln.yield %a : tensor<4xf32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has body arguments () where (tensor<4xf32>) is needed}}
  %0 = kiln.while(%x) : (tensor<4xf32>) -> (tensor<4xf32>) { ^bb0(%a: tensor<4xf32>): kiln.yield %c : tensor<i1> } do { kiln.yield %x : tensor<4xf32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has a condition that yields (tensor<4xi1>) where (tensor<i1>) is needed}}
  %0 = kiln.while(%x) : (tensor<4xf32>) -> (tensor<4xf32>) { ^bb0(%a: tensor<4xf32>): kiln.yield %p : tensor<4xi1> } do { ^bb0(%a: tensor<4xf32>): kiln.yield %a : tensor<4xf32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{yields (tensor<i1>) where (tensor<4xf32>) is needed}}
  %0 = kiln.while(%x) : (tensor<4xf32>) -> (tensor<4xf32>) { ^bb0(%a: tensor<4xf32>): kiln.yield %c : tensor<i1> } do { ^bb0(%a: tensor<4xf32>): kiln.yield %c : tensor<i1> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has no inputs to scan}}
  "kiln.scan"(%x) ({ ^bb0(%a: tensor<4xf32>): kiln.yield %a : tensor<4xf32> }) {operandSegmentSizes = array<i32: 1, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{scans a 0-d tensor}}
  %0 = kiln.scan inits() over(%c : tensor<i1>) -> tensor<4xi1> { ^bb0(%a: tensor<i1>): kiln.yield %a : tensor<i1> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has sizes 4 and 5 in dimension 0 of the inputs' leading dimension}}
  %0 = kiln.scan inits() over(%x, %y : tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32> { ^bb0(%a: tensor<f32>, %b: tensor<f32>): kiln.yield %a : tensor<f32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has body arguments (tensor<4xf32>) where (tensor<f32>) is needed}}
  %0 = kiln.scan inits() over(%x : tensor<4xf32>) -> tensor<4xf32> { ^bb0(%a: tensor<4xf32>): kiln.yield %a : tensor<4xf32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{yields 0 values where 1 are carried}}
  %0 = kiln.scan inits(%c : tensor<i1>) over(%x : tensor<4xf32>) -> tensor<i1> { ^bb0(%a: tensor<i1>, %b: tensor<f32>): kiln.yield }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{yields carried values (tensor<f32>) where (tensor<i1>) is needed}}
  %0 = kiln.scan inits(%c : tensor<i1>) over(%x : tensor<4xf32>) -> tensor<i1> { ^bb0(%a: tensor<i1>, %b: tensor<f32>): kiln.yield %b : tensor<f32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has results (tensor<5xf32>) where (tensor<4xf32>) is needed}}
  %0 = kiln.scan inits() over(%x : tensor<4xf32>) -> tensor<5xf32> { ^bb0(%a: tensor<f32>): kiln.yield %a : tensor<f32> }
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{has no name}}
  kiln.custom_call ""() : () -> ()
  return
}

// -----

func.func @f(%c: tensor<i1>, %p: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{expects parent op to be one of}}
  kiln.yield
  return
}
