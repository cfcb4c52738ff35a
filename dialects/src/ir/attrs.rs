//! Attributes.
use super::*;
use crate::{
    ffi,
    value::{DType, Data, Tensor},
};

/// An MLIR attribute.
#[derive(Clone, Copy)]
pub struct Attr(pub(crate) MlirAttribute);

impl PartialEq for Attr {
    fn eq(&self, other: &Attr) -> bool {
        unsafe { mlirAttributeEqual(self.0, other.0) }
    }
}
impl std::fmt::Display for Attr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(|cb, d| unsafe { mlirAttributePrint(self.0, cb, d) }))
    }
}
impl std::fmt::Debug for Attr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Attr {
    pub(crate) fn some(raw: MlirAttribute) -> Option<Attr> {
        (!raw.ptr.is_null()).then_some(Attr(raw))
    }
    /// Parses an attribute.
    pub fn parse(c: Ctx, s: &str) -> Option<Attr> {
        Attr::some(unsafe { mlirAttributeParseGet(c.raw(), sref(s)) })
    }
    /// `#llvm.linkage<internal>`.
    pub fn internal_linkage(c: Ctx) -> Attr {
        let internal = MlirLLVMLinkage_MlirLLVMLinkageInternal;
        Attr(unsafe { mlirLLVMLinkageAttrGet(c.raw(), internal) })
    }
    /// `unit`.
    pub fn unit(c: Ctx) -> Attr {
        Attr(unsafe { mlirUnitAttrGet(c.raw()) })
    }
    /// Whether it is `unit`.
    pub fn is_unit(self) -> bool {
        unsafe { mlirAttributeIsAUnit(self.0) }
    }
    /// A 64-bit integer.
    pub fn i64(c: Ctx, value: i64) -> Attr {
        Attr(unsafe { mlirIntegerAttrGet(mlirIntegerTypeGet(c.raw(), 64), value) })
    }
    /// A signless integer of this many bits.
    pub fn int(c: Ctx, bits: u32, value: i64) -> Attr {
        Attr(unsafe { mlirIntegerAttrGet(mlirIntegerTypeGet(c.raw(), bits), value) })
    }
    /// `true` or `false`.
    pub fn bool(c: Ctx, value: bool) -> Attr {
        Attr(unsafe { mlirBoolAttrGet(c.raw(), value.into()) })
    }
    /// An integer of `index` type.
    pub fn index(c: Ctx, value: i64) -> Attr {
        Attr(unsafe { mlirIntegerAttrGet(mlirIndexTypeGet(c.raw()), value) })
    }
    /// A 64-bit float.
    pub fn f64(c: Ctx, value: f64) -> Attr {
        Attr(unsafe { mlirFloatAttrDoubleGet(c.raw(), mlirF64TypeGet(c.raw()), value) })
    }
    /// A scalar of a dtype, from a float (rounded) or an integer (wrapped).
    pub fn scalar(c: Ctx, dtype: DType, value: f64) -> Attr {
        let ty = Type::scalar(c, dtype).0;
        Attr(unsafe {
            if dtype.is_float() {
                mlirFloatAttrDoubleGet(c.raw(), ty, dtype.round(value))
            } else {
                mlirIntegerAttrGet(ty, dtype.wrap(value as i64))
            }
        })
    }
    /// An integer scalar of a dtype, exact beyond 2^53.
    pub fn scalar_int(c: Ctx, dtype: DType, value: i64) -> Attr {
        if dtype.is_float() {
            Attr::scalar(c, dtype, value as f64)
        } else {
            Attr(unsafe { mlirIntegerAttrGet(Type::scalar(c, dtype).0, dtype.wrap(value)) })
        }
    }
    /// A number of a float, integer or index type, or that in every element of a shaped type.
    pub fn number(ty: Type, value: f64) -> Result<Attr> {
        Attr::splat(ty, |c, d| Attr::scalar(c, d, value), value as i64)
    }
    /// As [`Attr::number`], exact beyond 2^53.
    pub fn integer(ty: Type, value: i64) -> Result<Attr> {
        Attr::splat(ty, |c, d| Attr::scalar_int(c, d, value), value)
    }
    fn splat(ty: Type, scalar: impl FnOnce(Ctx, DType) -> Attr, index: i64) -> Result<Attr> {
        let element = ty.element().unwrap_or(ty);
        let scalar = match element.is_index() {
            true => Attr::index(ty.ctx(), index),
            false => scalar(ty.ctx(), element.dtype()?),
        };
        let dense = ty.element().is_some();
        Ok(if dense {
            Attr(unsafe { mlirDenseElementsAttrSplatGet(ty.0, scalar.0) })
        } else {
            scalar
        })
    }
    /// `dense<…> : vector<lanes x …>` of a scalar.
    pub fn repeated(self, lanes: usize) -> Attr {
        let ty = Type::vector(self.type_of(), lanes);
        Attr(unsafe { mlirDenseElementsAttrSplatGet(ty.0, self.0) })
    }
    /// `dense<[…]>` of a shaped type, from its elements.
    pub fn elements(ty: Type, elements: &[Attr]) -> Attr {
        let raw: Vec<_> = elements.iter().map(|a| a.0).collect();
        Attr(unsafe { mlirDenseElementsAttrGet(ty.0, raw.len() as isize, raw.as_ptr()) })
    }
    /// A string.
    pub fn string(c: Ctx, s: &str) -> Attr {
        Attr(unsafe { mlirStringAttrGet(c.raw(), sref(s)) })
    }
    /// A symbol reference `@s`.
    pub fn symbol(c: Ctx, s: &str) -> Attr {
        Attr(unsafe { mlirFlatSymbolRefAttrGet(c.raw(), sref(s)) })
    }
    /// A type as an attribute.
    pub fn ty(t: Type) -> Attr {
        Attr(unsafe { mlirTypeAttrGet(t.0) })
    }
    /// `array<i64: …>`.
    pub fn i64s(c: Ctx, values: &[i64]) -> Attr {
        Attr(unsafe { mlirDenseI64ArrayGet(c.raw(), values.len() as isize, values.as_ptr()) })
    }
    /// `array<i32: …>`.
    pub fn i32s(c: Ctx, values: &[i32]) -> Attr {
        Attr(unsafe { mlirDenseI32ArrayGet(c.raw(), values.len() as isize, values.as_ptr()) })
    }
    /// `#kiln.layout<…>`: strides and offset in elements, alignment in bytes (0: unknown).
    pub fn layout(c: Ctx, strides: &[i64], offset: i64, alignment: i64) -> Attr {
        Attr(unsafe {
            ffi::kilnLayoutGet(c.raw(), strides.len() as isize, strides.as_ptr(), offset, alignment)
        })
    }
    /// Strides, offset and alignment of a `#kiln.layout`.
    pub fn as_layout(self) -> Option<(Vec<i64>, i64, i64)> {
        extern "C" fn take(n: isize, p: *const i64, out: *mut std::ffi::c_void) {
            unsafe { (*out.cast::<Vec<i64>>()).extend_from_slice(list(n, p)) }
        }
        let (mut strides, mut offset, mut alignment) = (Vec::<i64>::new(), 0, 0);
        unsafe {
            ffi::kilnLayoutRead(
                self.0,
                take,
                (&raw mut strides).cast(),
                &mut offset,
                &mut alignment,
            )
        }
        .then_some((strides, offset, alignment))
    }
    /// `#kiln.schedule<"strategy", {…}>`.
    pub fn schedule(c: Ctx, strategy: &str, parameters: &[(&str, Attr)]) -> Attr {
        Attr(unsafe { ffi::kilnScheduleGet(sref(strategy), Attr::dictionary(c, parameters).0) })
    }
    /// Strategy and parameters of a `#kiln.schedule`.
    pub fn as_schedule(self) -> Option<(String, Attr)> {
        let (mut strategy, mut parameters) = (sref(""), self.0);
        unsafe {
            ffi::kilnScheduleRead(self.0, &mut strategy, &mut parameters)
                .then(|| (text(strategy), Attr(parameters)))
        }
    }
    /// A `dense<…>` literal with the dtype and shape of the tensor.
    pub fn dense(c: Ctx, t: &Tensor) -> Result<Attr> {
        let dims: Vec<_> = t.shape().iter().map(|d| crate::sym::Dim::Known(*d as i64)).collect();
        let ty = Type::tensor(c, t.dtype(), &dims).0;
        let bytes = t.dtype().encode(t);
        Attr::some(unsafe {
            if t.dtype() == DType::I1 {
                // Raw i1 buffers are bit-packed, differently between MLIR releases; bools have
                // their own call.
                let Data::I(values) = t.data() else {
                    return Err("an i1 tensor with float data".into());
                };
                let flags: Vec<i32> = values.iter().map(|v| (*v != 0) as i32).collect();
                mlirDenseElementsAttrBoolGet(ty, flags.len() as isize, flags.as_ptr())
            } else {
                mlirDenseElementsAttrRawBufferGet(ty, bytes.len(), bytes.as_ptr().cast())
            }
        })
        .ok_or_else(|| {
            format!("{} bytes do not make a dense<…> of {}", bytes.len(), Type(ty)).into()
        })
    }
    /// The value of a `dense<…>` literal; splats are expanded.
    pub fn as_tensor(self) -> Result<Tensor> {
        let all = self.as_elements()?;
        let ty = self.type_of();
        ty.element().ok_or("has no element type")?.dtype()?;
        let shape: Option<Vec<usize>> =
            ty.dims().iter().map(|d| d.known().map(|n| n as usize)).collect();
        all.with_shape(shape.ok_or("has a dynamic shape")?)
    }
    /// The elements of a `dense<…>` literal in order, of a vector too; indices have 64 bits.
    pub fn as_elements(self) -> Result<Tensor> {
        unsafe {
            if !mlirAttributeIsADenseElements(self.0) {
                return Err("is not a dense<…> literal".to_string().into());
            }
            let element = self.type_of().element().ok_or("has no element type")?;
            let dtype = if element.is_index() { DType::I64 } else { element.dtype()? };
            let count = mlirElementsAttrGetNumElements(self.0) as usize;
            let shape = [count];
            if dtype == DType::I1 {
                let values = (0..count)
                    .map(|i| mlirDenseElementsAttrGetBoolValue(self.0, i as isize) as i64)
                    .collect();
                return Tensor::ints(dtype, shape.to_vec(), values);
            }
            let splat = mlirDenseElementsAttrIsSplat(self.0);
            let stored = if splat { 1 } else { count } * dtype.byte_size();
            let raw = list(stored as isize, mlirDenseElementsAttrGetRawData(self.0).cast::<u8>());
            if splat && count > 0 {
                dtype.decode(&shape, &raw.repeat(count))
            } else {
                dtype.decode(&shape, raw)
            }
        }
    }
    /// The scalar of a splat `dense<…>` literal.
    pub fn splat_value(self) -> Option<Attr> {
        unsafe {
            let splat =
                mlirAttributeIsADenseElements(self.0) && mlirDenseElementsAttrIsSplat(self.0);
            if splat { Attr::some(mlirDenseElementsAttrGetSplatValue(self.0)) } else { None }
        }
    }
    /// The number of elements that a `dense<…>` literal stores: one for a splat.
    pub fn stored_elements(self) -> Option<usize> {
        unsafe {
            let dense = mlirAttributeIsADenseElements(self.0);
            dense.then(|| {
                if mlirDenseElementsAttrIsSplat(self.0) {
                    1
                } else {
                    mlirElementsAttrGetNumElements(self.0) as usize
                }
            })
        }
    }
    /// The value of an attribute of integer or index type; unsigned values are zero-extended.
    pub fn as_i64(self) -> Option<i64> {
        unsafe {
            if !mlirAttributeIsAInteger(self.0) {
                return None;
            }
            let ty = mlirAttributeGetType(self.0);
            Some(if mlirTypeIsAInteger(ty) && mlirIntegerTypeIsUnsigned(ty) {
                mlirIntegerAttrGetValueUInt(self.0) as i64
            } else if mlirTypeIsAInteger(ty) && mlirIntegerTypeIsSigned(ty) {
                mlirIntegerAttrGetValueSInt(self.0)
            } else {
                mlirIntegerAttrGetValueInt(self.0)
            })
        }
    }
    /// The float's value.
    pub fn as_f64(self) -> Option<f64> {
        unsafe { mlirAttributeIsAFloat(self.0).then(|| mlirFloatAttrGetValueDouble(self.0)) }
    }
    /// The bool's value.
    pub fn as_bool(self) -> Option<bool> {
        unsafe { mlirAttributeIsABool(self.0).then(|| mlirBoolAttrGetValue(self.0)) }
    }
    /// The string's text.
    pub fn as_string(self) -> Option<String> {
        unsafe { mlirAttributeIsAString(self.0).then(|| text(mlirStringAttrGetValue(self.0))) }
    }
    /// The name of a symbol reference.
    pub fn as_symbol(self) -> Option<String> {
        unsafe {
            mlirAttributeIsAFlatSymbolRef(self.0)
                .then(|| text(mlirFlatSymbolRefAttrGetValue(self.0)))
        }
    }
    /// The bytes of a `#gpu.object`.
    pub fn as_gpu_object(self) -> Option<Vec<u8>> {
        unsafe {
            mlirAttributeIsAGPUObjectAttr(self.0)
                .then(|| bytes(mlirGPUObjectAttrGetObject(self.0)).to_vec())
        }
    }
    /// The type of a type attribute.
    pub fn as_type(self) -> Option<Type> {
        unsafe { mlirAttributeIsAType(self.0).then(|| Type(mlirTypeAttrGetValue(self.0))) }
    }
    /// The numbers of `array<i64: …>`.
    pub fn as_i64s(self) -> Option<Vec<i64>> {
        unsafe {
            mlirAttributeIsADenseI64Array(self.0).then(|| {
                (0..mlirDenseArrayGetNumElements(self.0))
                    .map(|i| mlirDenseI64ArrayGetElement(self.0, i))
                    .collect()
            })
        }
    }
    pub(crate) fn as_i32s(self) -> Option<Vec<i32>> {
        unsafe {
            mlirAttributeIsADenseI32Array(self.0).then(|| {
                (0..mlirDenseArrayGetNumElements(self.0))
                    .map(|i| mlirDenseI32ArrayGetElement(self.0, i))
                    .collect()
            })
        }
    }
    /// The elements of `[…]`.
    pub fn as_array(self) -> Option<Vec<Attr>> {
        unsafe {
            mlirAttributeIsAArray(self.0).then(|| {
                (0..mlirArrayAttrGetNumElements(self.0))
                    .map(|i| Attr(mlirArrayAttrGetElement(self.0, i)))
                    .collect()
            })
        }
    }
    /// The entries of `{…}`.
    pub fn entries(self) -> Option<Vec<(String, Attr)>> {
        unsafe {
            mlirAttributeIsADictionary(self.0).then(|| {
                let entry = |i| {
                    let named = mlirDictionaryAttrGetElement(self.0, i);
                    (text(mlirIdentifierStr(named.name)), Attr(named.attribute))
                };
                (0..mlirDictionaryAttrGetNumElements(self.0)).map(entry).collect()
            })
        }
    }
    /// `{…}` without the entries of these names.
    pub fn without_entries(self, c: Ctx, names: &[&str]) -> Attr {
        let all = self.entries().unwrap_or_default();
        let kept = all.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Attr::dictionary(c, &kept.map(|(name, a)| (name.as_str(), *a)).collect::<Vec<_>>())
    }
    /// `{…}` with this entry, in place of another one of its name.
    pub fn with_entry(self, c: Ctx, name: &str, value: Attr) -> Attr {
        let kept = self.without_entries(c, &[name]).entries().unwrap_or_default();
        let kept = kept.iter().map(|(name, a)| (name.as_str(), *a));
        Attr::dictionary(c, &kept.chain([(name, value)]).collect::<Vec<_>>())
    }
    /// One entry of `{…}`.
    pub fn entry(self, name: &str) -> Option<Attr> {
        unsafe {
            if mlirAttributeIsADictionary(self.0) {
                Attr::some(mlirDictionaryAttrGetElementByName(self.0, sref(name)))
            } else {
                None
            }
        }
    }
    /// A dictionary.
    pub fn dictionary(c: Ctx, entries: &[(&str, Attr)]) -> Attr {
        let named: Vec<_> = entries
            .iter()
            .map(|(n, a)| unsafe {
                mlirNamedAttributeGet(mlirIdentifierGet(c.raw(), sref(n)), a.0)
            })
            .collect();
        Attr(unsafe { mlirDictionaryAttrGet(c.raw(), named.len() as isize, named.as_ptr()) })
    }
    /// An array `[…]`.
    pub fn array(c: Ctx, values: &[Attr]) -> Attr {
        let raw: Vec<_> = values.iter().map(|a| a.0).collect();
        Attr(unsafe { mlirArrayAttrGet(c.raw(), raw.len() as isize, raw.as_ptr()) })
    }
    /// The attribute's type; `none` for untyped ones.
    pub fn type_of(self) -> Type {
        Type(unsafe { mlirAttributeGetType(self.0) })
    }
}
