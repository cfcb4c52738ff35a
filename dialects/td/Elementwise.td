// Elementwise prims, without broadcasting (see `kiln.broadcast_in_dim`).
#ifndef KILN_ELEMENTWISE_TD
#define KILN_ELEMENTWISE_TD
include "Base.td"

class Kiln_Elementwise<string mnemonic, list<Trait> traits = [], string hooks = ""> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits), hooks>;

// ---- unary
class Kiln_Unary<string mnemonic, string formula_, string text, string ref = ""> : Kiln_Elementwise<mnemonic> {
  let family = "unary";
  let summary = text;
  let formula = formula_;
  let reference = ref;
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}
def Kiln_NegOp : Kiln_Unary<"neg", "-x", "Negation; integers wrap around">;
def Kiln_AbsOp : Kiln_Unary<"abs", "|x|", "Absolute value; the least integer is unchanged">;
def Kiln_SignOp : Kiln_Unary<"sign", "(x > 0) - (x < 0)", "Sign as -1, 0 or 1; NaN gives NaN, -0 gives -0">;
def Kiln_ExpOp : Kiln_Unary<"exp", "e^x", "Exponential">;
def Kiln_Exp2Op : Kiln_Unary<"exp2", "2^x", "Base-2 exponential">;
def Kiln_Expm1Op : Kiln_Unary<"expm1", "e^x - 1", "Exponential minus 1, accurate near 0">;
def Kiln_LogOp : Kiln_Unary<"log", "ln x", "Natural logarithm; NaN below 0, -inf at 0">;
def Kiln_Log1pOp : Kiln_Unary<"log1p", "ln(1 + x)", "Natural logarithm of 1 + x, accurate near 0">;
def Kiln_Log2Op : Kiln_Unary<"log2", "log2 x", "Logarithm to the base 2">;
def Kiln_SqrtOp : Kiln_Unary<"sqrt", "x^(1/2)", "Square root; NaN below 0", "IEEE 754-2019, 5.4.1">;
def Kiln_RsqrtOp : Kiln_Unary<"rsqrt", "x^(-1/2)", "Reciprocal of the square root; inf at 0">;
def Kiln_SinOp : Kiln_Unary<"sin", "sin x", "Sine, x in radians">;
def Kiln_CosOp : Kiln_Unary<"cos", "cos x", "Cosine, x in radians">;
def Kiln_TanOp : Kiln_Unary<"tan", "tan x", "Tangent, x in radians">;
def Kiln_AsinOp : Kiln_Unary<"asin", "arcsin x", "Arc sine in radians; NaN outside of [-1, 1]">;
def Kiln_AcosOp : Kiln_Unary<"acos", "arccos x", "Arc cosine in radians; NaN outside of [-1, 1]">;
def Kiln_AtanOp : Kiln_Unary<"atan", "arctan x", "Arc tangent in radians">;
def Kiln_SinhOp : Kiln_Unary<"sinh", "(e^x - e^-x) / 2", "Hyperbolic sine">;
def Kiln_CoshOp : Kiln_Unary<"cosh", "(e^x + e^-x) / 2", "Hyperbolic cosine">;
def Kiln_TanhOp : Kiln_Unary<"tanh", "(e^x - e^-x) / (e^x + e^-x)", "Hyperbolic tangent">;
def Kiln_ErfOp : Kiln_Unary<"erf", "2/sqrt(pi) * integral of e^(-t^2) for t from 0 to x", "Error function">;
def Kiln_CeilOp : Kiln_Unary<"ceil", "least integer >= x", "Rounds up">;
def Kiln_FloorOp : Kiln_Unary<"floor", "greatest integer <= x", "Rounds down">;
def Kiln_RoundEvenOp : Kiln_Unary<"round_even", "nearest integer, ties to even", "Rounds to nearest, as torch.round does", "IEEE 754-2019, 4.3.1">;
def Kiln_TruncOp : Kiln_Unary<"trunc", "sign(x) * floor(|x|)", "Rounds toward 0">;
def Kiln_NotOp : Kiln_Unary<"not", "!x on i1, ~x on integers", "Logical not on i1, bitwise not on integers">;
def Kiln_IsFiniteOp : Kiln_Unary<"is_finite", "|x| < inf", "Whether x is neither infinite nor NaN, as i1">;
def Kiln_IsNanOp : Kiln_Unary<"is_nan", "x != x", "Whether x is NaN, as i1">;

// ---- binary
class Kiln_Binary<string mnemonic, string formula_, string text, list<Trait> traits = [], string ref = "">
    : Kiln_Elementwise<mnemonic, !listconcat([AllTypesMatch<["lhs", "rhs"]>], traits)> {
  let family = "binary";
  let summary = text;
  let formula = formula_;
  let reference = ref;
  let arguments = (ins Tensor:$lhs, Tensor:$rhs);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs)";
}
def Kiln_AddOp : Kiln_Binary<"add", "x + y", "Sum; integers wrap around", [Commutative]>;
def Kiln_SubOp : Kiln_Binary<"sub", "x - y", "Difference; integers wrap around">;
def Kiln_MulOp : Kiln_Binary<"mul", "x * y", "Product; integers wrap around", [Commutative]>;
def Kiln_DivOp : Kiln_Binary<"div", "x / y", "Quotient; integers truncate toward 0 and a zero divisor is an error">;
def Kiln_RemOp : Kiln_Binary<"rem", "x - y * trunc(x / y)", "Remainder with the sign of x, as C's fmod and torch.fmod; an integer zero divisor is an error">;
def Kiln_FloorDivOp : Kiln_Binary<"floor_div", "floor(x / y)", "Quotient rounded down, computed as torch does: (x - mod(x, y)) / y, then rounded; an integer zero divisor is an error",
  [], "Python's float_floor_div, as PyTorch's div_floor_floating">;
def Kiln_PowOp : Kiln_Binary<"pow", "x^y", "Power; an integer to a negative power is 0 unless |x| = 1">;
def Kiln_MaxOp : Kiln_Binary<"max", "x if x > y else y", "Greater of two; NaN if either is NaN; +0 is above -0", [Commutative], "IEEE 754-2019 maximum">;
def Kiln_MinOp : Kiln_Binary<"min", "x if x < y else y", "Lesser of two; NaN if either is NaN; -0 is below +0", [Commutative], "IEEE 754-2019 minimum">;
def Kiln_Atan2Op : Kiln_Binary<"atan2", "angle of the point (y, x) = (lhs, rhs)", "Angle in radians, in [-pi, pi]; -pi only for (-0, negative)">;
def Kiln_AndOp : Kiln_Binary<"and", "x & y", "Bitwise and of integers, logical and of i1", [Commutative]>;
def Kiln_OrOp : Kiln_Binary<"or", "x | y", "Bitwise or of integers, logical or of i1", [Commutative]>;
def Kiln_XorOp : Kiln_Binary<"xor", "x ^ y", "Bitwise exclusive or of integers, logical on i1", [Commutative]>;
def Kiln_ShlOp : Kiln_Binary<"shl", "x * 2^y", "Left shift; 0 when y is negative or not below the width">;
def Kiln_ShrOp : Kiln_Binary<"shr", "floor(x / 2^y)", "Right shift, arithmetic (logical on ui8); all sign bits when y is negative or not below the width">;

// ---- other elementwise ops
def Kiln_CompareOp : Kiln_Elementwise<"compare", [AllTypesMatch<["lhs", "rhs"]>]> {
  let family = "elementwise";
  let summary = "Comparison, as i1; false with NaN, except `ne`";
  let formula = "x kind y";
  let reference = "IEEE 754-2019, 5.11";
  let arguments = (ins Kiln_CompareKind:$kind, Tensor:$lhs, Tensor:$rhs);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $lhs `,` $rhs attr-dict `:` type($lhs)";
}
def Kiln_SelectOp : Kiln_Elementwise<"select", [AllTypesMatch<["on_true", "on_false"]>]> {
  let family = "elementwise";
  let summary = "Selects elements by an i1 tensor of the same shape";
  let formula = "c ? x : y";
  let arguments = (ins Tensor:$condition, Tensor:$on_true, Tensor:$on_false);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$condition `,` $on_true `,` $on_false attr-dict `:` type($condition) `,` type($on_true)";
}
def Kiln_ClampOp : Kiln_Elementwise<"clamp", [AllTypesMatch<["input", "low", "high"]>]> {
  let family = "elementwise";
  let summary = "Clamps to [low, high]; NaN in any operand gives NaN, and `high` wins where low > high";
  let formula = "min(max(x, low), high)";
  let reference = "torch.clamp";
  let arguments = (ins Tensor:$input, Tensor:$low, Tensor:$high);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `,` $low `,` $high attr-dict `:` type($input)";
}
def Kiln_ConvertOp : Kiln_Elementwise<"convert", []> {
  let family = "elementwise";
  let summary = "Numeric conversion: to floats round to nearest even, float to integer truncates, integer to integer wraps, to i1 is x != 0. An out-of-range float gives the nearest integer of the dtype, NaN gives 0";
  let formula = "dtype(x)";
  let arguments = (ins Tensor:$input, TypeAttr:$dtype);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `to` $dtype";
}
def Kiln_BitcastOp : Kiln_Elementwise<"bitcast"> {
  let family = "elementwise";
  let summary = "Reinterprets the bits as another dtype of the same width";
  let arguments = (ins Tensor:$input, TypeAttr:$dtype);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `to` $dtype";
}
#endif
