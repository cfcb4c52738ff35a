//! Affine maps as plain data.
use super::*;
use crate::{algebra::Expr, ops::SymKind};

/// A dimension or a symbol of an affine map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapInput {
    /// A dimension.
    Dim(usize),
    /// A symbol.
    Symbol(usize),
}

/// An expression over the dimensions and symbols of an affine map. `a ceildiv b` is
/// `(a + b - 1) floordiv b`.
pub type Affine = Expr<MapInput>;

impl Affine {
    /// A dimension.
    pub fn dim(d: usize) -> Affine {
        Expr::Leaf(MapInput::Dim(d))
    }
    /// The dimension, if it is exactly that.
    pub fn as_dim(&self) -> Option<usize> {
        if let Expr::Leaf(MapInput::Dim(d)) = self { Some(*d) } else { None }
    }
    /// The expression as MLIR folds it when it is built; `None` if it is not affine.
    pub fn folded(&self, c: Ctx) -> Option<Affine> {
        Affine::of(self.raw(c.raw()).ok()?)
    }
    fn of(e: MlirAffineExpr) -> Option<Affine> {
        unsafe {
            if mlirAffineExprIsADim(e) {
                return Some(Affine::dim(mlirAffineDimExprGetPosition(e) as usize));
            }
            if mlirAffineExprIsASymbol(e) {
                let position = mlirAffineSymbolExprGetPosition(e) as usize;
                return Some(Expr::Leaf(MapInput::Symbol(position)));
            }
            if mlirAffineExprIsAConstant(e) {
                return Some(Expr::Const(mlirAffineConstantExprGetValue(e)));
            }
            if !mlirAffineExprIsABinary(e) {
                return None;
            }
            let l = Affine::of(mlirAffineBinaryOpExprGetLHS(e))?;
            let r = Affine::of(mlirAffineBinaryOpExprGetRHS(e))?;
            Some(if mlirAffineExprIsAAdd(e) {
                Expr::apply(SymKind::Add, l, r)
            } else if mlirAffineExprIsAMul(e) {
                Expr::apply(SymKind::Mul, l, r)
            } else if mlirAffineExprIsAMod(e) {
                Expr::apply(SymKind::Mod, l, r)
            } else if mlirAffineExprIsAFloorDiv(e) {
                Expr::apply(SymKind::Floordiv, l, r)
            } else {
                let sum = match Expr::apply(SymKind::Add, r.clone(), Expr::Const(-1)) {
                    Expr::Const(k) => l.plus_constant(k),
                    less => Expr::apply(SymKind::Add, l, less),
                };
                Expr::apply(SymKind::Floordiv, sum, r)
            })
        }
    }
    /// The dividend `x` of `(x + by - 1) floordiv by`, which is `x ceildiv by`.
    fn rounded_up<'a>(&'a self, by: &'a Affine) -> Option<(&'a Affine, &'a Affine)> {
        let Expr::Apply(SymKind::Add, both) = self else { return None };
        let k = by.known().filter(|k| *k > 1)?;
        (both.1.known() == Some(k - 1)).then_some((&both.0, by))
    }
    /// Fails for minima, maxima and powers, which are no affine expressions.
    fn raw(&self, c: MlirContext) -> Result<MlirAffineExpr> {
        let (kind, both) = match self {
            Expr::Leaf(MapInput::Dim(d)) => {
                return Ok(unsafe { mlirAffineDimExprGet(c, *d as isize) });
            }
            Expr::Leaf(MapInput::Symbol(s)) => {
                return Ok(unsafe { mlirAffineSymbolExprGet(c, *s as isize) });
            }
            Expr::Const(n) => return Ok(unsafe { mlirAffineConstantExprGet(c, *n) }),
            Expr::Apply(kind, both) => (kind, both),
        };
        if let (SymKind::Floordiv, Some((l, r))) = (kind, both.0.rounded_up(&both.1)) {
            return Ok(unsafe { mlirAffineCeilDivExprGet(l.raw(c)?, r.raw(c)?) });
        }
        let (l, r) = (both.0.raw(c)?, both.1.raw(c)?);
        let make = match kind {
            SymKind::Add => mlirAffineAddExprGet,
            SymKind::Mul => mlirAffineMulExprGet,
            SymKind::Mod => mlirAffineModExprGet,
            SymKind::Floordiv => mlirAffineFloorDivExprGet,
            SymKind::Min | SymKind::Max | SymKind::Pow => {
                return Err(format!("{} is not affine", kind.keyword()).into());
            }
        };
        Ok(unsafe { make(l, r) })
    }
}

impl Attr {
    /// An affine map of this many dimensions, without symbols. Fails for an expression that is not
    /// affine, or that has a symbol or a dimension beyond `dims`.
    pub fn affine_map(c: Ctx, dims: usize, results: &[Affine]) -> Result<Attr> {
        let inside = |l: &&MapInput| matches!(l, MapInput::Dim(d) if *d < dims);
        if !results.iter().all(|e| e.leaves().iter().all(inside)) {
            return Err(format!("has an affine map with more than {dims} dimensions").into());
        }
        let mut raw = results.iter().map(|e| e.raw(c.raw())).collect::<Result<Vec<_>>>()?;
        let (n, list) = (raw.len() as isize, raw.as_mut_ptr());
        let map = unsafe { mlirAffineMapGet(c.raw(), dims as isize, 0, n, list) };
        Ok(Attr(unsafe { mlirAffineMapAttrGet(map) }))
    }
    /// The affine map `()[s0] -> (s0)`.
    pub fn identity_of_symbol(c: Ctx) -> Attr {
        unsafe {
            let mut symbol = mlirAffineSymbolExprGet(c.raw(), 0);
            Attr(mlirAffineMapAttrGet(mlirAffineMapGet(c.raw(), 0, 1, 1, &mut symbol)))
        }
    }
    /// The affine map of this many dimensions to some of them.
    pub fn projection(c: Ctx, dims: usize, onto: &[usize]) -> Result<Attr> {
        Attr::affine_map(c, dims, &onto.iter().map(|d| Affine::dim(*d)).collect::<Vec<_>>())
    }
    /// The number of dimensions and the results of an affine map.
    pub fn as_affine_map(self) -> Option<(usize, Vec<Affine>)> {
        unsafe {
            if !mlirAttributeIsAAffineMap(self.0) {
                return None;
            }
            let map = mlirAffineMapAttrGetValue(self.0);
            let results: Option<_> = (0..mlirAffineMapGetNumResults(map))
                .map(|i| Affine::of(mlirAffineMapGetResult(map, i)))
                .collect();
            Some((mlirAffineMapGetNumDims(map) as usize, results?))
        }
    }
}
