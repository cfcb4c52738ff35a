//! Type promotion and broadcasting, as in PyTorch 2.11.
use super::*;
use DType::*;

/// dtype and sizes of a result, or the error.
fn type_of(make: impl FnOnce(&Graph) -> Tensor) -> String {
    let mut text = String::new();
    match kiln::trace(|g| {
        let t = make(g);
        text = t.to_string();
        Ok(t)
    }) {
        Ok(_) => text,
        Err(TraceError::Ops(all)) => all[0].reason.clone(),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn tensors_promote_as_in_pytorch() {
    // Two dtypes, 0-d or not: torch.result_type.
    for (a, ra, b, rb, want) in [
        (F32, 1, F16, 1, F32),
        (F16, 1, BF16, 1, F32),
        (I64, 1, F16, 1, F16),
        (I32, 1, I16, 1, I32),
        (UI8, 1, I8, 1, I16),
        (I1, 1, UI8, 1, UI8),
        (F32, 1, F64, 0, F32),
        (I32, 1, F64, 0, F64),
        (I16, 1, I64, 0, I16),
        (I1, 1, I64, 0, I64),
        (F16, 0, F32, 0, F32),
        (BF16, 1, F32, 0, BF16),
    ] {
        let shape = |rank: i64| vec![3i64; rank as usize];
        for (first, second) in [((a, ra), (b, rb)), ((b, rb), (a, ra))] {
            let have = type_of(|g| {
                g.input("x", first.0, shape(first.1)) + g.input("y", second.0, shape(second.1))
            });
            let sizes = if ra.max(rb) == 1 { "3" } else { "" };
            assert_eq!(have, format!("{want}[{sizes}]"), "{first:?} + {second:?}");
        }
    }
}

#[test]
fn numbers_raise_the_category_only() {
    fn x(g: &Graph, d: DType) -> Tensor {
        g.input("x", d, (2,))
    }
    for (d, want) in [
        (F16, [F16, F16, F16]),
        (I32, [I32, F32, I32]),
        (I1, [I64, F32, I1]),
        (UI8, [UI8, F32, UI8]),
        (F64, [F64, F64, F64]),
    ] {
        let [int, float, truth] = want;
        assert_eq!(type_of(|g| x(g, d) * 3), format!("{int}[2]"));
        assert_eq!(type_of(|g| 3 * x(g, d)), format!("{int}[2]"));
        assert_eq!(type_of(|g| x(g, d) * 2.5), format!("{float}[2]"));
        assert_eq!(type_of(|g| 2.5f32 * x(g, d)), format!("{float}[2]"));
        assert_eq!(type_of(|g| x(g, d) * true), format!("{truth}[2]"));
    }
    assert_eq!(type_of(|g| g.input("x", I32, (2,)) / 2), "f32[2]");
    assert_eq!(type_of(|g| g.input("x", I32, (2,)).exp()), "f32[2]");
    assert_eq!(type_of(|g| g.input("x", I32, (2,)).sum(.., false)), "i64[]");
    assert_eq!(type_of(|g| g.input("x", F16, (2,)).gt(0)), "i1[2]");
    assert_eq!(type_of(|g| g.arange(0, 3, 1)), "i64[3]");
    assert_eq!(type_of(|g| g.arange(0.0, 3.0, 0.5)), "f32[6]");
}

#[test]
fn operators_with_numbers_on_either_side() {
    let traced = kiln::trace_all(|g| {
        let (x, b) = (&g.input("x", F32, (2,)), &g.input("b", I1, (2,)));
        Ok(vec![
            1 - x,
            x - 1,
            2.0 / x,
            x / 2,
            7 % x,
            x % -3,
            -x,
            !b,
            b & true,
            true ^ b,
            b | b,
            x + 1i64 + 0.5f32,
        ])
    })
    .expect("a program");
    let x = value::Tensor::floats(F32, vec![2], vec![2.0, -4.0]).expect("a tensor");
    let b = value::Tensor::ints(I1, vec![2], vec![1, 0]).expect("a tensor");
    let all = run(&traced.captured, &[x, b]).expect("results");
    let numbers: Vec<Vec<f64>> =
        all.iter().map(|t| t.as_f().map_or_else(|_| vec![], <[f64]>::to_vec)).collect();
    assert_eq!(
        numbers[..7],
        [
            vec![-1.0, 5.0],
            vec![1.0, -5.0],
            vec![1.0, -0.5],
            vec![1.0, -2.0],
            vec![1.0, -1.0],
            vec![-1.0, -1.0],
            vec![-2.0, 4.0]
        ]
    );
    let truths: Vec<_> = all[7..11].iter().map(|t| t.data().clone()).collect();
    let i = |v: &[i64]| value::Data::I(v.to_vec());
    assert_eq!(truths, [i(&[0, 1]), i(&[1, 0]), i(&[0, 1]), i(&[1, 0])]);
    assert_eq!(numbers[11], [3.5, -2.5]);
}

#[test]
fn shapes_broadcast_as_in_numpy() {
    for (a, b, want) in [
        (vec![2, 3], vec![3], Ok("f32[2, 3]")),
        (vec![2, 1], vec![3], Ok("f32[2, 3]")),
        (vec![5, 1, 4], vec![3, 1], Ok("f32[5, 3, 4]")),
        (vec![], vec![2, 2], Ok("f32[2, 2]")),
        (vec![0, 3], vec![1], Ok("f32[0, 3]")),
        (
            vec![2, 3],
            vec![2],
            Err(
                "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 1",
            ),
        ),
        (
            vec![4],
            vec![3],
            Err(
                "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0",
            ),
        ),
    ] {
        let have = type_of(|g| g.input("x", F32, a.as_slice()) + g.input("y", F32, b.as_slice()));
        assert_eq!(have, want.unwrap_or_else(|e| e), "{a:?} + {b:?}");
    }
}
