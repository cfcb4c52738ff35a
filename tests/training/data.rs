//! Datasets and loaders.
use kiln::{
    Tensor,
    data::{Dataset, Loader, Rows, stack},
    tensor::TraceError,
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

fn digits(n: usize) -> Rows<(Tensor, Vec<Tensor>, i64)> {
    let x: Vec<f32> = (0..3 * n).map(|i| i as f32).collect();
    let t: Vec<i64> = (0..n as i64).collect();
    let x = Tensor::from_slice(&[n, 3], &x).unwrap();
    Rows::new((x, vec![Tensor::from_slice(&[n], &t).unwrap()], 7)).unwrap()
}

/// The targets of an epoch's batches, which have to fit the inputs.
fn epoch<D>(loader: &Loader<D>, epoch: u64) -> Vec<Vec<i64>>
where
    D: Dataset<Batch = (Tensor, Vec<Tensor>, i64)> + 'static,
{
    let one = |batch: Result<(Tensor, Vec<Tensor>, i64), TraceError>| {
        let (x, t, fixed) = batch.unwrap();
        assert_eq!(fixed, 7);
        let (x, t) = (x.to_vec::<f32>().unwrap(), t[0].to_vec::<i64>().unwrap());
        for (row, t) in x.chunks(3).zip(&t) {
            assert_eq!(row, [3.0 * *t as f32, 3.0 * *t as f32 + 1.0, 3.0 * *t as f32 + 2.0]);
        }
        t
    };
    loader.epoch(epoch).unwrap().map(one).collect()
}

#[test]
fn batches_in_order() {
    let loader = Loader::new(digits(7), 3);
    assert_eq!((loader.len(), loader.dataset().len()), (3, 7));
    assert_eq!(epoch(&loader, 0), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    let loader = loader.drop_last(true).threads(3).prefetch(5);
    assert_eq!(epoch(&loader, 0), [vec![0, 1, 2], vec![3, 4, 5]]);
    assert!(Loader::new(digits(2), 3).drop_last(true).is_empty());
    assert!(epoch(&Loader::new(digits(0), 3), 0).is_empty());
}

/// Seed and epoch determine the order, the threads do not.
#[test]
fn shuffled_batches() {
    let of = |seed, threads| Loader::new(digits(40), 7).shuffle(seed).threads(threads);
    let first = epoch(&of(1, 1), 0);
    assert_eq!(first, epoch(&of(1, 4), 0));
    assert_ne!(first, epoch(&of(1, 1), 1));
    assert_ne!(first, epoch(&of(2, 1), 0));
    let mut all = first.concat();
    all.sort();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

/// A dataset that counts, fails and panics.
struct Odd(Arc<AtomicUsize>);

impl Dataset for Odd {
    type Batch = Tensor;
    fn len(&self) -> usize {
        6
    }
    fn batch(&self, examples: &[usize]) -> Result<Tensor, TraceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        assert!(!examples.contains(&4), "an example that panics");
        let one = |i: &usize| match i {
            2 => Tensor::from_slice(&[2], &[0i64, 1]),
            i => Tensor::from_slice(&[1], &[*i as i64]),
        };
        stack(examples.iter().map(one).collect::<Result<Vec<_>, _>>()?)
    }
}

#[test]
fn errors_of_a_dataset_are_those_of_its_batches() {
    let made = Loader::new(Odd(Arc::default()), 2).epoch(0).unwrap().collect::<Vec<_>>();
    assert_eq!(made[0].as_ref().unwrap().to_vec::<i64>().unwrap(), [0, 1]);
    let told = |i: usize| made[i].as_ref().unwrap_err().to_string();
    assert!(told(1).contains("an example is i64[1], the first i64[2]"), "{}", told(1));
    assert!(told(2).contains("panics at a batch that begins with example 4"), "{}", told(2));
    assert!(Loader::new(digits(2), 1).device("abacus").epoch(0).is_err());
}

/// An epoch that is given up stops its threads, which are not far ahead.
#[test]
fn an_epoch_that_is_dropped_makes_no_more_batches() {
    let count = Arc::new(AtomicUsize::new(0));
    let loader = Loader::new(Odd(count.clone()), 1).prefetch(1);
    drop(loader.epoch(0).unwrap().next());
    assert!(count.load(Ordering::SeqCst) <= 2);
}

#[test]
fn tensors_that_are_no_rows() {
    let of = |shape: &[usize]| Tensor::from_slice(shape, &vec![0.0f32; shape.iter().product()]);
    let told = |made: Result<Rows<Vec<Tensor>>, TraceError>| made.err().unwrap().to_string();
    let e = told(Rows::new(vec![of(&[2, 3]).unwrap(), of(&[3]).unwrap()]));
    assert!(e.contains("a tensor has 3 rows, the first 2"), "{e}");
    assert!(told(Rows::new(vec![of(&[]).unwrap()])).contains("a tensor has no rows"));
    assert!(told(Rows::new(vec![])).contains("there is no tensor"));
    let rows = Rows::new(of(&[2, 3]).unwrap()).unwrap();
    assert!(rows.batch(&[1, 2]).err().unwrap().to_string().contains("no row 2 of 2"));
    assert_eq!(rows.batch(&[]).unwrap().to_vec::<f32>().unwrap(), [0.0; 0]);
    assert!(stack::<Tensor>(vec![]).is_err());
}
