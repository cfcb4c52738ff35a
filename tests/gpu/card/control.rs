//! Control flow on the GPU: the functions of `tests/front/control.rs` with static and symbolic
//! sizes, exported programs of `tests/capture/`, and calls from several threads, on own streams
//! and the default one, without memory growth.
use super::{calls::resident, *};
use crate::{
    capture::{root, tensors},
    front::control::{CASES, differences, looping},
};
use kiln::{
    Model, load,
    runtime::{
        View, ViewMut,
        cuda::{Mode, Stream},
    },
    tolerance,
};
use std::path::Path;

pub static SUITE: Suite = Suite {
    name: "control",
    count: || items().len() as u64,
    label,
    check,
    whole: true,
    emulated: 1,
};

#[derive(Clone, Copy)]
enum Item {
    /// A function, with symbolic sizes or without.
    Function(usize, bool),
    /// An exported program, and the inputs and outputs of a call.
    Archive(&'static str, &'static str),
}

/// Calls from several threads in each mode, which compare the card's free memory.
pub static CALLS: Suite = Suite {
    name: "control-calls",
    count: || modes().len() as u64,
    label: |item| format!("of a loop, {}", modes()[item as usize].0),
    check: |item| check_calls(modes()[item as usize].1),
    whole: true,
    emulated: 1,
};

fn modes() -> &'static [(&'static str, Mode)] {
    if device().starts_with("cuda") { &Mode::ALL } else { &Mode::ALL[..1] }
}

fn items() -> Vec<(Item, Mode)> {
    let functions =
        (0..CASES.len()).flat_map(|i| [false, true].map(|open| Item::Function(i, open)));
    let archives = [
        ("control", "control"),
        ("control", "control.other"),
        ("aten_data_sizes", "aten_data_sizes"),
        ("aten_selections", "aten_selections"),
    ];
    let archives = archives.map(|(program, numbers)| Item::Archive(program, numbers));
    functions
        .chain(archives)
        .flat_map(|item| modes().iter().map(move |(_, mode)| (item, *mode)))
        .collect()
}

fn label(item: u64) -> String {
    let (item, mode) = items()[item as usize];
    let what = match item {
        Item::Function(i, open) => {
            format!("{}, {}", CASES[i]().0, if open { "symbolic" } else { "static" })
        }
        Item::Archive(_, numbers) => numbers.into(),
    };
    format!("{what}, {mode:?}")
}

fn check(item: u64) -> Outcome {
    let (item, mode) = items()[item as usize];
    match item {
        // A called function needs a device.
        Item::Function(..) if device() == "ptx" => Outcome::Agrees,
        Item::Function(i, open) => {
            let name =
                Mode::ALL.iter().find(|(_, m)| *m == mode).map_or("default", |(name, _)| *name);
            Outcome::of(differences(
                &CASES[i](),
                ("on the card", "kiln", Some(open)),
                &device(),
                name,
            ))
        }
        Item::Archive(program, numbers) => {
            let exe = match load(root().join(format!("capture/{program}.pt2")))
                .and_then(|m| m.compile(&Options { mode, ..options() }))
            {
                Ok(exe) => exe,
                Err(e) => return failed(&e),
            };
            let file = root().join(format!("capture/{numbers}.safetensors"));
            let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
            let mut wrong = vec![];
            for _ in 0..2 {
                match exe.call_values(&inputs.iter().collect::<Vec<_>>()) {
                    Err(e) => wrong.push(e.to_string()),
                    Ok(have) => {
                        let results =
                            have.iter().enumerate().filter(|(i, _)| !exe.program().is_size(*i));
                        wrong.extend(results.zip(&want).filter_map(|((i, have), want)| {
                            match tolerance::compare(have, want) {
                                Ok(c) if c.ok => None,
                                Ok(c) => Some(format!("output {i}: {c}")),
                                Err(e) => Some(format!("output {i} {e}")),
                            }
                        }))
                    }
                }
            }
            Outcome::of(wrong)
        }
    }
}

fn check_calls(mode: Mode) -> Outcome {
    match Model::from_module(looping().module(), Path::new(""))
        .compile(&Options { mode, ..options() })
    {
        Ok(exe) => Outcome::of(calls(&exe, mode)),
        Err(e) => failed(&e),
    }
}

/// `x = 2x + 1` until an element is 100 or more, for rows of 3; threads take turns.
fn calls(exe: &kiln::Executable, mode: Mode) -> Vec<String> {
    const CALLS: usize = 400;
    const THREADS: usize = 4;
    let one = |thread: usize, i: usize| -> Result<(), String> {
        let rows = 1 + (i + thread) % 20;
        let x: Vec<f32> = (0..3 * rows).map(|n| (n % 7 + i % 5) as f32).collect();
        let (mut want, mut have) = (x.clone(), vec![0.0f32; x.len()]);
        while want.iter().all(|n| *n < 100.0) {
            want.iter_mut().for_each(|n| *n = 2.0 * *n + 1.0);
        }
        let shape = [rows, 3];
        let (from, to) = (
            [View::from_slice(&shape, &x).expect("a view")],
            &mut [ViewMut::from_slice(&shape, &mut have).expect("a view")],
        );
        match exe.cuda() {
            // SAFETY: the default stream, and memory of the host, for which the call waits.
            Some(card) if thread % 2 == 1 => {
                unsafe { card.launch(&from, to, Stream::DEFAULT) }.map_err(|e| e.to_string())?
            }
            _ => exe.call(&from, to).map_err(|e| e.to_string())?,
        }
        if have == want {
            Ok(())
        } else {
            Err(format!("call {i} of thread {thread}: {have:?} is not {want:?}"))
        }
    };
    let round = |n: usize| -> Vec<String> {
        std::thread::scope(|scope| {
            let run = |thread: usize| (0..n).try_for_each(|i| one(thread, i)).err();
            let all: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
            all.into_iter()
                .filter_map(|t| t.join().unwrap_or_else(|_| Some("panics".into())))
                .collect()
        })
    };
    let memory = || (exe.cuda().map_or(0, |l| l.device().memory().expect("a card").0), resident());
    let mut wrong = round(CALLS / 2);
    let before = memory();
    wrong.extend(round(CALLS));
    let after = memory();
    if before.0 > after.0 {
        wrong.push(format!("{CALLS} calls grew the card's memory by {} bytes", before.0 - after.0));
    }
    if let Some(card) = exe.cuda()
        && mode == Mode::ReduceOverhead
        && !card.remarks().iter().any(|r| {
            r.contains("no CUDA graph of the whole program: kiln.while of while_loop (")
                && r.contains("control.rs:")
        })
    {
        wrong.push(format!("no remark says why there is no graph: {:?}", card.remarks()));
    }
    wrong
}
