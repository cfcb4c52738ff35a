//! Functionalisation: in-place ops and views as SSA values. Every tensor name is a view of a
//! storage: a chain of movements from the storage's current value. A write inverts the chain and
//! gives the storage a new value, which all of its views then read.
use super::bits;
use kiln_dialects::{
    ir::*,
    ops::{Dim as DimOp, *},
    value::DType,
};

/// A view operation.
#[derive(Clone, Debug)]
pub enum ViewOp {
    /// Same elements, another shape.
    Reshape(Vec<Size>),
    /// Permuted dimensions.
    Transpose(Vec<i64>),
    /// Strided slice: offsets, sizes, strides.
    Slice(Vec<Size>, Vec<Size>, Vec<i64>),
    /// Broadcast along new or unit dimensions: dims, sizes. Not writable.
    Broadcast(Vec<i64>, Vec<Size>),
    /// Elements by index tensors along dims, as `kiln.gather`: their dimensions come first.
    Gather(Vec<Value>, Vec<i64>),
    /// The same, where elements may share memory. Not writable.
    Windows(Vec<Value>, Vec<i64>),
    /// The bits as another dtype.
    Bits(DType),
}

/// A tensor name: an index of [`Store`].
pub type Alias = usize;

struct View {
    storage: usize,
    chain: Vec<ViewOp>,
    /// The value at this version of the storage.
    cached: (usize, Value),
}
struct Storage {
    value: Value,
    version: usize,
    /// Whether elements have a copy that PyTorch keeps as a view: neither may be written.
    pinned: bool,
}

/// All tensors of a program, with their storages.
#[derive(Default)]
pub struct Store {
    views: Vec<View>,
    storages: Vec<Storage>,
}

impl ViewOp {
    pub(super) fn apply(&self, b: &Builder, input: Value) -> Result<Value> {
        match self.clone() {
            ViewOp::Reshape(sizes) => Ok(b.add(&Reshape { input, sizes })?),
            ViewOp::Transpose(permutation) => Ok(b.add(&Transpose { input, permutation })?),
            ViewOp::Slice(offsets, sizes, strides) => {
                Ok(b.add(&Slice { input, offsets, sizes, strides })?)
            }
            ViewOp::Broadcast(dims, sizes) => Ok(b.add(&BroadcastInDim { input, dims, sizes })?),
            ViewOp::Gather(indices, dims) | ViewOp::Windows(indices, dims) => {
                Ok(b.add(&Gather { input, indices, dims })?)
            }
            ViewOp::Bits(dtype) => bits::viewed(b, input, dtype),
        }
    }
    /// The inverse: the new value of `from` after its view was written as `new`.
    fn undo(&self, b: &Builder, from: Value, new: Value) -> Result<Value> {
        match self {
            ViewOp::Reshape(_) => Ok(b.add(&Reshape { input: new, sizes: b.sizes_of(from)? })?),
            ViewOp::Transpose(permutation) => {
                let mut inverse = vec![0; permutation.len()];
                for (i, p) in permutation.iter().enumerate() {
                    *usize::try_from(*p)
                        .ok()
                        .and_then(|p| inverse.get_mut(p))
                        .ok_or("has a permutation out of range")? = i as i64;
                }
                Ok(b.add(&Transpose { input: new, permutation: inverse })?)
            }
            ViewOp::Slice(offsets, sizes, strides) => {
                if let Some(cuts) = cuts(b, from, offsets, sizes, strides)? {
                    return concatenated(b, from, new, &cuts);
                }
                // Indices of the slice along each dimension, in the slice's shape.
                let mut indices = vec![];
                for (axis, (offset, stride)) in offsets.iter().zip(strides).enumerate() {
                    let along = b.add(&Iota {
                        sizes: sizes.clone(),
                        axis: axis as i64,
                        dtype: Type::scalar(b.ctx, DType::I64),
                    })?;
                    let scaled = b.add(&Mul {
                        lhs: along,
                        rhs: b.splat(DType::I64, sizes, *stride as f64)?,
                    })?;
                    indices.push(b.add(&Add { lhs: scaled, rhs: everywhere(b, *offset, sizes)? })?);
                }
                let dims = (0..offsets.len() as i64).collect();
                Ok(b.add(&Scatter {
                    kind: ScatterKind::Assign,
                    input: from,
                    updates: new,
                    indices,
                    dims,
                })?)
            }
            ViewOp::Gather(indices, dims) => Ok(b.add(&Scatter {
                kind: ScatterKind::Assign,
                input: from,
                updates: new,
                indices: indices.clone(),
                dims: dims.clone(),
            })?),
            ViewOp::Broadcast(dims, sizes) => undo_broadcast(b, from, new, dims, sizes),
            ViewOp::Bits(_) => {
                let own = from.ty().element().ok_or("has no elements")?.dtype()?;
                bits::viewed(b, new, own)
            }
            ViewOp::Windows(..) => Err("writes to windows whose elements share memory".into()),
        }
    }
}

/// An axis that a slice covers in part: the axis, where the slice starts and ends, the axis' size.
type Cut = (usize, i64, i64, i64);

/// The axes that a slice of `from` does not cover; none where a scatter has to write it: it has
/// strides, or sizes that may or may not be the tensor's.
fn cuts(
    b: &Builder,
    from: Value,
    offsets: &[Size],
    sizes: &[Size],
    strides: &[i64],
) -> Result<Option<Vec<Cut>>> {
    let mut cuts = vec![];
    for (axis, ((offset, size), stride)) in offsets.iter().zip(sizes).zip(strides).enumerate() {
        if *stride != 1 {
            return Ok(None);
        }
        match (offset.known(), size.known(), b.size_of(from, axis)?.known()) {
            (Some(0), Some(size), Some(n)) if size == n => {}
            (Some(start), Some(size), Some(n)) if size > 0 => {
                cuts.push((axis, start, start + size, n));
            }
            (Some(0), None, None) if is_size_of(*size, from, axis) => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(cuts))
}

/// Most ops between a tensor and the one whose size it has.
const MOST_STEPS: usize = 64;

/// Where the size of an axis comes from: an axis of another tensor, or a size.
fn origin(of: Value, axis: usize) -> (Value, Option<usize>) {
    let (mut of, mut axis) = (of, axis);
    for _ in 0..MOST_STEPS {
        let Some(op) = of.def() else { break };
        let sizes = Reshape::of(op).map(|o| o.sizes).or_else(|| Slice::of(op).map(|o| o.sizes));
        if let Some(sizes) = sizes {
            let Some(Size::Dynamic(size)) = sizes.get(axis) else { break };
            let Some(read) = size.def().and_then(DimOp::of) else { return (*size, None) };
            (of, axis) = (read.input, read.axis as usize);
        } else if let Some(o) = Concat::of(op).filter(|o| o.axis as usize != axis)
            && let Some(first) = o.inputs.first()
        {
            of = *first;
        } else if let Some(o) = Scatter::of(op) {
            of = o.input;
        } else {
            break;
        }
    }
    (of, Some(axis))
}

/// Whether a size is that of an axis of a tensor.
fn is_size_of(size: Size, of: Value, axis: usize) -> bool {
    let Size::Dynamic(size) = size else { return false };
    let own = match size.def().and_then(DimOp::of) {
        Some(read) => origin(read.input, read.axis as usize),
        None => (size, None),
    };
    own == origin(of, axis)
}

/// The new value of `from` after its slice was written as `new`, which lies between parts of `from`
/// on each cut axis: each element is copied once.
fn concatenated(b: &Builder, from: Value, new: Value, cuts: &[Cut]) -> Result<Value> {
    let (have, mut value) = (b.sizes_of(from)?, new);
    for (inner, (axis, start, end, n)) in cuts.iter().enumerate().rev() {
        // What lies before or behind on this axis has the slice's extent on the axes before it.
        let part = |first: i64, last: i64| {
            let (mut offsets, mut sizes) = (vec![Size::Static(0); have.len()], have.clone());
            let outer = cuts.iter().take(inner).map(|(axis, start, end, _)| (*axis, *start, *end));
            for (axis, first, last) in outer.chain([(*axis, first, last)]) {
                (offsets[axis], sizes[axis]) = (Size::Static(first), Size::Static(last - first));
            }
            b.add(&Slice { input: from, offsets, sizes, strides: vec![1; have.len()] })
        };
        let mut inputs = vec![];
        if *start > 0 {
            inputs.push(part(0, *start)?);
        }
        inputs.push(value);
        if end < n {
            inputs.push(part(*end, *n)?);
        }
        value = b.add(&Concat { inputs, axis: *axis as i64 })?;
    }
    Ok(value)
}

/// The new value of `from` after its expanded view was written as `new`: where nothing was
/// expanded, where there is no element, and where all elements are one value, as in `fill_`.
fn undo_broadcast(
    b: &Builder,
    from: Value,
    new: Value,
    dims: &[i64],
    sizes: &[Size],
) -> Result<Value> {
    let have = b.sizes_of(from)?;
    let source = |axis: usize| {
        dims.iter().position(|d| *d == axis as i64).and_then(|i| have.get(i)).copied()
    };
    let kept = |axis: usize, n: Size| source(axis).unwrap_or(Size::Static(1)) == n;
    let expanded: Vec<Size> =
        sizes.iter().enumerate().filter(|(i, n)| !kept(*i, **n)).map(|(_, n)| *n).collect();
    if expanded.is_empty() {
        return b.add(&Reshape { input: new, sizes: have });
    }
    if expanded.contains(&Size::Static(0)) {
        return Ok(from);
    }
    let mut value = match (new.def().and_then(BroadcastInDim::of), new.def().and_then(Splat::of)) {
        (Some(one), _) if one.dims.is_empty() => {
            b.add(&BroadcastInDim { input: one.input, dims: vec![], sizes: have.clone() })?
        }
        (_, Some(one)) => b.add(&Splat { value: one.value, sizes: have.clone() })?,
        _ => return Err("writes to an expanded tensor, whose elements share memory".into()),
    };
    for n in expanded.into_iter().filter(|n| n.known().is_none()) {
        // Expanded to no element, nothing is written.
        let none = b.add(&Compare {
            kind: CompareKind::Eq,
            lhs: b.size_as_tensor(n, DType::I64)?,
            rhs: b.splat(DType::I64, &[], 0.0)?,
        })?;
        let none = b.add(&BroadcastInDim { input: none, dims: vec![], sizes: have.clone() })?;
        value = b.add(&Select { condition: none, on_true: from, on_false: value })?;
    }
    Ok(value)
}

/// A size in each element of a shape.
fn everywhere(b: &Builder, n: Size, sizes: &[Size]) -> Result<Value> {
    if let Some(n) = n.known() {
        return b.splat(DType::I64, sizes, n as f64);
    }
    let input = b.size_as_tensor(n, DType::I64)?;
    b.add(&BroadcastInDim { input, dims: vec![], sizes: sizes.to_vec() })
}

impl Store {
    /// A tensor with a storage of its own.
    pub fn fresh(&mut self, value: Value) -> Alias {
        self.storages.push(Storage { value, version: 0, pinned: false });
        self.views.push(View {
            storage: self.storages.len() - 1,
            chain: vec![],
            cached: (0, value),
        });
        self.views.len() - 1
    }
    /// A view of another tensor.
    pub fn view(&mut self, b: &Builder, of: Alias, movement: ViewOp) -> Result<Alias> {
        let value = movement.apply(b, self.get(b, of)?)?;
        let storage = self.views[of].storage;
        let chain = [self.views[of].chain.as_slice(), &[movement]].concat();
        self.views.push(View { storage, chain, cached: (self.storages[storage].version, value) });
        Ok(self.views.len() - 1)
    }
    /// Makes two storages parts of a new one: every view of a part becomes a view of `value`, by the
    /// part's movements. None: a part is not all of its
    /// storage.
    pub fn joined(&mut self, value: Value, parts: [(Alias, Vec<ViewOp>); 2]) -> Option<Alias> {
        let whole = |(alias, _): &(Alias, Vec<ViewOp>)| self.views[*alias].chain.is_empty();
        let storages = [0, 1].map(|i: usize| self.views[parts[i].0].storage);
        if !parts.iter().all(whole) || storages[0] == storages[1] {
            return None;
        }
        let alias = self.fresh(value);
        let new = self.views[alias].storage;
        for (old, (_, movements)) in storages.into_iter().zip(parts) {
            let version = self.storages[old].version;
            for view in self.views.iter_mut().filter(|v| v.storage == old) {
                view.storage = new;
                view.chain.splice(0..0, movements.iter().cloned());
                // What was up to date stays so: the new storage is at version 0.
                view.cached.0 = if view.cached.0 == version { 0 } else { usize::MAX };
            }
        }
        Some(alias)
    }
    /// Refuses later writes of the tensor's storage.
    pub fn pin(&mut self, alias: Alias) {
        let storage = self.views[alias].storage;
        self.storages[storage].pinned = true;
    }
    /// The tensor's current value.
    pub fn get(&mut self, b: &Builder, alias: Alias) -> Result<Value> {
        let view = &self.views[alias];
        let storage = &self.storages[view.storage];
        if view.cached.0 == storage.version {
            return Ok(view.cached.1);
        }
        let value = view.chain.iter().try_fold(storage.value, |v, m| m.apply(b, v))?;
        let version = storage.version;
        self.views[alias].cached = (version, value);
        Ok(value)
    }
    /// Whether the tensor's storage was written since creation.
    pub fn written(&self, alias: Alias) -> bool {
        self.views
            .get(alias)
            .and_then(|v| self.storages.get(v.storage))
            .is_some_and(|s| s.version > 0)
    }
    /// A snapshot of all values, taken before a region.
    pub fn values(&self) -> Vec<(usize, Value)> {
        self.views.iter().map(|v| v.cached).collect()
    }
    /// Restores a snapshot after a region.
    pub fn restore(&mut self, values: Vec<(usize, Value)>) {
        self.views.iter_mut().zip(values).for_each(|(view, value)| view.cached = value);
    }
    /// Writes a tensor, and so every alias of its storage. The type must stay the same.
    pub fn write(&mut self, b: &Builder, alias: Alias, new: Value) -> Result<()> {
        let (storage, chain) = (self.views[alias].storage, self.views[alias].chain.clone());
        if self.storages[storage].pinned {
            return Err(super::unsupported(
                "writes to a complex tensor that shares memory with a conjugate or with its parts",
            ));
        }
        let (mut at, mut before) = (self.storages[storage].value, vec![]);
        for m in &chain {
            before.push(at);
            at = m.apply(b, at)?;
        }
        let value =
            chain.iter().zip(before).rev().try_fold(new, |v, (m, from)| m.undo(b, from, v))?;
        self.storages[storage].value = value;
        self.storages[storage].version += 1;
        self.views[alias].cached = (self.storages[storage].version, new);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "func.func @f(%x: tensor<?x5x7xf32>) -> tensor<?x5x7xf32> { return %x : tensor<?x5x7xf32> }";

    /// Writes twice to a slice of a slice, of these strides.
    fn written(strides: [i64; 2]) -> Result<String> {
        let c = Context::new();
        let (module, _) =
            Module::parse(c.ctx(), EMPTY.as_bytes(), "written.mlir").map_err(|e| e.to_string())?;
        let func = walk(module.op()).into_iter().find(|o| o.isa::<func::Func>());
        let block = func.and_then(|f| f.regions().first()?.first()).ok_or("has no body")?;
        let b = block.terminator().and_then(Builder::before).ok_or("has no end")?;
        let mut store = Store::default();
        let mut part = store.fresh(block.args()[0]);
        for (axis, stride) in strides.into_iter().enumerate() {
            let value = store.get(&b, part)?;
            let (mut offsets, mut sizes) = (vec![Size::Static(0); 3], b.sizes_of(value)?);
            (offsets[axis + 1], sizes[axis + 1]) = (Size::Static(1), Size::Static(2));
            let strides = (0..3).map(|i| if i == axis + 1 { stride } else { 1 }).collect();
            part = store.view(&b, part, ViewOp::Slice(offsets, sizes, strides))?;
        }
        for _ in 0..2 {
            let new = b.add(&Sin { input: store.get(&b, part)? })?;
            store.write(&b, part, new)?;
        }
        Ok(module.op().to_string())
    }

    #[test]
    fn slices_are_written_by_concatenation() {
        let text = written([1, 1]).expect("written");
        let count = |text: &str, op: &str| text.matches(op).count();
        assert_eq!((count(&text, "kiln.concat"), count(&text, "kiln.scatter")), (4, 0), "{text}");
        let text = written([1, 2]).expect("written");
        assert_eq!((count(&text, "kiln.concat"), count(&text, "kiln.scatter")), (2, 2), "{text}");
    }
}
