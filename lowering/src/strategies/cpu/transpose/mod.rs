//! Transposes: blocks of both dimensions keep cache lines of both in the cache, and squares of
//! vectors are transposed in registers.
pub(crate) mod registers;

use crate::{
    analysis::{Kernel, Nest},
    strategies::{
        Device, Emission, Match, Nesting, Parameters, Request, Strategy,
        cpu::{
            common::{
                cache_lines::whole_lines,
                tasks::{LoopParams, independent, with_nontemporal},
            },
            contraction::{
                emit::{Tiles, emit},
                transposition,
            },
            elementwise::streams,
        },
    },
};
use kiln_dialects::Result;

/// A nest that loads along another dimension than it stores.
pub struct Transpose;

/// Tile and block sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// Rows of a register tile
    #[parameter(Between(1, 64))]
    pub m: usize,
    /// Rows of a block
    #[parameter(Between(1, 1 << 20))]
    pub m_block: usize,
    /// Vectors of columns of a register tile
    #[parameter(Between(1, 8))]
    pub n: usize,
    /// Columns of a block
    #[parameter(Between(1, 1 << 20))]
    pub n_block: usize,
    /// Whether results that are cache lines are written past the caches
    #[parameter(Between(0, 1))]
    pub nontemporal: bool,
    /// Bytes ahead of a read that is prefetched; 0 for none
    #[parameter(Between(0, 65536))]
    pub prefetch: usize,
}

impl Strategy for Transpose {
    type Params = Params;
    const NAME: &'static str = "transpose";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Transposes: cache blocks, squares of vectors in registers";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = "has no operand in another dimension order than its result";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let Ok(m) = r.cpu() else { return Match::No };
        let bits = m.bits as usize;
        let transposes = |n: &Nest| transposition(r.kernel, r.plan, n, bits).is_some();
        let nests = &r.plan.nests;
        // Separate nests may write the padding of a transpose.
        let fits = nests.iter().any(transposes)
            && nests.iter().all(|n| transposes(n) || fills(r.kernel, n));
        let past = nests
            .iter()
            .any(|n| streams(r.kernel, r.plan, n, &m) && whole_lines(r.kernel, n, bits));
        Match::first(fits.then_some(Params {
            bits,
            m: 4,
            m_block: 64,
            n: 1,
            n_block: 1024,
            nontemporal: past,
            prefetch: 0,
        }))
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        let threads = e.threads()?;
        let (m_block, n_block) = (params.m_block, params.n_block);
        let tiles =
            Tiles { n: params.n, m: params.m, m_block, n_block, pack: false, in_registers: true };
        let loops = LoopParams {
            bits: params.bits,
            nontemporal: params.nontemporal,
            prefetch: params.prefetch,
            ..LoopParams::default()
        };
        e.plan.nests.iter().try_for_each(|n| {
            match transposition(e.scope.kernel, e.plan, n, params.bits) {
                Some(roles) => with_nontemporal(e.c, e.scope, e.plan, n, &loops, &|c, scope| {
                    emit(c, scope, n, &roles, &tiles, threads)
                }),
                None => {
                    let rest = LoopParams::for_side_nests(params.bits);
                    independent(e.c, e.scope, e.plan, n, &rest, threads)
                }
            }
        })
    }
}

/// Whether a nest has no loads.
fn fills(k: &Kernel, nest: &Nest) -> bool {
    nest.all().filter_map(|s| k.stages.get(s)).all(|s| s.reads().next().is_none())
}
