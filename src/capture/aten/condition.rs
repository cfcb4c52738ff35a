//! Assertions and comparisons. Comparisons of sizes become `kiln.require`, a runtime check of every
//! call. Assertions on tensor values are data-dependent and not checked.
use super::{Args, Cx, Outcome, Row, Val};
use kiln_dialects::{ir::*, ops::*, sym};

macro_rules! nothing {
    ($name:literal) => {
        Row { name: $name, arguments: "…", build: |_, _| Ok(Outcome::Many(vec![])) }
    };
}
macro_rules! comparison {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "a, b",
            build: |cx, a| Ok(Outcome::One(compare(cx, a, CompareKind::$kind)?)),
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    nothing!("aten._assert_tensor_metadata.default"),
    nothing!("aten._assert_async.msg"),
    Row {
        name: "aten._assert_scalar.default",
        arguments: "self, assert_msg",
        build: assert_scalar,
    },
    Row {
        name: "aten.sym_constrain_range_for_size.default",
        arguments: "size, min=None, max=None",
        build: constrain_range,
    },
    Row {
        name: "aten.sym_constrain_range.default",
        arguments: "size, min=None, max=None",
        build: constrain_range,
    },
    Row {
        name: "torch.sym_not",
        arguments: "a",
        build: |_, a| {
            Ok(Outcome::One(match a.values.get("a") {
                Some(Val::Condition(kind, x, y)) => Val::Condition(sym::opposite(*kind), *x, *y),
                Some(Val::Bool(b)) => Val::Bool(!b),
                _ => Val::None,
            }))
        },
    },
    comparison!("_operator.ge", Ge),
    comparison!("_operator.le", Le),
    comparison!("_operator.gt", Gt),
    comparison!("_operator.lt", Lt),
    comparison!("_operator.eq", Eq),
    comparison!("_operator.ne", Ne),
];

/// A comparison of two numbers; nothing for anything else, such as a tensor's value.
fn compare(cx: &Cx, a: &Args<'_>, kind: CompareKind) -> Result<Val> {
    match (a.get("a"), a.get("b")) {
        (Some(x), Some(y)) => cx.compared(kind, x, y),
        _ => Ok(Val::None),
    }
}

impl Cx {
    /// Emits a runtime check with its message and the user's source line.
    pub fn require(&self, kind: CompareKind, x: Size, y: Size, words: &str) -> Result<()> {
        let value = |s: Size| match s {
            Size::Static(n) => self.b.index(n),
            Size::Dynamic(v) => Ok(v),
        };
        let message = format!("{words} ({})", self.location);
        self.b
            .create_with(&Require { kind, lhs: value(x)?, rhs: value(y)?, message }, &[], &mut [])
            .map(|_| ())
    }
}

impl Cx {
    /// Emits a runtime check that a tensor of these sizes expands to equal ones: exports specialise
    /// on 1.
    pub(super) fn require_equal(&self, sizes: &[Size], expanded: &[Size]) -> Result<()> {
        for (own, to) in sizes.iter().zip(expanded) {
            if own != to && (own.known().is_none() || to.known().is_none()) {
                self.require(CompareKind::Eq, *own, *to, "an expanded size must be equal")?;
            }
        }
        Ok(())
    }
}

fn assert_scalar(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let message = a.text("assert_msg", "")?;
    // The export's message: Runtime assertion failed for expression s77 < 40 on node 'lt_1'.
    let words =
        message.strip_prefix("Runtime assertion failed for expression ").unwrap_or(&message);
    let words = words.rsplit_once(" on node ").map_or(words, |(w, _)| w);
    match a.values.get("self") {
        Some(Val::Condition(kind, x, y)) => cx.require(*kind, *x, *y, words)?,
        Some(Val::Bool(false)) => return Err(format!("{words}: never holds").into()),
        _ => {}
    }
    Ok(Outcome::Many(vec![]))
}

fn constrain_range(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let names = if a.has("size") { "size" } else { "symbol" };
    // A constant, or data-dependent.
    let Ok(size @ Size::Dynamic(_)) = a.size(names) else { return Ok(Outcome::Many(vec![])) };
    for (name, kind, sign) in [("min", CompareKind::Ge, ">="), ("max", CompareKind::Le, "<=")] {
        if a.has(name) {
            let bound = a.int(name, None)?;
            cx.require(kind, size, Size::Static(bound), &format!("a size {sign} {bound}"))?;
        }
    }
    Ok(Outcome::Many(vec![]))
}
