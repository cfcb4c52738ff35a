//! Loading of batches by threads, ahead of their use.
use super::{Dataset, queue::Queue};
use crate::{
    compile::{Leaf, Tree, into_leaves, rebuild},
    runtime::{DataError, DeviceId},
    tensor::{
        TraceError,
        device::{self, Moving},
    },
};
use std::{
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// Batches of a dataset, as PyTorch's `DataLoader`: threads make the next ones while a step runs,
/// and copy them to a GPU through pinned memory, beside its kernels.
pub struct Loader<D> {
    dataset: Arc<D>,
    size: usize,
    seed: Option<u64>,
    drop_last: bool,
    threads: usize,
    prefetch: usize,
    device: String,
}

impl<D: Dataset + 'static> Loader<D> {
    /// Batches of `size` examples (at least one), in the dataset's order, the last one smaller; one
    /// thread, two batches ahead, on the host.
    pub fn new(dataset: D, size: usize) -> Loader<D> {
        let (dataset, size, device) = (Arc::new(dataset), size.max(1), "cpu".into());
        Loader { dataset, size, seed: None, drop_last: false, threads: 1, prefetch: 2, device }
    }
    /// Another order in each epoch, which seed and epoch determine.
    pub fn shuffle(self, seed: u64) -> Loader<D> {
        Loader { seed: Some(seed), ..self }
    }
    /// Whether examples that fill no batch are left out, so that all batches have one size.
    pub fn drop_last(self, drop_last: bool) -> Loader<D> {
        Loader { drop_last, ..self }
    }
    /// Threads that make batches, at least one.
    pub fn threads(self, threads: usize) -> Loader<D> {
        Loader { threads: threads.max(1), ..self }
    }
    /// Batches that are made ahead, at least one.
    pub fn prefetch(self, batches: usize) -> Loader<D> {
        Loader { prefetch: batches.max(1), ..self }
    }
    /// Where batches go: `cpu`, `cuda` or `cuda:<ordinal>`.
    pub fn device(self, device: &str) -> Loader<D> {
        Loader { device: device.into(), ..self }
    }
    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }
    /// Batches of an epoch.
    pub fn len(&self) -> usize {
        match self.drop_last {
            true => self.dataset.len() / self.size,
            false => self.dataset.len().div_ceil(self.size),
        }
    }
    /// Whether an epoch has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The examples of an epoch in order.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.dataset.len()).collect();
        if let Some(seed) = self.seed {
            // Neighbouring seeds and epochs differ in all bits.
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) ^ epoch;
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
        }
        order
    }

    /// The batches of an epoch; its threads end with it. Err: no such device, or no thread could be
    /// started.
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<D::Batch>, TraceError> {
        let (device, order) = (device::parse(&self.device)?, Arc::new(self.order(epoch)));
        let (count, size) = (self.len(), self.size);
        let mut made = Epoch {
            queue: Arc::new(Queue::new(count, self.prefetch)),
            threads: vec![],
            of: PhantomData,
        };
        for _ in 0..self.threads.min(count) {
            let (queue, dataset, order) = (made.queue.clone(), self.dataset.clone(), order.clone());
            let work = move || {
                while let Some(i) = queue.claim() {
                    let examples = &order[i * size..((i + 1) * size).min(order.len())];
                    queue.add(i, moving(&*dataset, examples, device));
                }
            };
            let thread = thread::Builder::new().name("kiln-data".into()).spawn(work);
            made.threads.push(thread.map_err(DataError::file)?);
        }
        Ok(made)
    }
}

/// A leaf of a batch, on its way to a device.
enum Part {
    Tensor(Moving),
    Fixed(Leaf),
}
type Parts = Result<Vec<Part>, TraceError>;

fn moving<D: Dataset>(dataset: &D, examples: &[usize], device: DeviceId) -> Parts {
    let panicked = |_| {
        let first = examples.first().copied().unwrap_or(0);
        let words = format!("the dataset panics at a batch that begins with example {first}");
        Err(DataError::Malformed(words).into())
    };
    let batch =
        catch_unwind(AssertUnwindSafe(|| dataset.batch(examples))).unwrap_or_else(panicked)?;
    let part = |leaf| match leaf {
        Leaf::Tensor(t) => Ok(Part::Tensor(Moving::start(t.array()?, device)?)),
        other => Ok(Part::Fixed(other)),
    };
    into_leaves(batch).into_iter().map(part).collect()
}

/// The batches of an epoch, in order; see [`Loader::epoch`].
pub struct Epoch<B> {
    queue: Arc<Queue<Parts>>,
    threads: Vec<JoinHandle<()>>,
    of: PhantomData<fn() -> B>,
}

impl<B: Tree> Iterator for Epoch<B> {
    type Item = Result<B, TraceError>;
    /// The next batch. Err: the dataset's, or that of a copy; others may follow.
    fn next(&mut self) -> Option<Self::Item> {
        let leaf = |part| match part {
            Part::Tensor(t) => Ok(Leaf::Tensor(t.finish()?.into())),
            Part::Fixed(leaf) => Ok(leaf),
        };
        let batch = |parts: Vec<Part>| {
            let leaves = parts.into_iter().map(leaf).collect::<Result<Vec<_>, DataError>>()?;
            rebuild(leaves).map_err(TraceError::module)
        };
        self.queue.take().map(|made| made.and_then(batch))
    }
}

impl<B> Drop for Epoch<B> {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic of a dataset is caught.
            let _ = thread.join();
        }
    }
}
