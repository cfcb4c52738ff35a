//! Flash attention: blocks of queries pass blocks of keys with an online softmax.
mod emit;
mod products;
mod task;
mod transposition;

use crate::{
    analysis::{Attention as Plain, Kernel, SCRATCH},
    strategies::{Cpu, Device, Emission, Match, Nesting, Parameters, Request, Strategy},
};
use kiln_dialects::Result;

/// Attention on CPUs.
pub struct Attention;

/// Block sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// Columns of values of a register tile
    #[parameter(Between(1, 64))]
    pub columns: usize,
    /// Keys of a register tile
    #[parameter(Between(1, 64))]
    pub keys: usize,
    /// Keys whose scores are in scratch at once
    #[parameter(Between(1, 65536))]
    pub keys_block: usize,
    /// Vectors of queries of a register tile
    #[parameter(Between(1, 8))]
    pub n: usize,
}

impl Strategy for Attention {
    type Params = Params;
    const NAME: &'static str = "attention";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Attention: blocks of queries and keys, running softmax";
    const NESTING: Nesting = Nesting::NONE;
    const MISMATCH: &'static str = "is no attention";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let params = || choose(r.kernel, r.kernel.attention.as_ref()?, &r.cpu().ok()?);
        Match::first(params())
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, params, e.threads()?)
    }
}

/// Block sizes: accumulators in registers, a block of queries with its scores in scratch.
fn choose(k: &Kernel, a: &Plain, m: &Cpu) -> Option<Params> {
    let (_, queries, keys) = a.sizes(k)?;
    let size = k
        .buffers
        .get(k.stages.get(a.scores)?.outputs.first()?.access.buffer)?
        .element
        .dtype()
        .ok()?
        .byte_size() as i64;
    let lanes = m.bits / 8 / size;
    let registers = if m.bits == 512 { 32 } else { 16 };
    // Few queries fill few vectors.
    let mut n = queries.known().map_or(2, |q| (q + lanes - 1) / lanes).clamp(1, 2);
    let rows = |n: i64, of: Option<i64>| {
        // Accumulators take most registers; an even division leaves no remainder.
        let most = (registers - 4) / n - if registers == 32 { 2 } else { 0 };
        let most = most.clamp(1, 12);
        of.and_then(|of| (most.min(8)..=most).rev().find(|t| of % t == 0)).unwrap_or(most.min(8))
    };
    // Queries, scores and accumulators of a block of queries are in scratch.
    let bytes = |n: i64, block: i64| (a.depth + a.columns + block) * n * lanes * size;
    if bytes(n, 8) > SCRATCH {
        n = 1;
    }
    let (at_once, columns) =
        (rows(n, keys.known().filter(|k| *k <= 1024)), rows(n, Some(a.columns)));
    let most = keys.known().unwrap_or(128).clamp(1, 128);
    let mut block = (most + at_once - 1) / at_once * at_once;
    while bytes(n, block) > SCRATCH && block > at_once {
        block -= at_once;
    }
    if bytes(n, block) > SCRATCH {
        return None;
    }
    Some(Params {
        bits: m.bits as usize,
        columns: columns as usize,
        keys: at_once as usize,
        keys_block: block as usize,
        n: n as usize,
    })
}
