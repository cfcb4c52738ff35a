//! In-register transposes of squares: as many vectors as lanes.
use crate::emit::{
    code::Code,
    lanes::{LaneValue, Lanes},
};
use kiln_dialects::{ir::*, value::DType};

/// Calls `f` for each of `count` rows.
pub fn vectors_of_rows(
    c: Code,
    count: usize,
    f: &mut dyn FnMut(Code, usize) -> Result<Value>,
) -> Result<Vec<Value>> {
    (0..count).map(|i| f(c, i)).collect()
}

/// Transposes as many vectors as lanes. Each round interleaves the two halves, which rotates the
/// (row, lane) index by one bit; log2(lanes) rounds swap both indices.
pub fn shuffled(c: Code, mut rows: Vec<Value>) -> Result<Vec<Value>> {
    let n = rows.len();
    let low: Vec<i64> = (0..n).map(|i| (i / 2 + (i % 2) * n) as i64).collect();
    let high: Vec<i64> = low.iter().map(|i| i + n as i64 / 2).collect();
    for _ in 0..n.trailing_zeros() {
        let mut next = vec![];
        for i in 0..n / 2 {
            let (a, b) = (rows[i], rows[i + n / 2]);
            for mask in [&low, &high] {
                next.push(vector::shuffle(c, a, b, mask, a.ty())?);
            }
        }
        rows = next;
    }
    Ok(rows)
}

/// Stores each row to its address; `bound`: the index of the first row, and the row count.
pub fn store_rows(
    c: Code,
    rows: Vec<Value>,
    bound: Option<(Value, Value)>,
    place: &mut dyn FnMut(Code, usize) -> Result<(Value, LaneValue)>,
) -> Result<()> {
    let n = rows.len();
    for (i, x) in rows.into_iter().enumerate() {
        let (memory, at) = place(c, i)?;
        let mask = match bound {
            None => None,
            Some((first, size)) => {
                // The mask is all lanes of an existing row, and none of others.
                let left = c.sub(size, c.add(first, c.index(i as i64)?)?)?;
                let lanes = c.mul(left, c.index(n as i64)?)?;
                Some(vector::create_mask(
                    c,
                    &[lanes],
                    Type::vector(Type::scalar(c.ctx(), DType::I1), n),
                )?)
            }
        };
        Lanes { count: n, mask }.store(c, memory, at, LaneValue::Vector(x), false)?;
    }
    Ok(())
}
