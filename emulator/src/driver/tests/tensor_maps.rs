//! Descriptions of tensors.
use super::*;
use crate::{driver::tensor_map::*, tensor_map::TensorMap};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const BF16: u32 = CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 as u32;
const TF32: u32 = CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 as u32;
const SWIZZLE: u32 = CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B as u32;

/// What is described, for changing one thing at a time.
#[derive(Clone)]
struct Request {
    dtype: u32,
    address: usize,
    sizes: Vec<u64>,
    strides: Vec<u64>,
    extent: Vec<u32>,
    steps: Vec<u32>,
    interleave: u32,
    swizzle: u32,
}

impl Request {
    fn tiled() -> Request {
        let (sizes, strides, extent, steps) = (vec![100, 7], vec![208], vec![64, 128], vec![1, 1]);
        Request {
            dtype: BF16,
            address: 0x1000,
            sizes,
            strides,
            extent,
            steps,
            interleave: 0,
            swizzle: SWIZZLE,
        }
    }
    fn images() -> Request {
        let (sizes, strides, steps) =
            (vec![64, 20, 10, 3], vec![128, 2560, 25600], vec![1, 2, 2, 1]);
        Request { sizes, strides, extent: vec![64, 128], steps, ..Request::tiled() }
    }
    fn encode(&self, corners: Option<[[i32; 2]; 2]>) -> CudaResult<TensorMap> {
        let mut map = CUtensorMap { opaque: [0; 16] };
        let (rank, address) = (self.sizes.len() as u32, ptr::without_provenance_mut(self.address));
        let (sizes, strides, steps) =
            (self.sizes.as_ptr(), self.strides.as_ptr(), self.steps.as_ptr());
        let (to, dtype, interleave, swizzle) =
            (&raw mut map, self.dtype, self.interleave, self.swizzle);
        // SAFETY: arrays as the rank says.
        let told = unsafe {
            match corners {
                None => {
                    let extent = self.extent.as_ptr();
                    cuTensorMapEncodeTiled(
                        to, dtype, rank, address, sizes, strides, extent, steps, interleave,
                        swizzle, 2, 0,
                    )
                }
                Some([low, high]) => {
                    let (low, high, channels, pixels) =
                        (low.as_ptr(), high.as_ptr(), self.extent[0], self.extent[1]);
                    cuTensorMapEncodeIm2col(
                        to, dtype, rank, address, sizes, strides, low, high, channels, pixels,
                        steps, interleave, swizzle, 2, 0,
                    )
                }
            }
        };
        if told != CUresult::CUDA_SUCCESS {
            return Err(told);
        }
        // SAFETY: 128 bytes either way.
        Ok(TensorMap::of_bytes(unsafe { &*to.cast() }).expect("a description"))
    }
}

#[test]
fn tiled_maps() {
    let want = TensorMap {
        address: 0x1000,
        rank: 2,
        width: 2,
        swizzle: true,
        sizes: [100, 7, 0, 0, 0],
        strides: [208, 0, 0, 0],
        extent: [64, 128, 0, 0, 0],
        steps: [1; 5],
        ..TensorMap::default()
    };
    let asked = Request::tiled();
    assert_eq!(asked.encode(None), Ok(want));
    let tf32 = Request { dtype: TF32, extent: vec![32, 1], swizzle: 0, ..asked.clone() };
    assert_eq!(
        tf32.encode(None),
        Ok(TensorMap { tf32: true, width: 4, swizzle: false, extent: [32, 1, 0, 0, 0], ..want })
    );
    let changes: [&dyn Fn(&mut Request); 13] = [
        &|a| a.address = 0x1008,
        &|a| a.address = 0,
        &|a| a.sizes = vec![],
        &|a| a.sizes = vec![16; 6],
        &|a| a.sizes[1] = 0,
        &|a| a.sizes[0] = 1 << 33,
        &|a| a.strides[0] = 200,
        &|a| a.strides[0] = 1 << 40,
        &|a| a.extent[1] = 257,
        &|a| a.extent[1] = 0,
        &|a| a.extent[0] = 128,
        &|a| a.extent[0] = 4,
        &|a| a.steps[1] = 9,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut asked = asked.clone();
        change(&mut asked);
        assert_eq!(asked.encode(None), Err(INVALID), "{i}");
    }
    let plain = Request { extent: vec![128, 1], swizzle: 0, ..asked.clone() };
    assert!(plain.encode(None).is_ok());
    for asked in [
        Request { interleave: 1, ..asked.clone() },
        Request { swizzle: 1, ..asked.clone() },
        Request { dtype: 13, ..asked },
    ] {
        assert_eq!(asked.encode(None), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    }
}

#[test]
fn im2col_maps() {
    let (asked, corners) = (Request::images(), [[-1, -2], [3, -4]]);
    let want = TensorMap {
        address: 0x1000,
        rank: 4,
        width: 2,
        swizzle: true,
        sizes: [64, 20, 10, 3, 0],
        strides: [128, 2560, 25600, 0],
        extent: [64, 128, 0, 0, 0],
        steps: [1, 2, 2, 1, 1],
        corners: Some([[-1, -2, 0], [3, -4, 0]]),
        ..TensorMap::default()
    };
    assert_eq!(asked.encode(Some(corners)), Ok(want));
    assert!(Request { extent: vec![64, 1024], ..asked.clone() }.encode(Some(corners)).is_ok());
    for extent in [[64, 1025], [64, 0], [257, 1], [0, 1]] {
        assert_eq!(
            Request { extent: extent.into(), ..asked.clone() }.encode(Some(corners)),
            Err(INVALID),
            "{extent:?}"
        );
    }
    assert_eq!(asked.encode(Some([[-129, 0], [0, 0]])), Err(INVALID));
    assert_eq!(asked.encode(Some([[0, 0], [0, 128]])), Err(INVALID));
    assert_eq!(Request { sizes: vec![64, 20], ..asked }.encode(Some(corners)), Err(INVALID));
}
