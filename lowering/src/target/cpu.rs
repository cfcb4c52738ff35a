//! CPU targets of code generation.
use crate::target::llvm_api::*;
use std::ffi::CStr;

/// An architecture, a CPU and features, by LLVM's names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The architecture: `x86_64`.
    pub arch: String,
    /// The CPU, such as `haswell`.
    pub cpu: String,
    /// Features added to or removed from the CPU's: `+avx2,-fma`.
    pub features: String,
}

/// Features that schedules depend on, by LLVM's names.
const FEATURES: &[&str] = &["fma", "avx2", "avx512f", "avx512bf16", "amx-bf16"];
const SSE: usize = 0;
const AVX2: usize = 2;
const AVX512: usize = 3;
const BF16: usize = 4;
const AMX: usize = 5;

/// CPUs known by name (LLVM only warns about others on stderr), and how many of [`FEATURES`] each
/// has.
const CPUS: &[(&str, usize)] = &[
    ("x86-64", SSE),
    ("x86-64-v2", SSE),
    ("x86-64-v3", AVX2),
    ("x86-64-v4", AVX512),
    ("nehalem", SSE),
    ("westmere", SSE),
    ("sandybridge", SSE),
    ("ivybridge", SSE),
    ("haswell", AVX2),
    ("broadwell", AVX2),
    ("skylake", AVX2),
    ("skylake-avx512", AVX512),
    ("cascadelake", AVX512),
    ("cooperlake", BF16),
    ("cannonlake", AVX512),
    ("icelake-client", AVX512),
    ("icelake-server", AVX512),
    ("tigerlake", AVX512),
    ("rocketlake", AVX512),
    ("alderlake", AVX2),
    ("raptorlake", AVX2),
    ("meteorlake", AVX2),
    ("arrowlake", AVX2),
    ("lunarlake", AVX2),
    ("sierraforest", AVX2),
    ("sapphirerapids", AMX),
    ("emeraldrapids", AMX),
    ("graniterapids", AMX),
    ("diamondrapids", AMX),
    ("znver1", AVX2),
    ("znver2", AVX2),
    ("znver3", AVX2),
    ("znver4", BF16),
    ("znver5", BF16),
];
const ARCH: &str = "x86_64";

impl Target {
    /// This machine's CPU. Err: code generation for its architecture is not built in.
    pub fn host() -> Result<Target, String> {
        if std::env::consts::ARCH != ARCH {
            return Err(format!(
                "no code generator for {}; only {ARCH} is built in",
                std::env::consts::ARCH
            ));
        }
        // SAFETY: both calls return a string that the caller frees.
        let (cpu, features) =
            unsafe { (message(LLVMGetHostCPUName()), message(LLVMGetHostCPUFeatures())) };
        let mut target = Target { arch: ARCH.into(), cpu, features };
        if target.has("amx-bf16") && kiln_runtime::amx::request().is_err() {
            target.features.push_str(",-amx-bf16");
        }
        Ok(target)
    }
    /// Parses `native`, `arch:cpu` or `arch:cpu:features`.
    pub fn parse(text: &str) -> Result<Target, String> {
        if text == "native" {
            return Target::host();
        }
        let mut parts = text.splitn(3, ':');
        let (arch, cpu, features) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if arch != ARCH {
            return Err(format!(
                "'{text}' is neither native nor {ARCH}:<cpu>, such as {ARCH}:haswell"
            ));
        }
        let host = || Target::host().is_ok_and(|h| h.cpu == cpu);
        if !CPUS.iter().any(|(name, _)| *name == cpu) && !host() {
            return Err(format!(
                "there is no processor '{cpu}' of {ARCH}{}",
                kiln_passes::names::hint(cpu, CPUS.iter().map(|(name, _)| *name))
            ));
        }
        for feature in features.split(',').filter(|f| !f.is_empty()) {
            if !feature.starts_with(['+', '-']) {
                return Err(format!("feature '{feature}' starts with neither + nor -"));
            }
        }
        Ok(Target { arch: arch.into(), cpu: cpu.into(), features: features.into() })
    }
    /// Whether it has a feature of [`FEATURES`]: as the CPU does, unless `features` overrides it.
    fn has(&self, feature: &str) -> bool {
        let stated = self.features.split(',').rev().find(|f| f.get(1..) == Some(feature));
        let of_cpu = CPUS
            .iter()
            .find(|(name, _)| *name == self.cpu)
            .is_some_and(|(_, n)| FEATURES[..*n].contains(&feature));
        stated.map_or(of_cpu, |f| f.starts_with('+'))
    }
    /// Width of its vector registers in bits.
    pub fn vector_bits(&self) -> i64 {
        if self.has("avx512f") {
            512
        } else if self.has("avx2") {
            256
        } else {
            128
        }
    }
    /// How bf16 is multiplied: a value of `kiln-schedule`'s option.
    pub fn bf16(&self) -> &'static str {
        match self.vector_bits() {
            512 if self.has("amx-bf16") => "amx",
            512 if self.has("avx512bf16") => "dot",
            _ => "widen",
        }
    }
    /// The LLVM target triple: the build's system, with this architecture.
    pub(crate) fn triple() -> std::ffi::CString {
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
