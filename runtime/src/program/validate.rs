//! Validates a deserialised program: all indices, divisors, allocation sizes and launch parameters.
//! Later code relies on it.
//!
//! This finds contradictions within the program. The package's digest shows that program and code
//! belong together.
mod aliases;
mod flow;
mod launch;

use super::{Dim, FORMAT, Global, IndexGuard, Program, Role, Symbol, Target, Tensor};
use crate::view::{byte_size, product};

/// A validation error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct Invalid {
    /// Path of the field in the manifest, such as `inputs[0].dims[1]`.
    pub field: String,
    /// What is wrong with the field.
    pub reason: String,
}

/// Path of the field being checked.
#[derive(Clone)]
struct At(String);

impl At {
    fn field(&self, name: &str) -> At {
        At(if self.0.is_empty() { name.into() } else { format!("{}.{name}", self.0) })
    }
    fn item(&self, i: usize) -> At {
        At(format!("{}[{i}]", self.0))
    }
    /// Err: `ok` is false.
    fn wants(&self, ok: bool, reason: impl FnOnce() -> String) -> Result<(), Invalid> {
        if ok { Ok(()) } else { Err(self.wrong(reason())) }
    }
    fn wrong(&self, reason: String) -> Invalid {
        Invalid { field: self.0.clone(), reason }
    }
    /// Err: `i` is out of range for a list of `len`.
    fn index(&self, i: usize, len: usize, list: &str) -> Result<(), Invalid> {
        self.wants(i < len, || format!("is {i}, but {list} has {len} entries"))
    }
}

/// Most dimensions of a tensor, as in PyTorch.
const MAX_RANK: usize = 64;

impl Program {
    /// Validates the program and its nested programs.
    pub fn validate(&self) -> Result<(), Invalid> {
        let at = At(String::new());
        at.field("format").wants(self.format == FORMAT, || format!("is not {FORMAT}"))?;
        self.check_at(&at)
    }

    fn check_at(&self, at: &At) -> Result<(), Invalid> {
        self.check_sizes(at)?;
        for (name, all) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            for (i, t) in all.iter().enumerate() {
                self.check_tensor(t, &at.field(name).item(i))?;
            }
        }
        for (i, t) in self.outputs.iter().enumerate() {
            let order = at.field("outputs").item(i).field("order");
            order.wants(t.order.is_empty(), || "is not that of rows, as results have".into())?;
        }
        aliases::check(self, at)?;
        self.check_prepare(at)?;
        for (i, g) in self.globals.iter().enumerate() {
            self.check_global(g, &at.field("globals").item(i))?;
        }
        let amx = !self.amx || !self.target.is_cuda();
        at.field("amx").wants(amx, || format!("is true on {}", self.target.arch))?;
        match &self.control {
            Some(control) => {
                let own = self.kernels.is_empty() && self.globals.is_empty();
                at.wants(own && self.prepare.is_none(), || {
                    "has kernels, globals or a preparation beside control flow".into()
                })?;
                flow::check(self, control, &at.field("control"))
            }
            None => launch::check(self, at),
        }
    }

    /// Checks symbols, expressions and conditions.
    fn check_sizes(&self, at: &At) -> Result<(), Invalid> {
        for (i, s) in self.symbols.iter().enumerate() {
            self.check_symbol(s, &at.field("symbols").item(i))?;
        }
        let flows = self.unbacked.is_empty() || self.control.is_some();
        at.field("unbacked").wants(flows, || "is not empty without control flow".into())?;
        for (i, u) in self.unbacked.iter().enumerate() {
            let place = at.field("unbacked").item(i);
            self.check_dim(u.max, self.exprs.len(), &place.field("max"))?;
            if let Some(n) = u.output {
                place.field("output").index(n, self.outputs.len(), "outputs")?;
                let t = &self.outputs[n];
                let fits = t.dtype == "i64" && t.dims.is_empty();
                place.field("output").wants(fits, || format!("is {n}, which is no 0-d i64"))?;
            }
        }
        for (i, e) in self.exprs.iter().enumerate() {
            let place = at.field("exprs").item(i);
            for (name, d) in [("lhs", e.lhs), ("rhs", e.rhs)] {
                self.check_dim(d, i, &place.field(name))?;
            }
        }
        for (i, c) in self.conditions.iter().enumerate() {
            let place = at.field("conditions").item(i);
            for (name, d) in [("lhs", c.lhs), ("rhs", c.rhs)] {
                self.check_dim(d, self.exprs.len(), &place.field(name))?;
            }
        }
        self.check_size(self.rng_increment, &at.field("rng_increment"))?;
        for (i, guard) in self.indices.iter().enumerate() {
            let place = at.field("indices").item(i);
            place.field("input").index(guard.input, self.inputs.len(), "inputs")?;
            let dtype = &self.inputs[guard.input].dtype;
            place.field("input").wants(IndexGuard::takes(dtype), || {
                format!("is a tensor of {dtype}, not of integers")
            })?;
            self.check_size(guard.size, &place.field("size"))?;
        }
        self.check_size(self.arena, &at.field("arena"))
    }

    fn check_symbol(&self, s: &Symbol, at: &At) -> Result<(), Invalid> {
        at.field("input").index(s.input, self.inputs.len(), "inputs")?;
        let rank = self.inputs[s.input].dims.len();
        at.field("dim").index(s.dim, rank, &format!("inputs[{}].dims", s.input))?;
        at.field("divisor").wants(s.divisor >= 1, || format!("is {}, below 1", s.divisor))?;
        let max = s.max.unwrap_or(i64::MAX);
        at.field("min").wants(s.min <= max, || format!("is {}, above the max {max}", s.min))
    }

    /// Checks a size; only expressions before `exprs` may be used.
    fn check_dim(&self, d: Dim, exprs: usize, at: &At) -> Result<(), Invalid> {
        match d {
            Dim::Known(_) => Ok(()),
            Dim::Symbol(i) => at.index(i, self.symbols.len() + self.unbacked.len(), "symbols"),
            Dim::Expr(i) => at.wants(i < exprs, || {
                format!("is expression {i}, which is not an earlier one; there are {exprs}")
            }),
        }
    }
    /// Checks a size that must not be negative.
    fn check_size(&self, d: Dim, at: &At) -> Result<(), Invalid> {
        let negative = matches!(d, Dim::Known(n) if n < 0);
        at.wants(!negative, || format!("is {}, below 0", self.size_text(d)))?;
        self.check_dim(d, self.exprs.len(), at)
    }

    fn check_tensor(&self, t: &Tensor, at: &At) -> Result<(), Invalid> {
        self.check_type(&t.dtype, &t.dims, at)?;
        let rank = t.dims.len();
        let fits = t.order.len() == rank && (0..rank).all(|d| t.order.contains(&d));
        at.field("order").wants(t.order.is_empty() || fits, || {
            format!("is {:?}, no order of {rank} dimensions", t.order)
        })
    }
    fn check_type(&self, dtype: &str, dims: &[Dim], at: &At) -> Result<(), Invalid> {
        let width = check_dtype(dtype, at)?;
        let few = dims.len() <= MAX_RANK;
        at.field("dims").wants(few, || format!("are {}, above {MAX_RANK}", dims.len()))?;
        for (i, d) in dims.iter().enumerate() {
            self.check_size(*d, &at.field("dims").item(i))?;
        }
        let known = |d: &Dim| if let Dim::Known(n) = d { usize::try_from(*n).ok() } else { None };
        let sizes: Vec<usize> = dims.iter().map(|d| known(d).unwrap_or(1)).collect();
        let fits = product(&sizes, width).is_some();
        at.field("dims").wants(fits, || "have more bytes than an address space".into())
    }

    fn check_global(&self, g: &Global, at: &At) -> Result<(), Invalid> {
        let width = check_dtype(&g.dtype, at)?;
        let sizes: Option<Vec<usize>> = g.shape.iter().map(|n| usize::try_from(*n).ok()).collect();
        let bytes = sizes.and_then(|s| product(&s, width));
        let shape = at.field("shape");
        let Some(bytes) = bytes else {
            return Err(shape.wrong("has more bytes than an address space".into()));
        };
        if let Some(data) = &g.data {
            let have = data.len();
            at.field("data").wants(have == bytes, || {
                format!("has {have} bytes, {} {:?} has {bytes}", g.dtype, g.shape)
            })?;
        }
        if g.role != Role::Packed {
            return Ok(());
        }
        let made = self.prepare.as_ref().map_or(&[][..], |p| &p.outputs);
        let of = g.result().and_then(|n| made.get(n));
        let Some(of) = of else {
            let reason = format!("is '{}', no result of prepare", g.source);
            return Err(at.field("source").wrong(reason));
        };
        let same = |(d, n): (&Dim, &u64)| *d == Dim::Known(i64::try_from(*n).unwrap_or(-1));
        let fits = of.dtype == g.dtype
            && of.dims.len() == g.shape.len()
            && of.dims.iter().zip(&g.shape).all(same);
        at.wants(fits, || format!("is not of the type of '{}'", g.source))
    }

    fn check_prepare(&self, at: &At) -> Result<(), Invalid> {
        let Some(p) = &self.prepare else { return Ok(()) };
        let at = at.field("prepare");
        at.wants(p.inputs.is_empty() && p.symbols.is_empty(), || "takes inputs".into())?;
        at.wants(p.prepare.is_none() && p.control.is_none(), || {
            "has a preparation or control flow of its own".into()
        })?;
        self.check_target(&p.target, &at)?;
        p.check_at(&at)
    }

    /// Checks that a nested program has the same target; one for the host may omit it.
    fn check_target(&self, part: &Target, at: &At) -> Result<(), Invalid> {
        let silent = *part == Target::default() && !self.target.is_cuda();
        at.field("target").wants(silent || *part == self.target, || "is another one".into())
    }
}

fn check_dtype(dtype: &str, at: &At) -> Result<usize, Invalid> {
    let reason = || format!("is '{dtype}', which is no element type");
    byte_size(dtype).ok_or_else(|| at.field("dtype").wrong(reason()))
}

#[cfg(test)]
mod tests;
