//! Integer functions of a byte and of its position along K, as bodies of stages compute them:
//! evaluated for every byte, so that it does not matter how masks and shifts are written.
use kiln_dialects::{ir::*, ops::OpKind, value::DType};
use std::collections::HashMap;

/// Positions whose bytes are evaluated: one or two elements a byte repeat every two.
const POSITIONS: u64 = 4;

/// An op on values of a width in bits; operands by their place.
#[derive(Clone, Copy)]
enum Step {
    Byte,
    Position,
    Constant(u64),
    Extended(usize, bool),
    Binary(Kind, usize, usize),
    Compared(i64, usize, usize),
    Selected(usize, usize, usize),
}

#[derive(Clone, Copy)]
enum Kind {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Shl,
    Shr,
    Rem,
}

/// A function of a byte and of its position.
#[derive(Default)]
pub struct ByteFunction {
    steps: Vec<(Step, u32)>,
    place: HashMap<Value, usize>,
    /// The op's loop dimension whose index is the position, if it depends on one.
    pub index: Option<usize>,
}

/// What a function takes from a byte, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    /// The signed byte.
    Int8,
    /// The lower half of even positions, and the upper half of odd ones.
    Int4,
}

impl ByteFunction {
    /// The function that computes an integer from a block argument.
    pub fn of(v: Value, byte: Value) -> Option<ByteFunction> {
        let mut f = ByteFunction::default();
        f.visit(v, byte)?;
        Some(f)
    }

    fn visit(&mut self, v: Value, byte: Value) -> Option<usize> {
        if let Some(place) = self.place.get(&v) {
            return Some(*place);
        }
        let bits = bits(v.ty())?;
        let step = if v == byte { Step::Byte } else { self.step(v.def()?, byte)? };
        self.steps.push((step, bits));
        self.place.insert(v, self.steps.len() - 1);
        Some(self.steps.len() - 1)
    }

    fn step(&mut self, op: Op, byte: Value) -> Option<Step> {
        if op.kind() == Some(OpKind::StructuredIndex) || op.isa::<linalg::Index>() {
            let dim = op.attr("dim")?.as_i64()? as usize;
            return (*self.index.get_or_insert(dim) == dim).then_some(Step::Position);
        }
        if op.isa::<arith::Constant>() {
            return op.attr("value")?.as_i64().map(|n| Step::Constant(n as u64));
        }
        let operands = op.operands();
        let places: Option<Vec<usize>> = operands.iter().map(|o| self.visit(*o, byte)).collect();
        Some(match (op.name().as_str(), places?.as_slice()) {
            (arith::ExtSI::NAME, [a]) => Step::Extended(*a, true),
            (arith::ExtUI::NAME | arith::TruncI::NAME | arith::IndexCast::NAME, [a]) => {
                Step::Extended(*a, false)
            }
            (arith::Select::NAME, [c, a, b]) => Step::Selected(*c, *a, *b),
            (arith::CmpI::NAME, [a, b]) => Step::Compared(op.attr("predicate")?.as_i64()?, *a, *b),
            (name, [a, b]) => Step::Binary(binary(name)?, *a, *b),
            _ => return None,
        })
    }

    /// Which bits it takes, and what it adds to them.
    pub fn code(&self) -> Option<(Code, i64)> {
        let nibble = |byte: u8, k: u64| i64::from(byte >> (4 * (k % 2))) & 15;
        let all = [(Code::Int8, None), (Code::Int4, Some(nibble))];
        all.into_iter().find_map(|(code, nibble)| {
            let taken = |byte: u8, k: u64| match nibble {
                Some(nibble) => nibble(byte, k),
                None => i64::from(byte as i8),
            };
            let plus = self.at(0, 0) - taken(0, 0);
            let same = |byte: u8| (0..POSITIONS).all(|k| self.at(byte, k) - taken(byte, k) == plus);
            (0..=u8::MAX).all(same).then_some((code, plus))
        })
    }

    /// Its value, as a signed integer.
    fn at(&self, byte: u8, position: u64) -> i64 {
        let mut values: Vec<u64> = Vec::with_capacity(self.steps.len());
        for (step, bits) in &self.steps {
            let width = |i: usize| self.steps[i].1;
            let signed = |i: usize| sign_extended(values[i], width(i));
            let v = match *step {
                Step::Byte => u64::from(byte),
                Step::Position => position,
                Step::Constant(n) => n,
                Step::Extended(a, true) => signed(a) as u64,
                Step::Extended(a, false) => values[a],
                Step::Binary(kind, a, b) => kind.apply(values[a], values[b]),
                Step::Compared(predicate, a, b) => {
                    let (x, y, i, j) = (values[a], values[b], signed(a), signed(b));
                    // As arith numbers its predicates.
                    u64::from(match predicate {
                        0 => x == y,
                        1 => x != y,
                        2 => i < j,
                        3 => i <= j,
                        4 => i > j,
                        5 => i >= j,
                        6 => x < y,
                        7 => x <= y,
                        8 => x > y,
                        _ => x >= y,
                    })
                }
                Step::Selected(c, a, b) => values[if values[c] & 1 == 1 { a } else { b }],
            };
            values.push(v & mask(*bits));
        }
        let bits = self.steps.last().map_or(64, |s| s.1);
        sign_extended(values.last().copied().unwrap_or_default(), bits)
    }
}

impl Kind {
    fn apply(self, a: u64, b: u64) -> u64 {
        let by = u32::try_from(b).unwrap_or(u32::MAX);
        match self {
            Kind::Add => a.wrapping_add(b),
            Kind::Sub => a.wrapping_sub(b),
            Kind::Mul => a.wrapping_mul(b),
            Kind::And => a & b,
            Kind::Or => a | b,
            Kind::Shl => a.checked_shl(by).unwrap_or_default(),
            Kind::Shr => a.checked_shr(by).unwrap_or_default(),
            Kind::Rem => a.checked_rem(b).unwrap_or_default(),
        }
    }
}

fn binary(name: &str) -> Option<Kind> {
    Some(match name {
        arith::AddI::NAME => Kind::Add,
        arith::SubI::NAME => Kind::Sub,
        arith::MulI::NAME => Kind::Mul,
        arith::AndI::NAME => Kind::And,
        arith::OrI::NAME => Kind::Or,
        arith::ShLI::NAME => Kind::Shl,
        arith::ShRUI::NAME => Kind::Shr,
        arith::RemUI::NAME => Kind::Rem,
        _ => return None,
    })
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn sign_extended(v: u64, bits: u32) -> i64 {
    let unused = 64 - bits.clamp(1, 64);
    ((v << unused) as i64) >> unused
}

fn bits(ty: Type) -> Option<u32> {
    if ty.is_index() {
        return Some(64);
    }
    let dtype = ty.dtype().ok().filter(|d| !d.is_float())?;
    Some(if dtype == DType::I1 { 1 } else { 8 * dtype.byte_size() as u32 })
}
