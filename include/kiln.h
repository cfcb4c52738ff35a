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
 * What a function answers. `kiln_last_error` has the sentence.
 */
typedef enum KilnStatus {
  /**
   * Done.
   */
  KILN_OK = 0,
  /**
   * A null pointer, a number out of range, text that is no UTF-8.
   */
  KILN_ERROR_ARGUMENT = 1,
  /**
   * A file cannot be read, or is damaged or foreign.
   */
  KILN_ERROR_FILE = 2,
  /**
   * The program is for another processor, or its code was not linked.
   */
  KILN_ERROR_TARGET = 3,
  /**
   * A weight is missing, or not what the program takes.
   */
  KILN_ERROR_WEIGHT = 4,
  /**
   * A tensor of a call is not what the program takes; nothing has been written.
   */
  KILN_ERROR_TENSOR = 5,
  /**
   * The GPU or its driver. Results may have been written in part.
   */
  KILN_ERROR_DEVICE = 6,
  /**
   * Not enough memory.
   */
  KILN_ERROR_MEMORY = 7,
  /**
   * An op that kiln does not support. Of `libkiln.so` alone.
   */
  KILN_ERROR_UNSUPPORTED = 8,
  /**
   * Compiling failed. Of `libkiln.so` alone.
   */
  KILN_ERROR_COMPILE = 9,
  /**
   * A fault of kiln itself.
   */
  KILN_ERROR_INTERNAL = 10,
} KilnStatus;

/**
 * A program that can be called, from any thread and from several at once.
 */
typedef struct KilnProgram KilnProgram;

/**
 * How a program is loaded. `kiln_default_options` fills it.
 */
typedef struct KilnOptions {
  /**
   * Threads of a call on the host; 0 for all processors.
   */
  uint32_t threads;
  /**
   * The number of the GPU that a program for GPUs runs on. Others do not read it.
   */
  uint32_t gpu;
  /**
   * Whether the kernels of a call on a GPU are launched as a CUDA graph.
   */
  bool cuda_graphs;
} KilnOptions;

/**
 * One size of a tensor.
 */
typedef struct KilnDim {
  /**
   * The size; -1 if calls decide it.
   */
  int64_t size;
  /**
   * The size as text: a number, a symbol such as "s0", or an expression of symbols such as "(s0
   * + 1)". Equal texts are equal sizes.
   */
  const char *text;
  /**
   * The least size.
   */
  int64_t min;
  /**
   * The greatest size; -1 if it is open, or if the size is an expression.
   */
  int64_t max;
  /**
   * What divides every size.
   */
  int64_t divisor;
} KilnDim;

/**
 * A tensor that a call passes or gets. Its pointers live as long as the program.
 */
typedef struct KilnTensorInfo {
  /**
   * What the model calls it.
   */
  const char *name;
  /**
   * MLIR's name of the element type: "f32", "bf16", "i64", "ui8", "i1" (a byte), …
   */
  const char *dtype;
  /**
   * How many sizes it has.
   */
  size_t rank;
  /**
   * The sizes; null if there are none.
   */
  const struct KilnDim *dims;
} KilnTensorInfo;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The sentence of this thread's last failure; empty if there was none. It is good until the next
 * function that fails on this thread.
 */
const char *kiln_last_error(void);

/**
 * kiln's version, such as "0.1.0".
 */
const char *kiln_version(void);

/**
 * All processors, the first GPU, no CUDA graphs.
 */
struct KilnOptions kiln_default_options(void);

/**
 * Loads a compiled package (.kpkg) that holds its weights (`kiln compile --with-weights`) or needs
 * none. A package is code: load only what you trust. `options` may be null. The program is `*out`,
 * which is null if this fails, and belongs to the caller.
 *
 * # Safety
 * `path` is a string with a zero at its end, `options` is null or valid, `out` can be written.
 */
enum KilnStatus kiln_program_load(const char *path, const struct KilnOptions *options, struct KilnProgram **out);

/**
 * As `kiln_program_load`, from the bytes of a package, which may be freed afterwards.
 *
 * # Safety
 * `bytes` has `size` bytes; as `kiln_program_load` beside.
 */
enum KilnStatus kiln_program_load_bytes(const uint8_t *bytes, size_t size, const struct KilnOptions *options, struct KilnProgram **out);

/**
 * Frees a program, after its calls are over. Null is good.
 *
 * # Safety
 * Null, or a program that has not been freed and that no other thread uses.
 */
void kiln_program_free(struct KilnProgram *program);

/**
 * How many tensors a call passes; 0 of null.
 *
 * # Safety
 * Null, or a live program.
 */
size_t kiln_program_input_count(const struct KilnProgram *program);

/**
 * How many tensors a call writes; 0 of null.
 *
 * # Safety
 * Null, or a live program.
 */
size_t kiln_program_output_count(const struct KilnProgram *program);

/**
 * What a program takes as its input of this number.
 *
 * # Safety
 * Null, or a live program; `info` is null or can be written.
 */
enum KilnStatus kiln_program_input(const struct KilnProgram *program, size_t index, struct KilnTensorInfo *info);

/**
 * What a program gives as its output of this number.
 *
 * # Safety
 * Null, or a live program; `info` is null or can be written.
 */
enum KilnStatus kiln_program_output(const struct KilnProgram *program, size_t index, struct KilnTensorInfo *info);

/**
 * The sizes of a result for inputs of these sizes. Only the shapes of `inputs` are read. `*rank`
 * is the number of sizes; `shape` gets them if `capacity` is enough, and may be null if that is 0.
 *
 * # Safety
 * `inputs` has `input_count` tensors as DLPack says they have to be, `shape` room for `capacity`
 * numbers; the others are null or valid.
 */
enum KilnStatus kiln_program_output_shape(const struct KilnProgram *program,
                                          const DLTensor *const *inputs,
                                          size_t input_count,
                                          size_t output,
                                          int64_t *shape,
                                          size_t capacity,
                                          size_t *rank);

/**
 * Calls a program. Tensors are DLPack's, in the host's memory or in a GPU's: of a DLManagedTensor
 * or DLManagedTensorVersioned pass `&m->dl_tensor`. Inputs may have any strides; results are
 * written, in row-major order, into memory of the caller's. `stream` is a CUstream, in whose order
 * a program for a GPU then runs, and which the call does not wait for unless a result lies in the
 * host's memory; with null, and on the host, results are there when this returns. A stream of
 * another GPU or context than the program's, or one that is being captured, is
 * `KILN_ERROR_DEVICE`; a tensor that lies elsewhere than it says, or on another GPU,
 * `KILN_ERROR_TENSOR`.
 *
 * # Safety
 * Tensors are as DLPack says they have to be, and live until the call is over, on its stream if it
 * has one. Nothing else uses the memory of results meanwhile.
 */
enum KilnStatus kiln_program_call(const struct KilnProgram *program,
                                  const DLTensor *const *inputs,
                                  size_t input_count,
                                  DLTensor *const *outputs,
                                  size_t output_count,
                                  void *stream);

/**
 * Of `libkiln.so` alone. Compiles a model: a .pt2 archive, IR (.mlir), or a package (.kpkg) whose
 * weights lie beside it. Code is kept in the cache on disk that `KILN_CACHE_DIR` names. `target`
 * is what to compile for, such as "x86_64:haswell" or "cuda:sm_90a", or null for this machine's
 * processor. `options` may be null. The program is `*out`, which is null if this fails, and
 * belongs to the caller.
 *
 * # Safety
 * `path` is a string with a zero at its end, `target` and `options` are null or valid, `out` can
 * be written.
 */
enum KilnStatus kiln_program_compile(const char *path, const char *target, const struct KilnOptions *options, struct KilnProgram **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KILN_H */
