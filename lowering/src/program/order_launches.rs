//! `kiln-order-launches`: moves launches to where large values die earlier.
//!
//! Why: launches are in the order of the graph, where what is saved for a backward pass comes last
//! and keeps everything alive that it is computed from. Two moves make the arena smaller. A launch
//! that is the last reader of more bytes than it writes moves up, behind its operands' producers
//! and the other readers. A launch that may overwrite a donated argument (`kiln-in-place`)
//! moves down, behind the argument's other readers, so that its result needs no memory. Small values
//! stay: the arena is hardly larger for them, and neighbours may find them in the L2 cache.
//! Schedulers of whole graphs do the same by list scheduling (XLA's `HloMemoryScheduler`, Inductor's
//! `memory.py`).
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.launch @a …  %1 = kiln.launch @b ins(%x …)  %2 = kiln.launch @c ins(%0 …)
//! after:   %0 = kiln.launch @a …  %2 = kiln.launch @c ins(%0 …)  %1 = kiln.launch @b ins(%x …)
//! ```
use crate::{
    kernels::frozen::bytes,
    program::{
        plan::{
            Kernels, base, has_driver, host_functions, in_place, kernels, launches_in, positions,
            scratch_arguments,
        },
        sink_launches::{is_returned, sink, views},
    },
};
use kiln_dialects::{ir::*, ops::Launch, rules::Level};
use kiln_passes::{Numerics, Pass};
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct OrderLaunches {
        /// Bytes from which on a value is worth a move
        pub from: i64 = 33554432,
    }
}

impl Pass for OrderLaunches {
    const FLAG: &'static str = "kiln-order-launches";
    const SUMMARY: &'static str = "Moves launches to where large values die earlier";
    const LEVELS: &'static [Level] = &[Level::Tiled];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let about = kernels(root);
        if has_driver(root) {
            return Ok(());
        }
        for func in host_functions(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            self.function(&about, func, block)?;
        }
        Ok(())
    }
}

impl OrderLaunches {
    fn function(&self, about: &Kernels, func: Op, block: Block) -> Result<()> {
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let donors = scratch_arguments(func, block);
        let large: Vec<Value> = donors.iter().copied().filter(|v| self.is_large(*v)).collect();
        sink(about, block, &large, |op, r| {
            let own = bytes(op.result(r));
            !is_returned(op.result(r), end) && own > kept_alive(about, op)
        })?;
        let launches = launches_in(block);
        let mut order = positions(&launches);
        for op in launches {
            if let Some(after) = self.earlier(op, end, &donors, &order)? {
                rise(block, op, after);
                order = positions(&launches_in(block));
            }
        }
        Ok(())
    }

    fn is_large(&self, v: Value) -> bool {
        bytes(v) >= self.from && bytes(v) < i64::MAX
    }

    /// The launch behind which this one frees more than it allocates, if that is not where it is.
    fn earlier(
        &self,
        op: Op,
        end: Op,
        donors: &[Value],
        order: &HashMap<Op, usize>,
    ) -> Result<Option<Op>> {
        let launch = Launch::of(op).ok_or_malformed(op)?;
        let read: HashSet<Value> = launch.inputs.iter().map(|v| base(*v)).collect();
        // Others may read the argument before the launch writes to it.
        if launch.outs.iter().any(|out| out.def().is_none()) {
            return Ok(None);
        }
        let launched = |v: Value| v.def().filter(|o| order.contains_key(o));
        let own = order.get(&op).copied().unwrap_or(0);
        let mut others: Vec<Op> =
            read.iter().chain(&launch.outs).copied().filter_map(launched).collect();
        let mut freed = 0i64;
        for v in read.into_iter().filter(|v| self.is_large(*v)) {
            let users = views(v).1;
            let dies = users.iter().all(|u| order.get(u).is_some_and(|n| *n <= own));
            if dies && (launched(v).is_some() || donors.contains(&v)) {
                freed += bytes(v);
                others.extend(users.into_iter().filter(|u| *u != op));
            }
        }
        let results = op.results().into_iter().filter(|v| !is_returned(*v, end));
        let made = total(results);
        let after = others.into_iter().max_by_key(|o| order.get(o).copied().unwrap_or(own));
        Ok(after.filter(|o| freed > made && order.get(o).is_some_and(|n| n + 1 < own)))
    }
}

/// The bytes of what a launch reads of other launches but what it may overwrite: it may live longer
/// where the launch comes later.
fn kept_alive(about: &Kernels, op: Op) -> i64 {
    let Some(launch) = Launch::of(op) else { return 0 };
    let over: HashSet<usize> =
        in_place(about, &launch.kernel).into_iter().map(|(_, input)| input).collect();
    let others = launch.inputs.iter().enumerate().filter(|(i, _)| !over.contains(i));
    let values: HashSet<Value> =
        others.map(|(_, v)| base(*v)).filter(|v| v.def().is_some()).collect();
    total(values)
}

/// The bytes of some values.
fn total(values: impl IntoIterator<Item = Value>) -> i64 {
    values.into_iter().map(bytes).fold(0, i64::saturating_add)
}

/// Moves an op behind an earlier one, and all that it depends on in between along with it.
fn rise(block: Block, op: Op, after: Op) {
    let place = positions(&block.ops());
    let later = |o: &Op| place.get(o) > place.get(&after);
    let (mut moved, mut stack) = (HashSet::new(), vec![op]);
    while let Some(op) = stack.pop() {
        if moved.insert(op) {
            stack.extend(op.operands().into_iter().filter_map(Value::def).filter(later));
        }
    }
    let mut moved: Vec<Op> = moved.into_iter().collect();
    moved.sort_by_key(|o| place.get(o));
    moved.into_iter().fold(after, |last, op| {
        op.move_after(last);
        op
    });
}
