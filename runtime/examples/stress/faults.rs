//! What is rejected or fails, and calls after it.
use super::{
    Bench, Outcome, expect,
    tensors::{numbers, raw},
};
use cudarc::driver::{DevicePtrMut, result, sys};
use kiln_runtime::{
    CallError, View, ViewMut,
    cuda::{CudaError, Loaded, Mode, Settings},
};

impl Bench {
    pub(super) fn wrong(&self) -> Outcome<()> {
        let loaded = self.open(Mode::ReduceOverhead)?;
        let stream = self.context.new_stream()?;
        let mut space = stream.alloc_zeros::<f32>(64)?;
        let host = vec![1f32; 64];
        let at = space.device_ptr_mut(&stream).0;
        stream.synchronize()?;
        let mut out = vec![0f32; 16];
        let shape = [16usize];
        let mut said = |card: usize, strides: Option<&[isize]>, at: u64| -> Outcome<String> {
            // SAFETY: rejected before anything is read, or memory of GPU 0.
            let view = unsafe { View::on_cuda(card, "f32", &shape, strides, at) };
            Ok(loaded
                .call(&[view], &mut [ViewMut::from_slice(&shape, &mut out)?])
                .err()
                .map_or("accepted".into(), |e| e.to_string()))
        };
        let name = &loaded.program().inputs[0].name;
        for (what, text, part) in [
            (
                "a host pointer",
                said(0, None, host.as_ptr() as u64)?,
                "no memory that the driver knows",
            ),
            (
                "another card",
                said(1, None, at)?,
                "lies in the memory of GPU 1, the program runs on GPU 0",
            ),
            ("strides", said(0, Some(&[2]), at)?, "other strides"),
        ] {
            println!("  {text}");
            expect(what, text.contains(part) && text.contains(&format!("'{name}'")))?;
        }
        expect("a good one behind them", said(0, None, at)? == "accepted")?;
        // Misaligned by four bytes: goes through an aligned copy.
        stream.memcpy_htod(&numbers(5, 64), &mut space)?;
        stream.synchronize()?;
        let want = {
            let mut out = vec![0f32; 16];
            loaded.call(
                &[View::from_slice(&shape, &numbers(5, 64)[1..17])?],
                &mut [ViewMut::from_slice(&shape, &mut out)?],
            )?;
            out
        };
        // SAFETY: memory of GPU 0 that only this call uses.
        unsafe {
            let mut written = [ViewMut::on_cuda(0, "f32", &shape, None, at + 4 * 33)];
            loaded.call(&[View::on_cuda(0, "f32", &shape, None, at + 4)], &mut written)?;
        }
        let got = stream.clone_dtoh(&space)?;
        expect("unaligned memory", got[33..49] == want[..])?;
        // The thread's current context is left as it was.
        // SAFETY: no context is made or destroyed.
        unsafe { result::ctx::set_current(std::ptr::null_mut())? };
        loaded.call(
            &[View::from_slice(&shape, &host[..16])?],
            &mut [ViewMut::from_slice(&shape, &mut out)?],
        )?;
        expect("the thread has the context that it had", result::ctx::get_current()?.is_none())?;
        self.context.bind_to_thread()?;
        let capture = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(capture)?;
        // SAFETY: rejected.
        let refused = unsafe {
            loaded.launch(
                &[View::from_slice(&shape, &host[..16])?],
                &mut [ViewMut::from_slice(&shape, &mut out)?],
                raw(&stream),
            )
        };
        let text = refused.err().map_or("accepted".into(), |e| e.to_string());
        println!("  {text}");
        drop(stream.end_capture(sys::CUgraphInstantiate_flags(0)));
        loaded.remarks().iter().for_each(|r| println!("  remark: {r}"));
        expect("a captured stream", text.contains("is being captured"))
    }

    pub(super) fn memory(&self) -> Outcome<()> {
        let loaded = self.open(Mode::Default)?;
        let stream = self.context.new_stream()?;
        let mut small = self.tensors(64, 1, &stream)?;
        small.launch(&loaded, &stream)?;
        let want = small.results(&stream)?;
        let large = self.tensors(300_000, 1, &stream)?;
        let text =
            large.launch(&loaded, &stream).err().map_or("accepted".into(), |e| e.to_string());
        println!("  {text}");
        expect(
            "more than the card has",
            text.contains("no memory on the GPU") && text.contains("bytes between kernels"),
        )?;
        stream.memset_zeros(&mut small.outputs[0].memory)?;
        small.launch(&loaded, &stream)?;
        expect("a small call behind it", small.results(&stream)? == want)
    }

    pub(super) fn fault(&self, blocking: bool) -> Outcome<()> {
        let settings = Settings { blocking, ..Settings::default() };
        let loaded = Loaded::open(self.device.clone(), &self.package, None, 4, settings)?;
        let stream = self.context.new_stream()?;
        let mut space = stream.alloc_zeros::<f32>(64)?;
        let at = space.device_ptr_mut(&stream).0;
        stream.synchronize()?;
        let far = [1usize << 33];
        // SAFETY: none; this is the fault.
        let first = unsafe {
            let mut written = [ViewMut::on_cuda(0, "f32", &far, None, at)];
            loaded.launch(&[View::on_cuda(0, "f32", &far, None, at)], &mut written, raw(&stream))
        };
        let said = |e: CallError| -> Outcome<bool> {
            println!("  {e}");
            let named = e.to_string().contains(&loaded.program().kernels[0].name)
                && e.to_string().contains("blocks of");
            Ok(matches!(e, CallError::Cuda(CudaError::Fault { .. })) && named)
        };
        match first {
            Err(e) => expect(
                "the launch itself",
                blocking && e.to_string().contains("it is of") && said(e)?,
            )?,
            Ok(()) => expect("it is noticed later", !blocking)?,
        }
        let _ = stream.synchronize();
        let (shape, host, mut out) = ([16usize], [1f32; 16], [0f32; 16]);
        for turn in ["the call behind it", "the one after"] {
            let e = loaded.call(
                &[View::from_slice(&shape, &host)?],
                &mut [ViewMut::from_slice(&shape, &mut out)?],
            );
            expect(turn, said(e.err().ok_or("a call after a fault was accepted")?)?)?;
        }
        // The driver has given up the process; cudarc cannot free its memory.
        std::process::exit(0)
    }
}
