//! Peak resident memory and time of a training step on the host, with and without donated weights
//! and states: an MLP of 63 million weights with AdamW. Each case runs in a process of its own.
//! `cargo bench --bench donation`; `KILN_THREADS` sets the threads. Linux alone reports memory.
#![allow(missing_docs)]
use kiln::{
    Tensor,
    nn::{self, Linear, Module, Scope, Sequential},
    optim::{AdamW, Optimizer, State},
    tensor::{CrossEntropy, TraceError},
};
use std::{process::Command, time::Instant};

const SIZES: [usize; 6] = [2048, 4096, 4096, 4096, 4096, 1024];
const BATCH: usize = 16;
const STEPS: usize = 10;

fn network() -> Sequential {
    SIZES.windows(2).enumerate().fold(Sequential::new(&Scope::root()), |net, (i, pair)| {
        let (from, to) = (pair[0], pair[1]);
        let net = net.layer(|s| Linear::new(s, from, to));
        if i + 2 < SIZES.len() { net.apply(|x| x.relu()) } else { net }
    })
}

/// A line of `/proc/self/status` in MiB.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
    kib / 1024.0
}

/// Prints a row: the peak over all steps, the peak once the first ones are over, and times.
fn case(donate: bool) -> Result<(), kiln::Error> {
    let net = network();
    let weights = net.trainable();
    let adamw = AdamW { rate: 1e-4.into(), ..AdamW::default() };
    let mut state = adamw.init(&nn::values(&weights))?;
    let loss = |x: Tensor, t: Tensor| net.forward(&x).cross_entropy(t, CrossEntropy::default());
    let step = |x: Tensor, t: Tensor, s: State| -> Result<_, TraceError> {
        let (loss, by) = nn::value_and_grad(weights.clone(), loss).call((x, t))?;
        let (new, s) = adamw.apply(nn::values(&weights), by, s)?;
        Ok((loss, new, s))
    };
    let step = kiln::compile(step).fullgraph(true);
    let step = match donate {
        true => step.donate_weights(&weights),
        false => step.options([("donate", "false")]),
    };
    let x: Vec<f32> = (0..BATCH * SIZES[0]).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::from_slice(&[BATCH, SIZES[0]], &x)?;
    let t: Vec<i64> = (0..BATCH as i64).collect();
    let t = Tensor::from_slice(&[BATCH], &t)?;
    let (mut times, mut loss) = (vec![], f64::NAN);
    for i in 0..STEPS + 2 {
        if i == 2 {
            // Resets the peak to what is resident now.
            let _ = std::fs::write("/proc/self/clear_refs", "5");
        }
        let start = Instant::now();
        let (value, new);
        (value, new, state) = step.call((x.clone(), t.clone(), state))?;
        nn::assign(&weights, &new)?;
        loss = value.item()?;
        // The first compiles, and the second finds no donated memory of kiln's own yet.
        if i > 1 {
            times.push(start.elapsed());
        }
    }
    times.sort();
    let ms = |i: usize| times[i].as_secs_f64() * 1e3;
    let (peak, median, range) = (status("VmHWM"), ms(STEPS / 2), (ms(0), ms(STEPS - 1)));
    println!(
        "| {} | {peak:.0} | {median:.0} | {:.0} to {:.0} | {loss:.6} |",
        if donate { "donated" } else { "not donated" },
        range.0,
        range.1
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("donated") => return Ok(case(true)?),
        Some("fresh") => return Ok(case(false)?),
        _ => {}
    }
    let count: usize = SIZES.windows(2).map(|p| (p[0] + 1) * p[1]).sum();
    println!("| step of {count} weights, AdamW | peak, MiB | ms | range | loss |");
    println!("| --- | --- | --- | --- | --- |");
    for which in ["fresh", "donated"] {
        Command::new(std::env::current_exe()?).arg(which).status()?;
    }
    Ok(())
}
