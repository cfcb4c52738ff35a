//! Debugging wrong or slow compilations: bisect, reduce, ablate, dumps.
mod ablate;
mod bisect;
mod dump;
mod reduce;
mod user_passes;

use super::options;
use kiln::{
    Options,
    dialects::{
        ir::{Op, arith, walk},
        rules::Level,
    },
    lowering::{CancellationToken, UserPasses},
    passes::{Numerics, Pass, pass, pass_options},
};
use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

// A wrong pass: it swaps the operands of subtractions.
pass_options! {
    /// The pass.
    pub struct SwapSub {}
}

impl Pass for SwapSub {
    const FLAG: &'static str = "test-swap-sub";
    const SUMMARY: &'static str = "Swaps operands of subtractions, which is wrong";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, op: Op) -> kiln::passes::Result<()> {
        for sub in walk(op).into_iter().filter(|o| o.is("kiln.sub")) {
            let (a, b) = (sub.operand(0), sub.operand(1));
            sub.set_operand(0, b);
            sub.set_operand(1, a);
        }
        Ok(())
    }
}

// A wrong pass on kernels: it turns linalg subtractions into additions.
pass_options! {
    /// The pass.
    pub struct AddForSub {}
}

impl Pass for AddForSub {
    const FLAG: &'static str = "test-add-for-sub";
    const SUMMARY: &'static str = "Adds where a kernel subtracts, which is wrong";
    const LEVELS: &'static [Level] = &[Level::Linalg, Level::Scheduled];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, op: Op) -> kiln::passes::Result<()> {
        for sub in walk(op).into_iter().filter(|o| o.isa::<arith::SubF>()) {
            let b = kiln::dialects::ir::Builder::before(sub).ok_or("it is in no block")?;
            sub.result(0).replace_uses(arith::addf(b, sub.operand(0), sub.operand(1))?);
            sub.erase();
        }
        Ok(())
    }
}

/// The token that [`Cancel`] cancels.
static CANCELLED: Mutex<Option<CancellationToken>> = Mutex::new(None);
// A pass during which the compilation is cancelled.
pass_options! {
    /// The pass.
    pub struct Cancel {}
}

impl Pass for Cancel {
    const FLAG: &'static str = "test-cancel";
    const SUMMARY: &'static str = "Ends the compilation";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, _: Op) -> kiln::passes::Result<()> {
        CANCELLED.lock().unwrap().iter().for_each(CancellationToken::cancel);
        Ok(())
    }
}

fn registered() {
    pass::register::<Cancel>().expect("registered");
    pass::register::<SwapSub>().expect("registered");
    pass::register::<AddForSub>().expect("registered");
}

fn inserted(behind: &str, pass: &str) -> Options {
    registered();
    Options {
        passes: UserPasses::parse(&format!("{behind}: {pass}")).expect("passes"),
        ..options(2)
    }
}

const SOURCE: &str = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<8x32xf32>, %y: tensor<32x16xf32>, %z: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8x32xf32>) {
    %0 = kiln.exp %x : tensor<8x32xf32>
    %1 = kiln.matmul %0, %y : tensor<8x32xf32>, tensor<32x16xf32>
    %2 = kiln.tanh %1 : tensor<8x16xf32>
    %3 = kiln.sub %2, %z : tensor<8x16xf32>
    %4 = kiln.mul %3, %3 : tensor<8x16xf32>
    %5 = kiln.softmax %3 axis = 1 : tensor<8x16xf32>
    %6 = kiln.reduce sum %4 dims = [1] : tensor<8x16xf32>
    %7 = kiln.add %5, %3 : tensor<8x16xf32>
    return %7, %6, %0 : tensor<8x16xf32>, tensor<8xf32>, tensor<8x32xf32>
  }
}
";

fn source(dir: &Path) -> PathBuf {
    let path = dir.join("model.mlir");
    std::fs::write(&path, SOURCE).unwrap();
    path
}
