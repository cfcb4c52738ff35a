/* The functions of libkiln.so that compile, from C: as `check` of a shared object whose caller hands over the functions, since a library with the compiler in it is as large as the tests.
   Models: mlp.pt2, y[n, 10] of x[n, 64] of f32, and one that does not compile. */
#include "kiln.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Functions {
  __typeof__(&kiln_last_error) last_error;
  __typeof__(&kiln_default_options) default_options;
  __typeof__(&kiln_program_compile) compile;
  __typeof__(&kiln_program_free) release;
  __typeof__(&kiln_program_input_count) input_count;
  __typeof__(&kiln_program_output_count) output_count;
  __typeof__(&kiln_program_input) input;
  __typeof__(&kiln_program_output) output;
  __typeof__(&kiln_program_output_shape) output_shape;
  __typeof__(&kiln_program_call) call;
};

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      printf("line %d: %s (last error: %s)\n", __LINE__, #condition, f->last_error()); \
      failures++;                                                                    \
    }                                                                                \
  } while (0)

static DLTensor f32s(float *data, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* How many expectations are not met, of the model with these n rows and what they give. */
int check(const struct Functions *f, const char *model, const char *broken, float *x, const float *want, int64_t n) {
  int failures = 0;
  struct KilnOptions options = f->default_options();
  options.threads = 1;
  struct KilnProgram *p = NULL;
  EXPECT(f->compile(model, NULL, &options, &p) == KILN_OK && p != NULL);
  if (p == NULL) return failures;
  struct KilnTensorInfo in, out;
  EXPECT(f->input_count(p) == 1 && f->output_count(p) == 1);
  EXPECT(f->input(p, 0, &in) == KILN_OK && strcmp(in.dtype, "f32") == 0 && in.rank == 2);
  EXPECT(in.dims[0].size == -1 && in.dims[0].max == 512 && in.dims[1].size == 64);
  EXPECT(f->output(p, 0, &out) == KILN_OK && out.rank == 2 && out.dims[1].size == 10);
  EXPECT(strcmp(in.dims[0].text, out.dims[0].text) == 0);
  EXPECT(f->input(p, 1, &in) == KILN_ERROR_ARGUMENT);
  /* Any number of rows, down to the least: the first ones give the same. */
  for (int64_t rows = n; rows >= 2; rows /= 2) {
    int64_t given[] = {rows, 64}, made[] = {0, 0};
    float *y = malloc(sizeof(float) * 10 * (size_t)rows);
    memset(y, 0xa5, sizeof(float) * 10 * (size_t)rows);
    DLTensor a = f32s(x, given), b = f32s(y, made);
    const DLTensor *inputs[] = {&a};
    DLTensor *outputs[] = {&b};
    size_t rank = 0;
    EXPECT(f->output_shape(p, inputs, 1, 0, made, 2, &rank) == KILN_OK && rank == 2 && made[0] == rows && made[1] == 10);
    EXPECT(f->call(p, inputs, 1, outputs, 1, NULL) == KILN_OK);
    for (int64_t i = 0; i < rows * 10; i++) EXPECT(fabsf(y[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])));
    given[1] = 63;
    EXPECT(f->call(p, inputs, 1, outputs, 1, NULL) == KILN_ERROR_TENSOR && strstr(f->last_error(), "63") != NULL);
    free(y);
  }
  f->release(p);
  /* What is wrong, and that nothing is given then. */
  p = (struct KilnProgram *)&failures;
  EXPECT(f->compile("/nowhere.pt2", NULL, NULL, &p) == KILN_ERROR_FILE && p == NULL && strstr(f->last_error(), "nowhere") != NULL);
  EXPECT(f->compile(broken, NULL, NULL, &p) == KILN_ERROR_COMPILE && p == NULL && strstr(f->last_error(), "func.call") != NULL);
  EXPECT(f->compile(model, "x86_64:none-such", NULL, &p) != KILN_OK && p == NULL && strstr(f->last_error(), "none-such") != NULL);
  EXPECT(f->compile(NULL, NULL, NULL, &p) == KILN_ERROR_ARGUMENT && p == NULL);
  EXPECT(f->compile(model, NULL, NULL, NULL) == KILN_ERROR_ARGUMENT);
  return failures;
}
