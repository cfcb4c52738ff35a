//! Rows in registers: a group of threads loads its row once, in vector accesses. Every element
//! stays in the thread that loaded it, from nest to nest; only results of reductions are exchanged.
use crate::{
    analysis::{Access, Nest, NestPlan, Role},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{decode, reducing},
        partials,
    },
    strategies::gpu::{
        common::{
            cluster::RowCluster,
            cooperative::FinalReduction,
            ptx::Ptx,
            threads::{self, ThreadGroup},
        },
        register_rows::{self, Params},
        rows::emit::exchanges,
    },
};
use kiln_dialects::ir::*;

const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// Emits all nests of a kernel whose rows fit registers.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &NestPlan, params: &Params) -> Result<()> {
    let row_sizes = register_rows::sizes(scope.kernel, plan)
        .ok_or("has no rows of one known size that its stages share")?;
    let length = row_sizes.iter().product::<usize>();
    let (size, groups) = (params.row_threads, params.rows_per_cta);
    let (lanes, count) = (params.vector, params.unroll);
    let widest = register_rows::lanes(scope.kernel, plan, &row_sizes);
    if lanes > widest {
        return Err(format!(
            "has a schedule whose vector is {lanes}, but its rows can be read {widest} at a time"
        )
        .into());
    }
    if params.cluster * size * count * lanes < length {
        return Err(format!(
            "has a schedule whose cluster * row_threads * unroll * vector is less than the {length} elements of its rows"
        ).into());
    }
    let group = ThreadGroup::of(c, size, groups)?;
    let exchange: Vec<_> =
        plan.nests.iter().map(|n| exchanges(c, scope, n, size, groups)).collect::<Result<_>>()?;
    let barriers = exchange.iter().filter(|all| all.iter().any(Option::is_some)).count();
    let first = plan.nests.first().ok_or("does nothing")?;
    let sizes: Vec<Value> =
        first.extents[..plan.rows].iter().map(|e| scope.poly(c, e)).collect::<Result<_>>()?;
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let mut each = |c: Code, group: ThreadGroup, row: Value| -> Result<()> {
        let at: Vec<LaneValue> =
            decode(c, row, &sizes)?.into_iter().map(LaneValue::Uniform).collect();
        let elected = Scope { store_predicate: group.elected(c)?, ..scope.clone() };
        let share = RowShare::of(c, &group)?;
        let pieces = (0..count)
            .map(|p| RowChunk::of(c, scope, &share, (p, lanes), &row_sizes))
            .collect::<Result<_>>()?;
        let mut row = RegisterRow {
            plan,
            group,
            elected,
            at,
            lanes: Lanes { count: lanes, mask: None },
            chunks: pieces,
            uniform: ForwardedElements::new(),
        };
        let cluster = group.cluster.filter(|_| exchange.iter().any(|all| !all.is_empty()));
        // The other CTAs have started, and have read what the last row left.
        cluster.iter().try_for_each(|_| Ptx(c).cluster_arrive())?;
        let (mut values, mut waits) = (0, cluster.is_some());
        for (nest, exchange) in plan.nests.iter().zip(&exchange) {
            row.group.cluster = cluster.map(|all| all.after(Ptx(c), values)).transpose()?;
            row.nest(c, nest, exchange, &mut waits)?;
            values += exchange.len();
        }
        // With one exchange buffer, the next row's writes could race with this row's reads. With
        // two, a barrier of the other lies between.
        if barriers == 1 { threads::barrier(c) } else { Ok(()) }
    };
    if params.cluster == 1 {
        return group.for_each_row(c, groups, total, &mut each);
    }
    let (p, wide) = (Ptx(c), c.index(params.cluster as i64)?);
    let block = threads::block_id(c)?;
    let (rank, slots) =
        (p.index_to_i32(c.rem(block, wide)?)?, p.dynamic_shared(scope.kernel.func)?);
    let cluster = Some(RowCluster { count: params.cluster, rank, slots });
    let step = c.div(threads::grid_dim(c)?, wide)?;
    c.for_dynamic_step(c.div(block, wide)?, total, step, &[], &mut |c, row, _| {
        each(c, ThreadGroup { cluster, ..group }, row).map(|()| vec![])
    })
    .map(drop)
}

/// A thread's place among all that share a row.
struct RowShare {
    thread: Value,
    threads: usize,
    active: Option<Value>,
}

impl RowShare {
    fn of(c: Code, group: &ThreadGroup) -> Result<RowShare> {
        let (mut thread, mut threads) = (group.thread, group.size);
        if let Some(all) = group.cluster {
            let before = c.mul(Ptx(c).i32_to_index(all.rank)?, c.index(group.size as i64)?)?;
            (thread, threads) = (c.add(before, thread)?, threads * all.count);
        }
        Ok(RowShare { thread, threads, active: group.active })
    }
}

/// Contiguous elements of a row that a thread holds.
struct RowChunk<'a> {
    /// Indices of the first; those of the row's first where the row has ended.
    start: Vec<LaneValue>,
    /// Predicate: whether the row has them; `None` if it always has.
    inside: Option<Value>,
    /// The scope with the predicate of their stores.
    scope: Scope<'a>,
    forwarded: ForwardedElements,
}

impl<'a> RowChunk<'a> {
    fn of(
        c: Code,
        scope: &Scope<'a>,
        share: &RowShare,
        (number, lanes): (usize, usize),
        sizes: &[usize],
    ) -> Result<RowChunk<'a>> {
        let (before, length) = (number * share.threads * lanes, sizes.iter().product::<usize>());
        let mut start =
            c.add(c.mul(share.thread, c.index(lanes as i64)?)?, c.index(before as i64)?)?;
        let mut inside = None;
        if before + share.threads * lanes > length {
            let condition = c.less_than(start, c.index(length as i64)?)?;
            start = c.select(condition, start, c.index(0)?)?;
            inside = Some(condition);
        }
        let writes = c.all_of(&[inside, share.active].into_iter().flatten().collect::<Vec<_>>())?;
        let along: Vec<Value> = sizes.iter().map(|n| c.index(*n as i64)).collect::<Result<_>>()?;
        let at = if sizes.len() == 1 { vec![start] } else { decode(c, start, &along)? };
        let mut start: Vec<LaneValue> = at.into_iter().map(LaneValue::Uniform).collect();
        if let (Some(LaneValue::Uniform(last)), true) = (start.last().cloned(), lanes > 1) {
            start.pop();
            start.push(LaneValue::Strided(last, 1));
        }
        Ok(RowChunk {
            start,
            inside,
            scope: Scope { store_predicate: writes, ..scope.clone() },
            forwarded: ForwardedElements::new(),
        })
    }
}

/// State of a group's row across the nests.
struct RegisterRow<'a> {
    plan: &'a NestPlan,
    group: ThreadGroup,
    /// The scope in which only the group's first thread stores.
    elected: Scope<'a>,
    /// Indices of the row.
    at: Vec<LaneValue>,
    lanes: Lanes,
    chunks: Vec<RowChunk<'a>>,
    /// Values that are uniform over the row.
    uniform: ForwardedElements,
}

impl RegisterRow<'_> {
    /// `waits`: whether the cluster barrier is still to be waited for.
    fn nest(
        &mut self,
        c: Code,
        nest: &Nest,
        exchange: &[Option<Value>],
        waits: &mut bool,
    ) -> Result<()> {
        if nest.extents.len() == self.plan.rows {
            return self.elected.iteration(
                c,
                &nest.stages,
                &self.at,
                ONE_LANE,
                &mut [],
                &mut self.uniform,
            );
        }
        let scope = &self.elected;
        let mut running = partials::identities(c, scope, nest, self.lanes.count)?;
        let inputs = inputs(self.plan, scope, nest);
        let together = (LOAD_BYTES / (inputs.bytes * self.lanes.count).max(1)).max(1);
        for n in 0..self.chunks.len() {
            if n % together == 0 {
                let end = (n + together).min(self.chunks.len());
                load(c, scope, &inputs.all, &self.at, self.lanes, &mut self.chunks[n..end])?;
            }
            let piece = &mut self.chunks[n];
            let dims = [self.at.as_slice(), &piece.start].concat();
            piece.forwarded.extend(self.uniform.iter().map(|(a, v)| (a.clone(), *v)));
            let old = running.clone();
            piece.scope.iteration(
                c,
                &nest.stages,
                &dims,
                self.lanes,
                &mut running,
                &mut piece.forwarded,
            )?;
            for (new, old) in running.iter_mut().zip(old) {
                *new = piece.inside.map_or(Ok(*new), |inside| c.select(inside, *new, old))?;
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        if std::mem::take(waits) {
            Ptx(c).cluster_wait()?;
        }
        let mut dims = self.at.clone();
        dims.resize(nest.extents.len(), LaneValue::Uniform(c.index(0)?));
        let ending = FinalReduction {
            scope,
            group: self.group,
            lanes: self.lanes.count,
            dims: &dims,
            forwarded: &self.uniform,
        };
        let results = ending.results(c, nest, &running, exchange)?;
        for (o, v) in reducing(scope, nest).zip(results.into_iter().map(LaneValue::Uniform)) {
            scope.write(c, o, &dims, ONE_LANE, v, false)?;
            self.uniform.insert(o.access.clone(), v);
        }
        scope.iteration(c, &nest.after, &dims, ONE_LANE, &mut [], &mut self.uniform)
    }
}

/// Bytes of a row that a thread loads before the arithmetic on them.
const LOAD_BYTES: usize = 128;

/// The reads of a row in which a nest may be the first.
struct Inputs<'a> {
    all: Vec<&'a Access>,
    /// Bytes of an element of all of them.
    bytes: usize,
}

/// Operands shared by all rows, such as weights, hit the cache and need not occupy registers early.
fn inputs<'a>(plan: &NestPlan, scope: &'a Scope<'_>, nest: &Nest) -> Inputs<'a> {
    let own = |a: &Access| {
        (plan.rows..nest.extents.len()).any(|d| a.at.uses(d))
            && (plan.rows == 0 || (0..plan.rows).any(|d| a.at.uses(d)))
    };
    let input = |a: &&Access| {
        matches!(scope.kernel.buffers.get(a.buffer).map(|b| b.role), Some(Role::Input(_))) && own(a)
    };
    let stages = nest.stages.iter().filter_map(|s| scope.kernel.stages.get(*s));
    let mut all: Vec<&Access> = vec![];
    for a in stages.flat_map(|s| s.reads()).filter(input) {
        if !all.contains(&a) {
            all.push(a);
        }
    }
    let element = |a: &&Access| {
        let dtype = scope.kernel.buffers.get(a.buffer).and_then(|b| b.element.dtype().ok());
        dtype.map_or(8, |d| d.byte_size())
    };
    Inputs { bytes: all.iter().map(element).sum(), all }
}

/// Issues the loads of some chunks of a row before the arithmetic on them, so that they are in flight
/// together.
fn load(
    c: Code,
    scope: &Scope<'_>,
    inputs: &[&Access],
    row: &[LaneValue],
    lanes: Lanes,
    chunks: &mut [RowChunk<'_>],
) -> Result<()> {
    for a in inputs {
        for piece in &mut *chunks {
            let dims = [row, &piece.start].concat();
            if !piece.forwarded.contains_key(a) {
                let v = scope.read(c, a, &dims, lanes, &ForwardedElements::new())?;
                piece.forwarded.insert((*a).clone(), v);
            }
        }
    }
    Ok(())
}
