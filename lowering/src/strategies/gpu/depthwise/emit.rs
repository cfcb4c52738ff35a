//! Depthwise convolutions: a thread takes 16 bytes of channels and several neighbouring output
//! pixels in width, and loads each input pixel under their windows once.
use crate::{
    analysis::NestPlan,
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{Loops, decode},
    },
    strategies::gpu::{
        common::{grid_stride, threads},
        depthwise::{DepthwiseWindow, Params, depthwise},
    },
};
use kiln_dialects::ir::*;

/// What all pixels of a thread share.
struct PixelRow<'a> {
    scope: &'a Scope<'a>,
    d: &'a DepthwiseWindow,
    lanes: Lanes,
    /// The first channel.
    channel: Value,
    /// Predicate: whether the line is inside the image; `None` if always.
    inside: Option<Value>,
    /// Index of the line over all images, times the pixels per line.
    start: Value,
}

impl PixelRow<'_> {
    fn lane(&self, i: Value) -> LaneValue {
        if self.lanes.count == 1 { LaneValue::Uniform(i) } else { LaneValue::Strided(i, 1) }
    }
    /// The channels of a pixel; zeros in the padding.
    fn pixel(&self, c: Code, x: Value) -> Result<LaneValue> {
        let (memory, wide) = (self.scope.buffer(self.d.image)?, &self.d.spatial[1]);
        let beside = if wide.padded { Some(c.less_than(x, c.index(wide.image)?)?) } else { None };
        let inside = c.all_of(&[self.inside, beside].into_iter().flatten().collect::<Vec<_>>())?;
        let at = c.add(c.mul(c.add(self.start, x)?, c.index(self.d.channels)?)?, self.channel)?;
        let Some(inside) = inside else { return self.lanes.load(c, memory, self.lane(at)) };
        // In the padding, reads the first pixel instead, which exists.
        let read = self.lanes.load(c, memory, self.lane(c.select(inside, at, self.channel)?))?;
        let value = self.lanes.vector(c, read)?;
        let value = c.select(inside, value, c.number(0.0, value.ty())?)?;
        Ok(if self.lanes.count == 1 { LaneValue::Uniform(value) } else { LaneValue::Vector(value) })
    }
}

/// Emits the nest of the convolution, and what is written beside its result.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &Params,
    threads: usize,
) -> Result<()> {
    let d =
        depthwise(scope.kernel, plan).ok_or("is no depthwise convolution with channels last")?;
    let (nest, stage) = (&plan.nests[0], &scope.kernel.stages[d.stage]);
    let [high, wide] = &d.spatial;
    let vector = params.vector as i64;
    if d.channels % vector != 0 {
        return Err(format!(
            "has a schedule of vectors of {vector}, of which {} channels are no multiple",
            d.channels
        )
        .into());
    }
    let across = (params.pixels as i64).clamp(1, wide.out);
    let lanes = Lanes { count: vector as usize, mask: None };
    let loops = Loops { scope, nest, vector: d.fast(), lanes: vector as usize, unroll: 1 };
    let size =
        |dim: Option<usize>| dim.map_or_else(|| c.index(1), |d| scope.poly(c, &nest.extents[d]));
    let sizes = [
        size(d.dims[0])?,
        size(d.dims[1])?,
        c.index((wide.out + across - 1) / across)?,
        c.index(d.channels / vector)?,
    ];
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let block = c.index(threads as i64)?;
    let [first, step] = threads::grid_stride(c, block)?;
    c.for_dynamic_step(first, total, step, &[], &mut |c, i, _| {
        let at = decode(c, i, &sizes)?;
        let [image, line, part, channels] = at.as_slice() else {
            return Err("has lost an index".into());
        };
        // The last tile of a line overlaps the one before it rather than be partial; it writes the
        // same results again.
        let left = c.min(c.mul(*part, c.index(across)?)?, c.index(wide.out - across)?)?;
        let channel = c.mul(*channels, c.index(vector)?)?;
        let dims = |c: Code, column: i64, window: [Value; 2]| -> Result<Vec<LaneValue>> {
            let mut all = vec![LaneValue::Uniform(c.index(0)?); nest.extents.len()];
            let own = [*image, *line, c.add(left, c.index(column)?)?]
                .map(LaneValue::Uniform)
                .into_iter()
                .chain([loops.lane(c, channel, 0)?]);
            let window = window.map(LaneValue::Uniform);
            for (d, v) in
                d.dims.iter().zip(own).chain([&high.dim, &wide.dim].into_iter().zip(window))
            {
                d.iter().for_each(|d| all[*d] = v);
            }
            Ok(all)
        };
        let zero = c.index(0)?;
        let mut sums = vec![];
        for column in 0..across {
            let start = scope.initial_value(
                c,
                &stage.outputs[0].init,
                &dims(c, column, [zero; 2])?,
                lanes,
                &ForwardedElements::new(),
            )?;
            sums.push(lanes.vector(c, start.ok_or("reduces into a tensor without contents")?)?);
        }
        let top = c.sub(c.mul(*line, c.index(high.stride)?)?, c.index(high.low)?)?;
        let begin = c.sub(c.mul(left, c.index(wide.stride)?)?, c.index(wide.low)?)?;
        let sums = c.for_loop(zero, c.index(high.size)?, 1, &sums, &mut |c, down, sums| {
            let y = c.add(top, c.mul(down, c.index(high.dilation)?)?)?;
            let inside =
                if high.padded { Some(c.less_than(y, c.index(high.image)?)?) } else { None };
            let start =
                c.mul(c.add(c.mul(*image, c.index(high.image)?)?, y)?, c.index(wide.image)?)?;
            let row = PixelRow { scope, d: &d, lanes, channel, inside, start };
            let weight = &stage.inputs[usize::from(d.first)];
            let read = |n: i64| {
                scope.read(
                    c,
                    weight,
                    &dims(c, 0, [down, c.index(n)?])?,
                    lanes,
                    &ForwardedElements::new(),
                )
            };
            let weights = (0..wide.size).map(read).collect::<Result<Vec<LaneValue>>>()?;
            let mut sums = sums.to_vec();
            for x in 0..=(across - 1) * wide.stride + (wide.size - 1) * wide.dilation {
                // The window offset of an output pixel that covers this input pixel.
                let under = |column: i64| {
                    let place = x - column * wide.stride;
                    (place >= 0 && place % wide.dilation == 0 && place / wide.dilation < wide.size)
                        .then_some((column, place / wide.dilation))
                };
                let all: Vec<(i64, i64)> = (0..across).filter_map(under).collect();
                if all.is_empty() {
                    continue;
                }
                let pixel = row.pixel(c, c.add(begin, c.index(x)?)?)?;
                for (column, place) in all {
                    let sum = &mut sums[column as usize];
                    let factors = if d.first {
                        [pixel, weights[place as usize]]
                    } else {
                        [weights[place as usize], pixel]
                    };
                    let running = if lanes.count == 1 {
                        LaneValue::Uniform(*sum)
                    } else {
                        LaneValue::Vector(*sum)
                    };
                    let made = scope.stage(
                        c,
                        stage,
                        vec![Some(factors[0]), Some(factors[1]), Some(running)],
                        &[],
                        lanes,
                    )?;
                    *sum = lanes.vector(c, *made.first().ok_or("has no sum")?)?;
                }
            }
            Ok(sums)
        })?;
        for (column, sum) in sums.iter().enumerate() {
            loops.finish(c, &dims(c, column as i64, [zero; 2])?, lanes, &[*sum])?;
        }
        Ok(vec![])
    })?;
    grid_stride::other_nests(c, scope, plan, 1, threads)
}
