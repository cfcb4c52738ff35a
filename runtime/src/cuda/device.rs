//! Cards and the driver.
use super::{CudaError, driver, fault::Faults, stream::Stream, words};
use cudarc::driver::{DriverError, result, sys};
use std::sync::{Mutex, PoisonError};

/// CUDA 12.0, the first with descriptions of tensors and with this form of graphs.
const LEAST_DRIVER: i32 = 12000;

/// Cards whose context is kept until the process ends, as other libraries do: to make one takes the
/// driver 0.4 s, one process after the other.
static KEPT: Mutex<Vec<sys::CUdevice>> = Mutex::new(vec![]);

/// Keeps a card's context.
fn keep(number: sys::CUdevice) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a device that the driver has named; never released.
    if !kept.contains(&number) && unsafe { result::primary_ctx::retain(number) }.is_ok() {
        kept.push(number);
    }
}

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

/// A card that programs run on. It uses the card's primary context, as other libraries do, so that
/// memory and streams of theirs can be passed to calls.
pub struct Device {
    card: Card,
    driver: i32,
    /// As the driver numbers cards.
    number: sys::CUdevice,
    context: sys::CUcontext,
    /// For what is done once; calls have streams of their own.
    stream: Stream,
    /// Whether memory is allocated and freed in the order of a stream.
    pub(super) ordered: bool,
    pub(super) faults: Faults,
}

// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Device {}
unsafe impl Sync for Device {}

/// Starts the driver; cudarc would panic where there is none.
fn start() -> Result<usize, CudaError> {
    // SAFETY: opens and closes a library.
    if !unsafe { sys::is_culib_present() } {
        let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
        return Err(CudaError::NoDriver { searched: super::searched("libcuda.so.1", names) });
    }
    result::init().map_err(driver("starting the driver"))?;
    let count = result::device::get_count().map_err(driver("counting GPUs"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn card(index: usize) -> Result<Card, CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as PROCESSORS,
    };
    let of = driver("asking a GPU what it is");
    let device = result::device::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(&of)?;
    let name = result::device::get_name(device).map_err(&of)?;
    // SAFETY: a device that the driver has just named.
    let (memory, major, minor, processors) = unsafe {
        let attribute = |a| result::device::get_attribute(device, a).map_err(&of);
        (
            result::device::total_mem(device).map_err(&of)?,
            attribute(MAJOR)?,
            attribute(MINOR)?,
            attribute(PROCESSORS)?,
        )
    };
    Ok(Card {
        index,
        name,
        capability: (major, minor),
        memory,
        processors: u32::try_from(processors).unwrap_or(1),
    })
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
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(driver("asking for the driver's version"))?;
    Ok(version)
}

/// Puts the calling thread's context back when it goes.
pub struct Guard(Option<sys::CUcontext>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // SAFETY: the context that the thread had, or none.
            let _ = unsafe { result::ctx::set_current(before) };
        }
    }
}

impl Device {
    /// Card `index`.
    pub fn cuda(index: usize) -> Result<Device, CudaError> {
        let count = start()?;
        if index >= count {
            return Err(CudaError::NoDevice { index, count });
        }
        let have = driver_version()?;
        if have < LEAST_DRIVER {
            return Err(CudaError::OldDriver { have });
        }
        let (card, of) = (card(index)?, driver("opening a GPU"));
        let number = result::device::get(i32::try_from(index).unwrap_or(i32::MAX)).map_err(&of)?;
        // SAFETY: a device that the driver has just named; the context is released when this goes.
        let (ordered, context) = unsafe {
            let pools = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
            (
                result::device::get_attribute(number, pools).map_err(&of)? > 0,
                result::primary_ctx::retain(number).map_err(&of)?,
            )
        };
        keep(number);
        let faults = Faults::default();
        let mut device = Device {
            card,
            driver: have,
            number,
            context,
            stream: Stream::DEFAULT,
            ordered,
            faults,
        };
        device.stream = device.new_stream()?;
        Ok(device)
    }
    /// Which card it is.
    pub fn card(&self) -> &Card {
        &self.card
    }
    /// The driver's CUDA version.
    pub fn driver(&self) -> i32 {
        self.driver
    }
    /// Bytes of memory that are free, and all of them.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let _current = self.enter()?;
        result::mem_get_info().map_err(self.error("asking for free memory"))
    }
    /// Makes the calling thread work on this card for as long as the guard lives. Err: a kernel has
    /// faulted.
    pub(super) fn enter(&self) -> Result<Guard, CudaError> {
        if let Some(fault) = self.faults.noticed() {
            return Err(fault);
        }
        let (of, own) = (self.error("taking a GPU"), self.context);
        let before = result::ctx::get_current().map_err(&of)?.unwrap_or(std::ptr::null_mut());
        if before == own {
            return Ok(Guard(None));
        }
        // SAFETY: the context lives as long as this does.
        unsafe { result::ctx::set_current(own) }.map_err(&of)?;
        Ok(Guard(Some(before)))
    }
    /// The stream for what is done once.
    pub(super) fn stream(&self) -> Stream {
        self.stream
    }
    /// A new stream, which waits for no other. Whoever asks for it destroys it.
    pub(super) fn new_stream(&self) -> Result<Stream, CudaError> {
        let _current = self.enter()?;
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .map(Stream)
            .map_err(self.error("making a stream"))
    }
    /// Whether a stream is one of this card's context; the default streams are of any.
    pub(super) fn owns(&self, stream: Stream) -> Result<bool, CudaError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a live stream, as its maker promised.
        unsafe { sys::cuStreamGetCtx(stream.0, &mut context) }
            .result()
            .map_err(self.error("asking for a stream's GPU"))?;
        Ok(context == self.context)
    }
    /// An error of the driver while it did this. Faults of kernels are remembered, with the
    /// launches that they may be of.
    pub(super) fn error(&self, what: &'static str) -> impl Fn(DriverError) -> CudaError + '_ {
        move |e| {
            self.faults
                .of(self.card.index, e)
                .unwrap_or_else(|| CudaError::Driver { what, reason: words(e) })
        }
    }
    /// Whether it runs code for this chip: code for `sm_90a` only on 9.0, other code also on newer
    /// cards.
    pub(super) fn runs(&self, chip: &str) -> bool {
        let (major, minor) = self.card.capability;
        let number = chip.trim_start_matches("sm_");
        match number.strip_suffix('a') {
            Some(n) => n.parse() == Ok(10 * major + minor),
            None => number.parse().is_ok_and(|n: i32| n <= 10 * major + minor),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter()
            && self.stream != Stream::DEFAULT
        {
            self.stream.destroy();
        }
        // SAFETY: retained once by this.
        let _ = unsafe { result::primary_ctx::release(self.number) };
    }
}
