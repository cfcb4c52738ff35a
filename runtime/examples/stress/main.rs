//! Launch overhead and robustness of calls on a GPU: benches/gpu/runtime.sh runs this on its
//! packages.
//!
//!   stress times  F.kpkg [ROWS]   host and GPU time of a call, as launches and as a graph
//!   stress copies F.kpkg          bandwidth of pageable and pinned copies, and of host calls
//!   stress many   F.kpkg CALLS    calls of many shapes; growth of device memory and of the process
//!   stress threads F.kpkg         8 threads of 200 calls, each compared with a sequential call
//!   stress wrong  F.kpkg          what is rejected, by name
//!   stress memory F.kpkg          a call that runs out of device memory, and a small one after it
//!   stress fault  F.kpkg [1]      a kernel that faults, and calls after it; 1: blocking launches
//!
//! With KILN_NVTX set, emits NVTX ranges for calls and launches. Exit code 1: a check failed; 5: no
//! GPU.
mod faults;
mod tensors;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, result};
use kiln_runtime::{
    Package, Pool, View, ViewMut,
    cuda::{Device, Loaded, Mode, Settings},
    view::byte_size,
};
use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};
use tensors::{HostTensors, Tensor, Tensors, elements, numbers};

/// Shapes of tensors.
type Shapes = Vec<Vec<usize>>;
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let (Some(what), Some(path)) = (args.get(1), args.get(2)) else {
        eprintln!("usage: stress times|copies|many|threads|wrong|memory|fault F.kpkg [NUMBER]");
        return ExitCode::from(2);
    };
    let device = match Device::cuda(0) {
        Ok(device) => Arc::new(device),
        Err(e) => {
            eprintln!("there is no GPU here: {e}");
            return ExitCode::from(5);
        }
    };
    let number = args.get(3).and_then(|n| n.parse().ok());
    let outcome = (|| {
        let bench = Bench {
            package: Package::load(Path::new(path))?,
            context: CudaContext::new(0)?,
            device,
        };
        match what.as_str() {
            "times" => bench.times(number.unwrap_or(32)),
            "copies" => bench.copies(),
            "many" => bench.many(number.unwrap_or(10_000)),
            "threads" => bench.threads(),
            "wrong" => bench.wrong(),
            "memory" => bench.memory(),
            "fault" => bench.fault(number == Some(1)),
            other => Err(format!("there is no '{other}'").into()),
        }
    })();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("{what}: WRONG: {e}");
            ExitCode::from(1)
        }
    }
}

struct Bench {
    package: Package,
    context: Arc<CudaContext>,
    device: Arc<Device>,
}

fn expect(what: &str, is: bool) -> Outcome<()> {
    println!("{}: {what}", if is { "ok" } else { "WRONG" });
    if is { Ok(()) } else { Err(what.to_string().into()) }
}

/// The process's resident set size, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

impl Bench {
    fn open(&self, mode: Mode) -> Outcome<Loaded> {
        Ok(Loaded::open(
            self.device.clone(),
            &self.package,
            None,
            4,
            Settings {
                mode,
                blocking: false,
                replay: false,
                nvtx: std::env::var_os("KILN_NVTX").is_some(),
            },
        )?)
    }
    /// Shapes of inputs and outputs with the dynamic size `rows`.
    fn shapes(&self, rows: usize) -> Outcome<(Shapes, Shapes)> {
        let p = &self.package.program;
        let symbols = vec![i64::try_from(rows)?; p.symbols.len()];
        let exprs = p.expr_values(&symbols)?;
        let shapes = |all: &[kiln_runtime::program::Tensor]| -> Outcome<Shapes> {
            let shape = |t: &kiln_runtime::program::Tensor| {
                t.dims.iter().map(|d| Ok(usize::try_from(d.value(&symbols, &exprs)?)?)).collect()
            };
            all.iter().map(shape).collect()
        };
        Ok((shapes(&p.inputs)?, shapes(&p.outputs)?))
    }
    /// Host tensors: numbers for inputs, zeros for outputs.
    fn host(&self, rows: usize, seed: u64) -> Outcome<HostTensors> {
        let (p, (read, written)) = (&self.package.program, self.shapes(rows)?);
        let mut host = HostTensors { inputs: vec![], outputs: vec![] };
        for (i, (shape, t)) in read.into_iter().zip(&p.inputs).enumerate() {
            let bytes = elements(&t.dtype, seed + i as u64, shape.iter().product())?;
            host.inputs.push((t.dtype.clone(), shape, bytes));
        }
        for (shape, t) in written.into_iter().zip(&p.outputs) {
            let bytes =
                shape.iter().product::<usize>() * byte_size(&t.dtype).ok_or("no element type")?;
            host.outputs.push((t.dtype.clone(), shape, vec![0; bytes]));
        }
        Ok(host)
    }
    /// The same in device memory.
    fn tensors(&self, rows: usize, seed: u64, stream: &Arc<CudaStream>) -> Outcome<Tensors> {
        let host = self.host(rows, seed)?;
        let copied = |(dtype, shape, bytes): (String, Vec<usize>, Vec<u8>)| -> Outcome<Tensor> {
            let mut memory = stream.clone_htod(&bytes)?;
            let at = memory.device_ptr_mut(stream).0;
            Ok(Tensor { memory, at, dtype, shape })
        };
        let inputs = host.inputs.into_iter().map(copied).collect::<Outcome<_>>()?;
        Ok(Tensors {
            inputs,
            outputs: host.outputs.into_iter().map(copied).collect::<Outcome<_>>()?,
        })
    }

    fn times(&self, rows: usize) -> Outcome<()> {
        let stream = self.context.new_stream()?;
        for (name, mode) in Mode::ALL {
            let tensors = [self.tensors(rows, 1, &stream)?, self.tensors(rows, 2, &stream)?];
            stream.synchronize()?;
            let free = self.device.memory()?.0;
            let loaded = self.open(mode)?;
            tensors[0].launch(&loaded, &stream)?;
            stream.synchronize()?;
            let held = free.saturating_sub(self.device.memory()?.0) >> 10;
            // Small enough that the launch queue never fills up, so the host never blocks.
            const BATCH: usize = 50;
            let one = |turns: usize| -> Outcome<(f64, f64)> {
                let (mut host, mut all) = (vec![], vec![]);
                for _ in 0..40 {
                    let start = Instant::now();
                    for i in 0..BATCH {
                        tensors[i % turns].launch(&loaded, &stream)?;
                    }
                    host.push(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64);
                    stream.synchronize()?;
                    all.push(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64);
                }
                let median = |v: &mut Vec<f64>| {
                    v.sort_by(f64::total_cmp);
                    v[v.len() / 2]
                };
                Ok((median(&mut host), median(&mut all)))
            };
            let ((same, same_all), (other, other_all)) = (one(1)?, one(2)?);
            let mut host = self.host(rows, 2)?;
            let (views, mut results) = host.views()?;
            let mut rounds: Vec<f64> = loaded
                .measure(&views, &mut results, 200, 1)?
                .iter()
                .map(|d| d.as_secs_f64() * 1e6)
                .collect();
            rounds.sort_by(f64::total_cmp);
            let apart: f64 = loaded
                .profile(&views, &mut results)?
                .times()
                .iter()
                .map(|d| d.as_secs_f64() * 1e6)
                .sum();
            let mut whole = vec![];
            for _ in 0..200 {
                let start = Instant::now();
                loaded.call(&views, &mut results)?;
                whole.push(start.elapsed().as_secs_f64() * 1e6);
            }
            whole.sort_by(f64::total_cmp);
            drop(results);
            // The last launches changed device pointers every time.
            let agree =
                tensors[1].results(&stream)?.iter().zip(&host.outputs).all(|(a, (_, _, b))| a == b);
            expect("results in the card's memory are those of a call with the host's", agree)?;
            println!(
                "{name:<16} {:>3} launches: host {same:6.2} us a call, {other:6.2} us with other pointers every time; host and GPU {same_all:6.2} and {other_all:6.2} us; \
                 GPU {:6.2} us a round, {apart:6.2} us launch by launch; a call with host tensors {:6.1} us; the program holds {held} KiB",
                loaded.program().kernels.len(),
                rounds[rounds.len() / 2],
                whole[whole.len() / 2]
            );
            loaded.remarks().iter().for_each(|r| println!("  remark: {r}"));
        }
        Ok(())
    }

    fn copies(&self) -> Outcome<()> {
        Pool::configure(std::thread::available_parallelism()?.get().min(8));
        let loaded = self.open(Mode::Default)?;
        let stream = self.context.new_stream()?;
        for count in [1usize << 10, 1 << 18, 1 << 22, 1 << 26] {
            let bytes = count * 4;
            let mut pageable = numbers(3, count);
            // SAFETY: plain driver memory, freed below.
            let pinned = unsafe {
                std::slice::from_raw_parts_mut(result::malloc_host(bytes, 0)?.cast::<f32>(), count)
            };
            pinned.copy_from_slice(&pageable);
            let device = stream.clone_htod(&pageable)?;
            let at = device.device_ptr(&stream).0;
            let rounds = (1usize << 28).div_euclid(bytes).clamp(3, 200);
            let rate = |f: &mut dyn FnMut() -> Outcome<()>| -> Outcome<f64> {
                f()?;
                let mut times = vec![];
                for _ in 0..rounds {
                    let start = Instant::now();
                    f()?;
                    times.push(start.elapsed().as_secs_f64());
                }
                times.sort_by(f64::total_cmp);
                Ok(bytes as f64 / times[times.len() / 2] / 1e9)
            };
            // SAFETY: as many bytes on both sides, and each copy is synchronised.
            let (up, down, pinned_up, pinned_down) = unsafe {
                (
                    rate(&mut || Ok(result::memcpy_htod_sync(at, &pageable)?))?,
                    rate(&mut || Ok(result::memcpy_dtoh_sync(&mut pageable, at)?))?,
                    rate(&mut || Ok(result::memcpy_htod_sync(at, pinned)?))?,
                    rate(&mut || Ok(result::memcpy_dtoh_sync(pinned, at)?))?,
                )
            };
            let shape = [count];
            let mut out = vec![0f32; count];
            let mut calls = vec![];
            // Input on the host and output on the device; the reverse; and both through pinned
            // memory.
            for (from_pinned, side) in
                [(false, "up"), (false, "down"), (true, "up"), (true, "down")]
            {
                let mut space = stream.alloc_zeros::<f32>(count)?;
                let to = space.device_ptr_mut(&stream).0;
                let source: &[f32] = if from_pinned { &pinned[..] } else { &pageable };
                // SAFETY: memory of GPU 0, used by these calls alone, which are synchronised.
                let view = unsafe {
                    if side == "up" {
                        View::from_slice(&shape, source)?
                    } else {
                        View::on_cuda(0, "f32", &shape, None, at)
                    }
                };
                stream.synchronize()?;
                let mut target = if from_pinned { vec![] } else { std::mem::take(&mut out) };
                let place: &mut [f32] = match from_pinned {
                    // SAFETY: the same pinned memory; nothing reads it in this iteration.
                    true => unsafe {
                        std::slice::from_raw_parts_mut(pinned.as_ptr().cast_mut(), count)
                    },
                    false => &mut target,
                };
                let mut written = match side {
                    // SAFETY: as above.
                    "up" => unsafe { ViewMut::on_cuda(0, "f32", &shape, None, to) },
                    _ => ViewMut::from_slice(&shape, place)?,
                };
                calls.push(rate(&mut || {
                    Ok(loaded.call(&[view], std::slice::from_mut(&mut written))?)
                })?);
                if !from_pinned {
                    out = target;
                }
            }
            println!(
                "{bytes:>10} bytes, GB/s: driver pageable {up:5.1} up {down:5.1} down, pinned {pinned_up:5.1} up {pinned_down:5.1} down; \
                 calls pageable {:5.1} up {:5.1} down, pinned {:5.1} up {:5.1} down",
                calls[0], calls[1], calls[2], calls[3]
            );
            // SAFETY: allocated above.
            unsafe { result::free_host(pinned.as_mut_ptr().cast())? };
        }
        Ok(())
    }

    fn many(&self, calls: usize) -> Outcome<()> {
        let stream = self.context.new_stream()?;
        for (name, mode) in Mode::ALL {
            let loaded = self.open(mode)?;
            // More shapes than the plan cache holds, so that plans and graphs are evicted.
            let all: Vec<Tensors> = (0..20)
                .map(|i| self.tensors(8 + 8 * i, i as u64, &stream))
                .collect::<Outcome<_>>()?;
            let round = |from: usize, to: usize| -> Outcome<()> {
                for i in from..to {
                    all[i % 20].launch(&loaded, &stream)?;
                    if i % 100 == 99 {
                        stream.synchronize()?;
                    }
                }
                Ok(stream.synchronize()?)
            };
            round(0, 500)?;
            let (free, kib) = (self.device.memory()?.0, resident());
            let start = Instant::now();
            round(500, 500 + calls)?;
            let time = start.elapsed().as_secs_f64();
            let (free_after, kib_after) = (self.device.memory()?.0, resident());
            let (grown, rss) = (free.saturating_sub(free_after), kib_after.saturating_sub(kib));
            println!(
                "{name:<16} {calls} calls of 20 sizes in {time:.2} s: the card's memory grew by {grown} bytes, the process by {rss} KiB"
            );
            expect("no growth", grown == 0 && rss < 4096)?;
        }
        Ok(())
    }

    fn threads(&self) -> Outcome<()> {
        for (name, mode) in Mode::ALL {
            let loaded = &self.open(mode)?;
            // The expected results, from sequential calls.
            let mut alone = vec![];
            for t in 0..8usize {
                let stream = self.context.new_stream()?;
                let tensors = self.tensors(40 + 8 * t, 100 * t as u64, &stream)?;
                tensors.launch(loaded, &stream)?;
                let want = tensors.results(&stream)?;
                stream.synchronize()?;
                alone.push((stream, tensors, want));
            }
            // The first round allocates what later ones reuse.
            for round in 0..2 {
                let (free, start) = (self.device.memory()?.0, Instant::now());
                let wrong: usize = std::thread::scope(|scope| {
                    let work = |(t, one)| {
                        scope.spawn(move || self.thread(t, loaded, one).map_err(|e| e.to_string()))
                    };
                    let all: Vec<_> = alone.iter_mut().enumerate().map(work).collect();
                    all.into_iter()
                        .map(|t| t.join().unwrap_or(Err("panicked".into())))
                        .sum::<Result<usize, String>>()
                })?;
                let grown = free.saturating_sub(self.device.memory()?.0);
                println!(
                    "{name:<16} 8 threads of 200 calls in {:.2} s; the card's memory grew by {grown} bytes",
                    start.elapsed().as_secs_f64()
                );
                expect(&format!("{wrong} of 1600 calls differ from those made alone"), wrong == 0)?;
                expect("no growth", grown == 0 || round == 0)?;
            }
        }
        Ok(())
    }

    /// A thread's calls: device memory on its own stream, and host memory for every fourth. Returns
    /// how many results differ.
    fn thread(
        &self,
        t: usize,
        loaded: &Loaded,
        (stream, tensors, want): &mut (Arc<CudaStream>, Tensors, Vec<Vec<u8>>),
    ) -> Outcome<usize> {
        self.context.bind_to_thread()?;
        let mut host = self.host(40 + 8 * t, 100 * t as u64)?;
        let mut wrong = 0;
        for i in 0..200 {
            let got = if i % 4 == 3 {
                host.outputs.iter_mut().for_each(|(_, _, bytes)| bytes.fill(0));
                let (views, mut results) = host.views()?;
                loaded.call(&views, &mut results)?;
                drop(results);
                host.outputs.iter().map(|(_, _, bytes)| bytes.clone()).collect()
            } else {
                for t in &mut tensors.outputs {
                    stream.memset_zeros(&mut t.memory)?;
                }
                tensors.launch(loaded, stream)?;
                tensors.results(stream)?
            };
            stream.synchronize()?;
            wrong += usize::from(got != *want);
        }
        Ok(wrong)
    }
}
