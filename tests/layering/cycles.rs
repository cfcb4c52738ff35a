//! The cycles of imports that are there. A smaller list is the aim; a test fails on any other.

/// A crate's source folder, and the files of one cycle.
pub const KNOWN: &[(&str, &str)] = &[
    ("dialects/src", "error ffi ir/attrs ir/builder ir/op ir/types ir/view ops sym value/tensor"),
    (
        "dialects/src",
        "rules/contract rules/image rules/insert_slice rules/norm rules/pointwise rules/shape",
    ),
    (
        "lowering/src",
        "kernels/frozen kernels/fuse kernels/graph kernels/prologues \
         kernels/prologues/operands kernels/transpose_folding",
    ),
    ("lowering/src", "analysis/buffers analysis/nest"),
    ("lowering/src", "driver/compile driver/extract driver/jobs"),
    ("lowering/src", "linalg/arg linalg/stage"),
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
    ("runtime/src", "call call/fixed control custom guards program program/sizes view"),
    ("runtime/src", "cuda/call cuda/control cuda/load cuda/state"),
    ("runtime/src", "cuda/cudnn cuda/cudnn/descriptor"),
    ("runtime/src", "cuda/device cuda/fault cuda/stream"),
    ("runtime/src", "cuda/graph cuda/plan"),
    ("runtime/src", "library/abi library/element"),
    ("runtime/src", "link link/memory"),
    (
        "emulator/src",
        "driver/capture driver/context driver/device driver/function driver/graph \
         driver/launch driver/stream driver/work",
    ),
    ("emulator/src", "driver/link driver/module"),
    ("emulator/src", "machine machine/async_copies machine/cluster machine/memory"),
    ("emulator/src", "ptx ptx/async_copies ptx/collective ptx/decode ptx/lex ptx/parse"),
    (
        "src",
        "autotune autotune/alone backend capture/control capture/graph capture/pt2 \
         capture/weight compile/later compile/settings compile/settings/rows dump logs model \
         model/engine model/error model/options model/weights nn/file nn/parameter opt \
         opt/cli opt/diagnostics opt/isolate opt/passes opt/tensors tensor/arg tensor/array \
         tensor/dim tensor/eager tensor/emit tensor/error tensor/graph tensor/handle \
         tensor/key tensor/lazy tensor/replay tensor/run tensor/scalar tensor/session \
         tensor/state",
    ),
    ("src", "compile compile/reasons"),
    ("src", "tensor/custom tensor/ptx"),
];
