//! Decodes parsed instructions.
use super::{
    code::{InitialValue, Instruction, LoadType, Op, Param, Slot, Space},
    convert,
    error::Error,
    floats, integers,
    operands::{OperandDecoder, VariableMap, space},
    parse::{Entry, Operand, ParsedInstruction, Variable, width},
};
use std::collections::BTreeMap;

/// A decoded kernel.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Instructions.
    pub code: Vec<Instruction>,
    /// Initial values of slots.
    pub initial_values: Vec<(Slot, InitialValue)>,
    /// The number of slots.
    pub slots: u32,
}

fn load_type(kind: &str) -> Option<LoadType> {
    let bytes = width(kind)?;
    Some(LoadType { width: bytes as u8, signed: kind.starts_with('s') })
}

fn arithmetic(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let (name, kind) = (parts[0], *parts.last().unwrap_or(&""));
    // Only round-to-nearest float arithmetic is supported.
    if parts.iter().any(|p| ["rz", "rm", "rp"].contains(p)) {
        return Ok(None);
    }
    let how = parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default().join(".");
    let op = match ops {
        [d, a] => {
            let of = match name {
                "bfind" => integers::bfind(kind, how.contains("shiftamt")),
                "testp" => floats::test(parts.get(1).unwrap_or(&""), kind),
                _ => floats::unary(name, kind).or_else(|| integers::unary(name, kind)),
            };
            let Some(of) = of else { return Ok(None) };
            Op::Unary(of, n.result(d)?, n.source(a)?)
        }
        [d, a, b] => {
            let Some(of) =
                floats::binary(name, &how, kind).or_else(|| integers::binary(name, &how, kind))
            else {
                return Ok(None);
            };
            Op::Binary(of, n.result(d)?, n.source(a)?, n.source(b)?)
        }
        [d, a, b, c] => {
            let Some(of) =
                floats::ternary(name, kind).or_else(|| integers::ternary(name, &how, kind))
            else {
                return Ok(None);
            };
            Op::Ternary(of, n.result(d)?, [n.source(a)?, n.source(b)?, n.source(c)?])
        }
        _ => return Ok(None),
    };
    Ok(Some(op))
}

fn data_movement(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let kind = *parts.last().unwrap_or(&"");
    Ok(Some(match (parts[0], ops) {
        ("mov", [Operand::List(to), from]) => {
            let bits = width(kind).unwrap_or(0) as u32 * 8 / to.len() as u32;
            Op::Unpack { value: n.source(from)?, out: n.results(&Operand::List(to.clone()))?, bits }
        }
        ("mov", [to, Operand::List(from)]) => {
            let bits = width(kind).unwrap_or(0) as u32 * 8 / from.len() as u32;
            Op::Pack { out: n.result(to)?, parts: n.sources(&Operand::List(from.clone()))?, bits }
        }
        // A register, a predicate, or a variable's address.
        ("mov", [to, from]) => Op::Unary(|a| a, n.result(to)?, n.source(from)?),
        ("ld" | "ldu", [to, at]) => {
            let Some(load_type) = load_type(kind) else { return Ok(None) };
            Op::Load { space: space(parts), load_type, out: n.results(to)?, at: n.address(at)?.0 }
        }
        ("st", [at, from]) => {
            let Some(load_type) = load_type(kind) else { return Ok(None) };
            Op::Store {
                space: space(parts),
                width: load_type.width,
                values: n.sources(from)?,
                at: n.address(at)?.0,
            }
        }
        ("atom", [to, at, value, rest @ ..]) => return atomic(n, parts, Some(to), at, value, rest),
        ("red", [at, value]) => return atomic(n, parts, None, at, value, &[]),
        ("cvta", [to, from]) if parts.get(1) == Some(&"to") => {
            Op::FromGeneric(n.result(to)?, n.source(from)?)
        }
        ("cvta", [to, from]) => Op::ToGeneric(space(parts), n.result(to)?, n.source(from)?),
        ("bfi", [d, a, b, from, count]) => {
            let bits = width(parts.last().unwrap_or(&"")).unwrap_or(4) as u32 * 8;
            Op::Insert {
                out: n.result(d)?,
                a: n.source(a)?,
                b: n.source(b)?,
                from: n.source(from)?,
                count: n.source(count)?,
                bits,
            }
        }
        ("lop3", [d, a, b, c, table]) => Op::Logic {
            out: n.result(d)?,
            operands: [n.source(a)?, n.source(b)?, n.source(c)?],
            table: n.source(table)?,
        },
        ("selp", [d, a, b, p]) => {
            Op::Select { out: n.result(d)?, a: n.source(a)?, b: n.source(b)?, p: n.source(p)? }
        }
        ("cvt", _) => return conversion(n, parts, ops),
        ("setp", _) => return comparison(n, parts, ops),
        _ => return Ok(None),
    }))
}

fn atomic(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    to: Option<&Operand>,
    at: &Operand,
    value: &Operand,
    rest: &[Operand],
) -> Result<Option<Op>, Error> {
    let kind = *parts.last().unwrap_or(&"");
    let names = ["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"];
    let Some(name) = parts.iter().find(|p| names.contains(p)) else { return Ok(None) };
    // `cas` compares with the operand.
    let of = if *name == "cas" {
        Some((|a, _| a) as super::code::Binary)
    } else {
        floats::binary(name, "", kind).or_else(|| integers::binary(name, "", kind))
    };
    let (Some(of), Some(width)) = (of, width(kind)) else { return Ok(None) };
    let swap = rest.first().map(|o| n.source(o)).transpose()?;
    let out = to.map(|o| n.maybe(o)).transpose()?.flatten();
    Ok(Some(Op::Atomic {
        space: space(parts),
        width: width as u8,
        of,
        out,
        at: n.address(at)?.0,
        value: n.source(value)?,
        swap,
    }))
}

fn comparison(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    let kind = *parts.last().unwrap_or(&"");
    let (Some(name), [d, a, b, rest @ ..]) = (parts.get(1), ops) else { return Ok(None) };
    if let (Some(half), Operand::Pair(p, q), []) = (kind.strip_suffix("x2"), d, rest) {
        let Some(of) = floats::compare(name, half) else { return Ok(None) };
        let out = [p, q].map(|s| n.maybe(&Operand::Name(s.clone())));
        let [low, high] = out;
        return Ok(Some(Op::ComparePair {
            of,
            out: [low?, high?],
            a: n.source(a)?,
            b: n.source(b)?,
        }));
    }
    let Some(of) = floats::compare(name, kind).or_else(|| integers::compare(name, kind)) else {
        return Ok(None);
    };
    let with = match (parts.iter().find_map(|p| integers::binary(p, "", "pred")), rest) {
        (Some(of), [p]) => {
            let (slot, not) = n.predicate(p)?;
            Some((of, slot, not))
        }
        _ => None,
    };
    let name = |s: &String| Operand::Name(s.clone());
    let (out, other) = match d {
        Operand::Pair(p, q) => (n.maybe(&name(p))?, n.maybe(&name(q))?),
        instruction => (n.maybe(instruction)?, None),
    };
    Ok(Some(Op::Compare { of, out, other, a: n.source(a)?, b: n.source(b)?, with }))
}

fn conversion(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    use super::code::{NumberType, Round};
    let round = parts.iter().find_map(|p| {
        Some(match *p {
            "rn" | "rni" => Round::Even,
            "rna" => Round::Away,
            "rz" | "rzi" => Round::Zero,
            "rm" | "rmi" => Round::Down,
            "rp" | "rpi" => Round::Up,
            _ => return None,
        })
    });
    let (saturate, relu) = (parts.contains(&"sat"), parts.contains(&"relu"));
    let [.., to, from] = parts else { return Ok(None) };
    if let ([d, high, low], Some(pair)) = (ops, to.strip_suffix("x2")) {
        let to = if pair == "f16" { NumberType::Float(16) } else { NumberType::Bf16 };
        let (out, high, low) = (n.result(d)?, n.source(high)?, n.source(low)?);
        return Ok(Some(Op::ConvertPair {
            to,
            round: round.unwrap_or(Round::Even),
            relu,
            out,
            high,
            low,
        }));
    }
    let ([d, a], Some(to), Some(from)) =
        (ops, convert::number_type(to), convert::number_type(from))
    else {
        return Ok(None);
    };
    Ok(Some(Op::Convert { to, from, round, saturate, relu, out: n.result(d)?, a: n.source(a)? }))
}

fn control(
    n: &mut OperandDecoder<'_>,
    parts: &[&str],
    ops: &[Operand],
) -> Result<Option<Op>, Error> {
    Ok(Some(match (parts[0], ops) {
        ("bra", [Operand::Name(label)]) => Op::Branch(n.label(label)?),
        ("ret" | "exit", []) => Op::Exit,
        ("trap" | "brkpt", []) => Op::Trap,
        ("bar" | "barrier", ops) if parts.get(1) == Some(&"cluster") && ops.is_empty() => {
            match parts.get(2) {
                Some(&"arrive") => Op::ClusterArrive,
                _ => Op::ClusterWait,
            }
        }
        ("bar" | "barrier", [id, rest @ ..]) if !parts.contains(&"warp") => {
            let threads = rest.first().map(|t| n.source(t)).transpose()?;
            Op::Barrier { id: n.source(id)?, threads, waits: !parts.contains(&"arrive") }
        }
        ("griddepcontrol", _) if parts.contains(&"wait") => Op::DependencyWait,
        (
            "fence" | "membar" | "setmaxnreg" | "nanosleep" | "griddepcontrol" | "prefetch"
            | "prefetchu" | "discard" | "applypriority" | "pmevent",
            _,
        ) => Op::Nothing,
        ("activemask", [d]) => Op::ActiveMask(n.result(d)?),
        ("add" | "addc" | "sub" | "subc", [d, a, b])
            if parts[0].ends_with('c') || parts.get(1) == Some(&"cc") =>
        {
            let bits = width(parts.last().unwrap_or(&"")).unwrap_or(4) as u32 * 8;
            let (reads, writes, minus) =
                (parts[0].ends_with('c'), parts.contains(&"cc"), parts[0].starts_with("sub"));
            Op::Carry {
                out: n.result(d)?,
                a: n.source(a)?,
                b: n.source(b)?,
                reads,
                writes,
                minus,
                bits,
            }
        }
        _ => return Ok(None),
    }))
}

fn instruction(n: &mut OperandDecoder<'_>, w: &ParsedInstruction) -> Result<Instruction, Error> {
    (n.line, n.scope) = (w.line, w.scope);
    let parts: Vec<&str> = w.name.split('.').collect();
    let guard = w
        .guard
        .as_ref()
        .map(|(p, not)| Ok((n.source(&Operand::Name(p.clone()))?, *not)))
        .transpose()?;
    let mut op = None;
    for family in
        [control, data_movement, super::collective::decode, super::async_copies::decode, arithmetic]
    {
        op = family(n, &parts, &w.operands)?;
        if op.is_some() {
            break;
        }
    }
    match op {
        Some(op) => Ok(Instruction { guard, op, line: w.line }),
        None => n.fail(format!("{} with {} operands is not supported", w.name, w.operands.len())),
    }
}

/// Decodes a kernel's instructions.
pub fn decode(entry: &Entry, params: &[Param], variables: &VariableMap) -> Result<Decoded, Error> {
    let params = params.iter().map(|p| (p.name.as_str(), p.offset)).collect();
    let mut n = OperandDecoder {
        entry,
        variables,
        params,
        initial_values: BTreeMap::new(),
        next: entry.count,
        line: 0,
        scope: 0,
    };
    let code = entry.code.iter().map(|w| instruction(&mut n, w)).collect::<Result<Vec<_>, _>>()?;
    Ok(Decoded { code, initial_values: n.initial_values.into_values().collect(), slots: n.next })
}

/// Lays out variables one after another: their offsets and the total size; dynamically sized ones
/// come last.
pub fn lay_out<'v>(
    variables: impl Iterator<Item = &'v Variable>,
    space: Space,
    addresses: &mut VariableMap,
) -> u64 {
    let (mut end, mut dynamic) = (0u64, vec![]);
    for v in variables {
        let align = v.align.max(1) as u64;
        if v.size == 0 {
            dynamic.push((v, align));
            continue;
        }
        let at = end.next_multiple_of(align);
        addresses.insert(v.name.clone(), (space, at));
        end = at + v.size as u64;
    }
    let aligned_end =
        dynamic.iter().map(|(_, a)| *a).max().map_or(end, |a| end.next_multiple_of(a));
    for (v, _) in dynamic {
        addresses.insert(v.name.clone(), (space, aligned_end));
    }
    aligned_end
}
