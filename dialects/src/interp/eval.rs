//! Reference evaluation of one op: the column "reference semantics" of the op table.
use crate::{
    ir::*,
    ops::*,
    reference as r,
    value::{DType, Tensor},
};
use std::rc::Rc;

type Get<'a> = &'a dyn Fn(Value) -> Result<Rc<Tensor>>;
type GetSize<'a> = &'a dyn Fn(&Size) -> Result<i64>;

/// Evaluates an op without regions and with static sizes, for constant folding. Results are rounded
/// to their dtype. Err: ops whose value depends on more than their operands.
pub fn evaluate(op: Op, operands: &[Option<Rc<Tensor>>]) -> Result<Vec<Tensor>> {
    let view = View::of(op).ok_or("is not a kiln op")?;
    let get = |v: Value| {
        let known = view.values.iter().position(|x| *x == v).and_then(|i| operands.get(i)?.clone());
        known.ok_or_else(|| "has an operand that is not constant".into())
    };
    let size = |s: &Size| s.known().ok_or_else(|| "has a size that is not constant".into());
    Ok(eval(&view, &get, &size)?.into_iter().map(Tensor::rounded).collect())
}

/// As [`evaluate`], without rounding floats.
pub(super) fn eval(view: &View, get: Get<'_>, size: GetSize<'_>) -> Result<Vec<Tensor>> {
    let all = |values: &[Value]| values.iter().map(|v| get(*v)).collect::<Result<Vec<_>, _>>();
    let opt = |v: Option<Value>| v.map(get).transpose();
    let sizes = |s: &[Size]| s.iter().map(size).collect::<Result<Vec<i64>, _>>();
    fn refs(t: &[Rc<Tensor>]) -> Vec<&Tensor> {
        t.iter().map(|t| t.as_ref()).collect()
    }
    let operand = |i: usize| get(*view.values.get(i).ok_or("has too few operands")?);
    let one = match view.kind {
        unary!() => {
            r::unary(UnaryKind::from_op(view.kind).ok_or("is not a unary op")?, &*operand(0)?)
        }
        binary!() => r::binary(
            BinaryKind::from_op(view.kind).ok_or("is not a binary op")?,
            &*operand(0)?,
            &*operand(1)?,
        ),
        OpKind::Compare => {
            let o = Compare::read(view)?;
            r::compare(o.kind, &*get(o.lhs)?, &*get(o.rhs)?)
        }
        OpKind::Select => {
            let o = Select::read(view)?;
            r::select(&*get(o.condition)?, &*get(o.on_true)?, &*get(o.on_false)?)
        }
        OpKind::Clamp => r::clamp(&*operand(0)?, &*operand(1)?, &*operand(2)?),
        OpKind::Convert => r::convert(&*operand(0)?, Convert::read(view)?.dtype.dtype()?),
        OpKind::Bitcast => r::bitcast(&*operand(0)?, Bitcast::read(view)?.dtype.dtype()?),

        OpKind::Constant => Constant::read(view)?.value.as_tensor(),
        OpKind::Splat => {
            let o = Splat::read(view)?;
            r::splat(&scalar(o.value)?, &sizes(&o.sizes)?)
        }
        OpKind::Iota => {
            let o = Iota::read(view)?;
            r::iota(o.dtype.dtype()?, &sizes(&o.sizes)?, o.axis)
        }
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::read(view)?;
            r::broadcast_in_dim(&*get(o.input)?, &o.dims, &sizes(&o.sizes)?)
        }
        OpKind::Reshape => {
            let o = Reshape::read(view)?;
            r::reshape(&*get(o.input)?, &sizes(&o.sizes)?)
        }
        OpKind::Transpose => r::transpose(&*operand(0)?, &Transpose::read(view)?.permutation),
        OpKind::Slice => {
            let o = Slice::read(view)?;
            r::slice(&*get(o.input)?, &sizes(&o.offsets)?, &sizes(&o.sizes)?, &o.strides)
        }
        OpKind::Pad => {
            let o = Pad::read(view)?;
            r::pad(&*get(o.input)?, &*get(o.value)?, &sizes(&o.low)?, &sizes(&o.high)?)
        }
        OpKind::Concat => {
            let o = Concat::read(view)?;
            r::concat(&refs(&all(&o.inputs)?), o.axis)
        }
        OpKind::InsertSlice => {
            let o = InsertSlice::read(view)?;
            let (source, dest) = (get(o.source)?, o.dest.map(get).transpose()?);
            let (mut offsets, sizes) = (sizes(&o.offsets)?, sizes(&o.sizes)?);
            if let Some((start, axis)) = o.start.zip(o.axis) {
                r::move_slice(&mut offsets, &*get(start)?, axis, source.shape(), &sizes)?;
            }
            r::insert_slice(&source, dest.as_deref(), &offsets, &sizes)
        }
        OpKind::Reverse => r::reverse(&*operand(0)?, &Reverse::read(view)?.dims),
        OpKind::Gather => {
            let o = Gather::read(view)?;
            r::gather(&*get(o.input)?, &refs(&all(&o.indices)?), &o.dims)
        }
        OpKind::Scatter => {
            let o = Scatter::read(view)?;
            r::scatter(
                o.kind,
                &*get(o.input)?,
                &*get(o.updates)?,
                &refs(&all(&o.indices)?),
                &o.dims,
            )
        }
        OpKind::DynamicSlice => {
            let o = DynamicSlice::read(view)?;
            r::dynamic_slice(&*get(o.input)?, &refs(&all(&o.starts)?), &sizes(&o.sizes)?)
        }
        OpKind::DynamicUpdateSlice => {
            let o = DynamicUpdateSlice::read(view)?;
            r::dynamic_update_slice(&*get(o.input)?, &*get(o.update)?, &refs(&all(&o.starts)?))
        }

        OpKind::Reduce => {
            let o = Reduce::read(view)?;
            r::reduce(o.kind, &*get(o.input)?, &o.dims, o.maybe_empty)
        }
        OpKind::ArgMax => r::arg_max(&*operand(0)?, ArgMax::read(view)?.axis),
        OpKind::ArgMin => r::arg_min(&*operand(0)?, ArgMin::read(view)?.axis),
        OpKind::Cumulative => {
            let o = Cumulative::read(view)?;
            r::cumulative(o.kind, &*get(o.input)?, o.axis)
        }
        OpKind::Sort => {
            let o = Sort::read(view)?;
            return r::sort(&*get(o.input)?, o.axis, o.descending).map(|(v, i)| vec![v, i]);
        }
        OpKind::TopK => {
            let o = TopK::read(view)?;
            return r::top_k(&*get(o.input)?, o.axis, o.k, o.smallest).map(|(v, i)| vec![v, i]);
        }
        OpKind::Fft => {
            let o = Fft::read(view)?;
            let (mut re, mut im) = (get(o.re)?, opt(o.im)?);
            if o.interleaved_input {
                let parts = r::deinterleave(&re)?;
                (re, im) = (Rc::new(parts.0), Some(Rc::new(parts.1)));
            }
            let made = r::fft(o.kind, &re, im.as_deref(), o.length, o.inverse)?;
            return match &made[..] {
                [re, im] if o.interleaved_result => Ok(vec![r::interleave(re, im)?]),
                _ => Ok(made),
            };
        }
        OpKind::DotGeneral => {
            let o = DotGeneral::read(view)?;
            let element_type = o.element_type.map(Type::dtype).transpose()?;
            let DotGeneral { lhs_batch, rhs_batch, lhs_contract, rhs_contract, .. } = o;
            r::dot_general(
                &*get(o.lhs)?,
                &*get(o.rhs)?,
                &r::DotParams { lhs_batch, rhs_batch, lhs_contract, rhs_contract, element_type },
            )
        }
        OpKind::Convolution => {
            let o = Convolution::read(view)?;
            let (x, w) = (get(o.input)?, get(o.weight)?);
            let Convolution {
                strides,
                pad_low,
                pad_high,
                dilation,
                groups,
                transposed,
                output_padding,
                ..
            } = o;
            r::convolution(
                &x,
                &w,
                &r::ConvParams {
                    strides,
                    pad_low,
                    pad_high,
                    dilation,
                    groups,
                    transposed,
                    output_padding,
                },
            )
        }
        OpKind::ConvolutionWeightGradient => {
            let o = ConvolutionWeightGradient::read(view)?;
            let (x, g) = (get(o.input)?, get(o.gradient)?);
            let ConvolutionWeightGradient {
                window,
                strides,
                pad_low,
                pad_high,
                dilation,
                groups,
                splits,
                depthwise,
                ..
            } = o;
            let p = r::ConvParams {
                strides,
                pad_low,
                pad_high,
                dilation,
                groups,
                transposed: false,
                output_padding: None,
            };
            r::convolution_weight_gradient(&x, &g, &window, &p, splits, depthwise)
        }
        OpKind::ReduceWindow => {
            let o = ReduceWindow::read(view)?;
            let x = get(o.input)?;
            let ReduceWindow { kind, window, strides, pad_low, pad_high, dilation, .. } = o;
            r::reduce_window(
                kind,
                &x,
                &r::WindowParams { window, strides, pad_low, pad_high, dilation },
            )
        }
        OpKind::WinogradInput => {
            let o = WinogradInput::read(view)?;
            r::winograd_input(&*get(o.input)?, o.tile)
        }
        OpKind::WinogradOutput => {
            let o = WinogradOutput::read(view)?;
            r::winograd_output(&*get(o.input)?, o.tile)
        }
        OpKind::Philox => {
            let o = Philox::read(view)?;
            let (seed, block, stream) = (get(o.seed)?, get(o.block)?, get(o.stream)?);
            return r::philox(&seed, &block, &stream).map(Vec::from);
        }
        OpKind::RandomBits => {
            let o = RandomBits::read(view)?;
            r::random_bits(&*get(o.key)?, &sizes(&o.sizes)?, o.dtype.dtype()?)
        }
        OpKind::RandomUniform => {
            let o = RandomUniform::read(view)?;
            r::random_uniform(&*get(o.key)?, &sizes(&o.sizes)?, o.dtype.dtype()?, o.low, o.high)
        }
        OpKind::RandomNormal => {
            let o = RandomNormal::read(view)?;
            r::random_normal(&*get(o.key)?, &sizes(&o.sizes)?, o.dtype.dtype()?, o.mean, o.std)
        }

        OpKind::Sigmoid => r::sigmoid(&*operand(0)?),
        OpKind::Silu => r::silu(&*operand(0)?),
        OpKind::Relu => r::relu(&*operand(0)?),
        OpKind::Hardtanh => {
            let o = Hardtanh::read(view)?;
            r::hardtanh(&*get(o.input)?, o.low, o.high)
        }
        OpKind::Hardsigmoid => r::hardsigmoid(&*operand(0)?),
        OpKind::Hardswish => r::hardswish(&*operand(0)?),
        OpKind::Gelu => r::gelu(&*operand(0)?, Gelu::read(view)?.tanh),
        OpKind::Softplus => {
            let o = Softplus::read(view)?;
            r::softplus(&*get(o.input)?, o.beta, o.threshold)
        }
        OpKind::Linear => {
            let o = Linear::read(view)?;
            r::linear(&*get(o.input)?, &*get(o.weight)?, opt(o.bias)?.as_deref())
        }
        OpKind::Matmul => r::matmul(&*operand(0)?, &*operand(1)?),
        OpKind::Embedding => r::embedding(&*operand(0)?, &*operand(1)?),
        OpKind::LayerNorm => {
            let o = LayerNorm::read(view)?;
            r::layer_norm(
                &*get(o.input)?,
                opt(o.weight)?.as_deref(),
                opt(o.bias)?.as_deref(),
                o.rank,
                o.epsilon,
            )
        }
        OpKind::GroupNorm => {
            let o = GroupNorm::read(view)?;
            r::group_norm(
                &*get(o.input)?,
                opt(o.weight)?.as_deref(),
                opt(o.bias)?.as_deref(),
                o.groups,
                o.epsilon,
            )
        }
        OpKind::BatchNorm => {
            let o = BatchNorm::read(view)?;
            let (mean, variance, weight, bias) =
                (get(o.mean)?, get(o.variance)?, opt(o.weight)?, opt(o.bias)?);
            let (weight, bias) = (weight.as_deref(), bias.as_deref());
            r::batch_norm(
                &*get(o.input)?,
                &r::BatchNormParams {
                    mean: &mean,
                    variance: &variance,
                    weight,
                    bias,
                    epsilon: o.epsilon,
                },
            )
        }
        OpKind::RmsNorm => {
            let o = RmsNorm::read(view)?;
            r::rms_norm(&*get(o.input)?, opt(o.weight)?.as_deref(), o.rank, o.epsilon)
        }
        OpKind::Softmax => {
            let o = Softmax::read(view)?;
            r::softmax(&*get(o.input)?, o.axis, o.safe)
        }
        OpKind::LogSoftmax => r::log_softmax(&*operand(0)?, LogSoftmax::read(view)?.axis),
        OpKind::CrossEntropy => {
            let o = CrossEntropy::read(view)?;
            let weight = opt(o.weight)?;
            let CrossEntropy { reduction, ignore_index, label_smoothing, .. } = o;
            let params = r::CrossEntropyParams {
                reduction,
                weight: weight.as_deref(),
                ignore_index,
                label_smoothing,
            };
            r::cross_entropy(&*get(o.logits)?, &*get(o.target)?, &params)
        }
        OpKind::Dropout => {
            let o = Dropout::read(view)?;
            r::dropout(&*get(o.input)?, &*get(o.key)?, o.p)
        }
        OpKind::AttentionGradient => {
            let o = AttentionGradient::read(view)?;
            let (lse, delta) = (get(o.lse)?, get(o.delta)?);
            let params = r::AttentionGradientParams {
                lse: &lse,
                delta: &delta,
                scale: o.scale,
                causal: o.causal,
                by_keys: o.by_keys,
            };
            let (q, k, v) = (get(o.query)?, get(o.key)?, get(o.value)?);
            return r::attention_gradient(&q, &k, &v, &*get(o.cotangent)?, &params);
        }
        OpKind::StopGradient | OpKind::OptimizationBarrier => Ok((*operand(0)?).clone()),
        OpKind::Interpolate => {
            let o = Interpolate::read(view)?;
            r::interpolate(&*get(o.input)?, &sizes(&o.sizes)?)
        }
        OpKind::MaxPool => {
            let o = MaxPool::read(view)?;
            let x = get(o.input)?;
            let MaxPool { window, strides, padding, dilation, ceil_mode, .. } = o;
            r::max_pool(&x, &r::MaxPoolParams { window, strides, padding, dilation, ceil_mode })
        }
        OpKind::AvgPool => {
            let o = AvgPool::read(view)?;
            let x = get(o.input)?;
            let AvgPool {
                window,
                strides,
                padding,
                ceil_mode,
                count_include_pad,
                divisor_override,
                ..
            } = o;
            r::avg_pool(
                &x,
                &r::AvgPoolParams {
                    window,
                    strides,
                    padding,
                    ceil_mode,
                    count_include_pad,
                    divisor_override,
                },
            )
        }
        OpKind::AdaptiveAvgPool => {
            r::adaptive_avg_pool(&*operand(0)?, &AdaptiveAvgPool::read(view)?.sizes)
        }
        OpKind::Mean => {
            let o = Mean::read(view)?;
            r::mean(&*get(o.input)?, &o.dims, o.keep_dims)
        }
        OpKind::Var => {
            let o = Var::read(view)?;
            r::var(&*get(o.input)?, &o.dims, o.keep_dims, o.correction)
        }
        OpKind::Std => {
            let o = Std::read(view)?;
            r::std(&*get(o.input)?, &o.dims, o.keep_dims, o.correction)
        }

        OpKind::Sym
        | OpKind::SymExpr
        | OpKind::Dim
        | OpKind::BindShape
        | OpKind::Require
        | OpKind::AdvanceRng
        | OpKind::RequireIndex => Err("has no tensor result".into()),
        OpKind::Global | OpKind::GetGlobal => Err("needs the module's globals".into()),
        OpKind::Launch => Err("needs the module's kernels".into()),
        OpKind::Arena | OpKind::ArenaSize | OpKind::Reuse | OpKind::Output => {
            Err("is a memory-planning op, which is not interpreted".into())
        }
        OpKind::Checkpoint
        | OpKind::If
        | OpKind::While
        | OpKind::Scan
        | OpKind::Yield
        | OpKind::Attention
        | OpKind::PtxCall => Err("needs its regions".into()),
        OpKind::CustomCall => Err("calls external code".into()),
        OpKind::UnbackedSize => Err("binds a symbol".into()),
        OpKind::StructuredIndex
        | OpKind::StructuredContract
        | OpKind::StructuredScan
        | OpKind::StructuredFft
        | OpKind::StructuredAttention
        | OpKind::StructuredAttentionGradient => {
            Err("is an op of kernels, which are executed as linalg".into())
        }
        tile!() => Err("is an op of a GPU's tile program, which the GPU executes".into()),
    };
    one.map(|t| vec![t])
}

/// A typed scalar attribute as a 0-d tensor.
fn scalar(a: Attr) -> Result<Tensor> {
    let dtype = a.type_of().dtype()?;
    if dtype.is_float() {
        Tensor::scalar_f(dtype, a.as_f64().ok_or("has no float value")?)
    } else if dtype == DType::I1 {
        Tensor::scalar_i(dtype, a.as_bool().map_or_else(|| a.as_i64().unwrap_or(0), i64::from) & 1)
    } else {
        Tensor::scalar_i(dtype, a.as_i64().ok_or("has no integer value")?)
    }
}
