//! Melior at the boundary: contexts, modules and ops go both ways without being copied or printed.
//!
//! A handle of kiln's is an address without a lifetime, one of melior's borrows from its context.
//! So what goes to melior takes a borrow of the context or lives inside a closure, and what comes
//! from melior is subject to kiln's rule: no handle outlives its context or the op it names.
//!
//! | from | to | owner afterwards |
//! | --- | --- | --- |
//! | `melior::Context` | `Context::from` | kiln's context |
//! | `Context` | `melior::Context::from` | melior's context |
//! | `Context` | [`Context::as_melior`] | kiln's; melior borrows it |
//! | `melior::ir::Module` | `Module::from` | kiln's module |
//! | `Module` | [`Module::into_melior`] | melior's module |
//! | `melior::ir::Operation` | [`Builder::insert_melior`] | the block it is inserted into |
//! | `Op` | [`Op::into_melior`] | melior's operation, out of its block |
//! | `OperationRef`, `Value`, `Type`, `Attribute`, `Location` | `Op::from`, … | as before |
//! | `Op` | [`Op::with_melior`] | as before; melior borrows it inside of the closure |
use super::*;
use ::melior::{
    Context as MeliorContext,
    ir::{
        Attribute, AttributeLike, Location, Module as MeliorModule, Operation, Type as MeliorType,
        TypeLike, Value as MeliorValue, ValueLike, operation::OperationRef,
    },
};
use std::mem::forget;

impl From<MeliorContext> for Context {
    /// Takes the context over: kiln's and upstream's dialects are registered in it, and MLIR's
    /// threading is turned off, since kiln runs one compile job a thread.
    fn from(context: MeliorContext) -> Context {
        let raw = context.to_raw();
        forget(context);
        // SAFETY: the context is alive, and nothing else owns it any more.
        unsafe { Context::adopt(raw) }
    }
}

impl From<Context> for MeliorContext {
    fn from(context: Context) -> MeliorContext {
        let raw = context.ctx().raw();
        forget(context);
        // SAFETY: melior's context is the C API's handle and nothing else, which `transmute` checks
        // by size; it has no constructor that takes one.
        unsafe { std::mem::transmute::<MlirContext, MeliorContext>(raw) }
    }
}

impl Context {
    /// The context as melior's, borrowed.
    pub fn as_melior(&self) -> &MeliorContext {
        const { assert!(size_of::<MeliorContext>() == size_of::<MlirContext>()) };
        // SAFETY: as above; a borrow drops nothing.
        unsafe { &*(self.raw_ref() as *const MlirContext).cast() }
    }
}

impl From<MeliorModule<'_>> for Module {
    /// Takes the module over. Its context has kiln's dialects (`Context::from`, or one that kiln
    /// made) and outlives it.
    fn from(module: MeliorModule<'_>) -> Module {
        let raw = module.to_raw();
        forget(module);
        // SAFETY: the module is alive, and nothing else owns it any more.
        unsafe { Module::adopt(raw) }
    }
}

impl Module {
    /// Gives the module to melior. `context` is the one that it lives in.
    pub fn into_melior(self, _context: &Context) -> MeliorModule<'_> {
        let raw = self.raw();
        forget(self);
        // SAFETY: the module is alive, and nothing else owns it any more.
        unsafe { MeliorModule::from_raw(raw) }
    }
    /// Lends the module's op to melior.
    pub fn with_melior<R>(&self, read: impl for<'c, 'a> FnOnce(OperationRef<'c, 'a>) -> R) -> R {
        self.op().with_melior(read)
    }
}

impl From<OperationRef<'_, '_>> for Op {
    fn from(op: OperationRef<'_, '_>) -> Op {
        Op::of(op.to_raw())
    }
}

impl Op {
    /// Lends the op to melior, whose handles are good inside of the closure.
    pub fn with_melior<R>(self, read: impl for<'c, 'a> FnOnce(OperationRef<'c, 'a>) -> R) -> R {
        // SAFETY: the op is alive; the closure cannot let its handles out.
        read(unsafe { OperationRef::from_raw(self.raw()) })
    }
    /// Takes the op out of its block and gives it to melior. `context` is the one that it lives in.
    pub fn into_melior(self, _context: &Context) -> Operation<'_> {
        let raw = self.raw();
        unsafe {
            mlirOperationRemoveFromParent(raw);
            Operation::from_raw(raw)
        }
    }
}

impl Builder {
    /// Inserts an op that melior has built; the block owns it.
    pub fn insert_melior(&self, op: Operation<'_>) -> Op {
        let op = Op::of(op.into_raw());
        self.insert(op);
        op
    }
}

impl From<MeliorValue<'_, '_>> for Value {
    fn from(value: MeliorValue<'_, '_>) -> Value {
        Value::of(value.to_raw())
    }
}
impl Value {
    /// The value as melior's.
    pub fn to_melior<'c>(self, _context: &'c Context) -> MeliorValue<'c, 'c> {
        unsafe { MeliorValue::from_raw(self.raw()) }
    }
}

impl From<MeliorType<'_>> for Type {
    fn from(ty: MeliorType<'_>) -> Type {
        Type(ty.to_raw())
    }
}
impl Type {
    /// The type as melior's.
    pub fn to_melior(self, _context: &Context) -> MeliorType<'_> {
        unsafe { MeliorType::from_raw(self.0) }
    }
}

impl From<Attribute<'_>> for Attr {
    fn from(attribute: Attribute<'_>) -> Attr {
        Attr(attribute.to_raw())
    }
}
impl Attr {
    /// The attribute as melior's.
    pub fn to_melior(self, _context: &Context) -> Attribute<'_> {
        unsafe { Attribute::from_raw(self.0) }
    }
}

impl From<Location<'_>> for Loc {
    fn from(location: Location<'_>) -> Loc {
        Loc(location.to_raw())
    }
}
impl Loc {
    /// The location as melior's.
    pub fn to_melior(self, _context: &Context) -> Location<'_> {
        unsafe { Location::from_raw(self.0) }
    }
}
