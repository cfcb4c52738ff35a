/* Compiles with libkiln.so: compile MODEL BROKEN X Y. MODEL is mlp.pt2, y[n, 10] of x[n, 64] of f32; BROKEN does not compile; X and Y are files of floats, what is given and what
   is wanted. */
#include "expect.h"

#include <math.h>
#include <stdlib.h>

static DLTensor f32s(float *data, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* The floats of a file, and how many there are. */
static float *floats(const char *name, size_t *count) {
  FILE *file = fopen(name, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) exit(2);
  *count = (size_t)ftell(file) / sizeof(float);
  rewind(file);
  float *all = malloc(*count * sizeof(float) + 1);
  if (all == NULL || fread(all, sizeof(float), *count, file) != *count) exit(2);
  fclose(file);
  return all;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *model = argv[1], *broken = argv[2];
  size_t given_floats, wanted_floats;
  float *x = floats(argv[3], &given_floats), *want = floats(argv[4], &wanted_floats);
  const int64_t n = (int64_t)given_floats / 64;
  if (n < 4 || wanted_floats != (size_t)n * 10) return 2;
  struct KilnOptions options = kiln_default_options();
  options.threads = 1;
  struct KilnProgram *p = NULL;
  EXPECT(kiln_program_compile(model, NULL, &options, &p) == KILN_OK && p != NULL);
  if (p == NULL) return 1;
  struct KilnTensorInfo in, out;
  EXPECT(kiln_program_input_count(p) == 1 && kiln_program_output_count(p) == 1);
  EXPECT(kiln_program_input(p, 0, &in) == KILN_OK && strcmp(in.dtype, "f32") == 0 && in.rank == 2);
  EXPECT(in.dims[0].size == -1 && in.dims[0].max == 512 && in.dims[1].size == 64);
  EXPECT(kiln_program_output(p, 0, &out) == KILN_OK && out.rank == 2 && out.dims[1].size == 10);
  EXPECT(strcmp(in.dims[0].text, out.dims[0].text) == 0);
  EXPECT(kiln_program_input(p, 1, &in) == KILN_ERROR_ARGUMENT);
  /* Any number of rows, down to the least: the first ones give the same. */
  for (int64_t rows = n; rows >= 2; rows /= 2) {
    int64_t given[] = {rows, 64}, made[] = {0, 0};
    float *y = malloc(sizeof(float) * 10 * (size_t)rows);
    memset(y, 0xa5, sizeof(float) * 10 * (size_t)rows);
    DLTensor a = f32s(x, given), b = f32s(y, made);
    const DLTensor *inputs[] = {&a};
    DLTensor *outputs[] = {&b};
    size_t rank = 0;
    EXPECT(kiln_program_output_shape(p, inputs, 1, 0, made, 2, &rank) == KILN_OK && rank == 2 && made[0] == rows && made[1] == 10);
    EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, NULL) == KILN_OK);
    for (int64_t i = 0; i < rows * 10; i++) EXPECT(fabsf(y[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])));
    given[1] = 63;
    EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, NULL) == KILN_ERROR_TENSOR && strstr(kiln_last_error(), "63") != NULL);
    free(y);
  }
  kiln_program_free(p);
  /* What is wrong, and that nothing is given then. */
  p = (struct KilnProgram *)&failures;
  EXPECT(kiln_program_compile("/nowhere.pt2", NULL, NULL, &p) == KILN_ERROR_FILE && p == NULL && strstr(kiln_last_error(), "nowhere") != NULL);
  EXPECT(kiln_program_compile(broken, NULL, NULL, &p) == KILN_ERROR_COMPILE && p == NULL && strstr(kiln_last_error(), "func.call") != NULL);
  EXPECT(kiln_program_compile(model, "x86_64:none-such", NULL, &p) != KILN_OK && p == NULL && strstr(kiln_last_error(), "none-such") != NULL);
  EXPECT(kiln_program_compile(NULL, NULL, NULL, &p) == KILN_ERROR_ARGUMENT && p == NULL);
  EXPECT(kiln_program_compile(model, NULL, NULL, NULL) == KILN_ERROR_ARGUMENT);
  free(x);
  free(want);
  if (failures == 0) printf("all is well\n");
  return failures != 0;
}
