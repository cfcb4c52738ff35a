//! Fuzzing: mutants of every input under tests/, from a fixed seed, are accepted or rejected, and
//! none kills `kiln-opt` by a signal.
//!
//! A child process (this test binary) parses, verifies and prints mutants in order. If it dies, a
//! file names the mutant, which `kiln-opt` itself then runs, and the next child continues after it.
use super::*;
use crate::watchdog;
use kiln::dialects::ir::{BYTECODE_MAGIC, Context, Module, PrintOptions};
use sha2::{Digest, Sha256};
use std::{
    os::unix::{fs::FileExt, process::ExitStatusExt},
    process::Stdio,
};

const SEED: u64 = 0x6b69_6c6e;
/// Mutants of text, of bytecode files, and of bytecode with a recomputed checksum.
const TEXTS: u64 = 40_000;
const FILES: u64 = 4_000;
const CODES: u64 = 3_000;
const ALL: u64 = TEXTS + FILES + CODES;
/// Every n-th mutant also runs through kiln-opt.
const SAMPLE: u64 = 400;
/// Processor time; no mutant needs a hundredth of this, and some with a valid checksum loop.
const PATIENCE: [Duration; 3] =
    [Duration::from_secs(10), Duration::from_secs(10), Duration::from_secs(1)];
const PROGRESS: &str = "KILN_TEST_MUTANTS";

/// SplitMix64.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn below(n: usize, state: &mut u64) -> usize {
    (next(state) % n.max(1) as u64) as usize
}

/// Parts of all files under tests/, and their bytecode without checksum.
fn corpus() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut files, mut folders) =
        (vec![], vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "mlir") {
                files.push(path);
            }
        }
    }
    files.sort();
    let texts: Vec<String> = files.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
    let parts: Vec<Vec<u8>> =
        texts.iter().flat_map(|t| t.split("// -----\n")).map(|p| p.as_bytes().to_vec()).collect();
    let context = Context::new();
    let codes = parts
        .iter()
        .filter_map(|p| Module::parse(context.ctx(), p, "corpus").ok())
        .map(|(m, _)| m.bytecode())
        .collect();
    (parts, codes)
}

/// Tokens that are hard on parsers.
const WORDS: &[&str] = &[
    "tensor<",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "[",
    "]",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "?",
    "f8E4M3FN",
    "i1",
    "ui8",
    "complex<f32>",
    "index",
    "!kiln.x",
    "#kiln.layout<[",
    "dense<",
    "array<i64: ",
    "affine_map<(d0) -> (d0)>",
    "loc(unknown)",
    "%0",
    "@main",
    "^bb0",
    "\"",
    "//",
    "kiln.yield",
    "kiln.attention",
    "func.func",
    "return",
    "unit",
    "1e400",
    "0x7F",
    ":",
];

fn mutate(base: &[u8], text: bool, state: &mut u64) -> Vec<u8> {
    let mut out = base.to_vec();
    for _ in 0..1 + below(3, state) {
        let (at, length) = (below(out.len(), state), 1 + below(24, state));
        let end = (at + length).min(out.len());
        match below(if text { 8 } else { 5 }, state) {
            0 if !out.is_empty() => out[at] ^= 1 << below(if text { 7 } else { 8 }, state),
            1 => drop(out.drain(at..end)),
            2 => {
                let copy = out[at..end].to_vec();
                let to = below(out.len(), state);
                out.splice(to..to, copy);
            }
            3 => out.truncate(at),
            4 if !out.is_empty() => out[at] = next(state) as u8,
            5 => drop(out.splice(at..at, WORDS[below(WORDS.len(), state)].bytes())),
            6 | 7 => swap_tokens(&mut out, state),
            _ => {}
        }
    }
    out
}

/// Moves one token of the text to another's position.
fn swap_tokens(out: &mut Vec<u8>, state: &mut u64) {
    let word = |b: u8| b.is_ascii_alphanumeric() || b"_.%@#!".contains(&b);
    let tokens: Vec<&[u8]> = out.chunk_by(|a, b| word(*a) && word(*b)).collect();
    let (from, to) = (below(tokens.len(), state), below(tokens.len(), state));
    let with = |i: usize| if i == to { tokens[from] } else { tokens[i] };
    *out = (0..tokens.len()).map(with).collect::<Vec<_>>().concat();
}

/// 0, 1 or 2: text, bytecode file, bytecode with a recomputed checksum.
fn kind(n: u64) -> usize {
    usize::from(n >= TEXTS) + usize::from(n >= TEXTS + FILES)
}

fn mutant(n: u64, (texts, codes): &(Vec<Vec<u8>>, Vec<Vec<u8>>)) -> Vec<u8> {
    let mut state = SEED ^ n.wrapping_mul(0x2545_f491_4f6c_dd1d);
    if n < TEXTS {
        return mutate(&texts[below(texts.len(), &mut state)], true, &mut state);
    }
    let code = &codes[below(codes.len(), &mut state)];
    if n < TEXTS + FILES {
        return mutate(code, false, &mut state);
    }
    let payload = mutate(&code[BYTECODE_MAGIC.len() + 32..], false, &mut state);
    [BYTECODE_MAGIC, Sha256::digest(&payload).as_slice(), &payload].concat()
}

/// The child process, by environment variable.
#[test]
fn worker() {
    let Ok(progress) = std::env::var(PROGRESS) else { return };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(progress).unwrap();
    let mut numbers = [0; 16];
    file.read_exact_at(&mut numbers, 0).unwrap();
    let [first, mut accepted] =
        [0, 8].map(|i| u64::from_le_bytes(numbers[i..i + 8].try_into().unwrap()));
    let corpus = corpus();
    let mut context = Context::new();
    for n in first..ALL {
        file.write_all_at(&[n.to_le_bytes(), accepted.to_le_bytes()].concat(), 0).unwrap();
        // A context keeps all types and attributes it has seen.
        if n % 256 == 0 {
            context = Context::new();
        }
        if let Ok((module, _)) = Module::parse(context.ctx(), &mutant(n, &corpus), "mutant") {
            assert!(module.op().verify());
            accepted += u64::from(!module.print(PrintOptions::default()).is_empty());
        }
    }
    file.write_all_at(&[ALL.to_le_bytes(), accepted.to_le_bytes()].concat(), 0).unwrap();
}

/// Runs kiln-opt on a mutant, which it must survive; returns whether MLIR did.
fn survives(bytes: &[u8], what: &str) -> bool {
    let done = pipe(&[], bytes);
    assert!([0, 2].contains(&done.code()), "{what}: exit {}\n{}", done.code(), done.stderr);
    assert!(done.code() == 0 || done.stderr.contains("error"), "{what}: no error message");
    !done.stderr.contains("MLIR crashed")
}

#[test]
fn mutants_never_crash_kiln_opt() {
    let (folder, corpus) = (temporary(), corpus());
    let progress = folder.path().join("progress");
    std::fs::write(&progress, [0; 16]).unwrap();
    let read = || -> [u64; 2] {
        let bytes = std::fs::read(&progress).unwrap();
        [0, 8].map(|i| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap()))
    };
    let (mut deaths, mut hung, mut lines) = ([0; 3], 0, vec![]);
    loop {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["kiln_opt::mutation::worker", "--exact", "--test-threads=1"])
            .env(PROGRESS, &progress);
        // kiln-opt's stack size.
        command
            .env("RUST_MIN_STACK", (256 << 20).to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut last = read()[0];
        // The limit restarts with every mutant.
        let status = watchdog::wait(&mut child, |watch| {
            let n = read()[0];
            if n != last {
                last = n;
                watch.restart();
            }
            PATIENCE[kind(n)]
        });
        let [n, accepted] = read();
        if status.as_ref().is_ok_and(|s| s.success()) {
            assert_eq!(n, ALL);
            break;
        }
        let kind = kind(n);
        match status {
            Ok(status) => {
                assert!(
                    status.signal().is_some(),
                    "the child failed at mutant {n} without a signal; is it a bug of the test?"
                );
                deaths[kind] += 1;
                let again = if survives(&mutant(n, &corpus), &format!("mutant {n}")) {
                    "not in kiln-opt"
                } else {
                    "in kiln-opt too"
                };
                lines.push(format!("mutant {n}: {status}, {again}"));
            }
            // Only a valid checksum gets MLIR's bytecode reader into a loop.
            Err(_) if kind == 2 => hung += 1,
            Err(why) => {
                panic!("mutant {n} {why}:\n{}", String::from_utf8_lossy(&mutant(n, &corpus)))
            }
        }
        std::fs::write(&progress, [(n + 1).to_le_bytes(), accepted.to_le_bytes()].concat())
            .unwrap();
    }
    for n in (0..ALL).step_by(SAMPLE as usize) {
        survives(&mutant(n, &corpus), &format!("mutant {n}"));
    }
    println!("{}", lines.join("\n"));
    println!(
        "{ALL} mutants ({TEXTS} text, {FILES} bytecode, {CODES} bytecode with a right checksum): {} accepted,",
        read()[1]
    );
    println!("MLIR died on {deaths:?} of them and hung on {hung}, kiln-opt died on none");
    assert_eq!(deaths[1], 0, "bytecode with a wrong checksum reached MLIR");
}
