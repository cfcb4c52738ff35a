//! A kernel during its lowering: the values stored in tensors, and the ops that compute them.
use crate::{
    analysis::{index_expr::IndexExpr, sizes::SizeValues},
    linalg::{
        expr::{Body, Index, Input, Inputs, dtype},
        generic::iterators,
        positions::Positions,
        scalar::{Scalars, storage, wide},
    },
};
use kiln_dialects::{ir::*, ops::StructuredContract, sym::Dim as SymDim, value::DType};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// State of the lowering of one function.
pub struct Kernel<'a> {
    /// The insertion point.
    pub b: Builder,
    /// Sizes of the prims, as SSA values of the new function.
    pub sizes: RefCell<SizeValues<'a>>,
    /// Maps old index arguments to new ones.
    pub indices: HashMap<Value, Value>,
    /// Maps prim values to the tensors of the new function that store them.
    pub tensors: RefCell<HashMap<Value, Value>>,
    /// Prim values whose element is bound in the body, such as region arguments.
    pub bound: RefCell<HashSet<Value>>,
    /// Region arguments that are positions of a score.
    pub positions: RefCell<Positions>,
}

/// The iteration space of one generic, its outputs and its body.
pub struct Nest<'n> {
    /// For each loop, whether its iterator type is reduction.
    pub reduction: Vec<bool>,
    /// Trip counts of the loops.
    pub sizes: Vec<Size>,
    /// Output tensors, each with the loops that index it.
    pub outs: Vec<(Value, Vec<usize>)>,
    /// Values that are read, with their indices, in the order of the inputs.
    pub reads: Vec<(Value, Vec<IndexExpr>)>,
    /// From the body and the outputs' block arguments to the yielded values.
    pub body: &'n mut Yield<'n>,
}

/// The operands of an op over a nest.
pub struct Operands {
    /// What the inputs are elements of.
    pub inputs: Inputs,
    /// Inputs, then outputs.
    pub values: Vec<Value>,
    /// Their element types.
    pub types: Vec<Type>,
    /// The number of inputs.
    pub ins: usize,
    /// Their indexing maps.
    pub maps: Attr,
}

impl Operands {
    /// Makes the first input the second as well, which no element of the body is read from.
    pub fn repeat_first(&mut self, ctx: Ctx) -> Result<()> {
        let mut maps = self.maps.as_array().ok_or("has no indexing maps")?;
        self.values.insert(1, *self.values.first().ok_or("has no operand")?);
        self.types.insert(1, *self.types.first().ok_or("has no types")?);
        maps.insert(1, *maps.first().ok_or("has no maps")?);
        self.maps = Attr::array(ctx, &maps);
        self.ins += 1;
        Ok(())
    }
}

impl Nest<'_> {
    /// Whether there is no iteration, so that the outputs stay unchanged. An MLIR slice may not
    /// even start in an empty dimension.
    pub fn is_empty(&self) -> bool {
        self.sizes.iter().any(|s| s.known() == Some(0))
    }
    /// Whether `linalg.contract` says the same: each factor is an element of an operand, all maps are
    /// projected permutations, and products are computed in the accumulator's type.
    fn is_named(&self, o: &Operands) -> bool {
        let ([(lhs, _), (rhs, _)], [(out, over)]) = (&self.reads[..], &self.outs[..]) else {
            return false;
        };
        let ([x, y], 2, false) = (&o.inputs.list[..], o.ins, o.inputs.computed) else {
            return false;
        };
        let Ok(d) = dtype(*lhs) else { return false };
        let element = |t: Value| t.ty().element().and_then(|t| t.dtype().ok());
        let types = d != DType::I1
            && dtype(*rhs) == Ok(d)
            && [x, y].iter().all(|i| element(i.tensor) == Some(storage(d)))
            && element(*out) == Some(wide(d));
        let loops = self.reduction.len();
        let single = |ix: &IndexExpr| (0..loops).find(|d| *ix == IndexExpr::dim(*d));
        let distinct = |at: &[IndexExpr]| -> Option<Vec<usize>> {
            let dims: Vec<usize> = at.iter().map(single).collect::<Option<_>>()?;
            (0..dims.len()).all(|i| !dims[..i].contains(&dims[i])).then_some(dims)
        };
        let (Some(a), Some(b)) = (distinct(&x.at), distinct(&y.at)) else { return false };
        let role = |d: usize| match self.reduction[d] {
            true => a.contains(&d) && b.contains(&d),
            false => over.contains(&d) && (a.contains(&d) || b.contains(&d)),
        };
        types && (0..loops).all(role)
    }
}

/// Emits the values that an iteration yields.
pub type Yield<'n> = dyn FnMut(&mut Body, &[Value]) -> Result<Vec<Value>> + 'n;

impl Kernel<'_> {
    /// The tensor that stores a value, if any.
    pub fn stored(&self, v: Value) -> Option<Value> {
        self.tensors.borrow().get(&v).copied()
    }
    /// The size of a dimension of a prim value, as an SSA value.
    pub fn size(&self, v: Value, axis: usize) -> Result<Value> {
        match self.sizes.borrow_mut().size(v, axis)? {
            Size::Static(n) => self.b.index(n),
            Size::Dynamic(v) => Ok(v),
        }
    }
    /// All sizes of a prim value.
    pub fn sizes_of(&self, v: Value) -> Result<Vec<Size>> {
        (0..v.ty().dims().len()).map(|axis| self.sizes.borrow_mut().size(v, axis)).collect()
    }
    /// Maps an old index argument to the new function; other values map to themselves.
    pub fn new_index(&self, v: Value) -> Value {
        self.indices.get(&v).copied().unwrap_or(v)
    }

    /// `tensor.empty`.
    pub fn empty(&self, d: DType, sizes: &[Size]) -> Result<Value> {
        let dims: Vec<SymDim> =
            sizes.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
        let dynamic: Vec<Value> = sizes
            .iter()
            .filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None })
            .collect();
        let ty = Type::tensor(self.b.ctx, d, &dims);
        tensor::empty(self.b, &dynamic, ty)
    }

    /// A tensor filled with a constant.
    pub fn filled(&self, d: DType, sizes: &[Size], value: f64) -> Result<Value> {
        let empty = self.empty(d, sizes)?;
        let number = if d.is_float() {
            Attr::scalar(self.b.ctx, d, value)
        } else {
            Attr::scalar_int(self.b.ctx, d, value as i64)
        };
        let scalar = Scalars { b: self.b }.constant(number)?;
        self.fill(scalar, empty)
    }
    /// `linalg.fill`.
    pub fn fill(&self, scalar: Value, out: Value) -> Result<Value> {
        let element = out.ty().element().ok_or("fills no tensor")?;
        let mut body = |b: Builder, args: Vec<Value>| linalg::yield_(b, &[args[0]]);
        let types = [scalar.ty(), element];
        let body: RegionBody<'_> = (&types, &mut body);
        Ok(linalg::fill(self.b, &[scalar], &[out], &[out.ty()], body)?.result(0))
    }

    /// The slice of a tensor that the loops reach: linalg requires a dimension indexed by a single
    /// loop to have the loop's trip count.
    fn narrowed(&self, input: &Input, loops: &[Size]) -> Result<Value> {
        let (t, map) = (input.tensor, &input.at);
        let have = t.ty().dims();
        let shorter = |(axis, (l, d)): (usize, (&IndexExpr, &SymDim))| {
            let size = l.linear().and_then(|l| l.as_dim()).map(|i| loops[i])?;
            // Equal dynamic sizes are one SSA value; a slice of the whole tensor costs nothing.
            let own = d.known().map_or_else(
                || self.sizes.borrow_mut().size(input.value, axis).unwrap_or(size),
                Size::Static,
            );
            (size != own).then_some(size)
        };
        let cut: Vec<Option<Size>> = map.iter().zip(&have).enumerate().map(shorter).collect();
        if cut.iter().all(Option::is_none) {
            return Ok(t);
        }
        let mut sizes = vec![];
        for (axis, (c, d)) in cut.iter().zip(&have).enumerate() {
            sizes.push(match (c, d.known()) {
                (Some(s), _) => *s,
                (None, Some(n)) => Size::Static(n),
                (None, None) => self.sizes.borrow_mut().size(input.value, axis)?,
            });
        }
        let element = t.ty().element().ok_or("is no tensor")?.dtype()?;
        slice(self.b, t, &vec![Size::Static(0); sizes.len()], &sizes, element)
    }

    /// The operands of a nest: inputs, then outputs.
    pub fn operands(&self, nest: &Nest) -> Result<Operands> {
        let loops = nest.reduction.len();
        let mut inputs = Inputs::default();
        for (v, at) in &nest.reads {
            self.scan(*v, at, &mut inputs)?;
        }
        let read = inputs
            .list
            .iter()
            .map(|i| self.narrowed(i, &nest.sizes))
            .collect::<Result<Vec<_>, _>>()?;
        let stated = |d: usize| {
            inputs.list.iter().flat_map(|i| &i.at).any(|l| *l == IndexExpr::dim(d))
                || nest.outs.iter().any(|(_, over)| over.contains(&d))
        };
        // An otherwise unused operand gives the trip count of a loop that no operand determines.
        let silent: Vec<usize> = (0..loops).filter(|d| !stated(*d)).collect();
        let mut values = read;
        let c = self.b.ctx;
        let mut maps: Vec<Attr> =
            inputs.list.iter().map(|i| map(c, loops, &i.at)).collect::<Result<_>>()?;
        if !silent.is_empty() {
            let sizes: Vec<Size> = silent.iter().map(|d| nest.sizes[*d]).collect();
            values.push(self.empty(DType::I8, &sizes)?);
            maps.push(Attr::projection(c, loops, &silent)?);
        }
        let ins = values.len();
        for (t, over) in &nest.outs {
            values.push(*t);
            maps.push(Attr::projection(c, loops, over)?);
        }
        let maps = Attr::array(c, &maps);
        let types = values
            .iter()
            .map(|t| t.ty().element().ok_or("has an operand that is no tensor"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Operands { inputs, values, types, ins, maps })
    }

    /// Creates a `linalg.generic`; returns its results, one tensor per output.
    pub fn generic(&self, nest: Nest) -> Result<Vec<Value>> {
        if nest.is_empty() {
            return Ok(nest.outs.iter().map(|(t, _)| *t).collect());
        }
        let Operands { inputs, values, types, ins, maps } = self.operands(&nest)?;
        let results: Vec<Type> = nest.outs.iter().map(|(t, _)| t.ty()).collect();
        let fill = nest.body;
        let mut body = |b: Builder, args: Vec<Value>| {
            let mut body = Body::new(self, b, &inputs, &args, Index::Linalg);
            let made = fill(&mut body, &args[ins..])?;
            let stored = made
                .into_iter()
                .zip(&types[ins..])
                .map(|(v, t)| body.s.store(v, *t))
                .collect::<Result<Vec<_>, _>>()?;
            linalg::yield_(b, &stored)
        };
        let (read, written) = values.split_at(ins);
        let (loops, body): (_, RegionBody<'_>) = (iterators(&nest.reduction), (&types, &mut body));
        Ok(linalg::generic(self.b, read, written, maps, &loops, &results, body)?.results())
    }

    /// Creates a contraction of the factors that the nest's body computes: `linalg.contract` where
    /// these are elements of two operands and that op says the same, else
    /// `kiln.structured.contract`.
    pub fn contract(&self, nest: Nest) -> Result<Vec<Value>> {
        if nest.is_empty() {
            return Ok(nest.outs.iter().map(|(t, _)| *t).collect());
        }
        let o = self.operands(&nest)?;
        if nest.is_named(&o) {
            return self.named_contract(&o);
        }
        let [out] = o.values[o.ins..] else { return Err("contracts into no single tensor".into()) };
        let inputs = o.values[..o.ins].to_vec();
        let node = StructuredContract { inputs, init: out, indexing_maps: o.maps };
        let mut body = region(self, &o, 0, nest.body);
        let types = &o.types[..o.ins];
        let made = self.b.create_with(&node, &[out.ty()], &mut [(types, &mut body)])?;
        Ok(made.results())
    }

    /// A map from `loops` loops to these of them.
    pub fn map_of(&self, loops: usize, over: &[usize]) -> Result<Attr> {
        Attr::projection(self.b.ctx, loops, over)
    }

    fn named_contract(&self, o: &Operands) -> Result<Vec<Value>> {
        let segments = Attr::i32s(self.b.ctx, &[o.ins as i32, 1]);
        let attrs = [("indexing_maps", o.maps), ("operandSegmentSizes", segments)];
        let results: Vec<Type> = o.values[o.ins..].iter().map(|t| t.ty()).collect();
        Ok(self.b.named_linalg("linalg.contract", &o.values, &results, &attrs)?.results())
    }

    /// Computes a value elementwise into a new tensor. `own`: in its declared dtype rather than its
    /// compute dtype.
    pub fn pointwise(&self, v: Value, own: bool) -> Result<Value> {
        let d = dtype(v)?;
        let sizes = self.sizes_of(v)?;
        let out = self.empty(if own { storage(d) } else { wide(d) }, &sizes)?;
        self.write(v, &sizes, out)
    }

    /// Writes a value's elements to a destination of the same sizes.
    pub fn write(&self, v: Value, sizes: &[Size], out: Value) -> Result<Value> {
        let n = sizes.len();
        let at: Vec<IndexExpr> = (0..n).map(IndexExpr::dim).collect();
        let place = at.clone();
        let nest = Nest {
            reduction: vec![false; n],
            sizes: sizes.to_vec(),
            outs: vec![(out, (0..n).collect())],
            reads: vec![(v, at)],
            body: &mut |body, _| Ok(vec![body.element(v, &place)?]),
        };
        self.generic(nest).map(|r| r[0])
    }

    /// Records the tensor that stores a value.
    pub fn record_tensor(&self, v: Value, tensor: Value) {
        self.tensors.borrow_mut().insert(v, tensor);
    }
}

/// Fills a region of a structured op, whose arguments are `first` values and
/// then elements of these operands.
pub fn region<'a>(
    k: &'a Kernel<'_>,
    operands: &'a Operands,
    first: usize,
    fill: &'a mut Yield<'_>,
) -> impl FnMut(Builder, Vec<Value>) -> Result<()> + 'a {
    move |b, args| {
        let (given, elements) = args.split_at(first);
        let mut body = Body::new(k, b, &operands.inputs, elements, Index::Structured);
        let yielded = fill(&mut body, given)?;
        b.generic("kiln.yield", &yielded, &[], &[], &mut []).map(drop)
    }
}

/// `tensor.extract_slice` of unit strides.
pub fn slice(
    b: Builder,
    whole: Value,
    offsets: &[Size],
    sizes: &[Size],
    element: DType,
) -> Result<Value> {
    let dim = |s: &Size| s.known().map_or(SymDim::Unknown, SymDim::Known);
    let ty = Type::tensor(b.ctx, element, &sizes.iter().map(dim).collect::<Vec<_>>());
    tensor::extract_slice(b, whole, offsets, sizes, &Size::all(&vec![1; sizes.len()]), ty)
}

/// The affine map from `loops` loops to an index.
fn map(c: Ctx, loops: usize, index: &[IndexExpr]) -> Result<Attr> {
    let results: Option<Vec<Affine>> = index.iter().map(IndexExpr::affine).collect();
    Attr::affine_map(c, loops, &results.ok_or("reads at an index that is not affine")?)
}
