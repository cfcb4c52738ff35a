//! Positions in a tensor of scores, whatever leading dimensions it has.
//!
//! Leading dimensions are split and merged on the way from the product to the softmax; the
//! row-major number of a matrix in them is the same in all of these shapes, and `batch * heads +
//! head` in the attention.
use crate::decompose::tools::Math;
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// An index of a tensor as a function of the position of a score.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Zero,
    Query,
    Key,
    /// `number / stride`, modulo `size` unless the dimension is the outermost.
    Lead {
        stride: i64,
        size: Option<i64>,
    },
}

/// The position of an element of scores of these sizes.
pub(super) fn places(dims: &[Dim]) -> Result<Vec<Place>, &'static str> {
    let (mut all, mut stride) = (vec![Place::Key, Place::Query], Dim::Known(1));
    let lead = dims.len().checked_sub(2).ok_or("its scores are a vector")?;
    if dims.iter().any(|d| d.known() == Some(0)) {
        return Err("it has no scores");
    }
    let first = dims[..lead].iter().position(|d| d.known() != Some(1));
    for (i, d) in dims[..lead].iter().enumerate().rev() {
        if d.known() == Some(1) {
            all.push(Place::Zero);
            continue;
        }
        let size = if first == Some(i) { None } else { Some(d.known().ok_or(DYNAMIC)?) };
        all.push(Place::Lead { stride: stride.known().ok_or(DYNAMIC)?, size });
        stride = stride.mul(d);
    }
    all.reverse();
    Ok(all)
}

const DYNAMIC: &str = "its numbers of heads are dynamic";

/// The arguments of a region that are its position, and the sizes of batch and heads.
pub(super) struct Position<'a> {
    pub(super) args: &'a [Value],
    pub(super) sizes: [Option<i64>; 2],
}

impl Position<'_> {
    /// Builds an index.
    pub(super) fn build(&self, m: &Math<'_>, place: &Place) -> Result<Value> {
        let [batch, head, query, key] = self.args[..] else {
            return Err("has no position".into());
        };
        let (stride, size) = match place {
            Place::Zero => return number(m, 0),
            Place::Query => return Ok(query),
            Place::Key => return Ok(key),
            Place::Lead { stride, size } => (*stride, *size),
        };
        let heads = self.sizes[1];
        let (from, stride, whole) = match heads {
            Some(n) if stride % n == 0 => (batch, stride / n, self.sizes[0]),
            Some(n) if self.sizes[0] == Some(1) || size.is_some_and(|s| n % (stride * s) == 0) => {
                (head, stride, Some(n))
            }
            Some(n) => {
                let first = m.binary(BinaryKind::Mul, batch, number(m, n)?)?;
                (m.add(first, head)?, stride, None)
            }
            // One leading dimension after the batch, which then is the heads.
            None if size.is_none() && stride == 1 => (head, 1, None),
            None => return Err("has a dynamic number of heads".into()),
        };
        let quotient = match stride {
            1 => from,
            n => m.binary(BinaryKind::FloorDiv, from, number(m, n)?)?,
        };
        match size {
            Some(n) if whole != stride.checked_mul(n) => {
                m.binary(BinaryKind::Rem, quotient, number(m, n)?)
            }
            _ => Ok(quotient),
        }
    }
}

fn number(m: &Math<'_>, n: i64) -> Result<Value> {
    m.b.add(&Splat { value: Attr::scalar_int(m.b.ctx, DType::I64, n), sizes: vec![] })
}
