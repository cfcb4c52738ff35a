//! probe
use kiln::{
    capture::pt2,
    dialects::{interp::*, ir::*, value::*},
};
fn load(path: &str) -> Vec<(String, Tensor)> {
    let bytes = std::fs::read(path).unwrap();
    let st = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    st.tensors()
        .into_iter()
        .map(|(n, v)| {
            let d = match v.dtype() {
                safetensors::Dtype::F32 => DType::F32,
                safetensors::Dtype::I64 => DType::I64,
                safetensors::Dtype::BOOL => DType::I1,
                d => panic!("{d:?}"),
            };
            (n, d.decode(v.shape(), v.data()).unwrap())
        })
        .collect()
}
fn main() {
    for path in std::env::args().skip(1) {
        let c = Context::new();
        let t = std::time::Instant::now();
        let cap = match pt2::import(c.ctx(), path.as_ref()) {
            Ok(x) => x,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let t1 = t.elapsed();
        let base = path.trim_end_matches(".pt2").trim_end_matches(".core");
        let io = load(&format!("{base}.safetensors"));
        let mut inputs = vec![];
        for i in 0.. {
            match io.iter().find(|x| x.0 == format!("input_{i}")) {
                Some(x) => inputs.push(x.1.clone()),
                None => break,
            }
        }
        let globals = |name: &str, _: &str| cap.weight(name);
        for (what, pipeline) in
            [("graph", ""), ("prims", "kiln-refine-shapes,kiln-simplify,canonicalize,cse,kiln-decompose{keep=strategies}")]
        {
            let r = kiln::passes::run_pipeline(&cap.module, &format!("builtin.module({pipeline})"), &Default::default(), &|_, _, _| ());
            let rep = match r {
                Ok(r) => r,
                Err(e) => {
                    println!("{path} {what}: {e}");
                    break;
                }
            };
            let t = std::time::Instant::now();
            let interp = Interpreter { mode: Mode::Exact, globals: &globals, custom_calls: Default::default(), max_iterations: 10 };
            match interp.run(cap.module.op(), "main", &inputs) {
                Err(e) => println!("{path} {what}: {e}"),
                Ok(out) => {
                    let mut worst = 0f64;
                    for (i, o) in out.iter().enumerate() {
                        let want = &io.iter().find(|x| x.0 == format!("output_{i}")).unwrap().1;
                        assert_eq!(want.shape(), o.shape());
                        let v = |t: &Tensor| match t.data() {
                            Data::F(x) => x.clone(),
                            Data::I(x) => x.iter().map(|x| *x as f64).collect(),
                        };
                        let (a, b) = (v(o), v(want));
                        let num: f64 = a.iter().zip(&b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
                        let den: f64 = b.iter().map(|y| y * y).sum::<f64>().sqrt();
                        worst = worst.max(num / den.max(1e-30));
                    }
                    println!(
                        "{path} {what}: {} outputs, worst {worst:.2e}, {} ops, import {t1:?}, passes {:.1} ms, run {:?}",
                        out.len(),
                        walk(cap.module.op()).len(),
                        rep.seconds * 1e3,
                        t.elapsed()
                    );
                }
            }
        }
        if std::env::var("PRINT").is_ok() {
            println!("{}", cap.module.print(PrintOptions { names_from_locations: true, ..Default::default() }));
        }
    }
}
