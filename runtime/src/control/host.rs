//! Control flow between programs on the host.
use super::{
    ControlFlow,
    run::{Backend, CountedBuffer, Interpreter, Location},
};
use crate::{
    Buffer, CallError, Loaded, Program, View, ViewMut, call_error::tensor_error, custom::CustomFn,
    profile::Profile, program::Tensor, view::byte_size,
};
use std::sync::{Mutex, PoisonError};

/// A control-flow program, ready to be called from any thread.
pub struct Driver {
    program: Program,
    flow: ControlFlow,
    parts: Vec<Loaded>,
    /// Buffers of finished calls, for reuse.
    idle: Mutex<Vec<Vec<Buffer>>>,
}

impl Driver {
    /// Joins a control-flow program with its loaded parts. Err: a value or part index is out of
    /// range, or a custom function is not registered.
    pub fn new(program: Program, parts: Vec<Loaded>) -> Result<Driver, CallError> {
        let flow = ControlFlow::new(&program)?;
        if parts.len() != flow.control.parts.len() {
            return Err(CallError::Count {
                what: "parts",
                want: flow.control.parts.len(),
                have: parts.len(),
            });
        }
        Ok(Driver { program, flow, parts, idle: Mutex::default() })
    }
    /// The compiled program.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// Bytes of the parts' arenas and of cached value buffers.
    pub fn arena_bytes(&self) -> usize {
        let own: usize = lock(&self.idle).iter().flatten().map(|b| b.len()).sum();
        own + self.parts.iter().map(Loaded::arena_bytes).sum::<usize>()
    }

    /// Runs the program on at most `threads` threads of the pool. If a part or a custom call fails,
    /// outputs may have been partly written.
    pub fn call(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<(), CallError> {
        self.call_with(inputs, outputs, threads, None).map(|_| ())
    }
    /// As [`Driver::call`], with the time of each launch of the parts, in the order of
    /// [`super::Control::parts`].
    pub fn profile(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<Profile, CallError> {
        let none = || Profile::of_parts(self.flow.launches());
        let profile = self.call_with(inputs, outputs, threads, Some(none()))?;
        Ok(profile.unwrap_or_else(none))
    }

    fn call_with(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
        profile: Option<Profile>,
    ) -> Result<Option<Profile>, CallError> {
        let p = &self.program;
        if outputs.len() != p.outputs.len() {
            return Err(CallError::Count {
                what: "outputs",
                want: p.outputs.len(),
                have: outputs.len(),
            });
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
        let (symbols, exprs) = p.sizes(&shapes)?;
        let before = p.before_reads(&symbols)?;
        let made = self.flow.shapes(p, &before)?;
        let (mut copies, mut args, mut wanted) = (vec![], vec![], vec![]);
        for (v, t) in inputs.iter().zip(&p.inputs) {
            check("input", v.dtype(), v.device(), t)?;
            if v.is_dense(&[]) {
                args.push(Location::borrowed(v.data.cast_mut()));
            } else {
                let copy = v.gathered(byte_size(v.dtype()).unwrap_or(1), &[])?;
                args.push(Location::borrowed(copy.as_mut_ptr()));
                copies.push(copy);
            }
        }
        for (v, t) in outputs.iter().zip(&p.outputs) {
            check("output", v.dtype(), v.device(), t)?;
            p.check("output", t, v.shape, &symbols, &exprs)?;
            v.check_order(&t.name)?;
            wanted.push(Location::borrowed(v.data));
        }
        let buffers = lock(&self.idle).pop().unwrap_or_default();
        let mut backend = OnHost { driver: self, buffers, threads, profile };
        let done =
            Interpreter::new(&self.flow, p, &before, &made, &mut backend).execute(&args, &wanted);
        lock(&self.idle).push(backend.buffers);
        done.map(|()| backend.profile)
    }
}

/// A call on the host.
struct OnHost<'a> {
    driver: &'a Driver,
    buffers: Vec<Buffer>,
    threads: usize,
    /// Collects the launches' times if the caller profiles.
    profile: Option<Profile>,
}

impl Backend for OnHost<'_> {
    // Host kernels accept any alignment.
    const ALIGNMENT: usize = 1;

    fn device(&self) -> crate::DeviceId {
        crate::DeviceId::Host
    }
    fn memory(&self) -> Vec<CountedBuffer> {
        self.buffers
            .iter()
            .map(|b| CountedBuffer { at: b.as_mut_ptr(), len: b.len(), references: 0 })
            .collect()
    }
    fn ensure(&mut self, i: usize, bytes: usize) -> Result<(*mut u8, usize), CallError> {
        if i == self.buffers.len() {
            self.buffers.push(Buffer::new());
        }
        let what = || format!("values between the steps of program '{}'", self.driver.program.name);
        self.buffers[i].ensure(bytes).map_err(|e| e.of(what()))?;
        Ok((self.buffers[i].as_mut_ptr(), self.buffers[i].len()))
    }
    fn copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), CallError> {
        // SAFETY: both are values of that many bytes, which do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }
    fn copy_rows(
        &mut self,
        from: (*const u8, usize),
        to: (*mut u8, usize),
        bytes: usize,
        rows: usize,
    ) -> Result<(), CallError> {
        (0..rows).try_for_each(|i| {
            self.copy(from.0.wrapping_add(i * from.1), to.0.wrapping_add(i * to.1), bytes)
        })
    }
    fn read_condition(&mut self, at: *const u8) -> Result<bool, CallError> {
        // SAFETY: an i1 is a byte, and no value is written while another is read.
        Ok(unsafe { *at != 0 })
    }
    fn read_size(&mut self, at: *const u8) -> Result<i64, CallError> {
        // SAFETY: an i64, in memory of any alignment, and no value is written while another is read.
        Ok(unsafe { at.cast::<i64>().read_unaligned() })
    }
    fn call(
        &mut self,
        part: usize,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        let loaded = &self.driver.parts[part];
        match &mut self.profile {
            None => loaded.call(inputs, outputs, self.threads),
            Some(all) => {
                all.add(
                    self.driver.flow.first_launch(part),
                    &loaded.profile(inputs, outputs, self.threads)?,
                );
                Ok(())
            }
        }
    }
    fn custom(
        &mut self,
        callee: &str,
        f: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        f(inputs, outputs).map_err(|e| tensor_error("custom call", callee, e.to_string()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(
    what: &'static str,
    dtype: &str,
    device: crate::DeviceId,
    t: &Tensor,
) -> Result<(), CallError> {
    crate::call::same_dtype(what, dtype, t)?;
    crate::view::check_device(what, &t.name, device, crate::DeviceId::Host)
}
