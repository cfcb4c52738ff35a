//! Compilation targets: this machine's CPU or another one, or an NVIDIA GPU.
use kiln_passes::names;

pub mod costs;
pub mod cpu;
pub mod kernel_attrs;
pub mod launch;
pub(crate) mod llvm_api;

/// A compilation target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A CPU.
    Host(cpu::Target),
    /// An NVIDIA GPU.
    Cuda {
        /// The architecture.
        chip: Chip,
        /// Optional features.
        features: Features,
    },
}

/// Optional features of a GPU target: allowed relaxations of f32, and libraries; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Whether operands of f32 products may be rounded to tf32 (10 mantissa bits) for the tensor
    /// cores.
    pub tf32: bool,
    /// Whether f32 functions may be hardware approximations (`kiln-gpu-math` states their errors).
    pub fast_math: bool,
    /// Whether cuFFT computes Fourier transforms where it is found.
    pub cufft: bool,
}

impl Features {
    /// Parses signed features separated by commas, as in `+tf32,+fast-math`.
    fn parse(text: &str) -> Result<Features, String> {
        let mut features = Features::default();
        for feature in text.split(',').filter(|f| !f.is_empty()) {
            match feature.split_at_checked(1) {
                Some((sign @ ("+" | "-"), "tf32")) => features.tf32 = sign == "+",
                Some((sign @ ("+" | "-"), "fast-math")) => features.fast_math = sign == "+",
                Some((sign @ ("+" | "-"), "cufft")) => features.cufft = sign == "+",
                _ => {
                    return Err(format!(
                        "there is no feature '{feature}' of a GPU (features, with + or -: tf32, fast-math, cufft)"
                    ));
                }
            }
        }
        Ok(features)
    }
}

impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [(self.tf32, "+tf32"), (self.fast_math, "+fast-math"), (self.cufft, "+cufft")];
        let all: Vec<&str> = all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        f.write_str(&all.join(","))
    }
}

impl std::ops::BitOr for Features {
    type Output = Features;
    fn bitor(self, other: Features) -> Features {
        Features {
            tf32: self.tf32 || other.tf32,
            fast_math: self.fast_math || other.fast_math,
            cufft: self.cufft || other.cufft,
        }
    }
}

/// An architecture of NVIDIA GPUs, by its compute capability.
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
    /// All architectures.
    pub const ALL: [Chip; 4] = [Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm90a];

    /// LLVM's name of the architecture.
    pub const fn name(self) -> &'static str {
        match self {
            Chip::Sm80 => "sm_80",
            Chip::Sm86 => "sm_86",
            Chip::Sm89 => "sm_89",
            Chip::Sm90a => "sm_90a",
        }
    }
    /// The newest architecture whose code a GPU of this compute capability runs. Code for `sm_90a`
    /// runs on 9.0 only.
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
    /// This machine's CPU.
    pub fn host() -> Result<Target, String> {
        cpu::Target::host().map(Target::Host)
    }
    /// Parses `native`, `x86_64:<cpu>[:<features>]` or `cuda:<chip>[:+tf32][,+fast-math][,+cufft]`.
    pub fn parse(text: &str) -> Result<Target, String> {
        let Some(chip) = text.strip_prefix("cuda:") else {
            return Ok(Target::Host(cpu::Target::parse(text)?));
        };
        let known = || Chip::ALL.iter().map(|c| c.name());
        let (chip, features) = chip.split_once(':').unwrap_or((chip, ""));
        let features = Features::parse(features)?;
        let found = Chip::ALL.into_iter().find(|c| c.name() == chip);
        found.map(|chip| Target::Cuda { chip, features }).ok_or_else(|| {
            format!(
                "there is no chip '{chip}'{} (chips: {})",
                names::hint(chip, known()),
                known().collect::<Vec<_>>().join(", ")
            )
        })
    }
    /// The GPU architecture; `None` for a CPU.
    pub fn chip(&self) -> Option<Chip> {
        if let Target::Cuda { chip, .. } = self { Some(*chip) } else { None }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Host(t) => t.fmt(f),
            Target::Cuda { chip, features } if *features == Features::default() => {
                write!(f, "cuda:{}", chip.name())
            }
            Target::Cuda { chip, features } => write!(f, "cuda:{}:{features}", chip.name()),
        }
    }
}
