//! Zero-copy arguments of other libraries.
use super::{file, models, options};
use dlpark::{
    ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor},
    metadata::Dynamic,
};
use kiln::{
    Executable,
    dialects::value::Data as Values,
    load,
    runtime::{
        DeviceId, View, ViewMut,
        interop::{Element, dlpack_dtype},
    },
};
use ndarray::{Array2, s};

fn compiled() -> (Executable, Array2<f32>, Array2<f32>) {
    let exe = load(models().join("mlp.pt2")).unwrap().compile(&options(1)).unwrap();
    let x = &file("mlp")["input_0"];
    let Values::F(values) = x.data() else { panic!("not floats") };
    let values = values.iter().map(|v| *v as f32).collect();
    let x = Array2::from_shape_vec((x.shape()[0], x.shape()[1]), values).unwrap();
    let want = call(&exe, View::from_array(&x), x.nrows());
    (exe, x, want)
}

fn call(exe: &Executable, x: View, rows: usize) -> Array2<f32> {
    let mut y = Array2::from_elem((rows, 10), f32::NAN);
    exe.call(&[x], &mut [ViewMut::from_array(&mut y).unwrap()]).unwrap();
    y
}

#[test]
fn arrays_of_any_strides() {
    let (exe, x, want) = compiled();
    let (n, m) = x.dim();
    assert!(exe.copied(&[View::from_array(&x)]).is_empty());
    // Column-major, every second row of a larger array, and reversed rows.
    let columns = x.t().as_standard_layout().into_owned();
    let mut gaps = Array2::from_elem((2 * n, m), f32::NAN);
    gaps.slice_mut(s![..;2, ..]).assign(&x);
    let reversed = x.slice(s![..;-1, ..]).as_standard_layout().into_owned();
    for (what, array) in [
        ("columns", columns.t()),
        ("gaps", gaps.slice(s![..;2, ..])),
        ("reversed", reversed.slice(s![..;-1, ..])),
    ] {
        assert_eq!(exe.copied(&[View::from_array(&array)]), [0], "{what}");
        assert_eq!(call(&exe, View::from_array(&array), n), want, "{what}");
    }
    let mut turned = Array2::<f32>::zeros((10, n)).reversed_axes();
    assert!(ViewMut::from_array(&mut turned).is_err());
}

#[test]
fn slices_of_numbers() {
    let (exe, x, want) = compiled();
    let (shape, mut y) = ([x.nrows(), x.ncols()], vec![f32::NAN; want.len()]);
    let to = [want.nrows(), 10];
    let values = x.as_slice().unwrap();
    exe.call(
        &[View::from_slice(&shape, values).unwrap()],
        &mut [ViewMut::from_slice(&to, &mut y).unwrap()],
    )
    .unwrap();
    assert_eq!(y, want.as_slice().unwrap());
    assert!(View::from_slice(&shape, &values[1..]).is_err());
    let halves = vec![half::f16::ONE; values.len()];
    let e = exe
        .call(
            &[View::from_slice(&shape, &halves).unwrap()],
            &mut [ViewMut::from_slice(&to, &mut y).unwrap()],
        )
        .unwrap_err();
    assert!(e.to_string().contains("is f16, the program takes f32"), "{e}");
}

/// x + x, and the transpose of x [n, 3], on arrays offset by one element, whose other elements
/// stay.
fn one_element_in<T: Element + PartialEq + std::fmt::Debug>(
    of: impl Fn(usize) -> T,
    twice: impl Fn(T) -> T,
) {
    let (ty, dir) = (T::DTYPE, tempfile::tempdir().unwrap());
    let built = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        load(&path).unwrap().compile(&options(1)).unwrap_or_else(|e| panic!("{ty}: {e}"))
    };
    let open = |dims: &str| {
        format!("    %n = kiln.sym @n {{min = 1, max = 64}}\n    kiln.bind_shape %x, [{dims}] : ")
    };
    let sum = format!(
        "func.func @main(%x: tensor<?x{ty}>) -> tensor<?x{ty}> {{\n{}tensor<?x{ty}>\n%0 = kiln.add %x, %x : tensor<?x{ty}>\nreturn %0 : tensor<?x{ty}>\n}}",
        open("%n")
    );
    let turned = format!(
        "func.func @main(%x: tensor<?x3x{ty}>) -> tensor<3x?x{ty}> {{\n{}tensor<?x3x{ty}>\n%0 = kiln.transpose %x permutation = [1, 0] : tensor<?x3x{ty}>\nreturn %0 : tensor<3x?x{ty}>\n}}",
        open("%n, 3")
    );
    let (sum, turned) = (built("sum.mlir", sum), built("turned.mlir", turned));
    for n in [1usize, 15, 16, 17] {
        let (x, mut y): (Vec<T>, Vec<T>) =
            ((0..n + 2).map(&of).collect(), (0..n + 2).map(|i| of(i + 40)).collect());
        let mut want = y.clone();
        (1..=n).for_each(|i| want[i] = twice(x[i]));
        sum.call(
            &[View::from_slice(&[n], &x[1..=n]).unwrap()],
            &mut [ViewMut::from_slice(&[n], &mut y[1..=n]).unwrap()],
        )
        .unwrap();
        assert_eq!(y, want, "{ty}, {n} elements");
        let (x, mut y): (Vec<T>, Vec<T>) =
            ((0..3 * n + 2).map(&of).collect(), (0..3 * n + 2).map(|i| of(i + 40)).collect());
        let mut want = y.clone();
        (0..3 * n).for_each(|i| want[1 + i % 3 * n + i / 3] = x[1 + i]);
        let (from, to) = ([n, 3], [3, n]);
        turned
            .call(
                &[View::from_slice(&from, &x[1..=3 * n]).unwrap()],
                &mut [ViewMut::from_slice(&to, &mut y[1..=3 * n]).unwrap()],
            )
            .unwrap();
        assert_eq!(y, want, "{ty}, {n} rows");
    }
}

#[test]
fn small_types_one_element_into_an_array() {
    crate::watchdog::arm();
    one_element_in(|i| i as u8, |x| x.wrapping_add(x));
    one_element_in(|i| i as i8 - 20, |x| x.wrapping_add(x));
    one_element_in(|i| i as i16 - 20, |x| x + x);
    one_element_in(|i| half::bf16::from_f32(i as f32 - 20.0), |x| x + x);
    one_element_in(|i| half::f16::from_f32(i as f32 - 20.0), |x| x + x);
    one_element_in(|i| i as f32 - 20.0, |x| x + x);
}

#[test]
fn dlpack_tensors() {
    let (exe, x, want) = compiled();
    let (mut shape, mut strides) = ([x.nrows() as i64, x.ncols() as i64], [1i64, x.nrows() as i64]);
    let columns = x.t().as_standard_layout().into_owned();
    let mut tensor = DLTensor {
        data: columns.as_ptr().cast_mut().cast(),
        device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
        ndim: 2,
        dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    // SAFETY: strides as of a column-major matrix, which `columns` is.
    let view = unsafe { View::from_dlpack(&tensor) }.unwrap();
    assert_eq!(call(&exe, view, x.nrows()), want);
    // Without strides it is row-major, with an optional byte offset.
    (tensor.data, tensor.strides) =
        (x.as_ptr().wrapping_sub(3).cast_mut().cast(), std::ptr::null_mut());
    tensor.byte_offset = 12;
    // SAFETY: 12 bytes behind the pointer `x` begins.
    let view = unsafe { View::from_dlpack(&tensor) }.unwrap();
    assert!(exe.copied(&[view]).is_empty());
    assert_eq!(call(&exe, view, x.nrows()), want);
    let refused = |t: DLTensor| {
        // SAFETY: nothing of these is read.
        unsafe { View::from_dlpack(&t) }.err().expect("refused").to_string()
    };
    let code = |code, bits| DLTensor { dtype: DLDataType { code, bits, lanes: 1 }, ..tensor };
    assert!(refused(code(DLDataTypeCode::COMPLEX, 64)).contains("type code 5 with 64 bits"));
    let device =
        |device_type, device_id| DLTensor { device: DLDevice { device_type, device_id }, ..tensor };
    assert!(refused(device(DLDeviceType::ROCM, 0)).contains("DLPack's type 10"));
    assert!(refused(device(DLDeviceType::CUDA, -1)).contains("GPU -1"));
    assert!(refused(DLTensor { ndim: -1, ..tensor }).contains("-1 dimensions"));
}

#[test]
fn gpu_memory_is_rejected_on_the_host() {
    let (exe, x, want) = compiled();
    let (mut shape, to) = ([x.nrows() as i64, x.ncols() as i64], [x.nrows(), 10]);
    let (mut out_shape, mut out_strides) = ([x.nrows() as i64, 10], [1i64, x.nrows() as i64]);
    let mut y = vec![f32::NAN; want.len()];
    let tensor = |data: *mut f32, shape: &mut [i64; 2], strides: *mut i64, device_type| DLTensor {
        data: data.cast(),
        device: DLDevice { device_type, device_id: 3 },
        ndim: 2,
        dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides,
        byte_offset: 0,
    };
    let none = std::ptr::null_mut();
    let input = tensor(x.as_ptr().cast_mut(), &mut shape, none, DLDeviceType::CUDA);
    // SAFETY: the call is refused before anything is read.
    let view = unsafe { View::from_dlpack(&input) }.unwrap();
    assert_eq!(view.device(), DeviceId::Cuda(3));
    let e = exe.call(&[view], &mut [ViewMut::from_slice(&to, &mut y).unwrap()]).unwrap_err();
    assert_eq!(
        e.to_string(),
        "input 'x': lies in the memory of GPU 3, the program runs on the host"
    );
    let mut result = |strides: *mut i64, device| {
        let mut output = tensor(y.as_mut_ptr(), &mut out_shape, strides, device);
        // SAFETY: memory of this size; what is said to be a GPU's is refused before anything is
        // written.
        let written = unsafe { ViewMut::from_dlpack(&mut output) }.unwrap();
        exe.call(&[View::from_array(&x)], &mut [written]).map_err(|e| e.to_string())
    };
    assert_eq!(
        result(none, DLDeviceType::CUDA),
        Err("output 'output_0': lies in the memory of GPU 3, the program runs on the host".into())
    );
    let strided = result(out_strides.as_mut_ptr(), DLDeviceType::CPU);
    assert!(
        strided.as_ref().is_err_and(
            |e| e.contains("'output_0': has strides [1, ") && e.contains("row-major order")
        ),
        "{strided:?}"
    );
    out_strides = [10, 1];
    assert_eq!(result(out_strides.as_mut_ptr(), DLDeviceType::CPU), Ok(()));
    assert_eq!(y, want.as_slice().unwrap());
}

/// A tensor to DLPack and back is the same memory; one of other strides is a copy.
#[test]
fn tensors_of_dlpack() {
    let x = kiln::Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let at = |x: &kiln::Tensor| x.array().unwrap().view().unwrap().address();
    let given = x.to_dlpack().unwrap();
    // SAFETY: valid, and written by nobody.
    let back = unsafe { kiln::Tensor::from_dlpack(given) }.unwrap();
    assert_eq!(at(&back), at(&x));
    // Two rows of two, column-major.
    let elements = Box::new([1.0f32, 2.0, 3.0, 4.0]);
    let at = elements.as_ptr().cast_mut().cast();
    let mut given = Dynamic::new(vec![2i64, 2], vec![1i64, 2]).initialize(elements).unwrap();
    given.set_data(at).set_dtype(dlpack_dtype("f32").unwrap());
    given.set_device(DLDevice { device_type: DLDeviceType::CPU, device_id: 0 });
    // SAFETY: an array of its own.
    let copy = unsafe { kiln::Tensor::from_dlpack(given.finish()) }.unwrap();
    assert_eq!(copy.to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
}
