//! The op builder: an insertion point with a location.
use super::*;
use crate::{rules, sym::Dim, value::DType};

/// The state of an op under construction, which nodes write into.
pub struct State {
    ctx: Ctx,
    values: Vec<Value>,
    groups: Vec<i32>,
    attrs: Vec<(String, Attr)>,
}

impl State {
    fn new(ctx: Ctx) -> State {
        State { ctx, values: vec![], groups: vec![], attrs: vec![] }
    }
    pub(crate) fn operands(&mut self, v: &[Value]) {
        self.values.extend_from_slice(v);
        self.groups.push(v.len() as i32);
    }
    pub(crate) fn sizes(&mut self, name: &str, sizes: &[Size]) {
        let dynamic: Vec<_> = sizes
            .iter()
            .filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None })
            .collect();
        self.operands(&dynamic);
        self.i64s(
            name,
            &sizes.iter().map(|s| s.known().unwrap_or(Size::DYNAMIC)).collect::<Vec<_>>(),
        );
    }
    pub(crate) fn segments(&mut self) {
        self.attrs.push(("operandSegmentSizes".into(), Attr::i32s(self.ctx, &self.groups)));
    }
    pub(crate) fn attr(&mut self, name: &str, a: &Attr) {
        self.attrs.push((name.into(), *a));
    }
    pub(crate) fn i64s(&mut self, name: &str, v: &[i64]) {
        self.attr(name, &Attr::i64s(self.ctx, v))
    }
    pub(crate) fn i64(&mut self, name: &str, v: &i64) {
        self.attr(name, &Attr::i64(self.ctx, *v))
    }
    pub(crate) fn f64(&mut self, name: &str, v: &f64) {
        self.attr(name, &Attr::f64(self.ctx, *v))
    }
    pub(crate) fn unit(&mut self, name: &str, on: bool) {
        if on {
            self.attr(name, &Attr::unit(self.ctx))
        }
    }
    pub(crate) fn ty(&mut self, name: &str, t: &Type) {
        self.attr(name, &Attr::ty(*t))
    }
    pub(crate) fn string(&mut self, name: &str, s: &str) {
        self.attr(name, &Attr::string(self.ctx, s))
    }
    pub(crate) fn symbol(&mut self, name: &str, s: &str) {
        self.attr(name, &Attr::symbol(self.ctx, s))
    }
}

/// Builds ops at an insertion point, all with one location.
#[derive(Clone, Copy)]
pub struct Builder {
    /// The context.
    pub ctx: Ctx,
    /// The location of every built op.
    pub loc: Loc,
    block: Block,
    before: Option<Op>,
}

impl Builder {
    /// Appends to a block.
    pub fn at_end(ctx: Ctx, block: Block, loc: Loc) -> Builder {
        Builder { ctx, loc, block, before: None }
    }
    /// Inserts before `op`, with its location; `None` if `op` has no parent block.
    pub fn before(op: Op) -> Option<Builder> {
        Some(Builder { ctx: op.ctx(), loc: op.loc(), block: op.block()?, before: Some(op) })
    }
    /// Inserts after `op`, with its location.
    pub fn after(op: Op) -> Option<Builder> {
        Some(Builder { ctx: op.ctx(), loc: op.loc(), block: op.block()?, before: op.next() })
    }
    /// The insertion block.
    pub fn block(&self) -> Block {
        self.block
    }
    /// The same insertion point with another location.
    pub fn at(self, loc: Loc) -> Builder {
        Builder { loc, ..self }
    }

    /// Builds any op by name. Each region gets one block with these argument types, which the
    /// closure fills.
    pub fn generic(
        &self,
        name: &str,
        operands: &[Value],
        types: &[Type],
        attrs: &[(&str, Attr)],
        regions: &mut [RegionBody<'_>],
    ) -> Result<Op> {
        self.generic_late(name, operands, attrs, regions, &mut || Ok(types.to_vec()))
    }

    /// As [`Builder::generic`]; the result types are queried after the regions are built.
    pub fn generic_late(
        &self,
        name: &str,
        operands: &[Value],
        attrs: &[(&str, Attr)],
        regions: &mut [RegionBody<'_>],
        types: &mut dyn FnMut() -> Result<Vec<Type>>,
    ) -> Result<Op> {
        let mut bodies: Vec<Option<RegionBody<'_>>> = vec![];
        for (types, body) in regions.iter_mut() {
            bodies.push(Some((types, &mut **body)));
        }
        let regions = self.fill(&mut bodies)?;
        match types() {
            Ok(types) => self.create(name, operands, &types, attrs, regions),
            Err(e) => {
                regions.into_iter().for_each(|r| unsafe { mlirRegionDestroy(r) });
                Err(e)
            }
        }
    }

    /// Regions with one block each, which its closure fills, or empty ones.
    fn fill(&self, bodies: &mut [Option<RegionBody<'_>>]) -> Result<Vec<MlirRegion>> {
        let mut regions = vec![];
        for body in bodies {
            unsafe {
                let region = mlirRegionCreate();
                regions.push(region);
                let Some((args, body)) = body else { continue };
                let locs = vec![self.loc.0; args.len()];
                let types = args.as_ptr().cast();
                let block = Block::of(mlirBlockCreate(args.len() as isize, types, locs.as_ptr()));
                mlirRegionAppendOwnedBlock(region, block.raw());
                let inner = Builder { block, before: None, ..*self };
                if let Err(e) = body(inner, block.args()) {
                    regions.into_iter().for_each(|r| mlirRegionDestroy(r));
                    return Err(e);
                }
            }
        }
        Ok(regions)
    }

    /// An op without regions.
    pub(super) fn plain(
        &self,
        name: &str,
        operands: &[Value],
        types: &[Type],
        attrs: &[(&str, Attr)],
    ) -> Result<Op> {
        self.create(name, operands, types, attrs, vec![])
    }

    /// An op whose regions are empty or have one block.
    pub(super) fn with_regions(
        &self,
        name: &str,
        operands: &[Value],
        types: &[Type],
        attrs: &[(&str, Attr)],
        regions: &mut [Option<RegionBody<'_>>],
    ) -> Result<Op> {
        let regions = self.fill(regions)?;
        self.create(name, operands, types, attrs, regions)
    }

    fn create(
        &self,
        name: &str,
        operands: &[Value],
        types: &[Type],
        attrs: &[(&str, Attr)],
        regions: Vec<MlirRegion>,
    ) -> Result<Op> {
        let c = self.ctx.raw();
        let named: Vec<_> = attrs
            .iter()
            .map(|(n, a)| unsafe { mlirNamedAttributeGet(mlirIdentifierGet(c, sref(n)), a.0) })
            .collect();
        unsafe {
            let mut state = mlirOperationStateGet(sref(name), self.loc.0);
            // Handles of values and types are transparent over those of the C API.
            let (values, types) = (operands, types);
            mlirOperationStateAddOperands(
                &mut state,
                values.len() as isize,
                values.as_ptr().cast(),
            );
            mlirOperationStateAddResults(&mut state, types.len() as isize, types.as_ptr().cast());
            mlirOperationStateAddAttributes(&mut state, named.len() as isize, named.as_ptr());
            mlirOperationStateAddOwnedRegions(&mut state, regions.len() as isize, regions.as_ptr());
            let op = Op::some(mlirOperationCreate(&mut state))
                .ok_or_else(|| Error::internal(format!("MLIR refused to make a {name}")))?;
            self.insert(op);
            Ok(op)
        }
    }

    /// A named structured op of linalg, such as `linalg.contract`, with the body that it implies.
    pub fn named_linalg(
        &self,
        name: &str,
        operands: &[Value],
        types: &[Type],
        attrs: &[(&str, Attr)],
    ) -> Result<Op> {
        let op = self.create(name, operands, types, attrs, empty_regions(1))?;
        unsafe { mlirLinalgFillBuiltinNamedOpRegion(op.raw()) };
        Ok(op)
    }

    /// An op with one empty region, such as a function declaration.
    pub fn generic_with_empty_region(&self, name: &str, attrs: &[(&str, Attr)]) -> Result<Op> {
        self.create(name, &[], &[], attrs, empty_regions(1))
    }
    /// Clones an op and its regions. `operand` maps operands, nested ones too, and is the identity
    /// on values it does not map.
    pub fn clone_op(&self, op: Op, operand: &dyn Fn(Value) -> Value) -> Result<Op> {
        let copy = op.copy()?;
        for inner in walk(copy) {
            for (i, v) in inner.operands().into_iter().enumerate() {
                inner.set_operand(i, operand(v));
            }
        }
        self.insert(copy);
        Ok(copy)
    }
    pub(super) fn insert(&self, op: Op) {
        unsafe {
            match self.before {
                Some(next) => {
                    mlirBlockInsertOwnedOperationBefore(self.block.raw(), next.raw(), op.raw())
                }
                None => mlirBlockAppendOwnedOperation(self.block.raw(), op.raw()),
            }
        }
    }

    /// Builds an op with inferred result types. Err: the shape rule's.
    pub fn create_node<N: Node>(&self, node: &N) -> Result<Op> {
        let mut none: Vec<_> = N::KIND.regions().iter().map(|_| None).collect();
        self.create_node_with(node, &mut none)
    }
    /// As [`Builder::create_node`], for an op whose regions are empty or have one block.
    pub fn create_node_with<N: Node>(
        &self,
        node: &N,
        regions: &mut [Option<RegionBody<'_>>],
    ) -> Result<Op> {
        let mut s = State::new(self.ctx);
        node.write(&mut s);
        let view = View::of_list(self.ctx, N::KIND, s.values, vec![], s.attrs);
        let types = rules::infer_types(&view).map_err(|e| Error {
            message: format!("'{}' op {}", N::KIND.name(), e.message),
            ..e
        })?;
        let attrs: Vec<_> = view.list().iter().map(|(n, a)| (n.as_str(), *a)).collect();
        self.with_regions(N::KIND.name(), &view.values, &types, &attrs, regions)
    }
    /// Builds an op with explicit result types and regions, for ops without type inference.
    pub fn create_with<N: Node>(
        &self,
        node: &N,
        types: &[Type],
        regions: &mut [RegionBody<'_>],
    ) -> Result<Op> {
        let mut s = State::new(self.ctx);
        node.write(&mut s);
        let attrs: Vec<_> = s.attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        self.generic(N::KIND.name(), &s.values, types, &attrs, regions)
    }
    /// The single result of [`Builder::create_node`].
    pub fn add<N: Node>(&self, node: &N) -> Result<Value> {
        self.create_node(node).map(|op| op.result(0))
    }
    /// `arith.constant` of index type.
    pub fn index(&self, value: i64) -> Result<Value> {
        arith::constant(*self, Attr::index(self.ctx, value))
    }
    /// A function with this signature; the closure builds its body, which ends in `func.return`.
    pub fn function(
        &self,
        name: &str,
        inputs: &[Type],
        results: &[Type],
        body: &mut RegionFill<'_>,
    ) -> Result<Op> {
        let ty = Type::function(self.ctx, inputs, results);
        Ok(*func::Func::new(*self, name, ty).body((inputs, body)).build()?)
    }
    /// Adds an argument to the insertion block, for functions whose signature is found while
    /// building.
    pub fn argument(&self, ty: Type, loc: Loc) -> Value {
        self.block.add_arg(ty, loc)
    }
    /// `func.return`.
    pub fn ret(&self, values: &[Value]) -> Result<Op> {
        self.create(func::Return::NAME, values, &[], &[], vec![])
    }
    /// The sizes of a value: static where its type has them, `kiln.dim` ops elsewhere.
    pub fn sizes_of(&self, v: Value) -> Result<Vec<Size>> {
        (0..v.ty().dims().len()).map(|i| self.size_of(v, i)).collect()
    }
    /// The size of one dimension.
    pub fn size_of(&self, v: Value, axis: usize) -> Result<Size> {
        match v.ty().dims().get(axis) {
            Some(Dim::Known(n)) => Ok(Size::Static(*n)),
            Some(_) => {
                let op = self.create(
                    "kiln.dim",
                    &[v],
                    &[Type::index(self.ctx)],
                    &[("axis", Attr::i64(self.ctx, axis as i64))],
                    vec![],
                )?;
                Ok(Size::Dynamic(op.result(0)))
            }
            None => Err(format!("has no dimension {axis}").into()),
        }
    }
    /// A size as a 0-d tensor.
    pub fn size_as_tensor(&self, size: Size, to: DType) -> Result<Value> {
        use crate::ops::*;
        let Size::Dynamic(lhs) = size else {
            return self.add(&Splat {
                value: Attr::scalar_int(self.ctx, to, size.known().unwrap_or(0)),
                sizes: vec![],
            });
        };
        // Element n of iota(n + 1): no op converts a size to data directly.
        let more = SymExpr { kind: SymKind::Add, lhs, rhs: self.index(1)? };
        let longer =
            Size::Dynamic(self.create_with(&more, &[Type::index(self.ctx)], &mut [])?.result(0));
        let all = self.add(&Iota {
            sizes: vec![longer],
            axis: 0,
            dtype: Type::scalar(self.ctx, DType::I64),
        })?;
        let last = self.add(&Slice {
            input: all,
            offsets: vec![size],
            sizes: Size::all(&[1]),
            strides: vec![1],
        })?;
        let last = self.add(&Reshape { input: last, sizes: vec![] })?;
        if to == DType::I64 {
            Ok(last)
        } else {
            self.add(&Convert { input: last, dtype: Type::scalar(self.ctx, to) })
        }
    }
    /// `kiln.splat` of a number.
    pub fn splat(&self, dtype: DType, sizes: &[Size], value: f64) -> Result<Value> {
        self.add(&crate::ops::Splat {
            value: Attr::scalar(self.ctx, dtype, value),
            sizes: sizes.to_vec(),
        })
    }
}

/// Fills a region's block, given a builder inside it and the block's arguments.
pub type RegionFill<'a> = dyn FnMut(Builder, Vec<Value>) -> Result<()> + 'a;
/// The argument types of a region's block, and the closure that fills it.
pub type RegionBody<'a> = (&'a [Type], &'a mut RegionFill<'a>);

fn empty_regions(n: usize) -> Vec<MlirRegion> {
    (0..n).map(|_| unsafe { mlirRegionCreate() }).collect()
}
