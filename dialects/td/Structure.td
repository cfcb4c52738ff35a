// Symbols, shape constraints, weights, launches and memory.
#ifndef KILN_STRUCTURE_TD
#define KILN_STRUCTURE_TD
include "Base.td"

def Kiln_SymOp : Kiln_Op<"sym", [Pure]> {
  let summary = "A symbolic size, bound at the call; equal names are one size";
  // SymbolNameAttr is a StrAttr that prints as @s0: not a symbol use, so symbol passes ignore it.
  let arguments = (ins SymbolNameAttr:$name, DefaultValuedAttr<I64Attr, "0">:$min, OptionalAttr<I64Attr>:$max,
                       DefaultValuedAttr<I64Attr, "1">:$divisor);
  let results = (outs Index:$result);
  let assemblyFormat = "$name attr-dict";
}
def Kiln_SymKind : I64EnumAttr<"SymKind", "", [I64EnumAttrCase<"add", 0>, I64EnumAttrCase<"mul", 1>, I64EnumAttrCase<"floordiv", 2>,
    I64EnumAttrCase<"mod", 3>, I64EnumAttrCase<"min", 4>, I64EnumAttrCase<"max", 5>, I64EnumAttrCase<"pow", 6>]> {
  let cppNamespace = "::kiln";
}
def Kiln_SymExprOp : Kiln_Op<"sym_expr", [Pure], foldHook> {
  let summary = "A size computed from sizes";
  let formula = "lhs kind rhs, on 64-bit integers; floordiv and mod round down";
  let arguments = (ins Kiln_SymKind:$kind, Index:$lhs, Index:$rhs);
  let results = (outs Index:$result);
  let hasFolder = 1;
  let assemblyFormat = "$kind $lhs `,` $rhs attr-dict";
}
def Kiln_DimOp : Kiln_Op<"dim", [Pure], foldHook> {
  let summary = "The size of one dimension";
  let arguments = (ins Tensor:$input, I64Attr:$axis);
  let results = (outs Index:$result);
  let hasFolder = 1;
  let assemblyFormat = "$input `,` $axis attr-dict `:` type($input)";
}
def FactResource : Resource<"::kiln::FactResource">;
// Modelled as an allocation of its own resource: DCE keeps it, and CSE works across it.
def Kiln_BindShapeOp : Kiln_Op<"bind_shape", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let summary = "Asserts the sizes of a value; computes nothing";
  let arguments = (ins Tensor:$value, Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes);
  let assemblyFormat = "$value `,` custom<DynamicIndexList>($dynamic_sizes, $sizes) attr-dict `:` type($value)";
}
def Kiln_RequireOp : Kiln_Op<"require", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let summary = "A guard on sizes, checked at every call; later ops may assume it";
  let formula = "lhs kind rhs, on 64-bit integers";
  let arguments = (ins Kiln_CompareKind:$kind, Index:$lhs, Index:$rhs, StrAttr:$message);
  let assemblyFormat = "$kind $lhs `,` $rhs $message attr-dict";
}
def Kiln_AdvanceRngOp : Kiln_Op<"advance_rng", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let summary = "How far a call moves the offset of the random number generator whose state it takes; computes nothing, a caller reads it off the program";
  let formula = "offset of the next call = offset + increment";
  let arguments = (ins Index:$increment);
  let assemblyFormat = "$increment attr-dict";
}
def Kiln_RequireIndexOp : Kiln_Op<"require_index", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let summary = "A guard on an argument's elements: each is an index into a dimension of that size. Host programs check it at every call; `wraps` allows negative indices, which count from the end";
  let formula = "(wraps ? -size : 0) <= index[i...] < size";
  let arguments = (ins Tensor:$index, Index:$size, UnitAttr:$wraps, StrAttr:$message);
  let assemblyFormat = "$index `below` $size (`wraps` $wraps^)? $message attr-dict `:` type($index)";
}
def Kiln_GlobalOp : Kiln_Op<"global", [Symbol]> {
  let summary = "A weight, buffer or large constant: by the name of its source, or a literal of up to 4 KiB";
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$sym_visibility, UnitAttr:$is_mutable,
                       TypeAttrOf<Tensor>:$type, OptionalAttr<StrAttr>:$source, OptionalAttr<ElementsAttr>:$value);
  let assemblyFormat = "($sym_visibility^)? (`mutable` $is_mutable^)? $sym_name `:` $type (`from` $source^)? (`=` $value^)? attr-dict";
}
// Frozen: no effects; mutable: a read. The op repeats the flag (verified), since effects are
// queried too often for a symbol lookup.
def Kiln_GetGlobalOp : Kiln_Op<"get_global", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The value of a global";
  let arguments = (ins UnitAttr:$is_mutable, FlatSymbolRefAttr:$global);
  let results = (outs Tensor:$result);
  let assemblyFormat = "(`mutable` $is_mutable^)? $global attr-dict `:` type($result)";
}

def Kiln_LaunchOp : Kiln_Op<"launch", [Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Launches a kernel: a module of that name with one function of that name, which takes the inputs, then the sizes, and returns the results. outs are the destination buffers of the results; flops is the work per element of the first result, with dynamic sizes taken as 128";
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Tensor>:$inputs, Variadic<Index>:$sizes, Variadic<Tensor>:$outs,
                       OptionalAttr<I64Attr>:$flops_per_element);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "$kernel `ins` `(` ($inputs^ `:` type($inputs))? `)` (`sizes` `(` $sizes^ `)`)? `outs` `(` $outs `:` type($outs) `)` (`flops` $flops_per_element^)? attr-dict `->` type($results)";
}
def Kiln_ArenaOp : Kiln_Op<"arena", [Pure]> {
  let summary = "A buffer in the program's arena: byte offset, and its live range in launches";
  let arguments = (ins Index:$offset, I64Attr:$first, I64Attr:$last);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$offset `live` $first `to` $last attr-dict `:` type($result)";
}
def Kiln_ArenaSizeOp : Kiln_Op<"arena_size", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let summary = "The size of the program's arena in bytes";
  let arguments = (ins Index:$bytes);
  let assemblyFormat = "$bytes attr-dict";
}
def Kiln_ReuseOp : Kiln_Op<"reuse", [Pure]> {
  let summary = "Memory of a donated argument after its last read, or of a result before it is first written: byte offset in it, and the live range in launches";
  let arguments = (ins Tensor:$memory, Index:$offset, I64Attr:$first, I64Attr:$last);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$memory `at` $offset `live` $first `to` $last attr-dict `:` type($memory) `->` type($result)";
}
def Kiln_OutputOp : Kiln_Op<"output", [Pure]> {
  let summary = "The caller's buffer for the function result of that index";
  let arguments = (ins I64Attr:$index);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$index attr-dict `:` type($result)";
}
#endif
