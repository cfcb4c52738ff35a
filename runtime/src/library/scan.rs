//! Cumulative sums, products, maxima and minima.
use super::{
    abi::{Call, Lines},
    element::{Combine, Element, each_dtype},
};

/// Columns scanned together, so that a scan along an outer axis reads whole cache lines.
const COLUMNS: usize = 64;

/// `kiln.cumulative`: input; result. Attributes: kind, axis.
pub fn cumulative(call: &Call) -> Option<()> {
    let kind = Combine::of(*call.attributes.first()?)?;
    each_dtype!(call.tensors.first()?.code, E => run::<E>(call, kind))
}

fn run<E: Element>(call: &Call, kind: Combine) -> Option<()> {
    let [input, result] = &call.tensors[..] else { return None };
    let (x, out) = (input.read::<E>()?, result.write::<E>()?);
    let lines = Lines::of(&input.shape, call.axis(1, &input.shape)?);
    let mine = call.share(lines.count);
    let mut line = mine.start;
    while line < mine.end && lines.size > 0 {
        // Adjacent columns, up to the end of the inner block.
        let beside = if lines.step == 1 {
            1
        } else {
            (lines.step - line % lines.step).min(COLUMNS).min(mine.end - line)
        };
        let mut sums = [kind.identity::<E>(); COLUMNS];
        let start = lines.start(line);
        for i in 0..lines.size {
            let row = start + i * lines.step;
            for ((k, sum), v) in sums.iter_mut().enumerate().zip(x.get(row..row + beside)?) {
                *sum = kind.apply(*sum, v.widen());
                out.set(row + k, E::narrow(*sum));
            }
        }
        line += beside;
    }
    Some(())
}
