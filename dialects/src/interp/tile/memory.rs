//! Global memory: the buffers of a launch, and views of them.
use crate::{
    error::Result,
    value::{DType, Data, Tensor},
};

/// All buffers.
#[derive(Default)]
pub(super) struct Memory {
    buffers: Vec<(DType, Data)>,
}

/// A view of a buffer: what a memref is.
#[derive(Clone, Debug)]
pub(super) struct View {
    buffer: usize,
    pub(super) dtype: DType,
    pub(super) offset: i64,
    pub(super) sizes: Vec<i64>,
    pub(super) strides: Vec<i64>,
}

/// The strides of contiguous rows.
fn row_major(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for d in (1..sizes.len()).rev() {
        strides[d - 1] = strides[d] * sizes[d].max(1);
    }
    strides
}

impl View {
    /// The place of an element in its buffer.
    pub(super) fn place(&self, at: &[i64]) -> Result<usize> {
        let inside = at.len() == self.sizes.len()
            && at.iter().zip(&self.sizes).all(|(i, n)| (0..*n).contains(i));
        let far: i64 = at.iter().zip(&self.strides).map(|(i, s)| i.wrapping_mul(*s)).sum();
        let place = usize::try_from(self.offset.wrapping_add(far)).ok().filter(|_| inside);
        place.ok_or_else(|| {
            format!("accesses element {at:?} of memory of sizes {:?}", self.sizes).into()
        })
    }
    /// Another view of its buffer.
    pub(super) fn cast(&self, offset: i64, sizes: Vec<i64>, strides: Vec<i64>) -> View {
        View { offset, sizes, strides, ..*self }
    }
}

impl Memory {
    fn push(&mut self, dtype: DType, data: Data, sizes: Vec<i64>) -> View {
        self.buffers.push((dtype, data));
        let strides = row_major(&sizes);
        View { buffer: self.buffers.len() - 1, dtype, offset: 0, sizes, strides }
    }
    /// A copy of a tensor.
    pub(super) fn tensor(&mut self, t: &Tensor) -> View {
        let sizes = t.shape().iter().map(|n| *n as i64).collect();
        self.push(t.dtype(), t.data().clone(), sizes)
    }
    /// Memory that nothing has written: floats are NaN.
    pub(super) fn unwritten(&mut self, dtype: DType, sizes: &[i64]) -> Result<View> {
        let shape: Vec<usize> = sizes.iter().map(|n| *n as usize).collect();
        let count = crate::value::count(&shape)?;
        let data = match dtype.is_float() {
            true => Data::F(vec![f64::NAN; count]),
            false => Data::I(vec![dtype.int_range().0; count]),
        };
        Ok(self.push(dtype, data, sizes.to_vec()))
    }
    /// The whole buffer of a view as a tensor.
    pub(super) fn value(&self, view: &View) -> Result<Tensor> {
        let (dtype, data) = self.buffers.get(view.buffer).ok_or("reads no buffer")?;
        Tensor::new(*dtype, view.sizes.iter().map(|n| *n as usize).collect(), data.clone())
    }
    /// Elements of a view's buffer.
    pub(super) fn read(&self, view: &View, places: &[Option<usize>]) -> Result<Data> {
        let (_, data) = self.buffers.get(view.buffer).ok_or("reads no buffer")?;
        let outside = || "reads beyond the end of a buffer";
        Ok(match data {
            Data::F(all) => {
                let one = |p: &Option<usize>| p.map_or(Some(0.0), |p| all.get(p).copied());
                Data::F(places.iter().map(one).collect::<Option<_>>().ok_or_else(outside)?)
            }
            Data::I(all) => {
                let one = |p: &Option<usize>| p.map_or(Some(0), |p| all.get(p).copied());
                Data::I(places.iter().map(one).collect::<Option<_>>().ok_or_else(outside)?)
            }
        })
    }
    /// Writes elements, the `i`-th at `places[i]`, if that is a place.
    pub(super) fn write(
        &mut self,
        view: &View,
        places: &[Option<usize>],
        values: &Data,
    ) -> Result<()> {
        let (dtype, data) = self.buffers.get_mut(view.buffer).ok_or("writes no buffer")?;
        let some = places.iter().enumerate().filter_map(|(i, p)| Some((i, (*p)?)));
        let count = values.len().max(1);
        for (i, place) in some {
            let done = match (&mut *data, values) {
                (Data::F(all), Data::F(new)) => {
                    all.get_mut(place).zip(new.get(i % count)).map(|(x, v)| *x = dtype.round(*v))
                }
                (Data::I(all), Data::I(new)) => {
                    all.get_mut(place).zip(new.get(i % count)).map(|(x, v)| *x = *v)
                }
                _ => return Err(format!("writes other elements than {dtype}").into()),
            };
            done.ok_or("writes beyond the end of a buffer")?;
        }
        Ok(())
    }
}
