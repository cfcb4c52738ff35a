//! Top-level modules: parsing and printing of text and bytecode.
use super::*;
use crate::ffi;
use sha2::{Digest, Sha256};

/// Nesting limit of brackets in text. MLIR's parser recurses, so deeper text could overflow its
/// stack.
pub const NESTING_LIMIT: usize = 256;
/// kiln's bytecode header: this magic, the SHA-256 of the bytecode, the bytecode.
pub const BYTECODE_MAGIC: &[u8] = b"KILNBC1\n";

/// Why a module failed to parse.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ParseError {
    /// Brackets nest deeper than [`NESTING_LIMIT`].
    #[error("{file}:{line}: brackets nest deeper than {NESTING_LIMIT}")]
    Nesting {
        /// The file's name.
        file: String,
        /// The line where the limit is passed.
        line: usize,
    },
    /// The input is neither text nor kiln's bytecode.
    #[error("{file}: {reason}")]
    Input {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// MLIR rejected it.
    #[error("{}", .0.iter().map(|d| d.to_string()).collect::<Vec<_>>().join("\n"))]
    Diagnostics(Vec<Diagnostic>),
}

/// Printing options.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintOptions {
    /// Print locations at the end of lines.
    pub debug_info: bool,
    /// Print the generic form.
    pub generic: bool,
    /// Take `%name` from named locations.
    pub names_from_locations: bool,
    /// Print only the op (local scope); otherwise MLIR numbers all values of the enclosing module.
    pub local_scope: bool,
}

/// A `builtin.module` that owns its ops.
#[derive(Debug)]
pub struct Module(MlirModule);
// SAFETY: as Context; a module is used only by the owner of its context.
unsafe impl Send for Module {}

impl Module {
    /// An empty module.
    pub fn new(loc: Loc) -> Module {
        Module(unsafe { mlirModuleCreateEmpty(loc.0) })
    }
    /// Parses and verifies text, or bytecode with kiln's checksum. Also returns warnings and
    /// remarks.
    pub fn parse(
        c: Ctx,
        source: &[u8],
        file: &str,
    ) -> Result<(Module, Vec<Diagnostic>), ParseError> {
        let input = |reason: &str| ParseError::Input { file: file.into(), reason: reason.into() };
        let payload = if let Some(rest) = source.strip_prefix(BYTECODE_MAGIC) {
            let (sum, code) = rest
                .split_at_checked(32)
                .ok_or_else(|| input("kiln bytecode that ends inside its checksum"))?;
            if Sha256::digest(code).as_slice() != sum {
                return Err(input("kiln bytecode whose checksum is wrong: it was changed or cut"));
            }
            code
        } else if source.starts_with(b"ML\xefR") {
            return Err(input(
                "MLIR bytecode without kiln's checksum; MLIR's reader can crash on damaged bytecode, so kiln reads only its own (kiln-opt --emit-bytecode)",
            ));
        } else {
            let text = std::str::from_utf8(source).map_err(|e| {
                input(&format!(
                    "byte {} is not UTF-8 text, and it is not kiln bytecode",
                    e.valid_up_to()
                ))
            })?;
            if let Some(line) = too_deep(text) {
                return Err(ParseError::Nesting { file: file.into(), line });
            }
            source
        };
        // The lexer reads one byte past the end.
        let mut buffer = payload.to_vec();
        buffer.push(0);
        let source = MlirStringRef { data: buffer.as_ptr().cast(), length: payload.len() };
        let (raw, diagnostics) =
            collect(c, || unsafe { ffi::kilnParseModule(c.raw(), source, sref(file)) });
        if raw.ptr.is_null() {
            return Err(ParseError::Diagnostics(diagnostics));
        }
        Ok((Module(raw), diagnostics))
    }
    /// Takes over a module that was made elsewhere.
    ///
    /// # Safety
    /// The module is alive, and nothing else destroys it.
    #[cfg(feature = "melior")]
    pub(super) unsafe fn adopt(raw: MlirModule) -> Module {
        Module(raw)
    }
    #[cfg(feature = "melior")]
    pub(super) fn raw(&self) -> MlirModule {
        self.0
    }
    /// The module op.
    pub fn op(&self) -> Op {
        Op::of(unsafe { mlirModuleGetOperation(self.0) })
    }
    /// Its only block.
    pub fn body(&self) -> Block {
        Block::of(unsafe { mlirModuleGetBody(self.0) })
    }
    /// A deep copy in the same context.
    pub fn duplicate(&self) -> Module {
        Module(unsafe { mlirModuleFromOperation(mlirOperationClone(self.op().raw())) })
    }
    /// MLIR bytecode with kiln's checksum header.
    pub fn bytecode(&self) -> Vec<u8> {
        let code = printed_bytes(|cb, d| unsafe {
            mlirOperationWriteBytecode(self.op().raw(), cb, d);
        });
        [BYTECODE_MAGIC, Sha256::digest(&code).as_slice(), &code].concat()
    }
    /// Text.
    pub fn print(&self, options: PrintOptions) -> String {
        self.op().print(options)
    }
    /// The top-level symbol of that name.
    pub fn find(&self, symbol: &str) -> Option<Op> {
        self.body().ops().into_iter().find(|o| o.symbol().as_deref() == Some(symbol))
    }
}

impl Op {
    /// Text.
    pub fn print(self, options: PrintOptions) -> String {
        printed(|cb, d| unsafe {
            let flags = mlirOpPrintingFlagsCreate();
            if options.debug_info {
                mlirOpPrintingFlagsEnableDebugInfo(flags, true, false);
            }
            if options.generic {
                mlirOpPrintingFlagsPrintGenericOpForm(flags);
            }
            if options.names_from_locations {
                mlirOpPrintingFlagsPrintNameLocAsPrefix(flags);
            }
            if options.local_scope {
                mlirOpPrintingFlagsUseLocalScope(flags);
            }
            mlirOperationPrintWithFlags(self.raw(), flags, cb, d);
            mlirOpPrintingFlagsDestroy(flags);
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        generation::erase(self.op());
        unsafe { mlirModuleDestroy(self.0) }
    }
}

/// The line where brackets exceed the nesting limit, ignoring strings and comments.
fn too_deep(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let (mut depth, mut line, mut i) = ([0usize; 4], 1, 0);
    while i < bytes.len() {
        match bytes[i] {
            b'\n' => line += 1,
            b'"' => {
                i += 1;
                while i < bytes.len() && bytes[i] != b'"' && bytes[i] != b'\n' {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
                if bytes.get(i) == Some(&b'\n') {
                    line += 1;
                }
            }
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                while i < bytes.len() && bytes[i] != b'\n' {
                    i += 1;
                }
                continue;
            }
            b'-' if bytes.get(i + 1) == Some(&b'>') => i += 1,
            b @ (b'(' | b'[' | b'{' | b'<') => {
                depth[bracket(b)] += 1;
                if depth.iter().sum::<usize>() > NESTING_LIMIT {
                    return Some(line);
                }
            }
            // Saturating, since `>=` closes nothing; counted per kind, so that it cannot hide other
            // brackets.
            b @ (b')' | b']' | b'}' | b'>') => {
                depth[bracket(b)] = depth[bracket(b)].saturating_sub(1)
            }
            _ => {}
        }
        i += 1;
    }
    None
}

fn bracket(b: u8) -> usize {
    match b {
        b'(' | b')' => 0,
        b'[' | b']' => 1,
        b'{' | b'}' => 2,
        _ => 3,
    }
}
