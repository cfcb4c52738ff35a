//! Kernel functions of modules.
use super::{
    CudaResult, alive,
    device::{SHARED, device},
    put,
    table::Table,
    valid,
};
use crate::ptx::Kernel;
use cudarc::driver::sys::{CUfunc_st, CUfunction, CUfunction_attribute, CUresult};
use std::{
    ffi::{c_int, c_uint},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

const DYNAMIC: c_uint =
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint;
/// Registers per thread that are reported, since PTX does not determine them.
const REGISTERS: c_int = 32;

/// A kernel with its attributes.
pub struct Function {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Limit of dynamic shared memory per launch, in bytes.
    dynamic: AtomicU32,
}

static ALL: Table<Function, CUfunc_st> = Table::new();

impl Function {
    /// Limit of dynamic shared memory per launch, in bytes.
    pub fn most_shared(&self) -> u32 {
        self.dynamic.load(Ordering::Relaxed)
    }
    fn attributes(&self) -> CudaResult<[(CUfunction_attribute, c_int); 9]> {
        use CUfunction_attribute::*;
        let (major, minor) = device()?.capability;
        let number = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
        Ok([
            (CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, number(self.kernel.threads.unwrap_or(1024))),
            (CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, number(self.kernel.shared)),
            (CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 0),
            (CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0),
            (CU_FUNC_ATTRIBUTE_NUM_REGS, REGISTERS),
            (CU_FUNC_ATTRIBUTE_PTX_VERSION, 10 * major + minor),
            (CU_FUNC_ATTRIBUTE_BINARY_VERSION, 10 * major + minor),
            (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, number(self.most_shared())),
            (
                CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                if self.kernel.cluster > 1 { number(self.kernel.cluster) } else { 0 },
            ),
        ])
    }
}

/// Creates a handle for a kernel.
pub fn add(kernel: &Arc<Kernel>) -> CUfunction {
    let dynamic = AtomicU32::new(SHARED.saturating_sub(kernel.shared));
    ALL.add(Function { kernel: kernel.clone(), dynamic })
}

/// The function of a handle.
pub fn find(function: CUfunction) -> CudaResult<Arc<Function>> {
    ALL.get(function)
}

/// Invalidates the handle when its module is unloaded.
pub fn remove(function: CUfunction) {
    let _ = ALL.take(function);
}

/// A function attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    to: *mut c_int,
    attribute: c_uint,
    function: CUfunction,
) -> CUresult {
    alive(|| {
        let all = find(function)?.attributes()?;
        let (_, value) = all
            .into_iter()
            .find(|(a, _)| *a as c_uint == attribute)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: room for a number.
        unsafe { put(to, value) }
    })
}

/// Sets the limit of dynamic shared memory; no other attribute can be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(
    function: CUfunction,
    attribute: c_uint,
    value: c_int,
) -> CUresult {
    alive(|| {
        let function = find(function)?;
        let most = device()?.shared.saturating_sub(function.kernel.shared);
        let value = u32::try_from(value).ok().filter(|n| attribute == DYNAMIC && *n <= most);
        valid(value.inspect(|n| function.dynamic.store(*n, Ordering::Relaxed)).is_some())
    })
}
