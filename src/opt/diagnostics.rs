//! `--split-input-file` and `--verify-diagnostics`: expected against reported diagnostics.
use super::OptError;
use crate::dialects::ir::{Diagnostic, Severity};
use regex::Regex;
use std::sync::OnceLock;

/// A part of a split input.
pub struct InputPart<'a> {
    /// Its text.
    pub text: &'a str,
    /// Line offset in the input.
    pub lines_before: usize,
}

impl InputPart<'_> {
    /// The text, padded with empty lines, so that diagnostics have line numbers of the whole input.
    pub fn padded(&self) -> Vec<u8> {
        [vec![b'\n'; self.lines_before], self.text.as_bytes().to_vec()].concat()
    }
}

/// Splits at lines of `// -----`; without `split`, one part.
pub fn parts(text: &str, split: bool) -> Vec<InputPart<'_>> {
    if !split {
        return vec![InputPart { text, lines_before: 0 }];
    }
    let (mut all, mut start, mut at, mut first, mut line) = (vec![], 0, 0, 0, 0);
    for l in text.split_inclusive('\n') {
        if l.trim_end() == "// -----" {
            all.push(InputPart { text: &text[start..at], lines_before: first });
            (start, first) = (at + l.len(), line + 1);
        }
        at += l.len();
        line += 1;
    }
    all.push(InputPart { text: &text[start..], lines_before: first });
    all
}

/// One `expected-error {{…}}` comment.
#[derive(Debug)]
pub struct Expectation {
    severity: Severity,
    /// The expected line; `None` for `@unknown`.
    line: Option<usize>,
    /// The line of the comment.
    comment_line: usize,
    expected_text: ExpectedText,
    text: String,
    matched: bool,
}

#[derive(Debug)]
enum ExpectedText {
    Text(String),
    Pattern(Regex),
}

fn designator() -> Option<&'static Regex> {
    static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
    let text = r"expected-(error|note|remark|warning)(-re)? *(@([+-][0-9]+|above|below|unknown))? *\{\{(.*)\}\}\s*$";
    PATTERN.get_or_init(|| Regex::new(text).ok()).as_ref()
}

/// Parses the expectations in a part's comments. `@above` and `@below` skip lines with
/// expectations.
pub fn expectations(part: &InputPart<'_>) -> Result<Vec<Expectation>, OptError> {
    let Some(designator) = designator() else { return Ok(vec![]) };
    let lines: Vec<&str> = part.text.lines().collect();
    let holds = |i: usize| designator.is_match(lines[i]);
    let mut all = vec![];
    for (i, l) in lines.iter().enumerate() {
        let Some(found) = designator.captures(l) else { continue };
        let at = part.lines_before + i + 1;
        let group = |n: usize| found.get(n).map_or("", |m| m.as_str());
        let line = match group(4) {
            "" => Some(at),
            "unknown" => None,
            "above" => {
                Some((0..i).rev().find(|j| !holds(*j)).map_or(0, |j| part.lines_before + j + 1))
            }
            "below" => Some(
                (i + 1..lines.len()).find(|j| !holds(*j)).map_or(0, |j| part.lines_before + j + 1),
            ),
            offset => {
                let offset: i64 = offset.parse().map_err(|_| {
                    OptError::usage(format!("line {at}: @{offset} is no offset of lines"))
                })?;
                Some(usize::try_from(at as i64 + offset).unwrap_or(0))
            }
        };
        let severity = match group(1) {
            "error" => Severity::Error,
            "note" => Severity::Note,
            "remark" => Severity::Remark,
            _ => Severity::Warning,
        };
        let text = group(5).to_string();
        let expected_text = if group(2).is_empty() {
            ExpectedText::Text(text.clone())
        } else {
            ExpectedText::Pattern(pattern(&text, at)?)
        };
        all.push(Expectation {
            severity,
            line,
            comment_line: at,
            expected_text,
            text,
            matched: false,
        });
    }
    Ok(all)
}

/// Compiles a text in which `{{…}}` delimit regular expressions.
fn pattern(text: &str, at: usize) -> Result<Regex, OptError> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, tail) = after.split_once("}}").ok_or_else(|| {
            OptError::usage(format!("line {at}: a regular expression without its }}}}"))
        })?;
        out += &format!("{}({inside})", regex::escape(before));
        rest = tail;
    }
    out += &regex::escape(rest);
    Regex::new(&out).map_err(|e| OptError::usage(format!("line {at}: {e}")))
}

impl Expectation {
    fn matches(&self, d: &Diagnostic, line: Option<usize>) -> bool {
        let text = match &self.expected_text {
            ExpectedText::Text(t) => d.message.contains(t.as_str()),
            ExpectedText::Pattern(p) => p.is_match(&d.message),
        };
        text && self.severity == d.severity && self.line == line
    }
}

/// Reports unexpected diagnostics, then unmet expectations. Notes count as diagnostics.
pub fn compare(file: &str, mut expected: Vec<Expectation>, reported: &[Diagnostic]) -> Vec<String> {
    let mut wrong = vec![];
    for d in reported.iter().flat_map(|d| std::iter::once(d).chain(&d.notes)) {
        let line = d.location.as_ref().filter(|p| p.0 == file).map(|p| p.1 as usize);
        match expected.iter_mut().find(|e| !e.matched && e.matches(d, line)) {
            Some(e) => e.matched = true,
            None => {
                let place = line.map_or("unknown location".into(), |l| format!("{file}:{l}"));
                wrong.push(format!(
                    "{place}: error: unexpected {}: {}",
                    d.severity.keyword(),
                    d.message
                ));
            }
        }
    }
    for e in expected.iter().filter(|e| !e.matched) {
        let place = match e.line {
            Some(l) if l == e.comment_line => String::new(),
            Some(l) => format!(" at line {l}"),
            None => " at an unknown location".into(),
        };
        let (keyword, text) = (e.severity.keyword(), &e.text);
        wrong.push(format!(
            "{file}:{}: error: expected {keyword} \"{text}\"{place} was not produced",
            e.comment_line
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_know_their_lines() {
        let all = parts("a\nb\n// -----\nc\n// -----\n", true);
        let seen: Vec<_> = all.iter().map(|p| (p.text, p.lines_before)).collect();
        assert_eq!(seen, [("a\nb\n", 0), ("c\n", 3), ("", 5)]);
        assert_eq!(parts("a\n// -----\nb", false).len(), 1);
    }

    #[test]
    fn designators_point_to_lines() {
        let text = "op\n// expected-error@above {{x}}\n// expected-note @above {{y}}\n// expected-warning@below {{z}}\nop\nop // expected-remark {{w}}\n// expected-error @-1 {{v}}\n// expected-error@unknown {{u}}\n";
        let lines: Vec<_> = expectations(&parts(text, false)[0])
            .expect("good comments")
            .iter()
            .map(|e| e.line)
            .collect();
        assert_eq!(lines, [Some(1), Some(1), Some(5), Some(6), Some(6), None]);
    }

    #[test]
    fn patterns_mix_text_and_regular_expressions() {
        assert!(
            pattern("size {{[0-9]+}} (odd)", 1).expect("a pattern").is_match("has size 17 (odd)")
        );
        assert!(!pattern("size {{[0-9]+}}", 1).expect("a pattern").is_match("size x"));
        assert!(pattern("{{", 1).is_err() && pattern("{{(}}", 1).is_err());
    }
}
