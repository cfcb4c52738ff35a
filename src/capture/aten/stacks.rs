//! Stacks in NumPy's words, products of lists, and enumerations of positions.
use super::{
    Args, Cx, Outcome, Row, arithmetic::common_of, formula::Term, formula::value,
    promote::result_type, tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.hstack.default", arguments: "tensors", build: |cx, a| stack(cx, a, 'h') },
    Row { name: "aten.vstack.default", arguments: "tensors", build: |cx, a| stack(cx, a, 'v') },
    Row { name: "aten.dstack.default", arguments: "tensors", build: |cx, a| stack(cx, a, 'd') },
    Row {
        name: "aten.column_stack.default",
        arguments: "tensors",
        build: |cx, a| stack(cx, a, 'c'),
    },
    Row { name: "aten.block_diag.default", arguments: "tensors", build: block_diag },
    Row { name: "aten.kron.default", arguments: "self, other", build: kron },
    Row { name: "aten.cartesian_prod.default", arguments: "tensors", build: cartesian },
    Row {
        name: "aten.combinations.default",
        arguments: "self, r=2, with_replacement=False",
        build: combinations,
    },
    Row {
        name: "aten._chunk_cat.default",
        arguments: "tensors, dim, num_chunks",
        build: chunk_cat,
    },
    Row {
        name: "aten.vander.default",
        arguments: "x, N=None, increasing=False",
        build: |cx, a| {
            let x = cx.tensor(a, "x")?;
            if rank_of(x) != 1 {
                return Err("x must be a one-dimensional tensor.".into());
            }
            let mut v = vander(cx, a)?;
            if !a.flag("increasing", false)? {
                v = cx.b.add(&Reverse { input: v, dims: vec![1] })?;
            }
            cx.one(v)
        },
    },
    Row {
        name: "aten.linalg_vander.default",
        arguments: "x, N=None",
        build: |cx, a| {
            let v = vander(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.tril_indices.default",
        arguments: "row, col, offset=0, dtype=torch.int64",
        build: |cx, a| triangle(cx, a, true),
    },
    Row {
        name: "aten.triu_indices.default",
        arguments: "row, col, offset=0, dtype=torch.int64",
        build: |cx, a| triangle(cx, a, false),
    },
];

/// Tensors of a list in their common dtype.
fn operands(cx: &mut Cx, a: &Args<'_>) -> Result<Vec<Value>> {
    let all = cx.tensors(a, "tensors")?;
    if all.is_empty() {
        return Err("expects a non-empty TensorList".into());
    }
    let d = common_of(&all)?;
    all.into_iter().map(|v| cx.convert(v, d)).collect()
}

/// Of columns (`h`), rows (`v`), depth (`d`), or of vectors as columns (`c`).
fn stack(cx: &mut Cx, a: &Args<'_>, kind: char) -> Result<Outcome> {
    let unit = Size::Static(1);
    let mut all = vec![];
    for x in operands(cx, a)? {
        let sizes = cx.b.sizes_of(x)?;
        let shape = match (kind, sizes.as_slice()) {
            ('h', []) => vec![unit],
            ('v', []) | ('c', []) => vec![unit, unit],
            ('v', [n]) => vec![unit, *n],
            ('c', [n]) => vec![*n, unit],
            ('d', []) => vec![unit; 3],
            ('d', [n]) => vec![unit, *n, unit],
            ('d', [m, n]) => vec![*m, *n, unit],
            _ => sizes.clone(),
        };
        all.push(if shape == sizes { x } else { cx.reshape(x, shape)? });
    }
    let axis = match kind {
        'h' => usize::from(rank_of(all[0]) > 1),
        'v' => 0,
        'd' => 2,
        _ => 1,
    };
    let v = cx.joined(all, axis)?;
    cx.one(v)
}

/// Each matrix padded to all columns, below the former ones.
fn block_diag(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut all = vec![];
    for x in operands(cx, a)? {
        let sizes = cx.b.sizes_of(x)?;
        all.push(match sizes.as_slice() {
            [] => cx.reshape(x, vec![Size::Static(1); 2])?,
            [n] => cx.reshape(x, vec![Size::Static(1), *n])?,
            [_, _] => x,
            _ => return Err("torch.block_diag: Input tensors must have 2 or fewer dimensions".into()),
        });
    }
    let widths = all.iter().map(|v| cx.b.size_of(*v, 1)).collect::<Result<Vec<_>>>()?;
    let total = widths.iter().try_fold(Size::Static(0), |n, w| cx.size_add(n, *w))?;
    let mut before = Size::Static(0);
    let mut rows = vec![];
    for (x, width) in all.into_iter().zip(widths) {
        let after = cx.size_sub(cx.size_sub(total, before)?, width)?;
        rows.push(cx.zero_padded(x, 1, before, after)?);
        before = cx.size_add(before, width)?;
    }
    let v = cx.joined(rows, 0)?;
    cx.one(v)
}

fn kron(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
    let rank = rank_of(x).max(rank_of(y));
    let unit = Size::Static(1);
    let whole = |v: Value| -> Result<Vec<Size>> {
        let sizes = cx.b.sizes_of(v)?;
        Ok([vec![unit; rank - sizes.len()], sizes].concat())
    };
    let (m, n) = (whole(x)?, whole(y)?);
    // Types are promoted after both have the same rank.
    let (x, y) = (cx.reshape(x, m.clone())?, cx.reshape(y, n.clone())?);
    let dtype = result_type(&[x, y], &[])?;
    let (x, y) = (cx.convert(x, dtype)?, cx.convert(y, dtype)?);
    let pair = |left: bool| {
        let all = m.iter().zip(&n);
        all.flat_map(|(m, n)| if left { [*m, unit] } else { [unit, *n] }).collect::<Vec<_>>()
    };
    let (x, y) = (cx.reshape(x, pair(true))?, cx.reshape(y, pair(false))?);
    let kind = if dtype_of(x)? == DType::I1 { BinaryKind::And } else { BinaryKind::Mul };
    let v = cx.binary(kind, x, y)?;
    let sizes = m.iter().zip(&n).map(|(m, n)| cx.size_mul(*m, *n)).collect::<Result<_, _>>()?;
    let v = cx.reshape(v, sizes)?;
    cx.one(v)
}

fn cartesian(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let all = operands(cx, a)?;
    if all.iter().any(|v| rank_of(*v) != 1) {
        return Err("Expect a 1D vector".into());
    }
    if let [one] = all.as_slice() {
        return cx.one(*one);
    }
    let sizes = all.iter().map(|v| cx.b.size_of(*v, 0)).collect::<Result<Vec<_>>>()?;
    let n = cx.size_product(&sizes)?;
    let mut columns = vec![];
    for (i, v) in all.into_iter().enumerate() {
        let v = cx.spread(v, &[i as i64], &sizes)?;
        columns.push(cx.reshape(v, vec![n, Size::Static(1)])?);
    }
    let v = cx.joined(columns, 1)?;
    cx.one(v)
}

/// `n (n - 1) … (n - r + 1) / r!`.
fn choose_size(cx: &Cx, n: Size, r: i64) -> Result<Size> {
    if let Some(n) = n.known() {
        let all = (0..r).try_fold(1i64, |c, i| Some(c.checked_mul((n - i).max(0))? / (i + 1)));
        return all.map(Size::Static).ok_or_else(|| "has too many combinations".into());
    }
    (0..r).try_fold(Size::Static(1), |c, i| {
        cx.size_div(cx.size_mul(c, cx.size_add(n, Size::Static(-i))?)?, Size::Static(i + 1))
    })
}

/// The number of ways to choose `r` of `n`, elementwise, in exact integers.
fn choose<'f>(n: Term<'f>, r: i64) -> Term<'f> {
    (1..r).fold(n, |c, i| (c * (n - i as f64)) / (i as f64 + 1.0))
}

/// The combinations of `r` of `n` numbers in lexicographic order, as `r` columns: each place is
/// unranked in the combinatorial number system, counted from the last combination.
pub(super) fn chosen(cx: &Cx, n: Size, r: i64) -> Result<Vec<Value>> {
    let total = choose_size(cx, n, r)?;
    let (place, count) = (cx.count(total)?, cx.size_value(n)?);
    let all = cx.size_value(total)?;
    let mut left = value(cx, |f| f.of(all) - 1.0 - f.of(place))?;
    let mut columns = vec![];
    for s in (1..=r).rev() {
        // The greatest c of which s can be chosen in no more than `left` ways.
        let c = match s {
            1 => left,
            // c (c - 1) / 2 <= left; the root is exact where equality holds.
            2 => value(cx, |f| {
                let root = (f.of(left).to(DType::F64) * 8.0 + 1.0).sqrt();
                ((root + 1.0) / 2.0).floor().to(DType::I64)
            })?,
            s => {
                let shape = [total, n];
                let j = cx.iota(DType::I64, shape.to_vec(), 1)?;
                let most = cx.spread(left, &[0], &shape)?;
                let within = value(cx, |f| choose(f.of(j), s).le(f.of(most)).to(DType::I64))?;
                let count = cx.reduced(ReduceKind::Sum, within, &[1])?;
                value(cx, |f| f.of(count) - 1.0)?
            }
        };
        left = value(cx, |f| f.of(left) - choose(f.of(c), s))?;
        columns.push(value(cx, |f| f.of(count) - 1.0 - f.of(c))?);
    }
    Ok(columns)
}

fn combinations(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    if rank_of(x) != 1 {
        return Err("Expect a 1D vector".into());
    }
    let r = a.int("r", Some(2))?;
    if r < 1 {
        return if r == 0 {
            let v = cx.b.splat(dtype_of(x)?, &[Size::Static(0)], 0.0)?;
            cx.one(v)
        } else {
            Err(format!("Expect a non-negative number, but got {r}").into())
        };
    }
    let mut n = cx.b.size_of(x, 0)?;
    let again = a.flag("with_replacement", false)?;
    if again {
        // Of n + r - 1 places, choose r; the i-th then moves back by i.
        n = cx.size_add(n, Size::Static(r - 1))?;
    }
    let mut columns = vec![];
    for (i, mut index) in chosen(cx, n, r)?.into_iter().enumerate() {
        if again && i > 0 {
            index = cx.binary(BinaryKind::Sub, index, cx.integer(DType::I64, i as i64)?)?;
        }
        columns.push(cx.unsqueezed(index, 1)?);
    }
    let index = cx.joined(columns, 1)?;
    let v = cx.take_axis(x, index, 0)?;
    cx.one(v)
}

/// Each tensor in `num_chunks` parts along a dimension, padded by zeros; parts side by side.
fn chunk_cat(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let chunks = Size::Static(a.int("num_chunks", None)?.max(1));
    let all = operands(cx, a)?;
    let axis = wrap(a.int("dim", None)?, rank_of(all[0]))?;
    let mut parts = vec![];
    for x in all {
        let mut sizes = cx.b.sizes_of(x)?;
        let n = *sizes.get(axis).ok_or("expects non-zero dimensions for input tensors")?;
        let most = cx.size_add(n, cx.size_add(chunks, Size::Static(-1))?)?;
        let padded = cx.size_mul(cx.size_div(most, chunks)?, chunks)?;
        let x = cx.zero_padded(x, axis, Size::Static(0), cx.size_sub(padded, n)?)?;
        sizes[axis] = cx.size_div(padded, chunks)?;
        let each = cx.size_product(&sizes[axis..])?;
        parts.push(cx.reshape(x, [&sizes[..axis], &[chunks, each]].concat())?);
    }
    let v = cx.joined(parts, axis + 1)?;
    cx.one(v)
}

/// Powers 0 to N - 1 in a new last dimension, as running products.
fn vander(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let x = cx.tensor(a, "x")?;
    let x = cx.vector(x)?;
    let rank = rank_of(x);
    let d = dtype_of(x)?;
    let x = if d.is_float() { x } else { cx.convert(x, DType::I64)? };
    let n = if a.has("N") { a.size("N")? } else { cx.b.size_of(x, rank - 1)? };
    if n.known().is_some_and(|n| n < 0) {
        return Err("N must be non-negative.".into());
    }
    let sizes = [cx.b.sizes_of(x)?, vec![n]].concat();
    let v = cx.spread(x, &(0..rank as i64).collect::<Vec<_>>(), &sizes)?;
    let i = cx.iota(DType::I64, sizes, rank)?;
    let v = value(cx, |f| f.of(i).eq(0.0).select(1.0, f.of(v)))?;
    cx.scanned(CumulativeKind::Prod, v, rank)
}

/// Rows and columns of a triangle's elements, in row-major order.
fn triangle(cx: &mut Cx, a: &Args<'_>, lower: bool) -> Result<Outcome> {
    let (rows, columns) = (a.int("row", None)?, a.int("col", None)?);
    let offset = a.int("offset", Some(0))?;
    let d = a.dtype("dtype")?.unwrap_or(DType::I64);
    if rows < 0 || columns < 0 {
        return Err(format!("row and col must be non-negative, got {rows} and {columns}").into());
    }
    // The upper triangle is the lower one of the other diagonal, turned by half a circle.
    let diagonal = if lower { offset } else { columns - rows - offset };
    let length = |r: i64| (r + diagonal + 1).clamp(0, columns);
    // Rows: empty ones, then one more element each, then full ones.
    let empty = (-diagonal).clamp(0, rows);
    let first = if empty < rows { length(empty) } else { 0 };
    let growing = (columns - first).clamp(0, rows - empty);
    let slope = (2 * first + growing - 1) * growing / 2;
    let total = slope + (rows - empty - growing) * if empty < rows { columns } else { 0 };
    let k = cx.count(Size::Static(total))?;
    let parts = |column: bool| {
        value(cx, |f| {
            let k = f.of(k);
            let k = if lower { k } else { k.number((total - 1) as f64) - k };
            // Row r of the slope begins at r (2 first + r - 1) / 2; the root is exact there.
            let twice = (2 * first - 1) as f64;
            let root = (k.to(DType::F64) * 8.0 + twice * twice).sqrt();
            let r = ((root - twice) / 2.0).floor().to(DType::I64);
            let c = k - (r * (r + twice)) / 2.0;
            let rest = k - slope as f64;
            let width = columns.max(1) as f64;
            let steep = k.lt(slope as f64);
            let row = steep.select(r, rest / width + growing as f64) + empty as f64;
            let column_at = steep.select(c, rest.remainder(width));
            match (column, lower) {
                (false, true) => row,
                (true, true) => column_at,
                (false, false) => row.number((rows - 1) as f64) - row,
                (true, false) => row.number((columns - 1) as f64) - column_at,
            }
        })
    };
    let (row, column) = (parts(false)?, parts(true)?);
    let both = vec![cx.unsqueezed(row, 0)?, cx.unsqueezed(column, 0)?];
    let v = cx.convert(cx.joined(both, 0)?, d)?;
    cx.one(v)
}
