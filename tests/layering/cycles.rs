//! The cycles of imports that are there. A smaller list is the aim; a test fails on any other.

/// A crate's source folder, and the files of one cycle.
pub const KNOWN: &[(&str, &str)] = &[
    ("dialects/src", "error ffi ir/attrs ir/builder ir/op ir/types ir/view ops sym value/tensor"),
    ("lowering/src", "program/control program/interface"),
    ("lowering/src", "linalg/expr linalg/kernel"),
    (
        "emulator/src",
        "driver/capture driver/context driver/device driver/function driver/graph \
         driver/launch driver/stream driver/work",
    ),
    ("src", "autotune autotune/standalone model"),
    ("src", "capture/control capture/graph"),
    (
        "src",
        "tensor/arg tensor/dim tensor/eager tensor/emit tensor/graph tensor/handle tensor/key \
         tensor/lazy tensor/lazy_node tensor/modes tensor/replay tensor/trace tensor/scalar",
    ),
];
