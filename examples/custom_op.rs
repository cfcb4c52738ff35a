//! An op of one's own, computed by a function of the host, between ops that kiln compiles; and one
//! that is made of ops, which become part of a kernel, and on GPUs is a kernel of its own that is
//! given as PTX (`examples/swish.ptx`).
//!
//!   cargo run --example custom_op
use kiln::{Error, Ptx, Tensor, dialects::value::DType};

fn main() -> Result<(), Error> {
    run().map(|text| println!("{text}"))
}

/// What is printed.
pub fn run() -> Result<String, Error> {
    // How often each of so many values occurs: counts of a histogram, which no op of kiln's
    // computes.
    const BINS: usize = 4;
    let histogram = kiln::custom_op("example::histogram")
        .shape(|inputs| match inputs {
            [(DType::I64, _)] => Ok(vec![(DType::I64, vec![BINS.into()])]),
            _ => Err("takes one tensor of i64".into()),
        })
        .host(|inputs, outputs| {
            let counts = outputs[0].elements_mut::<i64>().map_err(|e| e.to_string())?;
            counts.fill(0);
            for x in inputs[0].elements::<i64>().map_err(|e| e.to_string())? {
                let count = usize::try_from(*x).ok().and_then(|x| counts.get_mut(x));
                *count.ok_or_else(|| format!("{x} is none of {BINS} values"))? += 1;
            }
            Ok(())
        })
        .register()?;
    // The kernel takes the addresses of x and of the result, and how many elements there are.
    let kernel = Ptx::new(include_str!("swish.ptx"), "swish")
        .sizes(|x, _| vec![x[0].1.iter().fold(1.into(), |n, d| n * *d)]);
    let swish = kiln::custom_op("example::swish")
        .shape(|x| if x[0].0 == DType::F32 { Ok(x.to_vec()) } else { Err("takes f32".into()) })
        .body(|x| Ok(vec![&x[0] * x[0].sigmoid()]))
        .ptx(kernel)
        .register()?;

    let f = kiln::compile(move |x: Tensor| {
        let counts = histogram.one(&[(&x % BINS as i64).to(DType::I64)]);
        swish.one(&[counts.to(DType::F32) - 2])
    })
    .fullgraph(true);
    let y = f.call(Tensor::of(&[7], &[0i64, 1, 5, 9, 2, 2, 4])?)?;
    let kernels: Vec<String> =
        f.explain().graphs.iter().flat_map(|g| &g.kernels).map(|(_, ops)| ops.join(" ")).collect();
    Ok(format!("{y}\nkernels: {}", kernels.join("; ")))
}
