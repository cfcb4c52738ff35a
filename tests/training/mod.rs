//! Training of modules: modes, statistics, initial values.
mod data;
mod losses;
mod mixed;
mod modes;
mod network;
mod recurrent;
