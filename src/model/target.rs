//! The target of a compilation.
use super::{Error, Options};
use crate::{
    lowering::{Chip, Features, Target},
    runtime::{DeviceId, cuda},
};

/// The compilation target: from the options, else the device's.
pub(crate) fn target(options: &Options) -> Result<Target, Error> {
    let found = match (&options.target, options.device) {
        (Some(text), _) => Target::parse(text).map_err(Error::Target),
        (None, DeviceId::Host) => Target::parse("native").map_err(Error::Target),
        (None, DeviceId::Cuda(index)) => {
            let device = cuda::Device::cuda(index)?;
            let (info, (major, minor)) = (device.info(), device.info().capability);
            let chip = Chip::of_capability(major, minor);
            chip.map(|chip| Target::Cuda { chip, features: Features::default() }).ok_or_else(|| {
                Error::Target(format!(
                    "{} has compute capability {major}.{minor}; 8.0 is the least",
                    info.name
                ))
            })
        }
    };
    found.map(|t| match t {
        Target::Cuda { chip, features } => Target::Cuda {
            chip,
            features: features
                | Features {
                    tf32: options.tf32,
                    fast_math: options.fast_math,
                    cufft: options.cufft,
                },
        },
        host => host,
    })
}
