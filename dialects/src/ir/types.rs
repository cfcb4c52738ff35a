//! Types.
use super::*;
use crate::{ffi, ops::FragmentLayout, sym::Dim, value::DType};

/// An MLIR type.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Type(pub(crate) MlirType);

impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        unsafe { mlirTypeEqual(self.0, other.0) }
    }
}
impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(|cb, d| unsafe { mlirTypePrint(self.0, cb, d) }))
    }
}
impl std::fmt::Debug for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Type {
    /// Parses a type.
    pub fn parse(c: Ctx, s: &str) -> Option<Type> {
        let t = unsafe { mlirTypeParseGet(c.raw(), sref(s)) };
        (!t.ptr.is_null()).then_some(Type(t))
    }
    /// `index`.
    pub fn index(c: Ctx) -> Type {
        Type(unsafe { mlirIndexTypeGet(c.raw()) })
    }
    /// A signless integer of this many bits.
    pub fn integer(c: Ctx, bits: u32) -> Type {
        Type(unsafe { mlirIntegerTypeGet(c.raw(), bits) })
    }
    /// `i1` in the shape of this type: what a comparison of such values gives.
    pub fn with_i1(self) -> Type {
        unsafe {
            let i1 = mlirIntegerTypeGet(mlirTypeGetContext(self.0), 1);
            Type(i1).in_shape_of(self)
        }
    }
    /// This scalar type in the shape of another type: a scalar, vector or tensor.
    pub fn in_shape_of(self, other: Type) -> Type {
        unsafe {
            let (element, other) = (self.0, other.0);
            if !mlirTypeIsAVector(other) && !mlirTypeIsARankedTensor(other) {
                return self;
            }
            let rank = mlirShapedTypeGetRank(other) as isize;
            let sizes: Vec<i64> = (0..rank).map(|i| mlirShapedTypeGetDimSize(other, i)).collect();
            if mlirTypeIsARankedTensor(other) {
                let encoding = mlirRankedTensorTypeGetEncoding(other);
                return Type(mlirRankedTensorTypeGet(rank, sizes.as_ptr(), element, encoding));
            }
            let scalable: Vec<bool> =
                (0..rank).map(|i| mlirVectorTypeIsDimScalable(other, i)).collect();
            Type(mlirVectorTypeGetScalable(rank, sizes.as_ptr(), scalable.as_ptr(), element))
        }
    }
    /// The element type of a dtype.
    pub fn scalar(c: Ctx, dtype: DType) -> Type {
        let c = c.raw();
        Type(unsafe {
            match dtype {
                DType::F64 => mlirF64TypeGet(c),
                DType::F32 => mlirF32TypeGet(c),
                DType::F16 => mlirF16TypeGet(c),
                DType::BF16 => mlirBF16TypeGet(c),
                DType::F8E4M3FN => mlirFloat8E4M3FNTypeGet(c),
                DType::F8E5M2 => mlirFloat8E5M2TypeGet(c),
                DType::I64 => mlirIntegerTypeGet(c, 64),
                DType::I32 => mlirIntegerTypeGet(c, 32),
                DType::I16 => mlirIntegerTypeGet(c, 16),
                DType::I8 => mlirIntegerTypeGet(c, 8),
                DType::UI8 => mlirIntegerTypeUnsignedGet(c, 8),
                DType::I1 => mlirIntegerTypeGet(c, 1),
            }
        })
    }
    /// `tensor<…>`; dynamic dimensions become `?`.
    pub fn tensor(c: Ctx, dtype: DType, dims: &[Dim]) -> Type {
        let sizes: Vec<i64> = dims
            .iter()
            .map(|d| d.known().unwrap_or(unsafe { mlirShapedTypeGetDynamicSize() }))
            .collect();
        Type(unsafe {
            mlirRankedTensorTypeGet(
                sizes.len() as isize,
                sizes.as_ptr(),
                Type::scalar(c, dtype).0,
                mlirAttributeGetNull(),
            )
        })
    }
    /// A row-major `memref<…>`; dynamic dimensions become `?`.
    pub fn memref(element: Type, dims: &[Dim]) -> Type {
        Type::memref_of(element, dims, unsafe { mlirAttributeGetNull() })
    }
    fn memref_of(element: Type, dims: &[Dim], space: MlirAttribute) -> Type {
        let sizes: Vec<i64> = dims
            .iter()
            .map(|d| d.known().unwrap_or(unsafe { mlirShapedTypeGetDynamicSize() }))
            .collect();
        Type(unsafe {
            mlirMemRefTypeContiguousGet(element.0, sizes.len() as isize, sizes.as_ptr(), space)
        })
    }
    /// `vector<lanes x element>`.
    pub fn vector(element: Type, lanes: usize) -> Type {
        let sizes = [lanes as i64];
        Type(unsafe { mlirVectorTypeGet(1, sizes.as_ptr(), element.0) })
    }
    /// A function type.
    pub fn function(c: Ctx, inputs: &[Type], results: &[Type]) -> Type {
        let raw = |l: &[Type]| l.iter().map(|t| t.0).collect::<Vec<_>>();
        let (i, r) = (raw(inputs), raw(results));
        Type(unsafe {
            mlirFunctionTypeGet(c.raw(), i.len() as isize, i.as_ptr(), r.len() as isize, r.as_ptr())
        })
    }
    /// The inputs and results of a function type.
    pub fn signature(self) -> Option<(Vec<Type>, Vec<Type>)> {
        unsafe {
            mlirTypeIsAFunction(self.0).then(|| {
                let inputs = (0..mlirFunctionTypeGetNumInputs(self.0))
                    .map(|i| Type(mlirFunctionTypeGetInput(self.0, i)));
                let results = (0..mlirFunctionTypeGetNumResults(self.0))
                    .map(|i| Type(mlirFunctionTypeGetResult(self.0, i)));
                (inputs.collect(), results.collect())
            })
        }
    }
    /// The context.
    pub fn ctx(self) -> Ctx {
        Ctx(unsafe { mlirTypeGetContext(self.0) }.ptr)
    }
    /// The sizes of a vector of fixed length.
    pub fn vector_sizes(self) -> Option<Vec<i64>> {
        unsafe {
            if !mlirTypeIsAVector(self.0) || mlirVectorTypeIsScalable(self.0) {
                return None;
            }
            let rank = mlirShapedTypeGetRank(self.0) as isize;
            Some((0..rank).map(|i| mlirShapedTypeGetDimSize(self.0, i)).collect())
        }
    }
    /// `tf32`, which only TMA descriptors name.
    pub fn tf32(c: Ctx) -> Type {
        Type(unsafe { mlirTF32TypeGet(c.raw()) })
    }
    /// Whether it is a vector of any rank.
    pub fn is_vector(self) -> bool {
        unsafe { mlirTypeIsAVector(self.0) }
    }
    /// The memory space of a memref, if it is a number.
    pub fn memory_space(self) -> Option<i64> {
        unsafe { self.is_memref().then(|| Attr::some(mlirMemRefTypeGetMemorySpace(self.0)))? }
            .and_then(Attr::as_i64)
    }
    /// A row-major `memref<…>` in this memory space.
    pub fn memref_in(element: Type, dims: &[Dim], space: i64) -> Type {
        let space = Attr::int(element.ctx(), 64, space);
        Type::memref_of(element, dims, space.0)
    }
    /// `!llvm.ptr<space>`.
    pub fn llvm_ptr(c: Ctx, space: u32) -> Type {
        Type(unsafe { mlirLLVMPointerTypeGet(c.raw(), space) })
    }
    /// `!llvm.array<count x element>`.
    pub fn llvm_array(element: Type, count: usize) -> Type {
        Type(unsafe { mlirLLVMArrayTypeGet(element.0, count as u32) })
    }
    /// `!llvm.struct<(…)>`.
    pub fn llvm_struct(c: Ctx, fields: &[Type]) -> Type {
        let raw = fields.as_ptr().cast();
        Type(unsafe { mlirLLVMStructTypeLiteralGet(c.raw(), fields.len() as isize, raw, false) })
    }
    /// Whether it is `index`.
    pub fn is_index(self) -> bool {
        unsafe { mlirTypeIsAIndex(self.0) }
    }
    /// Whether it is a ranked tensor of any element type.
    pub fn is_tensor(self) -> bool {
        unsafe { mlirTypeIsARankedTensor(self.0) }
    }
    /// Whether it is a ranked memref.
    pub fn is_memref(self) -> bool {
        unsafe { mlirTypeIsAMemRef(self.0) }
    }
    /// Whether it is a dense row-major memref.
    pub fn is_contiguous_memref(self) -> bool {
        unsafe { self.is_memref() && mlirAffineMapIsIdentity(mlirMemRefTypeGetAffineMap(self.0)) }
    }
    /// The dtype of a scalar type. Err: why there is none.
    pub fn dtype(self) -> Result<DType> {
        let found = unsafe {
            let t = self.0;
            if mlirTypeIsAInteger(t) {
                match (
                    mlirIntegerTypeGetWidth(t),
                    mlirIntegerTypeIsSignless(t),
                    mlirIntegerTypeIsUnsigned(t),
                ) {
                    (64, true, _) => Some(DType::I64),
                    (32, true, _) => Some(DType::I32),
                    (16, true, _) => Some(DType::I16),
                    (8, true, _) => Some(DType::I8),
                    (1, true, _) => Some(DType::I1),
                    (8, _, true) => Some(DType::UI8),
                    _ => None,
                }
            } else if mlirTypeIsAF64(t) {
                Some(DType::F64)
            } else if mlirTypeIsAF32(t) {
                Some(DType::F32)
            } else if mlirTypeIsAF16(t) {
                Some(DType::F16)
            } else if mlirTypeIsABF16(t) {
                Some(DType::BF16)
            } else if mlirTypeIsAFloat8E4M3FN(t) {
                Some(DType::F8E4M3FN)
            } else if mlirTypeIsAFloat8E5M2(t) {
                Some(DType::F8E5M2)
            } else if mlirTypeIsAComplex(t) {
                return Err(format!(
                    "has element type {self}: complex numbers are not supported; split them into real and imaginary tensors"
                ).into());
            } else {
                None
            }
        };
        Ok(found.ok_or_else(|| {
            let all: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            format!("has element type {self}, which is none of {}", all.join(" "))
        })?)
    }
    /// The element type of a tensor type.
    pub fn element(self) -> Option<Type> {
        unsafe { mlirTypeIsAShaped(self.0).then(|| Type(mlirShapedTypeGetElementType(self.0))) }
    }
    /// The dimensions of a ranked tensor or memref type; empty for unranked ones.
    pub fn dims(self) -> Vec<Dim> {
        unsafe {
            if !self.is_tensor() && !self.is_memref() {
                return vec![];
            }
            let size = |i| {
                if mlirShapedTypeIsDynamicDim(self.0, i) {
                    Dim::Unknown
                } else {
                    Dim::Known(mlirShapedTypeGetDimSize(self.0, i))
                }
            };
            (0..mlirShapedTypeGetRank(self.0) as isize).map(size).collect()
        }
    }
    /// `!kiln.stage`, a place in the rings of pipelines.
    pub fn stage(c: Ctx) -> Type {
        Type(unsafe { ffi::kilnStageGet(c.raw()) })
    }
    /// A tile in registers: `tensor<… x element, #kiln.fragment<layout>>`.
    pub fn fragment(element: Type, sizes: &[usize], layout: FragmentLayout) -> Type {
        let sizes: Vec<i64> = sizes.iter().map(|n| *n as i64).collect();
        Type(unsafe {
            let encoding = ffi::kilnFragmentGet(element.ctx().raw(), layout.value());
            mlirRankedTensorTypeGet(sizes.len() as isize, sizes.as_ptr(), element.0, encoding)
        })
    }
    /// The layout of a tile in registers.
    pub fn fragment_layout(self) -> Option<FragmentLayout> {
        if !self.has_encoding() {
            return None;
        }
        let mut layout = 0;
        let found =
            unsafe { ffi::kilnFragmentRead(mlirRankedTensorTypeGetEncoding(self.0), &mut layout) };
        FragmentLayout::from_value(layout).filter(|_| found)
    }
    /// Whether the tensor type carries an encoding.
    pub fn has_encoding(self) -> bool {
        unsafe { self.is_tensor() && !mlirRankedTensorTypeGetEncoding(self.0).ptr.is_null() }
    }
}
