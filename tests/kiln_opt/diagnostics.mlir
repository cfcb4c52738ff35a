// Errors of the parser, the verifier and type inference, with line numbers of the whole file.
func.func @undefined() -> tensor<4xf32> {
  return %x : tensor<4xf32> // expected-error {{use of undeclared SSA value name}}
}
// -----
func.func @twice(%x: tensor<4xf32>) {
  // expected-note @+1 {{previously defined here}}
  %0 = kiln.exp %x : tensor<4xf32>
  // expected-error @below {{redefinition of SSA value '%0'}}
  %0 = kiln.exp %x : tensor<4xf32>
  return
}
// -----
func.func @shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  %0 = kiln.add %x, %y : tensor<4xf32>
  // expected-error-re @above {{expects different type {{.*}} 'tensor<4xf32>' vs 'tensor<5xf32>'}}
  // expected-note @-3 {{prior use here}}
  return
}
// -----
func.func @range() {
  %0 = kiln.sym @n {min = 7, max = 3} // expected-error {{has an empty range [7, 3]}}
  return
}
// -----
func.func @fine(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
