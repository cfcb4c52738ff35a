//! Fused attention kernels against the interpreter, with one thread and with two.
use crate::support::*;
use kiln::{
    dialects::{interp::Mode, ir::*, value::Tensor},
    runtime::{View, ViewMut},
    tolerance,
};

/// The results of `@main` for random inputs, which must not depend on the number of threads.
fn check(name: &str, text: &str, whole: bool) {
    check_with(name, text, whole, &|inputs| inputs);
}

/// As [`check`], with modified inputs.
fn check_with(name: &str, text: &str, whole: bool, change: &dyn Fn(Vec<Tensor>) -> Vec<Tensor>) {
    crate::watchdog::arm();
    let path =
        std::env::temp_dir().join(format!("kiln_attention_{}_{name}.mlir", std::process::id()));
    std::fs::write(&path, text).expect("a file");
    let model = kiln::load(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    let context = Context::new();
    let (module, _) = model.module(&context).unwrap_or_else(|e| panic!("{name}: {e}"));
    let func = module.find("main").expect("a function");
    let inputs = change(inputs(func, 7));
    let wanted = run(&module, func, Mode::Exact, &inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut first: Option<Vec<Tensor>> = None;
    for threads in [1, 2] {
        let options = kiln::Options { threads, ..Default::default() };
        let exe = model.compile(&options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let kernels = &exe.program().kernels;
        let kinds: Vec<&str> = kernels.iter().map(|k| k.kind.as_str()).collect();
        let reasons = || {
            kernels.iter().flat_map(|k| &k.not_fused).any(|r| r.starts_with("attention not fused"))
        };
        assert_eq!(kinds.contains(&"attention"), whole, "{name}: {kinds:?}");
        assert_eq!(reasons(), !whole, "{name}: why it is not fused");
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.dtype().encode(t)).collect();
        let views: Vec<View> = inputs
            .iter()
            .zip(&bytes)
            .map(|(t, b)| View::new(t.dtype().name(), t.shape(), b).expect("a view"))
            .collect();
        let mut outputs: Vec<Vec<u8>> =
            wanted.iter().map(|t| vec![0; t.dtype().encode(t).len()]).collect();
        let mut out: Vec<ViewMut> = wanted
            .iter()
            .zip(&mut outputs)
            .map(|(t, b)| ViewMut::new(t.dtype().name(), t.shape(), b).expect("a view"))
            .collect();
        exe.call(&views, &mut out).unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(out);
        let found: Vec<Tensor> = wanted
            .iter()
            .zip(&outputs)
            .map(|(t, b)| t.dtype().decode(t.shape(), b).expect("a result"))
            .collect();
        for (f, w) in found.iter().zip(&wanted) {
            tolerance_holds(name, f, w);
        }
        match &first {
            None => first = Some(found),
            Some(one) => assert!(
                one.iter().zip(&found).all(|(a, b)| same_bits(a, b)),
                "{name}: depends on the number of threads"
            ),
        }
    }
    let _ = std::fs::remove_file(&path);
}

fn tolerance_holds(name: &str, found: &Tensor, wanted: &Tensor) {
    let one = tolerance::compare(found, wanted).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(one.ok, "{name}: {one:?}");
}

/// A function of query, key and value with these sizes and dtype; `rest`: op options and further
/// arguments.
fn plain(q: &str, k: &str, v: &str, more: &str, ops: &str, options: &str) -> String {
    let out = format!(
        "{}x{}",
        q.rsplit_once('x').map_or("", |s| s.0).rsplit_once('x').map_or("", |s| s.0),
        tail(v)
    );
    format!(
        "func.func @main(%q: tensor<{q}>, %k: tensor<{k}>, %v: tensor<{v}>{more}) -> tensor<{out}> {{
  {ops}
  %0 = kiln.attention %q, %k, %v {options} : tensor<{q}>, tensor<{k}>, tensor<{v}>
  return %0 : tensor<{out}>
}}"
    )
}

/// The last dimension and the dtype.
fn tail(ty: &str) -> String {
    let parts: Vec<&str> = ty.split('x').collect();
    parts[parts.len() - 2..].join("x")
}

#[test]
fn forms_and_sizes() {
    let case = |name: &str, q: &str, k: &str, v: &str, options: &str| {
        check(name, &plain(q, k, v, "", "", options), true)
    };
    case("plain", "2x3x32x32xf32", "2x3x64x32xf32", "2x3x64x32xf32", "");
    case("causal", "1x2x67x16xf32", "1x2x67x16xf32", "1x2x67x16xf32", "causal");
    case("more_keys_than_queries", "1x2x5x16xf32", "1x2x150x16xf32", "1x2x150x16xf32", "causal");
    case("fewer_keys_than_queries", "1x2x40x16xf32", "1x2x3x16xf32", "1x2x3x16xf32", "causal");
    case("odd_sizes", "1x2x19x20xf32", "1x2x133x20xf32", "1x2x133x12xf32", "");
    case("one_query", "2x2x1x32xf32", "2x2x517x32xf32", "2x2x517x32xf32", "");
    case("grouped", "2x8x20x16xf32", "2x2x20x16xf32", "2x2x20x16xf32", "causal");
    case("one_key_head", "1x4x20x16xf32", "1x1x20x16xf32", "1x1x20x16xf32", "");
    case("bf16", "1x2x33x32xbf16", "1x2x40x32xbf16", "1x2x40x32xbf16", "causal");
    case("f16", "1x2x33x32xf16", "1x2x40x32xf16", "1x2x40x32xf16", "");
    case("f64", "1x2x33x32xf64", "1x2x40x32xf64", "1x2x40x32xf64", "causal");
}

#[test]
fn explicit_scale() {
    let text = plain("1x2x33x16xf32", "1x2x40x16xf32", "1x2x40x16xf32", "", "", "").replace(
        "tensor<1x2x40x16xf32>\n  return",
        "tensor<1x2x40x16xf32> {scale = 0.7 : f64}\n  return",
    );
    assert!(text.contains("scale"), "{text}");
    check("scale", &text, true);
}

#[test]
fn masks_and_biases() {
    let (q, k) = ("2x3x33x16xf32", "2x3x40x16xf32");
    let case = |name: &str, more: &str, ops: &str, options: &str| {
        check(name, &plain(q, k, k, more, ops, options), true)
    };
    case("bias", ", %b: tensor<1x3x33x40xf32>", "", "bias %b : tensor<1x3x33x40xf32>");
    case("bias_of_keys", ", %b: tensor<2x1x1x40xf32>", "", "bias %b : tensor<2x1x1x40xf32> causal");
    case("bias_of_rank_two", ", %b: tensor<33x40xf32>", "", "bias %b : tensor<33x40xf32>");
    let mask = "%zero = kiln.splat [2, 1, 33, 40], 0.0 : f32
  %low = kiln.splat [2, 1, 33, 40], 0xFF800000 : f32
  %b = kiln.select %m, %zero, %low : tensor<2x1x33x40xi1>, tensor<2x1x33x40xf32>";
    case("mask", ", %m: tensor<2x1x33x40xi1>", mask, "bias %b : tensor<2x1x33x40xf32>");
}

#[test]
fn fully_masked_rows_are_zero() {
    let (q, k) = ("4x2x33x16xf32", "4x2x3x16xf32");
    let mask = "%zero = kiln.splat [4, 1, 33, 3], 0.0 : f32
  %low = kiln.splat [4, 1, 33, 3], 0xFF800000 : f32
  %b = kiln.select %m, %zero, %low : tensor<4x1x33x3xi1>, tensor<4x1x33x3xf32>";
    let text = plain(q, k, k, ", %m: tensor<4x1x33x3xi1>", mask, "bias %b : tensor<4x1x33x3xf32>");
    check("nothing", &text, true);
}

#[test]
fn fully_masked_rows_of_an_unsafe_softmax_are_nan() {
    let (q, k) = ("4x2x33x16xf32", "4x2x3x16xf32");
    let mask = "%zero = kiln.splat [4, 1, 33, 3], 0.0 : f32
  %low = kiln.splat [4, 1, 33, 3], 0xFF800000 : f32
  %b = kiln.select %m, %zero, %low : tensor<4x1x33x3xi1>, tensor<4x1x33x3xf32>";
    let options = "bias %b : tensor<4x1x33x3xf32> unsafe_softmax";
    check("nan", &plain(q, k, k, ", %m: tensor<4x1x33x3xi1>", mask, options), true);
}

/// Gathers at positions and at quotients of these are indexing maps.
#[test]
fn gathers_at_positions() {
    let ty = "tensor<6x4x37x16xf32>, tensor<6x2x41x16xf32>, tensor<6x2x41x16xf32>";
    let text = format!(
        "func.func @main(%q: tensor<6x4x37x16xf32>, %k: tensor<6x2x41x16xf32>, %v: tensor<6x2x41x16xf32>, %t: tensor<4x37x41xf32>, %u: tensor<3x37x41xf32>, %w: tensor<2x41xf32>) -> tensor<6x4x37x16xf32> {{
  %r = kiln.attention %q, %k, %v unsafe_softmax : {ty} score {{
  ^bb0(%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %0 = kiln.gather %t[%h, %i, %j] dims = [0, 1, 2] : tensor<4x37x41xf32>[tensor<i64>, tensor<i64>, tensor<i64>]
    %n = kiln.splat [], 3 : i64
    %x = kiln.rem %b, %n : tensor<i64>
    %1 = kiln.gather %u[%x, %i, %j] dims = [0, 1, 2] : tensor<3x37x41xf32>[tensor<i64>, tensor<i64>, tensor<i64>]
    %y = kiln.floor_div %b, %n : tensor<i64>
    %2 = kiln.gather %w[%y, %j] dims = [0, 1] : tensor<2x41xf32>[tensor<i64>, tensor<i64>]
    %3 = kiln.add %0, %1 : tensor<f32>
    %4 = kiln.add %3, %2 : tensor<f32>
    %5 = kiln.add %s, %4 : tensor<f32>
    kiln.yield %5 : tensor<f32>
  }}
  return %r : tensor<6x4x37x16xf32>
}}"
    );
    check("positions", &text, true);
}

#[test]
fn dynamic_sizes_and_transposes() {
    let text = "func.func @main(%x: tensor<2x?x384xf32>) -> tensor<2x?x128xf32> {
  %s = kiln.sym @s {min = 1 : i64, max = 90 : i64}
  kiln.bind_shape %x, [2, %s, 384] : tensor<2x?x384xf32>
  %0 = kiln.reshape %x sizes = [2, %s, 3, 4, 32] : tensor<2x?x384xf32>
  %1 = kiln.transpose %0 permutation = [2, 0, 3, 1, 4] : tensor<2x?x3x4x32xf32>
  %2 = kiln.slice %1 offsets = [0, 0, 0, 0, 0] sizes = [1, 2, 4, %s, 32] strides = [1, 1, 1, 1, 1] : tensor<3x2x4x?x32xf32>
  %3 = kiln.slice %1 offsets = [1, 0, 0, 0, 0] sizes = [1, 2, 4, %s, 32] strides = [1, 1, 1, 1, 1] : tensor<3x2x4x?x32xf32>
  %4 = kiln.slice %1 offsets = [2, 0, 0, 0, 0] sizes = [1, 2, 4, %s, 32] strides = [1, 1, 1, 1, 1] : tensor<3x2x4x?x32xf32>
  %q = kiln.reshape %2 sizes = [2, 4, %s, 32] : tensor<1x2x4x?x32xf32>
  %k = kiln.reshape %3 sizes = [2, 4, %s, 32] : tensor<1x2x4x?x32xf32>
  %v = kiln.reshape %4 sizes = [2, 4, %s, 32] : tensor<1x2x4x?x32xf32>
  %5 = kiln.attention %q, %k, %v causal : tensor<2x4x?x32xf32>, tensor<2x4x?x32xf32>, tensor<2x4x?x32xf32>
  %6 = kiln.transpose %5 permutation = [0, 2, 1, 3] : tensor<2x4x?x32xf32>
  %7 = kiln.reshape %6 sizes = [2, %s, 128] : tensor<2x?x4x32xf32>
  return %7 : tensor<2x?x128xf32>
}";
    check("dynamic", text, true);
}

/// Score and mask regions: soft-capped scores with a bias, ALiBi slopes, document masks.
#[test]
fn score_and_mask_regions() {
    let place = "%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>";
    let case = |name: &str, more: &str, ops: &str, options: &str, regions: &str| {
        let ty = "tensor<2x4x37x16xf32>, tensor<2x2x37x16xf32>, tensor<2x2x37x16xf32>";
        let text = format!(
            "func.func @main(%q: tensor<2x4x37x16xf32>, %k: tensor<2x2x37x16xf32>, %v: tensor<2x2x37x16xf32>{more}) -> tensor<2x4x37x16xf32> {{
  {ops}
  %r = kiln.attention %q, %k, %v {options} : {ty} {regions}
  return %r : tensor<2x4x37x16xf32>
}}"
        );
        check(name, &text, true);
    };
    let cap = format!(
        "score {{
  ^bb0(%s: tensor<f32>, {place}):
    %0 = kiln.div %s, %c : tensor<f32>
    %1 = kiln.tanh %0 : tensor<f32>
    %2 = kiln.mul %1, %c : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }}"
    );
    let ops = "%c = kiln.splat [], 3.0 : f32";
    case("cap", "", ops, "causal", &cap);
    case(
        "cap_of_a_biased_score",
        ", %x: tensor<4x1x37xf32>",
        ops,
        "bias %x : tensor<4x1x37xf32>",
        &cap,
    );
    let slopes = format!(
        "score {{
  ^bb0(%s: tensor<f32>, {place}):
    %0 = kiln.gather %t[%h] dims = [0] : tensor<4xf32>[tensor<i64>]
    %1 = kiln.sub %j, %i : tensor<i64>
    %2 = kiln.convert %1 : tensor<i64> to f32
    %3 = kiln.mul %0, %2 : tensor<f32>
    %4 = kiln.add %s, %3 : tensor<f32>
    kiln.yield %4 : tensor<f32>
  }}"
    );
    case("slopes", ", %t: tensor<4xf32>", "", "causal", &slopes);
    case(
        "slopes_computed_before",
        ", %u: tensor<4xf32>",
        "%t = kiln.sin %u : tensor<4xf32>",
        "",
        &slopes,
    );
    let documents = format!(
        "mask {{
  ^bb0({place}):
    %0 = kiln.gather %d[%b, %i] dims = [0, 1] : tensor<2x37xi64>[tensor<i64>, tensor<i64>]
    %1 = kiln.gather %d[%b, %j] dims = [0, 1] : tensor<2x37xi64>[tensor<i64>, tensor<i64>]
    %2 = kiln.compare eq %0, %1 : tensor<i64>
    %3 = kiln.sub %i, %j : tensor<i64>
    %4 = kiln.compare lt %3, %w : tensor<i64>
    %5 = kiln.and %2, %4 : tensor<i1>
    kiln.yield %5 : tensor<i1>
  }}"
    );
    // Integer inputs are random, so many rows are fully masked.
    case("documents", ", %d: tensor<2x37xi64>", "%w = kiln.splat [], 9 : i64", "", &documents);
    case(
        "documents_causal",
        ", %d: tensor<2x37xi64>",
        "%w = kiln.splat [], 9 : i64",
        "causal",
        &documents,
    );
    case(
        "both",
        ", %t: tensor<4xf32>, %d: tensor<2x37xi64>",
        "%w = kiln.splat [], 9 : i64",
        "causal",
        &format!("{slopes} {documents}"),
    );
}

#[test]
fn forms_without_a_kernel_are_decomposed() {
    let ty = "tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>";
    let head = "func.func @main(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>";
    let end = "return %0 : tensor<1x2x8x16xf32>\n}";
    let text = format!(
        "{head}, %t: tensor<2x3xf32>) -> tensor<1x2x8x16xf32> {{
  %0 = kiln.attention %q, %k, %v : {ty} score {{
  ^bb0(%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):
    %1 = kiln.gather %t[%h] dims = [0] : tensor<2x3xf32>[tensor<i64>]
    %2 = kiln.reduce sum %1 dims = [0] : tensor<3xf32>
    %3 = kiln.add %s, %2 : tensor<f32>
    kiln.yield %3 : tensor<f32>
  }}
  {end}"
    );
    check("row_of_a_table", &text, false);
}

/// Masks that express sequence lengths: alone, combined with another condition, added.
#[test]
fn masks_that_express_lengths() {
    let (q, k) = ("2x4x33x16xf32", "2x2x40x16xf32");
    let lengths = |mut inputs: Vec<Tensor>| {
        inputs[3] = Tensor::ints(inputs[3].dtype(), vec![2], vec![17, 1]).expect("as many");
        inputs
    };
    let case = |name: &str, ops: &str, options: &str, region: &str| {
        let text = plain(q, k, k, ", %l: tensor<2xi64>", ops, options);
        let end = format!("tensor<{k}>\n  return");
        assert!(text.contains(&end), "{text}");
        check_with(
            name,
            &text.replace(&end, &format!("tensor<{k}> {region}\n  return")),
            true,
            &lengths,
        );
    };
    let place = "^bb0(%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>):";
    let look = "%0 = kiln.gather %l[%b] dims = [0] : tensor<2xi64>[tensor<i64>]\n %1 = kiln.compare lt %j, %0 : tensor<i64>";
    case(
        "length_of_a_mask",
        "",
        "",
        &format!("mask {{\n {place}\n {look}\n kiln.yield %1 : tensor<i1> }}"),
    );
    let near = "%2 = kiln.sub %i, %j : tensor<i64>\n %3 = kiln.splat [], 9 : i64\n %4 = kiln.compare lt %2, %3 : tensor<i64>";
    let both = "%5 = kiln.and %1, %4 : tensor<i1>\n kiln.yield %5 : tensor<i1>";
    case(
        "length_beside_a_window",
        "",
        "causal",
        &format!("mask {{\n {place}\n {look}\n {near}\n {both} }}"),
    );
    let added = "%p = kiln.iota [2, 1, 1, 40] axis = 3 : i64
  %n = kiln.broadcast_in_dim %l dims = [0] sizes = [2, 1, 1, 40] : tensor<2xi64>
  %s = kiln.compare lt %p, %n : tensor<2x1x1x40xi64>
  %zero = kiln.splat [2, 1, 1, 40], 0.0 : f32
  %low = kiln.splat [2, 1, 1, 40], 0xFF800000 : f32
  %m = kiln.select %s, %zero, %low : tensor<2x1x1x40xi1>, tensor<2x1x1x40xf32>";
    case("length_of_a_bias", added, "bias %m : tensor<2x1x1x40xf32>", "");
}

/// Padded queries and keys are NaN here, so that reading one shows in the result.
#[test]
fn lengths_are_per_batch() {
    let queries = [33, 20, 0, 40, 33, 1];
    let keys = [40, 17, 9, -3, 0, 100];
    let case = |name: &str, dtype: &str, heads: i64, int: &str, options: &str| {
        let (q, k) = (format!("6x4x33x16x{dtype}"), format!("6x{heads}x40x16x{dtype}"));
        let lengths =
            format!("lengths %l : tensor<6x{int}> key_lengths %n : tensor<6x{int}> {options}");
        let text =
            plain(&q, &k, &k, &format!(", %l: tensor<6x{int}>, %n: tensor<6x{int}>"), "", &lengths);
        check_with(name, &text, true, &|mut inputs| {
            let own = [queries, keys, keys];
            for (t, lengths) in inputs.iter_mut().zip(own) {
                let (shape, mut all) = (t.shape().to_vec(), t.as_f().expect("floats").to_vec());
                for (i, x) in all.iter_mut().enumerate() {
                    let (row, batch) =
                        (i / shape[3] % shape[2], i / (shape[1] * shape[2] * shape[3]));
                    if row as i64 >= lengths[batch] {
                        *x = f64::NAN;
                    }
                }
                *t = Tensor::floats(t.dtype(), shape, all).expect("as many");
            }
            for (t, lengths) in inputs.iter_mut().skip(3).zip([queries, keys]) {
                *t = Tensor::ints(t.dtype(), vec![6], lengths.to_vec()).expect("as many");
            }
            inputs
        });
    };
    case("lengths", "f32", 4, "i64", "");
    case("lengths_i32", "f32", 4, "i32", "causal");
    case("lengths_grouped", "bf16", 2, "i32", "causal");
    case("lengths_f64", "f64", 1, "i64", "");
}
