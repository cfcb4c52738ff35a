//! The reference semantics against NumPy and PyTorch: `cases.json`, by `gen_reference.py`.

mod by_hand;

use kiln_dialects::ops::*;
use kiln_dialects::reference as kernel;
use kiln_dialects::value::{DType, Data, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;

/// Relative tolerance of floats; absolute where terms cancel (`scale` 1).
const TOLERANCE: f64 = 1e-12;

/// Every reference function; each needs at least one case.
const KERNELS: &str = "adaptive_avg_pool arg_max arg_min attention avg_pool batch_norm binary bitcast broadcast_in_dim clamp compare \
    concat convert convert_rounded convolution cross_entropy cumulative dot_general dropout dynamic_slice \
    dynamic_update_slice embedding fft gather gelu group_norm hardsigmoid hardswish hardtanh interpolate iota layer_norm linear \
    log_softmax matmul max_pool mean pad random_bits random_normal random_uniform reduce reduce_window reshape \
    relu reverse rms_norm round scatter select sigmoid silu slice softmax softplus sort splat std top_k transpose unary \
    var";

struct Case {
    args: Value,
    inputs: Vec<Tensor>,
}

fn number(v: &Value) -> f64 {
    match v.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => v.as_f64().unwrap(),
    }
}

pub fn tensor(v: &Value) -> Tensor {
    let dtype = DType::from_name(v[0].as_str().unwrap()).unwrap();
    let shape = v[1].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let values = v[2].as_array().unwrap();
    if dtype.is_float() {
        Tensor::floats(dtype, shape, values.iter().map(number).collect()).unwrap()
    } else {
        Tensor::ints(dtype, shape, values.iter().map(|v| v.as_i64().unwrap()).collect()).unwrap()
    }
}

/// The member of a generated enum with this name, ignoring case.
fn kind<K: Copy + std::fmt::Debug>(all: &[K], name: &str) -> K {
    let found = all.iter().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
    *found.unwrap_or_else(|| panic!("no kind {name}"))
}

impl Case {
    fn list(&self, name: &str) -> Vec<i64> {
        self.optional_list(name).unwrap_or_else(|| panic!("no list {name}"))
    }
    fn optional_list(&self, name: &str) -> Option<Vec<i64>> {
        Some(self.args[name].as_array()?.iter().map(|v| v.as_i64().unwrap()).collect())
    }
    fn int(&self, name: &str) -> i64 {
        self.args[name].as_i64().unwrap_or_else(|| panic!("no integer {name}"))
    }
    fn float(&self, name: &str) -> f64 {
        self.args[name].as_f64().unwrap_or_else(|| panic!("no number {name}"))
    }
    fn flag(&self, name: &str) -> bool {
        self.args[name].as_bool().unwrap_or_else(|| panic!("no flag {name}"))
    }
    fn text(&self, name: &str) -> &str {
        self.args[name].as_str().unwrap_or_else(|| panic!("no text {name}"))
    }
    fn dtype(&self) -> DType {
        DType::from_name(self.text("dtype")).unwrap()
    }
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.args.get(name).map(tensor)
    }
    fn reduce_like(&self) -> CumulativeKind {
        kind(CumulativeKind::ALL, self.text("kind"))
    }

    fn run(&self, op: &str) -> Result<Vec<Tensor>, String> {
        let x: Vec<&Tensor> = self.inputs.iter().collect();
        let (weight, bias) = (self.tensor("weight"), self.tensor("bias"));
        let (weight, bias) = (weight.as_ref(), bias.as_ref());
        let one = match op {
            "unary" => kernel::unary(kind(UnaryKind::ALL, self.text("kind")), x[0]),
            "binary" => kernel::binary(kind(BinaryKind::ALL, self.text("kind")), x[0], x[1]),
            "compare" => kernel::compare(kind(CompareKind::ALL, self.text("kind")), x[0], x[1]),
            "select" => kernel::select(x[0], x[1], x[2]),
            "clamp" => kernel::clamp(x[0], x[1], x[2]),
            "convert" => kernel::convert(x[0], self.dtype()),
            "convert_rounded" => kernel::convert(x[0], self.dtype()).map(Tensor::rounded),
            "round" => kernel::convert(x[0], self.dtype()).map(Tensor::rounded),
            "bitcast" => kernel::bitcast(x[0], self.dtype()),
            "splat" => kernel::splat(x[0], &self.list("sizes")),
            "iota" => kernel::iota(self.dtype(), &self.list("sizes"), self.int("axis")),
            "broadcast_in_dim" => {
                kernel::broadcast_in_dim(x[0], &self.list("dims"), &self.list("sizes"))
            }
            "reshape" => kernel::reshape(x[0], &self.list("sizes")),
            "transpose" => kernel::transpose(x[0], &self.list("permutation")),
            "slice" => kernel::slice(
                x[0],
                &self.list("offsets"),
                &self.list("sizes"),
                &self.list("strides"),
            ),
            "pad" => kernel::pad(x[0], x[1], &self.list("low"), &self.list("high")),
            "concat" => kernel::concat(&x, self.int("axis")),
            "reverse" => kernel::reverse(x[0], &self.list("dims")),
            "gather" => kernel::gather(x[0], &x[1..], &self.list("dims")),
            "scatter" => kernel::scatter(
                kind(ScatterKind::ALL, self.text("kind")),
                x[0],
                x[1],
                &x[2..],
                &self.list("dims"),
            ),
            "dynamic_slice" => kernel::dynamic_slice(x[0], &x[1..], &self.list("sizes")),
            "dynamic_update_slice" => kernel::dynamic_update_slice(x[0], x[1], &x[2..]),
            "reduce" => kernel::reduce(
                kind(ReduceKind::ALL, self.text("kind")),
                x[0],
                &self.list("dims"),
                false,
            ),
            "arg_max" => kernel::arg_max(x[0], self.int("axis")),
            "arg_min" => kernel::arg_min(x[0], self.int("axis")),
            "cumulative" => kernel::cumulative(self.reduce_like(), x[0], self.int("axis")),
            "sort" => {
                let (values, indices) =
                    kernel::sort(x[0], self.int("axis"), self.flag("descending"))?;
                return Ok(vec![values, indices]);
            }
            "fft" => {
                let kind = kind(FftKind::ALL, self.text("kind"));
                let (length, inverse) = (self.int("length"), self.flag("inverse"));
                return Ok(kernel::fft(kind, x[0], x.get(1).copied(), length, inverse)?);
            }
            "top_k" => {
                let (values, indices) =
                    kernel::top_k(x[0], self.int("axis"), self.int("k"), self.flag("smallest"))?;
                return Ok(vec![values, indices]);
            }
            "dot_general" => kernel::dot_general(x[0], x[1], &self.dot_params()),
            "convolution" => kernel::convolution(x[0], x[1], &self.conv_params()),
            "reduce_window" => {
                kernel::reduce_window(self.reduce_like(), x[0], &self.window_params())
            }
            "random_bits" => kernel::random_bits(x[0], &self.list("sizes"), self.dtype()),
            "random_uniform" => kernel::random_uniform(
                x[0],
                &self.list("sizes"),
                self.dtype(),
                self.float("low"),
                self.float("high"),
            ),
            "random_normal" => kernel::random_normal(
                x[0],
                &self.list("sizes"),
                self.dtype(),
                self.float("mean"),
                self.float("std"),
            ),
            "dropout" => kernel::dropout(x[0], x[1], self.float("p")),
            "sigmoid" => kernel::sigmoid(x[0]),
            "silu" => kernel::silu(x[0]),
            "relu" => kernel::relu(x[0]),
            "hardtanh" => kernel::hardtanh(x[0], self.float("low"), self.float("high")),
            "hardsigmoid" => kernel::hardsigmoid(x[0]),
            "hardswish" => kernel::hardswish(x[0]),
            "gelu" => kernel::gelu(x[0], self.flag("tanh")),
            "softplus" => kernel::softplus(x[0], self.float("beta"), self.float("threshold")),
            "linear" => kernel::linear(x[0], x[1], bias),
            "matmul" => kernel::matmul(x[0], x[1]),
            "embedding" => kernel::embedding(x[0], x[1]),
            "layer_norm" => {
                kernel::layer_norm(x[0], weight, bias, self.int("rank"), self.float("epsilon"))
            }
            "rms_norm" => kernel::rms_norm(x[0], weight, self.int("rank"), self.float("epsilon")),
            "group_norm" => {
                kernel::group_norm(x[0], weight, bias, self.int("groups"), self.float("epsilon"))
            }
            "batch_norm" => {
                let epsilon = self.float("epsilon");
                kernel::batch_norm(
                    x[0],
                    &kernel::BatchNormParams { mean: x[1], variance: x[2], weight, bias, epsilon },
                )
            }
            "softmax" => kernel::softmax(x[0], self.int("axis"), self.flag("safe")),
            "log_softmax" => kernel::log_softmax(x[0], self.int("axis")),
            "cross_entropy" => {
                let p = kernel::CrossEntropyParams {
                    reduction: kind(LossReduction::ALL, self.text("reduction")),
                    weight,
                    ignore_index: self.int("ignore_index"),
                    label_smoothing: self.float("label_smoothing"),
                };
                kernel::cross_entropy(x[0], x[1], &p)
            }
            "interpolate" => kernel::interpolate(x[0], &self.list("sizes")),
            "adaptive_avg_pool" => kernel::adaptive_avg_pool(x[0], &self.list("sizes")),
            "max_pool" => kernel::max_pool(x[0], &self.max_pool_params()),
            "avg_pool" => kernel::avg_pool(x[0], &self.avg_pool_params()),
            "mean" => kernel::mean(x[0], &self.list("dims"), self.flag("keep_dims")),
            "var" => kernel::var(
                x[0],
                &self.list("dims"),
                self.flag("keep_dims"),
                self.float("correction"),
            ),
            "std" => kernel::std(
                x[0],
                &self.list("dims"),
                self.flag("keep_dims"),
                self.float("correction"),
            ),
            "attention" => return self.attention(&x),
            _ => panic!("no kernel {op}"),
        };
        Ok(vec![one?])
    }

    fn dot_params(&self) -> kernel::DotParams {
        kernel::DotParams {
            lhs_batch: self.list("lhs_batch"),
            rhs_batch: self.list("rhs_batch"),
            lhs_contract: self.list("lhs_contract"),
            rhs_contract: self.list("rhs_contract"),
            element_type: self.args["element_type"].as_str().and_then(DType::from_name),
        }
    }

    fn conv_params(&self) -> kernel::ConvParams {
        kernel::ConvParams {
            strides: self.list("strides"),
            pad_low: self.list("pad_low"),
            pad_high: self.list("pad_high"),
            dilation: self.list("dilation"),
            groups: self.int("groups"),
            transposed: self.flag("transposed"),
            output_padding: self.optional_list("output_padding"),
        }
    }

    fn window_params(&self) -> kernel::WindowParams {
        kernel::WindowParams {
            window: self.list("window"),
            strides: self.list("strides"),
            pad_low: self.list("pad_low"),
            pad_high: self.list("pad_high"),
            dilation: self.list("dilation"),
        }
    }

    fn max_pool_params(&self) -> kernel::MaxPoolParams {
        kernel::MaxPoolParams {
            window: self.list("window"),
            strides: self.list("strides"),
            padding: self.list("padding"),
            dilation: self.list("dilation"),
            ceil_mode: self.flag("ceil_mode"),
        }
    }

    fn avg_pool_params(&self) -> kernel::AvgPoolParams {
        kernel::AvgPoolParams {
            window: self.list("window"),
            strides: self.list("strides"),
            padding: self.list("padding"),
            ceil_mode: self.flag("ceil_mode"),
            count_include_pad: self.flag("count_include_pad"),
            divisor_override: self.args["divisor_override"].as_i64(),
        }
    }

    /// Regions are identified by name; the generator has the same functions.
    fn attention(&self, x: &[&Tensor]) -> Result<Vec<Tensor>, String> {
        let tensors =
            ["bias", "query_lengths", "key_lengths", "dropout_key"].map(|name| self.tensor(name));
        let p = kernel::AttentionParams {
            bias: tensors[0].as_ref(),
            query_lengths: tensors[1].as_ref(),
            key_lengths: tensors[2].as_ref(),
            dropout_key: tensors[3].as_ref(),
            dropout_p: self.float("dropout_p"),
            scale: self.args["softmax_scale"].as_f64(),
            causal: self.flag("causal"),
            with_lse: true,
            unsafe_softmax: false,
        };
        let score_name = self.args["score"].as_str();
        let mut score = |s: f64, [b, h, q, k]: [i64; 4]| match score_name {
            Some("alibi") => Ok(s + 0.25 * ((h + 1) * (k - q)) as f64 + b as f64),
            Some("softcap") => Ok(2.0 * (s / 2.0).tanh()),
            other => Err(format!("no score {other:?}").into()),
        };
        let mask_name = self.args["mask"].as_str();
        let mut mask = |[b, h, q, k]: [i64; 4]| match mask_name {
            Some("window") => Ok((q - k).abs() <= 1 + h),
            Some("odd") => Ok((b + k) % 2 == 1),
            other => Err(format!("no mask {other:?}").into()),
        };
        let score: Option<kernel::ScoreFn<'_>> =
            if score_name.is_some() { Some(&mut score) } else { None };
        let mask: Option<kernel::MaskFn<'_>> =
            if mask_name.is_some() { Some(&mut mask) } else { None };
        let (result, lse) = kernel::attention(x[0], x[1], x[2], &p, score, mask)?;
        Ok(std::iter::once(result).chain(lse).collect())
    }
}

/// Where and how a result differs from the expected one.
fn difference(result: &Tensor, expected: &Tensor, scale: f64, signed_zero: bool) -> Option<String> {
    if (result.dtype(), result.shape()) != (expected.dtype(), expected.shape()) {
        let (r, e) = (result, expected);
        return Some(format!(
            "{} {:?}, expected {} {:?}",
            r.dtype(),
            r.shape(),
            e.dtype(),
            e.shape()
        ));
    }
    match (result.data(), expected.data()) {
        (Data::F(r), Data::F(e)) => r.iter().zip(e).enumerate().find_map(|(k, (&r, &e))| {
            let close = (r - e).abs() <= TOLERANCE * e.abs().max(scale);
            let sign = !signed_zero || e != 0.0 || r.is_sign_negative() == e.is_sign_negative();
            let equal = r == e || (r.is_nan() && e.is_nan()) || (close && e.is_finite());
            (!equal || !sign).then(|| format!("element {k} is {r:?}, expected {e:?}"))
        }),
        (r, e) => (r != e).then(|| format!("{r:?}, expected {e:?}")),
    }
}

#[test]
fn kernels_agree_with_numpy_and_pytorch() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let mut failures = vec![];
    let mut counts: BTreeMap<String, usize> =
        KERNELS.split(' ').map(|op| (op.to_string(), 0)).collect();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (n, case) in cases.iter().enumerate() {
        let op = case["op"].as_str().unwrap();
        *counts.get_mut(op).unwrap_or_else(|| panic!("no kernel {op}")) += 1;
        if let Some(kind) = case["args"]["kind"].as_str() {
            *kinds.entry(format!("{op} {kind}")).or_default() += 1;
        }
        let inputs = case["in"].as_array().unwrap().iter().map(tensor).collect();
        let expected: Vec<Tensor> = case["out"].as_array().unwrap().iter().map(tensor).collect();
        // For single operations the sign of zero is defined; in sums it depends on their order.
        let signed_zero = matches!(op, "unary" | "binary" | "round");
        let scale = case["scale"].as_f64().unwrap_or(0.0);
        match (Case { args: case["args"].clone(), inputs }).run(op) {
            Ok(results) if results.len() == expected.len() => {
                for (r, e) in results.iter().zip(&expected) {
                    if let Some(why) = difference(r, e, scale, signed_zero) {
                        failures.push(format!("case {n}, {op} {}: {why}", case["args"]));
                    }
                }
            }
            Ok(results) => failures.push(format!("case {n}, {op}: {} results", results.len())),
            Err(why) => failures.push(format!("case {n}, {op} {}: {why}", case["args"])),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    let missing: Vec<_> = counts.iter().filter(|&(_, &n)| n == 0).map(|(op, _)| op).collect();
    assert!(missing.is_empty(), "no case of {missing:?}");
    let all = [
        ("unary", UnaryKind::ALL.len()),
        ("binary", BinaryKind::ALL.len()),
        ("compare", CompareKind::ALL.len()),
    ];
    let all = all
        .into_iter()
        .chain([("reduce", ReduceKind::ALL.len()), ("scatter", ScatterKind::ALL.len())]);
    for (op, count) in all.chain([
        ("cumulative", CumulativeKind::ALL.len()),
        ("reduce_window", CumulativeKind::ALL.len()),
    ]) {
        let seen = kinds.keys().filter(|key| key.split(' ').next() == Some(op)).count();
        assert_eq!(seen, count, "kinds of {op} that have a case");
    }
}
