//! LLVM's FileCheck on comments of a test input: CHECK, CHECK-NEXT, CHECK-SAME, CHECK-NOT,
//! CHECK-DAG and CHECK-COUNT-n, in order, and IMPLICIT-CHECK-NOT for `--implicit-check-not`.
//!
//! As there, runs of spaces are alike, `{{…}}` is a regular expression, and trailing spaces of a
//! pattern do not count. Variables (`[[X:…]]`) are not supported: `[[` is text.
use regex::Regex;

/// What a comment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Somewhere after the match before.
    Check,
    /// In the line after that of the match before.
    Next,
    /// In the rest of the line of the match before.
    Same,
    /// Nowhere between the matches before and after it.
    Not,
    /// As the neighbours of its kind, in any order.
    Dag,
    /// So many times after each other.
    Count(usize),
    /// In no text between two matches.
    Implicit,
}

struct Directive {
    kind: Kind,
    /// The comment.
    text: String,
    pattern: Regex,
}

/// Checks a text against the comments of a test input. Err: the comment that does not hold, and
/// where it was looked for.
pub fn check(comments: &str, output: &str) -> Result<(), String> {
    let all = comments
        .lines()
        .filter_map(|l| directive(l.trim()).transpose())
        .collect::<Result<Vec<_>, String>>()?;
    let (implicit, all): (Vec<Directive>, Vec<Directive>) =
        all.into_iter().partition(|d| d.kind == Kind::Implicit);
    let output = spaces(output);
    let mut state = State { output: &output, at: 0, nots: vec![], implicit: &implicit };
    let mut i = 0;
    while i < all.len() {
        let d = &all[i];
        match d.kind {
            Kind::Not => state.nots.push(d),
            Kind::Dag => {
                let last = all[i..].iter().take_while(|d| d.kind == Kind::Dag).count();
                state.unordered(&all[i..i + last])?;
                i += last - 1;
            }
            Kind::Count(n) => (0..n).try_for_each(|_| state.ordered(d))?,
            _ => state.ordered(d)?,
        }
        i += 1;
    }
    state.absent(output.len())
}

fn directive(line: &str) -> Result<Option<Directive>, String> {
    let Some(rest) = line.strip_prefix("// ") else { return Ok(None) };
    let Some((name, pattern)) = rest.split_once(':') else { return Ok(None) };
    let kind = match name {
        "CHECK" => Kind::Check,
        "CHECK-NEXT" => Kind::Next,
        "CHECK-SAME" => Kind::Same,
        "CHECK-NOT" => Kind::Not,
        "CHECK-DAG" => Kind::Dag,
        "IMPLICIT-CHECK-NOT" => Kind::Implicit,
        _ => match name.strip_prefix("CHECK-COUNT-").map(str::parse) {
            Some(Ok(n)) if n > 0 => Kind::Count(n),
            _ if name.starts_with("CHECK") => {
                return Err(format!("there is no directive '{name}': {line}"));
            }
            _ => return Ok(None),
        },
    };
    let pattern = spaces(pattern.trim());
    if pattern.is_empty() {
        return Err(format!("has no pattern: {line}"));
    }
    let (mut regex, mut rest) = (String::new(), pattern.as_str());
    while let Some((text, more)) = rest.split_once("{{") {
        let (inner, more) =
            more.split_once("}}").ok_or_else(|| format!("{{{{ has no }}}}: {line}"))?;
        regex += &format!("{}(?:{inner})", regex::escape(text));
        rest = more;
    }
    regex += &regex::escape(rest);
    let pattern = Regex::new(&regex).map_err(|e| format!("{line}: {e}"))?;
    Ok(Some(Directive { kind, text: rest_of(line), pattern }))
}

fn rest_of(line: &str) -> String {
    line.trim_start_matches("// ").to_string()
}

/// Each run of spaces and tabs as one space.
fn spaces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let blank = c == ' ' || c == '\t';
        if !blank || !out.ends_with(' ') {
            out.push(if blank { ' ' } else { c });
        }
    }
    out
}

struct State<'a> {
    output: &'a str,
    /// The end of the last match.
    at: usize,
    /// What must not stand before the next match.
    nots: Vec<&'a Directive>,
    implicit: &'a [Directive],
}

impl<'a> State<'a> {
    fn ordered(&mut self, d: &'a Directive) -> Result<(), String> {
        let line_end =
            |from: usize| self.output[from..].find('\n').map_or(self.output.len(), |n| from + n);
        let (from, to) = match d.kind {
            Kind::Same => (self.at, line_end(self.at)),
            Kind::Next => {
                let start = (line_end(self.at) + 1).min(self.output.len());
                (start, line_end(start))
            }
            _ => (self.at, self.output.len()),
        };
        let found = d.pattern.find(&self.output[from..to]).ok_or_else(|| self.missing(d, from))?;
        let (start, end) = (from + found.start(), from + found.end());
        self.absent(start)?;
        self.at = end;
        Ok(())
    }

    /// Matches that do not overlap, in any order; the next one is looked for behind all of them.
    fn unordered(&mut self, all: &'a [Directive]) -> Result<(), String> {
        let mut taken: Vec<(usize, usize)> = vec![];
        for d in all {
            let mut from = self.at;
            let range = loop {
                let found =
                    d.pattern.find_at(self.output, from).ok_or_else(|| self.missing(d, self.at))?;
                let (start, end) = (found.start(), found.end());
                match taken.iter().find(|(s, e)| start < *e && *s < end) {
                    Some((_, e)) => from = *e,
                    None => break (start, end),
                }
            };
            taken.push(range);
        }
        taken.sort_unstable();
        let nots = self.nots.len();
        for (start, end) in taken {
            let kept = std::mem::take(&mut self.nots);
            self.nots = kept.clone();
            self.absent(start)?;
            // What stood before the group must not stand between its matches, either.
            self.nots = kept;
            self.at = end;
        }
        self.nots.drain(..nots);
        Ok(())
    }

    /// Whether nothing forbidden stands between the last match and the next.
    fn absent(&mut self, next: usize) -> Result<(), String> {
        let between = self.output.get(self.at..next).unwrap_or_default();
        for d in self.nots.drain(..).chain(self.implicit) {
            if let Some(found) = d.pattern.find(between) {
                let line = self.output[..self.at + found.start()].matches('\n').count() + 1;
                return Err(format!("{}\nstands in line {line}:\n{}", d.text, self.output));
            }
        }
        Ok(())
    }

    fn missing(&self, d: &Directive, from: usize) -> String {
        let line = self.output[..from].matches('\n').count() + 1;
        format!("{}\nis not there from line {line} on:\n{}", d.text, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    const TEXT: &str = "a 1\nb  2 c\nd 3\nb 4\n";

    fn holds(comments: &[&str]) -> bool {
        let text: Vec<String> = comments.iter().map(|c| format!("// {c}")).collect();
        check(&text.join("\n"), TEXT).is_ok()
    }

    #[test]
    fn checks_match_in_order() {
        assert!(holds(&["CHECK: a", "CHECK: d"]) && !holds(&["CHECK: d", "CHECK: a"]));
        assert!(holds(&["CHECK: b", "CHECK: b"]) && !holds(&["CHECK: d", "CHECK: d"]));
        assert!(holds(&["CHECK: b 2"]), "runs of spaces are alike");
        assert!(holds(&["CHECK: b {{[0-9]}} c"]) && !holds(&["CHECK: b {{[a-z]}} c"]));
        assert!(holds(&["a comment: of another kind", "CASE: x"]));
    }

    #[test]
    fn next_and_same_are_about_lines() {
        assert!(holds(&["CHECK: a", "CHECK-NEXT: 2"]) && !holds(&["CHECK: a", "CHECK-NEXT: 3"]));
        assert!(holds(&["CHECK: b", "CHECK-SAME: c"]) && !holds(&["CHECK: a", "CHECK-SAME: 2"]));
        assert!(!holds(&["CHECK: 4", "CHECK-NEXT: b"]), "there is no next line");
    }

    #[test]
    fn nots_are_between_matches() {
        assert!(!holds(&["CHECK-NOT: d"]) && holds(&["CHECK-NOT: e"]));
        assert!(holds(&["CHECK: a", "CHECK-NOT: d", "CHECK: b"]));
        assert!(!holds(&["CHECK: a", "CHECK-NOT: b", "CHECK: d"]));
        assert!(holds(&["CHECK: d", "CHECK-NOT: a"]), "before the match is another place");
        assert!(!holds(&["CHECK: a", "CHECK-NOT: 4"]), "up to the end");
        assert!(!holds(&["IMPLICIT-CHECK-NOT: d", "CHECK: b 4"]));
        assert!(holds(&["CHECK: d", "IMPLICIT-CHECK-NOT: d"]), "but for what is matched");
    }

    #[test]
    fn dags_match_in_any_order() {
        assert!(holds(&["CHECK-DAG: d", "CHECK-DAG: a", "CHECK: b 4"]));
        assert!(!holds(&["CHECK-DAG: d", "CHECK-DAG: a", "CHECK: b 2"]));
        assert!(holds(&["CHECK-DAG: b", "CHECK-DAG: b"]));
        assert!(!holds(&["CHECK-DAG: d", "CHECK-DAG: d"]), "matches do not overlap");
        assert!(!holds(&["CHECK-NOT: d", "CHECK-DAG: b 4", "CHECK-DAG: a"]));
        assert!(holds(&["CHECK-NOT: d", "CHECK-DAG: b 2", "CHECK-DAG: a", "CHECK: b 4"]));
    }

    #[test]
    fn counts_are_of_matches_after_each_other() {
        assert!(holds(&["CHECK-COUNT-2: b"]) && !holds(&["CHECK-COUNT-3: b"]));
        assert!(holds(&["CHECK-COUNT-2: b", "CHECK: 4"]));
        assert!(!holds(&["CHECK-COUNT-2: b", "CHECK: d"]));
    }

    #[test]
    fn what_is_misspelt_is_an_error() {
        for wrong in
            ["CHECK-NETX: a", "CHECK-COUNT-0: a", "CHECK-COUNT-x: a", "CHECK:", "CHECK: {{a"]
        {
            assert!(!holds(&[wrong]), "{wrong}");
        }
    }
}
