//! A JIT linker for host objects: loads sections, applies relocations, then makes the code
//! executable.
//!
//! Supports what LLVM emits for x86-64 ELF with PIC and the small code model, and rejects anything
//! else. Objects are code: load only what you trust. A damaged object is an error.
mod error;
mod library;
mod memory;

pub use error::LinkError;
pub use library::library_symbols;

use memory::{Memory, Segment};
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SymbolIndex,
    elf::*,
    read::elf::{ElfFile64, ElfSection64},
};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_void,
};

/// Linked code. It can refer only to the symbols it was given and to its own objects. Addresses are
/// valid until it is dropped.
#[derive(Debug)]
pub struct LinkedCode {
    _memory: Memory,
    symbols: HashMap<String, u64>,
}

type File<'a> = ElfFile64<'a, object::LittleEndian>;

/// An object and the placement of its sections.
struct Input<'a> {
    name: &'a str,
    file: File<'a>,
    /// By section: the segment and the offset in it.
    placements: BTreeMap<usize, (Segment, usize)>,
    /// By symbol that is accessed through the GOT: its slot.
    got_slots: BTreeMap<usize, usize>,
}

/// Bytes of a GOT entry, and of a PLT stub after the code, for calls out of the 32-bit range.
const GOT_ENTRY: usize = 8;
const PLT_STUB: usize = 8;

/// Width in bytes of a relocated field.
fn width(kind: u32) -> Option<usize> {
    match kind {
        R_X86_64_NONE => Some(0),
        R_X86_64_64 | R_X86_64_PC64 => Some(8),
        R_X86_64_PC32 | R_X86_64_PLT32 | R_X86_64_32 | R_X86_64_32S => Some(4),
        R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX => Some(4),
        _ => None,
    }
}

fn uses_got(kind: u32) -> bool {
    matches!(kind, R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX)
}

/// The segment that a section is loaded to. `None` for unwind tables: nothing unwinds through
/// kernels.
fn segment(section: &ElfSection64<object::LittleEndian>) -> Option<Segment> {
    let SectionFlags::Elf { sh_flags } = section.flags() else { return None };
    let has = |flag: u32| sh_flags & u64::from(flag) != 0;
    match section.name() {
        _ if !has(SHF_ALLOC) => None,
        Ok(".eh_frame") => None,
        _ if has(SHF_EXECINSTR) => Some(Segment::LinkedCode),
        _ if has(SHF_WRITE) => Some(Segment::Data),
        _ => Some(Segment::Constants),
    }
}

impl LinkedCode {
    /// Links objects by name against each other and these symbols. The first of several definitions
    /// of a symbol wins.
    pub fn link<'a>(
        objects: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        symbols: &[(&str, *const c_void)],
    ) -> Result<LinkedCode, LinkError> {
        let mut inputs = objects
            .into_iter()
            .map(|(name, bytes)| Input::read(name, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut sizes, mut count) = ([0usize; Segment::COUNT], 0);
        for input in &mut inputs {
            input.layout(&mut sizes, &mut count)?;
        }
        // PLT stubs follow the code, the GOT follows the constants.
        let (stubs, got) = (
            sizes[Segment::LinkedCode as usize].next_multiple_of(PLT_STUB),
            sizes[Segment::Constants as usize].next_multiple_of(GOT_ENTRY),
        );
        sizes[Segment::LinkedCode as usize] = stubs + count * PLT_STUB;
        sizes[Segment::Constants as usize] = got + count * GOT_ENTRY;
        let mut memory = Memory::new(sizes)?;
        let mut defined = HashMap::new();
        for input in &inputs {
            input.define(&memory, &mut defined)?;
        }
        let mut given: HashMap<&str, u64> = HashMap::new();
        for (name, address) in symbols {
            given.entry(name).or_insert(address.expose_provenance() as u64);
        }
        for input in &inputs {
            input.write(
                &mut memory,
                &SymbolTables { internal: &defined, external: &given, stubs, got },
            )?;
        }
        memory.seal()?;
        Ok(LinkedCode { _memory: memory, symbols: defined })
    }
    /// The address of an exported function or datum.
    pub fn address(&self, symbol: &str) -> Result<*const c_void, LinkError> {
        let found =
            self.symbols.get(symbol).map(|a| std::ptr::with_exposed_provenance(*a as usize));
        found.ok_or_else(|| LinkError::NoEntry(symbol.into()))
    }
}

/// Symbol tables for resolution.
struct SymbolTables<'a> {
    internal: &'a HashMap<String, u64>,
    external: &'a HashMap<&'a str, u64>,
    stubs: usize,
    got: usize,
}

impl<'a> Input<'a> {
    fn read(name: &'a str, bytes: &'a [u8]) -> Result<Input<'a>, LinkError> {
        let fail = |reason: String| LinkError::Object { object: name.into(), reason };
        let file = File::parse(bytes).map_err(|e| fail(format!("is not read: {e}")))?;
        let header = file.elf_header();
        let (kind, machine) =
            (header.e_type.get(object::LittleEndian), header.e_machine.get(object::LittleEndian));
        if (kind, machine) != (ET_REL, EM_X86_64) {
            return Err(fail(format!(
                "has type {kind} and machine {machine}, and is no relocatable one for x86-64"
            )));
        }
        Ok(Input { name, file, placements: BTreeMap::new(), got_slots: BTreeMap::new() })
    }
    fn fail(&self, reason: impl ToString) -> LinkError {
        LinkError::Object { object: self.name.into(), reason: reason.to_string() }
    }

    /// Assigns each section an offset, and a GOT slot to each symbol that needs one.
    fn layout(
        &mut self,
        sizes: &mut [usize; Segment::COUNT],
        slots: &mut usize,
    ) -> Result<(), LinkError> {
        for section in self.file.sections() {
            let Some(segment) = segment(&section) else { continue };
            let (bytes, align) = (
                usize::try_from(section.size()),
                usize::try_from(section.align()).unwrap_or(0).max(1),
            );
            let bytes = bytes
                .ok()
                .filter(|n| *n < 1 << 30 && align.is_power_of_two() && align <= memory::PAGE);
            let bytes = bytes.ok_or_else(|| {
                self.fail(format!("has a section of {} bytes aligned to {align}", section.size()))
            })?;
            let size = &mut sizes[segment as usize];
            let at = size.next_multiple_of(align);
            *size = at + bytes;
            if *size >= 1 << 30 {
                return Err(self.fail("is too large"));
            }
            self.placements.insert(section.index().0, (segment, at));
            for (_, reference) in section.relocations() {
                let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(index)) =
                    (reference.flags(), reference.target())
                else {
                    return Err(self.fail("has a reference to no symbol"));
                };
                let symbol = self.file.symbol_by_index(index).map_err(|e| self.fail(e))?;
                if (symbol.is_undefined() || uses_got(r_type))
                    && !self.got_slots.contains_key(&index.0)
                {
                    self.got_slots.insert(index.0, *slots);
                    *slots += 1;
                }
            }
        }
        Ok(())
    }

    /// The address of a symbol that this object defines.
    fn local(&self, index: SymbolIndex, memory: &Memory) -> Result<Option<u64>, LinkError> {
        let symbol = self.file.symbol_by_index(index).map_err(|e| self.fail(e))?;
        let Some(section) = symbol.section_index() else { return Ok(None) };
        let place = self
            .placements
            .get(&section.0)
            .ok_or_else(|| self.fail("refers to a section that is not in memory"))?;
        let size = self.file.section_by_index(section).map_err(|e| self.fail(e))?.size();
        if symbol.address() > size {
            return Err(self.fail("has a symbol outside of its section"));
        }
        Ok(Some(memory.address(place.0, place.1) + symbol.address()))
    }

    fn define(&self, memory: &Memory, defined: &mut HashMap<String, u64>) -> Result<(), LinkError> {
        for symbol in self.file.symbols().filter(|s| s.is_global()) {
            // A section that is not loaded defines nothing that code refers to.
            if symbol.section_index().is_none_or(|s| !self.placements.contains_key(&s.0)) {
                continue;
            }
            let Some(address) = self.local(symbol.index(), memory)? else { continue };
            let name = symbol.name().map_err(|e| self.fail(e))?;
            if defined.insert(name.to_string(), address).is_some() {
                return Err(
                    self.fail(format!("defines '{name}', which another object defines, too"))
                );
            }
        }
        Ok(())
    }

    fn write(&self, memory: &mut Memory, tables: &SymbolTables) -> Result<(), LinkError> {
        for (index, slot) in &self.got_slots {
            let address = self.address(SymbolIndex(*index), memory, tables)?;
            let (entry, stub) = (tables.got + slot * GOT_ENTRY, tables.stubs + slot * PLT_STUB);
            memory.put(Segment::Constants, entry, &address.to_le_bytes());
            // jmp *[rip + distance], relative to the end of these six bytes.
            let distance = memory
                .address(Segment::Constants, entry)
                .wrapping_sub(memory.address(Segment::LinkedCode, stub) + 6)
                as i32;
            memory.put(
                Segment::LinkedCode,
                stub,
                &[&[0xff, 0x25], &distance.to_le_bytes()[..]].concat(),
            );
        }
        for section in self.file.sections() {
            let Some((segment, at)) = self.placements.get(&section.index().0).copied() else {
                continue;
            };
            let data = section.data().map_err(|e| self.fail(e))?;
            let size = section.size() as usize;
            // .bss has a size and no bytes.
            if data.len() > size {
                return Err(self.fail("has a section that is longer than it says"));
            }
            memory.put(segment, at, data);
            for (offset, reference) in section.relocations() {
                let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(index)) =
                    (reference.flags(), reference.target())
                else {
                    continue;
                };
                let wide = width(r_type)
                    .ok_or_else(|| self.fail(format!("has a reference of type {r_type}")))?;
                let offset = usize::try_from(offset)
                    .ok()
                    .filter(|o| o.checked_add(wide).is_some_and(|end| end <= size));
                let offset =
                    offset.ok_or_else(|| self.fail("has a reference outside of its section"))?;
                let here = memory.address(segment, at + offset);
                let target = match (self.got_slots.get(&index.0), uses_got(r_type)) {
                    (Some(slot), true) => {
                        memory.address(Segment::Constants, tables.got + slot * GOT_ENTRY)
                    }
                    (Some(slot), false) if matches!(r_type, R_X86_64_PLT32 | R_X86_64_PC32) => {
                        memory.address(Segment::LinkedCode, tables.stubs + slot * PLT_STUB)
                    }
                    _ => self.address(index, memory, tables)?,
                };
                let value = target.wrapping_add_signed(reference.addend());
                let relative = value.wrapping_sub(here);
                let far = |_| self.fail("has a reference that does not reach its symbol");
                match r_type {
                    R_X86_64_NONE => {}
                    R_X86_64_64 => memory.put(segment, at + offset, &value.to_le_bytes()),
                    R_X86_64_PC64 => memory.put(segment, at + offset, &relative.to_le_bytes()),
                    R_X86_64_32 => memory.put(
                        segment,
                        at + offset,
                        &u32::try_from(value).map_err(far)?.to_le_bytes(),
                    ),
                    R_X86_64_32S => memory.put(
                        segment,
                        at + offset,
                        &i32::try_from(value as i64).map_err(far)?.to_le_bytes(),
                    ),
                    _ => memory.put(
                        segment,
                        at + offset,
                        &i32::try_from(relative as i64).map_err(far)?.to_le_bytes(),
                    ),
                }
            }
        }
        Ok(())
    }

    /// Resolves a symbol: in this object, in another one, or in the symbols given.
    fn address(
        &self,
        index: SymbolIndex,
        memory: &Memory,
        tables: &SymbolTables,
    ) -> Result<u64, LinkError> {
        if let Some(address) = self.local(index, memory)? {
            return Ok(address);
        }
        let symbol = self.file.symbol_by_index(index).map_err(|e| self.fail(e))?;
        let name = symbol.name().map_err(|e| self.fail(e))?;
        let found = tables.internal.get(name).or_else(|| tables.external.get(name)).copied();
        found.ok_or_else(|| LinkError::Missing { symbol: name.into(), object: self.name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOURCE: &str = "
        extern double cbrt(double);
        static const double table[4] = {1.0, 2.0, 4.0, 8.0};
        static long calls;
        long other(long);
        double third(long i) { calls += 1; return cbrt(table[i & 3]); }
        long count(void) { return other(calls); }
        long pick(long i) { switch (i) { case 0: return 7; case 1: return 11; case 2: return 3; case 3: return 19; case 4: return 2; default: return other(i); } }";
    const OTHER: &str = "long other(long n) { return n * 10; }";

    /// Compiles C source to an object with LLVM.
    fn compiled(source: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("a.c"), source).expect("written");
        let done = Command::new("cc")
            .args(["-O2", "-fPIC", "-fno-asynchronous-unwind-tables", "-c", "a.c", "-o", "a.o"])
            .current_dir(dir.path())
            .status();
        assert!(done.expect("a C compiler").success());
        std::fs::read(dir.path().join("a.o")).expect("an object")
    }

    #[test]
    fn objects_call_each_other_and_the_process() {
        let (a, b) = (compiled(SOURCE), compiled(OTHER));
        let code =
            LinkedCode::link([("a", &a[..]), ("b", &b[..])], &library_symbols()).expect("linked");
        let of = |name: &str| code.address(name).expect("defined");
        // SAFETY: the signatures in the source.
        unsafe {
            let third =
                std::mem::transmute::<*const c_void, extern "C" fn(i64) -> f64>(of("third"));
            let count = std::mem::transmute::<*const c_void, extern "C" fn() -> i64>(of("count"));
            let pick = std::mem::transmute::<*const c_void, extern "C" fn(i64) -> i64>(of("pick"));
            assert_eq!((third(3), third(0)), (2.0, 1.0));
            assert_eq!((count(), pick(1), pick(4), pick(9)), (20, 11, 2, 90));
        }
        assert_eq!(code.address("nothing"), Err(LinkError::NoEntry("nothing".into())));
    }

    #[test]
    fn what_is_missing_or_damaged_is_an_error() {
        let (a, b) = (compiled(SOURCE), compiled(OTHER));
        let missing = LinkedCode::link([("a", &a[..])], &library_symbols())
            .expect_err("nobody defines other");
        assert_eq!(missing, LinkError::Missing { symbol: "other".into(), object: "a".into() });
        let twice = LinkedCode::link([("b", &b[..]), ("c", &b[..])], &[])
            .expect_err("defined twice")
            .to_string();
        assert!(twice.contains("defines 'other'"), "{twice}");
        assert!(LinkedCode::link([("x", &b"\x7fELF"[..])], &[]).is_err());
        // Truncated anywhere, or with any byte of its tables changed, it links or is rejected,
        // without a crash.
        for n in 0..a.len() {
            let _ = LinkedCode::link([("a", &a[..n]), ("b", &b[..])], &library_symbols());
        }
        for at in (0..a.len()).step_by(3) {
            for bit in [1, 0x80] {
                let mut bad = a.clone();
                bad[at] ^= bit;
                let _ = LinkedCode::link([("a", &bad[..]), ("b", &b[..])], &library_symbols());
            }
        }
    }
}
