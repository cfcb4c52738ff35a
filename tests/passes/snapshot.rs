//! The text of a snapshot: what a pass changes, short enough to be read.
//!
//! Aliases of attributes keep their names, and a function's attributes have a line each.
//!
//! - A pass that leaves the IR alone: the IR once.
//! - One that changes some of it: a unified diff, of the whole IR if that is short, else with few
//!   lines of context.
//! - A lowering that leaves little: the IR afterwards. Long code is shown by the longest of alike
//!   regions and the first ops of straight-line code, the rest as counts of ops. Of the constants
//!   there, only those that a shown op takes are shown. A tile program may be longer.
use similar::{ChangeTag, TextDiff};
use std::collections::BTreeMap;

/// A diff of the whole IR, input and output in one, is at most this long.
const WHOLE: usize = 48;
/// Everything else is.
const LONGEST: usize = 80;
/// A tile program is this long at most: it is to be read as a whole.
const PROGRAM: usize = 150;
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
    let (before, after) = (Aliases::of(change.before), Aliases::of(change.after));
    let after = listed(&after.renamed(&before));
    text_of(pipeline, &Change { before: &listed(change.before), after: &after, ..*change })
}

fn text_of(pipeline: &str, change: &Change) -> String {
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
        None => {
            let longest = if change.plain.contains(" kiln.tile.") { PROGRAM } else { LONGEST };
            head("IR afterwards", &trimmed(&listed(change.plain), longest))
        }
    }
}

/// The attribute aliases at the head of a module, `#map = affine_map<…>`. MLIR numbers them by
/// first use, so that one new map would rename all others.
struct Aliases<'a> {
    /// Name and definition.
    all: Vec<(&'a str, &'a str)>,
    rest: &'a str,
}

impl<'a> Aliases<'a> {
    fn of(text: &'a str) -> Aliases<'a> {
        let (mut all, mut rest) = (vec![], text);
        while let Some((line, below)) = rest.split_once('\n') {
            let Some((name, value)) = line.split_once(" = ").filter(|_| line.starts_with('#'))
            else {
                break;
            };
            all.push((name, value));
            rest = below;
        }
        Aliases { all, rest }
    }

    /// The text with the other module's names for its definitions, and free names for new ones.
    fn renamed(&self, other: &Aliases) -> String {
        let mut taken: Vec<String> = other.all.iter().map(|(name, _)| name.to_string()).collect();
        let names: Vec<(&str, String)> = self
            .all
            .iter()
            .map(|(name, value)| {
                let known = other.all.iter().find(|(_, v)| v == value).map(|(n, _)| n.to_string());
                let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let numbered = |i: usize| if i == 0 { stem.into() } else { format!("{stem}{i}") };
                let new = known.unwrap_or_else(|| {
                    (0..).map(numbered).find(|n| !taken.contains(n)).unwrap_or_default()
                });
                taken.push(new.clone());
                (*name, new)
            })
            .collect();
        let word = |c: char| c.is_ascii_alphanumeric() || "_$.-".contains(c);
        let replaced = |text: &str| {
            let mut parts = text.split('#');
            let mut out = parts.next().unwrap_or_default().to_string();
            for part in parts {
                let end = part.find(|c| !word(c)).unwrap_or(part.len());
                let name = format!("#{}", &part[..end]);
                let new = names.iter().find(|(old, _)| *old == name).map(|(_, new)| new);
                out += new.unwrap_or(&name);
                out += &part[end..];
            }
            out
        };
        let mut lines: Vec<(usize, String)> = self
            .all
            .iter()
            .zip(&names)
            .map(|((_, value), (_, new))| {
                let at = taken.iter().position(|t| t == new).unwrap_or_default();
                (at, format!("{new} = {}\n", replaced(value)))
            })
            .collect();
        lines.sort();
        let head: String = lines.into_iter().map(|(_, line)| line).collect();
        head + &replaced(self.rest)
    }
}

/// The text with a line for each of kiln's attributes of a function, such as its schedule.
fn listed(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let split = line
            .split_once(" attributes {")
            .filter(|_| line.trim_start().starts_with("func.func"))
            .and_then(|(head, rest)| Some((head, rest.strip_suffix("} {")?)));
        let Some((head, all)) = split else {
            out += line;
            out.push('\n');
            continue;
        };
        out += &format!("{head} {{\n");
        let (mut depth, mut first) = (0, 0);
        for (i, c) in all.char_indices().chain([(all.len(), ',')]) {
            match c {
                '{' | '[' | '(' | '<' => depth += 1,
                '}' | ']' | ')' => depth -= 1,
                '>' if !all[..i].ends_with('-') => depth -= 1,
                ',' if depth == 0 => {
                    out += &format!("{indent}  // {}\n", all[first..i].trim());
                    first = i + 1;
                }
                _ => {}
            }
        }
    }
    out
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

    fn is_constant(&self) -> bool {
        matches!(self.op(), Some("arith.constant" | "llvm.mlir.constant"))
    }

    /// Whether the line takes the result of another one.
    fn takes(&self, other: &Node) -> bool {
        let Some((name, _)) = other.line.trim_start().split_once(" = ") else { return false };
        let rest =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || "_$".contains(c));
        self.line
            .match_indices(name)
            .any(|(i, _)| !rest(self.line[i + name.len()..].chars().next()))
    }

    fn count(nodes: &[Node<'a>], counts: &mut BTreeMap<&'a str, usize>) {
        for node in nodes {
            node.op().into_iter().for_each(|op| *counts.entry(op).or_default() += 1);
            Node::count(&node.inside, counts);
        }
    }
}

/// `12 arith.addi, 3 vector.load`: most frequent first.
fn counts<'a>(nodes: impl Iterator<Item = &'a Node<'a>>) -> String {
    let mut all = BTreeMap::new();
    nodes.for_each(|n| Node::count(std::slice::from_ref(n), &mut all));
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
    /// Whether a region is shown that has a longer one like it beside it.
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
    if longest == PROGRAM {
        let mut shown = vec![];
        let whole = Detail { ops: usize::MAX, alike: true, depth: 99 };
        show(&nodes, whole, 0, &mut shown);
        if shown.len() <= longest {
            return shown.join("\n");
        }
    }
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
    let longest = longest(nodes);
    let mut i = 0;
    while i < nodes.len() {
        let node = &nodes[i];
        let indent = &node.line[..node.line.len() - node.line.trim_start().len()];
        if !node.inside.is_empty() {
            let alike = node.op().is_some_and(|op| longest.get(op).is_some_and(|(at, _)| *at != i));
            let hidden = alike && !detail.alike;
            let end = end(nodes, i);
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
        let constants = nodes[i..i + run].iter().filter(|n| n.is_constant()).count();
        // Of a program that is shown as a whole, many constants are hidden all the same.
        let short = run <= detail.ops.saturating_add(2);
        if short && (detail.ops < usize::MAX || constants < 4) {
            shown.push(node.line.into());
            i += 1;
            continue;
        }
        let (rest, last) = (&nodes[i..i + run - 1], &nodes[i + run - 1]);
        let first: Vec<&Node> = rest.iter().filter(|n| !n.is_constant()).take(detail.ops).collect();
        let is_shown = |n: &Node| match n.is_constant() {
            true => first.iter().chain([&last]).any(|f| f.takes(n)),
            false => first.iter().any(|f| std::ptr::eq(*f, n)),
        };
        let (kept, hidden): (Vec<&Node>, Vec<&Node>) = rest.iter().partition(|n| is_shown(n));
        shown.extend(kept.iter().map(|n| n.line.to_string()));
        if !hidden.is_empty() {
            shown.push(format!("{indent}// {}", counts(hidden.into_iter())));
        }
        shown.push(last.line.into());
        i += run;
    }
}

/// The first node behind an op: a label's block belongs to the op in front of it.
fn end(nodes: &[Node], i: usize) -> usize {
    i + 1 + nodes[i + 1..].iter().take_while(|n| n.op().is_none()).count()
}

/// Where the longest op with regions of each name is, and its lines.
fn longest<'a>(nodes: &[Node<'a>]) -> BTreeMap<&'a str, (usize, usize)> {
    fn lines(nodes: &[Node]) -> usize {
        nodes.iter().map(|n| 1 + lines(&n.inside)).sum()
    }
    let mut all = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate().filter(|(_, n)| !n.inside.is_empty()) {
        let Some(op) = node.op() else { continue };
        let found = (i, lines(&nodes[i..end(nodes, i)]));
        let most = all.entry(op).or_insert(found);
        if found.1 > most.1 {
            *most = found;
        }
    }
    all
}

/// Counts of what an op's regions hold.
fn inside(nodes: &[Node]) -> String {
    let mut all = BTreeMap::new();
    nodes.iter().for_each(|n| Node::count(&n.inside, &mut all));
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(op, n)| (std::cmp::Reverse(*n), *op));
    all.iter().map(|(op, n)| format!("{n} {op}")).collect::<Vec<_>>().join(", ")
}
