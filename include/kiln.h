/* kiln from C: compiled packages (libkiln_runtime.so), and models (libkiln.so).
 * Generated from runtime/src/capi and capi/full/src; `./x bless` writes it anew. */

#ifndef KILN_H
#define KILN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
/* DLPack's definitions, where its own header is not at hand. One that is included later would define them again. */
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 } DLDataTypeCode;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
#endif

/**
 * Status of a call. `kiln_last_error` has the message.
 */
typedef enum KilnStatus {
  /**
   * Success.
   */
  KILN_OK = 0,
  /**
   * A null pointer, a number out of range, or text that is not UTF-8.
   */
  KILN_ERROR_ARGUMENT = 1,
  /**
   * A file cannot be read, is damaged, or is not a package.
   */
  KILN_ERROR_FILE = 2,
  /**
   * The program is for another processor, or its code could not be linked.
   */
  KILN_ERROR_TARGET = 3,
  /**
   * A weight is missing or does not match the program.
   */
  KILN_ERROR_WEIGHT = 4,
  /**
   * A tensor does not match the program; nothing has been written.
   */
  KILN_ERROR_TENSOR = 5,
  /**
   * A GPU or driver error. Outputs may have been partly written.
   */
  KILN_ERROR_DEVICE = 6,
  /**
   * Out of memory.
   */
  KILN_ERROR_MEMORY = 7,
  /**
   * An op that kiln does not support. Only from `libkiln.so`.
   */
  KILN_ERROR_UNSUPPORTED = 8,
  /**
   * Compilation failed. Only from `libkiln.so`.
   */
  KILN_ERROR_COMPILE = 9,
  /**
   * An internal error of kiln.
   */
  KILN_ERROR_INTERNAL = 10,
} KilnStatus;

/**
 * A loaded program. It may be called from several threads at once.
 */
typedef struct KilnProgram KilnProgram;

/**
 * Load options. `kiln_default_options` gives the defaults.
 */
typedef struct KilnOptions {
  /**
   * Threads of a call on the host; 0 for one for each processor.
   */
  uint32_t threads;
  /**
   * Ordinal of the GPU that a GPU program runs on; unused by other programs.
   */
  uint32_t gpu;
  /**
   * Whether a call on a GPU launches its kernels as one CUDA graph.
   */
  bool cuda_graphs;
} KilnOptions;

/**
 * One dimension of a tensor.
 */
typedef struct KilnDim {
  /**
   * The size; -1 if it is dynamic.
   */
  int64_t size;
  /**
   * The size as text: a number, a symbol such as "s0", or an expression of symbols such as "(s0
   * + 1)". Equal texts are equal sizes.
   */
  const char *text;
  /**
   * Lower bound of the size.
   */
  int64_t min;
  /**
   * Upper bound of the size; -1 if there is none, or if the size is an expression.
   */
  int64_t max;
  /**
   * Divides every value of the size.
   */
  int64_t divisor;
} KilnDim;

/**
 * An input or output tensor. Its pointers are valid for the program's lifetime.
 */
typedef struct KilnTensorInfo {
  /**
   * Its name in the model.
   */
  const char *name;
  /**
   * The element type in MLIR's spelling: "f32", "bf16", "i64", "ui8", "i1" (a byte), …
   */
  const char *dtype;
  /**
   * Number of dimensions.
   */
  size_t rank;
  /**
   * The dimensions; null if there are none.
   */
  const struct KilnDim *dims;
} KilnTensorInfo;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The message of this thread's last error; empty if there was none. Valid until the next function
 * that fails on this thread.
 */
const char *kiln_last_error(void);

/**
 * kiln's version, such as "0.1.0".
 */
const char *kiln_version(void);

/**
 * The default options: all processors, GPU 0, no CUDA graphs.
 */
struct KilnOptions kiln_default_options(void);

/**
 * Loads a compiled package (.kpkg) that holds its weights (`kiln compile --with-weights`) or has
 * none. A package is code: load only what you trust. `options` may be null. `*out` is the program,
 * which the caller owns, or null on failure.
 *
 * # Safety
 * `path` is a NUL-terminated string, `options` is null or valid, `out` is writable.
 */
enum KilnStatus kiln_program_load(const char *path, const struct KilnOptions *options, struct KilnProgram **out);

/**
 * As `kiln_program_load`, from the bytes of a package, which may be freed afterwards.
 *
 * # Safety
 * `bytes` has `size` bytes; the rest as for `kiln_program_load`.
 */
enum KilnStatus kiln_program_load_bytes(const uint8_t *bytes, size_t size, const struct KilnOptions *options, struct KilnProgram **out);

/**
 * Frees a program after its calls have returned. Null is allowed.
 *
 * # Safety
 * Null, or a live program that no other thread uses.
 */
void kiln_program_free(struct KilnProgram *program);

/**
 * Number of input tensors; 0 for null.
 *
 * # Safety
 * Null, or a live program.
 */
size_t kiln_program_input_count(const struct KilnProgram *program);

/**
 * Number of output tensors; 0 for null.
 *
 * # Safety
 * Null, or a live program.
 */
size_t kiln_program_output_count(const struct KilnProgram *program);

/**
 * Describes input `index`: name, dtype and shape.
 *
 * # Safety
 * Null, or a live program; `info` is null or writable.
 */
enum KilnStatus kiln_program_input(const struct KilnProgram *program, size_t index, struct KilnTensorInfo *info);

/**
 * Describes output `index`: name, dtype and shape.
 *
 * # Safety
 * Null, or a live program; `info` is null or writable.
 */
enum KilnStatus kiln_program_output(const struct KilnProgram *program, size_t index, struct KilnTensorInfo *info);

/**
 * Shape of output `output` for inputs of these shapes; only the shapes of `inputs` are read.
 * `*rank` is the number of dimensions. `shape` is filled if `capacity` is at least that, and may
 * be null if `capacity` is 0.
 *
 * # Safety
 * `inputs` has `input_count` valid DLPack tensors, `shape` has room for `capacity` numbers; the
 * others are null or valid.
 */
enum KilnStatus kiln_program_output_shape(const struct KilnProgram *program,
                                          const DLTensor *const *inputs,
                                          size_t input_count,
                                          size_t output,
                                          int64_t *shape,
                                          size_t capacity,
                                          size_t *rank);

/**
 * Calls a program. Tensors are DLPack's, in host or device memory: of a DLManagedTensor or
 * DLManagedTensorVersioned pass `&m->dl_tensor`. Inputs may have any strides; outputs are written,
 * row-major, to the caller's memory.
 *
 * `stream` is a CUstream on which a GPU program is enqueued. The call synchronises with it only if
 * an output is in host memory. With null, and on the host, the outputs are complete on return.
 *
 * `KILN_ERROR_DEVICE`: the stream is another GPU's or context's, or is being captured.
 * `KILN_ERROR_TENSOR`: a tensor is not in the memory that it states, or is on another GPU.
 *
 * # Safety
 * The tensors are valid by DLPack's specification and live until the call has completed, on its
 * stream if it has one. Nothing else uses the outputs' memory meanwhile.
 */
enum KilnStatus kiln_program_call(const struct KilnProgram *program,
                                  const DLTensor *const *inputs,
                                  size_t input_count,
                                  DLTensor *const *outputs,
                                  size_t output_count,
                                  void *stream);

/**
 * Only in `libkiln.so`. Compiles a model: a .pt2 archive, IR (.mlir), or a package (.kpkg) with
 * its weights next to it. Code is cached on disk in `KILN_CACHE_DIR`. `target` is the compilation
 * target, such as "x86_64:haswell" or "cuda:sm_90a", or null for this machine's CPU. `options` may
 * be null. `*out` is the program, which the caller owns, or null on failure.
 *
 * # Safety
 * `path` is a NUL-terminated string, `target` and `options` are null or valid, `out` is writable.
 */
enum KilnStatus kiln_program_compile(const char *path, const char *target, const struct KilnOptions *options, struct KilnProgram **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KILN_H */
