//! The ATen table: one row per functional overload, with the builder that emits it. Overloads that
//! write, in place or to `out=`, are its functional row and a write. Omitted arguments have PyTorch's
//! defaults.
mod arithmetic;
mod attention;
mod axes;
mod backward;
mod backward_attention;
mod backward_image;
mod backward_norm;
mod backward_sample;
mod calculus;
mod check;
mod choose;
mod class_losses;
mod complex;
mod condition;
mod contract;
mod create;
mod cuda_draws;
mod cuda_order;
mod data_sizes;
mod dims;
mod distances;
mod dropout;
mod einsum;
mod elementwise;
mod fold;
mod formula;
mod generator;
mod image;
mod index;
mod join;
mod linear;
mod lookups;
mod losses;
mod matrices;
mod moments;
mod norm;
mod numbers;
mod order;
mod padding;
mod pool_indices;
mod promote;
mod quantized;
mod random;
mod ranges;
mod recurrent;
mod reduce;
mod rejection;
mod repeat;
mod resize;
mod sample;
mod scatters;
mod segments;
mod shuffle;
mod signal_windows;
mod spaces;
mod special;
mod spectral;
mod split;
mod stacks;
mod statistics;
mod strided;
mod symbolic;
mod synonyms;
mod tools;
mod unbacked;
mod unique;
mod view;
mod window;
mod windows_apart;
mod writes;

use super::storage::{Alias, Store};
pub(super) use complex::build;
pub use generator::{Inside, RandomOrder, Rng, STATE};
use kiln_dialects::{ir::*, ops::CompareKind, value::DType};
use serde_json::Value as Json;
use std::collections::HashMap;
pub use tools::{Cx, Declared};
pub use unbacked::Unbacked;
pub use writes::Writes;

/// An argument or a result.
#[derive(Clone, Debug)]
pub enum Val {
    /// A tensor, by alias.
    Tensor(Alias),
    /// A complex tensor, as the aliases of its real and its imaginary part.
    Complex(Alias, Alias),
    /// An integer, possibly symbolic.
    Int(Size),
    /// A number input of the program, as a 0-d tensor. In type promotion it counts as a Python
    /// number of this dtype's category.
    Number(Alias, DType),
    /// A float.
    Float(f64),
    /// A complex number: real and imaginary part.
    ComplexNumber(f64, f64),
    /// A bool.
    Bool(bool),
    /// A string, dtype aside.
    Str(String),
    /// A dtype.
    DType(DType),
    /// A complex dtype, whose parts have this dtype.
    ComplexDType(DType),
    /// A float that sizes determine: a size over a positive integer.
    Fraction(Size, i64),
    /// A comparison of integers, at least one of them symbolic.
    Condition(CompareKind, Size, Size),
    /// A list.
    List(Vec<Val>),
    /// `None`, or an ignored argument (device, layout, memory format).
    None,
}

/// The results of a builder.
pub enum Outcome {
    /// One result.
    One(Val),
    /// Several results, or none.
    Many(Vec<Val>),
}

/// One overload.
pub struct Row {
    /// The overload without `torch.ops.`, such as `aten.add.Tensor`.
    pub name: &'static str,
    /// Its parameters, as in the schema.
    pub arguments: &'static str,
    /// The builder.
    pub build: fn(&mut Cx, &Args<'_>) -> Result<Outcome>,
}

/// The arguments of one node.
pub struct Args<'a> {
    /// Values by parameter name; absent ones have their default.
    pub values: HashMap<&'a str, Val>,
}

/// Rows by family.
pub fn families() -> [(&'static str, &'static [Row]); 68] {
    [
        ("Elementwise", elementwise::ROWS),
        ("Special functions and activations", special::ROWS),
        ("Bessel and Airy functions", special::cylinder::ROWS),
        ("Incomplete gamma functions", special::incomplete::ROWS),
        ("Orthogonal polynomials", special::polynomials::ROWS),
        ("Divisors", repeat::ROWS),
        ("Choices, bounds and conversions", choose::ROWS),
        ("Numbers and tolerances", numbers::ROWS),
        ("Creation", create::ROWS),
        ("Windows of signals", signal_windows::ROWS),
        ("Complex numbers", complex::ROWS),
        ("Fourier transforms", spectral::ROWS),
        ("Spaces", spaces::ROWS),
        ("Views and sizes", view::ROWS),
        ("Views under other names", dims::ROWS),
        ("Diagonals, windows and strides", strided::ROWS),
        ("Operators on sizes", symbolic::ROWS),
        ("Conditions on sizes", condition::ROWS),
        ("Sizes that depend on data", data_sizes::ROWS),
        ("Unique elements", unique::ROWS),
        ("Joining, repeating, reordering, padding", join::ROWS),
        ("Stacks and enumerations", stacks::ROWS),
        ("Shuffles, turns and repeats", shuffle::ROWS),
        ("Padding by own elements", padding::ROWS),
        ("Indexing", index::ROWS),
        ("Writes at positions", scatters::ROWS),
        ("Reads at positions and searches", lookups::ROWS),
        ("Reductions, scans and sorts", reduce::ROWS),
        ("Order statistics", order::ROWS),
        ("Statistics, distances and histograms", statistics::ROWS),
        ("Segments", segments::ROWS),
        ("Differences and integrals", calculus::ROWS),
        ("Matrix products", contract::ROWS),
        ("Attention, bilinear maps, bags of embeddings", attention::ROWS),
        ("Products and norms", linear::ROWS),
        ("Cholesky and LU factorizations, determinants", matrices::factors::ROWS),
        ("Systems of equations", matrices::systems::ROWS),
        ("Inverses", matrices::inverses::ROWS),
        ("QR factorizations, reflections", matrices::orthogonal::ROWS),
        ("Singular values, eigenvalues", matrices::spectra::ROWS),
        ("Eigenvalues of any square matrix", matrices::general::COMPLEX),
        ("LDL factorizations of symmetric matrices", matrices::general::ROWS),
        ("Condition numbers, nuclear norms", matrices::condition::ROWS),
        ("Normalisation, softmax and losses", norm::ROWS),
        ("Normalisation with statistics, distances", moments::ROWS),
        ("Losses", losses::ROWS),
        ("Losses against classes", class_losses::ROWS),
        ("Derivatives of functions, losses and indexing", backward::ROWS),
        ("Derivatives of normalisations", backward_norm::ROWS),
        ("Derivatives of attention", backward_attention::ROWS),
        ("Derivatives of convolutions, pools and resizing", backward_image::ROWS),
        ("Derivatives of sampling", backward_sample::ROWS),
        ("Recurrent layers", recurrent::ROWS),
        ("Convolution and pooling", image::ROWS),
        ("Pools with indices", window::ROWS),
        ("Columns of images", fold::ROWS),
        ("Resizing", resize::ROWS),
        ("Sampling at coordinates", sample::ROWS),
        ("Random numbers", random::ROWS),
        ("Random numbers by rejection", rejection::ROWS),
        ("Dropout", dropout::ROWS),
        ("Quantisation of PT2E", quantized::decomposed::ROWS),
        ("Quantisation of torchao", quantized::affine::ROWS),
        ("Fake quantisation", quantized::fake::ROWS),
        ("Products of quantised matrices", quantized::products::ROWS),
        ("Products with packed int4 weights", quantized::packed::ROWS),
        ("Products with int4 weights in CUDA's layout", quantized::tiled::ROWS),
        ("Products of groups", quantized::grouped::ROWS),
    ]
}

/// All rows, family by family.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    families().into_iter().flat_map(|(_, rows)| rows)
}

/// Strips the prefix: `torch.ops.aten.add.Tensor` is `aten.add.Tensor`; `_operator.add` and the
/// like are unchanged.
pub fn short(target: &str) -> &str {
    target.strip_prefix("torch.ops.").unwrap_or(target)
}

/// Looks up an overload, functional, in-place or with `out=`, under any of its names.
pub fn find(target: &str) -> Option<&'static Row> {
    let row = |name: &str| rows().find(|r| r.name == name);
    let named = |name: &str| {
        row(name).or_else(|| synonyms::resolve(name).and_then(|(other, _)| row(&other)))
    };
    let own = if writes::is_in_place(target) { None } else { named(target) };
    own.or_else(|| writes::functional(target).and_then(|name| named(&name)))
}

/// Whether an op may draw random numbers: of a number argument by its name, of a flag likewise.
pub fn may_draw(
    target: &str,
    number: impl Fn(&str) -> Option<f64>,
    flag: impl Fn(&str) -> Option<bool>,
) -> bool {
    let Some(row) = find(target) else { return false };
    let off = ["train", "training"].iter().any(|name| flag(name) == Some(false));
    let drops = ["dropout", "dropout_p"].iter().any(|name| number(name).is_some_and(|p| p > 0.0));
    let families = [random::ROWS, rejection::ROWS, dropout::ROWS];
    let own = families.into_iter().flatten().any(|r| r.name == row.name);
    !off && (own || drops)
}

/// Whether an overload copies what the row that builds it returns as a view.
pub fn is_copy(target: &str) -> bool {
    rows().all(|r| r.name != target) && synonyms::resolve(target).is_some_and(|(_, copies)| copies)
}

/// The message for an invalid argument.
fn wrong(name: &str, wanted: &str) -> Error {
    format!("argument {name} should be {wanted}").into()
}

impl Args<'_> {
    fn get(&self, name: &str) -> Option<&Val> {
        self.values.get(name).filter(|v| !matches!(v, Val::None))
    }
    /// Whether the argument is present and not None.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// A tensor argument's alias.
    pub fn alias(&self, name: &str) -> Result<Alias> {
        match self.get(name) {
            Some(Val::Tensor(a)) => Ok(*a),
            _ => Err(wrong(name, "a tensor")),
        }
    }
    /// A static integer.
    pub fn int(&self, name: &str, default: Option<i64>) -> Result<i64> {
        match self.get(name) {
            Some(Val::Int(Size::Static(n))) => Ok(*n),
            Some(Val::Bool(b)) => Ok(i64::from(*b)),
            Some(Val::Int(_)) => Err(wrong(name, "an integer that is known now, not a symbol")),
            _ => default.ok_or_else(|| wrong(name, "an integer")),
        }
    }
    /// An integer, possibly symbolic.
    pub fn size(&self, name: &str) -> Result<Size> {
        match self.get(name) {
            Some(Val::Int(s)) => Ok(*s),
            _ => Err(wrong(name, "an integer")),
        }
    }
    /// Integers, possibly symbolic; a single one acts as a list.
    pub fn sizes(&self, name: &str) -> Result<Vec<Size>> {
        let one = |v: &Val| {
            if let Val::Int(s) = v { Ok(*s) } else { Err(wrong(name, "a list of integers")) }
        };
        match self.get(name) {
            Some(Val::List(all)) => all.iter().map(one).collect(),
            Some(v) => Ok(vec![one(v)?]),
            None => Err(wrong(name, "a list of integers")),
        }
    }
    /// Static integers; `None` if absent.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if !self.has(name) {
            return Ok(None);
        }
        let known =
            |s: Size| s.known().ok_or_else(|| wrong(name, "a list of integers that are known now"));
        self.sizes(name)?.into_iter().map(known).collect::<Result<_, _>>().map(Some)
    }
    /// A number as a float.
    pub fn float(&self, name: &str, default: Option<f64>) -> Result<f64> {
        match self.get(name) {
            Some(Val::Float(x)) => Ok(*x),
            Some(Val::Int(Size::Static(n))) => Ok(*n as f64),
            Some(Val::Bool(b)) => Ok(f64::from(*b)),
            Some(_) => Err(wrong(name, "a number")),
            None => default.ok_or_else(|| wrong(name, "a number")),
        }
    }
    /// A bool.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            Some(Val::Bool(b)) => Ok(*b),
            None => Ok(default),
            _ => Err(wrong(name, "true or false")),
        }
    }
    /// A dtype; `None` if absent.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.get(name) {
            Some(Val::DType(d)) => Ok(Some(*d)),
            None => Ok(None),
            _ => Err(wrong(name, "a dtype")),
        }
    }
    /// A string.
    pub fn text(&self, name: &str, default: &str) -> Result<String> {
        match self.get(name) {
            Some(Val::Str(s)) => Ok(s.clone()),
            None => Ok(default.into()),
            _ => Err(wrong(name, "a string")),
        }
    }
    /// Aliases of a list of tensors.
    pub fn aliases(&self, name: &str) -> Result<Vec<Alias>> {
        let one = |v: &Val| {
            if let Val::Tensor(a) = v { Ok(*a) } else { Err(wrong(name, "a list of tensors")) }
        };
        match self.get(name) {
            Some(Val::List(all)) => all.iter().map(one).collect(),
            _ => Err(wrong(name, "a list of tensors")),
        }
    }
    /// A list of tensors with optional entries.
    pub fn optional_aliases(&self, name: &str) -> Result<Vec<Option<Alias>>> {
        let one = |v: &Val| match v {
            Val::Tensor(a) => Ok(Some(*a)),
            Val::None => Ok(None),
            _ => Err(wrong(name, "a list of tensors and None")),
        };
        match self.get(name) {
            Some(Val::List(all)) => all.iter().map(one).collect(),
            _ => Err(wrong(name, "a list of tensors and None")),
        }
    }
}

impl Cx {
    /// Starts at a builder's insertion point.
    pub fn new(b: Builder) -> Cx {
        Cx {
            b,
            store: Store::default(),
            inputs: HashMap::new(),
            names: HashMap::new(),
            wholes: HashMap::new(),
            location: String::new(),
            rng: None,
            unbacked: Unbacked::default(),
            packed: vec![],
            declared: vec![],
            autocast: None,
            stated: None,
            memory: None,
        }
    }
    /// Binds a name to a tensor with a storage of its own. The last dimension of a complex one holds
    /// the two parts.
    pub fn bind(&mut self, name: &str, value: Value, complex: bool) -> Result<()> {
        let alias = self.store.fresh(value);
        self.inputs.insert(name.into(), alias);
        let bound = if complex { self.parted(alias)? } else { Val::Tensor(alias) };
        self.names.insert(name.into(), bound);
        Ok(())
    }
    /// Decodes an argument of the schema's union type.
    pub(super) fn argument(&self, j: &Json) -> Result<Val> {
        let (kind, v) = super::schema::tag(j).ok_or("has no kind")?;
        let named = |j: &Json| -> Result<Val> {
            let name = j["name"].as_str().or_else(|| j["as_name"].as_str());
            match name {
                Some(name) => self
                    .names
                    .get(name)
                    .cloned()
                    .ok_or_else(|| format!("{name} is not defined").into()),
                None => symbolic::literal(j).ok_or_else(|| "has no name".into()),
            }
        };
        let list = |f: &dyn Fn(&Json) -> Result<Val>| {
            v.as_array().ok_or("is no list")?.iter().map(f).collect::<Result<_>>().map(Val::List)
        };
        let int = |j: &Json| {
            j.as_i64()
                .map(|n| Val::Int(Size::Static(n)))
                .ok_or_else(|| Error::from("is no integer"))
        };
        let float = |j: &Json| match j.as_str() {
            Some("Infinity") => Ok(Val::Float(f64::INFINITY)),
            Some("-Infinity") => Ok(Val::Float(f64::NEG_INFINITY)),
            Some("NaN") => Ok(Val::Float(f64::NAN)),
            _ => j.as_f64().map(Val::Float).ok_or_else(|| Error::from("is no float")),
        };
        match kind {
            "as_none" | "as_device" | "as_layout" | "as_memory_format" => Ok(Val::None),
            "as_tensor" => named(v),
            "as_sym_int" | "as_sym_bool" | "as_sym_float" => named(v),
            "as_tensors" | "as_sym_ints" => list(&named),
            "as_optional_tensor" => self.argument(v),
            "as_optional_tensors" => list(&|j| self.argument(j)),
            "as_int" => int(v),
            "as_ints" => list(&int),
            "as_float" => float(v),
            "as_floats" => list(&float),
            "as_bool" => v.as_bool().map(Val::Bool).ok_or_else(|| "is no truth value".into()),
            "as_bools" => {
                list(&|j| j.as_bool().map(Val::Bool).ok_or_else(|| "is no truth value".into()))
            }
            "as_string" => {
                v.as_str().map(|s| Val::Str(s.into())).ok_or_else(|| "is no string".into())
            }
            "as_complex" => match (float(&v["real"])?, float(&v["imag"])?) {
                (Val::Float(re), Val::Float(im)) => Ok(Val::ComplexNumber(re, im)),
                _ => Err("is no complex number".into()),
            },
            "as_scalar_type" => match super::schema::element(v.as_i64().unwrap_or(0))? {
                (d, true) => Ok(Val::ComplexDType(d)),
                (d, false) => Ok(Val::DType(d)),
            },
            other => Err(format!("is of the unsupported kind {other}").into()),
        }
    }
}
