//! The structure of a stage, as its op states it: `linalg.contract` or an op `kiln.structured.*`.
use crate::analysis::{Access, Body, Init, LinearExpr, Stage};
use kiln_dialects::{ir::*, ops::FftKind, value::DType};

/// What a stage computes besides loops around a body.
#[derive(Clone, Debug)]
pub enum Structure {
    /// A sum of products.
    Contraction(Contraction),
    /// A cumulative sum, product or extreme.
    Scan(Scan),
    /// A Fourier transform.
    Fft(FourierTransform),
}

/// A Fourier transform along the last dimension, as sums over the operand's. The loops of the
/// stage's op are the outer dimensions, the index in the result, and the index in the operand.
#[derive(Clone, Copy, Debug)]
pub struct FourierTransform {
    /// What it takes and gives.
    pub kind: FftKind,
    /// Its length.
    pub length: i64,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
    /// The real part of an element of the operand, a value of the stage's body.
    pub re: Value,
    /// The imaginary part, if there is one.
    pub im: Option<Value>,
}

/// A cumulative sum, product or extreme, as a reduction for each element. Loops are those of the
/// stage's op.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The loop over elements of the result along the axis.
    pub element: usize,
    /// The reduction loop over the axis.
    pub over: usize,
    /// The value of the stage's body that is combined.
    pub value: Value,
    /// Whether an element does not combine its own.
    pub exclusive: bool,
}

/// A sum of products of two factors.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// The factors, values of the stage's body, before they are extended to `product`.
    pub factors: [Value; 2],
    /// The type in which the factors are multiplied.
    pub product: DType,
    /// The type in which products are added.
    pub accumulator: DType,
}

impl Contraction {
    /// A contraction whose body multiplies these values and adds to elements of `accumulator`.
    pub fn new(factors: [Value; 2], accumulator: Type) -> Result<Contraction> {
        let product = factors[0].ty().dtype()?;
        let extends = |e: &Op| {
            let signed = || e.isa::<arith::ExtSI>() && e.operand(0).ty().dtype() == Ok(DType::I8);
            e.isa::<arith::ExtF>() || signed()
        };
        let narrow = |v: Value| v.def().filter(extends).map_or(v, |e| e.operand(0));
        Ok(Contraction { factors: factors.map(narrow), product, accumulator: accumulator.dtype()? })
    }
    /// The contraction of a `linalg.contract`: elements of its operands, extended to its result's.
    fn named(op: Op, block: Block) -> Result<Contraction> {
        let [a, b, sum] = block.args()[..] else { return Err("has no two operands".into()) };
        let sum = sum.ty().dtype()?;
        ensure_contract(op)?;
        Ok(Contraction { factors: [a, b], product: sum, accumulator: sum })
    }
    /// The element type of both factors, if they are elements of the first two inputs.
    pub fn element(&self) -> Option<DType> {
        let [a, b] = self.factors.map(|v| v.block_arg().map(|(_, i)| i));
        let operands = [a?, b?];
        let own = self.factors[0].ty();
        let first = operands == [0, 1] || operands == [1, 0];
        (first && own == self.factors[1].ty()).then(|| own.dtype().ok()).flatten()
    }
}

fn ensure_contract(op: Op) -> Result<()> {
    // `cast` says how integers are extended; kiln writes contractions of one integer type only.
    let same = op.operand(0).ty().element() == op.operand(1).ty().element();
    if same { Ok(()) } else { Err("contracts operands of two element types".into()) }
}

impl Structure {
    /// The structure of an op that is read as it is.
    pub fn of(op: Op) -> Result<Option<Structure>> {
        let block = op.regions().first().and_then(|r| r.first()).filter(|_| is_contract(op));
        block.map(|b| Contraction::named(op, b).map(Structure::Contraction)).transpose()
    }
}

/// Whether an op is upstream's `linalg.contract`.
pub fn is_contract(op: Op) -> bool {
    op.is("linalg.contract")
}

/// Whether an op of a kernel has loops around a block of scalar ops.
pub fn has_body(op: Op) -> bool {
    op.isa::<linalg::Generic>() || is_contract(op)
}

/// The indexing maps of an op, and which of its loops are reductions.
pub fn loops_of(op: Op) -> Result<(Vec<Vec<Affine>>, Vec<bool>)> {
    let all = op.attr("indexing_maps").and_then(|a| a.as_array()).unwrap_or_default();
    let maps: Vec<_> = all
        .into_iter()
        .map(|m| m.as_affine_map())
        .collect::<Option<_>>()
        .ok_or("has an indexing map that is no affine map")?;
    if let Some(kinds) = op.attr("iterator_types").and_then(|a| a.as_array()) {
        let reduction = kinds.iter().map(|k| k.to_string().contains("reduction")).collect();
        return Ok((maps.into_iter().map(|(_, results)| results).collect(), reduction));
    }
    // Loops that do not index the result are reductions.
    let (loops, result) = maps.last().ok_or("has no indexing maps")?;
    let reduction = (0..*loops).map(|d| !result.contains(&Affine::dim(d))).collect();
    Ok((maps.into_iter().map(|(_, results)| results).collect(), reduction))
}

/// The index of each operand, if it is affine, and which loops are reductions.
pub type Indices = (Vec<Option<Vec<LinearExpr>>>, Vec<bool>);

impl Stage {
    /// The contraction of floats that it is.
    pub fn contraction(&self) -> Option<&Contraction> {
        self.products().filter(|c| c.product.is_float())
    }
    /// The contraction of numbers that it is.
    pub fn products(&self) -> Option<&Contraction> {
        if let Some(Structure::Contraction(c)) = &self.structure { Some(c) } else { None }
    }
    /// Both operands of a product, if it reads no other element: an input without uses only gives
    /// a loop its size.
    pub fn factors(&self) -> Option<[&Access; 2]> {
        let [a, b, sizes @ ..] = self.inputs.as_slice() else { return None };
        let is_read = |i: usize| match self.body {
            Body::Block(block) => block.args().get(2 + i).is_none_or(|v| !v.uses().is_empty()),
            _ => true,
        };
        (!(0..sizes.len()).any(is_read)).then_some([a, b])
    }
    /// The scan that it is.
    pub fn scan(&self) -> Option<&Scan> {
        if let Some(Structure::Scan(s)) = &self.structure { Some(s) } else { None }
    }
    /// The Fourier transform that it is.
    pub fn fft(&self) -> Option<&FourierTransform> {
        if let Some(Structure::Fft(f)) = &self.structure { Some(f) } else { None }
    }
    /// The contraction with one output that starts from a fill or from memory.
    pub fn accumulates(&self) -> Option<&Contraction> {
        self.accumulates_numbers().filter(|c| c.product.is_float())
    }
    /// The same of numbers.
    pub fn accumulates_numbers(&self) -> Option<&Contraction> {
        let [out] = self.outputs.as_slice() else { return None };
        self.products().filter(|_| matches!(out.init, Init::Fill(_) | Init::Load(_)))
    }
    /// The index of each operand of its op over the op's own loops, and which of these loops are
    /// reductions; no index for an operand whose map is not linear.
    pub fn indices(&self) -> Option<Indices> {
        let (maps, reduction) = loops_of(self.op).ok()?;
        let lins = |all: &Vec<Affine>| all.iter().map(|e| LinearExpr::of(e, &[]).ok()).collect();
        Some((maps.iter().map(lins).collect(), reduction))
    }
}
