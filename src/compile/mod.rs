//! `compile(f)`: just-in-time compilation of a function of tensors, with guarded programs.
//!
//! `docs/front.md` describes how the parts work together.
pub(crate) mod background;
mod call;
mod compiled;
mod compiled_graph;
mod conditions;
mod disable;
mod donation;
mod entry;
mod explain;
mod fullgraph;
mod function;
mod new_entry;
mod placed;
mod reasons;
mod remark;
mod settings;
mod specialisation;
mod state;
mod tree;
mod tree_error;

pub use compiled::{Compiled, compile};
pub use disable::{Disabled, disable};
pub use explain::{Explanation, GraphBreak, GraphInfo, explain};
pub use function::{Arguments, FirstArgument, Function, Pack};
pub(crate) use function::{into_leaves, rebuild};
pub use remark::{Remark, Topic};
pub use settings::{OptionInfo, Settings, list_mode_options, list_options};
pub use state::reset;
pub use tree::{Leaf, Leaves, Returns, Tree};
pub use tree_error::TreeError;
