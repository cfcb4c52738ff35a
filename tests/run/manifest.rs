//! Packages whose manifest was edited: refused, or the same program. Nothing of a program that
//! contradicts itself runs.
//!
//! The edits run in a child process of this binary, so that a fault is a failure that names its
//! edit. Its limit is on processor time.
use super::*;
use crate::capture::mutation::Random;
use kiln::{
    model::Donation,
    runtime::{Package, Program, package::MAX_BYTES},
};
use serde_json::{Value, json};
use std::{
    io::{Cursor, Read, Write},
    process::Command,
    time::Duration,
};

/// Edits of each package.
const EDITS: u64 = 500;
/// Processor time of the child; it needs a tenth of it.
const SECONDS: u64 = 600;

/// A step of SGD with momentum, whose weight and momentum are donated.
const STEP: &str = r#"
func.func @main(%w: tensor<40x8xf32>, %m: tensor<40x8xf32>, %g: tensor<40x8xf32>) -> (tensor<40x8xf32>, tensor<40x8xf32>) {
  %0 = kiln.add %m, %g : tensor<40x8xf32>
  %1 = kiln.sub %w, %0 : tensor<40x8xf32>
  return %1, %0 : tensor<40x8xf32>, tensor<40x8xf32>
}
"#;

/// A package of a model with its weights.
fn package(model: &Path, target: Option<&str>) -> Vec<u8> {
    package_of(model, Options { target: target.map(str::to_string), ..options(1) })
}

fn package_of(model: &Path, options: Options) -> Vec<u8> {
    let model = load(model).expect("a model");
    let (mut package, _) = model.build(&options, &|_, _| ()).expect("a program");
    model.embed_weights(&mut package, &options).expect("weights");
    package.to_bytes().expect("a package")
}

fn donated(step: &Path, target: Option<&str>) -> Vec<u8> {
    let donated = [0, 1].map(|i| (i, Donation::Results)).into();
    let target = target.map(str::to_string);
    package_of(step, Options { target, donated, ..options(1) })
}

/// Packages for the host with symbols, without, and with control flow; and one for a GPU.
fn packages(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let flow = folder.join("loop.mlir");
    std::fs::write(&flow, LOOP).expect("written");
    let step = folder.join("step.mlir");
    std::fs::write(&step, STEP).expect("written");
    vec![
        ("mlp", package(&models().join("mlp.pt2"), None)),
        ("lenet.static", package(&models().join("lenet.static.pt2"), None)),
        ("loop", package(&flow, None)),
        ("step", donated(&step, None)),
        ("step on a GPU", donated(&step, Some("cuda:sm_90a"))),
        ("gpt2_tiny on a GPU", package(&models().join("gpt2_tiny.pt2"), Some("cuda:sm_90a"))),
    ]
}

/// The archive with another manifest.
fn with_manifest(good: &[u8], manifest: &Value) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(good)).expect("a zip");
    let mut to = zip::ZipWriter::new(Cursor::new(vec![]));
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let (name, mut bytes) = (entry.name().to_string(), vec![]);
        entry.read_to_end(&mut bytes).expect("an entry");
        if name == "manifest.json" {
            bytes = manifest.to_string().into_bytes();
        }
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        to.start_file(name, stored).expect("an entry");
        to.write_all(&bytes).expect("an entry");
    }
    to.finish().expect("a zip").into_inner()
}

fn manifest(package: &[u8]) -> Value {
    let mut zip = zip::ZipArchive::new(Cursor::new(package)).expect("a zip");
    let mut text = String::new();
    zip.by_name("manifest.json").expect("a manifest").read_to_string(&mut text).expect("text");
    serde_json::from_str(&text).expect("JSON")
}

/// Edits one place below: a number, a word, or the items of a list.
fn edit(json: &mut Value, dice: &mut Random) {
    let mut at = json;
    loop {
        let n = match at {
            Value::Array(a) if !a.is_empty() => a.len(),
            Value::Object(o) if !o.is_empty() => o.len(),
            _ => break,
        };
        let i = dice.below(n);
        match (&mut *at, dice.below(16)) {
            (Value::Array(a), 0) => return drop(a.remove(i)),
            (Value::Array(a), 1) => return a.push(a[i].clone()),
            (Value::Array(a), 2 | 3) => return a.swap(i, n - 1),
            (Value::Object(o), 0) => {
                let key = o.keys().nth(i).expect("a key").clone();
                return drop(o.remove(&key));
            }
            _ => {}
        }
        at = match at {
            Value::Array(a) => &mut a[i],
            Value::Object(o) => o.values_mut().nth(i).expect("a value"),
            _ => unreachable!(),
        };
    }
    const NUMBERS: [i64; 13] =
        [-1, 0, 1, 2, 3, 7, 63, 64, 1 << 31, 1 << 40, 1 << 62, i64::MAX, i64::MIN];
    *at = match &*at {
        Value::Number(n) if dice.below(3) == 0 => {
            json!(n.as_i64().unwrap_or(0).wrapping_add(dice.below(5) as i64 - 2))
        }
        Value::Number(_) => json!(NUMBERS[dice.below(NUMBERS.len())]),
        Value::String(s) if s == "f32" => json!(["f64", "i8", "i1", "f33"][dice.below(4)]),
        Value::String(_) => json!(["", "main", "host", "a\0b", "../x"][dice.below(5)]),
        Value::Bool(b) => json!(!b),
        _ => [json!(null), json!([]), json!({}), json!(5)][dice.below(4)].clone(),
    };
}

fn results(package: &Path) -> Result<Vec<Vec<u8>>, String> {
    let exe = load(package).and_then(|m| m.compile(&options(1))).map_err(|e| e.to_string())?;
    let inputs = kiln::model::random_inputs(exe.program()).map_err(|e| e.to_string())?;
    let mut outputs = exe.memory(&inputs).map_err(|e| e.to_string())?;
    exe.call_data(&inputs, &mut outputs).map_err(|e| e.to_string())?;
    Ok(outputs.into_iter().map(|d| d.bytes).collect())
}

/// What the child runs. Its standard output says which edit is at work.
#[test]
#[ignore = "the child of the next"]
fn edits_in_this_process() {
    let limit = libc::rlimit { rlim_cur: SECONDS, rlim_max: SECONDS };
    // SAFETY: a limit on processor time of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) }, 0);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.kpkg");
    for (name, good) in packages(folder.path()) {
        std::fs::write(&path, &good).expect("written");
        let host = !name.contains("GPU");
        let want = if host { results(&path).expect("the program runs") } else { vec![] };
        let (whole, mut reasons) = (manifest(&good), std::collections::BTreeMap::new());
        let (mut same, mut valid) = (0, 0);
        for number in 0..EDITS {
            println!("{name}: edit {number}");
            let mut dice = Random(number);
            let mut edited = whole.clone();
            for _ in 0..1 + dice.below(2) {
                let program = dice.below(8) != 0;
                edit(if program { &mut edited["program"] } else { &mut edited }, &mut dice);
            }
            // As it stands: the digest is that of the compiler.
            let bytes = with_manifest(&good, &edited);
            match Package::read(Cursor::new(&bytes), MAX_BYTES) {
                Ok(package) => {
                    let program = serde_json::to_value(&package.program).expect("JSON");
                    assert_eq!(program, whole["program"], "{name}: edit {number} was taken");
                    std::fs::write(&path, &bytes).expect("written");
                    assert!(!host || results(&path).as_ref() == Ok(&want), "edit {number}");
                    same += 1;
                }
                Err(e) => {
                    let text = e.to_string();
                    assert!(text.len() < 10_000, "{name}: edit {number}: {text}");
                }
            }
            // With a digest of its own: what contradicts itself is refused still, and what does not
            // has sizes.
            let Ok(program) = serde_json::from_value::<Program>(edited["program"].clone()) else {
                continue;
            };
            let original = Package::read(Cursor::new(&good), MAX_BYTES).expect("a package");
            let bytes = Package { program, ..original }.to_bytes().expect("written");
            match Package::read(Cursor::new(&bytes), MAX_BYTES) {
                Ok(package) => {
                    for p in package.program.parts() {
                        let shape = |t: &kiln::runtime::program::Tensor| vec![3; t.dims.len()];
                        let shapes: Vec<Vec<usize>> = p.inputs.iter().map(shape).collect();
                        let _ =
                            p.output_shapes(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>());
                        p.kernels.iter().filter_map(|k| k.bytes).for_each(|d| drop(p.size_text(d)));
                    }
                    valid += 1;
                }
                Err(e) => {
                    let text = e.to_string();
                    let field = text.split(['[', '\'']).next().unwrap_or_default().to_string();
                    *reasons.entry(field).or_insert(0) += 1;
                }
            }
        }
        println!("{name}: {same} edits change nothing; {valid} are valid; {reasons:?}");
        // If all were refused, or none, this would test nothing.
        assert!(same > 0 && same < EDITS / 2, "{name}: {same}");
        assert!(reasons.len() > 5 && valid > 0, "{name}: {valid} {reasons:?}");
    }
    println!("all packages");
}

#[test]
fn edited_manifests_are_refused() {
    crate::watchdog::arm();
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    let test = "run::manifest::edits_in_this_process";
    command.args(["--ignored", "--exact", "--nocapture", test]);
    let done = crate::watchdog::run(&mut command, b"", Duration::from_secs(3600));
    let text = done.text();
    let last = text.lines().rev().find(|l| l.contains("edit ")).unwrap_or("none");
    assert!(
        done.status.success() && text.contains("all packages"),
        "at {last}: {:?}\n{}",
        done.status,
        done.stderr
    );
    text.lines().filter(|l| l.contains("are valid")).for_each(|l| println!("{l}"));
}

/// What an edit would have the code do, one by one.
#[test]
fn what_is_edited_is_named() {
    crate::watchdog::arm();
    let good = package(&models().join("mlp.pt2"), None);
    let whole = manifest(&good);
    let said = |place: &str, value: Value, own_digest: bool| {
        let mut edited = whole.clone();
        *edited.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
        if !own_digest {
            let bytes = with_manifest(&good, &edited);
            return Package::read(Cursor::new(&bytes), MAX_BYTES).expect_err("refused").to_string();
        }
        let program: Program = serde_json::from_value(edited["program"].clone()).expect("JSON");
        let original = Package::read(Cursor::new(&good), MAX_BYTES).expect("a package");
        let bytes = Package { program, ..original }.to_bytes().expect("written");
        Package::read(Cursor::new(&bytes), MAX_BYTES).expect_err("refused").to_string()
    };
    let changed = "its program or its objects were changed after it was compiled";
    assert!(said("/program/arena", json!({ "known": 0 }), false).contains(changed));
    assert!(said("/program/entry/main", json!("other"), false).contains(changed));
    assert!(said("/digest", json!("00"), false).contains(changed));
    let e = said("/program/symbols/0/input", json!(9), true);
    assert_eq!(e, "its program is invalid: symbols[0].input is 9, but inputs has 1 entries");
    let e = said("/program/inputs/0/dims/0", json!({ "expr": 900 }), true);
    assert!(e.contains("inputs[0].dims[0] is expression 900"), "{e}");
    let folder = tempfile::tempdir().expect("a folder");
    let step = folder.path().join("step.mlir");
    std::fs::write(&step, STEP).expect("written");
    for target in [None, Some("cuda:sm_90a")] {
        let good = donated(&step, target);
        let program = Package::read(Cursor::new(&good), MAX_BYTES).expect("a package").program;
        let pairs = |p: &Program| p.aliases.iter().map(|a| (a.input, a.output)).collect::<Vec<_>>();
        assert_eq!(pairs(&program), [(0, 0), (1, 1)]);
        let refused = |change: &dyn Fn(&mut Program)| {
            let mut package = Package::read(Cursor::new(&good), MAX_BYTES).expect("a package");
            change(&mut package.program);
            let bytes = package.to_bytes().expect("written");
            Package::read(Cursor::new(&bytes), MAX_BYTES).expect_err("refused").to_string()
        };
        let e = refused(&|p| p.aliases[1].output = 0);
        assert!(e.contains("aliases[1] names an input or an output that an earlier one"), "{e}");
        let e = refused(&|p| p.aliases[1].input = 7);
        assert!(e.contains("aliases[1].input is 7, but inputs has 3 entries"), "{e}");
        let e = refused(&|p| p.inputs[0].dtype = "f64".into());
        assert!(e.contains("which are of different types"), "{e}");
    }
    let e = said("/program/entry/object", json!("other"), true);
    assert!(e.contains("calls code of the object 'other', which is missing"), "{e}");
}
