// Rust passes as MLIR passes, and pass instrumentation.
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Pass.h"
#include "mlir/CAPI/Support.h"
#include "mlir/IR/Action.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringSet.h"
using namespace mlir;

typedef void (*KilnText)(MlirStringRef, void *);
extern "C" {
struct KilnOption { MlirStringRef name, help, init; };
struct KilnPassTable {
  MlirStringRef name, argument, description, anchor; // anchor "" = any op
  intptr_t nDialects; const MlirStringRef *dialects;
  intptr_t nOptions; const KilnOption *options;
  void *(*create)(const KilnPassTable *);
  void *(*clone)(void *);
  void (*destroy)(void *);
  // Values in the order of `options`; on false, the reason has been sent to `error`.
  bool (*configure)(void *, const MlirStringRef *values, KilnText error, void *);
  bool (*run)(void *, MlirOperation);
};
struct KilnEvents { // each callback may be null; `argument` is "" for the pass manager's own adaptors
  void *data;
  bool (*enter)(void *, MlirStringRef argument, MlirOperation); // false: skip this pass
  void (*leave)(void *, MlirStringRef argument, MlirOperation);
  void (*done)(void *, MlirStringRef argument, MlirOperation, bool ok); // after verification; ok is known
};
}
namespace {
StringRef text(MlirStringRef s) { return unwrap(s); }
class RustPass final : public Pass {
public:
  RustPass(const KilnPassTable *t, void *object)
      : Pass(TypeID::getFromOpaquePointer(t), t->anchor.length ? std::optional(text(t->anchor)) : std::nullopt), table(t), object(object) {
    for (const KilnOption &o : ArrayRef(t->options, t->nOptions))
      options.push_back(std::make_unique<Option<std::string>>(*this, text(o.name), llvm::cl::desc(text(o.help)),
                                                              llvm::cl::init(text(o.init).str())));
  }
  ~RustPass() override { table->destroy(object); }
  StringRef getName() const override { return text(table->name); }
  StringRef getArgument() const override { return text(table->argument); }
  StringRef getDescription() const override { return text(table->description); }
  void getDependentDialects(DialectRegistry &r) const override {
    for (const MlirStringRef &d : ArrayRef(table->dialects, table->nDialects)) // loaded by name from what the context registers
      r.addExtension(TypeID::getFromOpaquePointer(&d), std::make_unique<LoadByName>(text(d)));
  }
  bool canScheduleOn(RegisteredOperationName op) const override { return !getOpName() || op.getStringRef() == *getOpName(); }
  std::unique_ptr<Pass> clonePass() const override { return std::make_unique<RustPass>(table, table->clone(object)); }
  LogicalResult initializeOptions(StringRef s, function_ref<LogicalResult(const Twine &)> onError) override {
    if (failed(Pass::initializeOptions(s, onError))) return failure(); // upstream's grammar and its unknown-option error
    SmallVector<MlirStringRef> values;
    for (auto &o : options) values.push_back(wrap(StringRef(o->getValue())));
    std::string error;
    if (table->configure(object, values.data(), [](MlirStringRef m, void *e) { *static_cast<std::string *>(e) += text(m); }, &error))
      return success();
    return onError(getArgument() + ": " + error);
  }
  void runOnOperation() override {
    if (!table->run(object, wrap(getOperation()))) signalPassFailure();
  }

private:
  struct LoadByName final : DialectExtensionBase {
    LoadByName(StringRef d) : DialectExtensionBase({"builtin"}), dialect(d.str()) {}
    void apply(MLIRContext *c, MutableArrayRef<Dialect *>) const override { c->getOrLoadDialect(dialect); }
    std::unique_ptr<DialectExtensionBase> clone() const override { return std::make_unique<LoadByName>(dialect); }
    std::string dialect;
  };
  const KilnPassTable *table;
  void *object;
  std::vector<std::unique_ptr<Option<std::string>>> options;
};
struct Watch final : PassInstrumentation {
  Watch(KilnEvents e) : e(e) {}
  void runAfterPass(Pass *p, Operation *op) override { e.done(e.data, wrap(p->getArgument()), wrap(op), true); }
  void runAfterPassFailed(Pass *p, Operation *op) override { e.done(e.data, wrap(p->getArgument()), wrap(op), false); }
  KilnEvents e;
};
struct Peek : Pass { // exposes a protected member
  static bool fits(const Pass &p, RegisteredOperationName op) {
    return (p.*static_cast<bool (Pass::*)(RegisteredOperationName) const>(&Peek::canScheduleOn))(op);
  }
};
} // namespace

extern "C" {
void kilnRegisterPass(const KilnPassTable *t) { // the table must be static; once per pass, from one thread
  registerPass([t] { return std::make_unique<RustPass>(t, t->create(t)); });
}
// Upstream's C API emits errors only.
void kilnEmitRemark(MlirLocation at, MlirStringRef message) { emitRemark(unwrap(at)) << unwrap(message); }
bool kilnPassIsRegistered(MlirStringRef argument) { return PassInfo::lookup(text(argument)) != nullptr; }
// The anchor to nest a pass on when the pipeline names none: "" for a module.
MlirStringRef kilnPassNest(MlirContext c, MlirStringRef argument) {
  const PassInfo *info = PassInfo::lookup(text(argument));
  OpPassManager any;
  if (!info || failed(info->addToPipeline(any, "", [](const Twine &) { return failure(); })) || any.empty()) return wrap(StringRef());
  if (Peek::fits(*any.begin(), *RegisteredOperationName::lookup("builtin.module", unwrap(c)))) return wrap(StringRef());
  static thread_local llvm::StringSet<> names; // keeps op names alive
  return wrap(names.insert(any.begin()->getOpName().value_or("func.func")).first->getKey());
}
bool kilnPipelineIsRegistered(MlirStringRef argument) { return PassPipelineInfo::lookup(text(argument)) != nullptr; }
// One instrumentation per context; null `enter` removes it.
void kilnSetActionHandler(MlirContext c, KilnEvents e) {
  if (!e.enter) return unwrap(c)->registerActionHandler(nullptr);
  unwrap(c)->registerActionHandler([e](function_ref<void()> run, const tracing::Action &a) {
    auto *pass = dyn_cast<PassExecutionAction>(&a);
    if (!pass) return run();
    MlirStringRef argument = wrap(pass->getPass().getArgument());
    if (!e.enter(e.data, argument, wrap(pass->getOp()))) return;
    run();
    if (e.leave) e.leave(e.data, argument, wrap(pass->getOp()));
  });
}
void kilnDialectNames(MlirContext c, KilnText take, void *out) { // every registered dialect
  for (StringRef name : unwrap(c)->getAvailableDialects()) take(wrap(name), out);
}
void kilnWatchPasses(MlirPassManager pm, KilnEvents e) { unwrap(pm)->addInstrumentation(std::make_unique<Watch>(e)); }
}
