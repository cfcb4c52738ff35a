//! Places in the source that ops come from.
use kiln_dialects::ir::Loc;

/// Where the ops of a launch stand in the source, the first one first, each place once.
pub(crate) fn sources(loc: Loc) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for part in loc.parts().into_iter().rev() {
        let place = part.place().map(|(file, line, _)| format!("{file}:{line}"));
        let text = match (part.name(), place) {
            (Some(name), Some(place)) => format!("{name} ({place})"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => continue,
        };
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
