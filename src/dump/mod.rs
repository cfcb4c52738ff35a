//! `KILN_DUMP=dir`: one folder per compilation, with the IR after every pass, each kernel as a
//! standalone program for `kiln bench`, and an HTML viewer.
//! Layout: `graph/`, `host/` and `kernels/<kernel>/` with `run-N/NN-<flag>.mlir`, then
//! `kernels/<kernel>.mlir`, `program.json`, `timings.json`, and a self-contained `index.html`.
mod graph;

pub use graph::svg;

use crate::{
    Executable,
    lowering::driver::{compile::CompileReport, extract as alone},
    model::random_inputs,
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

/// Creates a new folder for one compilation inside `dir`.
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

/// Writes the files of a finished compilation, including kernel times if the program runs on this
/// machine. With `diagram`, also writes the launch graph as `graph.svg`.
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
    // Escapes `</` and `<!--`, which would end the script element.
    let data = serde_json::to_string(&data)?.replace("</", "<\\/").replace("<!--", "<\\u0021--");
    let page = include_str!("index.html").replace("/*TEXTS*/", &packed(&texts.all)?);
    std::fs::write(folder.join("index.html"), page.replace("/*DATA*/", &data))
}

/// A JSON list of texts, zlib-compressed (browsers decompress it) and base64-encoded.
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
    // The value if calls were made, else the symbolic expression.
    let value = |d: Dim| d.value(symbols, exprs).map_or_else(|_| p.size_text(d), |n| n.to_string());
    let size = |d: Option<Dim>| d.map_or(String::new(), value);
    json!({
        "name": k.name, "symbol": k.symbol, "kind": k.kind, "ops": k.ops, "sources": k.sources, "not_fused": k.not_fused, "reads": k.reads, "bytes": size(k.bytes), "flops": size(k.flops),
        "part": part_of(&alone::file_name(&k.name)), "time_us": time.map(|t| t.as_secs_f64() * 1e6), "file": file.exists().then(|| file.display().to_string()),
    })
}

/// Viewer label of a kernel's passes.
fn part_of(kernel: &str) -> String {
    format!("kernel {kernel}")
}

/// Values of symbols and expressions; empty without calls.
type Sizes = (Vec<i64>, Vec<i64>);

/// Profiled calls with random inputs: the minimum time of each launch over all its runs, and the
/// symbol values.
#[derive(Default)]
struct ProfiledCalls {
    times: Vec<Duration>,
    symbols: HashMap<String, i64>,
}

impl ProfiledCalls {
    /// Sizes of a program, or of one called by control flow, whose symbols have the same names.
    fn sizes(&self, p: &Program) -> Sizes {
        let symbols: Option<Vec<i64>> =
            p.symbols.iter().map(|s| self.symbols.get(&s.name).copied()).collect();
        let symbols = symbols.unwrap_or_default();
        let exprs = p.expr_values(&symbols).unwrap_or_default();
        (symbols, exprs)
    }
}

/// Minimum time of each launch over a few calls with random inputs; empty if it cannot be called.
pub(crate) fn launch_times(exe: &Executable) -> Vec<Duration> {
    measured(exe).unwrap_or_default().times
}

fn measured(exe: &Executable) -> Option<ProfiledCalls> {
    let inputs = random_inputs(exe.program()).ok()?;
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
    Some(ProfiledCalls { times: least, symbols })
}

/// Interned texts.
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

/// All passes that wrote IR, part by part.
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
    // The files keep locations; in the viewer they would make every line of a diff differ.
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

/// Directory entries in natural order; empty if there is no such directory.
fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => vec![],
        Err(e) => return Err(e),
    };
    all.sort_by_key(|p| crate::opt::tensors::natural(&name(p)));
    Ok(all)
}
