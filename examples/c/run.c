/* Loads a compiled package, says what it takes and gives, and calls it once: inputs are full of ones, sizes that are open are 8 or the least one allowed.
 *
 *   kiln compile model.pt2 --with-weights -o model.kpkg
 *   ./run model.kpkg
 */
#include "kiln.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(enum KilnStatus status) {
  if (status != KILN_OK) {
    fprintf(stderr, "error %d: %s\n", (int)status, kiln_last_error());
    exit(1);
  }
}

/* The DLPack type of a dtype, and one of its ones. */
static DLDataType type_of(const char *dtype, unsigned char one[8]) {
  const struct {
    const char *name;
    uint8_t code, bits;
    unsigned char one[8];
  } all[] = {{"f32", kDLFloat, 32, {0, 0, 0x80, 0x3f}}, {"f64", kDLFloat, 64, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
             {"f16", kDLFloat, 16, {0, 0x3c}},          {"bf16", kDLBfloat, 16, {0x80, 0x3f}},
             {"i64", kDLInt, 64, {1}},                  {"i32", kDLInt, 32, {1}},
             {"i16", kDLInt, 16, {1}},                  {"i8", kDLInt, 8, {1}},
             {"ui8", kDLUInt, 8, {1}},                  {"i1", kDLBool, 8, {1}}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(all[i].name, dtype) == 0) {
      memcpy(one, all[i].one, 8);
      return (DLDataType){all[i].code, all[i].bits, 1};
    }
  fprintf(stderr, "this example makes no %s\n", dtype);
  exit(1);
}

static DLTensor tensor(const struct KilnTensorInfo *info, int64_t *shape) {
  DLTensor t = {.device = {kDLCPU, 0}, .ndim = (int32_t)info->rank, .shape = shape};
  unsigned char one[8];
  t.dtype = type_of(info->dtype, one);
  size_t count = 1, width = t.dtype.bits / 8;
  for (size_t d = 0; d < info->rank; d++) count *= (size_t)shape[d];
  unsigned char *bytes = malloc(count * width + 1);
  for (size_t i = 0; i < count; i++) memcpy(bytes + i * width, one, width);
  t.data = bytes;
  return t;
}

static int64_t some_size(const struct KilnDim *d) {
  if (d->size >= 0) return d->size;
  int64_t n = d->max >= 0 && d->max < 8 ? d->max : 8;
  n = n < d->min ? d->min : n;
  return (n + d->divisor - 1) / d->divisor * d->divisor;
}

static void print(const char *what, const struct KilnTensorInfo *info) {
  printf("%s %s: %s [", what, info->name, info->dtype);
  for (size_t d = 0; d < info->rank; d++) printf("%s%s", d ? ", " : "", info->dims[d].text);
  printf("]\n");
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: run MODEL.kpkg\n");
    return 2;
  }
  struct KilnProgram *program = NULL;
  check(kiln_program_load(argv[1], NULL, &program));

  size_t n = kiln_program_input_count(program), m = kiln_program_output_count(program);
  DLTensor *inputs = calloc(n + 1, sizeof *inputs), *outputs = calloc(m + 1, sizeof *outputs);
  const DLTensor **read = calloc(n + 1, sizeof *read);
  DLTensor **written = calloc(m + 1, sizeof *written);
  for (size_t i = 0; i < n; i++) {
    struct KilnTensorInfo info;
    check(kiln_program_input(program, i, &info));
    print("input", &info);
    int64_t *shape = calloc(info.rank + 1, sizeof *shape);
    for (size_t d = 0; d < info.rank; d++) shape[d] = some_size(&info.dims[d]);
    inputs[i] = tensor(&info, shape);
    read[i] = &inputs[i];
  }
  for (size_t i = 0; i < m; i++) {
    struct KilnTensorInfo info;
    check(kiln_program_output(program, i, &info));
    print("output", &info);
    size_t rank = 0;
    int64_t *shape = calloc(info.rank + 1, sizeof *shape);
    check(kiln_program_output_shape(program, read, n, i, shape, info.rank, &rank));
    outputs[i] = tensor(&info, shape);
    written[i] = &outputs[i];
  }

  check(kiln_program_call(program, read, n, written, m, NULL));
  for (size_t i = 0; i < m; i++)
    if (outputs[i].dtype.code == kDLFloat && outputs[i].dtype.bits == 32 && (outputs[i].ndim == 0 || outputs[i].shape[0] > 0))
      printf("output %zu starts with %g\n", i, ((float *)outputs[i].data)[0]);

  for (size_t i = 0; i < n; i++) free(inputs[i].data), free(inputs[i].shape);
  for (size_t i = 0; i < m; i++) free(outputs[i].data), free(outputs[i].shape);
  free(inputs), free(outputs), free(read), free(written);
  kiln_program_free(program);
  return 0;
}
