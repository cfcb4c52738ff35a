//! PyTorch's results for every method: the archives of `tests/capture`, call by call through the
//! Rust API.
use super::*;
use kiln::{
    capture::{aten, pt2},
    tensor::*,
};
use serde_json::Value as Json;
use std::{collections::HashMap, io::Read};

/// The value of a name in an archive.
#[derive(Clone, Debug)]
enum V {
    Tensor(Tensor),
    Size(Dim),
    /// Result of an overload that is not a method.
    Nothing,
}

pub(super) struct Call<'a> {
    pub g: &'a Graph,
    args: HashMap<&'a str, &'a Json>,
    env: &'a HashMap<String, V>,
}

fn only(j: &Json) -> (&str, &Json) {
    let (k, v) = j.as_object().and_then(|o| o.iter().next()).expect("a tagged value");
    (k.as_str(), v)
}

impl Call<'_> {
    /// Whether all its tensors and sizes exist.
    fn complete(&self) -> bool {
        let known = |j: &Json| !matches!(self.named(j), V::Nothing);
        let each = |(kind, j): (&str, &Json)| match (kind, j.as_array()) {
            ("as_optional_tensor", _) => j.get("as_none").is_some() || known(&j["as_tensor"]),
            ("as_tensor" | "as_sym_int" | "as_sym_bool", _) => known(j),
            ("as_tensors" | "as_sym_ints", Some(all)) => all.iter().all(known),
            _ => true,
        };
        self.args.values().map(|j| only(j)).all(each)
    }
    fn given(&self, name: &str) -> Option<(&str, &Json)> {
        self.args.get(name).map(|j| only(j)).filter(|(k, _)| *k != "as_none")
    }
    pub fn has(&self, name: &str) -> bool {
        self.given(name).is_some()
    }
    fn named(&self, j: &Json) -> V {
        let name = j["name"].as_str().or_else(|| j["as_name"].as_str());
        match (name, j["as_int"].as_i64()) {
            (Some(n), _) => self.env.get(n).cloned().unwrap_or(V::Nothing),
            (None, Some(n)) => V::Size(n.into()),
            _ => V::Nothing,
        }
    }
    fn tensor(&self, j: &Json) -> Tensor {
        match self.named(j) {
            V::Tensor(t) => t,
            other => panic!("{j} is {other:?}"),
        }
    }
    pub fn maybe(&self, name: &str) -> Option<Tensor> {
        let (kind, j) = self.given(name)?;
        match kind {
            "as_optional_tensor" if j.get("as_none").is_some() => None,
            "as_optional_tensor" => Some(self.tensor(&j["as_tensor"])),
            _ => Some(self.tensor(j)),
        }
    }
    pub fn t(&self, name: &str) -> Tensor {
        self.maybe(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }
    pub fn all(&self, name: &str) -> Vec<Tensor> {
        let list = self.given(name).and_then(|(_, j)| j.as_array()).expect("a list of tensors");
        list.iter().map(|j| self.tensor(j)).collect()
    }
    fn size(&self, kind: &str, j: &Json) -> Dim {
        match (kind, j.as_i64()) {
            ("as_int" | "as_ints", Some(n)) => n.into(),
            ("as_bool", _) => i64::from(j.as_bool().expect("a truth value")).into(),
            _ => match self.named(j) {
                V::Size(d) => d,
                other => panic!("{j} is {other:?}"),
            },
        }
    }
    pub fn dims(&self, name: &str) -> Vec<Dim> {
        let Some((kind, j)) = self.given(name) else { return vec![] };
        j.as_array().map_or_else(
            || vec![self.size(kind, j)],
            |all| all.iter().map(|j| self.size(kind, j)).collect(),
        )
    }
    pub fn dim(&self, name: &str, default: i64) -> Dim {
        self.given(name).map_or(default.into(), |(kind, j)| self.size(kind, j))
    }
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.dim(name, default).known().expect("a number")
    }
    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.dims(name).into_iter().map(|d| d.known().expect("a number")).collect()
    }
    pub fn axes(&self, name: &str) -> Over {
        Over(if self.has(name) { Some(self.ints(name)).filter(|d| !d.is_empty()) } else { None })
    }
    pub fn f(&self, name: &str, default: f64) -> f64 {
        let Some((kind, j)) = self.given(name) else { return default };
        match (kind, j.as_str()) {
            (_, Some("Infinity")) => f64::INFINITY,
            (_, Some("-Infinity")) => f64::NEG_INFINITY,
            _ => j.as_f64().expect("a float"),
        }
    }
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.given(name).map_or(default, |(_, j)| j.as_bool().expect("a truth value"))
    }
    pub fn text(&self, name: &str) -> String {
        self.given(name).and_then(|(_, j)| j.as_str()).unwrap_or("").to_string()
    }
    pub fn operand(&self, name: &str) -> Operand {
        let (kind, j) = self.given(name).unwrap_or_else(|| panic!("no operand {name}"));
        match kind {
            "as_int" => Operand::Int(j.as_i64().expect("an integer")),
            "as_float" => Operand::Float(self.f(name, 0.0)),
            "as_bool" => Operand::Bool(j.as_bool().expect("a truth value")),
            "as_sym_int" => Operand::Size(self.size(kind, j)),
            _ => Operand::Tensor(self.maybe(name).expect("a tensor")),
        }
    }
    pub fn dtype(&self, name: &str) -> Option<DType> {
        let (_, j) = self.given(name)?;
        dtype(j.as_i64()?)
    }
    pub fn pair<const N: usize>(&self, name: &str, default: i64) -> [i64; N] {
        let all = self.ints(name);
        std::array::from_fn(|i| all.get(i).or(all.first()).copied().unwrap_or(default))
    }
    pub fn pool(&self) -> Pool<2> {
        let window = self.pair("kernel_size", 1);
        let stride = if self.ints("stride").is_empty() { window } else { self.pair("stride", 1) };
        Pool {
            window,
            stride,
            padding: self.pair("padding", 0),
            ceil_mode: self.flag("ceil_mode", false),
        }
    }
    pub fn convolution<const N: usize>(&self) -> Convolution<N> {
        Convolution {
            stride: self.pair("stride", 1),
            padding: self.pair("padding", 0),
            dilation: self.pair("dilation", 1),
            groups: self.int("groups", 1),
        }
    }
}

/// Dimensions from an archive.
pub(super) struct Over(Option<Vec<i64>>);
impl Axes for Over {
    fn axes(self) -> Option<Vec<i64>> {
        self.0
    }
}

fn dtype(number: i64) -> Option<DType> {
    use DType::*;
    let all = [
        (1, UI8),
        (2, I8),
        (3, I16),
        (4, I32),
        (5, I64),
        (6, F16),
        (7, F32),
        (8, F64),
        (12, I1),
        (13, BF16),
    ];
    all.iter().find(|(n, _)| *n == number).map(|(_, d)| *d)
}

fn model(path: &Path) -> Json {
    let mut zip =
        zip::ZipArchive::new(std::fs::File::open(path).expect("an archive")).expect("a zip");
    let name =
        zip.file_names().find(|n| n.ends_with("models/model.json")).expect("a model").to_string();
    let mut text = String::new();
    zip.by_name(&name).expect("a model").read_to_string(&mut text).expect("text");
    serde_json::from_str(&text).expect("JSON")
}

/// The input tensors of a program.
fn start(g: &Graph, path: &Path, json: &Json) -> HashMap<String, V> {
    let weights = pt2::weights(path).expect("weights");
    let (graph, mut env) = (&json["graph_module"]["graph"], HashMap::new());
    for spec in json["graph_module"]["signature"]["input_specs"].as_array().expect("inputs") {
        let (kind, spec) = only(spec);
        if kind != "user_input" {
            let name = spec["arg"]["name"].as_str().expect("a name");
            let weight = &weights[spec[format!("{kind}_name")].as_str().expect("a name")];
            env.insert(name.to_string(), V::Tensor(g.constant(&weight.read().expect("a weight"))));
            continue;
        }
        let Some(name) = spec["arg"]["as_tensor"]["name"].as_str() else { continue };
        let meta = &graph["tensor_values"][name];
        let size = |s: &Json| match s["as_int"].as_i64() {
            Some(n) => Dim::from(n),
            None => {
                let text = s["as_expr"]["expr_str"].as_str().expect("an expression");
                let symbol =
                    text.split('\'').nth(1).unwrap_or_else(|| panic!("{text} is no symbol"));
                let range = &json["range_constraints"][symbol];
                g.dim(
                    symbol,
                    range["min_val"].as_i64().unwrap_or(0)
                        ..=range["max_val"].as_i64().unwrap_or(i64::MAX),
                )
            }
        };
        let dims: Vec<Dim> = meta["sizes"].as_array().expect("sizes").iter().map(size).collect();
        let dtype = dtype(meta["dtype"].as_i64().expect("a dtype")).expect("a dtype");
        env.insert(name.to_string(), V::Tensor(g.input(name, dtype, dims)));
    }
    env
}

/// The trace of an archive as far as methods exist, and which results it has.
fn replay(c: &Context, path: &Path, used: &mut Vec<String>) -> (Captured, Vec<usize>) {
    let json = model(path);
    let mut kept = vec![];
    let traced = kiln::tensor::trace_into(c.ctx(), |g| {
        let mut env = start(g, path, &json);
        for node in json["graph_module"]["graph"]["nodes"].as_array().expect("nodes") {
            let target = aten::short(node["target"].as_str().expect("a target"));
            let named = |n: &'_ Json| n["name"].as_str().map(str::to_string);
            let args = node["inputs"].as_array().expect("arguments").iter();
            let args = args.map(|a| (a["name"].as_str().expect("a name"), &a["arg"])).collect();
            let call = Call { g, args, env: &env };
            let complete = call.complete();
            let made = if complete { table::call(target, &call) } else { None };
            if made.is_some() {
                used.push(target.to_string());
            }
            let mut values = match (target, &made) {
                ("aten.sym_size.int", _) if complete => {
                    vec![V::Size(call.t("self").size(call.int("dim", 0)))]
                }
                (_, Some(all)) => all.iter().map(|t| V::Tensor(t.clone())).collect(),
                _ => vec![],
            }
            .into_iter();
            for output in node["outputs"].as_array().expect("results") {
                let (_, j) = only(output);
                for name in j
                    .as_array()
                    .map_or_else(|| vec![named(j)], |all| all.iter().map(named).collect())
                {
                    let name = name
                        .or_else(|| j["as_name"].as_str().map(str::to_string))
                        .unwrap_or_default();
                    env.insert(name, values.next().unwrap_or(V::Nothing));
                }
            }
        }
        let mut results = vec![];
        for (i, spec) in json["graph_module"]["signature"]["output_specs"]
            .as_array()
            .expect("results")
            .iter()
            .enumerate()
        {
            let name = only(spec).1["arg"]["as_tensor"]["name"].as_str().unwrap_or("");
            if let Some(V::Tensor(t)) = env.get(name) {
                kept.push(i);
                results.push(t.clone());
            }
        }
        Ok(results)
    });
    (traced.unwrap_or_else(|e| panic!("{}: {e}", path.display())), kept)
}

/// Least number of compared results; those of overloads without a method are not compared.
const MANY: usize = 560;

#[test]
fn every_method_as_pytorch() {
    let (mut used, mut wrong, mut compared) = (vec![], vec![], 0);
    for family in
        ["unary", "binary", "create", "view", "index", "reduce", "contract", "norm", "image"]
    {
        crate::watchdog::arm();
        let path = root().join(format!("capture/aten_{family}.pt2"));
        let c = Context::new();
        let (captured, kept) = replay(&c, &path, &mut used);
        let file = path.with_extension("safetensors");
        let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
        let want: Vec<_> = kept.iter().map(|i| want[*i].clone()).collect();
        compared += want.len();
        wrong.extend(
            differences(&captured, &inputs, &want).into_iter().map(|d| format!("{family}: {d}")),
        );
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= MANY, "only {compared} results are compared; {MANY} were");
    used.sort();
    used.dedup();
    let missing: Vec<&str> =
        table::TARGETS.iter().copied().filter(|t| !used.iter().any(|u| u == t)).collect();
    assert!(missing.is_empty(), "no archive uses {missing:?}");
}
