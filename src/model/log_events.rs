//! Log events of a program, whether compiled now, found in the cache or loaded from a package.
use crate::runtime::{Package, Program};

/// Reports fusion and schedules: channels `fusion` and `schedule`. Programs called by control flow
/// follow one after the other.
pub fn program(whole: &Program) {
    let name = whole.name.as_str();
    for p in whole.parts() {
        for k in &p.kernels {
            tracing::info!(target: "kiln::fusion", program = name, "{}: {}", k.name, k.ops.join(" "));
            k.not_fused.iter().for_each(|why| tracing::info!(target: "kiln::fusion", program = name, "{} not fused: {why}", k.name));
            let grid = k.launch.as_ref().map_or(String::new(), |l| {
                format!(", {} blocks of {} threads", p.size_text(l.grid), l.threads)
            });
            tracing::info!(target: "kiln::schedule", program = name, "{}: {}{grid}", k.name, k.kind);
        }
    }
}

/// Reports code that was compiled earlier: channel `output_code`. PTX is reported as text. Of
/// machine code only the size is known, since packages do not keep its LLVM dialect.
pub fn code(package: &Package) {
    let p = &package.program;
    for (name, bytes) in &package.objects {
        match p.target.is_cuda() {
            true => {
                tracing::info!(target: "kiln::output_code", program = p.name, object = %name, "\n{}", String::from_utf8_lossy(bytes))
            }
            false => tracing::info!(
                target: "kiln::output_code", program = p.name, object = %name,
                "{} bytes of machine code, compiled before; cache_dir=off shows the llvm dialect that it is made of", bytes.len()
            ),
        }
    }
}
