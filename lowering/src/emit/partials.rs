//! Partial results of a nest's reductions: identities and combination.
use crate::{
    analysis::{Init, Nest, Stage},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
};
use kiln_dialects::ir::*;

/// Combines two tuples of partial results.
pub type CombineFn<'a> = dyn Fn(&[Value], &[Value]) -> Result<Vec<Value>> + 'a;

/// Whether partial results of all reductions of a nest can be combined.
pub fn combinable(scope: &Scope<'_>, nest: &Nest) -> bool {
    nest.reduction.contains(&true)
        && nest.split.is_none()
        && stages(scope, nest).all(Stage::combines)
}

fn stages<'a>(scope: &'a Scope<'_>, nest: &'a Nest) -> impl Iterator<Item = &'a Stage> {
    nest.stages.iter().filter_map(|s| scope.kernel.stages.get(*s))
}

/// Identities of a nest's accumulators, in each lane.
pub fn identities(c: Code, scope: &Scope<'_>, nest: &Nest, lanes: usize) -> Result<Vec<Value>> {
    let each = Lanes { count: lanes, mask: None };
    let mut all = vec![];
    for s in stages(scope, nest) {
        for o in s.outputs.iter().filter(|o| o.reduces) {
            all.push(match (&o.init, &o.combine) {
                (Init::Fill(v), _) if s.merges => {
                    each.vector(c, LaneValue::Uniform(scope.scalar(*v)?))?
                }
                (_, Some(combine)) => {
                    let identity = combine.identity().ok_or("has no identity")?;
                    arith::constant(
                        c,
                        if lanes == 1 { identity } else { identity.repeated(lanes) },
                    )?
                }
                _ => return Err("cannot be reduced in parts".into()),
            });
        }
    }
    Ok(all)
}

/// Combines two tuples of partial results of all accumulators, each in this many lanes.
pub fn combined(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    lanes: usize,
    a: &[Value],
    b: &[Value],
) -> Result<Vec<Value>> {
    let each = Lanes { count: lanes, mask: None };
    let mut pairs = a.iter().zip(b);
    let mut all = vec![];
    for s in stages(scope, nest) {
        let count = s.outputs.iter().filter(|o| o.reduces).count();
        let (a, b): (Vec<Value>, Vec<Value>) = pairs.by_ref().take(count).unzip();
        if a.len() < count {
            return Err("has fewer running values than outputs".into());
        }
        if s.merges {
            let val = |v: &Value| {
                Some(if lanes > 1 { LaneValue::Vector(*v) } else { LaneValue::Uniform(*v) })
            };
            let args = b.iter().chain(&a).map(val).collect();
            let made = scope.stage(Code(c.0.at(s.op.loc())), s, args, &[], each)?;
            all.extend(made.into_iter().map(|v| each.vector(c, v)).collect::<Result<Vec<_>>>()?);
            continue;
        }
        for ((o, a), b) in s.outputs.iter().filter(|o| o.reduces).zip(a).zip(b) {
            let op = o.combine.as_ref().ok_or("cannot be reduced in parts")?.op;
            let attrs = op.attrs();
            let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
            all.push(c.op(&op.name(), &[a, b], a.ty(), &attrs)?);
        }
    }
    Ok(all)
}

/// Tree reduction over the lanes of each accumulator.
pub fn reduce_lanes(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    lanes: usize,
    parts: &[Value],
) -> Result<Vec<Value>> {
    if lanes == 1 {
        return Ok(parts.to_vec());
    }
    let lane = |i: usize| parts.iter().map(|v| extract_lane(c, *v, i)).collect::<Result<Vec<_>>>();
    tree_reduce((0..lanes).map(lane).collect::<Result<_>>()?, &|a, b| {
        combined(c, scope, nest, 1, a, b)
    })
}

/// Tree reduction of several tuples, so that the dependence chain is logarithmic.
pub fn tree_reduce(mut all: Vec<Vec<Value>>, two: &CombineFn<'_>) -> Result<Vec<Value>> {
    while all.len() > 1 {
        all = all
            .chunks(2)
            .map(|p| if let [a, b] = p { two(a, b) } else { Ok(p[0].clone()) })
            .collect::<Result<_>>()?;
    }
    all.pop().ok_or_else(|| "has no parts".into())
}

/// Extracts one lane of a vector.
pub fn extract_lane(c: Code, v: Value, i: usize) -> Result<Value> {
    let element = v.ty().element().ok_or("is no vector")?;
    vector::extract(c, v, &[Size::Static(i as i64)], element)
}

/// Combines the outputs' initial values with final values; for merged outputs these are identities.
pub fn combine_initial(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    dims: &[LaneValue],
    lanes: usize,
    parts: &[Value],
    passed: &ForwardedElements,
) -> Result<Vec<Value>> {
    let each = Lanes { count: lanes, mask: None };
    let (mut all, mut parts) = (vec![], parts.iter());
    for s in stages(scope, nest) {
        for o in s.outputs.iter().filter(|o| o.reduces) {
            let part = *parts.next().ok_or("has fewer running values than outputs")?;
            let start = if s.merges {
                None
            } else {
                scope.initial_value(c, &o.init, dims, each, passed)?
            };
            all.push(match (start, &o.combine) {
                (Some(start), Some(combine)) => {
                    let attrs = combine.op.attrs();
                    let attrs: Vec<(&str, Attr)> =
                        attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
                    c.op(&combine.op.name(), &[each.vector(c, start)?, part], part.ty(), &attrs)?
                }
                _ => part,
            });
        }
    }
    Ok(all)
}
