//! A kernel in the making: which values are stored in tensors, and the ops that compute them.
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
use kiln_dialects::{ir::*, ops::ReduceKind, sym::Dim as SymDim, value::DType};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// State of one function's lowering.
pub struct Kernel<'a> {
    /// Where ops go.
    pub b: Builder,
    /// Sizes of the prims, as values of the new function.
    pub sizes: RefCell<SizeValues<'a>>,
    /// Old index arguments as new ones.
    pub indices: HashMap<Value, Value>,
    /// Old values that are in tensors of the new function.
    pub tensors: RefCell<HashMap<Value, Value>>,
    /// Old values of which a body is given the element, such as arguments of a region.
    pub given: RefCell<HashSet<Value>>,
}

/// The iterations of one generic: where it writes and what kind each loop is.
pub struct Nest<'n> {
    /// Which loops are reductions.
    pub reduction: Vec<bool>,
    /// Sizes of the loops.
    pub sizes: Vec<Size>,
    /// Output tensors, each with the loops that index it.
    pub outs: Vec<(Value, Vec<usize>)>,
    /// What is read, in the order of the inputs.
    pub reads: Vec<(Value, Vec<Ix>)>,
    /// From the body so far and the outputs' block arguments to the yielded values.
    pub body: &'n mut Yield<'n>,
}

/// Computes what an iteration yields.
pub type Yield<'n> = dyn FnMut(&mut Body, &[Value]) -> Result<Vec<Value>, String> + 'n;

impl Kernel<'_> {
    /// The tensor of a value, if it has one.
    pub fn stored(&self, v: Value) -> Option<Value> {
        self.tensors.borrow().get(&v).copied()
    }
    /// The SSA size of a dimension of a prim value.
    pub fn size(&self, v: Value, axis: usize) -> Result<Value, String> {
        match self.sizes.borrow_mut().size(v, axis)? {
            Size::Static(n) => self.b.index(n),
            Size::Dynamic(v) => Ok(v),
        }
    }
    /// All sizes of a prim value.
    pub fn sizes_of(&self, v: Value) -> Result<Vec<Size>, String> {
        (0..v.ty().dims().len()).map(|axis| self.sizes.borrow_mut().size(v, axis)).collect()
    }
    /// An index argument in the new function; other values are there already.
    pub fn new_index(&self, v: Value) -> Value {
        self.indices.get(&v).copied().unwrap_or(v)
    }

    /// `tensor.empty`.
    pub fn empty(&self, d: DType, sizes: &[Size]) -> Result<Value, String> {
        let dims: Vec<SymDim> =
            sizes.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
        let dynamic: Vec<Value> = sizes
            .iter()
            .filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None })
            .collect();
        let ty = Type::tensor(self.b.ctx, d, &dims);
        Ok(self.b.generic("tensor.empty", &dynamic, &[ty], &[], &mut [])?.result(0))
    }

    /// A tensor filled with a number.
    pub fn filled(&self, d: DType, sizes: &[Size], value: f64) -> Result<Value, String> {
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
    pub fn fill(&self, scalar: Value, out: Value) -> Result<Value, String> {
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

    /// The part of a tensor that plain loop indices reach: linalg wants a dimension that a loop
    /// alone indexes to have the loop's size.
    fn narrowed(&self, input: &Input, loops: &[Size]) -> Result<Value, String> {
        let (t, map) = (input.tensor, &input.at);
        let plain = |l: &Lin| {
            (l.add == 0 && l.coef.iter().filter(|c| **c != 0).count() == 1)
                .then(|| l.coef.iter().position(|c| *c == 1))
                .flatten()
        };
        let have = t.ty().dims();
        let shorter = |(axis, (l, d)): (usize, (&Ix, &SymDim))| {
            let size = l.lin().and_then(plain).map(|i| loops[i])?;
            // Equal dynamic sizes are one value; a slice of everything costs nothing.
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

    /// A `linalg.generic`; results are its outputs' tensors.
    pub fn generic(&self, nest: Nest) -> Result<Vec<Value>, String> {
        // Without iterations its outputs stay as they are; a slice of MLIR may not even start in a
        // dimension of no elements.
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
        // A loop whose size no operand states gets an operand that does nothing else.
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

    /// Computes a value element by element into a tensor; `own`: of its declared dtype rather than
    /// the one it is computed in.
    pub fn pointwise(&self, v: Value, own: bool) -> Result<Value, String> {
        let d = dtype(v)?;
        let sizes = self.sizes_of(v)?;
        let out = self.empty(if own { storage(d) } else { wide(d) }, &sizes)?;
        self.write(v, &sizes, out)
    }

    /// Writes a value's elements to a tensor of the same sizes.
    pub fn write(&self, v: Value, sizes: &[Size], out: Value) -> Result<Value, String> {
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

    /// Remembers where a value is.
    pub fn keep(&self, v: Value, tensor: Value) {
        self.tensors.borrow_mut().insert(v, tensor);
    }
}

/// A box of a tensor, with steps of 1.
pub struct Slice {
    /// Where it starts.
    pub offsets: Vec<Size>,
    /// How large it is.
    pub sizes: Vec<Size>,
}

impl Slice {
    fn dynamic(all: &[Size]) -> Vec<Value> {
        all.iter().filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None }).collect()
    }
    /// The operands of an op on it, behind `first`.
    pub fn operands(&self, first: &[Value]) -> Vec<Value> {
        [first, &Slice::dynamic(&self.offsets), &Slice::dynamic(&self.sizes)].concat()
    }
    /// The attributes of an op on it; `first`: how many of the operands in front belong to which
    /// group.
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
    /// Its type.
    pub fn ty(&self, c: Ctx, d: DType) -> Type {
        let dims: Vec<_> =
            self.sizes.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
        Type::tensor(c, d, &dims)
    }
}

/// What changes nothing of a reduction, in the dtype in which it is kept.
pub fn neutral(c: Ctx, kind: ReduceKind, d: DType) -> Attr {
    let of = |float: f64, whole: i64| {
        if d.is_float() {
            Attr::scalar(c, wide(d), float)
        } else {
            Attr::scalar_int(c, wide(d), whole)
        }
    };
    match kind {
        ReduceKind::Sum | ReduceKind::Any => of(0.0, 0),
        ReduceKind::Prod | ReduceKind::All => of(1.0, 1),
        ReduceKind::Max => of(f64::NEG_INFINITY, d.int_range().0),
        ReduceKind::Min => of(f64::INFINITY, d.int_range().1),
    }
}

/// A tensor of the identity of a reduction, in the dtype in which it is kept.
pub fn start(k: &Kernel, kind: ReduceKind, d: DType, sizes: &[Size]) -> Result<Value, String> {
    let empty = k.empty(wide(d), sizes)?;
    let scalar = Scalars { b: k.b }.constant(neutral(k.b.ctx, kind, d))?;
    k.fill(scalar, empty)
}

/// Each loop by itself.
pub fn id(n: usize) -> Vec<Ix> {
    (0..n).map(|d| Ix::dim(d, n)).collect()
}

fn dims_of(loops: usize, over: &[usize]) -> Vec<Ix> {
    over.iter().map(|d| Ix::dim(*d, loops)).collect()
}

/// The text of an affine map.
fn map_text(loops: usize, results: &[Ix]) -> Result<String, String> {
    let dims: Vec<String> = (0..loops).map(|d| format!("d{d}")).collect();
    let results: Vec<String> = results
        .iter()
        .map(Ix::affine)
        .collect::<Option<_>>()
        .ok_or("reads at an index that is not affine")?;
    Ok(format!("affine_map<({}) -> ({})>", dims.join(", "), results.join(", ")))
}
