//! Builds the score function as a region of `kiln.attention`.
use crate::{
    decompose::tools::Math,
    raise_attention::{
        place::{Place, Position},
        product::Replaced,
        score::Term,
    },
};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// Tensors that a score function reads, without their unit dimensions. Built before the attention.
pub(super) fn captured(
    m: &Math<'_>,
    terms: &[(Term, DType)],
    replaced: &Replaced,
) -> Result<Vec<Option<Value>>> {
    let one = |(term, _): &(Term, DType)| -> Result<Option<Value>> {
        let Term::Read(v, _) = term else { return Ok(None) };
        let v = replaced.get(*v);
        let dims = v.ty().dims();
        if dims.iter().all(|d| *d != Dim::Known(1)) {
            return Ok(Some(v));
        }
        let wide = (0..dims.len()).filter(|i| dims[*i] != Dim::Known(1));
        let sizes = wide.map(|i| m.size_of(v, i)).collect::<Result<Vec<_>>>()?;
        m.reshape(v, &sizes).map(Some)
    };
    terms.iter().map(one).collect()
}

/// Fills the region's block with the terms and yields the last.
pub(super) fn fill(
    m: &Math<'_>,
    terms: &[(Term, DType)],
    captured: &[Option<Value>],
    score: Value,
    position: &Position<'_>,
) -> Result<()> {
    let b = m.b;
    let mut made: Vec<Value> = vec![];
    for (n, (term, d)) in terms.iter().enumerate() {
        let of = |all: &[usize]| all.iter().map(|i| made[*i]).collect::<Vec<_>>();
        let v = match term {
            Term::Score => score,
            Term::Index(place) => position.build(m, place)?,
            Term::Float(x) => b.splat(*d, &[], *x)?,
            Term::Int(x) => {
                b.add(&Splat { value: Attr::scalar_int(b.ctx, *d, *x), sizes: vec![] })?
            }
            Term::Read(v, at) => {
                let input = captured[n].ok_or("reads no tensor")?;
                let dims = v.ty().dims();
                let wide: Vec<&Place> =
                    (0..dims.len()).filter(|i| dims[*i] != Dim::Known(1)).map(|i| &at[i]).collect();
                let indices: Vec<Value> =
                    wide.iter().map(|p| position.build(m, p)).collect::<Result<_>>()?;
                let dims = (0..indices.len() as i64).collect();
                if indices.is_empty() { input } else { b.add(&Gather { input, indices, dims })? }
            }
            Term::Apply(op, all) => {
                let (attrs, ty) = (op.attrs(), Type::tensor(b.ctx, *d, &[]));
                let attrs: Vec<(&str, Attr)> =
                    attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
                b.at(op.loc()).generic(&op.name(), &of(all), &[ty], &attrs, &mut [])?.result(0)
            }
            Term::Compare(kind, x, y) => m.compare(*kind, made[*x], made[*y])?,
            Term::Select([c, x, y]) => m.select(made[*c], made[*x], made[*y])?,
            Term::Logic(kind, all) => {
                let ty = Type::tensor(b.ctx, DType::I1, &[]);
                b.generic(kind.name(), &of(all), &[ty], &[], &mut [])?.result(0)
            }
            Term::Convert(x) => m.convert(made[*x], *d)?,
        };
        made.push(v);
    }
    let last = *made.last().ok_or("has no score")?;
    b.generic(OpKind::Yield.name(), &[last], &[], &[], &mut []).map(drop)
}
