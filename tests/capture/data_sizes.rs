//! Sizes that depend on data: compiled, as PyTorch's.
use super::*;

#[test]
fn sizes_that_depend_on_data_as_pytorch() {
    crate::watchdog::arm();
    let path = root().join("capture/aten_data_sizes.pt2");
    let model = kiln::load(&path).expect("an archive");
    let exe = model.compile(&kiln::Options { threads: 2, ..Default::default() }).expect("compiles");
    let file = path.with_extension("safetensors");
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    let have = exe.call_values(&inputs.iter().collect::<Vec<_>>()).expect("a call");
    let have: Vec<_> =
        (0..have.len()).filter(|i| !exe.program().is_size(*i)).map(|i| &have[i]).collect();
    assert_eq!(have.len(), want.len());
    for (i, (have, want)) in have.iter().zip(&want).enumerate() {
        let found = tolerance::compare(have, want).map_err(|e| format!("output {i} {e}"));
        let found = found.expect("the same sizes");
        assert!(found.ok, "output {i}: {found}");
    }
}
