//! Decodes warp-collective instructions: shuffles, votes, matrix loads, tensor cores.
use super::{
    code::{AccumulatorType, Collective, Mma, Op, OperandType, Shuffle, Vote, Wgmma},
    error::Error,
    integers,
    operands::OperandDecoder,
    parse::Operand,
};

/// A dimension of a shape such as `m64n128k16`, by its letter.
fn size(shape: &str, letter: char) -> Option<usize> {
    let digits = &shape[shape.find(letter)? + 1..];
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

fn operand_type(name: &str) -> Option<OperandType> {
    Some(match name {
        "bf16" => OperandType::Bf16,
        "f16" => OperandType::F16,
        "tf32" => OperandType::Tf32,
        "e4m3" => OperandType::E4m3,
        "e5m2" => OperandType::E5m2,
        "s8" => OperandType::S8,
        _ => return None,
    })
}

fn accumulator_type(name: &str) -> Option<AccumulatorType> {
    Some(match name {
        "f16" => AccumulatorType::F16,
        "f32" => AccumulatorType::F32,
        "s32" => AccumulatorType::S32,
        _ => return None,
    })
}

fn literal(operand: Option<&Operand>) -> i64 {
    match operand {
        Some(Operand::Number(n)) => *n as i64,
        _ => 0,
    }
}

fn shuffle(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let kind = match parts.get(2) {
        Some(&"down") => Shuffle::Down,
        Some(&"up") => Shuffle::Up,
        Some(&"bfly") => Shuffle::Butterfly,
        Some(&"idx") => Shuffle::Index,
        _ => return Ok(None),
    };
    let [to, value, lane, limit, mask] = ops else { return Ok(None) };
    let name = |s: &String| Operand::Name(s.clone());
    let (out, valid) = match to {
        Operand::Pair(d, p) => (n.result(&name(d))?, n.maybe(&name(p))?),
        one => (n.result(one)?, None),
    };
    let mask = n.source(mask)?;
    let what = Collective::Shuffle {
        kind,
        out,
        valid,
        value: n.source(value)?,
        lane: n.source(lane)?,
        limit: n.source(limit)?,
    };
    Ok(Some(Op::Collective(what, Some(mask))))
}

fn tensor_cores(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let Some(shape) = parts
        .iter()
        .find(|p| p.starts_with('m') && p.contains('n') && p.contains('k') && p.len() > 5)
    else {
        return Ok(None);
    };
    let types: Vec<&&str> = parts
        .iter()
        .skip_while(|p| *p != shape)
        .skip(1)
        .filter(|p| !["row", "col"].contains(p))
        .collect();
    let (Some(columns), Some(k)) = (size(shape, 'n'), size(shape, 'k')) else { return Ok(None) };
    let (Some(accumulator_type), Some(operand_type)) = (
        types.first().and_then(|t| accumulator_type(t)),
        types.get(1).and_then(|t| operand_type(t)),
    ) else {
        return Ok(None);
    };
    // Operands of two types are not emulated.
    if types.get(2).is_some_and(|t| *t != types[1]) {
        return Ok(None);
    }
    if parts[0] == "mma" {
        let ([d, a, b, c], "m16", 8) = (ops, &shape[..3], columns) else { return Ok(None) };
        let d = n.results(d)?.into_iter().flatten().collect();
        let what = Mma {
            k,
            operand_type,
            accumulator_type,
            d,
            a: n.sources(a)?,
            b: n.sources(b)?,
            c: n.sources(c)?,
        };
        return Ok(Some(Op::Collective(Collective::Mma(what), None)));
    }
    let [d, a, b, add, rest @ ..] = ops else { return Ok(None) };
    let d = n.results(d)?.into_iter().flatten().collect();
    let flags: Vec<i64> = rest.iter().map(|o| literal(Some(o))).collect();
    let in_registers = matches!(a, Operand::List(_));
    // After the signs come the transpose flags of shared operands; registers are always K-major.
    let transposed = match flags[..] {
        [_, _, a, b] => [a != 0, b != 0],
        [_, _, b] => [false, b != 0],
        _ => [false, false],
    };
    let signs = [flags.first().map_or(1, |s| *s as i32), flags.get(1).map_or(1, |s| *s as i32)];
    if in_registers && flags.len() > 3 {
        return n.fail("an A operand in registers cannot be transposed");
    }
    let what = Wgmma {
        n: columns,
        k,
        operand_type,
        accumulator_type,
        d,
        a: n.sources(a)?,
        b: n.source(b)?,
        add: n.source(add)?,
        signs,
        transposed,
    };
    Ok(Some(Op::Collective(Collective::Wgmma(what), None)))
}

/// Decodes warp and warpgroup instructions.
pub fn decode(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let kind = *parts.last().unwrap_or(&"");
    Ok(Some(match (parts[0], ops) {
        ("shfl", _) => return shuffle(n, parts, ops),
        ("mma", _) => return tensor_cores(n, parts, ops),
        ("wgmma", _) if parts.get(1) == Some(&"mma_async") => return tensor_cores(n, parts, ops),
        // wgmma executes synchronously, so there is nothing to wait for.
        ("wgmma", _) => Op::Nothing,
        ("vote", [d, p, mask]) => {
            let kind = match parts.get(2) {
                Some(&"all") => Vote::All,
                Some(&"any") => Vote::Any,
                Some(&"uni") => Vote::Uniform,
                Some(&"ballot") => Vote::Ballot,
                _ => return Ok(None),
            };
            let (value, negate) = n.predicate(p)?;
            let mask = n.source(mask)?;
            Op::Collective(Collective::Vote { kind, out: n.result(d)?, value, negate }, Some(mask))
        }
        ("redux", [d, a, mask]) => {
            let Some(of) = parts.get(2).and_then(|name| integers::binary(name, "", kind)) else {
                return Ok(None);
            };
            let mask = n.source(mask)?;
            Op::Collective(
                Collective::Reduce { of, out: n.result(d)?, value: n.source(a)? },
                Some(mask),
            )
        }
        ("elect", [Operand::Pair(d, p), mask]) => {
            let mask = n.source(mask)?;
            let name = |s: &String| Operand::Name(s.clone());
            Op::Collective(
                Collective::Elect { out: n.maybe(&name(d))?, chosen: n.result(&name(p))? },
                Some(mask),
            )
        }
        ("bar", [mask]) if parts.get(1) == Some(&"warp") => {
            let mask = n.source(mask)?;
            Op::Collective(Collective::Sync, Some(mask))
        }
        ("ldmatrix", [d, at]) => {
            let out = n.results(d)?.into_iter().flatten().collect();
            Op::Collective(
                Collective::LoadMatrix {
                    out,
                    at: n.address(at)?.0,
                    transposed: parts.contains(&"trans"),
                },
                None,
            )
        }
        ("stmatrix", [at, values]) => {
            let (at, values) = (n.address(at)?.0, n.sources(values)?);
            Op::Collective(
                Collective::StoreMatrix { values, at, transposed: parts.contains(&"trans") },
                None,
            )
        }
        _ => return Ok(None),
    }))
}
