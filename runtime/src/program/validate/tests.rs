use super::*;
use crate::{
    control::{Body, Control, Step, Value},
    program::{
        Alias, Arg, Expr, ExprKind, IndexGuard, Kernel, Launch, NotAliased, State, Target,
        TensorMap,
    },
};

fn tensor(dims: &[Dim]) -> Tensor {
    Tensor { name: "x".into(), dtype: "f32".into(), dims: dims.to_vec(), order: vec![] }
}

/// A GPU program with one of everything.
fn program() -> Program {
    let map = TensorMap {
        arg: 0,
        dtype: "f32".into(),
        offset: Dim::Known(0),
        sizes: vec![Dim::Known(4), Dim::Symbol(0)],
        strides: vec![Dim::Known(4)],
        extent: vec![4, 1],
        window: None,
    };
    let args = vec![
        Arg::Input(0),
        Arg::Output(0),
        Arg::Global(0),
        Arg::Arena(Dim::Known(64)),
        Arg::Size(Dim::Expr(1)),
    ];
    let launch = Launch {
        args,
        grid: Dim::Expr(0),
        resident: 0,
        threads: 128,
        shared: 0,
        maps: vec![map],
        library: None,
        dependent: false,
        entry: None,
    };
    let kernel = |reads| Kernel {
        symbol: "k".into(),
        launch: Some(launch.clone()),
        reads,
        bytes: Some(Dim::Expr(1)),
        ..Default::default()
    };
    let global = Global {
        name: "w".into(),
        dtype: "f32".into(),
        shape: vec![2],
        source: String::new(),
        data: Some(vec![0; 8]),
        role: Role::Frozen,
    };
    let target = Target { arch: "cuda".into(), cpu: "sm_90a".into(), features: String::new() };
    let prepare = Program {
        target: target.clone(),
        outputs: vec![tensor(&[Dim::Known(3)])],
        ..Default::default()
    };
    let packed = Global {
        name: "p".into(),
        shape: vec![3],
        source: "prepare#0".into(),
        data: None,
        role: Role::Packed,
        ..global.clone()
    };
    let e = |lhs| Expr { kind: ExprKind::Add, lhs, rhs: Dim::Known(1) };
    Program {
        format: FORMAT,
        target,
        inputs: vec![tensor(&[Dim::Symbol(0), Dim::Known(4)])],
        outputs: vec![tensor(&[Dim::Expr(1)])],
        symbols: vec![Symbol {
            name: "s".into(),
            min: 1,
            max: Some(9),
            divisor: 1,
            input: 0,
            dim: 0,
        }],
        exprs: vec![e(Dim::Symbol(0)), e(Dim::Expr(0))],
        globals: vec![global, packed],
        kernels: vec![kernel(vec![]), kernel(vec![0])],
        arena: Dim::Known(64),
        prepare: Some(prepare.into()),
        ..Default::default()
    }
}

fn said(change: impl FnOnce(&mut Program)) -> String {
    let mut p = program();
    change(&mut p);
    p.validate().expect_err("refused").to_string()
}
fn launch(p: &mut Program) -> &mut Launch {
    p.kernels[1].launch.as_mut().expect("a launch")
}

#[test]
fn what_contradicts_itself_is_named() {
    assert_eq!(program().validate(), Ok(()));
    assert_eq!(said(|p| p.format = 1), format!("format is not {FORMAT}"));
    assert_eq!(said(|p| p.symbols[0].input = 1), "symbols[0].input is 1, but inputs has 1 entries");
    assert_eq!(
        said(|p| p.symbols[0].dim = 2),
        "symbols[0].dim is 2, but inputs[0].dims has 2 entries"
    );
    assert_eq!(said(|p| p.symbols[0].min = 10), "symbols[0].min is 10, above the max 9");
    assert_eq!(said(|p| p.symbols[0].divisor = 0), "symbols[0].divisor is 0, below 1");
    let cycle = "exprs[1].lhs is expression 1, which is not an earlier one; there are 1";
    assert_eq!(said(|p| p.exprs[1].lhs = Dim::Expr(1)), cycle);
    assert_eq!(
        said(|p| p.outputs[0].dims[0] = Dim::Symbol(7)),
        "outputs[0].dims[0] is 7, but symbols has 1 entries"
    );
    assert_eq!(said(|p| p.inputs[0].dims[1] = Dim::Known(-4)), "inputs[0].dims[1] is -4, below 0");
    assert_eq!(
        said(|p| p.inputs[0].dims[1] = Dim::Known(i64::MAX)),
        "inputs[0].dims have more bytes than an address space"
    );
    let guard = |input, size| IndexGuard { input, size, wraps: false, text: "gather".into() };
    assert_eq!(
        said(|p| p.indices.push(guard(1, Dim::Known(4)))),
        "indices[0].input is 1, but inputs has 1 entries"
    );
    assert_eq!(
        said(|p| p.indices.push(guard(0, Dim::Known(4)))),
        "indices[0].input is a tensor of f32, not of integers"
    );
    assert_eq!(
        said(|p| {
            p.inputs[0].dtype = "i64".into();
            p.indices.push(guard(0, Dim::Expr(2)));
        }),
        "indices[0].size is expression 2, which is not an earlier one; there are 2"
    );
    assert_eq!(
        said(|p| p.inputs[0].dtype = "f33".into()),
        "inputs[0].dtype is 'f33', which is no element type"
    );
    assert_eq!(
        said(|p| p.inputs[0].order = vec![0, 0]),
        "inputs[0].order is [0, 0], no order of 2 dimensions"
    );
    assert_eq!(
        said(|p| p.outputs[0].order = vec![0]),
        "outputs[0].order is not that of rows, as results have"
    );
    assert_eq!(said(|p| p.arena = Dim::Known(-1)), "arena is -1, below 0");
    assert_eq!(
        said(|p| p.globals[0].shape = vec![3]),
        "globals[0].data has 8 bytes, f32 [3] has 12"
    );
    assert_eq!(
        said(|p| p.globals[1].source = "prepare#1".into()),
        "globals[1].source is 'prepare#1', no result of prepare"
    );
    assert_eq!(
        said(|p| p.globals[1].shape = vec![4]),
        "globals[1] is not of the type of 'prepare#0'"
    );
    assert_eq!(said(|p| p.amx = true), "amx is true on cuda");
    let own = |p: &mut Program| p.prepare = Some(Box::new(program()));
    assert_eq!(said(own), "prepare takes inputs");
}

#[test]
fn outputs_have_the_memory_of_inputs_that_are_read_before() {
    let alias = |input, output| move |p: &mut Program| p.aliases = vec![Alias { input, output }];
    let same = |p: &mut Program| {
        p.outputs[0] = p.inputs[0].clone();
        p.kernels[0].inputs = vec![0];
        p.kernels[1].outputs = vec![0];
        alias(0, 0)(p);
    };
    let mut p = program();
    same(&mut p);
    assert_eq!(p.validate(), Ok(()));
    assert_eq!(said(alias(1, 0)), "aliases[0].input is 1, but inputs has 1 entries");
    assert_eq!(said(alias(0, 1)), "aliases[0].output is 1, but outputs has 1 entries");
    let other = |p: &mut Program| {
        same(p);
        p.outputs[0].dims.push(Dim::Known(1));
    };
    assert_eq!(said(other), "aliases[0] is of 'x' and 'x', which are of different types");
    let twice = |p: &mut Program| {
        same(p);
        p.aliases.push(p.aliases[0]);
    };
    assert_eq!(said(twice), "aliases[1] names an input or an output that an earlier one names");
    let late = |p: &mut Program| {
        same(p);
        p.kernels[0].outputs = vec![0];
        p.kernels[1].inputs = vec![0];
    };
    assert_eq!(said(late), "aliases[0] is read by launch 1, after launch 0 has written it");
    let not = |p: &mut Program| {
        p.not_aliased = vec![NotAliased { input: 3, reason: "so".into() }];
    };
    assert_eq!(said(not), "not_aliased[0].input is 3, but inputs has 1 entries");
}

#[test]
fn states_are_aliases_where_kernels_write_into_them() {
    let state = |input, output, in_place| State { input, output, source: "".into(), in_place };
    let states = |all: Vec<State>| move |p: &mut Program| p.states = all;
    assert_eq!(
        said(states(vec![state(1, 0, false)])),
        "states[0].input is 1, but inputs has 1 entries"
    );
    assert_eq!(
        said(states(vec![state(0, 1, false)])),
        "states[0].output is 1, but outputs has 1 entries"
    );
    let alone = "states[0] is written in place, but its input and its output are no alias";
    assert_eq!(said(states(vec![state(0, 0, true)])), alone);
    let twice = "states[1] names an input or an output that an earlier one names";
    assert_eq!(said(states(vec![state(0, 0, false); 2])), twice);
    let other = |p: &mut Program| p.kernels[1].updates = vec![0];
    assert_eq!(said(other), "kernels[1].updates names input 0, which is no state");
}

#[test]
fn launches_are_compared_with_what_there_is() {
    let field = "kernels[1].launch";
    let args = |a: Arg| move |p: &mut Program| launch(p).args[1] = a;
    assert_eq!(
        said(args(Arg::Input(1))),
        format!("{field}.args[1] is 1, but inputs has 1 entries")
    );
    assert_eq!(
        said(args(Arg::Output(1))),
        format!("{field}.args[1] is 1, but outputs has 1 entries")
    );
    assert_eq!(
        said(args(Arg::Global(2))),
        format!("{field}.args[1] is 2, but globals has 2 entries")
    );
    assert_eq!(
        said(args(Arg::Arena(Dim::Known(65)))),
        format!("{field}.args[1] is at byte 65 of the arena, which has 64")
    );
    assert_eq!(said(args(Arg::Arena(Dim::Known(-8)))), format!("{field}.args[1] is -8, below 0"));
    assert_eq!(
        said(args(Arg::InputAt(0, Dim::Known(0)))),
        format!("{field}.args[1] writes to input 0, which is not among those that are overwritten")
    );
    let inside = |offset: Dim| {
        move |p: &mut Program| {
            p.outputs[0].dims = vec![Dim::Known(4)];
            launch(p).args[1] = Arg::OutputAt(0, offset);
        }
    };
    assert_eq!(
        said(inside(Dim::Known(16))),
        format!("{field}.args[1] is at byte 16 of 'x', which has 16")
    );
    assert_eq!(
        said(inside(Dim::Symbol(0))),
        format!("{field}.args[1] is in 'x', where sizes are not static")
    );
    assert!(
        said(args(Arg::Size(Dim::Expr(2))))
            .starts_with(&format!("{field}.args[1] is expression 2"))
    );
    assert_eq!(
        said(|p| launch(p).threads = 0),
        format!("{field}.threads is 0, not between 1 and 1024")
    );
    assert!(said(|p| launch(p).shared = 1 << 20).contains("shared is 1048576, above"));
    assert_eq!(
        said(|p| launch(p).maps[0].arg = 4),
        format!("{field}.maps[0].arg is 4, which is a size")
    );
    assert!(
        said(|p| launch(p).maps[0].strides.clear()).contains("maps[0].strides are 0, one fewer")
    );
    assert!(said(|p| launch(p).maps[0].extent.push(1)).contains("maps[0].extent has 3 sizes"));
    assert!(said(|p| launch(p).grid = Dim::Symbol(1)).starts_with("kernels[1].launch.grid"));
    assert_eq!(
        said(|p| p.kernels[1].reads = vec![1]),
        "kernels[1].reads[0] is launch 1, which does not come before 1"
    );
    assert!(said(|p| p.kernels[0].launch = None).contains("does not go with the target cuda"));
    assert!(
        said(|p| p.kernels[0].symbol = String::new()).contains("symbol is \"\", which is no name")
    );
}

/// While value 1 is true (value 0 is loop-carried): call part 0.
fn flow() -> Program {
    let part = |dtype: &str, dims: &[Dim]| Program {
        inputs: vec![tensor(&[Dim::Known(3)])],
        outputs: vec![Tensor { dtype: dtype.into(), ..tensor(dims) }],
        ..Default::default()
    };
    let value = |dtype: &str, dims: &[Dim]| Value { dtype: dtype.into(), dims: dims.to_vec() };
    let three = [Dim::Known(3)];
    let call =
        |part, input, result| Step::Call { part, inputs: vec![input], results: vec![result] };
    let step = Step::While {
        inits: vec![0],
        condition: Body { args: vec![1], steps: vec![call(1, 1, 2)], yields: vec![2] },
        body: Body { args: vec![3], steps: vec![call(0, 3, 4)], yields: vec![4] },
        results: vec![5],
        source: String::new(),
    };
    let f = || value("f32", &three);
    let values = vec![f(), f(), value("i1", &[]), f(), f(), f()];
    let body = Body { args: vec![0], steps: vec![step], yields: vec![5] };
    let parts = vec![part("f32", &three), part("i1", &[])];
    Program {
        format: FORMAT,
        inputs: vec![tensor(&three)],
        outputs: vec![tensor(&three)],
        control: Some(Control { parts, values, body }.into()),
        ..Default::default()
    }
}

#[test]
fn control_flow_reads_what_was_made() {
    fn said(change: impl FnOnce(&mut Control)) -> String {
        let mut p = flow();
        change(p.control.as_mut().expect("control"));
        p.validate().expect_err("refused").to_string()
    }
    fn parts(c: &mut Control) -> (&mut Vec<usize>, &mut Body, &mut Body, &mut Vec<usize>) {
        let Step::While { inits, condition, body, results, .. } = &mut c.body.steps[0] else {
            panic!("a loop")
        };
        (inits, condition, body, results)
    }
    assert_eq!(flow().validate(), Ok(()));
    let at = "control.body.steps[0]";
    assert_eq!(
        said(|c| *parts(c).0 = vec![9]),
        format!("{at}.inits[0] is 9, but control.values has 6 entries")
    );
    assert_eq!(
        said(|c| *parts(c).0 = vec![4]),
        format!("{at}.inits[0] is value 4, which is used before it is defined")
    );
    // The body's values are not in scope outside it.
    assert!(
        said(|c| c.body.yields = vec![4])
            .contains("is value 4, which is used before it is defined")
    );
    assert_eq!(
        said(|c| *parts(c).3 = vec![4]),
        format!("{at}.results[0] is value 4, which is defined twice")
    );
    let e = said(|c| parts(c).1.yields = vec![1]);
    assert_eq!(e, format!("{at}.condition.yields is f32 of rank 1, not one i1"));
    assert_eq!(
        said(|c| c.values[3].dims.clear()),
        format!("{at}.body.steps[0].inputs[0] is f32 of rank 0, not as 'x'")
    );
    assert!(said(|c| parts(c).2.yields = vec![]).contains("body.yields are 0, not 1"));
    let part = |c: &mut Control| {
        parts(c).2.steps[0] = Step::Call { part: 2, inputs: vec![3], results: vec![4] }
    };
    assert!(said(part).contains("part is 2, but control.parts has 2 entries"));
    assert_eq!(
        said(|c| c.parts[0].target.arch = "other".into()),
        "control.parts[0].target is another one"
    );
    assert_eq!(
        said(|c| c.parts[0].arena = Dim::Symbol(0)),
        "control.parts[0].arena is 0, but symbols has 0 entries"
    );
}
