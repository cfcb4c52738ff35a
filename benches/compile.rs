//! Cost of the compiler: contexts, parsing, passes, the interpreter, on a stack of transformer-like
//! layers.
//!
//! Peer: upstream's `canonicalize,cse` on the same IR in the same process. Results are in
//! docs/measurements.md.
#![allow(missing_docs)]
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kiln::{
    dialects::{
        interp::{Interpreter, Mode},
        ir::*,
        rules::Level,
        value::{DType, Tensor},
    },
    lowering::{
        Target,
        driver::compile::{CompileOptions, compile},
        pipeline_text, run_pipeline,
    },
};

/// `layers` layers of linear, gelu, linear, residual, layer_norm on [?, 64].
fn stack(layers: usize) -> String {
    let mut s = String::from(
        "func.func @main(%x0: tensor<?x64xf32>, %w: tensor<64x64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> {\n\
         %n = kiln.sym @n {min = 1, max = 512}\nkiln.bind_shape %x0, [%n, 64] : tensor<?x64xf32>\n",
    );
    for i in 0..layers {
        let k = i + 1;
        s += &format!(
            "%a{i} = kiln.linear %x{i}, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>\n\
             %g{i} = kiln.gelu %a{i} : tensor<?x64xf32>\n\
             %c{i} = kiln.linear %g{i}, %w bias %b : tensor<64xf32> : tensor<?x64xf32>, tensor<64x64xf32>\n\
             %r{i} = kiln.add %c{i}, %x{i} : tensor<?x64xf32>\n\
             %x{k} = kiln.layer_norm %r{i} weight %b : tensor<64xf32> bias %b : tensor<64xf32> {{rank = 1, epsilon = 1.0e-05}} : tensor<?x64xf32>\n"
        );
    }
    s + &format!("return %x{layers} : tensor<?x64xf32>\n}}")
}

/// `layers` decoder layers with separate frozen weights, on [1, 64, 128].
fn decoder(layers: usize) -> String {
    let (x, heads) = ("tensor<1x64x128xf32>", "tensor<1x4x64x32xf32>");
    let (mut globals, mut body) = (String::new(), String::new());
    let mut weight = |body: &mut String, name: String, ty: &str| {
        globals += &format!("kiln.global \"private\" @{name} : {ty} from \"w#{name}\"\n");
        *body += &format!("%{name} = kiln.get_global @{name} : {ty}\n");
    };
    for i in 0..layers {
        for (name, ty) in [("q", 128), ("k", 128), ("v", 128), ("o", 128), ("f", 512)]
            .map(|(n, w)| (n, format!("tensor<{w}x128xf32>")))
        {
            weight(&mut body, format!("{name}{i}"), &ty);
        }
        weight(&mut body, format!("g{i}"), "tensor<128x512xf32>");
        weight(&mut body, format!("b{i}"), "tensor<128xf32>");
        let linear = |to: &str, from: &str, w: &str| {
            format!("%{to}{i} = kiln.linear %{from}, %{w}{i} : {x}, tensor<128x128xf32>\n")
        };
        let norm = |to: &str, from: &str| {
            format!(
                "%{to}{i} = kiln.layer_norm %{from} weight %b{i} : tensor<128xf32> bias %b{i} : tensor<128xf32> {{rank = 1, epsilon = 1.0e-05}} : {x}\n"
            )
        };
        body += &norm("n", &format!("x{i}"));
        for name in ["q", "k", "v"] {
            body += &linear(&format!("l{name}"), &format!("n{i}"), name);
            body +=
                &format!("%s{name}{i} = kiln.reshape %l{name}{i} sizes = [1, 64, 4, 32] : {x}\n");
            body += &format!(
                "%t{name}{i} = kiln.transpose %s{name}{i} permutation = [0, 2, 1, 3] : tensor<1x64x4x32xf32>\n"
            );
        }
        body += &format!(
            "%a{i} = kiln.attention %tq{i}, %tk{i}, %tv{i} causal : {heads}, {heads}, {heads}\n"
        );
        body += &format!("%at{i} = kiln.transpose %a{i} permutation = [0, 2, 1, 3] : {heads}\n");
        body +=
            &format!("%ar{i} = kiln.reshape %at{i} sizes = [1, 64, 128] : tensor<1x64x4x32xf32>\n");
        body += &linear("p", &format!("ar{i}"), "o");
        body += &format!("%y{i} = kiln.add %x{i}, %p{i} : {x}\n");
        body += &norm("m", &format!("y{i}"));
        body += &format!(
            "%h{i} = kiln.linear %m{i}, %f{i} : {x}, tensor<512x128xf32>\n%e{i} = kiln.gelu %h{i} : tensor<1x64x512xf32>\n"
        );
        body += &format!(
            "%z{i} = kiln.linear %e{i}, %g{i} : tensor<1x64x512xf32>, tensor<128x512xf32>\n"
        );
        body += &format!("%x{} = kiln.add %y{i}, %z{i} : {x}\n", i + 1);
    }
    format!(
        "module {{\n{globals}func.func @main(%x0: {x}) -> {x} {{\n{body}return %x{layers} : {x}\n}}\n}}"
    )
}

/// From a graph to objects without a cache: the marginal cost of identical layers, which are
/// compiled once but launched, planned and packed each.
fn layers(c: &mut Criterion) {
    let context = Context::new();
    let target = Target::host().expect("this machine");
    let mut group = c.benchmark_group("decoder to objects");
    group.sample_size(10);
    for layers in [4, 12, 48] {
        let module = parse(&context, &decoder(layers));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let options = CompileOptions {
            target: target.clone(),
            workers,
            cache: None,
            verify: false,
            salt: "bench",
            progress: &|_, _| (),
            on_kernel: &|_, _| (),
            schedules: &Default::default(),
            cancellation: Default::default(),
            debug: Default::default(),
        };
        group.bench_function(BenchmarkId::from_parameter(layers), |b| {
            b.iter_batched(
                || module.duplicate(),
                |m| compile(&m, "main", &options).map(|made| made.objects.len()).expect("compiles"),
                BatchSize::LargeInput,
            )
        });
    }
    group.finish();
}

fn parse(c: &Context, text: &str) -> Module {
    Module::parse(c.ctx(), text.as_bytes(), "bench.mlir").unwrap_or_else(|e| panic!("{e}")).0
}

fn passes(c: &mut Criterion) {
    c.bench_function("context", |b| b.iter(Context::new));
    let lower = pipeline_text(Level::Graph, Level::Prims, None).expect("a pipeline");
    let pipelines = [
        ("kiln-refine-shapes", "builtin.module(kiln-refine-shapes)"),
        ("kiln-simplify", "builtin.module(kiln-simplify)"),
        ("kiln-decompose", "builtin.module(kiln-decompose)"),
        ("upstream canonicalize,cse", "builtin.module(canonicalize,cse)"),
        ("graph to prims", lower.as_str()),
    ];
    let context = Context::new();
    for layers in [4, 48] {
        let text = stack(layers);
        let mut group = c.benchmark_group(format!("{layers} layers"));
        group.throughput(Throughput::Elements(layers as u64 * 5));
        group.bench_function("parse and verify", |b| b.iter(|| parse(&context, &text)));
        let module = parse(&context, &text);
        group.bench_function("print", |b| b.iter(|| module.print(PrintOptions::default())));
        for (name, pipeline) in pipelines {
            group.bench_function(BenchmarkId::from_parameter(name), |b| {
                let run = |m: Module| {
                    run_pipeline(&m, pipeline, &Default::default(), &|_, _, _| ())
                        .map(|_| m)
                        .expect("runs")
                };
                b.iter_batched(|| module.duplicate(), run, BatchSize::SmallInput)
            });
        }
        group.finish();
    }
    let module = parse(&context, &stack(1));
    let ones = |shape: &[usize]| {
        Tensor::floats(DType::F32, shape.to_vec(), vec![0.01; shape.iter().product()])
            .expect("a tensor")
    };
    let inputs = [ones(&[8, 64]), ones(&[64, 64]), ones(&[64])];
    let interpreter = Interpreter::new(Mode::Rounded);
    c.bench_function("interpret one layer, 8 rows", |b| {
        b.iter(|| interpreter.run(module.op(), "main", &inputs).expect("runs"))
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = passes, layers
}
criterion_main!(benches);
