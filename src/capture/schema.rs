//! The subset of torch.export's `model.json` that is read. Schema version 8. Unknown fields are
//! ignored; unknown argument kinds are an error where they are used.
use super::unsupported;
use kiln_dialects::{Result, value::DType};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct Program {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub range_constraints: BTreeMap<String, Range>,
    /// Sizes that graphs of `torch.compile` take as inputs, by name, as expressions of symbols. The
    /// sizes of the tensor inputs determine the symbols.
    #[serde(default)]
    pub sym_inputs: BTreeMap<String, String>,
    /// Guards on inputs, as Python expressions.
    #[serde(default)]
    pub guards_code: Vec<String>,
    pub schema_version: Version,
}
#[derive(Deserialize)]
pub struct Version {
    pub major: i64,
}
#[derive(Deserialize, Clone)]
pub struct Range {
    pub min_val: Option<i64>,
    pub max_val: Option<i64>,
}
#[derive(Deserialize)]
pub struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
}
#[derive(Deserialize)]
pub struct Graph {
    /// Inputs of a subgraph; those of the top-level graph are in its signature.
    #[serde(default)]
    pub inputs: Vec<Json>,
    #[serde(default)]
    pub outputs: Vec<Json>,
    pub nodes: Vec<GraphNode>,
    pub tensor_values: BTreeMap<String, TensorMeta>,
    /// Integers that nodes compute, as expressions of symbols.
    #[serde(default)]
    pub sym_int_values: BTreeMap<String, Json>,
}
#[derive(Deserialize)]
pub struct GraphNode {
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Json>,
    #[serde(default)]
    pub metadata: BTreeMap<String, Json>,
}
#[derive(Deserialize)]
pub struct NamedArgument {
    pub name: String,
    pub arg: Json,
}
#[derive(Deserialize, Clone)]
pub struct TensorMeta {
    pub dtype: i64,
    pub sizes: Vec<Json>,
    pub strides: Vec<Json>,
    pub storage_offset: Json,
    #[serde(default)]
    pub device: Json,
}
#[derive(Deserialize)]
pub struct Signature {
    pub input_specs: Vec<Json>,
    pub output_specs: Vec<Json>,
}
#[derive(Deserialize)]
pub struct WeightsConfig {
    pub config: BTreeMap<String, WeightEntry>,
}
#[derive(Deserialize, Clone)]
pub struct WeightEntry {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    pub tensor_meta: Option<TensorMeta>,
}

/// Decodes a `ScalarType` number of the schema as an element of a tensor: the dtype, and whether two
/// of them, real and imaginary part, are one complex number.
pub fn element(number: i64) -> Result<(DType, bool)> {
    match number {
        10 => Ok((DType::F32, true)),
        11 => Ok((DType::F64, true)),
        number => dtype(number).map(|d| (d, false)),
    }
}

/// Decodes a `ScalarType` number of the schema that is real.
pub fn dtype(number: i64) -> Result<DType> {
    Ok(match number {
        1 => DType::UI8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        9 => return Err(unsupported("complex32 is not supported; complex64 is")),
        10 | 11 => return Err("a complex dtype where a real one is wanted".into()),
        12 => DType::I1,
        13 => DType::BF16,
        29 => DType::F8E4M3FN,
        30 => DType::F8E5M2,
        28 => return Err(unsupported("uint16 is not supported; int16 and int32 are")),
        31 | 32 => {
            return Err(unsupported("8-bit floats without a negative zero are not supported"));
        }
        other => return Err(unsupported(format!("torch's scalar type {other} is not supported"))),
    })
}

/// The tag and the payload of a tagged union.
pub fn tag(j: &Json) -> Option<(&str, &Json)> {
    j.as_object()?.iter().next().map(|(k, v)| (k.as_str(), v))
}

/// The subgraph that an argument of a higher-order op is.
pub fn subgraph(arg: &Json) -> Result<Graph> {
    let json =
        arg.get("as_graph").and_then(|g| g.get("graph")).ok_or("has no graph where one belongs")?;
    serde_json::from_value(json.clone()).map_err(|e| e.to_string().into())
}
