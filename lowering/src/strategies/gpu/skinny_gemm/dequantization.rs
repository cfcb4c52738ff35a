//! How a stage's body dequantises the weights: `(q - offset) * scale + zero`, where `q` is an 8-bit
//! integer or float, or half a byte, and a scale is the same for a vector of a row.
use super::{
    bytes::{ByteFunction, Code},
    stored::{Stored, narrow},
};
use crate::{
    analysis::{Access, Body, LinearExpr, Stage},
    strategies::gpu::common::roles::factors,
};
use kiln_dialects::{ir::*, value::DType};

/// The factors of a contraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// The element type that tensor cores multiply: bf16 or f16.
    pub element: DType,
    /// The inputs of the first and of the second factor.
    pub inputs: [usize; 2],
    /// How the first factor is computed.
    pub weights: Dequantization,
}

impl Factors {
    /// Those of a stage that contracts bf16 or f16 with an f32 accumulator.
    pub fn of(stage: &Stage) -> Option<Factors> {
        if let Some(element) = factors(stage).filter(|_| stage.indexed.is_empty()) {
            let weights = Dequantization::plain(0, element);
            return Some(Factors { element, inputs: [0, 1], weights })
                .filter(|f| narrow(&f.element));
        }
        let QuantizedStage { element, few, weights } = QuantizedStage::of(stage)?;
        Some(Factors { element, inputs: [weights.elements, few], weights })
    }
}

/// What is subtracted from the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offset {
    /// A constant.
    Number(i64),
    /// An input.
    Input(usize),
}

/// Quantised weights: which inputs they are computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dequantization {
    /// The elements, and how memory holds them.
    pub elements: usize,
    /// How memory holds them.
    pub stored: Stored,
    /// What is subtracted first.
    pub offset: Offset,
    /// The factor.
    pub scale: Option<usize>,
    /// What is added last.
    pub zero: Option<usize>,
}

/// A value of the body.
#[derive(Clone, Copy)]
enum Form {
    Number(f64),
    Input(usize),
    Weights(Dequantization),
}

/// A stage that contracts rows with quantised weights.
pub struct QuantizedStage {
    /// The type that tensor cores multiply.
    pub element: DType,
    /// The input of the other factor.
    pub few: usize,
    /// The weights.
    pub weights: Dequantization,
}

impl QuantizedStage {
    /// Matches a stage that sums products in f32, of a factor that is an input and of one that is
    /// dequantised and rounded to the same type.
    pub fn of(stage: &Stage) -> Option<QuantizedStage> {
        let Body::Block(block) = stage.body else { return None };
        let contraction = stage.accumulates().filter(|c| c.product == DType::F32)?;
        let k = reduction(stage)?;
        let body = BodyForms { stage, block, k };
        let indexed = |i: &usize| stage.dims.get(*i).and_then(LinearExpr::as_dim) == Some(k);
        if !stage.captured.is_empty() || !stage.indexed.iter().all(indexed) {
            return None;
        }
        [(0, 1), (1, 0)].into_iter().find_map(|(left, right)| {
            let [left, right] = [contraction.factors[left], contraction.factors[right]];
            let few = body.input(right)?;
            let element = right.ty().dtype().ok().filter(narrow)?;
            let rounded = left.def().filter(|t| t.isa::<arith::TruncF>())?;
            let same = left.ty().dtype() == Ok(element);
            let Form::Weights(weights) = body.form(rounded.operand(0))? else { return None };
            let apart = weights.inputs().all(|i| i != few);
            (same && apart && body.fits(&weights, element)).then_some(QuantizedStage {
                element,
                few,
                weights,
            })
        })
    }
}

/// The only reduction loop.
fn reduction(stage: &Stage) -> Option<usize> {
    let mut all = (0..stage.reduction.len()).filter(|d| stage.reduction[*d]);
    all.next().filter(|_| all.next().is_none())
}

impl Dequantization {
    /// The elements as they are.
    pub fn plain(elements: usize, element: DType) -> Dequantization {
        let stored = Stored::Element(element);
        Dequantization { elements, stored, offset: Offset::Number(0), scale: None, zero: None }
    }
    /// The inputs that are the same for a vector: offset, scale, zero point.
    pub fn tables(&self) -> impl Iterator<Item = usize> {
        let offset = match self.offset {
            Offset::Input(i) => Some(i),
            Offset::Number(_) => None,
        };
        [offset, self.scale, self.zero].into_iter().flatten()
    }
    fn inputs(&self) -> impl Iterator<Item = usize> {
        [self.elements].into_iter().chain(self.tables())
    }
    fn minus(self, form: Form) -> Option<Dequantization> {
        let (None, None, Offset::Number(n)) = (self.scale, self.zero, self.offset) else {
            return None;
        };
        let offset = match form {
            Form::Number(m) if m.fract() == 0.0 => Offset::Number(n + m as i64),
            Form::Input(i) if n == 0 => Offset::Input(i),
            _ => return None,
        };
        Some(Dequantization { offset, ..self })
    }
}

/// The values of a stage's body.
struct BodyForms<'a> {
    stage: &'a Stage,
    block: Block,
    k: usize,
}

impl BodyForms<'_> {
    fn input(&self, v: Value) -> Option<usize> {
        let (block, i) = v.block_arg()?;
        (block == self.block && i < self.stage.inputs.len()).then_some(i)
    }
    /// The input of bytes that vary within a vector.
    fn elements(&self) -> Option<(usize, Value)> {
        let mut all = self.stage.inputs.iter().enumerate().filter(|(i, a)| {
            let byte = self.block.args().get(*i).is_some_and(|v| v.ty().dtype() == Ok(DType::I8));
            byte && (a.at.coefficient(self.k).known() == Some(1) || pairs(a, self.k))
        });
        let (i, _) = all.next().filter(|_| all.next().is_none())?;
        Some((i, *self.block.args().get(i)?))
    }

    fn form(&self, v: Value) -> Option<Form> {
        if let Some(i) = self.input(v) {
            return Some(Form::Input(i));
        }
        let op = v.def()?;
        let of = |i: usize| self.form(op.operand(i));
        match op.name().as_str() {
            arith::Constant::NAME => op.attr("value")?.as_f64().map(Form::Number),
            arith::ExtF::NAME => match of(0)? {
                Form::Input(i) if self.dtype(i) == Some(DType::F8E4M3FN) => {
                    Some(Form::Weights(Dequantization::plain(i, DType::F8E4M3FN)))
                }
                Form::Number(_) => None,
                form => Some(form),
            },
            // What rounds nothing: 16-bit floats have all int8 and 8-bit floats.
            arith::TruncF::NAME => of(0).filter(|f| match f {
                Form::Weights(w) => w.scale.is_none() && w.zero.is_none(),
                Form::Input(i) => self.dtype(*i) == Some(DType::I8),
                Form::Number(_) => false,
            }),
            arith::SIToFP::NAME | arith::UIToFP::NAME => self.integer(op.operand(0)),
            arith::SubF::NAME => match of(0)? {
                Form::Weights(w) => w.minus(of(1)?).map(Form::Weights),
                _ => None,
            },
            arith::AddF::NAME => match (of(0)?, of(1)?) {
                (Form::Weights(w), Form::Number(n)) | (Form::Number(n), Form::Weights(w)) => {
                    w.minus(Form::Number(-n)).map(Form::Weights)
                }
                (Form::Weights(w), Form::Input(i)) | (Form::Input(i), Form::Weights(w)) => {
                    let zero = Dequantization { zero: Some(i), ..w };
                    w.zero.is_none().then_some(Form::Weights(zero))
                }
                _ => None,
            },
            arith::MulF::NAME => match (of(0)?, of(1)?) {
                (Form::Weights(w), Form::Input(i)) | (Form::Input(i), Form::Weights(w)) => {
                    let scaled = Dequantization { scale: Some(i), ..w };
                    (w.scale.or(w.zero).is_none()).then_some(Form::Weights(scaled))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// An integer that becomes a float: an element, or a zero point.
    fn integer(&self, v: Value) -> Option<Form> {
        let extended =
            |v: Value| v.def().filter(|o| o.isa::<arith::ExtSI>()).map_or(v, |o| o.operand(0));
        let (elements, byte) = self.elements()?;
        if let Some(i) = self.input(extended(v)).filter(|i| *i != elements) {
            return Some(Form::Input(i));
        }
        let function = ByteFunction::of(v, byte)?;
        let (code, plus) = function.code()?;
        let stored = match code {
            Code::Int8 => Stored::Element(DType::I8),
            Code::Int4 => Stored::Int4,
        };
        let in_pairs = self.stage.inputs.get(elements).is_some_and(|a| pairs(a, self.k));
        (in_pairs == (stored == Stored::Int4)).then_some(Form::Weights(Dequantization {
            elements,
            stored,
            offset: Offset::Number(-plus),
            scale: None,
            zero: None,
        }))
    }

    /// Whether registers hold what is subtracted exactly, and each table has one element a vector,
    /// of a type that is multiplied as it is.
    fn fits(&self, w: &Dequantization, element: DType) -> bool {
        let offset = match w.offset {
            Offset::Number(n) => w.stored.fits(element, n),
            Offset::Input(i) => self.dtype(i) == Some(DType::I8),
        };
        let multiplied = [w.scale, w.zero].into_iter().flatten();
        let table = |i: usize| {
            self.stage.inputs.get(i).is_some_and(|a| Table::of(a, self.k, w.stored).is_some())
        };
        offset
            && multiplied.into_iter().all(|i| self.dtype(i) == Some(element))
            && w.tables().all(table)
    }
    fn dtype(&self, i: usize) -> Option<DType> {
        self.block.args().get(i)?.ty().dtype().ok()
    }
}

/// Whether an access is to bytes that hold two elements along K each.
pub fn pairs(a: &Access, k: usize) -> bool {
    let [(div, coefficient)] = a.at.divisions.as_slice() else { return false };
    div.dividend.as_dim() == Some(k)
        && (div.divisor, div.modulo, coefficient.known()) == (2, false, Some(1))
        && !a.at.dims.contains_key(&k)
}

/// How a table is read along K.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// How many elements of K share one of the table; none if all of a row do.
    pub run: Option<i64>,
    /// Its elements between those of two runs.
    pub stride: i64,
}

impl Table {
    /// Of an access that is the same for a vector of K.
    pub fn of(a: &Access, k: usize, stored: Stored) -> Option<Table> {
        if !a.at.uses(k) {
            return Some(Table { run: None, stride: 0 });
        }
        let [(div, stride)] = a.at.divisions.as_slice() else { return None };
        let along = div.dividend.as_dim() == Some(k) && !div.modulo;
        let whole = div.divisor % stored.vector() as i64 == 0 && !a.at.dims.contains_key(&k);
        let table = Table { run: Some(div.divisor), stride: stride.known()? };
        (along && whole).then_some(table)
    }
}

/// The address of an access, without the division by which it depends on K.
pub fn without_runs(at: &LinearExpr) -> LinearExpr {
    LinearExpr { divisions: vec![], ..at.clone() }
}
