//! User passes in the pipeline: run when a module reaches a level, or after every run of another
//! pass. They behave like the table's passes: timed, dumped, disabled by flag, cancelled.
use crate::{
    driver::{
        manager::{self, PassError},
        pipeline, pipeline_text, table,
    },
    target::Target,
};
use kiln_dialects::{
    Result,
    ir::Context,
    rules::{LEVELS, Level},
};
use std::fmt;

/// User passes at one position of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPasses {
    /// Where they run.
    pub at: At,
    /// The passes with their options, such as `mine-reciprocal{least=2},cse`.
    pub passes: String,
}

/// A position of user passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// When a module reaches this level, `graph` to `linalg`; at once for a module that starts
    /// below it.
    Level(Level),
    /// After every run of the pass with this flag.
    After(String),
    /// Instead of every run of the pass with this flag.
    Instead(String),
}

impl UserPasses {
    /// Parses text such as `prims: mine,cse; kiln-fuse: mine`: a level or a pass's flag, then
    /// passes. `instead of kiln-fuse: mine` replaces a pass. Err: the prefix is neither a level up
    /// to `linalg` nor a flag. Registration of the passes is checked when they are about to run, or
    /// by [`UserPasses::check`].
    pub fn parse(text: &str) -> Result<Vec<UserPasses>, String> {
        let one = |part: &str| {
            let (place, passes) = part.split_once(':').ok_or_else(|| {
                format!("'{}' has no colon behind a level or a pass", part.trim())
            })?;
            let (place, passes) = (place.trim(), passes.trim().to_string());
            let (place, instead) = match place.strip_prefix("instead of ") {
                Some(pass) => (pass.trim(), true),
                None => (place, false),
            };
            let at = match Level::from_name(place).filter(|_| !instead) {
                Some(level) if level <= Level::Linalg => At::Level(level),
                Some(level) => {
                    return Err(format!(
                        "level {} has no whole module any more: name a pass to run behind",
                        level.name()
                    ));
                }
                None if pipeline::PIPELINE.iter().any(|s| flag(s.pass) == place) => {
                    if instead {
                        At::Instead(place.into())
                    } else {
                        At::After(place.into())
                    }
                }
                None => {
                    let levels = LEVELS.iter().filter(|l| **l <= Level::Linalg).map(|l| l.name());
                    let hint = kiln_passes::names::hint(
                        place,
                        levels.chain(table::passes().iter().map(|p| p.flag)),
                    );
                    return Err(format!(
                        "there is no level or pass of the pipeline '{place}'{hint}; passes run on a level \
                         from graph to linalg, or after a pass"
                    ));
                }
            };
            Ok(UserPasses { at, passes })
        };
        text.split(';').filter(|p| !p.trim().is_empty()).map(one).collect()
    }
    /// Err: a pass, or an option of one, is unknown.
    pub fn check(&self) -> Result<(), PassError> {
        let pipeline = format!("builtin.module({})", self.passes);
        manager::parse(Context::new().ctx(), &pipeline).map(|_| ())
    }
    /// The flags of the passes.
    pub fn flags(&self) -> Vec<&str> {
        split(&self.passes).into_iter().map(flag).collect()
    }
}

impl fmt::Display for UserPasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match &self.at {
            At::Level(level) => level.name(),
            At::After(flag) => flag,
            At::Instead(flag) => return write!(f, "instead of {flag}: {}", self.passes),
        };
        write!(f, "{at}: {}", self.passes)
    }
}

/// The flag of a pass with options.
fn flag(pass: &str) -> &str {
    pass.split('{').next().unwrap_or_default().trim()
}

/// Splits a comma-separated list of passes with options.
fn split(passes: &str) -> Vec<&str> {
    let (mut all, mut start, mut nested) = (vec![], 0, 0usize);
    for (i, c) in passes.char_indices() {
        match c {
            '{' | '(' => nested += 1,
            '}' | ')' => nested = nested.saturating_sub(1),
            ',' if nested == 0 => {
                all.push(&passes[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    all.push(&passes[start..]);
    all.into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// The textual pipeline on the whole module, from its level on, with user passes. Err: `to` is
/// above `from`.
pub fn whole_text(
    from: Level,
    to: Level,
    target: &Target,
    user_passes: &[UserPasses],
) -> Result<String> {
    if to < from {
        return Err(format!("level {} comes before level {}", to.name(), from.name()).into());
    }
    let mut all: Vec<String> = vec![];
    let mut left: Vec<&UserPasses> =
        user_passes.iter().filter(|o| matches!(o.at, At::Level(l) if l <= to)).collect();
    let mut reach = |level: Level, all: &mut Vec<String>| {
        left.retain(|o| {
            let now = matches!(o.at, At::Level(l) if l <= level);
            all.extend(now.then(|| o.passes.clone()));
            !now
        });
    };
    reach(from, &mut all);
    for (level, text) in pipeline_text::texts(from, to, target) {
        reach(level, &mut all);
        all.push(text);
    }
    reach(to, &mut all);
    Ok(insert_after(&format!("builtin.module({})", all.join(",")), user_passes))
}

/// A pipeline with user passes inserted after, or instead of, every run of others.
pub fn insert_after(pipeline: &str, user_passes: &[UserPasses]) -> String {
    let (mut out, mut name, mut nested) = (String::new(), String::new(), 0usize);
    for c in pipeline.chars() {
        if matches!(c, ',' | ')') && nested == 0 {
            let flag = flag(&name);
            let mut instead =
                user_passes.iter().filter(|o| matches!(&o.at, At::Instead(f) if f == flag));
            if let Some(last) = instead.next_back() {
                out.truncate(out.len() - name.len());
                out += &last.passes;
            }
            user_passes
                .iter()
                .filter(|o| matches!(&o.at, At::After(f) if f == flag))
                .for_each(|o| out += &format!(",{}", o.passes));
        }
        match c {
            '{' => nested += 1,
            '}' => nested = nested.saturating_sub(1),
            _ => {}
        }
        out.push(c);
        if nested == 0 && matches!(c, ',' | '(' | ')') { name.clear() } else { name.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_passes(text: &str) -> Vec<UserPasses> {
        UserPasses::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn passes_run_after_each_run() {
        let text = "builtin.module(cse{x=1,2},symbol-dce,func.func(cse,c),symbol-dce)";
        let all = user_passes("cse: new{y=3}; symbol-dce: last,one");
        let want = "builtin.module(cse{x=1,2},new{y=3},symbol-dce,last,one,func.func(cse,new{y=3},c),symbol-dce,last,one)";
        assert_eq!(insert_after(text, &all), want);
        assert_eq!(insert_after(text, &[]), text);
        assert_eq!(all[1].flags(), ["last", "one"]);
        let all = user_passes("instead of kiln-fuse: kiln-fuse{a=1,2}; cse: new");
        assert_eq!(
            insert_after("builtin.module(cse,kiln-fuse{b=1},cse)", &all),
            "builtin.module(cse,new,kiln-fuse{a=1,2},cse,new)"
        );
        assert_eq!(all[0].to_string(), "instead of kiln-fuse: kiln-fuse{a=1,2}");
        assert_eq!(
            user_passes("prims: a{x=1,2},b").iter().map(UserPasses::to_string).collect::<Vec<_>>(),
            ["prims: a{x=1,2},b"]
        );
    }

    #[test]
    fn passes_run_as_soon_as_a_module_is_on_their_level() {
        let target = Target::parse("x86_64:haswell").expect("a target");
        let all = user_passes("linalg: last; prims: mine; graph: first; kiln-fuse: behind");
        let text = whole_text(Level::Graph, Level::Linalg, &target, &all).expect("a pipeline");
        assert!(
            text.starts_with("builtin.module(first,kiln-ptx-calls,")
                && text.ends_with("kiln-in-place,last)"),
            "{text}"
        );
        assert!(text.contains("kiln-verify-level,mine,kiln-outline-control,"), "{text}");
        let fuse = text.split("kiln-fuse").nth(1).expect("kiln-fuse");
        assert!(fuse.trim_start_matches(|c| c != ',').starts_with(",behind,"), "{text}");
        // The module starts past the level.
        let text = whole_text(
            Level::Kernels,
            Level::Kernels,
            &target,
            &user_passes("prims: mine; linalg: later"),
        )
        .expect("a pipeline");
        assert_eq!(text, "builtin.module(mine)");
        for (wrong, why) in [
            ("prims", "no colon"),
            ("tiled: a", "name a pass"),
            ("kiln-fus: a", "did you mean 'kiln-fuse'"),
        ] {
            let e = UserPasses::parse(wrong).expect_err(wrong);
            assert!(e.contains(why), "{e}");
        }
        for (wrong, why) in [
            ("prims: csee", "did you mean 'cse'"),
            ("kiln-fuse: canonicalize{nonsense=1}", "nonsense"),
        ] {
            let e = user_passes(wrong)[0].check().expect_err(wrong).to_string();
            assert!(e.contains(why), "{e}");
        }
        user_passes("prims: cse,canonicalize{max-iterations=1}")[0].check().expect("known passes");
    }
}
