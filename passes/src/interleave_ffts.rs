//! `kiln-interleave-ffts`: Fourier transforms take and give complex numbers as pairs where these
//! are what the graph has.
//!
//! Why: complex arguments and results of a program have a last dimension of 2, which a kernel each
//! would take apart and put together: more bytes than the transform itself moves. The host's
//! library transforms pairs. A GPU's kernel takes and gives parts.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %a = kiln.slice %z …, 0   %re = kiln.reshape %a …   %0:2 = kiln.fft c2c %re, %im length = 8   %1 = kiln.concat %0#0, %0#1 …
//! after:   %1 = kiln.fft c2c %z length = 8 interleaved_input interleaved_result
//! ```
use crate::{
    decompose::tools::{Math, rank},
    pass::{Numerics, Pass},
    readers::only_reader,
    refine_shapes::Facts,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    sym::Dim as SymDim,
};

crate::pass_options! {
    /// The pass.
    pub struct InterleaveFfts {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for InterleaveFfts {
    const FLAG: &'static str = "kiln-interleave-ffts";
    const SUMMARY: &'static str =
        "Lets Fourier transforms take and give complex numbers as pairs in memory";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let ops: Vec<Op> =
                walk(func).into_iter().filter(|op| op.kind() == Some(OpKind::Fft)).collect();
            if ops.is_empty() {
                continue;
            }
            // Read and decide before anything is erased, which facts are keyed by.
            let facts = Facts::of(func, self.rounds)?;
            let plans: Vec<_> = ops.into_iter().filter_map(|op| Plan::of(op, &facts)).collect();
            plans.iter().try_for_each(Plan::apply)?;
        }
        Ok(())
    }
}

/// What becomes of a transform.
struct Plan {
    op: Op,
    new: Fft,
    /// The concatenation that is its result, and the transpose of the parts before that.
    joined: Option<(Op, Option<Vec<i64>>)>,
}

impl Plan {
    /// `None` for a transform that stays as it is.
    fn of(op: Op, facts: &Facts) -> Option<Plan> {
        let mut new = Fft::of(op)?;
        if let Some(z) = new.im.and_then(|im| pairs(new.re, im, facts)) {
            (new.re, new.im, new.interleaved_input) = (z, None, true);
        }
        let joined = join(op, facts);
        new.interleaved_result |= joined.is_some();
        let changes = Fft::of(op)? != new;
        changes.then_some(Plan { op, new, joined })
    }

    fn apply(&self) -> Result<()> {
        let b = Builder::before(self.op).ok_or_at(self.op, "is in no block")?;
        let m = Math { b: &b };
        let mut made = b.create_node(&self.new).at(self.op)?.results();
        let old = match &self.joined {
            Some((concat, permutation)) => {
                if let (Some(p), [pairs]) = (permutation, &made[..]) {
                    let permutation = [&p[..], &[p.len() as i64]].concat();
                    made = vec![m.transpose(*pairs, &permutation).at(self.op)?];
                }
                concat.results()
            }
            None => self.op.results(),
        };
        for (old, new) in old.into_iter().zip(made) {
            old.replace_uses(m.retype(new, old.ty()).at(self.op)?);
        }
        // The parts and what read them are dead now; canonicalize erases them.
        Ok(())
    }
}

/// The complex numbers whose parts two values are.
fn pairs(re: Value, im: Value, facts: &Facts) -> Option<Value> {
    let z = component(re, 0, facts)?;
    (component(im, 1, facts)? == z).then_some(z)
}

/// The tensor with a last dimension of 2 of which a value is this element.
fn component(v: Value, which: i64, facts: &Facts) -> Option<Value> {
    let slice = Slice::of(Reshape::of(v.def()?)?.input.def()?)?;
    let (last, outer) = facts.dims(slice.input).split_last()?;
    let (at, before) = slice.offsets.split_last()?;
    let first = before.iter().all(|o| o.known() == Some(0)) && at.known() == Some(which);
    let one = slice.sizes.last()?.known() == Some(1) && slice.strides.iter().all(|s| *s == 1);
    // Sizes that are not known may be those of a smaller part.
    let known = !outer.contains(&SymDim::Unknown);
    let whole = last.known() == Some(2) && known && facts.dims(v) == outer;
    (first && one && whole).then_some(slice.input)
}

/// The concatenation of both results along a new last dimension, if nothing else reads these, and
/// the permutation if it is of transposed results: pairs are transposed faster than put together on
/// the way.
fn join(op: Op, facts: &Facts) -> Option<(Op, Option<Vec<i64>>)> {
    let [re, im] = op.results()[..] else { return None };
    let column = |v: Value| {
        let mut reader = only_reader(v)?;
        let transpose = Transpose::of(reader);
        if transpose.is_some() {
            reader = only_reader(reader.result(0))?;
        }
        let reshape = Reshape::of(reader)?;
        let outer = facts.dims(reshape.input);
        let (last, rest) = facts.dims(reader.result(0)).split_last()?;
        let new = last.known() == Some(1) && rest == outer && !outer.contains(&SymDim::Unknown);
        new.then_some((reader.result(0), transpose.map(|t| t.permutation)))
    };
    let ((re, permutation), (im, other)) = (column(re)?, column(im)?);
    let concat = only_reader(re).filter(|c| only_reader(im) == Some(*c))?;
    let o = Concat::of(concat)?;
    let fits = o.axis == rank(re) as i64 - 1 && o.inputs == [re, im] && permutation == other;
    fits.then_some((concat, permutation))
}

/// A transform of parts, of one that takes and gives pairs.
pub(crate) fn planar(m: &Math, o: &Fft) -> Result<Fft> {
    let (mut re, mut im) = (o.re, o.im);
    if o.interleaved_input {
        let [a, b] = parts(m, re)?;
        (re, im) = (a, Some(b));
    }
    Ok(Fft { re, im, interleaved_input: false, interleaved_result: false, ..o.clone() })
}

/// The parts of complex numbers with a last dimension of 2.
pub(crate) fn parts(m: &Math, z: Value) -> Result<[Value; 2]> {
    let sizes = m.sizes_of(z)?;
    let (_, outer) = sizes.split_last().ok_or("has no last dimension of 2")?;
    let one = |i: i64| {
        let mut offsets = vec![Size::Static(0); outer.len()];
        offsets.push(Size::Static(i));
        let sizes = [outer, &[Size::Static(1)]].concat();
        let strides = vec![1; sizes.len()];
        let part = m.b.add(&Slice { input: z, offsets, sizes, strides })?;
        m.reshape(part, outer)
    };
    Ok([one(0)?, one(1)?])
}

/// Complex numbers with a last dimension of 2.
pub(crate) fn joined(m: &Math, parts: &[Value]) -> Result<Value> {
    let column = |v: &Value| m.reshape(*v, &[m.sizes_of(*v)?, vec![Size::Static(1)]].concat());
    let inputs = parts.iter().map(column).collect::<Result<Vec<_>>>()?;
    let axis = inputs.first().map_or(0, |v| rank(*v) as i64 - 1);
    m.b.add(&Concat { inputs, axis })
}
