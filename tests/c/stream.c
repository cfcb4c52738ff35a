/* Calls on a stream of a card: `stream PACKAGE`. PACKAGE is y[n, 3] = x[n, 4] · w + 1 of f32 for a GPU. The driver is the one that the runtime finds. */
#include "expect.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

/* What is needed of the driver, without its header. */
typedef void *Handle;
typedef unsigned long long Address;
static struct {
  int (*init)(unsigned);
  int (*retain)(Handle *, int);
  int (*release)(int);
  int (*set_current)(Handle);
  int (*get_current)(Handle *);
  int (*stream)(Handle *, unsigned);
  int (*stream_free)(Handle);
  int (*wait)(Handle);
  int (*capture)(Handle, int);
  int (*end_capture)(Handle, Handle *);
  int (*graph_free)(Handle);
  int (*alloc)(Address *, size_t);
  int (*free)(Address);
  int (*alloc_host)(void **, size_t);
  int (*free_host)(void *);
  int (*up)(Address, const void *, size_t, Handle);
  int (*down)(void *, Address, size_t, Handle);
  int (*fill)(Address, unsigned char, size_t, Handle);
} cu;
static Handle driver;

static void open_driver(void) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    printf("%s\n", dlerror());
    exit(2);
  }
  const struct {
    const char *name;
    void *to;
  } all[] = {{"cuInit", &cu.init},
             {"cuDevicePrimaryCtxRetain", &cu.retain},
             {"cuDevicePrimaryCtxRelease_v2", &cu.release},
             {"cuCtxSetCurrent", &cu.set_current},
             {"cuCtxGetCurrent", &cu.get_current},
             {"cuStreamCreate", &cu.stream},
             {"cuStreamDestroy_v2", &cu.stream_free},
             {"cuStreamSynchronize", &cu.wait},
             {"cuStreamBeginCapture_v2", &cu.capture},
             {"cuStreamEndCapture", &cu.end_capture},
             {"cuGraphDestroy", &cu.graph_free},
             {"cuMemAlloc_v2", &cu.alloc},
             {"cuMemFree_v2", &cu.free},
             {"cuMemAllocHost_v2", &cu.alloc_host},
             {"cuMemFreeHost", &cu.free_host},
             {"cuMemcpyHtoDAsync_v2", &cu.up},
             {"cuMemcpyDtoHAsync_v2", &cu.down},
             {"cuMemsetD8Async", &cu.fill}};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
    void *found = dlsym(driver, all[i].name);
    if (found == NULL) {
      printf("the driver has no %s\n", all[i].name);
      exit(2);
    }
    memcpy(all[i].to, &found, sizeof(found));
  }
}

enum { MOST = 64, PAD = 16 };
static const DLDevice CARD = {kDLCUDA, 0}, HOST = {kDLCPU, 0};

static DLTensor f32s(void *data, DLDevice device, int64_t *shape) {
  return (DLTensor){.data = data, .device = device, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* w[i][j] = i + j; rows of x are i + first. */
static float expected(int64_t row, int64_t column, int first) {
  float sum = 1;
  for (int k = 0; k < 4; k++) sum += (float)(row + first) * (float)(k + column);
  return sum;
}

static void rows(float *x, int64_t n, int first) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < 4; k++) x[i * 4 + k] = (float)(i + first);
}

static void right(const float *y, int64_t n, int first) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < 3; j++) EXPECT(y[i * 3 + j] == expected(i, j, first));
}

/* Memory of the card, of the driver's pinned, and of the host's for one caller. */
struct Memory {
  Address x, y;
  float *host, *back;
};

static struct Memory take(void) {
  struct Memory m = {0};
  EXPECT(cu.alloc(&m.x, sizeof(float) * 4 * MOST + PAD) == 0 && cu.alloc(&m.y, sizeof(float) * 3 * MOST + PAD) == 0);
  EXPECT(cu.alloc_host((void **)&m.host, sizeof(float) * 4 * MOST) == 0 && cu.alloc_host((void **)&m.back, sizeof(float) * 3 * MOST) == 0);
  return m;
}

static void give(struct Memory m) { EXPECT(cu.free(m.x) == 0 && cu.free(m.y) == 0 && cu.free_host(m.host) == 0 && cu.free_host(m.back) == 0); }

/* Everything in the order of the stream, which is waited for once: two calls, of which the second reads other elements of the same memory. `offset`: bytes in front of the first element. */
static void on_the_card(const struct KilnProgram *p, const struct Memory *m, Handle stream, int64_t n, uint64_t offset) {
  int64_t in[] = {n, 4}, out[] = {n, 3};
  DLTensor a = f32s((void *)(uintptr_t)m->x, CARD, in), b = f32s((void *)(uintptr_t)m->y, CARD, out);
  a.byte_offset = b.byte_offset = offset;
  const DLTensor *inputs[] = {&a};
  DLTensor *outputs[] = {&b};
  size_t bytes = sizeof(float) * 3 * (size_t)n;
  for (int first = 1; first < 3; first++) {
    rows(m->host, n, first);
    EXPECT(cu.up(m->x + offset, m->host, sizeof(float) * 4 * (size_t)n, stream) == 0);
    EXPECT(cu.fill(m->y + offset, 0xa5, bytes, stream) == 0);
    EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, stream) == KILN_OK);
    EXPECT(cu.down(m->back, m->y + offset, bytes, stream) == 0);
    EXPECT(cu.wait(stream) == 0);
    right(m->back, n, first);
  }
}

/* With a result in the host's memory the call waits by itself; arguments of the host have been read when it returns. */
static void of_the_host(const struct KilnProgram *p, const struct Memory *m, Handle stream, int64_t n) {
  float x[4 * MOST], y[3 * MOST];
  int64_t in[] = {n, 4}, out[] = {n, 3};
  DLTensor a = f32s(x, HOST, in), b = f32s(y, HOST, out), c = f32s((void *)(uintptr_t)m->y, CARD, out);
  const DLTensor *inputs[] = {&a};
  DLTensor *outputs[] = {&b};
  rows(x, n, 5);
  memset(y, 0xa5, sizeof(y));
  EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, stream) == KILN_OK);
  right(y, n, 5);
  outputs[0] = &c;
  rows(x, n, 7);
  EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, stream) == KILN_OK);
  memset(x, 0xa5, sizeof(x));
  EXPECT(cu.down(m->back, m->y, sizeof(float) * 3 * (size_t)n, stream) == 0 && cu.wait(stream) == 0);
  right(m->back, n, 7);
  /* Pinned memory is the host's, and is said to be so. */
  rows(m->host, n, 9);
  a = f32s(m->host, (DLDevice){kDLCUDAHost, 0}, in), outputs[0] = &b;
  EXPECT(kiln_program_call(p, inputs, 1, outputs, 1, stream) == KILN_OK);
  right(y, n, 9);
}

static Handle primary;

static void *caller(void *p) {
  Handle stream = NULL;
  EXPECT(cu.set_current(primary) == 0 && cu.stream(&stream, 1) == 0);
  struct Memory m = take();
  for (int i = 0; i < 10; i++) on_the_card(p, &m, stream, 1 + (i * 7) % MOST, i % 2 ? 4 : 0);
  of_the_host(p, &m, stream, 9);
  EXPECT(cu.stream_free(stream) == 0);
  give(m);
  return NULL;
}

/* A stream of a context that is not the card's first; a driver that makes no further ones is not asked. */
static void another_context(const struct KilnProgram *p, const DLTensor *const *inputs, DLTensor *const *outputs) {
  int (*make)(Handle *, unsigned, int) = NULL, (*drop)(Handle) = NULL;
  void *found[] = {dlsym(driver, "cuCtxCreate_v2"), dlsym(driver, "cuCtxDestroy_v2")};
  if (found[0] == NULL || found[1] == NULL) return;
  memcpy(&make, &found[0], sizeof(make)), memcpy(&drop, &found[1], sizeof(drop));
  Handle other = NULL, stream = NULL;
  EXPECT(make(&other, 0, 0) == 0 && cu.stream(&stream, 1) == 0);
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_DEVICE, "another context's than the program's");
  Handle now = NULL;
  EXPECT(cu.get_current(&now) == 0 && now == other);
  EXPECT(cu.stream_free(stream) == 0 && drop(other) == 0 && cu.set_current(primary) == 0);
  printf("a stream of another context is refused\n");
}

static void refusals(const struct KilnProgram *p, const struct Memory *m, Handle stream) {
  float x[8] = {0}, y[6] = {0};
  int64_t in[] = {2, 4}, out[] = {2, 3}, wrong[] = {2, 5}, turned[] = {1, 2};
  DLTensor a = f32s((void *)(uintptr_t)m->x, CARD, in), b = f32s((void *)(uintptr_t)m->y, CARD, out);
  const DLTensor *inputs[] = {&a};
  DLTensor *outputs[] = {&b};
  a.device.device_id = 1;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "lies in the memory of GPU 1, the program runs on GPU 0");
  a.device.device_id = 0, b.device.device_id = 3;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "lies in the memory of GPU 3, the program runs on GPU 0");
  b.device.device_id = 0, a.data = x;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "is no memory that the driver knows");
  a.data = m->host;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "is pinned memory of the host");
  a.data = (void *)(uintptr_t)m->x, b.data = y;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "is no memory that the driver knows");
  b.data = (void *)(uintptr_t)m->y, a.strides = turned;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "with other strides");
  a.strides = NULL, b.strides = turned;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "row-major");
  b.strides = NULL, a.shape = wrong;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "has size 5 in dimension 1");
  a.shape = in, b.shape = in;
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_TENSOR, "output");
  b.shape = out;
  Handle graph = NULL;
  EXPECT(cu.capture(stream, 0) == 0);
  FAILS(kiln_program_call(p, inputs, 1, outputs, 1, stream), KILN_ERROR_DEVICE, "is being captured");
  /* The refusal has not ended the capture. */
  EXPECT(cu.end_capture(stream, &graph) == 0 && graph != NULL && cu.graph_free(graph) == 0);
  another_context(p, inputs, outputs);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  open_driver();
  struct KilnOptions options = kiln_default_options();
  struct KilnProgram *p = NULL;
  options.gpu = 99;
  FAILS(kiln_program_load(argv[1], &options, &p), KILN_ERROR_DEVICE, "there is no GPU 99");
  EXPECT(p == NULL);
  options.gpu = 0;
  EXPECT(cu.init(0) == 0 && cu.retain(&primary, 0) == 0 && cu.set_current(primary) == 0);
  for (int graphs = 0; graphs < 2; graphs++) {
    options.cuda_graphs = graphs;
    EXPECT(kiln_program_load(argv[1], &options, &p) == KILN_OK && p != NULL);
    if (p == NULL) return 1;
    struct KilnTensorInfo info;
    EXPECT(kiln_program_input(p, 0, &info) == KILN_OK && info.rank == 2 && strcmp(info.dims[0].text, "n") == 0);
    Handle stream = NULL, blocking = NULL;
    EXPECT(cu.stream(&stream, 1) == 0 && cu.stream(&blocking, 0) == 0);
    struct Memory m = take();
    const int64_t sizes[] = {1, 17, 64, 17};
    for (int i = 0; i < 4; i++) {
      on_the_card(p, &m, stream, sizes[i], 0);
      on_the_card(p, &m, blocking, sizes[i], 4); /* Not at a multiple of 16 bytes. */
      on_the_card(p, &m, (Handle)1, sizes[i], 0); /* The legacy default stream. */
      on_the_card(p, &m, (Handle)2, sizes[i], 0); /* The thread's. */
      of_the_host(p, &m, stream, sizes[i]);
    }
    refusals(p, &m, stream);
    on_the_card(p, &m, stream, 33, 0);
    /* The caller's context is as it was. */
    Handle now = NULL;
    EXPECT(cu.get_current(&now) == 0 && now == primary);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, caller, p);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    EXPECT(cu.stream_free(stream) == 0 && cu.stream_free(blocking) == 0);
    give(m);
    kiln_program_free(p);
  }
  EXPECT(cu.release(0) == 0);
  printf(failures ? "%d failures\n" : "all is well on the card\n", failures);
  return failures != 0;
}
