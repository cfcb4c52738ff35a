//! PTX to instructions.
pub mod code;
pub mod convert;
mod copies;
mod decode;
mod floats;
pub mod integers;
mod lex;
mod parse;
mod together;

use crate::allocations::{Kind, MEMORY};
use code::{Fill, Instruction, Slot, Space};
use decode::{Places, decode, lay_out};
use std::{collections::BTreeMap, sync::Arc};

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Where it begins among the parameters, in bytes.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

/// A kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Bytes of all parameters.
    pub param_bytes: usize,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Bytes of memory of a thread.
    pub local: u32,
    /// Most threads of a block, if it says so.
    pub threads: Option<u32>,
    /// Blocks of a cluster, 1 without.
    pub cluster: u32,
    /// What it does.
    pub code: Vec<Instruction>,
    /// Registers of a thread.
    pub slots: u32,
    /// Those that are filled before a thread begins.
    pub fills: Vec<(Slot, Fill)>,
    /// The lines of the text, for faults.
    pub text: Arc<Vec<String>>,
    /// Keeps the module's variables.
    _variables: Arc<Variables>,
}

/// The memory of a module's variables.
#[derive(Debug, Default)]
struct Variables(BTreeMap<String, (u64, usize)>);

impl Drop for Variables {
    fn drop(&mut self) {
        self.0.values().for_each(|(at, _)| {
            MEMORY.free(*at);
        });
    }
}

/// What one text has.
#[derive(Debug, Default)]
pub struct Module {
    /// Kernels by name.
    pub kernels: BTreeMap<String, Arc<Kernel>>,
    /// Variables of the module by name: address and bytes.
    pub globals: BTreeMap<String, (u64, usize)>,
}

/// What cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Of the text.
    pub line: u32,
    /// What is wrong.
    pub what: String,
}

impl Module {
    /// Reads a text, and makes its variables. Err: what is no PTX, or what the machine does not
    /// know.
    pub fn load(ptx: &str) -> Result<Module, Error> {
        let parsed = parse::parse(ptx)?;
        let mut variables = Variables::default();
        for v in parsed.variables.iter().filter(|v| v.space != "shared") {
            let at = MEMORY.allocate(v.size, Kind::Device).ok_or_else(|| Error {
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
            let mut places: Places =
                variables.0.iter().map(|(n, (at, _))| (n.clone(), (Space::Global, *at))).collect();
            let all = parsed.variables.iter().chain(&e.variables);
            let shared =
                lay_out(all.filter(|v| v.space == "shared"), Space::Shared, &mut places) as u32;
            let local = lay_out(
                e.variables.iter().filter(|v| v.space == "local"),
                Space::Local,
                &mut places,
            ) as u32;
            let (mut params, mut end) = (vec![], 0usize);
            for (name, align, size) in &e.params {
                let offset = end.next_multiple_of((*align).max(1));
                params.push(Param { name: name.clone(), offset, size: *size });
                end = offset + size;
            }
            let decoded = decode(e, &params, &places)?;
            let product = |name: &str| e.limits.get(name).map(|l| l.iter().product::<u32>());
            let kernel = Kernel {
                name: e.name.clone(),
                params,
                param_bytes: end,
                shared,
                local,
                threads: product("reqntid").or(product("maxntid")),
                cluster: product("reqnctapercluster").unwrap_or(1),
                code: decoded.code,
                slots: decoded.slots,
                fills: decoded.fills,
                text: text.clone(),
                _variables: variables.clone(),
            };
            kernels.insert(e.name.clone(), Arc::new(kernel));
        }
        Ok(Module { kernels, globals: variables.0.clone() })
    }
}
