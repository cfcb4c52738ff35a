//! SSA names of a test input as locations, so that an op that a pass leaves alone prints the same
//! afterwards.
use kiln::dialects::ir::*;
use std::collections::{HashMap, HashSet};

/// The ops that have a name in the test input: `kiln.exp` of `%y = kiln.exp %x`.
pub type Named = HashSet<(String, String)>;

/// Names the values of a module as its text does. A number `%0` becomes `%v0`, since MLIR numbers
/// what has no name.
pub fn keep(module: &Module, text: &str) -> Named {
    let lines: Vec<&str> = text.lines().collect();
    let at = |loc: Loc| {
        let (_, line, column) = loc.place()?;
        let line = lines.get((line as usize).checked_sub(1)?)?;
        line.split_at_checked(column.checked_sub(1)? as usize)
    };
    let mut named = Named::new();
    for op in walk(module.op()) {
        if let Some(name) = at(op.loc()).and_then(|(before, _)| assigned(before)) {
            op.set_loc(op.loc().named(&name));
            named.insert((name, op.name()));
        }
        for argument in blocks(op).into_iter().flat_map(|b| b.args()) {
            if let Some(name) = at(argument.loc()).and_then(|(_, rest)| name(rest)) {
                argument.set_arg_loc(argument.loc().named(&name));
            }
        }
    }
    named
}

/// Leaves a name to one op of a function: to that of the input, else to the last, which computes
/// what had the name. The others are numbered, as new.
pub fn settle(module: &Module, named: &Named) {
    let mut groups: HashMap<(Option<String>, String), Vec<Op>> = HashMap::new();
    for op in walk(module.op()).into_iter().filter(|o| o.result_count() > 0) {
        let Some(name) = op.loc().name() else { continue };
        let function = std::iter::successors(op.parent(), |o| o.parent())
            .find(|o| o.isa::<func::Func>())
            .and_then(|f| f.symbol());
        groups.entry((function, name)).or_default().push(op);
    }
    for ((_, name), ops) in groups {
        let known = ops.iter().position(|o| named.contains(&(name.clone(), o.name())));
        let keeper = known.unwrap_or(ops.len() - 1);
        for (_, op) in ops.iter().enumerate().filter(|(i, _)| *i != keeper) {
            let place = op.loc().place();
            let (file, line, column) = place.unwrap_or_default();
            op.set_loc(Loc::file(op.ctx(), &file, line, column));
        }
    }
}

/// The first name in front of an op: `%a` of `%a, %b = `.
fn assigned(before: &str) -> Option<String> {
    let all = before.trim_end().strip_suffix('=')?.trim_start();
    name(all)
}

/// The name at the start of a text.
fn name(text: &str) -> Option<String> {
    let rest = text.strip_prefix('%')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_-$.".contains(c));
    let name = &rest[..end.unwrap_or(rest.len())];
    let numbered = name.starts_with(|c: char| c.is_ascii_digit());
    Some(if numbered { format!("v{name}") } else { name.to_string() })
}
