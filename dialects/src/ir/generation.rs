//! Debug builds only: which addresses of ops were erased, and how often.
//!
//! A handle takes its address's generation when it comes from MLIR, and every use compares the two.
//! So a handle of an erased op is found even after MLIR gives the address to a new op. The table is
//! per thread, since handles do not leave their thread. Ops that upstream's C++ erases are not
//! recorded.
use super::{Op, walk};
use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    panic::Location,
};

type Erased = (u32, &'static Location<'static>);

thread_local! {
    static ERASED: RefCell<HashMap<usize, Erased, BuildHasherDefault<Address>>> = RefCell::default();
}

/// Hashes an address; the default hasher would dominate the time of debug builds.
#[derive(Default)]
struct Address(u64);

impl Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_usize(*b as usize));
    }
    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0 ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

/// The generation of what is at `address` now.
pub(super) fn current(address: usize) -> u32 {
    ERASED.with_borrow(|all| all.get(&address).map_or(0, |e| e.0))
}

/// Panics if the handle of this generation is older than the last erasure at `address`.
pub(super) fn check(address: usize, generation: u32) {
    let last = ERASED.with_borrow(|all| all.get(&address).copied());
    if let Some((current, at)) = last
        && current != generation
    {
        panic!(
            "an op's handle is used after the op was erased at {at}; read what is needed of an op before it is erased, and keep no handle"
        );
    }
}

/// `root` and everything inside of it are about to be erased.
#[track_caller]
pub(super) fn erase(root: Op) {
    let at = Location::caller();
    let all: Vec<usize> = walk(root).into_iter().map(Op::address).collect();
    ERASED.with_borrow_mut(|erased| {
        for address in all {
            let entry = erased.entry(address).or_insert((0, at));
            *entry = (entry.0 + 1, at);
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::ir::{Context, Module, OpType, func, walk};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn complaint(f: impl FnOnce()) -> String {
        let p = catch_unwind(AssertUnwindSafe(f)).expect_err("a use of an erased op panics");
        crate::ffi::panic_text(p)
    }

    #[test]
    fn use_after_erase_panics() {
        let context = Context::new();
        let text = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = kiln.neg %x : tensor<4xf32>\n  return %x : tensor<4xf32>\n}";
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "t.mlir").unwrap();
        let all = walk(module.op());
        let func = *all.iter().find(|o| o.isa::<func::Func>()).unwrap();
        let neg = *all.iter().find(|o| o.is("kiln.neg")).unwrap();
        neg.erase();
        let text = complaint(|| drop(neg.name()));
        assert!(text.contains("used after the op was erased at"), "{text}");
        assert!(text.contains("generation.rs"), "{text}");
        complaint(|| neg.erase());
        // Equality and maps only compare addresses, and what is alive stays usable.
        assert_eq!(neg, neg);
        assert_eq!(func.name(), func::Func::NAME);
        let end = *walk(func).last().unwrap();
        func.erase();
        let text = complaint(|| drop(end.name()));
        assert!(text.contains("used after"), "an op inside of an erased one: {text}");
        let root = module.op();
        drop(module);
        complaint(|| drop(root.name()));
    }
}
