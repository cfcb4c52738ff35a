//! Tiles of a row of the result: which input pixels they read, as far as that is static.
use crate::strategies::gpu::depthwise::SpatialDim;

/// The tiles of a row: those at its ends, whose windows leave the image or that are cut off, and
/// between them tiles that are all alike.
pub struct RowTiles {
    /// Pixels of a whole tile.
    pub pixels: i64,
    /// Tiles before those that are alike.
    pub first: std::ops::Range<i64>,
    /// Tiles that are alike.
    pub alike: std::ops::Range<i64>,
    /// Tiles after them.
    pub last: std::ops::Range<i64>,
}

impl RowTiles {
    /// Of a row of `wide.out` pixels.
    pub fn of(wide: &SpatialDim, pixels: i64) -> RowTiles {
        let pixels = pixels.clamp(1, wide.out);
        let count = (wide.out + pixels - 1) / pixels;
        // Inside: the first window begins in the image, the last one ends there.
        let begins = |tile: i64| tile * pixels * wide.stride >= wide.low;
        let reach = (wide.size - 1) * wide.dilation - wide.low;
        let ends = |tile: i64| {
            let end = (tile + 1) * pixels;
            end <= wide.out && (end - 1) * wide.stride + reach < wide.image
        };
        let start = (0..count).find(|t| begins(*t)).unwrap_or(count);
        let end = (start..count).rev().find(|t| ends(*t)).map_or(start, |t| t + 1);
        // One that is alone needs no loop.
        let (start, end) = if end - start < 2 { (count, count) } else { (start, end) };
        RowTiles { pixels, first: 0..start, alike: start..end, last: end..count }
    }

    /// The first pixel of a tile, and how many it has.
    pub fn tile(&self, wide: &SpatialDim, tile: i64) -> (i64, i64) {
        let start = tile * self.pixels;
        (start, self.pixels.min(wide.out - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pixel_is_in_one_tile_and_alike_ones_stay_inside() {
        let spatial = |size, stride, low, image| {
            let out = (image + 2 * low - size) / stride + 1;
            let padded = low > 0;
            SpatialDim { dim: None, size, stride, dilation: 1, low, image, out, padded }
        };
        for (size, stride, low) in
            [(7, 1, 3), (3, 1, 1), (3, 2, 1), (5, 1, 0), (1, 1, 0), (5, 3, 2)]
        {
            for image in [7, 8, 14, 23, 56, 57] {
                for pixels in [1, 3, 7, 8, 16] {
                    let wide = spatial(size, stride, low, image);
                    let t = RowTiles::of(&wide, pixels);
                    let all = [&t.first, &t.alike, &t.last].into_iter().flat_map(|r| r.clone());
                    let tiles: Vec<_> = all.map(|n| t.tile(&wide, n)).collect();
                    let mut next = 0;
                    for (start, count) in tiles {
                        assert_eq!((start, count > 0), (next, true), "{wide:?} {pixels}");
                        next += count;
                    }
                    assert_eq!(next, wide.out, "{wide:?} {pixels}");
                    for (start, count) in t.alike.clone().map(|n| t.tile(&wide, n)) {
                        let last = (start + count - 1) * stride + size - 1 - low;
                        assert!(count == t.pixels && start * stride >= low && last < image);
                    }
                }
            }
        }
    }
}
