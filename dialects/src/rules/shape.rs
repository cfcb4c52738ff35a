//! The shape and dtype rule of every op, over [`Dim`]: on the sizes of types it is type inference,
//! on symbols it is symbolic shape propagation.
use super::{
    contract, fourier, image, pointwise,
    types::{
        Sizes, TensorType, axes_of, axis_of, ensure, ensure_len, tensor_type, unify_all, without,
    },
};
use crate::{
    error::Result,
    ir::{Node, Size, Type, Value, View},
    ops::*,
    sym::Dim,
    value::DType,
};

/// Sizes as in the types; SSA sizes are unknown.
struct Static;
impl Sizes for Static {
    fn tensor(&self, v: Value) -> Result<TensorType> {
        tensor_type(v.ty())
    }
    fn size(&self, s: &Size) -> Dim {
        s.known().map_or(Dim::Unknown, Dim::Known)
    }
}

/// Result types from operand types. Errors do not name the op.
pub fn infer_types(v: &View) -> Result<Vec<Type>> {
    Ok(infer(v, &Static)?.into_iter().map(|t| Type::tensor(v.ctx, t.dtype, &t.dims)).collect())
}

fn no_negative(sizes: &[Size]) -> Result<()> {
    match sizes.iter().find_map(|s| s.known().filter(|n| *n < 0)) {
        Some(n) => Err(format!("has size {n}, which is negative").into()),
        None => Ok(()),
    }
}

fn is_index_dtype(t: &TensorType) -> Result<()> {
    ensure(t.dtype.is_int(), || format!("needs integer indices, has {}", t.dtype.name()))
}

/// The shape of the index tensors, and the dimensions that they do not index.
fn indexed(
    v: &dyn Sizes,
    input: &TensorType,
    indices: &[Value],
    dims: &[i64],
) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let axes = axes_of(dims, input.dims.len(), "dims")?;
    ensure(indices.len() == axes.len() && !axes.is_empty(), || {
        format!("has {} index tensors for {} dims", indices.len(), axes.len())
    })?;
    let first = v.tensor(indices[0])?;
    let mut shape = first.dims;
    for i in indices {
        let t = v.tensor(*i)?;
        is_index_dtype(&t)?;
        shape = unify_all(&shape, &t.dims, "of the index tensors")?;
    }
    Ok((shape, without(&input.dims, &axes, false)))
}

fn starts(v: &dyn Sizes, starts: &[Value], rank: usize) -> Result<()> {
    ensure(starts.len() == rank, || format!("has {} starts for rank {rank}", starts.len()))?;
    starts.iter().try_for_each(|s| {
        let t = v.tensor(*s)?;
        is_index_dtype(&t)?;
        ensure(t.dims.is_empty(), || format!("needs 0-d starts, has rank {}", t.dims.len()))
    })
}

/// The rule. Err: ops whose result types cannot be inferred.
pub fn infer(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let one = |dtype, dims| Ok(vec![TensorType { dtype, dims }]);
    match view.kind {
        unary!()
        | binary!()
        | OpKind::Compare
        | OpKind::Select
        | OpKind::Clamp
        | OpKind::Convert
        | OpKind::Bitcast => pointwise::infer(view, v),
        OpKind::Sigmoid
        | OpKind::Silu
        | OpKind::Relu
        | OpKind::Hardtanh
        | OpKind::Hardsigmoid
        | OpKind::Hardswish
        | OpKind::Gelu
        | OpKind::Softplus => pointwise::activation(view, v),

        OpKind::Splat => {
            let o = Splat::read(view)?;
            no_negative(&o.sizes)?;
            one(o.value.type_of().dtype()?, v.sizes(&o.sizes))
        }
        OpKind::Iota => {
            let o = Iota::read(view)?;
            no_negative(&o.sizes)?;
            axis_of(o.axis, o.sizes.len())?;
            let dtype = o.dtype.dtype()?;
            ensure(dtype != DType::I1, || "is not defined on i1".into())?;
            one(dtype, v.sizes(&o.sizes))
        }
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::read(view)?;
            let x = v.tensor(o.input)?;
            no_negative(&o.sizes)?;
            let axes = axes_of(&o.dims, o.sizes.len(), "dims")?;
            ensure_len(&o.dims, x.dims.len(), "dims")?;
            ensure(axes.is_sorted(), || format!("has dims {:?} that do not ascend", o.dims))?;
            let sizes = v.sizes(&o.sizes);
            for (i, a) in axes.iter().enumerate() {
                let fits = x.dims[i] == Dim::Known(1) || !x.dims[i].differs(&sizes[*a]);
                ensure(fits, || {
                    format!("broadcasts size {} of dimension {i} to size {}", x.dims[i], sizes[*a])
                })?;
            }
            one(x.dtype, sizes)
        }
        OpKind::Reshape => {
            let o = Reshape::read(view)?;
            let x = v.tensor(o.input)?;
            no_negative(&o.sizes)?;
            let sizes = v.sizes(&o.sizes);
            let count = |dims: &[Dim]| dims.iter().fold(Dim::Known(1), |n, d| n.mul(d));
            let (from, to) = (count(&x.dims), count(&sizes));
            ensure(!from.differs(&to), || format!("reshapes {from} elements to {to}"))?;
            one(x.dtype, sizes)
        }
        OpKind::Transpose => {
            let o = Transpose::read(view)?;
            let x = v.tensor(o.input)?;
            ensure_len(&o.permutation, x.dims.len(), "permutation")?;
            let axes = axes_of(&o.permutation, x.dims.len(), "permutation")?;
            one(x.dtype, axes.iter().map(|a| x.dims[*a].clone()).collect())
        }
        OpKind::Slice => {
            let o = Slice::read(view)?;
            let x = v.tensor(o.input)?;
            let rank = x.dims.len();
            ensure(
                o.offsets.len() == rank && o.sizes.len() == rank && o.strides.len() == rank,
                || {
                    format!(
                        "has {} offsets, {} sizes and {} strides for rank {rank}",
                        o.offsets.len(),
                        o.sizes.len(),
                        o.strides.len()
                    )
                },
            )?;
            no_negative(&o.sizes)?;
            for i in 0..rank {
                ensure(o.strides[i] > 0, || {
                    format!("has stride {}, which is not positive", o.strides[i])
                })?;
                let (offset, size) = (v.size(&o.offsets[i]), v.size(&o.sizes[i]));
                ensure(offset.known().is_none_or(|n| n >= 0), || {
                    format!("has offset {offset}, which is negative")
                })?;
                let last = offset.add(&size.sub(&Dim::Known(1)).mul(&Dim::Known(o.strides[i])));
                let inside = size == Dim::Known(0)
                    || x.dims[i].sub(&last).known().is_none_or(|room| room > 0);
                ensure(inside, || {
                    format!("reads element {last} of dimension {i} of size {}", x.dims[i])
                })?;
            }
            one(x.dtype, v.sizes(&o.sizes))
        }
        OpKind::Pad => {
            let o = Pad::read(view)?;
            let (x, value) = (v.tensor(o.input)?, v.tensor(o.value)?);
            let rank = x.dims.len();
            ensure(o.low.len() == rank && o.high.len() == rank, || {
                format!("has {} low and {} high counts for rank {rank}", o.low.len(), o.high.len())
            })?;
            ensure(value.dims.is_empty() && value.dtype == x.dtype, || {
                "needs a 0-d padding value of the input's dtype".into()
            })?;
            let mut dims = vec![];
            for i in 0..rank {
                let size = x.dims[i].add(&v.size(&o.low[i])).add(&v.size(&o.high[i]));
                ensure(size.known().is_none_or(|n| n >= 0), || {
                    format!("crops more than dimension {i} of size {}", x.dims[i])
                })?;
                dims.push(size);
            }
            one(x.dtype, dims)
        }
        OpKind::Concat => {
            let o = Concat::read(view)?;
            let first = v.tensor(*o.inputs.first().ok_or("has no inputs")?)?;
            let axis = axis_of(o.axis, first.dims.len())?;
            let (mut dims, mut total) = (first.dims.clone(), Dim::Known(0));
            for i in &o.inputs {
                let mut t = v.tensor(*i)?;
                ensure(t.dtype == first.dtype, || {
                    format!("has inputs of {} and {}", first.dtype.name(), t.dtype.name())
                })?;
                ensure(t.dims.len() == dims.len(), || {
                    format!("has inputs of rank {} and rank {}", dims.len(), t.dims.len())
                })?;
                total = total.add(&t.dims[axis]);
                t.dims[axis] = dims[axis].clone();
                dims = unify_all(&dims, &t.dims, "of the inputs")?;
            }
            dims[axis] = total;
            one(first.dtype, dims)
        }
        OpKind::InsertSlice => super::insert_slice::infer(&InsertSlice::read(view)?, v),
        OpKind::Reverse => {
            let o = Reverse::read(view)?;
            let x = v.tensor(o.input)?;
            axes_of(&o.dims, x.dims.len(), "dims")?;
            one(x.dtype, x.dims)
        }
        OpKind::Gather => {
            let o = Gather::read(view)?;
            let x = v.tensor(o.input)?;
            let (shape, rest) = indexed(v, &x, &o.indices, &o.dims)?;
            one(x.dtype, [shape, rest].concat())
        }
        OpKind::Scatter => {
            let o = Scatter::read(view)?;
            let (x, u) = (v.tensor(o.input)?, v.tensor(o.updates)?);
            ensure(x.dtype == u.dtype, || {
                format!("scatters {} into {}", u.dtype.name(), x.dtype.name())
            })?;
            let (shape, rest) = indexed(v, &x, &o.indices, &o.dims)?;
            unify_all(&[shape, rest].concat(), &u.dims, "of indices with input, and updates")?;
            one(x.dtype, x.dims)
        }
        OpKind::DynamicSlice => {
            let o = DynamicSlice::read(view)?;
            let x = v.tensor(o.input)?;
            starts(v, &o.starts, x.dims.len())?;
            ensure(o.sizes.len() == x.dims.len(), || {
                format!("has {} sizes for rank {}", o.sizes.len(), x.dims.len())
            })?;
            no_negative(&o.sizes)?;
            let sizes = v.sizes(&o.sizes);
            for (i, (s, d)) in sizes.iter().zip(&x.dims).enumerate() {
                ensure(d.sub(s).known().is_none_or(|room| room >= 0), || {
                    format!("slices {s} elements of dimension {i} of size {d}")
                })?;
            }
            one(x.dtype, sizes)
        }
        OpKind::DynamicUpdateSlice => {
            let o = DynamicUpdateSlice::read(view)?;
            let (x, u) = (v.tensor(o.input)?, v.tensor(o.update)?);
            starts(v, &o.starts, x.dims.len())?;
            ensure(x.dtype == u.dtype, || {
                format!("writes {} into {}", u.dtype.name(), x.dtype.name())
            })?;
            ensure(u.dims.len() == x.dims.len(), || {
                format!("writes rank {} into rank {}", u.dims.len(), x.dims.len())
            })?;
            for (i, (s, d)) in u.dims.iter().zip(&x.dims).enumerate() {
                ensure(d.sub(s).known().is_none_or(|room| room >= 0), || {
                    format!("writes {s} elements into dimension {i} of size {d}")
                })?;
            }
            one(x.dtype, x.dims)
        }

        OpKind::Reduce => {
            let o = Reduce::read(view)?;
            let x = v.tensor(o.input)?;
            let axes = axes_of(&o.dims, x.dims.len(), "dims")?;
            let logical = matches!(o.kind, ReduceKind::Any | ReduceKind::All);
            ensure(logical == (x.dtype == DType::I1), || {
                format!(
                    "has reduction {}, which is not defined on {}",
                    o.kind.keyword(),
                    x.dtype.name()
                )
            })?;
            let extreme = matches!(o.kind, ReduceKind::Max | ReduceKind::Min) && !o.maybe_empty;
            let empty = extreme && axes.iter().any(|a| x.dims[*a] == Dim::Known(0));
            ensure(!empty, || {
                format!(
                    "has reduction {} over no elements, which needs maybe_empty",
                    o.kind.keyword()
                )
            })?;
            one(x.dtype, without(&x.dims, &axes, false))
        }
        OpKind::ArgMax | OpKind::ArgMin => {
            let (input, axis) = if view.kind == OpKind::ArgMax {
                let o = ArgMax::read(view)?;
                (o.input, o.axis)
            } else {
                let o = ArgMin::read(view)?;
                (o.input, o.axis)
            };
            let x = v.tensor(input)?;
            let axis = axis_of(axis, x.dims.len())?;
            ensure(x.dims[axis] != Dim::Known(0), || "has an axis without elements".into())?;
            one(DType::I64, without(&x.dims, &[axis], false))
        }
        OpKind::Cumulative => {
            let o = Cumulative::read(view)?;
            let x = v.tensor(o.input)?;
            axis_of(o.axis, x.dims.len())?;
            ensure(x.dtype != DType::I1, || "accumulates i1".into())?;
            one(x.dtype, x.dims)
        }
        OpKind::Sort => {
            let o = Sort::read(view)?;
            let x = v.tensor(o.input)?;
            axis_of(o.axis, x.dims.len())?;
            Ok(vec![x.clone(), TensorType { dtype: DType::I64, ..x }])
        }
        OpKind::TopK => {
            let o = TopK::read(view)?;
            let mut x = v.tensor(o.input)?;
            let axis = axis_of(o.axis, x.dims.len())?;
            let fits = o.k >= 0 && x.dims[axis].known().is_none_or(|n| o.k <= n);
            ensure(fits, || format!("has k = {} for an axis of size {}", o.k, x.dims[axis]))?;
            x.dims[axis] = Dim::Known(o.k);
            Ok(vec![x.clone(), TensorType { dtype: DType::I64, ..x }])
        }
        OpKind::Fft => fourier::infer(&Fft::read(view)?, v),
        OpKind::DotGeneral
        | OpKind::Linear
        | OpKind::Matmul
        | OpKind::Embedding
        | OpKind::Attention
        | OpKind::AttentionGradient => contract::infer(view, v),
        OpKind::Convolution
        | OpKind::ReduceWindow
        | OpKind::ConvolutionWeightGradient
        | OpKind::WinogradInput
        | OpKind::WinogradOutput
        | OpKind::Interpolate
        | OpKind::MaxPool
        | OpKind::AvgPool
        | OpKind::AdaptiveAvgPool => image::infer(view, v),
        OpKind::Philox => {
            let o = Philox::read(view)?;
            let all = [o.seed, o.block, o.stream].map(|x| v.tensor(x));
            let mut dims: Option<Vec<Dim>> = None;
            for (t, name) in all.into_iter().zip(["seed", "block", "stream"]) {
                let t = t?;
                ensure(t.dtype == DType::I64, || {
                    format!("has a {name} of dtype {}, not i64", t.dtype.name())
                })?;
                dims = Some(match dims {
                    Some(dims) => unify_all(&dims, &t.dims, "of seed, block and stream")?,
                    None => t.dims,
                });
            }
            let word = TensorType { dtype: DType::I32, dims: dims.unwrap_or_default() };
            Ok(vec![word; 4])
        }
        OpKind::RandomBits => {
            let o = RandomBits::read(view)?;
            no_negative(&o.sizes)?;
            let dtype = o.dtype.dtype()?;
            ensure(matches!(dtype, DType::I32 | DType::I64), || {
                format!("has dtype {}, not i32 or i64", dtype.name())
            })?;
            one(dtype, v.sizes(&o.sizes))
        }
        OpKind::RandomUniform | OpKind::RandomNormal => {
            let (sizes, dtype) = if view.kind == OpKind::RandomUniform {
                let o = RandomUniform::read(view)?;
                ensure(o.low < o.high, || format!("has the empty range [{}, {})", o.low, o.high))?;
                (o.sizes, o.dtype.dtype()?)
            } else {
                let o = RandomNormal::read(view)?;
                ensure(o.std >= 0.0, || format!("has a standard deviation of {}", o.std))?;
                (o.sizes, o.dtype.dtype()?)
            };
            no_negative(&sizes)?;
            ensure(matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16), || {
                format!("has dtype {}, not f64, f32, f16 or bf16", dtype.name())
            })?;
            one(dtype, v.sizes(&sizes))
        }

        OpKind::StopGradient => Ok(vec![v.tensor(StopGradient::read(view)?.input)?]),
        OpKind::OptimizationBarrier => Ok(vec![v.tensor(OptimizationBarrier::read(view)?.input)?]),

        OpKind::LayerNorm
        | OpKind::GroupNorm
        | OpKind::BatchNorm
        | OpKind::RmsNorm
        | OpKind::Softmax
        | OpKind::LogSoftmax
        | OpKind::CrossEntropy
        | OpKind::Dropout
        | OpKind::Mean
        | OpKind::Var
        | OpKind::Std => super::norm::infer(view, v),

        OpKind::Sym
        | OpKind::SymExpr
        | OpKind::Dim
        | OpKind::BindShape
        | OpKind::Require
        | OpKind::AdvanceRng
        | OpKind::RequireIndex
        | OpKind::Global
        | OpKind::GetGlobal
        | OpKind::Launch
        | OpKind::Arena
        | OpKind::ArenaSize
        | OpKind::Reuse
        | OpKind::Output
        | OpKind::Constant
        | OpKind::Checkpoint
        | OpKind::If
        | OpKind::While
        | OpKind::Scan
        | OpKind::Yield
        | OpKind::CustomCall
        | OpKind::UnbackedSize
        | OpKind::PtxCall
        | OpKind::StructuredIndex
        | OpKind::StructuredContract
        | OpKind::StructuredScan
        | OpKind::StructuredFft
        | OpKind::StructuredAttention
        | OpKind::StructuredAttentionGradient
        | tile!() => Err("has result types that do not follow from its operands".into()),
    }
}
