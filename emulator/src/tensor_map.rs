//! Tensor maps (TMA descriptors): the 128 bytes that `cuTensorMapEncodeTiled` and
//! `cuTensorMapEncodeIm2col` write, in the emulator's own encoding.

/// The first byte, which identifies a tensor map.
const MARK: u8 = 0xd5;

/// A decoded tensor map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TensorMap {
    /// Global address.
    pub address: u64,
    /// Dimensions, 1 to 5.
    pub rank: usize,
    /// Element size in bytes.
    pub width: usize,
    /// Whether f32 is converted to tf32 on load.
    pub tf32: bool,
    /// Whether the box has the 128-byte swizzle; otherwise it is not swizzled.
    pub swizzle: bool,
    /// Dimensions, innermost first.
    pub sizes: [u32; 5],
    /// Strides in bytes of all dimensions but the innermost.
    pub strides: [u64; 4],
    /// Box dimensions; for im2col, channels and pixels per column.
    pub extent: [u16; 5],
    /// Element strides.
    pub steps: [u8; 5],
    /// im2col only: the lower and upper corner of the pixel box, width first.
    pub corners: Option<[[i16; 3]; 2]>,
}

impl TensorMap {
    /// Encodes the tensor map.
    pub fn to_bytes(self) -> [u8; 128] {
        let mut out = vec![
            MARK,
            self.rank as u8,
            self.width as u8,
            u8::from(self.tf32)
                | u8::from(self.swizzle) << 1
                | u8::from(self.corners.is_some()) << 2,
        ];
        out.extend(self.address.to_le_bytes());
        out.extend(self.sizes.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(self.strides.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(self.extent.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(self.steps);
        out.extend(self.corners.unwrap_or_default().iter().flatten().flat_map(|v| v.to_le_bytes()));
        let mut bytes = [0; 128];
        bytes[..out.len()].copy_from_slice(&out);
        bytes
    }
    /// Decodes a tensor map; None for other bytes.
    pub fn of_bytes(bytes: &[u8; 128]) -> Option<TensorMap> {
        fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
            let (head, tail) = rest.split_first_chunk().expect("128 bytes hold all fields");
            *rest = tail;
            *head
        }
        let mut rest = bytes.as_slice();
        let [mark, rank, width, flags] = next(&mut rest);
        if mark != MARK {
            return None;
        }
        let address = u64::from_le_bytes(next(&mut rest));
        let sizes = [(); 5].map(|()| u32::from_le_bytes(next(&mut rest)));
        let strides = [(); 4].map(|()| u64::from_le_bytes(next(&mut rest)));
        let extent = [(); 5].map(|()| u16::from_le_bytes(next(&mut rest)));
        let steps = next(&mut rest);
        let corners = [(); 2].map(|()| [(); 3].map(|()| i16::from_le_bytes(next(&mut rest))));
        let (tf32, swizzle) = (flags & 1 != 0, flags & 2 != 0);
        let corners = (flags & 4 != 0).then_some(corners);
        Some(TensorMap {
            address,
            rank: rank.into(),
            width: width.into(),
            tf32,
            swizzle,
            sizes,
            strides,
            extent,
            steps,
            corners,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let map = TensorMap {
            address: 0x7f00_1234_5600,
            rank: 4,
            width: 2,
            tf32: true,
            swizzle: true,
            sizes: [64, 7, 9, 3, 0],
            strides: [128, 1 << 40, 3, 0],
            extent: [64, 128, 0, 0, 0],
            steps: [1, 2, 2, 1, 0],
            corners: Some([[-1, -1, 0], [-2, 1, 0]]),
        };
        assert_eq!(TensorMap::of_bytes(&map.to_bytes()), Some(map));
        let tiled = TensorMap { corners: None, ..map };
        assert_eq!(TensorMap::of_bytes(&tiled.to_bytes()), Some(tiled));
        assert_eq!(TensorMap::of_bytes(&[0; 128]), None);
    }
}
