//! Validates control flow: each value is defined once, and its definition dominates its uses.
use super::{At, Invalid};
use crate::{
    control::{Body, Control, Step, Value},
    program::{Dim, Program, Tensor},
};

pub(super) fn check(p: &Program, control: &Control, at: &At) -> Result<(), Invalid> {
    for (i, part) in control.parts.iter().enumerate() {
        let at = at.field("parts").item(i);
        at.wants(part.control.is_none(), || "is control flow itself".into())?;
        p.check_target(&part.target, &at)?;
        part.check_at(&at)?;
    }
    for (i, v) in control.values.iter().enumerate() {
        p.check_type(&v.dtype, &v.dims, &at.field("values").item(i))?;
    }
    let mut scope = Scope {
        program: p,
        control,
        read: 0,
        depth: 0,
        defined: vec![false; control.values.len()],
        scope_order: vec![],
        in_scope: vec![false; control.values.len()],
    };
    let at = at.field("body");
    let body = &control.body;
    scope.body(body, &at)?;
    let (have, want) = (scope.read, p.unbacked.len());
    at.wants(have == want, || format!("reads {have} sizes of {want}"))?;
    scope.same_types(&body.args, &p.inputs, &at.field("args"))?;
    scope.same_types(&body.yields, &p.outputs, &at.field("yields"))
}

/// The values in scope.
struct Scope<'a> {
    program: &'a Program,
    control: &'a Control,
    /// Unbacked sizes that have been read.
    read: usize,
    /// How many bodies are around.
    depth: usize,
    /// Values that some step or body defines.
    defined: Vec<bool>,
    /// Values in scope, in order of definition.
    scope_order: Vec<usize>,
    /// Whether each value is in scope.
    in_scope: Vec<bool>,
}

impl Scope<'_> {
    fn value(&self, v: usize) -> &Value {
        &self.control.values[v]
    }
    fn uses(&self, values: &[usize], at: &At) -> Result<(), Invalid> {
        for (i, v) in values.iter().enumerate() {
            let at = at.item(i);
            at.index(*v, self.defined.len(), "control.values")?;
            at.wants(self.in_scope[*v], || {
                format!("is value {v}, which is used before it is defined")
            })?;
        }
        Ok(())
    }
    fn define(&mut self, values: &[usize], at: &At) -> Result<(), Invalid> {
        for (i, v) in values.iter().enumerate() {
            let at = at.item(i);
            at.index(*v, self.defined.len(), "control.values")?;
            let again = std::mem::replace(&mut self.defined[*v], true);
            at.wants(!again, || format!("is value {v}, which is defined twice"))?;
            self.scope_order.push(*v);
            self.in_scope[*v] = true;
        }
        Ok(())
    }
    /// Err: dtypes or ranks of values are not those of a program's inputs or outputs.
    fn same_types(&self, values: &[usize], all: &[Tensor], at: &At) -> Result<(), Invalid> {
        let (have, want) = (values.len(), all.len());
        at.wants(have == want, || format!("are {have} values, where {want} are taken"))?;
        for (i, (v, t)) in values.iter().zip(all).enumerate() {
            let v = self.value(*v);
            let same = v.dtype == t.dtype && v.dims.len() == t.dims.len() && t.order.is_empty();
            at.item(i).wants(same, || {
                format!("is {} of rank {}, not as '{}'", v.dtype, v.dims.len(), t.name)
            })?;
        }
        Ok(())
    }
    /// Err: loop-carried values or branch results differ in dtype or rank. Calls compare their
    /// sizes.
    fn same_value_types(&self, x: &[usize], y: &[usize], at: &At) -> Result<(), Invalid> {
        at.wants(x.len() == y.len(), || format!("are {}, not {}", y.len(), x.len()))?;
        for (i, (x, y)) in x.iter().zip(y).enumerate() {
            let (x, y) = (self.value(*x), self.value(*y));
            let same = x.dtype == y.dtype && x.dims.len() == y.dims.len();
            at.item(i).wants(same, || {
                let (have, want) = (y.dims.len(), x.dims.len());
                format!("is {} of rank {have}, not {} of rank {want}", y.dtype, x.dtype)
            })?;
        }
        Ok(())
    }
    fn condition_type(&self, v: usize, at: &At) -> Result<(), Invalid> {
        let v = self.value(v);
        let fits = v.dtype == "i1" && v.dims.is_empty();
        at.wants(fits, || format!("is {} of rank {}, not one i1", v.dtype, v.dims.len()))
    }

    fn body(&mut self, body: &Body, at: &At) -> Result<(), Invalid> {
        let outside = self.scope_order.len();
        self.depth += 1;
        self.define(&body.args, &at.field("args"))?;
        for (i, step) in body.steps.iter().enumerate() {
            self.step(step, &at.field("steps").item(i))?;
        }
        self.uses(&body.yields, &at.field("yields"))?;
        self.depth -= 1;
        self.scope_order.drain(outside..).for_each(|v| self.in_scope[v] = false);
        Ok(())
    }

    fn step(&mut self, step: &Step, at: &At) -> Result<(), Invalid> {
        match step {
            Step::Call { part, inputs, results } => {
                at.field("part").index(*part, self.control.parts.len(), "control.parts")?;
                self.uses(inputs, &at.field("inputs"))?;
                self.define(results, &at.field("results"))?;
                let p = &self.control.parts[*part];
                self.same_types(inputs, &p.inputs, &at.field("inputs"))?;
                self.same_types(results, &p.outputs, &at.field("results"))
            }
            Step::Custom { inputs, results, .. } => {
                self.uses(inputs, &at.field("inputs"))?;
                self.define(results, &at.field("results"))
            }
            Step::UnbackedSize { value, result, .. } => {
                self.uses(&[*value], &at.field("value"))?;
                self.define(result, &at.field("result"))?;
                at.wants(self.depth == 1, || "reads a size inside of control flow".into())?;
                let v = self.value(*value);
                at.field("value").wants(v.dtype == "i64" && v.dims.is_empty(), || {
                    format!("is {} of rank {}, not one i64", v.dtype, v.dims.len())
                })?;
                let next = Dim::Symbol(self.program.symbols.len() + self.read);
                self.read += 1;
                let empty = |v: &Value| v.dtype == "i8" && v.dims == [next, Dim::Known(0)];
                let fits = result.len() == 1 && empty(self.value(result[0]));
                at.field("result").wants(fits, || "is not of the next unbacked size".into())
            }
            Step::If { condition, then, otherwise, results, .. } => {
                self.uses(&[*condition], &at.field("condition"))?;
                self.condition_type(*condition, &at.field("condition"))?;
                for (name, body) in [("then", then), ("otherwise", otherwise)] {
                    let place = at.field(name);
                    self.body(body, &place)?;
                    place.wants(body.args.is_empty(), || "takes values".into())?;
                }
                self.define(results, &at.field("results"))?;
                self.same_value_types(&then.yields, results, &at.field("results"))?;
                self.same_value_types(&otherwise.yields, results, &at.field("results"))
            }
            Step::While { inits, condition, body, results, .. } => {
                self.uses(inits, &at.field("inits"))?;
                self.body(condition, &at.field("condition"))?;
                self.body(body, &at.field("body"))?;
                self.define(results, &at.field("results"))?;
                let test = at.field("condition").field("yields");
                test.wants(condition.yields.len() == 1, || "are not one value".into())?;
                self.condition_type(condition.yields[0], &test)?;
                self.same_value_types(
                    inits,
                    &condition.args,
                    &at.field("condition").field("args"),
                )?;
                self.same_value_types(inits, &body.args, &at.field("body").field("args"))?;
                self.same_value_types(inits, &body.yields, &at.field("body").field("yields"))?;
                self.same_value_types(inits, results, &at.field("results"))
            }
            Step::Scan { inits, inputs, body, results, .. } => {
                self.uses(inits, &at.field("inits"))?;
                self.uses(inputs, &at.field("inputs"))?;
                self.body(body, &at.field("body"))?;
                self.define(results, &at.field("results"))?;
                self.scan(inits, inputs, body, results, at)
            }
        }
    }

    fn scan(
        &self,
        inits: &[usize],
        inputs: &[usize],
        body: &Body,
        results: &[usize],
        at: &At,
    ) -> Result<(), Invalid> {
        let n = inits.len();
        at.field("inputs").wants(!inputs.is_empty(), || "are none".into())?;
        at.field("results").wants(results.len() >= n, || format!("are below {n}"))?;
        let (args, yields) = (at.field("body").field("args"), at.field("body").field("yields"));
        args.wants(body.args.len() == n + inputs.len(), || {
            format!("are {}, not {}", body.args.len(), n + inputs.len())
        })?;
        yields.wants(body.yields.len() == results.len(), || {
            format!("are {}, not {}", body.yields.len(), results.len())
        })?;
        self.same_value_types(inits, &body.args[..n], &args)?;
        self.same_value_types(inits, &body.yields[..n], &yields)?;
        self.same_value_types(inits, &results[..n], &at.field("results"))?;
        let slices = inputs.iter().zip(&body.args[n..]);
        let stacks = results[n..].iter().zip(&body.yields[n..]);
        for (whole, slice) in slices.chain(stacks) {
            let (whole, slice) = (self.value(*whole), self.value(*slice));
            let fits = whole.dtype == slice.dtype && whole.dims.len() == slice.dims.len() + 1;
            at.wants(fits, || {
                let (have, want) = (slice.dims.len(), whole.dims.len());
                format!("slices {} of rank {want} as {} of rank {have}", whole.dtype, slice.dtype)
            })?;
        }
        Ok(())
    }
}
