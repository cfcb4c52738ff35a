//! `KILN_LOG`: log channels. The library only emits `tracing` events, with targets such as
//! `kiln::guards`. It prints nothing until a program installs a subscriber.
use crate::{Error, passes::names::hint};
use std::io::IsTerminal;

/// Log channels, each with a one-line description.
pub const CHANNELS: &[(&str, &str)] = &[
    ("guards", "what each program of a compiled function is right for"),
    ("recompiles", "why a function was compiled again, or is no longer"),
    ("graph_breaks", "where a graph ends before its function does"),
    ("dynamic", "sizes that became symbols, or had to stay numbers"),
    ("fusion", "what became one kernel, and why not more"),
    ("schedule", "how each kernel is computed"),
    ("autotune", "schedules that were measured"),
    (
        "cudagraphs",
        "what hinders a CUDA graph, on a GPU what calls have shown; on the host that there is none",
    ),
    (
        "cache",
        "hits and misses of whole programs (with `+` of kernels, too), and what is wrong with the cache of compiled code",
    ),
    ("perf_hints", "what costs time and could be avoided, such as copies"),
    (
        "output_code",
        "the code of kernels: PTX, or the llvm dialect; of machine code that was compiled before its size",
    ),
    ("options", "options that change nothing, and why"),
    ("autocast", "arguments that autocast converts"),
    ("donation", "donated arguments whose memory no result has"),
];

/// Translates the text of `KILN_LOG` into `tracing` filter directives. `NAME` enables a channel,
/// `+NAME` adds details, `-NAME` keeps errors only, `all` enables every channel. Directives such as
/// `kiln::passes=debug` pass through. Err: no such channel.
pub fn directives(text: &str) -> Result<String, Error> {
    let mut out = String::new();
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        if item.contains("::") || item.contains('=') {
            out += &format!("{item},");
            continue;
        }
        let (name, level) = match (item.strip_prefix('+'), item.strip_prefix('-')) {
            (Some(name), _) => (name, "debug"),
            (None, Some(name)) => (name, "error"),
            (None, None) => (item, "info"),
        };
        let known = CHANNELS.iter().map(|(n, _)| *n).chain(["all"]);
        if !known.clone().any(|n| n == name) {
            let all = known.clone().collect::<Vec<_>>().join(", ");
            return Err(Error::Setting(format!(
                "KILN_LOG: there is no channel '{name}'{} (channels: {all})",
                hint(name, known)
            )));
        }
        let chosen = CHANNELS.iter().map(|(n, _)| *n).filter(|n| name == "all" || *n == name);
        out.extend(chosen.map(|n| format!("kiln::{n}={level},")));
    }
    Ok(out.trim_end_matches(',').to_string())
}

/// Installs a subscriber that prints the channels of `KILN_LOG` to standard error. Call it once at
/// program start. A subscriber that is already installed is kept. Err: no such channel, or a
/// malformed directive.
pub fn init_from_env() -> Result<(), Error> {
    let Ok(wanted) = std::env::var("KILN_LOG") else { return Ok(()) };
    let filter = tracing_subscriber::EnvFilter::try_new(directives(&wanted)?);
    let filter = filter.map_err(|e| Error::Setting(format!("KILN_LOG={wanted}: {e}")))?;
    // A second call in one process, as in tests, keeps the first filter.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn channels_become_directives() {
        assert_eq!(
            directives("guards, +recompiles,-cache").expect("channels"),
            "kiln::guards=info,kiln::recompiles=debug,kiln::cache=error"
        );
        assert_eq!(directives("kiln::passes=debug").expect("a directive"), "kiln::passes=debug");
        assert_eq!(directives("all").expect("channels").split(',').count(), super::CHANNELS.len());
        assert_eq!(directives("").expect("nothing"), "");
        let e = directives("recompile").expect_err("no channel").to_string();
        assert!(
            e.contains("'recompile'") && e.contains("did you mean") && e.contains("recompiles"),
            "{e}"
        );
    }
}
