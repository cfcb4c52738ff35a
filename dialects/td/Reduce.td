// Reductions, scans, sorts, Fourier transforms, contractions, window reductions, random numbers.
#ifndef KILN_REDUCE_TD
#define KILN_REDUCE_TD
include "Base.td"

class Kiln_Reduction<string mnemonic, list<Trait> traits = []> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits)> { let family = "reduction"; }

def Kiln_ReduceKind : I64EnumAttr<"ReduceKind", "", [I64EnumAttrCase<"sum", 0>, I64EnumAttrCase<"prod", 1>, I64EnumAttrCase<"max", 2>,
    I64EnumAttrCase<"min", 3>, I64EnumAttrCase<"any", 4>, I64EnumAttrCase<"all", 5>]> {
  let cppNamespace = "::kiln";
}
def Kiln_ReduceOp : Kiln_Reduction<"reduce"> {
  let summary = "Reduces along dims, which are dropped; 16-bit floats accumulate in f32; max and min propagate NaN and need at least one element, unless maybe_empty defines them as the least and greatest value of the dtype; any and all take i1";
  let formula = "r[j...] = kind over i of x[i at dims, j elsewhere]";
  let arguments = (ins Kiln_ReduceKind:$kind, Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$maybe_empty);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $input `dims` `=` $dims (`maybe_empty` $maybe_empty^)? attr-dict `:` type($input)";
}
class Kiln_ArgReduce<string mnemonic, string what> : Kiln_Reduction<mnemonic> {
  let summary = "Index of the " # what # " element along one axis as i64: the first of equal ones, or the first NaN";
  let arguments = (ins Tensor:$input, I64Attr:$axis);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `axis` `=` $axis attr-dict `:` type($input)";
}
def Kiln_ArgMaxOp : Kiln_ArgReduce<"arg_max", "greatest"> { let reference = "torch.argmax; ties as NumPy"; }
def Kiln_ArgMinOp : Kiln_ArgReduce<"arg_min", "least"> { let reference = "torch.argmin; ties as NumPy"; }
def Kiln_CumulativeKind : I64EnumAttr<"CumulativeKind", "", [I64EnumAttrCase<"sum", 0>, I64EnumAttrCase<"prod", 1>, I64EnumAttrCase<"max", 2>,
    I64EnumAttrCase<"min", 3>]> {
  let cppNamespace = "::kiln";
}
def Kiln_CumulativeOp : Kiln_Reduction<"cumulative"> {
  let summary = "Inclusive prefix sum, product, maximum or minimum along one axis";
  let formula = "r[i] = kind of x[0..=i]";
  let arguments = (ins Kiln_CumulativeKind:$kind, Tensor:$input, I64Attr:$axis);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $input `axis` `=` $axis attr-dict `:` type($input)";
}
def Kiln_SortOp : Kiln_Reduction<"sort"> {
  let summary = "Stable sort along one axis: values and their original indices (i64); NaN sorts above everything";
  let reference = "torch.sort(stable=True)";
  let arguments = (ins Tensor:$input, I64Attr:$axis, UnitAttr:$descending);
  let results = (outs Tensor:$values, Tensor:$indices);
  let assemblyFormat = "$input `axis` `=` $axis (`descending` $descending^)? attr-dict `:` type($input)";
}
def Kiln_TopKOp : Kiln_Reduction<"top_k"> {
  let summary = "The k greatest (or least) elements along one axis in order, with their indices (i64): a prefix of kiln.sort";
  let reference = "torch.topk(sorted=True), ties to the lower index";
  let arguments = (ins Tensor:$input, I64Attr:$axis, I64Attr:$k, UnitAttr:$smallest);
  let results = (outs Tensor:$values, Tensor:$indices);
  let assemblyFormat = "$input `axis` `=` $axis `k` `=` $k (`smallest` $smallest^)? attr-dict `:` type($input)";
}

// ---- Fourier transforms
def Kiln_FftKind : I64EnumAttr<"FftKind", "", [I64EnumAttrCase<"c2c", 0>, I64EnumAttrCase<"r2c", 1>, I64EnumAttrCase<"c2r", 2>]> {
  let cppNamespace = "::kiln";
}
def Kiln_FftOp : Kiln_Inferred<"fft", [Pure]> {
  let family = "fourier";
  let summary = "Discrete Fourier transform of n = `length` numbers along the last dimension, without normalisation; f32 or f64. A complex tensor is two real ones of one type, `re` and `im`. c2c takes n complex numbers and gives n. r2c takes n real ones (no `im`) and gives the first n / 2 + 1 complex ones; the others are their conjugates in reversed order. c2r takes these n / 2 + 1 and gives n real ones (one result); it ignores `im` of the first and, for even n, of the last. `inverse` makes the exponent's sign positive. With `interleaved_input` the operand `re` is complex numbers with a last dimension of 2, and there is no `im`; with `interleaved_result` the one result is";
  let formula = "r[k] = sum over j < n of x[j] * exp(-2 pi i j k / n)";
  let reference = "torch._fft_c2c, _fft_r2c and _fft_c2r with normalization 0";
  let arguments = (ins Kiln_FftKind:$kind, Tensor:$re, Optional<Tensor>:$im, I64Attr:$length, UnitAttr:$inverse,
                       UnitAttr:$interleaved_input, UnitAttr:$interleaved_result);
  let results = (outs Tensor:$real, Optional<Tensor>:$imaginary);
  let assemblyFormat = "$kind $re (`,` $im^)? `length` `=` $length (`inverse` $inverse^)? (`interleaved_input` $interleaved_input^)? (`interleaved_result` $interleaved_result^)? attr-dict `:` type($re) (`,` type($im)^)?";
}

// ---- contractions
class Kiln_Contraction<string mnemonic> : Kiln_Inferred<mnemonic, [Pure]> { let family = "contraction"; }
def Kiln_DotGeneralOp : Kiln_Contraction<"dot_general"> {
  let summary = "Tensor contraction; the result has the batch dimensions, then M, then N. 16-bit and 8-bit floats accumulate in f32; element_type sets another result dtype";
  let formula = "r[b, m, n] = sum over k of x[b, m, k] * y[b, n, k]";
  let reference = "StableHLO dot_general";
  let arguments = (ins Tensor:$lhs, Tensor:$rhs, DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch,
                       DenseI64ArrayAttr:$lhs_contract, DenseI64ArrayAttr:$rhs_contract, OptionalAttr<TypeAttr>:$element_type);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs `batch` `=` $lhs_batch `x` $rhs_batch `contract` `=` $lhs_contract `x` $rhs_contract attr-dict `:` type($lhs) `,` type($rhs) (`to` $element_type^)?";
}
def Kiln_ConvolutionOp : Kiln_Contraction<"convolution"> {
  let summary = "N-d cross-correlation, input [N, C, ...], weight [O, C/groups, ...]; transposed: weight [C, O/groups, ...]";
  let formula = "r[n, o, i] = sum over c, k of x[n, c, i * strides + k * dilation - pad_low] * w[o, c, k]; size = (size(x) + low + high - dilation * (k - 1) - 1) / strides + 1; transposed: (size(x) - 1) * strides - low - high + dilation * (k - 1) + output_padding + 1";
  let reference = "torch.nn.functional.conv2d, conv_transpose2d";
  let arguments = (ins Tensor:$input, Tensor:$weight, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pad_low, DenseI64ArrayAttr:$pad_high,
                       DenseI64ArrayAttr:$dilation, DefaultValuedAttr<I64Attr, "1">:$groups, UnitAttr:$transposed,
                       OptionalAttr<DenseI64ArrayAttr>:$output_padding);
  let results = (outs Tensor:$result);
  let assemblyFormat = "(`transposed` $transposed^)? $input `,` $weight `strides` `=` $strides `pad` `=` $pad_low `x` $pad_high `dilation` `=` $dilation attr-dict `:` type($input) `,` type($weight)";
}
def Kiln_ConvolutionWeightGradientOp : Kiln_Contraction<"convolution_weight_gradient"> {
  let summary = "Gradient of a convolution by its weight, channels last: of an input [N, H, W, C] and the gradient of a result [N, P, Q, O], sums over N / splits images each, [splits, O, KH, KW, C] in f32. window is KH, KW. Of several groups the gradients of each group's filters by its own channels, [splits, groups, O / groups, KH, KW, C / groups]; depthwise: of each channel by its own, [splits, KH, KW, C]";
  let formula = "r[s, o, i, j, c] = sum over n, p, q of x[s N / splits + n, p * strides + i * dilation - pad_low, q * strides + j * dilation - pad_low, c] * g[s N / splits + n, p, q, o]; of groups: r[s, a, o, i, j, c] with channel a C / groups + c and filter a O / groups + o; depthwise: r[s, i, j, c], where o is c";
  let reference = "torch.ops.aten.convolution_backward";
  let arguments = (ins Tensor:$input, Tensor:$gradient, DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pad_low,
                       DenseI64ArrayAttr:$pad_high, DenseI64ArrayAttr:$dilation, DefaultValuedAttr<I64Attr, "1">:$groups,
                       DefaultValuedAttr<I64Attr, "1">:$splits, UnitAttr:$depthwise);
  let results = (outs Tensor:$result);
  let assemblyFormat = "(`depthwise` $depthwise^)? $input `,` $gradient `window` `=` $window `strides` `=` $strides `pad` `=` $pad_low `x` $pad_high `dilation` `=` $dilation attr-dict `:` type($input) `,` type($gradient)";
}
def Kiln_ReduceWindowOp : Kiln_Contraction<"reduce_window"> {
  let summary = "Reduction over sliding windows, one window size per dimension; padding holds the kind's identity (the least or greatest finite number where the dtype has no infinity); windows must fit into the padded input";
  let formula = "r[i] = kind over k of x[i * strides + k * dilation - pad_low]";
  let reference = "StableHLO reduce_window";
  let arguments = (ins Kiln_CumulativeKind:$kind, Tensor:$input, DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$pad_low, DenseI64ArrayAttr:$pad_high, DenseI64ArrayAttr:$dilation);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $input `window` `=` $window `strides` `=` $strides `pad` `=` $pad_low `x` $pad_high `dilation` `=` $dilation attr-dict `:` type($input)";
}

def Kiln_WinogradInputOp : Kiln_Contraction<"winograd_input"> {
  let summary = "Input transform of Winograd's F(tile x tile, 3 x 3) over overlapping squares of tile + 2 pixels: [N, tile TY + 2, tile TX + 2, C] to [(tile + 2)^2, N, TY, TX, C]. tile is 2 or 4";
  let formula = "r[i (tile + 2) + j, n, ty, tx, c] = sum over p, q of B[i, p] * B[j, q] * x[n, tile ty + p, tile tx + q, c]; B[i, p] is the coefficient of z^p in the product of (z - a_k) over k != i, with points a of 0, 1, -1 or 0, 3/4, -3/4, 3/2, -3/2";
  let reference = "Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016); MLIR linalg.winograd_input_transform";
  let arguments = (ins Tensor:$input, I64Attr:$tile);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `tile` `=` $tile attr-dict `:` type($input)";
}
def Kiln_WinogradOutputOp : Kiln_Contraction<"winograd_output"> {
  let summary = "Output transform of Winograd's F(tile x tile, 3 x 3): [(tile + 2)^2, N, TY, TX, K] to [N, TY, tile, TX, tile, K]. tile is 2 or 4";
  let formula = "r[n, ty, a, tx, b, k] = sum over i, j of A[a, i] * A[b, j] * x[i (tile + 2) + j, n, ty, tx, k]; A[a, i] = a_i^a, at infinity 1 for the last a, else 0";
  let reference = "as kiln.winograd_input; MLIR linalg.winograd_output_transform";
  let arguments = (ins Tensor:$input, I64Attr:$tile);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `tile` `=` $tile attr-dict `:` type($input)";
}

// ---- counter-based random numbers: independent of fusion, order and thread count
class Kiln_Random<string mnemonic, list<Trait> traits = []> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits)> {
  let family = "random";
  let reference = "Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011): philox4x32-10";
}
def Kiln_PhiloxOp : Kiln_Random<"philox", [AllTypesMatch<["seed", "block", "stream"]>]> {
  let summary = "The four words of philox4x32-10, elementwise, as i32: the key words are those of seed, the counter's those of block, then those of stream, each as low word then high word. An order of random numbers is integer arithmetic on block and stream";
  let formula = "r = philox(seed, (block, stream))";
  let arguments = (ins Tensor:$seed, Tensor:$block, Tensor:$stream);
  let results = (outs Tensor:$w0, Tensor:$w1, Tensor:$w2, Tensor:$w3);
  let assemblyFormat = "$seed `,` $block `,` $stream attr-dict `:` type($seed)";
}
def Kiln_RandomBitsOp : Kiln_Random<"random_bits"> {
  let summary = "Uniform bits as i32 or i64. key is tensor<2xi64> = (seed, offset): philox4x32-10 with the key words of seed and the counter (block, offset), each as low word then high word; an element of 32 bits takes word i mod 4 of block i / 4, one of 64 bits words 2(i mod 2) (low) and 2(i mod 2) + 1 (high) of block i / 2, where i is its row-major index";
  let formula = "r[i] = philox(seed, (i / 4, offset))[i mod 4]";
  let arguments = (ins Kiln_Key:$key, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, TypeAttr:$dtype);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$key `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` $dtype";
}
def Kiln_RandomUniformOp : Kiln_Random<"random_uniform"> {
  let summary = "Uniform in [low, high) before rounding to the dtype, from the top bits of kiln.random_bits: 53 of 64 for f64, 24 of 32 for f32, 11 for f16, 8 for bf16";
  let formula = "r = low + (high - low) * (bits >> (width - p)) * 2^-p";
  let arguments = (ins Kiln_Key:$key, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, TypeAttr:$dtype,
                       DefaultValuedAttr<F64Attr, "0.0">:$low, DefaultValuedAttr<F64Attr, "1.0">:$high);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$key `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` $dtype";
}
def Kiln_RandomNormalOp : Kiln_Random<"random_normal"> {
  let summary = "Normal by Box-Muller: element i takes 64-bit output i of kiln.random_bits, u1 from its low word and u2 from its high word";
  let formula = "r = mean + std * sqrt(-2 ln((u1 + 1) * 2^-32)) * cos(2 pi u2 * 2^-32)";
  let arguments = (ins Kiln_Key:$key, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, TypeAttr:$dtype,
                       DefaultValuedAttr<F64Attr, "0.0">:$mean, DefaultValuedAttr<F64Attr, "1.0">:$std);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$key `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` $dtype";
}
#endif
