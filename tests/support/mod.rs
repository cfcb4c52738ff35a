//! Shared test support: multi-case files, expected diagnostics, random inputs, comparison of
//! results.
use kiln::dialects::{
    interp::{Interpreter, Mode, RunError},
    ir::*,
    ops::*,
    sym,
    value::{DType, Data, Tensor},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// The repository: cargo's manifest folder at run time, else the working directory, so that the
/// binary runs on other machines.
pub fn repository() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| std::env::current_dir().expect("a working directory"), PathBuf::from)
}

/// Whether the long suites run whole, as CI has them: `./x test --all` sets `KILN_TEST_ALL`.
pub fn all() -> bool {
    std::env::var_os("KILN_TEST_ALL").is_some_and(|v| v == "1")
}

/// The folder of built libraries, dev profile.
pub fn libraries() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_kiln"))
        .parent()
        .and_then(Path::parent)
        .expect("target")
        .join("debug")
}

/// Builds the libraries there, with all members, so that no crate is built with other features again.
pub fn build_libraries() {
    static BUILT: LazyLock<()> = LazyLock::new(|| {
        let done = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--lib", "--tests"])
            .current_dir(repository())
            .status()
            .expect("cargo");
        assert!(done.success(), "the libraries are not built");
    });
    *BUILT
}

/// Lets a process load the emulator (`emulator/`) as the driver.
pub fn emulated(command: &mut Command) -> &mut Command {
    let before = std::env::var_os("LD_LIBRARY_PATH");
    let all =
        [emulator().to_path_buf()].into_iter().chain(before.iter().flat_map(std::env::split_paths));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(all).expect("paths without colons"))
}

/// A folder in which libcuda is the emulator.
fn emulator() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        build_libraries();
        // Not next to the libraries, which cargo puts on the path of every test.
        let folder = libraries().join("emulator-as-driver");
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libcuda.so", "libcuda.so.1"] {
            // Another process may have created it.
            let _ = std::os::unix::fs::symlink(
                libraries().join("libkiln_emulator.so"),
                folder.join(name),
            );
        }
        folder
    });
    &FOLDER
}

/// A case of a test file, between `// -----` lines.
pub struct Case {
    /// `// CASE: name`, or `case N`.
    pub name: String,
    /// The text, padded with empty lines to the line numbers of the file.
    pub text: String,
}

/// The cases of a test file.
pub fn cases(file: &str) -> Vec<Case> {
    crate::watchdog::arm();
    let (mut all, mut text, mut padding) = (vec![], String::new(), String::new());
    for line in file.lines().chain(["// -----"]) {
        if line.starts_with("// -----") {
            let body = std::mem::take(&mut text);
            if body.lines().any(|l| !l.trim().is_empty() && !l.trim().starts_with("//")) {
                let name = body
                    .lines()
                    .find_map(|l| l.trim().strip_prefix("// CASE: "))
                    .map(str::to_string);
                all.push(Case {
                    name: name.unwrap_or_else(|| format!("case {}", all.len() + 1)),
                    text: format!("{padding}{body}"),
                });
            }
            padding.extend(body.lines().map(|_| '\n'));
            padding.push('\n');
        } else {
            text += line;
            text.push('\n');
        }
    }
    all
}

/// `// expected-error @+1 {{text}}` of a case: line and part of the message.
pub fn expected_errors(text: &str) -> Vec<(usize, String)> {
    expected(text, Severity::Error)
}

fn expected(text: &str, severity: Severity) -> Vec<(usize, String)> {
    let mut all = vec![];
    let comment = format!("// expected-{}", severity.keyword());
    for (i, line) in text.lines().enumerate() {
        let Some(rest) = line.split(&comment).nth(1) else { continue };
        let (place, message) = rest.split_once("{{").expect("{{ behind the comment");
        let offset: i64 = match place.trim() {
            "" => 0,
            "@above" => -1,
            "@below" => 1,
            at => at.trim_start_matches('@').parse().expect("@+N or @-N"),
        };
        let end = message.rfind("}}").expect("}} behind the message");
        all.push(((i as i64 + 1 + offset) as usize, message[..end].to_string()));
    }
    all
}

/// Compares errors with the expected ones, and remarks if any is expected; returns mismatches, one
/// line each.
pub fn unmatched(text: &str, diagnostics: &[Diagnostic]) -> Vec<String> {
    let remarks = expected(text, Severity::Remark);
    let mut checks = vec![(Severity::Error, expected_errors(text))];
    checks.extend((!remarks.is_empty()).then_some((Severity::Remark, remarks)));
    let mut wrong = vec![];
    for (severity, mut expected) in checks {
        let word = severity.keyword();
        for d in diagnostics.iter().filter(|d| d.severity == severity) {
            let line = d.location.as_ref().map_or(0, |p| p.1 as usize);
            match expected.iter().position(|(l, m)| *l == line && d.message.contains(m.as_str())) {
                Some(i) => drop(expected.remove(i)),
                // The generic message of a failing pass, after the reason.
                None if d.message.contains("failed on '") => {}
                None => wrong.push(format!("line {line}: unexpected {word}: {}", d.message)),
            }
        }
        let missing = |(line, m)| format!("line {line}: no {word} {{{{{m}}}}}");
        wrong.extend(expected.into_iter().map(missing));
    }
    wrong
}

/// The errors of a module that does not parse.
pub fn parse_errors(e: ParseError) -> Vec<Diagnostic> {
    match e {
        ParseError::Diagnostics(all) => all,
        other => vec![Diagnostic {
            severity: Severity::Error,
            kind: None,
            message: other.to_string(),
            locations: vec![],
            location: None,
            notes: vec![],
        }],
    }
}

/// A generator of pseudo-random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Floats in [-2, 2) of the dtype; wide integers are 1 or 2, valid as indices and divisors.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let mut int = || match dtype {
            DType::I1 => self.below(2) as i64,
            DType::I64 | DType::I32 => 1 + self.below(2) as i64,
            DType::UI8 => 1 + self.below(9) as i64,
            _ => [-4, -3, -1, 1, 2, 5][self.below(6)],
        };
        let data = if dtype.is_float() {
            Data::F((0..n).map(|_| dtype.round(self.unit() * 4.0 - 2.0)).collect())
        } else {
            Data::I((0..n).map(|_| int()).collect())
        };
        Tensor::new(dtype, shape.to_vec(), data).unwrap()
    }
}

/// The top-level functions with a body.
pub fn functions(module: &Module) -> Vec<Op> {
    let all = module.body().ops().into_iter();
    all.filter(|o| o.isa::<func::Func>() && o.regions().first().is_some_and(|r| !r.is_empty()))
        .collect()
}

/// Values of a function's symbols, in their ranges and distinct where possible.
pub fn symbol_values(func: Op) -> HashMap<String, i64> {
    let mut all = HashMap::new();
    for op in walk(func) {
        let Some(s) = Sym::of(op) else { continue };
        let n = all.len() as i64;
        all.entry(s.name.clone()).or_insert_with(|| {
            let wanted = (4 + n).max(s.min);
            let up = (wanted + s.divisor - 1) / s.divisor * s.divisor;
            s.max.map_or(up, |m| up.min(m / s.divisor * s.divisor))
        });
    }
    all
}

/// The value of a symbolic SSA size.
pub fn size_value(v: Value, symbols: &HashMap<String, i64>) -> Option<i64> {
    let op = v.def()?;
    if let Some(s) = Sym::of(op) {
        return symbols.get(&s.name).copied();
    }
    if let Some(e) = SymExpr::of(op) {
        return sym::evaluate(e.kind, size_value(e.lhs, symbols)?, size_value(e.rhs, symbols)?);
    }
    op.attr("value")?.as_i64()
}

/// Random arguments of a function; an unbound dynamic dimension has size 3.
pub fn inputs(func: Op, seed: u64) -> Vec<Tensor> {
    inputs_of_sizes(func, seed, &symbol_values(func))
}

/// As [`inputs`], with these symbol values.
pub fn inputs_of_sizes(func: Op, seed: u64, symbols: &HashMap<String, i64>) -> Vec<Tensor> {
    let mut random = Random(seed);
    let block = func.regions()[0].first().unwrap();
    let facts: Vec<BindShape> = block.ops().into_iter().filter_map(BindShape::of).collect();
    let argument = |v: Value| {
        let t = kiln::dialects::rules::tensor_type(v.ty()).unwrap();
        let bound = |i: usize| {
            let fact = facts.iter().find(|f| f.value == v)?;
            match fact.sizes[i] {
                Size::Static(n) => Some(n),
                Size::Dynamic(s) => size_value(s, symbols),
            }
        };
        let size =
            |(i, d): (usize, &sym::Dim)| d.known().or_else(|| bound(i)).unwrap_or(3) as usize;
        let shape: Vec<usize> = t.dims.iter().enumerate().map(size).collect();
        random.tensor(t.dtype, &shape)
    };
    block.args().into_iter().map(argument).collect()
}

/// Runs a function; globals with a source get random values.
pub fn run(
    module: &Module,
    func: Op,
    mode: Mode,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, RunError> {
    let global = |name: &str, _: &str| {
        let g = module.find(name).and_then(Global::of).ok_or("is no global")?;
        let t = kiln::dialects::rules::tensor_type(g.r#type)?;
        let shape: Vec<usize> = t.dims.iter().map(|d| d.known().unwrap_or(0) as usize).collect();
        Ok(Random(name.len() as u64).tensor(t.dtype, &shape))
    };
    let mut interpreter =
        Interpreter { globals: &global, max_iterations: 1000, ..Interpreter::new(mode) };
    interpreter.custom_calls.insert(
        "test.identity".into(),
        Box::new(|inputs, _| Ok(inputs.iter().map(|t| Tensor::clone(t)).collect())),
    );
    interpreter.run(module.op(), &func.symbol().unwrap(), inputs)
}

/// ‖a − b‖ / ‖b‖ over the finite elements of b; infinite if shapes, dtypes, integers, NaNs or
/// infinities differ.
pub fn relative_error(a: &Tensor, b: &Tensor) -> f64 {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return f64::INFINITY;
    }
    let (Data::F(x), Data::F(y)) = (a.data(), b.data()) else {
        return if a == b { 0.0 } else { f64::INFINITY };
    };
    let (mut difference, mut norm) = (0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        if y.is_finite() && x.is_finite() {
            difference += (x - y) * (x - y);
            norm += y * y;
        } else if !(x == y || (x.is_nan() && y.is_nan())) {
            return f64::INFINITY;
        }
    }
    if difference == 0.0 { 0.0 } else { (difference / norm.max(1e-60)).sqrt() }
}

/// Equal dtype, shape and elements; zeros by sign, all NaNs equal.
pub fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let same = |x: &f64, y: &f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    match (a.data(), b.data()) {
        (Data::F(x), Data::F(y)) => {
            a.dtype() == b.dtype()
                && a.shape() == b.shape()
                && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        _ => a == b,
    }
}

/// max |a − b| / max |b| over the finite elements of b; infinite as in [`relative_error`].
pub fn greatest_error(a: &Tensor, b: &Tensor) -> f64 {
    let (Ok(x), Ok(y), true) = (a.as_f(), b.as_f(), relative_error(a, b).is_finite()) else {
        return relative_error(a, b);
    };
    let finite = || x.iter().zip(y).filter(|(x, y)| x.is_finite() && y.is_finite());
    let difference = finite().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    if difference == 0.0 {
        0.0
    } else {
        difference / finite().map(|(_, y)| y.abs()).fold(1e-30, f64::max)
    }
}
