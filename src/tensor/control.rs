//! Structured control flow in graphs: cond, while_loop, scan and map.
//!
//! In a trace each function is called once, and its ops become a region of one op. In eager mode
//! and in segments the functions are called as often as needed. They may capture outside tensors.
use super::{
    Graph, Scalar, Tensor, TraceError, emit,
    region::{Body, RegionOp, Spec, show},
};
use crate::compile::{Function, Leaf, Returns, Tree};
use kiln_dialects::{ir::Attr, ops::OpKind, value::DType};
use std::{cell::RefCell, panic::Location};

/// What a function returns, as a structure.
pub(super) type Results<F, A> = <<F as Function<A>>::Out as Returns>::Tree;

/// A structure split into its tensors and its static rest, in order.
pub(crate) struct FlatTree {
    pub tensors: Vec<Tensor>,
    pub leaves: Vec<FlatLeaf>,
}

pub(crate) enum FlatLeaf {
    Tensor,
    /// A number, whose value is the next tensor.
    Number(Scalar),
    Fixed(Leaf),
}

pub(super) fn user(e: impl Into<String>) -> TraceError {
    TraceError::User(e.into().into())
}

impl FlatTree {
    pub(crate) fn of<T: Tree>(x: &T) -> FlatTree {
        let (mut leaves, mut parts) = (vec![], FlatTree { tensors: vec![], leaves: vec![] });
        x.leaves(&mut leaves);
        for leaf in leaves {
            parts.leaves.push(match leaf {
                Leaf::Tensor(t) => {
                    parts.tensors.push(t);
                    FlatLeaf::Tensor
                }
                other => FlatLeaf::Fixed(other),
            });
        }
        parts
    }
    /// As `of`, with numbers as tensors, since they may differ between iterations and branches.
    #[track_caller]
    fn with_numbers<T: Tree>(x: &T) -> FlatTree {
        let (mut leaves, mut parts) = (vec![], FlatTree { tensors: vec![], leaves: vec![] });
        x.leaves(&mut leaves);
        for leaf in leaves {
            let (kind, tensor) = match leaf {
                Leaf::Tensor(t) => (FlatLeaf::Tensor, Some(t)),
                Leaf::Number(s) => {
                    let value = s.tensor();
                    (FlatLeaf::Number(s), Some(value))
                }
                other => (FlatLeaf::Fixed(other), None),
            };
            parts.leaves.push(kind);
            parts.tensors.extend(tensor);
        }
        parts
    }
    fn of_result<R: Returns>(r: R) -> Result<FlatTree, TraceError> {
        r.into_tree().map(|tree| FlatTree::with_numbers(&tree))
    }
    /// Rebuilds the structure with other tensors.
    pub(crate) fn rebuild<T: Tree>(
        &self,
        tensors: impl IntoIterator<Item = Tensor>,
    ) -> Result<T, TraceError> {
        let mut next = tensors.into_iter();
        let leaf = |p: &FlatLeaf| match p {
            FlatLeaf::Tensor => next.next().map(Leaf::Tensor),
            FlatLeaf::Number(s) => next.next().map(|t| Leaf::Number(s.carried(t))),
            FlatLeaf::Fixed(other) => Some(other.clone()),
        };
        let leaves: Vec<Leaf> = self.leaves.iter().filter_map(leaf).collect();
        T::rebuild(&mut leaves.into_iter()).map_err(|e| user(e.to_string()))
    }
    /// Err: static numbers or the number of tensors differ.
    pub(crate) fn same(&self, other: &FlatTree) -> Result<(), TraceError> {
        let same = |(a, b): (&FlatLeaf, &FlatLeaf)| match (a, b) {
            // The dtypes of the tensors tell their kinds apart.
            (FlatLeaf::Tensor, FlatLeaf::Tensor) | (FlatLeaf::Number(_), FlatLeaf::Number(_)) => {
                true
            }
            (FlatLeaf::Fixed(Leaf::Scalar(a)), FlatLeaf::Fixed(Leaf::Scalar(b))) => a == b,
            (FlatLeaf::Fixed(Leaf::Number(a)), FlatLeaf::Fixed(Leaf::Number(b))) => a == b,
            _ => false,
        };
        if self.leaves.len() == other.leaves.len()
            && self.leaves.iter().zip(&other.leaves).all(same)
        {
            Ok(())
        } else {
            Err(user(
                "gives numbers, or lengths of lists, that differ: in a graph only tensors can",
            ))
        }
    }
}

/// The graph being traced that ops on these tensors are added to, if any.
pub(super) fn tracing(tensors: &[&[Tensor]]) -> Option<Graph> {
    Some(emit::graph_of(&tensors.concat())).filter(|g| !g.is_eager())
}

/// `then(operands)` if `condition`, a 0-d bool tensor, is true, else `otherwise(operands)`; as
/// `torch.cond`. In a trace both are traced, and must return tensors of the same dtypes and shapes,
/// and the same static numbers. Err: they do not, or a function failed.
#[track_caller]
pub fn cond<T: Tree, A: Returns, B: Returns<Tree = A::Tree>>(
    condition: impl Into<Tensor>,
    then: impl FnOnce(T) -> A,
    otherwise: impl FnOnce(T) -> B,
    operands: T,
) -> Result<A::Tree, TraceError> {
    let (site, condition) = (Location::caller(), condition.into());
    let given = FlatTree::of(&operands);
    let Some(graph) = tracing(&[std::slice::from_ref(&condition), &given.tensors]) else {
        return if condition.item::<bool>()? {
            then(operands).into_tree()
        } else {
            otherwise(operands).into_tree()
        };
    };
    let (value, spec) = graph.ssa_value(&condition)?;
    if spec != (DType::I1, vec![]) {
        let reason = format!(
            "has a condition of {}, which is no truth value without dimensions",
            show(&spec)
        );
        return Err(graph.refuse(site, "cond", reason, &[condition]).error());
    }
    let (mut first, mut second) =
        (Some((then, given.rebuild(given.tensors.clone())?)), Some((otherwise, operands)));
    let branch: RefCell<Option<FlatTree>> = RefCell::default();
    let keep = |p: FlatTree| {
        let tensors = p.tensors.clone();
        match &mut *branch.borrow_mut() {
            Some(before) => before.same(&p)?,
            none => drop(none.insert(p)),
        }
        Ok(tensors)
    };
    let twice = || user("is traced twice");
    let mut one = |_| {
        let (f, x) = first.take().ok_or_else(twice)?;
        keep(FlatTree::of_result(f(x))?)
    };
    let mut other = |_| {
        let (f, x) = second.take().ok_or_else(twice)?;
        keep(FlatTree::of_result(f(x))?)
    };
    let bodies = vec![
        Body { args: vec![], result_types: None, run: &mut one },
        Body { args: vec![], result_types: None, run: &mut other },
    ];
    let op = RegionOp { kind: OpKind::If, operands: vec![value], attrs: vec![], bodies };
    let made =
        graph.region_op(site, "cond", op, &|all| Ok(all.first().cloned().unwrap_or_default()))?;
    branch.into_inner().ok_or_else(|| user("has traced nothing"))?.rebuild(made)
}

/// Repeats `body` from `init` while `condition` of the loop-carried values, a 0-d bool tensor, is
/// true; as `torch.while_loop`. Dtypes and shapes are loop-invariant. Err: they are not, or a
/// function failed.
#[track_caller]
pub fn while_loop<C: Tree, B: Returns<Tree = C>>(
    condition: impl Fn(C) -> Tensor,
    body: impl Fn(C) -> B,
    init: C,
) -> Result<C, TraceError> {
    let (site, given) = (Location::caller(), FlatTree::with_numbers(&init));
    let Some(graph) = tracing(&[&given.tensors]) else {
        let mut state = init;
        loop {
            let now = FlatTree::of(&state);
            if !condition(now.rebuild(now.tensors.clone())?).item::<bool>()? {
                return Ok(state);
            }
            state = body(state).into_tree()?;
        }
    };
    let (values, specs): (Vec<_>, Vec<_>) = given
        .tensors
        .iter()
        .map(|t| graph.ssa_value(t))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let mut test = |x: Vec<Tensor>| Ok(vec![condition(given.rebuild(x)?)]);
    let mut step = |x: Vec<Tensor>| {
        let next = FlatTree::of_result(body(given.rebuild(x)?))?;
        given.same(&next).map(|()| next.tensors)
    };
    let bodies = vec![
        Body { args: specs.clone(), result_types: Some(vec![(DType::I1, vec![])]), run: &mut test },
        Body { args: specs.clone(), result_types: Some(specs.clone()), run: &mut step },
    ];
    let op = RegionOp { kind: OpKind::While, operands: values, attrs: vec![], bodies };
    let made = graph.region_op(site, "while_loop", op, &|_| Ok(specs.clone()))?;
    given.rebuild(made)
}

/// `(c, y[i]) = f(c, x[i])` over the first dimension of all tensors in `xs`, starting with `c =
/// init`: returns the last loop-carried `c`, and the `y` stacked along a new first dimension.
/// Dtypes and shapes of `c` are loop-invariant. Err: they are not, the first dimensions of `xs`
/// differ, or the function failed.
#[track_caller]
pub fn scan<C: Tree, X: Tree, Y: Tree, R: Returns<Tree = (C, Y)>>(
    f: impl Fn(C, X) -> R,
    init: C,
    xs: X,
) -> Result<(C, Y), TraceError> {
    scanned(Location::caller(), "scan", f, init, xs, false)
}

/// As [`scan`], in reverse order; `y[i]` belongs to `x[i]`.
#[track_caller]
pub fn scan_reverse<C: Tree, X: Tree, Y: Tree, R: Returns<Tree = (C, Y)>>(
    f: impl Fn(C, X) -> R,
    init: C,
    xs: X,
) -> Result<(C, Y), TraceError> {
    scanned(Location::caller(), "scan_reverse", f, init, xs, true)
}

/// `f` applied to each slice along the first dimension of all tensors in `xs`; results are stacked
/// along a new first dimension. Err: as for [`scan`].
#[track_caller]
pub fn map<X: Tree, R: Returns>(f: impl Fn(X) -> R, xs: X) -> Result<R::Tree, TraceError> {
    let one =
        |(): (), x: X| -> Result<((), R::Tree), TraceError> { f(x).into_tree().map(|y| ((), y)) };
    scanned(Location::caller(), "map", one, (), xs, false).map(|(_, y)| y)
}

fn scanned<C: Tree, X: Tree, Y: Tree, R: Returns<Tree = (C, Y)>>(
    site: &'static Location<'static>,
    op: &'static str,
    f: impl Fn(C, X) -> R,
    init: C,
    xs: X,
    reverse: bool,
) -> Result<(C, Y), TraceError> {
    let (carried, given) = (FlatTree::with_numbers(&init), FlatTree::of(&xs));
    let Some(graph) = tracing(&[&carried.tensors, &given.tensors]) else {
        return eager_scan(f, init, &given, reverse);
    };
    let refuse = |reason: &str| Err(graph.refuse(site, op, reason, &given.tensors).error());
    let taken = |all: &[Tensor]| -> Result<(Vec<_>, Vec<Spec>), TraceError> {
        Ok(all
            .iter()
            .map(|t| graph.ssa_value(t))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .unzip())
    };
    let ((inits, states), (inputs, sliced)) = (taken(&carried.tensors)?, taken(&given.tensors)?);
    let Some(length) = sliced.first().and_then(|(_, dims)| dims.first().cloned()) else {
        return refuse("takes tensors with a first dimension");
    };
    if sliced.iter().any(|(_, dims)| dims.first() != Some(&length)) {
        return refuse("takes tensors of one first dimension");
    }
    let rows = sliced.iter().map(|(dtype, dims)| (*dtype, dims[1..].to_vec()));
    let n = states.len();
    let mut stacked: Option<FlatTree> = None;
    let mut step = |mut x: Vec<Tensor>| {
        let row = x.split_off(n);
        let (c, y) = f(carried.rebuild(x)?, given.rebuild(row)?).into_tree()?;
        let (c, y) = (FlatTree::with_numbers(&c), FlatTree::of(&y));
        carried.same(&c)?;
        if y.leaves.iter().any(|p| matches!(p, FlatLeaf::Fixed(Leaf::Number(s)) if s.is_computed()))
        {
            return Err(user(
                "gives a number for each slice, of which there is no stack; its tensor has one",
            ));
        }
        let all = [c.tensors, y.tensors.clone()].concat();
        stacked = Some(y);
        Ok(all)
    };
    let body = Body {
        args: states.iter().cloned().chain(rows).collect(),
        result_types: Some(states.clone()),
        run: &mut step,
    };
    let ctx = graph.state().map_err(TraceError::module)?.cx.b.ctx;
    let mut attrs =
        vec![("operandSegmentSizes", Attr::i32s(ctx, &[inits.len() as i32, inputs.len() as i32]))];
    if reverse {
        attrs.push(("reverse", Attr::unit(ctx)));
    }
    let what = RegionOp {
        kind: OpKind::Scan,
        operands: [inits, inputs].concat(),
        attrs,
        bodies: vec![body],
    };
    let results = |all: &[Vec<Spec>]| {
        let given = all.first().ok_or("has traced nothing")?;
        let stack = |(dtype, dims): &Spec| (*dtype, [std::slice::from_ref(&length), dims].concat());
        Ok(given
            .iter()
            .enumerate()
            .map(|(i, s)| if i < n { s.clone() } else { stack(s) })
            .collect())
    };
    let mut made = graph.region_op(site, op, what, &results)?;
    let last = made.split_off(n);
    let stacked = stacked.ok_or_else(|| user("has traced nothing"))?;
    Ok((carried.rebuild(made)?, stacked.rebuild(last)?))
}

/// An eager scan over concrete tensors.
fn eager_scan<C: Tree, X: Tree, Y: Tree, R: Returns<Tree = (C, Y)>>(
    f: impl Fn(C, X) -> R,
    init: C,
    given: &FlatTree,
    reverse: bool,
) -> Result<(C, Y), TraceError> {
    let length = |t: &Tensor| t.dims().map(|d| d.first().and_then(|d| d.known()));
    let lengths = given.tensors.iter().map(length).collect::<Result<Vec<_>, _>>()?;
    let Some(n) = lengths.first().copied().flatten() else {
        return Err(user("scan takes tensors with a first dimension"));
    };
    if lengths.iter().any(|l| *l != Some(n)) {
        return Err(user("scan takes tensors of one first dimension"));
    }
    let (mut state, mut rows): (C, Vec<FlatTree>) = (init, vec![]);
    for step in 0..n {
        let i = if reverse { n - 1 - step } else { step };
        let (c, y) =
            f(state, given.rebuild(given.tensors.iter().map(|t| t.select(0, i)))?).into_tree()?;
        state = c;
        rows.push(FlatTree::of(&y));
    }
    if reverse {
        rows.reverse();
    }
    let Some(first) = rows.first() else {
        return Err(user("a scan over no slices has results of known sizes in a graph only"));
    };
    rows.iter().try_for_each(|r| first.same(r))?;
    let stack = |k: usize| {
        Graph::current().stack(&rows.iter().map(|r| r.tensors[k].clone()).collect::<Vec<_>>(), 0)
    };
    let stacked: Vec<Tensor> = (0..first.tensors.len()).map(stack).collect();
    Ok((state, first.rebuild(stacked)?))
}
