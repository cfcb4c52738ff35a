//! The error of a graph break under fullgraph.
use crate::{
    Error,
    tensor::{BreakReason, OpError, TraceError},
};

/// The error of a graph break under fullgraph.
pub(super) fn fullgraph_error(mut read: OpError) -> Error {
    read.reason += match BreakReason::from_error(&read) {
        BreakReason::Read => {
            ", and fullgraph wants one graph: keep the choice in the graph (where_ takes both sides), return the tensor and read it outside, or let the \
             graph break (fullgraph(false))"
        }
        BreakReason::Disabled => {
            ", and fullgraph wants one graph: call it in front of the compiled function or behind it, take it in as a kiln::custom_op, or let the graph \
             break (fullgraph(false))"
        }
    };
    Error::Trace(TraceError::Read(read))
}
