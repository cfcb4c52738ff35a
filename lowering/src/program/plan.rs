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
//! With `reuse-from`, large static values are put into the caller's memory where it is dead: in
//! results that are not yet written, and in arguments marked `kiln.donated` after their last read.
//! This relies on launches running in order, as on a GPU's stream.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %e = tensor.empty() : tensor<8xf32>   %0 = kiln.launch @k ins(%x …) outs(%e …)
//! after:   %e = kiln.arena %c0 live 0 to 1 : tensor<8xf32>   %0 = kiln.launch @k ins(%x …) outs(%e …)   kiln.arena_size %c64
//! ```
use crate::{
    analysis::sizes::SizeValues,
    kernels::frozen,
    program::placement::{self, Interval, Memory, Placement, Region},
    target::kernel_attrs::{ALIASES, DONATED, IN_PLACE_ENTRY, SLICES},
};
use kiln_dialects::{
    ir::*,
    ops::{Arena, ArenaSize, BindShape, Launch, OpKind, Output, Reuse},
    rules::{Level, is_driver, tensor_type},
    sym::Dim as SymDim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct PlanMemory {
        /// Alignment of offsets in bytes
        pub alignment: i64 = 64,
        /// Bytes from which on a value is put into donated arguments and results; 0 for never
        pub reuse_from: i64 = 0,
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
        let about = kernels(root);
        let plain = !has_driver(root);
        for func in host_functions(root) {
            self.function(&about, func, plain)?;
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

/// Whether a module has control flow, which may give a program the same memory as an argument and
/// as a result.
pub(super) fn has_driver(root: Op) -> bool {
    blocks(root).into_iter().flat_map(|b| b.ops()).any(is_driver)
}

/// The launches of a block, in order.
pub(super) fn launches_in(block: Block) -> Vec<Op> {
    block.ops().into_iter().filter(|o| o.kind() == Some(OpKind::Launch)).collect()
}

/// The place of each op in a list.
pub(super) fn positions(ops: &[Op]) -> HashMap<Op, usize> {
    ops.iter().enumerate().map(|(n, op)| (*op, n)).collect()
}

/// Whether a launch writes into the memory of an argument.
pub(super) fn is_written(argument: Value) -> bool {
    let writes = |op: Op| Launch::of(op).is_some_and(|launch| launch.outs.contains(&argument));
    argument.uses().into_iter().any(|(user, _)| writes(user))
}

/// The attribute `kiln.kernel` of each kernel.
pub(super) type Kernels = HashMap<String, Attr>;

/// Those of a module.
pub(super) fn kernels(root: Op) -> Kernels {
    let modules = blocks(root).into_iter().flat_map(|b| b.ops()).filter(|m| m.is("builtin.module"));
    modules.filter_map(|m| Some((m.symbol()?, m.attr("kiln.kernel")?))).collect()
}

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
    /// The donated argument that it may overwrite while its launch reads it.
    overwrites_argument: Option<Value>,
}

/// A value that is a result of the function.
struct ResultSlot {
    empty: Op,
    /// The result's number.
    index: usize,
    bytes: SymDim,
    /// The launch that writes it first.
    written: usize,
    /// The slot that this launch may overwrite while it reads it.
    over: Option<usize>,
}

impl PlanMemory {
    fn function(&self, about: &Kernels, func: Op, plain: bool) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let launches = launches_in(block);
        let order = positions(&launches);
        let facts = Facts::of(func, 2)?;
        let donated =
            if plain && self.reuse_from > 0 { scratch_arguments(func, block) } else { vec![] };
        let aliased = aliases(func, block);
        let (mut slots, mut outputs): (Vec<ArenaSlot>, Vec<ResultSlot>) = (vec![], vec![]);
        for (n, op) in launches.iter().enumerate() {
            let launch = Launch::of(*op).ok_or_malformed(*op)?;
            let allowed = in_place(about, &launch.kernel);
            for (r, (out, result)) in launch.outs.iter().zip(op.results()).enumerate() {
                if let Some(wrong) = forwarded_destination(about, *op, &launch, r) {
                    wrong.at(*op)?;
                    continue;
                }
                // Of a state whose memory the launch writes into.
                if out.def().is_none() && aliased.values().any(|v| v == out) {
                    continue;
                }
                let empty = out.def().filter(|o| o.isa::<tensor::Empty>());
                let empty = empty.ok_or_else(|| {
                    Error::at(*op, "writes to memory that is neither a tensor.empty nor handed on")
                })?;
                let (last, returned) = last_use(result, &order, end, n);
                let size = bytes(empty, &facts).at(*op);
                let over = allowed.iter().filter(|(result, _)| *result == r).find_map(|(_, i)| {
                    overwritten_input(&slots, &launch, *i, n, size.as_ref().ok()?)
                });
                match returned {
                    Some(index) => {
                        let bytes = size.unwrap_or(SymDim::Unknown);
                        outputs.push(ResultSlot { empty, index, bytes, written: n, over })
                    }
                    None => {
                        let bytes = size?;
                        let argument = allowed
                            .iter()
                            .filter(|(result, _)| *result == r && over.is_none())
                            .find_map(|(_, i)| only_read(&launch, *i))
                            .filter(|v| donated.contains(v));
                        slots.push(ArenaSlot {
                            empty,
                            result,
                            bytes,
                            first: n as i64,
                            last: last as i64,
                            overwrites: over,
                            overwrites_argument: argument,
                        });
                    }
                }
            }
        }
        let mut regions = if plain && self.reuse_from > 0 {
            unwritten_results(&outputs, &aliased)
        } else {
            vec![]
        };
        for v in &donated {
            let taken = outputs.iter().find(|o| aliased.get(&o.index) == Some(v));
            let until = taken.map_or(i64::MAX, |o| o.written as i64 - 1);
            regions.extend(dead_argument(*v, until, &order, end));
        }
        let (places, total) = self.place(&slots, &regions);
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
        for (k, ResultSlot { empty, index: i, .. }) in outputs.iter().enumerate() {
            // What reuses its memory comes before its first writer.
            let own = |r: &usize| matches!(regions[*r].memory, Memory::Result(i) if i == k);
            let reused = places.iter().any(|p| matches!(p, Placement::Region(r, _) if own(r)));
            let at = if reused { front } else { *empty };
            let b = Builder::before(at).ok_or_at(at, "is in no block")?;
            let node = Output { index: *i as i64 };
            made.push((*empty, b.create_with(&node, &[empty.result(0).ty()], &mut []).at(func)?));
        }
        for (slot, place) in slots.iter().zip(&places) {
            let (first, last) = (slot.first, slot.last.min(until(&slots, slot)));
            let b = Builder::before(slot.empty)
                .ok_or_else(|| Error::at(slot.empty, "is in no block"))?;
            let ty = [slot.empty.result(0).ty()];
            let op = match place {
                Placement::Arena(offset) => {
                    let offset = ssa(offset).at(func)?;
                    b.create_with(&Arena { offset, first, last }, &ty, &mut [])
                }
                Placement::Region(k, offset) => {
                    let memory = match regions[*k].memory {
                        Memory::Argument(v) => v,
                        Memory::Result(k) => made[k].1.result(0),
                    };
                    let offset = ssa(&SymDim::Known(*offset)).at(func)?;
                    b.create_with(&Reuse { memory, offset, first, last }, &ty, &mut [])
                }
            };
            made.push((slot.empty, op.at(func)?));
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

    /// Where each slot is, and the arena's size. Slots that overwrite each other are in one place.
    fn place(&self, slots: &[ArenaSlot], regions: &[Region]) -> (Vec<Placement>, SymDim) {
        let mut intervals: Vec<Interval> = vec![];
        let mut interval_of: Vec<usize> = vec![];
        for slot in slots {
            let interval = match slot.overwrites {
                Some(i) => interval_of[i],
                None => {
                    intervals.push(Interval {
                        bytes: placement::aligned(&slot.bytes, self.alignment),
                        first: slot.first,
                        last: slot.last,
                        overwrites: slot.overwrites_argument,
                    });
                    intervals.len() - 1
                }
            };
            intervals[interval].last = intervals[interval].last.max(slot.last);
            interval_of.push(interval);
        }
        // Of a slot its interval.
        let own = |r: &Region| Region { overwritten: r.overwritten.map(|s| interval_of[s]), ..*r };
        let regions: Vec<Region> = regions.iter().map(own).collect();
        let (places, total) = placement::assign(&intervals, &regions, self.reuse_from);
        (interval_of.into_iter().map(|p| places[p].clone()).collect(), total)
    }
}

/// The arguments of a host function that a call may overwrite.
pub(super) fn donated(func: Op, block: Block) -> Vec<Value> {
    values(block, donors(func, |_| true))
}

/// Those that intermediate values may overwrite, too.
pub(super) fn scratch_arguments(func: Op, block: Block) -> Vec<Value> {
    values(block, donors(func, |value| value.as_i64().is_none()))
}

fn values(block: Block, arguments: Vec<usize>) -> Vec<Value> {
    let all = block.args();
    arguments.into_iter().filter_map(|i| all.get(i).copied()).collect()
}

/// Donated arguments of which `kiln.donated` has such a value.
pub(super) fn donors(func: Op, allows: impl Fn(Attr) -> bool) -> Vec<usize> {
    let listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let marked = |i: &usize| listed[*i].entry(DONATED).is_some_and(&allows);
    (0..listed.len()).filter(marked).collect()
}

/// The donated argument whose memory a result takes, by the result's number.
pub fn aliases(func: Op, block: Block) -> HashMap<usize, Value> {
    let listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let all = block.args().into_iter().zip(&listed);
    all.filter_map(|(v, about)| Some((usize::try_from(about.entry(ALIASES)?.as_i64()?).ok()?, v)))
        .collect()
}

/// The memory of static results until they are written. That of an argument is not free until it is
/// dead.
fn unwritten_results(outputs: &[ResultSlot], aliases: &HashMap<usize, Value>) -> Vec<Region> {
    let own = outputs.iter().enumerate().filter(|(_, o)| !aliases.contains_key(&o.index));
    let region = |(k, o): (usize, &ResultSlot)| {
        let (memory, free) = (Memory::Result(k), (0, o.written as i64 - 1));
        Some(Region { bytes: o.bytes.known()?, free, memory, overwritten: o.over })
    };
    own.filter_map(region).collect()
}

/// The memory of a static argument after its last read, and up to a launch, unless it is a result.
fn dead_argument(v: Value, until: i64, order: &HashMap<Op, usize>, end: Op) -> Option<Region> {
    let (last, returned) = last_use(v, order, end, 0);
    let bytes = frozen::bytes(v);
    let (memory, free) = (Memory::Argument(v), (last as i64 + 1, until));
    let region = Region { bytes, free, memory, overwritten: None };
    (returned.is_none() && bytes < i64::MAX).then_some(region)
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
pub(super) fn last_use(
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

/// Pairs of a kernel's result and an input that it may overwrite.
pub(super) fn in_place(about: &Kernels, kernel: &str) -> Vec<(usize, usize)> {
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
    let value = only_read(launch, input)?;
    let i = slots.iter().position(|s| s.result == value)?;
    let free = slots[i].last == n as i64
        && slots[i].first < n as i64
        && slots.iter().all(|s| s.overwrites != Some(i));
    (free && slots[i].bytes == *bytes).then_some(i)
}

/// The value that a launch reads as this input, if it reads it as no other one.
pub(super) fn only_read(launch: &Launch, input: usize) -> Option<Value> {
    let value = base(*launch.inputs.get(input)?);
    (launch.inputs.iter().filter(|v| base(**v) == value).count() == 1).then_some(value)
}

/// The value that a view is based on.
pub(super) fn base(mut v: Value) -> Value {
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
