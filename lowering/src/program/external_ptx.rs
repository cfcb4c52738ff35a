//! External PTX kernels: what is read from the text, their entry of `kiln.kernel`, and their code.
use crate::{
    strategies::gpu::common::grid::map as grid_map,
    target::{
        Chip, Target,
        launch::{GRID, SHARED_BYTES, THREADS},
    },
};
use kiln_dialects::{ir::*, ops::PtxCall};
use sha2::{Digest, Sha256};

/// Properties of a PTX text that can be read without a compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxInfo {
    /// The target architecture, such as `sm_90a`.
    pub target: String,
    /// Number of parameters of the entry.
    pub parameters: usize,
}

impl PtxInfo {
    /// Reads PTX whose `entry` is launched with `threads` threads per CTA. Err: why it cannot be
    /// launched, as the end of a sentence.
    pub fn read(ptx: &str, entry: &str, threads: u32) -> Result<PtxInfo, String> {
        let text = without_comments(ptx);
        let words: Vec<&str> = text.split_whitespace().collect();
        let behind = |word: &str| {
            words.iter().position(|w| *w == word).and_then(|i| words.get(i + 1).copied())
        };
        behind(".version").ok_or("has PTX without a .version")?;
        let target = behind(".target")
            .map(|t| t.split(',').next().unwrap_or(t).to_string())
            .ok_or("has PTX without a .target")?;
        number(&target)
            .ok_or_else(|| format!("has PTX for .target {target}, which is no sm_<number>"))?;
        if behind(".address_size").is_some_and(|n| n != "64") {
            return Err("has PTX without 64-bit addresses".into());
        }
        let entries = entries(&text);
        let found = entries.iter().find(|(name, _)| *name == entry);
        let (_, rest) = found.ok_or_else(|| {
            let all: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
            let all = if all.is_empty() { "none".to_string() } else { all.join(", ") };
            format!("has no .entry {entry} in its PTX; there is {all}")
        })?;
        let parameters = parameters(rest)?;
        // Performance directives, between the parameters and the body.
        let directives = rest.split('{').next().unwrap_or_default();
        for (name, exact) in [(".reqntid", true), (".maxntid", false)] {
            let Some((_, numbers)) = directives.split_once(name) else { continue };
            let stated = numbers
                .trim_start()
                .split(|c: char| !(c.is_ascii_digit() || c == ',' || c == ' '))
                .next()
                .unwrap_or_default();
            let all = stated
                .split(',')
                .filter_map(|n| n.trim().parse::<u32>().ok())
                .fold(1, u32::saturating_mul);
            if threads > all || exact && threads != all {
                return Err(format!(
                    "is launched with {threads} threads a block, and its PTX says {name} {}",
                    stated.trim()
                ));
            }
        }
        Ok(PtxInfo { target, parameters })
    }

    /// Why a chip cannot run it; `None` if it can. Code with the suffix `a` runs on that chip only.
    pub fn unsupported_reason(&self, chip: Chip) -> Option<String> {
        let (own, have) = (number(&self.target)?, number(chip.name())?);
        let runs =
            if self.target.ends_with('a') { self.target == chip.name() } else { own <= have };
        (!runs).then(|| format!("has PTX for {}, which {} does not run", self.target, chip.name()))
    }
}

/// The number in `sm_90a`, without the suffix.
fn number(target: &str) -> Option<u32> {
    target.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()
}

/// The text with each comment replaced by a blank.
fn without_comments(ptx: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(ptx.len()), ptx);
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        text.push_str(&rest[..at]);
        text.push(' ');
        let (end, skip) = if rest[at..].starts_with("//") { ('\n', 0) } else { ('/', 1) };
        let mut from = at + 2;
        rest = loop {
            match rest[from..].find(end) {
                None => break "",
                // A block comment ends with a star and a slash.
                Some(i) if skip == 1 && !rest[..from + i].ends_with('*') => from += i + 1,
                Some(i) => break &rest[from + i + skip..],
            }
        };
    }
    text.push_str(rest);
    text
}

/// The name of each entry, with the text after it.
fn entries(text: &str) -> Vec<(&str, &str)> {
    text.split(".entry")
        .skip(1)
        .map(|rest| {
            let rest = rest.trim_start();
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "_$%".contains(c)))
                .unwrap_or(rest.len());
            rest.split_at(end)
        })
        .collect()
}

/// Number of parameters in an entry's parameter list. Err: one is not 64 bits wide.
fn parameters(rest: &str) -> Result<usize, String> {
    let Some(list) =
        rest.trim_start().strip_prefix('(').and_then(|r| r.split_once(')')).map(|(list, _)| list)
    else {
        return Ok(0);
    };
    let all: Vec<&str> = list.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    for (i, p) in all.iter().enumerate() {
        let wide = p.split_whitespace().any(|w| [".u64", ".b64", ".s64"].contains(&w));
        if !wide || p.contains('[') {
            return Err(format!(
                "has PTX whose parameter {i} is '{p}'; all are .u64: addresses and sizes"
            ));
        }
    }
    Ok(all.len())
}

/// One sentence with a source location for each PTX kernel of a module that the target cannot run
/// and that has no fallback.
pub fn refused(module: Op, target: &Target) -> Vec<String> {
    let mut all = vec![];
    for op in walk(module) {
        let Some(call) = PtxCall::of(op) else { continue };
        let threads = u32::try_from(call.threads).unwrap_or(0);
        let reason = match target.chip() {
            None if op.regions().is_empty() => {
                Some("has PTX alone, which processors do not run: neither a function of the host nor a body of ops".to_string())
            }
            None => None,
            Some(chip) => PtxInfo::read(&call.ptx, &call.entry, threads).map_or_else(Some, |text| {
                let passed = call.inputs.len() + op.result_count() + call.sizes.len();
                let wrong = || format!("passes {passed} parameters to {}, which takes {}", call.entry, text.parameters);
                text.unsupported_reason(chip).or_else(|| (passed != text.parameters).then(wrong))
            }),
        };
        all.extend(
            reason.map(|reason| format!("{}: custom op '{}' {reason}", op.loc(), call.callee)),
        );
    }
    all
}

/// The entry of `kiln.kernel` for an external PTX kernel.
pub struct PtxEntry {
    /// Name of the `.entry` function in the PTX.
    pub entry: String,
    /// The leading pointer parameters: the launch input of each.
    pub operands: Vec<usize>,
    /// The pointer parameters after them: the launch output of each.
    pub results: Vec<usize>,
    /// The size parameters after those, as affine expressions over the launch's sizes.
    pub sizes: Vec<Affine>,
}

const KIND: &str = "ptx";

impl PtxEntry {
    /// Reads a kernel's module; `None` for a kernel that kiln compiles.
    pub fn of(kernel: Op) -> Option<PtxEntry> {
        let about = kernel.attr("kiln.kernel")?;
        let list = |key: &str| {
            Some(about.entry(key)?.as_i64s()?.into_iter().map(|i| i as usize).collect())
        };
        Some(PtxEntry {
            entry: about.entry("entry")?.as_string()?,
            operands: list("operands")?,
            results: list("results")?,
            sizes: about.entry("sizes")?.as_affine_map()?.1,
        })
    }

    /// Adds a PTX call to the attributes of its kernel's module. `indices`: the kernel's size
    /// parameters.
    pub fn describe(
        kernel: Op,
        call: &PtxCall,
        operands: &[usize],
        results: &[usize],
        indices: &[Value],
    ) -> Result<()> {
        let c = kernel.ctx();
        let text = |s: &Size| match s {
            Size::Static(n) => Ok(n.to_string()),
            Size::Dynamic(v) => match indices.iter().position(|i| i == v) {
                Some(k) => Ok(format!("s{k}")),
                None => v
                    .def()
                    .and_then(|o| o.attr("value")?.as_i64())
                    .map(|n| n.to_string())
                    .ok_or("has a size that its kernel does not take"),
            },
        };
        let map = |all: &[Size]| {
            grid_map(c, &all.iter().map(text).collect::<Result<Vec<_>, _>>()?, indices.len())
        };
        let list =
            |all: &[usize]| Attr::i64s(c, &all.iter().map(|i| *i as i64).collect::<Vec<_>>());
        let old = kernel.attr("kiln.kernel").and_then(|a| a.entries()).unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> =
            old.iter().filter(|(n, _)| n != "kind").map(|(n, a)| (n.as_str(), *a)).collect();
        entries.extend([
            ("kind", Attr::string(c, KIND)),
            ("symbol", Attr::string(c, &symbol(call))),
            ("entry", Attr::string(c, &call.entry)),
            ("ptx", Attr::string(c, &call.ptx)),
            ("operands", list(operands)),
            ("results", list(results)),
            ("sizes", map(&call.sizes)?),
            (GRID, map(&call.blocks)?),
            (THREADS, Attr::i64(c, call.threads)),
            (SHARED_BYTES, Attr::i64(c, call.shared)),
        ]);
        kernel.set_attr("kiln.kernel", Attr::dictionary(c, &entries));
        Ok(())
    }
}

/// The symbol of the kernel's code; equal for equal text.
fn symbol(call: &PtxCall) -> String {
    let mut sha = Sha256::new();
    for part in [&call.entry, &call.ptx] {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    let hash: String = sha.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
    format!("kiln_ptx_{hash}")
}

/// The code of a module's external PTX kernels, by symbol.
pub fn objects(module: Op) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = vec![];
    for kernel in blocks(module).into_iter().flat_map(|b| b.ops()) {
        let about = kernel.attr("kiln.kernel");
        let text = |key: &str| about?.entry(key)?.as_string();
        let Some((ptx, symbol)) = text(KIND).zip(text("symbol")) else { continue };
        if all.iter().all(|(s, _)| *s != symbol) {
            all.push((symbol, ptx.into_bytes()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "// .entry not_me(.param .u32 n)\n.version 7.8\n/* .entry\n nor me * / */ .target sm_80, debug\n.address_size 64\n\
        .visible .entry one(\n\t.param .u64 .ptr .global .align 16 x,\n .param .b64 n\n)\n.reqntid 128, 1, 1\n{ ret; }\n.entry two() { ret; }";

    #[test]
    fn what_ptx_says_of_itself() {
        let read = |entry: &str, threads| PtxInfo::read(TWO, entry, threads);
        assert_eq!(read("one", 128), Ok(PtxInfo { target: "sm_80".into(), parameters: 2 }));
        assert_eq!(read("two", 64).map(|t| t.parameters), Ok(0));
        assert_eq!(
            read("one", 64).unwrap_err(),
            "is launched with 64 threads a block, and its PTX says .reqntid 128, 1, 1"
        );
        assert_eq!(
            read("not_me", 128).unwrap_err(),
            "has no .entry not_me in its PTX; there is one, two"
        );
        let other =
            |from: &str, to: &str| PtxInfo::read(&TWO.replace(from, to), "one", 128).unwrap_err();
        assert_eq!(
            other(".b64 n", ".u32 n"),
            "has PTX whose parameter 1 is '.param .u32 n'; all are .u64: addresses and sizes"
        );
        assert_eq!(other(".target sm_80, debug", ""), "has PTX without a .target");
        assert_eq!(
            other("sm_80", "gfx90a"),
            "has PTX for .target gfx90a,, which is no sm_<number>".replace(",,", ",")
        );
        assert_eq!(other(".version 7.8", ""), "has PTX without a .version");
        assert_eq!(other("64\n", "32\n"), "has PTX without 64-bit addresses");
        assert!(PtxInfo::read("", "one", 1).is_err() && PtxInfo::read("/*", "one", 1).is_err());
    }

    #[test]
    fn a_chip_runs_what_is_not_newer() {
        let refused = |target: &str, chip| {
            PtxInfo { target: target.into(), parameters: 0 }.unsupported_reason(chip).is_some()
        };
        assert!(
            !refused("sm_70", Chip::Sm80)
                && !refused("sm_80", Chip::Sm80)
                && !refused("sm_90", Chip::Sm90a)
                && !refused("sm_90a", Chip::Sm90a)
        );
        assert!(
            refused("sm_86", Chip::Sm80)
                && refused("sm_90a", Chip::Sm89)
                && refused("sm_100", Chip::Sm90a)
                && refused("sm_100a", Chip::Sm90a)
        );
    }
}
