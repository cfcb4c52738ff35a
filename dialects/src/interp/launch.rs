//! Launches of kernels: calls of functions of tensors on the level `kernels`, and tile programs on
//! memory.
use super::{
    frame::{Bound, Frame, call, func},
    interpreter::{RunError, error, located, unsupported},
    tile,
};
use crate::{ir::*, ops::Launch};
use std::rc::Rc;

impl Frame<'_, '_> {
    pub(super) fn launch(&mut self, op: Op) -> Result<Vec<Bound>, RunError> {
        let fail = |e: Error| error(op, e);
        let o = Launch::of(op).ok_or_malformed(op).map_err(fail)?;
        let all = blocks(self.module).into_iter().flat_map(|b| b.ops());
        let found = all
            .into_iter()
            .find(|m| m.is("builtin.module") && m.symbol().as_deref() == Some(&o.kernel));
        let kernel = found.ok_or_else(|| {
            fail(format!("refers to @{}, which is not a kernel", o.kernel).into())
        })?;
        let code = func(kernel, &o.kernel)?;
        if tile::is_tile_program(code) {
            let inputs = o.inputs.iter().map(|v| self.tensor(*v)).collect::<Result<Vec<_>>>();
            let sizes = o.sizes.iter().map(|v| self.index(*v)).collect::<Result<Vec<_>>>();
            let (inputs, sizes) = (inputs.map_err(fail)?, sizes.map_err(fail)?);
            let made = tile::launch(code, &inputs, &sizes).map_err(|e| located(code, e))?;
            return Ok(made.into_iter().map(|t| Bound::Tensor(Rc::new(t))).collect());
        }
        if code.attr("kiln.threads").is_some() {
            let text = "launches a kernel that is code of a GPU's threads, not a tile program; \
                        run it on a GPU or under ./x emulate";
            return Err(unsupported(op, text));
        }
        let given = o.inputs.iter().chain(&o.sizes).map(|v| self.value(*v));
        let given: Option<Vec<Bound>> = given.collect();
        let given = given.ok_or_else(|| fail("uses a value that has not been computed".into()))?;
        call(self.interp, kernel, &o.kernel, given, self.depth + 1)
    }
}
