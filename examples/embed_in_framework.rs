//! Embedding kiln in a framework with graphs of its own: build `kiln` IR with typed builders,
//! compile it, and call it on the framework's memory. No `kiln::Tensor` is involved.
//!
//!   cargo run --example embed_in_framework
use kiln::{
    Model, Options,
    dialects::{ir::*, ops::*, sym, value::DType},
    runtime::{View, ViewMut},
};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().map(|text| println!("{text}"))
}

/// `relu(x · w + 1)` with a dynamic number of rows.
fn graph(context: &Context) -> Result<Module, String> {
    let ctx = context.ctx();
    let loc = Loc::file(ctx, "framework.graph", 1, 1);
    let module = Module::new(loc);
    let matrix = |rows: sym::Dim, columns: i64| {
        Type::tensor(ctx, DType::F32, &[rows, sym::Dim::Known(columns)])
    };
    let (x, w, y) =
        (matrix(sym::Dim::Unknown, 3), matrix(sym::Dim::Known(3), 2), matrix(sym::Dim::Unknown, 2));
    // Each op carries a location of the framework, which errors and profiles report.
    let at = |line: u32| Loc::file(ctx, "framework.graph", line, 1);
    Builder::at_end(ctx, module.body(), loc).function("main", &[x, w], &[y], &mut |b, args| {
        let rows = Sym { name: "rows".into(), min: 1, max: Some(4096), divisor: 1 };
        let rows = b.create_with(&rows, &[Type::index(ctx)], &mut [])?.result(0);
        b.create_with(
            &BindShape { value: args[0], sizes: vec![Size::Dynamic(rows), Size::Static(3)] },
            &[],
            &mut [],
        )?;
        let product = DotGeneral {
            lhs: args[0],
            rhs: args[1],
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract: vec![1],
            rhs_contract: vec![0],
            element_type: None,
        };
        let product = b.at(at(2)).add(&product)?;
        let sizes = [Size::Dynamic(rows), Size::Static(2)];
        let sum = b.at(at(3)).add(&Add { lhs: product, rhs: b.splat(DType::F32, &sizes, 1.0)? })?;
        let relu = b.at(at(4)).add(&Max { lhs: sum, rhs: b.splat(DType::F32, &sizes, 0.0)? })?;
        b.ret(&[relu]).map(|_| ())
    })?;
    Ok(module)
}

/// The text to print.
pub fn run() -> Result<String, Box<dyn std::error::Error>> {
    let context = Context::new();
    let module = graph(&context)?;
    if !module.op().verify() {
        return Err("the graph does not verify".into());
    }
    let program = Model::from_module(&module, Path::new(""))
        .compile(&Options { threads: 1, ..Options::default() })?;
    let w = [1.0f32, 0.0, 0.0, 1.0, -1.0, -1.0];
    let mut lines = vec![];
    for x in [&[1.0f32, 2.0, 3.0][..], &[4.0, 5.0, 6.0, 3.0, 1.0, 0.5]] {
        let rows = x.len() / 3;
        let mut y = vec![0.0f32; rows * 2];
        let shapes = ([rows, 3], [3, 2], [rows, 2]);
        program.call(
            &[View::from_slice(&shapes.0, x)?, View::from_slice(&shapes.1, &w)?],
            &mut [ViewMut::from_slice(&shapes.2, &mut y)?],
        )?;
        lines.push(format!("{y:?}"));
    }
    Ok(lines.join("\n"))
}
