//! `kiln-to-linalg`: each kernel's prims as linalg on tensors.
//!
//! Why here: a `linalg.generic` says what a loop nest computes and nothing of how, so that
//! schedules can be chosen, printed and edited. Upstream has no conversion from kiln's ops; and
//! fusing op by op (`linalg-fuse-elementwise-ops`) would redo what `kiln-fuse` has decided: here an
//! element is pulled through the whole expression at once, with movement ops becoming indexing
//! maps.
//!
//! Numerics: reassociates. Inside of a kernel 16-bit floats stay in f32 where the prims round at
//! every op.
//!
//! ```text
//! before:  %0 = kiln.transpose %x permutation = [1, 0] …  %1 = kiln.exp %0 …  return %1
//! after:   %1 = linalg.generic {indexing_maps = [(d0, d1) -> (d1, d0), (d0, d1) -> (d0, d1)]} ins(%x) outs(%e) { math.exp … }
//! ```
//!
//! A kernel of an op that is no loop nest (a sort, a scan that no loops compute) becomes a
//! declaration; its module says which function of the runtime computes it.
pub(crate) mod arg;
pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod expr;
pub mod generic;
pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod power;
pub mod scalar;
pub(crate) mod stage;

use crate::{
    analysis::{kernels_of, said, sizes::SizeValues},
    kernels::graph::{heavy, turned, turns},
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
use kiln_passes::{Failure, Numerics, Pass, refine_shapes::Facts};
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
    const SUMMARY: &'static str = "Writes each kernel's prims as linalg on tensors";
    const LEVELS: &'static [Level] = &[Level::Kernels];
    const LOWERS_TO: Option<Level> = Some(Level::Linalg);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] = &["linalg", "tensor", "math"];

    fn run(&self, root: Op) -> Result<(), Failure> {
        for func in kernels_of(root) {
            lower(func, self.rounds)?;
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Linalg.name()));
        Ok(())
    }
}

fn lower(func: Op, rounds: usize) -> Result<(), Failure> {
    let facts = Facts::of(func, rounds)?;
    let at = |e: String| Failure::at(func, e);
    let block = func
        .regions()
        .first()
        .and_then(|r| r.first())
        .ok_or_else(|| Failure::at(func, "has no body"))?;
    let name = func.symbol().ok_or_else(|| Failure::at(func, "has no name"))?;
    let c = func.ctx();
    let own = |v: &Value| -> Result<Type, String> {
        match tensor_type(v.ty()) {
            Ok(t) => Ok(Type::tensor(c, storage(t.dtype), &t.dims)),
            Err(_) => Ok(v.ty()),
        }
    };
    let end = block.terminator().ok_or_else(|| Failure::at(func, "has no return"))?;
    if let Some(op) = library::library_op(block) {
        return library::declare(func, op, end, &block.args(), &facts);
    }
    let inputs = block.args().iter().map(own).collect::<Result<Vec<_>, _>>().map_err(at)?;
    let results = end.operands().iter().map(own).collect::<Result<Vec<_>, _>>().map_err(at)?;
    let b = Builder::before(func).ok_or_else(|| Failure::at(func, "is in no block"))?;
    let mut failure = None;
    let new = b.function(&name, &inputs, &results, &mut |b, args| {
        body(&facts, block, end, b, &args).map_err(|f| {
            let message = f.message.clone();
            failure = Some(f);
            message
        })
    });
    let new = new.map_err(|e| failure.take().unwrap_or_else(|| Failure::at(func, e)))?;
    // The first function of the module is the kernel's; the old one goes.
    new.set_attr("arg_attrs", sizes_attr(c, &facts, &block.args()));
    func.erase();
    Ok(())
}

/// `kiln.sizes` of every tensor among the arguments: numbers, or -1 - k for the k-th index
/// argument; of these what is known of them.
fn sizes_attr(c: Ctx, facts: &Facts, args: &[Value]) -> Attr {
    let indices: Vec<SymDim> =
        args.iter().filter(|v| v.ty().is_index()).map(|v| facts.size_value(*v)).collect();
    let size = |d: &SymDim| match d.known() {
        Some(n) => n,
        None => indices.iter().position(|i| i == d).map_or(i64::MIN, |k| -1 - k as i64),
    };
    let one = |v: &Value| {
        if !v.ty().is_tensor() {
            return said(*v).unwrap_or(Attr::dictionary(c, &[]));
        }
        let sizes: Vec<i64> = facts.dims(*v).iter().map(size).collect();
        Attr::dictionary(c, &[("kiln.sizes", Attr::i64s(c, &sizes))])
    };
    Attr::array(c, &args.iter().map(one).collect::<Vec<_>>())
}

fn body(facts: &Facts, old: Block, end: Op, b: Builder, args: &[Value]) -> Result<(), Failure> {
    let pairs: Vec<(Value, Value)> = old.args().into_iter().zip(args.iter().copied()).collect();
    let index = || pairs.iter().copied().filter(|(v, _)| v.ty().is_index());
    let ops: Vec<Op> = old.ops().into_iter().filter(|o| *o != end).collect();
    let stages = stages(&ops, end);
    let mut k = Kernel {
        b,
        sizes: RefCell::new(SizeValues::of_kernel(facts, index(), b)),
        indices: index().collect(),
        tensors: RefCell::new(pairs.iter().copied().filter(|(v, _)| v.ty().is_tensor()).collect()),
        given: RefCell::default(),
    };
    let returned = end.operands();
    // Results of what has a nest of its own, in their own dtype.
    let mut narrow: HashMap<Value, Value> = HashMap::new();
    let own = |v: Value| dtype(v).map(|d| Type::scalar(b.ctx, storage(d)));
    for op in ops {
        let fail = |e: String| Failure::at(op, e);
        let kind = op.kind().ok_or_else(|| Failure::at(op, "is no prim"))?;
        k.b = b.at(op.loc());
        if kind == OpKind::Attention {
            attention::attention(&k, op)
                .map_err(fail)?
                .into_iter()
                .for_each(|(v, made)| k.keep(v, made));
        } else if is_stage(kind) {
            let made = stage(&k, op).map_err(fail)?;
            let stored = turned(op).unwrap_or(op);
            stored.results().into_iter().zip(made).for_each(|(v, t)| k.keep(v, t));
            // At once, while its elements are in registers.
            for v in stored.results().into_iter().filter(|v| returned.contains(v)) {
                if k.stored(v).and_then(|t| t.ty().element()) != Some(own(v).map_err(fail)?) {
                    narrow.insert(v, k.pointwise(v, true).map_err(fail)?);
                }
            }
        } else if op.result_count() == 1 && stages.contains(&op.result(0)) && turns(op).is_none() {
            let v = op.result(0);
            let made = k.pointwise(v, returned.contains(&v)).map_err(fail)?;
            k.keep(v, made);
        }
    }
    let fail = |e: String| Failure::at(end, e);
    let mut results = vec![];
    for v in returned {
        let own = own(v).map_err(fail)?;
        let stored = narrow.get(&v).copied().or_else(|| k.stored(v));
        let stored = stored
            .filter(|t| v.def().is_some() && t.ty().element() == Some(own) && !results.contains(t));
        results.push(match stored {
            Some(t) => t,
            None => k.pointwise(v, true).map_err(fail)?,
        });
    }
    b.ret(&results).map(|_| ()).map_err(fail)
}

/// The element-wise values that get a nest of their own: results, and what is dear and read by
/// several nests.
fn stages(ops: &[Op], end: Op) -> HashSet<Value> {
    let mut all: HashSet<Value> = end.operands().into_iter().collect();
    // The nests that would compute a value, by an op of each.
    let mut readers: HashMap<Value, HashSet<Op>> = HashMap::new();
    for op in ops.iter().rev() {
        let Some(kind) = op.kind() else { continue };
        let own = is_stage(kind) || kind == OpKind::Attention;
        let mut through: HashSet<Op> = HashSet::new();
        for v in op.results() {
            let from = readers.get(&v).cloned().unwrap_or_default();
            if !own && from.len() > 1 && heavy(*op) {
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
