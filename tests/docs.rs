//! Generated pages are up to date, and paths on other pages exist.
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a page with its generator; `KILN_BLESS=1` writes it.
fn check_page(file: &str, text: &str) {
    let path = root().join(file);
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&path, text).expect("docs can be written");
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(have == text, "{file} is stale; `./x bless` writes it anew");
}

#[test]
fn op_reference_is_up_to_date() {
    check_page("docs/ops.md", &kiln::docs::ops());
}

#[test]
fn pass_reference_is_up_to_date() {
    check_page("docs/passes.md", &kiln::docs::passes());
}

#[test]
fn strategy_reference_is_up_to_date() {
    check_page("docs/strategies.md", &kiln::docs::strategies());
}

#[test]
fn aten_reference_is_up_to_date() {
    check_page("docs/aten.md", &kiln::docs::aten());
}

#[test]
fn option_reference_is_up_to_date() {
    check_page("docs/options.md", &kiln::docs::options());
}

#[test]
fn walkthrough_is_up_to_date() {
    check_page("docs/walkthrough.md", &kiln::walkthrough::page().expect("every level"));
}

/// The C declarations of the C ABI.
fn header() -> String {
    let dlpack = "\
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
/* DLPack's definitions, where its own header is not at hand. One that is included later would define them again. */
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 } DLDataTypeCode;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
#endif";
    let builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config { usize_is_size_t: true, ..Default::default() })
        .with_language(cbindgen::Language::C)
        .with_style(cbindgen::Style::Both)
        .with_cpp_compat(true)
        .with_include_guard("KILN_H")
        .with_line_length(160)
        .with_header("/* kiln from C: compiled packages (libkiln_runtime.so), and models (libkiln.so).\n * Generated from runtime/src/capi and capi/full/src; `./x bless` writes it anew. */")
        .with_after_include(dlpack)
        .with_src(root().join("runtime/src/capi/mod.rs"))
        .with_src(root().join("runtime/src/capi/signature.rs"))
        .with_src(root().join("capi/full/src/lib.rs"));
    let mut text = vec![];
    builder.generate().expect("the sources parse").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn c_header_is_up_to_date() {
    check_page("include/kiln.h", &header());
}

/// Every path of the project in backticks exists.
#[test]
fn paths_on_pages_exist() {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("docs").flatten().map(|e| e.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    let folders = [
        "dialects/",
        "passes/",
        "lowering/",
        "runtime/",
        "emulator/",
        "include/",
        "src/",
        "tests/",
        "snapshots/",
        "examples/",
        "docs/",
        "benches/",
        ".ci/",
    ];
    let mut missing = vec![];
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for word in text.split('`').skip(1).step_by(2) {
            let generic = word.contains(['<', '*', ' ', '{', '…']);
            if folders.iter().any(|f| word.starts_with(f))
                && !generic
                && !word.contains("div_to_mul")
                && !root().join(word).exists()
            {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
