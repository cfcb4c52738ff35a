//! fp8 conversions, bitwise as PyTorch's (`gen_fp8.py`), interpreted and compiled.
use super::*;
use crate::support::{functions, run};
use kiln::{
    capture::weight,
    dialects::{
        interp::Mode,
        ir::Context,
        value::{DType, Data},
    },
};
use std::collections::BTreeMap;

const FORMATS: [DType; 2] = [DType::F8E4M3FN, DType::F8E5M2];
const WIDE: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn numbers() -> BTreeMap<String, Tensor> {
    let all = weight::open(&crate::support::repository().join("tests/compiled/fp8.safetensors"))
        .expect("the file");
    all.into_iter().map(|(name, w)| (name, w.read().expect("a tensor"))).collect()
}

/// A function of `ops` on n elements, interpreted and compiled.
fn both(ops: &str, given: &Tensor, result: DType) -> [Tensor; 2] {
    let (x, n) = (given.dtype(), given.len());
    let text = format!(
        "func.func @main(%x: tensor<{n}x{x}>) -> tensor<{n}x{result}> {{\n{ops}  return %y : tensor<{n}x{result}>\n}}\n"
    );
    let c = Context::new();
    let (module, _) = Module::parse(c.ctx(), text.as_bytes(), "fp8.mlir")
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    let given = [given.clone()];
    let interpreted =
        run(&module, functions(&module)[0], Mode::Rounded, &given).expect("it runs").remove(0);
    let program =
        native(&module, "main", &|g| Err(format!("@{g} has no value"))).expect("it compiles");
    [interpreted, call(&program, &given, 2).expect("it is called").remove(0)]
}

/// The last `n` elements.
fn part(t: &Tensor, n: usize) -> Tensor {
    let data = match t.data() {
        Data::F(v) => Data::F(v[v.len() - n..].to_vec()),
        Data::I(v) => Data::I(v[v.len() - n..].to_vec()),
    };
    Tensor::new(t.dtype(), vec![n], data).expect("a tensor")
}

fn same(have: &Tensor, want: &Tensor, given: &Tensor, what: &str) {
    let all = |t: &Tensor| match t.data() {
        Data::F(v) => {
            v.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect::<Vec<_>>()
        }
        Data::I(v) => v.iter().map(|x| *x as u64).collect(),
    };
    for (i, (h, w)) in all(have).into_iter().zip(all(want)).enumerate() {
        assert_eq!(
            h,
            w,
            "{what}, of {:?}: {:?} instead of {:?}",
            part_at(given, i),
            part_at(have, i),
            part_at(want, i)
        );
    }
    assert_eq!(have.shape(), want.shape());
}

fn part_at(t: &Tensor, i: usize) -> f64 {
    match t.data() {
        Data::F(v) => v[i],
        Data::I(v) => v[i] as f64,
    }
}

#[test]
fn rounds_as_pytorch() {
    let all = numbers();
    for (wide, format) in WIDE.into_iter().flat_map(|w| FORMATS.map(|f| (w, f))) {
        let (x, want) = (&all[wide.name()], &all[&format!("{wide}_{format}")]);
        for n in [1, 15, 16, 17, x.len()] {
            let (x, want) = (part(x, n), part(want, n));
            let ops = format!(
                "  %0 = kiln.convert %x : tensor<{n}x{wide}> to {format}\n  %y = kiln.bitcast %0 : tensor<{n}x{format}> to ui8\n"
            );
            for (have, how) in both(&ops, &x, DType::UI8).iter().zip(["interpreted", "compiled"]) {
                same(have, &want, &x, &format!("{wide} to {format}, {how}, {n}"));
            }
        }
    }
}

#[test]
fn every_byte_decodes_as_pytorch() {
    let all = numbers();
    let bytes = Tensor::ints(DType::UI8, vec![256], (0..256).collect()).expect("a tensor");
    for (wide, format) in WIDE.into_iter().flat_map(|w| FORMATS.map(|f| (w, f))) {
        let ops = format!(
            "  %0 = kiln.bitcast %x : tensor<256xui8> to {format}\n  %y = kiln.convert %0 : tensor<256x{format}> to {wide}\n"
        );
        for (have, how) in both(&ops, &bytes, wide).iter().zip(["interpreted", "compiled"]) {
            same(
                have,
                &all[&format!("{format}_{wide}")],
                &bytes,
                &format!("{format} to {wide}, {how}"),
            );
        }
    }
}

/// A round trip through a maximum, so that no pass sees two adjacent conversions.
#[test]
fn every_byte_round_trips() {
    let bytes = Tensor::ints(DType::UI8, vec![256], (0..256).collect()).expect("a tensor");
    for (format, nans, least) in
        [(DType::F8E4M3FN, 0x7f..0x80, "-448.0"), (DType::F8E5M2, 0x7d..0x80, "0xFC")]
    {
        let t = format!("tensor<256x{format}>");
        let ops = format!(
            "  %0 = kiln.bitcast %x : tensor<256xui8> to {format}\n  %z = kiln.splat [256], {least} : {format}\n  \
             %1 = kiln.max %0, %z : {t}\n  %y = kiln.bitcast %1 : {t} to ui8\n"
        );
        // All NaNs are equal.
        let numbers = |t: &Tensor| {
            let all = t
                .as_i()
                .expect("bytes")
                .iter()
                .map(|b| if nans.contains(&(b & 0x7f)) { 0x7f } else { *b })
                .collect();
            Tensor::ints(DType::UI8, vec![256], all).expect("a tensor")
        };
        for (have, how) in both(&ops, &bytes, DType::UI8).iter().zip(["interpreted", "compiled"]) {
            same(&numbers(have), &numbers(&bytes), &bytes, &format!("{format}, {how}"));
        }
    }
}
