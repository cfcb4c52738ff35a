//! The manifest of a compiled program, as plain data: its arguments, its sizes, and how to launch
//! its kernels.
mod donation;
mod evaluate;
mod indices;
mod sizes;
mod unbacked;
mod validate;

use crate::library_call::LibraryCall;
pub use donation::{Alias, NotAliased, State};
pub use indices::IndexGuard;
use serde::{Deserialize, Serialize};
pub use sizes::{Condition, Dim, Expr, ExprKind, Relation, SizeError, Symbol, values};
pub use unbacked::{CallSizes, Unbacked};
pub use validate::Invalid;

/// Version of the serialised format; raised whenever an older reader would misread a program.
pub const FORMAT: u32 = 9;

/// A compiled program without its code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Its name in reports.
    pub name: String,
    /// The CPU or GPU that the code is for.
    pub target: Target,
    /// Whether kernels may use AMX, which the process must request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub amx: bool,
    /// The inputs, in order.
    pub inputs: Vec<Tensor>,
    /// The outputs, in order.
    pub outputs: Vec<Tensor>,
    /// Dynamic sizes that are read from inputs.
    pub symbols: Vec<Symbol>,
    /// Sizes that depend on data, in the order in which they are read. Their indices as symbols
    /// follow those of `symbols`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unbacked: Vec<Unbacked>,
    /// Sizes that are computed from symbols, indexed by [`Dim::Expr`].
    pub exprs: Vec<Expr>,
    /// Conditions on the sizes of every call, beyond the symbols' ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// By how much a call moves the offset of the generator whose state it takes, beyond which the
    /// next call draws; 0 where draws do not follow PyTorch's CUDA generator.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rng_increment: Dim,
    /// Inputs whose elements are indices, which calls on the host check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<IndexGuard>,
    /// Inputs that were donated, and whose memory calls overwrite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwrites: Vec<usize>,
    /// Donated inputs whose memory an output may have: a call may be given the same memory for both,
    /// and then overwrites the input. With memory of its own for the output it computes the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Alias>,
    /// Inputs that are states of the program, whose new values are outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// The other donated inputs, for reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_aliased: Vec<NotAliased>,
    /// What passes did or missed, for reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<PassRemark>,
    /// Weights and other constants.
    pub globals: Vec<Global>,
    /// The kernels that the entry launches, one for each launch, in order.
    pub kernels: Vec<Kernel>,
    /// Bytes of the arena, which holds intermediates.
    pub arena: Dim,
    /// The host entry points.
    pub entry: Entry,
    /// Run options.
    pub options: RunOptions,
    /// Runs once, when the program is loaded. Its output `n` is the global of role [`Role::Packed`]
    /// whose source ends in `#n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Program>>,
    /// Control flow between programs, if any; the program has no kernels and no entry of its own
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Box<Control>>,
}

/// An optimisation remark of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassRemark {
    /// The pass's flag, and what it did or missed.
    pub text: String,
    /// The source location of the op, such as `model.py:12`; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// A target CPU or GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The architecture, such as `x86_64`.
    pub arch: String,
    /// LLVM's CPU name, or a GPU's chip, such as `sm_90a`.
    pub cpu: String,
    /// LLVM's feature list, such as `+avx2,+fma`.
    pub features: String,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// Its name in the source.
    pub name: String,
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The shape.
    pub dims: Vec<Dim>,
    /// The dimensions in memory order, outermost first; empty for row-major.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<usize>,
}

/// A constant that the program reads and that is no argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Global {
    /// Its symbol in IR.
    pub name: String,
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The shape, always static.
    pub shape: Vec<u64>,
    /// Where its bytes come from; empty if they are in `data`.
    pub source: String,
    /// The bytes of a small one; an `i1` takes a byte.
    pub data: Option<Vec<u8>>,
    /// Its role in the model.
    pub role: Role,
}

/// What a [`Global`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A frozen weight: the compiler may pack and fold it.
    #[default]
    Frozen,
    /// A weight that its owner may change between calls.
    Mutable,
    /// Computed from frozen weights when the program was loaded.
    Packed,
}

/// One kernel launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name in reports.
    pub name: String,
    /// The function's symbol in the object.
    pub symbol: String,
    /// The object that defines it.
    pub object: String,
    /// The code-generation strategy, as reports name it.
    pub kind: String,
    /// The fused ops, in order.
    pub ops: Vec<String>,
    /// Source locations of this launch's ops, such as `gelu (model.py:12)`, without duplicates;
    /// empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Why adjacent ops were not fused.
    pub not_fused: Vec<String>,
    /// Indices of the earlier launches whose results it reads.
    pub reads: Vec<usize>,
    /// Indices of the program inputs that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<usize>,
    /// Indices of the program outputs that it writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<usize>,
    /// Indices of the program inputs, states, that it writes slices into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<usize>,
    /// Dtypes and shapes of the tensors that it writes, without names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Tensor>,
    /// Bytes read and written by one launch, if that is expressible as a size.
    pub bytes: Option<Dim>,
    /// Floating-point operations of one launch.
    pub flops: Option<Dim>,
    /// Whether it always runs on one thread.
    pub serial: bool,
    /// Launch configuration on a GPU; `None` on the host, where the entry launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

/// Launch configuration of a GPU kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The 64-bit parameters, in order.
    pub args: Vec<Arg>,
    /// Grid size, in CTAs (thread blocks); at least one is launched. kiln's own kernels are right
    /// for any grid size.
    pub grid: Dim,
    /// CTAs that fit on one SM, for a persistent or grid-stride kernel: the grid is limited to this
    /// many per SM. 0 for no limit.
    #[serde(default, skip_serializing_if = "none")]
    pub resident: u32,
    /// Threads of a CTA.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub shared: u32,
    /// Tensor maps for TMA, passed after `args`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMap>,
    /// An equivalent library call, used if the library is found; the kernel is the fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<LibraryCall>,
    /// Whether the kernel waits itself for the launch before it (`griddepcontrol.wait`), so that it
    /// may be scheduled while that one runs (programmatic dependent launch).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dependent: bool,
    /// The function of an external PTX kernel; otherwise it is the kernel's symbol. An external
    /// kernel gets exactly `grid` CTAs, and one if that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

fn is_zero(n: &Dim) -> bool {
    *n == Dim::Known(0)
}

fn none(n: &u32) -> bool {
    *n == 0
}

/// A tensor map: a tensor that TMA loads and stores box by box, through shared memory with 128-byte
/// swizzle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// Index of its pointer in [`Launch::args`].
    pub arg: usize,
    /// The element type in MLIR's spelling: `bf16`, `f16`, `f32`, or `tf32` for f32 rounded to it.
    pub dtype: String,
    /// Offset of the first element, in elements.
    pub offset: Dim,
    /// Sizes, innermost first.
    pub sizes: Vec<Dim>,
    /// Strides of all dimensions but the innermost, in elements.
    pub strides: Vec<Dim>,
    /// Box sizes; for im2col, channels and pixels of a column.
    pub extent: Vec<u32>,
    /// For im2col (channels, width, height, images): the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// The window of an im2col tensor map. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Offset of the window's first position from the image's first pixel: not above 0.
    pub low: [i32; 2],
    /// Offset of the window's last position from the image's last pixel.
    pub high: [i32; 2],
    /// Strides.
    pub strides: [u32; 2],
}

/// One parameter of a GPU kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// Pointer to a program input.
    Input(usize),
    /// Pointer to a program output.
    Output(usize),
    /// Pointer to a global.
    Global(usize),
    /// Pointer into the arena, at this offset in bytes.
    Arena(Dim),
    /// Pointer into the memory of a program input, at this offset in bytes.
    InputAt(usize, Dim),
    /// Pointer into the memory of a program output, at this offset in bytes.
    OutputAt(usize, Dim),
    /// A size, as a 64-bit integer.
    Size(Dim),
}

/// Entry points in the host object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The object that defines them.
    pub object: String,
    /// `void main(const u64* args, i32 threads)`.
    pub main: String,
    /// Computes the sizes of the arena and of the outputs, if any is dynamic.
    pub sizes: Option<String>,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry { object: "host".into(), main: "main".into(), sizes: None }
    }
}

/// Run options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Threads of a parallel region; 0 for the pool's number.
    pub threads: u32,
    /// The compiler options, as printed, for reports.
    pub compiler: String,
}

/// The control flow of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The programs it calls. Their objects are in the one package.
    pub parts: Vec<Program>,
    /// All values, the arguments first; dynamic sizes are the whole program's symbols.
    pub values: Vec<Value>,
    /// The top-level body.
    pub body: Body,
}

/// A tensor that passes between steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The sizes.
    pub dims: Vec<Dim>,
}

/// Steps in order. Values are indices into [`Control::values`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// The body's arguments.
    pub args: Vec<usize>,
    /// The steps.
    pub steps: Vec<Step>,
    /// The body's results.
    pub yields: Vec<usize>,
}

/// One step. Its results are new values (SSA).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Calls a program.
    Call {
        /// Index into [`Control::parts`].
        part: usize,
        /// The inputs.
        inputs: Vec<usize>,
        /// The outputs.
        results: Vec<usize>,
    },
    /// Runs one of two bodies without arguments.
    If {
        /// A scalar `i1`.
        condition: usize,
        /// Runs if it is true.
        then: Body,
        /// Runs if it is false.
        otherwise: Body,
        /// The results: what the body that ran yields.
        results: Vec<usize>,
        /// Source location, such as `while_loop (model.rs:12)`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// Runs `body` while `condition`, given the same loop-carried values, yields true.
    While {
        /// Initial loop-carried values.
        inits: Vec<usize>,
        /// Yields a scalar `i1`.
        condition: Body,
        /// Yields the next loop-carried values.
        body: Body,
        /// The results: the loop-carried values for which the condition was false.
        results: Vec<usize>,
        /// Source location, such as `while_loop (model.rs:12)`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// Runs a body for each slice along the inputs' first dimension. The body takes loop-carried
    /// values, then slices, and yields loop-carried values, then slices of the results.
    Scan {
        /// Initial loop-carried values.
        inits: Vec<usize>,
        /// The tensors to slice.
        inputs: Vec<usize>,
        /// Whether to iterate from the last slice.
        reverse: bool,
        /// The loop body.
        body: Body,
        /// The results: final loop-carried values, then the stacked slices.
        results: Vec<usize>,
        /// Source location, such as `while_loop (model.rs:12)`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// Reads the next size of [`Program::unbacked`].
    UnbackedSize {
        /// A scalar `i64`.
        value: usize,
        /// An `i8` value without elements, whose first size it is.
        result: Vec<usize>,
        /// Source location, such as `nonzero (model.rs:12)`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// Calls a registered host function.
    Custom {
        /// Its registered name.
        callee: String,
        /// The inputs.
        inputs: Vec<usize>,
        /// The outputs.
        results: Vec<usize>,
        /// Source location, such as `while_loop (model.rs:12)`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
}

impl Global {
    /// The output of [`Program::prepare`] that it is, if it is packed.
    pub fn result(&self) -> Option<usize> {
        (self.role == Role::Packed).then(|| self.source.rsplit('#').next()?.parse().ok()).flatten()
    }
}

impl Target {
    /// Whether it is an NVIDIA GPU; `cpu` is its chip then.
    pub fn is_cuda(&self) -> bool {
        self.arch == "cuda"
    }
}

impl Program {
    /// The program itself, or the programs of its control flow, in order.
    pub fn parts(&self) -> Vec<&Program> {
        match &self.control {
            Some(control) => control.parts.iter().flat_map(Program::parts).collect(),
            None => vec![self],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_back() {
        let p = Program {
            format: FORMAT,
            name: "mlp".into(),
            inputs: vec![Tensor {
                name: "x".into(),
                dtype: "f32".into(),
                dims: vec![Dim::Symbol(0), Dim::Known(64)],
                order: vec![1, 0],
            }],
            symbols: vec![Symbol {
                name: "s0".into(),
                min: 1,
                max: None,
                divisor: 8,
                input: 0,
                dim: 0,
            }],
            ..Default::default()
        };
        let text = serde_json::to_string(&p).expect("plain data");
        assert_eq!(serde_json::from_str::<Program>(&text).expect("what was written"), p);
    }
}
