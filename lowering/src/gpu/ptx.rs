//! Extracts PTX text from the output of upstream's code generator.
use kiln_dialects::ir::*;

/// The PTX of the only `gpu.binary` nested in an op.
pub fn ptx(root: Op) -> Result<Vec<u8>> {
    let binary = walk(root).into_iter().find(|o| o.is("gpu.binary")).ok_or("no code came out")?;
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
