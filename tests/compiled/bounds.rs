//! Accesses out of the bounds of a dynamic dimension are errors of the call.
use super::*;
use kiln::dialects::{ir::Context, value::DType};

#[test]
fn out_of_bounds_reads_are_errors_of_the_call() {
    let text = |op: &str| {
        format!(
            "func.func @f(%x: tensor<?x300xf32>, %i: tensor<2xi64>, %at: tensor<i64>) -> tensor<2x300xf32> {{\n\
             %n = kiln.sym @n\nkiln.bind_shape %x, [%n, 300] : tensor<?x300xf32>\n%0 = {op}\nreturn %0 : tensor<2x300xf32>\n}}"
        )
    };
    let ops = [
        (
            "kiln.gather %x[%i] dims = [0] : tensor<?x300xf32>[tensor<2xi64>]",
            1,
            "dimension 0 must not be empty",
        ),
        (
            "kiln.slice %x offsets = [0, 0] sizes = [2, 300] strides = [1, 1] : tensor<?x300xf32>",
            2,
            "the slice must lie within dimension 0",
        ),
        (
            "kiln.dynamic_slice %x[%at, %at : tensor<i64>, tensor<i64>] sizes = [2, 300] : tensor<?x300xf32>",
            2,
            "the slice must lie within dimension 0",
        ),
    ];
    for (op, least, words) in ops {
        let c = Context::new();
        let (module, _) = Module::parse(c.ctx(), text(op).as_bytes(), "in.mlir")
            .unwrap_or_else(|e| panic!("{e}"));
        let program = native(&module, "f", &|_| Err("has no weights".into()))
            .unwrap_or_else(|e| panic!("{e}"));
        let rows = |n: usize| {
            let x = Tensor::floats(DType::F32, vec![n, 300], vec![1.5; n * 300]).expect("rows");
            let index = |shape: Vec<usize>| {
                Tensor::ints(DType::I64, shape.clone(), vec![0; shape.iter().product()])
                    .expect("indices")
            };
            call(&program, &[x, index(vec![2]), index(vec![])], 1)
        };
        let refused = rows(least - 1).expect_err("too few rows");
        assert!(refused.contains(words), "{refused}");
        assert_eq!(rows(least).expect("enough rows")[0].shape(), [2, 300]);
    }
}

/// Runs ops on `%x` of `%m` rows and `%y` of `%n`: calls with the sizes `apart` are refused, and that
/// of `fit` gives `%0` as many rows as `%x` has.
fn adds_if_equal(ops: &str, apart: [(usize, usize); 2], fit: (usize, usize)) {
    let text = format!(
        "func.func @f(%x: tensor<?x300xf32>, %y: tensor<?x300xf32>) -> tensor<?x300xf32> {{\n\
         %m = kiln.sym @m\n%n = kiln.sym @n\nkiln.bind_shape %x, [%m, 300] : tensor<?x300xf32>\nkiln.bind_shape %y, [%n, 300] : tensor<?x300xf32>\n\
         {ops}\nreturn %0 : tensor<?x300xf32>\n}}"
    );
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), "in.mlir").unwrap_or_else(|e| panic!("{e}"));
    let program =
        native(&module, "f", &|_| Err("has no weights".into())).unwrap_or_else(|e| panic!("{e}"));
    let rows =
        |n: usize| Tensor::floats(DType::F32, vec![n, 300], vec![1.5; n * 300]).expect("rows");
    let run = |(m, n)| call(&program, &[rows(m), rows(n)], 1);
    for sizes in apart {
        let refused = run(sizes).expect_err("two sizes");
        assert!(refused.contains("kiln.add: operand sizes must be equal"), "{refused}");
    }
    assert_eq!(run(fit).expect("one size")[0].shape(), [fit.0, 300]);
}

#[test]
fn assumed_equal_sizes_are_guarded() {
    adds_if_equal("%0 = kiln.add %x, %y : tensor<?x300xf32>", [(5, 4), (4, 5)], (4, 4));
}

/// A slice's size is no symbol: that an elementwise op takes it for one is checked too.
#[test]
fn computed_sizes_are_guarded() {
    let ops = "%two = arith.constant 2 : index\n%half = kiln.sym_expr floordiv %n, %two\n\
        %1 = kiln.slice %y offsets = [0, 0] sizes = [%half, 300] strides = [1, 1] : tensor<?x300xf32>\n\
        %2 = kiln.neg %1 : tensor<?x300xf32>\n%0 = kiln.add %x, %2 : tensor<?x300xf32>";
    adds_if_equal(ops, [(5, 4), (5, 12)], (2, 4));
}

/// As PyTorch, which refuses a window larger than its padded input; a size that fits runs.
#[test]
fn too_large_windows_are_errors_of_the_call() {
    let ops = [
        (
            "kiln.reduce_window max %x window = [1, 1, 3] strides = [1, 1, 1] pad = [0, 0, 0] x [0, 0, 0] dilation = [1, 1, 1] : tensor<1x2x?xf32>",
            3,
        ),
        (
            "kiln.reduce_window max %x window = [1, 1, 3] strides = [1, 1, 2] pad = [0, 0, 1] x [0, 0, 0] dilation = [1, 1, 2] : tensor<1x2x?xf32>",
            4,
        ),
        (
            "kiln.convolution %x, %w strides = [1] pad = [0] x [0] dilation = [1] : tensor<1x2x?xf32>, tensor<2x2x3xf32>",
            3,
        ),
    ];
    for (op, least) in ops {
        let text = format!(
            "func.func @f(%x: tensor<1x2x?xf32>, %w: tensor<2x2x3xf32>) -> tensor<1x2x?xf32> {{\n\
             %n = kiln.sym @n {{min = 2 : i64}}\nkiln.bind_shape %x, [1, 2, %n] : tensor<1x2x?xf32>\n\
             %0 = {op}\nreturn %0 : tensor<1x2x?xf32>\n}}"
        );
        let c = Context::new();
        let (module, _) =
            Module::parse(c.ctx(), text.as_bytes(), "in.mlir").unwrap_or_else(|e| panic!("{e}"));
        let program = native(&module, "f", &|_| Err("has no weights".into()))
            .unwrap_or_else(|e| panic!("{e}"));
        let ones = |shape: Vec<usize>| {
            let n = shape.iter().product();
            Tensor::floats(DType::F32, shape, vec![1.0; n]).expect("ones")
        };
        let sized = |n| call(&program, &[ones(vec![1, 2, n]), ones(vec![2, 2, 3])], 1);
        let refused = sized(least - 1).expect_err("a window that does not fit");
        let words = "the window must not exceed the padded ";
        assert!(refused.contains(words), "{refused}");
        assert_eq!(sized(least).expect("one window")[0].shape(), [1, 2, 1]);
    }
}

/// Indices that an argument holds are checked before the call, at every integer type.
#[test]
fn indices_out_of_range_are_errors_of_the_call() {
    for (dtype, name) in [(DType::I64, "i64"), (DType::I32, "i32"), (DType::UI8, "ui8")] {
        let text = format!(
            "func.func @f(%x: tensor<5x300xf32>, %i: tensor<2x{name}>) -> (tensor<2x300xf32>, tensor<5x300xf32>) {{\n\
             %0 = kiln.gather %x[%i] dims = [0] : tensor<5x300xf32>[tensor<2x{name}>]\n\
             %1 = kiln.scatter add %x[%i], %0 dims = [0] : tensor<5x300xf32>[tensor<2x{name}>], tensor<2x300xf32>\n\
             return %0, %1 : tensor<2x300xf32>, tensor<5x300xf32>\n}}"
        );
        let c = Context::new();
        let (module, _) =
            Module::parse(c.ctx(), text.as_bytes(), "in.mlir").unwrap_or_else(|e| panic!("{e}"));
        let program = native(&module, "f", &|_| Err("has no weights".into()))
            .unwrap_or_else(|e| panic!("{e}"));
        let rows = |indices: [i64; 2]| {
            let x = Tensor::floats(DType::F32, vec![5, 300], vec![1.5; 1500]).expect("rows");
            let index = Tensor::ints(dtype, vec![2], indices.to_vec()).expect("indices");
            call(&program, &[x, index], 1)
        };
        assert_eq!(rows([4, 0]).expect("indices in range")[0].shape(), [2, 300]);
        let refused = rows([0, 5]).expect_err("an index beyond the end");
        let words = "index 5 is out of bounds for a dimension of size 5 (kiln.gather";
        assert!(refused.contains(words), "{refused}");
        if dtype != DType::UI8 {
            let refused = rows([-1, 0]).expect_err("a negative index");
            assert!(refused.contains("index -1 is out of bounds"), "{refused}");
        }
    }
}
