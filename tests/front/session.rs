//! Programs with state: a decoder's cache stays on the device, is updated in place, one row a step,
//! and its scores are PyTorch's.
use super::*;
use kiln::{
    Model, Options, Session,
    dialects::{
        ir::{Context, Module},
        value,
    },
    opt::tensors,
    runtime::{DeviceId, Program, program::Dim},
    tolerance,
};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    crate::support::repository().join("examples/generate")
}

fn options(device: &str) -> Options {
    let device = DeviceId::parse(device).expect("a device");
    Options { device, threads: 2, ..Options::default() }
}

/// One step of the decoder.
fn step(s: &mut Session, token: i64, at: i64) -> Result<value::Tensor, Error> {
    let (token, at) = (Tensor::from_slice(&[1, 1], &[token])?, Tensor::from_slice(&[1], &[at])?);
    let mut results = s.call(&[&token, &at])?;
    assert_eq!(results.len(), 1, "the new state is no result");
    Ok(results.remove(0).value()?)
}

fn addresses(s: &Session) -> Vec<Option<u64>> {
    s.state().map(|(_, t)| t.address()).collect()
}

/// Each step's scores are PyTorch's, from an empty cache, twice, and the state stays where it is.
pub fn decodes(device: &str) -> Result<(), Error> {
    let read = tensors::read(&folder().join("steps.safetensors"), |_| true);
    let data = read.map_err(|e| Error::Backend(e.message))?;
    let (tokens, want) = (data["tokens"].as_i()?, data["scores"].as_f()?);
    let count = want.len() / tokens.len();
    let mut decoder = kiln::load(folder().join("model.pt2"))?.session(&options(device))?;
    let mut other = decoder.another()?;
    let begin = addresses(&decoder);
    for round in 0..2 {
        for (i, (token, want)) in tokens.iter().zip(want.chunks(count)).enumerate() {
            let have = step(&mut decoder, *token, i as i64)?;
            let want = value::Tensor::floats(have.dtype(), vec![1, count], want.to_vec())?;
            let compared = tolerance::compare(&have, &want);
            let compared = compared.map_err(|e| Error::Backend(e.to_string()))?;
            let told = || Error::Backend(format!("round {round}, step {i}: {compared}"));
            compared.ok.then_some(()).ok_or_else(told)?;
            // Of the other session, which has seen nothing else.
            if round == 1 && i == 0 {
                assert_eq!(step(&mut other, *token, 0)?, have);
            }
        }
        if round == 0 {
            assert_eq!(addresses(&decoder), begin, "the state has moved");
            decoder.reset()?;
        }
    }
    Ok(())
}

#[test]
fn a_decoder_with_a_cache_has_the_scores_of_pytorch() -> Result<(), Error> {
    crate::watchdog::arm();
    decodes("cpu")
}

/// What the manifest of a decoder's program has to say.
fn one_row_a_step(p: &Program) {
    let bytes = |dims: &[Dim]| {
        let size = |d: &Dim| if let Dim::Known(n) = d { *n } else { 0 };
        4 * dims.iter().map(size).product::<i64>()
    };
    assert_eq!(p.states.len(), 8);
    for s in &p.states {
        let alias = p.aliases.iter().any(|a| (a.input, a.output) == (s.input, s.output));
        assert!(s.in_place && alias, "{s:?}");
        let cache = &p.inputs[s.input];
        let (whole, row) = (bytes(&cache.dims), bytes(&cache.dims) / 256);
        // One launch writes into it, of a row and what the row is computed of.
        let writers: Vec<_> = p.kernels.iter().filter(|k| k.updates.contains(&s.input)).collect();
        let [writer] = writers[..] else {
            panic!("{} launches write {}", writers.len(), cache.name)
        };
        let Some(Dim::Known(moved)) = writer.bytes else { panic!("{writer:?}") };
        assert!(moved < 8 * row && moved < whole / 16, "{} moves {moved} bytes", writer.name);
        assert!(writer.results.iter().all(|t| t.dims == cache.dims), "{writer:?}");
        // No launch reads the old value, and none but the writer has a result of that size.
        for k in p.kernels.iter().filter(|k| !k.updates.contains(&s.input)) {
            assert!(!k.inputs.contains(&s.input) && !k.outputs.contains(&s.output), "{k:?}");
            let copies = !k.updates.is_empty() || k.results.iter().all(|t| t.dims != cache.dims);
            assert!(copies, "{} has a result as large as {}", k.name, cache.name);
        }
    }
}

#[test]
fn a_step_writes_one_row_of_each_cache_and_copies_none() -> Result<(), Error> {
    crate::watchdog::arm();
    let model = kiln::load(folder().join("model.pt2"))?;
    for target in ["native", "cuda:sm_80", "cuda:sm_90a"] {
        let options = Options { target: Some(target.into()), states: true, ..Options::default() };
        one_row_a_step(&model.build(&options, &|_, _| ())?.0.program);
    }
    Ok(())
}

#[test]
fn a_package_has_the_initial_state() -> Result<(), Error> {
    crate::watchdog::arm();
    let options = Options { states: true, ..options("cpu") };
    let model = kiln::load(folder().join("model.pt2"))?;
    let mut package = model.build(&options, &|_, _| ())?.0;
    model.embed_weights(&mut package, &options)?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.kpkg");
    package.save(&file)?;
    let mut packed = kiln::load(&file)?.session(&options)?;
    assert_eq!(step(&mut packed, 5, 0)?, step(&mut model.session(&options)?, 5, 0)?);
    Ok(())
}

/// A session of a program whose states are updated in whole, by a row and by two rows.
fn sums(folder: &Path) -> Result<Session, Error> {
    const TEXT: &str = r#"module attributes {kiln.level = "graph"} {
  func.func @main(%x: tensor<1x4xf32>, %at: tensor<1xi64>, %sum: tensor<1x4xf32> {kiln.donated = "results", kiln.state = {result = 2 : i64, source = "w.safetensors#output_0"}}, %rows: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 0 : i64, source = "w.safetensors#output_1"}}, %some: tensor<6x4xf32> {kiln.donated = "results", kiln.state = {result = 3 : i64, source = "w.safetensors#output_1"}}) -> (tensor<6x4xf32>, tensor<4xf32>, tensor<1x4xf32>, tensor<6x4xf32>) {
    %0 = kiln.add %sum, %x : tensor<1x4xf32>
    %1 = kiln.scatter assign %rows[%at], %x dims = [0] : tensor<6x4xf32>[tensor<1xi64>], tensor<1x4xf32>
    %2 = kiln.reduce sum %1 dims = [0] : tensor<6x4xf32>
    %two = kiln.concat %at, %at axis = 0 : tensor<1xi64>, tensor<1xi64>
    %both = kiln.concat %x, %x axis = 0 : tensor<1x4xf32>, tensor<1x4xf32>
    %3 = kiln.scatter assign %some[%two], %both dims = [0] : tensor<6x4xf32>[tensor<2xi64>], tensor<2x4xf32>
    return %1, %2, %0, %3 : tensor<6x4xf32>, tensor<4xf32>, tensor<1x4xf32>, tensor<6x4xf32>
  }
}"#;
    let value = |shape: &[usize]| -> Result<_, Error> { Ok(counting(shape).value()?) };
    let values = [value(&[1, 4])?, value(&[6, 4])?];
    tensors::write(&folder.join("w.safetensors"), &values).expect("a file");
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), TEXT.as_bytes(), "sums.mlir")?;
    Model::from_module(&module, folder).session(&options("cpu"))
}

#[test]
fn values_that_somebody_holds_stay_what_they_are() -> Result<(), Error> {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = sums(folder.path())?;
    let (x, at) = (counting(&[1, 4]) + 10.0, |n: i64| Tensor::from_slice(&[1], &[n]));
    let state = |s: &Session| s.state().map(|(_, t)| t).collect::<Vec<_>>();
    // By name; held while a call gives them new values.
    let held = state(&s);
    let total = s.call(&[&x, &at(1)?])?;
    assert_eq!((total.len(), numbers(&total[0])), (1, vec![66.0, 72.0, 78.0, 84.0]));
    assert_eq!((numbers(&held[0]), numbers(&held[1])[4]), (vec![0.0, 1.0, 2.0, 3.0], 4.0));
    let new = state(&s);
    assert_eq!((numbers(&new[0]), numbers(&new[1])[4]), (vec![10.0, 12.0, 14.0, 16.0], 10.0));
    assert_eq!(numbers(&new[1])[8], 8.0, "a row that no call has written");
    assert_eq!(numbers(&new[1]), numbers(&new[2]));
    drop(new);
    let begin = addresses(&s);
    s.call(&[&x, &at(5)?])?;
    assert_eq!(addresses(&s), begin);
    assert_eq!(numbers(&state(&s)[1])[20..], [10.0, 11.0, 12.0, 13.0]);
    // A position out of range is refused before the program starts.
    let said = message(s.call(&[&x, &at(6)?]));
    assert!(said.contains("kiln.scatter"), "{said}");
    assert_eq!(numbers(&state(&s)[0]), [20.0, 23.0, 26.0, 29.0]);
    let said = message(s.call(&[&x]));
    assert!(said.contains('2') && said.contains('1'), "{said}");
    s.reset()?;
    assert_eq!(numbers(&state(&s)[0]), [0.0, 1.0, 2.0, 3.0]);
    // Without a session, each call has memory of its own for the new state.
    let program = s.executable();
    let rows = || counting(&[6, 4]);
    let zeros = [counting(&[1, 4]) * 0.0, at(2)?, counting(&[1, 4]), rows(), rows()];
    let values = zeros.iter().map(|t| t.value()).collect::<Result<Vec<_>, _>>()?;
    let results = program.call_values(&values.iter().collect::<Vec<_>>())?;
    assert_eq!(results[0].as_f()?[8..16], [0.0, 0.0, 0.0, 0.0, 12.0, 13.0, 14.0, 15.0]);
    assert_eq!(results[0], results[3]);
    Ok(())
}
