//! Every row of the ATen table, and programs that mutate views, buffers and inputs.
use super::*;
use kiln::capture::aten;
use std::{collections::BTreeSet, io::Read};

/// Rows that no export can produce, with the reason.
const WITHOUT_ARCHIVE: &[(&str, &str)] = &[
    ("aten.sym_constrain_range.default", "only for sizes that depend on data"),
    ("aten.lift_fresh.default", "torch.export writes lift_fresh_copy"),
    ("aten.sym_numel.default", "torch.export writes products of sym_size"),
    ("aten._linalg_check_errors.default", "torch.export leaves it out: its results are unused"),
    ("kiln.dropout", "a method of tensors: tests/training/"),
    ("_operator.pos", "torch.export leaves it out"),
    ("_operator.abs", "torch.export cannot save it; graphs of torch.compile have it"),
    ("math.floor", "torch.export cannot save it; graphs of torch.compile have it"),
    ("math.ceil", "torch.export cannot save it; graphs of torch.compile have it"),
    ("torch.sym_sum", "torch.export cannot save it; graphs of torch.compile have it"),
    ("torch.sym_int", "torch.export writes math.trunc"),
    ("aten.sym_stride.int", "torch.export writes expressions of sizes"),
    ("aten.sym_constrain_range_for_size.default", "only for sizes that depend on data"),
    (
        "aten._scaled_dot_product_flash_attention_backward.default",
        "in graphs for GPUs: python/tests/test_attention_gradients.py",
    ),
    ("aten._scaled_dot_product_cudnn_attention_backward.default", "the same"),
    ("aten._scaled_dot_product_efficient_attention_backward.default", "the same"),
    ("kiln.attention_with_lse.default", "an op of kiln_torch: python/tests/test_attention.py"),
    ("kiln.stop_gradient.default", "an op of kiln_torch: python/tests/test_joint.py"),
    ("kiln.attention_gradients.default", "the same"),
    ("aten.rrelu_with_noise.default", "torch.export writes rrelu or rrelu_with_noise_functional"),
];

/// The archives of single cases: in this folder, or in the one that KILN_ATEN_ARCHIVES names (see
/// gen_aten.py --each).
fn archives() -> Vec<PathBuf> {
    let folder =
        std::env::var_os("KILN_ATEN_ARCHIVES").map_or(root().join("capture"), PathBuf::from);
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> =
        files.filter(|p| p.extension().is_some_and(|e| e == "pt2")).collect();
    // Exact interpretation has no roundings: tests/compiled/ runs those.
    let named = |n: &str| n.starts_with("aten_") && !n.starts_with("aten_roundings");
    all.retain(|p| p.file_name().is_some_and(|n| named(&n.to_string_lossy())));
    all.sort();
    all
}

/// Overloads that an archive uses.
fn targets(path: &Path) -> BTreeSet<String> {
    let file = std::fs::File::open(path).expect("an archive");
    let mut zip = zip::ZipArchive::new(file).expect("a zip");
    let name =
        zip.file_names().find(|n| n.ends_with("models/model.json")).expect("a model").to_string();
    let mut text = String::new();
    zip.by_name(&name).expect("a model").read_to_string(&mut text).expect("a model");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let nodes = json["graph_module"]["graph"]["nodes"].as_array().expect("nodes");
    nodes.iter().filter_map(|n| n["target"].as_str()).map(|t| aten::short(t).to_string()).collect()
}

#[test]
fn every_row_as_pytorch() {
    let mut wrong = vec![];
    for path in archives() {
        crate::watchdog::arm();
        let c = Context::new();
        let name = path.file_stem().map(|s| s.to_string_lossy().to_string()).unwrap_or_default();
        let captured = match pt2::import(c.ctx(), &path) {
            Ok(captured) => captured,
            Err(e) => {
                wrong.push(format!("{name}: {e}"));
                continue;
            }
        };
        let file = path.with_extension("safetensors");
        let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
        wrong.extend(
            differences(&captured, &inputs, &want)
                .into_iter()
                .map(|d| format!("{name} at graph: {d}")),
        );
        lower(&captured);
        wrong.extend(
            differences(&captured, &inputs, &want)
                .into_iter()
                .map(|d| format!("{name} at prims: {d}")),
        );
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_row_has_an_archive() {
    let random = ["random.pt2", "random.core.pt2"].map(|name| root().join("capture").join(name));
    let used: BTreeSet<&str> = archives()
        .iter()
        .chain(&random)
        .flat_map(|p| targets(p))
        .filter_map(|t| aten::find(&t))
        .map(|row| row.name)
        .collect();
    let missing: Vec<&str> = aten::rows().map(|r| r.name).filter(|n| !used.contains(n)).collect();
    // Rows that tests/opinfo or python/tests check, but no archive does yet: the list only shrinks.
    let path = root().join("capture/without_archive.txt");
    let listed = std::fs::read_to_string(&path).expect("a list");
    let listed: BTreeSet<&str> = listed.lines().collect();
    let unexplained: BTreeSet<&str> =
        missing.iter().copied().filter(|n| WITHOUT_ARCHIVE.iter().all(|(w, _)| w != n)).collect();
    let new: Vec<_> = unexplained.difference(&listed).collect();
    assert!(new.is_empty(), "no archive uses {new:?}; add cases to tests/capture/gen_aten.py");
    let done: Vec<_> = listed.difference(&unexplained).collect();
    assert!(done.is_empty(), "{done:?} have archives now: take them out of {}", path.display());
    let stale: Vec<_> = WITHOUT_ARCHIVE.iter().filter(|(w, _)| !missing.contains(w)).collect();
    assert!(stale.is_empty(), "{stale:?} have archives now");
}

#[test]
fn rows_are_unique() {
    let mut seen = BTreeSet::new();
    for row in aten::rows() {
        assert!(seen.insert(row.name), "{} has two rows", row.name);
    }
}

/// Mutated buffers and inputs are returned as additional results, whether the export is
/// functionalised (decomposed) or not.
#[test]
fn mutated_buffers_and_inputs_are_results() {
    let file = root().join("capture/state.safetensors");
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    for name in ["state", "state.core"] {
        crate::watchdog::arm();
        let c = Context::new();
        let captured = import(&c, &root().join(format!("capture/{name}.pt2")));
        let expected = [
            Output::Buffer("count".into()),
            Output::Buffer("mean".into()),
            Output::Input("y".into()),
        ];
        let user = |o: &&Output| matches!(o, Output::User(_));
        assert_eq!(captured.outputs.iter().filter(user).count(), 2, "{name}");
        assert!(
            expected.iter().all(|o| captured.outputs.contains(o)),
            "{name}: {:?}",
            captured.outputs
        );
        // Both forms return the user's results in program order; move the mutations after them.
        let place = |o: &Output| match o {
            Output::User(_) => 0,
            other => 1 + expected.iter().position(|e| e == other).unwrap_or(9),
        };
        let mut order: Vec<usize> = (0..captured.outputs.len()).collect();
        order.sort_by_key(|i| place(&captured.outputs[*i]));
        let mut arranged = want.clone();
        order.iter().zip(&want).for_each(|(i, w)| arranged[*i] = w.clone());
        let wrong = differences(&captured, &inputs, &arranged);
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    }
}
