//! Decodes the words of a call into tensor views and attributes.
use super::{dtype_code::DtypeCode, element::Element};
use crate::{View, ViewMut};
use std::{marker::PhantomData, ops::Range};

/// A tensor argument of a call.
pub struct Operand {
    data: *mut u8,
    /// The dtype.
    pub code: DtypeCode,
    /// The shape.
    pub shape: Vec<usize>,
}

impl Operand {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Whether it is used: its address is not 0.
    pub fn used(&self) -> bool {
        !self.data.is_null()
    }
    /// Whether it has the memory of another operand, of the same size.
    pub fn is(&self, other: &Operand) -> bool {
        self.data == other.data
    }
    /// The elements of an input.
    pub fn read<E: Element>(&self) -> Option<&[E]> {
        let n = self.len();
        if n == 0 {
            return Some(&[]);
        }
        // SAFETY: the function's caller promised `n` elements of this dtype, which nobody writes
        // meanwhile.
        (self.used() && E::CODES.contains(&self.code))
            .then(|| unsafe { std::slice::from_raw_parts(self.data.cast_const().cast(), n) })
    }
    /// The elements of an output; writes to an unused one are dropped.
    pub fn write<E: Element>(&self) -> Option<Out<'_, E>> {
        let len = if self.used() { self.len() } else { 0 };
        (len == 0 || E::CODES.contains(&self.code)).then_some(Out {
            data: self.data.cast(),
            len,
            _operand: PhantomData,
        })
    }
    /// An element of an integer tensor.
    pub fn int(&self, i: usize) -> Option<i64> {
        Some(match self.code {
            DtypeCode::I64 => *self.read::<i64>()?.get(i)?,
            DtypeCode::I32 => i64::from(*self.read::<i32>()?.get(i)?),
            DtypeCode::I16 => i64::from(*self.read::<i16>()?.get(i)?),
            DtypeCode::I8 => i64::from(*self.read::<i8>()?.get(i)?),
            DtypeCode::Ui8 => i64::from(*self.read::<u8>()?.get(i)?),
            _ => return None,
        })
    }
}

/// Output elements, shared by the threads of a team; each writes its own. Out-of-range writes are
/// dropped.
pub struct Out<'a, E> {
    data: *mut E,
    len: usize,
    _operand: PhantomData<&'a Operand>,
}

impl<E: Element> Out<'_, E> {
    /// Writes one element.
    pub fn set(&self, i: usize, value: E) {
        if i < self.len {
            // SAFETY: in range, and no other thread accesses this element.
            unsafe { self.data.add(i).write(value) }
        }
    }
    /// Writes a function of consecutive values from an index on.
    pub fn write<S>(&self, at: usize, from: &[S], f: impl Fn(&S) -> E) {
        let n = from.len().min(self.len.saturating_sub(at));
        for (i, value) in from[..n].iter().enumerate() {
            // SAFETY: in range, and no other thread accesses these elements.
            unsafe { self.data.add(at + i).write(f(value)) }
        }
    }
    /// Writes a function of values, two elements each, from an index on.
    pub fn write_pairs<S>(&self, at: usize, from: &[S], f: impl Fn(&S) -> [E; 2]) {
        let n = from.len().min(self.len.saturating_sub(at) / 2);
        for (i, value) in from[..n].iter().enumerate() {
            // SAFETY: in range, and no other thread accesses these elements.
            unsafe { self.data.add(at + 2 * i).cast::<[E; 2]>().write(f(value)) }
        }
    }
    /// Reads an element that this thread has written.
    pub fn get(&self, i: usize) -> Option<E> {
        // SAFETY: as in `set`.
        (i < self.len).then(|| unsafe { self.data.add(i).read() })
    }
    /// Writes consecutive elements from an index on.
    pub fn copy(&self, at: usize, from: &[E]) {
        let n = from.len().min(self.len.saturating_sub(at));
        // An empty tensor's address may be anything, and misaligned.
        if n == 0 {
            return;
        }
        // SAFETY: `n` elements from `at` on are in range and this thread's.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.data.wrapping_add(at), n) }
    }
}

/// A decoded call, and this thread's id.
pub struct Call {
    /// Inputs, then outputs.
    pub tensors: Vec<Operand>,
    /// The op's attributes.
    pub attributes: Vec<i64>,
    tid: usize,
    nth: usize,
}

impl Call {
    /// Decodes the words; `None` if they are malformed.
    ///
    /// # Safety
    /// They are laid out as the module says. Their tensors live for the call, and nobody else
    /// writes them.
    pub unsafe fn read(words: *const i64, tid: i64, nth: i64) -> Option<Call> {
        let mut at = words;
        let mut next = || {
            // SAFETY: the counts before it imply that there is a word.
            let word = unsafe { at.read() };
            at = at.wrapping_add(1);
            word
        };
        let mut tensors = vec![];
        for _ in 0..next() {
            let data = std::ptr::with_exposed_provenance_mut(next() as usize);
            let code = DtypeCode::from_word(next())?;
            let shape = (0..next()).map(|_| usize::try_from(next()).ok()).collect::<Option<_>>()?;
            tensors.push(Operand { data, code, shape });
        }
        let attributes = (0..next()).map(|_| next()).collect();
        Some(Call {
            tensors,
            attributes,
            tid: usize::try_from(tid).ok()?,
            nth: usize::try_from(nth).ok()?.max(1),
        })
    }
    /// A call by one thread; `None` for a dtype that runtime kernels do not support.
    pub fn of_views(
        inputs: &[View],
        outputs: &mut [ViewMut],
        attributes: Vec<i64>,
    ) -> Option<Call> {
        let operand = |data: *mut u8, dtype: &str, shape: &[usize]| {
            Some(Operand { data, code: DtypeCode::of(dtype)?, shape: shape.to_vec() })
        };
        let read = inputs.iter().map(|v| operand(v.data.cast_mut(), v.dtype(), v.shape));
        let written = outputs.iter().map(|v| operand(v.data, v.dtype(), v.shape));
        let tensors = read.chain(written).collect::<Option<_>>()?;
        Some(Call { tensors, attributes, tid: 0, nth: 1 })
    }
    /// This thread's share of `count` items.
    pub fn share(&self, count: usize) -> Range<usize> {
        let part = |t: usize| (count as u128 * t.min(self.nth) as u128 / self.nth as u128) as usize;
        part(self.tid)..part(self.tid + 1)
    }
    /// An attribute that is an axis of a shape.
    pub fn axis(&self, attribute: usize, shape: &[usize]) -> Option<usize> {
        let axis = usize::try_from(*self.attributes.get(attribute)?).ok()?;
        (axis < shape.len()).then_some(axis)
    }
}

/// The 1-D lines of a shape along an axis.
pub struct Lines {
    /// Elements of a line.
    pub size: usize,
    /// Stride within a line, in elements.
    pub step: usize,
    /// Number of lines.
    pub count: usize,
}

impl Lines {
    /// The lines of a shape along an axis.
    pub fn of(shape: &[usize], axis: usize) -> Lines {
        let step = shape[axis + 1..].iter().product();
        Lines { size: shape[axis], step, count: shape[..axis].iter().product::<usize>() * step }
    }
    /// Offset of a line's first element.
    pub fn start(&self, line: usize) -> usize {
        line / self.step.max(1) * self.step * self.size + line % self.step.max(1)
    }
}
