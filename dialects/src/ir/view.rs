//! The input of type rules, and ops as plain data ("nodes").
use super::*;
use crate::ops::OpKind;

/// An op, built or under construction: operands, attributes and regions, without results.
pub struct View {
    /// The context.
    pub ctx: Ctx,
    /// Which op.
    pub kind: OpKind,
    /// All operands in order.
    pub values: Vec<Value>,
    /// All regions in order.
    pub regions: Vec<Region>,
    attrs: Attrs,
}

enum Attrs {
    Op(Op),
    Dictionary(Attr),
    List(Vec<(String, Attr)>),
}

/// An entry of a size list: static, or an SSA `index` value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Known at compile time.
    Static(i64),
    /// Known at run time.
    Dynamic(Value),
}

impl Size {
    /// The marker of an SSA entry in `DynamicIndexList`.
    pub const DYNAMIC: i64 = i64::MIN;
    /// All static.
    pub fn all(sizes: &[i64]) -> Vec<Size> {
        sizes.iter().map(|s| Size::Static(*s)).collect()
    }
    /// The static size, if it is one.
    pub fn known(self) -> Option<i64> {
        match self {
            Size::Static(n) => Some(n),
            Size::Dynamic(_) => None,
        }
    }
}

/// A kiln op as plain data; one type per op, generated from the .td.
pub trait Node: Sized {
    /// The op.
    const KIND: OpKind;
    /// Reads operands and attributes; the error says which is missing or malformed.
    fn read(v: &View) -> Result<Self>;
    /// Writes operands and attributes.
    fn write(&self, s: &mut State);
    /// Reads an existing op; `None` if it is another op.
    fn of(op: Op) -> Option<Self> {
        if op.kind()? == Self::KIND { Self::read(&View::of(op)?).ok() } else { None }
    }
}

impl View {
    /// The view of an op of the dialect.
    pub fn of(op: Op) -> Option<View> {
        Some(View {
            ctx: op.ctx(),
            kind: op.kind()?,
            values: op.operands(),
            regions: op.regions(),
            attrs: Attrs::Op(op),
        })
    }
    pub(crate) fn of_parts(
        ctx: Ctx,
        kind: OpKind,
        values: Vec<Value>,
        regions: Vec<Region>,
        dictionary: Attr,
    ) -> View {
        View { ctx, kind, values, regions, attrs: Attrs::Dictionary(dictionary) }
    }
    pub(crate) fn of_list(
        ctx: Ctx,
        kind: OpKind,
        values: Vec<Value>,
        regions: Vec<Region>,
        attrs: Vec<(String, Attr)>,
    ) -> View {
        View { ctx, kind, values, regions, attrs: Attrs::List(attrs) }
    }
    /// An attribute by name.
    pub fn attr_opt(&self, name: &str) -> Option<Attr> {
        match &self.attrs {
            Attrs::Op(op) => op.attr(name),
            Attrs::Dictionary(d) => d.entry(name),
            Attrs::List(l) => l.iter().find(|(n, _)| n == name).map(|(_, a)| *a),
        }
    }
    fn typed<T>(
        &self,
        name: &str,
        what: &str,
        f: impl FnOnce(Attr) -> Option<T>,
    ) -> Result<Option<T>> {
        Ok(self
            .attr_opt(name)
            .map(|a| f(a).ok_or_else(|| format!("needs {what} as attribute '{name}'")))
            .transpose()?)
    }
    pub(crate) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| format!("needs attribute '{name}'").into())
    }
    pub(crate) fn i64s(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.typed(name, "a list of 64-bit integers", Attr::as_i64s)
    }
    pub(crate) fn i64(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "an integer", Attr::as_i64)
    }
    pub(crate) fn f64(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, "a float", Attr::as_f64)
    }
    pub(crate) fn unit(&self, name: &str) -> Result<Option<Attr>> {
        Ok(self.attr_opt(name))
    }
    pub(crate) fn ty(&self, name: &str) -> Result<Option<Type>> {
        self.typed(name, "a type", Attr::as_type)
    }
    pub(crate) fn string(&self, name: &str) -> Result<Option<String>> {
        self.typed(name, "a string", Attr::as_string)
    }
    pub(crate) fn symbol(&self, name: &str) -> Result<Option<String>> {
        self.typed(name, "a symbol", Attr::as_symbol)
    }
    pub(crate) fn attr(&self, name: &str) -> Result<Option<Attr>> {
        Ok(self.attr_opt(name))
    }
    pub(crate) fn sizes(&self, dynamic: Vec<Value>, name: &str) -> Result<Vec<Size>> {
        let sizes = self.required(name, self.i64s(name)?)?;
        let holes = sizes.iter().filter(|s| **s == Size::DYNAMIC).count();
        if holes != dynamic.len() {
            return Err(format!(
                "has {} SSA values for {holes} dynamic entries of '{name}'",
                dynamic.len()
            )
            .into());
        }
        let mut dynamic = dynamic.into_iter();
        Ok(sizes
            .into_iter()
            .map(|s| {
                if s == Size::DYNAMIC {
                    dynamic.next().map_or(Size::Static(s), Size::Dynamic)
                } else {
                    Size::Static(s)
                }
            })
            .collect())
    }
    /// Reads operands in `groups` segments, of which `fixed` are single values.
    pub fn operands(&self, groups: usize, fixed: usize, segments: bool) -> Result<Operands<'_>> {
        let segments = if segments {
            let sizes = self
                .attr_opt("operandSegmentSizes")
                .and_then(Attr::as_i32s)
                .ok_or("needs attribute 'operandSegmentSizes'")?;
            if sizes.len() != groups
                || sizes.iter().any(|s| *s < 0)
                || sizes.iter().map(|s| *s as usize).sum::<usize>() != self.values.len()
            {
                return Err(format!(
                    "has operandSegmentSizes {sizes:?} for {} operands in {groups} groups",
                    self.values.len()
                )
                .into());
            }
            Some(sizes)
        } else if self.values.len() < fixed || (groups == fixed && self.values.len() != fixed) {
            return Err(
                format!("has {} operands where {fixed} are needed", self.values.len()).into()
            );
        } else {
            None
        };
        Ok(Operands {
            view: self,
            segments,
            group: 0,
            at: 0,
            rest: self.values.len() - fixed.min(self.values.len()),
        })
    }
}

/// Reads operands segment by segment.
pub struct Operands<'a> {
    view: &'a View,
    segments: Option<Vec<i32>>,
    group: usize,
    at: usize,
    rest: usize,
}

impl Operands<'_> {
    fn take(&mut self, otherwise: usize) -> Result<Vec<Value>> {
        let n = self.segments.as_ref().map_or(otherwise, |s| s[self.group] as usize);
        let out =
            self.view.values.get(self.at..self.at + n).ok_or("has too few operands")?.to_vec();
        self.group += 1;
        self.at += n;
        Ok(out)
    }
    pub(crate) fn one(&mut self) -> Result<Value> {
        self.take(1)?
            .first()
            .copied()
            .ok_or_else(|| "has an empty operand segment where a value is needed".into())
    }
    pub(crate) fn many(&mut self) -> Result<Vec<Value>> {
        self.take(self.rest)
    }
    pub(crate) fn optional(&mut self) -> Result<Option<Value>> {
        let all = self.take(self.rest)?;
        if all.len() > 1 {
            Err(format!("has {} values for an optional operand", all.len()).into())
        } else {
            Ok(all.first().copied())
        }
    }
    pub(crate) fn finish(self) -> Result<()> {
        if self.at == self.view.values.len() {
            Ok(())
        } else {
            Err(format!("has {} operands where {} are needed", self.view.values.len(), self.at)
                .into())
        }
    }
}

impl View {
    pub(crate) fn list(&self) -> &[(String, Attr)] {
        match &self.attrs {
            Attrs::List(l) => l,
            _ => &[],
        }
    }
}
