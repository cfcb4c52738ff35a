/* The C ABI, call by call: `check PACKAGE OTHER DAMAGED`. PACKAGE is y[n, 3] = x[n, 4] · w + 1 of f32, OTHER adds two i64 tensors of n + 1 elements, DAMAGED is cut in half. */
#include "expect.h"

#include <pthread.h>
#include <stdlib.h>

static DLTensor f32s(float *data, int64_t *shape, int32_t rank) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* w[i][j] = i + j; rows of x are i + 1. */
static float expected(int64_t row, int64_t column) {
  float sum = 1;
  for (int k = 0; k < 4; k++) sum += (float)(row + 1) * (float)(k + column);
  return sum;
}

static void numbers(const struct KilnProgram *p, int64_t n) {
  float *x = malloc(sizeof(float) * 4 * (size_t)n), *y = malloc(sizeof(float) * 3 * (size_t)n), *column_major = malloc(sizeof(float) * 4 * (size_t)n);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < 4; k++) x[i * 4 + k] = column_major[k * n + i] = (float)(i + 1);
  int64_t in[] = {n, 4}, out[] = {0, 0}, strides[] = {1, n};
  DLTensor a = f32s(x, in, 2), b = f32s(y, out, 2), c = f32s(column_major, in, 2);
  c.strides = strides;
  const DLTensor *inputs[] = {&a};
  DLTensor *outputs[] = {&b};
  size_t rank = 0;
  EXPECT(kiln_program_output_shape(p, inputs, 1, 0, NULL, 0, &rank) == KILN_OK && rank == 2);
  EXPECT(kiln_program_output_shape(p, inputs, 1, 0, out, 2, &rank) == KILN_OK && out[0] == n && out[1] == 3);
  for (int turn = 0; turn < 2; turn++) {
    memset(y, 0xa5, sizeof(float) * 3 * (size_t)n);
    EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, NULL) == KILN_OK);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < 3; j++) EXPECT(y[i * 3 + j] == expected(i, j));
    inputs[0] = &c; /* The same elements, other strides. */
  }
  free(x), free(y), free(column_major);
}

static void *caller(void *p) {
  for (int i = 0; i < 50; i++) numbers(p, 1 + i % 7);
  return NULL;
}

static void refusals(const struct KilnProgram *p) {
  float x[8] = {0}, y[6] = {0};
  int64_t in[] = {2, 4}, out[] = {2, 3}, wrong[] = {2, 5}, negative[] = {-2, 4};
  DLTensor a = f32s(x, in, 2), b = f32s(y, out, 2);
  const DLTensor *inputs[] = {&a, &a};
  DLTensor *outputs[] = {&b, &b};
  FAILS(kiln_program_call(p, inputs, 2, outputs, 1, NULL), KILN_ERROR_TENSOR, "takes 1 input, but 2 are given");
  FAILS(kiln_program_call(p, inputs, 1, outputs, 2, NULL), KILN_ERROR_TENSOR, "takes 1 output, but 2 are given");
  FAILS(kiln_program_call(p, NULL, 1, outputs, 1, NULL), KILN_ERROR_ARGUMENT, "inputs is null");
  FAILS(kiln_program_call(NULL, inputs, 1, outputs, 1, NULL), KILN_ERROR_ARGUMENT, "program is null");
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, (void *)1), KILN_ERROR_ARGUMENT, "no stream");
  a.shape = wrong;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, NULL), KILN_ERROR_TENSOR, "has size 5 in dimension 1");
  a.shape = negative;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, NULL), KILN_ERROR_TENSOR, "size -2");
  a.shape = in, a.dtype.code = kDLInt;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, NULL), KILN_ERROR_TENSOR, "is i32, the program takes f32");
  a.dtype.code = kDLComplex;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, NULL), KILN_ERROR_TENSOR, "type code 5");
  a.dtype.code = kDLFloat, a.device.device_type = kDLCUDA;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, NULL), KILN_ERROR_TENSOR, "GPU 0");
  struct KilnTensorInfo info;
  FAILS(kiln_program_input(p, 1, &info), KILN_ERROR_ARGUMENT, "no tensor of this number");
  FAILS(kiln_program_input(p, 0, NULL), KILN_ERROR_ARGUMENT, "info is null");
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  struct KilnProgram *p = NULL, *other = (struct KilnProgram *)1;
  EXPECT(strcmp(kiln_last_error(), "") == 0 && strlen(kiln_version()) >= 5);
  FAILS(kiln_program_load(NULL, NULL, &p), KILN_ERROR_ARGUMENT, "path is null");
  FAILS(kiln_program_load(argv[1], NULL, NULL), KILN_ERROR_ARGUMENT, "out is null");
  FAILS(kiln_program_load("/nowhere/at/all.kpkg", NULL, &other), KILN_ERROR_FILE, "/nowhere/at/all.kpkg");
  EXPECT(other == NULL);
  FAILS(kiln_program_load(argv[3], NULL, &other), KILN_ERROR_FILE, "package");
  FAILS(kiln_program_load("\xff", NULL, &other), KILN_ERROR_ARGUMENT, "UTF-8");
  kiln_program_free(NULL);
  EXPECT(kiln_program_input_count(NULL) == 0);

  struct KilnOptions options = kiln_default_options();
  options.threads = 2;
  EXPECT(kiln_program_load(argv[1], &options, &p) == KILN_OK && p != NULL);
  if (p == NULL) return 1;
  EXPECT(kiln_program_input_count(p) == 1 && kiln_program_output_count(p) == 1);
  struct KilnTensorInfo info;
  EXPECT(kiln_program_input(p, 0, &info) == KILN_OK);
  EXPECT(strcmp(info.dtype, "f32") == 0 && info.rank == 2 && info.dims[0].size == -1 && info.dims[1].size == 4);
  EXPECT(strcmp(info.dims[0].text, "n") == 0 && info.dims[0].min == 1 && info.dims[0].max == 64 && info.dims[0].divisor == 1);
  EXPECT(kiln_program_output(p, 0, &info) == KILN_OK && info.rank == 2 && strcmp(info.dims[0].text, "n") == 0 && info.dims[1].size == 3);
  numbers(p, 1);
  numbers(p, 17);
  refusals(p);
  numbers(p, 64);

  /* From memory, and two programs at once from several threads. */
  FILE *file = fopen(argv[2], "rb");
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(size);
  EXPECT(fread(bytes, 1, size, file) == size);
  fclose(file);
  EXPECT(kiln_program_load_bytes(bytes, size, NULL, &other) == KILN_OK);
  memset(bytes, 0, size);
  free(bytes);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, caller, p);
  if (other != NULL) {
    EXPECT(kiln_program_output(other, 0, &info) == KILN_OK && info.rank == 1 && strcmp(info.dims[0].text, "(1 + n)") == 0);
    int64_t a[] = {1, 2, 3, 4}, b[] = {10, 20, 30}, sum[] = {0, 0, 0, 0}, three[] = {3}, four[] = {4};
    DLTensor x = {.data = b, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = three}, y = x, z = x;
    y.data = a, y.shape = four, z.data = sum, z.shape = four;
    const DLTensor *inputs[] = {&x, &y};
    DLTensor *outputs[] = {&z};
    EXPECT(kiln_program_call(other, inputs, 2, outputs, 1, NULL) == KILN_OK);
    EXPECT(sum[0] == 11 && sum[1] == 22 && sum[2] == 33 && sum[3] == 4);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  kiln_program_free(other);
  kiln_program_free(p);
  printf(failures ? "%d failures\n" : "all is well\n", failures);
  return failures != 0;
}
