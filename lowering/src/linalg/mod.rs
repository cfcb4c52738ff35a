//! `kiln-to-linalg`: lowers each kernel's prims to linalg on tensors.
//!
//! Why here: a `linalg.generic` says what a loop nest computes but not how, so that schedules can
//! be chosen, printed and edited. Upstream has no conversion from kiln's ops. Fusing op by op
//! (`linalg-fuse-elementwise-ops`) would redo what `kiln-fuse` has decided: here each element is
//! computed through the whole expression at once, and movement ops fold into indexing maps.
//! Contractions, scans and attention stay ops (`linalg.contract`, `kiln.structured.*`).
//!
//! Numerics: reassociates. Within a kernel 16-bit floats stay in f32 where the prims round at every
//! op. A result that other kernels read or compute too (`kiln.rounded`) is rounded as if stored.
//!
//! ```text
//! before:  %0 = kiln.transpose %x permutation = [1, 0] …  %1 = kiln.exp %0 …  return %1
//! after:   %1 = linalg.generic {indexing_maps = [(d0, d1) -> (d1, d0), (d0, d1) -> (d0, d1)]} ins(%x) outs(%e) { math.exp … }
//! ```
//!
//! A kernel of an op that is not lowered to loops (a sort, a scan without a loop schedule) becomes
//! a declaration; its module names the runtime function that computes it.
pub(crate) mod arg;
pub(crate) mod attention;
mod attention_gradient;
mod common;
pub(crate) mod contract;
pub(crate) mod expr;
mod fourier;
pub mod generic;
pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod positions;
mod power;
pub mod scalar;
pub(crate) mod scan;
pub(crate) mod stage;
mod weight_gradient;
mod winograd;

use crate::{
    analysis::{CONSTANT, is_constant, kernels_of, param_attrs, sizes::SizeValues},
    kernels::{
        marks::STAGED,
        op_facts::{folded_transpose, folding_op, heavy, is_attention},
    },
    linalg::{
        expr::dtype,
        kernel::Kernel,
        scalar::storage,
        stage::{is_stage, stage},
    },
};
use kiln_dialects::{
    ir::*,
    ops::OpKind,
    rules::{Level, tensor_type},
    sym::Dim as SymDim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

kiln_passes::pass_options! {
    /// The pass.
    pub struct ToLinalg {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for ToLinalg {
    const FLAG: &'static str = "kiln-to-linalg";
    const SUMMARY: &'static str = "Lowers each kernel's prims to linalg on tensors";
    const LEVELS: &'static [Level] = &[Level::Kernels];
    const LOWERS_TO: Option<Level> = Some(Level::Linalg);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] = &["linalg", "tensor", "math"];

    fn run(&self, root: Op) -> Result<()> {
        for func in kernels_of(root) {
            lower(func, self.rounds)?;
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Linalg.name()));
        Ok(())
    }
}

fn lower(func: Op, rounds: usize) -> Result<()> {
    let facts = Facts::of(func, rounds)?;
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let name = func.symbol().ok_or_at(func, "has no name")?;
    let c = func.ctx();
    let own = |v: &Value| -> Result<Type> {
        match tensor_type(v.ty()) {
            Ok(t) => Ok(Type::tensor(c, storage(t.dtype), &t.dims)),
            Err(_) => Ok(v.ty()),
        }
    };
    let end = block.terminator().ok_or_at(func, "has no return")?;
    if let Some(op) = library::library_op(block) {
        return library::declare(func, op, end, &block.args(), &facts);
    }
    let inputs = block.args().iter().map(own).collect::<Result<Vec<_>, _>>().at(func)?;
    let results = end.operands().iter().map(own).collect::<Result<Vec<_>, _>>().at(func)?;
    let b = Builder::before(func).ok_or_at(func, "is in no block")?;
    let mut fill = |b: Builder, args: Vec<Value>| body(&facts, block, end, b, &args);
    let new = b.function(&name, &inputs, &results, &mut fill).at(func)?;
    let made = new.regions().first().and_then(|r| r.first()).ok_or_at(new, "has no body")?;
    // Printed names come from locations.
    made.args().into_iter().zip(block.args()).for_each(|(new, old)| new.set_arg_loc(old.loc()));
    // The new function, the module's first, replaces the old one.
    new.set_attr("arg_attrs", sizes_attr(c, &facts, &block.args()));
    func.erase();
    drop_constants(new);
    Ok(())
}

/// Drops constants that nothing uses, as the exponent of a power that became products.
fn drop_constants(func: Op) {
    // Users come behind what they use.
    for op in walk(func).into_iter().rev() {
        let pure = op.isa::<arith::Constant>() || op.isa::<arith::ExtF>();
        if pure && op.result(0).uses().is_empty() {
            op.erase();
        }
    }
}

/// `kiln.sizes` of each tensor argument: static sizes, or -1 - k for the k-th index argument; for
/// the index arguments, the facts about them.
fn sizes_attr(c: Ctx, facts: &Facts, args: &[Value]) -> Attr {
    let indices: Vec<SymDim> =
        args.iter().filter(|v| v.ty().is_index()).map(|v| facts.size_value(*v)).collect();
    let size = |d: &SymDim| match d.known() {
        Some(n) => n,
        None => indices.iter().position(|i| i == d).map_or(i64::MIN, |k| -1 - k as i64),
    };
    let one = |v: &Value| {
        if !v.ty().is_tensor() {
            return param_attrs(*v).unwrap_or(Attr::dictionary(c, &[]));
        }
        let sizes: Vec<i64> = facts.dims(*v).iter().map(size).collect();
        let constant = is_constant(*v).then(|| (CONSTANT, Attr::unit(c)));
        let all: Vec<_> =
            constant.into_iter().chain([("kiln.sizes", Attr::i64s(c, &sizes))]).collect();
        Attr::dictionary(c, &all)
    };
    Attr::array(c, &args.iter().map(one).collect::<Vec<_>>())
}

/// Pairs of sizes that an elementwise op takes to be equal. Each size argument has a symbol of its
/// own, so that a kernel would have loops over both.
fn equal(facts: &Facts, ops: &[Op]) -> Vec<(SymDim, SymDim)> {
    let mut all = vec![];
    for op in ops.iter().filter(|o| o.kind().is_some_and(OpKind::is_elementwise)) {
        let mut shapes = op.operands().into_iter().map(|v| facts.dims(v));
        let Some(first) = shapes.next() else { continue };
        for other in shapes {
            let pairs = first.iter().zip(other).filter(|(a, b)| a != b);
            all.extend(pairs.map(|(a, b)| (a.clone(), b.clone())));
        }
    }
    all
}

fn body(facts: &Facts, old: Block, end: Op, b: Builder, args: &[Value]) -> Result<()> {
    let pairs: Vec<(Value, Value)> = old.args().into_iter().zip(args.iter().copied()).collect();
    let index = || pairs.iter().copied().filter(|(v, _)| v.ty().is_index());
    let ops: Vec<Op> = old.ops().into_iter().filter(|o| *o != end).collect();
    let stages = stages(&ops, end);
    let mut k = Kernel {
        b,
        sizes: RefCell::new(SizeValues::of_kernel(facts, index(), b).equated(&equal(facts, &ops))),
        indices: index().collect(),
        tensors: RefCell::new(pairs.iter().copied().filter(|(v, _)| v.ty().is_tensor()).collect()),
        bound: RefCell::default(),
        positions: RefCell::default(),
    };
    let returned = end.operands();
    // Results of stages, converted to their declared dtype.
    let mut narrow: HashMap<Value, Value> = HashMap::new();
    let own = |v: Value| dtype(v).map(|d| Type::scalar(b.ctx, storage(d)));
    for op in ops {
        let kind = op.kind().ok_or_at(op, "is no prim")?;
        k.b = b.at(op.loc());
        let whole = match kind {
            OpKind::Attention => Some(attention::attention(&k, op)),
            OpKind::AttentionGradient => Some(attention_gradient::attention_gradient(&k, op)),
            _ => None,
        };
        if let Some(made) = whole {
            made.at(op)?.into_iter().for_each(|(v, made)| k.record_tensor(v, made));
        } else if is_stage(kind) {
            let made = stage(&k, op).at(op)?;
            let stored = folded_transpose(op).unwrap_or(op);
            stored.results().into_iter().zip(made).for_each(|(v, t)| k.record_tensor(v, t));
            // Converted right away, while the elements are in registers.
            for v in stored.results().into_iter().filter(|v| returned.contains(v)) {
                if k.stored(v).and_then(|t| t.ty().element()) != Some(own(v).at(op)?) {
                    narrow.insert(v, k.pointwise(v, true).at(op)?);
                }
            }
        } else if op.result_count() == 1
            && stages.contains(&op.result(0))
            && folding_op(op).is_none()
        {
            let v = op.result(0);
            let own = returned.contains(&v) || op.attr(STAGED).is_some();
            let made = k.pointwise(v, own).at(op)?;
            k.record_tensor(v, made);
        }
    }
    let mut results = vec![];
    for v in returned {
        let own = own(v).at(end)?;
        let stored = narrow.get(&v).copied().or_else(|| k.stored(v));
        let stored = stored
            .filter(|t| v.def().is_some() && t.ty().element() == Some(own) && !results.contains(t));
        results.push(match stored {
            Some(t) => t,
            None => k.pointwise(v, true).at(end)?,
        });
    }
    b.ret(&results).map(|_| ()).at(end)
}

/// The elementwise values that get a loop nest of their own: results, marked values, and values that
/// are costly and read by several nests.
fn stages(ops: &[Op], end: Op) -> HashSet<Value> {
    let mut all: HashSet<Value> = end.operands().into_iter().collect();
    // For each value, the nests that would compute it, each identified by one of its ops.
    let mut readers: HashMap<Value, HashSet<Op>> = HashMap::new();
    for op in ops.iter().rev() {
        let Some(kind) = op.kind() else { continue };
        let own = is_stage(kind) || is_attention(*op);
        let mut through: HashSet<Op> = HashSet::new();
        for v in op.results() {
            let from = readers.get(&v).cloned().unwrap_or_default();
            let several = from.len() > 1 && heavy(*op);
            if !own && (several || op.attr(STAGED).is_some()) {
                all.insert(v);
            }
            through.extend(from);
        }
        if own || op.results().iter().any(|v| all.contains(v)) {
            through = HashSet::from([*op]);
        }
        for v in op.operands() {
            readers.entry(v).or_default().extend(through.iter().copied());
        }
    }
    all
}
