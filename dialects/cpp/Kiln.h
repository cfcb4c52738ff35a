// Trampolines to Rust, which holds all logic. The Rust functions declared here catch panics.
#ifndef KILN_H
#define KILN_H
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir-c/Rewrite.h"
#include "mlir/CAPI/IR.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

typedef void (*KilnText)(MlirStringRef, void *);
typedef void (*KilnTypes)(intptr_t, MlirType *, void *);
extern "C" {
bool kilnVerify(MlirOperation);
bool kilnVerifyRegions(MlirOperation);
bool kilnVerifySymbolUses(MlirOperation, MlirOperation symbolOrNull);
bool kilnVerifyOpAttr(MlirOperation, MlirStringRef name, MlirAttribute);
// A function argument's or result's dialect attribute; `type` is that argument's type.
bool kilnVerifyArgAttr(MlirOperation, MlirType type, MlirStringRef name, MlirAttribute);
// Sets one attribute or one value; false: no fold.
bool kilnFold(MlirOperation, intptr_t n, const MlirAttribute *constants, MlirAttribute *, MlirValue *);
bool kilnInfer(MlirStringRef op, MlirContext, MlirLocation, intptr_t n, const MlirValue *, MlirAttribute dict, intptr_t nRegions,
               const MlirRegion *, KilnTypes append, void *);
MlirOperation kilnMaterialize(MlirContext, MlirAttribute, MlirType, MlirLocation); // a detached op, or null
void kilnPatterns(MlirContext, MlirRewritePatternSet);
}

namespace kiln {
struct FactResource : mlir::SideEffects::Resource::Base<FactResource> {
  llvm::StringRef getName() final { return "kiln.facts"; }
};
inline llvm::LogicalResult verify(mlir::Operation *op) { return llvm::success(kilnVerify(wrap(op))); }
inline llvm::LogicalResult verifyRegions(mlir::Operation *op) { return llvm::success(kilnVerifyRegions(wrap(op))); }
mlir::OpFoldResult fold(mlir::Operation *op, llvm::ArrayRef<mlir::Attribute> constants);
llvm::LogicalResult inferTypes(llvm::StringRef name, mlir::MLIRContext *, std::optional<mlir::Location>, mlir::ValueRange,
                               mlir::DictionaryAttr, mlir::RegionRange, llvm::SmallVectorImpl<mlir::Type> &out);
// Inherent attributes arrive as properties; Rust gets one dictionary.
template <typename OpT>
llvm::LogicalResult infer(mlir::MLIRContext *c, std::optional<mlir::Location> l, mlir::ValueRange v, mlir::DictionaryAttr d,
                          mlir::OpaqueProperties p, mlir::RegionRange r, llvm::SmallVectorImpl<mlir::Type> &out) {
  mlir::NamedAttrList attrs(d);
  if constexpr (!std::is_same_v<typename OpT::Properties, mlir::EmptyProperties>)
    if (p)
      if (auto dict = llvm::dyn_cast_or_null<mlir::DictionaryAttr>(OpT::getPropertiesAsAttr(c, *p.as<typename OpT::Properties *>())))
        for (mlir::NamedAttribute a : dict) attrs.set(a.getName(), a.getValue());
  return inferTypes(OpT::getOperationName(), c, l, v, attrs.getDictionary(c), r, out);
}
} // namespace kiln

#include "KilnDialect.h.inc"
#include "KilnEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "KilnAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "KilnTypes.h.inc"
#define GET_OP_CLASSES
#include "KilnOps.h.inc"
#endif
