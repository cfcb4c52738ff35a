//! Code of a kernel, whatever it runs on: loops and index arithmetic, values of several iterations
//! at once, one iteration of a nest's stages, and the function around it all. Which iterations a
//! thread runs is the target's decision.
pub mod body;
pub mod code;
pub mod function;
pub mod lanes;
pub mod loops;
pub mod partials;
