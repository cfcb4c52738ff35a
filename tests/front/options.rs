//! Options, modes, backends, eager ops.
use super::*;
use kiln::{
    backend::{self, Backend, GraphModule, Runnable},
    tensor::{Array, with_backend},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

fn relu(x: Tensor) -> Tensor {
    x.relu()
}

#[test]
fn unknown_names_are_errors_with_the_nearest_one() {
    let x = counting(&[2]);
    for (text, want) in [
        (
            message(kiln::compile(relu).options([("cache_size_limt", "3")]).call(&x)),
            "no option 'cache_size_limt'; did you mean 'cache_size_limit'?",
        ),
        (
            message(kiln::compile(relu).options([("threads", "none")]).check()),
            "option threads is 'none', not a number",
        ),
        (
            message(kiln::compile(relu).mode("max-autotun").call(&x)),
            "no mode 'max-autotun'; did you mean 'max-autotune'?",
        ),
        (
            message(kiln::compile(relu).backend("interpreted").call(&x)),
            "did you mean 'interpreter'?",
        ),
        (message(kiln::compile(relu).backend("cudagraph").call(&x)), "did you mean 'cudagraphs'?"),
        (message(kiln::compile(relu).device("gpu").call(&x)), "'gpu' is no device"),
    ] {
        assert!(text.contains(want), "{text}");
    }
}

#[test]
fn an_option_that_does_nothing_says_so() {
    let f =
        kiln::compile(relu).options([("max_autotune", "false"), ("triton.cudagraphs", "false")]);
    assert!(f.remarks().is_empty(), "{:?}", f.remarks());
    let f = kiln::compile(relu).mode("reduce-overhead").backend("interpreter");
    f.call(counting(&[2])).expect("a result");
    assert!(f.remarks().iter().any(|r| r.message.contains("on the host")), "{:?}", f.remarks());
}

#[test]
fn every_option_is_listed_and_modes_consist_of_options() {
    let all = kiln::list_options();
    for name in [
        "max_autotune",
        "shape_padding",
        "triton.cudagraphs",
        "trace.enabled",
        "trace.graph_diagram",
    ] {
        assert!(all.iter().any(|o| o.name == name || o.torch == Some(name)), "{name}");
    }
    assert!(all.iter().all(|o| o.summary.len() > 10 && o.variable.starts_with("KILN_")));
    let modes = kiln::list_mode_options();
    assert_eq!(
        modes.iter().map(|(m, _)| *m).collect::<Vec<_>>(),
        ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
    );
    assert!(
        modes.iter().flat_map(|(_, o)| *o).all(|(name, _)| all.iter().any(|o| o.name == *name))
    );
}

#[test]
fn captured_graphs_are_kept_where_an_option_says() {
    for keep in ["true", "false"] {
        let f = kiln::compile(relu).options([("keep_graphs", keep)]);
        f.call(counting(&[2])).expect("a result");
        let text = f.explain().to_string();
        assert_eq!(text.contains("func.func @"), keep == "true", "{text}");
    }
}

/// Counts graphs, and gives its inputs back.
struct Echo(AtomicUsize);
struct Echoed;
impl Backend for Echo {
    fn name(&self) -> &str {
        "echo"
    }
    fn summary(&self) -> &str {
        "gives the inputs back"
    }
    fn compile(&self, graph: &GraphModule, _: &kiln::Options) -> Result<Arc<dyn Runnable>, Error> {
        assert!(
            graph.text().contains("kiln.relu") && graph.inputs() == ["arg0"],
            "{}",
            graph.text()
        );
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Echoed))
    }
}
impl Runnable for Echoed {
    fn run(&self, inputs: &[kiln::runtime::View]) -> Result<Vec<Array>, Error> {
        let one = |v: &kiln::runtime::View| {
            let dtype = kiln::dialects::value::DType::from_name(v.dtype()).expect("a dtype");
            Array::from_bytes(dtype, v.shape(), v.copied().expect("memory").bytes())
                .expect("an array")
        };
        Ok(inputs.iter().map(one).collect())
    }
}

#[test]
fn backends_are_selected_by_name_or_custom() {
    crate::watchdog::arm();
    let names = || kiln::list_backends().into_iter().map(|b| b.name).collect::<Vec<_>>();
    assert_eq!(names()[..4], ["kiln", "eager", "interpreter", "cudagraphs"]);
    let echo = Arc::new(Echo(AtomicUsize::new(0)));
    backend::register(echo.clone()).expect("a new name");
    assert!(
        message(backend::register(echo.clone())).contains("already")
            && names().contains(&"echo".to_string())
    );
    let x = counting(&[3]) - 1;
    let f = |name: &str| kiln::compile(relu).backend(name);
    let own = f("echo");
    (0..2).for_each(|_| assert_eq!(numbers(&own.call(&x).expect("a result")), [-1.0, 0.0, 1.0]));
    assert_eq!(echo.0.load(Ordering::Relaxed), 1);
    for name in ["kiln", "eager", "interpreter", "cudagraphs"] {
        let f = f(name);
        assert_eq!(numbers(&f.call(&x).expect("a result")), [0.0, 0.0, 1.0], "{name}");
        assert_eq!(f.programs(), usize::from(name != "eager"));
    }
}

#[test]
fn ops_run_eagerly_outside_of_a_trace() {
    crate::watchdog::arm();
    let x = counting(&[2, 3]);
    for name in ["interpreter", "kiln"] {
        let run = || {
            let y = (&x * 2 + 1).reshape((3, 2)).transpose(0, 1);
            let (values, at) = y.max_dim(0, false);
            (y, values, at, x.sum(.., false).item::<f64>().expect("a number"), x.to_string())
        };
        let (y, values, at, sum, text) = with_backend(name, run).expect("a backend");
        assert_eq!(y.to_vec::<f32>().expect("f32"), [1.0, 5.0, 9.0, 3.0, 7.0, 11.0]);
        assert_eq!(
            (numbers(&values), at.to_vec::<i64>().expect("i64")),
            (vec![3.0, 7.0, 11.0], vec![1, 1, 1])
        );
        assert_eq!(
            (sum, text.as_str(), y.type_name().as_str()),
            (15.0, "[[0, 1, 2],\n[3, 4, 5]]", "f32[3, 2]".replace("3, 2", "2, 3").as_str())
        );
    }
    assert!(rejected_arguments(&x).contains("is f32, not f64"));
    assert!(x.item::<f64>().is_err() && Tensor::from_slice(&[3], &[1.0f32]).is_err());
}

fn rejected_arguments(x: &Tensor) -> String {
    x.to_vec::<f64>().expect_err("another dtype").to_string()
}

#[test]
fn arrays_come_from_bytes_numbers_values_and_weights() {
    use kiln::{capture::weight::Weight, dialects::value::DType, tensor::Graph};
    let bytes = [1.0f32, -2.5].map(f32::to_le_bytes).concat();
    let a = Tensor::from_bytes(DType::F32, &[2], &bytes).expect("a tensor");
    let value = a.value().expect("a value");
    for array in [
        a.array().expect("elements"),
        Array::from_value(&value).into(),
        Array::from_weight(&Weight::from_tensor(&value)).expect("a weight").into(),
    ] {
        assert_eq!(
            (array.bytes().expect("bytes").bytes(), array.shape(), array.dtype()),
            (&bytes[..], &[2usize][..], DType::F32)
        );
    }
    assert!(
        Tensor::from_bytes(DType::F32, &[3], &bytes).is_err()
            && Tensor::from_bytes(DType::I1, &[1], &[2]).is_err()
    );
    assert_eq!(
        Tensor::from_slice(&[2], &[true, false])
            .expect("a tensor")
            .to_vec::<bool>()
            .expect("truth values"),
        [true, false]
    );
    assert!(Graph::current().is_eager());
    kiln::trace(|g| {
        assert!(!Graph::current().is_eager() && !g.is_eager());
        // An array with elements is a constant of a trace.
        Ok(g.input("x", DType::F32, (2,)) + &a)
    })
    .expect("a program");
    // A handle of a finished trace is an error, not a crash.
    let mut late = None;
    kiln::trace(|g| {
        let x = g.input("x", DType::F32, (2,));
        late = Some(x.clone());
        Ok(x)
    })
    .expect("a program");
    let late = late.expect("a handle");
    assert!(
        (&late + 1).to_vec::<f32>().is_err()
            && late.dtype().is_err()
            && kiln::compile(relu).call(&late).is_err()
    );
}

/// `explain` reports the program's memory, passes and copies.
#[test]
fn explain_reports_memory_passes_and_copies() {
    use kiln::{
        compile::GraphInfo,
        dialects::ir::{Context, Module},
    };
    crate::watchdog::arm();
    // Two matmuls that do not fuse: 8 x 16 floats of intermediate memory.
    let layer = kiln::nn::Linear::without_bias(&kiln::nn::Scope::root(), 16, 16);
    use kiln::nn::Module as _;
    let f = kiln::compile(move |x: Tensor| layer.forward(&layer.forward(&x).softmax(1)))
        .freeze(true)
        .options([("cache_dir", "off")]);
    f.call(counting(&[8, 16])).expect("a result");
    let explained = f.explain();
    let (graph, text) = (&explained.graphs[0], explained.to_string());
    assert!(graph.kernels.len() > 1 && graph.kernels.len() == graph.kinds.len(), "{text}");
    let arena: usize = graph.arena.parse().expect("a number, since sizes are");
    assert!(arena >= 8 * 16 * 4, "{text}");
    // The weight, and its packing.
    assert!(graph.weights.0 == 16 * 16 * 4 && graph.weights.1 >= 16 * 16 * 4, "{text}");
    let line = format!(
        "memory between kernels: {arena} bytes; weights: {} bytes, and {} made of them once",
        graph.weights.0, graph.weights.1
    );
    assert!(text.contains(&line), "{text}");
    // Slowest first, each once, with its runs.
    assert!(
        graph.passes.len() > 20 && graph.passes.windows(2).all(|p| p[0].time >= p[1].time),
        "{text}"
    );
    let shown = text.lines().filter(|l| l.contains("time of pass ")).count();
    assert_eq!(shown, 12, "{text}");
    assert!(text.contains(&format!("time of pass {}: ", graph.passes[0].pass)), "{text}");
    assert!(graph.passes.iter().any(|p| p.runs > 1), "{text}");
    assert!(graph.copies.is_empty() && !text.contains("copy: "), "{text}");

    // An argument declared column-major is copied if it is not.
    let source = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = kiln.exp %x : tensor<4x8xf32>
    %1 = kiln.add %0, %y : tensor<4x8xf32>
    return %1 : tensor<4x8xf32>
  }
}
";
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), source.as_bytes(), "m.mlir").expect("IR");
    let options = kiln::Options { orders: [(1, vec![1, 0])].into(), ..Default::default() };
    let exe = kiln::Model::from_module(&module, std::path::Path::new(""))
        .compile(&options)
        .expect("compiles");
    let info = GraphInfo::of(exe.program(), Some(exe.times()));
    let text = info.to_string();
    let copies: Vec<&str> = text.lines().filter(|l| l.contains("copy: ")).collect();
    assert!(
        copies.len() == 1
            && copies[0].contains("argument 'input_1'")
            && copies[0].contains("[1, 0]"),
        "{text}"
    );
}

/// On the host `reduce-overhead` caches result memory and reuses it once no handle is left.
#[test]
fn reduce_overhead_reuses_released_memory() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| x * 2 + 1).mode("reduce-overhead");
    let at = |t: &Tensor| t.array().expect("elements").bytes().expect("bytes").bytes().as_ptr();
    let call = |k: i64| f.call(&(counting(&[1000]) + k)).expect("a result");
    let first = call(0);
    let place = at(&first);
    drop(first);
    // Would reuse the memory if it were free.
    let others: Vec<Tensor> = (0..50).map(|_| counting(&[1000])).collect();
    let second = call(1);
    assert_eq!(at(&second), place);
    let third = call(2);
    assert!(at(&third) != place && others.iter().all(|o| at(o) != at(&third)));
    for (t, k) in [(&second, 1.0), (&third, 2.0)] {
        assert_eq!(numbers(t)[..3], [2.0 * k + 1.0, 2.0 * k + 3.0, 2.0 * k + 5.0]);
    }
    // A view that outlives the handle keeps it alive.
    let held = second.array().expect("elements");
    drop((second, third));
    let more: Vec<Tensor> = (3..6).map(&call).collect();
    assert!(more.iter().all(|t| at(t) != place) && held.to_vec::<f32>().expect("floats")[0] == 3.0);
}

/// A program reports its guards and what prevents a CUDA graph, without a call.
#[test]
fn a_program_reports_guards_and_what_prevents_a_graph() {
    use kiln::{
        compile::GraphInfo,
        runtime::{
            Program,
            program::{Condition, Dim, Expr, ExprKind, Kernel, Relation, Symbol, Target, Tensor},
        },
    };
    let tensor = |name: &str, dims: Vec<Dim>| Tensor {
        name: name.into(),
        dtype: "bf16".into(),
        dims,
        order: vec![],
    };
    let mut program = Program {
        target: Target { arch: "cuda".into(), cpu: "sm_90a".into(), ..Default::default() },
        inputs: vec![
            tensor("x", vec![Dim::Symbol(0), Dim::Known(4)]),
            tensor("y", vec![Dim::Expr(0)]),
        ],
        outputs: vec![tensor("z", vec![Dim::Symbol(0)])],
        symbols: vec![Symbol {
            name: "s0".into(),
            min: 2,
            max: Some(64),
            divisor: 8,
            input: 0,
            dim: 0,
        }],
        exprs: vec![Expr { kind: ExprKind::Add, lhs: Dim::Symbol(0), rhs: Dim::Known(1) }],
        conditions: vec![Condition {
            kind: Relation::Ne,
            lhs: Dim::Symbol(0),
            rhs: Dim::Known(24),
            text: "s0 != 24 (m.py:3)".into(),
        }],
        kernels: vec![Kernel::default()],
        ..Default::default()
    };
    let text = GraphInfo::of(&program, None).to_string();
    for line in [
        "  guard x: bf16[s0, 4]\n  guard y: bf16[(s0 + 1)]\n  guard s0 = x.size(0) in 2..=64, a multiple of 8\n  guard s0 != 24 (m.py:3)\n",
        "not all of the call: argument 'x', 'y' is copied outside of it where it lies in the host's memory, or not at a multiple of 16 bytes\n",
        "not all of the call: result 'z' is copied",
        "not all of the call: calls with other values of s0 have a graph of their own\n",
    ] {
        assert!(text.contains(line), "no '{line}' in\n{text}");
    }
    assert!(!text.contains("launches no kernel"), "{text}");
    program.kernels.clear();
    assert!(
        GraphInfo::of(&program, None).cudagraphs.contains(&"it launches no kernel".to_string())
    );
}

/// Like a GPU program whose calls were copied.
struct Copying;
impl Backend for Copying {
    fn name(&self) -> &str {
        "copying"
    }
    fn summary(&self) -> &str {
        "says what calls copy"
    }
    fn compile(&self, _: &GraphModule, _: &kiln::Options) -> Result<Arc<dyn Runnable>, Error> {
        Ok(Arc::new(Copying))
    }
}
impl Runnable for Copying {
    fn run(&self, inputs: &[kiln::runtime::View]) -> Result<Vec<Array>, Error> {
        Echoed.run(inputs)
    }
    fn remarks(&self) -> Vec<String> {
        vec![
            "argument 'x' lies in the host's memory: it is copied outside of the CUDA graph".into(),
            "no CUDA graphs: each launch is waited for".into(),
        ]
    }
}

/// `explain` reports what a backend's calls have shown: copies, and what prevents a CUDA graph.
#[test]
fn explain_reports_copies_and_what_prevents_a_graph() {
    backend::register(Arc::new(Copying)).expect("a new name");
    let f = kiln::compile(relu).backend("copying");
    f.call(counting(&[3])).expect("a result");
    let explained = f.explain();
    let graph = &explained.graphs[0];
    assert!(
        graph.copies.len() == 1
            && graph.copies[0].starts_with("argument 'x' lies in the host's memory"),
        "{explained}"
    );
    assert_eq!(graph.cudagraphs.len(), 2, "{explained}");
    let text = explained.to_string();
    for line in [
        "  copy: argument 'x' lies",
        "  no CUDA graph, or not all of the call: no CUDA graphs: each launch is waited for\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
