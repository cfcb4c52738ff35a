//! `kiln-chunk-rows`: computes a large product and what reads it in chunks of rows.
//!
//! Why: the logits of a language model are its largest tensor, and a training step stores them
//! twice: as logits and as their derivative. The loss works on each row alone, and what leaves the
//! rows is small or a sum over them, such as the weight's gradient. In chunks all of this needs
//! the memory of one chunk (Liger kernels, Hsu et al., 2024; Inductor's `auto_chunker`). Upstream
//! tiles one op or fuses producers into a loop, but does not split sums over several readers.
//!
//! A product is chunked if its result has more than `bytes`, and what reads it reduces along its
//! rows, as a softmax does. Each op from there on has to be row-wise: elementwise, a broadcast, a
//! gather or scatter by row, a reduction along rows, a product with a matrix that all rows share.
//! Results of few elements a row are concatenated. Sums over rows, and products that contract
//! them, are added up, one chunk after another; of 16-bit floats in f32 where that takes at most
//! `f32-bytes`, else rounded after each chunk. If something else reads the rows, the product stays
//! as it is, and its attribute `kiln.not_chunked` says why.
//!
//! Numerics: reassociates sums over rows.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w …  %1 = kiln.exp %0  %2 = kiln.reduce sum %1 dims = [1] : tensor<256x512xf32>
//! after:   %3 = kiln.slice %x offsets = [0, 0] …  %4 = kiln.dot_general %3, %w …  %5 = kiln.exp %4  %6 = kiln.reduce sum %5 dims = [1] : tensor<128x512xf32>
//!          …  %2 = kiln.concat %6, %11 axis = 0
//! ```
mod emit;
mod region;
mod rows;
mod rules;

use crate::{
    pass::{Numerics, Pass},
    readers::erase_dead,
    remarks::remark,
};
use kiln_dialects::{
    ir::*,
    ops::OpKind,
    rules::{GRAPH_LEVELS, Level},
};
use region::Region;
use std::collections::HashSet;

crate::pass_options! {
    /// The pass.
    pub struct ChunkRows {
        /// Most bytes of a product's result; of larger ones a chunk has about as many; 0 for no limit
        pub bytes: i64 = 1073741824,
        /// Rows of a chunk are a multiple of it
        pub multiple: i64 = 128,
        /// Most chunks
        pub max_chunks: i64 = 16,
        /// Most bytes of a sum of 16-bit floats that is f32 from chunk to chunk
        pub f32_bytes: i64 = 1073741824,
    }
}

impl Pass for ChunkRows {
    const FLAG: &'static str = "kiln-chunk-rows";
    const SUMMARY: &'static str =
        "Computes large products and the losses that read them in chunks of rows";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.multiple < 1 || self.max_chunks < 1 {
            return Err("has a multiple or a number of chunks below 1".into());
        }
        if self.bytes < 1 {
            return Ok(());
        }
        let all: Vec<Block> = walk(root).into_iter().flat_map(blocks).collect();
        for block in all {
            // One at a time: a region may hold other large products, which are erased with it.
            let mut seen = HashSet::new();
            while let Some(product) = self.large(block, &seen).first().copied() {
                seen.insert(product);
                match Region::of(block, product) {
                    Ok(Some(region)) => {
                        let chunks = self.chunks(&region, rows::bytes(product.result(0)));
                        if chunks.len() > 1 {
                            let left =
                                self.large(block, &seen.union(&region.ops).copied().collect());
                            let read = emit::emit(&region, &chunks, self.f32_bytes).at(product)?;
                            erase_dead(read, is_free);
                            // Products of chunks are as small as they can be.
                            seen = self
                                .large(block, &left.into_iter().collect())
                                .into_iter()
                                .collect();
                        }
                    }
                    Ok(None) => {}
                    Err(why) => {
                        let said = format!("a large product is not chunked: {why}");
                        remark(product, Self::FLAG, &said);
                        let why = Attr::string(product.ctx(), &why);
                        product.set_attr("kiln.not_chunked", why);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Ops that are erased where nothing reads them any more.
fn is_free(kind: OpKind) -> bool {
    use OpKind::{BroadcastInDim, Gather, Reduce, Scatter, Splat};
    kind.is_elementwise()
        || matches!(kind, BroadcastInDim | Gather | Reduce | Scatter | Splat)
        || matches!(kind, OpKind::DotGeneral | OpKind::Iota | OpKind::Reshape)
        || matches!(kind, OpKind::Slice | OpKind::Transpose)
}

impl ChunkRows {
    /// The products whose results are too large, but for some.
    fn large(&self, block: Block, but: &HashSet<Op>) -> Vec<Op> {
        let large = |op: &Op| {
            op.kind() == Some(OpKind::DotGeneral)
                && !but.contains(op)
                && rows::bytes(op.result(0)).is_some_and(|n| n > self.bytes)
        };
        block.ops().into_iter().filter(large).collect()
    }
    /// First row and number of rows of each chunk.
    fn chunks(&self, region: &Region, bytes: Option<i64>) -> Vec<(i64, i64)> {
        let rows = region.count;
        let up = |n: i64, to: i64| n.saturating_add(to - 1) / to;
        let of_row = up(bytes.unwrap_or(0), rows).max(1);
        let most = (self.bytes / of_row / self.multiple * self.multiple).max(self.multiple);
        let count = up(rows, most).min(self.max_chunks);
        let each = up(up(rows, count), self.multiple) * self.multiple;
        (0..up(rows, each)).map(|k| (k * each, each.min(rows - k * each))).collect()
    }
}
