//! What was compiled, as plain data: what a caller passes, what it gets, and how to run the
//! objects.
mod sizes;
mod validate;

use crate::{control::Control, library_call::LibraryCall};
use serde::{Deserialize, Serialize};
pub use sizes::{Condition, Dim, Expr, ExprKind, Relation, SizeError, Symbol, values};
pub use validate::Invalid;

/// Changes when an older reader would misread a program.
pub const FORMAT: u32 = 7;

/// A compiled program without its code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// What people call it.
    pub name: String,
    /// The processor that the code is for.
    pub target: Target,
    /// Whether kernels may use the tile registers of AMX, which the process has to ask for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub amx: bool,
    /// What a call passes, in order.
    pub inputs: Vec<Tensor>,
    /// What a call writes, in order.
    pub outputs: Vec<Tensor>,
    /// Sizes that are known when it is called.
    pub symbols: Vec<Symbol>,
    /// Sizes that are computed from symbols; [`Dim::Expr`] counts in this list.
    pub exprs: Vec<Expr>,
    /// What the sizes of every call have to meet beyond the ranges of symbols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Weights and other values that are not arguments.
    pub globals: Vec<Global>,
    /// The kernels that the entry calls, one for each launch, in order.
    pub kernels: Vec<Kernel>,
    /// Bytes of memory between kernels.
    pub arena: Dim,
    /// The functions to call.
    pub entry: Entry,
    /// How it wants to be run.
    pub options: RunOptions,
    /// What runs once when the program is loaded: its result `n` is the global with role
    /// [`Role::Packed`] and a source that ends in `#n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Program>>,
    /// What it does, if it is control flow between programs; it has no kernels and no entry of its
    /// own then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Box<Control>>,
}

/// A processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The architecture, such as `x86_64`.
    pub arch: String,
    /// LLVM's name of the processor.
    pub cpu: String,
    /// LLVM's feature list, such as `+avx2,+fma`.
    pub features: String,
}

/// An argument or a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// What the source calls it.
    pub name: String,
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The sizes.
    pub dims: Vec<Dim>,
    /// The dimensions as they lie in memory, the outermost first; empty for row-major order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<usize>,
}

/// A value that the program reads and that is no argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Global {
    /// Its name in IR.
    pub name: String,
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The sizes, which never depend on a call.
    pub shape: Vec<u64>,
    /// Where its bytes come from; empty if they are in `data`.
    pub source: String,
    /// The bytes of a small one; an `i1` is a byte.
    pub data: Option<Vec<u8>>,
    /// What it is to the model.
    pub role: Role,
}

/// What a [`Global`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A weight whose bytes never change: it may be packed and folded.
    #[default]
    Frozen,
    /// A weight that its owner may change between calls.
    Mutable,
    /// What was computed from frozen weights when the program was loaded.
    Packed,
}

/// One kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// What reports call it.
    pub name: String,
    /// The function in the object.
    pub symbol: String,
    /// The object that defines it.
    pub object: String,
    /// The strategy, such as `pointwise` or `matmul`.
    pub kind: String,
    /// The ops that it does, in order.
    pub ops: Vec<String>,
    /// Where the ops of this launch stand in the source, such as `gelu (model.py:12)`, each place
    /// once; empty if that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Why it does not do more.
    pub not_fused: Vec<String>,
    /// The earlier launches whose results it reads.
    pub reads: Vec<usize>,
    /// The call's arguments that it reads, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<usize>,
    /// The call's results that it writes, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<usize>,
    /// Types and sizes of what it writes, without names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Tensor>,
    /// Bytes that one call moves, where that is a size like others.
    pub bytes: Option<Dim>,
    /// Floating-point operations of one call.
    pub flops: Option<Dim>,
    /// Whether it always runs on one thread.
    pub serial: bool,
    /// How a GPU runs it; none on the host, where the entry does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

/// A launch of a GPU's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The kernel's parameters in order.
    pub args: Vec<Arg>,
    /// Blocks; at least one is launched, and any number is right.
    pub grid: Dim,
    /// How many blocks a multiprocessor has room for, of a kernel whose blocks go on with what is
    /// left: no more of them are launched. 0 for no such limit.
    #[serde(default, skip_serializing_if = "none")]
    pub resident: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory that a block asks for beyond what the code has.
    #[serde(default)]
    pub shared: u32,
    /// Parameters behind `args`: tensors as the copy engine wants them described.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMap>,
    /// What a library is called for in place of the kernel where the library is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<LibraryCall>,
    /// The function in the code, of a kernel that was given as PTX; else it has the kernel's
    /// symbol. It is launched with just as many blocks as `grid` says, and with one for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

fn none(n: &u32) -> bool {
    *n == 0
}

/// A tensor for the copy engine of sm_90, which moves boxes of it to and from shared memory, in
/// rows of 128 bytes that are swizzled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// The entry of [`Launch::args`] that is its memory.
    pub arg: usize,
    /// The element type in MLIR's spelling: `bf16`, `f16`, `f32`, or `tf32` for f32 that is rounded
    /// to that.
    pub dtype: String,
    /// The first element.
    pub offset: Dim,
    /// Sizes, the innermost first.
    pub sizes: Vec<Dim>,
    /// Distances of neighbours in all dimensions but the innermost, in elements.
    pub strides: Vec<Dim>,
    /// Sizes of a box; of images, channels and pixels.
    pub extent: Vec<u32>,
    /// Of images (channels, width, height, images): which pixels there are results of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// How a window moves over images whose pixels the copy engine reads. Pairs are of height and
/// width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Where the first place of the window begins: not above 0, which is the image's first pixel.
    pub low: [i32; 2],
    /// Where it begins at last, counted from the image's last pixel.
    pub high: [i32; 2],
    /// How far it moves.
    pub strides: [u32; 2],
}

/// One parameter of a GPU's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// The memory of an argument of the call.
    Input(usize),
    /// The memory of a result of the call.
    Output(usize),
    /// The memory of a global.
    Global(usize),
    /// Memory of the arena, at this offset in bytes.
    Arena(Dim),
    /// A size, as 64 bits.
    Size(Dim),
}

/// Function names in the host object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The object that defines them.
    pub object: String,
    /// `void main(const u64* args, i32 threads)`.
    pub main: String,
    /// Computes sizes of the arena and of results, if any depend on a call.
    pub sizes: Option<String>,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry { object: "host".into(), main: "main".into(), sizes: None }
    }
}

/// How a program wants to be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Threads of a region; the pool's number if 0.
    pub threads: u32,
    /// The compiler's options, as it prints them; for reports.
    pub compiler: String,
}

impl Global {
    /// The result of [`Program::prepare`] that it is, if it is packed.
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
    /// Itself, or if it is control flow the programs that it calls, in order.
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
