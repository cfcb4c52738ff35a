//! Calls in memory that is all the caller's, on a stream of its own and captured into its graph;
//! and of programs around functions of the host, which are not captured.
use super::*;
use crate::run::models;
use cudarc::driver::{result, sys};
use kiln::{
    Executable, Model,
    dialects::ir::{Context, Module},
    load,
    model::OwnedTensor,
    opt::tensors,
    runtime::cuda::{Loaded, Stream},
    tolerance,
};
use std::{ffi::c_void, path::Path};

pub static SUITE: Suite = Suite {
    name: "workspace",
    count: || if device().starts_with("cuda") { ITEMS.len() as u64 } else { 0 },
    label: |item| format!("{} in the caller's memory", ITEMS[item as usize]),
    check,
    whole: true,
    emulated: 1,
};

const ITEMS: [&str; 6] =
    ["mlp", "factorizations", "experts", "a branch", "a donated argument", "an unwritten result"];

/// Values of several sizes between programs, some of them at once, and a loop of known length.
const FACTORIZATIONS: &str = r#"
func.func @main(%x: tensor<2x6x5xf32>) -> (tensor<2x6x5xf32>, tensor<2x5xi32>, tensor<6x5xf32>) {
  %e = kiln.exp %x : tensor<2x6x5xf32>
  %lu:3 = kiln.custom_call "kiln.linalg.lu"(%e) : (tensor<2x6x5xf32>) -> (tensor<2x6x5xf32>, tensor<2x5xi32>, tensor<2xi32>)
  %s = kiln.add %lu#0, %e : tensor<2x6x5xf32>
  %qr:2 = kiln.custom_call "kiln.linalg.qr"(%s) : (tensor<2x6x5xf32>) -> (tensor<2x6x5xf32>, tensor<2x5xf32>)
  %t = kiln.mul %qr#0, %e : tensor<2x6x5xf32>
  %0 = kiln.constant dense<0.0> : tensor<6x5xf32>
  %1 = kiln.scan inits(%0 : tensor<6x5xf32>) over(%t : tensor<2x6x5xf32>) -> tensor<6x5xf32> {
  ^bb0(%carried: tensor<6x5xf32>, %row: tensor<6x5xf32>):
    %sum = kiln.add %carried, %row : tensor<6x5xf32>
    kiln.yield %sum : tensor<6x5xf32>
  }
  return %t, %lu#1, %1 : tensor<2x6x5xf32>, tensor<2x5xi32>, tensor<6x5xf32>
}
"#;

/// The rows that each of two experts is given, whose number depends on data.
const EXPERTS: &str = r#"
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %zero = kiln.splat [8], 0.0 : f32
  %score = kiln.reduce sum %x dims = [1] : tensor<8x4xf32>
  %first = kiln.compare lt %score, %zero : tensor<8xf32>
  %ones = kiln.convert %first : tensor<8xi1> to i64
  %n = kiln.reduce sum %ones dims = [0] : tensor<8xi64>
  %order, %places = kiln.sort %ones axis = 0 descending : tensor<8xi64>
  %0 = kiln.unbacked_size @u, %n max [8] : tensor<i64> -> tensor<?x0xi8>
  %u = kiln.sym @u
  %rows = kiln.slice %places offsets = [0] sizes = [%u] strides = [1] : tensor<8xi64>
  %given = kiln.gather %x[%rows] dims = [0] : tensor<8x4xf32>[tensor<?xi64>]
  %y = kiln.dot_general %given, %w batch = [] x [] contract = [1] x [0] : tensor<?x4xf32>, tensor<4x4xf32> to f32
  %r = kiln.scatter add %x[%rows], %y dims = [0] : tensor<8x4xf32>[tensor<?xi64>], tensor<?x4xf32>
  return %r : tensor<8x4xf32>
}
"#;

const BRANCH: &str = r#"
func.func @main(%c: tensor<i1>, %x: tensor<5xf32>) -> tensor<5xf32> {
  %z = kiln.if %c : tensor<i1> -> tensor<5xf32> {
    %e = kiln.exp %x : tensor<5xf32>
    kiln.yield %e : tensor<5xf32>
  } else {
    kiln.yield %x : tensor<5xf32>
  }
  return %z : tensor<5xf32>
}
"#;

/// A product of 4 MiB that two matmuls read, the last to read `%x`.
const PRODUCT: &str = r#"
func.func @main(%x: tensor<1024x1024xf32>DONATED, %y: tensor<1024x1024xf32>, %w: tensor<1024x4xf32>) -> (RESULTS) {
  %d = kiln.mul %x, %y : tensor<1024x1024xf32>
  %a = kiln.dot_general %d, %w batch = [] x [] contract = [1] x [0] : tensor<1024x1024xf32>, tensor<1024x4xf32> to f32
  %b = kiln.dot_general %d, %w batch = [] x [] contract = [0] x [0] : tensor<1024x1024xf32>, tensor<1024x4xf32> to f32
"#;

/// That program; the product has the memory of its operand, if that is donated, or of the second
/// result, which is written later.
fn product(donated: bool, late: bool) -> String {
    let (mut results, mut end) = ("tensor<1024x4xf32>, tensor<1024x4xf32>", "return %a, %b");
    if late {
        results = "tensor<1024x4xf32>, tensor<1024x1024xf32>";
        end = r#"%c = kiln.dot_general %a, %b batch = [] x [] contract = [1] x [1] : tensor<1024x4xf32>, tensor<1024x4xf32> to f32
  return %a, %c"#;
    }
    let text = PRODUCT.replace("DONATED", if donated { " {kiln.donated}" } else { "" });
    format!("{}  {end} : {results}\n}}\n", text.replace("RESULTS", results))
}

/// Device memory, filled with a pattern.
struct Memory(sys::CUdeviceptr);

impl Memory {
    /// One byte more than asked for, so that an empty tensor has an address.
    fn new(bytes: usize) -> Memory {
        // SAFETY: fresh memory of this size, in the current context.
        unsafe {
            let at = result::malloc_sync(bytes + 1).expect("memory");
            sys::cuMemsetD8_v2(at, 0xa5, bytes + 1).result().expect("filled");
            Memory(at)
        }
    }
    fn of(bytes: &[u8]) -> Memory {
        let memory = Memory::new(bytes.len());
        memory.write(bytes);
        memory
    }
    fn write(&self, bytes: &[u8]) {
        // SAFETY: it has as many bytes.
        unsafe { result::memcpy_htod_sync(self.0, bytes) }.expect("copied");
    }
    fn read(&self, bytes: usize) -> Vec<u8> {
        let mut to = vec![0u8; bytes];
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_sync(&mut to, self.0) }.expect("copied");
        to
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the stream has been waited for.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

fn check(item: u64) -> Outcome {
    let name = ITEMS[item as usize];
    let on = |options: &kiln::Options, text: &str| {
        let c = Context::new();
        let module = Module::parse(c.ctx(), text.as_bytes(), "workspace.mlir");
        let (module, _) = module.unwrap_or_else(|e| panic!("{e}"));
        Model::from_module(&module, Path::new("")).compile(options)
    };
    let compiled = |text: &str| on(&options(), text);
    let exe = match name {
        "factorizations" => compiled(FACTORIZATIONS),
        "experts" => compiled(EXPERTS),
        "a branch" => compiled(BRANCH),
        "a donated argument" => compiled(&product(true, false)),
        "an unwritten result" => compiled(&product(false, true)),
        _ => load(models().join(format!("{name}.pt2"))).and_then(|m| m.compile(&options())),
    };
    let exe = match exe {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let found = match name {
        "factorizations" => differences(&exe, &[numbers(&[2, 6, 5])]),
        "experts" => differences(&exe, &[numbers(&[8, 4]), numbers(&[4, 4])]),
        "a branch" => refused(&exe),
        "a donated argument" | "an unwritten result" => {
            let given = [numbers(&[1024, 1024]), numbers(&[1024, 1024]), numbers(&[1024, 4])];
            let donated = name == "a donated argument";
            match on(&kiln::Options::default(), &product(donated, !donated)) {
                Ok(host) => reused(&exe, &host, donated, &given),
                Err(e) => Err(e.to_string()),
            }
        }
        _ => {
            let file = crate::run::file(name);
            let inputs = tensors::numbered(&file, "input_");
            let inputs = inputs.into_iter().map(|(_, t)| OwnedTensor::from_tensor(t));
            differences(&exe, &inputs.collect::<Vec<_>>())
        }
    };
    Outcome::of(found.err().into_iter().collect())
}

/// Numbers without a pattern.
fn numbers(shape: &[usize]) -> OwnedTensor {
    let count = shape.iter().product::<usize>();
    let all = (0..count).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0);
    let bytes = all.flat_map(f32::to_le_bytes).collect();
    OwnedTensor { dtype: kiln::dialects::value::DType::F32, shape: shape.to_vec(), bytes }
}

/// Memory that follows from a value is not the caller's.
fn refused(exe: &Executable) -> Result<(), String> {
    let loaded = exe.cuda().ok_or("it is on no GPU")?;
    let said = loaded.needs_own_memory().unwrap_or_default();
    match loaded.allocation(&[&[], &[5]]) {
        Err(e) if said.contains("a branch") && e.to_string().contains(&said) => Ok(()),
        other => Err(format!("a branch is not refused: {said}; {other:?}")),
    }
}

/// A program whose large value has the caller's memory needs none of its own, and computes what a
/// processor does.
fn reused(
    exe: &Executable,
    host: &Executable,
    donated: bool,
    inputs: &[OwnedTensor],
) -> Result<(), String> {
    let loaded: &Loaded = exe.cuda().ok_or("it is on no GPU")?;
    let shapes: Vec<&[usize]> = inputs.iter().map(|d| d.shape.as_slice()).collect();
    let own = loaded.allocation(&shapes).map_err(|e| e.to_string())?.workspace;
    let overwrites = &loaded.program().overwrites;
    if own >= 4 << 20 || overwrites.as_slice() != if donated { &[0][..] } else { &[] } {
        return Err(format!("has {own} bytes of its own, and overwrites {overwrites:?}"));
    }
    let decoded: Vec<_> = inputs.iter().map(|d| d.dtype.decode(&d.shape, &d.bytes)).collect();
    let tensors = decoded.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let given: Vec<_> = tensors.iter().collect();
    let result = |exe: &Executable| exe.call_values(&given).map_err(|e| e.to_string());
    for (i, (have, want)) in result(exe)?.iter().zip(result(host)?).enumerate() {
        let close = tolerance::compare(have, &want).map_err(|e| e.to_string())?;
        if !close.ok {
            return Err(format!("result {i}: {close}"));
        }
    }
    differences(exe, inputs)
}

/// Runs a program on a stream, then captured, and compares with its ordinary call.
fn differences(exe: &Executable, inputs: &[OwnedTensor]) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let loaded: &Loaded = exe.cuda().ok_or("it is on no GPU")?;
    let context = result::device::get(0)
        // SAFETY: released with the process.
        .and_then(|d| unsafe { result::primary_ctx::retain(d) })
        .map_err(|e| text(&e))?;
    // SAFETY: the primary context, which is retained.
    unsafe { result::ctx::set_current(context) }.map_err(|e| text(&e))?;
    let raw =
        result::stream::create(result::stream::StreamKind::NonBlocking).map_err(|e| text(&e))?;
    // SAFETY: it lives until the end.
    let stream = unsafe { Stream::from_raw(raw.cast::<c_void>()) };
    let shapes: Vec<&[usize]> = inputs.iter().map(|d| d.shape.as_slice()).collect();
    let wanted = |inputs: &[OwnedTensor]| -> Result<Vec<Vec<u8>>, String> {
        let mut outputs = exe.memory(inputs).map_err(|e| text(&e))?;
        exe.call_data(inputs, &mut outputs).map_err(|e| text(&e))?;
        Ok(outputs.into_iter().map(|d| d.bytes).collect())
    };
    let want = wanted(inputs)?;
    let made = loaded.allocation(&shapes).map_err(|e| text(&e))?;
    let from: Vec<Memory> = inputs.iter().map(|d| Memory::of(&d.bytes)).collect();
    let to: Vec<Memory> = want.iter().map(|b| Memory::new(b.len())).collect();
    let workspace = Memory::new(made.workspace);
    let addresses = |all: &[Memory]| all.iter().map(|m| m.0).collect::<Vec<u64>>();
    let (read, written) = (addresses(&from), addresses(&to));
    let launch = |read: &[u64]| {
        // SAFETY: memory of the program's sizes, which lives until the stream is waited for.
        unsafe { loaded.launch_in(&shapes, read, &written, workspace.0, stream) }
    };
    let agree = |what: &str, want: &[Vec<u8>]| {
        // SAFETY: a live stream.
        unsafe { result::stream::synchronize(raw) }.map_err(|e| text(&e))?;
        let same = to.iter().zip(want).all(|(m, b)| m.read(b.len()) == *b);
        if same { Ok(()) } else { Err(format!("{what} differs from an ordinary call")) }
    };
    for _ in 0..2 {
        launch(&read).map_err(|e| text(&e))?;
        agree("a call on a stream", &want)?;
        // Those that were donated are overwritten.
        from.iter().zip(inputs).for_each(|(m, d)| m.write(&d.bytes));
    }
    // The mode in which PyTorch captures: nothing of the process may allocate or wait.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a live stream, a graph and an executable graph that are not used after the process.
    let graph = unsafe {
        result::stream::begin_capture(raw, mode).map_err(|e| text(&e))?;
        let launched = launch(&read);
        let graph = result::stream::end_capture(raw).map_err(|e| text(&e))?;
        if loaded.calls_host() {
            return match launched {
                Err(e) if e.to_string().contains("is being captured") => Ok(()),
                other => Err(format!("functions of the host are captured: {other:?}")),
            };
        }
        launched.map_err(|e| text(&e))?;
        result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)).map_err(|e| text(&e))?
    };
    let mut others = inputs.to_vec();
    others.iter_mut().for_each(|d| d.bytes.fill(0));
    from.iter().zip(&others).for_each(|(m, d)| m.write(&d.bytes));
    // SAFETY: a live graph and a live stream.
    unsafe { result::graph::launch(graph, raw) }.map_err(|e| text(&e))?;
    agree("a replay with other inputs", &wanted(&others)?)?;
    let unaligned: Vec<u64> = read.iter().map(|at| at + 4).collect();
    match launch(&unaligned) {
        Err(e) if e.to_string().contains("no multiple of 16 bytes") => Ok(()),
        other => Err(format!("an address of 4 bytes' alignment is not refused: {other:?}")),
    }
}
