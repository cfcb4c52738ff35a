//! Models from file to call on the host: PyTorch's results, the cache, packages, errors, threads,
//! the command line.
mod caches;
mod capi;
mod command;
mod debug;
mod interop;
mod manifest;
mod options;
mod page;
mod refused;
mod terminal;

pub use command::LOOP;
use kiln::{
    Executable, Options,
    dialects::value::Tensor,
    load,
    model::{CachePolicy, OwnedTensor},
    opt::tensors::{self, Tensors},
    runtime::{View, ViewMut},
    tolerance,
};
use std::path::{Path, PathBuf};

/// The project's archives with PyTorch's results; the second file has other sizes than exported.
pub const MODELS: &[(&str, &[&str])] = &[
    ("mlp", &["mlp", "mlp.other"]),
    ("mlp.core", &["mlp"]),
    ("mlp.static", &["mlp"]),
    ("lenet", &["lenet", "lenet.other"]),
    ("lenet.static", &["lenet"]),
    ("elementwise", &["elementwise"]),
    ("gpt2_tiny", &["gpt2_tiny", "gpt2_tiny.other"]),
    ("gpt2_tiny.static", &["gpt2_tiny"]),
    ("lenet.core", &["lenet"]),
    ("bert_tiny", &["bert_tiny"]),
    ("bert_tiny.core", &["bert_tiny"]),
    ("mobilenetv3_small", &["mobilenetv3_small"]),
    ("gradients", &["gradients"]),
    ("convolutions", &["convolutions"]),
    ("convolutions.dynamic", &["convolutions"]),
    ("written_attention", &["written_attention"]),
    ("written_attention.bf16", &["written_attention.bf16"]),
];

pub fn models() -> PathBuf {
    crate::support::repository().join("tests/models")
}

fn options(threads: usize) -> Options {
    Options { threads, cache: CachePolicy::Off, ..Options::default() }
}

pub fn file(name: &str) -> Tensors {
    tensors::read(&models().join(format!("{name}.safetensors")), |_| true)
        .unwrap_or_else(|e| panic!("{name}: {}", e.message))
}

fn agree(exe: &Executable, data: &Tensors, what: &str) {
    let wrong = agreement(exe, data);
    assert!(wrong.is_empty(), "{what}: {}", wrong.join("\n"));
}

/// Calls with the inputs of a file; returns differences from its outputs.
pub fn agreement(exe: &Executable, data: &Tensors) -> Vec<String> {
    let inputs: Vec<&Tensor> =
        tensors::numbered(data, "input_").into_iter().map(|(_, t)| t).collect();
    let results = match exe.call_values(&inputs) {
        Ok(results) => results,
        Err(e) => return vec![e.to_string()],
    };
    let compared = tensors::numbered(data, "output_")
        .into_iter()
        .map(|(i, want)| (i, tolerance::compare(&results[i], want)));
    let wrong = compared.filter_map(|(i, c)| match c {
        Ok(c) if c.ok => None,
        Ok(c) => Some(format!("output {i}: {c}")),
        Err(e) => Some(format!("output {i} {e}")),
    });
    wrong.collect()
}

#[test]
fn models_as_pytorch() {
    for (model, inputs) in MODELS {
        crate::watchdog::arm();
        let exe = load(models().join(format!("{model}.pt2")))
            .unwrap()
            .compile(&options(2))
            .unwrap_or_else(|e| panic!("{model}: {e}"));
        let alone =
            load(models().join(format!("{model}.pt2"))).unwrap().compile(&options(1)).unwrap();
        for data in *inputs {
            agree(&exe, &file(data), &format!("{model}, {data}, 2 threads"));
            agree(&alone, &file(data), &format!("{model}, {data}, 1 thread"));
        }
    }
}

/// Larger archives, by `tests/models/make.py`: NAME.pt2 and NAME.safetensors in the folder
/// KILN_ARCHIVES.
#[test]
#[ignore = "needs archives in KILN_ARCHIVES"]
fn archives_of_a_folder_as_pytorch() {
    let Some(folder) = std::env::var_os("KILN_ARCHIVES").map(PathBuf::from) else { return };
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("a file").path()).collect();
    names.retain(|p| p.extension().is_some_and(|e| e == "pt2"));
    names.sort();
    assert!(!names.is_empty(), "no archives in {}", folder.display());
    for archive in names {
        let data = archive.with_extension("").with_extension("safetensors");
        let data = tensors::read(&data, |_| true)
            .unwrap_or_else(|e| panic!("{}: {}", data.display(), e.message));
        for threads in [1, 2] {
            crate::watchdog::arm();
            let exe = load(&archive)
                .unwrap()
                .compile(&options(threads))
                .unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
            agree(&exe, &data, &format!("{}, {threads} threads", archive.display()));
            println!("{}, {threads} threads: as PyTorch", archive.display());
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let data = file("bert_tiny");
    let inputs: Vec<&Tensor> =
        tensors::numbered(&data, "input_").into_iter().map(|(_, t)| t).collect();
    let of = |threads| {
        let exe = load(models().join("bert_tiny.pt2")).unwrap().compile(&options(threads)).unwrap();
        exe.call_values(&inputs).unwrap()
    };
    let (one, two, three) = (of(1), of(2), of(3));
    assert!(one == two && two == three);
}

#[test]
fn a_profile_times_every_launch() {
    let data = file("gpt2_tiny");
    let inputs: Vec<OwnedTensor> = tensors::numbered(&data, "input_")
        .into_iter()
        .map(|(_, t)| OwnedTensor::from_tensor(t))
        .collect();
    for threads in [1, 2] {
        let exe = load(models().join("gpt2_tiny.pt2")).unwrap().compile(&options(threads)).unwrap();
        let (mut plain, mut profiled) =
            (exe.memory(&inputs).unwrap(), exe.memory(&inputs).unwrap());
        exe.call_data(&inputs, &mut plain).unwrap();
        let start = std::time::Instant::now();
        let profile = exe.profile(&inputs, &mut profiled).unwrap();
        let whole = start.elapsed();
        assert_eq!(plain, profiled);
        assert_eq!(profile.times().len(), exe.program().kernels.len());
        assert!(profile.times().iter().all(|t| !t.is_zero()), "{profile:?}");
        assert!(profile.times().iter().sum::<std::time::Duration>() < whole, "{profile:?}");
    }
}

#[test]
fn a_program_is_called_from_many_threads() {
    let exe = load(models().join("mlp.pt2")).unwrap().compile(&options(2)).unwrap();
    let data = file("mlp");
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..50).for_each(|i| agree(&exe, &data, &format!("call {i}"))));
        }
    });
    assert!(exe.arena_bytes() > 0);
}

#[test]
fn the_second_process_starts_warm_and_a_corrupt_cache_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache: CachePolicy::Dir(dir.path().into()), ..options(2) };
    let model = || load(models().join("mlp.pt2")).unwrap().compile(&options).unwrap();
    let (cold, data) = (model(), file("mlp"));
    assert!(cold.times().compile.as_ref().is_some_and(|c| c.cached == 0 && c.kernel_count > 0));
    let warm = model();
    assert!(warm.times().compile.is_none());
    agree(&warm, &data, "from the cache");
    let entries: Vec<PathBuf> = walk(dir.path());
    assert!(entries.len() > 3, "{entries:?}");
    // Every entry is truncated: nothing is trusted, and the result is still correct.
    for e in &entries {
        let bytes = std::fs::read(e).unwrap();
        std::fs::write(e, &bytes[..bytes.len() / 2]).unwrap();
    }
    let rebuilt = model();
    assert!(rebuilt.times().compile.as_ref().is_some_and(|c| c.cached == 0));
    agree(&rebuilt, &data, "after damage");
    // Kernels survive the loss of the program.
    let is_program =
        |p: &PathBuf| std::fs::read(p).unwrap().windows(13).any(|w| w == b"manifest.json");
    let program = walk(dir.path()).into_iter().find(is_program).unwrap();
    std::fs::remove_file(program).unwrap();
    let again = model();
    assert!(again.times().compile.as_ref().is_some_and(|c| c.cached == c.kernel_count));
    agree(&again, &data, "from cached kernels");
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![];
    for e in std::fs::read_dir(dir).unwrap().flatten() {
        if e.path().is_dir() { all.extend(walk(&e.path())) } else { all.push(e.path()) }
    }
    all
}

#[test]
fn a_package_runs_where_its_weights_are() {
    let dir = tempfile::tempdir().unwrap();
    let exe = load(models().join("lenet.pt2")).unwrap().compile(&options(2)).unwrap();
    let path = dir.path().join("lenet.kpkg");
    exe.package().save(&path).unwrap();
    let missing =
        load(&path).unwrap().compile(&options(2)).err().expect("no weights here").to_string();
    assert!(missing.contains("lenet.pt2"), "{missing}");
    std::fs::copy(models().join("lenet.pt2"), dir.path().join("lenet.pt2")).unwrap();
    let packed = load(&path).unwrap().compile(&options(2)).unwrap();
    assert!(packed.times().compile.is_none());
    agree(&packed, &file("lenet"), "a package");
}

#[test]
fn inputs_of_any_strides_are_correct() {
    let exe = load(models().join("mlp.pt2")).unwrap().compile(&options(1)).unwrap();
    let data = file("mlp");
    let x = &data["input_0"];
    let want = exe.call_values(&[x]).unwrap();
    let (n, m) = (x.shape()[0], x.shape()[1]);
    let bytes = x.dtype().encode(x);
    let row = |i: usize, j: usize| &bytes[4 * (i * m + j)..4 * (i * m + j) + 4];
    // Column-major, and row-major with padded rows.
    let columns: Vec<u8> =
        (0..m).flat_map(|j| (0..n).flat_map(move |i| row(i, j).to_vec())).collect();
    let gaps: Vec<u8> = (0..n)
        .flat_map(|i| {
            (0..m + 3).flat_map(move |j| if j < m { row(i, j).to_vec() } else { vec![0xff; 4] })
        })
        .collect();
    for (memory, strides) in [(&columns, [1, n as isize]), (&gaps, [m as isize + 3, 1])] {
        let shape = [n, m];
        // SAFETY: the strides reach exactly what was written above.
        let view = unsafe { View::strided("f32", &shape, &strides, memory.as_ptr()) };
        let mut out = vec![0xa5u8; n * 10 * 4];
        let out_shape = [n, 10];
        exe.call(&[view], &mut [ViewMut::new("f32", &out_shape, &mut out).unwrap()]).unwrap();
        assert_eq!(out, want[0].dtype().encode(&want[0]), "{strides:?}");
    }
}

/// An input in the declared layout is read in place; any other is copied, correctly.
#[test]
fn inputs_in_the_declared_layout_are_not_copied() {
    let data = file("mobilenetv3_small");
    let x = &data["input_0"];
    let shape = x.shape().to_vec();
    let order = [0, 2, 3, 1];
    let options = Options { orders: [(0, order.to_vec())].into(), ..options(2) };
    let exe = load(models().join("mobilenetv3_small.pt2")).unwrap().compile(&options).unwrap();
    agree(&exe, &data, "rows, copied");
    // The same elements channels-last.
    let (c, h, w) = (shape[1], shape[2], shape[3]);
    let bytes = x.dtype().encode(x);
    let mut last = vec![];
    for n in 0..shape[0] {
        for (i, j, k) in
            (0..h).flat_map(|i| (0..w).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
        {
            let at = 4 * (((n * c + k) * h + i) * w + j);
            last.extend_from_slice(&bytes[at..at + 4]);
        }
    }
    let strides = [h * w * c, 1, w * c, c].map(|s| s as isize);
    // SAFETY: the strides reach exactly what was written above.
    let view = unsafe { View::strided("f32", &shape, &strides, last.as_ptr()) };
    assert!(exe.copied(&[view]).is_empty());
    assert_eq!(exe.copied(&[View::new("f32", &shape, &bytes).unwrap()]), [0]);
    let want = &data["output_0"];
    let mut out = exe.memory(&[OwnedTensor::from_tensor(x)]).unwrap();
    let to = &mut out[0];
    exe.call(&[view], &mut [ViewMut::new("f32", &to.shape, &mut to.bytes).unwrap()]).unwrap();
    let c = tolerance::compare(&to.tensor().unwrap(), want).unwrap();
    assert!(c.ok, "{c}");
    // Invalid layouts are errors.
    for (i, order, reason) in [
        (3, vec![0], "no argument 3"),
        (0, vec![0, 1, 1, 2], "no order"),
        (0, vec![1, 0, 2, 3], "only the outermost"),
    ] {
        let options = Options { orders: [(i, order)].into(), ..options.clone() };
        let e = load(models().join("lenet.pt2"))
            .unwrap()
            .compile(&options)
            .err()
            .expect("refused")
            .to_string();
        assert!(e.contains(reason), "{e}");
    }
}

/// The passes between two levels on a file's IR, by kiln-opt.
#[test]
fn every_level_down_to_program_runs() {
    for level in ["graph", "prims", "kernels", "linalg", "scheduled", "tiled", "program"] {
        for model in ["mlp", "lenet", "gpt2_tiny"] {
            let run = |args: &[&str]| {
                let out = std::process::Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
                    .args(args)
                    .current_dir(models())
                    .output()
                    .expect("it runs");
                (
                    out.status.code(),
                    String::from_utf8_lossy(&out.stdout).into_owned()
                        + &String::from_utf8_lossy(&out.stderr),
                )
            };
            let (archive, data) = (format!("{model}.pt2"), format!("{model}.safetensors"));
            let (code, text) = run(&[
                &archive,
                &format!("--to={level}"),
                "--execute",
                "--inputs",
                &data,
                "--check",
            ]);
            assert_eq!(code, Some(0), "{model} at {level}: {text}");
        }
    }
}
