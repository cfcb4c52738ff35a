//! Reading data, which breaks a graph, and creating tensors from data.
use super::{Array, BreakReason, Graph, Number, Tensor, TraceError, handle::Repr, number::item};
use crate::runtime::interop::Element;
use kiln_dialects::value::{self, DType};
use std::{panic::Location, sync::Arc};

impl Tensor {
    /// Copies numbers in row-major order; the dtype is that of `T`. Err: their number does not
    /// match the shape.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Tensor, TraceError> {
        Ok(Array::from_slice(shape, values).map(Tensor::from)?)
    }
    /// A 0-d tensor.
    pub fn scalar<T: Element>(value: T) -> Result<Tensor, TraceError> {
        Tensor::from_slice(&[], &[value])
    }
    /// Copies the bytes of elements in row-major order. Err: their number does not match the shape.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor, TraceError> {
        Array::from_bytes(dtype, shape, bytes)
            .map(Tensor::from)
            .map_err(|e| TraceError::User(e.into()))
    }
    /// Reads the data; a graph break in compiled functions. Err: it is poisoned, or traced without
    /// a call.
    #[track_caller]
    pub fn array(&self) -> Result<Arc<Array>, TraceError> {
        match &self.0 {
            Repr::Array(array) => Ok(array.clone()),
            Repr::Failed(_) => Err(self.error()),
            Repr::Lazy(node) => {
                if let Some(array) = node.value.get() {
                    return Ok(array.clone());
                }
                Graph::by_id(node.graph)
                    .ok_or_else(|| self.error())?
                    .flush(Some((Location::caller(), BreakReason::Read)))?;
                node.value.get().cloned().ok_or_else(|| self.error())
            }
            Repr::Node(node) if node.alias.is_none() => Err(self.error()),
            Repr::Node(_) => Err(self.unread(Location::caller())),
        }
    }
    /// Reads the elements, row-major. Err: as for [`Tensor::array`], or the dtype is not that of
    /// `T`.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TraceError> {
        self.array()?.to_vec().map_err(|e| TraceError::User(e.into()))
    }
    /// Reads a single element as `f64`, `i64` or `bool`. Err: as for [`Tensor::array`], or not
    /// exactly one element.
    #[track_caller]
    pub fn item<T: Number>(&self) -> Result<T, TraceError> {
        item(&*self.array()?)
    }
    /// Reads the data as an interpreter value. Err: as for [`Tensor::array`].
    #[track_caller]
    pub fn value(&self) -> Result<value::Tensor, TraceError> {
        Ok(self.array()?.value()?)
    }

    /// The error of reading a traced tensor; in a compiled function, the graph break.
    pub(super) fn unread(&self, site: &'static Location<'static>) -> TraceError {
        let graph = self.graph();
        let reason = "a value is read of a tensor that is traced and has none".to_string();
        if !graph.state().is_ok_and(|state| state.session.is_some()) {
            // Outside of compiled functions there is no second run in segments.
            graph.refuse(site, "read", reason.clone(), std::slice::from_ref(self));
        }
        graph.graph_break_error(site, BreakReason::Read, reason, vec![self.type_name()])
    }
}

/// The elements, row by row; without data the type, as `f32[batch, 64]`. In a compiled function,
/// printing reads the value.
impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Repr::Array(_) | Repr::Lazy(_) => match self.value() {
                Ok(value) => print(&value, 0, 0, f).map(|_| ()),
                Err(_) => f.write_str(&self.type_name()),
            },
            Repr::Failed(e) => write!(f, "{e}"),
            Repr::Node(_) => {
                let compiled = self
                    .traced()
                    .is_some_and(|(graph, _)| graph.state().is_ok_and(|s| s.session.is_some()));
                if compiled {
                    // This output is discarded: the function is run again in segments.
                    self.unread(Location::caller());
                }
                f.write_str(&self.type_name())
            }
        }
    }
}

/// Dimensions of at least this size are abbreviated to the first and last three elements.
const MANY: usize = 12;

/// Prints the subtensor at offset `start`, from a dimension on.
fn print(
    t: &value::Tensor,
    axis: usize,
    start: usize,
    f: &mut std::fmt::Formatter<'_>,
) -> Result<(), std::fmt::Error> {
    let Some(n) = t.shape().get(axis).copied() else {
        return match t.data() {
            // The shortest digits that round-trip in the dtype.
            value::Data::F(all) => all.get(start).map_or(Ok(()), |x| match t.dtype() {
                DType::F64 => write!(f, "{x}"),
                _ => write!(f, "{}", *x as f32),
            }),
            value::Data::I(all) => all.get(start).map_or(Ok(()), |n| write!(f, "{n}")),
        };
    };
    let stride = t.strides().get(axis).copied().unwrap_or(1);
    let last = axis + 1 == t.rank();
    f.write_str("[")?;
    for i in 0..n {
        if n > MANY && i == 3 {
            f.write_str(if last { ", …" } else { ",\n…" })?;
        }
        if n > MANY && (3..n - 3).contains(&i) {
            continue;
        }
        if i > 0 {
            f.write_str(if last { ", " } else { ",\n" })?;
        }
        print(t, axis + 1, start + i * stride, f)?;
    }
    f.write_str("]")
}
