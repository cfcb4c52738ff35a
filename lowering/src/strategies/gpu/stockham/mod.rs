//! Fourier transforms of rows that fit shared memory: Stockham's autosort algorithm (Cochran et
//! al., "What is the fast Fourier transform?", 1967), as Govindaraju et al. write it for GPUs
//! ("High performance discrete Fourier transforms on graphics processors", SC 2008).
//!
//! A pass of radix R over n numbers is n / R butterflies: each takes R numbers that are n / R apart,
//! times roots of unity, and stores their transform in the order that the next pass reads. The
//! first pass loads from memory, the last one stores there, both coalesced; between passes a row
//! lies in shared memory. Real rows are transformed as complex ones: memory bounds the kernel.
mod butterfly;
mod emit;
mod roots;

use crate::{
    analysis::{FourierTransform, Kernel, Poly, Stage},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                check_threads,
                grid::{grid, shared_bytes},
            },
            mma_gemm::SHARED,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::Result;
use kiln_passes::expand_ffts::{Radices, radices};

/// Fourier transforms of rows in shared memory.
pub struct Stockham;

/// How rows are divided among threads.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Rows of a CTA
    #[parameter(Between(1, 1024))]
    pub rows_per_cta: usize,
    /// Threads that share a row
    #[parameter(Between(1, 1024))]
    pub row_threads: usize,
}

/// Complex numbers that a thread holds in registers.
const POINTS: usize = 16;
/// Threads of a CTA with several rows.
const THREADS: usize = 128;
/// Most bytes of shared memory of a CTA with several rows: two or more are resident on an SM.
const SHARED_ROWS: usize = 48 << 10;
/// Threads of an SM, times the bytes of a number, that registers are limited for: 80 registers a
/// thread for f32 and twice as many for f64, by which ptxas spills little or nothing.
const RESIDENT_BYTES: usize = 768 * 4;
/// Bytes after which a row in shared memory has a gap of one element: all banks once.
const GAP: usize = 128;
/// Alignment of dynamic shared memory.
const ALIGNMENT: usize = 1024;

/// A kernel that is one transform.
pub(crate) struct Pattern<'a> {
    stage: &'a Stage,
    fft: FourierTransform,
    radices: Radices,
    n: usize,
    /// Bytes of a real number.
    size: usize,
}

impl<'a> Pattern<'a> {
    /// Matches a kernel.
    pub(crate) fn of(k: &'a Kernel) -> Option<Pattern<'a>> {
        let [stage] = &k.stages[..] else { return None };
        let fft = *stage.fft()?;
        let size = fft.re.ty().dtype().ok()?.byte_size();
        let n = usize::try_from(fft.length).ok()?;
        let radices = radices(fft.length)?;
        let found = Pattern { stage, fft, radices, n, size };
        (found.shared(1) <= SHARED).then_some(found)
    }
    /// The loops around the transformed dimension.
    fn outer(&self) -> usize {
        self.stage.extents.len().saturating_sub(2)
    }
    /// Elements between gaps.
    fn gap(&self) -> usize {
        GAP / self.size
    }
    /// Bytes of the real parts of a row in shared memory, or of the imaginary ones.
    fn part_bytes(&self) -> usize {
        (self.n + (self.n - 1) / self.gap()) * self.size
    }
    /// Bytes of shared memory of a CTA of these rows; a single pass needs none.
    fn shared(&self, rows: usize) -> usize {
        if self.radices.len() < 2 { 0 } else { ALIGNMENT + rows * 2 * self.part_bytes() }
    }
    fn params(&self) -> Params {
        // The first radix is the largest one.
        let radix = self.radices.first().map_or(1, |r| *r as usize);
        let row_threads = (self.n / radix).div_ceil(POINTS / radix);
        let mut rows_per_cta = (THREADS / row_threads).max(1);
        while rows_per_cta > 1 && self.shared(rows_per_cta) > SHARED_ROWS {
            rows_per_cta -= 1;
        }
        Params { rows_per_cta, row_threads }
    }
}

impl Params {
    /// Threads of a CTA, whole warps; those beyond the last row redo what others of it do.
    fn threads(&self) -> usize {
        (self.rows_per_cta * self.row_threads).next_multiple_of(WARP)
    }
}

impl Strategy for Stockham {
    type Params = Params;
    const NAME: &'static str = "stockham";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Fourier transforms of rows in shared memory, by Stockham's algorithm of mixed radix";
    const NESTING: Nesting = Nesting::NONE;
    const MISMATCH: &'static str = "is no Fourier transform of a length that one CTA computes";

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(Pattern::of(r.kernel).map(|p| p.params()))
    }
    fn refusal(k: &Kernel) -> Option<String> {
        let n = k.stages.iter().find_map(|s| Some(s.fft()?.length))?;
        Some(format!(
            "a transform of length {n} needs prime factors of at most 13, and a row that fits shared memory; else it costs O(n^2)"
        ))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let pattern = Pattern::of(r.kernel).ok_or(Self::MISMATCH)?;
        let threads = p.threads();
        check_threads(threads)?;
        let bytes = shared_bytes(pattern.shared(p.rows_per_cta), SHARED)?;
        let grid = grid(r.kernel, |e| {
            let rows = Poly::product(pattern.stage.extents.iter().take(pattern.outer()));
            Some(format!("({}) ceildiv {}", e.poly(&rows)?, p.rows_per_cta))
        })?;
        let shared_bytes = (bytes > 0).then_some(bytes);
        let ctas_per_sm = Some((RESIDENT_BYTES / (pattern.size * threads)).max(1));
        Ok(Launch { grid: Some(grid), threads, shared_bytes, ctas_per_sm, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["rows_per_cta", "row_threads"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        let pattern = Pattern::of(e.scope.kernel).ok_or(Self::MISMATCH)?;
        emit::emit(e.c, e.scope, &pattern, p)
    }
}
