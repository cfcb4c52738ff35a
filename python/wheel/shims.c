/* What MLIR's archives and libstdc++ take from glibc that 2.28 has not. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* libstdc++ counts references with atomics where this is 0. */
char __libc_single_threaded = 0;

/* Seeds of LLVM's names of temporary files, and std::random_device. */
uint32_t arc4random(void) {
    uint32_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
    return number;
}

/* LLVM's statistics of memory; the older call has them in 32 bits. */
struct mallinfo2 mallinfo2(void) {
    struct mallinfo old = mallinfo();
    return (struct mallinfo2){
        .arena = (unsigned)old.arena,
        .ordblks = (unsigned)old.ordblks,
        .smblks = (unsigned)old.smblks,
        .hblks = (unsigned)old.hblks,
        .hblkhd = (unsigned)old.hblkhd,
        .usmblks = (unsigned)old.usmblks,
        .fsmblks = (unsigned)old.fsmblks,
        .uordblks = (unsigned)old.uordblks,
        .fordblks = (unsigned)old.fordblks,
        .keepcost = (unsigned)old.keepcost,
    };
}
