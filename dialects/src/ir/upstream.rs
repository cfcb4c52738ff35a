//! Upstream's ops and enums, generated from upstream's .td by `build/upstream/`.
//!
//! For `arith.cmpi` there is the marker [`arith::CmpI`], the function [`arith::cmpi`] that builds
//! one, and methods of [`TypedOp`] that read one:
//!
//! ```ignore
//! let less = arith::cmpi(b, CmpIPredicate::Slt, x, y)?;
//! let compare = less.def_as::<arith::CmpI>().ok_or("is no comparison")?;
//! assert!(compare.predicate() == Some(CmpIPredicate::Slt) && compare.lhs() == x);
//! ```
//!
//! Functions take what an op requires, in ODS's order: operands and attributes, result types that
//! ODS does not infer, regions. What is optional is set on a builder:
//! `llvm::Load::new(b, address, ty).alignment(16).result()?`. Words of Rust end in `_`, as in
//! MLIR's Python bindings: `scf::for_`.
use super::*;
use std::{borrow::Cow, marker::PhantomData, ops::Deref, ops::Range};

/// A type that stands for an op of one name.
pub trait OpType {
    /// The full name, such as `arith.mulf`.
    const NAME: &'static str;
    /// Whether operand groups are told apart by `operandSegmentSizes`.
    const SEGMENTS: bool;
}

/// An op whose name is known; it derefs to [`Op`].
pub struct TypedOp<T>(Op, PhantomData<T>);

impl<T> Clone for TypedOp<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for TypedOp<T> {}
impl<T> Deref for TypedOp<T> {
    type Target = Op;
    fn deref(&self) -> &Op {
        &self.0
    }
}
impl<T> From<TypedOp<T>> for Op {
    fn from(op: TypedOp<T>) -> Op {
        op.0
    }
}

impl<T: OpType> TypedOp<T> {
    /// The operands of the `group`-th of `groups` operand groups.
    fn operand_range(self, group: usize, groups: usize) -> Range<usize> {
        let count = self.operand_count();
        if !T::SEGMENTS {
            // One group takes what the single operands leave.
            return group..(group + 1 + count).saturating_sub(groups).max(group);
        }
        let sizes = self.attr("operandSegmentSizes").and_then(Attr::as_i32s).unwrap_or_default();
        let size = |n: &i32| usize::try_from(*n).unwrap_or(0);
        let start: usize = sizes.iter().take(group).map(size).sum();
        start.min(count)..(start + sizes.get(group).map_or(0, size)).min(count)
    }
}

/// An op that was built as a `T`.
fn typed<T>(op: Op) -> TypedOp<T> {
    TypedOp(op, PhantomData)
}

impl Op {
    /// Whether this is a `T`, such as `arith::MulF`.
    pub fn isa<T: OpType>(self) -> bool {
        self.is(T::NAME)
    }
    /// This op as a `T`, if it is one.
    pub fn dyn_cast<T: OpType>(self) -> Option<TypedOp<T>> {
        self.isa::<T>().then(|| typed(self))
    }
}

impl Value {
    /// The defining op, if it is a `T`.
    pub fn def_as<T: OpType>(self) -> Option<TypedOp<T>> {
        self.def()?.dyn_cast()
    }
}

/// An enum or a set of flags that attributes hold.
pub trait AttrEnum: Copy {
    /// The number.
    fn value(self) -> i64;
    /// The keyword of the assembly.
    fn keyword(self) -> Cow<'static, str>;
    /// The case of a number.
    fn from_value(value: i64) -> Option<Self>;
    /// The case of a keyword.
    fn from_keyword(keyword: &str) -> Option<Self>;
}

macro_rules! cases {
    ($(#[$doc:meta])* $name:ident { $($(#[$case:meta])* $variant:ident = $value:literal, $keyword:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$case])* $variant,)* }
        impl AttrEnum for $name {
            fn value(self) -> i64 {
                match self { $($name::$variant => $value,)* }
            }
            fn keyword(self) -> Cow<'static, str> {
                Cow::Borrowed(match self { $($name::$variant => $keyword,)* })
            }
            fn from_value(value: i64) -> Option<Self> {
                Some(match value { $($value => $name::$variant,)* _ => return None })
            }
            fn from_keyword(keyword: &str) -> Option<Self> {
                Some(match keyword { $($keyword => $name::$variant,)* _ => return None })
            }
        }
    };
}

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$case:meta])* $variant:ident = $value:literal, $keyword:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(i64);
        impl $name {
            $($(#[$case])* pub const $variant: $name = $name($value);)*
            /// The flags of both.
            pub const fn or(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
            /// Whether all of these flags are set.
            pub fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }
        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.or(other)
            }
        }
        impl AttrEnum for $name {
            fn value(self) -> i64 {
                self.0
            }
            fn keyword(self) -> Cow<'static, str> {
                flag_keywords(self.0, &[$(($value, $keyword),)*])
            }
            fn from_value(value: i64) -> Option<Self> {
                Some($name(value))
            }
            fn from_keyword(keyword: &str) -> Option<Self> {
                flag_values(keyword, &[$(($value, $keyword),)*]).map($name)
            }
        }
    };
}

fn flag_keywords(bits: i64, cases: &[(i64, &'static str)]) -> Cow<'static, str> {
    if let Some((_, keyword)) = cases.iter().find(|(n, _)| *n == bits) {
        return Cow::Borrowed(keyword);
    }
    let set = cases.iter().filter(|(n, _)| n.count_ones() == 1 && bits & n != 0);
    Cow::Owned(set.map(|(_, k)| *k).collect::<Vec<_>>().join(","))
}

fn flag_values(keywords: &str, cases: &[(i64, &str)]) -> Option<i64> {
    let one = |k: &str| cases.iter().find(|(_, keyword)| *keyword == k.trim()).map(|(n, _)| *n);
    keywords.split(',').try_fold(0, |all, k| Some(all | one(k)?))
}

impl FastMathFlags {
    /// The flags of an arith or math op.
    pub fn of(op: Op) -> Option<FastMathFlags> {
        read_keyword(op.attr("fastmath")?, "#arith.fastmath<", ">")
    }
    /// The attribute.
    pub fn attr(self, c: Ctx) -> Result<Attr> {
        keyword(c, "#arith.fastmath<", self, ">")
    }
}

/// An enum's attribute. The C API has no constructor for these, so the text is parsed.
fn keyword<E: AttrEnum>(c: Ctx, prefix: &str, case: E, suffix: &str) -> Result<Attr> {
    let text = [prefix, &case.keyword(), suffix].concat();
    Attr::parse(c, &text).ok_or_else(|| format!("'{text}' is no attribute").into())
}

fn keywords<E: AttrEnum>(c: Ctx, prefix: &str, cases: &[E], suffix: &str) -> Result<Attr> {
    let all: Result<Vec<Attr>> = cases.iter().map(|e| keyword(c, prefix, *e, suffix)).collect();
    Ok(Attr::array(c, &all?))
}

fn read_number<E: AttrEnum>(a: Attr) -> Option<E> {
    E::from_value(a.as_i64()?)
}

fn read_keyword<E: AttrEnum>(a: Attr, prefix: &str, suffix: &str) -> Option<E> {
    E::from_keyword(a.to_string().strip_prefix(prefix)?.strip_suffix(suffix)?)
}

fn read_keywords<E: AttrEnum>(a: Attr, prefix: &str, suffix: &str) -> Option<Vec<E>> {
    a.as_array()?.into_iter().map(|a| read_keyword(a, prefix, suffix)).collect()
}

/// Operands, types and attributes of an op under construction.
struct Parts {
    operands: Vec<Value>,
    groups: Vec<i32>,
    types: Vec<Type>,
    attrs: Vec<(&'static str, Attr)>,
}

impl Parts {
    fn operand(&mut self, v: Value) {
        self.operands.push(v);
        self.groups.push(1);
    }
    fn operands(&mut self, v: &[Value]) {
        self.operands.extend_from_slice(v);
        self.groups.push(v.len() as i32);
    }
    fn sizes(&mut self, name: &'static str, c: Ctx, sizes: &[Size]) {
        let before = self.operands.len();
        let known = |s: &Size| match s {
            Size::Static(n) => *n,
            Size::Dynamic(v) => {
                self.operands.push(*v);
                Size::DYNAMIC
            }
        };
        let known: Vec<i64> = sizes.iter().map(known).collect();
        self.groups.push((self.operands.len() - before) as i32);
        self.attr(name, Attr::i64s(c, &known));
    }
    fn attr(&mut self, name: &'static str, a: Attr) {
        self.attrs.push((name, a));
    }
    fn ty(&mut self, t: Type) {
        self.types.push(t);
    }
    fn types(&mut self, t: &[Type]) {
        self.types.extend_from_slice(t);
    }
}

/// Builds a `T` with optional operands, attributes and regions.
pub struct OpBuilder<'r, T> {
    builder: Builder,
    parts: Result<Parts>,
    regions: Vec<Option<RegionBody<'r>>>,
    op: PhantomData<T>,
}

impl<'r, T: OpType> OpBuilder<'r, T> {
    fn start(
        builder: Builder,
        regions: usize,
        fill: impl FnOnce(Ctx, &mut Parts) -> Result<()>,
    ) -> Self {
        let mut parts = Parts { operands: vec![], groups: vec![], types: vec![], attrs: vec![] };
        let parts = fill(builder.ctx, &mut parts).map(|()| parts);
        let regions = (0..regions).map(|_| None).collect();
        OpBuilder { builder, parts, regions, op: PhantomData }
    }
    fn set(mut self, set: impl FnOnce(Ctx, &mut Parts) -> Result<()>) -> Self {
        self.parts =
            self.parts.and_then(|mut parts| set(self.builder.ctx, &mut parts).map(|()| parts));
        self
    }
    /// Sets an optional operand, which is a group of its own.
    fn set_operand(self, group: usize, v: Value) -> Self {
        self.set(|_, s| {
            let at: i32 = s.groups.iter().take(group).sum();
            s.operands.insert(at as usize, v);
            s.groups[group] = 1;
            Ok(())
        })
    }
    fn set_attr(self, name: &'static str, a: impl FnOnce(Ctx) -> Result<Attr>) -> Self {
        self.set(|c, s| {
            s.attr(name, a(c)?);
            Ok(())
        })
    }
    fn set_unit(self, name: &'static str, on: bool) -> Self {
        if on { self.set_attr(name, |c| Ok(Attr::unit(c))) } else { self }
    }
    fn set_region(mut self, i: usize, body: RegionBody<'r>) -> Self {
        self.regions[i] = Some(body);
        self
    }
    /// Sets an attribute that is not of the op's own, such as `kiln.…`.
    pub fn with_attr(self, name: &'static str, a: Attr) -> Self {
        self.set_attr(name, |_| Ok(a))
    }
    /// Builds the op.
    pub fn build(mut self) -> Result<TypedOp<T>> {
        let mut parts = self.parts?;
        if T::SEGMENTS {
            parts.attr("operandSegmentSizes", Attr::i32s(self.builder.ctx, &parts.groups));
        }
        let Parts { operands, types, attrs, .. } = parts;
        let op =
            self.builder.with_regions(T::NAME, &operands, &types, &attrs, &mut self.regions)?;
        Ok(typed(op))
    }
    /// Builds the op; its first result.
    pub fn result(self) -> Result<Value> {
        let op = self.build()?;
        if op.result_count() == 0 {
            return Err(Error::internal(format!("'{}' op has no result", T::NAME)));
        }
        Ok(op.result(0))
    }
}

include!(concat!(env!("OUT_DIR"), "/dialects.rs"));
