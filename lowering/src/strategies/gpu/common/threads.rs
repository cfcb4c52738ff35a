//! Who a thread is, and what threads of a block say to each other.
use crate::{
    emit::{code::Code, partials::Combine},
    target::launch::WARP,
};
use kiln_dialects::ir::*;

fn id(c: Code, name: &str) -> Result<Value> {
    let x = Attr::parse(c.ctx(), "#gpu<dim x>").ok_or("has no gpu dialect")?;
    c.op(name, &[], Type::index(c.ctx()), &[("dimension", x)])
}
/// The thread's number in its block.
pub fn thread(c: Code) -> Result<Value> {
    id(c, "gpu.thread_id")
}
/// The block's number.
pub fn block(c: Code) -> Result<Value> {
    id(c, "gpu.block_id")
}
/// How many blocks there are.
pub fn blocks(c: Code) -> Result<Value> {
    id(c, "gpu.grid_dim")
}
/// Waits for all threads of the block, and for what they have written.
pub fn barrier(c: Code) -> Result<()> {
    c.effect("gpu.barrier", &[], &[])
}

/// The value of the thread whose number differs in the bits of `mask`.
fn neighbour(c: Code, v: Value, mask: usize) -> Result<Value> {
    shuffle(c, "xor", v, mask, WARP).map(|[v, _]| v)
}

/// The value of the thread that is `by` before, of `width` that see each other, and whether there
/// is one; the thread's own where there is none.
pub fn before(c: Code, v: Value, by: usize, width: usize) -> Result<[Value; 2]> {
    shuffle(c, "up", v, by, width)
}

/// The value of thread `lane` of `width` that see each other.
pub fn of_lane(c: Code, v: Value, lane: usize, width: usize) -> Result<Value> {
    shuffle(c, "idx", v, lane, width).map(|[v, _]| v)
}

/// The value of the warp's thread of a number that is not known before.
pub fn of_any(c: Code, v: Value, lane: Value) -> Result<Value> {
    shuffled(c, "idx", v, lane, WARP).map(|[v, _]| v)
}

fn shuffle(c: Code, mode: &str, v: Value, by: usize, width: usize) -> Result<[Value; 2]> {
    let i32 = Type::parse(c.ctx(), "i32").ok_or("has no i32")?;
    shuffled(c, mode, v, c.constant(&by.to_string(), i32)?, width)
}

fn shuffled(c: Code, mode: &str, v: Value, by: Value, width: usize) -> Result<[Value; 2]> {
    let i32 = Type::parse(c.ctx(), "i32").ok_or("has no i32")?;
    let mode =
        Attr::parse(c.ctx(), &format!("#gpu<shuffle_mode {mode}>")).ok_or("has no gpu dialect")?;
    let i1 = Type::parse(c.ctx(), "i1").ok_or("has no i1")?;
    let by = if by.ty() == i32 { by } else { c.op("arith.index_cast", &[by], i32, &[])? };
    let op = c.0.generic(
        "gpu.shuffle",
        &[v, by, c.constant(&width.to_string(), i32)?],
        &[v.ty(), i1],
        &[("mode", mode)],
        &mut [],
    )?;
    Ok([op.result(0), op.result(1)])
}

/// Four numbers of each of four neighbouring threads, the `thread`th of these: afterwards thread i
/// has the ith of all four.
pub fn turned(c: Code, mut all: Vec<Value>, thread: Value) -> Result<Vec<Value>> {
    for (bit, pairs) in [(1, [(0, 1), (2, 3)]), (2, [(0, 2), (1, 3)])] {
        let number = |n: usize| c.constant(&n.to_string(), thread.ty());
        let odd = c.compare(
            1,
            c.op("arith.andi", &[thread, number(bit)?], thread.ty(), &[])?,
            number(0)?,
        )?;
        for (low, high) in pairs {
            let given = c.select(odd, all[low], all[high])?;
            let taken = neighbour(c, given, bit)?;
            (all[low], all[high]) =
                (c.select(odd, taken, all[low])?, c.select(odd, all[high], taken)?);
        }
    }
    Ok(all)
}

/// Combines one value of `count` neighbouring threads of a warp; all of them have the result, with
/// the same bits if the order of two does not matter.
pub fn butterfly(
    c: Code,
    v: Value,
    count: usize,
    combine: &dyn Fn(Value, Value) -> Result<Value>,
) -> Result<Value> {
    let all = butterflies(c, &[v], count, &|a, b| Ok(vec![combine(a[0], b[0])?]))?;
    all.first().copied().ok_or_else(|| "has no value".into())
}

/// The same for values that belong together.
pub fn butterflies(
    c: Code,
    values: &[Value],
    count: usize,
    combine: &Combine<'_>,
) -> Result<Vec<Value>> {
    let mut values = values.to_vec();
    let mut mask = count / 2;
    while mask > 0 {
        let others = values.iter().map(|v| neighbour(c, *v, mask)).collect::<Result<Vec<_>>>()?;
        values = combine(&values, &others)?;
        mask /= 2;
    }
    Ok(values)
}

/// Threads of a block that share a row.
#[derive(Clone, Copy)]
pub struct Group {
    /// How many they are; a power of two.
    pub size: usize,
    /// The thread's number among them.
    pub thread: Value,
    /// The group's number in the block.
    pub number: Value,
    /// Whether the group has a row; all have if there is none.
    pub active: Option<Value>,
}

impl Group {
    /// The groups of so many threads that a block of so many groups has.
    pub fn of(c: Code, size: usize, groups: usize) -> Result<Group> {
        let thread = thread(c)?;
        let (number, thread) = match groups {
            1 => (c.index(0)?, thread),
            _ => (c.div(thread, c.index(size as i64)?)?, c.rem(thread, c.index(size as i64)?)?),
        };
        Ok(Group { size, thread, number, active: None })
    }

    /// Rows 0 to `total`, one for each of the block's `groups` at a time. All threads of a block go
    /// round equally often, so that all come to each barrier; a group without a row does one that
    /// is another's.
    pub fn rounds(
        &self,
        c: Code,
        groups: usize,
        total: Value,
        body: &mut dyn FnMut(Code, Group, Value) -> Result<()>,
    ) -> Result<()> {
        let count = c.index(groups as i64)?;
        let start = c.mul(block(c)?, count)?;
        let step = c.mul(blocks(c)?, count)?;
        c.strided(start, total, step, &[], &mut |c, base, _| {
            let row = c.add(base, self.number)?;
            let (row, active) = match groups {
                1 => (row, None),
                _ => {
                    let active = c.below(row, total)?;
                    (c.select(active, row, base)?, Some(active))
                }
            };
            body(c, Group { active, ..*self }, row).map(|()| vec![])
        })?;
        Ok(())
    }

    /// Whether a thread is the first of a group that has a row.
    pub fn speaks(&self, c: Code) -> Result<Option<Value>> {
        let first =
            if self.size == 1 { None } else { Some(c.compare(0, self.thread, c.index(0)?)?) };
        c.both(&[first, self.active].into_iter().flatten().collect::<Vec<_>>())
    }

    /// Combines the values of the group's threads; all of them have the results. `exchange` has for
    /// each value a place for each warp of the block.
    pub fn all(
        &self,
        c: Code,
        values: &[Value],
        exchange: &[Option<Value>],
        combine: &Combine<'_>,
    ) -> Result<Vec<Value>> {
        let values = butterflies(c, values, WARP.min(self.size), combine)?;
        if self.size <= WARP || values.is_empty() {
            return Ok(values);
        }
        let memory: Vec<Value> = exchange
            .iter()
            .copied()
            .collect::<Option<_>>()
            .ok_or("has no memory in which warps exchange results")?;
        let (warps, width) = (self.size / WARP, c.index(WARP as i64)?);
        let (lane, warp) = (c.rem(self.thread, width)?, c.div(self.thread, width)?);
        let base = c.mul(self.number, c.index(warps as i64)?)?;
        let first = c.compare(0, lane, c.index(0)?)?;
        let mut give = |c: Code| -> Result<()> {
            let at = c.add(base, warp)?;
            values
                .iter()
                .zip(&memory)
                .try_for_each(|(v, m)| c.effect("memref.store", &[*v, *m, at], &[]))
        };
        c.when(first, &mut give, None)?;
        barrier(c)?;
        // Every warp finishes by itself.
        let mine = c.add(base, c.rem(lane, c.index(warps as i64)?)?)?;
        let taken = values
            .iter()
            .zip(&memory)
            .map(|(v, m)| c.op("memref.load", &[*m, mine], v.ty(), &[]))
            .collect::<Result<Vec<_>>>()?;
        butterflies(c, &taken, warps, combine)
    }
}
