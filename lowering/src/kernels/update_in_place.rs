//! `kiln-update-in-place`: turns a write of one position along a dimension of a state into a
//! `kiln.insert_slice` into the state's memory.
//!
//! Why: a decoder's step writes one row of its cache, and a scatter copies the whole cache first;
//! on a GPU, where it is expanded into a select, each element of it is read and written. The caller
//! keeps the state in the program's memory (`kiln.state`), so a kernel that writes the row is all
//! that is left, and the ops that compute the row can join it.
//!
//! The old value of the state may have no other reader, and the new one has to be the function's
//! result of that state and no other one. A position out of range moves the slice into bounds, where
//! PyTorch's `index_copy_` is an error; `kiln-require-indices` has stated that on the host before.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.scatter assign %cache[%at], %row dims = [1] : tensor<4x8xf32>[tensor<1xi64>], tensor<1x4xf32>
//! after:   %s = kiln.reshape %at sizes = []   %r = kiln.reshape %row sizes = [4, 1]   %0 = kiln.insert_slice %r into %cache at %s axis = 1 offsets = [0, 0] sizes = [4, 8]
//! ```
use kiln_dialects::{
    ir::*,
    ops::{DynamicUpdateSlice, InsertSlice, OpKind, Reshape, Scatter, ScatterKind},
    rules::{Level, non_drivers, param_attrs, state_result, tensor_type},
    sym::Dim,
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct UpdateInPlace {}
}

impl Pass for UpdateInPlace {
    const FLAG: &'static str = "kiln-update-in-place";
    const SUMMARY: &'static str = "Writes one position of a state into the state's memory";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in non_drivers(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let Some(end) = block.terminator() else { continue };
            for state in block.args() {
                let result = param_attrs(state).and_then(state_result);
                let new = result.and_then(|n| end.operands().get(n).copied());
                let Some((new, op)) = new.and_then(|v| Some((v, v.def()?))) else { continue };
                if returns(new, end) != 1 {
                    continue;
                }
                let users = state.uses().into_iter().map(|(user, _)| user);
                let mut users = users.filter(|o| o.kind() != Some(OpKind::BindShape));
                if users.next() != Some(op) || users.next().is_some() {
                    continue;
                }
                if let Some(update) = Update::of(op, state) {
                    update.apply(op, state).at(op)?;
                }
            }
        }
        Ok(())
    }
}

/// How often a value or a view of it is a result of the function. Each result has memory of its own,
/// and the first of equal ones is no copy.
fn returns(v: Value, end: Op) -> usize {
    let count = |(user, _): (Op, usize)| match user.kind() {
        Some(OpKind::Reshape) => returns(user.result(0), end),
        _ => usize::from(user == end),
    };
    v.uses().into_iter().map(count).sum()
}

/// A write of one position.
struct Update {
    /// The new elements, whose only position has a dimension of its own or none.
    source: Value,
    /// The dimension that the position is along.
    axis: usize,
    /// The position, an integer tensor of one element.
    start: Value,
}

impl Update {
    /// What an op writes into a state; `None` if it is not one slice at one position.
    fn of(op: Op, state: Value) -> Option<Update> {
        let one = |v: Value| {
            let signed =
                tensor_type(v.ty()).is_ok_and(|t| matches!(t.dtype, DType::I64 | DType::I32));
            signed && v.ty().dims().iter().all(|d| d.known() == Some(1))
        };
        let fixed = |v: Value| v.ty().dims().iter().all(|d| d.known().is_some());
        if let Some(o) = Scatter::of(op) {
            let ([dim], [start]) = (&o.dims[..], &o.indices[..]) else { return None };
            let whole = o.kind == ScatterKind::Assign && o.input == state && one(*start);
            let axis = usize::try_from(*dim).ok()?;
            let update = Update { source: o.updates, axis, start: *start };
            return (whole && fixed(state) && fixed(o.updates)).then_some(update);
        }
        let o = DynamicUpdateSlice::of(op).filter(|o| o.input == state)?;
        let (all, own) = (state.ty().dims(), o.update.ty().dims());
        let mut cut = (0..all.len()).filter(|d| all[*d].known() != own[*d].known());
        let (Some(axis), None) = (cut.next(), cut.next()) else { return None };
        let start = *o.starts.get(axis)?;
        (fixed(state) && fixed(o.update) && one(start)).then_some(Update {
            source: o.update,
            axis,
            start,
        })
    }

    fn apply(&self, op: Op, state: Value) -> Result<()> {
        let b = Builder::before(op).ok_or("is in no block")?.at(op.loc());
        let shape = |v: Value| v.ty().dims().iter().map(Dim::known).collect::<Option<Vec<i64>>>();
        let sizes = shape(state).ok_or("has an open size")?;
        let count: i64 = shape(self.source).ok_or("has an open size")?.iter().product();
        // A scatter's positions come first; in the slice they are where the dimension is.
        let mut own = sizes.clone();
        own[self.axis] = 1;
        own[self.axis] = count / own.iter().product::<i64>().max(1);
        let shaped = |input: Value, sizes: &[i64]| match shape(input).as_deref() == Some(sizes) {
            true => Ok(input),
            false => b.add(&Reshape { input, sizes: Size::all(sizes) }),
        };
        let new = b.add(&InsertSlice {
            source: shaped(self.source, &own)?,
            dest: Some(state),
            start: Some(shaped(self.start, &[])?),
            axis: Some(self.axis as i64),
            offsets: vec![Size::Static(0); sizes.len()],
            sizes: Size::all(&sizes),
        })?;
        op.result(0).replace_uses(new);
        op.erase();
        Ok(())
    }
}
