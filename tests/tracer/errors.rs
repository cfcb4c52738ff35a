//! Invalid ops are error values with the user's location; nothing panics.
use super::*;
use kiln::dialects::value::DType::*;

fn ops(r: Result<Traced, TraceError>) -> Vec<OpError> {
    match r {
        Err(TraceError::Ops(all)) => all,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it was traced"),
    }
}

#[test]
fn errors_have_the_users_line_without_follow_ups() {
    let mut line = 0;
    let all = ops(kiln::trace(|g| {
        let x = g.input("x", F32, (g.dim("batch", 1..=8), 64));
        line = line!() + 1;
        let bad = x.matmul(g.zeros((32, 10), F32));
        // Checks of the methods themselves add no further errors.
        let worse = bad.dropout(2.0)
            + &bad.split(0, 0)[0]
            + bad.layer_norm(&[1, 2, 3], None, None, 1e-5)
            + bad.reshape((bad.size(9), 2));
        Ok((bad + 1).relu().sum(.., false) * worse)
    }));
    let [e] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((e.file.as_str(), e.line, e.op.as_str()), (file!(), line, "matmul"));
    assert_eq!(e.operands, ["f32[batch, 64]", "f32[32, 10]"]);
    let text = e.to_string();
    assert!(
        text.starts_with(&format!("{}:{line}:", file!()))
            && text.contains("64")
            && text.contains("32"),
        "{text}"
    );
}

#[test]
fn operators_have_locations_and_all_errors_are_reported() {
    let mut lines = vec![];
    let all = ops(kiln::trace(|g| {
        let (x, y) = (g.input("x", F32, (2, 3)), g.input("y", F32, (2, 4)));
        lines.push(line!() + 1);
        let a = &x + &y;
        lines.push(line!() + 1);
        let b = 1.0 - y.reshape((3, -1, 5));
        lines.push(line!() + 1);
        let c = x.softmax(2);
        Ok(a * b * c)
    }));
    assert_eq!(all.iter().map(|e| e.line).collect::<Vec<_>>(), lines);
    assert_eq!(
        all.iter().map(|e| e.op.as_str()).collect::<Vec<_>>(),
        ["add", "reshape", "softmax"]
    );
    assert!(all.iter().all(|e| e.column > 1));
}

#[test]
fn an_error_counts_even_if_nothing_uses_it() {
    let all = ops(kiln::trace(|g| {
        let x = g.input("x", F32, (2, 3));
        let _ = x.select(0, 7);
        Ok(x)
    }));
    assert_eq!(all.len(), 1);
}

#[test]
fn pytorch_errors() {
    type Bad = fn(&Graph, Tensor, Tensor) -> Tensor;
    // x is f32[2, 3], i is i64[2, 3].
    let cases: [(&str, Bad); 29] = [
        ("exponent -1", |_, _, i| i.pow(-1)),
        ("wants floats", |_, _, i| i.mean(.., false)),
        ("at most 2 dimensions", |_, x, _| x.unsqueeze(0).t()),
        ("wants 3 dimensions", |_, x, _| x.bmm(&x)),
        ("parts of size 0", |_, x, _| x.split(0, 0)[0].clone()),
        ("3 results", |_, x, _| {
            let [a, _, _, _] = x.chunk(1);
            a
        }),
        ("for a dimension of 3", |_, x, _| x.split_with_sizes([1, 1], 1)[0].clone()),
        ("Dimension out of range", |_, x, _| x.split_with_sizes([1, 1], 5)[0].clone()),
        ("negative", |_, x, _| x.narrow(0, 0, -1)),
        ("step 0", |_, x, _| x.slice_step(0, 0, END, 0)),
        ("not the last ones", |_, x, _| x.layer_norm(&[2], None, None, 1e-5)),
        ("over 3 dimensions of 2", |_, x, _| x.rms_norm(&[1, 2, 3], None, None)),
        ("index of rank 1", |_, x, i| x.gather(0, i.flatten(0, 1))),
        ("one dimension", |_, x, i| x.index_select(0, i)),
        ("joins no tensors", |g, _, _| g.cat(&[], 0)),
        ("rank", |g, x, _| g.cat(&[x.clone(), x.flatten(0, -1)], 0)),
        ("probability 2", |_, x, _| x.dropout(2.0)),
        ("step", |g, _, _| g.arange(0, 5, 0)),
        ("step", |g, _, _| g.arange(0.0, 5.0, 0.0)),
        ("Dimension out of range", |_, x, _| x.sum(2, false)),
        ("Dimension out of range", |_, x, _| x.transpose(0, -3)),
        ("repeats", |_, x, _| x.permute([0, 0])),
        ("lower rank", |_, x, _| x.expand((3,))),
        ("2 shifts", |_, x, _| x.roll(&[1, 2], &[0])),
        ("mixes f32 and i64", |_, x, i| x.matmul(i.transpose(0, 1))),
        ("x", |g, _, _| g.input("x", F32, (1,))),
        ("negative", |g, _, _| g.input("z", F32, (-1,))),
        ("no value", |_, x, _| x.reshape((Dim::from(6) / 0, 1))),
        ("dimension 4 is outside of rank 2", |_, x, _| x.reshape((x.size(4), 1))),
    ];
    for (want, bad) in cases {
        let all =
            ops(kiln::trace(|g| Ok(bad(g, g.input("x", F32, (2, 3)), g.input("i", I64, (2, 3))))));
        assert!(all.len() == 1 && all[0].reason.contains(want), "{want}: {all:?}");
        assert_eq!(all[0].file, file!(), "{want}");
    }
}

#[test]
fn types_of_poisoned_tensors_are_errors() {
    let r = kiln::trace(|g| {
        let x = g.input("x", F32, (2, 3));
        let bad = &x + g.zeros((5,), F32);
        assert!(
            bad.dtype().is_err()
                && bad.rank().is_err()
                && bad.check().is_err()
                && x.check().is_ok()
                && g.check().is_err()
        );
        assert_eq!(bad.to_string(), "an error");
        let n = bad.dims()?.len();
        Ok(x * n as i64)
    });
    assert_eq!(ops(r).len(), 1);
}

#[test]
fn errors_of_the_closure_propagate() {
    let r = kiln::trace(|_| Err(TraceError::User("no config".into())));
    assert!(matches!(&r, Err(TraceError::User(e)) if e.to_string() == "no config"));
}

#[test]
fn names_and_locations_are_in_the_module() {
    let mut line = 0;
    let traced = kiln::trace(|g| {
        let x = g.input("pixels", F32, (2, 3));
        line = line!() + 1;
        let h = (x * 2).relu().named("hidden");
        let w = g.frozen(
            "w",
            &kiln::capture::weight::Weight::from_tensor(
                &value::Tensor::floats(F32, vec![3], vec![1.0; 3]).expect("a tensor"),
            ),
        );
        let m = g.parameter(
            "m",
            &kiln::capture::weight::Weight::from_tensor(
                &value::Tensor::floats(F32, vec![3], vec![1.0; 3]).expect("a tensor"),
            ),
        );
        let c = g
            .constant(&value::Tensor::floats(F32, vec![3], vec![1.0, 2.0, 3.0]).expect("a tensor"));
        let large = g.constant(
            &value::Tensor::floats(F32, vec![2, 3, 1000], vec![1.0; 6000]).expect("a tensor"),
        );
        Ok((h + w + c + m + large.sum(-1, false)).named("hidden"))
    })
    .expect("a program");
    let text = traced
        .module()
        .op()
        .print(PrintOptions { names_from_locations: true, ..Default::default() });
    for part in [
        "%pixels: tensor<2x3xf32>",
        "%hidden = ",
        "%mul = ",
        "@w : tensor<3xf32> from \"#w\"",
        "mutable @m",
        "kiln.constant dense<[1.0",
        "@constant_1",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert_eq!(traced.captured.inputs, ["pixels"]);
    assert_eq!(traced.captured.outputs, [kiln::capture::Output::User("hidden_1".into())]);
    let relu = walk(traced.module().op())
        .into_iter()
        .find(|o| o.loc().name().as_deref() == Some("hidden"))
        .expect("an op");
    let place = relu.loc().file_line_col().expect("a place");
    assert_eq!((place.0.as_str(), place.1), (file!(), line));
    let x = value::Tensor::floats(F32, vec![2, 3], vec![1.0, -1.0, 0.5, 0.0, 2.0, -3.0])
        .expect("a tensor");
    let y = run(&traced.captured, &[x]).expect("a result").remove(0);
    assert_eq!(y.as_f().expect("floats"), [1005.0, 1004.0, 1006.0, 1003.0, 1008.0, 1005.0]);
}

/// A function of several ops that all get its caller's location, as the layers of `nn`.
#[track_caller]
fn double_softmax(x: Tensor, dim: i64) -> Tensor {
    let _frame = x.graph().frame(std::panic::Location::caller());
    x.softmax(0).softmax(dim)
}

#[test]
fn frames_override_locations() {
    let mut lines = vec![];
    let all = ops(kiln::trace(|g| {
        let x = g.input("x", F32, (3,));
        lines.push(line!() + 1);
        let a = double_softmax(x.clone(), 5);
        let here = std::panic::Location::caller();
        lines.push(here.line());
        let b = {
            let _frame = g.inner_frame(here);
            double_softmax(x.clone(), 6)
        };
        lines.push(line!() + 1);
        let c = x.softmax(7);
        Ok(a + b + c)
    }));
    assert_eq!(all.iter().map(|e| e.line).collect::<Vec<_>>(), lines);
}
