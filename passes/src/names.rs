//! "Did you mean" suggestions.

/// The candidate most similar to `name`, if it is similar enough for a typo.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.into_iter().map(|c| (strsim::jaro_winkler(name, c), c));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c)
}

/// `; did you mean 'x'?`, or empty.
pub fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or(String::new(), |c| format!("; did you mean '{c}'?"))
}
