//! `kiln-outline-control`: outlines the straight-line segments between control flow and custom
//! calls into functions, each of which is compiled as a program.
//!
//! Why: fusion, buffer assignment and threading handle straight-line code. After this pass every
//! function but one is straight-line. The remaining one, marked `kiln.control`, only calls the
//! others, branches and loops, which the runtime interprets from plain data. Upstream lowers
//! control flow to branches within one function, which no memory plan here supports.
//!
//! A function's arguments are the values it reads, and its results those that others read; sizes
//! and weights are rematerialised rather than passed. If a function needs a symbol that none of its
//! arguments has, it also takes an argument of the whole program that has it.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.exp %x   %1 = kiln.if %c { kiln.yield %x } else { %2 = kiln.neg %0   kiln.yield %2 }
//! after:   %0 = call @main_0(%x)   %1 = kiln.if %c { kiln.yield %x } else { %2 = call @main_1(%0)   kiln.yield %2 }
//! ```
pub(crate) mod sizes;

use crate::{
    analysis::sizes::{SizeBuilder, makes_sizes},
    kernels::outline_control::sizes::{Sizes, carry_symbols, clean, is_memory},
};
use kiln_dialects::{
    ir::*,
    ops::{self, OpKind},
    rules::{CONTROL, GRAPH_LEVELS, Level, is_driver},
    sym::Dim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::collections::{HashMap, HashSet, hash_map::Entry};

kiln_passes::pass_options! {
    /// The pass.
    pub struct OutlineControl {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for OutlineControl {
    const FLAG: &'static str = "kiln-outline-control";
    const SUMMARY: &'static str =
        "Outlines the ops between control flow and custom calls into functions";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let all = || blocks(root).into_iter().flat_map(|b| b.ops());
        let mut names: HashSet<String> = all().filter_map(Op::symbol).collect();
        for func in all().filter(|o| o.isa::<func::Func>() && !is_driver(*o)).collect::<Vec<_>>() {
            if walk(func).into_iter().any(|o| o.kind().is_some_and(OpKind::is_control)) {
                outline(func, self.rounds, &mut names)?;
            }
        }
        Ok(())
    }
}

fn outline(func: Op, rounds: usize, names: &mut HashSet<String>) -> Result<()> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let first = block.first().ok_or_at(func, "has an empty body")?;
    let facts = Facts::of(func, rounds)?;
    // Sizes go to the start of the function, before an anchor op that must not be erased.
    let front = Builder::before(first).ok_or_at(func, "is in no block")?;
    let mark = front.index(0).at(func)?.def().ok_or_at(func, "has no mark")?;
    let front = Builder::before(mark).ok_or_at(func, "is in no block")?;
    let symbols: HashMap<String, ops::Sym> =
        walk(func).into_iter().filter_map(ops::Sym::of).map(|s| (s.name.clone(), s)).collect();
    let sizes = Sizes::new(&symbols, front);
    let name = func.symbol().unwrap_or_default();
    let mut o = Outline {
        func,
        name,
        facts: &facts,
        symbols: &symbols,
        args: block.args(),
        sizes,
        named: HashMap::new(),
        first: HashMap::new(),
        names,
    };
    o.block(block)?;
    clean(func, mark);
    func.set_attr(CONTROL, Attr::unit(func.ctx()));
    Ok(())
}

struct Outline<'a> {
    func: Op,
    name: String,
    facts: &'a Facts,
    symbols: &'a HashMap<String, ops::Sym>,
    /// Values that define symbols: arguments, and unbacked sizes so far.
    args: Vec<Value>,
    /// Sizes at the start of the whole function.
    sizes: Sizes<'a>,
    /// Sizes that this pass created, which `facts` does not know.
    named: HashMap<Value, Dim>,
    /// Maps a call's result to the value it replaced.
    first: HashMap<Value, Value>,
    names: &'a mut HashSet<String>,
}

impl Outline<'_> {
    fn dims(&self, v: Value) -> Vec<Dim> {
        self.facts.dims(*self.first.get(&v).unwrap_or(&v)).to_vec()
    }
    fn size_value(&self, v: Value) -> Dim {
        self.named.get(&v).cloned().unwrap_or_else(|| self.facts.size_value(v))
    }

    fn block(&mut self, block: Block) -> Result<()> {
        let mut ops = vec![];
        // Ops that state sizes move with the values they describe, even those further down the
        // block, and must not be visited afterwards.
        let all: Vec<Op> =
            block.ops().into_iter().filter(|op| !makes_sizes(*op) && !is_memory(*op)).collect();
        for op in all {
            let control = op.kind().is_some_and(OpKind::is_control);
            if control || Some(op) == block.terminator() {
                self.segment(block, std::mem::take(&mut ops), op)?;
                // Programs that need its symbol take it as an argument.
                if op.kind() == Some(OpKind::UnbackedSize) {
                    self.args.push(op.result(0));
                }
                for inner in op.regions().into_iter().filter_map(Region::first) {
                    self.block(inner)?;
                }
            } else {
                ops.push(op);
            }
        }
        Ok(())
    }

    /// Outlines straight-line ops into a function and calls it before `end`.
    fn segment(&mut self, block: Block, ops: Vec<Op>, end: Op) -> Result<()> {
        let own: HashSet<Op> = ops.iter().copied().collect();
        // Weights that a terminator or control-flow op takes directly.
        let mut weights: Vec<Op> =
            end.operands().into_iter().filter_map(Value::def).filter(|o| is_memory(*o)).collect();
        weights.sort_by_key(|o| end.operands().iter().position(|v| v.def() == Some(*o)));
        weights.dedup();
        let outside = |v: &Value| {
            v.uses().iter().any(|(user, _)| !within(*user, block, &own) && !makes_sizes(*user))
        };
        let outputs: Vec<Value> = ops
            .iter()
            .flat_map(|o| o.results())
            .filter(outside)
            .chain(weights.iter().map(|o| o.result(0)))
            .collect();
        if outputs.is_empty() {
            ops.into_iter().rev().try_for_each(|op| self.forget(op))?;
            return Ok(());
        }
        let (mut inputs, mut needed): (Vec<Value>, Vec<Dim>) = (vec![], vec![]);
        for op in ops.iter().flat_map(|o| walk(*o)) {
            if op.isa::<func::Call>() {
                return Err(Error::unsupported(
                    op,
                    "calls a function next to control flow, which has no compiled form",
                ));
            }
            for v in op.operands() {
                let inside = v.def().is_some_and(|d| within(d, block, &own))
                    || v.block_arg()
                        .and_then(|(b, _)| b.parent())
                        .is_some_and(|p| within(p, block, &own));
                if v.ty().is_index() {
                    needed.push(self.size_value(v));
                } else if !inside && !v.def().is_some_and(is_memory) && !inputs.contains(&v) {
                    inputs.push(v);
                }
            }
        }
        inputs.iter().for_each(|v| needed.extend(self.dims(*v)));
        let dims = |v: Value| self.dims(v);
        carry_symbols(&needed, &self.args, &dims, &mut inputs);
        let loc = ops.first().or(weights.first()).map_or(end.loc(), |o| o.loc());
        let name = self.fresh();
        self.function(&name, &ops, &weights, &inputs, &outputs, loc).at(end)?;
        let b = Builder::before(end).ok_or_at(end, "is in no block")?.at(loc);
        let types: Vec<Type> = outputs.iter().map(|v| v.ty()).collect();
        let call = func::call(b, &name, &inputs, &types).at(end)?;
        for (old, new) in outputs.iter().zip(call.results()) {
            self.first.insert(new, *self.first.get(old).unwrap_or(old));
            if old.def().is_some_and(is_memory) {
                // Only `end` uses the call's result: other users rematerialise the weight.
                (0..end.operand_count())
                    .filter(|i| end.operand(*i) == *old)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|i| end.set_operand(i, new));
                continue;
            }
            self.state_sizes(*old)?;
            old.replace_uses(new);
            let dims = self.dims(new);
            self.sizes
                .bind(new, &dims, Builder::before(end).ok_or_at(end, "is in no block")?)
                .at(end)?;
        }
        ops.into_iter().rev().try_for_each(|op| self.forget(op))
    }

    /// Replaces the ops that query or state the sizes of a value that is outlined.
    fn state_sizes(&mut self, v: Value) -> Result<()> {
        for (user, _) in v.uses() {
            match user.kind() {
                Some(OpKind::BindShape) => user.erase(),
                Some(OpKind::Dim) if !user.result(0).uses().is_empty() => {
                    let dim = self.size_value(user.result(0));
                    let made = self.sizes.build(&dim).at(user)?;
                    self.named.insert(made, dim);
                    user.result(0).replace_uses(made);
                    user.erase();
                }
                Some(OpKind::Dim) => user.erase(),
                _ => {}
            }
        }
        Ok(())
    }

    fn forget(&mut self, op: Op) -> Result<()> {
        op.results().into_iter().try_for_each(|v| self.state_sizes(v))?;
        op.erase();
        Ok(())
    }

    fn fresh(&mut self) -> String {
        let name = (0..)
            .map(|n| format!("{}_{n}", self.name))
            .find(|n| !self.names.contains(n))
            .unwrap_or_default();
        self.names.insert(name.clone());
        name
    }

    fn function(
        &self,
        name: &str,
        ops: &[Op],
        weights: &[Op],
        inputs: &[Value],
        outputs: &[Value],
        loc: Loc,
    ) -> Result<()> {
        let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
        let mut fill = |b: Builder, args: Vec<Value>| {
            let mut map: HashMap<Value, Value> =
                inputs.iter().copied().zip(args.iter().copied()).collect();
            let mut sizes = Sizes::new(self.symbols, b);
            for (old, new) in inputs.iter().zip(&args) {
                sizes.bind(*new, &self.dims(*old), b)?;
            }
            let read = ops
                .iter()
                .flat_map(|o| walk(*o))
                .flat_map(|o| o.operands())
                .filter_map(Value::def)
                .filter(|o| is_memory(*o));
            for weight in read.chain(weights.iter().copied()) {
                if let Entry::Vacant(new) = map.entry(weight.result(0)) {
                    new.insert(b.at(weight.loc()).clone_op(weight, &|v| v)?.result(0));
                }
            }
            for op in ops {
                for v in
                    walk(*op).into_iter().flat_map(|o| o.operands()).filter(|v| v.ty().is_index())
                {
                    let size = match sizes.size(&self.size_value(v))? {
                        Size::Static(n) => b.index(n)?,
                        Size::Dynamic(s) => s,
                    };
                    map.insert(v, size);
                }
                let new = b.at(op.loc()).clone_op(*op, &|v| map.get(&v).copied().unwrap_or(v))?;
                map.extend(op.results().into_iter().zip(new.results()));
            }
            b.ret(&outputs.iter().map(|v| map[v]).collect::<Vec<_>>()).map(|_| ())
        };
        let b = Builder::before(self.func).ok_or("is in no block")?.at(loc);
        b.function(name, &types(inputs), &types(outputs), &mut fill).map(|_| ())
    }
}

/// Whether an op is one of a block's ops in `own`, or nested inside one.
fn within(op: Op, block: Block, own: &HashSet<Op>) -> bool {
    std::iter::successors(Some(op), |o| o.parent())
        .find(|o| o.block() == Some(block))
        .is_some_and(|o| own.contains(&o))
}
