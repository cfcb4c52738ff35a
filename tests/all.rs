//! The one integration-test binary: MLIR is linked statically, so each further binary would cost 160 MB and a link.
mod kiln_opt;
mod reference;
mod watchdog;
