//! `--execute`: runs a function on tensors from files, in the interpreter down to `kernels` and
//! where all kernels are tile programs, as machine code otherwise.
use super::{
    OptError,
    cli::{Cli, Rounding},
    tensors::{self, Tensors},
};
use crate::{
    Exit,
    capture::pt2,
    dialects::{
        interp::{Interpreter, Mode, OwnError, RunError, has_tile_programs_only},
        ir::*,
        rules::Level,
        value::{Data, Tensor},
    },
    passes::pass,
    runtime::DeviceId,
    tolerance,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fmt::Write,
    path::{Path, PathBuf},
};

/// Number of elements printed per result.
const SHOWN: usize = 8;

/// Runs the selected function and formats its results. `folder` is the base directory of weight
/// files.
pub fn run(cli: &Cli, module: &Module, folder: &Path) -> Result<(Exit, String), OptError> {
    let given = match &cli.inputs {
        Some(path) => tensors::read(path, |_| true)?,
        None => Tensors::new(),
    };
    let weights = Weights {
        from_command_line: cli.weights.clone(),
        folder: folder.into(),
        files: RefCell::default(),
        archives: RefCell::default(),
    };
    let globals = |name: &str, source: &str| weights.find(name, source);
    let mode = match cli.mode {
        Rounding::Exact => Mode::Exact,
        Rounding::Rounded => Mode::Rounded,
    };
    let level = pass::level_of(module.op()).filter(|l| *l > Level::Kernels);
    let tiles = level == Some(Level::Tiled) && has_tile_programs_only(module.op());
    let results = if level.is_some() && !tiles {
        native(cli, module, folder, &inputs(&given))?
    } else {
        let interpreter = Interpreter { globals: &globals, ..Interpreter::new(mode) };
        interpreter
            .run(module.op(), &cli.function, &inputs(&given))
            .map_err(|e| run_error(module, &cli.function, e))?
    };
    let mut text = String::new();
    for (i, t) in results.iter().enumerate() {
        let _ = writeln!(text, "output_{i}: {} {:?} = {}", t.dtype(), t.shape(), first_elements(t));
    }
    if let Some(path) = &cli.outputs {
        tensors::write(path, &results)?;
    }
    let mut exit = Exit::Success;
    if cli.check {
        let (ok, report) = check(&results, &given)?;
        text += &report;
        exit = if ok { Exit::Success } else { Exit::CheckFailed };
    }
    Ok((exit, text))
}

/// Finishes the pipeline, generates machine code, and calls it once, on GPU 0 for a module that is
/// for GPUs.
fn native(
    cli: &Cli,
    module: &Module,
    folder: &Path,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, OptError> {
    let fail = |e: crate::Error| OptError { exit: e.exit(), message: format!("error: {e}") };
    let said = module.op().attr("kiln.target").and_then(Attr::as_string).unwrap_or_default();
    let gpu = said.starts_with("cuda:");
    let options = crate::Options {
        function: cli.function.clone(),
        device: if gpu { DeviceId::Cuda(0) } else { DeviceId::Host },
        target: gpu.then_some(said),
        weights: cli.weights.clone().filter(|w| w.is_dir()),
        ..Default::default()
    };
    let exe = crate::Model::from_module(module, folder).compile(&options).map_err(fail)?;
    exe.call_values(&inputs.iter().collect::<Vec<_>>()).map_err(fail)
}

/// `input_0`, `input_1`, … if present; else all tensors that are not outputs, in natural order of
/// their names.
fn inputs(given: &Tensors) -> Vec<Tensor> {
    let numbered = tensors::numbered(given, "input_");
    if !numbered.is_empty() {
        return numbered.into_iter().map(|(_, t)| t.clone()).collect();
    }
    let mut rest: Vec<_> = given.iter().filter(|(name, _)| !name.starts_with("output_")).collect();
    rest.sort_by_key(|(name, _)| tensors::natural(name));
    rest.into_iter().map(|(_, t)| t.clone()).collect()
}

/// Maps a failed run to an exit code.
fn run_error(module: &Module, function: &str, e: RunError) -> OptError {
    let mut message = e.to_string();
    if message.contains("has no function @") {
        let all = blocks(module.op())
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.isa::<func::Func>())
            .filter_map(|o| o.symbol());
        let names: Vec<String> = all.collect();
        message += &crate::passes::names::hint(function, names.iter().map(String::as_str));
        message += &format!(" (functions: {}; --function picks one)", names.join(", "));
    }
    OptError {
        exit: if e.unsupported { Exit::Unsupported } else { Exit::Usage },
        message: format!("error: {message}"),
    }
}

/// Values of globals: from `--weights`, or from the files that the module names; each is read once.
struct Weights {
    from_command_line: Option<PathBuf>,
    folder: PathBuf,
    files: RefCell<HashMap<PathBuf, Tensors>>,
    archives: RefCell<HashMap<PathBuf, BTreeMap<String, pt2::Weight>>>,
}

impl Weights {
    /// Resolves `file#tensor`, or `file` with a tensor of the global's name.
    fn find(&self, global: &str, source: &str) -> Result<Tensor, OwnError> {
        let (file, name) = source.split_once('#').unwrap_or((source, global));
        let path = match &self.from_command_line {
            Some(folder) if folder.is_dir() => folder.join(file),
            Some(path) => path.clone(),
            None => self.folder.join(file),
        };
        if !path.exists() && self.from_command_line.as_ref().is_none_or(|p| p.is_dir()) {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
            return Err(format!(
                "reads @{global} from '{file}', which is not in {}; --weights names the folder \
                 to look in, or a file of tensors",
                folder.display()
            )
            .into());
        }
        if path.extension().is_some_and(|e| e == "pt2") {
            return self
                .in_archive(&path, name)
                .map_err(|e| format!("reads @{global}: {e}").into());
        }
        let mut files = self.files.borrow_mut();
        if !files.contains_key(&path) {
            let all =
                tensors::read(&path, |_| true).map_err(|e| format!("reads @{global}: {e}"))?;
            files.insert(path.clone(), all);
        }
        let Some(all) = files.get(&path) else {
            return Err(format!("reads @{global} from nowhere").into());
        };
        all.get(name).cloned().ok_or_else(|| {
            let hint = crate::passes::names::hint(name, all.keys().map(String::as_str));
            format!("reads @{global}: {} has no tensor '{name}'{hint}", path.display()).into()
        })
    }
}

impl Weights {
    /// A weight of a `.pt2` archive, whose index is read once.
    fn in_archive(&self, path: &Path, name: &str) -> Result<Tensor, OwnError> {
        let mut archives = self.archives.borrow_mut();
        if !archives.contains_key(path) {
            archives.insert(path.into(), pt2::weights(path).map_err(|e| e.to_string())?);
        }
        let found = archives.get(path).and_then(|all| all.get(name));
        let found = found.ok_or_else(|| format!("{} has no weight '{name}'", path.display()))?;
        Ok(found.read()?)
    }
}

fn first_elements(t: &Tensor) -> String {
    let shown: Vec<String> = match t.data() {
        Data::F(v) => v.iter().take(SHOWN).map(|x| format!("{}", *x as f32)).collect(),
        Data::I(v) => v.iter().take(SHOWN).map(|x| x.to_string()).collect(),
    };
    format!("{}{}", shown.join(", "), if t.len() > SHOWN { ", …" } else { "" })
}

/// Compares results with `output_0`, … of the inputs' file.
fn check(results: &[Tensor], given: &Tensors) -> Result<(bool, String), OptError> {
    let wanted = tensors::numbered(given, "output_");
    if wanted.is_empty() {
        return Err(OptError::usage(
            "--check needs tensors output_0, output_1, … in the inputs' file",
        ));
    }
    let (mut ok, mut text) = (true, String::new());
    for (i, want) in &wanted {
        let compared = results.get(*i).map(|r| tolerance::compare(r, want));
        ok &= matches!(&compared, Some(Ok(c)) if c.ok);
        let line = match compared {
            None => "MISMATCH: is no result of the function".into(),
            Some(Ok(c)) => c.to_string(),
            Some(Err(e)) => format!("MISMATCH: {e}"),
        };
        let _ = writeln!(text, "check output_{i}: {line}");
    }
    if results.len() > wanted.len() {
        ok = false;
        let _ = writeln!(text, "MISMATCH: {} results, {} expected", results.len(), wanted.len());
    }
    Ok((ok, text))
}
