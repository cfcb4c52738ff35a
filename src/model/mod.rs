//! From a model file to a call: `kiln::load("m.pt2")?.compile(&options)?.call(…)`.
mod engine;
mod error;
mod executable;
mod joint;
mod log_events;
mod options;
mod order;
mod owned_tensor;
mod random_inputs;
mod session;
mod target;
mod times;
mod weights;

pub use crate::runtime::DeviceId;
pub use error::Error;
pub use executable::Executable;
pub use joint::{Joint, JointOptions, Saved};
pub use options::{AUTOTUNE_BUDGET, AlignRandom, CachePolicy, Donation, Options};
pub use owned_tensor::OwnedTensor;
pub use random_inputs::{random_input_symbols, random_inputs};
pub use session::Session;
use target::random_order;
pub(crate) use target::target;
pub use times::Times;
pub use weights::Finder;

use crate::{
    autotune,
    capture::{RandomOrder, fx, pt2, weight::Weight},
    dialects::{
        ir::{Attr, BYTECODE_MAGIC, Context, Diagnostic, Module},
        rules::Level,
    },
    dump,
    lowering::{
        Schedules, Target,
        cpu::llvm::version,
        driver::compile::{CompileError, CompileOptions, Debug, compile},
        pass_remarks,
    },
    passes::pass::level_of,
    runtime::{self, Package, Remark, Store, cuda, file, program::PassRemark},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

/// IR in a larger file is rejected; MLIR counts source positions in 32 bits.
pub const MAX_INPUT: u64 = 1 << 30;

/// A model file: source to compile, or a compiled package.
pub struct Model {
    path: PathBuf,
    kind: Kind,
    /// In-memory weights, by global name.
    in_memory_weights: BTreeMap<String, Weight>,
    /// Remarks of passes that have run on it.
    remarks: Vec<PassRemark>,
    /// Progress callback of autotuning.
    progress: Option<Box<AutotuneProgress>>,
}

/// Autotuning progress: kernels done, kernels in total, name of the next kernel.
pub type AutotuneProgress = dyn Fn(usize, usize, &str) + Send + Sync;

enum Kind {
    Archive,
    Ir(Vec<u8>),
    Graph(Vec<u8>),
    Package(Box<Package>),
}

/// Opens a model: an archive of `torch.export.save` (`.pt2`), IR as text (`.mlir`) or as kiln's
/// bytecode, or a compiled package (`.kpkg`). The format is detected by magic bytes and by file
/// name; a file with an unknown name is parsed as text. Err: the file cannot be read, or has none
/// of these formats.
pub fn load(path: impl Into<PathBuf>) -> Result<Model, Error> {
    let path = path.into();
    let io =
        |e: std::io::Error| Error::File { file: path.display().to_string(), reason: e.to_string() };
    let mut start = [0u8; 4];
    let read =
        file::open(&path).and_then(|mut f| std::io::Read::read(&mut f, &mut start)).map_err(io)?;
    let kind = if path.extension().is_some_and(|e| e == "kpkg") {
        Kind::Package(Box::new(Package::load(&path)?))
    } else if &start[..read] == pt2::MAGIC {
        Kind::Archive
    } else {
        let source = file::read(&path, MAX_INPUT).map_err(io)?;
        let named = path.extension().is_some_and(|e| e == "mlir");
        if !named && !source.starts_with(BYTECODE_MAGIC) {
            is_ir(&path, &source)?;
        }
        Kind::Ir(source)
    };
    Ok(Model { path, kind, in_memory_weights: BTreeMap::new(), remarks: vec![], progress: None })
}

/// Err: neither the file name nor the magic bytes are of a format that kiln reads.
fn is_ir(path: &Path, source: &[u8]) -> Result<(), Error> {
    let (context, name) = (Context::new(), path.display().to_string());
    let parsed = Module::parse(context.ctx(), source, &name);
    parsed.map(|_| ()).map_err(|e| Error::File {
        file: name,
        reason: format!("is no .pt2 archive, no .kpkg package and no MLIR ({e})"),
    })
}

impl Model {
    /// A model from in-memory IR; weight files are resolved relative to `folder`.
    pub fn from_module(module: &Module, folder: &Path) -> Model {
        Model {
            path: folder.join("module.mlir"),
            kind: Kind::Ir(module.bytecode()),
            in_memory_weights: BTreeMap::new(),
            remarks: vec![],
            progress: None,
        }
    }
    /// A model from IR as text or bytecode, without weights, and the remarks of passes that have run
    /// on it.
    pub fn from_ir(source: Vec<u8>, remarks: Vec<PassRemark>) -> Model {
        Model {
            path: PathBuf::from("module.mlir"),
            kind: Kind::Ir(source),
            in_memory_weights: BTreeMap::new(),
            remarks,
            progress: None,
        }
    }
    /// What [`Model::from_ir`] makes the model from; None of one that has weights in memory or is no
    /// in-memory IR.
    pub fn ir(&self) -> Option<(&[u8], &[PassRemark])> {
        match &self.kind {
            Kind::Ir(source) if self.in_memory_weights.is_empty() => Some((source, &self.remarks)),
            _ => None,
        }
    }
    /// A model from a graph of `torch.compile` and its frozen parameters: see
    /// [`capture::fx`](crate::capture::fx).
    pub fn from_fx(json: Vec<u8>, weights: BTreeMap<String, Weight>) -> Model {
        Model {
            path: PathBuf::from("graph"),
            kind: Kind::Graph(json),
            in_memory_weights: weights,
            remarks: vec![],
            progress: None,
        }
    }
    /// A model from in-memory IR with the values of its globals.
    pub fn from_graph(module: &Module, weights: BTreeMap<String, Weight>) -> Model {
        Model { in_memory_weights: weights, ..Model::from_module(module, Path::new("")) }
    }
    /// Sets a progress callback for autotuning ([`Options::max_autotune`]).
    pub fn autotune_progress(
        mut self,
        tell: impl Fn(usize, usize, &str) + Send + Sync + 'static,
    ) -> Model {
        self.progress = Some(Box::new(tell));
        self
    }
    pub(crate) fn report_progress(&self, done: usize, total: usize, name: &str) {
        if let Some(tell) = &self.progress {
            tell(done, total, name);
        }
    }
    /// The IR of a file that is not a compiled package; draws of random numbers depend on no device.
    pub fn module(&self, context: &Context) -> Result<(Module, Vec<Diagnostic>), Error> {
        self.module_in(context, RandomOrder::default(), false)
    }
    /// As [`Model::module`], with the arguments that options ask for.
    pub(crate) fn module_for(
        &self,
        context: &Context,
        options: &Options,
    ) -> Result<(Module, Vec<Diagnostic>), Error> {
        self.module_in(context, RandomOrder::default(), options.states)
    }
    /// As [`Model::module`], with draws in an order, unless the file is IR; of an archive, with
    /// mutated buffers as states where asked for.
    fn module_in(
        &self,
        context: &Context,
        order: RandomOrder,
        states: bool,
    ) -> Result<(Module, Vec<Diagnostic>), Error> {
        match &self.kind {
            Kind::Archive => {
                let mut captured = pt2::import_in(context.ctx(), &self.path, order)?;
                if states {
                    captured.lift_states()?;
                }
                Ok((captured.module, vec![]))
            }
            Kind::Ir(source) => {
                Ok(Module::parse(context.ctx(), source, &self.path.display().to_string())?)
            }
            Kind::Graph(json) => Ok((
                fx::import(context.ctx(), json, self.in_memory_weights.clone(), order)?.module,
                vec![],
            )),
            Kind::Package(_) => Err(Error::File {
                file: self.path.display().to_string(),
                reason: "is compiled already".into(),
            }),
        }
    }

    /// Compiles `main` for this machine, or takes it from the cache, then links it and resolves its
    /// weights.
    pub fn compile(&self, options: &Options) -> Result<Executable, Error> {
        self.compile_with(options, &|_, _| ())
    }

    /// As [`Model::compile`]; `progress` receives the number of compiled kernels and the total.
    pub fn compile_with(
        &self,
        options: &Options,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Executable, Error> {
        let start = Instant::now();
        let linker = engine::linker(options);
        let (package, times) = self.build_for(options, progress, Some(&linker))?;
        let folder = self.weights_folder(options);
        let exe = Executable::link(
            package,
            folder,
            &self.in_memory_weights,
            options,
            &linker,
            times,
            start,
        )?;
        if let (Some(dump), Some(report)) = (&exe.times.dump, &exe.times.compile) {
            dump::finish(dump, exe.program(), report, Some(&exe), options.diagram)
                .map_err(|e| io_error(dump, e))?;
        }
        Ok(exe)
    }

    /// The compiled package, from the cache on a hit. Its target need not be this machine.
    pub fn build(
        &self,
        options: &Options,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(Package, Times), Error> {
        self.build_for(options, progress, None)
    }

    /// As [`Model::build`]; GPU kernels are linked as soon as their code is generated.
    fn build_for(
        &self,
        options: &Options,
        progress: &(dyn Fn(usize, usize) + Sync),
        linker: Option<&cuda::Linker>,
    ) -> Result<(Package, Times), Error> {
        let mut times = Times::default();
        let store = options.cache.store();
        let package = match &self.kind {
            Kind::Package(p) => {
                log_events::program(&p.program);
                log_events::code(p);
                Package::clone(p)
            }
            _ => self.package(
                options,
                target(options)?,
                store.as_ref(),
                (progress, linker),
                &mut times,
            )?,
        };
        Ok((package, times))
    }

    /// Embeds the weights in the package, so that it needs no other file.
    pub fn embed_weights(&self, package: &mut Package, options: &Options) -> Result<(), Error> {
        let mut weights = BTreeMap::new();
        let mut finder = self.finder(package, options);
        let programs = [Some(&package.program), package.program.prepare.as_deref()];
        let states = session::initial_values(&package.program);
        for g in programs.into_iter().flatten().flat_map(|p| &p.globals).chain(&states) {
            if g.data.is_none()
                && g.role != runtime::program::Role::Packed
                && !weights.contains_key(&g.name)
            {
                let bytes = finder
                    .find(g)
                    .map_err(|e| Error::Weight(format!("weight @{}: {e}", g.name)))?;
                weights.insert(g.name.clone(), bytes.bytes().to_vec());
            }
        }
        package.weights.extend(weights);
        Ok(())
    }
    /// Resolves the weights of a package built from this model.
    pub fn finder<'a>(&'a self, package: &'a Package, options: &'a Options) -> Finder<'a> {
        let folder = self.weights_folder(options);
        weights::Sources { package, folder, in_memory_weights: &self.in_memory_weights }.finder()
    }
    fn weights_folder<'a>(&'a self, options: &'a Options) -> &'a Path {
        let own = || self.path.parent().unwrap_or(Path::new(""));
        options.weights.as_deref().unwrap_or_else(own)
    }

    fn package(
        &self,
        options: &Options,
        target: Target,
        store: Option<&Store>,
        (progress, linker): (&(dyn Fn(usize, usize) + Sync), Option<&cuda::Linker>),
        times: &mut Times,
    ) -> Result<Package, Error> {
        let start = Instant::now();
        let (schedules, key) = if options.max_autotune {
            let base = self.key(options, &target, &Schedules::default())?;
            autotune::autotuned(self, options, &target, store, &base, times)?
        } else {
            let table = autotune::ScheduleStore::of(options)?.table;
            let key = self.key(options, &target, &table)?;
            (table, key)
        };
        // Autotuning has a time budget of its own.
        times.autotuning = start.elapsed();
        let start = Instant::now();
        let cancellation = options
            .time_budget
            .map_or_else(|| options.cancellation.clone(), |t| options.cancellation.with_timeout(t));
        // A dump needs every pass to run, so it bypasses the cache.
        match store.filter(|_| options.dump.is_none()).map(|s| (s, s.get(&key))) {
            // An unreadable cache entry counts as a miss.
            Some((s, Ok(Some(bytes)))) => {
                match Package::read(std::io::Cursor::new(bytes), runtime::package::MAX_BYTES) {
                    Ok(package) => {
                        tracing::info!(target: "kiln::cache", program = package.program.name, %key, "hit");
                        log_events::program(&package.program);
                        log_events::code(&package);
                        times.capture = start.elapsed();
                        return Ok(package);
                    }
                    Err(e) => times.remarks.push(Remark::unreadable(&s.path(&key), e)),
                }
            }
            Some((_, Err(remark))) => times.remarks.push(remark),
            Some((_, Ok(None))) => {
                tracing::info!(target: "kiln::cache", program = %self.path.display(), %key, "miss")
            }
            None => {}
        }
        let context = Context::new();
        let (module, diagnostics) =
            self.module_in(&context, random_order(options)?, options.states)?;
        lowered_for(&module, &target)?;
        order::request(&module, &options.function, &options.orders, &options.donated)
            .map_err(|e| Error::Order(e.to_string()))?;
        times.capture = start.elapsed();
        cancellation.check().map_err(CompileError::from)?;
        times.dump = match &options.dump {
            None => None,
            Some(dir) => {
                Some(dump::begin(dir, &self.path.to_string_lossy()).map_err(|e| io_error(dir, e))?)
            }
        };
        autotune::split_k::attach_split_k(&module, &schedules, &target);
        let reproducer = times.dump.as_deref().or(options.reproducer.as_deref());
        let debug = Debug {
            disable: &options.disable,
            user_passes: &options.passes,
            dump: times.dump.as_deref(),
            reproducer,
        };
        let linker = linker.filter(|_| target.chip().is_some());
        let how = CompileOptions {
            target,
            workers: options.workers,
            cache: store,
            verify: options.verify,
            progress,
            on_kernel: &|symbol, code| linker.into_iter().for_each(|l| l.add(symbol, code)),
            schedules: &schedules,
            salt: BUILD,
            cancellation,
            debug,
        };
        let mut made = compile(&module, &options.function, &how).map_err(Error::of_compilation)?;
        made.report.diagnostics.splice(..0, diagnostics);
        made.program.remarks =
            [self.remarks.clone(), pass_remarks(&made.report.diagnostics)].concat();
        let package = Package {
            program: made.program,
            objects: made.objects.into_iter().collect(),
            weights: Default::default(),
        };
        let kept = store.zip(package.to_bytes().ok()).map(|(store, bytes)| store.put(&key, &bytes));
        made.report.remarks.extend(kept.and_then(Result::err));
        made.report.remarks.extend(store.and_then(|s| s.keep_within(options.cache_bytes).err()));
        log_events::program(&package.program);
        if let Some(dump) = &times.dump {
            dump::finish(dump, &package.program, &made.report, None, options.diagram)
                .map_err(|e| io_error(dump, e))?;
        }
        times.compile = Some(made.report);
        Ok(package)
    }

    /// The cache key: everything that the compiled program depends on.
    fn key(
        &self,
        options: &Options,
        target: &Target,
        schedules: &Schedules,
    ) -> Result<String, Error> {
        let mut sha = Sha256::new();
        let graph = match &self.kind {
            Kind::Archive => pt2::graph_bytes(&self.path)?,
            Kind::Ir(source) | Kind::Graph(source) => source.clone(),
            Kind::Package(_) => vec![],
        };
        let name =
            self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for part in [
            &graph[..],
            name.as_bytes(),
            options.function.as_bytes(),
            target.to_string().as_bytes(),
            version().as_bytes(),
        ] {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        let order = random_order(options)?;
        sha.update(format!("{:?} {:?}", options.orders, (&options.passes, &options.disable)));
        sha.update(format!("{:?}", options.donated));
        if options.states {
            sha.update("states");
        }
        sha.update(format!("{order:?}"));
        sha.update(schedules.to_string());
        sha.update(env!("CARGO_PKG_VERSION"));
        sha.update(BUILD);
        Ok(format!(
            "program_{}",
            sha.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect::<String>()
        ))
    }
}

/// Rejects a module that was already lowered for another GPU architecture, or for the host, as far
/// as its ops show it.
fn lowered_for(module: &Module, target: &Target) -> Result<(), Error> {
    let level = level_of(module.op()).filter(|l| *l > Level::Prims);
    let said = level.zip(module.op().attr("kiln.target").and_then(Attr::as_string));
    let Some((level, said)) = said.filter(|(_, said)| !said.is_empty()) else { return Ok(()) };
    // Host CPU features leave no trace at these levels.
    let own =
        if said.starts_with("cuda:") { Target::parse(&said).map(|t| t.chip()) } else { Ok(None) };
    if own.as_ref() == Ok(&target.chip()) {
        return Ok(());
    }
    Err(Error::Target(format!(
        "the module is for {said} from level {} on, not for {target}; --target {said} takes it",
        level.name()
    )))
}

fn io_error(path: &Path, e: std::io::Error) -> Error {
    Error::File { file: path.display().to_string(), reason: e.to_string() }
}

/// Hash of the compiler's sources (`build.rs`), so that compilers never share cache entries.
pub const BUILD: &str = env!("KILN_BUILD");
