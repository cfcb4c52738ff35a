//! Views of the caller's tensors: dtype, shape, strides, device and address.
use crate::{Buffer, CallError, DataError, DeviceId, OutOfMemory, call_error::tensor_error};
use std::marker::PhantomData;

/// An input tensor in memory.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(crate) data: *const u8,
    dtype: &'a str,
    pub(crate) shape: &'a [usize],
    strides: Option<&'a [isize]>,
    device: DeviceId,
    _bytes: PhantomData<&'a [u8]>,
}

/// Memory for an output tensor.
pub struct ViewMut<'a> {
    pub(crate) data: *mut u8,
    dtype: &'a str,
    pub(crate) shape: &'a [usize],
    strides: Option<&'a [isize]>,
    device: DeviceId,
    _bytes: PhantomData<&'a mut [u8]>,
}

/// Bytes of an element, by MLIR's name of its type; an `i1` takes a byte.
pub fn byte_size(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "f64" | "i64" => 8,
        "f32" | "i32" => 4,
        "f16" | "bf16" | "i16" => 2,
        "i8" | "ui8" | "i1" | "f8E4M3FN" | "f8E5M2" => 1,
        _ => return None,
    })
}

/// Bytes of a contiguous tensor of this shape. Err: it overflows the address space, or `dtype` is
/// unknown.
pub fn tensor_bytes(
    what: &'static str,
    name: &str,
    dtype: &str,
    shape: &[usize],
) -> Result<usize, CallError> {
    let width = byte_size(dtype)
        .ok_or_else(|| tensor_error(what, name, format!("'{dtype}' is no element type")))?;
    let bytes = product(shape, width).filter(|n| *n <= isize::MAX as usize);
    Ok(bytes.ok_or_else(|| OutOfMemory::new(None, purpose(what, name, dtype, shape)))?)
}

/// What a tensor's memory is for, for out-of-memory errors.
pub fn purpose(what: &str, name: &str, dtype: &str, shape: &[usize]) -> String {
    format!("{what} '{name}', {dtype} {shape:?}")
}

pub(crate) fn product(shape: &[usize], width: usize) -> Option<usize> {
    shape.iter().try_fold(width, |n, d| n.checked_mul(*d))
}

impl<'a> View<'a> {
    /// The element type in MLIR's spelling.
    pub fn dtype(&self) -> &'a str {
        self.dtype
    }
    /// A contiguous, row-major tensor in host memory. Err: `bytes` has another length than the
    /// shape says.
    pub fn new(dtype: &'a str, shape: &'a [usize], bytes: &'a [u8]) -> Result<View<'a>, CallError> {
        check_bytes(dtype, shape, bytes.len())
            .map_err(|e| tensor_error("input", "", e.to_string()))?;
        Ok(View {
            data: bytes.as_ptr(),
            dtype,
            shape,
            strides: None,
            device: DeviceId::Host,
            _bytes: PhantomData,
        })
    }
    /// As [`View::new`], without checking the length.
    ///
    /// # Safety
    /// `bytes` is as long as the shape says.
    pub unsafe fn new_unchecked(dtype: &'a str, shape: &'a [usize], bytes: &'a [u8]) -> View<'a> {
        View {
            data: bytes.as_ptr(),
            dtype,
            shape,
            strides: None,
            device: DeviceId::Host,
            _bytes: PhantomData,
        }
    }
    /// The shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
    /// The device that holds the elements.
    pub fn device(&self) -> DeviceId {
        self.device
    }
    /// The address of the first element, on its device.
    pub fn address(&self) -> *const u8 {
        self.data
    }
    /// Whether the elements are dense and row-major.
    pub fn is_row_major(&self) -> bool {
        self.is_dense(&[])
    }
    pub(crate) fn strides(&self) -> Option<&'a [isize]> {
        self.strides
    }
    /// A contiguous, row-major copy. Err: the elements are in device memory, or the host is out of
    /// memory.
    pub fn copied(&self) -> Result<Buffer, CallError> {
        check_device("input", "", self.device, DeviceId::Host)?;
        self.gathered(byte_size(self.dtype).unwrap_or(1), &[])
    }
    /// Elements in the memory of GPU `index`, with strides in elements; `None` is row-major. A
    /// program on that GPU reads them in place.
    ///
    /// # Safety
    /// Every element that shape and strides reach from `address` is in memory of that GPU, which
    /// stays allocated and unwritten until the calls that read it have completed on their streams.
    pub unsafe fn on_cuda(
        index: usize,
        dtype: &'a str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        address: u64,
    ) -> View<'a> {
        // SAFETY: the caller's promise.
        unsafe { View::at(DeviceId::Cuda(index), dtype, shape, strides, address as *const u8) }
    }
    /// Elements in host memory, with strides in elements; negative and 0 are allowed.
    ///
    /// # Safety
    /// Every element that shape and strides reach from `data` is in memory that lives for `'a`.
    pub unsafe fn strided(
        dtype: &'a str,
        shape: &'a [usize],
        strides: &'a [isize],
        data: *const u8,
    ) -> View<'a> {
        // SAFETY: the caller's promise.
        unsafe { View::at(DeviceId::Host, dtype, shape, Some(strides), data) }
    }
    /// Elements on any device; strides in elements, or `None` for row-major.
    ///
    /// # Safety
    /// As for [`View::strided`].
    pub(crate) unsafe fn at(
        device: DeviceId,
        dtype: &'a str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        data: *const u8,
    ) -> View<'a> {
        View { data, dtype, shape, strides, device, _bytes: PhantomData }
    }
    /// Whether the elements are dense in this dimension order, outermost first; an empty order is
    /// row-major.
    pub(crate) fn is_dense(&self, order: &[usize]) -> bool {
        let mut want = 1isize;
        let mut fits = |n: usize, s: isize| fits(&mut want, n, s);
        match self.strides {
            None if order.is_empty() => true,
            Some(strides) if order.is_empty() => dense(self.shape, strides),
            strides => {
                let rows;
                let strides = match strides {
                    Some(s) => s,
                    None => {
                        rows = row_major(self.shape);
                        &rows
                    }
                };
                order.iter().rev().all(|d| fits(self.shape[*d], strides[*d]))
            }
        }
    }
    /// Whether the strides match in every dimension of more than one element.
    pub(crate) fn has_strides(&self, strides: &[isize]) -> bool {
        let rows;
        let own = match self.strides {
            Some(s) => s,
            None => {
                rows = row_major(self.shape);
                &rows
            }
        };
        own.len() == strides.len()
            && self.shape.iter().zip(own.iter().zip(strides)).all(|(n, (a, b))| *n < 2 || a == b)
    }
    /// The bytes of a host tensor, dense in this dimension order. Gathers into `copy` if the tensor
    /// is not.
    pub(crate) fn bytes<'b>(
        &'b self,
        order: &[usize],
        copy: &'b mut Buffer,
    ) -> Result<&'b [u8], CallError> {
        let width = byte_size(self.dtype).unwrap_or(1);
        if !self.is_dense(order) {
            *copy = self.gathered(width, order)?;
            return Ok(copy.bytes());
        }
        let count = product(self.shape, width).unwrap_or(0);
        // SAFETY: the view's creator promised that every element is there.
        Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.data, count) } })
    }
    /// A dense copy in this dimension order, outermost first; an empty order is row-major.
    pub(crate) fn gathered(&self, width: usize, order: &[usize]) -> Result<Buffer, CallError> {
        let wanted = product(self.shape, width);
        let failed =
            || OutOfMemory::new(wanted, purpose("a copy of input", "", self.dtype, self.shape));
        let bytes = wanted.ok_or_else(failed)?;
        let copy = Buffer::zeroed(bytes).map_err(|_| failed())?;
        let count = bytes / width.max(1);
        let rows = row_major(self.shape);
        let strides = self.strides.unwrap_or(&rows);
        let order: Vec<usize> =
            if order.is_empty() { (0..self.shape.len()).collect() } else { order.to_vec() };
        let mut index = vec![0usize; order.len()];
        for i in 0..count {
            let at: isize = index.iter().zip(&order).map(|(i, d)| *i as isize * strides[*d]).sum();
            // SAFETY: the view's creator promised that every element is there; `copy` holds `count`
            // elements.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.data.offset(at * width as isize),
                    copy.as_mut_ptr().add(i * width),
                    width,
                )
            };
            for (i, d) in index.iter_mut().zip(&order).rev() {
                *i += 1;
                if *i < self.shape[*d] {
                    break;
                }
                *i = 0;
            }
        }
        Ok(copy)
    }
}

/// Whether a dimension's stride continues the dense layout of the inner ones; updates the stride
/// wanted next.
fn fits(want: &mut isize, n: usize, stride: isize) -> bool {
    let fits = n == 1 || stride == *want;
    *want = want.saturating_mul(n as isize);
    fits
}

/// Whether strides are row-major; an empty tensor is dense in any order.
fn dense(shape: &[usize], strides: &[isize]) -> bool {
    let mut want = 1isize;
    shape.iter().zip(strides).rev().all(|(n, s)| fits(&mut want, *n, *s)) || shape.contains(&0)
}

fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d] as isize);
    }
    strides
}

impl<'a> ViewMut<'a> {
    /// The element type in MLIR's spelling.
    pub fn dtype(&self) -> &'a str {
        self.dtype
    }
    /// A contiguous, row-major tensor in host memory. Err: `bytes` has another length than the
    /// shape says.
    pub fn new(
        dtype: &'a str,
        shape: &'a [usize],
        bytes: &'a mut [u8],
    ) -> Result<ViewMut<'a>, CallError> {
        check_bytes(dtype, shape, bytes.len())
            .map_err(|e| tensor_error("output", "", e.to_string()))?;
        // SAFETY: as many bytes as the shape says, borrowed for as long as this lives.
        Ok(unsafe { ViewMut::at(DeviceId::Host, dtype, shape, None, bytes.as_mut_ptr()) })
    }
    /// A contiguous, row-major tensor at an address in host memory, which may be that of an input
    /// that [`Program::aliases`](crate::Program::aliases) pairs with it.
    ///
    /// # Safety
    /// As many bytes as the shape says live there for `'a`, and nothing else reads or writes them.
    pub unsafe fn on_host(dtype: &'a str, shape: &'a [usize], data: *mut u8) -> ViewMut<'a> {
        // SAFETY: the caller's promise.
        unsafe { ViewMut::at(DeviceId::Host, dtype, shape, None, data) }
    }
    /// Memory of GPU `index`, with strides in elements; `None` is row-major. A program on that GPU
    /// writes its result in place. The call returns an error if the strides are not row-major.
    ///
    /// # Safety
    /// Every element is in memory of that GPU, which stays allocated and otherwise unused until the
    /// calls that write it have completed on their streams.
    pub unsafe fn on_cuda(
        index: usize,
        dtype: &'a str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        address: u64,
    ) -> ViewMut<'a> {
        // SAFETY: the caller's promise.
        unsafe { ViewMut::at(DeviceId::Cuda(index), dtype, shape, strides, address as *mut u8) }
    }
    /// Elements on any device; strides in elements, or `None` for row-major.
    ///
    /// # Safety
    /// The row-major elements are in memory of this device that lives for `'a`.
    pub(crate) unsafe fn at(
        device: DeviceId,
        dtype: &'a str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        data: *mut u8,
    ) -> ViewMut<'a> {
        ViewMut { data, dtype, shape, strides, device, _bytes: PhantomData }
    }
    /// The device that holds the elements.
    pub fn device(&self) -> DeviceId {
        self.device
    }
    /// Err: the elements are not row-major.
    pub(crate) fn check_order(&self, name: &str) -> Result<(), CallError> {
        match self.strides {
            Some(strides) if !dense(self.shape, strides) => Err(tensor_error(
                "output",
                name,
                format!("has strides {strides:?}; results are written in row-major order"),
            )),
            _ => Ok(()),
        }
    }
    /// The bytes to write, of a row-major host tensor.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let count = byte_size(self.dtype).and_then(|width| product(self.shape, width)).unwrap_or(0);
        // SAFETY: created from that many bytes, borrowed mutably for as long as this lives.
        if count == 0 {
            &mut []
        } else {
            unsafe { std::slice::from_raw_parts_mut(self.data, count) }
        }
    }
}

/// Err: the program cannot access the device that holds the tensor.
pub(crate) fn check_device(
    what: &'static str,
    name: &str,
    device: DeviceId,
    runs: DeviceId,
) -> Result<(), CallError> {
    match device == DeviceId::Host || device == runs {
        true => Ok(()),
        false => Err(tensor_error(
            what,
            name,
            format!("lies in the memory of {device}, the program runs on {runs}"),
        )),
    }
}

pub(crate) fn check_bytes(dtype: &str, shape: &[usize], have: usize) -> Result<(), DataError> {
    let width = byte_size(dtype).ok_or_else(|| format!("'{dtype}' is no element type"))?;
    match product(shape, width) {
        Some(want) if want == have => Ok(()),
        Some(want) => Err(DataError::Mismatch(format!(
            "{dtype} {shape:?} needs {want} bytes, {have} are given"
        ))),
        None => Err(format!("{dtype} {shape:?} is larger than any memory").into()),
    }
}
