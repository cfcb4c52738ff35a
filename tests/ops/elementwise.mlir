// Unary, binary and other elementwise prims.

// CASE: unary on floats
func.func @f(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xi1>, tensor<?x3xi1>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 3] : tensor<?x3xf32>
  %exp = kiln.exp %x : tensor<?x3xf32>
  %exp2 = kiln.exp2 %x : tensor<?x3xf32>
  %expm1 = kiln.expm1 %x : tensor<?x3xf32>
  %log = kiln.log %x : tensor<?x3xf32>
  %log1p = kiln.log1p %x : tensor<?x3xf32>
  %log2 = kiln.log2 %x : tensor<?x3xf32>
  %sqrt = kiln.sqrt %x : tensor<?x3xf32>
  %rsqrt = kiln.rsqrt %x : tensor<?x3xf32>
  %sin = kiln.sin %x : tensor<?x3xf32>
  %cos = kiln.cos %x : tensor<?x3xf32>
  %tan = kiln.tan %x : tensor<?x3xf32>
  %asin = kiln.asin %x : tensor<?x3xf32>
  %acos = kiln.acos %x : tensor<?x3xf32>
  %atan = kiln.atan %x : tensor<?x3xf32>
  %sinh = kiln.sinh %x : tensor<?x3xf32>
  %cosh = kiln.cosh %x : tensor<?x3xf32>
  %tanh = kiln.tanh %x : tensor<?x3xf32>
  %erf = kiln.erf %x : tensor<?x3xf32>
  %ceil = kiln.ceil %x : tensor<?x3xf32>
  %floor = kiln.floor %x : tensor<?x3xf32>
  %round_even = kiln.round_even %x : tensor<?x3xf32>
  %trunc = kiln.trunc %x : tensor<?x3xf32>
  %neg = kiln.neg %x : tensor<?x3xf32>
  %abs = kiln.abs %x : tensor<?x3xf32>
  %sign = kiln.sign %x : tensor<?x3xf32>
  %fin = kiln.is_finite %x : tensor<?x3xf32>
  %nan = kiln.is_nan %x : tensor<?x3xf32>
  return %exp, %exp2, %expm1, %log, %log1p, %log2, %sqrt, %rsqrt, %sin, %cos, %tan, %asin, %acos, %atan, %sinh, %cosh, %tanh, %erf, %ceil, %floor, %round_even, %trunc, %neg, %abs, %sign, %fin, %nan : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xi1>, tensor<?x3xi1>
}

// -----

// CASE: unary on integers and i1
func.func @f(%x: tensor<?xi16>, %y: tensor<2xi1>, %z: tensor<ui8>) -> (tensor<?xi16>, tensor<?xi16>, tensor<?xi16>, tensor<?xi16>, tensor<2xi1>, tensor<ui8>) {
  %0 = kiln.neg %x : tensor<?xi16>
  %1 = kiln.abs %x : tensor<?xi16>
  %2 = kiln.sign %x : tensor<?xi16>
  %3 = kiln.not %x : tensor<?xi16>
  %4 = kiln.not %y : tensor<2xi1>
  %5 = kiln.not %z : tensor<ui8>
  return %0, %1, %2, %3, %4, %5 : tensor<?xi16>, tensor<?xi16>, tensor<?xi16>, tensor<?xi16>, tensor<2xi1>, tensor<ui8>
}

// -----

// CASE: binary on floats
func.func @f(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 3] : tensor<?x3xf32>
  kiln.bind_shape %y, [%s, 3] : tensor<?x3xf32>
  %add = kiln.add %x, %y : tensor<?x3xf32>
  %sub = kiln.sub %x, %y : tensor<?x3xf32>
  %mul = kiln.mul %x, %y : tensor<?x3xf32>
  %div = kiln.div %x, %y : tensor<?x3xf32>
  %rem = kiln.rem %x, %y : tensor<?x3xf32>
  %floor_div = kiln.floor_div %x, %y : tensor<?x3xf32>
  %pow = kiln.pow %x, %y : tensor<?x3xf32>
  %max = kiln.max %x, %y : tensor<?x3xf32>
  %min = kiln.min %x, %y : tensor<?x3xf32>
  %atan2 = kiln.atan2 %x, %y : tensor<?x3xf32>
  return %add, %sub, %mul, %div, %rem, %floor_div, %pow, %max, %min, %atan2 : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>
}

// -----

// CASE: binary on integers
func.func @f(%x: tensor<4xi8>, %y: tensor<4xi8>) -> (tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>) {
  %add = kiln.add %x, %y : tensor<4xi8>
  %sub = kiln.sub %x, %y : tensor<4xi8>
  %mul = kiln.mul %x, %y : tensor<4xi8>
  %div = kiln.div %x, %y : tensor<4xi8>
  %rem = kiln.rem %x, %y : tensor<4xi8>
  %floor_div = kiln.floor_div %x, %y : tensor<4xi8>
  %pow = kiln.pow %x, %y : tensor<4xi8>
  %max = kiln.max %x, %y : tensor<4xi8>
  %min = kiln.min %x, %y : tensor<4xi8>
  %and = kiln.and %x, %y : tensor<4xi8>
  %or = kiln.or %x, %y : tensor<4xi8>
  %xor = kiln.xor %x, %y : tensor<4xi8>
  %shl = kiln.shl %x, %y : tensor<4xi8>
  %shr = kiln.shr %x, %y : tensor<4xi8>
  return %add, %sub, %mul, %div, %rem, %floor_div, %pow, %max, %min, %and, %or, %xor, %shl, %shr : tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>, tensor<4xi8>
}

// -----

// CASE: binary on i1
func.func @f(%x: tensor<4xi1>, %y: tensor<4xi1>) -> (tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>) {
  %max = kiln.max %x, %y : tensor<4xi1>
  %min = kiln.min %x, %y : tensor<4xi1>
  %and = kiln.and %x, %y : tensor<4xi1>
  %or = kiln.or %x, %y : tensor<4xi1>
  %xor = kiln.xor %x, %y : tensor<4xi1>
  return %max, %min, %and, %or, %xor : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>
}

// -----

// CASE: arithmetic on f64
func.func @f(%x: tensor<3xf64>, %y: tensor<3xf64>) -> (tensor<3xf64>, tensor<3xf64>, tensor<3xi1>) {
  %0 = kiln.add %x, %y : tensor<3xf64>
  %1 = kiln.exp %0 : tensor<3xf64>
  %2 = kiln.compare lt %1, %y : tensor<3xf64>
  return %0, %1, %2 : tensor<3xf64>, tensor<3xf64>, tensor<3xi1>
}

// -----

// CASE: arithmetic on f16
func.func @f(%x: tensor<3xf16>, %y: tensor<3xf16>) -> (tensor<3xf16>, tensor<3xf16>, tensor<3xi1>) {
  %0 = kiln.add %x, %y : tensor<3xf16>
  %1 = kiln.exp %0 : tensor<3xf16>
  %2 = kiln.compare lt %1, %y : tensor<3xf16>
  return %0, %1, %2 : tensor<3xf16>, tensor<3xf16>, tensor<3xi1>
}

// -----

// CASE: arithmetic on bf16
func.func @f(%x: tensor<3xbf16>, %y: tensor<3xbf16>) -> (tensor<3xbf16>, tensor<3xbf16>, tensor<3xi1>) {
  %0 = kiln.add %x, %y : tensor<3xbf16>
  %1 = kiln.exp %0 : tensor<3xbf16>
  %2 = kiln.compare lt %1, %y : tensor<3xbf16>
  return %0, %1, %2 : tensor<3xbf16>, tensor<3xbf16>, tensor<3xi1>
}

// -----

// CASE: arithmetic on f8E4M3FN
func.func @f(%x: tensor<3xf8E4M3FN>, %y: tensor<3xf8E4M3FN>) -> (tensor<3xf8E4M3FN>, tensor<3xf8E4M3FN>, tensor<3xi1>) {
  %0 = kiln.add %x, %y : tensor<3xf8E4M3FN>
  %1 = kiln.exp %0 : tensor<3xf8E4M3FN>
  %2 = kiln.compare lt %1, %y : tensor<3xf8E4M3FN>
  return %0, %1, %2 : tensor<3xf8E4M3FN>, tensor<3xf8E4M3FN>, tensor<3xi1>
}

// -----

// CASE: arithmetic on f8E5M2
func.func @f(%x: tensor<3xf8E5M2>, %y: tensor<3xf8E5M2>) -> (tensor<3xf8E5M2>, tensor<3xf8E5M2>, tensor<3xi1>) {
  %0 = kiln.add %x, %y : tensor<3xf8E5M2>
  %1 = kiln.exp %0 : tensor<3xf8E5M2>
  %2 = kiln.compare lt %1, %y : tensor<3xf8E5M2>
  return %0, %1, %2 : tensor<3xf8E5M2>, tensor<3xf8E5M2>, tensor<3xi1>
}

// -----

// CASE: compare, select, clamp
func.func @f(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>, %i: tensor<2xi1>) -> (tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<2xi1>) {
  %s = kiln.sym @s0
  kiln.bind_shape %x, [%s, 3] : tensor<?x3xf32>
  kiln.bind_shape %y, [%s, 3] : tensor<?x3xf32>
  %eq = kiln.compare eq %x, %y : tensor<?x3xf32>
  %ne = kiln.compare ne %x, %y : tensor<?x3xf32>
  %lt = kiln.compare lt %x, %y : tensor<?x3xf32>
  %le = kiln.compare le %x, %y : tensor<?x3xf32>
  %gt = kiln.compare gt %x, %y : tensor<?x3xf32>
  %ge = kiln.compare ge %x, %y : tensor<?x3xf32>
  %sel = kiln.select %lt, %x, %y : tensor<?x3xi1>, tensor<?x3xf32>
  %c = kiln.clamp %x, %sel, %y : tensor<?x3xf32>
  %j = kiln.compare ne %i, %i : tensor<2xi1>
  return %eq, %ne, %lt, %le, %gt, %ge, %sel, %c, %j : tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xi1>, tensor<?x3xf32>, tensor<?x3xf32>, tensor<2xi1>
}

// -----

// CASE: convert
func.func @f(%x: tensor<2xf32>, %i: tensor<2xi1>) -> (tensor<2xf64>, tensor<2xf32>, tensor<2xf16>, tensor<2xbf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xi64>, tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<2xui8>, tensor<2xi1>, tensor<2xf16>) {
  %f64 = kiln.convert %x : tensor<2xf32> to f64
  %f32 = kiln.convert %x : tensor<2xf32> to f32
  %f16 = kiln.convert %x : tensor<2xf32> to f16
  %bf16 = kiln.convert %x : tensor<2xf32> to bf16
  %f8E4M3FN = kiln.convert %x : tensor<2xf32> to f8E4M3FN
  %f8E5M2 = kiln.convert %x : tensor<2xf32> to f8E5M2
  %i64 = kiln.convert %x : tensor<2xf32> to i64
  %i32 = kiln.convert %x : tensor<2xf32> to i32
  %i16 = kiln.convert %x : tensor<2xf32> to i16
  %i8 = kiln.convert %x : tensor<2xf32> to i8
  %ui8 = kiln.convert %x : tensor<2xf32> to ui8
  %i1 = kiln.convert %x : tensor<2xf32> to i1
  %b = kiln.convert %i : tensor<2xi1> to f16
  return %f64, %f32, %f16, %bf16, %f8E4M3FN, %f8E5M2, %i64, %i32, %i16, %i8, %ui8, %i1, %b : tensor<2xf64>, tensor<2xf32>, tensor<2xf16>, tensor<2xbf16>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xi64>, tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<2xui8>, tensor<2xi1>, tensor<2xf16>
}

// -----

// CASE: bitcast
func.func @f(%x: tensor<?xf32>, %y: tensor<2xbf16>, %z: tensor<2xui8>) -> (tensor<?xi32>, tensor<2xf16>, tensor<2xf8E5M2>) {
  %0 = kiln.bitcast %x : tensor<?xf32> to i32
  %1 = kiln.bitcast %y : tensor<2xbf16> to f16
  %2 = kiln.bitcast %z : tensor<2xui8> to f8E5M2
  return %0, %1, %2 : tensor<?xi32>, tensor<2xf16>, tensor<2xf8E5M2>
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{'kiln.neg' op is not defined on i1}}
  %0 = kiln.neg %x : tensor<4xi1>
  return
}

// -----

func.func @f(%x: tensor<4xi32>) {
  // expected-error @+1 {{is not defined on i32}}
  %0 = kiln.exp %x : tensor<4xi32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{is not defined on f32}}
  %0 = kiln.not %x : tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.add %x, %x : tensor<4xi1>
  return
}

// -----

func.func @f(%x: tensor<4xi64>) {
  // expected-error @+1 {{is not defined on i64}}
  %0 = kiln.atan2 %x, %x : tensor<4xi64>
  return
}

// -----

func.func @f(%x: tensor<4xf16>) {
  // expected-error @+1 {{is not defined on f16}}
  %0 = kiln.shl %x, %x : tensor<4xf16>
  return
}

// -----

func.func @f(%x: tensor<4xi1>) {
  // expected-error @+1 {{is not defined on i1}}
  %0 = kiln.clamp %x, %x, %x : tensor<4xi1>
  return
}

// -----

func.func @f(%x: tensor<4xi4>) {
  // expected-error @+1 {{has element type i4, which is none of f64 f32 f16 bf16 f8E4M3FN f8E5M2 i64 i32 i16 i8 ui8 i1}}
  %0 = kiln.neg %x : tensor<4xi4>
  return
}

// -----

func.func @f(%x: tensor<4xcomplex<f32>>) {
  // expected-error @+1 {{complex numbers are not supported; split them into real and imaginary tensors}}
  %0 = kiln.neg %x : tensor<4xcomplex<f32>>
  return
}

// -----

func.func @f(%x: tensor<4xf32, "row">) {
  // expected-error @+1 {{encodings are not part of kiln's types; memory formats are #kiln.layout on entry arguments}}
  %0 = kiln.neg %x : tensor<4xf32, "row">
  return
}

// -----

func.func @f(%x: tensor<*xf32>) {
  // expected-error @+1 {{invalid kind of type specified: expected builtin.tensor, but found 'tensor<*xf32>'}}
  %0 = kiln.neg %x : tensor<*xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<?xf32>) {
  // expected-error @+1 {{failed to verify that all of {lhs, rhs} have same type}}
  %0 = "kiln.add"(%x, %y) : (tensor<4xf32>, tensor<?xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+2 {{inferred type(s) 'tensor<4xf32>' are incompatible with return type(s) of operation 'tensor<5xf32>'}}
  // expected-error @+1 {{failed to infer returned types}}
  %0 = "kiln.neg"(%x) : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %c: tensor<4xi8>) {
  // expected-error @+1 {{needs an i1 condition, has i8}}
  %0 = kiln.select %c, %x, %x : tensor<4xi8>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %c: tensor<3xi1>) {
  // expected-error @+1 {{has sizes 4 and 3 in dimension 0 of condition and values; broadcast first}}
  %0 = kiln.select %c, %x, %x : tensor<3xi1>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{reads 32 bits of f32 as 16 bits of i16}}
  %0 = kiln.bitcast %x : tensor<4xf32> to i16
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{has element type index, which is none of}}
  %0 = kiln.convert %x : tensor<4xf32> to index
  return
}
