//! Calls of compiled functions: pytrees, weights, errors, graph breaks, threads.
use super::*;
use kiln::{
    compile::Topic,
    dialects::value::DType::*,
    nn::{Linear, Module, Scope, Sequential},
    runtime::guards::InputGuard,
    tensor::{Graph, TraceError},
};

#[test]
fn a_compiled_closure_equals_the_closure() {
    crate::watchdog::arm();
    let f = |x: Tensor, y: Tensor| (&x * 2 + y).softmax(-1);
    let (x, y) = (counting(&[3, 4]), Tensor::scalar(0.5f32).expect("a tensor"));
    let compiled = kiln::compile(f).name("f");
    let want = f(x.clone(), y.clone());
    for _ in 0..3 {
        let have = compiled.call((&x, &y)).expect("a result");
        let near = numbers(&have).iter().zip(numbers(&want)).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{have} is not {want}");
    }
    assert_eq!(compiled.programs(), 1);
    assert_eq!(compiled.explain().graphs[0].calls, 3);
    assert!(!compiled.explain().graphs[0].kernels.is_empty());
}

fn doubled(x: Tensor) -> Tensor {
    x * 2
}

#[test]
fn pytrees_of_arguments_and_results() {
    crate::watchdog::arm();
    let x = counting(&[2]);
    assert_eq!(numbers(&kiln::compile(doubled).call(&x).expect("a result")), [0.0, 2.0]);
    // A list, an option, an array, numbers; the result has an unmodified argument, a constant, a
    // tensor twice, and numbers.
    let f = kiln::compile(
        |all: Vec<Tensor>, bias: Option<Tensor>, pair: [Tensor; 2], n: i64, flag: bool| {
            let sum = all.iter().fold(&pair[0] * n, |a, b| a + b);
            let sum = bias.map_or(sum.clone(), |b| sum - b);
            let constant = Graph::current().ones((2,), F32);
            (
                vec![sum.clone(), pair[1].clone(), sum],
                (constant, if flag { n + 1 } else { n }),
                Some(0.5),
            )
        },
    )
    .backend("interpreter");
    let args = |count: usize, bias: Option<Tensor>, n: i64| {
        (vec![x.clone(); count], bias, [x.clone(), &x + 7], n, true)
    };
    let (list, (constant, n), half) = f.call(args(2, None, 3)).expect("results");
    assert_eq!(
        list.iter().map(numbers).collect::<Vec<_>>(),
        [vec![0.0, 5.0], vec![7.0, 8.0], vec![0.0, 5.0]]
    );
    assert_eq!((numbers(&constant), n, half), (vec![1.0, 1.0], 4, Some(0.5)));
    let (list, _, _) = f.call(args(3, Some(x.clone()), 3)).expect("results");
    assert_eq!(numbers(&list[0]), [0.0, 5.0]);
    let (list, (_, n), _) = f.call(args(2, None, 5)).expect("results");
    assert_eq!((numbers(&list[0]), n), (vec![0.0, 7.0], 6));
    assert_eq!(f.programs(), 3);
    let why: Vec<String> = f.remarks().into_iter().map(|r| r.message).collect();
    assert!(why[0].contains("arg0.len() == 2 elements") && why[1].contains("arg"), "{why:?}");
    let guards = f.guards()[0].to_string();
    assert!(
        guards.contains("arg3 == 3")
            && guards.contains("arg2[1]: f32[2] row-major")
            && guards.contains("arg1.is_some()"),
        "{guards}"
    );
    assert!(f.guards().iter().all(|g| g.inputs.iter().any(|i| matches!(i, InputGuard::Scalar(_)))));
}

#[test]
fn assigned_weights_apply_from_the_next_call() {
    crate::watchdog::arm();
    let model = Sequential::new(&Scope::root()).layer(|s| Linear::new(s, 2, 2)).apply(|x| x.relu());
    let set = |w: [f64; 4]| {
        let weight =
            kiln::dialects::value::Tensor::floats(F32, vec![2, 2], w.to_vec()).expect("a tensor");
        model.parameters()[0].set(&weight).expect("it fits");
    };
    let bias = kiln::dialects::value::Tensor::floats(F32, vec![2], vec![0.0; 2]).expect("a tensor");
    model.parameters()[1].set(&bias).expect("it fits");
    let x = counting(&[1, 2]);
    for freeze in [false, true] {
        set([1.0, 2.0, 3.0, 4.0]);
        let f = kiln::compile(|x: Tensor| model.forward(&x)).freeze(freeze).backend("interpreter");
        assert_eq!(numbers(&f.call(&x).expect("a result")), [2.0, 4.0]);
        set([5.0, 6.0, 7.0, 8.0]);
        assert_eq!(numbers(&f.call(&x).expect("a result")), [6.0, 8.0], "freeze {freeze}");
        // A program that captures a weight is recompiled, and the old one is dropped.
        assert_eq!(f.programs(), 1);
        let again = f
            .remarks()
            .iter()
            .filter(|r| r.topic == Topic::Recompiles && r.message.contains("0.weight"))
            .count();
        assert_eq!(again, usize::from(freeze));
    }
}

#[test]
fn a_module_compiles_itself_and_equal_names_are_two_weights() {
    crate::watchdog::arm();
    let (a, b) = (Linear::new(&Scope::root(), 2, 2), Linear::new(&Scope::root(), 2, 2));
    let ones =
        kiln::dialects::value::Tensor::floats(F32, vec![2, 2], vec![1.0; 4]).expect("a tensor");
    b.parameters()[0].set(&ones).expect("it fits");
    let x = counting(&[1, 2]);
    let want = numbers(&b.forward(&a.forward(&x)));
    let both = kiln::compile(|x: Tensor| b.forward(&a.forward(&x))).backend("interpreter");
    assert_eq!(numbers(&both.call(&x).expect("a result")).len(), want.len());
    let near = numbers(&both.call(&x).expect("a result"))
        .iter()
        .zip(&want)
        .all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near, "{want:?}");
    let alone = Linear::new(&Scope::root(), 2, 3).compile().backend("interpreter");
    assert_eq!(numbers(&alone.call(&x).expect("a result")).len(), 3);
}

#[test]
fn errors_have_the_users_line() {
    crate::watchdog::arm();
    let mut line = 0;
    let x = counting(&[2, 3]);
    for compiled in [true, false] {
        let f =
            kiln::compile(|x: Tensor| x.matmul(&x) + 1).disable(!compiled).backend("interpreter");
        line = line.max(line!() - 1);
        let text = match compiled {
            true => message(f.call(&x)),
            false => f
                .call(&x)
                .expect("a poisoned tensor")
                .to_vec::<f32>()
                .expect_err("no elements")
                .to_string(),
        };
        assert!(
            text.starts_with(&format!("{}:{line}:", file!())) && text.contains("matmul"),
            "{text}"
        );
    }
    let own = kiln::compile(|_: Tensor| -> Result<Tensor, TraceError> {
        Err(TraceError::User("no config".into()))
    });
    assert_eq!(message(own.call(&x)), "no config");
    let poisoned = x.matmul(&x);
    assert!(message(kiln::compile(doubled).call(&poisoned)).contains("matmul"));
}

#[test]
fn a_compiled_function_within_a_trace_is_a_part_of_it() {
    crate::watchdog::arm();
    let inner = kiln::compile(doubled);
    let outer = kiln::compile(|x: Tensor| {
        inner.call(&x).map(|y| y + 1).map_err(|e| TraceError::User(e.into()))
    })
    .backend("interpreter");
    assert_eq!(numbers(&outer.call(counting(&[2])).expect("a result")), [1.0, 3.0]);
    assert_eq!((outer.programs(), inner.programs()), (1, 0));
}

#[test]
fn many_threads_compile_and_call() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, n: i64| (x + n).sum(.., false)).name("shared");
    let x = counting(&[8]);
    std::thread::scope(|scope| {
        for t in 0..8i64 {
            let (f, x) = (&f, &x);
            scope.spawn(move || {
                for i in 0..100 {
                    let n = (t + i) % 4;
                    let have =
                        f.call((x.clone(), n)).expect("a result").item::<f64>().expect("a number");
                    assert_eq!(have, 28.0 + 8.0 * n as f64);
                }
            });
        }
    });
    assert_eq!(f.programs(), 4);
}

#[test]
fn sixty_four_threads_call_while_eight_compile_without_leaks() {
    crate::watchdog::arm();
    let served = kiln::compile(|x: Tensor| x.softmax(-1).sum(.., false)).name("served");
    let x = counting(&[4, 8]);
    served.call(&x).expect("a result");
    let round = |calls: usize| {
        std::thread::scope(|scope| {
            for t in 0..8i64 {
                scope.spawn(move || {
                    // A function of its own, and a constant that no other thread has.
                    let f = kiln::compile(move |x: Tensor| x * t + 1).backend("interpreter");
                    let y = f.call(counting(&[3])).expect("a result");
                    assert_eq!(numbers(&y), [1.0, 1.0 + t as f64, 1.0 + 2.0 * t as f64]);
                });
            }
            for _ in 0..64 {
                let (served, x) = (&served, &x);
                scope.spawn(move || {
                    for _ in 0..calls {
                        let sum: f64 = served.call(x).expect("a result").item().expect("a number");
                        assert!((sum - 4.0).abs() < 1e-5);
                    }
                });
            }
        });
    };
    let elements = x.array().expect("elements");
    let held = std::sync::Arc::strong_count(&elements);
    let before = served.guards();
    round(1500);
    // Every call ran the one program, and holds neither its argument nor a message.
    assert_eq!((served.programs(), served.guards()), (1, before));
    assert_eq!(std::sync::Arc::strong_count(&elements), held);
    let explained = served.explain();
    assert_eq!(
        (explained.graphs[0].calls, explained.eager_calls, explained.remarks.len()),
        (1 + 64 * 1500, 0, 0)
    );
}

#[test]
fn each_dtype_has_its_own_program() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| x.clone() * 2 + x);
    let floats = Tensor::from_slice(&[2], &[1.5f32, -2.0]).expect("a tensor");
    let ints = Tensor::from_slice(&[2], &[3i64, i64::MAX / 8]).expect("a tensor");
    for _ in 0..2 {
        assert_eq!(f.call(&floats).expect("a result").to_vec::<f32>().expect("f32"), [4.5, -6.0]);
        assert_eq!(
            f.call(&ints).expect("a result").to_vec::<i64>().expect("i64"),
            [9, i64::MAX / 8 * 3]
        );
    }
    assert_eq!(f.explain().graphs.len(), 2);
}
