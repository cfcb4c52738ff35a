//! Small kernels against the interpreter: `tests/gpu/cases.txt` at each length, and
//! `tests/compiled/ops.mlir`. Cases named `tf32` may round operands to tf32; `fast_math` ones use
//! approximate instructions.
use super::*;
use crate::{
    compiled::graphs::against_with,
    support::{cases, functions, inputs_of_sizes, symbol_values},
};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::Tensor,
    },
    model::Model,
    tolerance,
};
use std::{collections::HashMap, path::Path, sync::LazyLock};

pub static SUITE: Suite =
    Suite { name: "kernels", count: || ALL.len() as u64, label, check, whole: false, emulated: 1 };

const LENGTHS: [i64; 5] = [1, 15, 16, 17, 1000];
/// Those of attention, whose time is quadratic: the last one has several tiles and a part of one.
const ATTENTION_LENGTHS: [i64; 5] = [1, 15, 16, 17, 300];
/// The lengths that run first.
const FIRST: [i64; 2] = [17, 0];
/// Edges of attention tiles.
const TILES: [i64; 6] = [63, 64, 65, 127, 128, 129];
/// Lengths that only a kernel of any length runs at: others are as near to the edge of a tile.
const DYNAMIC: [i64; 4] = [15, 63, 128, 129];
/// Each case has a kernel of its own for one of so many of the lengths that do not run first; one of
/// any length runs at all of them.
const TURNS: usize = 3;

/// Block sizes of scans, and multiples.
const PARTS: [i64; 2] = [257, 5000];

/// A module with its lengths.
struct Kernel {
    label: String,
    text: String,
    lengths: Vec<i64>,
}

static ALL: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    let fixed = |c: crate::support::Case| Kernel { label: c.name, text: c.text, lengths: vec![0] };
    let mut all: Vec<Kernel> =
        cases(include_str!("../../compiled/ops.mlir")).into_iter().map(fixed).collect();
    for (turn, case) in cases(include_str!("../cases.txt")).into_iter().enumerate() {
        let lengths = match &case.name {
            name if name.starts_with("attention") => [&ATTENTION_LENGTHS[..], &TILES].concat(),
            name if name.starts_with("scan") => [&LENGTHS[..], &PARTS].concat(),
            _ => LENGTHS.to_vec(),
        };
        let text = &case.text[case.text.find("func.func").expect("a function")..];
        let made = |n: i64| Kernel {
            label: format!("{} of {n}", case.name),
            text: module(text, Some(n)),
            lengths: vec![n],
        };
        let fixed = lengths.iter().filter(|n| !DYNAMIC.contains(n)).enumerate();
        let turns = |(i, n): &(usize, &i64)| FIRST.contains(n) || (i + turn) % TURNS == 0;
        all.extend(fixed.filter(turns).map(|(_, n)| made(*n)));
        // A multiple of a dynamic length is not a size that an argument can state.
        let head = text.lines().next().unwrap_or_default();
        let multiple = |t: &str| {
            t.split('x').any(|d| {
                d.len() > 1 && d.ends_with('N') && d.starts_with(|c: char| c.is_ascii_digit())
            })
        };
        if !tensors(head.split("->").next().unwrap_or_default()).iter().any(|t| multiple(t)) {
            all.push(Kernel {
                label: format!("{} of any length", case.name),
                text: module(text, None),
                lengths,
            });
        }
    }
    // With little time, every case runs at one length first.
    let turn = |k: &Kernel| FIRST.iter().position(|n| k.lengths[..] == [*n]).unwrap_or(FIRST.len());
    all.sort_by_key(turn);
    all
});

/// The contents of `tensor<…>`.
fn tensors(text: &str) -> Vec<&str> {
    text.split("tensor<").skip(1).filter_map(|t| t.split('>').next()).collect()
}

/// A size at a length.
fn size(d: &str, n: i64) -> i64 {
    match d {
        "N" => n,
        "M" | "N+3" => n + 3,
        "N+M" => 2 * n + 3,
        _ => d
            .strip_suffix('N')
            .map_or_else(|| d.parse(), |f| f.parse().map(|f: i64| f * n))
            .unwrap_or_else(|e| panic!("{d}: {e}")),
    }
}

/// The module with the length static or dynamic.
pub fn module(text: &str, n: Option<i64>) -> String {
    let symbol =
        |s: &str| n.map_or_else(|| format!("%{}", s.to_lowercase()), |n| size(s, n).to_string());
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for line in lines.iter_mut().filter(|l| l.contains("sizes") || l.contains("kiln.iota")) {
        for s in ["N", "M"] {
            for (before, behind) in [("[", ","), ("[", "]"), (" ", ","), (" ", "]")] {
                *line = line.replace(
                    &format!("{before}{s}{behind}"),
                    &format!("{before}{}{behind}", symbol(s)),
                );
            }
        }
    }
    if n.is_none() {
        let head = lines[0].split("->").next().unwrap_or_default().to_string();
        let used = |s: &&str| tensors(&head).iter().any(|t| t.split('x').any(|d| d == *s));
        let mut facts: Vec<String> = ["N", "M"]
            .iter()
            .filter(|s| used(s))
            .map(|s| format!("{} = kiln.sym @{} {{min = 1 : i64}}", symbol(s), s.to_lowercase()))
            .collect();
        for argument in head.split('%').skip(1) {
            let (Some((name, _)), Some(ty)) =
                (argument.split_once(':'), tensors(argument).first().copied())
            else {
                continue;
            };
            let mut sizes: Vec<&str> = ty.split('x').collect();
            sizes.pop();
            if sizes.iter().any(|d| ["N", "M"].contains(d)) {
                let sizes: Vec<String> = sizes
                    .iter()
                    .map(|d| if ["N", "M"].contains(d) { symbol(d) } else { d.to_string() })
                    .collect();
                facts.push(format!(
                    "kiln.bind_shape %{name}, [{}] : tensor<{ty}>",
                    sizes.join(", ")
                ));
            }
        }
        lines.splice(1..1, facts);
    }
    let all = lines.join("\n");
    let mut made = String::new();
    for (i, part) in all.split("tensor<").enumerate() {
        let Some((ty, rest)) = part.split_once('>').filter(|_| i > 0) else {
            made += part;
            continue;
        };
        let (sizes, dtype) = ty.rsplit_once('x').unwrap_or(("", ty));
        let known = |d: &str| {
            n.map_or_else(
                || if d.parse::<i64>().is_ok() { d.into() } else { "?".to_string() },
                |n| size(d, n).to_string(),
            )
        };
        let sizes: String =
            sizes.split('x').filter(|d| !d.is_empty()).map(|d| known(d) + "x").collect();
        made += &format!("tensor<{sizes}{dtype}>{rest}");
    }
    made
}

fn label(item: u64) -> String {
    ALL[item as usize].label.clone()
}

fn check(item: u64) -> Outcome {
    let kernel = &ALL[item as usize];
    let c = Context::new();
    let (module, _) = Module::parse(c.ctx(), kernel.text.as_bytes(), &kernel.label)
        .unwrap_or_else(|e| panic!("{e}\n{}", kernel.text));
    let func = functions(&module)[0];
    let tf32 = kernel.label.starts_with("tf32");
    let fast_math = kernel.label.starts_with("fast_math");
    let options =
        Options { function: func.symbol().expect("a name"), tf32, fast_math, ..options() };
    let tolerance = if tf32 { tolerance::for_dtype_tf32 } else { tolerance::for_dtype };
    let exe = match Model::from_module(&module, Path::new("")).compile(&options) {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let call = |inputs: &[Tensor]| {
        let have = exe.call_values(&inputs.iter().collect::<Vec<_>>());
        have.map(|results| vec![results]).map_err(|e| e.to_string())
    };
    let mut wrong = vec![];
    for (seed, n) in kernel.lengths.iter().enumerate() {
        let symbols = HashMap::from([("n".to_string(), *n), ("m".to_string(), n + 3)]);
        let symbols = if *n == 0 { symbol_values(func) } else { symbols };
        let inputs = inputs_of_sizes(func, seed as u64, &symbols);
        wrong.extend(
            against_with(&module, &inputs, tolerance, |_| Ok(&call))
                .err()
                .map(|e| format!("length {n}: {e}")),
        );
    }
    Outcome::of(wrong)
}
