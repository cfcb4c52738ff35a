//! Ops, values, blocks and regions.
use super::*;
use crate::ops::OpKind;
use std::cell::Cell;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(transparent)]
        pub struct $name(pub(crate) *mut std::ffi::c_void);
        impl $name {
            pub(crate) fn raw(self) -> $raw {
                // SAFETY: the C structs hold one pointer, constant or not.
                unsafe { std::mem::transmute(self.0) }
            }
            #[allow(dead_code)]
            pub(crate) fn some(raw: $raw) -> Option<$name> {
                let p: *mut std::ffi::c_void = unsafe { std::mem::transmute(raw) };
                (!p.is_null()).then_some($name(p))
            }
            pub(crate) fn of(raw: $raw) -> $name {
                $name(unsafe { std::mem::transmute::<$raw, *mut std::ffi::c_void>(raw) })
            }
        }
    };
}
/// An op.
///
/// A handle is good until the op is erased. Debug builds check that on every use and panic; in
/// release builds the use of an older handle is undefined behaviour.
#[derive(Clone, Copy)]
pub struct Op {
    address: *mut c_void,
    #[cfg(debug_assertions)]
    generation: u32,
}

impl Op {
    pub(crate) fn raw(self) -> MlirOperation {
        #[cfg(debug_assertions)]
        generation::check(self.address(), self.generation);
        MlirOperation { ptr: self.address }
    }
    pub(crate) fn some(raw: MlirOperation) -> Option<Op> {
        (!raw.ptr.is_null()).then(|| Op::of(raw))
    }
    pub(crate) fn of(raw: MlirOperation) -> Op {
        Op {
            address: raw.ptr,
            #[cfg(debug_assertions)]
            generation: generation::current(raw.ptr.addr()),
        }
    }
    /// Where it lies.
    #[cfg(debug_assertions)]
    pub(super) fn address(self) -> usize {
        self.address.addr()
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.address == other.address
    }
}
impl Eq for Op {}
impl std::hash::Hash for Op {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.address.hash(state)
    }
}
impl PartialOrd for Op {
    fn partial_cmp(&self, other: &Op) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Op {
    fn cmp(&self, other: &Op) -> std::cmp::Ordering {
        self.address.cmp(&other.address)
    }
}
impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Op").field(&self.address).finish()
    }
}

handle!(
    /// A result or a block argument.
    Value, MlirValue
);
handle!(
    /// A block.
    Block, MlirBlock
);
handle!(
    /// A region.
    Region, MlirRegion
);

/// Entries of the op-kind cache.
const KINDS_KEPT: usize = 256;
thread_local! {
    /// Op kinds by the address of their name: kinds are queried constantly, and a search takes
    /// eight comparisons.
    static KINDS: [Cell<Option<OpKind>>; KINDS_KEPT] = const { [const { Cell::new(None) }; KINDS_KEPT] };
}

impl Op {
    /// The context.
    pub fn ctx(self) -> Ctx {
        Ctx(unsafe { mlirOperationGetContext(self.raw()) }.ptr)
    }
    /// The full name, such as `func.func`.
    pub fn name(self) -> String {
        unsafe { text(mlirIdentifierStr(mlirOperationGetName(self.raw()))) }
    }
    /// Whether the op has this full name; cheaper than comparing [`Op::name`].
    pub fn is(self, name: &str) -> bool {
        unsafe { bytes(mlirIdentifierStr(mlirOperationGetName(self.raw()))) == name.as_bytes() }
    }
    /// The kind, if the op is of the `kiln` dialect.
    pub fn kind(self) -> Option<OpKind> {
        let name = std::str::from_utf8(unsafe {
            bytes(mlirIdentifierStr(mlirOperationGetName(self.raw())))
        })
        .ok()?;
        let short = name.strip_prefix("kiln.")?;
        // Ops of one name share its address, which another context may reuse for another name.
        KINDS.with(|kinds| {
            let place = &kinds[name.as_ptr().addr() / 16 % KINDS_KEPT];
            if let Some(kind) = place.get().filter(|k| k.mnemonic() == short) {
                return Some(kind);
            }
            place.set(OpKind::from_name(name));
            place.get()
        })
    }
    /// The location.
    pub fn loc(self) -> Loc {
        Loc(unsafe { mlirOperationGetLocation(self.raw()) })
    }
    /// Sets the location.
    pub fn set_loc(self, loc: Loc) {
        unsafe { mlirOperationSetLocation(self.raw(), loc.0) }
    }
    /// The number of operands.
    pub fn operand_count(self) -> usize {
        unsafe { mlirOperationGetNumOperands(self.raw()) as usize }
    }
    /// Operand `i`; `i` is below [`Op::operand_count`].
    pub fn operand(self, i: usize) -> Value {
        debug_assert!(i < self.operand_count());
        Value::of(unsafe { mlirOperationGetOperand(self.raw(), i as isize) })
    }
    /// All operands.
    pub fn operands(self) -> Vec<Value> {
        (0..self.operand_count()).map(|i| self.operand(i)).collect()
    }
    /// Replaces one operand.
    pub fn set_operand(self, i: usize, v: Value) {
        unsafe { mlirOperationSetOperand(self.raw(), i as isize, v.raw()) }
    }
    /// The number of results.
    pub fn result_count(self) -> usize {
        unsafe { mlirOperationGetNumResults(self.raw()) as usize }
    }
    /// Result `i`; `i` is below [`Op::result_count`].
    pub fn result(self, i: usize) -> Value {
        debug_assert!(i < self.result_count());
        Value::of(unsafe { mlirOperationGetResult(self.raw(), i as isize) })
    }
    /// All results.
    pub fn results(self) -> Vec<Value> {
        (0..self.result_count()).map(|i| self.result(i)).collect()
    }
    /// All regions.
    pub fn regions(self) -> Vec<Region> {
        unsafe {
            (0..mlirOperationGetNumRegions(self.raw()))
                .map(|i| Region::of(mlirOperationGetRegion(self.raw(), i)))
                .collect()
        }
    }
    /// An inherent or discardable attribute.
    pub fn attr(self, name: &str) -> Option<Attr> {
        Attr::some(unsafe { mlirOperationGetAttributeByName(self.raw(), sref(name)) })
    }
    /// Sets an attribute.
    pub fn set_attr(self, name: &str, a: Attr) {
        unsafe { mlirOperationSetAttributeByName(self.raw(), sref(name), a.0) }
    }
    /// Removes an attribute.
    pub fn remove_attr(self, name: &str) {
        unsafe { mlirOperationRemoveAttributeByName(self.raw(), sref(name)) };
    }
    /// All attributes, inherent ones included.
    pub fn attrs(self) -> Vec<(String, Attr)> {
        unsafe {
            let entry = |i| {
                let named = mlirOperationGetAttribute(self.raw(), i);
                (text(mlirIdentifierStr(named.name)), Attr(named.attribute))
            };
            (0..mlirOperationGetNumAttributes(self.raw())).map(entry).collect()
        }
    }
    /// The symbol name, for functions, modules and globals.
    pub fn symbol(self) -> Option<String> {
        self.attr("sym_name")?.as_string()
    }
    /// The parent op.
    pub fn parent(self) -> Option<Op> {
        Op::some(unsafe { mlirOperationGetParentOperation(self.raw()) })
    }
    /// The parent block.
    pub fn block(self) -> Option<Block> {
        Block::some(unsafe { mlirOperationGetBlock(self.raw()) })
    }
    /// The next op in its block.
    pub fn next(self) -> Option<Op> {
        Op::some(unsafe { mlirOperationGetNextInBlock(self.raw()) })
    }
    /// A copy of the op and its regions, in no block; its operands are the same values.
    pub fn copy(self) -> Result<Op> {
        Op::some(unsafe { mlirOperationClone(self.raw()) })
            .ok_or_else(|| Error::internal(format!("MLIR refused to copy a {}", self.name())))
    }
    /// Moves the op behind another one, into its block.
    pub fn move_after(self, other: Op) {
        unsafe { mlirOperationMoveAfter(self.raw(), other.raw()) }
    }
    /// Removes the op from its block and frees it, with everything inside of it. Its results must have no
    /// uses. No handle of it or of an op inside may be used any more: debug builds panic.
    #[track_caller]
    pub fn erase(self) {
        let raw = self.raw();
        #[cfg(debug_assertions)]
        generation::erase(self);
        unsafe {
            mlirOperationRemoveFromParent(raw);
            mlirOperationDestroy(raw)
        }
    }
    /// Translates a module of the llvm (and omp) dialect to an `LLVMModuleRef` that the caller
    /// owns; `None` with diagnostics on failure.
    ///
    /// # Safety
    /// `llvm_context` is a live `LLVMContextRef` that no other thread uses meanwhile.
    pub unsafe fn translate_to_llvm(
        self,
        llvm_context: *mut c_void,
    ) -> Option<std::ptr::NonNull<c_void>> {
        unsafe {
            // Once per context would do; it is cheap next to a translation, and most contexts never
            // translate.
            mlirRegisterAllLLVMTranslations(self.ctx().raw());
            std::ptr::NonNull::new(
                mlirTranslateModuleToLLVMIR(self.raw(), llvm_context.cast()).cast(),
            )
        }
    }
    /// Runs MLIR's verifier, which emits diagnostics.
    pub fn verify(self) -> bool {
        unsafe { mlirOperationVerify(self.raw()) }
    }
    /// Emits an error at the op, in upstream's form `'kiln.add' op message`.
    pub fn error(self, message: &str) {
        self.emit_error(&format!("'{}' op {message}", self.name()));
    }
    /// Emits a remark at the op's location: what a pass did, or why it did not.
    pub fn emit_remark(self, message: &str) {
        unsafe { crate::ffi::kilnEmitRemark(self.loc().0, sref(message)) }
    }
    /// Emits an error at the op's location.
    pub fn emit_error(self, message: &str) {
        self.loc().emit_error(message)
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(|cb, d| unsafe { mlirOperationPrint(self.raw(), cb, d) }))
    }
}

impl Value {
    /// The type.
    pub fn ty(self) -> Type {
        Type(unsafe { mlirValueGetType(self.raw()) })
    }
    /// Changes the type in place; users must accept it.
    pub fn set_ty(self, t: Type) {
        unsafe { mlirValueSetType(self.raw(), t.0) }
    }
    /// The context.
    pub fn ctx(self) -> Ctx {
        Ctx(unsafe { mlirValueGetContext(self.raw()) }.ptr)
    }
    /// The defining op; `None` for block arguments.
    pub fn def(self) -> Option<Op> {
        unsafe {
            if mlirValueIsAOpResult(self.raw()) {
                Op::some(mlirOpResultGetOwner(self.raw()))
            } else {
                None
            }
        }
    }
    /// The block and index of a block argument; `None` for results.
    pub fn block_arg(self) -> Option<(Block, usize)> {
        unsafe {
            if !mlirValueIsABlockArgument(self.raw()) {
                return None;
            }
            Some((
                Block::of(mlirBlockArgumentGetOwner(self.raw())),
                mlirBlockArgumentGetArgNumber(self.raw()) as usize,
            ))
        }
    }
    /// Users with operand numbers.
    pub fn uses(self) -> Vec<(Op, usize)> {
        let mut all = vec![];
        unsafe {
            let mut u = mlirValueGetFirstUse(self.raw());
            while !mlirOpOperandIsNull(u) {
                all.push((
                    Op::of(mlirOpOperandGetOwner(u)),
                    mlirOpOperandGetOperandNumber(u) as usize,
                ));
                u = mlirOpOperandGetNextUse(u);
            }
        }
        all
    }
    /// Replaces all uses.
    pub fn replace_uses(self, other: Value) {
        unsafe { mlirValueReplaceAllUsesOfWith(self.raw(), other.raw()) }
    }
    /// As [`Value::replace_uses`], except in the users `except`.
    pub fn replace_uses_except(self, other: Value, except: &[Op]) {
        let mut raw: Vec<_> = except.iter().map(|o| o.raw()).collect();
        unsafe {
            mlirValueReplaceAllUsesExcept(
                self.raw(),
                other.raw(),
                raw.len() as isize,
                raw.as_mut_ptr(),
            )
        }
    }
    /// Sets the location of a block argument; a named location also names it. Results use their
    /// op's.
    pub fn set_arg_loc(self, loc: Loc) {
        if self.block_arg().is_some() {
            unsafe { mlirBlockArgumentSetLocation(self.raw(), loc.0) }
        }
    }
    /// The location of the defining op, or of a block argument.
    pub fn loc(self) -> Loc {
        Loc(unsafe { mlirValueGetLocation(self.raw()) })
    }
}

impl Block {
    /// Its ops in order.
    pub fn ops(self) -> Vec<Op> {
        let mut all = vec![];
        let mut next = Op::some(unsafe { mlirBlockGetFirstOperation(self.raw()) });
        while let Some(op) = next {
            all.push(op);
            next = op.next();
        }
        all
    }
    /// Its first op.
    pub fn first(self) -> Option<Op> {
        Op::some(unsafe { mlirBlockGetFirstOperation(self.raw()) })
    }
    /// Its arguments.
    pub fn args(self) -> Vec<Value> {
        unsafe {
            (0..mlirBlockGetNumArguments(self.raw()))
                .map(|i| Value::of(mlirBlockGetArgument(self.raw(), i)))
                .collect()
        }
    }
    /// Appends an argument.
    pub fn add_arg(self, ty: Type, loc: Loc) -> Value {
        unsafe { Value::of(mlirBlockAddArgument(self.raw(), ty.0, loc.0)) }
    }
    /// Erases an argument without uses.
    pub fn erase_arg(self, i: usize) {
        unsafe { mlirBlockEraseArgument(self.raw(), i as u32) }
    }
    /// Appends the ops of another block, whose arguments become `args`, with their locations.
    pub fn take_body(self, from: Block, args: &[Value]) {
        for (old, new) in from.args().into_iter().zip(args) {
            new.set_arg_loc(old.loc());
            old.replace_uses(*new);
        }
        for op in from.ops() {
            unsafe {
                mlirOperationRemoveFromParent(op.raw());
                mlirBlockAppendOwnedOperation(self.raw(), op.raw());
            }
        }
    }
    /// Its last op if that is a terminator.
    pub fn terminator(self) -> Option<Op> {
        Op::some(unsafe { mlirBlockGetTerminator(self.raw()) })
    }
    /// The parent op.
    pub fn parent(self) -> Option<Op> {
        Op::some(unsafe { mlirBlockGetParentOperation(self.raw()) })
    }
    pub(crate) fn next(self) -> Option<Block> {
        Block::some(unsafe { mlirBlockGetNextInRegion(self.raw()) })
    }
}

impl Region {
    /// Its first block.
    pub fn first(self) -> Option<Block> {
        Block::some(unsafe { mlirRegionGetFirstBlock(self.raw()) })
    }
    /// Whether it has no block.
    pub fn is_empty(self) -> bool {
        self.first().is_none()
    }
}
