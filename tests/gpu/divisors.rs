//! Dynamic sizes with known divisors: code per chip, and on a GPU correct results and rejected
//! sizes.
use super::*;
use crate::{
    compiled::graphs::against_with,
    support::{functions, inputs_of_sizes},
};
use kiln::{
    compile::Topic,
    dialects::{
        ir::{Context, Module},
        value::Tensor as Value,
    },
    model::Model,
    runtime::{DeviceId, cuda::Device},
    tensor::Tensor,
    tolerance,
};
use std::collections::HashMap;

/// A name, arguments, ops up to `%r`, its type, and the instructions that sm_90a and older chips
/// use only if 16 divides `%n` and `%k`. `%b` is any size.
const DYNAMIC: &[(&str, &str, &str, &str, [&str; 2])] = &[
    (
        "elementwise",
        "%x: [%b, %n] f32; %y: [%n] f32",
        "%0 = kiln.broadcast_in_dim %y dims = [1] sizes = [%b, %n] : tensor<?xf32>\n%1 = kiln.mul %x, %0 : tensor<?x?xf32>\n%r = kiln.tanh %1 : tensor<?x?xf32>",
        "?x?xf32",
        ["ld.global.nc.v4", "ld.global.nc.v4"],
    ),
    (
        "rows",
        "%x: [%b, %n] bf16",
        "%r = kiln.softmax %x axis = 1 : tensor<?x?xbf16>",
        "?x?xbf16",
        ["ld.global.nc.v4", "ld.global.nc.v4"],
    ),
    (
        "row_reduction",
        "%x: [%b, %n] f32",
        "%r = kiln.reduce sum %x dims = [1] : tensor<?x?xf32>",
        "?xf32",
        ["ld.global.nc.v4", "ld.global.nc.v4"],
    ),
    (
        "a half",
        "%x: [%b, %n] f32",
        "%two = arith.constant 2 : index\n%h = kiln.sym_expr floordiv %n, %two\n\
         %0 = kiln.slice %x offsets = [0, 0] sizes = [%b, %h] strides = [1, 1] : tensor<?x?xf32>\n%r = kiln.sigmoid %0 : tensor<?x?xf32>",
        "?x?xf32",
        ["ld.global.nc.v4", "ld.global.nc.v4"],
    ),
    (
        "transpose",
        "%x: [%b, %n] f32",
        "%r = kiln.transpose %x permutation = [1, 0] : tensor<?x?xf32>",
        "?x?xf32",
        ["ld.global.nc.v4", "ld.global.nc.v4"],
    ),
    (
        "columns of a product",
        "%x: [%b, 136] bf16; %w: [136, %n] bf16; %y: [%n] bf16",
        "%0 = kiln.matmul %x, %w : tensor<?x136xbf16>, tensor<136x?xbf16>\n%1 = kiln.broadcast_in_dim %y dims = [1] sizes = [%b, %n] : tensor<?xbf16>\n\
         %2 = kiln.add %0, %1 : tensor<?x?xbf16>\n%r = kiln.tanh %2 : tensor<?x?xbf16>",
        "?x?xbf16",
        ["wgmma.mma_async", "mma.sync"],
    ),
    (
        "depth of a product",
        "%x: [%b, %k] f16; %w: [200, %k] f16",
        "%r = kiln.linear %x, %w : tensor<?x?xf16>, tensor<200x?xf16>",
        "?x200xf16",
        ["wgmma.mma_async", "mma.sync"],
    ),
    (
        "depth of a product that scales its operand",
        "%x: [%b, %k] bf16; %s: [%k] bf16; %w: [72, %k] bf16",
        "%0 = kiln.broadcast_in_dim %s dims = [1] sizes = [%b, %k] : tensor<?xbf16>\n%1 = kiln.mul %x, %0 : tensor<?x?xbf16>\n\
         %r = kiln.linear %1, %w : tensor<?x?xbf16>, tensor<72x?xbf16>",
        "?x72xbf16",
        ["wgmma.mma_async", "mma.sync"],
    ),
    (
        "depth and columns of products",
        "%x: [3, %b, %k] bf16; %w: [3, %k, %n] bf16",
        "%r = kiln.matmul %x, %w : tensor<3x?x?xbf16>, tensor<3x?x?xbf16>",
        "3x?x?xbf16",
        ["wgmma.mma_async", "mma.sync"],
    ),
];

/// The module of a case, where `divisor` divides `%n` and `%k`.
fn text(args: &str, body: &str, result: &str, divisor: i64) -> String {
    let (mut head, mut facts) = (vec![], vec![]);
    for s in ["b", "n", "k"].iter().filter(|s| args.contains(&format!("%{s}"))) {
        let by = if *s == "b" { 1 } else { divisor };
        facts.push(format!("%{s} = kiln.sym @{s} {{min = 1 : i64, divisor = {by} : i64}}"));
    }
    for arg in args.split("; %").map(|a| a.trim_start_matches('%')) {
        let (name, of) = arg.split_once(": [").expect("sizes");
        let (sizes, element) = of.split_once("] ").expect("an element");
        let ty: String = sizes
            .split(", ")
            .map(|s| if s.starts_with('%') { "?x".into() } else { format!("{s}x") })
            .collect();
        head.push(format!("%{name}: tensor<{ty}{element}>"));
        facts.push(format!("kiln.bind_shape %{name}, [{sizes}] : tensor<{ty}{element}>"));
    }
    format!(
        "func.func @main({}) -> tensor<{result}> {{\n{}\n{body}\nreturn %r : tensor<{result}>\n}}",
        head.join(", "),
        facts.join("\n")
    )
}

#[test]
fn divisible_sizes_use_16_byte_loads_and_tensor_cores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    for (name, args, body, result, [hopper, older]) in DYNAMIC {
        crate::watchdog::arm();
        for (divisor, chip) in
            [(16, "sm_90a"), (8, "sm_90a"), (1, "sm_90a"), (16, "sm_80"), (1, "sm_80")]
        {
            std::fs::write(&path, text(args, body, result, divisor)).unwrap();
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{name} by {divisor}: {e}"));
            let want = if chip == "sm_90a" { hopper } else { older };
            let found = package
                .objects
                .values()
                .any(|p| std::str::from_utf8(p).is_ok_and(|t| t.contains(want)));
            assert_eq!(found, divisor > 1, "{want} in {name} by {divisor} for {chip}");
            let maps: usize = package
                .program
                .kernels
                .iter()
                .filter_map(|k| k.launch.as_ref())
                .map(|l| l.maps.len())
                .sum();
            assert_eq!(
                maps,
                if want.starts_with("wgmma") && divisor > 1 { 3 } else { 0 },
                "{name} by {divisor} for {chip}"
            );
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{name} by {divisor} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}

/// Whether there is a GPU.
fn has_gpu() -> bool {
    let found = Device::cuda(0);
    if let Err(e) = &found {
        eprintln!("skipped: {e}");
    }
    found.is_ok()
}

#[test]
fn divisible_sizes_are_correct_on_a_gpu_and_others_rejected() {
    if !has_gpu() {
        return;
    }
    for (name, args, body, result, _) in DYNAMIC {
        let c = Context::new();
        let (module, _) = Module::parse(c.ctx(), text(args, body, result, 16).as_bytes(), name)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let func = functions(&module)[0];
        let device = DeviceId::parse("cuda:0").unwrap();
        let options = Options {
            device,
            cache: CachePolicy::Off,
            threads: 1,
            workers: 1,
            ..Options::default()
        };
        let exe = Model::from_module(&module, Path::new(""))
            .compile(&options)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let call = |inputs: &[Value]| {
            let have = exe.call_values(&inputs.iter().collect::<Vec<_>>());
            have.map(|results| vec![results]).map_err(|e| e.to_string())
        };
        for (seed, (b, n, k)) in
            [(1, 16, 16), (5, 48, 64), (130, 272, 80), (64, 128, 208)].into_iter().enumerate()
        {
            crate::watchdog::arm();
            let sizes = HashMap::from([("b".into(), b), ("n".into(), n), ("k".into(), k)]);
            let inputs = inputs_of_sizes(func, seed as u64, &sizes);
            against_with(&module, &inputs, tolerance::for_dtype, |_| Ok(&call))
                .unwrap_or_else(|e| panic!("{name} of {b}, {n}, {k}: {e}"));
        }
        let sizes = HashMap::from([("b".into(), 4), ("n".into(), 24), ("k".into(), 24)]);
        let refused =
            call(&inputs_of_sizes(func, 0, &sizes)).expect_err("a size that is no multiple");
        assert!(refused.contains("multiples of 16"), "{name}: {refused}");
    }
}

#[test]
fn a_compiled_function_has_a_divisible_and_a_general_program_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    let of = |shape: &[usize]| {
        let all: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i % 7) as f32 - 3.0).collect();
        Tensor::from_slice(shape, &all).expect("a tensor")
    };
    let layer = |x: Tensor, y: Tensor| ((&x * &y).relu() + 1).softmax(-1);
    let f = kiln::compile(layer).device("cuda:0").options([("cache_dir", "off")]);
    let host = kiln::compile(layer).options([("cache_dir", "off")]).dynamic(true);
    for (n, programs) in [(32, 1), (48, 2), (160, 2), (50, 3), (80, 3), (33, 3), (16, 3)] {
        crate::watchdog::arm();
        let (x, y) = (of(&[5, n]), of(&[n]));
        let have =
            f.call((&x, &y)).unwrap_or_else(|e| panic!("{n}: {e}")).value().expect("elements");
        let want = host.call((&x, &y)).expect("a result").value().expect("elements");
        let off = have
            .as_f()
            .unwrap()
            .iter()
            .zip(want.as_f().unwrap())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(
            off < 1e-5 && f.programs() == programs,
            "{n}: off by {off}, {} programs",
            f.programs()
        );
    }
    let explained = f.explain();
    assert_eq!(
        explained.graphs.iter().map(|g| g.calls).collect::<Vec<_>>(),
        [1, 4, 2],
        "{explained}"
    );
    assert!(
        explained.graphs[1].guards.contains("a multiple of 16")
            && !explained.graphs[2].guards.contains("a multiple"),
        "{explained}"
    );
    assert!(
        f.remarks().iter().any(|r| r.topic == Topic::Recompiles
            && r.message.contains("a multiple of 16, now it is 50"))
    );
}
