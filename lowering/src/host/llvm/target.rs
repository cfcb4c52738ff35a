//! Which processor code is made for.
use super::{api::*, init, message};
use std::ffi::CStr;

/// An architecture, a processor and features, in LLVM's words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The architecture: `x86_64`.
    pub arch: String,
    /// The processor, such as `haswell`.
    pub cpu: String,
    /// Features added to or taken from the processor's: `+avx2,-fma`.
    pub features: String,
}

/// Processors that are known by name; LLVM only warns of others, on stderr.
const CPUS: &[&str] = &[
    "x86-64",
    "x86-64-v2",
    "x86-64-v3",
    "x86-64-v4",
    "nehalem",
    "westmere",
    "sandybridge",
    "ivybridge",
    "haswell",
    "broadwell",
    "skylake",
    "skylake-avx512",
    "cascadelake",
    "cooperlake",
    "cannonlake",
    "icelake-client",
    "icelake-server",
    "tigerlake",
    "rocketlake",
    "alderlake",
    "raptorlake",
    "meteorlake",
    "arrowlake",
    "lunarlake",
    "sierraforest",
    "sapphirerapids",
    "emeraldrapids",
    "graniterapids",
    "diamondrapids",
    "znver1",
    "znver2",
    "znver3",
    "znver4",
    "znver5",
];
const ARCH: &str = "x86_64";

impl Target {
    /// This machine, or an error if code generation for its architecture is not built in.
    pub fn host() -> Result<Target, String> {
        if std::env::consts::ARCH != ARCH {
            return Err(format!("no code generator for {}; only {ARCH} is built in", std::env::consts::ARCH));
        }
        // SAFETY: both calls return a string that the caller frees.
        let (cpu, features) = unsafe { (message(LLVMGetHostCPUName()), message(LLVMGetHostCPUFeatures())) };
        Ok(Target { arch: ARCH.into(), cpu, features })
    }
    /// From `native`, or from `arch:cpu` or `arch:cpu:features`.
    pub fn parse(text: &str) -> Result<Target, String> {
        if text == "native" {
            return Target::host();
        }
        let mut parts = text.splitn(3, ':');
        let (arch, cpu, features) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if arch != ARCH {
            return Err(format!("'{text}' is neither native nor {ARCH}:<cpu>, such as {ARCH}:haswell"));
        }
        let host = || Target::host().is_ok_and(|h| h.cpu == cpu);
        if !CPUS.contains(&cpu) && !host() {
            return Err(format!("there is no processor '{cpu}' of {ARCH}{}", kiln_passes::names::hint(cpu, CPUS.iter().copied())));
        }
        for feature in features.split(',').filter(|f| !f.is_empty()) {
            if !feature.starts_with(['+', '-']) {
                return Err(format!("feature '{feature}' starts with neither + nor -"));
            }
        }
        Ok(Target { arch: arch.into(), cpu: cpu.into(), features: features.into() })
    }
    /// LLVM's triple: the build's system, with this architecture.
    pub(super) fn triple() -> std::ffi::CString {
        init();
        // SAFETY: the call returns a string that the caller frees.
        unsafe {
            let raw = LLVMGetDefaultTargetTriple();
            let triple = CStr::from_ptr(raw).to_owned();
            LLVMDisposeMessage(raw);
            triple
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.arch, self.cpu)?;
        if self.features.is_empty() { Ok(()) } else { write!(f, ":{}", self.features) }
    }
}
