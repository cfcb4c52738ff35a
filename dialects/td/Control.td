// Control flow with regions, and calls to external code.
#ifndef KILN_CONTROL_TD
#define KILN_CONTROL_TD
include "Base.td"

class Kiln_Control<string mnemonic, list<Trait> traits = []> : Kiln_Op<mnemonic,
    !listconcat([RecursiveMemoryEffects, RecursivelySpeculatable], traits), regionHook> {
  let family = "control";
  let hasRegionVerifier = 1;
}
def Kiln_IfOp : Kiln_Control<"if", [SingleBlock, DeclareOpInterfaceMethods<RegionBranchOpInterface>]> {
  let summary = "One of two regions, chosen by a 0-d i1; both yield the results";
  let arguments = (ins Tensor:$condition);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$then_region, SizedRegion<1>:$else_region);
  let assemblyFormat = "$condition `:` type($condition) (`->` type($results)^)? $then_region `else` $else_region attr-dict";
}
def Kiln_WhileOp : Kiln_Control<"while", [SingleBlock]> {
  let summary = "Repeats the body while the condition, a 0-d i1 of the loop-carried values, holds; results are their final values";
  let arguments = (ins Variadic<AnyType>:$inits);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$condition, SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inits `)` `:` functional-type($inits, $results) $condition `do` $body attr-dict";
}
def Kiln_ScanOp : Kiln_Control<"scan", [SingleBlock, AttrSizedOperandSegments]> {
  let summary = "Runs the body once per index of axis 0: it takes the loop-carried values and one slice of each input, and yields the loop-carried values and one slice of each stacked output. Results: final loop-carried values, then stacked outputs";
  let formula = "(c, y[i]) = body(c, x[i]) for i in order, in reverse order with `reverse`";
  let reference = "jax.lax.scan";
  let arguments = (ins Variadic<Tensor>:$inits, Variadic<Tensor>:$inputs, UnitAttr:$reverse);
  let results = (outs Variadic<Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`reverse` $reverse^)? `inits` `(` ($inits^ `:` type($inits))? `)` `over` `(` $inputs `:` type($inputs) `)` `->` type($results) $body attr-dict";
}
def Kiln_CheckpointOp : Kiln_Control<"checkpoint", [SingleBlock]> {
  let family = "composite";
  let summary = "The values that its region yields. kiln-differentiate keeps none of the values inside for the backward pass: it runs the region again there";
  let formula = "r = body()";
  let reference = "torch.utils.checkpoint, jax.checkpoint";
  let results = (outs Variadic<Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`->` type($results)^)? $body attr-dict";
}
def Kiln_OptimizationBarrierOp : Kiln_Inferred<"optimization_barrier", [Pure]> {
  let family = "control";
  let summary = "Its operand, which no pass may take for the same value: what is computed from it again stays so";
  let formula = "r = x";
  let reference = "stablehlo.optimization_barrier";
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}
def Kiln_YieldOp : Kiln_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["IfOp", "CheckpointOp", "WhileOp", "ScanOp", "AttentionOp", "PtxCallOp",
    "StructuredContractOp", "StructuredScanOp", "StructuredFftOp", "StructuredAttentionOp",
    "TileWarpSpecializeOp", "TileMapOp", "TileLoadOp", "TileStoreOp", "TileClusterReduceOp", "TileEpilogueOp"]>]> {
  let family = "control";
  let summary = "Terminates a region of a kiln op and yields its values";
  let arguments = (ins Variadic<AnyType>:$values);
  let builders = [OpBuilder<(ins), [{}]>];
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}
// As an op that states facts: DCE keeps what binds a symbol.
def Kiln_UnbackedSizeOp : Kiln_Op<"unbacked_size", [MemoryEffects<[MemAlloc<FactResource>]>]> {
  let family = "control";
  let summary = "A size that depends on data: binds the symbol `name` to a 0-d i64, which lies between the symbol's least value and `max`. The result has no elements; its first size is the value, so programs that need the symbol take it as an argument";
  let reference = "torch.SymInt of an unbacked symbol";
  let arguments = (ins SymbolNameAttr:$name, Tensor:$value, Variadic<Index>:$dynamic_max, DenseI64ArrayAttr:$max);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$name `,` $value `max` custom<DynamicIndexList>($dynamic_max, $max) attr-dict `:` type($value) `->` type($result)";
}
def Kiln_CustomCallOp : Kiln_Op<"custom_call", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let family = "control";
  let summary = "Calls a function registered with the runtime by name; `effect` marks side effects, so it is neither erased nor reordered";
  let arguments = (ins StrAttr:$callee, Variadic<Tensor>:$inputs, UnitAttr:$effect, OptionalAttr<DictionaryAttr>:$config);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "(`effect` $effect^)? $callee `(` $inputs `)` (`config` $config^)? attr-dict `:` functional-type($inputs, $results)";
}
def Kiln_PtxCallOp : Kiln_Op<"ptx_call", [Pure, SingleBlock, AttrSizedOperandSegments], regionHook> {
  let family = "control";
  let summary = "Launches an external PTX kernel: `entry` runs on a 1-d grid of `blocks` thread blocks of `threads` threads with `shared` bytes of dynamic shared memory; its parameters are the pointers of the inputs and results, then `sizes` as 64-bit integers. The optional region is the reference for targets without PTX";
  let arguments = (ins StrAttr:$callee, Variadic<Tensor>:$inputs, Variadic<Index>:$dynamic_blocks, DenseI64ArrayAttr:$blocks,
      Variadic<Index>:$dynamic_sizes, DenseI64ArrayAttr:$sizes, StrAttr:$entry, I64Attr:$threads, I64Attr:$shared, StrAttr:$ptx);
  let results = (outs Variadic<Tensor>:$results);
  let hasRegionVerifier = 1;
  let regions = (region VariadicRegion<SizedRegion<1>>:$body);
  let assemblyFormat = "$callee `(` $inputs `)` `blocks` `=` custom<DynamicIndexList>($dynamic_blocks, $blocks) `sizes` `=` custom<DynamicIndexList>($dynamic_sizes, $sizes) `entry` `=` $entry `threads` `=` $threads `shared` `=` $shared `ptx` `=` $ptx attr-dict `:` functional-type($inputs, $results) ($body^)?";
}
#endif
