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

impl Affine {
    fn raw(&self, c: MlirContext) -> MlirAffineExpr {
        let two = |l: &Affine, r: &Affine| (l.raw(c), r.raw(c));
        unsafe {
            match self {
                Affine::Dim(d) => mlirAffineDimExprGet(c, *d as isize),
                Affine::Symbol(s) => mlirAffineSymbolExprGet(c, *s as isize),
                Affine::Const(n) => mlirAffineConstantExprGet(c, *n),
                Affine::Add(l, r) => {
                    let (l, r) = two(l, r);
                    mlirAffineAddExprGet(l, r)
                }
                Affine::Mul(l, r) => {
                    let (l, r) = two(l, r);
                    mlirAffineMulExprGet(l, r)
                }
                Affine::Mod(l, r) => {
                    let (l, r) = two(l, r);
                    mlirAffineModExprGet(l, r)
                }
                Affine::FloorDiv(l, r) => {
                    let (l, r) = two(l, r);
                    mlirAffineFloorDivExprGet(l, r)
                }
                Affine::CeilDiv(l, r) => {
                    let (l, r) = two(l, r);
                    mlirAffineCeilDivExprGet(l, r)
                }
            }
        }
    }
}

impl Affine {
    /// The expression as MLIR folds it when it is built.
    pub fn folded(&self, c: Ctx) -> Option<Affine> {
        Affine::of(self.raw(c.raw()))
    }
    /// The expression with each dimension replaced.
    pub fn with_dims(&self, to: &dyn Fn(usize) -> Affine) -> Affine {
        let two = |l: &Affine, r: &Affine| (Box::new(l.with_dims(to)), Box::new(r.with_dims(to)));
        let make = |of: fn(Box<Affine>, Box<Affine>) -> Affine, (l, r)| of(l, r);
        match self {
            Affine::Dim(d) => to(*d),
            Affine::Symbol(_) | Affine::Const(_) => self.clone(),
            Affine::Add(l, r) => make(Affine::Add, two(l, r)),
            Affine::Mul(l, r) => make(Affine::Mul, two(l, r)),
            Affine::Mod(l, r) => make(Affine::Mod, two(l, r)),
            Affine::FloorDiv(l, r) => make(Affine::FloorDiv, two(l, r)),
            Affine::CeilDiv(l, r) => make(Affine::CeilDiv, two(l, r)),
        }
    }
}

impl Attr {
    /// An affine map of this many dimensions, without symbols.
    pub fn affine_map(c: Ctx, dims: usize, results: &[Affine]) -> Attr {
        let mut raw: Vec<_> = results.iter().map(|e| e.raw(c.raw())).collect();
        let (n, list) = (raw.len() as isize, raw.as_mut_ptr());
        Attr(unsafe { mlirAffineMapAttrGet(mlirAffineMapGet(c.raw(), dims as isize, 0, n, list)) })
    }
    /// The affine map of this many dimensions to some of them.
    pub fn projection(c: Ctx, dims: usize, onto: &[usize]) -> Attr {
        Attr::affine_map(c, dims, &onto.iter().map(|d| Affine::Dim(*d)).collect::<Vec<_>>())
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
