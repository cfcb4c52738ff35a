//! Conformance tests for backends: functions on random arguments, with static and dynamic shapes,
//! compared with the interpreter.
use crate::{
    Error,
    tensor::{Graph, Tensor, with_backend},
    tolerance,
};
use kiln_dialects::value::{self, DType, Data};

/// Outcome of one function on one backend.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The function's name.
    pub name: &'static str,
    /// The mismatch; `None` if the results are right.
    pub mismatch: Option<String>,
}

type Case = (&'static str, &'static [&'static [usize]], fn(&[Tensor]) -> Tensor);

/// Function names, shapes of the f32 arguments, functions.
const CASES: &[Case] = &[
    ("identity", &[&[3, 4]], |x| x[0].clone()),
    ("constant", &[&[3, 4]], |_| Graph::current().full((2, 2), 1.5, DType::F32)),
    ("add", &[&[3, 4], &[4]], |x| &x[0] + &x[1]),
    ("chain", &[&[3, 4]], |x| ((&x[0] * 2 + 1).tanh() - 0.5).exp()),
    ("broadcast", &[&[3, 1], &[1, 5]], |x| &x[0] * &x[1]),
    ("sum of rows", &[&[3, 4]], |x| x[0].sum(1, false)),
    ("sum of all", &[&[3, 4]], |x| x[0].sum(.., false)),
    ("mean and variance", &[&[3, 8]], |x| {
        (&x[0] - x[0].mean(1, true)) / (x[0].var(1, 1.0, true) + 1e-5).sqrt()
    }),
    ("softmax", &[&[3, 7]], |x| x[0].softmax(-1)),
    ("layer norm", &[&[3, 8], &[8], &[8]], |x| {
        x[0].layer_norm(&[8], Some(x[1].clone()), Some(x[2].clone()), 1e-5)
    }),
    ("matmul", &[&[3, 4], &[4, 5]], |x| x[0].matmul(&x[1])),
    ("batched matmul", &[&[3, 2, 4], &[4, 5]], |x| x[0].matmul(&x[1])),
    ("linear", &[&[3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(x[2].clone())).relu()),
    ("convolution", &[&[2, 3, 6, 6], &[4, 3, 3, 3]], |x| {
        x[0].conv2d(&x[1], None, Default::default())
    }),
    ("transpose", &[&[3, 4, 2]], |x| x[0].permute([2, 0, 1]) + 0),
    ("reshape", &[&[3, 4]], |x| x[0].reshape((-1,)) * 2),
    ("slice", &[&[5, 4]], |x| x[0].slice(0, 1, 4) + 1),
    ("concatenation", &[&[3, 4], &[2, 4]], |x| Graph::current().cat(x, 0)),
    ("where", &[&[3, 4]], |x| x[0].gt(0).where_(&x[0], x[0].exp())),
    ("comparison", &[&[3, 4], &[3, 4]], |x| x[0].lt(&x[1])),
    ("conversion", &[&[3, 4]], |x| (&x[0] * 4).to(DType::I64) % 3),
    ("double precision", &[&[3, 4]], |x| x[0].to(DType::F64) * 3 + 0.1),
    ("half precision", &[&[3, 4]], |x| x[0].to(DType::F16) + 1),
    ("bfloat16", &[&[3, 4]], |x| x[0].to(DType::BF16) + 1),
    ("integers", &[&[3, 4]], |x| (&x[0] * 8).to(DType::I32) + 3),
    ("maximum along rows", &[&[3, 4]], |x| x[0].max_dim(1, false).0),
    ("attention", &[&[1, 2, 5, 8], &[1, 2, 5, 8], &[1, 2, 5, 8]], |x| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Default::default())
    }),
    ("empty", &[&[0, 4]], |x| &x[0] + 1),
];

/// Uniform random numbers in [-2, 2), seeded (splitmix64).
fn random(shape: &[usize], seed: u64) -> Result<Tensor, Error> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f64 / (1u64 << 22) as f64 - 2.0
    };
    let all = (0..shape.iter().product()).map(|_: usize| next()).collect();
    let value = value::Tensor::new(DType::F32, shape.to_vec(), Data::F(all))
        .map_err(|e| Error::Backend(e.into()))?;
    Ok(Tensor::from(&value))
}

/// Runs the suite on a backend, on the host. Each function is compiled with static and with dynamic
/// shapes. Err: no such backend.
pub fn conformance(backend: &str) -> Result<Vec<CaseResult>, Error> {
    conformance_on(backend, "cpu")
}

/// As [`conformance`], on a device such as `cuda:0`. Err: no such backend, or an invalid device
/// name.
pub fn conformance_on(backend: &str, device: &str) -> Result<Vec<CaseResult>, Error> {
    super::find(backend)?;
    crate::runtime::DeviceId::parse(device).map_err(Error::Setting)?;
    let run = |case: &Case| {
        let (name, shapes, f) = *case;
        let mismatch = [Some(false), Some(true)].into_iter().find_map(|dynamic| {
            let outcome = compare((backend, device), shapes, f, dynamic)
                .unwrap_or_else(|e| Some(e.to_string()));
            outcome.map(|why| {
                format!("{}: {why}", if dynamic == Some(true) { "dynamic" } else { "static" })
            })
        });
        CaseResult { name, mismatch }
    };
    Ok(CASES.iter().map(run).collect())
}

fn compare(
    (backend, device): (&str, &str),
    shapes: &[&[usize]],
    f: fn(&[Tensor]) -> Tensor,
    dynamic: Option<bool>,
) -> Result<Option<String>, Error> {
    let inputs = shapes
        .iter()
        .enumerate()
        .map(|(i, s)| random(s, i as u64))
        .collect::<Result<Vec<_>, _>>()?;
    let want = with_backend("interpreter", || f(&inputs).value())??;
    let compiled = crate::compile(move |all: Vec<Tensor>| f(&all))
        .backend(backend)
        .device(device)
        .dynamic(dynamic);
    // Twice: the second call takes the warm path.
    for _ in 0..2 {
        let have = compiled.call(inputs.clone())?.value()?;
        let found = tolerance::compare(&have, &want).map_err(|e| Error::Backend(e.to_string()))?;
        if !found.ok {
            return Ok(Some(found.to_string()));
        }
    }
    Ok(None)
}
