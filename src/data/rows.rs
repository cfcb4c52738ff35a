//! Datasets in memory.
use super::Dataset;
use crate::{
    compile::{Leaf, Tree, into_leaves, rebuild},
    runtime::{Buffer, Bytes, DataError},
    tensor::{Array, Tensor, TraceError},
};
use kiln_dialects::value::DType;
use std::{marker::PhantomData, sync::Arc};

/// Examples that are rows (along the first dimension) of tensors, in host memory.
pub struct Rows<T> {
    len: usize,
    leaves: Vec<Row>,
    _tree: PhantomData<fn() -> T>,
}

/// A tensor whose rows are gathered, or what is the same in all batches.
enum Row {
    Tensor { dtype: DType, shape: Vec<usize>, bytes: Bytes },
    Fixed(Leaf),
}

fn mismatch(reason: String) -> TraceError {
    DataError::mismatch(reason).into()
}

fn rebuilt<T: Tree>(leaves: Vec<Leaf>) -> Result<T, TraceError> {
    rebuild(leaves).map_err(TraceError::module)
}

impl<T: Tree> Rows<T> {
    /// Takes the tensors of a tree, such as (inputs, targets). Err: no tensor, one without
    /// dimensions, another number of rows, or one that is poisoned.
    #[track_caller]
    pub fn new(tree: T) -> Result<Rows<T>, TraceError> {
        let (mut len, mut leaves) = (None, vec![]);
        for leaf in into_leaves(tree) {
            let Leaf::Tensor(t) = leaf else {
                leaves.push(Row::Fixed(leaf));
                continue;
            };
            let array = t.array()?;
            let (dtype, shape) = (array.dtype(), array.shape().to_vec());
            let n = *shape.first().ok_or_else(|| mismatch("a tensor has no rows".into()))?;
            if *len.get_or_insert(n) != n {
                let first = len.unwrap_or(0);
                return Err(mismatch(format!("a tensor has {n} rows, the first {first}")));
            }
            leaves.push(Row::Tensor { dtype, shape, bytes: array.bytes()? });
        }
        let len = len.ok_or_else(|| mismatch("there is no tensor".into()))?;
        Ok(Rows { len, leaves, _tree: PhantomData })
    }
}

impl Row {
    fn batch(&self, examples: &[usize]) -> Result<Leaf, TraceError> {
        let (dtype, shape, bytes) = match self {
            Row::Tensor { dtype, shape, bytes } => (dtype, shape, bytes),
            Row::Fixed(leaf) => return Ok(leaf.clone()),
        };
        let (rows, width) = (shape[0], bytes.len() / shape[0].max(1));
        let parts = examples.iter().map(|i| {
            let row = (*i < rows).then(|| bytes.bytes().get(i * width..(i + 1) * width));
            row.flatten().ok_or_else(|| mismatch(format!("there is no row {i} of {rows}")))
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let mut shape = shape.clone();
        shape[0] = examples.len();
        Ok(Leaf::Tensor(joined(*dtype, &shape, &parts)?))
    }
}

/// A tensor of parts that follow one another in memory.
fn joined(dtype: DType, shape: &[usize], parts: &[&[u8]]) -> Result<Tensor, TraceError> {
    let len = parts.iter().map(|p| p.len()).sum();
    let mut buffer = Buffer::zeroed(len).map_err(DataError::from)?;
    let mut rest = buffer.bytes_mut();
    for part in parts {
        let (here, after) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = after;
    }
    Ok(Array::new(dtype, shape, Bytes::owned(buffer))?.into())
}

impl<T: Tree> Dataset for Rows<T> {
    type Batch = T;
    fn len(&self) -> usize {
        self.len
    }
    fn batch(&self, examples: &[usize]) -> Result<T, TraceError> {
        rebuilt(self.leaves.iter().map(|r| r.batch(examples)).collect::<Result<_, _>>()?)
    }
}

/// Joins examples along a new first dimension, as PyTorch's `default_collate` does with tensors.
/// What is no tensor is the first example's. Err: no examples, tensors of another shape or dtype, or
/// one that is poisoned.
#[track_caller]
pub fn stack<T: Tree>(examples: Vec<T>) -> Result<T, TraceError> {
    let mut columns: Vec<Vec<Leaf>> = vec![];
    let n = examples.len();
    for (i, example) in examples.into_iter().enumerate() {
        let leaves = into_leaves(example);
        columns.resize_with(columns.len().max(leaves.len()), Vec::new);
        columns.iter_mut().zip(leaves).for_each(|(column, leaf)| column.push(leaf));
        if columns.iter().any(|c| c.len() != i + 1) {
            return Err(mismatch(format!("example {i} has another structure than the first")));
        }
    }
    rebuilt(columns.into_iter().map(|c| stacked(c, n)).collect::<Result<_, _>>()?)
}

fn stacked(column: Vec<Leaf>, n: usize) -> Result<Leaf, TraceError> {
    let mut arrays: Vec<Arc<Array>> = vec![];
    for leaf in &column {
        if let Leaf::Tensor(t) = leaf {
            arrays.push(t.array()?);
        }
    }
    let Some(first) = arrays.first() else {
        let first = column.into_iter().next();
        return first.ok_or_else(|| mismatch("there are no examples".into()));
    };
    let same = |a: &Arc<Array>| (a.dtype(), a.shape()) == (first.dtype(), first.shape());
    if let Some(other) = arrays.iter().find(|a| !same(a)) {
        return Err(mismatch(format!("an example is {other:?}, the first {first:?}")));
    }
    let held = arrays.iter().map(|a| a.bytes()).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&[u8]> = held.iter().map(Bytes::bytes).collect();
    let shape = [&[n][..], first.shape()].concat();
    Ok(Leaf::Tensor(joined(first.dtype(), &shape, &parts)?))
}
