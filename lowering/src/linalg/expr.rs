//! Expressions: the element of a prim as a function of stored tensors, lowered to inputs of a
//! `linalg.generic` and scalar ops in its body.
use crate::{
    analysis::{
        LinearExpr,
        index_expr::{IndexExpr, IndexLeaf, through},
        sizes::arith_op,
    },
    linalg::{
        kernel::Kernel,
        scalar::{Scalars, compute_type, wide},
    },
};
use kiln_dialects::{algebra::Expr, ir::*, ops::*, rules::tensor_type, value::DType};
use kiln_passes::rounding::ROUNDED;
use std::collections::{HashMap, HashSet};

/// A stored value that a body reads at one index.
pub struct Input {
    /// The prim value.
    pub value: Value,
    /// The tensor that stores it.
    pub tensor: Value,
    /// One affine index per dimension.
    pub at: Vec<IndexExpr>,
}

/// The inputs that a body reads through indexing maps, in the order of the block arguments.
#[derive(Default)]
pub struct Inputs {
    /// Inputs, unique by tensor and index.
    pub list: Vec<Input>,
    /// Whether a value is computed from inputs, or read at an index that is no map.
    pub computed: bool,
    seen: HashSet<(Value, Vec<IndexExpr>)>,
}

/// The dtype of a prim value.
pub fn dtype(v: Value) -> Result<DType> {
    tensor_type(v.ty()).map(|t| t.dtype)
}

fn affine(at: &[IndexExpr]) -> bool {
    at.iter().all(|ix| ix.affine().is_some())
}

impl Kernel<'_> {
    /// Collects the inputs that the element of `v` at index `at` depends on.
    pub fn scan(&self, v: Value, at: &[IndexExpr], inputs: &mut Inputs) -> Result<()> {
        if !inputs.seen.insert((v, at.to_vec())) || self.bound.borrow().contains(&v) {
            return Ok(());
        }
        if let Some(tensor) = self.stored(v) {
            if !affine(at) {
                inputs.computed = true;
                return at.iter().try_for_each(|ix| self.scan_index(ix, inputs));
            }
            if !inputs.list.iter().any(|i| i.tensor == tensor && i.at == at) {
                inputs.list.push(Input { value: v, tensor, at: at.to_vec() });
            }
            return Ok(());
        }
        let op = v.def().ok_or("reads a value that is not stored")?;
        if let Some((from, ix)) = through(op, at, &|v, axis| self.size(v, axis).ok()) {
            // Data-dependent indices into a stored tensor are scanned when the tensor is reached.
            let placed = self.positions.borrow().placed(ix);
            return self.scan(from, &placed, inputs);
        }
        inputs.computed = true;
        op.operands()
            .into_iter()
            .filter(|o| o.ty().is_tensor())
            .try_for_each(|o| self.scan(o, at, inputs))
    }

    fn scan_index(&self, ix: &IndexExpr, inputs: &mut Inputs) -> Result<()> {
        ix.leaves().into_iter().try_for_each(|p| match p {
            IndexLeaf::Data { tensor, at, limit } => {
                self.scan(*tensor, at, inputs)?;
                self.scan_index(limit, inputs)
            }
            IndexLeaf::LinearExpr(_) | IndexLeaf::Size(_) => Ok(()),
        })
    }
}

/// The op that is the index of a loop.
#[derive(Clone, Copy)]
pub enum Index {
    /// `linalg.index`.
    Linalg,
    /// `kiln.structured.index`.
    Structured,
}

impl Index {
    /// The op's name.
    pub fn name(self) -> &'static str {
        match self {
            Index::Linalg => linalg::Index::NAME,
            Index::Structured => OpKind::StructuredIndex.name(),
        }
    }
}

/// The body of a `linalg.generic` or of a structured op under construction.
pub struct Body<'a, 'k> {
    /// The kernel being lowered.
    pub kernel: &'a Kernel<'k>,
    /// Creates the body's scalar ops.
    pub s: Scalars,
    /// The inputs that the block arguments stand for.
    pub inputs: &'a Inputs,
    /// The block arguments.
    pub args: &'a [Value],
    /// The op that is the index of a loop.
    pub index_op: Index,
    computed: HashMap<(Value, Vec<IndexExpr>), Value>,
    dims: HashMap<usize, Value>,
}

impl<'a, 'k> Body<'a, 'k> {
    /// An empty body.
    pub fn new(
        kernel: &'a Kernel<'k>,
        b: Builder,
        inputs: &'a Inputs,
        args: &'a [Value],
        index_op: Index,
    ) -> Body<'a, 'k> {
        Body {
            kernel,
            s: Scalars { b },
            inputs,
            args,
            index_op,
            computed: HashMap::new(),
            dims: HashMap::new(),
        }
    }

    /// Binds the element of a 0-d value, in its compute type.
    pub fn bind(&mut self, v: Value, element: Value) {
        self.computed.insert((v, vec![]), element);
    }
    /// The element of `v` at index `at`, in its compute type.
    pub fn element(&mut self, v: Value, at: &[IndexExpr]) -> Result<Value> {
        let key = (v, at.to_vec());
        if let Some(m) = self.computed.get(&key) {
            return Ok(*m);
        }
        let value = match self.kernel.stored(v) {
            Some(tensor) => self.read(v, tensor, at)?,
            None => self.compute(v, at)?,
        };
        let value = match v.def() {
            Some(op) if op.attr(ROUNDED).is_some() => self.rounded(value, dtype(v)?)?,
            _ => value,
        };
        self.computed.insert(key, value);
        Ok(value)
    }

    /// An element rounded to its storage dtype, as if it were stored.
    pub fn rounded(&self, x: Value, d: DType) -> Result<Value> {
        let stored =
            x.def().is_some_and(|o| o.isa::<arith::ExtF>() && o.operand(0).ty().dtype() == Ok(d));
        let narrow = d.is_float() && wide(d) != d;
        if narrow && !stored { self.s.convert(x, wide(d), d) } else { Ok(x) }
    }

    fn read(&mut self, v: Value, tensor: Value, at: &[IndexExpr]) -> Result<Value> {
        let given = self.inputs.list.iter().position(|i| i.tensor == tensor && i.at == at);
        let raw = match given {
            Some(i) => self.args[i],
            None => {
                let indices = at.iter().map(|ix| self.index(ix)).collect::<Result<Vec<_>>>()?;
                tensor::extract(self.s, tensor, &indices)?
            }
        };
        self.s.load(raw, dtype(v)?)
    }

    /// An index as an SSA value.
    pub fn index(&mut self, ix: &IndexExpr) -> Result<Value> {
        self.value_of(&ix.0)
    }
    fn value_of(&mut self, e: &Expr<IndexLeaf>) -> Result<Value> {
        match e {
            Expr::Const(n) => self.s.b.index(*n),
            Expr::Leaf(place) => self.leaf(place),
            Expr::Apply(kind, both) => {
                let (x, y) = (self.value_of(&both.0)?, self.value_of(&both.1)?);
                let op = arith_op(*kind).ok_or("has an index that is a power")?;
                op(self.s.b, x, y)
            }
        }
    }
    fn leaf(&mut self, place: &IndexLeaf) -> Result<Value> {
        let ty = Type::index(self.s.b.ctx);
        match place {
            IndexLeaf::LinearExpr(l) => self.linear(l),
            IndexLeaf::Size(v) => Ok(self.kernel.new_index(*v)),
            IndexLeaf::Data { tensor, at, limit } => {
                let x = self.element(*tensor, at)?;
                let unsigned = dtype(*tensor)? == DType::UI8;
                let i = match unsigned {
                    true => arith::index_castui(self.s, x, ty)?,
                    false => arith::index_cast(self.s, x, ty)?,
                };
                // Clamps an out-of-range index: eager mode raises an error, a kernel never reads
                // out of bounds.
                let i = arith::maxsi(self.s, i, self.s.b.index(0)?)?;
                let limit = self.index(limit)?;
                arith::minsi(self.s, i, limit)
            }
        }
    }
    /// A linear form with constant coefficients.
    fn linear(&mut self, l: &LinearExpr) -> Result<Value> {
        const DYNAMIC: &str = "has an index with a dynamic coefficient";
        let mut sum = None;
        for (d, p) in &l.dims {
            let (i, k) = (self.dim(*d)?, p.known().ok_or(DYNAMIC)?);
            let term = if k == 1 { i } else { arith::muli(self.s, i, self.s.b.index(k)?)? };
            sum = Some(match sum {
                None => term,
                Some(s) => arith::addi(self.s, s, term)?,
            });
        }
        let constant = l.constant.known().ok_or(DYNAMIC)?;
        match sum {
            Some(s) if constant == 0 => Ok(s),
            Some(s) => arith::addi(self.s, s, self.s.b.index(constant)?),
            None => self.s.b.index(constant),
        }
    }
    /// The index of loop `d`.
    pub fn dim(&mut self, d: usize) -> Result<Value> {
        if let Some(v) = self.dims.get(&d) {
            return Ok(*v);
        }
        let v = match self.index_op {
            Index::Linalg => linalg::index(self.s, d as i64)?,
            Index::Structured => {
                let node = StructuredIndex { dim: d as i64 };
                self.s.b.create_with(&node, &[Type::index(self.s.b.ctx)], &mut [])?.result(0)
            }
        };
        self.dims.insert(d, v);
        Ok(v)
    }

    fn compute(&mut self, v: Value, at: &[IndexExpr]) -> Result<Value> {
        let op = v.def().ok_or("reads a value that is not stored")?;
        let kind = op.kind().ok_or_else(|| format!("reads the result of {}", op.name()))?;
        let kernel = self.kernel;
        if let Some((from, ix)) = through(op, at, &|v, axis| kernel.size(v, axis).ok()) {
            let placed = kernel.positions.borrow().placed(ix);
            return self.element(from, &placed);
        }
        let s = self.s;
        let d = dtype(v)?;
        match kind {
            OpKind::Splat => {
                s.constant(scalar_attr(Splat::of(op).ok_or_malformed(op)?.value, d, s.b.ctx)?)
            }
            OpKind::Constant => {
                let value = op
                    .attr("value")
                    .and_then(Attr::splat_value)
                    .ok_or("is a constant that is not stored")?;
                s.constant(scalar_attr(value, d, s.b.ctx)?)
            }
            OpKind::Iota => {
                let o = Iota::of(op).ok_or_malformed(op)?;
                let i = self.index(&at[o.axis as usize])?;
                let wide = arith::index_cast(s, i, Type::scalar(s.b.ctx, DType::I64))?;
                s.convert(wide, DType::I64, d)
            }
            OpKind::Compare => {
                let o = Compare::of(op).ok_or_malformed(op)?;
                let (x, y) = (self.element(o.lhs, at)?, self.element(o.rhs, at)?);
                s.compare(o.kind, x, y, dtype(o.lhs)?)
            }
            OpKind::Select => {
                let o = Select::of(op).ok_or_malformed(op)?;
                let (c, x, y) = (
                    self.element(o.condition, at)?,
                    self.element(o.on_true, at)?,
                    self.element(o.on_false, at)?,
                );
                s.select(c, x, y)
            }
            OpKind::Clamp => {
                let o = Clamp::of(op).ok_or_malformed(op)?;
                let (x, low, high) = (
                    self.element(o.input, at)?,
                    self.element(o.low, at)?,
                    self.element(o.high, at)?,
                );
                let x = s.binary(BinaryKind::Max, x, low, d)?;
                s.binary(BinaryKind::Min, x, high, d)
            }
            OpKind::Convert => {
                let o = Convert::of(op).ok_or_malformed(op)?;
                let x = self.element(o.input, at)?;
                s.convert(x, dtype(o.input)?, d)
            }
            OpKind::Bitcast => {
                let o = Bitcast::of(op).ok_or_malformed(op)?;
                let x = self.element(o.input, at)?;
                s.bitcast(x, dtype(o.input)?, d)
            }
            _ => {
                let (unary, binary) = (UnaryKind::from_op(kind), BinaryKind::from_op(kind));
                match (unary, binary) {
                    (Some(k), _) => {
                        let x = self.element(op.operand(0), at)?;
                        s.unary(k, x, dtype(op.operand(0))?)
                    }
                    (_, Some(k)) => {
                        let (x, y) =
                            (self.element(op.operand(0), at)?, self.element(op.operand(1), at)?);
                        s.binary(k, x, y, d)
                    }
                    _ => {
                        Err(format!("'{}' is not computed element by element", kind.name()).into())
                    }
                }
            }
        }
    }
}

/// A typed scalar attribute in the compute type of its dtype.
fn scalar_attr(a: Attr, d: DType, c: Ctx) -> Result<Attr> {
    let ty = compute_type(c, d).dtype()?;
    if d.is_float() {
        // The value is already representable in the narrow dtype, so widening it is exact.
        return Ok(Attr::scalar(c, ty, a.as_f64().ok_or("has no float value")?));
    }
    let n = a.as_i64().or_else(|| a.as_bool().map(i64::from)).ok_or("has no integer value")?;
    Ok(Attr::scalar_int(c, ty, n))
}
