//! Background compilation (option `asynchronous`): calls run op by op meanwhile.
//!
//! The call traces the function and hands the graph as bytecode to the compile thread, since a
//! context is single-threaded. A function has at most one such thread, which exits when its queue
//! is empty.
use super::Settings;
use crate::{
    Error,
    backend::{Backend, GraphModule, Runnable},
    capture::Captured,
    dialects::ir::{Context, Module},
    lowering::CancellationToken,
    model::{DeviceId, Options},
    tensor::lock,
};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// A compiled program, or why compilation failed.
pub(crate) type CompileResult = Result<Arc<dyn Runnable>, Arc<Error>>;

/// A future of a program.
#[derive(Default)]
pub(crate) struct ProgramFuture {
    result: OnceLock<CompileResult>,
    waiting: (Mutex<()>, Condvar),
}

impl ProgramFuture {
    /// A future that is ready.
    pub fn completed(program: Arc<dyn Runnable>) -> ProgramFuture {
        ProgramFuture { result: OnceLock::from(Ok(program)), ..ProgramFuture::default() }
    }
    /// `None` while it is being compiled.
    pub fn get(&self) -> Option<&CompileResult> {
        self.result.get()
    }
    /// The program, if it was compiled.
    pub fn ready(&self) -> Option<&Arc<dyn Runnable>> {
        self.get().and_then(|o| o.as_ref().ok())
    }
    /// Waits until compilation succeeds or fails.
    pub fn wait(&self) -> CompileResult {
        let mut held = lock(&self.waiting.0);
        loop {
            if let Some(outcome) = self.get() {
                return outcome.clone();
            }
            held = self.waiting.1.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
    fn set(&self, outcome: CompileResult) {
        let _held = lock(&self.waiting.0);
        // Set once, by the one job that owns it.
        let _ = self.result.set(outcome);
        self.waiting.1.notify_all();
    }
}

type Job = Box<dyn FnOnce() + Send>;
type FailureCallback = Box<dyn Fn(&Error) + Send + Sync>;

/// A function's compilation queue.
pub(crate) struct CompileQueue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    /// Cancels the current and the queued compilations.
    cancellation: CancellationToken,
    /// Whether the function is gone, so that failures are not reported.
    dropped: AtomicBool,
    /// Callback for failed compilations.
    on_failure: FailureCallback,
}

impl CompileQueue {
    /// `cancellation` is the function's token, which also cancels this queue.
    pub fn new(cancellation: &CancellationToken, on_failure: FailureCallback) -> Arc<CompileQueue> {
        Arc::new(CompileQueue {
            jobs: Mutex::default(),
            cancellation: cancellation.child(),
            dropped: AtomicBool::new(false),
            on_failure,
        })
    }
    /// Cancels all work without reporting it.
    pub fn cancel_all(&self) {
        self.dropped.store(true, Ordering::Relaxed);
        self.cancellation.cancel();
    }
    /// Enqueues a compilation.
    fn enqueue(
        self: &Arc<CompileQueue>,
        name: &str,
        captured: Captured,
        backend: Arc<dyn Backend>,
        options: &Options,
    ) -> Arc<ProgramFuture> {
        let (future, name) = (Arc::new(ProgramFuture::default()), name.to_string());
        let options = Options { cancellation: self.cancellation.clone(), ..options.clone() };
        let Captured { module, weights, inputs, outputs } = captured;
        let bytes = module.bytecode();
        drop(module);
        let (queue, result) = (self.clone(), future.clone());
        self.push(Box::new(move || {
            let work = || -> Result<Arc<dyn Runnable>, Error> {
                let context = Context::new();
                let (module, _) = Module::parse(context.ctx(), &bytes, &name)?;
                let captured = Captured { module, weights, inputs, outputs };
                backend.compile(&GraphModule::new(&name, &captured), &options)
            };
            // A panicking backend must not leave waiters blocked.
            let outcome = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| Err(Error::Backend(format!("the backend panicked on {name}"))));
            let outcome = outcome.map_err(Arc::new);
            if let (Err(e), false) = (&outcome, queue.dropped.load(Ordering::Relaxed)) {
                (queue.on_failure)(e);
            }
            result.set(outcome);
        }));
        future
    }
    fn push(self: &Arc<CompileQueue>, job: Job) {
        let mut jobs = lock(&self.jobs);
        jobs.0.push_back(job);
        if jobs.1 {
            return;
        }
        let queue = self.clone();
        let begun =
            std::thread::Builder::new().name("kiln-compile".into()).spawn(move || queue.work());
        jobs.1 = begun.is_ok();
        drop(jobs);
        if begun.is_err() {
            self.work();
        }
    }
    fn work(&self) {
        loop {
            let job = {
                let mut jobs = lock(&self.jobs);
                let job = jobs.0.pop_front();
                jobs.1 = job.is_some();
                job
            };
            match job {
                Some(job) => job(),
                None => return,
            }
        }
    }
}

/// How to compile programs.
#[derive(Clone)]
pub(crate) struct ProgramCompiler {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// Its options.
    pub options: Options,
    /// The background queue; `None` compiles on the calling thread.
    pub queue: Option<Arc<CompileQueue>>,
}

impl ProgramCompiler {
    /// For tensors on a device; see [`Options::for_tensors_on`].
    pub fn on(&self, device: DeviceId) -> ProgramCompiler {
        let options = self.options.for_tensors_on(device);
        ProgramCompiler { backend: self.backend.clone(), options, queue: self.queue.clone() }
    }
    /// Compiles a program, or enqueues it. Err: the failure, if compiled on the calling thread.
    pub fn compile(&self, name: &str, captured: Captured) -> Result<Arc<ProgramFuture>, Error> {
        match &self.queue {
            Some(queue) => Ok(queue.enqueue(name, captured, self.backend.clone(), &self.options)),
            None => Ok(Arc::new(ProgramFuture::completed(
                self.backend.compile(&GraphModule::new(name, &captured), &self.options)?,
            ))),
        }
    }
}

impl Settings {
    /// Whether compilation runs in the background. Single-op programs gain nothing from it.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.asynchronous && !self.each_op
    }
}
