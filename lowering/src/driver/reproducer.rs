//! Reproducers: IR and the pipeline that failed on it, in one file.
use kiln_dialects::ir::{Module, PrintOptions};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The line that reports a reproducer to the user.
pub fn reproducer_line(path: &Path) -> String {
    format!("reproducer: {0} (replay: kiln-opt --run-reproducer {0})", path.display())
}

/// A unique path in a folder, for a reproducer of a failing pass.
pub fn new_reproducer(folder: &Path) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("kiln-reproducer-{}-{n}.mlir", std::process::id()))
}

/// IR and pipeline in upstream's format; mlir-opt reads it too if the IR has no kiln ops.
pub fn reproducer_text(module: &Module, pipeline: &str) -> String {
    reproducer_of_text(
        &module.print(PrintOptions {
            debug_info: true,
            names_from_locations: true,
            ..Default::default()
        }),
        pipeline,
    )
}

/// As [`reproducer_text`], for IR that is text already.
pub fn reproducer_of_text(ir: &str, pipeline: &str) -> String {
    let pipeline = pipeline.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{ir}\n\n{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n      pipeline: \"{pipeline}\",\n      disable_threading: true,\n      verify_each: true\n    }}\n  }}\n#-}}\n"
    )
}

/// Splits a reproducer into its IR and its pipeline.
pub fn split_reproducer(text: &str) -> Option<(&str, String)> {
    let at = text.rfind("\n{-#")?;
    let rest = &text[at..];
    let start = rest.find("pipeline: \"")? + "pipeline: \"".len();
    let mut pipeline = String::new();
    let mut chars = rest[start..].chars();
    loop {
        match chars.next()? {
            '"' => return Some((&text[..at], pipeline)),
            '\\' => pipeline.push(chars.next()?),
            c => pipeline.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reproducers_come_apart_again() {
        let text = "module {\n}\n\n{-#\n external_resources: { mlir_reproducer: {\n pipeline: \"a(b{c=\\\"d\\\"})\",\n x: true } }\n#-}\n";
        let (ir, pipeline) = split_reproducer(text).expect("a reproducer");
        assert_eq!((ir.trim(), pipeline.as_str()), ("module {\n}", "a(b{c=\"d\"})"));
    }
}
