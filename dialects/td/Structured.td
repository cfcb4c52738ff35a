// Structured ops of a kernel: what upstream's linalg has no named op for. Each says what a loop nest
// computes as an op, until a strategy emits it or `kiln-generalize` writes it as `linalg.generic`.
#ifndef KILN_STRUCTURED_TD
#define KILN_STRUCTURED_TD
include "Reduce.td"

class Kiln_Structured<string mnemonic, list<Trait> traits = []> : Kiln_Op<!strconcat("structured.", mnemonic),
    !listconcat([Pure, SingleBlock], traits), regionHook> {
  let family = "structured";
  let hasRegionVerifier = 1;
}
def Kiln_StructuredIndexOp : Kiln_Op<"structured.index", [Pure]> {
  let family = "structured";
  let summary = "The index of a loop of the structured op around it, as `linalg.index`";
  let arguments = (ins I64Attr:$dim);
  let results = (outs Index:$result);
  let assemblyFormat = "$dim attr-dict";
}
def Kiln_StructuredContractOp : Kiln_Structured<"contract"> {
  let summary = "A contraction whose factors are computed, or whose operands are read through other than projected permutations: prologues, convolutions, blocked weights. The body takes an element of each input and yields the two factors; their products, extended to the type of the result, are added to the init. Loops that do not index the result are reductions. Where both factors are elements of operands and all maps are projected permutations, it is `linalg.contract`";
  let formula = "r[i] = init[i] + sum over k of (lhs(x[i, k]) * rhs(x[i, k])), where (lhs, rhs) = body(x)";
  let reference = "linalg.contract; einsum";
  let arguments = (ins Variadic<Tensor>:$inputs, Tensor:$init, AffineMapArrayAttr:$indexing_maps);
  let results = (outs Tensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`ins` `(` $inputs `:` type($inputs) `)` `outs` `(` $init `:` type($init) `)` `maps` `=` $indexing_maps $body attr-dict `->` type($result)";
}
def Kiln_StructuredScanOp : Kiln_Structured<"scan"> {
  let summary = "A cumulative sum, product, maximum or minimum along loop `axis`. Loops are the dimensions of the result. The body takes an element of each input and yields the element that is combined. With `exclusive` an element of the result does not combine its own. `unsigned` is for integers. The init holds the identity of the combination";
  let formula = "r[i] = combination over j <= i[axis] (j < i[axis] with `exclusive`) of body(x[i with axis = j])";
  let reference = "stablehlo.scan; torch.cumsum";
  let arguments = (ins Variadic<Tensor>:$inputs, Tensor:$init, Kiln_CumulativeKind:$kind, I64Attr:$axis, UnitAttr:$exclusive,
                       UnitAttr:$is_unsigned, AffineMapArrayAttr:$indexing_maps);
  let results = (outs Tensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`unsigned` $is_unsigned^)? $kind `along` $axis (`exclusive` $exclusive^)? `ins` `(` $inputs `:` type($inputs) `)` `outs` `(` $init `:` type($init) `)` `maps` `=` $indexing_maps $body attr-dict `->` type($result)";
}
def Kiln_StructuredFftOp : Kiln_Structured<"fft", [AttrSizedOperandSegments]> {
  let summary = "A Fourier transform along the last dimension, as `kiln.fft` of `kind`. Loops are the outer dimensions, then the index in the result, then the one in the operand. The body takes an element of each input and yields the real and the imaginary part of a number; of r2c the real part alone. c2r has one init and one result. The inits hold 0";
  let formula = "r[i, k] = init[i, k] + sum over j < n of body(x[i, j]) * exp(-2 pi i j k / n)";
  let reference = "kiln.fft";
  let arguments = (ins Variadic<Tensor>:$inputs, Tensor:$init, Optional<Tensor>:$im_init, Kiln_FftKind:$kind, I64Attr:$length,
                       UnitAttr:$inverse, AffineMapArrayAttr:$indexing_maps);
  let results = (outs Tensor:$result, Optional<Tensor>:$im);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$kind `length` $length (`inverse` $inverse^)? `ins` `(` $inputs `:` type($inputs) `)` `outs` `(` $init (`,` $im_init^)? `:` type($init) (`,` type($im_init)^)? `)` `maps` `=` $indexing_maps $body attr-dict `->` type(results)";
}
def Kiln_StructuredAttentionOp : Kiln_Structured<"attention", [AttrSizedOperandSegments]> {
  let summary = "Attention: softmax of scores over keys, times values. `sizes` are those of the loops: outer ones (batch, heads), then query, key, depth and column. Region `factors` yields the two factors of a score's product from elements of `inputs`, whose maps are over (outer.., query, key, depth). Region `score` takes the sum of these products and elements of `modifiers`, whose maps are over (outer.., query, key), and yields the masked score, then the score without its limits, then one length for each axis in `lengths` (0: queries, 1: keys). Region `weighted` yields the factor of a weight from elements of `values`, whose maps are over (outer.., query, column, key). The last maps are those of the results, over (outer.., query, column) and (outer.., query). Limits say which masked scores are -inf: with `causal` those of keys beyond the query, and those at or beyond a length. Rows that see no key are 0, with `unsafe_softmax` NaN; with `clears` they are 0 also where a value is not finite. The optional second result is the log-sum-exp of the scores";
  let formula = "s[q, k] = score(sum over d of (a * b)), where (a, b) = factors(inputs[q, k, d]); r[q, c] = sum over k of (softmax over k of (s[q, k]) * weighted(values[q, c, k]))";
  let reference = "Vaswani et al., 2017; iree_linalg_ext.attention";
  let arguments = (ins Variadic<Tensor>:$inputs, Variadic<Tensor>:$modifiers, Variadic<Tensor>:$values, Tensor:$init,
                       Optional<Tensor>:$lse_init, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, UnitAttr:$causal,
                       DenseI64ArrayAttr:$lengths, UnitAttr:$clears, UnitAttr:$unsafe_softmax, AffineMapArrayAttr:$indexing_maps);
  let results = (outs Tensor:$result, Optional<Tensor>:$lse);
  let regions = (region SizedRegion<1>:$factors, SizedRegion<1>:$score, SizedRegion<1>:$weighted);
  let assemblyFormat = "(`causal` $causal^)? (`clears` $clears^)? (`unsafe_softmax` $unsafe_softmax^)? `sizes` custom<DynamicIndexList>($dynamic_sizes, $sizes) `lengths` $lengths `inputs` `(` $inputs `:` type($inputs) `)` `modifiers` `(` ($modifiers^ `:` type($modifiers))? `)` `values` `(` $values `:` type($values) `)` `outs` `(` $init (`,` $lse_init^)? `:` type($init) (`,` type($lse_init)^)? `)` `maps` `=` $indexing_maps `factors` $factors `score` $score `weighted` $weighted attr-dict `->` type(results)";
}
def Kiln_StructuredAttentionGradientOp : Kiln_Op<"structured.attention_gradient", [Pure, AttrSizedOperandSegments]> {
  let family = "structured";
  let summary = "Derivatives of attention, as `kiln.attention_gradient`. `sizes` are those of the loops: outer ones (batch, heads), then query, key, depth and column. Maps of query and key are over (outer.., query, key, depth), of value and cotangent over (outer.., query, key, column), of the log-sum-exp and of delta over (outer.., query). One result is the derivative by the query, over (outer.., query, depth); two are those by key, over (outer.., key, depth), and by value, over (outer.., key, column), which are sums also over outer loops that do not index them";
  let formula = "p[q, k] = exp(scale * (a[q] . b[k]) - lse[q]); s[q, k] = p[q, k] * (cotangent[q] . v[k] - delta[q]); scale * (sum over k of s[q, k] * b[k]), or scale * (sum over q of s[q, k] * a[q]) and sum over q of p[q, k] * cotangent[q]";
  let reference = "Dao et al., FlashAttention, 2022, algorithm 4";
  let arguments = (ins Tensor:$query, Tensor:$key, Tensor:$value, Tensor:$cotangent, Tensor:$lse, Tensor:$delta, Variadic<Tensor>:$inits,
                       Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, F64Attr:$scale, UnitAttr:$causal, AffineMapArrayAttr:$indexing_maps);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "(`causal` $causal^)? `scale` $scale `sizes` custom<DynamicIndexList>($dynamic_sizes, $sizes) `ins` `(` $query `,` $key `,` $value `,` $cotangent `,` $lse `,` $delta `:` type($query) `,` type($key) `,` type($value) `,` type($cotangent) `,` type($lse) `,` type($delta) `)` `outs` `(` $inits `:` type($inits) `)` `maps` `=` $indexing_maps attr-dict `->` type($results)";
}
#endif
