//! SSA names of a test input as locations, so that an op that a pass leaves alone prints the same
//! afterwards.
//!
//! MLIR prints a location's name, and a pass gives an op's location to everything it makes of the
//! op. [`settle`] leaves each name to one value, by the same rules before and after the pass.
use kiln::dialects::ir::*;
use regex::{Captures, Regex};
use std::collections::{HashMap, HashSet};

/// A line and a column.
type Place = (u32, u32);

/// What the test input names.
#[derive(Default)]
pub struct Names {
    /// The ops by name and place: `kiln.exp` of `%y = kiln.exp %x`.
    ops: HashSet<(String, Place, String)>,
    /// Block arguments.
    arguments: HashSet<(String, Place)>,
    /// All results of ops with several, by the first; none where two ops disagree.
    results: HashMap<String, Option<Vec<String>>>,
}

fn location(loc: Loc) -> Place {
    loc.file_line_col().map(|(_, line, column)| (line, column)).unwrap_or_default()
}

/// Names the values of a module as its text does. A number `%0` becomes `%v0`, since MLIR numbers
/// what has no name.
pub fn keep(module: &Module, text: &str) -> Names {
    let lines: Vec<&str> = text.lines().collect();
    let at = |loc: Loc| {
        let (line, column) = location(loc);
        let line = lines.get((line as usize).checked_sub(1)?)?;
        line.split_at_checked(column.checked_sub(1)? as usize)
    };
    let mut names = Names::default();
    for op in walk(module.op()) {
        let all = at(op.loc()).map_or(vec![], |(before, _)| assigned(before));
        if let Some(name) = all.first().cloned() {
            names.ops.insert((name.clone(), location(op.loc()), op.name()));
            op.set_loc(op.loc().named(&name));
            if all.len() > 1 && all.len() == op.result_count() {
                let known = names.results.entry(name).or_insert_with(|| Some(all.clone()));
                *known = known.take().filter(|k| *k == all);
            }
        }
        for argument in blocks(op).into_iter().flat_map(|b| b.args()) {
            if let Some(name) = at(argument.loc()).and_then(|(_, rest)| name(rest)) {
                names.arguments.insert((name.clone(), location(argument.loc())));
                argument.set_arg_loc(argument.loc().named(&name));
            }
        }
    }
    names
}

/// Leaves a name to one value of a function: to the op or argument of the input, else to the last
/// op, which computes what had the name. The others are numbered, as new. A function's argument
/// keeps the name of the value that the caller passes.
pub fn settle(module: &Module, names: &Names) {
    let function = |op: Op| {
        std::iter::successors(Some(op), |o| o.parent())
            .find(|o| o.isa::<func::Func>())
            .and_then(|f| f.symbol())
    };
    let bare = |ctx: Ctx, loc: Loc| {
        let (file, line, column) = loc.file_line_col().unwrap_or_default();
        Loc::file(ctx, &file, line, column)
    };
    let mut groups: HashMap<(Option<String>, String), Vec<Op>> = HashMap::new();
    for op in walk(module.op()).into_iter().filter(|o| o.result_count() > 0) {
        let Some(name) = op.loc().name() else { continue };
        groups.entry((function(op), name)).or_default().push(op);
    }
    let taken: HashSet<_> = groups.keys().cloned().collect();
    for ((_, name), ops) in groups {
        // Regions beside each other may use one name for two ops of the input.
        let mut places = HashSet::new();
        let known = |o: &Op| {
            let at = location(o.loc());
            names.ops.contains(&(name.clone(), at, o.name())) && places.insert(at)
        };
        let mut keeps: Vec<bool> = ops.iter().map(known).collect();
        let argument = |o: &Op| names.arguments.contains(&(name.clone(), location(o.loc())));
        if !keeps.contains(&true)
            && let Some(last) = ops.iter().rposition(|o| !argument(o))
        {
            keeps[last] = true;
        }
        for (op, _) in ops.iter().zip(keeps).filter(|(_, keep)| !keep) {
            op.set_loc(bare(op.ctx(), op.loc()));
        }
    }
    let mut seen = HashSet::new();
    for op in walk(module.op()) {
        for argument in blocks(op).into_iter().flat_map(|b| b.args()) {
            let Some(name) = argument.loc().name() else { continue };
            let at = location(argument.loc());
            let key = (function(op), name.clone());
            let passed = op.isa::<func::Func>() && !taken.contains(&key);
            let own = names.arguments.contains(&(name, at));
            if !(own || passed) || !seen.insert((key, at)) {
                argument.set_arg_loc(bare(op.ctx(), argument.loc()));
            }
        }
    }
}

/// The text of a settled module, with a name for every result: MLIR prints `%a:2` and `%a#1` for
/// the input's `%a, %b`.
pub fn print(module: &Module, names: &Names) -> String {
    let text = module.print(PrintOptions { names_from_locations: true, ..Default::default() });
    let group = Regex::new(r"%([\w$.-]+)([:#])(\d+)\b").expect("a pattern");
    let named = |c: &Captures| {
        let all = names.results.get(&c[1]).cloned().flatten();
        let number = c[3].parse::<usize>().ok();
        all.zip(number).and_then(|(all, number)| match &c[2] {
            ":" => (number == all.len()).then(|| format!("%{}", all.join(", %"))),
            _ => all.get(number).map(|name| format!("%{name}")),
        })
    };
    group.replace_all(&text, |c: &Captures| named(c).unwrap_or_else(|| c[0].into())).into_owned()
}

/// The names before an op: `a` and `b` of `%a, %b = `.
fn assigned(before: &str) -> Vec<String> {
    let Some(all) = before.trim_end().strip_suffix('=') else { return vec![] };
    all.split(',').map_while(|one| name(one.trim())).collect()
}

/// The name at the start of a text.
fn name(text: &str) -> Option<String> {
    let rest = text.strip_prefix('%')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_-$.".contains(c));
    let name = &rest[..end.unwrap_or(rest.len())];
    let numbered = name.starts_with(|c: char| c.is_ascii_digit());
    Some(if numbered { format!("v{name}") } else { name.to_string() })
}
