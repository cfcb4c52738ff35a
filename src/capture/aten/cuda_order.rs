//! The order of PyTorch's CUDA generator: which word of which Philox block an element takes, as
//! integer arithmetic on its row-major index.
//!
//! A kernel has `T` threads: 256 a CTA, and no more CTAs than run at once. Thread `t` has the
//! Philox stream `t` and starts at block `offset / 4`. Source: `calc_execution_policy` in ATen's
//! `native/cuda/DistributionTemplates.h`, `Dropout.cu` and `cuda/CUDAApplyUtils.cuh`.
use super::{generator::Rng, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Threads of a CTA.
const CTA: i64 = 256;

/// How a kernel hands out the words of its blocks.
#[derive(Clone, Copy)]
pub(super) enum Kernel {
    /// A block has this many numbers, for elements that lie `T` apart: 4, or 2 of 64 bits.
    Strided(i64),
    /// A thread takes this many contiguous elements at a time, or the greatest power of two below
    /// that divides the number of elements; if that is 1, as `Strided(4)`.
    Contiguous(i64),
    /// A thread takes four contiguous elements, and there are as many threads as that needs.
    Quads,
}

/// The blocks of the elements of a draw.
pub(super) struct Words {
    /// The four words.
    pub words: [Value; 4],
    /// Which number of its block an element takes, i64; all the first if absent.
    pub lane: Option<Value>,
}

/// Where an element's number is: block (from the offset on), stream, lane.
struct Place {
    block: Option<Value>,
    stream: Value,
    lane: Option<Value>,
}

/// A draw: its number of elements and `T`.
struct Grid {
    elements: Size,
    threads: Size,
}

impl Grid {
    fn new(cx: &Cx, sizes: &[Size], most: i64) -> Result<Grid> {
        let elements = sizes.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
        let ctas = cx.size_div(cx.size_add(elements, Size::Static(CTA - 1))?, Size::Static(CTA))?;
        let wanted = cx.size_mul(cx.size_max(ctas, Size::Static(1))?, Size::Static(CTA))?;
        Ok(Grid { elements, threads: cx.size_min(wanted, Size::Static(most))? })
    }
    /// Whether `T` threads take all elements at once, `each` at a time.
    fn is_one_step(&self, each: i64) -> bool {
        let known = self.elements.known().zip(self.threads.known());
        known.is_some_and(|(n, threads)| n <= threads.saturating_mul(each))
    }
    /// By how much a kernel moves the offset: 4 for each block of a thread.
    fn increment(&self, cx: &Cx, lanes: i64) -> Result<Size> {
        let step = cx.size_mul(self.threads, Size::Static(lanes))?;
        let last = cx.size_div(cx.size_add(self.elements, Size::Static(-1))?, step)?;
        cx.size_mul(cx.size_add(last, Size::Static(1))?, Size::Static(4))
    }

    /// Element `(block * lanes + lane) * T + stream`.
    fn strided(&self, cx: &Cx, index: Value, lanes: i64) -> Result<Place> {
        if self.is_one_step(1) {
            return Ok(Place { block: None, stream: index, lane: None });
        }
        let (step, stream) = divided(cx, index, cx.b.size_as_tensor(self.threads, DType::I64)?)?;
        let block = shifted(cx, step, lanes)?;
        Ok(Place { block: Some(block), stream, lane: Some(masked(cx, step, lanes)?) })
    }
    /// Element `(step * T + stream) * width + i`, where `i` is four lanes of each of `width / 4`
    /// blocks. The width may be dynamic.
    fn contiguous(&self, cx: &Cx, index: Value, width: Value, one_step: bool) -> Result<Place> {
        let (vector, within) = divided(cx, index, width)?;
        let later = shifted(cx, within, 4)?;
        let lane = Some(masked(cx, within, 4)?);
        if one_step {
            return Ok(Place { block: Some(later), stream: vector, lane });
        }
        let (step, stream) = divided(cx, vector, cx.b.size_as_tensor(self.threads, DType::I64)?)?;
        let one = cx.integer(DType::I64, 1)?;
        let blocks = cx.binary(BinaryKind::Max, shifted(cx, width, 4)?, one)?;
        let block = cx.binary(BinaryKind::Mul, step, blocks)?;
        Ok(Place { block: Some(cx.binary(BinaryKind::Add, block, later)?), stream, lane })
    }
    /// [`Kernel::Contiguous`].
    fn widest(&self, cx: &Cx, index: Value, most: i64) -> Result<Place> {
        if let Some(n) = self.elements.known() {
            let fitting = std::iter::successors(Some(most), |w| (*w > 1).then_some(w / 2));
            let width = fitting.into_iter().find(|w| n % w == 0).unwrap_or(1);
            if width == 1 {
                return self.strided(cx, index, 4);
            }
            return self.contiguous(
                cx,
                index,
                cx.integer(DType::I64, width)?,
                self.is_one_step(width),
            );
        }
        let n = cx.b.size_as_tensor(self.elements, DType::I64)?;
        let (zero, one) = (cx.integer(DType::I64, 0)?, cx.integer(DType::I64, 1)?);
        let mut width = one;
        for w in std::iter::successors(Some(2), |w| Some(w * 2)).take_while(|w| *w <= most) {
            let fits = cx.compare(CompareKind::Eq, masked(cx, n, w)?, zero)?;
            width = cx.select(fits, cx.integer(DType::I64, w)?, width)?;
        }
        let (narrow, wide) =
            (self.strided(cx, index, 4)?, self.contiguous(cx, index, width, false)?);
        let alone = cx.compare(CompareKind::Eq, width, one)?;
        let either = |x: Value, y: Value| cx.select(alone, x, y);
        let both =
            |x: Option<Value>, y: Option<Value>| x.zip(y).map(|(x, y)| either(x, y)).transpose();
        Ok(Place {
            block: both(narrow.block, wide.block)?,
            stream: either(narrow.stream, wide.stream)?,
            lane: both(narrow.lane, wide.lane)?,
        })
    }
}

/// Quotient and remainder of integers that are not negative.
fn divided(cx: &Cx, x: Value, by: Value) -> Result<(Value, Value)> {
    Ok((cx.binary(BinaryKind::Div, x, by)?, cx.binary(BinaryKind::Rem, x, by)?))
}

/// The quotient by a power of two.
fn shifted(cx: &Cx, x: Value, by: i64) -> Result<Value> {
    cx.binary(BinaryKind::Shr, x, cx.integer(DType::I64, i64::from(by.trailing_zeros()))?)
}

/// The remainder by a power of two.
fn masked(cx: &Cx, x: Value, by: i64) -> Result<Value> {
    cx.binary(BinaryKind::And, x, cx.integer(DType::I64, by - 1)?)
}

/// The row-major index of each element.
fn row_major(cx: &Cx, sizes: &[Size]) -> Result<Value> {
    let mut index = cx.integer(DType::I64, 0)?;
    for (axis, size) in sizes.iter().enumerate() {
        let scaled = cx.binary(BinaryKind::Mul, index, cx.b.size_as_tensor(*size, DType::I64)?)?;
        let own = cx.iota(DType::I64, sizes.to_vec(), axis)?;
        index = if axis == 0 { own } else { cx.binary(BinaryKind::Add, scaled, own)? };
    }
    Ok(index)
}

impl Cx {
    /// States how far a call moves the offset of PyTorch's generator.
    pub fn state_increment(&self) -> Result<()> {
        let increment = match self.rng.as_ref().map(Rng::advanced) {
            None | Some(Size::Static(0)) => return Ok(()),
            Some(Size::Static(n)) => self.b.index(n)?,
            Some(Size::Dynamic(v)) => v,
        };
        self.b.create_with(&AdvanceRng { increment }, &[], &mut []).map(|_| ())
    }
    /// Whether draws follow PyTorch's CUDA generator.
    pub(super) fn follows_cuda(&self) -> bool {
        self.rng.as_ref().is_some_and(|rng| rng.threads().is_some())
    }
    /// The blocks of the next draw in PyTorch's order; moves the offset as the kernel does. Err: in
    /// a branch or a loop; more elements than 32-bit offsets of `bytes` each reach, for which
    /// PyTorch runs several kernels.
    pub(super) fn cuda_words(
        &mut self,
        sizes: &[Size],
        kernel: Kernel,
        bytes: usize,
    ) -> Result<Words> {
        let none = || crate::capture::unsupported("draws random numbers without a generator");
        let rng = self.rng.as_mut().ok_or_else(none)?;
        let threads = rng.threads().ok_or_else(none)?;
        let (state, advanced) = rng.aligned()?;
        let grid = Grid::new(self, sizes, threads)?;
        if let Kernel::Strided(_) = kernel {
            self.within_reach(&grid, bytes)?;
        }
        let index = row_major(self, sizes)?;
        let (place, increment) = match kernel {
            Kernel::Strided(lanes) => {
                (grid.strided(self, index, lanes)?, grid.increment(self, lanes)?)
            }
            Kernel::Contiguous(most) => (grid.widest(self, index, most)?, grid.increment(self, 4)?),
            // The kernel asks for 10 numbers a thread, which the generator rounds up.
            Kernel::Quads => (
                Place {
                    block: None,
                    stream: shifted(self, index, 4)?,
                    lane: Some(masked(self, index, 4)?),
                },
                self.size_mul(self.size_min(grid.elements, Size::Static(1))?, Size::Static(12))?,
            ),
        };
        let word = |cx: &Cx, at: i64| -> Result<Value> {
            let one = cx.part(state, 0, Size::Static(at), Size::Static(1))?;
            cx.reshape(one, vec![])
        };
        let (seed, offset) = (word(self, 0)?, word(self, 1)?);
        let before = self.b.size_as_tensor(advanced, DType::I64)?;
        let mut block = shifted(self, self.binary(BinaryKind::Add, offset, before)?, 4)?;
        if let Some(own) = place.block {
            block = self.binary(BinaryKind::Add, block, own)?;
        }
        let op = self.b.create_node(&Philox {
            seed: self.broadcast_to(seed, sizes)?,
            block: self.broadcast_to(block, sizes)?,
            stream: place.stream,
        })?;
        let after = self.size_add(advanced, increment)?;
        if let Some(rng) = &mut self.rng {
            rng.advance_to(after);
        }
        let words = [0, 1, 2, 3].map(|i| op.result(i));
        Ok(Words { words, lane: place.lane })
    }
    /// Requires that PyTorch draws with one kernel.
    fn within_reach(&self, grid: &Grid, bytes: usize) -> Result<()> {
        let most = (i64::from(i32::MAX) - 1) / bytes.max(1) as i64 + 1;
        let words = "align_random_eager follows draws of less than 2 GiB";
        match grid.elements {
            Size::Static(n) if n <= most => Ok(()),
            Size::Static(_) => Err(crate::capture::unsupported(words)),
            n => self.require(CompareKind::Le, n, Size::Static(most), words),
        }
    }
}
