//! Training of modules: modes, statistics, initial values.
mod data;
mod float8;
mod losses;
mod mixed;
mod modes;
mod network;
mod recurrent;
