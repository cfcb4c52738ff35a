//! Generated pages: docs/ops.md from the op table, docs/passes.md from the pass and pipeline
//! tables, docs/aten.md from the ATen table, docs/options.md from the option table.
use crate::{list_mode_options, list_options};
use kiln_dialects::{
    ops::{Family, OpKind},
    rules::{LEVELS, numerics},
};
use kiln_lowering::driver::pipeline::STEPS;
use kiln_lowering::driver::table;
use std::{fmt::Write, path::Path};

const NOTE: &str = "<!-- Generated from the tables; `./x bless` writes it anew. -->\n";

/// The op reference, docs/ops.md.
pub fn ops() -> String {
    let mut s = format!("# The ops of `kiln`\n\n{NOTE}\n");
    s += "Element types: f64 f32 f16 bf16 f8E4M3FN f8E5M2 i64 i32 i16 i8 ui8 i1. Types are plain ranked tensors; a dimension is a number or `?`, and\n\
        what is known of a `?` is said by `kiln.sym`, `kiln.sym_expr` and `kiln.bind_shape`. Elementwise ops neither broadcast nor promote: that is\n\
        written with `kiln.broadcast_in_dim` and `kiln.convert`. 'Numerics' says how far a compiled op may be from the reference semantics.\n";
    let mut family = None;
    for kind in OpKind::ALL {
        if family != Some(kind.family()) {
            family = Some(kind.family());
            let _ = write!(s, "\n## {}\n", title(kind.family()));
        }
        let _ = write!(s, "\n### `{}`\n\n{}.\n\n", kind.name(), kind.summary());
        if !kind.syntax().is_empty() {
            let _ = writeln!(s, "- Syntax: ``` {} {} ```", kind.name(), kind.syntax());
        }
        if !kind.formula().is_empty() {
            let _ = writeln!(
                s,
                "- Formula: {}",
                kind.formula().replace('|', "\\|").replace('*', "\\*")
            );
        }
        if !kind.reference().is_empty() {
            let _ = writeln!(s, "- Source: {}", kind.reference());
        }
        let _ = writeln!(s, "- Numerics: {}", numerics(*kind));
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
        Family::Contraction => "Contractions and windows",
        Family::Random => "Random numbers",
        Family::Control => "Control flow and calls",
        Family::Composite => "Composites",
    }
}

/// The pass reference, docs/passes.md.
pub fn passes() -> String {
    let mut s = format!("# Passes, levels and the pipeline\n\n{NOTE}\n");
    s += "Every upstream pass can stand in a pipeline beside these. `kiln-opt --list-passes` prints both.\n\n## Levels\n\n| level | what the IR is |\n| --- | --- |\n";
    for level in LEVELS {
        let _ = writeln!(s, "| `{}` | {} |", level.name(), level.summary());
    }
    s += "\n## The pipeline\n\n| from | pass | why here |\n| --- | --- | --- |\n";
    for step in STEPS {
        // Upstream's pass list takes one row.
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
        let _ = write!(s, "\n### `{}`\n\n{}.\n\n", p.flag, p.summary);
        let file = format!("{}.rs", p.source());
        let file = if Path::new(env!("CARGO_MANIFEST_DIR")).join(&file).exists() {
            file
        } else {
            format!("{}/mod.rs", p.source())
        };
        let _ = writeln!(
            s,
            "- File: `{file}`, test `tests/passes/{0}.mlir`, snapshots `snapshots/{0}/`",
            p.stem()
        );
        let _ = writeln!(s, "- Runs on `{}` at {}{lowers}", p.anchor, levels.join(", "));
        let _ = writeln!(
            s,
            "- {}; numerics: {}",
            if p.required { "Required" } else { "Optional" },
            p.numerics.name()
        );
        for o in (p.options)() {
            let _ = writeln!(s, "- Option `{}` (default `{}`): {}", o.name, o.default, o.help);
        }
    }
    s
}

/// The ATen reference, docs/aten.md.
pub fn aten() -> String {
    let mut s = format!("# The ATen overloads that capture takes\n\n{NOTE}\n");
    s += "An overload in place (`aten.relu_.default`) is its functional row and a write, which all views of the tensor then read. Arguments that a row does\n\
        not name do not matter to values (device, layout, memory format), or make a capture fail with a sentence when they do. Numbers and tensors\n\
        promote as in PyTorch. Arguments are checked as PyTorch's meta functions check them, with their reasons; sizes that are symbols are not compared.\n";
    for (family, rows) in crate::capture::aten::families() {
        let _ = write!(s, "\n## {family}\n\n| overload | arguments |\n| --- | --- |\n");
        for row in rows {
            let _ = writeln!(s, "| `{}` | `{}` |", row.name, row.arguments);
        }
    }
    s
}

/// The option reference, docs/options.md.
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
    let text = |t: &str| t.replace('|', "\\|").replace('<', "\\<");
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
                text(o.kind),
                text(o.default),
                text(o.summary)
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
