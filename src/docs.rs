//! The generated pages: docs/ops.md from the op table, docs/passes.md from the pass and pipeline
//! tables, docs/strategies.md from the strategy table, docs/aten.md from the ATen table,
//! docs/options.md from the table of options. Prose keeps to 100 columns.
use crate::{list_mode_options, list_options};
use kiln_dialects::{
    ops::{Family, OpKind},
    rules::{LEVELS, numerics},
};
use kiln_lowering::{
    driver::{pipeline::PIPELINE, table},
    strategies::{Device, table::STRATEGIES},
};
use kiln_passes::{differentiate::derivative, vmap::batching};
use std::{fmt::Write, path::Path};

const NOTE: &str = "<!-- Generated from the tables; `./x bless` writes it anew. -->\n";

/// Columns of a page.
const WIDTH: usize = 100;

/// A paragraph or list item in lines of at most [`WIDTH`] columns: `first` begins the first line,
/// `indent` all others.
pub(crate) fn wrapped(first: &str, indent: &str, text: &str) -> String {
    // A sign at the beginning of a line would be a list item, a heading or a table, so it stays with
    // the word before it.
    let mut groups: Vec<String> = vec![];
    for word in text.split_whitespace() {
        match groups.last_mut() {
            Some(last) if word.starts_with(['-', '+', '*', '#', '=', '>', '|']) => {
                *last += " ";
                *last += word;
            }
            _ => groups.push(word.into()),
        }
    }
    let (mut s, mut line, mut empty) = (String::new(), first.to_string(), true);
    for group in groups {
        if !empty && line.chars().count() + 1 + group.chars().count() > WIDTH {
            let _ = writeln!(s, "{line}");
            line = indent.to_string();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += &group;
        empty = false;
    }
    let _ = writeln!(s, "{line}");
    s
}

/// Text in a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<")
}

/// The op reference: what docs/ops.md holds.
pub fn ops() -> String {
    let mut s = format!("# The ops of `kiln`\n\n{NOTE}\n");
    s += &wrapped(
        "",
        "",
        "Element types: f64 f32 f16 bf16 f8E4M3FN f8E5M2 i64 i32 i16 i8 ui8 i1. Types are plain \
         ranked tensors; a dimension is a number or `?`, and what is known of a `?` is said by \
         `kiln.sym`, `kiln.sym_expr` and `kiln.bind_shape`. Elementwise ops neither broadcast nor \
         promote: that is written with `kiln.broadcast_in_dim` and `kiln.convert`. 'Numerics' says \
         how far a compiled op may be from the reference semantics, 'Derivative' what \
         [kiln-differentiate](gradients.md) takes, 'Batch' what \
         [kiln-vmap](training.md#batches-of-examples) does.",
    );
    let mut family = None;
    for kind in OpKind::ALL {
        if family != Some(kind.family()) {
            family = Some(kind.family());
            let _ = write!(s, "\n## {}\n", title(kind.family()));
        }
        let _ = write!(s, "\n### `{}`\n\n", kind.name());
        s += &wrapped("", "", &format!("{}.", kind.summary()));
        if !kind.syntax().is_empty() {
            let syntax = format!("{} {}", kind.name(), kind.syntax());
            let _ = write!(s, "\n```text\n{}```\n", wrapped("", "    ", &syntax));
        }
        s.push('\n');
        if !kind.formula().is_empty() {
            let formula = kind.formula().replace('|', "\\|").replace('*', "\\*");
            s += &wrapped("- ", "  ", &format!("Formula: {formula}"));
        }
        if !kind.reference().is_empty() {
            s += &wrapped("- ", "  ", &format!("Source: {}", kind.reference()));
        }
        s += &wrapped("- ", "  ", &format!("Numerics: {}", numerics(*kind)));
        s += &wrapped("- ", "  ", &format!("Derivative: {}", derivative(*kind).note()));
        s += &wrapped("- ", "  ", &format!("Batch: {}", batching(*kind).note()));
    }
    s
}

fn title(family: Family) -> &'static str {
    match family {
        Family::Structure => "Symbols, facts and weights",
        Family::Unary => "Elementwise, one operand",
        Family::Binary => "Elementwise, two operands",
        Family::Elementwise => "Elementwise, others",
        Family::Create => "Creation",
        Family::Movement => "Movement",
        Family::Indexed => "Indexed movement",
        Family::Reduction => "Reductions, scans and sorts",
        Family::Fourier => "Fourier transforms",
        Family::Contraction => "Contractions and windows",
        Family::Random => "Random numbers",
        Family::Control => "Control flow and calls",
        Family::Composite => "Composites",
        Family::Structured => "Structured ops of kernels",
        Family::Tile => "Tile programs of GPU kernels",
    }
}

/// The pass reference: what docs/passes.md holds.
pub fn passes() -> String {
    let mut s = format!("# Passes, levels and the pipeline\n\n{NOTE}\n");
    s += "Every upstream pass can stand in a pipeline beside these. `kiln-opt --list-passes` prints \
        both.\n\n## Levels\n\n| level | what the IR is |\n| --- | --- |\n";
    for level in LEVELS {
        let _ = writeln!(s, "| `{}` | {} |", level.name(), level.summary());
    }
    s += "\n## The pipeline\n\n| from | pass | why here |\n| --- | --- | --- |\n";
    for step in PIPELINE {
        // A list of upstream's passes is one row.
        let pass = if step.pass.matches(',').count() > 3 {
            format!("{}, …", step.pass.split(',').take(3).collect::<Vec<_>>().join(", "))
        } else {
            step.pass.into()
        };
        let _ = writeln!(s, "| `{}` | `{pass}` | {} |", step.from.name(), step.why);
    }
    s += "\n## Passes\n";
    for p in table::passes() {
        let levels: Vec<_> = p.levels.iter().map(|l| format!("`{}`", l.name())).collect();
        let lowers =
            p.lowers_to.map_or(String::new(), |l| format!(", takes the module to `{}`", l.name()));
        let _ = write!(s, "\n### `{}`\n\n", p.flag);
        s += &wrapped("", "", &format!("{}.", p.summary));
        let file = format!("{}.rs", p.source());
        let file = if Path::new(env!("CARGO_MANIFEST_DIR")).join(&file).exists() {
            file
        } else {
            format!("{}/mod.rs", p.source())
        };
        let _ = write!(
            s,
            "\n- File: `{file}`\n- Test: `tests/passes/{0}.mlir`\n- Snapshots: `snapshots/{0}/`\n",
            p.stem()
        );
        let anchor =
            if p.anchor.is_empty() { "any op".to_string() } else { format!("`{}`", p.anchor) };
        let runs = format!("Runs on {anchor} at {}{lowers}", levels.join(", "));
        s += &wrapped("- ", "  ", &runs);
        let required = if p.required { "Required" } else { "Optional" };
        let _ = writeln!(s, "- {required}; numerics: {}", p.numerics.name());
        for o in (p.options)() {
            let default =
                if o.default.is_empty() { "empty".to_string() } else { format!("`{}`", o.default) };
            let option = format!("Option `{}` (default {default}): {}", o.name, o.help);
            s += &wrapped("- ", "  ", &option);
        }
    }
    s
}

/// The reference of strategies: what docs/strategies.md holds.
pub fn strategies() -> String {
    let mut s = format!("# Strategies\n\n{NOTE}\n");
    s += &wrapped(
        "",
        "",
        "A strategy computes one kind of kernel. `#kiln.schedule<\"NAME\", {…}>` on a kernel names \
         it, with all of its parameters. Strategies are asked in this order; the first that \
         matches is taken, except that neighbours which state a cost compete by it. The table is \
         `lowering/src/strategies/table.rs`; [write a strategy](write-a-strategy.md) explains one.",
    );
    for (device, title) in [(Device::Cpu, "Processors"), (Device::Gpu, "NVIDIA GPUs")] {
        let _ = write!(s, "\n## {title}\n");
        for row in STRATEGIES.iter().filter(|r| r.device() == device) {
            let _ = write!(s, "\n### `{}`\n\n", row.name());
            s += &wrapped("", "", &format!("{}.", row.summary()));
            let libraries = row.libraries();
            if row.competes() || !libraries.is_empty() {
                s.push('\n');
            }
            if row.competes() {
                s += "- Competes by cost with its neighbours\n";
            }
            if !libraries.is_empty() {
                let _ = writeln!(s, "- Also a call of a library: {}", libraries.join(", "));
            }
            if row.parameters().is_empty() {
                s += "\nIt has no parameters.\n";
                continue;
            }
            s += "\n| parameter | what it is | values |\n| --- | --- | --- |\n";
            for p in row.parameters() {
                let (help, domain) = (cell(p.help), cell(&p.domain.to_string()));
                let _ = writeln!(s, "| `{}` | {help} | {domain} |", p.name);
            }
        }
    }
    s
}

/// The ATen reference: what docs/aten.md holds.
pub fn aten() -> String {
    let mut s = format!("# The ATen overloads that capture takes\n\n{NOTE}\n");
    s += &wrapped(
        "",
        "",
        "An overload in place (`aten.relu_.default`) is its functional row and a write, which all \
         views of the tensor then read. Arguments that a row does not name do not matter to values \
         (device, layout, memory format), or make a capture fail with a sentence when they do. \
         Numbers and tensors promote as in PyTorch. Arguments are checked as PyTorch's meta \
         functions check them, with their reasons; sizes that are symbols are not compared.",
    );
    for (family, rows) in crate::capture::aten::families() {
        let _ = write!(s, "\n## {family}\n\n| overload | arguments |\n| --- | --- |\n");
        for row in rows {
            let _ = writeln!(s, "| `{}` | `{}` |", row.name, row.arguments);
        }
    }
    s
}

/// The reference of options: what docs/options.md holds.
pub fn options() -> String {
    let mut s = format!("# Options\n\n{NOTE}\n");
    s += "Every option has one name, and is set in each of these ways; what stands further down wins:\n\n\
        1. its `KILN_…` variable, which functions and files read alike; an empty one is as good as none;\n\
        2. in Rust `compile(f).options([(\"threads\", \"1\")])`, on the command line\n   \
        `--option threads=1`, as often as wanted;\n\
        3. methods of `compile(f)` (`mode`, `device`, `dynamic`, `fullgraph`, `backend`, `freeze`,\n   \
        `disable`); fields of `kiln::Options`, which `Options::from_env()` fills; flags (`--mode`,\n   \
        `--device`, `--target`, `--threads`, `--workers` for `compile_threads`, `--schedules`,\n   \
        `--passes`, `--autotune-budget`, `--no-cache` for `cache_dir=off`).\n\n\
        A value that an option does not take is an error that names the option or variable and what it\n\
        takes. An unknown name is answered with the nearest. A file takes an option for functions alone\n\
        with a remark. Truth values are also `1` and `0`, `on` and `off`. `kiln options` prints this\n\
        table, `list_options()` gives it. `KILN_LOG` is no option: [debugging.md](debugging.md).\n";
    for (files, title) in
        [(true, "For files and compiled functions"), (false, "For compiled functions alone")]
    {
        let _ = write!(
            s,
            "\n## {title}\n\n| option | variable | takes | default | what it does |\n| --- | --- | --- | --- | --- |\n"
        );
        for o in list_options().iter().filter(|o| o.files == files) {
            let torch = o.torch.map_or(String::new(), |t| format!(", torch's `{t}`"));
            let _ = writeln!(
                s,
                "| `{}`{torch} | `{}` | {} | {} | {} |",
                o.name,
                o.variable,
                cell(o.kind),
                cell(o.default),
                cell(o.summary)
            );
        }
    }
    s += "\n## Modes\n\n| mode | sets |\n| --- | --- |\n";
    for (mode, sets) in list_mode_options() {
        let sets: Vec<String> =
            sets.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
        let _ = writeln!(s, "| `{mode}` | {} |", sets.join(", "));
    }
    s
}
