//! `torch.autocast` at capture: the arguments of an op are converted by the policy that PyTorch
//! documents for it, before the op is emitted. Other ops take what they are given.
use super::{
    aten::{Cx, Val},
    unsupported,
};
use kiln_dialects::{Result, value::DType};
use std::collections::HashMap;

/// An enabled autocast context.
#[derive(Clone, Copy, Debug)]
pub struct Autocast {
    table: &'static [(Policy, &'static [&'static str])],
    dtype: DType,
}

/// What happens to the floating-point arguments of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    /// To the context's dtype.
    Lower,
    /// To f32.
    Single,
    /// To f32, unless the call names a dtype.
    SingleByDefault,
    /// To the widest dtype among them.
    Promote,
}

/// Ops by policy on processors: PyTorch's CPU Op-Specific Behavior.
const CPU: &[(Policy, &[&str])] = &[
    (
        Policy::Lower,
        &[
            "conv1d",
            "conv2d",
            "conv3d",
            "bmm",
            "mm",
            "linalg_vecdot",
            "baddbmm",
            "addmm",
            "_addmm_activation",
            "addbmm",
            "linear",
            "_convolution",
            "matmul",
            "conv_tbc",
            "mkldnn_rnn_layer",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "prelu",
            "scaled_dot_product_attention",
            "_native_multi_head_attention",
        ],
    ),
    (
        Policy::Single,
        &[
            "avg_pool3d",
            "binary_cross_entropy",
            "grid_sampler",
            "polar",
            "prod",
            "quantile",
            "nanquantile",
            "stft",
            "cdist",
            "grid_sampler_2d",
            "_grid_sampler_2d_cpu_fallback",
            "grid_sampler_3d",
            "trace",
            "view_as_complex",
            "cholesky",
            "cholesky_inverse",
            "cholesky_solve",
            "inverse",
            "lu_solve",
            "orgqr",
            "ormqr",
            "pinverse",
            "max_pool3d",
            "max_unpool2d",
            "max_unpool3d",
            "adaptive_avg_pool3d",
            "reflection_pad1d",
            "reflection_pad2d",
            "replication_pad1d",
            "replication_pad2d",
            "replication_pad3d",
            "mse_loss",
            "cosine_embedding_loss",
            "nll_loss",
            "nll_loss2d",
            "hinge_embedding_loss",
            "poisson_nll_loss",
            "smooth_l1_loss",
            "cross_entropy_loss",
            "l1_loss",
            "huber_loss",
            "margin_ranking_loss",
            "soft_margin_loss",
            "triplet_margin_loss",
            "multi_margin_loss",
            "ctc_loss",
            "kl_div",
            "multilabel_margin_loss",
            "binary_cross_entropy_with_logits",
            "fft_fft",
            "fft_ifft",
            "fft_fft2",
            "fft_ifft2",
            "fft_fftn",
            "fft_ifftn",
            "fft_rfft",
            "fft_irfft",
            "fft_rfft2",
            "fft_irfft2",
            "fft_rfftn",
            "fft_irfftn",
            "fft_hfft",
            "fft_ihfft",
            "linalg_cond",
            "linalg_matrix_rank",
            "linalg_solve",
            "linalg_cholesky",
            "linalg_svdvals",
            "linalg_eigvals",
            "linalg_eigvalsh",
            "linalg_inv",
            "linalg_householder_product",
            "linalg_tensorinv",
            "linalg_tensorsolve",
            "fake_quantize_per_tensor_affine",
            "geqrf",
            "_lu_with_info",
            "qr",
            "svd",
            "triangular_solve",
            "fractional_max_pool2d",
            "fractional_max_pool3d",
            "adaptive_max_pool3d",
            "multilabel_margin_loss_forward",
            "linalg_qr",
            "linalg_cholesky_ex",
            "linalg_svd",
            "linalg_eig",
            "linalg_eigh",
            "linalg_lstsq",
            "linalg_inv_ex",
        ],
    ),
    (Policy::Promote, &["stack", "cat", "index_copy"]),
];

/// Ops by policy on GPUs: PyTorch's CUDA Op-Specific Behavior.
const CUDA: &[(Policy, &[&str])] = &[
    (
        Policy::Lower,
        &[
            "_convolution",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_tbc",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "convolution",
            "prelu",
            "addmm",
            "addmv",
            "addr",
            "matmul",
            "einsum",
            "mm",
            "mv",
            "linalg_vecdot",
            "linear",
            "addbmm",
            "baddbmm",
            "bmm",
            "chain_matmul",
            "linalg_multi_dot",
            "_thnn_fused_lstm_cell",
            "_thnn_fused_gru_cell",
            "lstm_cell",
            "gru_cell",
            "rnn_tanh_cell",
            "rnn_relu_cell",
            "_scaled_dot_product_flash_attention",
            "scaled_dot_product_attention",
        ],
    ),
    (
        Policy::Single,
        &[
            "acos",
            "asin",
            "cosh",
            "erfinv",
            "exp",
            "expm1",
            "log",
            "log10",
            "log2",
            "log1p",
            "reciprocal",
            "rsqrt",
            "sinh",
            "tan",
            "pow",
            "softplus",
            "layer_norm",
            "native_layer_norm",
            "group_norm",
            "frobenius_norm",
            "nuclear_norm",
            "cosine_similarity",
            "poisson_nll_loss",
            "cosine_embedding_loss",
            "nll_loss",
            "nll_loss2d",
            "hinge_embedding_loss",
            "kl_div",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "mse_loss",
            "margin_ranking_loss",
            "multilabel_margin_loss",
            "soft_margin_loss",
            "triplet_margin_loss",
            "multi_margin_loss",
            "binary_cross_entropy_with_logits",
            "dist",
            "pdist",
            "cdist",
            "renorm",
            "logsumexp",
            "upsample_nearest1d",
            "_upsample_nearest_exact1d",
            "upsample_nearest2d",
            "_upsample_nearest_exact2d",
            "upsample_nearest3d",
            "_upsample_nearest_exact3d",
            "upsample_linear1d",
            "upsample_bilinear2d",
            "_upsample_bilinear2d_aa",
            "upsample_trilinear3d",
            "upsample_bicubic2d",
            "_upsample_bicubic2d_aa",
            "norm",
        ],
    ),
    (
        Policy::SingleByDefault,
        &[
            "prod",
            "softmax",
            "log_softmax",
            "cumprod",
            "cumsum",
            "linalg_vector_norm",
            "linalg_matrix_norm",
            "sum",
        ],
    ),
    (
        Policy::Promote,
        &[
            "addcdiv",
            "addcmul",
            "atan2",
            "bilinear",
            "cross",
            "dot",
            "vdot",
            "grid_sampler",
            "index_put",
            "tensordot",
            "scatter_add",
        ],
    ),
];

impl Autocast {
    /// The context of a type of device and a dtype.
    pub fn new(device: &str, dtype: Val) -> Result<Autocast> {
        let (table, default) = match device {
            "cpu" => (CPU, DType::BF16),
            "cuda" => (CUDA, DType::F16),
            other => return Err(unsupported(format!("autocasts on {other}"))),
        };
        let dtype = if let Val::DType(d) = dtype { d } else { default };
        match dtype {
            DType::BF16 | DType::F16 => Ok(Autocast { table, dtype }),
            other => Err(unsupported(format!("autocasts to {}", other.name()))),
        }
    }
    fn policy(&self, target: &str) -> Option<Policy> {
        let name = target.strip_prefix("aten.")?;
        let (name, _) = name.rsplit_once('.')?;
        self.table.iter().find(|(_, names)| names.contains(&name)).map(|(policy, _)| *policy)
    }
}

/// Converts the arguments of a node by the context around it.
pub fn convert(cx: &mut Cx, target: &str, values: &mut HashMap<&str, Val>) -> Result<()> {
    let Some((context, policy)) = cx.autocast.and_then(|c| Some((c, c.policy(target)?))) else {
        return Ok(());
    };
    let to = match policy {
        Policy::Lower => context.dtype,
        Policy::Single => DType::F32,
        Policy::SingleByDefault => {
            if let Some(Val::DType(_)) = values.get("dtype") {
                return Ok(());
            }
            DType::F32
        }
        Policy::Promote => {
            let mut widest = context.dtype;
            for v in values.values() {
                widest = widened(cx, v, widest)?;
            }
            widest
        }
    };
    values.values_mut().try_for_each(|v| cast(cx, v, to))
}

/// The dtype of a tensor that autocast converts: a float, f64 aside.
fn eligible(cx: &mut Cx, v: &Val) -> Result<Option<DType>> {
    let Val::Tensor(alias) = v else { return Ok(None) };
    let value = cx.get(*alias)?;
    let d = kiln_dialects::rules::tensor_type(value.ty())?.dtype;
    Ok((d.is_float() && d != DType::F64).then_some(d))
}

fn widened(cx: &mut Cx, v: &Val, widest: DType) -> Result<DType> {
    match v {
        Val::List(all) => all.iter().try_fold(widest, |w, v| widened(cx, v, w)),
        one => match eligible(cx, one)? {
            Some(d) if d == widest => Ok(widest),
            Some(DType::F32) => Ok(DType::F32),
            Some(DType::BF16 | DType::F16) if widest == DType::F32 => Ok(widest),
            Some(d) => Err(unsupported(format!(
                "promotes {} and {} in an autocast region",
                d.name(),
                widest.name()
            ))),
            None => Ok(widest),
        },
    }
}

fn cast(cx: &mut Cx, v: &mut Val, to: DType) -> Result<()> {
    if let Val::List(all) = v {
        return all.iter_mut().try_for_each(|v| cast(cx, v, to));
    }
    let from = eligible(cx, v)?;
    if let Val::Tensor(alias) = v
        && from.is_some_and(|d| d != to)
    {
        let value = cx.get(*alias)?;
        let value = cx.convert(value, to)?;
        *alias = cx.store.fresh(value);
    }
    Ok(())
}

/// Err: a result in an autocast region has another dtype than the export gives.
pub fn check(cx: &mut Cx, results: &[Val]) -> Result<()> {
    if cx.autocast.is_none() {
        return Ok(());
    }
    for (v, declared) in results.iter().zip(cx.declared.clone()) {
        let (Val::Tensor(alias), Some(want)) = (v, declared.dtype) else { continue };
        let value = cx.get(*alias)?;
        let have = kiln_dialects::rules::tensor_type(value.ty())?.dtype;
        if have != want {
            return Err(unsupported(format!(
                "gives {} in an autocast region, where PyTorch gives {}; run_decompositions() states the conversions",
                have.name(),
                want.name()
            )));
        }
    }
    Ok(())
}
