//! Control flow of an exported program at two sizes: interpreted at `graph` and `prims`, and
//! compiled.
use super::*;

#[test]
fn control_flow_as_pytorch() {
    crate::watchdog::arm();
    let path = root().join("capture/control.pt2");
    let exe = kiln::load(&path)
        .expect("an archive")
        .compile(&kiln::Options { threads: 2, ..Default::default() })
        .expect("compiles");
    for numbers in ["control", "control.other"] {
        let file = root().join(format!("capture/{numbers}.safetensors"));
        let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
        assert_eq!(want.len(), 5);
        let c = Context::new();
        let captured = import(&c, &path);
        let wrong = differences(&captured, &inputs, &want);
        assert!(wrong.is_empty(), "{numbers} at graph: {}", wrong.join("\n"));
        lower(&captured);
        let wrong = differences(&captured, &inputs, &want);
        assert!(wrong.is_empty(), "{numbers} at prims: {}", wrong.join("\n"));
        let have = exe.call_values(&inputs.iter().collect::<Vec<_>>()).expect("a call");
        for (i, (have, want)) in have.iter().zip(&want).enumerate() {
            let found = tolerance::compare(have, want).expect("the same sizes");
            assert!(found.ok, "{numbers} compiled, output {i}: {found}");
        }
    }
}
