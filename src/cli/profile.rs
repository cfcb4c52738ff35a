//! `kiln run --profile`: a trace of a call's launches, for `chrome://tracing` and Perfetto.
use super::report::{SymbolValues, launches};
use crate::{
    model::{Executable, OwnedTensor},
    runtime::program::Kernel,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Track ids of the trace.
const KERNELS: u32 = 1;
const OPS: u32 = 2;

/// Trace of a call: launches end to end with their median times, on one track by kernel and on
/// another by graph op. Repeated launches in control flow are one event, at the first one's
/// position.
pub fn chrome(
    exe: &Executable,
    inputs: &[OwnedTensor],
    times: &[Duration],
    runs: &[usize],
) -> Value {
    let p = exe.program();
    let device_name = exe
        .device_info()
        .map_or_else(|| "host".to_string(), |c| format!("cuda:{} ({})", c.index, c.name));
    let named = |what: &str, tid: u32, name: &str| json!({"name": what, "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}});
    let mut events = vec![
        named("process_name", 0, &format!("{} on {device_name}", p.name)),
        named("thread_name", KERNELS, "kernels"),
        named("thread_name", OPS, "graph ops"),
    ];
    let mut start = Duration::ZERO;
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    for (i, ((k, numbers), (time, runs))) in
        launches(p, inputs).into_iter().zip(times.iter().zip(runs)).enumerate()
    {
        if *runs == 0 {
            continue;
        }
        let event = |name: &str, tid: u32, args: Value| json!({"name": name, "cat": k.kind, "ph": "X", "pid": 1, "tid": tid, "ts": us(start), "dur": us(*time), "args": args});
        events.push(event(&k.name, KERNELS, kernel_args(i, k, &numbers, *runs)));
        events.push(event(
            &k.ops.join(" "),
            OPS,
            json!({"launch": i, "kernel": k.name, "sources": k.sources}),
        ));
        start += *time;
    }
    let clock = if exe.device_info().is_some() {
        "the GPU's clock between launches"
    } else {
        "the host's clock, a barrier behind each launch included"
    };
    json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"program": p.name, "device": device_name, "times": format!("medians, {clock}")}})
}

fn kernel_args(i: usize, k: &Kernel, numbers: &SymbolValues, runs: usize) -> Value {
    let mut args = json!({
        "launch": i, "runs": runs, "symbol": k.symbol, "ops": k.ops, "sources": k.sources, "not_fused": k.not_fused, "reads": k.reads,
        "bytes": numbers.of_dim(k.bytes), "flops": numbers.of_dim(k.flops),
    });
    if let (Some(l), Some(all)) = (&k.launch, args.as_object_mut()) {
        all.insert("blocks".into(), numbers.of_dim(Some(l.grid)).max(1).into());
        all.insert("threads".into(), l.threads.into());
        all.insert("shared_bytes".into(), l.shared.into());
    }
    args
}
