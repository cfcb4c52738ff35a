//! `kiln-quantized-weights`: brings the frozen, quantised weights of products of few rows into the
//! form that a GPU's kernel dequantises in registers.
//!
//! Why: decoding reads each weight once, so that its time is that of the weights' bytes. Integers
//! that fit 4 bits, as far as their masks and shifts say, are stored two in a byte, K-major, the
//! element of even K in the lower half; how the archive packs them is undone once, at load
//! (`kiln-freeze`). Scales and zero points that change along K every 16 (int8) or 32 (int4)
//! elements at the earliest become matrices of a column a group. Movement ops go below the
//! elementwise ones, which are marked for the product's kernel.
//!
//! Numerics: exact; the same ops on the same values.
//!
//! ```text
//! before:  %q = … : tensor<1024x512xi32>   %f = kiln.convert %q   %w = kiln.mul %f, %s   %0 = kiln.dot_general %x, %w …
//! after:   %p = … : tensor<1024x256xui8>   %u = kiln.and (kiln.shr %p, [0, 4]), 15   %f = kiln.convert %u {kiln.prologue} …
//! ```
pub(in crate::kernels) mod groups;
mod path;
mod ranges;

use crate::{
    kernels::{
        frozen::{Frozen, INDEX, STORED},
        fuse::gated_pairs::has_few_rows,
        marks::PROLOGUE,
    },
    target::costs::{SKINNY_K, SKINNY_ROWS},
};
use kiln_dialects::{ir::*, ops::*, rules::Level, value::DType};
use kiln_passes::{Numerics, Pass, broadcasting::binary, permutation::inverse};
use path::{Source, Step, path};
use ranges::{dtype, number};

/// Elements of a thread's 16 bytes of weights: of 8 and of 4 bits.
const VECTORS: [i64; 2] = [16, 32];
/// Fewest rows of the weights: M of mma.sync.
const LEAST_ROWS: i64 = 16;

kiln_passes::pass_options! {
    /// The pass.
    pub struct QuantizedWeights {}
}

impl Pass for QuantizedWeights {
    const FLAG: &'static str = "kiln-quantized-weights";
    const SUMMARY: &'static str =
        "Packs int4 weights of products of few rows, for dequantisation in registers";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let mut found = false;
            for op in ops {
                let Some(operand) = Operand::of(op, &frozen) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                found = true;
                if let Some(weights) = operand.rebuilt(&b).at(op)? {
                    op.set_operand(operand.number, weights);
                }
            }
            // Not before: `frozen` knows values by their address.
            if found {
                block.ops().into_iter().rev().filter(|op| is_dead(*op)).for_each(Op::erase);
            }
        }
        Ok(())
    }
}

fn is_dead(op: Op) -> bool {
    let pure = op.kind().is_some_and(|k| k.is_elementwise() || k.family() == Family::Movement);
    pure && op.results().iter().all(|v| v.uses().is_empty())
}

/// The quantised weights of a product of few rows.
struct Operand {
    /// Which operand of the product they are.
    number: usize,
    value: Value,
    /// The dimensions, K last.
    order: Vec<i64>,
    /// Rows, and K.
    sizes: [i64; 2],
    source: Source,
    /// From the source up to the operand.
    steps: Vec<Step>,
}

/// What an elementwise op on the way up reads besides the weights.
#[derive(Clone, Copy)]
enum Other {
    None,
    Number(f64),
    Tensor(Value),
}

impl Operand {
    fn of(product: Op, frozen: &Frozen) -> Option<Operand> {
        let dot = DotGeneral::of(product)?;
        let narrow = |v: Value| matches!(dtype(v), Some(DType::BF16 | DType::F16));
        if !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) || !dot.lhs_batch.is_empty() {
            return None;
        }
        let sides = [(1, dot.rhs, &dot.rhs_contract), (0, dot.lhs, &dot.lhs_contract)];
        sides.into_iter().find_map(|(number, value, contract)| {
            let [k] = contract.as_slice() else { return None };
            let dims = value.ty().dims();
            let all: Vec<i64> = dims.iter().map(|d| d.known()).collect::<Option<_>>()?;
            let free = (0..all.len() as i64).filter(|d| d != k);
            let order: Vec<i64> = free.chain([*k]).collect();
            let depth = *all.get(*k as usize)?;
            let rows = all.iter().product::<i64>().checked_div(depth)?;
            let few = has_few_rows(&dot, SKINNY_ROWS);
            let (source, steps) = path(value, frozen)?;
            let o = Operand { number, value, order, sizes: [rows, depth], source, steps };
            let read = depth >= SKINNY_K && depth % o.vector() == 0 && rows >= LEAST_ROWS;
            let tables = o.steps.iter().filter_map(|s| o.table_of(s)).collect::<Vec<_>>();
            let frozen = tables.iter().all(|v| frozen.contains(*v));
            // 8-bit elements without a scale are read as they are.
            let changes = o.source.lowest.is_some() || !tables.is_empty();
            (few && read && frozen && changes).then_some(o)
        })
    }
    fn vector(&self) -> i64 {
        VECTORS[usize::from(self.source.lowest.is_some())]
    }
    /// The tensor, if it is one, that an elementwise op reads besides the weights.
    fn table_of(&self, step: &Step) -> Option<Value> {
        match other(step) {
            Other::Tensor(v) => Some(v),
            _ => None,
        }
    }
    /// The operand with movement ops below elementwise ones, which are marked; none if a scale
    /// changes too often along K or is wider than the weights.
    fn rebuilt(&self, b: &Builder) -> Result<Option<Value>> {
        let (mut below, mut computed) = (self.source.value, vec![]);
        for step in &self.steps {
            match step {
                Step::Moved(op) => {
                    below = moved(b, *op, below)?;
                    for (_, _, other) in &mut computed {
                        if let Other::Tensor(v) = other {
                            *v = moved(b, *op, *v)?;
                        }
                    }
                }
                Step::Computed(op, i) => computed.push((*op, *i, other(step))),
            }
        }
        let mut with = vec![];
        for (op, i, other) in computed {
            let other = match other {
                Other::Tensor(v) => match self.table(b, v)? {
                    Some(v) => Other::Tensor(v),
                    None => return Ok(None),
                },
                plain => plain,
            };
            with.push((op, i, other));
        }
        let rows = self.as_rows(b, below)?;
        let mut v = match self.source.lowest {
            Some(lowest) => unpacked(b, packed(b, rows, lowest)?, lowest, rows)?,
            None => rows,
        };
        for (op, i, other) in with {
            v = marked(applied(b, op, i, v, other)?);
        }
        self.as_operand(b, v).map(Some)
    }
    /// A value of the operand's shape as rows of K.
    fn as_rows(&self, b: &Builder, v: Value) -> Result<Value> {
        reshaped(b, transposed(b, v, self.order.clone())?, &self.sizes).map(index)
    }
    /// Rows of K in the operand's shape.
    fn as_operand(&self, b: &Builder, v: Value) -> Result<Value> {
        let dims = self.value.ty().dims();
        let sizes: Vec<i64> =
            self.order.iter().filter_map(|d| dims.get(*d as usize)?.known()).collect();
        transposed(b, reshaped(b, v, &sizes)?, inverse(&self.order))
    }
    /// A scale or zero point of the operand's shape as rows of K, read from a matrix of a column a
    /// group, of the type that it was widened from.
    fn table(&self, b: &Builder, v: Value) -> Result<Option<Value>> {
        let [n, k] = self.sizes;
        let axis = self.order.last().map_or(0, |d| *d as usize);
        let run = match groups::run_length(v, axis) {
            0 => k,
            run => run,
        };
        let wide = dtype(v).ok_or("is no tensor")?;
        let element = dtype(self.value).ok_or("is no tensor")?;
        let stored = stored_as(v, element).filter(|_| run % self.vector() == 0 && k % run == 0);
        let Some(stored) = stored else { return Ok(None) };
        let runs = index(reshaped(b, self.as_rows(b, v)?, &[n, k / run, run])?);
        let first = b.add(&Slice {
            input: runs,
            offsets: Size::all(&[0, 0, 0]),
            sizes: Size::all(&[n, k / run, 1]),
            strides: vec![1, 1, 1],
        })?;
        let columns = reshaped(b, first, &[n, k / run])?;
        let table = converted(b, columns, stored)?;
        if let Some(op) = table.def() {
            op.set_attr(STORED, Attr::unit(b.ctx));
        }
        let sizes = Size::all(&[n, k / run, run]);
        let each = b.add(&BroadcastInDim { input: table, dims: vec![0, 1], sizes })?;
        let rows = index(reshaped(b, each, &[n, k])?);
        Ok(Some(if stored == wide { rows } else { marked(converted(b, rows, wide)?) }))
    }
}

/// What an elementwise op on the way up reads besides the weights.
fn other(step: &Step) -> Other {
    let Step::Computed(op, i) = step else { return Other::None };
    if op.operand_count() < 2 {
        return Other::None;
    }
    let v = op.operand(1 - i);
    number(v).map_or(Other::Tensor(v), Other::Number)
}

/// The type of a value before it was widened: that of the product's operands, or 8-bit integers.
fn stored_as(v: Value, element: DType) -> Option<DType> {
    let narrow = |d: &DType| *d == element || matches!(d, DType::I8 | DType::UI8);
    if let Some(d) = dtype(v).filter(narrow) {
        return Some(d);
    }
    let op = v.def()?;
    match op.kind()? {
        OpKind::Reshape | OpKind::Transpose | OpKind::Slice | OpKind::BroadcastInDim => {
            stored_as(op.operand(0), element)
        }
        OpKind::Convert => dtype(op.operand(0)).filter(narrow),
        _ => None,
    }
}

/// A reshape or a transpose, of another value.
fn moved(b: &Builder, op: Op, input: Value) -> Result<Value> {
    match Transpose::of(op) {
        Some(o) => b.add(&Transpose { input, ..o }),
        None => b.add(&Reshape { input, sizes: b.sizes_of(op.result(0))? }).map(index),
    }
}

/// An elementwise op on other values: `v` as its operand `at`.
fn applied(b: &Builder, op: Op, at: usize, v: Value, other: Other) -> Result<Value> {
    let to = dtype(op.result(0)).ok_or("is no tensor")?;
    let kind = op.kind().ok_or("is no op of kiln")?;
    let other = match other {
        Other::None => return converted(b, v, to),
        Other::Number(n) => b.splat(to, &[], n)?,
        Other::Tensor(other) => other,
    };
    let kind = BinaryKind::from_op(kind).ok_or("is no binary op")?;
    if at == 0 { binary(b, kind, v, other) } else { binary(b, kind, other, v) }
}

/// Rows [N, K] of integers from `lowest` to `lowest + 15` as bytes [N, K / 2].
fn packed(b: &Builder, rows: Value, lowest: i64) -> Result<Value> {
    let from = dtype(rows).ok_or("is no tensor")?;
    let dims: Vec<i64> = rows.ty().dims().iter().filter_map(|d| d.known()).collect();
    let [n, k] = dims[..] else { return Err("is no matrix".into()) };
    let rows = match lowest {
        0 => rows,
        _ => binary(b, BinaryKind::Sub, rows, b.splat(from, &[], lowest as f64)?)?,
    };
    let pairs = reshaped(b, converted(b, rows, DType::UI8)?, &[n, k / 2, 2])?;
    let half = |at: i64| {
        let part = b.add(&Slice {
            input: pairs,
            offsets: Size::all(&[0, 0, at]),
            sizes: Size::all(&[n, k / 2, 1]),
            strides: vec![1, 1, 1],
        })?;
        reshaped(b, part, &[n, k / 2])
    };
    let high = binary(b, BinaryKind::Shl, half(1)?, b.splat(DType::UI8, &[], 4.0)?)?;
    let all = binary(b, BinaryKind::Or, half(0)?, high)?;
    if let Some(op) = all.def() {
        op.set_attr(STORED, Attr::unit(b.ctx));
    }
    Ok(all)
}

/// The inverse of [`packed`], of the type and the sizes of `like`.
fn unpacked(b: &Builder, bytes: Value, lowest: i64, like: Value) -> Result<Value> {
    let dims: Vec<i64> = like.ty().dims().iter().filter_map(|d| d.known()).collect();
    let [n, k] = dims[..] else { return Err("is no matrix".into()) };
    let (pairs, byte) = ([n, k / 2, 2], Type::scalar(b.ctx, DType::UI8));
    let sizes = Size::all(&pairs);
    let bytes = b.add(&BroadcastInDim { input: bytes, dims: vec![0, 1], sizes: sizes.clone() })?;
    let half = b.add(&Iota { sizes, axis: 2, dtype: byte })?;
    let bits = binary(b, BinaryKind::Mul, half, b.splat(DType::UI8, &[], 4.0)?)?;
    let both = marked(binary(b, BinaryKind::Shr, bytes, marked(bits))?);
    let v = marked(binary(b, BinaryKind::And, both, b.splat(DType::UI8, &[], 15.0)?)?);
    let to = dtype(like).ok_or("is no tensor")?;
    let v = marked(converted(b, index(reshaped(b, v, &[n, k])?), to)?);
    match lowest {
        0 => Ok(v),
        _ => binary(b, BinaryKind::Add, v, b.splat(to, &[], lowest as f64)?).map(marked),
    }
}

fn transposed(b: &Builder, input: Value, permutation: Vec<i64>) -> Result<Value> {
    if permutation.is_sorted() { Ok(input) } else { b.add(&Transpose { input, permutation }) }
}

fn reshaped(b: &Builder, input: Value, sizes: &[i64]) -> Result<Value> {
    let same = input.ty().dims().iter().map(|d| d.known()).eq(sizes.iter().map(|n| Some(*n)));
    if same { Ok(input) } else { b.add(&Reshape { input, sizes: Size::all(sizes) }) }
}

/// Converted, between types of which one has all values.
fn converted(b: &Builder, input: Value, to: DType) -> Result<Value> {
    let same = dtype(input) == Some(to);
    if same { Ok(input) } else { b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) }) }
}

/// Marks a reshape as part of its readers' indices.
fn index(v: Value) -> Value {
    if let Some(op) = v.def().filter(|op| op.kind() == Some(OpKind::Reshape)) {
        op.set_attr(INDEX, Attr::unit(op.ctx()));
    }
    v
}

/// Marks the op of a value as part of the product's prologue.
fn marked(v: Value) -> Value {
    if let Some(op) = v.def() {
        op.set_attr(PROLOGUE, Attr::unit(op.ctx()));
    }
    v
}
