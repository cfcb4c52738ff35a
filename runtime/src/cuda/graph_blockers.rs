//! Control flow that no CUDA graph holds.
use crate::control::{ControlFlow, Step};

/// Why the programs do not form one CUDA graph, in words.
pub(super) fn graph_blockers(flow: &ControlFlow) -> Vec<String> {
    let mut all = vec![];
    flow.control.body.visit(&mut |step| {
        let (what, source, why) = match step {
            Step::Call { .. } => return,
            Step::If { source, .. } => {
                ("kiln.if", source, "chooses by a value of the GPU, for which the host waits")
            }
            Step::While { source, .. } => (
                "kiln.while",
                source,
                "goes on by a value of the GPU, for which the host waits each time",
            ),
            Step::Scan { source, .. } => {
                ("kiln.scan", source, "has its programs launched by the host for each slice")
            }
            Step::UnbackedSize { source, .. } => {
                ("kiln.unbacked_size", source, "is a value of the GPU, for which the host waits")
            }
            Step::Custom { source, .. } => {
                ("kiln.custom_call", source, "calls a function of the host")
            }
        };
        let place = if source.is_empty() { String::new() } else { format!(" of {source}") };
        all.push(format!("no CUDA graph of the whole program: {what}{place} {why}"));
    });
    all
}
