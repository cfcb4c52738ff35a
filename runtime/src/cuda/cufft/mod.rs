//! Fourier transforms on the GPU by cuFFT, where it is found; elsewhere the host computes them.
mod call;
mod library;

use super::{
    CudaError, Device, lru::LruCache, memory::copy_on_device, outcome::Outcome,
    per_device::PerDevice, stream::Stream,
};
use crate::{View, ViewMut};
use call::Call;
use cudarc::driver::sys;
use kiln_linalg::Fourier;
use library::{Cufft, Handle};
use std::{
    ptr::null_mut,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Plans of a device that are kept.
const PLANS: usize = 64;

/// A plan of cuFFT's.
struct Plan {
    library: &'static Cufft,
    handle: Handle,
    call: Call,
    /// Bytes that it works in.
    workspace: usize,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: a live plan. cuFFT keeps what enqueued work needs.
        unsafe { (self.library.destroy)(self.handle) };
    }
}

/// The plans of one device. The mutex makes setting stream and workspace and a call one step.
pub struct Transforms {
    library: &'static Cufft,
    plans: Mutex<LruCache<Plan>>,
}

/// The library, loaded on first use, or why not.
fn library() -> Result<&'static Cufft, CudaError> {
    static LOADED: OnceLock<Result<Cufft, String>> = OnceLock::new();
    let what = "looking for cuFFT";
    let loaded = LOADED.get_or_init(Cufft::load).as_ref();
    loaded.map_err(|e| CudaError::Driver { what, reason: e.clone() })
}

/// Whether cuFFT can be loaded.
pub fn present() -> bool {
    library().is_ok()
}

/// The names that are tried.
pub fn searched() -> String {
    library::NAMES.join(", ")
}

impl Transforms {
    /// The plans of a device, kept until the process ends. Err: the library is missing.
    pub fn for_device(device: &Device) -> Result<Arc<Transforms>, CudaError> {
        static ALL: PerDevice<Transforms> = PerDevice::new();
        let library = library()?;
        ALL.of(device, || Ok(Transforms { library, plans: Mutex::new(LruCache::new(PLANS)) }))
    }

    /// Bytes of device memory for a call with these tensors; `None` if the host computes it.
    pub fn scratch(&self, f: Fourier, inputs: &[View], outputs: &[ViewMut]) -> Option<usize> {
        let call = Call::new(f, inputs, outputs)?;
        if call.rows == 0 {
            return Some(0);
        }
        self.with_plan(call, |plan| call.layout(plan.workspace)).ok()?.map(|(_, bytes)| bytes)
    }

    /// Runs `f` with the plan of a call, in the current context. Err: the status of cuFFT.
    fn with_plan<R>(&self, call: Call, f: impl FnOnce(&Plan) -> R) -> Result<R, String> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if !plans.find(|plan| plan.call == call) {
            plans.add(self.plan(call)?);
        }
        let plan = plans.last().ok_or("no plan was kept")?;
        Ok(f(plan))
    }

    fn plan(&self, call: Call) -> Result<Plan, String> {
        let failed = |what: &str, status: i32| match status {
            0 => Ok(()),
            _ => Err(format!("cuFFT's {what} returns status {status}")),
        };
        let length = |n: usize| i64::try_from(n).map_err(|e| e.to_string());
        let (mut n, rows, mut handle) = (length(call.n)?, length(call.rows)?, 0);
        // SAFETY: writes one handle.
        failed("cufftCreate", unsafe { (self.library.create)(&mut handle) })?;
        let mut plan = Plan { library: self.library, handle, call, workspace: 0 };
        let none = null_mut();
        // SAFETY: a live plan; contiguous rows need no layout.
        unsafe {
            failed("cufftSetAutoAllocation", (self.library.set_auto_allocation)(handle, 0))?;
            let made = (self.library.make_plan)(
                handle,
                1,
                &mut n,
                none,
                1,
                0,
                none,
                1,
                0,
                call.kind(),
                rows,
                &mut plan.workspace,
            );
            failed("cufftMakePlanMany64", made)?;
        }
        Ok(plan)
    }

    /// Enqueues a transform. `scratch` is the device address of [`Transforms::scratch`] bytes.
    pub fn call(
        &self,
        f: Fourier,
        (inputs, outputs): (&[View], &[ViewMut]),
        scratch: u64,
        (device, stream): (&Device, Stream),
    ) -> Result<Outcome, CudaError> {
        let (Some(call), [x], [y]) = (Call::new(f, inputs, outputs), inputs, outputs) else {
            return Ok(Outcome::Host("cuFFT does not take its tensors".into()));
        };
        if call.rows == 0 {
            return Ok(Outcome::Done);
        }
        let (mut from, to) = (x.data as u64, y.data as u64);
        let enqueued = self.with_plan(call, |plan| {
            let (copy, _) = call.layout(plan.workspace).unwrap_or_default();
            if call.copied() > 0 {
                let at = scratch + copy as u64;
                copy_on_device(device, at, from, call.copied(), stream)?;
                real_ends(device, &call, at, stream)?;
                from = at;
            }
            Ok(self.execute(plan, (from, to), scratch, stream))
        });
        match enqueued {
            Ok(Ok(0)) => Ok(Outcome::Done),
            Ok(Ok(status)) => Ok(Outcome::Host(format!("cuFFT returns status {status}"))),
            Ok(Err(e)) => Err(e),
            Err(why) => Ok(Outcome::Host(why)),
        }
    }

    fn execute(&self, plan: &Plan, (from, to): (u64, u64), scratch: u64, stream: Stream) -> i32 {
        let (library, handle) = (self.library, plan.handle);
        let functions = if plan.call.wide { &library.f64 } else { &library.f32 };
        let (from, to) = (from as *mut _, to as *mut _);
        // SAFETY: a live plan and stream, and device memory of the plan's sizes.
        unsafe {
            let ready = match (library.set_stream)(handle, stream.0.cast()) {
                0 => (library.set_work_area)(handle, scratch as *mut _),
                status => status,
            };
            if ready != 0 {
                return ready;
            }
            match plan.call.f {
                Fourier::Complex { inverse } => {
                    (functions.complex)(handle, from, to, if inverse { 1 } else { -1 })
                }
                Fourier::RealToHalf => (functions.real_to_half)(handle, from, to),
                Fourier::HalfToReal => (functions.half_to_real)(handle, from, to),
            }
        }
    }
}

/// Makes the numbers real that are their own conjugates, which cuFFT expects.
fn real_ends(device: &Device, call: &Call, at: u64, stream: Stream) -> Result<(), CudaError> {
    let (width, half) = (call.width(), call.half());
    let last = (call.n.is_multiple_of(2) && half > 1).then(|| half - 1);
    for k in [Some(0), last].into_iter().flatten() {
        let imaginary = at + ((2 * k + 1) * width) as u64;
        let words = width / 4;
        // SAFETY: one number of each row of the copy.
        let set = unsafe {
            sys::cuMemsetD2D32Async(imaginary, 2 * half * width, 0, words, call.rows, stream.0)
        };
        set.result().map_err(device.error("setting numbers to 0 on the GPU"))?;
    }
    Ok(())
}
