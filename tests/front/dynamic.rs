//! Sizes that change, and decisions on sizes.
use super::*;
use kiln::compile::Topic;

fn text(f: &[kiln::runtime::Guards]) -> String {
    f.iter().map(|g| g.to_string()).collect::<Vec<_>>().join("--\n")
}

#[test]
fn the_second_size_makes_a_symbol_of_that_dimension_only() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| x.softmax(-1).sum(0, false));
    for (i, (rows, programs)) in
        [(3, 1), (5, 2), (9, 2), (64, 2), (3, 2), (1, 3), (1, 3), (0, 4)].into_iter().enumerate()
    {
        let have = f.call(counting(&[rows, 4])).unwrap_or_else(|e| panic!("{rows} rows: {e}"));
        let sum: f64 = numbers(&have).iter().sum();
        assert!((sum - rows as f64).abs() < 1e-4, "call {i}");
        assert_eq!(f.programs(), programs, "call {i}, {rows} rows\n{}", text(&f.guards()));
    }
    let guards = f.guards()[1].to_string();
    assert!(
        guards.contains("arg0: f32[s0, 4]") && guards.contains("s0 = arg0.size(0) in 2..="),
        "{guards}"
    );
    let remarks = f.remarks();
    let first = remarks.iter().find(|r| r.topic == Topic::Recompiles).expect("a remark");
    assert!(
        first
            .message
            .contains("arg0.size(0) == 3: it was 3, now it is 5; mark_dynamic on dimension 0"),
        "{first}"
    );
    assert!(first.location.starts_with(&format!("{}:", file!())), "{first}");
}

#[test]
fn dynamic_true_and_false() {
    crate::watchdog::arm();
    let sum = |x: Tensor, y: Tensor| (x + y).sum(.., false);
    let dynamic = kiln::compile(sum).dynamic(true).backend("interpreter");
    for n in [4, 3, 5] {
        let total = (0..n * 4).sum::<usize>() as f64;
        assert_eq!(
            numbers(&dynamic.call((counting(&[n, 4]), counting(&[n, 4]))).expect("a result")),
            [2.0 * total]
        );
    }
    // Rows and columns were equal by chance: a guard that the second call fails.
    assert_eq!(dynamic.programs(), 2, "{}", text(&dynamic.guards()));
    assert!(
        dynamic.guards()[1].to_string().contains("arg1.size(0) == s0"),
        "{}",
        text(&dynamic.guards())
    );
    let fixed = kiln::compile(sum).dynamic(false).backend("interpreter");
    (2..5).for_each(|n| drop(fixed.call((counting(&[n]), counting(&[n]))).expect("a result")));
    assert_eq!(fixed.programs(), 3);
    assert!(fixed.remarks()[0].message.contains("dynamic is false"), "{:?}", fixed.remarks());
}

#[test]
fn marked_dimensions_are_dynamic() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| x.sum(1, false)).backend("interpreter");
    let x = counting(&[4, 6]);
    kiln::mark_dynamic(&x, 0, 2..=64).expect("a mark");
    f.call(&x).expect("a result");
    f.call(counting(&[64, 6])).expect("a result");
    assert_eq!(f.programs(), 1, "{}", text(&f.guards()));
    f.call(counting(&[65, 6])).expect("a result");
    assert_eq!(f.programs(), 2);
    assert!(kiln::mark_dynamic(&x, 2, 1..=8).is_err() && kiln::mark_dynamic(&x, 0, 5..=8).is_err());
    let g = kiln::compile(|x: Tensor| x.sum(1, false)).backend("interpreter");
    for n in 2..5 {
        let x = counting(&[n, 6]);
        kiln::mark_static(&x, 0).expect("a mark");
        g.call(&x).expect("a result");
    }
    assert_eq!(g.programs(), 3);
}

#[test]
fn comparisons_of_sizes_are_guards() {
    crate::watchdog::arm();
    // Not visible in the result: without a guard the branch taken would be lost.
    let f = kiln::compile(|x: Tensor| {
        let n = x.size(0);
        if n == 5 {
            x * 100
        } else if n > 8 {
            x * 10
        } else {
            x
        }
    })
    .dynamic(true)
    .backend("interpreter");
    for (n, factor) in
        [(4usize, 1.0), (6, 1.0), (5, 100.0), (9, 10.0), (20, 10.0), (7, 1.0), (5, 100.0), (8, 1.0)]
    {
        let have = numbers(&f.call(counting(&[n])).expect("a result"));
        assert_eq!(have[n - 1], factor * (n - 1) as f64, "{n}\n{}", text(&f.guards()));
    }
    assert_eq!(f.programs(), 3, "{}", text(&f.guards()));
}

#[test]
fn a_contradicted_symbol_stays_static() {
    crate::watchdog::arm();
    // The weight has 6 rows; and a split needs the number of parts.
    let weight = counting(&[6]);
    let f = kiln::compile(move |x: Tensor| &x + &weight).dynamic(true).backend("interpreter");
    f.call(counting(&[4, 6])).expect("a result");
    f.call(counting(&[5, 6])).expect("a result");
    assert_eq!(f.programs(), 1, "{}", text(&f.guards()));
    assert!(f.guards()[0].to_string().contains("f32[s0, 6]"), "{}", text(&f.guards()));
    let said = f.remarks();
    assert!(
        said[0].topic == Topic::Dynamic
            && said[0].message.contains("arg0.size(1) stays the number 6"),
        "{said:?}"
    );
    let parts = kiln::compile(|x: Tensor| x.split(2, 0)).dynamic(true).backend("interpreter");
    for n in [4, 6, 5] {
        assert_eq!(parts.call(counting(&[n, 3])).expect("results").len(), n.div_ceil(2));
    }
    assert_eq!(parts.programs(), 3, "{}", text(&parts.guards()));
}

#[test]
fn a_size_can_be_specialised() {
    crate::watchdog::arm();
    // By a guard; and by a method that symbols lack, which is detected.
    let f = kiln::compile(|x: Tensor| {
        (0..x.size(0).specialised().expect("a number")).fold(x, |x, _| x + 1)
    })
    .dynamic(true)
    .backend("interpreter");
    let g =
        kiln::compile(|x: Tensor| (0..x.size(0).known().expect("a number")).fold(x, |x, _| x + 1))
            .dynamic(true)
            .backend("interpreter");
    for n in [2usize, 3, 2] {
        assert_eq!(numbers(&f.call(counting(&[n])).expect("a result"))[0], n as f64);
        assert_eq!(numbers(&g.call(counting(&[n])).expect("a result"))[0], n as f64);
    }
    assert_eq!((f.programs(), g.programs()), (2, 2));
    assert!(
        g.remarks()[0].message.contains("panics where a size is a symbol"),
        "{:?}",
        g.remarks()
    );
}

#[test]
fn past_the_limit_calls_run_eagerly_with_one_warning() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, n: i64| x * n)
        .backend("interpreter")
        .options([("cache_size_limit", "3")]);
    let have = kiln::tensor::with_backend("interpreter", || {
        (0..6)
            .map(|n| numbers(&f.call((counting(&[2]), n)).expect("a result"))[1])
            .collect::<Vec<_>>()
    });
    assert_eq!(have.expect("a backend"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(f.programs(), 3);
    let warnings: Vec<_> =
        f.remarks().into_iter().filter(|r| r.topic == Topic::CacheLimit).collect();
    assert!(
        warnings.len() == 1 && warnings[0].message.contains("arg1 == 2: it was 2, now it is 3"),
        "{warnings:?}"
    );
    f.reset();
    assert_eq!((f.programs(), f.remarks().len()), (0, 0));
}

/// Calls a function on a GPU device, interpreted on the host, with rows of these lengths; returns
/// the number of programs after each.
fn programs_of(
    f: &kiln::Compiled<impl kiln::compile::Function<(Tensor,), Out = Tensor>, (Tensor,)>,
    lengths: &[usize],
) -> Vec<usize> {
    let call = |n: &usize| {
        let x = counting(&[3, *n]);
        assert_eq!(
            numbers(&f.call(&x).unwrap_or_else(|e| panic!("{n}: {e}"))),
            numbers(&(x + 1)),
            "{n}"
        );
        f.programs()
    };
    lengths.iter().map(call).collect()
}

#[test]
fn on_a_gpu_rows_divisible_by_16_have_their_own_program() {
    crate::watchdog::arm();
    let on_gpu = || kiln::compile(|x: Tensor| x + 1).backend("interpreter").device("cuda:0");
    let f = on_gpu();
    assert_eq!(
        programs_of(&f, &[32, 48, 160, 50, 64, 51, 16, 52, 33]),
        [1, 2, 2, 3, 3, 3, 3, 3, 3],
        "{}",
        text(&f.guards())
    );
    let guards = f.guards();
    assert!(
        guards[1].to_string().contains("s0 = arg0.size(1) in 2..=, a multiple of 16"),
        "{}",
        text(&guards)
    );
    assert!(
        guards[2].symbols[0].divisor == 1 && guards[1].symbols[0].divisor == 16,
        "{}",
        text(&guards)
    );
    // Sizes that both programs accept run the first one.
    let calls: Vec<u64> = f.explain().graphs.iter().map(|g| g.calls).collect();
    assert_eq!(calls, [1, 4, 4]);
    let remarks = f.remarks();
    let last = remarks.iter().rev().find(|r| r.topic == Topic::Recompiles).expect("a remark");
    let all = "from now on programs are for all sizes, behind those for multiples; mark_dynamic on dimension 1";
    assert!(
        last.message.contains("arg0.size(1) is 2..=, a multiple of 16: it was")
            && last.message.contains(all),
        "{last}"
    );
    // 1 is always specialised and tells nothing about other sizes.
    let one = on_gpu();
    assert_eq!(programs_of(&one, &[1, 32, 64, 1, 50]), [1, 2, 2, 2, 3]);
    assert_eq!(one.guards()[1].symbols[0].divisor, 16);
    // An indivisible length before the symbol; and the host, where divisibility is not profitable.
    let odd = on_gpu();
    assert_eq!(programs_of(&odd, &[33, 48, 64]), [1, 2, 2]);
    let host = kiln::compile(|x: Tensor| x + 1).backend("interpreter");
    assert_eq!(programs_of(&host, &[32, 48, 50]), [1, 2, 2]);
    assert!([&odd.guards()[1], &host.guards()[1]].iter().all(|g| g.symbols[0].divisor == 1));
}

#[test]
fn divisors_are_used_where_profitable_and_within_the_limit() {
    crate::watchdog::arm();
    let on_gpu = || kiln::compile(|x: Tensor| x + 1).backend("interpreter").device("cuda:0");
    let divisors =
        |g: &kiln::runtime::Guards| g.symbols.iter().map(|s| s.divisor).collect::<Vec<_>>();
    // The first size is not a row stride, nor is one before divisible rows; one call makes both
    // general.
    let f = on_gpu();
    for shape in [
        [16usize, 32, 10],
        [48, 32, 10],
        [48, 64, 10],
        [16, 96, 20],
        [80, 48, 10],
        [32, 50, 30],
        [50, 40, 60],
    ] {
        f.call(counting(&shape)).expect("a result");
    }
    let all: Vec<_> = f.guards().iter().map(divisors).collect();
    assert_eq!(
        all,
        [vec![], vec![1], vec![1, 16], vec![1, 16, 1], vec![1, 1, 1]],
        "{}",
        text(&f.guards())
    );
    // One of two sizes loses divisibility, and the other one too: one more program for both.
    let both = on_gpu();
    for shape in [[5usize, 32, 48], [5, 64, 80], [5, 50, 96], [5, 64, 50], [5, 96, 112]] {
        both.call(counting(&shape)).expect("a result");
    }
    assert_eq!(
        both.guards().iter().map(divisors).collect::<Vec<_>>(),
        [vec![], vec![16, 16], vec![1, 1]],
        "{}",
        text(&both.guards())
    );
    let rows = on_gpu();
    [[4usize, 16, 32], [4, 32, 32]]
        .iter()
        .for_each(|shape| drop(rows.call(counting(shape)).expect("a result")));
    assert_eq!(divisors(&rows.guards()[1]), [1], "{}", text(&rows.guards()));
    // With a limit of two programs, the second is for all sizes.
    let two = on_gpu().options([("cache_size_limit", "2")]);
    assert_eq!(programs_of(&two, &[32, 48, 50]), [1, 2, 2]);
    // Declared sizes have one program.
    let marked = on_gpu();
    let x = counting(&[3, 32]);
    kiln::mark_dynamic(&x, 1, 2..=64).expect("a mark");
    marked.call(&x).expect("a result");
    assert_eq!(programs_of(&marked, &[48, 50]), [1, 1]);
    let dynamic = on_gpu().dynamic(true);
    assert_eq!(programs_of(&dynamic, &[32, 48, 50]), [1, 1, 1]);
}
