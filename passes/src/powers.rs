//! `kiln-powers`: powers with a known integer exponent of 5 or more become products by repeated
//! squaring, and `x^0.5` becomes a square root.
//!
//! Why: a vectorised `math.powf` takes about as long as fifty multiplications. Exponents up to 4
//! stay here, since `kiln-to-linalg` writes them as products within the error of the general power.
//!
//! Numerics: approximates. `x^n` is off by at most (n - 1) / 2 ulp of the dtype that computes it:
//! f32 for f16 and bf16, the tensor's own otherwise. No product overflows where the power does not.
//! A square root is as exact as the power. Zeros, infinities and NaN give what `pow` of IEEE
//! 754-2019 gives: `pow(-0, 0.5)` is +0 and `pow(-inf, 0.5)` is +inf. PyTorch computes
//! `torch.pow(x, 0.5)` as `sqrt(x)`, with -0 and NaN there; capture writes it so.
//!
//! ```text
//! before:  %0 = kiln.pow %x, %five
//! after:   %1 = kiln.mul %x, %x   %2 = kiln.mul %1, %1   %0 = kiln.mul %2, %x
//! ```
use crate::{
    pass::{Numerics, Pass},
    simplify::splats::{dtype, scalar_of},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct Powers {
        /// Greatest exponent that is written as products
        pub most: usize = 31,
    }
}

impl Pass for Powers {
    const FLAG: &'static str = "kiln-powers";
    const SUMMARY: &'static str =
        "Expands powers with an integer exponent of 5 or more into products, and x^0.5 into sqrt";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(pow) = Pow::of(op) else { continue };
            let Some(exponent) = exponent(pow.rhs) else { continue };
            let Some(d) = dtype(pow.lhs).filter(|d| d.is_float()) else { continue };
            let integer = exponent.fract() == 0.0 && (5.0..=self.most as f64).contains(&exponent);
            if !integer && exponent != 0.5 {
                continue;
            }
            let b = Builder::before(op).ok_or_else(|| Error::at(op, "is in no block"))?;
            let power = if integer {
                products(&b, pow.lhs, d, exponent as u64)
            } else {
                square_root(&b, pow.lhs, d)
            };
            op.result(0).replace_uses(power.at(op)?);
            op.erase();
        }
        Ok(())
    }
}

/// The number that an exponent is everywhere, seen through movement and through conversions to
/// floats, which capture writes where PyTorch promotes.
fn exponent(mut v: Value) -> Option<f64> {
    let mut conversions = vec![];
    let number = loop {
        if let Some(a) = scalar_of(v) {
            break a.as_f64().or_else(|| a.as_i64().map(|n| n as f64))?;
        }
        let op = v.def()?;
        match op.kind()? {
            OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Transpose => {}
            OpKind::Convert => conversions.push(dtype(v).filter(|d| d.is_float())?),
            _ => return None,
        }
        v = op.operand(0);
    };
    Some(conversions.into_iter().rev().fold(number, |x, d| d.round(x)))
}

/// x^n by repeated squaring, from the lowest bit of n up.
fn products(b: &Builder, x: Value, d: DType, n: u64) -> Result<Value> {
    let wide = if d.bits() < 32 { DType::F32 } else { d };
    let convert = |input: Value, to: DType| {
        if d == wide {
            Ok(input)
        } else {
            b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) })
        }
    };
    let mut square = convert(x, wide)?;
    let (mut power, mut left) = (None, n);
    loop {
        if left & 1 == 1 {
            power = Some(match power {
                None => square,
                Some(lhs) => b.add(&Mul { lhs, rhs: square })?,
            });
        }
        left >>= 1;
        if left == 0 {
            break;
        }
        square = b.add(&Mul { lhs: square, rhs: square })?;
    }
    convert(power.ok_or("has the exponent 0")?, d)
}

/// `sqrt(x + 0)`, since the root of -0 is -0, and +inf of -inf.
fn square_root(b: &Builder, x: Value, d: DType) -> Result<Value> {
    let sizes = b.sizes_of(x)?;
    let splat = |number: f64| b.splat(d, &sizes, number);
    let root = b.add(&Add { lhs: x, rhs: splat(0.0)? })?;
    let root = b.add(&Sqrt { input: root })?;
    let (lowest, infinite) = (splat(f64::NEG_INFINITY)?, splat(f64::INFINITY)?);
    let condition = b.add(&Compare { kind: CompareKind::Eq, lhs: x, rhs: lowest })?;
    b.add(&Select { condition, on_true: infinite, on_false: root })
}
