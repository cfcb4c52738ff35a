//! `kiln-winograd`: computes 3x3 convolutions of stride 1 by Winograd's minimal filtering.
//!
//! Why: a tile of m by m results takes (m + 2)² products for each pair of channels instead of 9 m²:
//! 2.25 times fewer for m = 2, 4 times fewer for m = 4. The products of all tiles are one batched
//! matmul. Upstream's `linalg` has such a rewrite of its convolutions; kiln's are chosen and frozen
//! before they are linalg ops.
//!
//! The transforms of image and result, and the transformed weight, move memory. A convolution is
//! rewritten if its products and these bytes, counted as floating-point operations, cost less than
//! the direct form's: not with few channels, nor where few pixels share large weights.
//! Only images of static shape, on processors: tensor cores leave no products to save.
//!
//! Numerics: approximates. Products are of sums. The relative error of 512 channels in f32 is 1.2e-6
//! by the norm for m = 4, six times the direct form's, and 4e-7 for m = 2.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w …                   (%x : [N, C, H + 2, W + 2], channels last)
//! after:   %u = kiln.dot_general %G, %w : [36, C, K]         %v = kiln.winograd_input %x tile = 4 : [36, N, H/4, W/4, C]
//!          %m = kiln.dot_general %v, %u batch = [0] x [0]    %0 = kiln.winograd_output %m tile = 4 : [N, H/4, 4, W/4, 4, K]
//! ```
use crate::kernels::{frozen::Frozen, op_facts::zero_padding};
use kiln_dialects::{
    ir::*,
    ops::*,
    reference::winograd_filter_matrix,
    rules::{Level, tensor_type},
    sym::Dim,
    value::{DType, Tensor},
};
use kiln_passes::{
    Numerics, Pass,
    permutation::{channels_first, channels_last},
};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Winograd {
        /// Floating-point operations in the time of moving a byte of an image, in a cache
        pub image_byte: i64 = 10,
        /// Floating-point operations in the time of reading a byte of a weight, from memory
        pub weight_byte: i64 = 30,
        /// Least input channels and filters of a convolution that is rewritten
        pub channels: i64 = 16,
    }
}

/// Results of a tile in each direction.
const TILES: [i64; 2] = [2, 4];

impl Pass for Winograd {
    const FLAG: &'static str = "kiln-winograd";
    const SUMMARY: &'static str =
        "Computes 3x3 convolutions of stride 1 by Winograd's minimal filtering";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let all: Vec<Op> =
                ops.into_iter().filter(|o| o.kind() == Some(OpKind::Convolution)).collect();
            for op in all {
                let Some(form) = Form::of(op, &frozen).filter(|f| f.fits(self)) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?;
                form.rewrite(&b, self).at(op)?;
            }
        }
        Ok(())
    }
}

/// A convolution that has a Winograd form.
struct Form {
    op: Op,
    /// The image in NHWC, padded by the convolution's amounts.
    image: Value,
    /// Sizes of the image, and of the result.
    images: i64,
    padded: [i64; 2],
    channels: i64,
    filters: i64,
    weight: Value,
    is_frozen: bool,
}

impl Form {
    fn of(op: Op, frozen: &Frozen) -> Option<Form> {
        let o = Convolution::of(op).filter(|o| {
            let plain = o.groups == 1 && !o.transposed && o.strides == [1, 1];
            plain && o.dilation == [1, 1] && [&o.pad_low, &o.pad_high].iter().all(|p| **p == [0, 0])
        })?;
        let known = |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Option<Vec<_>>>();
        let [images, channels, height, width] = known(o.input)?[..] else { return None };
        let [filters, _, 3, 3] = known(o.weight)?[..] else { return None };
        let last = Transpose::of(o.input.def()?).filter(|t| t.permutation == channels_first(4))?;
        let padded = [height, width];
        let is_f32 = tensor_type(o.input.ty()).is_ok_and(|t| t.dtype == DType::F32);
        (is_f32 && images > 0 && padded.iter().all(|n| *n > 2)).then(|| Form {
            op,
            image: last.input,
            images,
            padded,
            channels,
            filters,
            weight: o.weight,
            is_frozen: frozen.contains(o.weight),
        })
    }

    fn fits(&self, pass: &Winograd) -> bool {
        let many = self.channels.min(self.filters) >= pass.channels;
        many && self.cost(self.tile(pass), pass) < self.direct(pass)
    }

    /// The tile that costs least.
    fn tile(&self, pass: &Winograd) -> i64 {
        TILES.into_iter().min_by_key(|m| self.cost(*m, pass)).unwrap_or(TILES[0])
    }

    /// Tiles in each direction.
    fn tiles(&self, m: i64) -> [i64; 2] {
        self.padded.map(|n| (n - 2 + m - 1) / m)
    }

    /// The direct form's operations, its weight read once.
    fn direct(&self, pass: &Winograd) -> i128 {
        let pixels: i64 = self.padded.iter().map(|n| n - 2).product();
        let weight = 9 * self.channels as i128 * self.filters as i128;
        2 * weight * (self.images * pixels) as i128 + pass.weight_byte as i128 * 4 * weight
    }

    /// The operations with tiles of `m`, and bytes: each transform reads and writes its tensor once,
    /// as the matmul does; a weight that is not frozen is transformed in each call.
    fn cost(&self, m: i64, pass: &Winograd) -> i128 {
        let square = ((m + 2) * (m + 2)) as i128;
        let tiles = self.images as i128 * self.tiles(m).iter().product::<i64>() as i128;
        let (channels, filters) = (self.channels as i128, self.filters as i128);
        let weight = square * channels * filters;
        let moved = 2 * square * tiles * (channels + filters);
        let (again, transform) = if self.is_frozen { (0, 0) } else { (weight, 2 * 9 * weight) };
        let bytes = pass.image_byte as i128 * moved + pass.weight_byte as i128 * (weight + again);
        2 * weight * tiles + transform + 4 * bytes
    }

    fn rewrite(&self, b: &Builder, pass: &Winograd) -> Result<()> {
        let m = self.tile(pass);
        let [rows, columns] = self.tiles(m);
        let (square, tiles) = ((m + 2) * (m + 2), self.images * rows * columns);
        let reshape =
            |input: Value, sizes: &[i64]| b.add(&Reshape { input, sizes: Size::all(sizes) });
        let more = [rows * m + 2 - self.padded[0], columns * m + 2 - self.padded[1]];
        let image = padded_further(b, self.image, more)?;
        let v = b.add(&WinogradInput { input: image, tile: m })?;
        let lhs = reshape(v, &[square, tiles, self.channels])?;
        let rhs = self.filter(b, m)?;
        let products = b.add(&DotGeneral {
            lhs,
            rhs,
            lhs_batch: vec![0],
            rhs_batch: vec![0],
            lhs_contract: vec![2],
            rhs_contract: vec![1],
            element_type: None,
        })?;
        let squares = reshape(products, &[square, self.images, rows, columns, self.filters])?;
        let y = b.add(&WinogradOutput { input: squares, tile: m })?;
        let whole = reshape(y, &[self.images, rows * m, columns * m, self.filters])?;
        let [height, width] = self.padded.map(|n| n - 2);
        let sizes = Size::all(&[self.images, height, width, self.filters]);
        let result = if more == [0, 0] {
            whole
        } else {
            let (offsets, strides) = (Size::all(&[0; 4]), vec![1; 4]);
            b.add(&Slice { input: whole, offsets, sizes, strides })?
        };
        self.replace(b, result)
    }

    /// The weight's squares, [(m + 2)², C, K].
    fn filter(&self, b: &Builder, m: i64) -> Result<Value> {
        let b = b.at(self.weight.loc());
        let g = winograd_filter_matrix(m)?;
        let entry = |i: usize, k: usize| {
            let n = g.len();
            g[i / n][k / 3] * g[i % n][k % 3]
        };
        let square = g.len() * g.len();
        let numbers: Vec<f64> = (0..square * 9).map(|at| entry(at / 9, at % 9)).collect();
        let numbers = Tensor::floats(DType::F32, vec![square, 9], numbers)?;
        let ty = Type::tensor(b.ctx, DType::F32, &[square, 9].map(|n| Dim::Known(n as i64)));
        let constant = Constant { value: Attr::dense(b.ctx, &numbers)? };
        let lhs = b.create_with(&constant, &[ty], &mut [])?.result(0);
        let last = b.add(&Transpose { input: self.weight, permutation: vec![2, 3, 1, 0] })?;
        let sizes = Size::all(&[9, self.channels, self.filters]);
        let rhs = b.add(&Reshape { input: last, sizes })?;
        b.add(&DotGeneral {
            lhs,
            rhs,
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract: vec![1],
            rhs_contract: vec![0],
            element_type: None,
        })
    }

    /// Gives the convolution's readers the result, which is NHWC.
    fn replace(&self, b: &Builder, result: Value) -> Result<()> {
        let old = self.op.result(0);
        for (user, _) in old.uses() {
            if Transpose::of(user).is_some_and(|t| t.permutation == channels_last(4)) {
                user.result(0).replace_uses(result);
                user.erase();
            }
        }
        if !old.uses().is_empty() {
            old.replace_uses(b.add(&Transpose { input: result, permutation: channels_first(4) })?);
        }
        let input = self.op.operand(0);
        self.op.erase();
        // The transpose of the image, and the padding that has grown.
        for v in [input, self.image] {
            v.def().filter(|_| v.uses().is_empty()).into_iter().for_each(Op::erase);
        }
        Ok(())
    }
}

/// An NHWC image with more zeros after its rows and columns; padding that it has already grows.
fn padded_further(b: &Builder, image: Value, more: [i64; 2]) -> Result<Value> {
    if more == [0, 0] {
        return Ok(image);
    }
    let high = |old: &[Size]| -> Option<Vec<Size>> {
        let grown = |(size, n): (&Size, i64)| Some(Size::Static(size.known()? + n));
        old.iter().zip([0, more[0], more[1], 0]).map(grown).collect()
    };
    let pad = zero_padding(image).and_then(|p| {
        let high = high(&p.high).filter(|_| image.uses().len() == 1)?;
        Some(Pad { high, ..p })
    });
    match pad {
        Some(pad) => b.add(&pad),
        None => {
            let value = b.splat(DType::F32, &[], 0.0)?;
            let (low, high) = (Size::all(&[0; 4]), high(&Size::all(&[0; 4])).unwrap_or_default());
            b.add(&Pad { input: image, value, low, high })
        }
    }
}
