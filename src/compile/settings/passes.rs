//! Options that add passes, or replace a pass of the pipeline by one with other options.
use super::{
    Settings,
    values::{AUTOCAST, BYTES, FLOAT8, Invalid, PASSES, SetResult, expected},
};
use crate::{
    lowering::{At, UserPasses},
    passes::{
        Pass,
        autocast::{Autocast, Lower},
        chunk_rows::ChunkRows,
        float8_products::{Float8Products, Recipe},
        options::OptionValue,
    },
    runtime::cache,
};

/// Those whose pass options are options of their own.
const REPLACED: [&str; 3] = [Autocast::FLAG, ChunkRows::FLAG, Float8Products::FLAG];

/// Option `passes`.
pub(super) fn set_user_passes(s: &mut Settings, text: &str) -> SetResult {
    let all = UserPasses::parse(text);
    let all = all.map_err(|e| Invalid(format!("{}: {e}", expected(PASSES).0)))?;
    let of_option = |at: &At| matches!(at, At::Instead(pass) if REPLACED.contains(&pass.as_str()));
    s.options.passes.retain(|p| of_option(&p.at));
    s.options.passes.extend(all);
    Ok(vec![])
}

/// Option `chunk_bytes`.
pub(super) fn set_chunk_bytes(s: &mut Settings, text: &str) -> SetResult {
    let bytes = cache::parse_bytes(text).ok_or_else(|| expected(BYTES))?;
    replace(s, ChunkRows::FLAG, &format!("bytes={bytes}"))
}

/// Option `autocast`.
pub(super) fn set_autocast(s: &mut Settings, text: &str) -> SetResult {
    let lower = Lower::parse(text).map_err(|_| expected(AUTOCAST))?;
    replace(s, Autocast::FLAG, &format!("dtype={}", lower.print()))
}

/// Option `float8`.
pub(super) fn set_float8(s: &mut Settings, text: &str) -> SetResult {
    let recipe = Recipe::parse(text).map_err(|_| expected(FLOAT8))?;
    replace(s, Float8Products::FLAG, &format!("recipe={}", recipe.print()))
}

/// Replaces a pass of the pipeline by itself with other options.
fn replace(s: &mut Settings, flag: &str, options: &str) -> SetResult {
    let at = At::Instead(flag.into());
    s.options.passes.retain(|p| p.at != at);
    s.options.passes.insert(0, UserPasses { at, passes: format!("{flag}{{{options}}}") });
    Ok(vec![])
}
