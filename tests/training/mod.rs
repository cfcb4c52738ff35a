//! Training of modules: modes, statistics, initial values.
mod losses;
mod modes;
mod network;
