use super::*;
use crate::program::{ExprKind, Relation};

fn tensor(first: usize, rank: usize) -> InputGuard {
    let dtype = dtype_word("f32");
    InputGuard::Tensor(TensorGuard {
        dtype,
        rank,
        first,
        gpu: None,
        layout: Layout::Rows,
        align: 1,
    })
}

/// x: f32[s, 4], y: f32[s, ?] with 2 * s < 100, n == 3.
fn guards() -> Guards {
    let symbol = Symbol { name: "s0".into(), min: 2, max: Some(64), divisor: 2, input: 0, dim: 0 };
    let mut g = Guards {
        inputs: vec![tensor(0, 2), tensor(2, 2), InputGuard::Scalar(Scalar::Int(3))],
        names: ["x", "y", "n"].map(String::from).to_vec(),
        sizes: vec![DYNAMIC, 4, DYNAMIC, 5],
        symbols: vec![symbol],
        same: vec![Same { input: 1, dim: 0, symbol: 0 }],
        exprs: vec![Expr { kind: ExprKind::Mul, lhs: Dim::Symbol(0), rhs: Dim::Known(2) }],
        conditions: vec![],
    };
    g.condition(Relation::Lt, Dim::Expr(0), Dim::Known(100), "2*s0 < 100".into());
    g
}

/// The mismatch of a call with tensors of these shapes; it must agree with `check`.
fn of(x: [usize; 2], y: [usize; 2], n: Scalar) -> Option<Mismatch> {
    let bytes = vec![0u8; 4 * 64 * 8];
    let view = |shape: &'static [usize; 2]| {
        View::new("f32", shape, &bytes[..4 * shape[0] * shape[1]]).expect("a view")
    };
    let (x, y): (&'static [usize; 2], &'static [usize; 2]) =
        (Box::leak(Box::new(x)), Box::leak(Box::new(y)));
    let leaves = [LeafView::Tensor(view(x)), LeafView::Tensor(view(y)), LeafView::Scalar(n)];
    let found = guards().mismatch(&leaves);
    assert_eq!(guards().check(&leaves), found.is_none(), "{found:?}");
    found
}

#[test]
fn each_guard_refuses_what_it_is_about() {
    let three = Scalar::Int(3);
    assert_eq!(of([8, 4], [8, 5], three), None);
    let text = |m: Option<Mismatch>| m.expect("a mismatch").guard;
    assert_eq!(text(of([8, 3], [8, 5], three)), "x.size(1) == 4");
    assert_eq!(text(of([7, 4], [7, 5], three)), "x.size(0) is 2..=64, a multiple of 2");
    assert_eq!(text(of([0, 4], [0, 5], three)), "x.size(0) is 2..=64, a multiple of 2");
    assert_eq!(text(of([8, 4], [6, 5], three)), "y.size(0) == x.size(0)");
    assert_eq!(text(of([60, 4], [60, 5], three)), "2*s0 < 100");
    assert_eq!(text(of([8, 4], [8, 5], Scalar::Int(4))), "n == 3");
    assert_eq!(text(of([8, 4], [8, 5], Scalar::Float(3.0))), "n == 3");
    let found = of([8, 3], [8, 5], three).expect("a mismatch");
    assert_eq!(
        (found.want.as_str(), found.have.as_str(), found.input, found.dim),
        ("4", "3", Some(0), Some(1))
    );
}

#[test]
fn dtype_rank_strides_and_address_are_guarded() {
    let bytes = vec![0u8; 256];
    let shape = [2usize, 3];
    let rows = View::new("f32", &shape, &bytes[..24]).expect("a view");
    let strides = [1isize, 2];
    // SAFETY: the strides reach 6 elements.
    let columns = unsafe { View::strided("f32", &shape, &strides, bytes.as_ptr()) };
    let ints = View::new("i32", &shape, &bytes[..24]).expect("a view");
    let flat = [6usize];
    let vector = View::new("f32", &flat, &bytes[..24]).expect("a view");
    let guard = |layout: Layout, align: usize| Guards {
        inputs: vec![InputGuard::Tensor(TensorGuard {
            dtype: dtype_word("f32"),
            rank: 2,
            first: 0,
            gpu: None,
            layout,
            align,
        })],
        sizes: vec![2, 3],
        ..Default::default()
    };
    for (g, view, fits) in [
        (guard(Layout::Rows, 1), rows, true),
        (guard(Layout::Rows, 1), columns, false),
        (guard(Layout::Any, 1), columns, true),
        (guard(Layout::Order(vec![1, 0]), 1), columns, true),
        (guard(Layout::Order(vec![1, 0]), 1), rows, false),
        (guard(Layout::Strides(vec![1, 2]), 1), columns, true),
        (guard(Layout::Strides(vec![3, 1]), 1), columns, false),
        (guard(Layout::Strides(vec![3, 1]), 1), rows, true),
        (guard(Layout::Rows, 1), ints, false),
        (guard(Layout::Rows, 1), vector, false),
    ] {
        let leaves = [LeafView::Tensor(view)];
        assert_eq!(g.check(&leaves), fits, "{g}");
        assert_eq!(g.mismatch(&leaves).is_none(), fits, "{g}");
    }
    // Device memory is not host memory.
    let mut elsewhere = guard(Layout::Rows, 1);
    if let [InputGuard::Tensor(t)] = elsewhere.inputs.as_mut_slice() {
        t.gpu = Some(0);
    }
    assert!(
        !elsewhere.check(&[LeafView::Tensor(rows)])
            && elsewhere.mismatch(&[LeafView::Tensor(rows)]).is_some()
    );
    let odd = View::new("f32", &shape, &bytes[1..25]).expect("a view");
    assert!(
        !guard(Layout::Rows, 16).check(&[LeafView::Tensor(odd)])
            || !guard(Layout::Rows, 16).check(&[LeafView::Tensor(rows)])
    );
}

#[test]
fn guards_print_and_travel() {
    let g = guards();
    let text = g.to_string();
    for line in [
        "x: f32[s0, 4] row-major, on the host",
        "s0 = x.size(0) in 2..=64, a multiple of 2",
        "y.size(0) == s0",
        "n == 3",
        "2*s0 < 100",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    let json = serde_json::to_string(&g).expect("JSON");
    assert_eq!(serde_json::from_str::<Guards>(&json).expect("guards"), g);
}
