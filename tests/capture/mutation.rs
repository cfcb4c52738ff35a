//! Fuzzing of archives through the library: a mutant is an error or a program, never a panic, an
//! abort, or unbounded memory.
//!
//! Mutants run in a child process, so that an abort names its mutant and memory is measured apart.
use super::*;
use errors::rewritten;
use serde_json::{Value, json};
use std::{
    io::{Cursor, Read, Write},
    ops::Range,
    process::Command,
    time::Duration,
};

/// Mutants per test run, and how many that load are also compiled.
const MUTANTS: u64 = 3000;
/// Those without `./x test --all`.
const FEW_MUTANTS: u64 = 600;
const COMPILED_OF: u64 = 8;
/// Memory growth that mutants may cause, over that before the first.
const MEMORY_KB: u64 = 512 << 10;

/// Small archives, or with symbolic sizes and weights; fast ones are listed more often.
const ARCHIVES: &[&str] = &[
    "capture/aten_binary.pt2",
    "capture/aten_contract.pt2",
    "capture/aten_create.pt2",
    "capture/aten_image.pt2",
    "capture/aten_in_place.pt2",
    "capture/aten_index.pt2",
    "capture/aten_norm.pt2",
    "capture/aten_reduce.pt2",
    "capture/aten_view.pt2",
    "capture/state.pt2",
    "capture/state.core.pt2",
    "models/mlp.pt2",
    "models/mlp.pt2",
    "models/elementwise.pt2",
    "capture/state.pt2",
];
/// Archives whose mutants are compiled.
const SMALL: &[&str] =
    &["capture/state.pt2", "capture/state.core.pt2", "models/mlp.pt2", "models/elementwise.pt2"];

/// A random number generator with a fixed seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// The mutant of this number, and its source archive.
fn mutant(number: u64) -> (&'static str, Vec<u8>) {
    let mut dice = Random(number.wrapping_mul(0x9e3779b97f4a7c15) ^ 0x5eed);
    dice.below(2);
    let file = *dice.pick(ARCHIVES);
    let good = std::fs::read(root().join(file)).expect("an archive");
    let bytes = match dice.below(8) {
        0 => container(good, &mut dice),
        1 => entries(&good, &mut dice),
        2 => weights(&good, &mut dice),
        3 => config(&good, &mut dice),
        _ => graph(&good, &mut dice),
    };
    (file, bytes)
}

/// Mutates bytes of the zip: truncate, flip, delete, insert, enlarge numbers in the central
/// directory.
fn container(mut bytes: Vec<u8>, dice: &mut Random) -> Vec<u8> {
    for _ in 0..1 + dice.below(3) {
        let n = bytes.len();
        let at = dice.below(n);
        // The central directory is at the end.
        let late = n.saturating_sub(1 + dice.below(n.min(2000)));
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 if n > 0 => bytes[at] ^= 1 << dice.below(8),
            2 if n > 0 => bytes[late] = *dice.pick(&[0, 0xff, 0x7f, 0x80]),
            3 => drop(bytes.drain(at..(at + dice.below(64)).min(n))),
            4 => drop(bytes.splice(at..at, vec![0xff; dice.below(64)])),
            5 if late + 4 <= n => bytes[late..late + 4].copy_from_slice(
                &dice.pick(&[u32::MAX, i32::MAX as u32, 0, 1 << 31]).to_le_bytes(),
            ),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

/// Mutates entries: delete, empty, duplicate, compress, rename.
fn entries(good: &[u8], dice: &mut Random) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(good)).expect("a zip");
    let mut to = zip::ZipWriter::new(Cursor::new(vec![]));
    let (hit, kind) = (dice.below(from.len()), dice.below(7));
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let (mut name, mut bytes) = (entry.name().to_string(), vec![]);
        entry.read_to_end(&mut bytes).expect("an entry");
        let mut method = zip::CompressionMethod::Stored;
        let mut again = None;
        if i == hit {
            match kind {
                0 => continue,
                1 => bytes.clear(),
                2 => method = zip::CompressionMethod::Deflated,
                3 => {
                    name = dice
                        .pick(&[
                            "../../etc/passwd",
                            "/etc/passwd",
                            "",
                            "a\0b",
                            "models/model.json",
                            "x/data/weights/model_weights_config.json",
                        ])
                        .to_string()
                }
                4 => again = Some("other/models/model.json".to_string()),
                5 => bytes = vec![b'['; 100_000],
                _ => bytes = vec![0; 1 + dice.below(1 << 20)],
            }
        }
        for name in std::iter::once(name).chain(again) {
            // A name that the writer rejects is dropped.
            let options = zip::write::SimpleFileOptions::default().compression_method(method);
            if to.start_file(name, options).is_ok() {
                to.write_all(&bytes).expect("an entry");
            }
        }
    }
    to.finish().expect("a zip").into_inner()
}

/// Weights: truncated, extended or missing.
fn weights(good: &[u8], dice: &mut Random) -> Vec<u8> {
    let (kind, salt) = (dice.below(4), dice.below(1 << 20));
    rewritten(good, &|name, mut bytes| {
        let weight = (name.contains("data/weights/") || name.contains("data/constants/"))
            && !name.ends_with(".json");
        if weight && (name.len() + salt) % 3 > 0 {
            match kind {
                0 => return None,
                1 => bytes.truncate(bytes.len() / 2),
                2 => bytes.clear(),
                _ => bytes.resize(bytes.len() + salt % 1000, 0xff),
            }
        }
        Some(bytes)
    })
}

/// Mutates the weights' metadata.
fn config(good: &[u8], dice: &mut Random) -> Vec<u8> {
    edited(good, "_config.json", dice, &mut |json, dice| change(json, dice))
}

/// Mutates the graph, mostly arguments and sizes, since most other text is ignored.
fn graph(good: &[u8], dice: &mut Random) -> Vec<u8> {
    edited(good, "models/model.json", dice, &mut |json, dice| {
        for _ in 0..1 + dice.below(3) {
            let nodes = "/graph_module/graph/nodes";
            let one = dice.below(json.pointer(nodes).and_then(Value::as_array).map_or(0, Vec::len));
            let place = match dice.below(10) {
                0 => "/range_constraints".to_string(),
                1 => "/graph_module/graph/tensor_values".to_string(),
                2 => "/graph_module/signature".to_string(),
                3 => nodes.to_string(),
                4 => String::new(),
                5 => format!("{nodes}/{one}"),
                _ => format!("{nodes}/{one}/inputs"),
            };
            // An earlier change may have deleted the node.
            let place = if json.pointer(&place).is_some() { place } else { String::new() };
            let place = json.pointer_mut(&place).expect("a place");
            change(place, dice);
        }
    })
}

type Edit<'a> = &'a mut dyn FnMut(&mut Value, &mut Random);

/// Edits the entries with this suffix as JSON. Numbers outside JSON are written as text.
fn edited(good: &[u8], end: &str, dice: &mut Random, edit: Edit) -> Vec<u8> {
    let dice = std::cell::RefCell::new((dice, edit));
    rewritten(good, &|name, bytes| {
        if !name.ends_with(end) {
            return Some(bytes);
        }
        let (dice, edit) = &mut *dice.borrow_mut();
        let mut json: Value = serde_json::from_slice(&bytes).expect("JSON");
        edit(&mut json, dice);
        let text = json.to_string();
        Some(
            text.replace("\"<nan>\"", "NaN")
                .replace("\"<huge>\"", "1e999")
                .replace("\"<long>\"", &"9".repeat(400))
                .into_bytes(),
        )
    })
}

/// Walks to a random node and replaces it.
fn change(json: &mut Value, dice: &mut Random) {
    let donor = string_of(json, dice);
    let mut at = json;
    loop {
        let stop = dice.below(10) == 0;
        let n = match at {
            Value::Array(a) if !a.is_empty() && !stop => a.len(),
            Value::Object(o) if !o.is_empty() && !stop => o.len(),
            _ => break,
        };
        let i = dice.below(n);
        // Keys and elements are deleted, duplicated or renamed.
        match (&mut *at, dice.below(40)) {
            (Value::Array(a), 0) => return drop(a.remove(i)),
            (Value::Array(a), 1) => return a.push(a[i].clone()),
            (Value::Array(a), 2) => return a.swap(i, n - 1),
            (Value::Object(o), 0) => {
                let key = o.keys().nth(i).expect("a key").clone();
                return drop(o.remove(&key));
            }
            (Value::Object(o), 1) => {
                let key = o.keys().nth(i).expect("a key").clone();
                let value = o.remove(&key).expect("a value");
                return drop(
                    o.insert(
                        dice.pick(&["as_int", "as_tensor", "as_sym_int", "as_ints", "name", "x"])
                            .to_string(),
                        value,
                    ),
                );
            }
            _ => {}
        }
        at = match at {
            Value::Array(a) => &mut a[i],
            Value::Object(o) => o.values_mut().nth(i).expect("a value"),
            _ => unreachable!(),
        };
    }
    let numbers =
        [-1, 0, 1, 7, 63, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, i64::MAX, i64::MIN, -(1 << 31)];
    let expressions = [
        "Pow(Integer(9), Integer(99999))",
        "Mul(Symbol('s0'), Symbol('s0'), Symbol('s77'), Integer(9223372036854775807))",
        "FloorDiv(Symbol('s0'), Integer(0))",
        "Mod(Symbol('s27'), Integer(-3))",
        "Max(Symbol('s0'), Pow(Symbol('s0'), Symbol('s0')))",
        "Add(Add(Add(Add(Add(",
        "Symbol('')",
    ];
    let paths =
        ["../../x", "/etc/passwd", "../weights/../../x", "file:///dev/zero", "", "\0", "a#b"];
    *at = match dice.below(9) {
        0..=2 => json!(dice.pick(&numbers)),
        3 => json!(donor),
        4 => json!(dice.pick(&paths)),
        5 => json!(dice.pick(&expressions)),
        6 => json!({ "as_expr": { "expr_str": dice.pick(&expressions) } }),
        7 => dice
            .pick(&[
                json!("<nan>"),
                json!("<huge>"),
                json!("<long>"),
                json!(1.5),
                json!(-0.0),
                json!(1e300),
                json!(true),
            ])
            .clone(),
        _ => {
            let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
            dice.pick(&[
                json!([]),
                json!({}),
                json!(null),
                json!([1, 2, 3, 4, 5]),
                json!({ "as_int": -3 }),
                json!(vec![0; 3000]),
                deep,
            ])
            .clone()
        }
    };
}

/// A random string of the text: an existing name in a wrong position.
fn string_of(json: &Value, dice: &mut Random) -> String {
    let mut all = vec![];
    let mut todo = vec![json];
    while let Some(v) = todo.pop() {
        match v {
            Value::String(s) if s.len() < 80 => all.push(s),
            Value::Array(a) => todo.extend(a),
            Value::Object(o) => todo.extend(o.values()),
            _ => {}
        }
    }
    if all.is_empty() { String::new() } else { dice.pick(&all).to_string() }
}

/// Loads a mutant and its weights, compiles some, and returns the library's message.
fn load_mutant(path: &Path, number: u64) -> String {
    let (file, bytes) = mutant(number);
    std::fs::write(path, bytes).expect("written");
    let model = match kiln::load(path) {
        Ok(model) => model,
        Err(e) => return e.to_string(),
    };
    let outcome = if number.is_multiple_of(COMPILED_OF) && SMALL.contains(&file) {
        model.compile(&kiln::Options { threads: 1, workers: 1, ..Default::default() }).map(|_| ())
    } else {
        let context = Context::new();
        pt2::import(context.ctx(), path)
            .map(|captured| captured.weights.values().for_each(|w| drop(w.read())))
            .map_err(Into::into)
    };
    outcome.map_or_else(|e: kiln::Error| e.to_string(), |()| String::new())
}

/// A memory figure of this process in kB.
fn memory(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|l| l.strip_prefix(key)).expect("the figure");
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number")
}

/// The child: `KILN_MUTANTS=FIRST..END`. Its standard output names the current mutant.
#[test]
#[ignore = "the child of the others"]
fn mutants_in_this_process() {
    let Ok(range) = std::env::var("KILN_MUTANTS") else { return };
    let (first, end) = range.split_once("..").expect("FIRST..END");
    let range: Range<u64> = first.parse().expect("a number")..end.parse().expect("a number");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pt2");
    load_mutant(&path, range.start);
    let before = memory("VmHWM");
    let mut loaded = 0;
    for number in range.clone() {
        let said = load_mutant(&path, number);
        assert!(!said.contains("panic"), "mutant {number}: {said}");
        assert!(said.len() < 100_000, "mutant {number}: {} bytes of text", said.len());
        loaded += u64::from(said.is_empty());
        let taken = memory("VmHWM").saturating_sub(before);
        assert!(taken < MEMORY_KB, "mutant {number} took {taken} kB");
        std::fs::write(std::env::var("KILN_MUTANT_AT").expect("a file"), number.to_string())
            .expect("written");
    }
    // Some mutations are harmless; if none or all load, the test is void.
    let n = range.end - range.start;
    println!("{n} mutants, {loaded} fit; {} kB", memory("VmHWM").saturating_sub(before));
    assert!(n < 100 || (loaded > n / 50 && loaded < n / 2), "{loaded} of {n} were no errors");
}

/// Runs mutants in a child, within `limit` of processor time.
fn in_a_child(range: Range<u64>, limit: Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("at");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args([
        "--ignored",
        "--exact",
        "--nocapture",
        "capture::mutation::mutants_in_this_process",
    ]);
    command
        .env("KILN_MUTANTS", format!("{}..{}", range.start, range.end))
        .env("KILN_MUTANT_AT", &at);
    let done = crate::watchdog::run(&mut command, b"", limit);
    let last = std::fs::read_to_string(&at).unwrap_or_else(|_| "none".into());
    let all = done.text().lines().find(|l| l.contains("mutants, ")).unwrap_or("").to_string();
    assert!(
        done.status.success() && !all.is_empty(),
        "after mutant {last}: {:?}\n{}\n{}",
        done.status,
        done.text(),
        done.stderr
    );
    println!("{all}");
}

#[test]
fn damaged_archives_are_errors() {
    crate::watchdog::arm();
    let mutants = if crate::support::all() { MUTANTS } else { FEW_MUTANTS };
    in_a_child(0..mutants, Duration::from_secs(600));
}

/// `KILN_MUTANTS_LONG=FIRST..END`, default 100,000 further mutants.
#[test]
#[ignore = "half an hour"]
fn many_damaged_archives_are_errors() {
    let range = std::env::var("KILN_MUTANTS_LONG").unwrap_or("3000..103000".into());
    let (first, end) = range.split_once("..").expect("FIRST..END");
    in_a_child(
        first.parse().expect("a number")..end.parse().expect("a number"),
        Duration::from_secs(6 * 3600),
    );
}
