//! `kiln-merge-groups`: joins groups of a 16-bit convolution until a group is as wide as a tile of
//! Hopper's tensor cores.
//!
//! Why: `wgmma` multiplies 64 columns by a K step of 64 channels. The groups of ResNeXt, RegNet and
//! the like have 4 to 48 channels: each would use a small part of a tile. A group of several has the
//! filters of all, whose weights are zero for the channels of the others (a block-diagonal matrix).
//! The weight grows by the number of groups that are joined, the image and the result stay as they
//! are. cuDNN's tensor-core kernels for grouped convolutions multiply such blocks too.
//!
//! As many groups are joined as need the fewest multiply-adds, with the zeros up to whole tiles.
//! `kiln.groups` marks convolutions that the tensor cores then read, also where a group is wide
//! enough as it is; the later passes pad and lay out only these as other convolutions. A
//! convolution without the mark stays as it was given, for cuDNN or `naive_contraction`.
//!
//! Numerics: reassociates; zeros are added. A NaN or an infinity in a channel reaches the filters
//! of all groups that are joined with its own.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w … groups = 32     (%x : [N, 128, H, W], %w : [128, 4, 3, 3])
//! after:   %b = kiln.select (kiln.compare eq %i, %j), (kiln.broadcast_in_dim (kiln.transpose %w)), 0
//!          %v = kiln.transpose %b                         (%v : [128, 64, 3, 3])
//!          %0 = kiln.convolution %x, %v … groups = 2 {kiln.groups = "joined by 16"}
//! ```
use crate::{
    kernels::{
        layout::flops,
        marks::GROUPS,
        op_facts::{fits_im2col, is_depthwise},
    },
    target::Chip,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass, permutation::channels_first};

kiln_passes::pass_options! {
    /// The pass.
    pub struct MergeGroups {
        /// Target GPU: only for sm_90a the pass does something
        pub chip: String = String::new(),
        /// Least floating-point operations of a convolution that is rewritten
        pub flops: i64 = 1000000,
        /// Most times that the multiply-adds may grow, with the zeros up to whole tiles
        pub growth: i64 = 32,
    }
}

/// Columns of the narrowest tile, and channels of a K step.
const TILE: i64 = 64;
/// 16-bit channels per 16-byte TMA unit.
const UNIT: i64 = 8;

impl Pass for MergeGroups {
    const FLAG: &'static str = "kiln-merge-groups";
    const SUMMARY: &'static str =
        "Joins narrow groups of 16-bit convolutions to groups of a tensor-core tile's width";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip != Chip::Sm90a.name() {
            return Ok(());
        }
        for op in walk(root) {
            let Some(groups) = Groups::of(op).filter(|g| flops(&g.op) >= self.flops) else {
                continue;
            };
            let Some(joined) = groups.joined(self.growth) else { continue };
            let (marked, said) = match joined {
                1 => (op, "as given".to_string()),
                several => (groups.replace(op, several)?, format!("joined by {several}")),
            };
            marked.set_attr(GROUPS, Attr::string(marked.ctx(), &said));
        }
        Ok(())
    }
}

/// How many of these groups, of so many channels and filters, can be joined so that TMA reads the
/// wider ones.
pub(super) fn readable(groups: i64, each: [i64; 2]) -> impl Iterator<Item = i64> {
    (1..=groups.min(TILE)).filter(move |n| {
        groups % n == 0 && each.iter().all(|size| n.saturating_mul(*size) % UNIT == 0)
    })
}

/// The elements of floats whose indices along two axes are equal; 0 elsewhere.
pub(super) fn diagonal(b: &Builder, on_true: Value, axes: [i64; 2]) -> Result<Value> {
    let (sizes, dtype) = (b.sizes_of(on_true)?, Type::scalar(b.ctx, DType::I64));
    let index = |axis: i64| b.add(&Iota { sizes: sizes.clone(), axis, dtype });
    let [lhs, rhs] = [index(axes[0])?, index(axes[1])?];
    let condition = b.add(&Compare { kind: CompareKind::Eq, lhs, rhs })?;
    let on_false = b.splat(tensor_type(on_true.ty())?.dtype, &sizes, 0.0)?;
    b.add(&Select { condition, on_true, on_false })
}

/// A two-dimensional convolution of several groups with several channels each.
struct Groups {
    op: Convolution,
    /// Channels and filters of a group, height and width of the window.
    channels: i64,
    filters: i64,
    window: [i64; 2],
}

impl Groups {
    fn of(op: Op) -> Option<Groups> {
        let o = Convolution::of(op)?;
        if op.attr(GROUPS).is_some() || o.groups < 2 || o.transposed || is_depthwise(&o) {
            return None;
        }
        let sizes: Option<Vec<i64>> = o.weight.ty().dims().iter().map(|d| d.known()).collect();
        let [all, channels, height, width] = sizes?[..] else { return None };
        let dtype = tensor_type(o.input.ty()).ok()?.dtype;
        let narrow = matches!(dtype, DType::BF16 | DType::F16);
        let image = o.input.ty().dims();
        let known = image.iter().skip(1).all(|d| d.known().is_some());
        let empty = [all, channels, height, width].contains(&0);
        (narrow && known && !empty && fits_im2col(&o, &[height, width])).then(|| Groups {
            filters: all / o.groups,
            op: o,
            channels,
            window: [height, width],
        })
    }

    /// How many groups to join, if TMA can read the wider groups and the multiply-adds grow by no
    /// more than `growth`.
    fn joined(&self, growth: i64) -> Option<i64> {
        let whole = |n: i64| (n + TILE - 1) / TILE * TILE;
        // Multiply-adds of a window position, for all groups.
        let work = |n: i64| {
            whole(n.saturating_mul(self.channels))
                .saturating_mul(whole(n.saturating_mul(self.filters)))
                .saturating_mul(self.op.groups / n)
        };
        let useful = self.channels.saturating_mul(self.filters).saturating_mul(self.op.groups);
        readable(self.op.groups, [self.channels, self.filters])
            .min_by_key(|n| work(*n))
            .filter(|n| work(*n) <= useful.saturating_mul(growth))
    }

    /// Replaces the convolution by one of fewer groups.
    fn replace(&self, op: Op, several: i64) -> Result<Op> {
        let b = Builder::before(op).ok_or_at(op, "is in no block")?;
        let weight = self.block_diagonal(&b.at(self.op.weight.loc()), several).at(op)?;
        let groups = self.op.groups / several;
        let new = b.create_node(&Convolution { weight, groups, ..self.op.clone() }).at(op)?;
        op.result(0).replace_uses(new.result(0));
        op.erase();
        Ok(new)
    }

    /// The weight `[filters, channels, ..]` of `several` times as many channels: zero where a
    /// channel is of another group than the filter. It is computed channels last.
    fn block_diagonal(&self, b: &Builder, several: i64) -> Result<Value> {
        let [height, width] = self.window;
        let (all, wide) = (self.op.groups / several, several * self.channels);
        // [joined groups, group of the filter, filters, .., group of the channel, channels].
        let apart = [all, several, self.filters, self.channels, height, width];
        let both = Size::all(&[all, several, self.filters, height, width, several, self.channels]);
        let split = b.add(&Reshape { input: self.op.weight, sizes: Size::all(&apart) })?;
        let last = b.add(&Transpose { input: split, permutation: vec![0, 1, 2, 4, 5, 3] })?;
        let spread =
            b.add(&BroadcastInDim { input: last, dims: vec![0, 1, 2, 3, 4, 6], sizes: both })?;
        let kept = diagonal(b, spread, [1, 5])?;
        let sizes = [all * several * self.filters, height, width, wide];
        let joined = b.add(&Reshape { input: kept, sizes: Size::all(&sizes) })?;
        b.add(&Transpose { input: joined, permutation: channels_first(4) })
    }
}
