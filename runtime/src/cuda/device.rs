//! Cards and the driver.
use super::{CudaError, driver};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use std::sync::Arc;

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number.
    pub index: usize,
    /// What its maker calls it.
    pub name: String,
    /// Compute capability: major and minor.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub memory: usize,
    /// Multiprocessors.
    pub processors: u32,
}

/// A card that programs run on, with a stream of its own.
pub struct Device {
    card: Card,
    driver: i32,
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
}

/// Starts the driver; cudarc would panic where there is none.
fn start() -> Result<usize, CudaError> {
    // SAFETY: opens and closes a library.
    if !unsafe { sys::is_culib_present() } {
        let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
        return Err(CudaError::NoDriver { searched: names.collect::<Vec<_>>().join(", ") });
    }
    result::init().map_err(driver("starting the driver"))?;
    let count = result::device::get_count().map_err(driver("counting GPUs"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn card(index: usize) -> Result<Card, CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as PROCESSORS,
    };
    let of = driver("asking a GPU what it is");
    let device = result::device::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(&of)?;
    let name = result::device::get_name(device).map_err(&of)?;
    // SAFETY: a device that the driver has just named.
    let (memory, major, minor, processors) = unsafe {
        let attribute = |a| result::device::get_attribute(device, a).map_err(&of);
        (result::device::total_mem(device).map_err(&of)?, attribute(MAJOR)?, attribute(MINOR)?, attribute(PROCESSORS)?)
    };
    Ok(Card { index, name, capability: (major, minor), memory, processors: u32::try_from(processors).unwrap_or(1) })
}

/// All cards.
pub fn cards() -> Result<Vec<Card>, CudaError> {
    (0..start()?).map(card).collect()
}

/// The newest CUDA version that the driver speaks, as 1000 major + 10 minor.
pub fn driver_version() -> Result<i32, CudaError> {
    start()?;
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(driver("asking for the driver's version"))?;
    Ok(version)
}

impl Device {
    /// Card `index`.
    pub fn cuda(index: usize) -> Result<Device, CudaError> {
        let count = start()?;
        if index >= count {
            return Err(CudaError::NoDevice { index, count });
        }
        let context = CudaContext::new(index).map_err(driver("opening a GPU"))?;
        let stream = context.new_stream().map_err(driver("making a stream"))?;
        Ok(Device { card: card(index)?, driver: driver_version()?, context, stream })
    }
    /// Which card it is.
    pub fn card(&self) -> &Card {
        &self.card
    }
    /// The driver's CUDA version.
    pub fn driver(&self) -> i32 {
        self.driver
    }
    /// Makes the calling thread work on this card.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(driver("taking a GPU"))
    }
    /// Whether it runs code for this chip: code for `sm_90a` only on 9.0, other code also on newer cards.
    pub(super) fn runs(&self, chip: &str) -> bool {
        let (major, minor) = self.card.capability;
        let number = chip.trim_start_matches("sm_");
        match number.strip_suffix('a') {
            Some(n) => n.parse() == Ok(10 * major + minor),
            None => number.parse().is_ok_and(|n: i32| n <= 10 * major + minor),
        }
    }
}
