//! A reduction that a group of threads shares: each a part, then shuffles.
use super::team::Group;
use crate::{
    emit::{
        body::{Passed, Scope},
        code::{Code, Made},
        lanes::{Lanes, Val},
        loops::{Fixed, Loops, decode, reducing},
    },
    gpu::gpu_schedule::{fast_dim, width},
    kernel::{Nest, Output, Plan},
};
use kiln_dialects::ir::*;

/// Whether all of them have partial results that combine.
pub fn possible(scope: &Scope<'_>, nest: &Nest) -> bool {
    let identity = |o: &Output| o.combine.as_ref().and_then(|c| c.identity(c.op.result(0).ty().dtype().ok()?)).is_some();
    nest.reduction.contains(&true) && nest.split.is_none() && reducing(scope, nest).all(identity)
}

/// What is the same for all nests of a row.
pub struct Row<'a> {
    /// What code refers to.
    pub scope: &'a Scope<'a>,
    /// The kernel's nests.
    pub plan: &'a Plan,
    /// The threads.
    pub group: Group,
    /// Most elements of one access.
    pub most: usize,
    /// Accesses that a thread has under way at once.
    pub pieces: usize,
}

/// All reduction dimensions of a nest whose parallel ones are fixed, then what follows on the results, by the group's first thread.
/// `exchange`: memory for each output.
pub fn reduce(c: Code, row: &Row<'_>, nest: &Nest, fixed: &Fixed, exchange: &[Option<Value>]) -> Made<()> {
    let Row { scope, plan, group, most, pieces } = row;
    let depth: Vec<usize> = (0..nest.extents.len()).filter(|d| nest.reduction[*d]).collect();
    let fast = fast_dim(scope.kernel, plan, nest, &depth).ok_or("has nothing to reduce")?;
    let length = nest.extents[fast].known();
    let mut lanes = width(scope.kernel, plan, nest, fast).min((*most).max(1));
    while lanes > 1 && length.is_none_or(|n| n % lanes as i64 != 0) {
        lanes /= 2;
    }
    let outer: Vec<usize> = depth.into_iter().filter(|d| *d != fast).collect();
    let wide = c.index(lanes as i64)?;
    let mut sizes: Vec<Value> = outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Made<_>>()?;
    sizes.push(c.div(scope.poly(c, &nest.extents[fast])?, wide)?);
    let mut total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    if let Some(active) = group.active {
        total = c.select(active, total, c.index(0)?)?;
    }
    let loops = Loops { scope, nest, vector: Some(fast), lanes, unroll: 1 };
    let each = Lanes { count: lanes, mask: None };
    let running: Vec<Value> = reducing(scope, nest).map(|o| identity(c, o, lanes)).collect::<Made<_>>()?;
    let step = c.index(group.size as i64)?;
    let parts = c.unrolled(group.thread, total, step, *pieces, &running, &mut |c, i, running| {
        let mut fixed = fixed.clone();
        let at = decode(c, i, &sizes)?;
        outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let start = c.mul(*at.last().ok_or("has no loops")?, wide)?;
        let dims = loops.dims(c, &fixed, Some(loops.lane(c, start, 0)?))?;
        let mut running = running.to_vec();
        scope.iteration(c, &nest.stages, &dims, each, &mut running, &mut Passed::new())?;
        Ok(running)
    })?;
    let dims = loops.dims(c, fixed, None)?;
    let ending = Ending { scope, group: *group, lanes, dims: &dims, passed: &Passed::new() };
    let all = reducing(scope, nest).zip(parts).zip(exchange);
    let results: Vec<Value> = all.map(|((o, part), memory)| ending.result(c, o, part, *memory)).collect::<Made<_>>()?;
    let one = Lanes { count: 1, mask: None };
    match group.speaks(c)? {
        Some(speaks) => c.when(speaks, &mut |c| loops.finish(c, &dims, one, &results), None),
        None => loops.finish(c, &dims, one, &results),
    }
}

/// What an output starts from: the value that changes nothing, in each lane.
pub fn identity(c: Code, o: &Output, lanes: usize) -> Made<Value> {
    let combine = o.combine.as_ref().ok_or("cannot be reduced in parts")?;
    let ty = combine.op.result(0).ty();
    let identity = combine.identity(ty.dtype()?).ok_or("has no identity")?;
    match lanes {
        1 => c.constant(&identity, ty),
        _ => c.constant(&format!("dense<{identity}>"), Type::vector(ty, lanes)),
    }
}

/// Two partial results, scalars or vectors, as one.
pub fn combined(c: Code, o: &Output, a: Value, b: Value) -> Made<Value> {
    let op = o.combine.as_ref().ok_or("cannot be reduced in parts")?.op;
    let attrs = op.attrs();
    let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    c.op(&op.name(), &[a, b], a.ty(), &attrs)
}

/// What turns the parts that threads have into finished values.
pub struct Ending<'a> {
    /// What code refers to.
    pub scope: &'a Scope<'a>,
    /// The threads.
    pub group: Group,
    /// Elements of a part.
    pub lanes: usize,
    /// The loop dimensions of the results.
    pub dims: &'a [Val],
    /// What is known already.
    pub passed: &'a Passed,
}

impl Ending<'_> {
    /// The value of an output, the same in all threads of the group. `memory`: a place for each warp of the block.
    pub fn result(&self, c: Code, o: &Output, part: Value, memory: Option<Value>) -> Made<Value> {
        let mut values = match self.lanes {
            1 => vec![part],
            lanes => (0..lanes).map(|i| extract(c, part, i)).collect::<Made<_>>()?,
        };
        while values.len() > 1 {
            values = values.chunks(2).map(|p| if let [a, b] = p { combined(c, o, *a, *b) } else { Ok(p[0]) }).collect::<Made<_>>()?;
        }
        let value = self.group.all(c, values[0], memory, &|a, b| combined(c, o, a, b))?;
        match self.scope.start(c, &o.init, self.dims, Lanes { count: 1, mask: None }, self.passed)? {
            Some(Val::One(init)) => combined(c, o, init, value),
            _ => Ok(value),
        }
    }
}

fn extract(c: Code, v: Value, i: usize) -> Made<Value> {
    let element = v.ty().element().ok_or("is no vector")?;
    c.op("vector.extract", &[v], element, &[("static_position", Attr::i64s(c.ctx(), &[i as i64]))])
}
