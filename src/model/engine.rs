//! Execution engine of a package: linked machine code on the host, or kernels on a GPU.
use super::{DeviceId, Error, Options, Times, weights::Sources};
use crate::runtime::{
    CallError, Pool, Program, View, ViewMut, cuda,
    host::{Host, OpenedHost},
    profile::Profile,
};
use std::time::{Duration, Instant};

/// A loaded program: linked code and resolved weights.
pub enum Engine {
    /// On the host's processors.
    Host(Host),
    /// On a GPU.
    Cuda(Box<cuda::Loaded>),
}

/// Links kernels for the GPU of the options, or for the first GPU.
pub fn linker(options: &Options) -> cuda::Linker {
    let index = if let DeviceId::Cuda(index) = options.device { index } else { 0 };
    cuda::Linker::new(index, options.cache.store())
}

impl Engine {
    /// Links a package's code and resolves its weights, relative to `folder`.
    pub fn link(
        sources: &Sources,
        options: &Options,
        linker: &cuda::Linker,
        times: &mut Times,
    ) -> Result<Engine, Error> {
        let package = sources.package;
        match package.program.target.is_cuda() {
            true => Engine::on_gpu(sources, options, linker, times),
            false if options.mode != cuda::Mode::Default => Err(Error::Target(format!(
                "CUDA graphs are for GPUs; the program is for {}",
                package.program.target.arch
            ))),
            false if options.device == DeviceId::Host => Engine::on_host(sources, options, times),
            false => Err(Error::Target(format!(
                "the program is for {}, not for a GPU",
                package.program.target.arch
            ))),
        }
    }

    fn on_host(sources: &Sources, options: &Options, times: &mut Times) -> Result<Engine, Error> {
        let (start, mut finder) = (Instant::now(), sources.finder());
        let opened = OpenedHost::new(sources.package, &mut |g| finder.find(g), options.threads)?;
        times.link = opened.link;
        times.weights = start.elapsed().saturating_sub(opened.link);
        Ok(Engine::Host(opened.program))
    }

    fn on_gpu(
        sources: &Sources,
        options: &Options,
        linker: &cuda::Linker,
        times: &mut Times,
    ) -> Result<Engine, Error> {
        let package = sources.package;
        let linking = Instant::now();
        // Large host copies are parallelised over the pool.
        Pool::configure(options.threads);
        let (device, code) = linker.all(&package.objects, options.workers)?;
        times.link = linking.elapsed();
        let (finding, mut finder) = (Instant::now(), sources.finder());
        let settings = cuda::Settings {
            mode: options.mode,
            blocking: options.blocking,
            replay: options.cudagraph_replay,
            nvtx: options.nvtx,
        };
        let loaded =
            cuda::Loaded::join(device, &package.program, &code, &mut |g| finder.find(g), settings)?;
        times.weights = finding.elapsed();
        Ok(Engine::Cuda(Box::new(loaded)))
    }

    /// The compiled program.
    pub fn program(&self) -> &Program {
        match self {
            Engine::Host(l) => l.program(),
            Engine::Cuda(l) => l.program(),
        }
    }
    /// Bytes of the arena for intermediate buffers, held between calls.
    pub fn arena_bytes(&self) -> usize {
        match self {
            Engine::Host(l) => l.arena_bytes(),
            Engine::Cuda(l) => l.arena_bytes(),
        }
    }
    /// Shapes and byte sizes of the results, if all of them are static. Host programs without
    /// control flow only.
    pub fn fixed_outputs(&self) -> Option<&[(Vec<usize>, usize)]> {
        if let Engine::Host(Host::Single(l)) = self { l.fixed_outputs() } else { None }
    }
    /// The loaded GPU program; `None` on the host.
    pub fn cuda(&self) -> Option<&cuda::Loaded> {
        if let Engine::Cuda(l) = self { Some(l) } else { None }
    }
    /// Times each launch.
    pub fn profile(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<Profile, CallError> {
        match self {
            Engine::Host(l) => l.profile(inputs, outputs, threads),
            Engine::Cuda(l) => l.profile(inputs, outputs),
        }
    }
    /// Runs the program.
    pub fn call(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<(), CallError> {
        match self {
            Engine::Host(l) => l.call(inputs, outputs, threads),
            Engine::Cuda(l) => l.call(inputs, outputs),
        }
    }
    /// Runs the program `rounds` times and returns the time of each round. On a GPU a round is the
    /// mean of `calls` runs of the kernels, without host overhead.
    pub fn measure(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
        (rounds, calls): (usize, usize),
    ) -> Result<Vec<Duration>, CallError> {
        let one = |_| -> Result<Duration, CallError> {
            let start = Instant::now();
            self.call(inputs, outputs, threads)?;
            Ok(start.elapsed())
        };
        match self {
            Engine::Host(_) => (0..rounds).map(one).collect(),
            Engine::Cuda(l) => l.measure(inputs, outputs, rounds, calls),
        }
    }
}
