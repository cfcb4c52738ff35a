//! Two custom ops: one computed by a host function between compiled kernels, and one defined by a
//! decomposition into ops, which fuses into kernels. On GPUs the second one launches external PTX
//! (`examples/swish.ptx`).
//!
//!   cargo run --example custom_op
use kiln::{Error, Ptx, Tensor, dialects::value::DType};

fn main() -> Result<(), Error> {
    run().map(|text| println!("{text}"))
}

/// The text to print.
pub fn run() -> Result<String, Error> {
    // A histogram: kiln has no op that counts occurrences.
    const BINS: usize = 4;
    let histogram = kiln::custom_op("example::histogram")
        .shape(|inputs| match inputs {
            [(DType::I64, _)] => Ok(vec![(DType::I64, vec![BINS.into()])]),
            _ => Err("takes one tensor of i64".into()),
        })
        .host(|inputs, outputs| {
            let counts = outputs[0].elements_mut::<i64>()?;
            counts.fill(0);
            for x in inputs[0].elements::<i64>()? {
                let count = usize::try_from(*x).ok().and_then(|x| counts.get_mut(x));
                *count.ok_or_else(|| format!("{x} is none of {BINS} values"))? += 1;
            }
            Ok(())
        })
        .register()?;
    // Kernel parameters: the addresses of x and of the result, and the element count.
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
    let y = f.call(Tensor::from_slice(&[7], &[0i64, 1, 5, 9, 2, 2, 4])?)?;
    let kernels: Vec<String> =
        f.explain().graphs.iter().flat_map(|g| &g.kernels).map(|(_, ops)| ops.join(" ")).collect();
    Ok(format!("{y}\nkernels: {}", kernels.join("; ")))
}
