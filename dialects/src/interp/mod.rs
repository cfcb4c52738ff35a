//! The interpreter of `kiln` IR, in plain loops. It is the test oracle and shares no code with the
//! lowering, but for `kiln-linalg`, which it calls in f64.
//!
//! It runs the levels down to `kernels`, and on `tiled` programs whose kernels are tile programs.
mod eval;
mod factorize;
mod frame;
mod interpreter;
mod launch;
mod regions;
mod tile;

use crate::{
    ir::*,
    reference,
    value::{DType, Tensor},
};
pub use eval::evaluate;
use frame::{Bound, call, func};
use interpreter::error;
pub use interpreter::{ExternalFn, GlobalSource, Interpreter, Mode, OwnError, RunError};
use std::{cell::RefCell, collections::HashMap, rc::Rc};
pub use tile::has_tile_programs_only;

impl<'b> Interpreter<'b> {
    /// An interpreter without custom calls, for modules whose globals have their values in the IR.
    pub fn new(mode: Mode) -> Interpreter<'static> {
        Interpreter {
            mode,
            globals: &|name, source| Err(format!("has no value for @{name} from {source:?}").into()),
            custom_calls: HashMap::new(),
            max_iterations: 1_000_000,
            prepared: RefCell::default(),
        }
    }

    /// Runs a function of `module` on tensors. Inputs are checked against types and bound shapes,
    /// and bind the symbols.
    pub fn run(
        &self,
        module: Op,
        function: &str,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, RunError> {
        let found = func(module, function)?;
        let orders = found.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
        let ordered = |(i, t): (usize, &Tensor)| match orders
            .get(i)
            .and_then(|a| a.entry("kiln.order"))
            .and_then(Attr::as_i64s)
        {
            Some(order) => reference::transpose(t, &order)
                .map_err(|e| error(found, format!("input {i} {}", e.message))),
            None => Ok(t.clone()),
        };
        let inputs = inputs
            .iter()
            .enumerate()
            .map(|i| Ok(Bound::Tensor(Rc::new(ordered(i)?))))
            .collect::<Result<_, _>>()?;
        self.prepared.borrow_mut().clear();
        let results = call(self, module, function, inputs, 0)?;
        results
            .into_iter()
            .map(|b| match b {
                Bound::Tensor(t) => Ok(Rc::unwrap_or_clone(t)),
                Bound::Index(i) => Tensor::scalar_i(DType::I64, i).map_err(|e| error(module, e)),
            })
            .collect()
    }
}
