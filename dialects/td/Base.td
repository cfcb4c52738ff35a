// The `kiln` dialect: declaration, the hooks every op shares, attributes and type constraints.
#ifndef KILN_BASE_TD
#define KILN_BASE_TD
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def Kiln_Dialect : Dialect {
  let name = "kiln";
  let cppNamespace = "::kiln";
  let summary = "Functional ops on tensors, as captured from a framework";
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 1;   // -> kilnMaterialize (Rust)
  let hasCanonicalizer = 1;          // -> kilnPatterns (Rust), for every op at once
  let hasOperationAttrVerify = 1;    // -> kilnVerifyOpAttr (Rust): kiln.level, kiln.target, kiln.options
  let hasRegionArgAttrVerify = 1;    // -> kilnVerifyArgAttr (Rust): kiln.layout
  let hasRegionResultAttrVerify = 1;
}

// ---- hooks, shared by all ops; ODS substitutes $cppClass.
defvar verifyHook = [{
  ::llvm::LogicalResult $cppClass::verify() { return ::kiln::verify(getOperation()); }
}];
defvar foldHook = [{
  ::mlir::OpFoldResult $cppClass::fold(FoldAdaptor a) { return ::kiln::fold(getOperation(), a.getOperands()); }
}];
defvar regionHook = [{
  ::llvm::LogicalResult $cppClass::verifyRegions() { return ::kiln::verifyRegions(getOperation()); }
}];
defvar inferHook = [{
  ::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *c, ::std::optional<::mlir::Location> l,
      ::mlir::ValueRange v, ::mlir::DictionaryAttr d, ::mlir::OpaqueProperties p, ::mlir::RegionRange r,
      ::llvm::SmallVectorImpl<::mlir::Type> &out) {
    return ::kiln::infer<$cppClass>(c, l, v, d, p, r, out);
  }
}];
def Infer : DeclareOpInterfaceMethods<InferTypeOpInterface>;

// ---- base classes. build.rs reads the columns below `extraClassDefinition` into `OpKind` and
// docs/ops.md.
class Kiln_Op<string mnemonic, list<Trait> traits = [], string hooks = ""> : Op<Kiln_Dialect, mnemonic, traits> {
  let hasVerifier = 1;
  let extraClassDefinition = verifyHook # hooks; // a parameter, because a later `let` would replace and not append
  string family = "structure";
  string formula = "";
  string reference = "";
}
/// An op whose result types are inferred by the rule in Rust.
class Kiln_Inferred<string mnemonic, list<Trait> traits = [], string hooks = "">
    : Kiln_Op<mnemonic, !listconcat([Infer], traits), !strconcat(inferHook, hooks)>;
/// A composite: an op of level `graph` that `kiln-decompose` can expand into prims.
class Kiln_Composite<string mnemonic, list<Trait> traits = []> : Kiln_Inferred<mnemonic, !listconcat([Pure], traits)> {
  let family = "composite";
}

// ---- attributes
class Kiln_Attr<string name, string mnemonic_> : AttrDef<Kiln_Dialect, name> { let mnemonic = mnemonic_; }
def Kiln_LayoutAttr : Kiln_Attr<"Layout", "layout"> {
  let summary = "Memory layout of an entry argument or result: strides and offset in elements, alignment in bytes (0: unknown)";
  let parameters = (ins OptionalArrayRefParameter<"int64_t">:$strides, "int64_t":$offset, "int64_t":$alignment);
  let assemblyFormat = "`<` `[` (`]`) : ($strides^ `]`)? `,` `offset` `=` $offset `,` `alignment` `=` $alignment `>`";
}

def Kiln_ScheduleAttr : Kiln_Attr<"Schedule", "schedule"> {
  let summary = "The schedule of a kernel: a strategy and its parameters";
  let parameters = (ins StringRefParameter<>:$strategy, "::mlir::DictionaryAttr":$parameters);
  let assemblyFormat = "`<` $strategy `,` $parameters `>`";
}

// dtype rules are in Rust, with better messages; here only "a ranked tensor".
defvar Tensor = AnyRankedTensor;
defvar keyType = "::mlir::RankedTensorType::get({2}, ::mlir::IntegerType::get($_self.getContext(), 64))";
/// The key of the random ops: seed and offset.
def Kiln_Key : Type<CPred<!strconcat("$_self == ", keyType)>, "tensor<2xi64> (seed, offset)", "::mlir::RankedTensorType">,
    BuildableType<"::mlir::RankedTensorType::get({2}, $_builder.getI64Type())">;
// Comparisons of elements and of sizes.
def Kiln_CompareKind : I64EnumAttr<"CompareKind", "", [I64EnumAttrCase<"eq", 0>, I64EnumAttrCase<"ne", 1>,
    I64EnumAttrCase<"lt", 2>, I64EnumAttrCase<"le", 3>, I64EnumAttrCase<"gt", 4>, I64EnumAttrCase<"ge", 5>]> {
  let cppNamespace = "::kiln";
}
#endif
