// Creation and data-movement prims.
#ifndef KILN_SHAPE_TD
#define KILN_SHAPE_TD
include "Base.td"
include "Structure.td"

class Kiln_Create<string mnemonic, list<Trait> traits = [], string hooks = ""> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits), hooks> { let family = "create"; }
class Kiln_Move<string mnemonic, list<Trait> traits = []> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits)> { let family = "movement"; }

// ---- creation
def Kiln_ConstantOp : Kiln_Op<"constant", [Pure, ConstantLike, AllTypesMatch<["value", "result"]>], foldHook> {
  let family = "create";
  let summary = "A literal of at most 4 KiB; larger ones belong in a kiln.global";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyStaticShapeTensor:$result);
  let hasFolder = 1;
  let assemblyFormat = "attr-dict $value";
}
def Kiln_SplatOp : Kiln_Create<"splat"> {
  let summary = "A tensor filled with a scalar";
  let formula = "r[...] = value";
  let arguments = (ins TypedAttrInterface:$value, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "custom<DynamicIndexList>($dynamic_sizes, $sizes) `,` $value attr-dict";
}
def Kiln_IotaOp : Kiln_Create<"iota"> {
  let summary = "The index along one axis";
  let formula = "r[i...] = i[axis]";
  let arguments = (ins Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, I64Attr:$axis, TypeAttr:$dtype);
  let results = (outs Tensor:$result);
  let assemblyFormat = "custom<DynamicIndexList>($dynamic_sizes, $sizes) `axis` `=` $axis attr-dict `:` $dtype";
}

// ---- movement
def Kiln_BroadcastInDimOp : Kiln_Move<"broadcast_in_dim"> {
  let summary = "Broadcasts along new dimensions and unit dimensions; dimension i of the input becomes dims[i] of the result, dims ascending";
  let formula = "r[i...] = x[i[dims[k]] or 0 where x has size 1]";
  let reference = "StableHLO broadcast_in_dim, with ascending dims";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$dims, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `dims` `=` $dims `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($input)";
}
def Kiln_ReshapeOp : Kiln_Move<"reshape"> {
  let summary = "Reinterprets the row-major elements with other sizes of equal product. Also casts to a more static type";
  let arguments = (ins Tensor:$input, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($input)";
}
def Kiln_TransposeOp : Kiln_Move<"transpose"> {
  let summary = "Permutes dimensions";
  let formula = "size(r, k) = size(x, permutation[k])";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `permutation` `=` $permutation attr-dict `:` type($input)";
}
def Kiln_SliceOp : Kiln_Move<"slice", [AttrSizedOperandSegments]> {
  let summary = "A strided slice, strides at least 1; every element read is in bounds";
  let formula = "r[i...] = x[offsets + i * strides]";
  let arguments = (ins Tensor:$input, Variadic<Index>:$dynamic_offsets, DenseI64ArrayAttr:$offsets,
                       Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$strides);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `offsets` `=` custom<DynamicIndexList>($dynamic_offsets, $offsets) `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) `strides` `=` $strides attr-dict `:` type($input)";
}
def Kiln_PadOp : Kiln_Move<"pad", [AttrSizedOperandSegments]> {
  let summary = "Pads each dimension before and after with a 0-d value; negative counts crop";
  let formula = "r[i] = x[i - low] inside, value outside; size(r) = low + size(x) + high";
  let arguments = (ins Tensor:$input, Tensor:$value, Variadic<Index>:$dynamic_low, DenseI64ArrayAttr:$low,
                       Variadic<Index>:$dynamic_high, DenseI64ArrayAttr:$high);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `,` $value `low` `=` custom<DynamicIndexList>($dynamic_low, $low) `high` `=` custom<DynamicIndexList>($dynamic_high, $high) attr-dict `:` type($input) `,` type($value)";
}
def Kiln_ConcatOp : Kiln_Move<"concat"> {
  let summary = "Concatenates tensors along one axis";
  let arguments = (ins Variadic<Tensor>:$inputs, I64Attr:$axis);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$inputs `axis` `=` $axis attr-dict `:` type($inputs)";
}
// Not pure: CSE must not merge two, since each owns a buffer that its user overwrites.
def Kiln_InsertSliceOp : Kiln_Inferred<"insert_slice", [MemoryEffects<[MemAlloc<FactResource>]>, AttrSizedOperandSegments]> {
  let family = "movement";
  let summary = "Inserts a slice into a larger tensor in place (destination passing): `dest` is the result of an earlier kiln.insert_slice without other uses, a state of the program (an argument with kiln.state), or absent for a new tensor, whose other elements are undefined (0 in the interpreter). Slices of one tensor do not overlap. `start`, a 0-d integer, moves the slice along `axis`, clamped so that it is in bounds";
  let formula = "r[offsets + i...] = source[i...], dest[...] elsewhere; sizes are those of r; offsets[axis] += clamp(start)";
  let arguments = (ins Tensor:$source, Optional<Tensor>:$dest, Optional<Tensor>:$start, OptionalAttr<I64Attr>:$axis,
                       Variadic<Index>:$dynamic_offsets, DenseI64ArrayAttr:$offsets,
                       Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$source (`into` $dest^)? (`at` $start^ `:` type($start) `axis` `=` $axis)? `offsets` `=` custom<DynamicIndexList>($dynamic_offsets, $offsets) `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($source) (`into` type($dest)^)?";
}
def Kiln_ReverseOp : Kiln_Move<"reverse"> {
  let summary = "Reverses the order along dims";
  let formula = "r[i] = x[size - 1 - i] along dims";
  let arguments = (ins Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `dims` `=` $dims attr-dict `:` type($input)";
}

// ---- indexed movement
class Kiln_Indexed<string mnemonic, list<Trait> traits = []> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits)> { let family = "indexed"; }
def Kiln_GatherOp : Kiln_Indexed<"gather"> {
  let summary = "Gathers by index tensors of one shape, one per dim of dims; the result has the index dimensions first, then the other dimensions of the input. An index out of [0, size) is an error";
  let formula = "r[i..., j...] = x[indices_k[i...] at dims[k], j... elsewhere]";
  let reference = "NumPy advanced indexing, index dimensions first";
  let arguments = (ins Tensor:$input, Variadic<Tensor>:$indices, DenseI64ArrayAttr:$dims);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `[` $indices `]` `dims` `=` $dims attr-dict `:` type($input) `[` type($indices) `]`";
}
def Kiln_ScatterKind : I64EnumAttr<"ScatterKind", "", [I64EnumAttrCase<"assign", 0>, I64EnumAttrCase<"add", 1>, I64EnumAttrCase<"mul", 2>,
    I64EnumAttrCase<"max", 3>, I64EnumAttrCase<"min", 4>]> {
  let cppNamespace = "::kiln";
}
def Kiln_ScatterOp : Kiln_Indexed<"scatter"> {
  let summary = "A copy of the input with updates combined at integer indices (see kiln.gather); for `assign` the last update in row-major order wins";
  let formula = "r = x; for i, j: r[indices_k[i...] at dims[k], j...] kind= updates[i..., j...]";
  let arguments = (ins Kiln_ScatterKind:$kind, Tensor:$input, Tensor:$updates, Variadic<Tensor>:$indices, DenseI64ArrayAttr:$dims);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $input `[` $indices `]` `,` $updates `dims` `=` $dims attr-dict `:` type($input) `[` type($indices) `]` `,` type($updates)";
}
def Kiln_DynamicSliceOp : Kiln_Indexed<"dynamic_slice", [AttrSizedOperandSegments]> {
  let summary = "A slice at run-time offsets: one 0-d integer start per dimension, clamped so that the slice is in bounds";
  let formula = "r[i] = x[clamp(start, 0, size(x) - size(r)) + i]";
  let reference = "StableHLO dynamic_slice";
  let arguments = (ins Tensor:$input, Variadic<Tensor>:$starts, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `[` ($starts^ `:` type($starts))? `]` `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($input)";
}
def Kiln_DynamicUpdateSliceOp : Kiln_Indexed<"dynamic_update_slice"> {
  let summary = "A copy of the input with a slice replaced, at clamped starts as in kiln.dynamic_slice";
  let reference = "StableHLO dynamic_update_slice";
  let arguments = (ins Tensor:$input, Tensor:$update, Variadic<Tensor>:$starts);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input `[` ($starts^ `:` type($starts))? `]` `,` $update attr-dict `:` type($input) `,` type($update)";
}
#endif
