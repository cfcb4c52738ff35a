//! bf16 convolutions: TMA im2col loads, and padding.
use super::*;

/// A channels-last bf16 convolution: images, weight, result, attributes; whether TMA loads its
/// pixels; whether sm_90a and older chips need padding kernels.
type Case = (&'static str, &'static str, &'static str, &'static str, bool, [bool; 2]);
const CONVOLUTIONS: &[Case] = &[
    (
        "4x28x28x128",
        "128x128x3x3",
        "4x28x28x128",
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]",
        true,
        [false, false],
    ),
    (
        "4x15x9x72",
        "65x72x3x3",
        "4x8x5x65",
        "strides = [2, 2] pad = [1, 1] x [1, 1] dilation = [1, 1]",
        true,
        [false, false],
    ),
    (
        "2x14x14x64",
        "256x64x1x1",
        "2x7x7x256",
        "strides = [2, 2] pad = [0, 0] x [0, 0] dilation = [1, 1]",
        true,
        [false, false],
    ),
    // A plain matmul.
    (
        "2x14x14x64",
        "256x64x1x1",
        "2x14x14x256",
        "strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1]",
        false,
        [false, false],
    ),
    // Channels of 6 bytes are padded to 16, or become blocks of pixels; patches are a plain matmul.
    (
        "2x32x32x3",
        "64x3x3x3",
        "2x32x32x64",
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1]",
        true,
        [true, true],
    ),
    (
        "2x40x33x3",
        "64x3x7x7",
        "2x20x17x64",
        "strides = [2, 2] pad = [3, 3] x [3, 3] dilation = [1, 1]",
        true,
        [true, true],
    ),
    (
        "2x64x32x3",
        "72x3x16x16",
        "2x4x2x72",
        "strides = [16, 16] pad = [0, 0] x [0, 0] dilation = [1, 1]",
        false,
        [false, false],
    ),
    // Depthwise, and grouped.
    (
        "2x14x15x24",
        "24x1x3x3",
        "2x14x15x24",
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 24}",
        false,
        [false, false],
    ),
    (
        "2x14x15x17",
        "17x1x5x5",
        "2x7x8x17",
        "strides = [2, 2] pad = [2, 2] x [2, 2] dilation = [1, 1] {groups = 17}",
        false,
        [false, false],
    ),
    (
        "2x14x14x64",
        "64x16x3x3",
        "2x14x14x64",
        "strides = [1, 1] pad = [1, 1] x [1, 1] dilation = [1, 1] {groups = 4}",
        true,
        [false, true],
    ),
];

#[test]
fn convolutions_load_pixels_by_tma() {
    let folder = tempfile::tempdir().unwrap();
    for (images, weight, result, how, window, pads) in CONVOLUTIONS {
        crate::watchdog::arm();
        let turned = |t: &str| {
            let d: Vec<&str> = t.split('x').collect();
            format!("{}x{}x{}x{}", d[0], d[3], d[1], d[2])
        };
        let (nchw, out) = (turned(images), turned(result));
        let filters = weight.split('x').next().unwrap();
        let text = format!(
            "kiln.global @w : tensor<{weight}xbf16> from \"w.safetensors\" {{frozen}}\n\
             func.func @main(%x: tensor<{images}xbf16>, %b: tensor<{filters}xbf16>) -> tensor<{result}xbf16> {{\n\
             %w = kiln.get_global @w : tensor<{weight}xbf16>\n\
             %0 = kiln.transpose %x permutation = [0, 3, 1, 2] : tensor<{images}xbf16>\n\
             %1 = kiln.convolution %0, %w {how} : tensor<{nchw}xbf16>, tensor<{weight}xbf16>\n\
             %2 = kiln.transpose %1 permutation = [0, 2, 3, 1] : tensor<{out}xbf16>\n\
             %3 = kiln.broadcast_in_dim %b dims = [3] sizes = [{}] : tensor<{filters}xbf16>\n\
             %4 = kiln.add %2, %3 : tensor<{result}xbf16>\n\
             %5 = kiln.tanh %4 : tensor<{result}xbf16>\nreturn %5 : tensor<{result}xbf16>\n}}",
            result.replace('x', ", ")
        );
        let count = weight.split('x').map(|n| n.parse::<usize>().unwrap()).product::<usize>();
        let weights = safetensors::tensor::TensorView::new(
            safetensors::Dtype::BF16,
            weight.split('x').map(|n| n.parse().unwrap()).collect(),
            &vec![0; 2 * count],
        )
        .map(|view| safetensors::serialize([("w", view)], None).unwrap())
        .unwrap();
        std::fs::write(folder.path().join("w.safetensors"), weights).unwrap();
        let path = folder.path().join("m.mlir");
        std::fs::write(&path, text).unwrap();
        for chip in CHIPS {
            let pads = pads[usize::from(chip != "sm_90a")];
            let package = build(&path, chip).unwrap_or_else(|e| panic!("{images}, {weight}: {e}"));
            let kernels = &package.program.kernels;
            let pixels = kernels
                .iter()
                .filter_map(|k| k.launch.as_ref())
                .flat_map(|l| &l.maps)
                .any(|m| m.window.is_some());
            assert_eq!(pixels, *window && chip == "sm_90a", "{images}, {weight} for {chip}");
            let mma = kernels.iter().any(|k| {
                k.ops.contains(&"convolution".to_string())
                    && String::from_utf8_lossy(&package.objects[&k.symbol]).contains("mma.sync")
            });
            assert!(
                chip == "sm_90a" || mma != how.contains("groups"),
                "{images}, {weight} for {chip}"
            );
            let padding = kernels.iter().any(|k| k.ops.contains(&"pad".to_string()));
            assert_eq!(padding, pads, "{images}, {weight} for {chip}");
            let wrong = assembled(&package, chip);
            assert!(wrong.is_empty(), "{images}, {weight} for {chip}:\n{}", wrong.join("\n"));
        }
    }
}
