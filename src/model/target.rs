//! The target of a compilation.
use super::{AlignRandom, Error, Options};
use crate::{
    capture::RandomOrder,
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

/// The order of random numbers. Err: that of the device's GPU is asked for, and the device is the
/// host.
pub(super) fn random_order(options: &Options) -> Result<RandomOrder, Error> {
    let threads = match (options.align_random_eager, options.device) {
        (AlignRandom::Off, _) => return Ok(RandomOrder::RowMajor),
        (AlignRandom::Threads(threads), _) => threads,
        (AlignRandom::Device, DeviceId::Cuda(index)) => {
            let device = cuda::Device::cuda(index)?;
            // In CTAs of 256 threads, as PyTorch counts.
            device.info().processors * (device.info().threads_per_processor / 256 * 256)
        }
        (AlignRandom::Device, DeviceId::Host) => {
            let why = "align_random_eager follows a GPU, and the device is the host; a number says how many threads that GPU runs at once";
            return Err(Error::Target(why.into()));
        }
    };
    Ok(RandomOrder::Cuda { threads: threads.into() })
}
