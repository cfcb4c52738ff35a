//! The ops of a role one after another, with the control flow around them. A role that waits keeps
//! its place, so that the other one may run.
use super::{
    elements::Elements,
    state::{Activation, Owner, Unit, Val, block},
    upstream::bools,
};
use crate::{
    error::{OptionExt, Result, ResultExt},
    ir::{Block, Op, Value, scf},
    ops::OpKind,
};
use std::rc::Rc;

/// Most iterations of a loop: no kernel has more, but one whose bound is a negative number.
const ITERATIONS: i64 = 1 << 24;

/// Checks the bounds and the step of a loop.
fn bounded(bounds: &[i64]) -> Result<()> {
    let [from, to, step] = bounds else { return Err("has no bounds".into()) };
    if *step <= 0 {
        return Err(format!("has step {step}").into());
    }
    match to.saturating_sub(*from) / step <= ITERATIONS {
        true => Ok(()),
        false => Err(format!("runs from {from} to {to}, more often than any kernel's loop").into()),
    }
}

impl Unit<'_> {
    /// Runs until the role ends or waits; returns whether any op ran.
    pub(super) fn run(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some(top) = self.role.stack.last() {
            let next = top.ops.get(top.next).copied();
            let op = next.ok_or("has a block without a terminator")?;
            let owner = top.owner;
            match op.kind() == Some(OpKind::Yield) || op.isa::<scf::Yield>() {
                true => self.end(op, owner).at(op)?,
                false => {
                    if let Err(what) = self.start(op).at(op)? {
                        self.role.waits = Some((op, what));
                        return Ok(any);
                    }
                }
            }
            (any, self.role.waits) = (true, None);
        }
        Ok(any)
    }
    /// Goes on behind the op that is under way.
    pub(super) fn advance(&mut self) {
        if let Some(top) = self.role.stack.last_mut() {
            top.next += 1;
        }
    }
    fn set(&mut self, values: &[Value], made: Vec<Val>) -> Result<()> {
        if values.len() != made.len() {
            return Err(format!("has {} values where {} are made", values.len(), made.len()).into());
        }
        self.role.values.extend(values.iter().copied().zip(made));
        Ok(())
    }
    fn vals(&self, all: &[Value]) -> Result<Vec<Val>> {
        all.iter().map(|v| self.get(*v)).collect()
    }

    /// Runs an op, or enters its region. Err within: what it waits for.
    fn start(&mut self, op: Op) -> Result<std::result::Result<(), String>> {
        if op.isa::<scf::For>() {
            let operands = op.operands();
            let (bounds, inits) = operands.split_at_checked(3).ok_or_malformed(op)?;
            let bounds = self.numbers(bounds)?;
            let inits = self.vals(inits)?;
            bounded(&bounds)?;
            self.iterate(op, [bounds[0], bounds[1], bounds[2]], inits)?;
            return Ok(Ok(()));
        }
        if op.isa::<scf::If>() {
            let taken = usize::from(self.number(op.operand(0))? == 0);
            let region = op.regions().get(taken).copied().and_then(|r| r.first());
            match region {
                Some(block) => self.role.stack.push(Activation::of(block, Owner::If(op))),
                None => self.advance(),
            }
            return Ok(Ok(()));
        }
        let made = match op.kind() {
            Some(kind) => match self.tile_op(op, kind)? {
                Ok(made) => made,
                Err(what) => return Ok(Err(what)),
            },
            None => self.upstream(op)?,
        };
        self.set(&op.results(), made)?;
        self.advance();
        Ok(Ok(()))
    }
    /// Enters the body of a loop, or ends it.
    fn iterate(&mut self, op: Op, [i, end, step]: [i64; 3], carried: Vec<Val>) -> Result<()> {
        if i >= end {
            self.set(&op.results(), carried)?;
            self.advance();
            return Ok(());
        }
        let body = block(op, 0)?;
        let args = [vec![Val::Elements(Elements::index(i))], carried].concat();
        self.set(&body.args(), args)?;
        self.role.stack.push(Activation::of(body, Owner::For(op, i, end, step)));
        Ok(())
    }
    /// Leaves a block by its terminator.
    fn end(&mut self, terminator: Op, owner: Owner) -> Result<()> {
        let values = self.vals(&terminator.operands())?;
        self.role.stack.pop();
        match owner {
            Owner::Role => self.finished(),
            Owner::For(op, i, end, step) => {
                let next = i.checked_add(step).ok_or("has a loop that overflows")?;
                self.iterate(op, [next, end, step], values)
            }
            Owner::If(op) => {
                self.set(&op.results(), values)?;
                self.advance();
                Ok(())
            }
            Owner::Sums => {
                self.role.owned = None;
                self.advance();
                Ok(())
            }
        }
    }
    fn finished(&self) -> Result<()> {
        match self.role.products.open.is_empty() {
            true => Ok(()),
            false => Err("ends the role while a product is under way".into()),
        }
    }

    /// Runs a body of scalars for many positions at once: each argument has an element for each of
    /// them, or one for all. Returns what it yields.
    pub(super) fn body(&mut self, block: Block, args: Vec<Elements>) -> Result<Vec<Elements>> {
        self.set(&block.args(), args.into_iter().map(Val::Elements).collect())?;
        self.scalars(block)
    }
    fn scalars(&mut self, block: Block) -> Result<Vec<Elements>> {
        for op in block.ops() {
            if op.kind() == Some(OpKind::Yield) || op.isa::<scf::Yield>() {
                return self.all_elements(&op.operands()).at(op);
            }
            let made = if op.isa::<scf::If>() {
                self.branch(op).at(op)?
            } else if op.isa::<scf::For>() {
                self.repeat(op).at(op)?
            } else if op.kind().is_some() {
                return Err("is an op of tiles in a body of scalars").at(op);
            } else {
                self.upstream(op).at(op)?
            };
            self.set(&op.results(), made).at(op)?;
        }
        Err("has a block without a terminator".into())
    }
    /// A branch that each position takes on its own: both sides run, each where it is taken.
    fn branch(&mut self, op: Op) -> Result<Vec<Val>> {
        let condition = bools(&self.elements(op.operand(0))?)?;
        let sides = op.regions().iter().map(|r| r.first()).collect::<Vec<_>>();
        let before = self.role.active.clone();
        let mut made: [Vec<Elements>; 2] = [vec![], vec![]];
        for (side, block) in sides.iter().enumerate() {
            let Some(block) = block else { continue };
            let taken = |c: &bool| *c == (side == 0);
            let n = before.as_ref().map_or(1, |b| b.len()).max(condition.len());
            let active: Rc<[bool]> = (0..n)
                .map(|i| {
                    let there = before.as_ref().is_none_or(|b| b[i % b.len()]);
                    there && taken(&condition[i % condition.len()])
                })
                .collect();
            if active.contains(&true) {
                self.role.active = Some(active);
                made[side] = self.scalars(*block)?;
            }
        }
        self.role.active = before;
        let [then, other] = made;
        match (then.is_empty(), other.is_empty()) {
            (_, true) => Ok(then.into_iter().map(Val::Elements).collect()),
            (true, _) => Ok(other.into_iter().map(Val::Elements).collect()),
            _ => {
                let both = then.iter().zip(&other).map(|(a, b)| {
                    let n = a.len().max(b.len()).max(condition.len() * a.width);
                    let taken = |i: usize| condition[i / a.width % condition.len()];
                    Elements::chosen(n, &taken, [a, b]).map(Val::Elements)
                });
                both.collect()
            }
        }
    }
    /// A loop that all positions run equally often.
    fn repeat(&mut self, op: Op) -> Result<Vec<Val>> {
        let operands = op.operands();
        let (bounds, inits) = operands.split_at_checked(3).ok_or_malformed(op)?;
        let bounds = self.numbers(bounds)?;
        let mut carried = self.all_elements(inits)?;
        let (body, mut i) = (block(op, 0)?, bounds[0]);
        bounded(&bounds)?;
        while i < bounds[1] {
            let args = [vec![Elements::index(i)], carried].concat();
            carried = self.body(body, args)?;
            i = i.checked_add(bounds[2]).ok_or("has a loop that overflows")?;
        }
        Ok(carried.into_iter().map(Val::Elements).collect())
    }
}
