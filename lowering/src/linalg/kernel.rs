//! A kernel during its lowering: the values stored in tensors, and the ops that compute them.
use crate::{
    analysis::{
        index_expr::{Ix, Lin},
        sizes::SizeValues,
    },
    linalg::{
        expr::{Body, Input, Inputs, dtype},
        scalar::{Scalars, storage, wide},
    },
};
use kiln_dialects::{ir::*, sym::Dim as SymDim, value::DType};
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
    pub given: RefCell<HashSet<Value>>,
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
    pub reads: Vec<(Value, Vec<Ix>)>,
    /// From the body and the outputs' block arguments to the yielded values.
    pub body: &'n mut Yield<'n>,
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
        Ok(self.b.generic("tensor.empty", &dynamic, &[ty], &[], &mut [])?.result(0))
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
        let mut body = |b: Builder, args: Vec<Value>| {
            b.generic("linalg.yield", &[args[0]], &[], &[], &mut []).map(|_| ())
        };
        let attrs = [("operandSegmentSizes", Attr::i32s(self.b.ctx, &[1, 1]))];
        let types = [scalar.ty(), element];
        Ok(self
            .b
            .generic(
                "linalg.fill",
                &[scalar, out],
                &[out.ty()],
                &attrs,
                &mut [(&types, &mut body)],
            )?
            .result(0))
    }

    /// The slice of a tensor that the loops reach: linalg requires a dimension indexed by a single
    /// loop to have the loop's trip count.
    fn narrowed(&self, input: &Input, loops: &[Size]) -> Result<Value> {
        let (t, map) = (input.tensor, &input.at);
        let plain = |l: &Lin| {
            (l.add == 0 && l.coef.iter().filter(|c| **c != 0).count() == 1)
                .then(|| l.coef.iter().position(|c| *c == 1))
                .flatten()
        };
        let have = t.ty().dims();
        let shorter = |(axis, (l, d)): (usize, (&Ix, &SymDim))| {
            let size = l.lin().and_then(plain).map(|i| loops[i])?;
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
        let slice = Slice { offsets: vec![Size::Static(0); sizes.len()], sizes };
        let op = self.b.generic(
            "tensor.extract_slice",
            &slice.operands(&[t]),
            &[slice.ty(self.b.ctx, element)],
            &slice.attrs(self.b.ctx, &[1]),
            &mut [],
        )?;
        Ok(op.result(0))
    }

    /// Creates a `linalg.generic`; returns its results, one tensor per output.
    pub fn generic(&self, nest: Nest) -> Result<Vec<Value>> {
        // Without iterations the outputs stay unchanged; an MLIR slice may not even start in an
        // empty dimension.
        if nest.sizes.iter().any(|s| s.known() == Some(0)) {
            return Ok(nest.outs.iter().map(|(t, _)| *t).collect());
        }
        let loops = nest.reduction.len();
        let mut inputs = Inputs::default();
        for (v, at) in &nest.reads {
            self.scan(*v, at, loops, &mut inputs)?;
        }
        let read = inputs
            .list
            .iter()
            .map(|i| self.narrowed(i, &nest.sizes))
            .collect::<Result<Vec<_>, _>>()?;
        let single = |l: &Lin, d: usize| {
            l.add == 0 && l.coef.iter().enumerate().all(|(k, c)| *c == i64::from(k == d))
        };
        let stated = |d: usize| {
            inputs.list.iter().flat_map(|i| &i.at).any(|l| l.lin().is_some_and(|l| single(l, d)))
                || nest.outs.iter().any(|(_, over)| over.contains(&d))
        };
        // An otherwise unused operand gives the trip count of a loop that no operand determines.
        let silent: Vec<usize> = (0..loops).filter(|d| !stated(*d)).collect();
        let mut operands = read;
        let mut maps: Vec<String> =
            inputs.list.iter().map(|i| map_text(loops, &i.at)).collect::<Result<_, _>>()?;
        if !silent.is_empty() {
            let sizes: Vec<Size> = silent.iter().map(|d| nest.sizes[*d]).collect();
            operands.push(self.empty(DType::I8, &sizes)?);
            maps.push(map_text(loops, &dims_of(loops, &silent))?);
        }
        let ins = operands.len();
        for (t, over) in &nest.outs {
            operands.push(*t);
            maps.push(map_text(loops, &dims_of(loops, over))?);
        }
        let c = self.b.ctx;
        let parse = |s: &str| Attr::parse(c, s).ok_or_else(|| format!("made a bad attribute {s}"));
        let maps = maps.iter().map(|m| parse(m)).collect::<Result<Vec<_>, _>>()?;
        let iterator = |r: &bool| {
            parse(if *r {
                "#linalg.iterator_type<reduction>"
            } else {
                "#linalg.iterator_type<parallel>"
            })
        };
        let iterators = nest.reduction.iter().map(iterator).collect::<Result<Vec<_>, _>>()?;
        let attrs = [
            ("indexing_maps", Attr::array(c, &maps)),
            ("iterator_types", Attr::array(c, &iterators)),
            ("operandSegmentSizes", Attr::i32s(c, &[ins as i32, nest.outs.len() as i32])),
        ];
        let types = operands
            .iter()
            .map(|t| t.ty().element().ok_or("has an operand that is no tensor"))
            .collect::<Result<Vec<_>, _>>()?;
        let results: Vec<Type> = nest.outs.iter().map(|(t, _)| t.ty()).collect();
        let fill = nest.body;
        let mut body = |b: Builder, args: Vec<Value>| {
            let mut body = Body::new(self, b, &inputs, &args, loops);
            let values = fill(&mut body, &args[ins..])?;
            let stored = values
                .into_iter()
                .zip(&types[ins..])
                .map(|(v, t)| body.s.store(v, *t))
                .collect::<Result<Vec<_>, _>>()?;
            b.generic("linalg.yield", &stored, &[], &[], &mut []).map(|_| ())
        };
        Ok(self
            .b
            .generic("linalg.generic", &operands, &results, &attrs, &mut [(&types, &mut body)])?
            .results())
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
        let at: Vec<Ix> = (0..n).map(|i| Ix::dim(i, n)).collect();
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
    pub fn keep(&self, v: Value, tensor: Value) {
        self.tensors.borrow_mut().insert(v, tensor);
    }
}

/// A slice of a tensor, with unit strides.
pub struct Slice {
    /// Its offsets.
    pub offsets: Vec<Size>,
    /// Its sizes.
    pub sizes: Vec<Size>,
}

impl Slice {
    fn dynamic(all: &[Size]) -> Vec<Value> {
        all.iter().filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None }).collect()
    }
    /// The operands of a slice op: `first`, then dynamic offsets, then dynamic sizes.
    pub fn operands(&self, first: &[Value]) -> Vec<Value> {
        [first, &Slice::dynamic(&self.offsets), &Slice::dynamic(&self.sizes)].concat()
    }
    /// The attributes of a slice op. `first`: the operand segment sizes of the operands before the
    /// offsets.
    pub fn attrs(&self, c: Ctx, first: &[i32]) -> [(&'static str, Attr); 4] {
        let fixed = |all: &[Size]| {
            Attr::i64s(
                c,
                &all.iter().map(|s| s.known().unwrap_or(Size::DYNAMIC)).collect::<Vec<_>>(),
            )
        };
        let groups = [
            Slice::dynamic(&self.offsets).len() as i32,
            Slice::dynamic(&self.sizes).len() as i32,
            0,
        ];
        [
            ("static_offsets", fixed(&self.offsets)),
            ("static_sizes", fixed(&self.sizes)),
            ("static_strides", Attr::i64s(c, &vec![1; self.sizes.len()])),
            ("operandSegmentSizes", Attr::i32s(c, &[first, &groups].concat())),
        ]
    }
    /// Its tensor type.
    pub fn ty(&self, c: Ctx, d: DType) -> Type {
        let dims: Vec<_> =
            self.sizes.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
        Type::tensor(c, d, &dims)
    }
}

fn dims_of(loops: usize, over: &[usize]) -> Vec<Ix> {
    over.iter().map(|d| Ix::dim(*d, loops)).collect()
}

/// The text of an affine map over `loops` dimensions.
fn map_text(loops: usize, results: &[Ix]) -> Result<String> {
    let dims: Vec<String> = (0..loops).map(|d| format!("d{d}")).collect();
    let results: Vec<String> = results
        .iter()
        .map(Ix::affine)
        .collect::<Option<_>>()
        .ok_or("reads at an index that is not affine")?;
    Ok(format!("affine_map<({}) -> ({})>", dims.join(", "), results.join(", ")))
}
