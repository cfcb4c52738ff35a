//! Decodes asynchronous copies and mbarrier instructions.
use super::{
    code::{Mbarrier, Op, Space, Tma},
    error::Error,
    lex::number,
    operands::{OperandDecoder, space},
    parse::Operand,
};

fn count(ops: &[Operand]) -> u32 {
    match ops.last() {
        Some(Operand::Number(n)) => *n as u32,
        Some(Operand::Name(n)) => number(n).unwrap_or(0) as u32,
        _ => 0,
    }
}

fn mbarrier(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let (what, at) = match (parts.get(1), ops) {
        (Some(&"init"), [at, count]) => (Mbarrier::Init(n.source(count)?), at),
        (Some(&"inval"), [at]) => (Mbarrier::Invalidate, at),
        (Some(&"expect_tx"), [at, bytes]) => (Mbarrier::Expect(n.source(bytes)?), at),
        (Some(&"arrive"), ops) => {
            let (state, ops) = match ops {
                [at @ Operand::At { .. }, rest @ ..] => (None, (at, rest)),
                [state, at, rest @ ..] => (n.maybe(state)?, (at, rest)),
                _ => return Ok(None),
            };
            let second = ops.1.first().map(|o| n.source(o)).transpose()?;
            let (bytes, count) =
                if parts.contains(&"expect_tx") { (second, None) } else { (None, second) };
            (Mbarrier::Arrive { bytes, count, state }, ops.0)
        }
        // A state token is the phase parity, so both forms are the same test.
        (Some(&("try_wait" | "test_wait")), [out, at, phase, ..]) => {
            (Mbarrier::Test { out: n.result(out)?, phase: n.source(phase)? }, at)
        }
        _ => return Ok(None),
    };
    let (at, _) = n.address(at)?;
    Ok(Some(Op::Mbarrier(what, at)))
}

fn tma(n: &mut OperandDecoder<'_>, parts: &[&str], ops: &[Operand]) -> Result<Option<Op>, Error> {
    let spaces: Vec<_> = parts
        .iter()
        .filter(|p| p.starts_with("shared") || **p == "global")
        .map(|p| space(&[p]))
        .collect();
    let loads = spaces.first() == Some(&Space::Shared);
    let of = if parts.contains(&"tensor") {
        match (loads, ops) {
            (true, [to, tensor, mbarrier, rest @ ..]) => {
                let (map, at) = n.address(tensor)?;
                let at = match at {
                    [list] => n.sources(list)?,
                    _ => return n.fail("a tensor copy without coordinates"),
                };
                let (mut offsets, mut blocks) = (vec![], None);
                for more in rest {
                    match more {
                        Operand::List(_) => offsets = n.sources(more)?,
                        one if parts.iter().any(|p| p.starts_with("multicast")) => {
                            blocks = Some(n.source(one)?)
                        }
                        // Cache policies have no effect.
                        _ => {}
                    }
                }
                Tma::Load {
                    to: n.address(to)?.0,
                    map: map.base,
                    at,
                    offsets,
                    mbarrier: n.address(mbarrier)?.0,
                    blocks,
                }
            }
            (false, [tensor, from, ..]) => {
                let (map, at) = n.address(tensor)?;
                let at = match at {
                    [list] => n.sources(list)?,
                    _ => return n.fail("a tensor copy without coordinates"),
                };
                Tma::Store { from: n.address(from)?.0, map: map.base, at }
            }
            _ => return Ok(None),
        }
    } else {
        match (loads, ops) {
            (true, [to, from, bytes, mbarrier, ..]) => {
                let of = spaces.get(1).copied().unwrap_or(Space::Global);
                Tma::LoadBytes {
                    to: n.address(to)?.0,
                    of,
                    from: n.address(from)?.0,
                    bytes: n.source(bytes)?,
                    mbarrier: n.address(mbarrier)?.0,
                }
            }
            (false, [to, from, bytes, ..]) => Tma::StoreBytes {
                to: n.address(to)?.0,
                from: n.address(from)?.0,
                bytes: n.source(bytes)?,
            },
            _ => return Ok(None),
        }
    };
    Ok(Some(Op::Tma(Box::new(of))))
}

/// Decodes TMA and mbarrier instructions.
pub fn decode(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    Ok(Some(match (parts, ops) {
        (["mbarrier", ..], _) => return mbarrier(n, parts, ops),
        (["mapa", ..], [d, a, block]) => {
            let generic = !parts.iter().any(|p| p.starts_with("shared"));
            Op::Map { out: n.result(d)?, a: n.source(a)?, block: n.source(block)?, generic }
        }
        (["cp", "async", "commit_group"], _) => Op::CopyCommit,
        (["cp", "async", "wait_group"], _) => Op::CopyWait(count(ops)),
        (["cp", "async", "wait_all"], _) => Op::CopyWait(0),
        (["cp", "async", "bulk", "commit_group"], _) => Op::TmaCommit,
        (["cp", "async", "bulk", "wait_group", ..], _) => Op::TmaWait(count(ops)),
        (["cp", "async", "bulk", "prefetch", ..], _) => Op::Nothing,
        (["cp", "async", "bulk", ..], _) => return tma(n, parts, ops),
        (["cp", "async", ..], [to, from, Operand::Number(bytes), rest @ ..]) => {
            let read = rest.first().map(|o| n.source(o)).transpose()?;
            Op::Copy { to: n.address(to)?.0, from: n.address(from)?.0, bytes: *bytes as u32, read }
        }
        _ => return Ok(None),
    }))
}
