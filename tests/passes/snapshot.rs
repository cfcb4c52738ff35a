//! The text of a snapshot: what a pass changes, short enough to be read.
//!
//! - A pass that leaves the IR alone: the IR once.
//! - One that changes some of it: a unified diff, of the whole IR if that is short, else with few
//!   lines of context.
//! - A lowering that leaves little: the IR afterwards. Long code is shown by one representative of
//!   alike regions and the first ops of straight-line code, the rest as counts of ops.
use similar::{ChangeTag, TextDiff};
use std::collections::{BTreeMap, HashSet};

/// A diff of the whole IR, input and output in one, is at most this long.
const WHOLE: usize = 48;
/// Everything else is.
const LONGEST: usize = 80;
/// The least share of lines that a diff has in common; below it, the output is easier to read.
const COMMON: f64 = 0.4;

/// IR before and after: as text with SSA names of the input for a diff, and as MLIR names values
/// for the output alone.
pub struct Change<'a> {
    pub before: &'a str,
    pub after: &'a str,
    pub plain: &'a str,
}

/// IR with the maps of `affine.apply` and its like in their place; the other aliases stay.
pub fn with_maps(text: &str) -> String {
    let alias = |l: &str| {
        let (name, map) = l.split_once(" = affine_map<")?;
        name.starts_with('#').then(|| (name.to_string(), format!("affine_map<{map}")))
    };
    let maps: Vec<(String, String)> = text.lines().filter_map(alias).collect();
    let inline = |l: &str| {
        let at = ["affine.apply #", "affine.min #", "affine.max #"].iter().find_map(|op| {
            let start = l.find(op)? + op.len() - 1;
            let length = l[start + 1..].find(|c: char| !c.is_ascii_alphanumeric())? + 1;
            Some(start..start + length)
        });
        let found = at.and_then(|at| Some((maps.iter().find(|(n, _)| *n == l[at.clone()])?, at)));
        match found {
            Some(((_, map), at)) => format!("{}{map}{}\n", &l[..at.start], &l[at.end..]),
            None => format!("{l}\n"),
        }
    };
    let body: String = text.lines().filter(|l| alias(l).is_none()).map(inline).collect();
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let used = |name: &String| body.split(name.as_str()).skip(1).any(ends);
    let kept = maps.iter().filter(|(name, _)| used(name));
    kept.map(|(name, map)| format!("{name} = {map}\n")).collect::<String>() + &body
}

/// The snapshot of a change.
pub fn text(pipeline: &str, change: &Change) -> String {
    let head = |what: &str, body: &str| format!("// {pipeline}: {what}\n\n{}\n", body.trim_end());
    if change.before == change.after {
        return head("changes nothing", &trimmed(change.after, LONGEST));
    }
    let diff = TextDiff::from_lines(change.before, change.after);
    let common = diff.iter_all_changes().filter(|c| c.tag() == ChangeTag::Equal).count();
    let lines = |t: &str| t.lines().count();
    let share = common as f64 / lines(change.before).max(lines(change.after)) as f64;
    let all = lines(change.before) + lines(change.after) - common;
    if all <= WHOLE {
        let whole: String =
            diff.iter_all_changes().map(|c| format!("{}{}", c.tag(), c.value())).collect();
        return head("diff", &whole);
    }
    let hunks = |radius| diff.unified_diff().context_radius(radius).to_string();
    let fits = |t: &String| lines(t) <= LONGEST;
    let short = || [3, 1].into_iter().map(hunks).find(fits);
    match (share >= COMMON).then(short).flatten() {
        Some(diff) => head("diff of the changed parts", &diff),
        None => head("IR afterwards", &trimmed(change.plain, LONGEST)),
    }
}

/// A line with those that are indented deeper behind it.
struct Node<'a> {
    line: &'a str,
    inside: Vec<Node<'a>>,
}

impl<'a> Node<'a> {
    fn all(text: &'a str) -> Vec<Node<'a>> {
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        Node::parse(&lines)
    }

    fn parse(lines: &[&'a str]) -> Vec<Node<'a>> {
        let depth = |l: &str| l.len() - l.trim_start().len();
        let (mut nodes, mut i) = (vec![], 0);
        while let Some(line) = lines.get(i) {
            let more = lines[i + 1..].iter().take_while(|l| depth(l) > depth(line)).count();
            nodes.push(Node { line, inside: Node::parse(&lines[i + 1..i + 1 + more]) });
            i += 1 + more;
        }
        nodes
    }

    /// The op that the line starts with; none of a closing bracket or a block's label.
    fn op(&self) -> Option<&'a str> {
        let line = self.line.trim_start();
        let text = match line.starts_with('%') {
            true => line.split_once(" = ")?.1,
            false => line,
        };
        let end = text.find([' ', '(', '{', '[', '<']).unwrap_or(text.len());
        let name = text[..end].trim_matches('"');
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(name)
    }

    fn count(nodes: &[Node<'a>], counts: &mut BTreeMap<&'a str, usize>) {
        for node in nodes {
            node.op().into_iter().for_each(|op| *counts.entry(op).or_default() += 1);
            Node::count(&node.inside, counts);
        }
    }
}

/// `12 arith.addi, 3 vector.load`: most frequent first.
fn counts(nodes: &[Node]) -> String {
    let mut all = BTreeMap::new();
    Node::count(nodes, &mut all);
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(op, n)| (std::cmp::Reverse(*n), *op));
    let all: Vec<String> = all.iter().map(|(op, n)| format!("{n} {op}")).collect();
    all.join(", ")
}

/// How much of long IR is shown.
#[derive(Clone, Copy)]
struct Detail {
    /// Ops of straight-line code, and the last one.
    ops: usize,
    /// Whether a region is shown whose like stands before it.
    alike: bool,
    /// Levels of regions.
    depth: usize,
}

/// The IR in at most so many lines if any form of it is that short.
fn trimmed(text: &str, longest: usize) -> String {
    let text = text.trim_end();
    if text.lines().count() <= longest {
        return text.into();
    }
    let nodes = Node::all(text);
    let steps =
        [(16, true), (12, true), (8, true), (12, false), (8, false), (4, false), (2, false)];
    let steps = steps.into_iter().map(|(ops, alike)| Detail { ops, alike, depth: 99 });
    let flat = (3..9).rev().map(|depth| Detail { ops: 2, alike: false, depth });
    let mut shown = vec![];
    for detail in steps.chain(flat) {
        shown.clear();
        show(&nodes, detail, 0, &mut shown);
        if shown.len() <= longest {
            break;
        }
    }
    shown.join("\n")
}

fn show(nodes: &[Node], detail: Detail, depth: usize, shown: &mut Vec<String>) {
    let mut seen = HashSet::new();
    let mut i = 0;
    while i < nodes.len() {
        let node = &nodes[i];
        let indent = &node.line[..node.line.len() - node.line.trim_start().len()];
        if !node.inside.is_empty() {
            // A label's block belongs to the op in front of it.
            let alike = node.op().is_some_and(|op| !seen.insert(op.to_string()));
            let hidden = alike && !detail.alike;
            let end = i + 1 + nodes[i + 1..].iter().take_while(|n| n.op().is_none()).count();
            if hidden || depth >= detail.depth && node.op().is_some() {
                let what = if hidden { "one more" } else { "inside" };
                let op = node.op().unwrap_or_default();
                shown.push(match hidden {
                    true => format!("{indent}// {what} {op}: {}", inside(&nodes[i..end])),
                    false => format!("{}  // {what}: {}", node.line, inside(&nodes[i..end])),
                });
                i = end;
            } else {
                shown.push(node.line.into());
                show(&node.inside, detail, depth + 1, shown);
                i += 1;
            }
            continue;
        }
        let run = nodes[i..].iter().take_while(|n| n.inside.is_empty() && n.op().is_some()).count();
        if run <= detail.ops + 2 {
            shown.push(node.line.into());
            i += 1;
            continue;
        }
        let (first, last) = (i + detail.ops, i + run - 1);
        shown.extend(nodes[i..first].iter().map(|n| n.line.to_string()));
        shown.push(format!("{indent}// {}", counts(&nodes[first..last])));
        shown.push(nodes[last].line.into());
        i += run;
    }
}

/// Counts of what an op's regions hold.
fn inside(nodes: &[Node]) -> String {
    let mut all = BTreeMap::new();
    nodes.iter().for_each(|n| Node::count(&n.inside, &mut all));
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(op, n)| (std::cmp::Reverse(*n), *op));
    all.iter().map(|(op, n)| format!("{n} {op}")).collect::<Vec<_>>().join(", ")
}
