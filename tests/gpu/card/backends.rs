//! The backend conformance suite, and the one-op-per-kernel backend: each call replays its kernels
//! as one CUDA graph.
use super::*;
use kiln::{Tensor, backend::conformance_on};

pub static SUITE: Suite =
    Suite { name: "backends", count: || 3, label, check, whole: true, emulated: 1 };

/// The backends that run on a GPU; the others run on the host.
const BACKENDS: [&str; 2] = ["kiln", "cudagraphs"];

fn label(item: u64) -> String {
    BACKENDS
        .get(item as usize)
        .map_or("one kernel an op, in one graph".into(), |name| format!("{name} conforms"))
}

fn check(item: u64) -> Outcome {
    let wrong = match BACKENDS.get(item as usize) {
        Some(backend) => conformance_on(backend, &device())
            .map(|all| {
                all.into_iter()
                    .filter_map(|o| Some(format!("{}: {}", o.name, o.mismatch?)))
                    .collect()
            })
            .unwrap_or_else(|e| vec![e.to_string()]),
        None => one_graph().unwrap_or_else(|e| vec![e.to_string()]),
    };
    Outcome::of(wrong)
}

/// Errors of a function of four ops at two sizes, with several calls each.
fn one_graph() -> Result<Vec<String>, Error> {
    let f = kiln::compile(|x: Tensor| ((x * 2).exp() + 1).sum(1, false))
        .backend("cudagraphs")
        .device(&device())
        .dynamic(true);
    let mut wrong = vec![];
    for (rows, columns) in [(8usize, 16usize), (5, 7), (8, 16)] {
        let x: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32 / 8.0).collect();
        let want: Vec<f32> =
            x.chunks(columns).map(|row| row.iter().map(|x| (2.0 * x).exp() + 1.0).sum()).collect();
        let x = Tensor::from_slice(&[rows, columns], &x)?;
        for call in 0..4 {
            let have = f.call(&x)?.to_vec::<f32>()?;
            if have.len() != want.len()
                || have.iter().zip(&want).any(|(a, b)| (a - b).abs() > 1e-4 * b.abs())
            {
                wrong.push(format!("call {call} of {rows} x {columns}: {have:?}, not {want:?}"));
            }
        }
    }
    let explained = f.explain();
    let graph = &explained.graphs[0];
    // Host tensors are copied, and nothing else prevents the graph.
    let copies = |text: &String| {
        text.ends_with("lies in the host's memory: it is copied outside of the CUDA graph")
    };
    if graph.kernels.len() != 4
        || (device() != "cpu"
            && (graph.cudagraphs.len() != 2 || !graph.cudagraphs.iter().all(copies)))
    {
        wrong.push(explained.to_string());
    }
    Ok(wrong)
}
