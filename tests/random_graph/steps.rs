//! The steps of a graph: each builds one or more ops.
use super::values::{Graph, SMOOTH, dtype};
use kiln::dialects::{ir::*, ops::*, value::DType};

/// Kinds of steps.
pub const STEPS: &str = "unary unary unary weight_gradient binary binary compare select clamp convert bitcast splat iota constant broadcast reshape \
    transpose slice pad concat reverse gather scatter dynamic_slice dynamic_update_slice reduce arg cumulative sort dot window random \
    convolution winograd pieces joined place control control";

pub type Made = Result<Vec<Value>, kiln_dialects::Error>;

impl Graph {
    /// One step, on exact values where small errors would become large ones.
    pub fn any_step(&mut self, kind: &str) -> Made {
        let jumps = ["compare", "select", "convert", "bitcast", "arg", "sort"];
        self.exact = self.material.continuous && jumps.contains(&kind);
        self.step(kind)
    }

    /// One step; nothing if no value fits.
    pub fn step(&mut self, kind: &str) -> Made {
        let b = self.b;
        let none = Ok(vec![]);
        let one = |v: Result<Value, kiln_dialects::Error>| v.map(|v| vec![v]);
        match kind {
            "unary" => {
                let kind = self.pick(UnaryKind::ALL);
                self.exact |= self.material.continuous && !SMOOTH.contains(&kind);
                let x = self.any();
                let made = b.generic(kind.op().name(), &[x], &[x.ty()], &[], &mut []);
                self.checked(made?, matches!(kind, UnaryKind::IsFinite | UnaryKind::IsNan))
            }
            "binary" => {
                let kind = self.pick(BinaryKind::ALL);
                let jumps = matches!(
                    kind,
                    BinaryKind::Rem
                        | BinaryKind::FloorDiv
                        | BinaryKind::Div
                        | BinaryKind::Pow
                        | BinaryKind::Atan2
                );
                self.exact |= self.material.continuous && jumps;
                let x = self.any();
                let divides =
                    matches!(kind, BinaryKind::Div | BinaryKind::Rem | BinaryKind::FloorDiv);
                // An integer divisor of 0 is an error.
                let y = if divides && dtype(x).is_int() {
                    b.splat(dtype(x), &b.sizes_of(x)?, 3.0)?
                } else {
                    self.like(x)?
                };
                let made = b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut []);
                self.checked(made?, false)
            }
            "compare" => {
                let lhs = self.any();
                let (rhs, kind) = (self.like(lhs)?, self.pick(CompareKind::ALL));
                one(b.add(&Compare { kind, lhs, rhs }))
            }
            "select" => {
                let on_true = self.any();
                let (on_false, other) = (self.like(on_true)?, self.like(on_true)?);
                let condition =
                    b.add(&Compare { kind: CompareKind::Ge, lhs: on_true, rhs: other })?;
                one(b.add(&Select { condition, on_true, on_false }))
            }
            "clamp" => {
                let Some(input) = self.value(|_, d| d != DType::I1) else { return none };
                let (low, high) = (self.like(input)?, self.like(input)?);
                one(b.add(&Clamp { input, low, high }))
            }
            "convert" => {
                let (input, to) = (self.any(), self.pick(self.material.dtypes));
                one(b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) }))
            }
            "bitcast" => {
                let input = self.any();
                let same: Vec<DType> = self
                    .material
                    .dtypes
                    .iter()
                    .copied()
                    .filter(|d| d.bits() == dtype(input).bits())
                    .collect();
                let to = self.pick(&same);
                one(b.add(&Bitcast { input, dtype: Type::scalar(b.ctx, to) }))
            }
            "splat" => {
                let (like, to) = (self.any(), self.pick(self.material.dtypes));
                one(b.splat(to, &b.sizes_of(like)?, 2.0))
            }
            "iota" => {
                let Some((like, axis)) = self.shaped() else { return none };
                let to = self.pick(&self.material.dtypes[..self.material.dtypes.len() - 1]);
                one(b.add(&Iota { sizes: b.sizes_of(like)?, axis, dtype: Type::scalar(b.ctx, to) }))
            }
            "constant" => {
                let (to, n) = (self.pick(self.material.dtypes), 1 + self.random.below(3));
                let value = Attr::dense(b.ctx, &self.random.tensor(to, &[n, 2]))?;
                Ok(b.create_with(&Constant { value }, &[value.type_of()], &mut [])?.results())
            }
            "broadcast" => {
                let Some(input) = self.value(|d, _| d.len() < 3) else { return none };
                let (at, n) =
                    (self.random.below(input.ty().dims().len() + 1), self.pick(&[1, 2, 3]));
                let mut sizes = b.sizes_of(input)?;
                let dims = (0..sizes.len()).map(|i| (i + usize::from(i >= at)) as i64).collect();
                sizes.insert(at, Size::Static(n));
                one(b.add(&BroadcastInDim { input, dims, sizes }))
            }
            "reshape" => {
                let Some(input) = self.value(|d, _| d.len() < 4) else { return none };
                let mut sizes = b.sizes_of(input)?;
                match sizes.iter().position(|s| *s == Size::Static(1)) {
                    Some(i) => drop(sizes.remove(i)),
                    None => sizes.insert(self.random.below(sizes.len() + 1), Size::Static(1)),
                }
                one(b.add(&Reshape { input, sizes }))
            }
            "transpose" => {
                let input = self.any();
                let permutation = self.permutation(input.ty().dims().len());
                one(b.add(&Transpose { input, permutation }))
            }
            "slice" => {
                let Some((input, axis)) = self.shaped() else { return none };
                let (mut sizes, axis) = (b.sizes_of(input)?, axis as usize);
                let mut offsets = Size::all(&vec![0; sizes.len()]);
                (offsets[axis], sizes[axis]) = match sizes[axis] {
                    Size::Static(n) if n > 0 => {
                        let from = self.random.below(n as usize) as i64;
                        (
                            Size::Static(from),
                            Size::Static(1 + self.random.below((n - from) as usize) as i64),
                        )
                    }
                    Size::Static(_) => return none,
                    Size::Dynamic(n) => self.half(n)?,
                };
                let strides = vec![1; sizes.len()];
                one(b.add(&Slice { input, offsets, sizes, strides }))
            }
            "pad" => {
                let Some((input, axis)) = self.shaped() else { return none };
                let counts = |n: i64| {
                    (0..input.ty().dims().len())
                        .map(|i| Size::Static(if i == axis as usize { n } else { 0 }))
                        .collect()
                };
                let value = self.scalar(dtype(input), 1.0)?;
                one(b.add(&Pad {
                    input,
                    value,
                    low: counts(self.pick(&[0, 1])),
                    high: counts(self.pick(&[0, 1])),
                }))
            }
            "concat" => {
                let Some((x, axis)) = self.shaped() else { return none };
                let y = self.like(x)?;
                one(b.add(&Concat { inputs: vec![x, y], axis }))
            }
            "place" => {
                let Some(x) =
                    self.value(|d, _| !d.is_empty() && d.iter().all(|d| d.known().is_some()))
                else {
                    return none;
                };
                let (y, own) = (self.like(x)?, b.sizes_of(x)?);
                let (mut offsets, mut sizes) = (vec![Size::Static(0); own.len()], own.clone());
                let n = own[0].known().unwrap_or_default();
                (offsets[0], sizes[0]) = (Size::Static(n), Size::Static(2 * n));
                let first = b.add(&InsertSlice {
                    source: x,
                    dest: None,
                    start: None,
                    axis: None,
                    offsets: vec![Size::Static(0); own.len()],
                    sizes: sizes.clone(),
                })?;
                one(b.add(&InsertSlice {
                    source: y,
                    dest: Some(first),
                    start: None,
                    axis: None,
                    offsets,
                    sizes,
                }))
            }
            "reverse" => {
                let input = self.any();
                let dims = self.subset(input.ty().dims().len());
                one(b.add(&Reverse { input, dims }))
            }
            "gather" | "scatter" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if input.ty().dims()[axis as usize].known() == Some(0) {
                    return none;
                }
                let index = b.splat(DType::I64, &Size::all(&[2]), 0.0)?;
                let taken = b.add(&Gather { input, indices: vec![index], dims: vec![axis] })?;
                if kind == "gather" {
                    return Ok(vec![taken]);
                }
                let integer = !dtype(input).is_float();
                let kind = if integer && dtype(input) != DType::I1 {
                    self.pick(ScatterKind::ALL)
                } else {
                    ScatterKind::Assign
                };
                one(b.add(&Scatter {
                    kind,
                    input,
                    updates: taken,
                    indices: vec![index],
                    dims: vec![axis],
                }))
            }
            "dynamic_slice" | "dynamic_update_slice" => {
                let Some(input) =
                    self.value(|d, _| d.iter().all(|d| d.known().is_none_or(|n| n > 0)))
                else {
                    return none;
                };
                let start = self.scalar(DType::I32, 1.0)?;
                let starts = vec![start; input.ty().dims().len()];
                let sizes = b
                    .sizes_of(input)?
                    .into_iter()
                    .map(|s| if s.known().is_some() { Size::Static(1) } else { s })
                    .collect();
                let part = b.add(&DynamicSlice { input, starts: starts.clone(), sizes })?;
                if kind == "dynamic_slice" {
                    return Ok(vec![part]);
                }
                one(b.add(&DynamicUpdateSlice { input, update: part, starts }))
            }
            "reduce" => {
                let input = self.any();
                let dims = self.subset(input.ty().dims().len());
                let all: &[ReduceKind] = match dtype(input) {
                    DType::I1 => &[ReduceKind::Any, ReduceKind::All],
                    _ if input.ty().dims().iter().any(|d| d.known() == Some(0)) => {
                        &[ReduceKind::Sum]
                    }
                    _ => &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min],
                };
                let kind = self.pick(all);
                one(b.add(&Reduce { kind, input, dims, maybe_empty: false }))
            }
            "arg" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if input.ty().dims()[axis as usize].known() == Some(0) {
                    return none;
                }
                one(if self.random.below(2) == 0 {
                    b.add(&ArgMax { input, axis })
                } else {
                    b.add(&ArgMin { input, axis })
                })
            }
            "cumulative" => {
                let Some((input, axis)) = self.shaped().filter(|(v, _)| dtype(*v) != DType::I1)
                else {
                    return none;
                };
                let kind = self.pick(CumulativeKind::ALL);
                one(b.add(&Cumulative { kind, input, axis }))
            }
            "sort" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if self.random.below(2) == 0 {
                    return Ok(b.create_node(&Sort { input, axis, descending: true })?.results());
                }
                let k = input.ty().dims()[axis as usize].known().unwrap_or(1).min(2);
                Ok(b.create_node(&TopK { input, axis, k, smallest: false })?.results())
            }
            "dot" => {
                let Some((lhs, axis)) = self
                    .shaped()
                    .filter(|(v, _)| dtype(*v) != DType::I1 && v.ty().dims().len() < 3)
                else {
                    return none;
                };
                let rhs = self.like(lhs)?;
                let (lhs_contract, rhs_contract, lhs_batch, rhs_batch) =
                    (vec![axis], vec![axis], vec![], vec![]);
                one(b.add(&DotGeneral {
                    lhs,
                    rhs,
                    lhs_batch,
                    rhs_batch,
                    lhs_contract,
                    rhs_contract,
                    element_type: None,
                }))
            }
            "random" => {
                let (like, to) =
                    (self.any(), self.pick(&[DType::F64, DType::F32, DType::F16, DType::BF16]));
                let key = b.splat(DType::I64, &Size::all(&[2]), 5.0)?;
                let (sizes, dtype) = (b.sizes_of(like)?, Type::scalar(b.ctx, to));
                one(match self.random.below(4) {
                    0 => {
                        let [seed, block, stream] =
                            [5.0, 7.0, 9.0].map(|n| b.splat(DType::I64, &sizes, n));
                        let words = Philox { seed: seed?, block: block?, stream: stream? };
                        b.create_node(&words).map(|op| op.result(2))
                    }
                    1 => b.add(&RandomBits { key, sizes, dtype: Type::scalar(b.ctx, DType::I32) }),
                    2 => b.add(&RandomUniform { key, sizes, dtype, low: -1.0, high: 1.0 }),
                    _ => b.add(&RandomNormal { key, sizes, dtype, mean: 0.0, std: 1.0 }),
                })
            }
            "winograd" | "convolution" | "weight_gradient" | "pieces" => self.convolutions(kind),
            "joined" => {
                let Some(x) = self.value(|d, t| {
                    t != DType::I1 && d.len() == 2 && d.iter().all(|d| d.known() != Some(0))
                }) else {
                    return none;
                };
                one(self.joined(x))
            }
            "control" => self.control(),
            _ => {
                let Some(input) =
                    self.value(|d, t| t != DType::I1 && d.iter().all(|d| d.known() != Some(0)))
                else {
                    return none;
                };
                let n = input.ty().dims().len();
                let (kind, ones) = (self.pick(CumulativeKind::ALL), vec![1; n]);
                let (window, pad_high) = (vec![2; n], ones.clone());
                one(b.add(&ReduceWindow {
                    kind,
                    input,
                    window,
                    strides: ones.clone(),
                    pad_low: vec![0; n],
                    pad_high,
                    dilation: ones,
                }))
            }
        }
    }

    /// One half of a dynamic size, rounded up: offset and length.
    fn half(&mut self, n: Value) -> Result<(Size, Size), kiln_dialects::Error> {
        let b = self.b;
        let made = |kind: SymKind, lhs: Value, rhs: i64| {
            b.create_with(
                &SymExpr { kind, lhs, rhs: b.index(rhs)? },
                &[Type::index(b.ctx)],
                &mut [],
            )
            .map(|op| op.result(0))
        };
        let before = made(SymKind::Floordiv, n, 2)?;
        let size = Size::Dynamic(made(SymKind::Floordiv, made(SymKind::Add, n, 1)?, 2)?);
        Ok((if self.random.below(2) == 0 { Size::Static(0) } else { Size::Dynamic(before) }, size))
    }

    /// Matmuls, pools, reductions and norms of a matrix's rows, concatenated.
    fn joined(&mut self, x: Value) -> Result<Value, kiln_dialects::Error> {
        let (b, sizes) = (self.b, self.b.sizes_of(x)?);
        let (height, width) = (sizes[0], sizes[1]);
        let mut inputs = vec![];
        for _ in 0..2 + self.random.below(2) {
            let piece = match self.random.below(5) {
                0 => x,
                1 => {
                    let columns = self.pick(&[1, 3, 16]);
                    let rhs = b.splat(dtype(x), &[width, Size::Static(columns)], 2.0)?;
                    let (lhs_batch, rhs_batch, lhs_contract, rhs_contract) =
                        (vec![], vec![], vec![1], vec![0]);
                    b.add(&DotGeneral {
                        lhs: x,
                        rhs,
                        lhs_batch,
                        rhs_batch,
                        lhs_contract,
                        rhs_contract,
                        element_type: None,
                    })?
                }
                2 => {
                    let (strides, dilation, pad_low, pad_high) =
                        (vec![1, 1], vec![1, 1], vec![0, 1], vec![0, 0]);
                    let (kind, window) = (CumulativeKind::Max, vec![1, 2]);
                    b.add(&ReduceWindow {
                        kind,
                        input: x,
                        window,
                        strides,
                        pad_low,
                        pad_high,
                        dilation,
                    })?
                }
                n => {
                    let sum = b.add(&Reduce {
                        kind: ReduceKind::Sum,
                        input: x,
                        dims: vec![1],
                        maybe_empty: false,
                    })?;
                    let columns = if n == 3 { Size::Static(1) } else { width };
                    let all = b.add(&BroadcastInDim {
                        input: sum,
                        dims: vec![0],
                        sizes: vec![height, columns],
                    })?;
                    if n == 3 { all } else { b.add(&Add { lhs: x, rhs: all })? }
                }
            };
            inputs.push(piece);
        }
        b.add(&Concat { inputs, axis: 1 })
    }

    /// The result of an op built without its shape rule; nothing if the rule rejects it.
    fn checked(&self, op: Op, to_i1: bool) -> Made {
        let view = View::of(op).ok_or("has no view")?;
        match kiln::dialects::rules::infer_types(&view) {
            Ok(types) => {
                if to_i1 {
                    op.result(0).set_ty(types[0]);
                }
                Ok(op.results())
            }
            Err(_) => {
                op.erase();
                Ok(vec![])
            }
        }
    }
}
