//! Attention: sizes of its blocks.
pub(crate) mod emit;

use crate::{
    analysis::{Attention, Kernel, SCRATCH},
    strategies::cpu::choose::{Machine, Schedule},
};

/// The schedule of an attention.
pub fn attention(k: &Kernel, a: &Attention, m: &Machine) -> Option<Schedule> {
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
        // Running values take most registers; what is divided evenly leaves no rest.
        let most = (registers - 4) / n - if registers == 32 { 2 } else { 0 };
        let most = most.clamp(1, 12);
        of.and_then(|of| (most.min(8)..=most).rev().find(|t| of % t == 0)).unwrap_or(most.min(8))
    };
    // Queries, scores and the running result of a block of queries are scratch.
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
    let parameters = [
        ("bits", m.bits),
        ("columns", columns),
        ("keys", at_once),
        ("keys_block", block),
        ("n", n),
    ];
    Some(Schedule {
        strategy: "attention".into(),
        parameters: parameters.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
    })
}
