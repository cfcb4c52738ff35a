//! Checks the parameters that a kernel's PTX declares against those that the program passes.
use super::PackageError;
use crate::program::Kernel;

/// Bytes of a `CUtensorMap`.
const MAP: usize = 128;

/// Err: the PTX has no such entry, or its parameters are not the launch's: 64-bit words, then
/// tensor maps.
pub(super) fn check(k: &Kernel, code: &[u8]) -> Result<(), PackageError> {
    let fail = |reason: String| PackageError::Kernel { kernel: k.symbol.clone(), reason };
    let Some(launch) = &k.launch else { return Ok(()) };
    let text = std::str::from_utf8(code).map_err(|_| fail("is no PTX".into()))?;
    let text = without_comments(text);
    let entry = launch.entry.as_ref().unwrap_or(&k.symbol);
    let have = parameters(&text, entry)
        .ok_or_else(|| fail(format!("has no function '{entry}' in its PTX")))?;
    let want = launch.args.len() + launch.maps.len();
    if have.len() != want {
        let reason = format!("takes {} parameters, the program passes {want}", have.len());
        return Err(fail(reason));
    }
    for (i, bytes) in have.iter().enumerate() {
        let fits = if i < launch.args.len() { *bytes <= 8 } else { *bytes == MAP };
        if !fits {
            let passed = if i < launch.args.len() { 8 } else { MAP };
            let reason = format!("takes {bytes} bytes as parameter {i}, not {passed}");
            return Err(fail(reason));
        }
    }
    Ok(())
}

/// PTX with each comment replaced by a blank.
fn without_comments(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let end = match from.as_bytes().get(1) {
            Some(b'/') => from.find('\n').unwrap_or(from.len()),
            Some(b'*') => from[2..].find("*/").map_or(from.len(), |n| n + 4),
            _ => {
                out.push('/');
                rest = &from[1..];
                continue;
            }
        };
        out.push(' ');
        rest = &from[end..];
    }
    out + rest
}

/// Bytes of each parameter of an entry. `None`: there is no such entry, or it does not parse.
fn parameters(text: &str, entry: &str) -> Option<Vec<usize>> {
    let list = text.match_indices(".entry").find_map(|(at, key)| {
        let rest = text[at + key.len()..].trim_start().strip_prefix(entry)?.trim_start();
        match rest.strip_prefix('(') {
            Some(list) => Some(list.split_once(')')?.0),
            // An entry without parameters may omit the list.
            None => rest.starts_with(['.', '{']).then_some(""),
        }
    })?;
    let mut all = vec![];
    for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (declared, count) = match one.split_once('[') {
            Some((before, n)) => (before, n.strip_suffix(']')?.trim().parse().ok()?),
            None => (one, 1usize),
        };
        let ty = declared.split_whitespace().find_map(width)?;
        all.push(ty.checked_mul(count)?);
    }
    Some(all)
}

/// Bytes of a PTX type such as `.u64`.
fn width(word: &str) -> Option<usize> {
    let bits = word.strip_prefix('.')?.strip_prefix(['u', 's', 'b', 'f'])?;
    match bits {
        "8" => Some(1),
        "16" => Some(2),
        "32" => Some(4),
        "64" => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Arg, Dim, Launch, TensorMap};

    const PTX: &str = ".version 8.0\n.visible .entry other(\n)\n{ ret; }\n.visible .entry k(\n\
        .param .u64 .ptr .align 1 k_param_0,\n.param .u64 k_param_1,\n\
        .param .align 64 .b8 k_param_2[128]\n)\n.reqntid 128\n{ ret; }\n.entry bare\n{ ret; }";

    fn kernel(args: usize, maps: usize) -> Kernel {
        let map = TensorMap {
            arg: 0,
            dtype: "f32".into(),
            offset: Dim::Known(0),
            sizes: vec![],
            strides: vec![],
            extent: vec![],
            window: None,
        };
        let launch = Launch {
            args: vec![Arg::Size(Dim::Known(1)); args],
            grid: Dim::Known(1),
            resident: 0,
            threads: 32,
            shared: 0,
            maps: vec![map; maps],
            library: None,
            dependent: false,
            entry: None,
        };
        Kernel { symbol: "k".into(), launch: Some(launch), ..Default::default() }
    }

    #[test]
    fn parameters_are_counted() {
        assert_eq!(parameters(PTX, "k"), Some(vec![8, 8, 128]));
        assert_eq!(parameters(PTX, "other"), Some(vec![]));
        assert_eq!(parameters(PTX, "bare"), Some(vec![]));
        assert_eq!(parameters(PTX, "ba"), None);
        assert_eq!(parameters(PTX, "none"), None);
        let said = without_comments("a/b // .entry k(\n.entry /* ) */ k(.param .u32 x)\n// end");
        assert_eq!(said, "a/b  \n.entry   k(.param .u32 x)\n ");
        assert_eq!(parameters(&said, "k"), Some(vec![4]));
        let said = |args, maps| check(&kernel(args, maps), PTX.as_bytes());
        assert!(said(2, 1).is_ok());
        let e = said(3, 1).expect_err("refused").to_string();
        assert!(e.contains("kernel 'k' takes 3 parameters, the program passes 4"), "{e}");
        let e = said(1, 2).expect_err("refused").to_string();
        assert!(e.contains("takes 8 bytes as parameter 1, not 128"), "{e}");
        let e = check(&Kernel { symbol: "z".into(), ..kernel(0, 0) }, PTX.as_bytes());
        assert!(e.expect_err("refused").to_string().contains("no function 'z'"));
    }
}
