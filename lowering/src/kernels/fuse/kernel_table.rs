//! The kernels and constants of a module, deduplicated by their text.
use kiln_dialects::{
    ir::*,
    ops::{GetGlobal, Global},
};
use std::collections::{HashMap, HashSet};

/// The kernels of a module, deduplicated by their text.
pub(super) struct Kernels {
    ctx: Ctx,
    block: Block,
    by_text: HashMap<String, String>,
    names: HashSet<String>,
}

impl Kernels {
    /// An empty table of kernels for `module`; fails if the module has no body.
    pub(super) fn of(module: Op) -> Result<Kernels> {
        let block =
            module.regions().first().and_then(|r| r.first()).ok_or_at(module, "has no body")?;
        let names = block.ops().into_iter().filter_map(Op::symbol).collect();
        Ok(Kernels { ctx: module.ctx(), block, by_text: HashMap::new(), names })
    }

    /// Turns a literal into a global, since kernels take pointers to memory.
    pub(super) fn constant(&mut self, op: Op) -> Result<Value> {
        let value = op.attr("value").ok_or("has no value")?;
        let text = format!("{value} : {}", value.type_of());
        let name = match self.by_text.get(&text) {
            Some(name) => name.clone(),
            None => {
                let name = (0..)
                    .map(|n| format!("constant_{n}"))
                    .find(|n| !self.names.contains(n))
                    .unwrap_or_default();
                let global = Global {
                    sym_name: name.clone(),
                    sym_visibility: Some("private".into()),
                    is_mutable: false,
                    r#type: value.type_of(),
                    source: None,
                    value: Some(value),
                };
                Builder::at_end(self.ctx, self.block, op.loc()).create_with(
                    &global,
                    &[],
                    &mut [],
                )?;
                self.names.insert(name.clone());
                self.by_text.insert(text, name.clone());
                name
            }
        };
        let b = Builder::before(op).ok_or("is in no block")?;
        Ok(b.create_with(
            &GetGlobal { is_mutable: false, global: name },
            &[value.type_of()],
            &mut [],
        )?
        .result(0))
    }

    /// The name of the kernel with that body: an existing equal one, or a new one that is created.
    pub(super) fn intern(
        &mut self,
        stem: &str,
        loc: Loc,
        make: &mut dyn FnMut(Builder, &str) -> Result<Op>,
    ) -> Result<String> {
        let b = Builder::at_end(self.ctx, self.block, loc);
        let mut n = 0;
        let name = loop {
            let name = if n == 0 { stem.to_string() } else { format!("{stem}_{n}") };
            if !self.names.contains(&name) {
                break name;
            }
            n += 1;
        };
        let module = make(b, &name)?;
        // Excludes the name and the `not_fused` reasons, which may differ between equal kernels.
        let functions = blocks(module).into_iter().flat_map(|b| b.ops());
        let text: String = functions
            .map(|f| {
                f.print(PrintOptions { local_scope: true, ..Default::default() })
                    .replace(&format!("@{name}"), "@")
            })
            .collect();
        if let Some(earlier) = self.by_text.get(&text) {
            module.erase();
            return Ok(earlier.clone());
        }
        self.by_text.insert(text, name.clone());
        self.names.insert(name.clone());
        Ok(name)
    }
}
