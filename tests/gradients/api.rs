//! `grad`, `value_and_grad`, `vjp` and `jvp`: eager, compiled, nested, with control flow, and what
//! they refuse.
use kiln::{
    Error, Tensor,
    dialects::value::{self, DType},
    nn::{self, Linear, Module, Scope, Sequential},
    tensor::{CrossEntropy, TraceError},
};
use std::cell::Cell;

type Made = Result<Tensor, TraceError>;

fn tensor(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

/// Some numbers without a pattern.
fn numbers(shape: &[usize], seed: f64) -> Tensor {
    let n: usize = shape.iter().product();
    tensor(shape, &(0..n).map(|i| (i as f64 * 1.7 + seed).sin()).collect::<Vec<_>>())
}

fn elements(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn close(a: &Tensor, b: &Tensor) {
    let (x, y) = (elements(a), elements(b));
    let near = x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 1e-9 * (1.0 + y.abs()));
    assert!(x.len() == y.len() && near, "{x:?}, not {y:?}");
}

/// Central differences of a function that returns a scalar.
fn differences(f: impl Fn(Tensor) -> Tensor, x: &Tensor) -> Vec<f64> {
    let (shape, values) = (x.array().unwrap().shape().to_vec(), elements(x));
    let at = |i: usize, by: f64| {
        let mut values = values.clone();
        values[i] += by;
        f(tensor(&shape, &values)).item::<f64>().unwrap()
    };
    (0..values.len()).map(|i| (at(i, 1e-5) - at(i, -1e-5)) / 2e-5).collect()
}

/// A network with most kinds of layers.
fn network(x: Tensor, w: &Tensor, v: &Tensor, t: &Tensor) -> Tensor {
    let h = x.linear(w, None).gelu().layer_norm(&[5], None, None, 1e-5);
    let h = h.softmax(-1) + h.cumsum(1).tanh() * 0.5;
    h.matmul(v).cross_entropy(t, CrossEntropy::default())
}

#[test]
fn gradients_agree_with_differences() {
    let (x, w) = (numbers(&[4, 3], 1.0), numbers(&[5, 3], 2.0));
    let (v, t) = (numbers(&[5, 3], 3.0), Tensor::from_slice(&[4], &[0i64, 2, 1, 2]).unwrap());
    let f = |x: Tensor, w: Tensor| network(x, &w, &v, &t);
    let (loss, eager) = kiln::value_and_grad(f).call((&x, &w)).unwrap();
    close(&loss, &f(x.clone(), w.clone()));
    let wanted = differences(|x| f(x, w.clone()), &x);
    for (found, wanted) in elements(&eager).iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-8, "{found}, by differences {wanted}");
    }
    let compiled = kiln::compile(kiln::value_and_grad(f)).fullgraph(true);
    let (value, gradient) = compiled.call((&x, &w)).unwrap();
    close(&value, &loss);
    close(&gradient, &eager);
}

#[test]
fn structures_have_gradients_of_their_structure() {
    let f = |p: (Tensor, Vec<Tensor>), x: Tensor| {
        let y = &p.0 * &x + &p.1[0] * &p.1[1];
        (y.sum(.., false), y)
    };
    let p = (numbers(&[3], 1.0), vec![numbers(&[3], 2.0), numbers(&[3], 3.0)]);
    let x = numbers(&[3], 4.0);
    let ((_, aux), (a, b)) = kiln::value_and_grad(f).call((p.clone(), x.clone())).unwrap();
    close(&aux, &(&p.0 * &x + &p.1[0] * &p.1[1]));
    close(&a, &x);
    close(&b[0], &p.1[1]);
    close(&b[1], &p.1[0]);
}

#[test]
fn gradients_nest() {
    let x = numbers(&[3], 1.0);
    let f = |x: Tensor| (x.exp() * x.sin()).sum(.., false);
    // f'' = 2 e^x cos x.
    let second =
        kiln::grad(move |x: Tensor| -> Made { Ok(kiln::grad(f).call(&x)?.sum(.., false)) });
    close(&second.call(&x).unwrap(), &(x.exp() * x.cos() * 2));
    close(&kiln::compile(second).call(&x).unwrap(), &(x.exp() * x.cos() * 2));
    let cube = |x: Tensor| &x * &x * &x;
    let third = kiln::grad(kiln::grad(kiln::grad(cube)));
    assert_eq!(third.call(Tensor::scalar(2.0f64).unwrap()).unwrap().item::<f64>().unwrap(), 6.0);
}

/// The inner function reads the argument of the outer one, which does not count.
#[test]
fn only_the_argument_is_differentiated_by() {
    let f = kiln::compile(|x: Tensor| -> Made {
        kiln::grad(|y: Tensor| (&y * &x).sum(.., false)).call(&x)
    });
    let x = numbers(&[3], 1.0);
    close(&f.call(&x).unwrap(), &x);
    let eager = kiln::grad(|y: Tensor| (&y * &x).sum(.., false)).call(&x).unwrap();
    close(&eager, &x);
}

#[test]
fn dynamic_sizes_have_gradients() {
    let w = numbers(&[5, 3], 2.0);
    let f = |w: Tensor, x: Tensor| {
        let h = x.linear(&w, None).softmax(-1);
        (h.mean(0, false) + h.max_dim(0, false).0).pow(2).sum(.., false)
    };
    let compiled = kiln::compile(kiln::grad(f)).dynamic(true).fullgraph(true);
    for n in [4, 7, 9] {
        let x = numbers(&[n, 3], 1.0);
        close(&compiled.call((&w, &x)).unwrap(), &kiln::grad(f).call((&w, &x)).unwrap());
    }
    assert_eq!(compiled.programs(), 1);
}

#[test]
fn control_flow_has_gradients() {
    let f = |x: Tensor| -> Made {
        let positive = x.sum(.., false).gt(0.0);
        let y = kiln::cond(positive, |x: Tensor| x.exp(), |x: Tensor| &x * &x, x.clone())?;
        let step = |c: Tensor, row: Tensor| {
            let next = (c * &row).tanh() + &x;
            (next.clone(), next)
        };
        let (last, all) = kiln::scan(step, y, x.unsqueeze(0).expand((4, 3)))?;
        Ok(last.sum(.., false) + all.mean(.., false))
    };
    for x in [tensor(&[3], &[0.3, 0.9, -0.2]), tensor(&[3], &[-0.3, -0.9, 0.2])] {
        let wanted = differences(|x| f(x).unwrap(), &x);
        let eager = kiln::grad(f).call(&x).unwrap();
        let compiled = kiln::compile(kiln::grad(f)).fullgraph(true).call(&x).unwrap();
        close(&eager, &compiled);
        for (found, wanted) in elements(&eager).iter().zip(&wanted) {
            assert!((found - wanted).abs() < 1e-8, "{found}, by differences {wanted}");
        }
    }
}

#[test]
fn products_with_jacobians_agree() {
    let f = |x: Tensor, y: Tensor| (x.matmul(&y).tanh(), &x * x.sum(.., false));
    let (x, y) = (numbers(&[2, 3], 1.0), numbers(&[3, 2], 2.0));
    let (u, v) = (numbers(&[2, 3], 3.0), numbers(&[3, 2], 4.0));
    let (a, b) = (numbers(&[2, 2], 5.0), numbers(&[2, 3], 6.0));
    let both = |x: Tensor, y: Tensor| -> Result<[Tensor; 6], TraceError> {
        let ((p, q), pullback) = kiln::vjp(f, (&x, &y))?;
        let (by_x, by_y) = pullback.call((a.clone(), b.clone()))?;
        let (_, (along_p, along_q)) = kiln::jvp(f, (x, y), (u.clone(), v.clone()))?;
        Ok([p, q, by_x, by_y, along_p, along_q])
    };
    let eager = both(x.clone(), y.clone()).unwrap();
    let dot = |x: &Tensor, y: &Tensor| (x * y).sum(.., false).item::<f64>().unwrap();
    let [_, _, by_x, by_y, along_p, along_q] = &eager;
    let (one, other) = (dot(by_x, &u) + dot(by_y, &v), dot(along_p, &a) + dot(along_q, &b));
    assert!((one - other).abs() < 1e-10, "{one} and {other}");
    // Along u and v, by differences.
    let at = |h: f64| (&f(&x + &u * h, &y + &v * h).0 * &a).sum(.., false).item::<f64>().unwrap();
    assert!(((at(1e-5) - at(-1e-5)) / 2e-5 - dot(along_p, &a)).abs() < 1e-8);
    let compiled = kiln::compile(both).fullgraph(true).call((&x, &y)).unwrap();
    eager.iter().zip(&compiled).for_each(|(a, b)| close(a, b));
}

/// In eager mode, what a function reads is an input of its program, so other values count.
#[test]
fn captured_tensors_may_change() {
    let scale = Cell::new(2.0);
    let f = |x: Tensor| (x * tensor(&[2], &[scale.get(); 2])).sum(.., false);
    let (g, x) = (kiln::grad(f), numbers(&[2], 1.0));
    assert_eq!(elements(&g.call(&x).unwrap()), [2.0, 2.0]);
    scale.set(3.0);
    assert_eq!(elements(&g.call(&x).unwrap()), [3.0, 3.0]);
}

#[test]
fn functions_in_segments_have_gradients() {
    let f = kiln::compile(|x: Tensor| -> Made {
        let y = &x * 2;
        let by_y = kiln::grad(|z: Tensor| (&z * &z * &y).sum(.., false)).call(&y)?;
        let total: f64 = by_y.sum(.., false).item()?;
        Ok(by_y * total)
    });
    let x = numbers(&[3], 1.0);
    let by_y = &x * 2 * (&x * 2) * 2;
    let wanted = &by_y * by_y.sum(.., false).item::<f64>().unwrap();
    close(&f.call(&x).unwrap(), &wanted);
    close(&f.call(&x).unwrap(), &wanted);
}

#[test]
fn what_has_no_gradient_is_an_error_at_its_line() {
    let x = numbers(&[3], 1.0);
    let message = |r: Result<Tensor, TraceError>| r.map(|_| ()).unwrap_err().to_string();
    let loop_line = line!() + 2;
    let looped = |x: Tensor| -> Made {
        let y = kiln::while_loop(|y: Tensor| y.lt(9.0).all(.., false), |y: Tensor| y * 2, x)?;
        Ok(y.sum(.., false))
    };
    let e = message(kiln::grad(looped).call(&x));
    let wanted = format!("api.rs:{loop_line}:");
    assert!(e.contains(&wanted) && e.contains("'kiln.while' op cannot be differentiated"), "{e}");
    let compiled = kiln::compile(kiln::grad(looped)).fullgraph(true).call(&x);
    let e = compiled.map(|_| ()).unwrap_err().to_string();
    assert!(e.contains(&wanted) && e.contains("cannot be differentiated"), "{e}");

    let e = message(kiln::grad(|x: Tensor| x.exp()).call(&x));
    assert!(e.contains("returns f64[3], not a float of one element"), "{e}");
    let i = Tensor::from_slice(&[2], &[1i64, 2]).unwrap();
    let e = message(kiln::grad(|i: Tensor| i.to(DType::F64).sum(.., false)).call(&i));
    assert!(e.contains("is by a tensor that is not of floats"), "{e}");
    let read = |x: Tensor| -> Made { Ok(&x * x.sum(.., false).item::<f64>()?) };
    let e = message(kiln::grad(read).call(Tensor::scalar(1.0f64).unwrap()));
    assert!(e.contains("api.rs") && e.contains("read"), "{e}");
    let invalid = |x: Tensor| x.matmul(numbers(&[2, 2], 1.0)).sum(.., false);
    let e = message(kiln::grad(invalid).call(&x));
    assert!(e.contains("matmul") && e.contains("api.rs"), "{e}");
    let (_, pullback) = kiln::vjp(|x: Tensor| x.exp(), &x).unwrap();
    let e = message(pullback.call(numbers(&[2], 1.0)).map(|(x,)| x));
    assert!(e.contains("has a cotangent of f64[2] for a result of f64[3]"), "{e}");
    let by_number = kiln::grad(|a: f64, x: Tensor| (x * a).sum(.., false)).call((1.0, x));
    let e = by_number.map(|_| ()).unwrap_err().to_string();
    assert!(e.contains("which has a number"), "{e}");
}

/// Weights of modules: as inputs of the program, so that new values count.
#[test]
fn weights_of_modules_have_gradients() {
    let scope = Scope::root().with_dtype(DType::F64);
    let net = Sequential::new(&scope)
        .layer(|s| Linear::new(s, 3, 4))
        .apply(|x| x.tanh())
        .layer(|s| Linear::new(s, 4, 2));
    let x = numbers(&[5, 3], 1.0);
    let loss = |x: Tensor| net.forward(&x).pow(2).sum(.., false);
    let eager = nn::value_and_grad(net.parameters(), loss);
    let compiled = kiln::compile(nn::value_and_grad(net.parameters(), loss)).fullgraph(true);
    for _ in 0..2 {
        let (value, gradients) = eager.call(&x).unwrap();
        close(&value, &loss(x.clone()));
        let (_, others) = compiled.call(&x).unwrap();
        gradients.iter().zip(&others).for_each(|(a, b)| close(a, b));
        for (p, g) in net.parameters().into_iter().zip(&gradients) {
            let before = p.value().unwrap().read().unwrap();
            let moved = |by: f64| {
                let mut all = before.as_f().unwrap().to_vec();
                all[1] += by;
                p.set(&value::Tensor::floats(DType::F64, p.shape().to_vec(), all).unwrap())
                    .unwrap();
            };
            let at = |by: f64| {
                moved(by);
                loss(x.clone()).item::<f64>().unwrap()
            };
            let wanted = (at(1e-5) - at(-1e-5)) / 2e-5;
            moved(0.0);
            let found = elements(g)[1];
            assert!((found - wanted).abs() < 1e-8, "{}: {found}, not {wanted}", p.name());
        }
        for p in net.parameters() {
            let before = p.value().unwrap().read().unwrap();
            let half = before.as_f().unwrap().iter().map(|v| v * 0.5).collect();
            p.set(&value::Tensor::floats(DType::F64, p.shape().to_vec(), half).unwrap()).unwrap();
        }
    }
    assert_eq!(compiled.programs(), 1);
}

/// A library function within a compiled one: one program, no graph break.
#[test]
fn a_step_is_one_program() -> Result<(), Error> {
    let f = |w: Tensor, x: Tensor| x.linear(&w, None).pow(2).mean(.., false);
    let step = kiln::compile(move |w: Tensor, x: Tensor| -> Made {
        let by_w = kiln::grad(f).call((&w, &x))?;
        Ok(w - by_w * 0.1)
    })
    .fullgraph(true);
    let (mut w, x) = (numbers(&[2, 3], 1.0), numbers(&[4, 3], 2.0));
    let first = f(w.clone(), x.clone()).item::<f64>()?;
    for _ in 0..50 {
        w = step.call((&w, &x))?;
    }
    assert!(f(w, x).item::<f64>()? < first * 0.1);
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn a_detached_tensor_is_a_constant() {
    let x = numbers(&[2, 3], 1.0);
    // The gradient of softmax as a policy gradient has it: by the logarithm only.
    let f = |x: Tensor| (x.log_softmax(-1) * x.softmax(-1).detach()).sum(.., false);
    let frozen = x.softmax(-1);
    let wanted =
        kiln::grad(move |x: Tensor| (x.log_softmax(-1) * &frozen).sum(.., false)).call(&x).unwrap();
    close(&kiln::grad(f).call(&x).unwrap(), &wanted);
    let compiled = kiln::compile(kiln::value_and_grad(f)).fullgraph(true);
    let (value, gradient) = compiled.call(&x).unwrap();
    close(&value, &f(x.clone()));
    close(&gradient, &wanted);
    // What depends on a detached tensor only has gradient 0, and keeps integers and sizes.
    let zero = kiln::grad(|x: Tensor| x.square().detach().sum(.., false)).call(&x).unwrap();
    assert_eq!(elements(&zero), [0.0; 6]);
    let (_, tangent) = kiln::jvp(|x: Tensor| x.detach(), &x, x.ones_like()).unwrap();
    assert_eq!(elements(&tangent), [0.0; 6]);
    let second = kiln::grad(|x: Tensor| {
        kiln::grad(|x: Tensor| (&x * &x * x.detach()).sum(.., false))
            .call(x)
            .map(|g| g.sum(.., false))
    });
    // d/dx (2 x c), with c = x as a constant of the inner function, which the outer one detaches.
    let wanted: Vec<f64> = elements(&x).iter().map(|x| 2.0 * x).collect();
    assert_eq!(elements(&second.call(&x).unwrap()), wanted);
}

/// Powers of two of x until the sum passes a limit: by values, with a parameter that the condition
/// reads, twice differentiated, and in batches.
#[test]
fn bounded_loops_have_gradients() {
    let f = |x: Tensor, w: Tensor| -> Result<Tensor, TraceError> {
        let body = |(y, n): (Tensor, Tensor)| (&y * &w + y.sin(), n + 1.0);
        let below = |(y, _): (Tensor, Tensor)| y.square().sum(.., false).lt(50.0);
        let zero = Tensor::scalar(0.0f64)?;
        let (y, n) = kiln::while_loop_bounded(9, below, body, (x, zero))?;
        Ok((y * (n + 1.0)).sum(.., false))
    };
    for start in [0.4, 1.1, 9.0] {
        let x = Tensor::from_slice(&[2], &[start, 0.7]).unwrap();
        let w = Tensor::from_slice(&[2], &[1.3, 0.9]).unwrap();
        let value = |x: Tensor, w: Tensor| f(x, w).unwrap().item::<f64>().unwrap();
        // A loop without a limit gives the same.
        let by = kiln::compile(kiln::grad(|(x, w): (Tensor, Tensor)| f(x, w)));
        let (by_x, by_w) = by.call(((&x).into(), (&w).into())).unwrap();
        for i in 0..2 {
            let step = |at: f64| {
                let mut moved = [0.0; 2];
                moved[i] = at;
                Tensor::from_slice(&[2], &moved).unwrap()
            };
            let of = |f: &dyn Fn(Tensor) -> f64| (f(step(1e-6)) - f(step(-1e-6))) / 2e-6;
            let (wanted_x, wanted_w) =
                (of(&|d| value(&x + d, w.clone())), of(&|d| value(x.clone(), &w + d)));
            let (have_x, have_w) = (elements(&by_x)[i], elements(&by_w)[i]);
            assert!(
                (have_x - wanted_x).abs() < 1e-5 * (1.0 + wanted_x.abs()),
                "{have_x} {wanted_x}"
            );
            assert!(
                (have_w - wanted_w).abs() < 1e-5 * (1.0 + wanted_w.abs()),
                "{have_w} {wanted_w}"
            );
        }
    }
    // No iteration, and more than the limit allows.
    let twice = |limit: usize| {
        move |x: Tensor| {
            kiln::while_loop_bounded(limit, |y: Tensor| y.gt(0.0), |y: Tensor| y * 2, x)
        }
    };
    let x = Tensor::scalar(3.0f64).unwrap();
    for limit in [0, 1, 5] {
        let wanted = 3.0 * f64::powi(2.0, limit as i32);
        assert_eq!(twice(limit)(x.clone()).unwrap().item::<f64>().unwrap(), wanted);
        let compiled = kiln::compile(twice(limit)).call(&x).unwrap();
        assert_eq!(compiled.item::<f64>().unwrap(), wanted);
    }
    let second = kiln::grad(kiln::grad(|x: Tensor| {
        kiln::while_loop_bounded(4, |y: Tensor| y.lt(10.0), |y: Tensor| y.square(), x)
    }));
    // x^4 from 2.
    assert_eq!(
        kiln::compile(second).call(Tensor::scalar(2.0f64).unwrap()).unwrap().item::<f64>().unwrap(),
        48.0
    );
}
