//! Tensors made of sizes and numbers, and triangles of matrices.
use super::{Dim, Graph, Operand, Shape, Tensor, arg::Arg};
use kiln_dialects::value::DType;
use std::panic::Location;

impl Graph {
    /// Zeros.
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
    /// Ones.
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
    /// One number everywhere.
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
    /// `start`, `start + step`, … below `end` (above it for a negative step). Integers give i64,
    /// floats f32. Error: step 0.
    #[track_caller]
    pub fn arange(
        &self,
        start: impl Into<Operand>,
        end: impl Into<Operand>,
        step: impl Into<Operand>,
    ) -> Tensor {
        let (place, step) = (Location::caller(), step.into());
        if matches!(step, Operand::Float(0.0)) {
            return self.refuse(place, "arange", "wants a step that is not 0".into(), &[]);
        }
        let mut args =
            vec![("end", Arg::Operand(number(end.into()))), ("step", Arg::Operand(step))];
        // Without a start the count of a symbolic end is the end itself.
        match number(start.into()) {
            Operand::Int(0) => {}
            start => args.push(("start", Arg::Operand(start))),
        }
        let [r] = self.exactly(place, "arange", "aten.arange.start_step", args);
        r
    }
    /// `steps` numbers from `start` to `end`, both included, in f32.
    #[track_caller]
    pub fn linspace(&self, start: f64, end: f64, steps: i64) -> Tensor {
        let args = vec![("start", start.into()), ("end", end.into()), ("steps", Arg::from(steps))];
        let [r] = self.exactly(Location::caller(), "linspace", "aten.linspace.default", args);
        r
    }
    /// Ones on the diagonal of an n by m matrix.
    #[track_caller]
    pub fn eye(&self, n: impl Into<Dim>, m: impl Into<Dim>, dtype: DType) -> Tensor {
        let args =
            vec![("n", Arg::from(n.into())), ("m", Arg::from(m.into())), ("dtype", dtype.into())];
        let [r] = self.exactly(Location::caller(), "eye", "aten.eye.m", args);
        r
    }
}

/// A size that is a number as that number.
fn number(x: Operand) -> Operand {
    match x {
        Operand::Size(d) => d.known().map_or(x, Operand::Int),
        // How many elements there are follows from it.
        Operand::Number(s) if !s.is_float() => number(Operand::Size(s.size())),
        x => x,
    }
}

impl Tensor {
    /// One number, in this tensor's shape and dtype.
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
    /// Matrices with zeros above a diagonal (0: the main one, 1: the one above).
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Tensor {
        self.call("tril", "aten.tril.default", [("diagonal", diagonal.into())])
    }
    /// Matrices with zeros below a diagonal.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Tensor {
        self.call("triu", "aten.triu.default", [("diagonal", diagonal.into())])
    }
}
