//! Attention on Hopper's tensor cores: which kernels are one, what queries, keys and values are to
//! the copy engine, sizes of blocks.
pub(crate) mod emit;
pub(crate) mod epilogue;
pub(crate) mod pipeline;

use crate::{
    analysis::{self, Attention, Body, Kernel, Poly, Stage},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            split_attention,
            wgmma_gemm::{self, Operand, SHARED, tiles::PROCESSORS},
        },
    },
    target::launch::{GRID, SHARED_BYTES, TENSOR_MAPS, THREADS},
};
use kiln_dialects::{ir::*, value::DType};

/// Queries of a group of four warps.
pub const ROWS: usize = 64;
/// Most elements of a query and of a value: beyond that sums do not fit into registers.
const HEAD: i64 = 256;
/// From so many blocks of queries on for each multiprocessor, blocks stay and take one after the
/// other.
const MANY: i64 = 7;

/// An attention of bf16 or f16 whose operands the copy engine can read.
#[derive(Clone, Debug)]
pub struct Form {
    /// The stages.
    pub at: Attention,
    /// The element of queries, keys and values.
    pub element: DType,
    /// Queries by depth; dimensions are those of the stage of the scores.
    pub query: Operand,
    /// Keys by depth; the same.
    pub key: Operand,
    /// Keys by columns; dimensions are those of the stage of the product.
    pub value: Operand,
}

impl Form {
    /// What a kernel is.
    pub fn of(k: &Kernel) -> Option<Form> {
        let (at, element) = plain(k)?;
        let (scores, product) = (k.stages.get(at.scores)?, k.stages.get(at.product)?);
        let (outer, loops) = (at.outer, at.outer + 2);
        let rows = |stage: &Stage, input: usize, near: usize, far: usize| {
            let a = stage.inputs.get(input)?;
            let around = (0..outer).filter(|d| !a.at.coefficient(*d).is_zero());
            let dims: Vec<usize> = [near, far].into_iter().chain(around).collect();
            wgmma_gemm::rows(k, &stage.extents, a, &dims, true).filter(|o| o.dims.len() <= 5)
        };
        let form = Form {
            element,
            query: rows(scores, 0, loops, outer)?,
            key: rows(scores, 1, loops, outer + 1)?,
            value: rows(product, 1, outer + 1, loops)?,
            at,
        };
        let out = k.stages.get(form.at.result)?.outputs.first()?;
        (out.access.at.coefficient(outer + 1).known() == Some(1)).then_some(form)
    }
    /// Slabs of 64 elements that rows of queries and keys consist of, and those of rows of values;
    /// the last one may not be full.
    pub fn slabs(&self) -> [usize; 2] {
        [self.at.depth, self.at.columns].map(|n| (n as usize).div_ceil(wgmma_gemm::DEPTH))
    }
    /// Bytes in shared memory of a block of queries, of keys, and of values.
    pub fn bytes(&self, s: &Schedule) -> [usize; 3] {
        let ([deep, wide], row) = (self.slabs(), 2 * wgmma_gemm::DEPTH);
        [
            s.get("groups") * ROWS * row * deep,
            s.get("keys") * row * deep,
            s.get("keys") * row * wide,
        ]
    }
    /// Bytes of shared memory of a block of threads: the rings, their barriers, and what aligning
    /// takes.
    pub fn shared(&self, s: &Schedule) -> usize {
        let [query, key, value] = self.bytes(s);
        let (queries, stages) = (s.get("queries"), s.get("stages"));
        query * queries + (key + value) * stages + 16 * queries + 32 * stages + 1024
    }
    fn maps(&self, k: &Kernel, s: &Schedule) -> Result<Attr, String> {
        let one = |o: &Operand, rows: usize| {
            wgmma_gemm::tensor_maps::map(
                k,
                o,
                Type::scalar(k.func.ctx(), self.element),
                &[wgmma_gemm::DEPTH, rows],
                None,
            )
        };
        let (queries, keys) = (s.get("groups") * ROWS, s.get("keys"));
        Ok(Attr::array(
            k.func.ctx(),
            &[one(&self.query, queries)?, one(&self.key, keys)?, one(&self.value, keys)?],
        ))
    }
    /// How many blocks of queries there are for each place of the loops around, and how many such
    /// places.
    fn sizes(&self, k: &Kernel) -> Option<(Poly, Poly)> {
        let (outer, queries, _) = self.at.sizes(k)?;
        Some((queries.clone(), Poly::product(outer)))
    }
}

/// The attention of bf16 or f16 that a kernel is, and its element, if head sizes are multiples of
/// 16 bytes and sums fit into registers.
pub fn plain(k: &Kernel) -> Option<(Attention, DType)> {
    let at = Attention::of(k)?;
    let (scores, product) = (k.stages.get(at.scores)?, k.stages.get(at.product)?);
    let element = factors(scores)?;
    let fits = |n: i64| n % 8 == 0 && n <= HEAD;
    let stored =
        |input: usize, s: &Stage| k.buffers.get(s.inputs.get(input)?.buffer)?.element.dtype().ok();
    let same = stored(0, scores) == Some(element)
        && stored(1, scores) == Some(element)
        && stored(1, product) == Some(element);
    (fits(at.depth) && fits(at.columns) && same && softmax(k, &at)).then_some((at, element))
}

/// The type of both factors of a sum of products in f32, if these are its first two inputs, made
/// wider.
fn factors(s: &Stage) -> Option<DType> {
    let ([out], Body::Block(block)) = (s.outputs.as_slice(), s.body) else { return None };
    let product = out
        .combine?
        .other
        .def()
        .filter(|p| p.is("arith.mulf") && p.result(0).ty().dtype() == Ok(DType::F32))?;
    let args = block.args();
    let factor =
        |i: usize| product.operand(i).def().filter(|e| e.is("arith.extf")).map(|e| e.operand(0));
    let (x, y) = (factor(0)?, factor(1)?);
    let pair = [*args.first()?, *args.get(1)?];
    let element = x.ty().dtype().ok().filter(|d| [DType::BF16, DType::F16].contains(d))?;
    ((pair == [x, y] || pair == [y, x]) && y.ty().dtype() == Ok(element)).then_some(element)
}

/// Whether weights are exponentials of the scores over their maximum, or over 0 where that is -inf,
/// and sums are their sums: what the tiles compute.
fn softmax(k: &Kernel, at: &Attention) -> bool {
    let combines = |s: usize, names: &[&str]| {
        let op = k.stages.get(s).and_then(|s| s.outputs.first()?.combine).map(|c| c.op);
        op.is_some_and(|op| names.iter().any(|n| op.is(n)))
    };
    let exponential = || -> Option<bool> {
        let weights = k.stages.get(at.weights)?;
        let Body::Block(block) = weights.body else { return None };
        let args = block.args();
        let (score, max) = (*args.first()?, *args.get(1)?);
        let written = |s: usize| Some(&k.stages.get(s)?.outputs.first()?.access);
        let reads =
            weights.inputs.first() == written(at.seen) && weights.inputs.get(1) == written(at.max);
        let over = block
            .terminator()?
            .operand(0)
            .def()
            .filter(|e| e.is("math.exp"))?
            .operand(0)
            .def()
            .filter(|s| s.is("arith.subf"))?;
        let at_least = over.operand(1).def().filter(|s| s.is("arith.select"))?;
        let none = at_least.operand(0).def().filter(|c| c.is("arith.cmpf"))?;
        let number = |v: Value| v.def().filter(|d| d.is("arith.constant"))?.attr("value")?.as_f64();
        let low = number(none.operand(1)) == Some(f64::NEG_INFINITY) && none.operand(0) == max;
        let narrow = score.ty().dtype() == Ok(DType::F32) && max.ty().dtype() == Ok(DType::F32);
        let chosen = number(at_least.operand(1)) == Some(0.0)
            && at_least.operand(2) == max
            && over.operand(0) == score;
        Some(reads && low && chosen && narrow && weights.inputs.len() == 2)
    };
    combines(at.max, &["arith.maximumf", "arith.maxnumf"])
        && combines(at.sum, &["arith.addf"])
        && exponential() == Some(true)
}

/// The schedule. `blocks`: how many blocks of threads run, 0 for one per block of queries;
/// `queries`: how many blocks of queries shared memory holds.
fn choose(k: &Kernel, form: &Form) -> Schedule {
    let widest = form.at.depth.max(form.at.columns);
    let sizes =
        form.sizes(k).and_then(|(queries, around)| Some((queries.known()?, around.known()?)));
    // Three groups have registers for few sums and simple scores, and leave few to the copying
    // thread, which computes with sizes.
    let groups = if widest <= 64 && simple(k, form) && sizes.is_some() { 3 } else { 2 };
    let keys = if widest > 128 { 64 } else { 128 };
    let make = |queries: i64, blocks: i64| {
        let all = [
            ("blocks", blocks),
            ("groups", groups),
            ("keys", keys),
            ("queries", queries),
            ("stages", 2),
        ];
        crate::strategies::gpu::choose::make("attention", &all)
    };
    let queries = if form.shared(&make(2, 0)) <= SHARED { 2 } else { 1 };
    let rows = groups * ROWS as i64;
    let tiles = sizes.and_then(|(queries, around)| around.checked_mul((queries + rows - 1) / rows));
    let many = tiles.is_some_and(|n| n >= MANY * PROCESSORS as i64);
    make(queries, if many { PROCESSORS as i64 } else { 0 })
}

/// Whether scores are seen as they are, but for a scale and what is behind a query.
fn simple(k: &Kernel, form: &Form) -> bool {
    let Some(seen) = k.stages.get(form.at.seen) else { return false };
    let Body::Block(block) = seen.body else { return false };
    let extra = if form.at.causal { 5 } else { 0 };
    seen.inputs.len() == 1 && seen.captured.is_empty() && block.ops().len() <= 3 + extra
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (groups, keys, queries, stages) =
        (s.get("groups"), s.get("keys"), s.get("queries"), s.get("stages"));
    if !(1..=3).contains(&groups)
        || keys % 16 != 0
        || !(16..=256).contains(&keys)
        || !(1..=2).contains(&queries)
        || !(2..=8).contains(&stages)
    {
        let text = "1 to 3 groups, keys a multiple of 16 up to 256, queries of 1 or 2, 2 to 8 stages are possible";
        return Err(format!(
            "has a schedule of groups = {groups}, keys = {keys}, queries = {queries}, stages = {stages}; {text}"
        ));
    }
    Ok(128 * (1 + groups))
}

/// Schedules a kernel that is attention; false for any other, and without `by_itself` for one whose
/// schedule does not say so. `hopper`: whether the chip has the copy engine, the products of four
/// warps and clusters.
pub fn schedule(func: Op, by_itself: bool, hopper: bool) -> Result<bool, String> {
    let given =
        func.attr("kiln.schedule").and_then(Attr::as_schedule).map(|(strategy, _)| strategy);
    if given.as_deref().is_some_and(|s| !["attention", "split_attention"].contains(&s)) {
        return Ok(false);
    }
    let k = analysis::read(func).map_err(|f| f.message)?;
    let form = Form::of(&k).filter(|_| hopper);
    if given.as_deref() != Some("attention")
        && split_attention::schedule(func, &k, by_itself && form.is_none(), hopper)?
    {
        return Ok(true);
    }
    let form = match (form, given) {
        (Some(form), Some(_)) => form,
        (Some(form), None) if by_itself => {
            func.set_attr("kiln.schedule", choose(&k, &form).attr(func.ctx()));
            form
        }
        (None, Some(_)) => return Err("has a schedule for attention, but is none that tensor cores and the copy engine can do".into()),
        _ => return Ok(false),
    };
    let s = crate::gpu::gpu_schedule::of(func)?;
    let bytes = form.shared(&s);
    func.set_attr(THREADS, Attr::i64(func.ctx(), threads(&s)? as i64));
    if bytes > SHARED {
        return Err(format!(
            "has a schedule that takes {bytes} bytes of shared memory, more than the {SHARED} of a block"
        ));
    }
    func.set_attr(GRID, grid(&k, &form, &s)?);
    func.set_attr(TENSOR_MAPS, form.maps(&k, &s)?);
    func.set_attr(SHARED_BYTES, Attr::i64(func.ctx(), bytes as i64));
    Ok(true)
}

fn grid(k: &Kernel, form: &Form, s: &Schedule) -> Result<Attr, String> {
    let block = k.func.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let sizes: Vec<Value> = block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let text = |p: &Poly| crate::strategies::gpu::common::grid::poly(p, &sizes);
    let tiles = || {
        let (queries, around) = form.sizes(k)?;
        Some(format!(
            "({}) * (({}) ceildiv {})",
            text(&around)?,
            text(&queries)?,
            s.get("groups") * ROWS
        ))
    };
    let blocks = if s.get("blocks") > 0 { Some(s.get("blocks").to_string()) } else { tiles() };
    crate::strategies::gpu::common::grid::map(
        k.func.ctx(),
        &[blocks.unwrap_or_else(|| crate::strategies::gpu::common::grid::OTHERWISE.to_string())],
        sizes.len(),
    )
}
