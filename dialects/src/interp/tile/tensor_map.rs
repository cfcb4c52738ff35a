//! Tensor maps (TMA descriptors): which elements of memory a box has.
use super::{elements::Elements, expressions, memory::View};
use crate::{
    error::Result,
    ir::{Attr, Type},
    value::DType,
};

/// Most elements of a box in a dimension; of im2col mode, pixels.
const BOX: i64 = 1024;

/// The window of a map in im2col mode; pairs are (height, width).
struct Window {
    low: [i64; 2],
    high: [i64; 2],
    strides: [i64; 2],
}

/// An entry of `kiln.tensor_maps`, with its sizes as numbers. The contiguous dimension is first.
pub(super) struct TensorMap {
    /// The memory that it describes.
    pub(super) view: View,
    /// Of its elements in shared memory.
    pub(super) dtype: DType,
    /// Whether f32 is rounded to tf32 on load.
    pub(super) tf32: bool,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    /// The box; of im2col mode channels and pixels.
    pub(super) extent: Vec<i64>,
    window: Option<Window>,
}

/// Rounds an f32 to tf32, which has 10 bits of mantissa.
pub(super) fn tf32(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    if !x.is_finite() {
        return x;
    }
    f64::from(f32::from_bits(bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff))
}

impl TensorMap {
    /// Reads an entry. `sizes`: those of the launch; `tensors`: the kernel's arguments.
    ///
    /// # Errors
    /// The entry is malformed.
    pub(super) fn of(a: Attr, sizes: &[i64], tensors: &[View]) -> Result<TensorMap> {
        let bad = || format!("has a bad tensor map {a}");
        let i64s = |name: &str| a.entry(name).and_then(Attr::as_i64s);
        let extent = i64s("box").ok_or_else(bad)?;
        if !extent.iter().all(|n| (1..=BOX).contains(n)) {
            return Err(bad().into());
        }
        let argument = a.entry("argument").and_then(Attr::as_i64).ok_or_else(bad)?;
        let view = tensors.get(argument as usize).ok_or_else(bad)?.clone();
        let element = a.entry("element").and_then(Attr::as_type).ok_or_else(bad)?;
        let tf32 = element == Type::tf32(element.ctx());
        let dtype = if tf32 { DType::F32 } else { element.dtype()? };
        let (_, exprs) = a.entry("map").and_then(Attr::as_affine_map).ok_or_else(bad)?;
        let symbols: Vec<Elements> = sizes.iter().map(|n| Elements::index(*n)).collect();
        let number = |e| expressions::evaluate(e, &[], &symbols)?.uniform();
        let all: Vec<i64> = exprs.iter().map(number).collect::<Result<_>>()?;
        let pair = |w: Attr, name: &str| {
            w.entry(name).and_then(Attr::as_i64s)?.try_into().ok().map(|p: [i64; 2]| p)
        };
        let window = match a.entry("window") {
            None => None,
            Some(w) => Some(
                (|| {
                    let (low, high) = (pair(w, "low")?, pair(w, "high")?);
                    Some(Window { low, high, strides: pair(w, "strides")? })
                })()
                .ok_or_else(bad)?,
            ),
        };
        let rank = if window.is_some() { 4 } else { extent.len() };
        let (offset, rest) =
            all.split_first().filter(|(_, r)| r.len() + 1 == 2 * rank).ok_or_else(bad)?;
        // Booleans are bytes in memory.
        let bytes = view.dtype == DType::I1 && dtype == DType::I8;
        if !(view.dtype == dtype || bytes)
            || extent.len() != if window.is_some() { 2 } else { rank }
        {
            return Err(bad().into());
        }
        let strides = [&[1], &rest[rank..]].concat();
        let view = view.cast(view.offset + offset, view.sizes.clone(), view.strides.clone());
        Ok(TensorMap { view, dtype, tf32, sizes: rest[..rank].to_vec(), strides, extent, window })
    }

    /// The place of an element in its buffer. None: out of bounds.
    pub(super) fn place(&self, at: &[i64]) -> Option<usize> {
        if !at.iter().zip(&self.sizes).all(|(i, n)| (0..*n).contains(i)) {
            return None;
        }
        let far = at.iter().zip(&self.strides).map(|(i, s)| i.wrapping_mul(*s));
        usize::try_from(far.fold(self.view.offset, i64::wrapping_add)).ok()
    }
    /// Checks that coordinates are as many as dimensions.
    pub(super) fn check(&self, at: &[i64]) -> Result<()> {
        match at.len() == self.sizes.len() {
            true => Ok(()),
            false => Err(format!(
                "has {} coordinates of a map of {} dimensions",
                at.len(),
                self.sizes.len()
            )
            .into()),
        }
    }
    /// The places of a box's elements in their order, given its corner and, in im2col mode, the
    /// offsets (width, height) at which each pixel is read.
    ///
    /// # Errors
    /// Coordinates or offsets that the map does not take.
    pub(super) fn places(&self, corner: &[i64], offsets: &[i64]) -> Result<Vec<Option<usize>>> {
        self.check(corner)?;
        match (&self.window, offsets) {
            (None, []) => Ok(self.tiled(corner)),
            (Some(w), [across, down]) => Ok(self.pixels(w, corner, [*across, *down])),
            (None, _) => Err("has a window, but its map is not in im2col mode".into()),
            (Some(_), _) => Err("has no window, but its map is in im2col mode".into()),
        }
    }
    fn tiled(&self, corner: &[i64]) -> Vec<Option<usize>> {
        let count: i64 = self.extent.iter().product();
        let place = |i: i64| {
            let (mut rest, mut at) = (i, corner.to_vec());
            for (x, n) in at.iter_mut().zip(&self.extent) {
                (*x, rest) = (x.wrapping_add(rest % n), rest / n);
            }
            self.place(&at)
        };
        (0..count).map(place).collect()
    }
    /// Pixels in order of width, height, image.
    fn pixels(&self, w: &Window, corner: &[i64], [across, down]: [i64; 2]) -> Vec<Option<usize>> {
        let (mut all, mut at) = (vec![], corner.to_vec());
        for _ in 0..self.extent[1] {
            let [x, y] = [at[1].wrapping_add(across), at[2].wrapping_add(down)];
            let place = |c: i64| self.place(&[at[0].wrapping_add(c), x, y, at[3]]);
            all.extend((0..self.extent[0]).map(place));
            at[1] = at[1].wrapping_add(w.strides[1]);
            if at[1] < self.sizes[1] + w.high[1] {
                continue;
            }
            (at[1], at[2]) = (w.low[1], at[2].wrapping_add(w.strides[0]));
            if at[2] >= self.sizes[2] + w.high[0] {
                (at[2], at[3]) = (w.low[0], at[3].wrapping_add(1));
            }
        }
        all
    }
}
