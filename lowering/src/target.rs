//! What code is made for: this machine's processor or another, or an NVIDIA GPU.
use crate::{
    host::llvm,
    pipeline::{PassOptions, chip_options},
};
use kiln_passes::names;

/// What a program is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A processor.
    Host(llvm::Target),
    /// An NVIDIA GPU.
    Cuda {
        /// Its generation.
        chip: Chip,
        /// Whether factors of products of f32 may be rounded to tf32, which has 10 bits behind the point, for the tensor cores.
        tf32: bool,
    },
}

/// A generation of NVIDIA GPUs, by its compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chip {
    /// A100.
    Sm80,
    /// RTX 30, A10, A40.
    Sm86,
    /// RTX 40, L4, L40.
    Sm89,
    /// H100, H200.
    Sm90a,
}

impl Chip {
    /// All of them.
    pub const ALL: [Chip; 4] = [Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm90a];

    /// LLVM's name.
    pub const fn name(self) -> &'static str {
        match self {
            Chip::Sm80 => "sm_80",
            Chip::Sm86 => "sm_86",
            Chip::Sm89 => "sm_89",
            Chip::Sm90a => "sm_90a",
        }
    }
    /// The newest one whose code a card of this compute capability runs. Code for `sm_90a` runs on 9.0 only.
    pub fn of_capability(major: i32, minor: i32) -> Option<Chip> {
        match (major, minor) {
            (9, 0) => Some(Chip::Sm90a),
            (8, 9) | (9.., _) => Some(Chip::Sm89),
            (8, 6..) => Some(Chip::Sm86),
            (8, _) => Some(Chip::Sm80),
            _ => None,
        }
    }
}

impl Target {
    /// This machine's processor.
    pub fn host() -> Result<Target, String> {
        llvm::Target::host().map(Target::Host)
    }
    /// From `native`, `x86_64:<cpu>[:<features>]` or `cuda:<chip>[:+tf32]`.
    pub fn parse(text: &str) -> Result<Target, String> {
        let Some(chip) = text.strip_prefix("cuda:") else { return Ok(Target::Host(llvm::Target::parse(text)?)) };
        let known = || Chip::ALL.iter().map(|c| c.name());
        let (chip, features) = chip.split_once(':').unwrap_or((chip, ""));
        let tf32 = match features {
            "" | "-tf32" => false,
            "+tf32" => true,
            other => return Err(format!("there is no feature '{other}' of a GPU (features: +tf32, -tf32)")),
        };
        let found = Chip::ALL.into_iter().find(|c| c.name() == chip);
        found.map(|chip| Target::Cuda { chip, tf32 }).ok_or_else(|| {
            format!("there is no chip '{chip}'{} (chips: {})", names::hint(chip, known()), known().collect::<Vec<_>>().join(", "))
        })
    }
    /// Options of passes whose decisions depend on the target.
    pub fn pass_options(&self) -> PassOptions {
        match self {
            Target::Host(t) => t.pass_options(),
            Target::Cuda { chip, tf32 } => chip_options(*chip, *tf32),
        }
    }
    /// The GPU, if it is one.
    pub fn chip(&self) -> Option<Chip> {
        if let Target::Cuda { chip, .. } = self { Some(*chip) } else { None }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Host(t) => t.fmt(f),
            Target::Cuda { chip, tf32 } => write!(f, "cuda:{}{}", chip.name(), if *tf32 { ":+tf32" } else { "" }),
        }
    }
}
