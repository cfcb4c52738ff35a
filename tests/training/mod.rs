//! Training of modules: modes, statistics, initial values.
mod data;
mod losses;
mod modes;
mod network;
mod recurrent;
