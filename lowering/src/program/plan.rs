//! `kiln-plan`: buffer assignment for every value that crosses kernels: results in the caller's
//! memory, all else in the program's arena.
//!
//! Why: all lifetimes are known, so a call allocates nothing, and values that are not live at the
//! same time share memory. Upstream's deallocation frees each buffer, which costs a malloc per
//! launch and page faults for large buffers.
//!
//! Static programs are assigned greedily by size: largest value first, each at the lowest offset
//! free during its live range. With dynamic sizes, a value reuses the memory of a dead value that
//! is provably as large for every size. A result that may overwrite a dead input (`kiln-in-place`)
//! shares its memory. A tensor into which several launches insert slices is one value from the
//! first of them on: each takes it and writes to it, and nothing else reads it in between.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %e = tensor.empty() : tensor<8xf32>   %0 = kiln.launch @k ins(%x …) outs(%e …)
//! after:   %e = kiln.arena %c0 live 0 to 1 : tensor<8xf32>   %0 = kiln.launch @k ins(%x …) outs(%e …)   kiln.arena_size %c64
//! ```
use crate::{
    analysis::sizes::SizeValues,
    target::kernel_attrs::{IN_PLACE_ENTRY, SLICES},
};
use kiln_dialects::{
    ir::*,
    ops::{Arena, ArenaSize, BindShape, Launch, OpKind, Output},
    rules::{Level, is_driver, tensor_type},
    sym::{Atom, Dim as SymDim},
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct PlanMemory {
        /// Alignment of offsets in bytes
        pub alignment: i64 = 64,
    }
}

impl Pass for PlanMemory {
    const FLAG: &'static str = "kiln-plan";
    const SUMMARY: &'static str =
        "Plans memory: assigns values between kernels to the arena or to the caller's buffers";
    const LEVELS: &'static [Level] = &[Level::Tiled];
    const LOWERS_TO: Option<Level> = Some(Level::Program);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if self.alignment < 1 {
            return Err(format!("alignment is at least 1, not {}", self.alignment).into());
        }
        let modules =
            blocks(root).into_iter().flat_map(|b| b.ops()).filter(|m| m.is("builtin.module"));
        let about: Kernels =
            modules.filter_map(|m| Some((m.symbol()?, m.attr("kiln.kernel")?))).collect();
        for func in host_functions(root) {
            self.function(&about, func)?;
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Program.name()));
        Ok(())
    }
}

/// The host functions of a module: functions that are not kernels and launch some.
pub fn host_functions(root: Op) -> Vec<Op> {
    let host =
        |o: &Op| o.isa::<func::Func>() && root.attr("kiln.kernel").is_none() && !is_driver(*o);
    blocks(root).into_iter().flat_map(|b| b.ops()).filter(host).collect()
}

/// The attribute `kiln.kernel` of each kernel.
type Kernels = HashMap<String, Attr>;

/// A value assigned to the arena.
struct ArenaSlot {
    empty: Op,
    /// The launch's result.
    result: Value,
    bytes: SymDim,
    first: i64,
    last: i64,
    /// The slot whose memory it overwrites while that slot is still being read.
    overwrites: Option<usize>,
}

impl PlanMemory {
    fn function(&self, about: &Kernels, func: Op) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let launches: Vec<Op> =
            block.ops().into_iter().filter(|o| o.kind() == Some(OpKind::Launch)).collect();
        let order: HashMap<Op, usize> = launches.iter().enumerate().map(|(n, l)| (*l, n)).collect();
        let facts = Facts::of(func, 2)?;
        let (mut slots, mut outputs): (Vec<ArenaSlot>, _) = (vec![], vec![]);
        for (n, op) in launches.iter().enumerate() {
            let launch = Launch::of(*op).ok_or_malformed(*op)?;
            let allowed = in_place(about, &launch.kernel);
            for (r, (out, result)) in launch.outs.iter().zip(op.results()).enumerate() {
                if let Some(wrong) = forwarded_destination(about, *op, &launch, r) {
                    wrong.at(*op)?;
                    continue;
                }
                let empty = out.def().filter(|o| o.isa::<tensor::Empty>());
                let empty = empty.ok_or_else(|| {
                    Error::at(*op, "writes to memory that is neither a tensor.empty nor handed on")
                })?;
                let (last, returned) = last_use(result, &order, end, n);
                match returned {
                    Some(i) => outputs.push((empty, i)),
                    None => {
                        let bytes = bytes(empty, &facts).at(*op)?;
                        let over = allowed
                            .iter()
                            .filter(|(result, _)| *result == r)
                            .find_map(|(_, i)| overwritten_input(&slots, &launch, *i, n, &bytes));
                        slots.push(ArenaSlot {
                            empty,
                            result,
                            bytes,
                            first: n as i64,
                            last: last as i64,
                            overwrites: over,
                        });
                    }
                }
            }
        }
        let (offsets, total) = assign_offsets(&slots, self.alignment);
        // The first launch needs offsets, so their arithmetic goes before it.
        let first = launches.first().copied().unwrap_or(end);
        let empties: Vec<Op> =
            block.ops().into_iter().filter(|o| o.isa::<tensor::Empty>()).collect();
        let front = empties.first().copied().unwrap_or(first);
        let b = Builder::before(front).ok_or_at(front, "is in no block")?;
        let mut sizes = SizeValues::of_host(block, &facts, b, front);
        let mut ssa = |d: &SymDim| match sizes.value(d)? {
            Size::Static(n) => b.index(n),
            Size::Dynamic(v) => Ok(v),
        };
        let mut made = vec![];
        for (slot, offset) in slots.iter().zip(&offsets) {
            let node = Arena {
                offset: ssa(offset).at(func)?,
                first: slot.first,
                last: slot.last.min(until(&slots, slot)),
            };
            let b = Builder::before(slot.empty)
                .ok_or_else(|| Error::at(slot.empty, "is in no block"))?;
            made.push((
                slot.empty,
                b.create_with(&node, &[slot.empty.result(0).ty()], &mut []).at(func)?,
            ));
        }
        for (empty, i) in outputs {
            let b = Builder::before(empty).ok_or_at(empty, "is in no block")?;
            made.push((
                empty,
                b.create_with(&Output { index: i as i64 }, &[empty.result(0).ty()], &mut [])
                    .at(func)?,
            ));
        }
        b.create_with(&ArenaSize { bytes: ssa(&total).at(func)? }, &[], &mut []).at(func)?;
        let mut seen = HashSet::new();
        if let Some((shared, _)) = made.iter().find(|(old, _)| !seen.insert(*old)) {
            return Err(Error::at(*shared, "is the memory of two results"));
        }
        for (old, new) in made {
            let dims = new.result(0).ty().dims();
            if dims.contains(&SymDim::Unknown) {
                let mut dynamic = old.operands().into_iter().map(Size::Dynamic);
                let size = |d: &SymDim| d.known().map(Size::Static).or_else(|| dynamic.next());
                let sizes = dims
                    .iter()
                    .map(size)
                    .collect::<Option<Vec<_>>>()
                    .ok_or_at(old, "has too few sizes")?;
                let b = Builder::after(new).ok_or_at(old, "is in no block")?;
                b.create_with(&BindShape { value: new.result(0), sizes }, &[], &mut []).at(func)?;
            }
            old.result(0).replace_uses(new.result(0));
            old.erase();
        }
        Ok(())
    }
}

/// Whether a launch writes to the result of an earlier one, and so shares its memory. Err: this is
/// not allowed here.
fn forwarded_destination(
    about: &Kernels,
    op: Op,
    launch: &Launch,
    result: usize,
) -> Option<Result<()>> {
    let out = *launch.outs.get(result)?;
    out.def().filter(|o| o.kind() == Some(OpKind::Launch))?;
    let puts =
        about.get(&launch.kernel).and_then(|k| k.entry(SLICES)?.as_array()).is_some_and(|all| {
            all.iter().any(|p| p.as_i64s().is_some_and(|p| p.first() == Some(&(result as i64))))
        });
    let taken = launch.inputs.contains(&out)
        && out.uses().iter().all(|(user, _)| *user == op)
        && out.uses().len() == 2;
    Some(match (puts, taken) {
        (true, true) => Ok(()),
        (false, _) => Err(format!(
            "writes all of result {result} to memory that an earlier launch has written"
        )
        .into()),
        (_, false) => Err(format!(
            "writes result {result} on a tensor that it does not take, or that others read"
        )
        .into()),
    })
}

/// The last launch that reads a value or a view of it, or writes to it, and the function result
/// that it is.
fn last_use(
    v: Value,
    launches: &HashMap<Op, usize>,
    end: Op,
    own: usize,
) -> (usize, Option<usize>) {
    let (mut last, mut returned, mut stack) = (own, None, vec![v]);
    while let Some(v) = stack.pop() {
        for (user, i) in v.uses() {
            if user == end {
                returned = Some(i);
            } else if user.kind() == Some(OpKind::Reshape) {
                stack.push(user.result(0));
            } else if let Some(n) = launches.get(&user) {
                last = last.max(*n);
                // If a launch writes to it, it lives as long as that launch's result.
                let written = i.checked_sub(user.operand_count() - user.result_count());
                stack.extend(written.map(|r| user.result(r)));
            }
        }
    }
    (last, returned)
}

/// Size of a `tensor.empty` in bytes.
fn bytes(empty: Op, facts: &Facts) -> Result<SymDim> {
    let t = tensor_type(empty.result(0).ty())?;
    let mut dynamic = empty.operands().into_iter();
    let mut product = SymDim::Known(t.dtype.byte_size() as i64);
    for d in &t.dims {
        let size = match d.known() {
            Some(n) => SymDim::Known(n),
            None => facts.size_value(dynamic.next().ok_or("has too few sizes")?),
        };
        product = product.mul(&size);
    }
    if product == SymDim::Unknown { Err("has a data-dependent size".into()) } else { Ok(product) }
}

fn aligned(d: &SymDim, to: i64) -> SymDim {
    let to = SymDim::Known(to);
    let exact = d.floordiv(&to);
    let whole = exact
        .atoms()
        .iter()
        .all(|a| !matches!(a, Atom::Op(kiln_dialects::ops::SymKind::Floordiv, _)));
    match d.known() {
        None if whole && exact != SymDim::Unknown => d.clone(),
        _ => d.add(&to).add(&SymDim::Known(-1)).floordiv(&to).mul(&to),
    }
}

/// Pairs of a kernel's result and an input that it may overwrite.
fn in_place(about: &Kernels, kernel: &str) -> Vec<(usize, usize)> {
    let flat =
        about.get(kernel).and_then(|k| k.entry(IN_PLACE_ENTRY)?.as_i64s()).unwrap_or_default();
    flat.chunks_exact(2).map(|p| (p[0] as usize, p[1] as usize)).collect()
}

/// The slot of an input that launch `n` is the last to read and that one of its results may
/// overwrite.
fn overwritten_input(
    slots: &[ArenaSlot],
    launch: &Launch,
    input: usize,
    n: usize,
    bytes: &SymDim,
) -> Option<usize> {
    let value = base(*launch.inputs.get(input)?);
    let once = launch.inputs.iter().filter(|v| base(**v) == value).count() == 1;
    let i = slots.iter().position(|s| s.result == value)?;
    let free = slots[i].last == n as i64
        && slots[i].first < n as i64
        && slots.iter().all(|s| s.overwrites != Some(i));
    (once && free && slots[i].bytes == *bytes).then_some(i)
}

/// The value that a view is based on.
fn base(mut v: Value) -> Value {
    while let Some(view) = v.def().filter(|o| o.kind() == Some(OpKind::Reshape)) {
        v = view.operand(0);
    }
    v
}

/// End of a slot's live range in its memory: the last launch before another slot overwrites it.
fn until(slots: &[ArenaSlot], slot: &ArenaSlot) -> i64 {
    let taker = slots.iter().find(|s| s.overwrites.is_some_and(|i| slots[i].empty == slot.empty));
    taker.map_or(i64::MAX, |s| s.first - 1)
}

/// Assigns the slots' offsets and the arena's size. Slots that overwrite each other are placed as
/// one.
fn assign_offsets(slots: &[ArenaSlot], alignment: i64) -> (Vec<SymDim>, SymDim) {
    let mut intervals: Vec<Interval> = vec![];
    let mut interval_of: Vec<usize> = vec![];
    for slot in slots {
        let interval = match slot.overwrites {
            Some(i) => interval_of[i],
            None => {
                intervals.push(Interval {
                    bytes: aligned(&slot.bytes, alignment),
                    first: slot.first,
                    last: slot.last,
                });
                intervals.len() - 1
            }
        };
        intervals[interval].last = intervals[interval].last.max(slot.last);
        interval_of.push(interval);
    }
    let (offsets, total) =
        match intervals.iter().map(|p| p.bytes.known()).collect::<Option<Vec<i64>>>() {
            Some(known) => assign_static(&intervals, &known),
            None => assign_symbolic(&intervals),
        };
    (interval_of.into_iter().map(|p| offsets[p].clone()).collect(), total)
}

/// Memory that is live from one launch to another.
struct Interval {
    bytes: SymDim,
    first: i64,
    last: i64,
}

fn assign_static(slots: &[Interval], sizes: &[i64]) -> (Vec<SymDim>, SymDim) {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(sizes[*i]), slots[*i].first));
    let (mut offsets, mut done, mut total) = (vec![0; slots.len()], vec![], 0);
    for i in order {
        let meets =
            |j: &usize| slots[*j].first <= slots[i].last && slots[i].first <= slots[*j].last;
        let mut taken: Vec<(i64, i64)> = done
            .iter()
            .filter(|j| meets(j))
            .map(|j| (offsets[*j], offsets[*j] + sizes[*j]))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (from, to) in taken {
            if at + sizes[i] <= from {
                break;
            }
            at = at.max(to);
        }
        offsets[i] = at;
        total = total.max(at + sizes[i]);
        done.push(i);
    }
    (offsets.into_iter().map(SymDim::Known).collect(), SymDim::Known(total))
}

fn assign_symbolic(slots: &[Interval]) -> (Vec<SymDim>, SymDim) {
    // Allocated memory: size, and the launch after which it is free.
    let mut intervals: Vec<(SymDim, i64)> = vec![];
    let mut interval_of = vec![];
    for slot in slots {
        let size = &slot.bytes;
        let free = |p: &(SymDim, i64)| p.1 < slot.first;
        let found = intervals.iter().position(|p| free(p) && p.0 == *size);
        let found = found.or_else(|| {
            intervals.iter().position(|p| free(p) && (at_most(size, &p.0) || at_most(&p.0, size)))
        });
        let i = found.unwrap_or_else(|| {
            intervals.push((size.clone(), -1));
            intervals.len() - 1
        });
        if at_most(&intervals[i].0, size) {
            intervals[i].0 = size.clone();
        }
        intervals[i].1 = slot.last;
        interval_of.push(i);
    }
    let mut starts = vec![SymDim::Known(0)];
    for (size, _) in &intervals {
        starts.push(starts[starts.len() - 1].add(size));
    }
    let total = starts[intervals.len()].clone();
    (interval_of.into_iter().map(|i| starts[i].clone()).collect(), total)
}

/// Whether `a <= b` for all non-negative values of the symbols.
fn at_most(a: &SymDim, b: &SymDim) -> bool {
    match b.sub(a) {
        SymDim::Known(n) => n >= 0,
        SymDim::Unknown => false,
        difference => difference.bounds(&|_| (Some(0), None)).0.is_some_and(|low| low >= 0),
    }
}
