//! The cycles of imports that are there. A smaller list is the aim; a test fails on any other.

/// A crate's source folder, and the files of one cycle.
pub const KNOWN: &[(&str, &str)] = &[
    ("dialects/src", "error ffi ir/attrs ir/builder ir/op ir/types ir/view ops sym value/tensor"),
    (
        "lowering/src",
        "kernels/fuse kernels/graph kernels/prologues \
         kernels/prologues/operands kernels/transpose_folding",
    ),
    ("lowering/src", "analysis/buffers analysis/nest"),
    ("lowering/src", "driver/compile driver/extract driver/jobs"),
    ("lowering/src", "linalg/arg linalg/contract linalg/scan linalg/stage"),
    ("lowering/src", "linalg/power linalg/scalar"),
    ("lowering/src", "program/control program/interface"),
    ("lowering/src", "linalg/expr linalg/kernel"),
    ("lowering/src", "strategies/cpu/blocked_gemm/emit strategies/cpu/blocked_gemm/microkernel"),
    ("lowering/src", "strategies/gpu/mma_gemm/emit strategies/gpu/mma_gemm/im2col"),
    ("lowering/src", "strategies/gpu/wgmma_gemm strategies/gpu/wgmma_gemm/im2col"),
    (
        "lowering/src",
        "strategies/gpu/wgmma_gemm/cluster_reduce strategies/gpu/wgmma_gemm/emit \
         strategies/gpu/wgmma_gemm/store",
    ),
    ("lowering/src", "strategies/gpu/wgmma_gemm/split_k strategies/gpu/wgmma_gemm/tiles"),
    (
        "emulator/src",
        "driver/capture driver/context driver/device driver/function driver/graph \
         driver/launch driver/stream driver/work",
    ),
    ("src", "autotune autotune/standalone model"),
    ("src", "backend compile/settings compile/settings/rows model/options"),
    ("src", "capture/control capture/graph"),
    (
        "src",
        "tensor/arg tensor/dim tensor/eager tensor/emit tensor/graph tensor/handle tensor/key \
         tensor/lazy tensor/lazy_node tensor/modes tensor/replay tensor/trace tensor/scalar",
    ),
];
