//! States: the buffers that a program mutates as its arguments, for callers that keep them between
//! calls.
use super::{CaptureError, Captured, Output};
use kiln_dialects::{
    error::OptionExt,
    ir::*,
    ops::{GetGlobal, Global},
    rules::STATE,
};

impl Captured {
    /// Makes each mutated buffer a last argument of `main`, of the buffer's name, in the order of
    /// the results that are new values. The argument is donated to its new value and has the
    /// attribute `kiln.state`; [`Captured::inputs`] has its name as well. Parameters that a program
    /// mutates count as buffers.
    ///
    /// # Errors
    /// The module has no function `main`, or no global of a buffer's name.
    pub fn lift_states(&mut self) -> Result<(), CaptureError> {
        let new: Vec<(usize, String)> = self
            .outputs
            .iter()
            .enumerate()
            .filter_map(|(n, o)| match o {
                Output::Buffer(name) => Some((n, name.clone())),
                _ => None,
            })
            .collect();
        for (result, name) in new {
            lift(self.module.op(), result, &name).map_err(|e| CaptureError::file(&name, e))?;
            self.weights.remove(&name);
            self.inputs.push(name);
        }
        Ok(())
    }
}

/// Makes a global an argument of `main`, whose result of this number is its new value.
fn lift(module: Op, result: usize, name: &str) -> Result<()> {
    let all: Vec<Op> = blocks(module).into_iter().flat_map(|b| b.ops()).collect();
    let func = all
        .iter()
        .copied()
        .find(|o| o.isa::<func::Func>() && o.symbol().as_deref() == Some("main"))
        .ok_or_at(module, "has no function main")?;
    let global = all
        .into_iter()
        .find(|o| Global::of(*o).is_some_and(|g| g.sym_name == name))
        .ok_or_else(|| Error::at(module, format!("has no global @{name}")))?;
    let about = Global::of(global).ok_or_malformed(global)?;
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let (inputs, results) = func
        .attr("function_type")
        .and_then(|a| a.as_type())
        .and_then(|t| t.signature())
        .ok_or_at(func, "has no type")?;
    let c = func.ctx();
    let argument = block.add_arg(about.r#type, func.loc().named(name));
    for op in walk(func) {
        if GetGlobal::of(op).is_some_and(|g| g.global == name) {
            op.result(0).replace_uses(argument);
            op.erase();
        }
    }
    global.erase();
    let inputs = [inputs, vec![about.r#type]].concat();
    func.set_attr("function_type", Attr::ty(Type::function(c, &inputs, &results)));
    let mut listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    listed.resize(inputs.len(), Attr::dictionary(c, &[]));
    let source = Attr::string(c, &about.source.unwrap_or_default());
    let state = [("result", Attr::i64(c, result as i64)), ("source", source)];
    let donated = ("kiln.donated", Attr::string(c, "results"));
    let entries = [donated, (STATE, Attr::dictionary(c, &state))];
    listed[inputs.len() - 1] = Attr::dictionary(c, &entries);
    func.set_attr("arg_attrs", Attr::array(c, &listed));
    Ok(())
}
