//! Products by cuBLASLt, which is looked for when one is first asked for. cudarc would panic where
//! it is not.
//!
//! The library takes matrices by columns, so that it is asked for the transposed result: right
//! times left.
use super::CudaError;
use crate::gemm::{Activation, Gemm, Matrix};
use cudarc::{
    cublaslt::{result, sys},
    driver::sys as driver,
};
use std::{
    ffi::c_void,
    sync::{Arc, OnceLock},
};
use sys::{
    cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayoutAttribute_t as Layout,
};

/// Most bytes that a product may ask for beside its operands, as much as other frameworks allow on
/// Hopper.
const WORKSPACE: usize = 32 << 20;
/// Pointers are multiples of so many bytes at least.
const ALIGNED: u32 = 16;

/// Whether the library is found.
pub fn present() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens and closes a library.
    *FOUND.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// What has been looked for, in words.
pub fn searched() -> String {
    super::searched("libcublasLt.so.12", cudarc::get_lib_name_candidates("cublasLt"))
}

fn error(what: &'static str) -> impl Fn(result::CublasError) -> CudaError {
    move |e| CudaError::Driver { what, reason: format!("cuBLASLt says {:?}", e.0) }
}

/// The library on a card.
pub struct Handle(sys::cublasLtHandle_t);
// SAFETY: the library's handle may be used from any thread, by several at once.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens it for the current card. Err: it is not found, or does not start.
    pub fn new() -> Result<Handle, CudaError> {
        if !present() {
            return Err(CudaError::Driver {
                what: "looking for cuBLASLt",
                reason: format!("looked for {}", searched()),
            });
        }
        result::create_handle().map(Handle).map_err(error("starting cuBLASLt"))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no product is left that uses it.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

/// A layout, destroyed with it.
struct Described(sys::cublasLtMatrixLayout_t);

impl Described {
    fn new(m: &Matrix, batch: u32) -> Result<Described, CudaError> {
        let fail = error("describing a matrix to cuBLASLt");
        let [lines, each] = m.lines;
        let layout = Described(
            result::create_matrix_layout(element(&m.dtype)?, each, lines, m.stride as i64)
                .map_err(&fail)?,
        );
        if batch > 1 {
            let (count, apart) = (batch as i32, m.apart as i64);
            // SAFETY: attributes of these types.
            unsafe {
                let set = |which, at: *const c_void, bytes| {
                    result::set_matrix_layout_attribute(layout.0, which, at, bytes).map_err(&fail)
                };
                set(Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
                set(
                    Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const apart).cast(),
                    8,
                )?;
            }
        }
        Ok(layout)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

fn element(dtype: &str) -> Result<sys::cudaDataType, CudaError> {
    match dtype {
        "bf16" => Ok(sys::cudaDataType::CUDA_R_16BF),
        "f16" => Ok(sys::cudaDataType::CUDA_R_16F),
        "f32" => Ok(sys::cudaDataType::CUDA_R_32F),
        other => Err(CudaError::Driver {
            what: "describing a matrix to cuBLASLt",
            reason: format!("there is no form of {other}"),
        }),
    }
}

fn width(dtype: &str) -> u64 {
    crate::view::byte_size(dtype).unwrap_or(1) as u64
}

/// A product that the library has found an algorithm for.
pub struct Product {
    handle: Arc<Handle>,
    gemm: Gemm,
    /// How it computes, without the bias's address.
    epilogue: sys::cublasLtEpilogue_t,
    left: Described,
    right: Described,
    result: Described,
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes of memory that it needs beside.
    pub workspace: usize,
}
// SAFETY: descriptions are only read once they are made.
unsafe impl Send for Product {}
unsafe impl Sync for Product {}

/// What to compute, destroyed with it.
struct Task(sys::cublasLtMatmulDesc_t);

impl Task {
    fn new(
        g: &Gemm,
        epilogue: sys::cublasLtEpilogue_t,
        bias: Option<u64>,
    ) -> Result<Task, CudaError> {
        let fail = error("describing a product to cuBLASLt");
        let compute = if g.tf32 {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        };
        let task = Task(
            result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F).map_err(&fail)?,
        );
        // Of both operands the library wants the depth as rows of the first and columns of the
        // second.
        let first = if g.right.transposed { 1i32 } else { 0 };
        let second = if g.left.transposed { 1i32 } else { 0 };
        // SAFETY: attributes of these types; an address of the card is a pointer.
        unsafe {
            let set = |which, at: *const c_void, bytes| {
                result::set_matmul_desc_attribute(task.0, which, at, bytes).map_err(&fail)
            };
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const first).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const second).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), 4)?;
            if let Some(address) = bias {
                set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const address).cast(), 8)?;
            }
        }
        Ok(task)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

impl Product {
    /// Asks the library for the algorithm that it thinks the fastest. Err: it has none, or the
    /// description is none.
    pub fn new(handle: &Arc<Handle>, gemm: &Gemm) -> Result<Product, CudaError> {
        use sys::cublasLtEpilogue_t::{
            CUBLASLT_EPILOGUE_BIAS as BIAS, CUBLASLT_EPILOGUE_DEFAULT as PLAIN,
            CUBLASLT_EPILOGUE_GELU as GELU, CUBLASLT_EPILOGUE_GELU_BIAS as GELU_BIAS,
            CUBLASLT_EPILOGUE_RELU as RELU, CUBLASLT_EPILOGUE_RELU_BIAS as RELU_BIAS,
        };
        let epilogue = match (gemm.activation, gemm.bias.is_some()) {
            (Activation::None, false) => PLAIN,
            (Activation::None, true) => BIAS,
            (Activation::Relu, false) => RELU,
            (Activation::Relu, true) => RELU_BIAS,
            (Activation::GeluTanh, false) => GELU,
            (Activation::GeluTanh, true) => GELU_BIAS,
        };
        let one = |m: &Matrix| Described::new(m, gemm.batch);
        let (left, right, result) = (one(&gemm.left)?, one(&gemm.right)?, one(&gemm.result)?);
        // Any aligned address will do to choose by.
        let task = Task::new(gemm, epilogue, gemm.bias.map(|_| 256))?;
        let fail = error("asking cuBLASLt for an algorithm");
        let wish = result::create_matmul_pref().map_err(&fail)?;
        let choose = || -> Result<_, CudaError> {
            use Preference::{
                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as BYTES,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES as A,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES as B,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES as C,
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES as D,
            };
            let (most, aligned) = (WORKSPACE, ALIGNED);
            // SAFETY: attributes of these types, and live descriptions.
            unsafe {
                let set = |which, at: *const c_void, bytes| {
                    result::set_matmul_pref_attribute(wish, which, at, bytes).map_err(&fail)
                };
                set(BYTES, (&raw const most).cast(), 8)?;
                for which in [A, B, C, D] {
                    set(which, (&raw const aligned).cast(), 4)?;
                }
                result::get_matmul_algo_heuristic(
                    handle.0, task.0, right.0, left.0, result.0, result.0, wish,
                )
                .map_err(&fail)
            }
        };
        let chosen = choose();
        // SAFETY: made above, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(wish) };
        let chosen = chosen?;
        let workspace = chosen.workspaceSize;
        Ok(Product {
            handle: handle.clone(),
            gemm: gemm.clone(),
            epilogue,
            left,
            right,
            result,
            algorithm: chosen.algo,
            workspace,
        })
    }

    /// Gives it to a stream. `parameters`: the launch's, of which some are addresses; `scratch`:
    /// the address of [`Product::workspace`] bytes.
    pub fn launch(
        &self,
        parameters: &[u64],
        scratch: u64,
        stream: driver::CUstream,
    ) -> Result<(), CudaError> {
        let fail = error("a product by cuBLASLt");
        let address = |arg: usize, offset: u64, dtype: &str| {
            let word = parameters.get(arg).ok_or_else(|| CudaError::Driver {
                what: "a product by cuBLASLt",
                reason: format!("there is no parameter {arg}"),
            })?;
            Ok::<u64, CudaError>(word + offset * width(dtype))
        };
        let of = |m: &Matrix| address(m.arg, m.offset, &m.dtype);
        let g = &self.gemm;
        let (left, right, to) = (of(&g.left)?, of(&g.right)?, of(&g.result)?);
        let bias = g.bias.map(|v| address(v.arg, v.offset, &g.result.dtype)).transpose()?;
        // The bias's address is part of the description, and calls may come from several threads.
        let task = Task::new(g, self.epilogue, bias)?;
        let (one, zero) = (1f32, 0f32);
        // SAFETY: matrices of these sizes lie at these addresses, as the program says; what was
        // there of the result is not read, since it counts 0 times.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle.0,
                task.0,
                (&raw const one).cast(),
                right as *const c_void,
                self.right.0,
                left as *const c_void,
                self.left.0,
                (&raw const zero).cast(),
                to as *const c_void,
                self.result.0,
                to as *mut c_void,
                self.result.0,
                &self.algorithm,
                scratch as *mut c_void,
                self.workspace,
                stream.cast(),
            )
        };
        status.result().map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_the_error_says_what_was_searched() {
        if present() {
            return;
        }
        let e = Handle::new().err().expect("there is none").to_string();
        assert!(e.contains("libcublasLt.so.12 and "), "{e}");
    }
}
