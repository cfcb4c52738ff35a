//! Programs compiled to machine code and called in this process, against PyTorch's results and the
//! interpreter.
mod aten;
mod bounds;
mod empty;
mod fp8;
pub mod graphs;
mod narrow;
mod powers;
mod products;
mod quantized;
mod turns;

pub use aten::{ARCHIVES, results};
use kiln::{
    dialects::{ir::*, ops::*, rules::tensor_type, value::Tensor},
    lowering::{
        PassError, Target,
        driver::compile::{CompileError, CompileOptions, compile},
    },
    runtime::{Package, Pool, View, ViewMut, host::Host},
};

/// Compiles a function of a module, consuming it. `weight` supplies globals without a value in the
/// IR.
pub fn native(
    module: &Module,
    function: &str,
    weight: &dyn Fn(&str) -> Result<Tensor, String>,
) -> Result<Host, String> {
    native_for(module, function, weight, Target::host()?)
}

/// As [`native`], for a CPU that this one is compatible with.
pub fn native_for(
    module: &Module,
    function: &str,
    weight: &dyn Fn(&str) -> Result<Tensor, String>,
    target: Target,
) -> Result<Host, String> {
    let options = CompileOptions {
        target,
        workers: 2,
        cache: None,
        verify: true,
        salt: "test",
        schedules: &Default::default(),
        progress: &|_, _| (),
        on_kernel: &|_, _| (),
        cancellation: Default::default(),
        debug: Default::default(),
    };
    native_with(module, function, weight, &options)
}

/// As [`native`], with options.
pub fn native_with(
    module: &Module,
    function: &str,
    weight: &dyn Fn(&str) -> Result<Tensor, String>,
    options: &CompileOptions,
) -> Result<Host, String> {
    // Lowering erases globals.
    let mut globals = std::collections::HashMap::new();
    for g in blocks(module.op()).into_iter().flat_map(|b| b.ops()).filter_map(Global::of) {
        if g.value.is_none() {
            globals.insert(g.sym_name.clone(), weight(&g.sym_name)?);
        }
    }
    let made = compile(module, function, options).map_err(|e| match e {
        CompileError::Pass(PassError::Failed { pass, diagnostics, .. }) => {
            let all: Vec<String> = diagnostics.iter().map(|d| d.message.clone()).collect();
            format!("{pass}: {}", all.join("; "))
        }
        other => other.to_string(),
    })?;
    let weights = globals.iter().map(|(name, t)| (name.clone(), t.dtype().encode(t))).collect();
    let package =
        Package { program: made.program, objects: made.objects.into_iter().collect(), weights };
    Host::open(&package, &mut |g| package.weight(g), 2).map_err(|e| e.to_string())
}

/// One call. Result buffers are pre-filled, so that unwritten bytes show.
pub fn call(program: &Host, inputs: &[Tensor], threads: usize) -> Result<Vec<Tensor>, String> {
    Pool::configure(threads);
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.dtype().encode(t)).collect();
    let views = inputs.iter().zip(&bytes).map(|(t, b)| View::new(t.dtype().name(), t.shape(), b));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.shape()).collect();
    let shapes = program.program().output_shapes(&shapes).map_err(|e| e.to_string())?;
    let dtypes: Vec<_> = program
        .program()
        .outputs
        .iter()
        .map(|o| kiln::dialects::value::DType::from_name(&o.dtype))
        .collect();
    let dtypes = dtypes.into_iter().collect::<Option<Vec<_>>>().ok_or("an unknown dtype")?;
    let size = |(shape, d): (&Vec<usize>, &kiln::dialects::value::DType)| {
        shape.iter().product::<usize>() * d.byte_size()
    };
    let mut results: Vec<Vec<u8>> =
        shapes.iter().zip(&dtypes).map(|x| vec![0xa5; size(x)]).collect();
    let outs = results
        .iter_mut()
        .zip(&shapes)
        .zip(&dtypes)
        .map(|((b, s), d)| ViewMut::new(d.name(), s, b));
    let mut outs = outs.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    program.call(&views, &mut outs, threads).map_err(|e| e.to_string())?;
    results.iter().zip(&shapes).zip(&dtypes).map(|((b, s), d)| Ok(d.decode(s, b)?)).collect()
}

/// Makes a function return only some of its results.
pub fn keep_results(func: Op, kept: &[usize]) {
    let block = func.regions()[0].first().expect("a body");
    let end = block.terminator().expect("a return");
    let all = end.operands();
    let values: Vec<Value> = kept.iter().map(|i| all[*i]).collect();
    Builder::before(end).expect("in a block").ret(&values).expect("a return");
    end.erase();
    let inputs: Vec<Type> = block.args().iter().map(|v| v.ty()).collect();
    let results: Vec<Type> = values.iter().map(|v| v.ty()).collect();
    func.set_attr("function_type", Attr::ty(Type::function(func.ctx(), &inputs, &results)));
    assert!(results.iter().all(|t| tensor_type(*t).is_ok()));
}
