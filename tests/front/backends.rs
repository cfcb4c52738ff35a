//! The backend conformance suite, which correct backends pass and faulty ones fail; the
//! one-op-per-kernel backend.
use super::*;
use kiln::{
    backend::{self, Backend, GraphModule, Runnable},
    dialects::value::{self, DType, Data},
    runtime::View,
    tensor::Array,
};
use std::sync::Arc;

/// The functions that the backend computes wrongly, with reasons.
fn mismatch(name: &str) -> Vec<(&'static str, String)> {
    let all = backend::conformance(name).expect("a backend");
    assert!(all.len() > 25, "{}", all.len());
    all.into_iter().filter_map(|o| Some((o.name, o.mismatch?))).collect()
}

#[test]
fn backends_conform() {
    crate::watchdog::arm();
    for name in ["kiln", "eager", "interpreter", "cudagraphs"] {
        let found = mismatch(name);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    assert!(message(backend::conformance("none")).contains("no backend 'none'"));
    assert!(backend::conformance_on("kiln", "nowhere").is_err());
}

/// The fault of a test backend.
enum Fault {
    /// Returns its inputs.
    Copies,
    /// Results of this dtype have this relative error.
    Off(DType, f64),
    /// Fails to compile.
    Refuses,
}

struct Faulty(&'static str, Fault);
struct Program(Option<Arc<dyn Runnable>>, Option<(DType, f64)>);

impl Backend for Faulty {
    fn name(&self) -> &str {
        self.0
    }
    fn summary(&self) -> &str {
        "is wrong"
    }
    fn compile(
        &self,
        graph: &GraphModule,
        options: &kiln::Options,
    ) -> Result<Arc<dyn Runnable>, Error> {
        let right = || {
            backend::find("interpreter")?
                .ok_or_else(|| Error::Backend("is gone".into()))?
                .compile(graph, options)
        };
        match &self.1 {
            Fault::Copies => Ok(Arc::new(Program(None, None))),
            Fault::Off(dtype, by) => Ok(Arc::new(Program(Some(right()?), Some((*dtype, *by))))),
            Fault::Refuses => Err(Error::Backend("knows no op".into())),
        }
    }
}

impl Runnable for Program {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        let Some(right) = &self.0 else {
            let one = |v: &View| {
                let dtype = DType::from_name(v.dtype()).expect("a dtype");
                Ok(Array::from_bytes(dtype, v.shape(), v.copied().expect("memory").bytes())?)
            };
            return inputs.iter().map(one).collect();
        };
        let spoilt = |a: Array| -> Result<Array, Error> {
            let value = a.value()?;
            match (self.1, value.data()) {
                (Some((dtype, by)), Data::F(all)) if value.dtype() == dtype => {
                    let all = all.iter().map(|x| x * (1.0 + by)).collect();
                    Ok(Array::from_value(&value::Tensor::new(
                        dtype,
                        value.shape().to_vec(),
                        Data::F(all),
                    )?))
                }
                _ => Ok(a),
            }
        };
        right.run(inputs)?.into_iter().map(spoilt).collect()
    }
}

/// The suite names what a faulty backend has wrong: everything, or the one dtype whose error
/// slightly exceeds its tolerance.
#[test]
fn wrong_backends_do_not_conform() {
    crate::watchdog::arm();
    let names = |name: &'static str, fault: Fault| {
        backend::register(Arc::new(Faulty(name, fault))).expect("a new name");
        mismatch(name)
    };
    let total = backend::conformance("eager").expect("a backend").len();
    let copies = names("copies", Fault::Copies);
    // It has no program for a function that returns its argument, and adds nothing to no elements.
    assert!(
        copies.len() == total - 2 && copies.iter().all(|(n, _)| !["identity", "empty"].contains(n)),
        "{copies:?}"
    );
    assert!(
        copies.iter().any(|(n, why)| *n == "sum of rows"
            && why.starts_with("static: is f32 [3, 4], but f32 [3] is expected")),
        "{copies:?}"
    );
    for (name, dtype, by, only) in [
        ("off in f64", DType::F64, 1e-11, "double precision"),
        ("off in f16", DType::F16, 8e-3, "half precision"),
        ("off in bf16", DType::BF16, 6e-2, "bfloat16"),
    ] {
        let found = names(name, Fault::Off(dtype, by));
        assert!(
            found.len() == 1 && found[0].0 == only && found[0].1.contains("MISMATCH"),
            "{found:?}"
        );
    }
    let found: Vec<_> =
        names("off in f32", Fault::Off(DType::F32, 1e-4)).into_iter().map(|(n, _)| n).collect();
    let right = [
        "identity",
        "comparison",
        "conversion",
        "double precision",
        "half precision",
        "bfloat16",
        "integers",
        "empty",
    ];
    assert!(
        found.len() == total - right.len() && right.iter().all(|n| !found.contains(n)),
        "{found:?}"
    );
    let refuses = names("refuses", Fault::Refuses);
    assert!(
        refuses.len() == total - 1 && refuses.iter().all(|(_, why)| why.contains("knows no op")),
        "{refuses:?}"
    );
}

/// Each op is a kernel, whatever its neighbours, and the statement about CUDA graphs holds.
#[test]
fn one_op_kernels_are_not_fused() {
    crate::watchdog::arm();
    let f = |backend: &str| {
        kiln::compile(|x: Tensor| ((x * 2).exp() + 1).sum(1, false)).backend(backend).dynamic(true)
    };
    let x = counting(&[2, 3]) / 4;
    let (fused, alone) = (f("kiln"), f("cudagraphs"));
    let want = numbers(&fused.call(&x).expect("a result"));
    for (have, want) in numbers(&alone.call(&x).expect("a result")).iter().zip(&want) {
        assert!((have - want).abs() < 1e-5 * want.abs(), "{have} {want}");
    }
    let kernels = |e: kiln::compile::Explanation| e.graphs[0].kernels.clone();
    assert_eq!(kernels(fused.explain()).len(), 1);
    let explained = alone.explain();
    let ops: Vec<_> = kernels(explained.clone()).into_iter().map(|(_, ops)| ops).collect();
    assert_eq!(ops, [["mul"], ["exp"], ["add"], ["reduce"]], "{explained}");
    let said = "no CUDA graph, or not all of the call: the program is for the host, which has none";
    assert!(explained.to_string().contains(said), "{explained}");
    // Other sizes are further calls of the same program.
    assert_eq!(numbers(&alone.call(counting(&[5, 4])).expect("a result")).len(), 5);
    assert_eq!(alone.programs(), 1);
}
