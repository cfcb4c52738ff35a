//! Validates which outputs may have the memory of inputs.
use super::{At, Invalid};
use crate::program::Program;

pub(super) fn check(p: &Program, at: &At) -> Result<(), Invalid> {
    for (n, alias) in p.aliases.iter().enumerate() {
        let at = at.field("aliases").item(n);
        let (input, output) = (alias.input, alias.output);
        at.field("input").index(input, p.inputs.len(), "inputs")?;
        at.field("output").index(output, p.outputs.len(), "outputs")?;
        at.wants(p.control.is_none(), || "is of a program with control flow".into())?;
        let (i, o) = (&p.inputs[input], &p.outputs[output]);
        at.wants(i.dtype == o.dtype && i.dims == o.dims && i.order.is_empty(), || {
            format!("is of '{}' and '{}', which are of different types", i.name, o.name)
        })?;
        let again =
            p.aliases[..n].iter().any(|other| other.input == input || other.output == output);
        at.wants(!again, || "names an input or an output that an earlier one names".into())?;
        let read = p.kernels.iter().rposition(|k| k.inputs.contains(&input));
        let written = p.kernels.iter().position(|k| k.outputs.contains(&output));
        if let (Some(read), Some(written)) = (read, written) {
            at.wants(read <= written, || {
                format!("is read by launch {read}, after launch {written} has written it")
            })?;
        }
    }
    for (n, state) in p.states.iter().enumerate() {
        let at = at.field("states").item(n);
        at.field("input").index(state.input, p.inputs.len(), "inputs")?;
        at.field("output").index(state.output, p.outputs.len(), "outputs")?;
        let same = |a: &crate::program::Alias| (a.input, a.output) == (state.input, state.output);
        at.wants(!state.in_place || p.aliases.iter().any(same), || {
            "is written in place, but its input and its output are no alias".into()
        })?;
        let again = p.states[..n]
            .iter()
            .any(|other| other.input == state.input || other.output == state.output);
        at.wants(!again, || "names an input or an output that an earlier one names".into())?;
    }
    for (n, k) in p.kernels.iter().enumerate() {
        for i in &k.updates {
            let at = at.field("kernels").item(n).field("updates");
            let state = p.states.iter().any(|s| s.in_place && s.input == *i);
            at.wants(state, || format!("names input {i}, which is no state"))?;
        }
    }
    for (n, not) in p.not_aliased.iter().enumerate() {
        let at = at.field("not_aliased").item(n).field("input");
        at.index(not.input, p.inputs.len(), "inputs")?;
    }
    Ok(())
}
