//! Gradients where a derivative is not unique, and of products with zeros: PyTorch's numbers
//! (2.11), or what the row says.
use super::differentiated;
use crate::support::*;
use kiln::dialects::{
    interp::Mode,
    ir::*,
    value::{DType, Tensor},
};

/// An op on `%x` and `%y` of 4 elements, the sizes of its result, the elements, and the gradients
/// of the sum of the result.
type Row = (&'static str, &'static str, [[f64; 4]; 2], [[f64; 4]; 2]);

const ROWS: &[Row] = &[
    // torch.maximum
    (
        "kiln.max %x, %y : tensor<4xf64>",
        "4",
        [[1.0, 2.0, 1.0, 0.0], [1.0; 4]],
        [[0.5, 1.0, 0.5, 0.0], [0.5, 0.0, 0.5, 1.0]],
    ),
    (
        "kiln.min %x, %y : tensor<4xf64>",
        "4",
        [[1.0, 2.0, 1.0, 0.0], [1.0; 4]],
        [[0.5, 0.0, 0.5, 1.0], [0.5, 1.0, 0.5, 0.0]],
    ),
    // torch.amax
    (
        "kiln.reduce max %x dims = [0] : tensor<4xf64>",
        "",
        [[1.0, 2.0, 2.0, 0.0], [0.0; 4]],
        [[0.0, 0.5, 0.5, 0.0], [0.0; 4]],
    ),
    // torch.cummax
    (
        "kiln.cumulative max %x axis = 0 : tensor<4xf64>",
        "4",
        [[1.0, 2.0, 2.0, 1.0], [0.0; 4]],
        [[1.0, 1.0, 2.0, 0.0], [0.0; 4]],
    ),
    // torch.Tensor.detach
    ("kiln.stop_gradient %x : tensor<4xf64>", "4", [[1.0, 2.0, 3.0, 4.0], [0.0; 4]], [[0.0; 4]; 2]),
    // torch.clamp at its limits
    (
        "kiln.clamp %x, %low, %high : tensor<4xf64>",
        "4",
        [[-1.0, 1.0, 0.0, 2.0], [0.0; 4]],
        [[1.0, 1.0, 1.0, 0.0], [0.0; 4]],
    ),
    // torch.relu at 0, torch.nn.functional.hardtanh at its limits
    (
        "kiln.relu %x : tensor<4xf64>",
        "4",
        [[-1.0, 0.0, -0.0, 2.0], [0.0; 4]],
        [[0.0, 0.0, 0.0, 1.0], [0.0; 4]],
    ),
    (
        "kiln.hardtanh %x {high = 2.0 : f64} : tensor<4xf64>",
        "4",
        [[-1.0, 0.0, 2.0, 3.0], [0.0; 4]],
        [[0.0, 1.0, 0.0, 0.0], [0.0; 4]],
    ),
    // torch._safe_softmax of a row without scores
    (
        "kiln.softmax safe %x axis = 0 : tensor<4xf64>",
        "4",
        [[f64::NEG_INFINITY; 4], [0.0; 4]],
        [[0.0; 4]; 2],
    ),
    // torch.nn.functional.max_pool1d(x, 2, 1)
    (
        "kiln.reduce_window max %x window = [2] strides = [1] pad = [0] x [0] dilation = [1] : tensor<4xf64>",
        "3",
        [[1.0, 1.0, 1.0, 0.0], [0.0; 4]],
        [[1.0, 1.0, 1.0, 0.0], [0.0; 4]],
    ),
    // torch.pow
    (
        "kiln.pow %x, %y : tensor<4xf64>",
        "4",
        [[0.0, 0.0, 2.0, 1.0], [0.0, 2.0, 0.0, 3.0]],
        [[0.0, 0.0, 0.0, 3.0], [0.0, 0.0, std::f64::consts::LN_2, 0.0]],
    ),
    (
        "kiln.abs %x : tensor<4xf64>",
        "4",
        [[0.0, -1.0, 2.0, 0.0], [0.0; 4]],
        [[0.0, -1.0, 1.0, 0.0], [0.0; 4]],
    ),
    // torch.prod
    (
        "kiln.reduce prod %x dims = [0] : tensor<4xf64>",
        "",
        [[0.0, 2.0, 3.0, 4.0], [0.0; 4]],
        [[24.0, 0.0, 0.0, 0.0], [0.0; 4]],
    ),
    (
        "kiln.reduce prod %x dims = [0] : tensor<4xf64>",
        "",
        [[0.0, 2.0, 0.0, 4.0], [0.0; 4]],
        [[0.0; 4], [0.0; 4]],
    ),
    // torch.cumprod
    (
        "kiln.cumulative prod %x axis = 0 : tensor<4xf64>",
        "4",
        [[3.0, 0.0, 2.0, 0.0], [0.0; 4]],
        [[1.0, 9.0, 0.0, 0.0], [0.0; 4]],
    ),
    // Of updates to one place the last stays, unlike torch.index_put, which gives all the gradient.
    (
        "kiln.scatter assign %x[%i], %y dims = [0] : tensor<4xf64>[tensor<4xi64>], tensor<4xf64>",
        "4",
        [[1.0; 4], [2.0; 4]],
        [[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]],
    ),
    // torch.nn.functional.hardswish at -3 and 3
    (
        "kiln.hardswish %x : tensor<4xf64>",
        "4",
        [[-3.0, 3.0, 0.0, 4.0], [0.0; 4]],
        [[0.0, 1.0, 0.5, 1.0], [0.0; 4]],
    ),
];

#[test]
fn kinks_have_the_derivatives_of_pytorch() {
    for (op, size, inputs, wanted) in ROWS {
        let context = Context::new();
        let result = if size.is_empty() { "f64".into() } else { format!("{size}xf64") };
        let text = format!(
            "func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<{result}> {{
               %low = kiln.splat [4], -1.0 : f64
               %high = kiln.splat [4], 1.0 : f64
               %i = kiln.constant dense<[0, 0, 1, 1]> : tensor<4xi64>
               %0 = {op}
               return %0 : tensor<{result}>
             }}"
        );
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "row.mlir")
            .unwrap_or_else(|e| panic!("{op}: {e}"));
        let after = differentiated(&module, &[0]).unwrap_or_else(|e| panic!("{op}: {e}"));
        let shape: Vec<usize> = size.parse().ok().into_iter().collect();
        let tensor = |shape: &[usize], values: &[f64]| {
            Tensor::floats(DType::F64, shape.to_vec(), values.to_vec()).unwrap()
        };
        let ones = tensor(&shape, &vec![1.0; shape.iter().product()]);
        let given = [tensor(&[4], &inputs[0]), tensor(&[4], &inputs[1]), ones];
        let found = run(&after, functions(&after)[0], Mode::Exact, &given).unwrap();
        for (i, wanted) in wanted.iter().enumerate() {
            let found = found[1 + i].as_f().unwrap();
            let near = found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 1e-12);
            assert!(near, "{op}, by argument {i}: {found:?}, not {wanted:?}");
        }
    }
}
