//! How many blocks a kernel wants, as an affine map over its `index` parameters.
use crate::{
    analysis::{Kernel, Nest, Plan, Poly},
    gpu::gpu_schedule::threads,
    strategies::{
        cpu::choose::Schedule,
        gpu::{common::roles::roles_of, depthwise, scan, skinny_gemm, transpose},
    },
};
use kiln_dialects::ir::*;

/// Blocks where a size is not an expression of the parameters; the threads go round more often, or
/// not all have something to do.
pub const OTHERWISE: i64 = 1024;

/// The map.
pub fn grid(k: &Kernel, plan: &Plan, s: &Schedule) -> Result<Attr, String> {
    let block = k.func.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let sizes: Vec<Value> = block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let text = |p: &Poly| poly(p, &sizes);
    let of = |n: &Nest, dims: &[usize]| {
        text(&Poly::product(dims.iter().filter_map(|d| n.extents.get(*d))))
    };
    let parallel = |n: &Nest| (0..n.extents.len()).filter(|d| !n.reduction[*d]).collect::<Vec<_>>();
    // The largest nest, as far as that is known.
    let largest = plan.nests.iter().max_by_key(|n| {
        Poly::product(parallel(n).iter().map(|d| &n.extents[*d])).known().unwrap_or(i64::MAX)
    });
    let expression = largest.and_then(|n| {
        Some(match s.strategy.as_str() {
            "loops" => {
                format!("({}) ceildiv {}", of(n, &parallel(n))?, threads(s).ok()? * s.get("vector"))
            }
            "rows" | "registers" => format!(
                "({}) ceildiv {}",
                of(n, &(0..plan.rows).collect::<Vec<_>>())?,
                s.get("groups")
            ),
            "columns" => {
                format!("({}) ceildiv {}", of(n, &parallel(n))?, s.get("columns") * s.get("vector"))
            }
            "reduce" => format!("({}) ceildiv {}", of(n, &parallel(n))?, s.get("groups")),
            "depthwise" => {
                let (each, outer) = depthwise::pieces(&depthwise::depthwise(k, plan)?, s);
                format!("(({}) * {each}) ceildiv {}", of(n, &outer)?, threads(s).ok()?)
            }
            "transpose" => {
                let t = transpose::turn(k, plan)?;
                let n = plan.nests.get(t.nest)?;
                let (down, over) = (of(n, &[t.down])?, of(n, &[t.over])?);
                format!(
                    "({}) * (({down}) ceildiv {}) * (({over}) ceildiv {})",
                    of(n, &t.outer(n))?,
                    s.get("down"),
                    s.get("over")
                )
            }
            "scan" => {
                let axis = scan::scan(k, plan)?.axis;
                let others: Vec<usize> = (0..n.extents.len()).filter(|d| *d != axis).collect();
                let each = if scan::lanes(k, plan, n)?.0 == axis { 1 } else { s.get("vector") };
                format!("({}) ceildiv {}", of(n, &others)?, s.get("beside") * each)
            }
            "few" => {
                let p = skinny_gemm::product(k, plan)?;
                format!(
                    "({}) * (({}) ceildiv {})",
                    of(n, &p.batch)?,
                    of(n, &p.many.dims)?,
                    s.get("rows")
                )
            }
            _ => {
                let n = plan.nests.first()?;
                let r = roles_of(k, n, *n.stages.first()?)?;
                let (m, c) = (of(n, &r.rows)?, of(n, &r.columns)?);
                // Each right operand has its part of a tile's columns.
                let columns = s.get("n") / n.stages.len();
                let tiles = format!(
                    "({}) * (({m}) ceildiv {}) * (({c}) ceildiv {})",
                    of(n, &r.batch)?,
                    s.get("m"),
                    columns
                );
                if s.get("parts") > 1 { format!("{} * {tiles}", s.get("parts")) } else { tiles }
            }
        })
    });
    map(k.func.ctx(), &[expression.unwrap_or_else(|| OTHERWISE.to_string())], sizes.len())
}

/// An affine map of these expressions over so many sizes.
pub fn map(c: Ctx, expressions: &[String], sizes: usize) -> Result<Attr, String> {
    let names: Vec<String> = (0..sizes).map(|i| format!("s{i}")).collect();
    let map = format!("affine_map<()[{}] -> ({})>", names.join(", "), expressions.join(", "));
    Attr::parse(c, &map).ok_or_else(|| format!("'{map}' is no map"))
}

/// A size as text; `None` where a map cannot say it.
pub fn poly(p: &Poly, sizes: &[Value]) -> Option<String> {
    let mut terms = vec![];
    for (symbols, n) in p.in_order() {
        let mut factors = vec![n.to_string()];
        for v in symbols {
            factors.push(value(v, sizes)?);
        }
        terms.push(factors.join(" * "));
    }
    Some(if terms.is_empty() { "0".into() } else { terms.join(" + ") })
}

fn value(v: Value, sizes: &[Value]) -> Option<String> {
    if let Some(i) = sizes.iter().position(|s| *s == v) {
        return Some(format!("s{i}"));
    }
    let op = v.def()?;
    if op.is("arith.constant") {
        return op.attr("value")?.as_i64().map(|n| n.to_string());
    }
    let sign = [
        ("arith.addi", "+"),
        ("arith.muli", "*"),
        ("arith.divui", "floordiv"),
        ("arith.remui", "mod"),
    ];
    let sign = sign.iter().find(|(name, _)| op.is(name))?.1;
    Some(format!("({} {sign} {})", value(op.operand(0), sizes)?, value(op.operand(1), sizes)?))
}
