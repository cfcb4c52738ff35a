//! Code for rare arguments, in functions that all expansions of a module share.
use crate::{math::emit::Emit, target::kernel_attrs::LLVM_LINKAGE};
use kiln_dialects::ir::*;

/// Builds the results of a rare case from its arguments.
pub type RareCase<'a> = &'a mut dyn FnMut(&Emit, &[Value]) -> Result<Vec<Value>>;

impl Emit {
    /// The results of a rare case, which belongs inside [`Emit::branch`]. With
    /// [`Emit::with_rare_functions`] a call of the function `name` for this shape, which is built
    /// at the first call; else the body itself.
    pub fn rare(
        &self,
        name: &str,
        arguments: &[Value],
        types: &[Type],
        body: RareCase<'_>,
    ) -> Result<Vec<Value>> {
        let Some(module) = self.rare_functions else { return body(self, arguments) };
        let block = module.regions().first().and_then(|r| r.first());
        let block = block.ok_or("is in a module without a body")?;
        let name = format!("kiln_{name}_{}", self.shape_name());
        if !block.ops().iter().any(|o| o.symbol().as_deref() == Some(&name)) {
            let b = Builder::at_end(module.ctx(), block, module.loc());
            let inputs: Vec<Type> = arguments.iter().map(|v| v.ty()).collect();
            let function = b.function(&name, &inputs, types, &mut |b, arguments| {
                let results = body(&self.inside(b), &arguments)?;
                b.ret(&results).map(drop)
            })?;
            let text = |s: &str| Attr::string(module.ctx(), s);
            function.set_attr("sym_visibility", text("private"));
            // The function saves all registers itself: calls spill no accumulators.
            let attributes =
                ["cold", "noinline", "nounwind", "no_caller_saved_registers"].map(text);
            function.set_attr("passthrough", Attr::array(module.ctx(), &attributes));
            function.set_attr(LLVM_LINKAGE, Attr::internal_linkage(module.ctx()));
        }
        Ok(func::call(self, &name, arguments, types)?.results())
    }
}

/// The innermost module that holds an op, within `root`.
pub fn module_within(root: Op, op: Op) -> Option<Op> {
    let mut at = op;
    while at != root {
        at = at.parent()?;
        if at.name() == "builtin.module" {
            return Some(at);
        }
    }
    None
}
