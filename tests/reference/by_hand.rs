//! Cases without a counterpart in NumPy or PyTorch, with results by hand, and errors.

use kiln_dialects::ops::*;
use kiln_dialects::reference as kernel;
use kiln_dialects::value::{DType, Data, Tensor, count};

fn f(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::floats(DType::F64, shape.to_vec(), v.to_vec()).unwrap()
}

fn i(dtype: DType, shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::ints(dtype, shape.to_vec(), v.to_vec()).unwrap()
}

/// Asserts an error whose text contains every part.
fn fails<T: std::fmt::Debug>(result: Result<T, kiln_dialects::Error>, parts: &[&str]) {
    let text = result.unwrap_err().message;
    assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks one of {parts:?}");
}

#[test]
fn philox_gives_the_known_answers() {
    // kat_vectors of Random123, philox4x32 10.
    let same = |x| ([x; 4], [x; 2]);
    let pi = ([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]);
    for ((counter, key), answer) in [
        (same(0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
        (same(u32::MAX), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
        (pi, [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]),
    ] {
        assert_eq!(kernel::philox4x32_10(counter, key), answer);
    }
    // The last of the vectors above, and the first, elementwise.
    let both = |x: [u32; 2]| u64::from(x[0]) | u64::from(x[1]) << 32;
    let (seed, block) = (both([0xa4093822, 0x299f31d0]), both([0x243f6a88, 0x85a308d3]));
    let stream = both([0x13198a2e, 0x03707344]);
    let pair = |n: u64| i(DType::I64, &[2], &[n as i64, 0]);
    let words = kernel::philox(&pair(seed), &pair(block), &pair(stream)).unwrap();
    let want = [[0xd16cfe09u32, 0x6627e8d5], [0x94fdcceb, 0xe169c58d]];
    for (have, want) in words.iter().zip(want) {
        assert_eq!(have.as_i().unwrap(), want.map(|w| i64::from(w as i32)));
    }
    let key = i(DType::I64, &[2], &[0, 0]);
    let bits = kernel::random_bits(&key, &[4], DType::I32).unwrap();
    let words = [0x6627e8d5u32, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8];
    assert_eq!(bits.as_i().unwrap(), words.map(|w| i64::from(w as i32)));
    let bits = kernel::random_bits(&key, &[2], DType::I64).unwrap();
    assert_eq!(bits.as_i().unwrap(), [0xe169c58d6627e8d5u64 as i64, 0x9b00dbd8bc57ac4cu64 as i64]);
}

#[test]
fn random_numbers_have_their_distribution() {
    let key = i(DType::I64, &[2], &[5, 6]);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let x = kernel::random_uniform(&key, &[20000], dtype, 0.0, 1.0).unwrap();
        let v = x.as_f().unwrap();
        assert!(v.iter().all(|v| (0.0..1.0).contains(v)));
        assert!((v.iter().sum::<f64>() / 20000.0 - 0.5).abs() < 0.01);
        assert_eq!(x.clone().rounded(), x, "{dtype} represents every draw");
    }
    let x = kernel::random_normal(&key, &[20000], DType::F32, 0.0, 1.0).unwrap();
    let (mean, square) = x
        .as_f()
        .unwrap()
        .iter()
        .fold((0.0, 0.0), |(m, s), v| (m + v / 20000.0, s + v * v / 20000.0));
    assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.03);
    let x = kernel::dropout(&f(&[20000], &[1.0; 20000]), &key, 0.25).unwrap();
    assert!((x.as_f().unwrap().iter().sum::<f64>() / 20000.0 - 1.0).abs() < 0.02);
}

#[test]
fn float_formats_round_to_the_nearest_even() {
    for (dtype, top) in [
        (DType::F16, 0x7c00),
        (DType::BF16, 0x7f80),
        (DType::F8E4M3FN, 0x7f),
        (DType::F8E5M2, 0x7c),
    ] {
        let size = dtype.byte_size();
        let value =
            |bits: u32| dtype.decode(&[], &bits.to_le_bytes()[..size]).unwrap().as_f().unwrap()[0];
        for bits in 0..top {
            let (x, next) = (value(bits), value(bits + 1));
            assert_eq!(dtype.encode(&f(&[], &[x])), bits.to_le_bytes()[..size]);
            assert_eq!(dtype.round(x), x);
            if next.is_finite() {
                let (middle, even) = ((x + next) / 2.0, if bits % 2 == 0 { x } else { next });
                assert_eq!(
                    (dtype.round(middle), dtype.round(-middle)),
                    (even, -even),
                    "{dtype} {bits:#x}"
                );
                // Neighbours of a tie in f64, which conversions through f32 would round wrongly.
                assert_eq!(dtype.round(middle.next_up()), next);
                assert_eq!(dtype.round(middle.next_down()), x);
            }
        }
        let greatest = value(top - 1);
        let step = greatest - value(top - 2);
        let beyond = dtype.round(greatest + step / 2.0 + step / 64.0);
        assert!(if dtype == DType::F8E4M3FN { beyond.is_nan() } else { beyond == f64::INFINITY });
        assert!(dtype.round(f64::NAN).is_nan());
        assert!(dtype.round(-0.0).is_sign_negative());
        assert_eq!(dtype.round(f64::MIN_POSITIVE / 2.0), 0.0);
    }
    assert_eq!(DType::F32.round(1.0 + 2f64.powi(-24)), 1.0);
    assert!(DType::F8E4M3FN.round(f64::INFINITY).is_nan());
}

#[test]
fn dtypes_name_wrap_and_encode() {
    for dtype in DType::ALL {
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        assert_eq!(dtype.is_float() as u8 + dtype.is_int() as u8, (dtype != DType::I1) as u8);
    }
    assert_eq!(DType::from_name("u8"), None);
    assert_eq!([-1, 256, 511].map(|x| DType::UI8.wrap(x)), [255, 0, 255]);
    assert_eq!([-129, 128, 255].map(|x| DType::I8.wrap(x)), [127, -128, -1]);
    assert_eq!([-5, 0, 256].map(|x| DType::I1.wrap(x)), [1, 0, 1]);
    for (dtype, v) in [
        (DType::I16, vec![-2, 300]),
        (DType::UI8, vec![200, 3]),
        (DType::I1, vec![1, 0]),
        (DType::I64, vec![i64::MIN, 7]),
    ] {
        let x = i(dtype, &[2], &v);
        assert_eq!(dtype.decode(&[2], &dtype.encode(&x)).unwrap(), x);
    }
    assert_eq!(DType::I16.encode(&i(DType::I16, &[1], &[-2])), [0xfe, 0xff]);
    assert_eq!(DType::F32.encode(&f(&[1], &[1.0])), 1f32.to_le_bytes());
    assert_eq!(DType::I1.decode(&[2], &[7, 0]).unwrap().as_i().unwrap(), [1, 0]);
    fails(DType::I32.decode(&[2], &[0; 7]), &["7", "8"]);
}

#[test]
fn tensors_check_what_they_are_given() {
    fails(Tensor::floats(DType::F32, vec![2, 3], vec![0.0; 5]), &["5 elements", "[2, 3]", "6"]);
    fails(Tensor::ints(DType::F32, vec![1], vec![0]), &["integers", "f32"]);
    fails(Tensor::floats(DType::I1, vec![1], vec![0.0]), &["floats", "i1"]);
    fails(Tensor::ints(DType::UI8, vec![1], vec![256]), &["256", "ui8"]);
    fails(Tensor::scalar_i(DType::I1, 2), &["2", "i1"]);
    fails(Tensor::full(&f(&[1], &[1.0]), vec![2]), &["[1]"]);
    assert_eq!(count(&[1 << 20, 1 << 11]), Ok(1 << 31));
    fails(count(&[1 << 20, 1 << 12]), &["2147483648"]);
    fails(count(&[usize::MAX, usize::MAX]), &["2147483648"]);
    assert_eq!(count(&[usize::MAX, 0, usize::MAX]), Ok(0));
    assert_eq!(f(&[2, 3, 4], &[0.0; 24]).strides(), [12, 4, 1]);
    fails(kernel::iota(DType::I64, &[i64::MAX, 2], 0), &["2147483648"]);
    fails(kernel::splat(&f(&[], &[0.0]), &[3, -1]), &["-1"]);
    let x = Tensor::floats(DType::BF16, vec![2], vec![1.00390625, -0.0]).unwrap().rounded();
    assert_eq!(x.data(), &Data::F(vec![1.0, -0.0]));
}

#[test]
fn signed_zeros_and_limits_of_integers() {
    let signs =
        |t: Tensor| t.as_f().unwrap().iter().map(|v| v.is_sign_negative()).collect::<Vec<_>>();
    let (x, y) = (f(&[4], &[0.0, -0.0, 0.0, -0.0]), f(&[4], &[-0.0, 0.0, 0.0, -0.0]));
    assert_eq!(
        signs(kernel::binary(BinaryKind::Max, &x, &y).unwrap()),
        [false, false, false, true]
    );
    assert_eq!(signs(kernel::binary(BinaryKind::Min, &x, &y).unwrap()), [true, true, false, true]);
    assert_eq!(signs(kernel::unary(UnaryKind::Sign, &x).unwrap()), [false, true, false, true]);
    for (dtype, least) in
        [(DType::I8, -128), (DType::I32, i64::from(i32::MIN)), (DType::I64, i64::MIN)]
    {
        let (x, y) = (i(dtype, &[1], &[least]), i(dtype, &[1], &[-1]));
        let result = |kind| kernel::binary(kind, &x, &y).unwrap().as_i().unwrap()[0];
        assert_eq!(
            [BinaryKind::Div, BinaryKind::Rem, BinaryKind::FloorDiv].map(result),
            [least, 0, least]
        );
    }
    let x = f(&[5], &[f64::NAN, 300.0, -300.0, f64::INFINITY, -1.5]);
    assert_eq!(kernel::convert(&x, DType::I8).unwrap().as_i().unwrap(), [0, 127, -128, 127, -1]);
    assert_eq!(kernel::convert(&x, DType::UI8).unwrap().as_i().unwrap(), [0, 255, 0, 255, 0]);
    let x = kernel::convert(&f(&[], &[0.1]), DType::F16).unwrap();
    assert_eq!((x.dtype(), x.as_f().unwrap()[0]), (DType::F16, 0.1));
}

#[test]
fn windows_in_padding_alone_give_the_identity() {
    let p = kernel::WindowParams {
        window: vec![1],
        strides: vec![1],
        pad_low: vec![1],
        pad_high: vec![0],
        dilation: vec![1],
    };
    let x = |dtype| Tensor::floats(dtype, vec![1], vec![2.0]).unwrap();
    let first =
        |kind, dtype| kernel::reduce_window(kind, &x(dtype), &p).unwrap().as_f().unwrap()[0];
    assert_eq!(first(CumulativeKind::Max, DType::F32), f64::NEG_INFINITY);
    assert_eq!(first(CumulativeKind::Max, DType::F8E4M3FN), -448.0);
    assert_eq!(first(CumulativeKind::Min, DType::F8E4M3FN), 448.0);
    assert_eq!(first(CumulativeKind::Prod, DType::F64), 1.0);
    let p = kernel::AvgPoolParams {
        window: vec![1],
        strides: vec![1],
        padding: vec![1],
        ceil_mode: false,
        count_include_pad: false,
        divisor_override: None,
    };
    assert_eq!(
        kernel::avg_pool(&f(&[1, 1, 1], &[5.0]), &p).unwrap().as_f().unwrap(),
        [0.0, 5.0, 0.0]
    );
    let p = kernel::MaxPoolParams {
        window: vec![1],
        strides: vec![1],
        padding: vec![1],
        dilation: vec![1],
        ceil_mode: false,
    };
    let r = kernel::max_pool(&i(DType::I8, &[1, 1, 1], &[5]), &p).unwrap();
    assert_eq!(r.as_i().unwrap(), [-128, 5, -128]);
    // Transposed, unit dimensions, kernel 2: the input is dilated, and output_padding adds zeros.
    let p = kernel::ConvParams {
        strides: vec![3],
        pad_low: vec![0],
        pad_high: vec![0],
        dilation: vec![1],
        groups: 1,
        transposed: true,
        output_padding: Some(vec![2]),
    };
    let r =
        kernel::convolution(&f(&[1, 1, 2], &[1.0, 2.0]), &f(&[1, 1, 2], &[10.0, 1.0]), &p).unwrap();
    assert_eq!(r.as_f().unwrap(), [10.0, 1.0, 0.0, 20.0, 2.0, 0.0, 0.0]);
}

#[test]
fn contractions_take_and_give_other_dtypes() {
    let x = Tensor::floats(DType::F8E4M3FN, vec![2], vec![1.5, 2.0]).unwrap();
    let y = Tensor::floats(DType::F8E5M2, vec![2], vec![4.0, 8.0]).unwrap();
    let mut p =
        kernel::DotParams { lhs_contract: vec![0], rhs_contract: vec![0], ..Default::default() };
    fails(kernel::dot_general(&x, &y, &p), &["f8E4M3FN", "f8E5M2"]);
    p.element_type = Some(DType::F32);
    assert_eq!(
        kernel::dot_general(&x, &y, &p).unwrap(),
        Tensor::scalar_f(DType::F32, 22.0).unwrap()
    );
    p.element_type = Some(DType::I32);
    fails(kernel::dot_general(&x, &y, &p), &["i32"]);
}

#[test]
fn attention_gives_regions_their_positions() {
    let (q, k) = (f(&[1, 2, 2, 1], &[0.0; 4]), f(&[1, 1, 3, 1], &[0.0; 3]));
    let v = f(&[1, 1, 3, 1], &[1.0, 10.0, 100.0]);
    let p = kernel::AttentionParams { with_lse: true, ..Default::default() };
    let mut seen = vec![];
    // Query 0 of head 0 attends to key 2, query 1 to nothing, head 1 to everything, with a score
    // that removes key q.
    let mut mask = |[_, h, q, k]: [i64; 4]| Ok(h == 1 || (q == 0 && k == 2));
    let mut score = |s: f64, [b, h, q, k]: [i64; 4]| {
        seen.push([b, h, q, k]);
        Ok(if h == 1 && k != q { f64::NEG_INFINITY } else { s + 3.0 })
    };
    let (r, lse) = kernel::attention(&q, &k, &v, &p, Some(&mut score), Some(&mut mask)).unwrap();
    assert_eq!(r.as_f().unwrap(), [100.0, 0.0, 1.0, 10.0]);
    assert_eq!(lse.unwrap().as_f().unwrap(), [3.0, f64::NEG_INFINITY, 3.0, 3.0]);
    assert_eq!(
        seen,
        [
            [0, 0, 0, 2],
            [0, 1, 0, 0],
            [0, 1, 0, 1],
            [0, 1, 0, 2],
            [0, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 1, 1, 2]
        ]
    );
    let mut broken = |_: [i64; 4]| Err("no mask here".into());
    fails(kernel::attention(&q, &k, &v, &p, None, Some(&mut broken)), &["no mask here"]);
}

#[test]
fn attention_checks_and_its_dtypes() {
    let half = |shape: &[usize]| {
        Tensor::floats(DType::F16, shape.to_vec(), vec![1.0; shape.iter().product()]).unwrap()
    };
    let (q, k) = (half(&[1, 2, 1, 2]), half(&[1, 1, 2, 2]));
    let p = kernel::AttentionParams { with_lse: true, ..Default::default() };
    let (r, lse) = kernel::attention(&q, &k, &k, &p, None, None).unwrap();
    assert_eq!((r.dtype(), lse.unwrap().dtype()), (DType::F16, DType::F32));
    let plain = kernel::AttentionParams::default();
    assert_eq!(kernel::attention(&q, &k, &k, &plain, None, None).unwrap().1, None);
    // A bias of -inf everywhere masks every key.
    let bias = f(&[1], &[f64::NEG_INFINITY]);
    let hidden = kernel::AttentionParams { bias: Some(&bias), ..p };
    let (r, lse) = kernel::attention(&q, &k, &k, &hidden, None, None).unwrap();
    assert_eq!(
        (r.as_f().unwrap(), lse.unwrap().as_f().unwrap()),
        (&[0.0; 4][..], &[f64::NEG_INFINITY; 2][..])
    );
    fails(
        kernel::attention(
            &half(&[1, 3, 1, 2]),
            &half(&[1, 2, 2, 2]),
            &half(&[1, 2, 2, 2]),
            &p,
            None,
            None,
        ),
        &["2", "3"],
    );
    fails(
        kernel::attention(&q, &k, &half(&[1, 1, 3, 2]), &p, None, None),
        &["[1, 1, 3, 2]", "[1, 1, 2, 2]"],
    );
    fails(
        kernel::attention(&q, &k, &k, &kernel::AttentionParams { dropout_p: 0.5, ..p }, None, None),
        &["0.5"],
    );
    let wrong = i(DType::I64, &[2], &[1, 1]);
    fails(
        kernel::attention(
            &q,
            &k,
            &k,
            &kernel::AttentionParams { key_lengths: Some(&wrong), ..p },
            None,
            None,
        ),
        &["[2]", "[1]"],
    );
}

#[test]
fn bad_operands_are_errors() {
    use BinaryKind as B;
    let (x, y) = (f(&[2, 3], &[1.0; 6]), f(&[3], &[1.0; 3]));
    let n = i(DType::I64, &[3], &[1, 2, 0]);
    let b = i(DType::I1, &[3], &[1, 0, 1]);
    let at = i(DType::I64, &[2], &[0, 7]);
    fails(kernel::binary(B::Add, &x, &y), &["[2, 3]", "[3]"]);
    fails(kernel::binary(B::Add, &y, &n), &["f64", "i64"]);
    for kind in [B::Div, B::Rem, B::FloorDiv] {
        fails(kernel::binary(kind, &n, &n), &["0 by 0", "element 2"]);
    }
    fails(kernel::binary(B::And, &y, &y), &["And", "f64"]);
    fails(kernel::binary(B::Sub, &b, &b), &["Sub", "i1"]);
    fails(kernel::binary(B::Atan2, &n, &n), &["Atan2", "i64"]);
    fails(kernel::unary(UnaryKind::Not, &y), &["Not", "f64"]);
    fails(kernel::unary(UnaryKind::Exp, &n), &["Exp", "i64"]);
    fails(kernel::unary(UnaryKind::Neg, &b), &["Neg", "i1"]);
    fails(kernel::select(&n, &y, &y), &["i64", "i1"]);
    fails(kernel::bitcast(&y, DType::F32), &["64", "32"]);
    fails(kernel::broadcast_in_dim(&x, &[1, 0], &[3, 2]), &["[1, 0]", "ascend"]);
    fails(kernel::broadcast_in_dim(&x, &[0, 1], &[2, 4]), &["3", "4"]);
    fails(kernel::reshape(&x, &[4]), &["6", "4"]);
    fails(kernel::transpose(&x, &[0, 0]), &["axis 0", "twice"]);
    fails(kernel::slice(&x, &[0, 1], &[2, 2], &[1, 2]), &["offset 1", "dimension 1", "size 3"]);
    fails(kernel::slice(&x, &[0, -1], &[2, 2], &[1, 1]), &["-1"]);
    fails(kernel::slice(&x, &[0, i64::MAX], &[2, 2], &[1, i64::MAX]), &["dimension 1"]);
    fails(kernel::slice(&x, &[0, 0], &[2, 2], &[1, 0]), &["0 is not positive"]);
    fails(kernel::pad(&x, &f(&[], &[0.0]), &[0, -2], &[0, -2]), &["-1"]);
    fails(
        kernel::pad(&x, &f(&[], &[0.0]), &[0, i64::MAX], &[0, i64::MAX]),
        &["dimension 1 would have size 18446744073709551617"],
    );
    fails(kernel::concat(&[], 0), &["nothing"]);
    fails(kernel::concat(&[&x, &y], 0), &["input 1"]);
    fails(kernel::reverse(&x, &[2]), &["axis 2", "rank 2"]);
    fails(kernel::gather(&x, &[&at], &[1]), &["index 7", "dimension 1", "size 3"]);
    fails(kernel::gather(&x, &[], &[]), &["no index tensors"]);
    fails(kernel::gather(&x, &[&b], &[1]), &["i1"]);
    fails(kernel::scatter(ScatterKind::Add, &y, &y, &[&at], &[0]), &["index 7"]);
    fails(
        kernel::scatter(ScatterKind::Add, &y, &y, &[&i(DType::I64, &[1], &[0])], &[0]),
        &["[3]", "[1]"],
    );
    fails(kernel::dynamic_slice(&y, &[&i(DType::I64, &[], &[0])], &[4]), &["4", "3"]);
    fails(kernel::dynamic_slice(&y, &[], &[1]), &["0 starts", "1"]);
    fails(kernel::reduce(ReduceKind::Max, &f(&[2, 0], &[]), &[1], false), &["Max", "[2, 0]"]);
    fails(kernel::reduce(ReduceKind::Any, &n, &[0], false), &["i64"]);
    fails(kernel::arg_max(&f(&[2, 0], &[]), 1), &["axis 1", "[2, 0]"]);
    fails(kernel::cumulative(CumulativeKind::Sum, &x, -1), &["axis -1"]);
    fails(kernel::top_k(&x, 1, 4, false), &["4", "3"]);
    fails(kernel::linear(&x, &f(&[2, 4], &[0.0; 8]), None), &["3", "4"]);
    fails(kernel::matmul(&x, &x), &["[2, 3]"]);
    fails(kernel::matmul(&f(&[2, 1, 1], &[0.0; 2]), &f(&[3, 1, 1], &[0.0; 3])), &["[2]", "[3]"]);
    fails(kernel::embedding(&x, &at), &["7", "2 rows"]);
    fails(kernel::dropout(&x, &at, 1.5), &["1.5"]);
    fails(kernel::random_bits(&n, &[1], DType::I32), &["[3]", "[2]"]);
    fails(kernel::random_bits(&at, &[1], DType::I8), &["i8"]);
    fails(kernel::mean(&n, &[0], false), &["i64"]);
    fails(kernel::layer_norm(&x, None, None, 3, 0.0), &["3", "[2, 3]"]);
    fails(kernel::group_norm(&x, None, None, 2, 0.0), &["3 channels", "2 groups"]);
    fails(kernel::rms_norm(&x, Some(&x), 1, 0.0), &["weight", "[2, 3]", "[3]"]);
    fails(kernel::softmax(&x, 2, false), &["axis 2"]);
    let p = kernel::CrossEntropyParams {
        reduction: LossReduction::Sum,
        weight: None,
        ignore_index: -100,
        label_smoothing: 0.0,
    };
    fails(kernel::cross_entropy(&x, &at, &p), &["7", "3"]);
    fails(kernel::interpolate(&y, &[3]), &["[3]"]);
}

#[test]
fn windows_that_do_not_fit_are_errors() {
    let conv = |strides: i64, groups: i64, extra: Option<i64>| kernel::ConvParams {
        strides: vec![strides],
        pad_low: vec![0],
        pad_high: vec![1],
        dilation: vec![2],
        groups,
        transposed: false,
        output_padding: extra.map(|e| vec![e]),
    };
    let (x, w) = (f(&[1, 1, 3], &[0.0; 3]), f(&[1, 1, 3], &[0.0; 3]));
    fails(kernel::convolution(&x, &w, &conv(4, 1, None)), &["size 3", "by 0 and 1"]);
    fails(kernel::convolution(&x, &w, &conv(0, 1, None)), &["0 is not positive"]);
    let w = f(&[1, 1, 2], &[0.0; 2]);
    assert!(kernel::convolution(&x, &w, &conv(4, 1, Some(0))).is_ok());
    fails(kernel::convolution(&x, &w, &conv(1, 0, None)), &["0 groups"]);
    fails(kernel::convolution(&x, &w, &conv(1, 2, None)), &["2 groups"]);
    fails(kernel::convolution(&x, &w, &conv(1, i64::MAX, None)), &["channels"]);
    fails(kernel::convolution(&x, &w, &conv(1, 1, Some(1))), &["output_padding 1"]);
    let pool = |window, padding| kernel::AvgPoolParams {
        window: vec![window],
        strides: vec![4],
        padding: vec![padding],
        ceil_mode: true,
        count_include_pad: false,
        divisor_override: Some(0),
    };
    fails(kernel::avg_pool(&x, &pool(4, 0)), &["window of size 4", "size 3"]);
    fails(kernel::avg_pool(&x, &pool(1, i64::MAX)), &["elements"]);
    fails(kernel::avg_pool(&x, &pool(i64::MAX, i64::MAX)), &["elements"]);
    fails(kernel::adaptive_avg_pool(&x, &[i64::MAX]), &["elements"]);
    fails(kernel::avg_pool(&x, &pool(2, -1)), &["-1"]);
    fails(kernel::avg_pool(&x, &pool(2, 0)), &["divisor_override"]);
    fails(kernel::adaptive_avg_pool(&x, &[1, 2]), &["2 sizes", "1 dimensions"]);
    let p = kernel::WindowParams {
        window: vec![4],
        strides: vec![3],
        pad_low: vec![0],
        pad_high: vec![0],
        dilation: vec![1],
    };
    fails(
        kernel::reduce_window(CumulativeKind::Sum, &f(&[3], &[0.0; 3]), &p),
        &["window of size 4", "size 3"],
    );
}
