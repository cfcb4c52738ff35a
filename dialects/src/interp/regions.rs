//! Ops that run regions once per row or element: scans, and attention with a score or a mask.
use super::{
    frame::{Bound, Frame},
    interpreter::{Mode, RunError, error},
};
use crate::{
    ir::*,
    ops::*,
    reference,
    value::{DType, Tensor},
};
use std::rc::Rc;

impl Frame<'_, '_> {
    pub(super) fn scan(&mut self, op: Op) -> Result<Vec<Bound>, RunError> {
        let fail = |e: Error| error(op, e);
        let o = Scan::of(op).ok_or_malformed(op).map_err(fail)?;
        let mut carried: Vec<Bound> = o
            .inits
            .iter()
            .map(|v| self.tensor(*v).map(Bound::Tensor))
            .collect::<Result<_, _>>()
            .map_err(fail)?;
        let inputs: Vec<_> = o
            .inputs
            .iter()
            .map(|v| self.tensor(*v))
            .collect::<Result<Vec<_>, _>>()
            .map_err(fail)?;
        let length = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(0);
        if inputs.iter().any(|t| t.shape().first() != Some(&length)) {
            return Err(fail("scans over inputs of different lengths".into()));
        }
        let mut stacked: Vec<Vec<Rc<Tensor>>> = vec![vec![]; op.result_count() - o.inits.len()];
        for step in 0..length {
            let i = if o.reverse { length - 1 - step } else { step };
            let mut args = carried.clone();
            for t in &inputs {
                args.push(Bound::Tensor(Rc::new(row(t, i).map_err(fail)?)));
            }
            let mut yields = self.region(op.regions()[0], args)?;
            for (all, y) in stacked.iter_mut().zip(yields.split_off(carried.len())) {
                let Bound::Tensor(t) = y else { return Err(fail("stacks a size".into())) };
                all.push(t);
            }
            carried = yields;
        }
        for (k, mut rows) in stacked.into_iter().enumerate() {
            if o.reverse {
                rows.reverse();
            }
            carried.push(Bound::Tensor(Rc::new(
                self.stack(op.result(o.inits.len() + k).ty(), rows).map_err(fail)?,
            )));
        }
        Ok(carried)
    }

    /// Stacks rows along a new leading dimension; without rows, dtype and sizes come from the type.
    fn stack(&self, ty: Type, rows: Vec<Rc<Tensor>>) -> Result<Tensor> {
        let Some(first) = rows.first() else {
            let t = crate::rules::tensor_type(ty)?;
            let shape = t
                .dims
                .iter()
                .skip(1)
                .map(|d| d.known().map(|n| n as usize))
                .collect::<Option<Vec<_>>>();
            let shape = [vec![0], shape.ok_or("stacks no rows of unknown sizes")?].concat();
            return if t.dtype.is_float() {
                Tensor::floats(t.dtype, shape, vec![])
            } else {
                Tensor::ints(t.dtype, shape, vec![])
            };
        };
        let shape = [vec![1], first.shape().to_vec()].concat();
        let rows: Vec<Tensor> = rows
            .iter()
            .map(|r| Tensor::clone(r).with_shape(shape.clone()))
            .collect::<Result<_, _>>()?;
        reference::concat(&rows.iter().collect::<Vec<_>>(), 0)
    }

    pub(super) fn attention(&mut self, op: Op) -> Result<Vec<Bound>, RunError> {
        let fail = |e: Error| error(op, e);
        let o = Attention::of(op).ok_or_malformed(op).map_err(fail)?;
        let get = |v: Value| self.tensor(v);
        let opt = |v: Option<Value>| v.map(get).transpose();
        let (q, k, v) =
            (get(o.query).map_err(fail)?, get(o.key).map_err(fail)?, get(o.value).map_err(fail)?);
        let (bias, query_lengths) =
            (opt(o.bias).map_err(fail)?, opt(o.query_lengths).map_err(fail)?);
        let (key_lengths, dropout_key) =
            (opt(o.key_lengths).map_err(fail)?, opt(o.dropout_key).map_err(fail)?);
        let params = reference::AttentionParams {
            bias: bias.as_deref(),
            query_lengths: query_lengths.as_deref(),
            key_lengths: key_lengths.as_deref(),
            dropout_key: dropout_key.as_deref(),
            dropout_p: o.dropout_p,
            scale: o.scale,
            causal: o.causal,
            with_lse: o.with_lse,
            unsafe_softmax: o.unsafe_softmax,
        };
        let regions = op.regions();
        let dtype = if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let frame = std::cell::RefCell::new(self);
        let position = |p: [i64; 4]| {
            p.map(|i| Tensor::scalar_i(DType::I64, i).map(|t| Bound::Tensor(Rc::new(t))))
        };
        let run = |region: Region, args: Vec<Bound>| match frame
            .borrow_mut()
            .region(region, args)
            .map_err(|e| e.to_string())?
            .into_iter()
            .next()
        {
            Some(Bound::Tensor(t)) => Ok(t),
            _ => Err(Error::from("has a region without a value")),
        };
        let mut score = |s: f64, p: [i64; 4]| {
            let mut args = vec![Bound::Tensor(Rc::new(Tensor::scalar_f(dtype, s)?))];
            position(p).into_iter().try_for_each(|i| i.map(|i| args.push(i)))?;
            run(regions[0], args)?
                .as_f()?
                .first()
                .copied()
                .ok_or_else(|| "has an empty score".into())
        };
        let mut mask = |p: [i64; 4]| {
            let args = position(p).into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(run(regions[1], args)?.as_i()?.first().is_some_and(|m| *m != 0))
        };
        let score: Option<reference::ScoreFn<'_>> =
            if regions[0].is_empty() { None } else { Some(&mut score) };
        let mask: Option<reference::MaskFn<'_>> =
            if regions[1].is_empty() { None } else { Some(&mut mask) };
        let (result, lse) = reference::attention(&q, &k, &v, &params, score, mask).map_err(fail)?;
        let mode = frame.borrow().interp.mode;
        Ok([Some(result), lse]
            .into_iter()
            .flatten()
            .map(|t| Bound::Tensor(Rc::new(if mode == Mode::Rounded { t.rounded() } else { t })))
            .collect())
    }
}

fn row(t: &Tensor, i: usize) -> Result<Tensor> {
    let mut offsets = vec![0; t.rank()];
    offsets[0] = i as i64;
    let mut sizes: Vec<i64> = t.shape().iter().map(|n| *n as i64).collect();
    sizes[0] = 1;
    reference::slice(t, &offsets, &sizes, &vec![1; t.rank()])?.with_shape(t.shape()[1..].to_vec())
}
