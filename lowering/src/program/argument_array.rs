//! Accesses to a host function's argument array: pointers and sizes, loaded at their first use.
use crate::{
    analysis::sizes::arith_op,
    program::slots::{Slots, dim_name},
};
use kiln_dialects::{
    error::Kind,
    ir::*,
    ops::{self, Arena, GetGlobal, Launch, OpKind, Output, SymExpr},
};
use kiln_runtime::profile;
use std::collections::HashMap;

/// Emits loads and arithmetic at one insertion point, each on first use.
pub struct ArgumentArray<'a> {
    slots: &'a Slots,
    /// Arguments of the original host function.
    inputs: &'a [Value],
    /// The insertion point.
    pub b: Builder,
    args: Value,
    /// The type `!llvm.ptr`.
    pub ptr: Type,
    /// The type `i64`.
    pub word: Type,
    profile: Option<Value>,
    pointers: HashMap<Value, Value>,
    numbers: HashMap<Value, Value>,
}

impl<'a> ArgumentArray<'a> {
    /// Accesses `args`, the argument array, for a host function whose original arguments are
    /// `inputs`.
    pub fn new(
        slots: &'a Slots,
        inputs: &'a [Value],
        b: Builder,
        args: Value,
    ) -> Result<ArgumentArray<'a>> {
        let (ptr, word) = (Type::llvm_ptr(b.ctx, 0), Type::integer(b.ctx, 64));
        Ok(ArgumentArray {
            slots,
            inputs,
            b,
            args,
            ptr,
            word,
            profile: None,
            pointers: HashMap::new(),
            numbers: HashMap::new(),
        })
    }

    /// Records in the call's profile, if it has one, that `n` launches have completed.
    pub fn launches_over(&mut self, n: i64, tid: Value) -> Result<()> {
        let profile = match self.profile {
            Some(loaded) => loaded,
            None => self.load(Slots::PROFILE, self.ptr)?,
        };
        self.profile = Some(profile);
        let n = self.constant(n, self.word)?;
        func::call(self.b, profile::SYMBOL, &[profile, n, tid], &[]).map(drop)
    }
    /// Emits an integer constant.
    pub fn constant(&self, n: i64, ty: Type) -> Result<Value> {
        arith::constant(self.b, Attr::integer(ty, n)?)
    }
    /// Emits a pointer plus an offset, counted in elements of this many bits.
    pub fn offset(
        &self,
        base: Value,
        constant: Option<usize>,
        dynamic: Option<Value>,
        bits: u32,
    ) -> Result<Value> {
        let element = Type::integer(self.b.ctx, bits);
        let index = constant.map_or(i32::MIN, |n| n as i32);
        llvm::getelementptr(self.b, base, dynamic.as_slice(), &[index], element, self.ptr)
    }
    /// Loads the word in a slot of the argument array.
    fn load(&self, slot: usize, ty: Type) -> Result<Value> {
        let place = self.offset(self.args, Some(slot), None, 64)?;
        llvm::load(self.b, place, ty)
    }

    /// The pointer to a tensor of the host function.
    pub fn pointer(&mut self, v: Value) -> Result<Value> {
        if let Some(p) = self.pointers.get(&v) {
            return Ok(*p);
        }
        let made = match v.def() {
            None => {
                let i = self
                    .inputs
                    .iter()
                    .position(|a| *a == v)
                    .ok_or("reads a value without a definition")?;
                self.load(self.slots.input(i), self.ptr)?
            }
            Some(op) => match op.kind() {
                Some(OpKind::Reshape) => self.pointer(op.operand(0))?,
                Some(OpKind::Launch) => {
                    let launch = Launch::of(op).ok_or_malformed(op)?;
                    let i = op
                        .results()
                        .iter()
                        .position(|r| *r == v)
                        .ok_or("is no result of its launch")?;
                    self.pointer(launch.outs[i])?
                }
                Some(OpKind::GetGlobal) => {
                    let global = GetGlobal::of(op).ok_or_malformed(op)?.global;
                    self.load(
                        self.slots.global(&global).ok_or("reads a global without a slot")?,
                        self.ptr,
                    )?
                }
                Some(OpKind::Output) => {
                    let index = Output::of(op).ok_or_malformed(op)?.index;
                    self.load(self.slots.output(index as usize), self.ptr)?
                }
                Some(OpKind::Arena) => {
                    let arena = self.load(Slots::ARENA, self.ptr)?;
                    let offset = self.number(Arena::of(op).ok_or_malformed(op)?.offset)?;
                    self.offset(arena, None, Some(offset), 8)?
                }
                _ => return Err(format!("has memory made by {}", op.name()).into()),
            },
        };
        self.pointers.insert(v, made);
        Ok(made)
    }

    /// A size as an i64 value.
    pub fn number(&mut self, v: Value) -> Result<Value> {
        if let Some(n) = self.numbers.get(&v) {
            return Ok(*n);
        }
        let op = v.def().ok_or("takes a size as an argument")?;
        let slot = |name: &str| {
            self.slots
                .symbol(name)
                .ok_or_else(|| format!("has symbol @{name}, which no argument binds"))
        };
        let made = if let Some(sym) = ops::Sym::of(op) {
            self.load(slot(&sym.name)?, self.word)?
        } else if let Some(d) = ops::Dim::of(op) {
            let input = self
                .inputs
                .iter()
                .position(|a| *a == d.input)
                .ok_or("takes the size of a value that is no argument")?;
            self.load(slot(&dim_name(input, d.axis as usize))?, self.word)?
        } else if let Some(e) = SymExpr::of(op) {
            let (x, y) = (self.number(e.lhs)?, self.number(e.rhs)?);
            let op = arith_op(e.kind).ok_or_else(|| {
                let why = "has a size that is a power of symbols, which has no compiled form yet";
                Error::new(Kind::Unsupported, why)
            })?;
            op(self.b, x, y)?
        } else if op.isa::<arith::Constant>() {
            self.constant(
                op.attr("value").and_then(Attr::as_i64).ok_or("has no integer")?,
                self.word,
            )?
        } else {
            return Err(format!("has a size made by {}", op.name()).into());
        };
        self.numbers.insert(v, made);
        Ok(made)
    }
}
