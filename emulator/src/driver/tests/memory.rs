//! Memory, copies and what is known of addresses.
use super::*;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DEVICE: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
const HOST: u32 = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
const TYPE: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;

#[test]
fn device_memory_is_limited() {
    let _turn = ready();
    // SAFETY: room for what is asked for.
    unsafe {
        let (free, total) = {
            let (mut free, mut total) = (0, 0);
            done(cuMemGetInfo_v2(&mut free, &mut total));
            (free, total)
        };
        assert!(total == 8 << 30 && free <= total, "{free} of {total}");
        assert_eq!(made(|to| cuDeviceTotalMem_v2(to, 0)), total);
        refused(cuMemAlloc_v2(&mut 0, total + 1), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        refused(cuMemAlloc_v2(&mut 0, usize::MAX), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        refused(
            cuMemAllocAsync(&mut 0, total + 1, ptr::null_mut()),
            CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        );
        refused(cuMemAlloc_v2(&mut 0, 0), INVALID);
        let (a, b) = (memory(100), made(|to| cuMemAllocAsync(to, 100, ptr::null_mut())));
        assert!(a.is_multiple_of(256) && b.is_multiple_of(256) && a != b);
        refused(cuMemFree_v2(a + 1), INVALID);
        refused(cuMemFreeHost(ptr::with_exposed_provenance_mut(a as usize)), INVALID);
        done(cuMemFree_v2(a));
        refused(cuMemFree_v2(a), INVALID);
        done(cuMemFreeAsync(b, ptr::null_mut()));
    }
}

#[test]
fn copies_are_bounds_checked() {
    let _turn = ready();
    let (a, b, from) = (memory(8), memory(8), [1u8, 2, 3, 4, 5, 6, 7, 8]);
    let stream = stream();
    // SAFETY: room for so many.
    unsafe {
        assert_eq!(bytes(a, 8), [0xff; 8]);
        done(cuMemcpyHtoD_v2(a, from.as_ptr().cast(), 8));
        done(cuMemcpyDtoDAsync_v2(b + 2, a + 1, 5, stream));
        assert_eq!(bytes(b, 8), [255, 255, 2, 3, 4, 5, 6, 255]);
        done(cuMemcpyHtoDAsync_v2(b, from.as_ptr().cast(), 2, stream));
        let mut to = [0u8; 3];
        done(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), b, 3, stream));
        assert_eq!(to, [1, 2, 2]);
        done(cuMemcpyDtoD_v2(a, b, 8));
        done(cuMemcpyHtoD_v2(0, ptr::null(), 0));
        for (to, from, len) in [(a, b, 9), (a + 8, b, 1), (a, b + 1, 8), (0, b, 1)] {
            refused(cuMemcpyDtoDAsync_v2(to, from, len, stream), INVALID);
        }
        refused(cuMemcpyHtoD_v2(a, from.as_ptr().cast(), usize::MAX), INVALID);
        refused(cuMemcpyHtoD_v2(a, ptr::null(), 1), INVALID);
        // Pageable host memory is not device memory, nor the reverse.
        refused(cuMemcpyDtoD_v2(a, from.as_ptr().addr() as u64, 8), INVALID);
        refused(cuMemcpyHtoD_v2(a, ptr::with_exposed_provenance(b as usize), 8), INVALID);
        done(cuMemsetD8Async(a, 9, 3, stream));
        done(cuMemsetD32Async(a + 4, 0x0403_0201, 1, stream));
        assert_eq!(bytes(a, 8), [9, 9, 9, 3, 1, 2, 3, 4]);
        done(cuMemsetD8_v2(a, 0, 8));
        done(cuMemsetD32_v2(a, u32::MAX, 1));
        assert_eq!(bytes(a, 8), [255, 255, 255, 255, 0, 0, 0, 0]);
        refused(cuMemsetD8_v2(a, 0, 9), INVALID);
        refused(cuMemsetD32_v2(a + 1, 0, 1), INVALID);
        refused(cuMemsetD32_v2(a, 0, usize::MAX), INVALID);
        [a, b].into_iter().for_each(|at| done(cuMemFree_v2(at)));
        done(cuStreamDestroy_v2(stream));
    }
}

#[test]
fn pitched_copies() {
    let _turn = ready();
    let (a, b) = (memory(12), memory(9));
    let from: Vec<u8> = (0..12).collect();
    let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let mut what = CUDA_MEMCPY2D {
        srcXInBytes: 1,
        srcY: 0,
        srcMemoryType: device,
        srcHost: ptr::null(),
        srcDevice: a,
        srcArray: ptr::null_mut(),
        srcPitch: 4,
        dstXInBytes: 0,
        dstY: 1,
        dstMemoryType: device,
        dstHost: ptr::null_mut(),
        dstDevice: b,
        dstArray: ptr::null_mut(),
        dstPitch: 3,
        WidthInBytes: 2,
        Height: 2,
    };
    // SAFETY: descriptions and memory that live.
    unsafe {
        done(cuMemcpyHtoD_v2(a, from.as_ptr().cast(), 12));
        done(cuMemcpy2DAsync_v2(&what, ptr::null_mut()));
        assert_eq!(bytes(b, 9), [255, 255, 255, 1, 2, 255, 5, 6, 255]);
        let mut to = [0u8; 9];
        (what.dstMemoryType, what.dstHost) =
            (CUmemorytype::CU_MEMORYTYPE_HOST, to.as_mut_ptr().cast());
        done(cuMemcpy2DAsync_v2(&what, ptr::null_mut()));
        assert_eq!(to, [0, 0, 0, 1, 2, 0, 5, 6, 0]);
        what.Height = 4;
        refused(cuMemcpy2DAsync_v2(&what, ptr::null_mut()), INVALID);
        (what.Height, what.srcPitch) = (2, 2);
        refused(cuMemcpy2DAsync_v2(&what, ptr::null_mut()), INVALID);
        what.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
        refused(cuMemcpy2DAsync_v2(&what, ptr::null_mut()), CUresult::CUDA_ERROR_NOT_SUPPORTED);
        refused(cuMemcpy2DAsync_v2(ptr::null(), ptr::null_mut()), INVALID);
        [a, b].into_iter().for_each(|at| done(cuMemFree_v2(at)));
    }
}

#[test]
fn pointer_attributes() {
    let _turn = ready();
    let mut own = 0u8;
    let stranger = (&raw mut own).addr() as u64;
    let device = memory(100);
    // SAFETY: room for what is asked for.
    unsafe {
        let pinned = made(|to| cuMemHostAlloc(to, 64, 0));
        let host = pinned.addr() as u64;
        let kind = |at: u64| got::<u32>(|to| cuPointerGetAttribute(to.cast(), TYPE, at));
        assert_eq!(
            (kind(device + 99), kind(host + 63), kind(stranger)),
            (Ok(DEVICE), Ok(HOST), Err(INVALID))
        );
        assert_eq!(kind(device + 100), Err(INVALID));
        let wide = |what: CUpointer_attribute| {
            made::<u64>(|to| cuPointerGetAttribute(to.cast(), what as u32, device + 7))
        };
        assert_eq!(wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), device);
        assert_eq!(wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE), 100);
        assert_eq!(
            wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT),
            made(|to| cuCtxGetCurrent(to)).addr() as u64
        );
        let both = |at: u64| {
            let (mut kind, mut ordinal) = (7u32, 7i32);
            let mut asked = [TYPE, CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32];
            done(cuPointerGetAttributes(
                2,
                asked.as_mut_ptr(),
                [(&raw mut kind).cast(), (&raw mut ordinal).cast()].as_mut_ptr(),
                at,
            ));
            (kind, ordinal)
        };
        assert_eq!((both(device), both(host), both(stranger)), ((DEVICE, 0), (HOST, 0), (0, 0)));
        refused(cuPointerGetAttribute((&raw mut own).cast(), 999, device), INVALID);
        refused(cuPointerGetAttributes(0, ptr::null_mut(), ptr::null_mut(), device), INVALID);
        done(cuMemFreeHost(pinned));
        refused(cuMemFreeHost(pinned), INVALID);
        let pinned = made(|to| cuMemAllocHost_v2(to, 1));
        done(cuMemFreeHost(pinned));
        done(cuMemFree_v2(device));
    }
}
