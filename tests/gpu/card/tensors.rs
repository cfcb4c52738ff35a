//! Tensors that stay on the GPU: copies, ops, compiled functions, segments, modules and training,
//! against the same on the host.
use super::*;
use kiln::{
    Tensor, compile,
    data::{Loader, Rows},
    dialects::value::DType,
    nn::{self, Linear, Module, Parameter, Scope},
    optim::{AdamW, Optimizer, State},
    runtime::cuda::DeviceMemory,
    tensor::TraceError,
};

pub static SUITE: Suite = Suite {
    name: "tensors",
    count: || if device().starts_with("cuda") { CASES.len() as u64 } else { 0 },
    label: |item| CASES[item as usize].0.into(),
    check: |item| match (CASES[item as usize].1)() {
        Ok(()) => Outcome::Agrees,
        Err(e) => failed(&e),
    },
    whole: true,
    emulated: 1,
};

type Case = (&'static str, fn() -> Result<(), Error>);
const CASES: &[Case] = &[
    ("copies", copies),
    ("ops", ops),
    ("a compiled function", compiled),
    ("a function that reads values", segments),
    ("control flow", control),
    ("a custom op", custom),
    ("weights", weights),
    ("a weights' file", file),
    ("training", training),
    ("donated weights and states", donated),
    ("donated arguments that are still read", || crate::front::donation::illegal(&device())),
    ("a decoder with a cache", || crate::front::session::decodes(&device())),
    ("a loader", loader),
    ("DLPack", dlpack),
    ("errors", errors),
];

/// Err: they differ.
fn same<T: PartialEq + std::fmt::Debug>(have: T, want: T, what: &str) -> Result<(), Error> {
    let told = || Error::Backend(format!("{what}: {have:?}, not {want:?}"));
    if have == want { Ok(()) } else { Err(told()) }
}

/// Err: not on the GPU, or other elements than on the host.
fn agrees(have: &Tensor, want: &Tensor, what: &str) -> Result<(), Error> {
    same(have.device()?.to_string(), on()?.to_string(), what)?;
    let found = kiln::tolerance::compare(&have.value()?, &want.value()?);
    let found = found.map_err(|e| Error::Backend(e.to_string()))?;
    if found.ok { Ok(()) } else { Err(Error::Backend(format!("{what}: {found}"))) }
}

fn on() -> Result<DeviceId, Error> {
    DeviceId::parse(&device()).map_err(Error::Setting)
}

fn numbers(shape: &[usize], seed: f32) -> Result<Tensor, Error> {
    let n = shape.iter().product();
    let all: Vec<f32> = (0..n).map(|i: usize| (i as f32 * seed).sin()).collect();
    Ok(Tensor::from_slice(shape, &all)?)
}

fn copies() -> Result<(), Error> {
    let x = numbers(&[5, 7], 0.7)?;
    let large = numbers(&[3, 1_000_000], 0.001)?;
    agrees(&large.to_device(&device()), &large, "many chunks")?;
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::I64, DType::I8, DType::I1] {
        let x = (&x * 3).to(dtype);
        let there = x.to_device(&device());
        agrees(&there, &x, dtype.name())?;
        let back = there.to_device("cpu");
        same(back.device()?, DeviceId::Host, "back")?;
        same(back.value()?, x.value()?, dtype.name())?;
    }
    // Memory of the caller's making.
    let index = on()?.gpu().unwrap_or(0);
    let memory =
        DeviceMemory::upload(index, &[1, 0, 1]).map_err(|e| Error::Backend(e.to_string()))?;
    let own = kiln::tensor::Array::on_device(DType::I1, &[3], memory)?;
    same(own.device_memory().map(|m| m.len()), Some(3), "its bytes")?;
    agrees(&Tensor::from(own), &Tensor::from_slice(&[3], &[true, false, true])?, "own memory")?;
    let none = Tensor::from_slice::<f32>(&[0, 3], &[])?.to_device(&device());
    agrees(&(&none + 1), &none.to_device("cpu"), "no elements")
}

fn ops() -> Result<(), Error> {
    let (x, y) = (numbers(&[33, 20], 0.3)?, numbers(&[20], 0.9)?);
    let there = x.to_device(&device());
    let f = |x: &Tensor, y: &Tensor| (x * 2 + y).relu().sum(1, false);
    // What is on the host beside them is copied.
    agrees(&f(&there, &y), &f(&x, &y), "a chain")?;
    agrees(&there.zeros_like(), &x.zeros_like(), "zeros")?;
    agrees(&there.matmul(y.unsqueeze(1)), &x.matmul(y.unsqueeze(1)), "a product")?;
    same(
        there.sum(.., false).item::<f64>()?.signum(),
        x.sum(.., false).item::<f64>()?.signum(),
        "a sign",
    )
}

fn compiled() -> Result<(), Error> {
    let f = compile(|x: Tensor, y: Tensor| ((&x * &y).softmax(-1), x)).fullgraph(true);
    let (x, y) = (numbers(&[8, 40], 0.3)?, numbers(&[8, 40], 0.2)?);
    let (there, other) = (x.to_device(&device()), y.to_device(&device()));
    let want = f.call((&x, &y))?;
    for _ in 0..2 {
        let have = f.call((&there, &other))?;
        agrees(&have.0, &want.0, "a result")?;
        agrees(&have.1, &x, "an argument")?;
        // A result is an argument of the next call.
        agrees(&f.call((&have.0, &other))?.0, &f.call((&want.0, &y))?.0, "the next call")?;
    }
    agrees(&f.call((&there, &y))?.0, &want.0, "one on the host")?;
    same(f.programs(), 3, "programs: both on the host, both on the GPU, one on each")
}

fn segments() -> Result<(), Error> {
    let f = compile(|x: Tensor| -> Result<Tensor, TraceError> {
        let y = (&x * 2).exp();
        let sum: f64 = y.sum(.., false).item()?;
        Ok(if sum > 0.0 { y / sum } else { x })
    });
    let x = numbers(&[6, 5], 0.4)?;
    let want = f.call(&x)?;
    for _ in 0..2 {
        agrees(&f.call(x.to_device(&device()))?, &want, "in segments")?;
    }
    Ok(())
}

/// Between its programs the host waits for conditions.
fn control() -> Result<(), Error> {
    let f = compile(|x: Tensor| -> Result<Tensor, TraceError> {
        let small = |x: Tensor| x.abs().amax(.., false).lt(100.0);
        let x = kiln::while_loop(small, |x: Tensor| x * 2, x)?;
        let positive = x.sum(.., false).gt(0.0);
        kiln::cond(positive, |x: Tensor| x.exp().log1p(), |x: Tensor| -x, x)
    });
    let f = f.fullgraph(true);
    for sign in [1.0, -1.0] {
        let x = &numbers(&[4, 9], 0.3)? * sign;
        agrees(&f.call(x.to_device(&device()))?, &f.call(&x)?, "branches and loops")?;
    }
    Ok(())
}

/// Its function reads host memory.
fn custom() -> Result<(), Error> {
    let sorted = kiln::custom_op("test::sorted")
        .shape(|x| Ok(x.to_vec()))
        .host(|inputs, outputs| {
            let to = outputs[0].elements_mut::<f32>()?;
            to.copy_from_slice(inputs[0].elements::<f32>()?);
            to.sort_by(f32::total_cmp);
            Ok(())
        })
        .register()?;
    let x = numbers(&[3, 5], 0.8)?;
    let there = x.to_device(&device());
    let want = sorted.one(std::slice::from_ref(&x));
    agrees(&sorted.one(std::slice::from_ref(&there)), &want, "at once")?;
    let f = compile(move |x: Tensor| sorted.one(&[x * 2]) - 1).fullgraph(true);
    agrees(&f.call(&there)?, &f.call(&x)?, "compiled")
}

/// Two layers.
struct Net(Linear, Linear);

impl Net {
    fn new() -> Net {
        let s = Scope::root();
        Net(Linear::new(&s.child("up"), 12, 32), Linear::new(&s.child("down"), 32, 3))
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.1.forward(&self.0.forward(x).gelu())
    }
    fn parameters(&self) -> Vec<&Parameter> {
        self.0.parameters().into_iter().chain(self.1.parameters()).collect()
    }
}

fn moved() -> Result<Net, Error> {
    let net = Net::new();
    net.to_device(&device())?;
    Ok(net)
}

fn weights() -> Result<(), Error> {
    let (x, net, there) = (numbers(&[4, 12], 0.1)?, Net::new(), moved()?);
    let (want, given) = (net.forward(&x), x.to_device(&device()));
    agrees(&there.forward(&given), &want, "eagerly")?;
    agrees(&(&there).compile().call(&given)?, &want, "compiled")?;
    let step = (&there).compile();
    agrees(&step.call(&x)?, &want, "an argument on the host")?;
    there.to_device("cpu")?;
    same(step.call(&x)?.device()?, DeviceId::Host, "after the weights moved back")?;
    there.to_device(&device())?;
    agrees(&step.call(&x)?, &want, "after they moved again")?;
    for (a, b) in net.parameters().iter().zip(there.parameters()) {
        same(b.device(), on()?, b.name())?;
        same(b.value()?.read()?, a.value()?.read()?, b.name())?;
        // A new value goes where the weight is.
        b.set(&a.value()?.read()?)?;
        same(b.device(), on()?, b.name())?;
    }
    Ok(())
}

fn file() -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::Backend(e.to_string()))?;
    let path = folder.path().join("net.safetensors");
    let (x, there) = (numbers(&[4, 12], 0.1)?, moved()?);
    let fail = |e: nn::WeightsError| Error::Backend(e.to_string());
    there.save(&path).map_err(fail)?;
    let want = Net::new().forward(&x);
    // Frozen from here on.
    there.load(&path).map_err(fail)?;
    let given = x.to_device(&device());
    agrees(&(&there).compile().call(&given)?, &want, "compiled")?;
    agrees(&there.forward(&given), &want, "eagerly")
}

/// The losses of some steps of AdamW, on a device.
fn losses(device: &str) -> Result<Vec<f64>, Error> {
    let net = Net::new();
    net.to_device(device)?;
    let weights = net.trainable();
    let adamw = AdamW { rate: 0.02.into(), ..AdamW::default() };
    let step = |x: Tensor, t: Tensor, state: State| -> Result<_, TraceError> {
        let loss = |x: Tensor| net.forward(&x).cross_entropy(&t, Default::default());
        let (loss, by) = nn::value_and_grad(weights.clone(), loss).call(x)?;
        let (new, state) = adamw.apply(nn::values(&weights), by, state)?;
        Ok((loss, new, state))
    };
    let step = compile(step).fullgraph(true);
    let mut state = adamw.init(&nn::values(&weights))?;
    let x = numbers(&[16, 12], 0.37)?.to_device(device);
    let classes: Vec<i64> = (0..16).map(|i| i % 3).collect();
    let t = Tensor::from_slice(&[16], &classes)?.to_device(device);
    let mut all = vec![];
    for _ in 0..6 {
        let (loss, new);
        (loss, new, state) = step.call((x.clone(), t.clone(), state))?;
        nn::assign(&weights, &new)?;
        all.push(loss.item::<f64>()?);
    }
    let id = DeviceId::parse(device).map_err(Error::Setting)?;
    for w in &weights {
        same(w.device(), id, w.name())?;
    }
    same(state.count.device()?, id, "the count of steps")?;
    same(step.programs(), 1, "programs of a step")?;
    Ok(all)
}

fn training() -> Result<(), Error> {
    let (want, have) = (losses("cpu")?, losses(&device())?);
    let near = want.iter().zip(&have).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs());
    let falls = have.last() < have.first();
    if near && falls { Ok(()) } else { Err(Error::Backend(format!("{have:?}, not {want:?}"))) }
}

fn donated() -> Result<(), Error> {
    use crate::front::donation::{KINDS, agrees};
    KINDS.iter().try_for_each(|kind| agrees(*kind, &device())).map_err(Error::Backend)
}

fn loader() -> Result<(), Error> {
    let (x, t) = (numbers(&[50, 300], 0.4)?, Tensor::from_slice(&[50], &[1i64; 50])?);
    let rows = || Rows::new((x.clone(), t.clone()));
    let host = Loader::new(rows()?, 16).shuffle(3);
    let there = Loader::new(rows()?, 16).shuffle(3).threads(2).device(&device());
    // Batches that nobody takes.
    drop(there.epoch(1)?.next());
    for (have, want) in there.epoch(2)?.zip(host.epoch(2)?) {
        let (have, want) = (have?, want?);
        agrees(&have.0, &want.0, "inputs")?;
        agrees(&(have.0.sum(1, false) + &have.1), &(want.0.sum(1, false) + &want.1), "a sum")?;
    }
    Ok(())
}

fn dlpack() -> Result<(), Error> {
    let x = numbers(&[6, 5], 0.4)?;
    let given = x.to_device(&device()).to_dlpack()?;
    // SAFETY: a tensor of kiln's own, which nobody writes.
    let back = unsafe { Tensor::from_dlpack(given) }?;
    agrees(&back, &x, "in place")?;
    agrees(&(&back * 2), &(&x * 2), "an operand")
}

fn errors() -> Result<(), Error> {
    let told = |e: String, words: &str| same(e.contains(words), true, &e);
    let x = numbers(&[4, 12], 0.1)?;
    let none = x.to_device("cuda:77").check();
    told(none.err().map_or(String::new(), |e| e.to_string()), "there is no GPU 77")?;
    let none = x.to_device("tpu").check();
    told(none.err().map_or(String::new(), |e| e.to_string()), "'tpu' is no device")?;
    Ok(())
}
