//! Scans: threads that share a row, or a column, each combine their neighbours, exchange what they have, and go on to the next part with what came before.
//!
//! Along a row that lies side by side, a thread has `pieces` of `vector` neighbours each. Threads of a warp take neighbouring ones, so that memory is read and written as by a copy;
//! each piece is combined across the warp by shuffles. Warps give what they have of each piece to shared memory, and each warp then combines that of all. Down columns a thread has
//! `pieces` rows behind each other, and looks through what the threads above have. What is exchanged has two places in turn, so that a part takes one barrier.
use super::{
    shared,
    team::{self, Group},
};
use crate::{
    emit::{
        body::{Passed, Scope},
        code::{Code, Made},
        lanes::{Lanes, Val},
        loops::decode,
        parts::part,
    },
    gpu::{
        WARP,
        gpu_schedule::scan::{self, Scan},
    },
    host::schedule::Schedule,
    kernel::{Access, Combine, Nest, Output, Plan, Stage},
};
use kiln_dialects::ir::*;

const ONE: Lanes = Lanes { count: 1, mask: None };

/// What is the same for all parts of the emission.
struct Walk<'a> {
    scope: &'a Scope<'a>,
    nest: &'a Nest,
    scan: Scan,
    stage: &'a Stage,
    out: &'a Output,
    combine: &'a Combine,
    lanes: Lanes,
    /// The dimension whose neighbours one access takes.
    fast: usize,
    across: usize,
    beside: usize,
    pieces: usize,
    ahead: bool,
    /// What is read of the kernel's arguments along the axis.
    reads: Vec<&'a Access>,
}

/// Neighbours that a thread has at one place.
struct Piece<'a> {
    dims: Vec<Val>,
    /// Whether they are there; they are if there is none. If not, the place is another's.
    inside: Option<Value>,
    /// The scope in which they are written.
    scope: Scope<'a>,
    known: Passed,
}

/// The loops around the axis: their indices, and whether the thread's writes count.
struct Around {
    at: Vec<(usize, Val)>,
    active: Option<Value>,
}

/// The kernel.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &Plan, schedule: &Schedule) -> Made<()> {
    let k = scope.kernel;
    let missing = "has a schedule for scans, but is none";
    let (scan, nest) = scan::scan(k, plan).zip(plan.nests.first()).ok_or(missing)?;
    let stage = k.stages.get(scan.stage).ok_or(missing)?;
    let out = stage.outputs.first().ok_or(missing)?;
    let (fast, widest) = scan::lanes(k, plan, nest).ok_or(missing)?;
    let count = schedule.get("vector").max(1);
    if count > widest {
        return Err(format!("has a schedule whose vector is {count}, but its elements can be read {widest} at a time"));
    }
    let walk = Walk {
        scope,
        nest,
        scan,
        stage,
        out,
        combine: out.combine.as_ref().ok_or(missing)?,
        lanes: Lanes { count, mask: None },
        fast,
        across: schedule.get("across"),
        beside: schedule.get("beside"),
        pieces: schedule.get("pieces"),
        ahead: schedule.get("ahead") > 0,
        reads: scan::reads(k, nest, scan.axis),
    };
    if fast == scan.axis { walk.rows(c) } else { walk.columns(c) }
}

impl<'a> Walk<'a> {
    fn element(&self) -> Type {
        self.combine.op.result(0).ty()
    }
    /// What changes nothing, in so many lanes.
    fn identity(&self, c: Code, lanes: Lanes) -> Made<Value> {
        let ty = self.element();
        let text = self.combine.identity(ty.dtype()?).ok_or("has no identity")?;
        lanes.many(c, Val::One(c.constant(&text, ty)?))
    }
    /// What comes before, and what comes behind it, as one.
    fn two(&self, c: Code, a: Value, b: Value) -> Made<Value> {
        let attrs = self.combine.op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        c.op(&self.combine.op.name(), &[a, b], a.ty(), &attrs)
    }
    fn length(&self, c: Code) -> Made<Value> {
        self.scope.poly(c, &self.nest.extents[self.scan.axis])
    }
    /// Sizes of loops, the last of which is in vectors if that is said, and the product of all; 0 if the axis has no elements.
    fn sizes(&self, c: Code, dims: &[usize], vectors: bool) -> Made<(Vec<Value>, Value)> {
        let mut sizes: Vec<Value> = dims.iter().map(|d| self.scope.poly(c, &self.nest.extents[*d])).collect::<Made<_>>()?;
        if let Some(last) = sizes.last_mut().filter(|_| vectors) {
            *last = c.div(*last, c.index(self.lanes.count as i64)?)?;
        }
        let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        if self.nest.extents[self.scan.axis].known().is_some_and(|n| n > 0) {
            return Ok((sizes, total));
        }
        let some = c.below(c.index(0)?, self.length(c)?)?;
        Ok((sizes, c.select(some, total, c.index(0)?)?))
    }

    /// The thread's place in a part of the axis, of which each thread has `each` elements in one piece.
    fn piece(&self, c: Code, around: &Around, i: Value, even: bool) -> Made<Piece<'a>> {
        let axis = self.scan.axis;
        let (mut place, mut inside) = (i, None);
        if !even {
            let there = c.below(i, self.length(c)?)?;
            (place, inside) = (c.select(there, i, c.index(0)?)?, Some(there));
        }
        let along = if self.fast == axis && self.lanes.count > 1 { Val::Steps(place, 1) } else { Val::One(place) };
        let of = |d: usize| if d == axis { Some(along) } else { around.at.iter().find(|(e, _)| *e == d).map(|(_, i)| *i) };
        let dims = (0..self.nest.extents.len()).map(of).collect::<Option<_>>().ok_or("has a loop that is not there")?;
        let writes = c.both(&[inside, around.active].into_iter().flatten().collect::<Vec<_>>())?;
        Ok(Piece { dims, inside, scope: Scope { writes, ..self.scope.clone() }, known: Passed::new() })
    }

    /// What a piece reads.
    fn read(&self, c: Code, piece: &Piece<'_>) -> Made<Vec<Val>> {
        self.reads.iter().map(|a| self.scope.read(c, a, &piece.dims, self.lanes, &Passed::new())).collect()
    }

    /// What stands in front of the scan, and what a piece gives to it.
    fn take(&self, c: Code, piece: &mut Piece<'_>, read: &[Val]) -> Made<Value> {
        piece.known.extend(self.reads.iter().map(|a| (*a).clone()).zip(read.iter().copied()));
        let at = self.nest.stages.iter().position(|s| *s == self.scan.stage).unwrap_or(0);
        piece.scope.iteration(c, &self.nest.stages[..at], &piece.dims, self.lanes, &mut [], &mut piece.known)?;
        let v = piece.scope.part(c, self.stage, self.scan.value, &piece.dims, self.lanes, &piece.known)?;
        let v = self.lanes.many(c, v)?;
        match piece.inside {
            Some(inside) => c.select(inside, v, self.identity(c, self.lanes)?),
            None => Ok(v),
        }
    }

    /// Writes what a scan has for a piece, and does what stands behind it.
    fn give(&self, c: Code, piece: &mut Piece<'_>, v: Value) -> Made<()> {
        let v = if self.lanes.count == 1 { Val::One(v) } else { Val::Many(v) };
        piece.scope.write(c, self.out, &piece.dims, self.lanes, v, false)?;
        piece.known.insert(self.out.access.clone(), v);
        let at = self.nest.stages.iter().position(|s| *s == self.scan.stage).unwrap_or(0);
        piece.scope.iteration(c, &self.nest.stages[at + 1..], &piece.dims, self.lanes, &mut [], &mut piece.known)
    }

    /// The parts of an axis one after the other. `first`: where the thread's pieces begin in a part, `combine`: from the state, pieces and what they give to the next state.
    fn parts(
        &self,
        c: Code,
        around: &Around,
        first: &[Value],
        each: usize,
        state: &[Value],
        combine: &mut dyn FnMut(Code, &[Value], Vec<Piece<'a>>, Vec<Value>) -> Made<Vec<Value>>,
    ) -> Made<()> {
        let size = (self.across * self.pieces * each) as i64;
        let even = self.nest.extents[self.scan.axis].multiple_of(size);
        let (n, step) = (self.length(c)?, c.index(size)?);
        let at = |c: Code, start: Value| first.iter().map(|i| self.piece(c, around, c.add(start, *i)?, even)).collect::<Made<Vec<_>>>();
        let read = |c: Code, pieces: &[Piece<'_>]| pieces.iter().map(|p| self.read(c, p)).collect::<Made<Vec<_>>>();
        let value = |(Val::One(v) | Val::Many(v) | Val::Steps(v, _)): &Val| *v;
        let ahead = if self.ahead { read(c, &at(c, c.index(0)?)?)? } else { vec![] };
        let carried: Vec<Value> = state.iter().copied().chain(ahead.iter().flatten().map(value)).collect();
        c.each(c.index(0)?, n, size, &carried, &mut |c, start, carried| {
            let (state, known) = carried.split_at(state.len());
            let mut pieces = at(c, start)?;
            let (mut mine, mut next) = (vec![], vec![]);
            if self.ahead {
                let mut known = known.iter();
                for all in &ahead {
                    let again = |(old, v): (&Val, &Value)| if let Val::One(_) = old { Val::One(*v) } else { Val::Many(*v) };
                    mine.push(all.iter().zip(known.by_ref()).map(again).collect::<Vec<_>>());
                }
                // Behind the last part it is the last one again, or places of others.
                let mut then = c.add(start, step)?;
                if even {
                    then = c.select(c.below(then, n)?, then, start)?;
                }
                next = read(c, &at(c, then)?)?;
            } else {
                mine = read(c, &pieces)?;
            }
            let given = pieces.iter_mut().zip(&mine).map(|(p, read)| self.take(c, p, read)).collect::<Made<Vec<_>>>()?;
            let state = combine(c, state, pieces, given)?;
            Ok(state.into_iter().chain(next.iter().flatten().map(value)).collect())
        })
        .map(drop)
    }

    /// An axis that lies side by side.
    fn rows(&self, c: Code) -> Made<()> {
        let (across, count, axis) = (self.across, self.lanes.count, self.scan.axis);
        let (warps, width) = (across.div_ceil(WARP), across.min(WARP));
        if warps > 1 && self.pieces * warps > WARP {
            return Err(format!("has a schedule of a scan whose {} pieces of {warps} warps are more than {WARP}", self.pieces));
        }
        let group = Group::of(c, across, self.beside)?;
        let memory = if warps > 1 { Some(shared(c, self.element(), (2 * WARP * self.beside) as i64)?) } else { None };
        let dims: Vec<usize> = (0..self.nest.extents.len()).filter(|d| *d != axis).collect();
        let (sizes, total) = self.sizes(c, &dims, false)?;
        let mut first = vec![];
        for p in 0..self.pieces {
            first.push(c.add(c.mul(group.thread, c.index(count as i64)?)?, c.index((p * across * count) as i64)?)?);
        }
        group.rounds(c, self.beside, total, &mut |c, group, row| {
            let at = dims.iter().copied().zip(decode(c, row, &sizes)?.into_iter().map(Val::One)).collect();
            let around = Around { at, active: group.active };
            let mut state = vec![self.identity(c, ONE)?];
            if memory.is_some() {
                state.push(c.mul(group.number, c.index(2 * WARP as i64)?)?);
            }
            self.parts(c, &around, &first, count, &state, &mut |c, state, mut pieces, given| {
                let inner: Vec<Vec<Value>> = given.iter().map(|v| self.prefixes(c, *v)).collect::<Made<_>>()?;
                let last =
                    inner.iter().map(|all| all.last().copied().ok_or_else(|| "has no lanes".to_string())).collect::<Made<Vec<_>>>()?;
                let all = self.warp(c, last, width)?;
                let lower = all.iter().map(|v| self.without(c, *v, width)).collect::<Made<Vec<_>>>()?;
                let (starts, state) = match memory {
                    Some(memory) => self.block(c, state, &all, memory, &group, warps)?,
                    None => {
                        let (mut sum, mut starts) = (state[0], vec![]);
                        for v in &all {
                            starts.push(sum);
                            let last = if width > 1 { team::of_lane(c, *v, width - 1, width)? } else { *v };
                            sum = self.two(c, sum, last)?;
                        }
                        (starts, vec![sum])
                    }
                };
                for (n, piece) in pieces.iter_mut().enumerate() {
                    let start = self.two(c, starts[n], lower[n])?;
                    let at = |i: usize| match (self.scan.before, i) {
                        (true, 0) => Ok(start),
                        (true, i) => self.two(c, start, inner[n][i - 1]),
                        (false, i) => self.two(c, start, inner[n][i]),
                    };
                    let lanes = (0..count).map(at).collect::<Made<Vec<_>>>()?;
                    let v = match lanes[..] {
                        [v] => v,
                        _ => c.op("vector.from_elements", &lanes, Type::vector(self.element(), count), &[])?,
                    };
                    self.give(c, piece, v)?;
                }
                Ok(state)
            })?;
            // The next row's first part has the place that this one's last may have.
            if memory.is_some() { team::barrier(c) } else { Ok(()) }
        })
    }

    /// Each lane of a piece with all before it.
    fn prefixes(&self, c: Code, v: Value) -> Made<Vec<Value>> {
        if self.lanes.count == 1 {
            return Ok(vec![v]);
        }
        let mut all: Vec<Value> = vec![];
        for i in 0..self.lanes.count {
            let one = part(c, v, i)?;
            all.push(all.last().map_or(Ok(one), |before| self.two(c, *before, one))?);
        }
        Ok(all)
    }

    /// Each thread's value with those of all threads before it, of so many; of several values, side by side.
    fn warp(&self, c: Code, mut all: Vec<Value>, width: usize) -> Made<Vec<Value>> {
        let mut by = 1;
        while by < width {
            for v in &mut all {
                let [other, there] = team::before(c, *v, by, width)?;
                *v = c.select(there, self.two(c, other, *v)?, *v)?;
            }
            by *= 2;
        }
        Ok(all)
    }

    /// What the thread before has.
    fn without(&self, c: Code, v: Value, width: usize) -> Made<Value> {
        let nothing = self.identity(c, ONE)?;
        if width == 1 {
            return Ok(nothing);
        }
        let [other, there] = team::before(c, v, 1, width)?;
        c.select(there, other, nothing)
    }

    /// What comes before each piece of a warp, from what each warp's last thread has of each; and the next state.
    fn block(&self, c: Code, state: &[Value], all: &[Value], memory: Value, group: &Group, warps: usize) -> Made<(Vec<Value>, Vec<Value>)> {
        let (sum, place, count) = (state[0], state[1], self.pieces * warps);
        let wide = c.index(WARP as i64)?;
        let (lane, warp) = (c.rem(group.thread, wide)?, c.div(group.thread, wide)?);
        let mine = c.add(place, warp)?;
        let last = c.compare(0, lane, c.index(WARP as i64 - 1)?)?;
        let mut give = |c: Code| -> Made<()> {
            let at = |p: usize| c.add(mine, c.index((p * warps) as i64)?);
            all.iter().enumerate().try_for_each(|(p, v)| c.effect("memref.store", &[*v, memory, at(p)?], &[]))
        };
        c.when(last, &mut give, None)?;
        team::barrier(c)?;
        let there = if count < WARP { Some(c.below(lane, c.index(count as i64)?)?) } else { None };
        let from = there.map_or(Ok(lane), |there| c.select(there, lane, c.index(0)?))?;
        let mut v = c.op("memref.load", &[memory, c.add(place, from)?], self.element(), &[])?;
        if let Some(there) = there {
            v = c.select(there, v, self.identity(c, ONE)?)?;
        }
        let v = self.warp(c, vec![v], count.next_power_of_two())?.remove(0);
        let lower = self.without(c, v, WARP)?;
        let start = |p: usize| self.two(c, sum, team::of_any(c, lower, c.add(warp, c.index((p * warps) as i64)?)?)?);
        let starts = (0..self.pieces).map(start).collect::<Made<_>>()?;
        let sum = self.two(c, sum, team::of_lane(c, v, count - 1, WARP)?)?;
        // The two places of a group differ in one bit.
        Ok((starts, vec![sum, c.op("arith.xori", &[place, wide], place.ty(), &[])?]))
    }

    /// An axis whose elements others lie between.
    fn columns(&self, c: Code) -> Made<()> {
        let (across, beside, count) = (self.across, self.beside, self.lanes.count);
        let (thread, side) = (team::thread(c)?, c.index(beside as i64)?);
        let (column, part) = (c.rem(thread, side)?, c.div(thread, side)?);
        let places = across * beside * count;
        let memory = if across > 1 { Some(shared(c, self.element(), 2 * places as i64)?) } else { None };
        let mut dims: Vec<usize> = (0..self.nest.extents.len()).filter(|d| *d != self.scan.axis && *d != self.fast).collect();
        dims.push(self.fast);
        let (sizes, total) = self.sizes(c, &dims, true)?;
        let own = c.mul(part, c.index(self.pieces as i64)?)?;
        let first = (0..self.pieces).map(|p| c.add(own, c.index(p as i64)?)).collect::<Made<Vec<_>>>()?;
        let (start, step) = (c.mul(team::block(c)?, side)?, c.mul(team::blocks(c)?, side)?);
        let val = |i: Value| if count == 1 { Val::One(i) } else { Val::Steps(i, 1) };
        // All threads of a block go round equally often, so that all come to each barrier.
        c.strided(start, total, step, &[], &mut |c, base, _| {
            let item = c.add(base, column)?;
            let active = c.below(item, total)?;
            let mut at = decode(c, c.select(active, item, base)?, &sizes)?;
            let last = c.mul(at.pop().ok_or("has no columns")?, c.index(count as i64)?)?;
            let mut at: Vec<(usize, Val)> = dims.iter().copied().zip(at.into_iter().map(Val::One)).collect();
            at.push((self.fast, val(last)));
            let mut state = vec![self.identity(c, self.lanes)?];
            if memory.is_some() {
                state.push(c.index(0)?);
            }
            self.parts(c, &Around { at, active: Some(active) }, &first, 1, &state, &mut |c, state, mut pieces, given| {
                let mut all: Vec<Value> = vec![];
                for v in &given {
                    // A thread that has the axis alone goes on from what came before.
                    let before = all.last().copied().or(if across == 1 { Some(state[0]) } else { None });
                    all.push(before.map_or(Ok(*v), |before| self.two(c, before, *v))?);
                }
                let (own, carried) = (*all.last().ok_or("has no pieces")?, state[0]);
                let (start, state) = match memory {
                    None => (None, vec![own]),
                    Some(memory) => {
                        let place = |c: Code, from: Value, thread: Value| c.mul(c.add(from, thread)?, c.index(count as i64)?).map(val);
                        let many = if count == 1 { Val::One(own) } else { Val::Many(own) };
                        self.lanes.store(c, memory, place(c, state[1], thread)?, many, false)?;
                        team::barrier(c)?;
                        let (mut start, mut sum) = (state[0], state[0]);
                        for other in 0..across {
                            let at = place(c, state[1], c.add(column, c.index((other * beside) as i64)?)?)?;
                            let v = self.lanes.load(c, memory, at)?;
                            sum = self.two(c, sum, self.lanes.many(c, v)?)?;
                            if other + 1 < across {
                                start = c.select(c.below(c.index(other as i64)?, part)?, sum, start)?;
                            }
                        }
                        (Some(start), vec![sum, c.op("arith.xori", &[state[1], c.index((across * beside) as i64)?], side.ty(), &[])?])
                    }
                };
                for (n, piece) in pieces.iter_mut().enumerate() {
                    let mine = if self.scan.before { n.checked_sub(1).map(|n| all[n]) } else { Some(all[n]) };
                    let v = match (start, mine) {
                        (Some(start), Some(mine)) => self.two(c, start, mine)?,
                        (Some(start), None) => start,
                        (None, Some(mine)) => mine,
                        (None, None) => carried,
                    };
                    self.give(c, piece, v)?;
                }
                Ok(state)
            })?;
            // The next columns' first part has the place that this one's last may have.
            if memory.is_some() {
                team::barrier(c)?
            }
            Ok(vec![])
        })
        .map(drop)
    }
}
