//! The imports among the files of a crate, from the tokens of its sources: `use` declarations, and
//! paths that begin with `crate`, `super` or `self`. Neither `pub use` counts, nor code under
//! `#[cfg(test)]`.
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

/// A module as its path in the crate; that of `lib.rs` is empty.
pub type Module = Vec<String>;

/// A `use` or a path, as it is written.
struct Import {
    path: Vec<String>,
    /// Its name in the importing module; None for a path in code, and for a glob.
    name: Option<String>,
    /// `pub use`: who imports it from here depends on the file that declares it.
    passed_on: bool,
}

#[derive(Default)]
struct Source {
    imports: Vec<Import>,
    /// Names that the file declares.
    declared: BTreeSet<String>,
}

/// The files of a crate and what each imports.
pub struct Crate {
    files: HashMap<Module, Source>,
}

impl Crate {
    /// Reads a source folder, but not files of tests.
    pub fn read(root: &Path) -> Crate {
        let (mut files, mut open) = (HashMap::new(), vec![(root.to_path_buf(), vec![])]);
        while let Some((folder, module)) = open.pop() {
            for entry in std::fs::read_dir(&folder).expect("a source folder") {
                let path = entry.expect("an entry").path();
                let name = path.file_stem().and_then(|n| n.to_str()).expect("a name").to_string();
                if name == "tests" || name == "bin" {
                    continue;
                }
                let inner = [&module[..], std::slice::from_ref(&name)].concat();
                if path.is_dir() {
                    open.push((path, inner));
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&path).expect("a source");
                    let tokens: TokenStream =
                        text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                    let own = ["mod", "lib"].contains(&name.as_str());
                    let mut source = Source::default();
                    let module = if own { module.clone() } else { inner };
                    scan(tokens, 0, &mut source);
                    files.insert(module, source);
                }
            }
        }
        Crate { files }
    }

    /// Which files each file imports from, with re-exports resolved to the file that declares.
    pub fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of = |(module, source): (&Module, &Source)| {
            let own = source.imports.iter().filter(|i| !i.passed_on);
            let to = |i: &Import| self.file(module, &i.path, 0).filter(|to| to != module);
            (module.clone(), own.filter_map(to).collect())
        };
        self.files.iter().map(of).collect()
    }

    /// The file that declares what a path names, seen from a module. None: another crate's.
    fn file(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut base = from.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (vec![], &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|p| p == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first if self.files.contains_key(&[&from[..], &[first.to_string()]].concat()) => {}
            _ => return None,
        }
        while let Some(next) = rest.first() {
            let inner = [&base[..], std::slice::from_ref(next)].concat();
            if !self.files.contains_key(&inner) {
                break;
            }
            (base, rest) = (inner, &rest[1..]);
        }
        // Modules within a file are the file's.
        while !self.files.contains_key(&base) {
            base.pop();
        }
        let (Some(name), true) = (rest.first(), depth < 8) else { return Some(base) };
        let source = &self.files[&base];
        if source.declared.contains(name) || name == "*" {
            return Some(base);
        }
        if let Some(found) = source.imports.iter().find(|i| i.name.as_ref() == Some(name)) {
            return self.file(&base, &[&found.path[..], &rest[1..]].concat(), depth + 1);
        }
        let globs = source.imports.iter().filter(|i| i.path.last().is_some_and(|p| p == "*"));
        for glob in globs {
            let inner = [&glob.path[..glob.path.len() - 1], rest].concat();
            let declares = |m: &Module| self.files[m].declared.contains(name);
            if let Some(found) = self.file(&base, &inner, depth + 1).filter(declares) {
                return Some(found);
            }
        }
        Some(base)
    }
}

/// Reads imports and declarations of a file; `inline` counts the modules around within the file.
fn scan(tokens: TokenStream, inline: usize, source: &mut Source) {
    let all: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < all.len() {
        match &all[at] {
            TokenTree::Punct(p) if p.as_char() == '#' => {
                // `#` `[cfg(test)]`, and what it is on.
                if all.get(at + 1).is_some_and(is_test) {
                    at = behind_item(&all, at + 2);
                    continue;
                }
                at += 2;
                continue;
            }
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "use" => {
                    let end = (at..all.len()).find(|i| is(&all[*i], ';')).unwrap_or(all.len());
                    let before = source.imports.len();
                    flatten(&all[at + 1..end], &[], inline, &mut source.imports);
                    let passed_on = is_public(&all[..at]);
                    source.imports[before..].iter_mut().for_each(|i| i.passed_on = passed_on);
                    at = end;
                }
                "mod" if is_block(all.get(at + 2)) => {
                    if let Some(TokenTree::Group(body)) = all.get(at + 2) {
                        scan(body.stream(), inline + 1, source);
                    }
                    at += 2;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    if let Some(TokenTree::Ident(name)) = all.get(at + 1) {
                        source.declared.insert(name.to_string());
                    }
                }
                "crate" | "super" | "self" => {
                    let (path, end) = path(&all, at);
                    if path.len() > 1 {
                        push(path, None, inline, &mut source.imports);
                        at = end;
                        continue;
                    }
                }
                _ => {}
            },
            TokenTree::Group(group) => scan(group.stream(), inline, source),
            _ => {}
        }
        at += 1;
    }
}

fn is(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == wanted)
}

/// Whether tokens end with `pub` or `pub(…)`.
fn is_public(before: &[TokenTree]) -> bool {
    let before = match before.split_last() {
        Some((TokenTree::Group(g), before)) if g.delimiter() == Delimiter::Parenthesis => before,
        _ => before,
    };
    matches!(before.last(), Some(TokenTree::Ident(word)) if *word == "pub")
}

fn is_block(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace)
}

/// `[cfg(test)]`, or `cfg(all(test, …))`.
fn is_test(attribute: &TokenTree) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "[cfg(test)]" || text.starts_with("[cfg(all(test,")
}

/// The index behind the item that begins at `at`: its `;`, or its block.
fn behind_item(all: &[TokenTree], at: usize) -> usize {
    let end = (at..all.len()).find(|i| is(&all[*i], ';') || is_block(Some(&all[*i])));
    let end = end.map_or(all.len(), |i| i + 1);
    // `use a::{b};`
    if all.get(end).is_some_and(|t| is(t, ';')) { end + 1 } else { end }
}

/// The path of `a::b::c` at a token, and the index behind it.
fn path(all: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path = vec![];
    while let Some(TokenTree::Ident(word)) = all.get(at) {
        path.push(word.to_string());
        at += 1;
        let colons = all.len() > at + 2 && is(&all[at], ':') && is(&all[at + 1], ':');
        if !colons || !matches!(all[at + 2], TokenTree::Ident(_)) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// The paths of a `use` tree.
fn flatten(tree: &[TokenTree], before: &[String], inline: usize, to: &mut Vec<Import>) {
    for part in tree.split(|t| is(t, ',')).filter(|part| !part.is_empty()) {
        let (mut path, mut name) = (before.to_vec(), None);
        let mut words = part.iter();
        while let Some(token) = words.next() {
            match token {
                TokenTree::Ident(w) if *w == "as" => name = words.next().map(|t| t.to_string()),
                TokenTree::Ident(w) => path.push(w.to_string()),
                TokenTree::Punct(p) if p.as_char() == '*' => path.push("*".into()),
                TokenTree::Group(g) => {
                    let inner: Vec<TokenTree> = g.stream().into_iter().collect();
                    flatten(&inner, &path, inline, to);
                    path.clear();
                }
                _ => {}
            }
        }
        // `use a::b::{self, c}`
        if path.len() > 1 && path.last().is_some_and(|p| p == "self") {
            path.pop();
        }
        if !path.is_empty() {
            let name = name.or_else(|| path.last().filter(|p| *p != "*").cloned());
            push(path, name, inline, to);
        }
    }
}

/// Adds an import as the file sees it: modules within it are no step for `super`.
fn push(mut path: Vec<String>, name: Option<String>, inline: usize, to: &mut Vec<Import>) {
    let up = path.iter().take_while(|p| *p == "super").count().min(inline);
    path.drain(..up);
    if up > 0 && path.first().is_none_or(|p| p != "super") {
        path.insert(0, "self".into());
    }
    to.push(Import { path, name: name.filter(|_| inline == 0), passed_on: false });
}
