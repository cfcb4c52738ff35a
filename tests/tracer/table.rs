//! The method of an ATen overload.
use super::replay::Call;
use kiln::{dialects::value::DType, tensor::*};

macro_rules! table {
    ($($target:literal $(| $more:literal)* => |$a:pat_param| $make:expr),* $(,)?) => {
        /// Overloads of this table.
        pub(super) const TARGETS: &[&str] = &[$($target $(, $more)*),*];
        /// The results of an overload; `None` for one that is no method.
        pub(super) fn call(target: &str, a: &Call<'_>) -> Option<Vec<Tensor>> {
            match target {
                $($target $(| $more)* => {
                    let $a = a;
                    Results::list($make)
                })*
                _ => None,
            }
        }
    };
}

trait Results {
    fn list(self) -> Option<Vec<Tensor>>;
}
impl Results for Option<Tensor> {
    fn list(self) -> Option<Vec<Tensor>> {
        self.map(|t| vec![t])
    }
}
impl Results for Tensor {
    fn list(self) -> Option<Vec<Tensor>> {
        Some(vec![self])
    }
}
impl Results for (Tensor, Tensor) {
    fn list(self) -> Option<Vec<Tensor>> {
        Some(vec![self.0, self.1])
    }
}
impl Results for Vec<Tensor> {
    fn list(self) -> Option<Vec<Tensor>> {
        Some(self)
    }
}

/// `alpha * other`.
fn scaled(a: &Call<'_>) -> Operand {
    match (a.has("alpha") && a.f("alpha", 1.0) != 1.0, a.operand("other")) {
        (false, o) => o,
        (true, Operand::Tensor(t)) => (t * a.operand("alpha")).into(),
        (true, Operand::Int(n)) => (n * a.int("alpha", 1)).into(),
        (true, Operand::Float(x)) => (x * a.f("alpha", 1.0)).into(),
        (true, o) => o,
    }
}

fn to(a: &Call<'_>, x: Tensor) -> Tensor {
    a.dtype("dtype").map_or(x.clone(), |d| x.to(d))
}

fn parts<const N: usize>(all: [Tensor; N]) -> Vec<Tensor> {
    all.to_vec()
}

fn reduction(a: &Call<'_>) -> Reduction {
    [Reduction::None, Reduction::Mean, Reduction::Sum][a.int("reduction", 1) as usize]
}

table! {
    "aten.exp.default" => |a| a.t("self").exp(),
    "aten.exp2.default" => |a| a.t("self").exp2(),
    "aten.expm1.default" => |a| a.t("self").expm1(),
    "aten.log.default" => |a| a.t("self").log(),
    "aten.log1p.default" => |a| a.t("self").log1p(),
    "aten.log2.default" => |a| a.t("self").log2(),
    "aten.log10.default" => |a| a.t("self").log10(),
    "aten.sqrt.default" => |a| a.t("self").sqrt(),
    "aten.rsqrt.default" => |a| a.t("self").rsqrt(),
    "aten.reciprocal.default" => |a| a.t("self").reciprocal(),
    "aten.sin.default" => |a| a.t("self").sin(),
    "aten.cos.default" => |a| a.t("self").cos(),
    "aten.tan.default" => |a| a.t("self").tan(),
    "aten.asin.default" => |a| a.t("self").asin(),
    "aten.acos.default" => |a| a.t("self").acos(),
    "aten.atan.default" => |a| a.t("self").atan(),
    "aten.sinh.default" => |a| a.t("self").sinh(),
    "aten.cosh.default" => |a| a.t("self").cosh(),
    "aten.tanh.default" => |a| a.t("self").tanh(),
    "aten.erf.default" | "aten.special_erf.default" => |a| a.t("self").erf(),
    "aten.isfinite.default" => |a| a.t("self").isfinite(),
    "aten.isnan.default" => |a| a.t("self").isnan(),
    "aten.isinf.default" => |a| a.t("self").isinf(),
    "aten.abs.default" => |a| a.t("self").abs(),
    "aten.sign.default" => |a| a.t("self").sign(),
    "aten.ceil.default" => |a| a.t("self").ceil(),
    "aten.floor.default" => |a| a.t("self").floor(),
    "aten.round.default" => |a| a.t("self").round(),
    "aten.trunc.default" | "aten.fix.default" => |a| a.t("self").trunc(),
    "aten.square.default" => |a| a.t("self").square(),
    "aten.logical_not.default" => |a| a.t("self").logical_not(),
    "aten.relu.default" => |a| a.t("self").relu(),
    "aten.relu6.default" => |a| a.t("self").relu6(),
    "aten.sigmoid.default" => |a| a.t("self").sigmoid(),
    "aten.silu.default" => |a| a.t("self").silu(),
    "aten.hardsigmoid.default" => |a| a.t("self").hardsigmoid(),
    "aten.hardswish.default" => |a| a.t("self").hardswish(),
    "aten.mish.default" => |a| a.t("self").mish(),
    "aten.softplus.default" => |a| (!a.has("beta")).then(|| a.t("self").softplus()),
    "aten.neg.default" => |a| -a.t("self"),
    "aten.bitwise_not.default" => |a| !a.t("self"),
    "aten.gelu.default" => |a| if a.text("approximate") == "tanh" { a.t("self").gelu_tanh() } else { a.t("self").gelu() },
    "aten.leaky_relu.default" => |a| a.t("self").leaky_relu(a.f("negative_slope", 0.01)),
    "aten.elu.default" => |a| (!a.has("scale")).then(|| a.t("self").elu(a.f("alpha", 1.0))),
    "aten.add.Tensor" | "aten.add.Scalar" => |a| a.t("self") + scaled(a),
    "aten.sub.Tensor" | "aten.sub.Scalar" => |a| a.t("self") - scaled(a),
    "aten.rsub.Scalar" => |a| match a.operand("other") {
        Operand::Int(n) if a.has("alpha") => n - a.t("self") * a.int("alpha", 1),
        Operand::Int(n) => n - a.t("self"),
        _ => a.f("other", 0.0) - a.t("self"),
    },
    "aten.mul.Tensor" | "aten.mul.Scalar" => |a| a.t("self") * a.operand("other"),
    "aten.div.Tensor" | "aten.div.Scalar" => |a| a.t("self") / a.operand("other"),
    "aten.remainder.Tensor" | "aten.remainder.Scalar" => |a| a.t("self") % a.operand("other"),
    "aten.fmod.Tensor" | "aten.fmod.Scalar" => |a| a.t("self").fmod(a.operand("other")),
    "aten.floor_divide.default" => |a| a.t("self").floor_divide(a.operand("other")),
    "aten.maximum.default" => |a| a.t("self").maximum(a.operand("other")),
    "aten.minimum.default" => |a| a.t("self").minimum(a.operand("other")),
    "aten.pow.Tensor_Tensor" | "aten.pow.Tensor_Scalar" => |a| a.t("self").pow(a.operand("exponent")),
    "aten.atan2.default" => |a| a.t("self").atan2(a.operand("other")),
    "aten.bitwise_and.Tensor" | "aten.bitwise_and.Scalar" | "aten.__and__.Tensor" => |a| a.t("self") & a.operand("other"),
    "aten.bitwise_or.Tensor" | "aten.bitwise_or.Scalar" | "aten.__or__.Tensor" => |a| a.t("self") | a.operand("other"),
    "aten.bitwise_xor.Tensor" => |a| a.t("self") ^ a.operand("other"),
    "aten.eq.Tensor" | "aten.eq.Scalar" => |a| a.t("self").eq(a.operand("other")),
    "aten.ne.Tensor" | "aten.ne.Scalar" => |a| a.t("self").ne(a.operand("other")),
    "aten.lt.Tensor" | "aten.lt.Scalar" => |a| a.t("self").lt(a.operand("other")),
    "aten.le.Tensor" | "aten.le.Scalar" => |a| a.t("self").le(a.operand("other")),
    "aten.gt.Tensor" | "aten.gt.Scalar" => |a| a.t("self").gt(a.operand("other")),
    "aten.ge.Tensor" | "aten.ge.Scalar" => |a| a.t("self").ge(a.operand("other")),
    "aten.logical_and.default" => |a| a.t("self").logical_and(a.operand("other")),
    "aten.logical_or.default" => |a| a.t("self").logical_or(a.operand("other")),
    "aten.logical_xor.default" => |a| a.t("self").logical_xor(a.operand("other")),
    "aten.clamp.default" | "aten.clamp.Tensor" => |a| match (a.has("min"), a.has("max")) {
        (true, true) => a.t("self").clamp(a.operand("min"), a.operand("max")),
        (true, false) => a.t("self").clamp_min(a.operand("min")),
        _ => a.t("self").clamp_max(a.operand("max")),
    },
    "aten.clamp_min.default" => |a| a.t("self").clamp_min(a.operand("min")),
    "aten.clamp_max.default" => |a| a.t("self").clamp_max(a.operand("max")),
    "aten.where.self" | "aten.where.ScalarOther" | "aten.where.ScalarSelf" | "aten.where.Scalar" => |a| a.t("condition").where_(a.operand("self"), a.operand("other")),
    "aten.masked_fill.Scalar" | "aten.masked_fill.Tensor" => |a| a.t("self").masked_fill(a.t("mask"), a.operand("value")),
    "aten.to.dtype" | "aten.to.dtype_layout" | "aten._to_copy.default" => |a| to(a, a.t("self")),
    "aten.dropout.default" => |a| a.t("input").dropout(a.f("p", 0.5)),

    "aten.zeros.default" => |a| a.g.zeros(a.dims("size"), a.dtype("dtype").unwrap_or(DType::F32)),
    "aten.ones.default" => |a| a.g.ones(a.dims("size"), a.dtype("dtype").unwrap_or(DType::F32)),
    "aten.full.default" => |a| a.g.full(a.dims("size"), a.operand("fill_value"), a.dtype("dtype").unwrap_or(match a.operand("fill_value") {
        Operand::Bool(_) => DType::I1,
        Operand::Int(_) => DType::I64,
        _ => DType::F32,
    })),
    "aten.zeros_like.default" => |a| to(a, a.t("self")).zeros_like(),
    "aten.ones_like.default" => |a| to(a, a.t("self")).ones_like(),
    "aten.full_like.default" => |a| to(a, a.t("self")).full_like(a.operand("fill_value")),
    "aten.arange.default" => |a| to(a, a.g.arange(0, a.operand("end"), 1)),
    "aten.arange.start" => |a| to(a, a.g.arange(a.operand("start"), a.operand("end"), 1)),
    "aten.arange.start_step" => |a| to(a, a.g.arange(a.operand("start"), a.operand("end"), if a.has("step") { a.operand("step") } else { 1.into() })),
    "aten.linspace.default" => |a| (!a.has("dtype")).then(|| a.g.linspace(a.f("start", 0.0), a.f("end", 0.0), a.int("steps", 0))),
    "aten.eye.default" => |a| a.g.eye(a.dim("n", 0), a.dim("n", 0), a.dtype("dtype").unwrap_or(DType::F32)),
    "aten.eye.m" => |a| a.g.eye(a.dim("n", 0), a.dim("m", 0), a.dtype("dtype").unwrap_or(DType::F32)),
    "aten.tril.default" => |a| a.t("self").tril(a.int("diagonal", 0)),
    "aten.triu.default" => |a| a.t("self").triu(a.int("diagonal", 0)),

    "aten.reshape.default" => |a| a.t("self").reshape(a.dims("shape")),
    "aten.view.default" | "aten._unsafe_view.default" => |a| a.t("self").view(a.dims("size")),
    "aten.flatten.using_ints" => |a| a.t("self").flatten(a.int("start_dim", 0), a.int("end_dim", -1)),
    "aten.unflatten.int" => |a| a.t("self").unflatten(a.int("dim", 0), a.dims("sizes")),
    "aten.transpose.int" => |a| a.t("self").transpose(a.int("dim0", 0), a.int("dim1", 0)),
    "aten.permute.default" => |a| a.t("self").permute(a.ints("dims").as_slice()),
    "aten.t.default" => |a| a.t("self").t(),
    "aten.squeeze.default" => |a| a.t("self").squeeze(..),
    "aten.squeeze.dim" | "aten.squeeze.dims" => |a| a.t("self").squeeze(a.ints("dim").as_slice()),
    "aten.unsqueeze.default" => |a| a.t("self").unsqueeze(a.int("dim", 0)),
    "aten.expand.default" => |a| a.t("self").expand(a.dims("size")),
    "aten.expand_as.default" => |a| a.t("self").broadcast_to(a.t("other").dims().expect("sizes")),
    "aten.narrow.default" => |a| a.t("self").narrow(a.int("dim", 0), a.dim("start", 0), a.dim("length", 0)),
    "aten.slice.Tensor" => |a| match a.int("step", 1) {
        1 => a.t("self").slice(a.int("dim", 0), a.dim("start", 0), a.dim("end", END)),
        step => a.t("self").slice_step(a.int("dim", 0), a.dim("start", 0), a.dim("end", END), step),
    },
    "aten.select.int" => |a| a.t("self").select(a.int("dim", 0), a.dim("index", 0)),
    "aten.split.Tensor" => |a| a.t("self").split(a.int("split_size", 0), a.int("dim", 0)),
    "aten.split_with_sizes.default" => |a| parts(a.t("self").split_with_sizes::<3>(a.pair("split_sizes", 0), a.int("dim", 0))),
    // PyTorch returns three where the archive asks for four.
    "aten.chunk.default" => |a| parts(a.t("self").chunk::<3>(a.int("dim", 0))),
    "aten.unbind.int" => |a| a.t("self").unbind(a.int("dim", 0)),
    "aten.cat.default" => |a| a.g.cat(&a.all("tensors"), a.int("dim", 0)),
    "aten.stack.default" => |a| a.g.stack(&a.all("tensors"), a.int("dim", 0)),
    "aten.flip.default" => |a| a.t("self").flip(a.ints("dims").as_slice()),
    "aten.roll.default" => |a| a.t("self").roll(&a.ints("shifts"), &a.ints("dims")),
    "aten.repeat.default" => |a| a.t("self").repeat(a.dims("repeats")),
    "aten.pad.default" | "aten.constant_pad_nd.default" => |a| a.t("self").pad(a.dims("pad"), if a.has("value") { a.operand("value") } else { 0.into() }),

    "aten.embedding.default" => |a| a.t("weight").embedding(a.t("indices")),
    "aten.index_select.default" => |a| a.t("self").index_select(a.int("dim", 0), a.t("index")),
    "aten.gather.default" => |a| a.t("self").gather(a.int("dim", 0), a.t("index")),

    "aten.sum.default" | "aten.sum.dim_IntList" => |a| to(a, a.t("self")).sum(a.axes("dim"), a.flag("keepdim", false)),
    "aten.prod.default" | "aten.prod.dim_int" => |a| to(a, a.t("self")).prod(a.axes("dim"), a.flag("keepdim", false)),
    "aten.amax.default" | "aten.max.default" => |a| a.t("self").amax(a.axes("dim"), a.flag("keepdim", false)),
    "aten.amin.default" | "aten.min.default" => |a| a.t("self").amin(a.axes("dim"), a.flag("keepdim", false)),
    "aten.any.default" | "aten.any.dim" | "aten.any.dims" => |a| a.t("self").any(a.axes("dim"), a.flag("keepdim", false)),
    "aten.all.default" | "aten.all.dim" => |a| a.t("self").all(a.axes("dim"), a.flag("keepdim", false)),
    "aten.logsumexp.default" => |a| a.t("self").logsumexp(a.axes("dim"), a.flag("keepdim", false)),
    "aten.mean.default" | "aten.mean.dim" => |a| to(a, a.t("self")).mean(a.axes("dim"), a.flag("keepdim", false)),
    "aten.var.correction" => |a| a.t("self").var(a.axes("dim"), a.f("correction", 1.0), a.flag("keepdim", false)),
    "aten.std.correction" => |a| a.t("self").std(a.axes("dim"), a.f("correction", 1.0), a.flag("keepdim", false)),
    "aten.argmax.default" => |a| a.t("self").argmax(a.has("dim").then(|| a.int("dim", 0)), a.flag("keepdim", false)),
    "aten.argmin.default" => |a| a.t("self").argmin(a.has("dim").then(|| a.int("dim", 0)), a.flag("keepdim", false)),
    "aten.max.dim" => |a| a.t("self").max_dim(a.int("dim", 0), a.flag("keepdim", false)),
    "aten.min.dim" => |a| a.t("self").min_dim(a.int("dim", 0), a.flag("keepdim", false)),
    "aten.cumsum.default" => |a| to(a, a.t("self")).cumsum(a.int("dim", 0)),
    "aten.cumprod.default" => |a| to(a, a.t("self")).cumprod(a.int("dim", 0)),
    "aten.topk.default" => |a| a.t("self").topk(a.int("k", 0), a.int("dim", -1), a.flag("largest", true)),
    "aten.sort.default" | "aten.sort.stable" => |a| a.t("self").sort(a.int("dim", -1), a.flag("descending", false)),

    "aten.linear.default" => |a| a.t("input").linear(a.t("weight"), a.maybe("bias")),
    "aten.matmul.default" => |a| a.t("self").matmul(a.t("other")),
    "aten.mm.default" => |a| a.t("self").matmul(a.t("mat2")),
    "aten.bmm.default" => |a| a.t("self").bmm(a.t("mat2")),
    "aten.einsum.default" => |a| a.g.einsum(&a.text("equation"), &a.all("tensors")),
    "aten.scaled_dot_product_attention.default" => |a| a.t("query").scaled_dot_product_attention(a.t("key"), a.t("value"), Attention {
        mask: a.maybe("attn_mask"),
        causal: a.flag("is_causal", false),
        scale: a.has("scale").then(|| a.f("scale", 1.0)),
    }),

    "aten.layer_norm.default" => |a| a.t("input").layer_norm(&a.ints("normalized_shape"), a.maybe("weight"), a.maybe("bias"), a.f("eps", 1e-5)),
    "aten.rms_norm.default" => |a| a.t("input").rms_norm(&a.ints("normalized_shape"), a.maybe("weight"), a.has("eps").then(|| a.f("eps", 0.0))),
    "aten.group_norm.default" => |a| a.t("input").group_norm(a.int("num_groups", 1), a.maybe("weight"), a.maybe("bias"), a.f("eps", 1e-5)),
    "aten.batch_norm.default" => |a| a.t("input").batch_norm(a.t("running_mean"), a.t("running_var"), a.maybe("weight"), a.maybe("bias"), a.f("eps", 1e-5)),
    "aten.softmax.int" => |a| to(a, a.t("self")).softmax(a.int("dim", 0)),
    "aten.log_softmax.int" => |a| to(a, a.t("self")).log_softmax(a.int("dim", 0)),
    "aten.mse_loss.default" => |a| a.t("self").mse_loss(a.t("target"), reduction(a)),
    "aten.cross_entropy_loss.default" => |a| a.t("self").cross_entropy(a.t("target"), CrossEntropy {
        weight: a.maybe("weight"),
        reduction: reduction(a),
        ignore_index: a.int("ignore_index", -100),
        label_smoothing: a.f("label_smoothing", 0.0),
    }),

    "aten.conv1d.default" => |a| a.t("input").conv1d(a.t("weight"), a.maybe("bias"), a.convolution()),
    "aten.conv2d.default" => |a| a.t("input").conv2d(a.t("weight"), a.maybe("bias"), a.convolution()),
    "aten.max_pool2d.default" => |a| (a.ints("dilation").iter().all(|d| *d == 1)).then(|| a.t("self").max_pool2d(a.pool())),
    "aten.avg_pool2d.default" => |a| (!a.has("divisor_override")).then(|| a.t("self").avg_pool2d(a.pool(), a.flag("count_include_pad", true))),
    "aten.adaptive_avg_pool2d.default" => |a| a.t("self").adaptive_avg_pool2d(a.pair("output_size", 1)),
    "aten.upsample_nearest2d.vec" => |a| a.has("output_size").then(|| a.t("input").interpolate_nearest(a.dims("output_size"))),
}
