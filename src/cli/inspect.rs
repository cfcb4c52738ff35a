//! `kiln inspect` and `kiln doctor`: package contents, and the state of this machine.
use super::{CliError, File, OptionFlags, terminal::wrapped};
use crate::{
    Exit,
    lowering::{Chip, cpu::llvm::version, target::cpu::Target},
    model::{CachePolicy, Options},
    runtime::{
        Package, Store,
        cuda::{
            self,
            libraries::{self, CUFFT, CUSOLVER},
        },
        library_call::{CUBLASLT, CUDNN},
        program::Dim,
    },
};

#[derive(clap::Args)]
pub struct Inspect {
    /// A compiled package (.kpkg)
    package: File,
    /// The whole manifest as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(&self) -> Result<Exit, CliError> {
        let package = Package::load(&self.package).map_err(crate::Error::from)?;
        let p = &package.program;
        if self.json {
            println!("{}", serde_json::to_string_pretty(p).unwrap_or_default());
            return Ok(Exit::Success);
        }
        println!("{} for {} {}", p.name, p.target.arch, p.target.cpu);
        let size = |d: &Dim| match d {
            Dim::Known(n) => n.to_string(),
            Dim::Symbol(i) => p.symbol_name(*i).unwrap_or("?").into(),
            Dim::Expr(_) => "…".into(),
        };
        for (what, all) in [("input", &p.inputs), ("output", &p.outputs)] {
            for t in all {
                println!(
                    "{what} {}: {} [{}]",
                    t.name,
                    t.dtype,
                    t.dims.iter().map(size).collect::<Vec<_>>().join(", ")
                );
            }
        }
        for s in &p.symbols {
            println!(
                "size {}: {} to {}, of dimension {} of {}",
                s.name,
                s.min,
                s.max.map_or("any".into(), |m| m.to_string()),
                s.dim,
                p.inputs[s.input].name
            );
        }
        let parts = p.parts();
        let launches: usize = parts.iter().map(|p| p.kernels.len()).sum();
        println!(
            "{launches} launches, {} globals",
            parts.iter().map(|p| p.globals.len()).sum::<usize>()
        );
        for k in parts.iter().flat_map(|p| &p.kernels) {
            if let Some(call) = k.launch.as_ref().and_then(|l| l.library.as_ref()) {
                println!("kernel {} is called from {} where that is found", k.name, call.library());
            }
        }
        for (name, bytes) in &package.objects {
            println!("object {name}: {} bytes", bytes.len());
        }
        Ok(Exit::Success)
    }
}

#[derive(clap::Args)]
pub struct Doctor {
    #[command(flatten)]
    option_flags: OptionFlags,
}

impl Doctor {
    pub fn run(&self) -> Result<Exit, CliError> {
        let options = self.option_flags.settings()?.for_file();
        print!("{}", wrapped(&report(&options).join("\n")));
        Ok(Exit::Success)
    }
}

/// Libraries of GPUs: what each is for where it is found, and what is done without it.
const LIBRARIES: [(&str, &str, &str, &str); 4] = [
    (CUBLASLT, "cuBLASLt", "max-autotune measures its products as well", "needed by nothing"),
    (CUDNN, "cuDNN", "max-autotune measures its convolutions as well", "needed by nothing"),
    (CUSOLVER, "cuSOLVER", "computes factorizations on GPUs", "the host computes factorizations"),
    (
        CUFFT,
        "cuFFT",
        "computes Fourier transforms with option cufft",
        "needed by option cufft alone",
    ),
];

/// Diagnostics about this machine, one line each.
fn report(options: &Options) -> Vec<String> {
    let mut all = vec![format!("kiln {} with LLVM {}", env!("CARGO_PKG_VERSION"), version())];
    all.push(match Target::host() {
        Ok(t) => format!("processor: {} {}, {} threads", t.arch, t.cpu, options.threads),
        Err(e) => format!("processor: {e}"),
    });
    match (cuda::driver_version(), cuda::devices()) {
        (Ok(driver), Ok(gpus)) => {
            let (major, minor) = (driver / 1000, driver % 1000 / 10);
            all.push(format!("NVIDIA driver: CUDA {major}.{minor}, {} GPUs", gpus.len()));
            all.extend(gpus.iter().map(gpu_line));
        }
        (Err(e), _) | (_, Err(e)) => all.push(format!("NVIDIA GPUs: {e}")),
    }
    for (library, name, found, missing) in LIBRARIES {
        all.push(match libraries::present(library) {
            true => format!("{name}: found; {found}"),
            false => {
                format!("{name}: not found; {missing}; looked for {}", libraries::searched(library))
            }
        });
    }
    all.push(match &options.cache {
        CachePolicy::Off => "cache: off".into(),
        CachePolicy::Dir(dir) => match Store::open(dir).map(|s| s.size()) {
            Ok(Ok((entries, bytes))) => {
                format!("cache: {}, {entries} entries, {} KiB", dir.display(), bytes >> 10)
            }
            Ok(Err(remark)) => format!("cache: {} cannot be read: {remark}", dir.display()),
            Err(remark) => format!("cache: {} cannot be used: {remark}", dir.display()),
        },
    });
    all
}

fn gpu_line(c: &cuda::DeviceInfo) -> String {
    let (major, minor) = c.capability;
    let chip = Chip::of_capability(major, minor)
        .map_or("older than kiln compiles for".into(), |c| format!("cuda:{}", c.name()));
    let free = match cuda::Device::cuda(c.index).and_then(|d| d.memory()) {
        Ok((free, _)) => format!("{} MiB free", free >> 20),
        Err(e) => format!("cannot be used: {e}"),
    };
    format!(
        "cuda:{}: {}, compute capability {major}.{minor} ({chip}), {} MiB of memory, {free}",
        c.index,
        c.name,
        c.memory >> 20
    )
}
