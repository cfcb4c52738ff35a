//! `KILN_DUMP=dir`: a folder for each compilation with the IR after every pass, each kernel as a
//! program that `kiln bench` times, and a page to look at all of it.
//!
//! Below the folder: `graph/`, `host/` and `kernels/<kernel>/` with `run-N/NN-<flag>.mlir`,
//! `kernels/<kernel>.mlir`, `program.json`, `timings.json`, and `index.html`, which needs nothing
//! else.
mod graph;

pub use graph::svg;

use crate::{
    Executable,
    lowering::driver::{compile::CompileReport, extract as alone},
    model::made_up,
    runtime::{
        Program,
        program::{Dim, Kernel, Symbol},
    },
};
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::ZlibEncoder};
use regex::Regex;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// A new folder for a compilation, inside of `dir`.
pub fn begin(dir: &Path, name: &str) -> io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let name =
        alone::file_name(Path::new(name).file_stem().and_then(|s| s.to_str()).unwrap_or("program"));
    for n in 0u64.. {
        let folder = dir.join(format!("{name}-{n}"));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("there is no free name"))
}

/// Writes what is known after a compilation: times of kernels, too, if the program can be called
/// here; with `diagram` also the graph of launches as `graph.svg`.
pub fn finish(
    folder: &Path,
    program: &Program,
    report: &CompileReport,
    exe: Option<&Executable>,
    diagram: bool,
) -> io::Result<()> {
    let seen = exe.and_then(measured).unwrap_or_default();
    let graph = svg(program, &seen.times);
    if diagram {
        std::fs::write(folder.join("graph.svg"), &graph)?;
    }
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let parts = program.parts();
    let launches = parts.iter().flat_map(|p| {
        let sizes = seen.sizes(p);
        p.kernels.iter().map(move |k| (*p, k, sizes.clone()))
    });
    let kernels: Vec<Value> = launches
        .enumerate()
        .map(|(i, (p, k, sizes))| kernel(folder, p, k, &sizes, seen.times.get(i)))
        .collect();
    let took: Vec<Value> = [
        ("passes on the graph", report.graph),
        ("kernels, on the clock", report.kernels),
        ("kernels: passes, summed over threads", report.kernel_passes),
        ("kernels: LLVM or PTX, summed over threads", report.kernel_code),
        ("host function", report.host),
    ]
    .map(|(name, t)| json!({"name": name, "ms": ms(t)}))
    .to_vec();
    let timings: Vec<Value> = report
        .passes
        .iter()
        .map(|p| json!({"pass": p.pass, "runs": p.runs, "ms": ms(p.time)}))
        .collect();
    let summary =
        json!({"name": program.name, "parts": took, "passes": timings, "kernels": kernels});
    std::fs::write(folder.join("timings.json"), serde_json::to_string_pretty(&summary)?)?;
    std::fs::write(folder.join("program.json"), serde_json::to_string_pretty(program)?)?;
    let mut texts = Texts::default();
    let passes = passes(folder, &mut texts)?;
    let target = format!("{} {}", program.target.arch, program.target.cpu);
    let data = json!({
        "name": program.name, "target": target, "passes": passes, "kernels": kernels,
        "parts": took, "timings": timings, "graph": graph,
    });
    // What would end the element is written in another way of JSON's.
    let data = serde_json::to_string(&data)?.replace("</", "<\\/").replace("<!--", "<\\u0021--");
    let page = include_str!("index.html").replace("/*TEXTS*/", &packed(&texts.all)?);
    std::fs::write(folder.join("index.html"), page.replace("/*DATA*/", &data))
}

/// Texts as a JSON list in zlib's format, which browsers unpack, in base64.
fn packed(texts: &[String]) -> io::Result<String> {
    let mut encoder = ZlibEncoder::new(vec![], Compression::default());
    serde_json::to_writer(&mut encoder, texts)?;
    Ok(BASE64_STANDARD.encode(encoder.finish()?))
}

fn kernel(
    folder: &Path,
    p: &Program,
    k: &Kernel,
    (symbols, exprs): &Sizes,
    time: Option<&Duration>,
) -> Value {
    let file = folder.join("kernels").join(format!("{}.mlir", alone::file_name(&k.name)));
    // A number where calls were made, else what it depends on.
    let value = |d: Dim| d.value(symbols, exprs).map_or_else(|_| p.size_text(d), |n| n.to_string());
    let size = |d: Option<Dim>| d.map_or(String::new(), value);
    json!({
        "name": k.name, "symbol": k.symbol, "kind": k.kind, "ops": k.ops, "sources": k.sources, "not_fused": k.not_fused, "reads": k.reads, "bytes": size(k.bytes), "flops": size(k.flops),
        "part": part_of(&alone::file_name(&k.name)), "time_us": time.map(|t| t.as_secs_f64() * 1e6), "file": file.exists().then(|| file.display().to_string()),
    })
}

/// What the page calls the passes of a kernel.
fn part_of(kernel: &str) -> String {
    format!("kernel {kernel}")
}

/// Values of a program's symbols and expressions; none without calls.
type Sizes = (Vec<i64>, Vec<i64>);

/// Calls with made-up inputs: the least time of each launch, all runs of it together, and the
/// values of symbols.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    symbols: HashMap<String, i64>,
}

impl Seen {
    /// The sizes of a program, or of one that control flow calls, whose symbols have the same
    /// names.
    fn sizes(&self, p: &Program) -> Sizes {
        let symbols: Option<Vec<i64>> =
            p.symbols.iter().map(|s| self.symbols.get(&s.name).copied()).collect();
        let symbols = symbols.unwrap_or_default();
        let exprs = p.expr_values(&symbols).unwrap_or_default();
        (symbols, exprs)
    }
}

/// The least time of each launch over a few calls with made-up inputs, if it can be called.
pub(crate) fn launch_times(exe: &Executable) -> Vec<Duration> {
    measured(exe).unwrap_or_default().times
}

fn measured(exe: &Executable) -> Option<Seen> {
    let inputs = made_up(exe.program()).ok()?;
    let mut outputs = exe.memory(&inputs).ok()?;
    let mut least: Vec<Duration> = vec![];
    for _ in 0..5 {
        let times = exe.profile(&inputs, &mut outputs).ok()?.times().to_vec();
        least = if least.is_empty() {
            times
        } else {
            least.iter().zip(&times).map(|(a, b)| *a.min(b)).collect()
        };
    }
    let p = exe.program();
    let size = |s: &Symbol| inputs.get(s.input).and_then(|d| d.shape.get(s.dim)).map(|n| *n as i64);
    let symbols =
        p.symbols.iter().map(|s| Some((s.name.clone(), size(s)?))).collect::<Option<_>>()?;
    Some(Seen { times: least, symbols })
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    known: HashMap<String, usize>,
}

impl Texts {
    fn add(&mut self, text: String) -> usize {
        *self.known.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            self.all.len() - 1
        })
    }
}

/// All passes that have written IR, part by part.
fn passes(folder: &Path, texts: &mut Texts) -> io::Result<Vec<Value>> {
    let mut parts = vec![
        ("graph".to_string(), folder.join("graph")),
        ("schedule".into(), folder.join("schedule")),
    ];
    parts.extend(
        sorted(&folder.join("kernels"))?
            .into_iter()
            .filter(|p| p.is_dir())
            .map(|p| (part_of(&name(&p)), p)),
    );
    parts.push(("host function".into(), folder.join("host")));
    // Places are in the files; here they would make every line differ.
    let places = Regex::new(r#" loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)|(?m)^#loc\d* = .*\n?"#)
        .map_err(io::Error::other)?;
    let mut out = vec![];
    for (part, folder) in parts {
        let mut before = None;
        for file in sorted(&folder)?
            .iter()
            .filter(|p| p.is_dir())
            .map(|p| sorted(p))
            .collect::<Result<Vec<_>, _>>()?
            .concat()
        {
            let text = std::fs::read_to_string(&file)?;
            let after = texts.add(places.replace_all(&text, "").trim_end().to_string());
            let stem = name(&file);
            let pass = stem.split_once('-').map_or(stem.as_str(), |(_, pass)| pass);
            out.push(json!({"part": part, "pass": pass, "before": before, "after": after, "changed": before != Some(after)}));
            before = Some(after);
        }
    }
    Ok(out)
}

fn name(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a folder holds, in the order of the numbers in names; nothing if it is not there.
fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => vec![],
        Err(e) => return Err(e),
    };
    all.sort_by_key(|p| crate::opt::tensors::natural(&name(p)));
    Ok(all)
}
