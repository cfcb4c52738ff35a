//! Overloads whose results' sizes depend on data: each such size is a symbol that
//! `kiln.unbacked_size` binds.
use super::{Args, Cx, Outcome, Row, Val, index::ranks, tools::*};
use kiln_dialects::{ir::*, ops::*, rules::UNBOUNDED, sym::Dim, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.nonzero.default", arguments: "self", build: nonzero },
    Row { name: "aten.argwhere.default", arguments: "self", build: nonzero },
    Row { name: "aten.nonzero_numpy.default", arguments: "self", build: nonzero_vectors },
    Row { name: "aten.where.default", arguments: "condition", build: nonzero_vectors },
    Row { name: "aten.masked_select.default", arguments: "self, mask", build: masked_select },
    Row {
        name: "aten.nonzero_static.default",
        arguments: "self, size, fill_value=-1",
        build: nonzero_static,
    },
    Row {
        name: "aten.bincount.default",
        arguments: "self, weights=None, minlength=0",
        build: bincount,
    },
    Row { name: "aten.item.default", arguments: "self", build: item },
    Row { name: "aten._local_scalar_dense.default", arguments: "self", build: item },
];

impl Cx {
    /// A size that a 0-d i64 tensor has as its value, at most `max`.
    pub fn unbacked(&mut self, value: Value, max: Size) -> Result<Size> {
        if self.unbacked.inside > 0 {
            let reason = "makes a size that depends on data inside of control flow";
            return Err(crate::capture::unsupported(reason));
        }
        let n = self.unbacked.values.len();
        let fresh = self.unbacked.fresh.pop_front();
        let (name, (least, greatest)) =
            fresh.unwrap_or_else(|| (format!("unbacked_{n}"), (None, None)));
        let max = match greatest {
            Some(most) => self.size_min(max, Size::Static(most))?,
            None => max,
        };
        let empty = Type::tensor(self.b.ctx, DType::I8, &[Dim::Unknown, Dim::Known(0)]);
        let bound = UnbackedSize { name: name.clone(), value, max: vec![max] };
        self.b.create_with(&bound, &[empty], &mut [])?;
        let min = least.unwrap_or(0).max(0);
        let symbol = Sym { name: name.clone(), min, max: None, divisor: 1 };
        let here = self.b.at(self.b.loc.named(&name));
        let size = here.create_with(&symbol, &[Type::index(self.b.ctx)], &mut [])?.result(0);
        self.unbacked.values.push((name.clone(), value));
        self.unbacked.symbols.push((name, size));
        Ok(Size::Dynamic(size))
    }

    /// The positions of a vector's true elements, ascending, and their number: an i64 vector of one
    /// element more than the mask's `n`, which is `n` beyond them, and a 0-d i64.
    pub(super) fn positions(&self, mask: Value) -> Result<(Value, Value)> {
        let n = self.b.size_of(mask, 0)?;
        let ones = self.convert(mask, DType::I64)?;
        let total = self.reduced(ReduceKind::Sum, ones, &[0])?;
        // Elements that are false go to the last place, which is set again.
        let places = self.select(mask, ranks(self, mask)?, self.size_value(n)?)?;
        let room = self.size_add(n, Size::Static(1))?;
        let end = self.spread(self.size_value(n)?, &[], &[room])?;
        let found = self.scattered(ScatterKind::Assign, end, self.count(n)?, places, 0)?;
        let inside = self.compare(CompareKind::Lt, self.count(room)?, total)?;
        Ok((self.select(inside, found, end)?, total))
    }

    /// Coordinates of the true elements of a mask in row-major order, a vector for each dimension.
    pub fn coordinates_of(&mut self, mask: Value) -> Result<Vec<Value>> {
        let sizes = self.b.sizes_of(mask)?;
        let flat = self.flat(mask)?;
        let (found, total) = self.positions(flat)?;
        let count = self.unbacked(total, self.b.size_of(flat, 0)?)?;
        let places = self.part(found, 0, Size::Static(0), count)?;
        self.coordinates(places, &sizes)
    }
    /// The coordinates of places in a row-major tensor, a vector for each dimension.
    fn coordinates(&self, mut rest: Value, sizes: &[Size]) -> Result<Vec<Value>> {
        let mut all = vec![];
        for size in sizes.iter().rev() {
            let size = self.size_value(*size)?;
            all.push(self.binary(BinaryKind::Rem, rest, size)?);
            rest = self.binary(BinaryKind::Div, rest, size)?;
        }
        all.reverse();
        Ok(all)
    }
}

fn nonzero(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mask = cx.operand(a, "self", DType::I1)?;
    if rank_of(mask) == 0 {
        // One row without coordinates, or none.
        let total = cx.convert(mask, DType::I64)?;
        let count = cx.unbacked(total, Size::Static(1))?;
        let v = cx.b.splat(DType::I64, &[count, Size::Static(0)], 0.0)?;
        return cx.one(v);
    }
    let all = cx.coordinates_of(mask)?;
    let all = all.into_iter().map(|v| cx.unsqueezed(v, 1)).collect::<Result<Vec<_>>>()?;
    let v = cx.joined(all, 1)?;
    cx.one(v)
}

/// The coordinates of the first `size` elements that are not 0, padded.
fn nonzero_static(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mask = cx.operand(a, "self", DType::I1)?;
    let (size, fill) = (a.size("size")?, a.int("fill_value", Some(-1))?);
    if rank_of(mask) == 0 {
        let v = cx.b.splat(DType::I64, &[size, Size::Static(0)], 0.0)?;
        return cx.one(v);
    }
    let (found, total) = cx.positions(cx.flat(mask)?)?;
    let rank = cx.count(size)?;
    let end = cx.size_value(cx.numel(mask)?)?;
    let places = cx.take_axis(found, cx.binary(BinaryKind::Min, rank, end)?, 0)?;
    let inside = cx.compare(CompareKind::Lt, rank, total)?;
    let fill = cx.integer(DType::I64, fill)?;
    // A dimension without elements has no coordinates, and nothing is inside.
    let sizes = cx.b.sizes_of(mask)?;
    let sizes = sizes.iter().map(|n| cx.size_max(*n, Size::Static(1)));
    let all = cx.coordinates(places, &sizes.collect::<Result<Vec<_>>>()?)?;
    let padded = |at: Value| cx.unsqueezed(cx.select(inside, at, fill)?, 1);
    let v = cx.joined(all.into_iter().map(padded).collect::<Result<Vec<_>>>()?, 1)?;
    cx.one(v)
}

/// How often each number from 0 on occurs, or the sums of the weights: at least `minlength` results.
fn bincount(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let least = if a.has("minlength") { a.size("minlength")? } else { Size::Static(0) };
    if rank_of(x) != 1 || !dtype_of(x)?.is_int() {
        return Err("bincount only supports 1-d non-negative integral inputs.".into());
    }
    if least.known().is_some_and(|n| n < 0) {
        return Err("minlength should be >= 0".into());
    }
    let n = cx.b.size_of(x, 0)?;
    if n.known() == Some(0) {
        let v = cx.b.splat(DType::I64, &[least], 0.0)?;
        return cx.one(v);
    }
    let at = cx.convert(x, DType::I64)?;
    let most = cx.reduced(ReduceKind::Max, at, &[0])?;
    let beyond = cx.binary(BinaryKind::Add, most, cx.integer(DType::I64, 1)?)?;
    let count = cx.binary(BinaryKind::Max, beyond, cx.size_value(least)?)?;
    let room = match dtype_of(x)? {
        d if d.bits() < 32 => cx.size_max(least, Size::Static(1 << d.bits()))?,
        _ => Size::Static(UNBOUNDED),
    };
    let count = cx.unbacked(count, room)?;
    let weights = match cx.optional(a, "weights")? {
        Some(w) if dtype_of(w)? == DType::F32 => w,
        Some(w) => cx.convert(w, DType::F64)?,
        None => cx.b.splat(DType::I64, &[n], 1.0)?,
    };
    let none = cx.b.splat(dtype_of(weights)?, &[count], 0.0)?;
    let v = cx.scattered(ScatterKind::Add, none, weights, at, 0)?;
    cx.one(v)
}

fn nonzero_vectors(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.operand(a, if a.has("self") { "self" } else { "condition" }, DType::I1)?;
    let mask = cx.vector(x)?;
    let all = cx.coordinates_of(mask)?;
    cx.many(&all)
}

fn masked_select(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, mask) = (cx.tensor(a, "self")?, cx.tensor(a, "mask")?);
    if dtype_of(mask)? != DType::I1 {
        return Err("masked_select: expected BoolTensor for mask".into());
    }
    let (x, mask) = cx.broadcast(x, mask)?;
    let (x, mask) = (cx.flat(x)?, cx.flat(mask)?);
    let at = cx.coordinates_of(mask)?;
    let v = cx.take_axis(x, at[0], 0)?;
    cx.one(v)
}

/// The value of a tensor of one element: an integer that cannot be negative is a size.
fn item(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let x = cx.reshape(x, vec![])?;
    let size =
        cx.unbacked.fresh.front().is_some_and(|(_, (least, _))| least.is_some_and(|n| n >= 0));
    if d.is_int() && size {
        let value = cx.convert(x, DType::I64)?;
        return Ok(Outcome::One(Val::Int(cx.unbacked(value, Size::Static(UNBOUNDED))?)));
    }
    Ok(Outcome::One(Val::Number(cx.store.fresh(x), d)))
}
