// Control flow with regions, and calls to code that is not kiln's.
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
  let summary = "Repeats the body while the condition, a 0-d i1 of the carried values, holds; results are the last carried values";
  let arguments = (ins Variadic<AnyType>:$inits);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$condition, SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inits `)` `:` functional-type($inits, $results) $condition `do` $body attr-dict";
}
def Kiln_ScanOp : Kiln_Control<"scan", [SingleBlock, AttrSizedOperandSegments]> {
  let summary = "Runs the body once per element of axis 0: it takes the carried values and one slice of each input, and yields the carried values and one slice of each stacked output. Results: last carried values, then stacked outputs";
  let formula = "(c, y[i]) = body(c, x[i]) for i in order, or backwards with `reverse`";
  let reference = "jax.lax.scan";
  let arguments = (ins Variadic<Tensor>:$inits, Variadic<Tensor>:$inputs, UnitAttr:$reverse);
  let results = (outs Variadic<Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`reverse` $reverse^)? `inits` `(` ($inits^ `:` type($inits))? `)` `over` `(` $inputs `:` type($inputs) `)` `->` type($results) $body attr-dict";
}
def Kiln_YieldOp : Kiln_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["IfOp", "WhileOp", "ScanOp", "AttentionOp"]>]> {
  let family = "control";
  let summary = "Ends a region of a kiln op and gives its values";
  let arguments = (ins Variadic<AnyType>:$values);
  let builders = [OpBuilder<(ins), [{}]>];
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}
def Kiln_CustomCallOp : Kiln_Op<"custom_call", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let family = "control";
  let summary = "A call by name to code that is registered with the runtime; `effect` keeps it in place and in order";
  let arguments = (ins StrAttr:$callee, Variadic<Tensor>:$inputs, UnitAttr:$effect, OptionalAttr<DictionaryAttr>:$config);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "(`effect` $effect^)? $callee `(` $inputs `)` (`config` $config^)? attr-dict `:` functional-type($inputs, $results)";
}
#endif
