//! The report of `kiln run`, on one screen.
use super::terminal::{cut, table_width, wrapped};
use crate::{
    model::{Executable, Options, OwnedTensor},
    runtime::{
        Program,
        program::{Dim, Kernel, Symbol},
    },
    tolerance::{Comparison, Mismatch},
};
use std::{collections::BTreeMap, fmt::Write, path::Path, rc::Rc, time::Duration};

/// Data of a report.
pub struct RunReport<'a> {
    /// The executable.
    pub exe: &'a Executable,
    /// Its options.
    pub options: &'a Options,
    /// Time from process start to the first result.
    pub first: Duration,
    /// Sorted call times.
    pub times: &'a [Duration],
    /// Median time of each launch, summed over its runs in a call, from profiled calls.
    pub launches: &'a [Duration],
    /// Runs of each launch per call.
    pub runs: &'a [usize],
    /// Comparison of each output with its reference.
    pub checks: &'a [(usize, Result<Comparison, Mismatch>)],
    /// The inputs.
    pub inputs: &'a [OwnedTensor],
    /// Whether the inputs are random.
    pub random_inputs: bool,
    /// Path of the trace, if one was written.
    pub profile: Option<&'a Path>,
}

fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

fn us(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

fn scaled(n: i64, unit: &str) -> String {
    let n = n as f64;
    match n {
        _ if n >= 1e9 => format!("{:.2} G{unit}", n / 1e9),
        _ if n >= 1e6 => format!("{:.2} M{unit}", n / 1e6),
        _ if n >= 1e3 => format!("{:.1} k{unit}", n / 1e3),
        _ => format!("{n} {unit}"),
    }
}

/// Symbol values of a call, to evaluate symbolic numbers.
pub struct SymbolValues {
    symbols: Vec<i64>,
    exprs: Vec<i64>,
}

impl SymbolValues {
    /// Symbol values for these inputs.
    pub fn of(p: &Program, inputs: &[OwnedTensor]) -> SymbolValues {
        let value = |s: &Symbol| {
            inputs.get(s.input).and_then(|d| d.shape.get(s.dim)).map_or(0, |n| *n as i64)
        };
        let symbols: Vec<i64> = p.symbols.iter().map(value).collect();
        let exprs = p.expr_values(&symbols).unwrap_or_default();
        SymbolValues { symbols, exprs }
    }
    /// Symbol values of a subprogram, whose symbols have the names of the caller's.
    pub fn of_part(whole: &Program, inputs: &[OwnedTensor], part: &Program) -> SymbolValues {
        let all = SymbolValues::of(whole, inputs);
        let value = |s: &Symbol| {
            whole
                .symbols
                .iter()
                .zip(&all.symbols)
                .find(|(w, _)| w.name == s.name)
                .map_or(0, |(_, n)| *n)
        };
        let symbols: Vec<i64> = part.symbols.iter().map(value).collect();
        let exprs = part.expr_values(&symbols).unwrap_or_default();
        SymbolValues { symbols, exprs }
    }
    /// Evaluates a size; 0 if it has no value.
    pub fn of_dim(&self, d: Option<Dim>) -> i64 {
        d.and_then(|d| d.value(&self.symbols, &self.exprs).ok()).unwrap_or(0)
    }
}

/// The launches of a program and its subprograms in order, each with its symbol values.
pub fn launches<'a>(p: &'a Program, inputs: &[OwnedTensor]) -> Vec<(&'a Kernel, Rc<SymbolValues>)> {
    let part = |part: &'a Program| {
        let numbers = Rc::new(SymbolValues::of_part(p, inputs, part));
        part.kernels.iter().map(move |k| (k, numbers.clone()))
    };
    p.parts().into_iter().flat_map(part).collect()
}

/// A table row: all launches of one kernel.
struct Row<'a> {
    kernel: &'a Kernel,
    launches: usize,
    bytes: i64,
    flops: i64,
    time: Duration,
}

impl RunReport<'_> {
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for ((k, numbers), (time, runs)) in launches(self.exe.program(), self.inputs)
            .into_iter()
            .zip(self.launches.iter().zip(self.runs))
        {
            let row = rows.entry(&k.symbol).or_insert(Row {
                kernel: k,
                launches: 0,
                bytes: 0,
                flops: 0,
                time: Duration::ZERO,
            });
            row.time += *time;
            row.launches += runs;
            row.bytes += numbers.of_dim(k.bytes) * *runs as i64;
            row.flops += numbers.of_dim(k.flops) * *runs as i64;
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by_key(|r| std::cmp::Reverse((r.time, r.kernel.name.as_str())));
        rows
    }

    fn median(&self) -> Duration {
        self.times[self.times.len() / 2]
    }

    fn remarks(&self) -> Vec<String> {
        let gpu = self.exe.cuda().map(|l| l.remarks()).unwrap_or_default();
        self.exe.times().tuning.iter().cloned().chain(gpu).collect()
    }
    /// The report as text, one screen.
    pub fn text(&self) -> String {
        let (p, times) = (self.exe.program(), self.exe.times());
        let mut t = String::new();
        let rows = self.rows();
        let ops: usize = p.parts().iter().flat_map(|p| &p.kernels).map(|k| k.ops.len()).sum();
        let launches: usize = self.runs.iter().sum();
        let of = if p.control.is_some() {
            format!(", in {} programs that control flow calls", p.parts().len())
        } else {
            String::new()
        };
        let _ = writeln!(
            t,
            "{}: {ops} ops in {launches} launches of {} kernels{of}",
            p.name,
            rows.len()
        );
        let whole: Duration = self.launches.iter().sum();
        const SHOWN: usize = 16;
        let shown = &rows[..rows.len().min(SHOWN)];
        let kind = shown.iter().map(|r| r.kernel.kind.chars().count()).max().unwrap_or(0).max(4);
        // Width of the other columns, each with a separating space.
        let rest = kind + 4 + 4 + 9 + 9 + 11 + 6 + 7;
        let longest = shown.iter().map(|r| r.kernel.name.chars().count()).max().unwrap_or(0);
        let name = longest.max(6).min(table_width().saturating_sub(rest).max(12));
        let _ = writeln!(
            t,
            "{:<name$} {:>kind$} {:>4} {:>4} {:>9} {:>9} {:>11} {:>6}",
            "kernel", "kind", "runs", "ops", "bytes", "flops", "time", "share"
        );
        for r in shown {
            let label = cut(&r.kernel.name, name);
            let (bytes, flops) = (scaled(r.bytes, "B"), scaled(r.flops, "F"));
            let (ops, time) = (r.kernel.ops.len(), us(r.time));
            let share = 100.0 * us(r.time) / us(whole).max(f64::MIN_POSITIVE);
            let _ = writeln!(
                t,
                "{label:<name$} {:>kind$} {:>4} {ops:>4} {bytes:>9} {flops:>9} {time:>8.1} us {share:>5.1}%",
                r.kernel.kind, r.launches
            );
        }
        if rows.len() > SHOWN {
            let _ = writeln!(t, "… and {} kernels that take less time", rows.len() - SHOWN);
        }
        let _ = match &times.compile {
            Some(c) => writeln!(
                t,
                "compiled in {}: capture {}, graph passes {}, {} kernels {} ({} cached; passes {}, LLVM {}), host function {}, link {}, weights {}",
                ms(times.total),
                ms(times.capture),
                ms(c.graph),
                c.kernel_count,
                ms(c.kernels),
                c.cached,
                ms(c.kernel_passes),
                ms(c.kernel_code),
                ms(c.host),
                ms(times.link),
                ms(times.weights)
            ),
            None => writeln!(
                t,
                "from the cache in {}: link {}, weights {}",
                ms(times.total),
                ms(times.link),
                ms(times.weights)
            ),
        };
        let _ = writeln!(
            t,
            "first result after {}; memory between kernels {}",
            ms(self.first),
            scaled(self.exe.arena_bytes() as i64, "B")
        );
        let (least, most) = (self.times[0], self.times[self.times.len() - 1]);
        let device_name = match self.exe.device_info() {
            Some(gpu) if self.exe.cuda().is_some_and(|l| l.used_graphs()) => {
                format!("kernels alone, as a CUDA graph, on {}", gpu.name)
            }
            Some(gpu) => format!("kernels alone, on {}", gpu.name),
            None => format!("{} threads", self.options.threads),
        };
        let _ = writeln!(
            t,
            "median of {} calls {} ({} to {}), {device_name}",
            self.times.len(),
            ms(self.median()),
            ms(least),
            ms(most)
        );
        if self.random_inputs && !self.inputs.is_empty() {
            let sizes: Vec<String> = p
                .inputs
                .iter()
                .zip(self.inputs)
                .map(|(t, d)| format!("{} {:?}", t.name, d.shape))
                .collect();
            let _ =
                writeln!(t, "inputs were made up ({}); --inputs gives others", sizes.join(", "));
        }
        if let Some(path) = self.profile {
            let viewers = "chrome://tracing and ui.perfetto.dev show it";
            let _ = writeln!(t, "trace of the launches: {}; {viewers}", path.display());
        }
        for remark in self.remarks() {
            let _ = writeln!(t, "remark: {remark}");
        }
        for (i, c) in self.checks {
            let _ = match c {
                Ok(c) => writeln!(t, "output_{i}: {c}"),
                Err(e) => writeln!(t, "output_{i}: MISMATCH: {e}"),
            };
        }
        if !self.checks.is_empty() {
            let agrees = self.checks.iter().all(|(_, c)| c.as_ref().is_ok_and(|c| c.ok));
            let _ = writeln!(
                t,
                "{}",
                if agrees { "agrees with PyTorch" } else { "DOES NOT AGREE with PyTorch" }
            );
        }
        wrapped(&t)
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        let (p, times) = (self.exe.program(), self.exe.times());
        let kernel = |r: &Row| {
            serde_json::json!({
                "name": r.kernel.name, "kind": r.kernel.kind, "launches": r.launches, "ops": r.kernel.ops, "bytes": r.bytes,
                "flops": r.flops, "time_us": us(r.time), "not_fused": r.kernel.not_fused, "sources": r.kernel.sources,
            })
        };
        let compile = times.compile.as_ref().map(|c| {
            serde_json::json!({
                "graph_us": us(c.graph), "kernels_us": us(c.kernels), "kernels": c.kernel_count, "cached": c.cached,
                "kernel_passes_us": us(c.kernel_passes), "kernel_code_us": us(c.kernel_code), "host_us": us(c.host),
            })
        });
        let check = |(i, c): &(usize, Result<Comparison, Mismatch>)| match c {
            Ok(c) => {
                serde_json::json!({"output": i, "ok": c.ok, "relative": c.relative, "max_abs": c.max_abs})
            }
            Err(e) => serde_json::json!({"output": i, "ok": false, "error": e.to_string()}),
        };
        let all = serde_json::json!({
            "name": p.name, "launches": self.runs.iter().sum::<usize>(), "kernels": self.rows().iter().map(kernel).collect::<Vec<_>>(),
            "compile": compile, "capture_us": us(times.capture), "link_us": us(times.link), "weights_us": us(times.weights),
            "total_us": us(times.total), "first_result_us": us(self.first), "arena_bytes": self.exe.arena_bytes(),
            "threads": self.options.threads, "card": self.exe.device_info().map(|c| c.name.as_str()), "median_us": us(self.median()), "calls": self.times.len(),
            "remarks": self.remarks(), "made_up_inputs": self.random_inputs,
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        });
        format!("{}\n", serde_json::to_string_pretty(&all).unwrap_or_default())
    }
}
