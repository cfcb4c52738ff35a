//! A contiguous row-major tensor, with elements held as f64 or i64.

use super::DType;
use crate::error::Result;

/// Most elements that a tensor may have.
const MAX_ELEMENTS: usize = 1 << 31;

/// The elements: floats as f64, integers and booleans as i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Floats.
    F(Vec<f64>),
    /// Integers and booleans.
    I(Vec<i64>),
}

impl Data {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F(values) => values.len(),
            Data::I(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A tensor. The number of elements matches the shape, floats are in `Data::F` and the rest in
/// `Data::I`, integers are in their dtype's range. Floats may be more precise than their dtype, see
/// [`Tensor::rounded`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Data,
}

/// The number of elements of a shape. Err: more than 2^31.
pub fn count(shape: &[usize]) -> Result<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))
        .filter(|&product| product <= MAX_ELEMENTS)
        .ok_or_else(|| {
            format!("a tensor of shape {shape:?} has more than {MAX_ELEMENTS} elements").into()
        })
}

impl Tensor {
    /// A tensor of these elements. Err: wrong number or kind of elements, an integer out of the
    /// dtype's range.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Data) -> Result<Tensor> {
        let expected = count(&shape)?;
        if data.len() != expected {
            return Err(format!(
                "{} elements given for shape {shape:?}, which has {expected}",
                data.len()
            )
            .into());
        }
        if dtype.is_float() != matches!(data, Data::F(_)) {
            let given = if dtype.is_float() { "integers" } else { "floats" };
            return Err(format!("{given} given for a tensor of dtype {dtype}").into());
        }
        if let Data::I(values) = &data {
            let (low, high) = dtype.int_range();
            if let Some(value) = values.iter().find(|value| !(low..=high).contains(*value)) {
                return Err(format!(
                    "{value} does not fit dtype {dtype}, whose range is {low} to {high}"
                )
                .into());
            }
        }
        Ok(Tensor { dtype, shape, data })
    }

    /// A tensor of a float dtype; the elements are not rounded. Err: as [`Tensor::new`].
    pub fn floats(dtype: DType, shape: Vec<usize>, data: Vec<f64>) -> Result<Tensor> {
        Tensor::new(dtype, shape, Data::F(data))
    }

    /// A tensor of an integer dtype or `i1`. Err: as [`Tensor::new`].
    pub fn ints(dtype: DType, shape: Vec<usize>, data: Vec<i64>) -> Result<Tensor> {
        Tensor::new(dtype, shape, Data::I(data))
    }

    /// A 0-d tensor of a float dtype. Err: another dtype.
    pub fn scalar_f(dtype: DType, value: f64) -> Result<Tensor> {
        Tensor::floats(dtype, vec![], vec![value])
    }

    /// A 0-d tensor of an integer dtype or `i1`. Err: another dtype, a value outside of its range.
    pub fn scalar_i(dtype: DType, value: i64) -> Result<Tensor> {
        Tensor::ints(dtype, vec![], vec![value])
    }

    /// A tensor filled with a 0-d value. Err: `value` is not 0-d, too many elements.
    pub fn full(value: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
        let n = count(&shape)?;
        let data = match (&value.data, value.shape.is_empty()) {
            (Data::F(v), true) => Data::F(vec![v[0]; n]),
            (Data::I(v), true) => Data::I(vec![v[0]; n]),
            _ => {
                return Err(
                    format!("a 0-d value is needed, this one has shape {:?}", value.shape).into()
                );
            }
        };
        Ok(Tensor { dtype: value.dtype, shape, data })
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The elements in row-major order.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The elements of a float tensor. Err: another dtype.
    pub fn as_f(&self) -> Result<&[f64]> {
        match &self.data {
            Data::F(values) => Ok(values),
            Data::I(_) => Err(format!("a float dtype is needed, not {}", self.dtype).into()),
        }
    }

    /// The elements of an integer or `i1` tensor. Err: a float dtype.
    pub fn as_i(&self) -> Result<&[i64]> {
        match &self.data {
            Data::I(values) => Ok(values),
            Data::F(_) => {
                Err(format!("an integer dtype or i1 is needed, not {}", self.dtype).into())
            }
        }
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.shape.len()];
        for k in (1..self.shape.len()).rev() {
            strides[k - 1] = strides[k].saturating_mul(self.shape[k]);
        }
        strides
    }

    /// The same elements with another shape. Err: the number of elements differs.
    pub fn with_shape(self, shape: Vec<usize>) -> Result<Tensor> {
        let n = count(&shape)?;
        if n != self.len() {
            return Err(format!(
                "shape {:?} has {} elements, shape {shape:?} has {n}",
                self.shape,
                self.len()
            )
            .into());
        }
        Ok(Tensor { shape, ..self })
    }

    /// Every element rounded (floats) or wrapped (integers) to the dtype.
    pub fn rounded(mut self) -> Tensor {
        match &mut self.data {
            Data::F(values) => values.iter_mut().for_each(|v| *v = self.dtype.round(*v)),
            Data::I(values) => values.iter_mut().for_each(|v| *v = self.dtype.wrap(*v)),
        }
        self
    }
}
