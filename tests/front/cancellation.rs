//! Cancelled compilations.
use super::*;
use kiln::{
    Options,
    lowering::{CancellationToken, driver::compile::CompileError},
    model::CachePolicy,
    tensor::TraceError,
};
use std::time::Duration;

fn archive() -> kiln::Model {
    kiln::load(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/mlp.pt2"))
        .unwrap()
}

#[test]
fn a_model_compilation_times_out() {
    let options = Options {
        cache: CachePolicy::Off,
        time_budget: Some(Duration::from_nanos(1)),
        ..Options::default()
    };
    let late = archive().compile(&options).err().expect("no time");
    assert!(matches!(late, kiln::Error::Compile(CompileError::Cancelled(_))), "{late}");
    assert!(late.to_string().contains("time budget"), "{late}");
    assert!(archive().compile(&Options { time_budget: Some(Duration::MAX), ..options }).is_ok());
}

/// Cancellation during passes or kernels ends the compilation, and the next one is complete.
#[test]
fn cancellation_from_another_thread() {
    let options = Options { cache: CachePolicy::Off, workers: 1, ..Options::default() };
    let stop = CancellationToken::new();
    // At the first kernel it cancels; the others are not compiled.
    let progress = |_, all: usize| {
        assert!(all > 2);
        stop.cancel();
    };
    let outcome = archive()
        .compile_with(&Options { cancellation: stop.clone(), ..options.clone() }, &progress);
    assert!(matches!(
        outcome.err(),
        Some(kiln::Error::Compile(CompileError::Cancelled(
            kiln::lowering::CancellationError::Cancelled
        )))
    ));
    assert!(archive().compile(&options).is_ok());
}

#[test]
fn a_function_past_its_timeout_runs_eagerly() {
    let f = kiln::compile(|x: Tensor| (&x * 2).relu())
        .options([("time_budget", "0.000000001"), ("cache_dir", "off")])
        .name("slow");
    let x = Tensor::from_slice(&[2], &[1.0f32, -1.0]).unwrap();
    for _ in 0..2 {
        assert_eq!(f.call(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 0.0]);
    }
    let said: Vec<String> = f.remarks().iter().map(|r| r.to_string()).collect();
    assert!(said.len() == 1 && said[0].contains("time budget"), "{said:?}");
    assert_eq!((f.programs(), f.explain().eager_calls), (0, 2));
    let f = kiln::compile(|x: Tensor| &x + 1).options([("cache_dir", "off")]);
    f.cancellation_token().cancel();
    assert_eq!(f.call(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 0.0]);
    assert_eq!(f.programs(), 0);
    // A function with graph breaks, too; other functions are unaffected.
    let reads = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        Ok(if x.abs().sum(.., false).item::<f64>()? > 0.0 { (&x + 1).relu() } else { x })
    });
    reads.cancellation_token().cancel();
    assert_eq!(reads.call(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 0.0]);
    let other = kiln::compile(|x: Tensor| &x + 1).options([("cache_dir", "off")]);
    assert_eq!(
        (other.call(&x).unwrap().to_vec::<f32>().unwrap(), other.programs()),
        (vec![2.0, 0.0], 1)
    );
    assert!(kiln::compile(|x: Tensor| x).options([("time_budget", "soon")]).check().is_err());
}
