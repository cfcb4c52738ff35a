//! Programs that another thread makes while calls run op by op (option `asynchronous`).
//!
//! A function is traced where it is called. What goes to the other thread is the graph as bytes,
//! since a context belongs to one thread. A function has one such thread, which ends when nothing
//! is left to do.
use super::Settings;
use crate::{
    Error,
    backend::{Backend, GraphModule, Runnable},
    capture::Captured,
    dialects::ir::{Context, Module},
    lowering::Stop,
    model::Options,
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

/// A program, or why there is none.
pub(crate) type Outcome = Result<Arc<dyn Runnable>, Arc<Error>>;

/// A program that is there, or that another thread makes.
#[derive(Default)]
pub(crate) struct Later {
    made: OnceLock<Outcome>,
    waiting: (Mutex<()>, Condvar),
}

impl Later {
    /// One that is there.
    pub fn now(program: Arc<dyn Runnable>) -> Later {
        Later { made: OnceLock::from(Ok(program)), ..Later::default() }
    }
    /// None while it is being made.
    pub fn get(&self) -> Option<&Outcome> {
        self.made.get()
    }
    /// The program, if it is there.
    pub fn ready(&self) -> Option<&Arc<dyn Runnable>> {
        self.get().and_then(|o| o.as_ref().ok())
    }
    /// Waits until it is made, or will not be.
    pub fn wait(&self) -> Outcome {
        let mut held = lock(&self.waiting.0);
        loop {
            if let Some(outcome) = self.get() {
                return outcome.clone();
            }
            held = self.waiting.1.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
    fn set(&self, outcome: Outcome) {
        let _held = lock(&self.waiting.0);
        // Set once: by the one job that has it.
        let _ = self.made.set(outcome);
        self.waiting.1.notify_all();
    }
}

type Job = Box<dyn FnOnce() + Send>;
type Tell = Box<dyn Fn(&Error) + Send + Sync>;

/// What is still to be made for a function.
pub(crate) struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    /// Ends what is being made, and what waits.
    stop: Stop,
    /// Whether nobody wants to hear of it any more.
    dropped: AtomicBool,
    /// Told of what was not made.
    tell: Tell,
}

impl Queue {
    /// `stop` is the function's own, which ends this queue's work as well.
    pub fn new(stop: &Stop, tell: Tell) -> Arc<Queue> {
        Arc::new(Queue {
            jobs: Mutex::default(),
            stop: stop.child(),
            dropped: AtomicBool::new(false),
            tell,
        })
    }
    /// Ends its work, of which nothing is told.
    pub fn drop_work(&self) {
        self.dropped.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }
    /// Makes a program on the queue's thread.
    fn make(
        self: &Arc<Queue>,
        name: &str,
        captured: Captured,
        backend: Arc<dyn Backend>,
        options: &Options,
    ) -> Arc<Later> {
        let (later, name) = (Arc::new(Later::default()), name.to_string());
        let options = Options { stop: self.stop.clone(), ..options.clone() };
        let Captured { module, weights, inputs, outputs } = captured;
        let bytes = module.bytecode();
        drop(module);
        let (queue, made) = (self.clone(), later.clone());
        self.push(Box::new(move || {
            let work = || -> Result<Arc<dyn Runnable>, Error> {
                let context = Context::new();
                let (module, _) = Module::parse(context.ctx(), &bytes, &name)?;
                let captured = Captured { module, weights, inputs, outputs };
                backend.compile(&GraphModule::new(&name, &captured), &options)
            };
            // A backend of somebody's that panics must leave nobody waiting.
            let outcome = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| Err(Error::Backend(format!("the backend panicked on {name}"))));
            let outcome = outcome.map_err(Arc::new);
            if let (Err(e), false) = (&outcome, queue.dropped.load(Ordering::Relaxed)) {
                (queue.tell)(e);
            }
            made.set(outcome);
        }));
        later
    }
    fn push(self: &Arc<Queue>, job: Job) {
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

/// How programs are made.
#[derive(Clone)]
pub(crate) struct Making {
    /// What makes them.
    pub backend: Arc<dyn Backend>,
    /// What it is told.
    pub options: Options,
    /// Whose thread makes them; none: that of the call.
    pub queue: Option<Arc<Queue>>,
}

impl Making {
    /// A program that is there, or will be. Err: why there is none, where the call's thread makes
    /// it.
    pub fn program(&self, name: &str, captured: Captured) -> Result<Arc<Later>, Error> {
        match &self.queue {
            Some(queue) => Ok(queue.make(name, captured, self.backend.clone(), &self.options)),
            None => Ok(Arc::new(Later::now(
                self.backend.compile(&GraphModule::new(name, &captured), &self.options)?,
            ))),
        }
    }
}

impl Settings {
    /// Whether another thread compiles. Where each op is a program, there is nothing to do
    /// meanwhile.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.asynchronous && !self.each_op
    }
}
