//! Text layout for terminals.
use std::io::IsTerminal;
use textwrap::{Options, WordSplitter};

/// Default table width.
const COLUMNS: usize = 100;

/// Width of standard output: `COLUMNS`, else the terminal's. `None` if it is not a terminal.
fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok());
    let shown = || {
        let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
        Some(usize::from(width.0))
    };
    said.or_else(|| std::io::stdout().is_terminal().then(shown).flatten()).map(|n| n.max(40))
}

/// The width of a table.
pub fn table_width() -> usize {
    columns().unwrap_or(COLUMNS)
}

/// Wraps long lines, with a hanging indent.
pub fn wrapped(text: &str) -> String {
    columns().map_or_else(|| text.to_string(), |width| wrapped_at(text, width))
}

fn wrapped_at(text: &str, width: usize) -> String {
    let line = |line: &str| {
        let indent = " ".repeat(line.len() - line.trim_start().len() + 4);
        let how = Options::new(width)
            .subsequent_indent(&indent)
            .break_words(false)
            .word_splitter(WordSplitter::NoHyphenation);
        textwrap::fill(line, how) + "\n"
    };
    text.lines().map(line).collect()
}

/// The text, truncated to this many columns with an ellipsis.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "  kernel a (rows): exp, add, a_word_that_is_longer_than_the_line, sub\nshort\n";
        let wrapped = wrapped_at(text, 24);
        assert!(
            wrapped.lines().all(|l| l.chars().count() <= 24 || l.contains("longer")),
            "{wrapped}"
        );
        assert!(wrapped.lines().skip(1).any(|l| l.starts_with("      ")), "{wrapped}");
        let words = |t: &str| t.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&wrapped), words(text));
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".into(), "abcd".into()));
    }
}
