//! Tensor factories, and triangular matrices.
use super::{Dim, Graph, Operand, Shape, Tensor, arg::Arg};
use kiln_dialects::value::DType;
use std::panic::Location;

impl Graph {
    /// Zeros of this shape and dtype.
    #[track_caller]
    pub fn zeros(&self, shape: impl Shape, dtype: DType) -> Tensor {
        let [r] = self.exactly(
            Location::caller(),
            "zeros",
            "aten.zeros.default",
            vec![("size", shape.dims().into()), ("dtype", dtype.into())],
        );
        r
    }
    /// Ones of this shape and dtype.
    #[track_caller]
    pub fn ones(&self, shape: impl Shape, dtype: DType) -> Tensor {
        let [r] = self.exactly(
            Location::caller(),
            "ones",
            "aten.ones.default",
            vec![("size", shape.dims().into()), ("dtype", dtype.into())],
        );
        r
    }
    /// A constant fill of this shape and dtype.
    #[track_caller]
    pub fn full(&self, shape: impl Shape, value: impl Into<Operand>, dtype: DType) -> Tensor {
        let args = vec![
            ("size", shape.dims().into()),
            ("fill_value", Arg::Operand(value.into())),
            ("dtype", dtype.into()),
        ];
        let [r] = self.exactly(Location::caller(), "full", "aten.full.default", args);
        r
    }
    /// `start`, `start + step`, … up to `end`, exclusive. Integers give i64, floats f32. Error:
    /// step 0.
    #[track_caller]
    pub fn arange(
        &self,
        start: impl Into<Operand>,
        end: impl Into<Operand>,
        step: impl Into<Operand>,
    ) -> Tensor {
        let (site, step) = (Location::caller(), step.into());
        if matches!(step, Operand::Float(0.0)) {
            return self.refuse(site, "arange", "wants a step that is not 0", &[]);
        }
        let mut args =
            vec![("end", Arg::Operand(number(end.into()))), ("step", Arg::Operand(step))];
        // Without a start, the length of a symbolic range is `end` itself.
        match number(start.into()) {
            Operand::Int(0) => {}
            start => args.push(("start", Arg::Operand(start))),
        }
        let [r] = self.exactly(site, "arange", "aten.arange.start_step", args);
        r
    }
    /// `steps` evenly spaced f32 numbers from `start` to `end`, inclusive.
    #[track_caller]
    pub fn linspace(&self, start: f64, end: f64, steps: i64) -> Tensor {
        let args = vec![("start", start.into()), ("end", end.into()), ("steps", Arg::from(steps))];
        let [r] = self.exactly(Location::caller(), "linspace", "aten.linspace.default", args);
        r
    }
    /// An n by m matrix with ones on the main diagonal.
    #[track_caller]
    pub fn eye(&self, n: impl Into<Dim>, m: impl Into<Dim>, dtype: DType) -> Tensor {
        let args =
            vec![("n", Arg::from(n.into())), ("m", Arg::from(m.into())), ("dtype", dtype.into())];
        let [r] = self.exactly(Location::caller(), "eye", "aten.eye.m", args);
        r
    }
}

/// A static size as a plain number.
fn number(x: Operand) -> Operand {
    match x {
        Operand::Size(d) => d.known().map_or(x, Operand::Int),
        // The result shape depends on its value.
        Operand::Number(s) if !s.is_float() => number(Operand::Size(s.size())),
        x => x,
    }
}

impl Tensor {
    /// A constant fill, in this tensor's shape and dtype.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Operand>) -> Tensor {
        self.call(
            "full_like",
            "aten.full_like.default",
            [("fill_value", Arg::Operand(value.into()))],
        )
    }
    /// Zeros in this tensor's shape and dtype.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.call("zeros_like", "aten.zeros_like.default", [])
    }
    /// Ones in this tensor's shape and dtype.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.call("ones_like", "aten.ones_like.default", [])
    }
    /// The lower triangle of matrices up to a diagonal (0: the main one, 1: the one above); zeros
    /// elsewhere.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Tensor {
        self.call("tril", "aten.tril.default", [("diagonal", diagonal.into())])
    }
    /// The upper triangle of matrices from a diagonal on; zeros elsewhere.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Tensor {
        self.call("triu", "aten.triu.default", [("diagonal", diagonal.into())])
    }
}
