//! Runs a compiled package on a GPU, with arguments and results in device memory, on the caller's
//! stream. Memory and stream come from another library (cudarc's safe layer), as a framework's
//! would.
//!
//!   kiln compile model.mlir --target cuda:sm_90a -o model.kpkg
//!   cargo run -p kiln-runtime --example device_memory -- model.kpkg
//!
//! Inputs are all ones. Dynamic sizes are 8, or the least allowed. Exit code 5: no GPU.
use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};
use kiln_runtime::{
    Package, View, ViewMut,
    cuda::{Device, Loaded, Mode, Settings, Stream},
    program::{Dim, Symbol, Tensor},
    view::byte_size,
};
use std::{path::Path, process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: device_memory MODEL.kpkg");
        return ExitCode::from(2);
    };
    let device = match Device::cuda(0) {
        Ok(device) => Arc::new(device),
        Err(e) => {
            eprintln!("this example needs a GPU: {e}");
            return ExitCode::from(5);
        }
    };
    match run(device, Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(1)
        }
    }
}

fn run(device: Arc<Device>, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let package = Package::load(path)?;
    let settings = Settings { mode: Mode::ReduceOverhead, ..Settings::default() };
    let loaded = Loaded::open(device, &package, None, 4, settings)?;
    let program = loaded.program();

    let few = |s: &Symbol| {
        s.max.map_or(8, |most| most.min(8)).max(s.min).max(s.divisor) / s.divisor.max(1)
            * s.divisor.max(1)
    };
    let symbols: Vec<i64> = program.symbols.iter().map(few).collect();
    let exprs = program.expr_values(&symbols)?;
    let size = |d: &Dim| -> Result<usize, Box<dyn std::error::Error>> {
        Ok(usize::try_from(d.value(&symbols, &exprs)?)?)
    };
    let shape = |t: &Tensor| t.dims.iter().map(size).collect::<Result<Vec<_>, _>>();

    // Both libraries use the primary context, so each can use the other's memory and streams.
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let mut inputs = vec![];
    for t in &program.inputs {
        let shape = shape(t)?;
        inputs.push((
            stream.clone_htod(&ones(&t.dtype, shape.iter().product()))?,
            shape,
            t.dtype.as_str(),
        ));
    }
    let mut outputs = vec![];
    for t in &program.outputs {
        let shape = shape(t)?;
        let bytes =
            shape.iter().product::<usize>() * byte_size(&t.dtype).ok_or("no element type")?;
        outputs.push((stream.alloc_zeros::<u8>(bytes.max(1))?, shape, t.dtype.as_str()));
    }

    for _ in 0..3 {
        // SAFETY: memory of GPU 0 that lives until the stream is synchronised, and that only this
        // stream uses.
        unsafe {
            let read: Vec<View> = inputs
                .iter()
                .map(|(m, s, t)| View::on_cuda(0, t, s, None, m.device_ptr(&stream).0))
                .collect();
            let mut written: Vec<ViewMut> = outputs
                .iter_mut()
                .map(|(m, s, t)| ViewMut::on_cuda(0, t, s, None, m.device_ptr_mut(&stream).0))
                .collect();
            loaded.launch(&read, &mut written, Stream::from_raw(stream.cu_stream().cast()))?;
        }
    }
    stream.synchronize()?;

    for ((memory, shape, dtype), t) in outputs.iter().zip(&program.outputs) {
        let bytes = stream.clone_dtoh(memory)?;
        let first: Vec<f32> = bytes
            .chunks_exact(4)
            .take(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let shown =
            if *dtype == "f32" { format!(", starts with {first:?}") } else { String::new() };
        println!("{}: {dtype} {shape:?}{shown}", t.name);
    }
    loaded.remarks().iter().for_each(|r| println!("remark: {r}"));
    Ok(())
}

/// The bytes of `count` ones.
fn ones(dtype: &str, count: usize) -> Vec<u8> {
    let one: &[u8] = match dtype {
        "f64" => &1f64.to_le_bytes(),
        "f32" => &1f32.to_le_bytes(),
        "f16" => &[0x00, 0x3c],
        "bf16" => &[0x80, 0x3f],
        "i64" => &[1, 0, 0, 0, 0, 0, 0, 0],
        "i32" => &[1, 0, 0, 0],
        "i16" => &[1, 0],
        _ => &[1],
    };
    one.repeat(count.max(1))
}
