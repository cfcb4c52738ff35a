//! Donated arguments and weights: results in their memory, the same values, and no stale ones.
use super::*;
use kiln::{
    compile,
    nn::{self, Linear, Module, Parameter, Scope},
    optim::{self, Adam, AdamW, Optimizer, Sgd, State},
    tensor::{CrossEntropy, TraceError},
};

/// A step's optimizer, and what it does besides.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Momentum; each update may be in the epilogue of its gradient's product.
    Sgd,
    /// Clipped by the norm of all gradients.
    AdamW,
    /// Adam, and averages of the new weights.
    Ema,
}

pub const KINDS: [Kind; 3] = [Kind::Sgd, Kind::AdamW, Kind::Ema];

struct Net(Linear, Linear);

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.1.forward(&self.0.forward(x).gelu())
    }
    fn parameters(&self) -> Vec<&Parameter> {
        self.0.parameters().into_iter().chain(self.1.parameters()).collect()
    }
}

/// What some steps leave.
pub struct Trained {
    /// Losses, weights, states and averages, as bytes.
    pub values: Vec<Vec<u8>>,
    /// The addresses of weights, states and averages after each step.
    pub addresses: Vec<Vec<u64>>,
    /// How often a result was in the memory of an argument.
    pub donations: u64,
    /// Why others were not.
    pub remarks: Vec<String>,
}

fn update(
    kind: Kind,
    weights: Vec<Tensor>,
    by: Vec<Tensor>,
    s: State,
) -> Result<(Vec<Tensor>, State), TraceError> {
    match kind {
        Kind::Sgd => {
            Sgd { rate: 0.05.into(), momentum: 0.9, ..Sgd::default() }.apply(weights, by, s)
        }
        Kind::AdamW => {
            let (by, _) = optim::clip_by_global_norm(by, 1.0)?;
            AdamW { rate: 0.02.into(), ..AdamW::default() }.apply(weights, by, s)
        }
        Kind::Ema => Adam { rate: 0.02.into(), ..Adam::default() }.apply(weights, by, s),
    }
}

/// Four steps on a device, donated or not.
pub fn train(kind: Kind, device: &str, donate: bool) -> Result<Trained, Error> {
    const SIZES: [usize; 3] = [24, 40, 8];
    let s = Scope::root();
    let up = Linear::new(&s.child("up"), SIZES[0], SIZES[1]);
    let net = Net(up, Linear::new(&s.child("down"), SIZES[1], SIZES[2]));
    net.to_device(device)?;
    let weights = net.parameters();
    let begin = nn::values(&weights);
    let mut state = match kind {
        Kind::Sgd => Sgd { momentum: 0.9, ..Sgd::default() }.init(&begin)?,
        Kind::AdamW => AdamW::default().init(&begin)?,
        Kind::Ema => Adam::default().init(&begin)?,
    };
    // A copy, so that the first step finds it free.
    let mut average: Vec<Tensor> = begin.iter().map(|w| w * 1.0).collect();
    drop(begin);
    let step = |x: Tensor, t: Tensor, s: State, a: Vec<Tensor>| -> Result<_, TraceError> {
        let loss = |x: Tensor| net.forward(&x).cross_entropy(&t, CrossEntropy::default());
        let (loss, by) = nn::value_and_grad(weights.clone(), loss).call(x)?;
        let (new, s) = update(kind, nn::values(&weights), by, s)?;
        let a = if let Kind::Ema = kind { optim::ema(a, &new, 0.9)? } else { a };
        Ok((loss, new, s, a))
    };
    let mut step = compile(step).fullgraph(true);
    step = match donate {
        // The state is free in the first call; so are the averages, which are named all the same.
        true => step.donate([3]).donate_weights(&weights),
        false => step.options([("donate", "false")]),
    };
    let x = counting(&[16, SIZES[0]]) / 100.0;
    let classes: Vec<i64> = (0..16).map(|i| i % SIZES[2] as i64).collect();
    let (x, t) = (x.to_device(device), Tensor::from_slice(&[16], &classes)?.to_device(device));
    let (mut losses, mut addresses) = (vec![], vec![]);
    for _ in 0..4 {
        let (loss, new);
        (loss, new, state, average) = step.call((x.clone(), t.clone(), state, average))?;
        let held = new.iter().chain(state.slots.iter().flatten()).chain([&state.count]);
        let held = held.chain(&average).map(|t| t.address().expect("elements"));
        addresses.push(held.collect());
        nn::assign(&weights, &new)?;
        losses.push(loss);
    }
    let all = nn::values(&weights);
    let all = losses.iter().chain(&all).chain(state.slots.iter().flatten()).chain(&average);
    let bytes = |t: &Tensor| Ok(t.array()?.bytes()?.bytes().to_vec());
    let values = all.map(bytes).collect::<Result<_, TraceError>>()?;
    let donations = step.explain().graphs.iter().map(|g| g.donations).sum();
    let remarks = step.remarks().iter().map(|r| r.to_string()).collect();
    Ok(Trained { values, addresses, donations, remarks })
}

/// What has to hold for a step with donation and one without. `moves`: results that cannot have the
/// memory of their arguments.
pub fn agrees(kind: Kind, device: &str) -> Result<(), String> {
    let run = |donate| train(kind, device, donate).map_err(|e| e.to_string());
    let (with, without) = (run(true)?, run(false)?);
    if with.values != without.values {
        return Err(format!("{kind:?}: other values with donation"));
    }
    if without.donations != 0 {
        return Err(format!("{kind:?}: {} donations without", without.donations));
    }
    // Initial weights may lie in memory that is not a buffer of kiln's own.
    let same = with.addresses[1..].windows(2).all(|pair| pair[0] == pair[1]);
    if !same || with.donations == 0 {
        let (at, why) = (&with.addresses, with.remarks.join("\n"));
        return Err(format!("{kind:?}: {} donations, {at:x?}\n{why}", with.donations));
    }
    Ok(())
}

#[test]
fn steps_agree_and_stay_where_they_are() {
    for kind in KINDS {
        agrees(kind, "cpu").unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Functions whose results must not be written to their arguments before these were read.
pub fn illegal(device: &str) -> Result<(), Error> {
    let on = |t: Tensor| t.to_device(device);
    let square = || on(counting(&[64, 64]) / 64.0);
    let same = |have: &Tensor, want: &Tensor, what: &str| {
        let equal = have.value()? == want.value()?;
        let told = || Error::Backend(format!("{what}: other values"));
        if equal { Ok(()) } else { Err(told()) }
    };
    let held = square();
    // Transposed: an element is written to where another one is read.
    let f = |w: Tensor| w.t() * 2.0 + 1.0;
    same(&compile(f).donate([0]).call(square())?, &compile(f).call(&held)?, "transposed")?;
    // The old weights are read after the new ones are there.
    let f = |w: Tensor| {
        let new = &w * 0.5 - 1.0;
        let old = w.matmul(&new);
        (new, old)
    };
    let (new, old) = compile(f).donate([0]).call(square())?;
    let want = compile(f).call(&held)?;
    same(&new, &want.0, "new weights")?;
    same(&old, &want.1, "a product of old and new ones")?;
    // Each result is of the other argument.
    let f = |a: Tensor, b: Tensor| (b.sum(0, true) + &a, a.t() - &b);
    let (one, two) = compile(f).donate([0, 1]).call((square(), square() + 3.0))?;
    let want = compile(f).call((&square(), &(square() + 3.0)))?;
    same(&one, &want.0, "of both")?;
    same(&two, &want.1, "of both, transposed")?;
    // The argument is a result, too.
    let f = |w: Tensor| (&w + 1.0, w);
    let (new, old) = compile(f).donate([0]).call(square())?;
    same(&new, &(square() + 1.0), "a sum")?;
    same(&old, &square(), "the argument")
}

#[test]
fn what_is_still_read_is_not_overwritten() -> Result<(), Error> {
    illegal("cpu")
}

#[test]
fn the_memory_of_an_argument_that_nothing_else_holds_is_the_results() -> Result<(), Error> {
    let f = compile(|x: Tensor| x * 2.0 + 1.0);
    let x = counting(&[300]) * 1.0;
    let at = x.address();
    let y = f.call(x)?;
    assert_eq!(y.address(), at);
    assert_eq!(numbers(&y)[..3], [1.0, 3.0, 5.0]);
    // Another handle holds it.
    let held = y.clone();
    let z = f.call(y)?;
    assert_ne!(z.address(), at);
    assert_eq!((numbers(&held)[1], numbers(&z)[1]), (3.0, 7.0));
    // By reference.
    let again = f.call(&z)?;
    assert_ne!(again.address(), z.address());
    assert_eq!((numbers(&z)[1], numbers(&again)[1]), (7.0, 15.0));
    // The same tensor twice.
    let g = compile(|a: Tensor, b: Tensor| (&a + 1.0, b - 1.0));
    let (a, b) = g.call((again.clone(), again))?;
    assert_eq!((numbers(&a)[1], numbers(&b)[1]), (16.0, 14.0));
    let off = compile(|x: Tensor| x * 2.0).options([("donate", "false")]);
    let at = a.address();
    assert_ne!(off.call(a)?.address(), at);
    assert_eq!(f.explain().graphs[0].donations, 1);
    Ok(())
}

#[test]
fn a_weight_has_no_value_until_it_is_assigned() -> Result<(), Error> {
    let net = Linear::without_bias(&Scope::root(), 3, 2);
    let weights = net.parameters();
    let halve = || nn::values(&weights).iter().map(|w| w * 0.5).collect::<Vec<_>>();
    let step = compile(halve).donate_weights(&weights);
    nn::assign(&weights, &[counting(&[2, 3]) * 1.0])?;
    let new = step.call(())?;
    assert_eq!(numbers(&new[0]), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
    let told = "weight was donated to a call, which has overwritten it: nn::assign gives it the new \
                value that the call returned";
    let said = message(step.call(()));
    assert!(said.contains(told), "{said}");
    let said = net.forward(&counting(&[1, 3])).check().expect_err("no weight").to_string();
    assert!(said.contains("weight was donated to a call"), "{said}");
    let said = weights[0].value().map(drop).expect_err("no value").to_string();
    assert!(said.contains("was donated to a call"), "{said}");
    nn::assign(&weights, &new)?;
    drop(new);
    let at = nn::values(&weights)[0].address();
    let new = step.call(())?;
    assert_eq!((new[0].address(), numbers(&new[0])[5]), (at, 1.25));
    nn::assign(&weights, &new)?;
    // A value that something else holds stays what it is.
    let held = new;
    let next = step.call(())?;
    assert_eq!((numbers(&held[0])[5], numbers(&next[0])[5]), (1.25, 0.625));
    assert_eq!(numbers(&nn::values(&weights)[0])[5], 1.25);
    Ok(())
}

#[test]
fn a_call_that_fails_gives_weights_back() -> Result<(), Error> {
    let net = Linear::without_bias(&Scope::root(), 3, 2);
    let weights = net.parameters();
    nn::assign(&weights, &[counting(&[2, 3]) * 1.0])?;
    let step =
        |i: Tensor| (nn::values(&weights)[0].clone() * 2.0, counting(&[5]).index_select(0, i));
    let step = compile(step).donate_weights(&weights);
    let wrong = Tensor::from_slice(&[1], &[9i64])?;
    assert!(step.call(&wrong).is_err());
    assert_eq!(numbers(&nn::values(&weights)[0])[5], 5.0);
    assert_eq!(numbers(&step.call(Tensor::from_slice(&[1], &[2i64])?)?.0)[5], 10.0);
    Ok(())
}

#[test]
fn what_is_donated_in_vain_is_remarked() -> Result<(), Error> {
    let f = |w: Tensor| {
        let new = &w * 0.5;
        let old = w.matmul(&new);
        (new, old)
    };
    let f = compile(f).donate([0]);
    f.call(counting(&[4, 4]))?;
    let remarks = f.remarks();
    let told = "no result is in the memory of arg0, which is donated: kernel";
    assert!(remarks.iter().any(|r| r.message.starts_with(told)), "{remarks:?}");
    let f = compile(|w: Tensor| w + 1.0).donate([1]);
    let said = message(f.call(counting(&[4])));
    assert!(said.contains("there is no argument 1 to donate, of 1"), "{said}");
    Ok(())
}
