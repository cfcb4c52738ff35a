// Composite ops, as captured from a framework; `kiln-decompose` expands them into prims.
#ifndef KILN_COMPOSITE_TD
#define KILN_COMPOSITE_TD
include "Base.td"

// ---- activations
class Kiln_Activation<string mnemonic, string formula_, string ref> : Kiln_Composite<mnemonic> {
  let summary = "Activation " # mnemonic;
  let formula = formula_;
  let reference = ref;
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}
def Kiln_SigmoidOp : Kiln_Activation<"sigmoid", "1 / (1 + e^-x)", "torch.sigmoid">;
def Kiln_SiluOp : Kiln_Activation<"silu", "x / (1 + e^-x)", "Elfwing et al., 2018">;
// Max and clamp share a gradient with their bounds, or keep it at them; these have none there.
def Kiln_ReluOp : Kiln_Activation<"relu", "max(x, 0); derivative 0 at 0", "Nair and Hinton, 2010">;
def Kiln_HardtanhOp : Kiln_Activation<"hardtanh", "min(max(x, low), high); derivative 0 at low and high", "torch.nn.functional.hardtanh"> {
  let arguments = (ins Tensor:$input, DefaultValuedAttr<F64Attr, "-1.0">:$low, DefaultValuedAttr<F64Attr, "1.0">:$high);
}
def Kiln_HardsigmoidOp : Kiln_Activation<"hardsigmoid", "min(max(x + 3, 0), 6) / 6", "Howard et al., Searching for MobileNetV3, 2019">;
def Kiln_HardswishOp : Kiln_Activation<"hardswish", "x * min(max(x + 3, 0), 6) / 6", "Howard et al., Searching for MobileNetV3, 2019">;
def Kiln_GeluOp : Kiln_Activation<"gelu", "x * (1 + erf(x / sqrt 2)) / 2; `tanh`: x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2", "Hendrycks and Gimpel, Gaussian Error Linear Units, 2016"> {
  let arguments = (ins UnitAttr:$tanh, Tensor:$input);
  let assemblyFormat = "(`tanh` $tanh^)? $input attr-dict `:` type($input)";
}
def Kiln_SoftplusOp : Kiln_Activation<"softplus", "ln(1 + e^(beta x)) / beta, and x where beta x > threshold", "torch.nn.functional.softplus"> {
  let arguments = (ins Tensor:$input, DefaultValuedAttr<F64Attr, "1.0">:$beta, DefaultValuedAttr<F64Attr, "20.0">:$threshold);
}

// ---- contractions
def Kiln_LinearOp : Kiln_Composite<"linear"> {
  let summary = "Affine map of the last dimension: input [..., K], weight [N, K], bias [N]";
  let formula = "r[..., n] = sum over k of x[..., k] * w[n, k] + bias[n]";
  let reference = "torch.nn.functional.linear";
  let arguments = (ins Tensor:$input, Tensor:$weight, Optional<Tensor>:$bias);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `,` $weight (`bias` $bias^ `:` type($bias))? attr-dict `:` type($input) `,` type($weight)";
}
def Kiln_MatmulOp : Kiln_Composite<"matmul"> {
  let summary = "Matrix product of the last two dimensions; batch dimensions broadcast; a 1-d operand is a row on the left, a column on the right, and its dimension is dropped";
  let formula = "r[..., m, n] = sum over k of x[..., m, k] * y[..., k, n]";
  let reference = "torch.matmul";
  let arguments = (ins Tensor:$lhs, Tensor:$rhs);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)";
}
def Kiln_EmbeddingOp : Kiln_Composite<"embedding"> {
  let summary = "Rows of a table [V, D] by integer index";
  let formula = "r[i..., :] = weight[indices[i...], :]";
  let reference = "torch.nn.functional.embedding";
  let arguments = (ins Tensor:$weight, Tensor:$indices);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$weight `,` $indices attr-dict `:` type($weight) `,` type($indices)";
}

// ---- normalisation. Statistics of 16-bit floats are f32.
class Kiln_Norm<string mnemonic, dag args> : Kiln_Composite<mnemonic, [AttrSizedOperandSegments]> {
  let arguments = args;
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input (`weight` $weight^ `:` type($weight))? (`bias` $bias^ `:` type($bias))? attr-dict `:` type($input)";
}
def Kiln_LayerNormOp : Kiln_Norm<"layer_norm", (ins Tensor:$input, Optional<Tensor>:$weight, Optional<Tensor>:$bias, I64Attr:$rank, F64Attr:$epsilon)> {
  let summary = "Normalises over the last `rank` dimensions; weight and bias have exactly these";
  let formula = "r = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias, biased variance (divisor n)";
  let reference = "Ba et al., Layer Normalization, 2016";
}
def Kiln_GroupNormOp : Kiln_Norm<"group_norm", (ins Tensor:$input, Optional<Tensor>:$weight, Optional<Tensor>:$bias, I64Attr:$groups, F64Attr:$epsilon)> {
  let summary = "Normalises [N, C, ...] per group of channels and its spatial dimensions; weight and bias are [C]";
  let formula = "as kiln.layer_norm, per group";
  let reference = "Wu and He, Group Normalization, 2018";
}
def Kiln_BatchNormOp : Kiln_Composite<"batch_norm", [AttrSizedOperandSegments]> {
  let summary = "Normalises [N, C, ...] with running statistics [C] (inference); weight and bias are [C]";
  let formula = "r = (x - mean) / sqrt(variance + epsilon) * weight + bias";
  let reference = "Ioffe and Szegedy, Batch Normalization, 2015";
  let arguments = (ins Tensor:$input, Tensor:$mean, Tensor:$variance, Optional<Tensor>:$weight, Optional<Tensor>:$bias, F64Attr:$epsilon);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `mean` $mean `:` type($mean) `variance` $variance `:` type($variance) (`weight` $weight^ `:` type($weight))? (`bias` $bias^ `:` type($bias))? attr-dict `:` type($input)";
}
def Kiln_RmsNormOp : Kiln_Composite<"rms_norm"> {
  let summary = "Divides by the root of the mean square over the last `rank` dimensions; weight has exactly these";
  let formula = "r = x / sqrt(mean(x^2) + epsilon) * weight";
  let reference = "Zhang and Sennrich, Root Mean Square Layer Normalization, 2019";
  let arguments = (ins Tensor:$input, Optional<Tensor>:$weight, I64Attr:$rank, F64Attr:$epsilon);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input (`weight` $weight^ `:` type($weight))? attr-dict `:` type($input)";
}
class Kiln_Softmax<string mnemonic> : Kiln_Composite<mnemonic> {
  let arguments = (ins Tensor:$input, I64Attr:$axis);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `axis` `=` $axis attr-dict `:` type($input)";
}
def Kiln_SoftmaxOp : Kiln_Softmax<"softmax"> {
  let summary = "Softmax along one axis; subtracts the maximum, so large inputs do not overflow; `safe`: 0 where all are -inf";
  let formula = "r = e^(x - max x) / sum of e^(x - max x)";
  let reference = "torch.softmax; `safe`: torch._safe_softmax";
  let arguments = (ins UnitAttr:$safe, Tensor:$input, I64Attr:$axis);
  let assemblyFormat = "(`safe` $safe^)? $input `axis` `=` $axis attr-dict `:` type($input)";
}
def Kiln_LogSoftmaxOp : Kiln_Softmax<"log_softmax"> {
  let summary = "Logarithm of kiln.softmax, computed without the quotient";
  let formula = "r = x - max x - ln(sum of e^(x - max x))";
  let reference = "torch.log_softmax";
}
def Kiln_LossReduction : I64EnumAttr<"LossReduction", "", [I64EnumAttrCase<"none", 0>, I64EnumAttrCase<"mean", 1>, I64EnumAttrCase<"sum", 2>]> {
  let cppNamespace = "::kiln";
}
def Kiln_CrossEntropyOp : Kiln_Composite<"cross_entropy"> {
  let summary = "Cross entropy of logits [N, C] (or [N, C, ...]) against class indices [N] (or [N, ...]); targets equal to ignore_index add neither to the sum nor to the weight of the mean";
  let formula = "l = w[t] * (-(1 - s) * log_softmax(x)[t]) - s/C * sum over c of w[c] * log_softmax(x)[c], s = label_smoothing; mean: sum l / sum w[t]";
  let reference = "torch.nn.functional.cross_entropy";
  let arguments = (ins Kiln_LossReduction:$reduction, Tensor:$logits, Tensor:$target, Optional<Tensor>:$weight,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore_index, DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$reduction $logits `,` $target (`weight` $weight^ `:` type($weight))? attr-dict `:` type($logits) `,` type($target)";
}
def Kiln_DropoutOp : Kiln_Composite<"dropout"> {
  let summary = "Zeroes each element with probability p and scales the rest; the mask is kiln.random_uniform (f32) of the key (tensor<2xi64>) at the element's row-major index, compared in f64";
  let formula = "r = u >= p ? x / (1 - p) : 0";
  let reference = "Srivastava et al., Dropout, 2014";
  let arguments = (ins Tensor:$input, Kiln_Key:$key, F64Attr:$p);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `key` $key `p` `=` $p attr-dict `:` type($input)";
}

def Kiln_StopGradientOp : Kiln_Composite<"stop_gradient"> {
  let summary = "Its operand, as a constant to differentiation: kiln-differentiate goes no further";
  let formula = "r = x";
  let reference = "torch.Tensor.detach, jax.lax.stop_gradient";
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

// ---- images: [N, C, spatial...]
def Kiln_InterpolateOp : Kiln_Composite<"interpolate"> {
  let summary = "Nearest-neighbour resize of the spatial dimensions of [N, C, ...] to sizes, indices in exact integer arithmetic";
  let formula = "r[n, c, i] = x[n, c, min(floor(i * size(x) / size(r)), size(x) - 1)]";
  let reference = "torch.nn.functional.interpolate(mode='nearest'), without a scale factor";
  let arguments = (ins Tensor:$input, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($input)";
}
def Kiln_MaxPoolOp : Kiln_Composite<"max_pool"> {
  let summary = "Maximum over windows of the spatial dimensions; padding is -inf; NaN propagates";
  let formula = "r[n, c, i] = max over k of x[n, c, i * strides + k * dilation - padding]; ceil_mode rounds the size up, unless the last window would start in the right padding";
  let reference = "torch.nn.functional.max_pool2d";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding,
                       DenseI64ArrayAttr:$dilation, UnitAttr:$ceil_mode);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `window` `=` $window `strides` `=` $strides `padding` `=` $padding `dilation` `=` $dilation (`ceil_mode` $ceil_mode^)? attr-dict `:` type($input)";
}
def Kiln_AvgPoolOp : Kiln_Composite<"avg_pool"> {
  let summary = "Mean over windows of the spatial dimensions; padding counts in the divisor if count_include_pad, but what ceil_mode adds beyond it never does; a window within the padding gives 0; divisor_override replaces the divisor";
  let formula = "r[n, c, i] = sum over k of x[n, c, i * strides + k - padding] / divisor";
  let reference = "torch.nn.functional.avg_pool2d";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding,
                       UnitAttr:$ceil_mode, UnitAttr:$count_include_pad, OptionalAttr<I64Attr>:$divisor_override);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `window` `=` $window `strides` `=` $strides `padding` `=` $padding (`ceil_mode` $ceil_mode^)? (`count_include_pad` $count_include_pad^)? attr-dict `:` type($input)";
}
def Kiln_AdaptiveAvgPoolOp : Kiln_Composite<"adaptive_avg_pool"> {
  let summary = "Mean over windows such that the spatial dimensions become sizes";
  let formula = "r[n, c, i] = mean of x[n, c, floor(i * H / h) .. ceil((i + 1) * H / h)]";
  let reference = "torch.nn.functional.adaptive_avg_pool2d";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `sizes` `=` $sizes attr-dict `:` type($input)";
}

// ---- statistics
class Kiln_Statistic<string mnemonic, dag args> : Kiln_Composite<mnemonic> {
  let arguments = args;
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `dims` `=` $dims (`keep_dims` $keep_dims^)? attr-dict `:` type($input)";
}
def Kiln_MeanOp : Kiln_Statistic<"mean", (ins Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$keep_dims)> {
  let summary = "Mean along dims, which are dropped, or kept as unit dimensions under keep_dims";
  let formula = "r = sum x / n";
  let reference = "torch.mean";
}
def Kiln_VarOp : Kiln_Statistic<"var", (ins Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$keep_dims, DefaultValuedAttr<F64Attr, "1.0">:$correction)> {
  let summary = "Variance along dims";
  let formula = "r = sum (x - mean x)^2 / max(n - correction, 0)";
  let reference = "torch.var";
}
def Kiln_StdOp : Kiln_Statistic<"std", (ins Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$keep_dims, DefaultValuedAttr<F64Attr, "1.0">:$correction)> {
  let summary = "Standard deviation along dims";
  let formula = "r = sqrt(var x)";
  let reference = "torch.std";
}

// ---- attention
def Kiln_AttentionOp : Kiln_Composite<"attention", [AttrSizedOperandSegments, SingleBlock]> {
  let summary = "Scaled dot-product attention: query [B, H, Q, D], key [B, G, K, D], value [B, G, K, E], G divides H and query head h reads head h / (H/G). `scale` is 1/sqrt(D) if absent. `causal`: query i sees keys j <= i (top left corner, as PyTorch). `bias` is added to the scaled scores, of a shape that broadcasts to [B, H, Q, K]. Region `score` maps that sum and 0-d i64 indices (b, h, q, k) to a new score; region `mask` maps (b, h, q, k) to an i1, false: masked. `query_lengths`, `key_lengths` [B] mask padding; rows beyond a query's length, fully masked rows and rows whose scores are all -inf are 0 (log-sum-exp -inf), as with torch's `_safe_softmax`; with `unsafe_softmax` they are NaN, as with `torch.softmax`. `dropout` of the weights by random key and probability as kiln.dropout over [B, H, Q, K]. With `with_lse` a second result [B, H, Q] in f32 (f64 for f64) holds the log-sum-exp of the scores";
  let formula = "r[b, h, q, :] = softmax over k of (score(scale * q . k + bias), where not masked) * v[b, h / (H/G), k, :]";
  let reference = "Vaswani et al., 2017; Ainslie et al., GQA, 2023; FlexAttention (torch.nn.attention.flex_attention); torch.nn.functional.scaled_dot_product_attention";
  let arguments = (ins Tensor:$query, Tensor:$key, Tensor:$value, Optional<Tensor>:$bias, Optional<Tensor>:$query_lengths,
                       Optional<Tensor>:$key_lengths, Optional<Kiln_Key>:$dropout_key, OptionalAttr<F64Attr>:$scale, UnitAttr:$causal,
                       DefaultValuedAttr<F64Attr, "0.0">:$dropout_p, UnitAttr:$with_lse, UnitAttr:$unsafe_softmax);
  let results = (outs Tensor:$result, Optional<Tensor>:$lse);
  let regions = (region AnyRegion:$score, AnyRegion:$mask);
  let hasRegionVerifier = 1;
  let extraClassDefinition = !strconcat(verifyHook, inferHook, regionHook);
  let assemblyFormat = "$query `,` $key `,` $value (`bias` $bias^ `:` type($bias))? (`lengths` $query_lengths^ `:` type($query_lengths))? (`key_lengths` $key_lengths^ `:` type($key_lengths))? (`dropout` $dropout_key^)? (`causal` $causal^)? (`with_lse` $with_lse^)? (`unsafe_softmax` $unsafe_softmax^)? `:` type($query) `,` type($key) `,` type($value) (`score` $score^)? (`mask` $mask^)? attr-dict";
}
def Kiln_AttentionGradientOp : Kiln_Composite<"attention_gradient"> {
  let summary = "Derivatives of scaled dot-product attention by its query, or with `by_keys` by its key and its value: query [B, H, Q, D], key [B, G, K, D], value [B, G, K, E], `cotangent` [B, H, Q, E] of the result, all of one dtype; `lse` [B, H, Q], the log-sum-exp of the scores, and `delta` [B, H, Q], the sums over e of cotangent times result, both f32 (f64 for f64). `scale` and `causal` as in kiln.attention. Rows whose log-sum-exp is -inf have no weights";
  let formula = "p[q, k] = exp(scale * q . k - lse[q]); s[q, k] = scale * p[q, k] * (cotangent[q] . v[k] - delta[q]); by query: sum over k of s[q, k] * key[k]; by key: sum over q of s[q, k] * query[q]; by value: sum over q of p[q, k] * cotangent[q]; sums over q include the H / G heads that read the same key";
  let reference = "Dao et al., FlashAttention, 2022, algorithm 4";
  let arguments = (ins UnitAttr:$by_keys, Tensor:$query, Tensor:$key, Tensor:$value, Tensor:$cotangent, Tensor:$lse, Tensor:$delta,
                       OptionalAttr<F64Attr>:$scale, UnitAttr:$causal);
  let results = (outs Tensor:$result, Optional<Tensor>:$value_gradient);
  let assemblyFormat = "(`by_keys` $by_keys^)? $query `,` $key `,` $value `,` $cotangent `,` $lse `,` $delta (`causal` $causal^)? attr-dict `:` type($query) `,` type($key) `,` type($value) `,` type($cotangent) `,` type($lse) `,` type($delta)";
}
#endif
