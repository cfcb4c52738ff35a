//! Host programs: links a package, finds its weights, and computes the packed ones.
use crate::{
    Bytes, CallError, DataError, Loaded, Package, Pool, Program, View, ViewMut,
    call::Entry,
    call_error::tensor_error,
    control::Driver,
    link::{LinkError, LinkedCode, library_symbols},
    profile::Profile,
    program::{Global, Role},
};
use std::{
    ffi::c_void,
    sync::Arc,
    time::{Duration, Instant},
};

/// Why a package could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It was compiled for another CPU.
    #[error("the program is for {target}, {reason}")]
    Target {
        /// The target that it was compiled for.
        target: String,
        /// What this machine lacks.
        reason: String,
    },
    /// Linking failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A weight is missing or does not match the program.
    #[error("weight @{name}: {reason}")]
    Weight {
        /// The global.
        name: String,
        /// What is wrong.
        reason: DataError,
    },
    /// The computation of packed weights failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Finds the bytes of a weight that the package does not hold.
pub type Find<'a> = dyn FnMut(&Global) -> Result<Bytes, DataError> + 'a;

impl Package {
    /// A copy of a weight that the package holds. Err: it holds none of that name.
    pub fn weight(&self, g: &Global) -> Result<Bytes, DataError> {
        let bytes = self.weights.get(&g.name).ok_or_else(|| {
            let remedy = "`kiln compile --with-weights` makes a package that holds its weights";
            DataError::Missing(format!("is not in the package but in '{}'; {remedy}", g.source))
        })?;
        Ok(Bytes::copied(bytes)?)
    }
    /// The memory of a program's globals, in its order: embedded, packed, or from `find`.
    pub fn globals(
        program: &Program,
        prepared: &[Bytes],
        find: &mut Find,
    ) -> Result<Vec<Bytes>, OpenError> {
        let mut one = |g: &Global| match (&g.data, g.role) {
            (Some(data), _) => Ok(Bytes::copied(data)?),
            (None, Role::Packed) => g
                .result()
                .and_then(|n| prepared.get(n).cloned())
                .ok_or_else(|| DataError::Missing("is not among what was prepared".into())),
            (None, _) => find(g),
        };
        program
            .globals
            .iter()
            .map(|g| one(g).map_err(|reason| OpenError::Weight { name: g.name.clone(), reason }))
            .collect()
    }
}

/// A host program, ready to be called.
pub enum Host {
    /// One program.
    Single(Box<Loaded>),
    /// Control flow between several programs.
    ControlFlow(Box<Driver>),
}

/// An opened package.
pub struct OpenedHost {
    /// What is called.
    pub program: Host,
    /// Time spent linking; the rest was weights.
    pub link: Duration,
}

impl Host {
    /// Links a host package, finds its weights, and computes the packed ones on at most `threads`
    /// threads.
    pub fn open(package: &Package, find: &mut Find, threads: usize) -> Result<Host, OpenError> {
        Ok(OpenedHost::new(package, find, threads)?.program)
    }
    /// The compiled program.
    pub fn program(&self) -> &Program {
        match self {
            Host::Single(p) => p.program(),
            Host::ControlFlow(d) => d.program(),
        }
    }
    /// Bytes of arenas.
    pub fn arena_bytes(&self) -> usize {
        match self {
            Host::Single(p) => p.arena_bytes(),
            Host::ControlFlow(d) => d.arena_bytes(),
        }
    }
    /// Runs the program on at most `threads` threads of the pool.
    pub fn call(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<(), CallError> {
        match self {
            Host::Single(p) => p.call(inputs, outputs, threads),
            Host::ControlFlow(d) => d.call(inputs, outputs, threads),
        }
    }
    /// As [`Host::call`], with the time of each launch of [`Program::parts`].
    pub fn profile(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<Profile, CallError> {
        match self {
            Host::Single(p) => p.profile(inputs, outputs, threads),
            Host::ControlFlow(d) => d.profile(inputs, outputs, threads),
        }
    }
}

impl OpenedHost {
    /// As [`Host::open`], with the time that linking took.
    pub fn new(
        package: &Package,
        find: &mut Find,
        threads: usize,
    ) -> Result<OpenedHost, OpenError> {
        let start = Instant::now();
        let program = &package.program;
        runs_here(program)?;
        let code = Arc::new(LinkedCode::link(
            package.objects.iter().map(|(n, o)| (n.as_str(), o.as_slice())),
            &symbols(),
        )?);
        let link = start.elapsed();
        Pool::configure(threads);
        let join = |p: &Program, globals: Vec<Bytes>| -> Result<Loaded, OpenError> {
            let entry = code.address(&p.entry.main)?;
            // SAFETY: the entry has the host ABI's signature; the loaded program owns the code, so
            // it lives as long as it is called.
            Ok(unsafe {
                Loaded::new(
                    p.clone(),
                    std::mem::transmute::<*const c_void, Entry>(entry),
                    Box::new(code.clone()),
                    globals,
                )?
            })
        };
        let mut one = |p: &Program| -> Result<Loaded, OpenError> {
            let prepared = match &p.prepare {
                Some(p) => join(p, Package::globals(p, &[], find)?)?.results(threads)?,
                None => vec![],
            };
            join(p, Package::globals(p, &prepared, find)?)
        };
        let program = match &program.control {
            Some(control) => {
                let parts = control.parts.iter().map(one).collect::<Result<_, _>>()?;
                Host::ControlFlow(Box::new(Driver::new(program.clone(), parts)?))
            }
            None => Host::Single(Box::new(one(program)?)),
        };
        Ok(OpenedHost { program, link })
    }
}

/// All symbols that host code refers to.
fn symbols() -> Vec<(&'static str, *const c_void)> {
    [crate::symbols(), library_symbols()].concat()
}

/// Features that compiled code may use and this CPU may lack, in LLVM's names.
macro_rules! lacks {
    ($wanted:expr, $($llvm:literal = $here:tt),* $(,)?) => {
        $wanted.find(|name| match *name { $($llvm => !std::arch::is_x86_feature_detected!($here),)* _ => false })
    };
}

/// Err: the program is for another architecture, or uses a feature that this CPU lacks.
fn runs_here(p: &Program) -> Result<(), OpenError> {
    let fail = |reason: String| OpenError::Target {
        target: format!("{} {}", p.target.arch, p.target.cpu),
        reason,
    };
    if p.target.arch != std::env::consts::ARCH {
        return Err(fail(format!("this machine is {}", std::env::consts::ARCH)));
    }
    #[cfg(target_arch = "x86_64")]
    {
        let mut wanted = p.target.features.split(',').filter_map(|f| f.strip_prefix('+'));
        let missing = lacks!(
            wanted,
            "avx" = "avx",
            "avx2" = "avx2",
            "fma" = "fma",
            "f16c" = "f16c",
            "bmi" = "bmi1",
            "bmi2" = "bmi2",
            "lzcnt" = "lzcnt",
            "popcnt" = "popcnt",
            "sse3" = "sse3",
            "ssse3" = "ssse3",
            "sse4.1" = "sse4.1",
            "sse4.2" = "sse4.2",
            "avx512f" = "avx512f",
            "avx512bw" = "avx512bw",
            "avx512cd" = "avx512cd",
            "avx512dq" = "avx512dq",
            "avx512vl" = "avx512vl",
            "avx512bf16" = "avx512bf16",
            "avx512vnni" = "avx512vnni",
            "avx512vbmi" = "avx512vbmi",
            "avx512ifma" = "avx512ifma",
            "avx512vbmi2" = "avx512vbmi2",
            "avx512bitalg" = "avx512bitalg",
            "avx512vpopcntdq" = "avx512vpopcntdq",
            "avx512fp16" = "avx512fp16",
        );
        if let Some(feature) = missing {
            return Err(fail(format!("this processor has no {feature}")));
        }
    }
    Ok(())
}

impl From<OpenError> for CallError {
    fn from(e: OpenError) -> CallError {
        match e {
            OpenError::Call(e) => e,
            OpenError::Weight { name, reason } => tensor_error("global", &name, reason.to_string()),
            e => tensor_error("global", "", e.to_string()),
        }
    }
}
