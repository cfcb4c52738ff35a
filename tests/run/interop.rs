//! Arguments of other libraries, where they lie.
use super::{file, models, options};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
use kiln::{
    Executable,
    dialects::value::Data as Values,
    load,
    runtime::{View, ViewMut},
};
use ndarray::{Array2, s};

fn compiled() -> (Executable, Array2<f32>, Array2<f32>) {
    let exe = load(models().join("mlp.pt2")).unwrap().compile(&options(1)).unwrap();
    let x = &file("mlp")["input_0"];
    let Values::F(values) = x.data() else { panic!("not floats") };
    let values = values.iter().map(|v| *v as f32).collect();
    let x = Array2::from_shape_vec((x.shape()[0], x.shape()[1]), values).unwrap();
    let want = call(&exe, View::of_array(&x), x.nrows());
    (exe, x, want)
}

fn call(exe: &Executable, x: View, rows: usize) -> Array2<f32> {
    let mut y = Array2::from_elem((rows, 10), f32::NAN);
    exe.call(&[x], &mut [ViewMut::of_array(&mut y).unwrap()]).unwrap();
    y
}

#[test]
fn arrays_of_any_strides() {
    let (exe, x, want) = compiled();
    let (n, m) = x.dim();
    assert!(exe.copied(&[View::of_array(&x)]).is_empty());
    // Column-major, each second row of a larger array, and rows in reverse.
    let columns = x.t().as_standard_layout().into_owned();
    let mut gaps = Array2::from_elem((2 * n, m), f32::NAN);
    gaps.slice_mut(s![..;2, ..]).assign(&x);
    let reversed = x.slice(s![..;-1, ..]).as_standard_layout().into_owned();
    for (what, array) in [("columns", columns.t()), ("gaps", gaps.slice(s![..;2, ..])), ("reversed", reversed.slice(s![..;-1, ..]))] {
        assert_eq!(exe.copied(&[View::of_array(&array)]), [0], "{what}");
        assert_eq!(call(&exe, View::of_array(&array), n), want, "{what}");
    }
    let mut turned = Array2::<f32>::zeros((10, n)).reversed_axes();
    assert!(ViewMut::of_array(&mut turned).is_err());
}

#[test]
fn slices_of_numbers() {
    let (exe, x, want) = compiled();
    let (shape, mut y) = ([x.nrows(), x.ncols()], vec![f32::NAN; want.len()]);
    let to = [want.nrows(), 10];
    let values = x.as_slice().unwrap();
    exe.call(&[View::of(&shape, values).unwrap()], &mut [ViewMut::of(&to, &mut y).unwrap()]).unwrap();
    assert_eq!(y, want.as_slice().unwrap());
    assert!(View::of(&shape, &values[1..]).is_err());
    let halves = vec![half::f16::ONE; values.len()];
    let e = exe.call(&[View::of(&shape, &halves).unwrap()], &mut [ViewMut::of(&to, &mut y).unwrap()]).unwrap_err();
    assert!(e.to_string().contains("is f16, the program takes f32"), "{e}");
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
    let view = unsafe { View::of_dlpack(&tensor) }.unwrap();
    assert_eq!(call(&exe, view, x.nrows()), want);
    // Without strides it is row-major, and it may start behind its pointer.
    (tensor.data, tensor.strides) = (x.as_ptr().wrapping_sub(3).cast_mut().cast(), std::ptr::null_mut());
    tensor.byte_offset = 12;
    // SAFETY: 12 bytes behind the pointer `x` begins.
    let view = unsafe { View::of_dlpack(&tensor) }.unwrap();
    assert!(exe.copied(&[view]).is_empty());
    assert_eq!(call(&exe, view, x.nrows()), want);
    let refused = |t: DLTensor| {
        // SAFETY: nothing of these is read.
        unsafe { View::of_dlpack(&t) }.err().expect("refused").to_string()
    };
    let code = |code, bits| DLTensor { dtype: DLDataType { code, bits, lanes: 1 }, ..tensor };
    assert!(refused(code(DLDataTypeCode::COMPLEX, 64)).contains("type code 5 with 64 bits"));
    let device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 };
    assert!(refused(DLTensor { device, ..tensor }).contains("device"));
    assert!(refused(DLTensor { ndim: -1, ..tensor }).contains("-1 dimensions"));
}
