//! `kiln-bound-sizes`: replaces sizes that depend on data by their upper bounds, where no result
//! has them.
//!
//! Why: the host must read an unbacked size between two programs before it can launch what follows,
//! and no CUDA graph holds that. With the bound as the size everything is one program. What lies
//! beyond the size is computed too, and hidden where an op would mix it with the rest: reductions,
//! products and scatters read neutral elements there, and indices point to element 0. A product
//! of more than `rows` rows or terms would compute too much, and keeps its size, as do sizes of
//! results and those that an op without a rule (`rules.rs`) reads.
//!
//! Numerics: exact, but for the order of sums.
//!
//! ```text
//! before:  %0 = kiln.unbacked_size @u, %n max [9]   %u = kiln.sym @u   %1 = kiln.slice %x … sizes = [%u]   %2 = kiln.reduce sum %1
//! after:   %1 = kiln.slice %x … sizes = [9]   %i = kiln.iota   %c = kiln.compare lt %i, %n   %m = kiln.select %c, %1, %zero   %2 = kiln.reduce sum %m
//! ```
mod bounded;
mod masks;
mod rules;

use bounded::Bounded;
use kiln_dialects::{
    ir::*,
    ops::{OpKind, Sym, UnbackedSize},
    rules::{GRAPH_LEVELS, Level, SIZE_RESULTS, non_drivers},
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use masks::Masks;
use std::collections::HashSet;

kiln_passes::pass_options! {
    /// The pass.
    pub struct BoundSizes {
        /// Rounds of size propagation
        pub rounds: usize = 8,
        /// Most rows or terms of a product that a bound may give it
        pub rows: i64 = 128,
    }
}

impl Pass for BoundSizes {
    const FLAG: &'static str = "kiln-bound-sizes";
    const SUMMARY: &'static str =
        "Replaces sizes that depend on data by their upper bounds, and hides what lies beyond";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        non_drivers(root).into_iter().try_for_each(|func| self.function(func))
    }
}

impl BoundSizes {
    fn function(&self, func: Op) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        if !block.ops().iter().any(|o| o.kind() == Some(OpKind::UnbackedSize)) {
            return Ok(());
        }
        merge(func, block)?;
        let facts = Facts::of(func, self.rounds)?;
        let mut sizes = Bounded::of(func, block, &facts, self.rows);
        sizes.choose(block);
        if sizes.chosen.is_empty() {
            return Ok(());
        }
        let mut masks = Masks::new(&sizes, func);
        block.ops().into_iter().try_for_each(|op| masks.op(op).at(op))?;
        // Only now: the facts name values by their handles.
        masks.replaced.into_iter().for_each(Op::erase);
        drop_results(func, block, &|name| sizes.chosen.contains_key(name))?;
        replace(func, &sizes)
    }
}

/// Gives sizes that are read from one value one name: two selections by one mask are equally large.
fn merge(func: Op, block: Block) -> Result<()> {
    let (mut first, mut gone): (Vec<UnbackedSize>, HashSet<String>) = Default::default();
    // Collected first: symbols among the ops are erased.
    let read = block.ops().into_iter().filter_map(|op| Some((op, UnbackedSize::of(op)?)));
    for (op, o) in read.collect::<Vec<_>>() {
        let same = first.iter().find(|f| f.value == o.value && f.max == o.max);
        let Some(same) = same.filter(|_| op.result(0).uses().is_empty()) else {
            first.push(o);
            continue;
        };
        for at in walk(func) {
            let Some(s) = Sym::of(at).filter(|s| s.name == o.name) else { continue };
            let b = Builder::before(at).ok_or_at(at, "is in no block")?.at(at.loc());
            let made = Sym { name: same.name.clone(), ..s };
            let made = b.create_with(&made, &[Type::index(b.ctx)], &mut []).at(at)?;
            at.result(0).replace_uses(made.result(0));
            at.erase();
        }
        op.erase();
        gone.insert(o.name);
    }
    drop_results(func, block, &|name| gone.contains(name))
}

/// Drops the results that tell a caller these sizes.
fn drop_results(func: Op, block: Block, gone: &dyn Fn(&str) -> bool) -> Result<()> {
    let Some(told) = func.attr(SIZE_RESULTS).and_then(Attr::as_array) else { return Ok(()) };
    let end = block.terminator().ok_or_at(func, "has no return")?;
    let mut results = end.operands();
    let first = results.len().checked_sub(told.len()).ok_or_at(func, "tells too many sizes")?;
    let gone = |a: &Attr| a.as_string().is_some_and(|name| gone(&name));
    if !told.iter().any(gone) {
        return Ok(());
    }
    for i in (0..told.len()).rev().filter(|i| gone(&told[*i])) {
        results.remove(first + i);
    }
    let kept: Vec<Attr> = told.into_iter().filter(|a| !gone(a)).collect();
    if kept.is_empty() {
        func.remove_attr(SIZE_RESULTS);
    } else {
        func.set_attr(SIZE_RESULTS, Attr::array(func.ctx(), &kept));
    }
    Builder::before(end).ok_or_at(end, "is in no block")?.at(end.loc()).ret(&results)?;
    end.erase();
    let types = |values: &[Value]| values.iter().map(|v| v.ty()).collect::<Vec<_>>();
    let ty = Type::function(func.ctx(), &types(&block.args()), &types(&results));
    func.set_attr("function_type", Attr::ty(ty));
    Ok(())
}

/// Replaces the chosen sizes' symbols by their bounds.
fn replace(func: Op, sizes: &Bounded<'_>) -> Result<()> {
    for op in walk(func) {
        let Some(u) = Sym::of(op).and_then(|s| sizes.chosen.get(&s.name)) else { continue };
        // Read anew: a bound may be a symbol that has been replaced.
        let max = UnbackedSize::of(u.op).and_then(|o| o.max.first().copied());
        let max = match max.ok_or_at(u.op, "has no greatest value")? {
            Size::Dynamic(v) => v,
            Size::Static(n) => Builder::before(op).ok_or_at(op, "is in no block")?.index(n)?,
        };
        op.result(0).replace_uses(max);
        op.erase();
    }
    sizes.chosen.values().for_each(|u| u.op.erase());
    Ok(())
}
