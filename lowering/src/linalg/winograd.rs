//! The transforms of Winograd's convolutions, each as one nest: an iteration reads a square, and
//! writes an element of each slice of the result.
use crate::{
    analysis::index_expr::IndexExpr,
    linalg::{
        common::Tensors,
        expr::dtype,
        kernel::{Kernel, Nest, slice},
        scalar::{Scalars, storage},
    },
};
use kiln_dialects::{
    ir::*,
    ops::*,
    reference::{winograd_input_matrix, winograd_output_matrix},
};

/// Rows of a matrix of constants.
type Matrix = Vec<Vec<f64>>;

/// Bᵀ x B.
pub fn input(k: &Kernel, op: Op, o: &WinogradInput) -> Tensors {
    let (n, matrix) = (o.tile + 2, winograd_input_matrix(o.tile)?);
    let number = IndexExpr::number;
    let pixel = |dim: usize, at: i64| IndexExpr::dim(dim).times(number(o.tile)).plus(number(at));
    let read =
        |i: i64| vec![IndexExpr::dim(1), pixel(2, i / n), pixel(3, i % n), IndexExpr::dim(4)];
    let sizes = k.sizes_of(op.result(0))?;
    let mut part = sizes.clone();
    part[0] = Size::Static(1);
    let offsets: Vec<Vec<i64>> = (0..n * n).map(|i| vec![i, 0, 0, 0, 0]).collect();
    let reads: Vec<Vec<IndexExpr>> = (0..n * n).map(read).collect();
    slices(k, op, (o.input, reads), (&sizes, &part, &offsets), &|s, x| mirrored_rows(s, &matrix, x))
}

/// Aᵀ x A.
pub fn output(k: &Kernel, op: Op, o: &WinogradOutput) -> Tensors {
    let (m, n, matrix) = (o.tile, o.tile + 2, winograd_output_matrix(o.tile)?);
    let dims = [0, 1, 3, 5].map(IndexExpr::dim);
    let read = |i: i64| [&[IndexExpr::number(i)], &dims[..]].concat();
    let sizes = k.sizes_of(op.result(0))?;
    let mut part = sizes.clone();
    (part[2], part[4]) = (Size::Static(1), Size::Static(1));
    let offsets: Vec<Vec<i64>> = (0..m * m).map(|i| vec![0, 0, i / m, 0, i % m, 0]).collect();
    let reads: Vec<Vec<IndexExpr>> = (0..n * n).map(read).collect();
    slices(k, op, (o.input, reads), (&sizes, &part, &offsets), &|s, x| {
        mirrored_columns(s, &matrix, x)
    })
}

/// One nest over a slice's elements that reads a square of `x` and writes M square Mᵀ, an element to
/// each slice.
fn slices(
    k: &Kernel,
    op: Op,
    (x, reads): (Value, Vec<Vec<IndexExpr>>),
    (sizes, part, offsets): (&[Size], &[Size], &[Vec<i64>]),
    line: &Line<'_>,
) -> Tensors {
    let element = storage(dtype(op.result(0))?);
    let whole = k.empty(element, sizes)?;
    if sizes.iter().any(|s| s.known() == Some(0)) {
        return Ok(vec![whole]);
    }
    let loops: Vec<usize> = (0..sizes.len()).collect();
    let out = |at: &Vec<i64>| slice(k.b, whole, &Size::all(at), part, element);
    let outs = offsets.iter().map(|at| Ok((out(at)?, loops.clone()))).collect::<Result<_>>()?;
    let parts = k.generic(Nest {
        reduction: vec![false; sizes.len()],
        sizes: part.to_vec(),
        outs,
        reads: reads.iter().map(|at| (x, at.clone())).collect(),
        body: &mut |body, _| {
            let square = reads.iter().map(|at| body.element(x, at)).collect::<Result<Vec<_>>>()?;
            both_sides(&body.s, line, &square)
        },
    })?;
    let ones = Size::all(&vec![1; sizes.len()]);
    let insert = |whole: Value, (piece, at): (Value, &Vec<i64>)| {
        tensor::insert_slice(k.b, piece, whole, &Size::all(at), part, &ones)
    };
    Ok(vec![parts.into_iter().zip(offsets).try_fold(whole, insert)?])
}

/// Multiplies a vector by a matrix.
type Line<'a> = dyn Fn(&Scalars, &[Value]) -> Result<Vec<Value>> + 'a;

/// M x Mᵀ of a row-major square x.
fn both_sides(s: &Scalars, line: &Line<'_>, x: &[Value]) -> Result<Vec<Value>> {
    let n = x.len().isqrt();
    let column = |j: usize| (0..n).map(|i| x[i * n + j]).collect::<Vec<_>>();
    let columns = (0..n).map(|j| line(s, &column(j))).collect::<Result<Vec<_>>>()?;
    let mut all = vec![];
    for i in 0..columns.first().map_or(0, Vec::len) {
        all.extend(line(s, &columns.iter().map(|c| c[i]).collect::<Vec<_>>())?);
    }
    Ok(all)
}

/// A vector with the sign of every other entry changed.
fn mirrored(all: &[f64]) -> Vec<f64> {
    all.iter().enumerate().map(|(q, c)| if q % 2 == 1 { -c } else { *c }).collect()
}

/// A matrix times a vector. Two rows whose entries differ by the sign of every other one share their
/// sums over even and over odd entries.
fn mirrored_rows(s: &Scalars, matrix: &Matrix, x: &[Value]) -> Result<Vec<Value>> {
    let mut all = vec![];
    let mut next = 0;
    let every = |row: &[f64], from: usize| {
        let terms = row.iter().zip(x).skip(from).step_by(2).map(|(c, v)| (*c, *v));
        sum(s, &terms.collect::<Vec<_>>())
    };
    while let Some(row) = matrix.get(next) {
        let other = mirrored(row);
        if matrix.get(next + 1) == Some(&other) && other != *row {
            let (even, odd) = (every(row, 0)?, every(row, 1)?);
            all.extend([arith::addf(s, even, odd)?, arith::subf(s, even, odd)?]);
            next += 2;
        } else {
            let terms: Vec<(f64, Value)> = row.iter().copied().zip(x.iter().copied()).collect();
            all.push(sum(s, &terms)?);
            next += 1;
        }
    }
    Ok(all)
}

/// A matrix times a vector. Two columns whose entries differ by the sign of every other one are
/// multiplied by the sum and the difference of their elements.
fn mirrored_columns(s: &Scalars, matrix: &Matrix, x: &[Value]) -> Result<Vec<Value>> {
    let column = |j: usize| matrix.iter().map(|r| r[j]).collect::<Vec<_>>();
    // For each column, what its entries of even and of odd rows multiply.
    let (mut factors, mut next) = (vec![], 0);
    while next < x.len() {
        let own = column(next);
        let other = mirrored(&own);
        if next + 1 < x.len() && column(next + 1) == other && other != own {
            let (a, b) = (x[next], x[next + 1]);
            factors.push((own, [arith::addf(s, a, b)?, arith::subf(s, a, b)?]));
            next += 2;
        } else {
            factors.push((own, [x[next]; 2]));
            next += 1;
        }
    }
    let row = |i: usize| {
        let terms = factors.iter().map(|(c, by)| (c[i], by[i % 2]));
        sum(s, &terms.collect::<Vec<_>>())
    };
    (0..matrix.len()).map(row).collect()
}

/// The sum of products with constants; zeros are left out.
fn sum(s: &Scalars, terms: &[(f64, Value)]) -> Result<Value> {
    let mut terms: Vec<(f64, Value)> = terms.iter().copied().filter(|(c, _)| *c != 0.0).collect();
    // A factor of 1 starts without a product.
    terms.sort_by_key(|(c, _)| *c != 1.0);
    let [(factor, first), rest @ ..] = &terms[..] else { return Err("sums nothing".into()) };
    let first = match *factor {
        1.0 => *first,
        c => arith::mulf(s, *first, s.float(c, *first)?)?,
    };
    rest.iter().try_fold(first, |sum, (c, v)| match *c {
        1.0 => arith::addf(s, sum, *v),
        -1.0 => arith::subf(s, sum, *v),
        c => math::fma(s, *v, s.float(c, *v)?, sum),
    })
}
