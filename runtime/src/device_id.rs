//! Devices: where memory is and where programs run.
use std::fmt;

/// The host or a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceId {
    /// Host memory and CPU. As the place where a program runs: a program for a GPU runs on GPU 0.
    #[default]
    Host,
    /// The NVIDIA GPU of this ordinal.
    Cuda(usize),
}

impl DeviceId {
    /// The GPU's ordinal; `None` for the host.
    pub fn gpu(self) -> Option<usize> {
        if let DeviceId::Cuda(index) = self { Some(index) } else { None }
    }
    /// Parses `cpu`, `cuda` or `cuda:<ordinal>`.
    pub fn parse(text: &str) -> Result<DeviceId, String> {
        let number = match text {
            "cpu" => return Ok(DeviceId::Host),
            "cuda" => Some(0),
            other => other.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        number
            .map(DeviceId::Cuda)
            .ok_or_else(|| format!("'{text}' is no device; there are cpu, cuda and cuda:<number>"))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceId::Host => f.write_str("the host"),
            DeviceId::Cuda(index) => write!(f, "GPU {index}"),
        }
    }
}
