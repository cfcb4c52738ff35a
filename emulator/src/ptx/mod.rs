//! Parsing and decoding of PTX.
mod async_copies;
pub mod code;
mod collective;
pub mod convert;
mod decode;
mod error;
mod floats;
pub mod integers;
mod lex;
mod operands;
mod parse;

use crate::allocations::{MEMORY, MemoryKind};
pub use code::Param;
pub use error::Error;

use code::{InitialValue, Instruction, Op, Slot, Space};
use decode::{decode, lay_out};
use operands::VariableMap;
use std::{collections::BTreeMap, sync::Arc};

/// A kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Size of the parameter buffer in bytes.
    pub param_bytes: usize,
    /// Static shared memory in bytes.
    pub shared: u32,
    /// Local memory per thread in bytes.
    pub local: u32,
    /// `.maxntid`, if given.
    pub threads: Option<u32>,
    /// Cluster size in CTAs; 1 without.
    pub cluster: u32,
    /// Whether it waits for the kernel before it (`griddepcontrol.wait`).
    pub dependent: bool,
    /// Instructions.
    pub code: Vec<Instruction>,
    /// Register slots per thread.
    pub slots: u32,
    /// Initial values of slots.
    pub initial_values: Vec<(Slot, InitialValue)>,
    /// Lines of the PTX, for fault messages.
    pub text: Arc<Vec<String>>,
    /// Keeps the module's variables alive.
    _variables: Arc<Variables>,
}

/// Owns the memory of a module's variables.
#[derive(Debug, Default)]
struct Variables(BTreeMap<String, (u64, usize)>);

impl Drop for Variables {
    fn drop(&mut self) {
        self.0.values().for_each(|(at, _)| {
            MEMORY.free(*at);
        });
    }
}

/// A PTX module.
#[derive(Debug, Default)]
pub struct Module {
    /// Kernels by name.
    pub kernels: BTreeMap<String, Arc<Kernel>>,
    /// Variables by name: address and size in bytes.
    pub globals: BTreeMap<String, (u64, usize)>,
}

impl Module {
    /// Parses PTX and allocates its variables. Err: invalid or unsupported PTX.
    pub fn load(ptx: &str) -> Result<Module, Error> {
        let parsed = parse::parse(ptx)?;
        let mut variables = Variables::default();
        for v in parsed.variables.iter().filter(|v| v.space != "shared") {
            let at = MEMORY.allocate(v.size, MemoryKind::Device).ok_or_else(|| Error {
                line: 0,
                what: format!("there is no memory for {}", v.name),
            })?;
            // SAFETY: just allocated with this size; what it begins with is no longer, as its type
            // says.
            unsafe {
                (at as *mut u8).write_bytes(0, v.size);
                (at as *mut u8)
                    .copy_from_nonoverlapping(v.bytes.as_ptr(), v.bytes.len().min(v.size));
            }
            variables.0.insert(v.name.clone(), (at, v.size));
        }
        let variables = Arc::new(variables);
        let text = Arc::new(ptx.lines().map(|l| l.trim().to_string()).collect::<Vec<_>>());
        let mut kernels = BTreeMap::new();
        for e in &parsed.entries {
            let mut addresses: VariableMap =
                variables.0.iter().map(|(n, (at, _))| (n.clone(), (Space::Global, *at))).collect();
            let all = parsed.variables.iter().chain(&e.variables);
            let shared =
                lay_out(all.filter(|v| v.space == "shared"), Space::Shared, &mut addresses) as u32;
            let local = lay_out(
                e.variables.iter().filter(|v| v.space == "local"),
                Space::Local,
                &mut addresses,
            ) as u32;
            let (mut params, mut end) = (vec![], 0usize);
            for (name, align, size) in &e.params {
                let offset = end.next_multiple_of((*align).max(1));
                params.push(Param { name: name.clone(), offset, size: *size });
                end = offset + size;
            }
            let decoded = decode(e, &params, &addresses)?;
            let product = |name: &str| e.limits.get(name).map(|l| l.iter().product::<u32>());
            let kernel = Kernel {
                name: e.name.clone(),
                params,
                param_bytes: end,
                shared,
                local,
                threads: product("reqntid").or(product("maxntid")),
                cluster: product("reqnctapercluster").unwrap_or(1),
                dependent: decoded.code.iter().any(|i| matches!(i.op, Op::DependencyWait)),
                code: decoded.code,
                slots: decoded.slots,
                initial_values: decoded.initial_values,
                text: text.clone(),
                _variables: variables.clone(),
            };
            kernels.insert(e.name.clone(), Arc::new(kernel));
        }
        Ok(Module { kernels, globals: variables.0.clone() })
    }
}
