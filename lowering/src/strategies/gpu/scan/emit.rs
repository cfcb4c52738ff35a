//! Code of scans. Each thread of a row or column scans its own elements; the threads exchange
//! totals and carry the running value to the next step.
//!
//! Along a contiguous row a thread has `chunks` vectors of `vector` elements. Neighbouring lanes
//! take neighbouring vectors, so that accesses are coalesced. Shuffles scan each vector across the
//! warp, warps store the totals in shared memory, and each warp scans the totals of all.
//!
//! Down columns a thread has `chunks` consecutive rows, and combines the totals of the threads
//! above. The exchange is double-buffered, so that a step takes one barrier.

use crate::{
    analysis::{Access, Combine, Nest, NestPlan, Output, Stage},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::scan::{self, Params, ScanLoop},
};
use kiln_dialects::ir::*;

pub(crate) const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// What all parts of the emission share.
pub(crate) struct ScanEmitter<'a> {
    scope: &'a Scope<'a>,
    pub(crate) nest: &'a Nest,
    pub(crate) scan: ScanLoop,
    stage: &'a Stage,
    out: &'a Output,
    combine: &'a Combine,
    pub(crate) lanes: Lanes,
    /// The dimension of vector accesses.
    pub(crate) fast: usize,
    pub(crate) across: usize,
    pub(crate) beside: usize,
    pub(crate) chunks: usize,
    prefetch: bool,
    /// Loads of the kernel's arguments that depend on the axis.
    reads: Vec<&'a Access>,
}

/// Contiguous elements that a thread has at one position.
pub(crate) struct ScanChunk<'a> {
    pub(crate) dims: Vec<LaneValue>,
    /// Predicate: whether they exist; `None` if always. If not, the position is clamped.
    pub(crate) inside: Option<Value>,
    /// The scope with the predicate of their stores.
    pub(crate) scope: Scope<'a>,
    pub(crate) forwarded: ForwardedElements,
}

/// The loops around the axis: their indices, and the predicate of the thread's stores.
pub(crate) struct OuterPosition {
    pub(crate) at: Vec<(usize, LaneValue)>,
    pub(crate) active: Option<Value>,
}

/// Body of a step: maps state, pieces and the pieces' scan inputs to the next state.
type Combined<'f, 'a> =
    dyn FnMut(Code, &[Value], Vec<ScanChunk<'a>>, Vec<Value>) -> Result<Vec<Value>> + 'f;

/// Emits the kernel.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &NestPlan, params: &Params) -> Result<()> {
    let k = scope.kernel;
    let missing = "has a schedule for scans, but is none";
    let (scan, nest) = scan::scan(k, plan).zip(plan.nests.first()).ok_or(missing)?;
    let stage = k.stages.get(scan.stage).ok_or(missing)?;
    let out = stage.outputs.first().ok_or(missing)?;
    let (fast, widest) = scan::lanes(k, plan, nest).ok_or(missing)?;
    let count = params.vector;
    if count > widest {
        return Err(format!(
            "has a schedule whose vector is {count}, but its elements can be read {widest} at a time"
        ).into());
    }
    let linear_scan = ScanEmitter {
        scope,
        nest,
        scan,
        stage,
        out,
        combine: out.combine.as_ref().ok_or(missing)?,
        lanes: Lanes { count, mask: None },
        fast,
        across: params.row_threads,
        beside: params.rows_per_cta,
        chunks: params.items,
        prefetch: params.prefetch,
        reads: scan::reads(k, nest, scan.axis),
    };
    if fast == scan.axis { linear_scan.rows(c) } else { linear_scan.columns(c) }
}

impl<'a> ScanEmitter<'a> {
    pub(crate) fn element(&self) -> Type {
        self.combine.op.result(0).ty()
    }
    /// The identity of the combination, in every lane.
    pub(crate) fn identity(&self, c: Code, lanes: Lanes) -> Result<Value> {
        let identity = self.combine.identity().ok_or("has no identity")?;
        lanes.vector(c, LaneValue::Uniform(arith::constant(c, identity)?))
    }
    /// Combines `a` with `b`, which comes after it.
    pub(crate) fn combine_two(&self, c: Code, a: Value, b: Value) -> Result<Value> {
        let attrs = self.combine.op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        c.op(&self.combine.op.name(), &[a, b], a.ty(), &attrs)
    }
    fn length(&self, c: Code) -> Result<Value> {
        self.scope.poly(c, &self.nest.extents[self.scan.axis])
    }
    /// Extents of loops, the last one in vectors if requested, and their product; 0 if the axis is
    /// empty.
    pub(crate) fn sizes(
        &self,
        c: Code,
        dims: &[usize],
        vectors: bool,
    ) -> Result<(Vec<Value>, Value)> {
        let mut sizes: Vec<Value> = dims
            .iter()
            .map(|d| self.scope.poly(c, &self.nest.extents[*d]))
            .collect::<Result<_>>()?;
        if let Some(last) = sizes.last_mut().filter(|_| vectors) {
            *last = c.div(*last, c.index(self.lanes.count as i64)?)?;
        }
        let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        if self.nest.extents[self.scan.axis].known().is_some_and(|n| n > 0) {
            return Ok((sizes, total));
        }
        let some = c.less_than(c.index(0)?, self.length(c)?)?;
        Ok((sizes, c.select(some, total, c.index(0)?)?))
    }

    /// The thread's piece at index `i` of the axis. `even`: whether all steps are whole.
    fn chunk(
        &self,
        c: Code,
        around: &OuterPosition,
        i: Value,
        even: bool,
    ) -> Result<ScanChunk<'a>> {
        let axis = self.scan.axis;
        let (mut place, mut inside) = (i, None);
        if !even {
            let there = c.less_than(i, self.length(c)?)?;
            (place, inside) = (c.select(there, i, c.index(0)?)?, Some(there));
        }
        let along = if self.fast == axis && self.lanes.count > 1 {
            LaneValue::Strided(place, 1)
        } else {
            LaneValue::Uniform(place)
        };
        let of = |d: usize| {
            if d == axis {
                Some(along)
            } else {
                around.at.iter().find(|(e, _)| *e == d).map(|(_, i)| *i)
            }
        };
        let dims = (0..self.nest.extents.len())
            .map(of)
            .collect::<Option<_>>()
            .ok_or("has a loop that is not there")?;
        let writes =
            c.all_of(&[inside, around.active].into_iter().flatten().collect::<Vec<_>>())?;
        Ok(ScanChunk {
            dims,
            inside,
            scope: Scope { store_predicate: writes, ..self.scope.clone() },
            forwarded: ForwardedElements::new(),
        })
    }

    /// Loads of a piece.
    fn read(&self, c: Code, piece: &ScanChunk<'_>) -> Result<Vec<LaneValue>> {
        self.reads
            .iter()
            .map(|a| self.scope.read(c, a, &piece.dims, self.lanes, &ForwardedElements::new()))
            .collect()
    }

    /// Runs the prologue stages on a piece and returns its scan inputs; identity beyond the axis.
    fn prologue(&self, c: Code, piece: &mut ScanChunk<'_>, read: &[LaneValue]) -> Result<Value> {
        piece.forwarded.extend(self.reads.iter().map(|a| (*a).clone()).zip(read.iter().copied()));
        let at = self.nest.stages.iter().position(|s| *s == self.scan.stage).unwrap_or(0);
        piece.scope.iteration(
            c,
            &self.nest.stages[..at],
            &piece.dims,
            self.lanes,
            &mut [],
            &mut piece.forwarded,
        )?;
        let v = piece.scope.body_value(
            c,
            self.stage,
            self.scan.value,
            &piece.dims,
            self.lanes,
            &piece.forwarded,
        )?;
        let v = self.lanes.vector(c, v)?;
        match piece.inside {
            Some(inside) => c.select(inside, v, self.identity(c, self.lanes)?),
            None => Ok(v),
        }
    }

    /// Stores the scan's result for a piece and runs the epilogue stages.
    pub(crate) fn epilogue(&self, c: Code, piece: &mut ScanChunk<'_>, v: Value) -> Result<()> {
        let v = if self.lanes.count == 1 { LaneValue::Uniform(v) } else { LaneValue::Vector(v) };
        piece.scope.write(c, self.out, &piece.dims, self.lanes, v, false)?;
        piece.forwarded.insert(self.out.access.clone(), v);
        let at = self.nest.stages.iter().position(|s| *s == self.scan.stage).unwrap_or(0);
        piece.scope.iteration(
            c,
            &self.nest.stages[at + 1..],
            &piece.dims,
            self.lanes,
            &mut [],
            &mut piece.forwarded,
        )
    }

    /// The steps of an axis, one after the other. `first`: where the thread's pieces begin within a
    /// step.
    pub(crate) fn for_each_step(
        &self,
        c: Code,
        around: &OuterPosition,
        first: &[Value],
        each: usize,
        state: &[Value],
        combine: &mut Combined<'_, 'a>,
    ) -> Result<()> {
        let size = (self.across * self.chunks * each) as i64;
        let even = self.nest.extents[self.scan.axis].multiple_of(size);
        let (n, step) = (self.length(c)?, c.index(size)?);
        let at = |c: Code, start: Value| {
            first
                .iter()
                .map(|i| self.chunk(c, around, c.add(start, *i)?, even))
                .collect::<Result<Vec<_>>>()
        };
        let read = |c: Code, pieces: &[ScanChunk<'_>]| {
            pieces.iter().map(|p| self.read(c, p)).collect::<Result<Vec<_>>>()
        };
        let value =
            |(LaneValue::Uniform(v) | LaneValue::Vector(v) | LaneValue::Strided(v, _)): &LaneValue| *v;
        let ahead = if self.prefetch { read(c, &at(c, c.index(0)?)?)? } else { vec![] };
        let carried: Vec<Value> =
            state.iter().copied().chain(ahead.iter().flatten().map(value)).collect();
        c.for_loop(c.index(0)?, n, size, &carried, &mut |c, start, carried| {
            let (state, known) = carried.split_at(state.len());
            let mut pieces = at(c, start)?;
            let (mut mine, mut next) = (vec![], vec![]);
            if self.prefetch {
                let mut known = known.iter();
                for all in &ahead {
                    let again = |(old, v): (&LaneValue, &Value)| {
                        if let LaneValue::Uniform(_) = old {
                            LaneValue::Uniform(*v)
                        } else {
                            LaneValue::Vector(*v)
                        }
                    };
                    mine.push(all.iter().zip(known.by_ref()).map(again).collect::<Vec<_>>());
                }
                // The prefetch past the last step is the last step again, or clamped positions.
                let mut then = c.add(start, step)?;
                if even {
                    then = c.select(c.less_than(then, n)?, then, start)?;
                }
                next = read(c, &at(c, then)?)?;
            } else {
                mine = read(c, &pieces)?;
            }
            let given = pieces
                .iter_mut()
                .zip(&mine)
                .map(|(p, read)| self.prologue(c, p, read))
                .collect::<Result<Vec<_>>>()?;
            let state = combine(c, state, pieces, given)?;
            Ok(state.into_iter().chain(next.iter().flatten().map(value)).collect())
        })
        .map(drop)
    }
}
