//! Python's operators on sizes and on the floats and conditions that they determine (`SymInt`,
//! `SymFloat`, `SymBool`).
//!
//! A float that is a size over an integer stays exact, as [`Val::Fraction`], while PyTorch's double
//! is: over a power of two, or rounded once. Others become 0-d f64 tensors.
use super::{Args, Cx, Outcome, Row, Val};
use crate::capture::{srepr::size_op, unsupported};
use kiln_dialects::{ir::*, ops::*, rules::UNBOUNDED, sym, value::DType};

macro_rules! two {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "a, b",
            build: |cx, a| {
                let v = cx.symbolic(Operator::$kind, argument(a, "a")?, argument(a, "b")?)?;
                Ok(Outcome::One(v))
            },
        }
    };
}
macro_rules! integer {
    ($name:literal, $argument:literal, $rounding:ident) => {
        Row {
            name: $name,
            arguments: $argument,
            build: |cx, a| {
                let v = cx.symbolic_int(argument(a, $argument)?, Rounding::$rounding)?;
                Ok(Outcome::One(v))
            },
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    two!("_operator.add", Add),
    two!("_operator.sub", Sub),
    two!("_operator.mul", Mul),
    two!("_operator.floordiv", Floordiv),
    two!("_operator.mod", Mod),
    two!("_operator.truediv", Truediv),
    two!("_operator.pow", Pow),
    two!("_operator.lshift", Lshift),
    two!("_operator.rshift", Rshift),
    two!("torch.sym_max", Max),
    two!("torch.sym_min", Min),
    two!("_operator.and_", And),
    two!("_operator.or_", Or),
    Row {
        name: "_operator.neg",
        arguments: "a",
        build: |cx, a| {
            let v = cx.symbolic(Operator::Mul, argument(a, "a")?, Val::Int(Size::Static(-1)))?;
            Ok(Outcome::One(v))
        },
    },
    Row {
        name: "_operator.pos",
        arguments: "a",
        build: |_, a| Ok(Outcome::One(argument(a, "a")?)),
    },
    Row {
        name: "_operator.abs",
        arguments: "a",
        build: |cx, a| {
            let x = argument(a, "a")?;
            let less = cx.symbolic(Operator::Mul, x.clone(), Val::Int(Size::Static(-1)))?;
            Ok(Outcome::One(cx.symbolic(Operator::Max, x, less)?))
        },
    },
    integer!("torch.sym_int", "a", Trunc),
    integer!("math.trunc", "x", Trunc),
    integer!("math.floor", "x", Floor),
    integer!("math.ceil", "x", Ceil),
    Row {
        name: "torch.sym_float",
        arguments: "a",
        build: |cx, a| {
            Ok(Outcome::One(match argument(a, "a")? {
                Val::Int(Size::Static(n)) => Val::Float(n as f64),
                Val::Int(n) => Val::Fraction(n, 1),
                Val::Bool(b) => Val::Float(f64::from(b)),
                Val::Number(x, d) if !d.is_float() => {
                    let v = cx.scalar(&Val::Number(x, d), DType::F64)?;
                    cx.number_of(v, DType::F64)
                }
                float => float,
            }))
        },
    },
    Row {
        name: "torch._sym_sqrt",
        arguments: "a",
        build: |cx, a| {
            let x = cx.scalar(&argument(a, "a")?, DType::F64)?;
            let v = cx.unary(UnaryKind::Sqrt, x)?;
            Ok(Outcome::One(cx.number_of(v, DType::F64)))
        },
    },
    Row { name: "torch.sym_ite", arguments: "b, t, f", build: choice },
    Row {
        name: "torch.sym_sum",
        arguments: "args",
        build: |cx, a| {
            let terms = a.sizes("args")?;
            let sum = terms.iter().try_fold(Size::Static(0), |sum, n| cx.size_add(sum, *n))?;
            Ok(Outcome::One(Val::Int(sum)))
        },
    },
];

/// An operator on two numbers or conditions.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Add,
    Sub,
    Mul,
    Floordiv,
    Mod,
    Truediv,
    Pow,
    Lshift,
    Rshift,
    Max,
    Min,
    And,
    Or,
}

/// How a float becomes an integer.
#[derive(Clone, Copy)]
enum Rounding {
    Trunc,
    Floor,
    Ceil,
}

/// A present argument. Graphs of `torch.compile` name operands x and y.
fn argument(a: &Args<'_>, name: &str) -> Result<Val> {
    let other = match name {
        "a" => "x",
        "b" => "y",
        same => same,
    };
    let found = a.get(name).or_else(|| a.get(other));
    found.cloned().ok_or_else(|| format!("argument {name} is missing").into())
}

/// A constant among symbolic arguments.
pub(super) fn literal(j: &serde_json::Value) -> Option<Val> {
    let int = || j["as_int"].as_i64().map(|n| Val::Int(Size::Static(n)));
    let float = || j["as_float"].as_f64().map(Val::Float);
    int().or_else(float).or_else(|| j["as_bool"].as_bool().map(Val::Bool))
}

/// A float as an integer over a power of two, if both are so small that products with sizes stay
/// exact as doubles.
fn dyadic(x: f64) -> Option<(i64, i64)> {
    let scaled = (0..=20).map(|k| 1i64 << k).find(|d| (x * *d as f64).fract() == 0.0)?;
    let n = x * scaled as f64;
    (n.abs() < f64::from(1 << 24)).then_some((n as i64, scaled))
}

/// A number as a size over a positive integer, if it is exactly that.
pub(super) fn fraction(v: &Val) -> Option<(Size, i64)> {
    match v {
        Val::Int(n) => Some((*n, 1)),
        Val::Fraction(n, d) => Some((*n, *d)),
        Val::Float(x) => dyadic(*x).map(|(n, d)| (Size::Static(n), d)),
        _ => None,
    }
}

fn is_power_of_two(n: i64) -> bool {
    n.unsigned_abs().is_power_of_two()
}

impl Cx {
    /// A 0-d tensor as a Python number.
    fn number_of(&mut self, v: Value, d: DType) -> Val {
        Val::Number(self.store.fresh(v), d)
    }
    /// A number or a condition as a 0-d tensor.
    pub(super) fn scalar(&mut self, v: &Val, to: DType) -> Result<Value> {
        match v {
            Val::Int(n) => self.size_data(*n, to),
            Val::Fraction(n, d) => {
                let x = self.size_data(*n, DType::F64)?;
                let x = self.binary(BinaryKind::Div, x, self.number(DType::F64, *d as f64)?)?;
                self.convert(x, to)
            }
            Val::Float(x) => self.number(to, *x),
            Val::Bool(b) => self.number(to, f64::from(*b)),
            Val::Condition(kind, x, y) => {
                let n = self.indicator(*kind, *x, *y)?;
                self.size_data(n, to)
            }
            Val::Number(x, _) => {
                let x = self.get(*x)?;
                self.convert(x, to)
            }
            _ => Err("wants a number".into()),
        }
    }
    /// A size as a 0-d tensor; it may be negative.
    pub(super) fn size_data(&self, n: Size, to: DType) -> Result<Value> {
        if self.is_not_negative(n) {
            return self.b.size_as_tensor(n, to);
        }
        let zero = Size::Static(0);
        let less = self.size_mul(n, Size::Static(-1))?;
        let above = self.b.size_as_tensor(self.size_max(n, zero)?, DType::I64)?;
        let below = self.b.size_as_tensor(self.size_max(less, zero)?, DType::I64)?;
        let v = self.binary(BinaryKind::Sub, above, below)?;
        self.convert(v, to)
    }
    /// 1 where a comparison holds, else 0.
    pub(super) fn indicator(&self, kind: CompareKind, x: Size, y: Size) -> Result<Size> {
        let (zero, one) = (Size::Static(0), Size::Static(1));
        let above = |x: Size, y: Size| self.size_max(self.size_sub(x, y)?, zero);
        let not = |n: Size| self.size_sub(one, n);
        match kind {
            CompareKind::Gt => self.size_min(above(x, y)?, one),
            CompareKind::Lt => self.size_min(above(y, x)?, one),
            CompareKind::Ne => self.size_min(self.size_add(above(x, y)?, above(y, x)?)?, one),
            kind => not(self.indicator(sym::opposite(kind), x, y)?),
        }
    }
    /// A comparison of two numbers; `None` where a tensor's value decides it.
    pub(super) fn compared(&self, kind: CompareKind, x: &Val, y: &Val) -> Result<Val> {
        let (Some((m, d)), Some((n, e))) = (fraction(x), fraction(y)) else {
            return Ok(Val::None);
        };
        let (m, n) = (self.size_mul(m, Size::Static(e))?, self.size_mul(n, Size::Static(d))?);
        Ok(match (m.known(), n.known()) {
            (Some(m), Some(n)) => Val::Bool(sym::holds(kind, m, n)),
            _ => Val::Condition(kind, m, n),
        })
    }
    /// The quotient rounded down by a positive divisor. Operands of `kiln.sym_expr floordiv` are not
    /// negative: a negative one is divided as its magnitude, rounded up.
    fn floor_div(&self, x: Size, y: Size) -> Result<Size> {
        if self.is_not_negative(x) {
            return self.size_div(x, y);
        }
        let zero = Size::Static(0);
        let above = self.size_div(self.size_max(x, zero)?, y)?;
        let below = self.size_max(self.size_mul(x, Size::Static(-1))?, zero)?;
        let below = self.size_add(below, self.size_add(y, Size::Static(-1))?)?;
        self.size_sub(above, self.size_div(below, y)?)
    }
    /// The remainder of [`Cx::floor_div`].
    fn floor_mod(&self, x: Size, y: Size) -> Result<Size> {
        if self.is_not_negative(x) {
            return self.size_mod(x, y);
        }
        self.size_sub(x, self.size_mul(self.floor_div(x, y)?, y)?)
    }
    fn symbolic(&mut self, kind: Operator, x: Val, y: Val) -> Result<Val> {
        if matches!(kind, Operator::And | Operator::Or) {
            return self.connected(kind == Operator::And, x, y);
        }
        if let (Val::Int(x), Val::Int(y)) = (&x, &y)
            && let Some(v) = self.integers(kind, *x, *y)?
        {
            return Ok(v);
        }
        if let (Some(x), Some(y)) = (fraction(&x), fraction(&y))
            && let Some(v) = self.fractions(kind, x, y)?
        {
            return Ok(v);
        }
        self.tensors_of(kind, &x, &y)
    }
    /// Both conditions, or one of them.
    fn connected(&self, both: bool, x: Val, y: Val) -> Result<Val> {
        let flag = |v: &Val| match v {
            Val::Bool(b) => Ok(Size::Static(i64::from(*b))),
            Val::Condition(kind, x, y) => self.indicator(*kind, *x, *y),
            _ => Err(unsupported("connects what are no conditions on sizes")),
        };
        match (&x, &y) {
            (Val::Bool(b), other) | (other, Val::Bool(b)) => {
                Ok(if *b == both { other.clone() } else { Val::Bool(*b) })
            }
            // Conditions on the values of tensors are not checked.
            (Val::None, _) | (_, Val::None) => Ok(Val::None),
            _ => {
                let (x, y) = (flag(&x)?, flag(&y)?);
                let n = if both { self.size_mul(x, y)? } else { self.size_max(x, y)? };
                Ok(Val::Condition(CompareKind::Ne, n, Size::Static(0)))
            }
        }
    }
    /// Of integers to an integer, or to a quotient.
    fn integers(&self, kind: Operator, x: Size, y: Size) -> Result<Option<Val>> {
        let int = |kind, y| size_op(&self.b, kind, x, y).map(|n| Some(Val::Int(n)));
        let power = |y: i64| u32::try_from(y).ok().and_then(|y| 2i64.checked_pow(y));
        let factor = || match y.known() {
            Some(n) => Ok(Size::Static(power(n).ok_or("shifts too far")?)),
            None => size_op(&self.b, SymKind::Pow, Size::Static(2), y),
        };
        match kind {
            Operator::Add => int(SymKind::Add, y),
            Operator::Sub => self.size_sub(x, y).map(|n| Some(Val::Int(n))),
            Operator::Mul => int(SymKind::Mul, y),
            Operator::Max => int(SymKind::Max, y),
            Operator::Min => int(SymKind::Min, y),
            // By a negative divisor, both change their signs.
            Operator::Floordiv | Operator::Mod if y.known().is_some_and(|y| y < 0) => {
                let (x, y) =
                    (self.size_mul(x, Size::Static(-1))?, self.size_mul(y, Size::Static(-1))?);
                Ok(Some(Val::Int(match kind {
                    Operator::Floordiv => self.floor_div(x, y)?,
                    _ => self.size_mul(self.floor_mod(x, y)?, Size::Static(-1))?,
                })))
            }
            Operator::Floordiv => self.floor_div(x, y).map(|n| Some(Val::Int(n))),
            Operator::Mod => self.floor_mod(x, y).map(|n| Some(Val::Int(n))),
            Operator::Pow if self.is_not_negative(y) => int(SymKind::Pow, y),
            Operator::Lshift => int(SymKind::Mul, factor()?),
            Operator::Rshift => self.floor_div(x, factor()?).map(|n| Some(Val::Int(n))),
            _ => Ok(None),
        }
    }
    /// Of fractions to a fraction where PyTorch's double is exact too, or rounded once.
    fn fractions(
        &self,
        kind: Operator,
        (m, d): (Size, i64),
        (n, e): (Size, i64),
    ) -> Result<Option<Val>> {
        let times = |n: Size, k: i64| self.size_mul(n, Size::Static(k));
        let value = |n: Size, d: Option<i64>| {
            let d = d.filter(|d| *d < 1 << 40)?;
            Some(match n.known() {
                Some(n) => Val::Float(n as f64 / d as f64),
                None => Val::Fraction(n, d),
            })
        };
        let exact = is_power_of_two(d) && is_power_of_two(e);
        let both = d.checked_mul(e);
        Ok(match kind {
            Operator::Add if exact => value(self.size_add(times(m, e)?, times(n, d)?)?, both),
            Operator::Sub if exact => value(self.size_sub(times(m, e)?, times(n, d)?)?, both),
            Operator::Max => value(self.size_max(times(m, e)?, times(n, d)?)?, both),
            Operator::Min => value(self.size_min(times(m, e)?, times(n, d)?)?, both),
            Operator::Mul => {
                let scales = |n: Size| n.known().is_some_and(is_power_of_two);
                let fits =
                    exact || is_power_of_two(e) && scales(n) || is_power_of_two(d) && scales(m);
                if fits { value(self.size_mul(m, n)?, both) } else { None }
            }
            Operator::Truediv => match n.known() {
                Some(0) => return Err("float division by zero".into()),
                Some(k) if is_power_of_two(d) || is_power_of_two(k) && is_power_of_two(e) => {
                    value(times(m, e * k.signum())?, d.checked_mul(k.abs()))
                }
                _ => None,
            },
            Operator::Floordiv => match n.known().filter(|k| *k > 0 && exact) {
                Some(k) => match d.checked_mul(k) {
                    Some(k) => value(self.floor_div(times(m, e)?, Size::Static(k))?, Some(1)),
                    None => None,
                },
                None => None,
            },
            _ => None,
        })
    }
    /// Of 0-d tensors: what data determines, or doubles that round.
    fn tensors_of(&mut self, kind: Operator, x: &Val, y: &Val) -> Result<Val> {
        let whole = |v: &Val| match v {
            Val::Int(_) | Val::Bool(_) | Val::Condition(..) => true,
            Val::Number(_, d) => !d.is_float(),
            _ => false,
        };
        let float = !(whole(x) && whole(y)) || matches!(kind, Operator::Truediv | Operator::Pow);
        let d = if float { DType::F64 } else { DType::I64 };
        let (x, y) = (self.scalar(x, d)?, self.scalar(y, d)?);
        let kind = match kind {
            Operator::Add => BinaryKind::Add,
            Operator::Sub => BinaryKind::Sub,
            Operator::Mul => BinaryKind::Mul,
            Operator::Truediv => BinaryKind::Div,
            Operator::Floordiv => BinaryKind::FloorDiv,
            Operator::Pow => BinaryKind::Pow,
            Operator::Max => BinaryKind::Max,
            Operator::Min => BinaryKind::Min,
            Operator::Mod => {
                let v = super::arithmetic::modulo(self, x, y)?;
                return Ok(self.number_of(v, d));
            }
            _ => return Err(unsupported("shifts a number that data determines")),
        };
        let v = self.binary(kind, x, y)?;
        Ok(self.number_of(v, d))
    }
    /// A float as an integer: a size.
    fn symbolic_int(&mut self, v: Val, how: Rounding) -> Result<Val> {
        if let Some((n, d)) = fraction(&v) {
            let d = Size::Static(d);
            let less = |n: Size| self.size_mul(n, Size::Static(-1));
            let zero = Size::Static(0);
            return Ok(Val::Int(match how {
                _ if d == Size::Static(1) => n,
                Rounding::Floor => self.floor_div(n, d)?,
                Rounding::Trunc if self.is_not_negative(n) => self.size_div(n, d)?,
                Rounding::Trunc => self.size_sub(
                    self.size_div(self.size_max(n, zero)?, d)?,
                    self.size_div(self.size_max(less(n)?, zero)?, d)?,
                )?,
                Rounding::Ceil => less(self.floor_div(less(n)?, d)?)?,
            }));
        }
        let float = match v {
            Val::Float(x) => {
                let x = match how {
                    Rounding::Trunc => x.trunc(),
                    Rounding::Floor => x.floor(),
                    Rounding::Ceil => x.ceil(),
                };
                if x.abs() < 2f64.powi(63) {
                    return Ok(Val::Int(Size::Static(x as i64)));
                }
                return Err(format!("makes {x} an integer").into());
            }
            Val::Number(_, d) => d.is_float(),
            _ => return Err("wants a number".into()),
        };
        if !float {
            return Ok(v);
        }
        let x = self.scalar(&v, DType::F64)?;
        let kind = match how {
            Rounding::Trunc => UnaryKind::Trunc,
            Rounding::Floor => UnaryKind::Floor,
            Rounding::Ceil => UnaryKind::Ceil,
        };
        let x = self.convert(self.unary(kind, x)?, DType::I64)?;
        Ok(Val::Int(self.unbacked(x, Size::Static(UNBOUNDED))?))
    }
}

/// `t if b else f`.
fn choice(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (t, f) = (argument(a, "t")?, argument(a, "f")?);
    let (kind, x, y) = match argument(a, "b") {
        Ok(Val::Bool(b)) => return Ok(Outcome::One(if b { t } else { f })),
        Ok(Val::Condition(kind, x, y)) => (kind, x, y),
        _ => return Err(unsupported("chooses by a condition on the values of tensors")),
    };
    let holds = cx.indicator(kind, x, y)?;
    if let (Val::Int(t), Val::Int(f)) = (&t, &f) {
        let not = cx.size_sub(Size::Static(1), holds)?;
        let n = cx.size_add(cx.size_mul(holds, *t)?, cx.size_mul(not, *f)?)?;
        return Ok(Outcome::One(Val::Int(n)));
    }
    let holds = cx.size_data(holds, DType::I1)?;
    let (t, f) = (cx.scalar(&t, DType::F64)?, cx.scalar(&f, DType::F64)?);
    let v = cx.select(holds, t, f)?;
    Ok(Outcome::One(cx.number_of(v, DType::F64)))
}
