// Registration of the dialect and its dialect-wide hooks.
#include "Kiln.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/CAPI/Rewrite.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/TypeSwitch.h"
using namespace mlir;

#include "KilnDialect.cpp.inc"
#include "KilnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "KilnAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "KilnTypes.cpp.inc"

OpFoldResult kiln::fold(Operation *op, ArrayRef<Attribute> constants) {
  SmallVector<MlirAttribute> in;
  for (Attribute a : constants) in.push_back(wrap(a));
  MlirAttribute attr{nullptr};
  MlirValue value{nullptr};
  if (!kilnFold(wrap(op), in.size(), in.data(), &attr, &value)) return {};
  if (attr.ptr) return unwrap(attr);
  return unwrap(value);
}
LogicalResult kiln::inferTypes(StringRef name, MLIRContext *c, std::optional<Location> l, ValueRange v, DictionaryAttr attrs,
                               RegionRange r, SmallVectorImpl<Type> &out) {
  SmallVector<MlirValue> values;
  SmallVector<MlirRegion> regions;
  for (Value x : v) values.push_back(wrap(x));
  for (Region *x : r) regions.push_back(wrap(x));
  return success(kilnInfer(
      wrap(name), wrap(c), wrap(l.value_or(UnknownLoc::get(c))), values.size(), values.data(), wrap(Attribute(attrs)), regions.size(),
      regions.data(),
      [](intptr_t n, MlirType *t, void *o) {
        for (intptr_t i = 0; i < n; ++i) static_cast<SmallVectorImpl<Type> *>(o)->push_back(unwrap(t[i]));
      },
      &out));
}

namespace {
// `tensor<64xf32, #rows>` in a tile program.
struct Aliases final : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute a, raw_ostream &os) const override {
    auto fragment = dyn_cast<kiln::FragmentAttr>(a);
    if (!fragment) return AliasResult::NoAlias;
    os << kiln::stringifyFragmentLayout(fragment.getLayout());
    return AliasResult::FinalAlias;
  }
};
} // namespace
void kiln::KilnDialect::initialize() {
  registerKilnDialectOperations(this);
  addInterfaces<Aliases>();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "KilnAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "KilnTypes.cpp.inc"
      >();
  getContext()->getOrLoadDialect("arith"); // materialised index constants; by name, so no arith header
}
Operation *kiln::KilnDialect::materializeConstant(OpBuilder &b, Attribute value, Type type, Location loc) {
  Operation *op = unwrap(kilnMaterialize(wrap(b.getContext()), wrap(value), wrap(type), wrap(loc)));
  return op ? b.insert(op) : nullptr;
}
void kiln::KilnDialect::getCanonicalizationPatterns(RewritePatternSet &set) const { kilnPatterns(wrap(getContext()), wrap(&set)); }
LogicalResult kiln::KilnDialect::verifyOperationAttribute(Operation *op, NamedAttribute a) {
  return success(kilnVerifyOpAttr(wrap(op), wrap(a.getName().strref()), wrap(a.getValue())));
}
LogicalResult kiln::KilnDialect::verifyRegionArgAttribute(Operation *op, unsigned region, unsigned argument, NamedAttribute a) {
  Region &r = op->getRegion(region);
  // A function declaration has argument types, but no block arguments.
  auto function = dyn_cast<FunctionOpInterface>(op);
  Type type = function ? function.getArgumentTypes()[argument] : r.empty() ? Type() : r.getArgument(argument).getType();
  return success(kilnVerifyArgAttr(wrap(op), wrap(type), wrap(a.getName().strref()), wrap(a.getValue())));
}
LogicalResult kiln::KilnDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute a) {
  return success(kilnVerifyArgAttr(wrap(op), MlirType{nullptr}, wrap(a.getName().strref()), wrap(a.getValue())));
}
LogicalResult kiln::GetGlobalOp::verifySymbolUses(SymbolTableCollection &tables) {
  return success(kilnVerifySymbolUses(wrap(getOperation()), wrap(tables.lookupNearestSymbolFrom(*this, getGlobalAttr()))));
}
LogicalResult kiln::LaunchOp::verifySymbolUses(SymbolTableCollection &tables) {
  return success(kilnVerifySymbolUses(wrap(getOperation()), wrap(tables.lookupNearestSymbolFrom(*this, getKernelAttr()))));
}
void kiln::GetGlobalOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (getIsMutable()) effects.emplace_back(MemoryEffects::Read::get());
}
void kiln::CustomCallOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (!getEffect()) return;
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}
void kiln::IfOp::getSuccessorRegions(RegionBranchPoint from, SmallVectorImpl<RegionSuccessor> &to) {
  if (!from.isParent()) return (void)to.push_back(RegionSuccessor(getOperation(), getResults()));
  for (Region &r : (*this)->getRegions()) to.push_back(RegionSuccessor(&r));
}

extern "C" {
MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Kiln, kiln);
MlirAttribute kilnLayoutGet(MlirContext c, intptr_t n, const int64_t *strides, int64_t offset, int64_t alignment) {
  return wrap(Attribute(kiln::LayoutAttr::get(unwrap(c), ArrayRef(strides, n), offset, alignment)));
}
bool kilnLayoutRead(MlirAttribute a, void (*strides)(intptr_t, const int64_t *, void *), void *out, int64_t *offset, int64_t *alignment) {
  auto layout = dyn_cast<kiln::LayoutAttr>(unwrap(a));
  if (!layout) return false;
  strides(layout.getStrides().size(), layout.getStrides().data(), out);
  *offset = layout.getOffset();
  *alignment = layout.getAlignment();
  return true;
}
MlirAttribute kilnScheduleGet(MlirStringRef strategy, MlirAttribute parameters) {
  auto dict = cast<DictionaryAttr>(unwrap(parameters));
  return wrap(Attribute(kiln::ScheduleAttr::get(dict.getContext(), unwrap(strategy), dict)));
}
// The context owns the strategy's string.
bool kilnScheduleRead(MlirAttribute a, MlirStringRef *strategy, MlirAttribute *parameters) {
  auto schedule = dyn_cast<kiln::ScheduleAttr>(unwrap(a));
  if (!schedule) return false;
  *strategy = wrap(schedule.getStrategy());
  *parameters = wrap(Attribute(schedule.getParameters()));
  return true;
}
MlirType kilnStageGet(MlirContext c) { return wrap(Type(kiln::StageType::get(unwrap(c)))); }
MlirAttribute kilnFragmentGet(MlirContext c, int64_t layout) {
  return wrap(Attribute(kiln::FragmentAttr::get(unwrap(c), static_cast<kiln::FragmentLayout>(layout))));
}
bool kilnFragmentRead(MlirAttribute a, int64_t *layout) {
  auto fragment = dyn_cast<kiln::FragmentAttr>(unwrap(a));
  if (fragment) *layout = static_cast<int64_t>(fragment.getLayout());
  return bool(fragment);
}
// As mlirModuleCreateParse, with a file name for locations.
MlirModule kilnParseModule(MlirContext c, MlirStringRef source, MlirStringRef file) {
  OwningOpRef<ModuleOp> m = parseSourceString<ModuleOp>(unwrap(source), ParserConfig(unwrap(c)), unwrap(file));
  return wrap(m.release());
}
void kilnPrintOpOnDiagnostic(MlirContext c, bool on) { unwrap(c)->printOpOnDiagnostic(on); }
}
MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(Kiln, kiln, kiln::KilnDialect)
