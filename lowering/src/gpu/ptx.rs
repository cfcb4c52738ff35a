//! Extracts PTX text from the output of upstream's code generator.
use crate::program::interface::kernel_symbol;
use kiln_dialects::ir::*;

/// The PTX of a module's kernels on level `llvm`, by symbol.
pub fn objects(module: Op) -> Result<Vec<(String, Vec<u8>)>> {
    let top = blocks(module).into_iter().flat_map(|b| b.ops());
    let kernels = top.filter(|o| o.attr("kiln.kernel").is_some());
    let binary = |o: &Op| walk(*o).into_iter().any(|o| o.isa::<gpu::Binary>());
    kernels.filter(binary).map(|o| Ok((kernel_symbol(o), ptx(o).at(o)?))).collect()
}

/// The PTX of the only `gpu.binary` nested in an op.
pub fn ptx(root: Op) -> Result<Vec<u8>> {
    let binary =
        walk(root).into_iter().find(|o| o.isa::<gpu::Binary>()).ok_or("no code came out")?;
    let object = binary
        .attr("objects")
        .and_then(Attr::as_array)
        .and_then(|all| all.first().copied()?.as_gpu_object());
    let mut text = object.ok_or("no object came out")?;
    while text.last() == Some(&0) {
        text.pop();
    }
    Ok(text)
}
