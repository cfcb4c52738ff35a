//! What the compiler itself costs: contexts, text, passes, the interpreter, on a stack of transformer-like layers.
//!
//! Peer: upstream's own `canonicalize,cse` on the same IR, in the same process. Figures are in docs/measurements.md.
#![allow(missing_docs)]
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kiln::{
    dialects::{
        interp::{Interpreter, Mode},
        ir::*,
        rules::Level,
        value::{DType, Tensor},
    },
    lowering::pipeline_text,
    lowering::run_pipeline,
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

fn parse(c: &Context, text: &str) -> Module {
    Module::parse(c.ctx(), text.as_bytes(), "bench.mlir").unwrap_or_else(|e| panic!("{e}")).0
}

fn compile(c: &mut Criterion) {
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
                let run = |m: Module| run_pipeline(&m, pipeline, &Default::default(), &|_, _, _| ()).map(|_| m).expect("runs");
                b.iter_batched(|| module.duplicate(), run, BatchSize::SmallInput)
            });
        }
        group.finish();
    }
    let module = parse(&context, &stack(1));
    let ones = |shape: &[usize]| Tensor::floats(DType::F32, shape.to_vec(), vec![0.01; shape.iter().product()]).expect("a tensor");
    let inputs = [ones(&[8, 64]), ones(&[64, 64]), ones(&[64])];
    let interpreter = Interpreter::new(Mode::Rounded);
    c.bench_function("interpret one layer, 8 rows", |b| b.iter(|| interpreter.run(module.op(), "main", &inputs).expect("runs")));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = compile
}
criterion_main!(benches);
