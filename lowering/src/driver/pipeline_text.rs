//! Textual pipelines: the steps of the pipeline table with the pass options of a target.
use crate::{
    driver::{
        pass_options::{PassOptions, chip_options, pass_options},
        pipeline::{On, PIPELINE, PipelineStep},
    },
    target::{Chip, Features, Target},
};
use kiln_dialects::{Result, rules::Level};

fn with(step: &PipelineStep, options: &PassOptions) -> String {
    let Some((pass, options)) = options.iter().find(|(pass, _)| *pass == step.pass) else {
        return step.pass.to_string();
    };
    match pass.strip_suffix('}') {
        Some(pass) => format!("{pass} {options}}}"),
        None => format!("{pass}{{{options}}}"),
    }
}

/// The steps from one level to another, for a GPU, or for CPUs without a chip.
pub fn steps(from: Level, to: Level, chip: Option<Chip>) -> Vec<PipelineStep> {
    PIPELINE
        .iter()
        .filter(|s| s.from >= from && s.from < to && s.target.has(chip))
        .copied()
        .collect()
}

/// The textual pipeline from one level to another. Err: `to` is above `from`.
pub fn pipeline_text(from: Level, to: Level, chip: Option<Chip>) -> Result<String> {
    whole_module_text(
        from,
        to,
        chip,
        &chip.map_or(vec![], |chip| chip_options(chip, Features::default())),
    )
}

/// As [`pipeline_text`], with the pass options of a target.
pub fn pipeline_text_for(from: Level, to: Level, target: &Target) -> Result<String> {
    whole_module_text(from, to, target.chip(), &pass_options(target))
}

fn whole_module_text(
    from: Level,
    to: Level,
    chip: Option<Chip>,
    options: &PassOptions,
) -> Result<String> {
    if to < from {
        return Err(format!("level {} comes before level {}", to.name(), from.name()).into());
    }
    Ok(format!(
        "builtin.module({})",
        all_texts(from, to, chip, options)
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join(",")
    ))
}

/// The steps from one level to another, each with the module's level before it.
fn all_texts(
    from: Level,
    to: Level,
    chip: Option<Chip>,
    options: &PassOptions,
) -> Vec<(Level, String)> {
    // Kiln's passes find the kernels themselves; upstream's are nested on the kernels' modules.
    let text = |s: &PipelineStep| match s.on {
        On::Kernels if !s.pass.starts_with("kiln-") => format!("builtin.module({})", s.pass),
        _ => with(s, options),
    };
    steps(from, to, chip).iter().map(|s| (s.from, text(s))).collect()
}

/// The steps from one level to another for a target, each with the level before it.
pub(crate) fn texts(from: Level, to: Level, target: &Target) -> Vec<(Level, String)> {
    all_texts(from, to, target.chip(), &pass_options(target))
}

/// The pipeline of one part: for a module with one kernel, or for a module whose kernels are
/// compiled elsewhere.
pub fn part_text(on: On, from: Level, to: Level, target: &Target) -> String {
    let options = pass_options(target);
    let all: Vec<_> = steps(from, to, target.chip())
        .iter()
        .filter(|s| s.on == on)
        .map(|s| with(s, &options))
        .collect();
    format!("builtin.module({})", all.join(","))
}
