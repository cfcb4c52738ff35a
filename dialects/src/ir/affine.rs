//! Affine maps as plain data.
use super::*;

/// An expression over the dimensions of an affine map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affine {
    /// A dimension.
    Dim(usize),
    /// A symbol.
    Symbol(usize),
    /// A constant.
    Const(i64),
    /// A sum.
    Add(Box<Affine>, Box<Affine>),
    /// A product.
    Mul(Box<Affine>, Box<Affine>),
    /// A remainder (non-negative).
    Mod(Box<Affine>, Box<Affine>),
    /// Floor division.
    FloorDiv(Box<Affine>, Box<Affine>),
    /// Ceiling division.
    CeilDiv(Box<Affine>, Box<Affine>),
}

impl Affine {
    fn of(e: MlirAffineExpr) -> Option<Affine> {
        unsafe {
            if mlirAffineExprIsADim(e) {
                return Some(Affine::Dim(mlirAffineDimExprGetPosition(e) as usize));
            }
            if mlirAffineExprIsASymbol(e) {
                return Some(Affine::Symbol(mlirAffineSymbolExprGetPosition(e) as usize));
            }
            if mlirAffineExprIsAConstant(e) {
                return Some(Affine::Const(mlirAffineConstantExprGetValue(e)));
            }
            if !mlirAffineExprIsABinary(e) {
                return None;
            }
            let l = Box::new(Affine::of(mlirAffineBinaryOpExprGetLHS(e))?);
            let r = Box::new(Affine::of(mlirAffineBinaryOpExprGetRHS(e))?);
            Some(if mlirAffineExprIsAAdd(e) {
                Affine::Add(l, r)
            } else if mlirAffineExprIsAMul(e) {
                Affine::Mul(l, r)
            } else if mlirAffineExprIsAMod(e) {
                Affine::Mod(l, r)
            } else if mlirAffineExprIsAFloorDiv(e) {
                Affine::FloorDiv(l, r)
            } else {
                Affine::CeilDiv(l, r)
            })
        }
    }
}

impl Attr {
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
