//! Code of one iteration of a nest's stages, scalar or vectorised.
use crate::{
    analysis::{Access, Attention, Body, Init, Kernel, LinearExpr, Output, Poly, Stage},
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
};
use kiln_dialects::ir::*;
use std::collections::{HashMap, HashSet};

/// What the code of a kernel refers to.
#[derive(Clone)]
pub struct Scope<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// SSA scalars of the old function, in the new one.
    pub scalars: HashMap<Value, Value>,
    /// The flat memref of each buffer that has memory.
    pub memory: Vec<Option<Value>>,
    /// Whether outputs use non-temporal (streaming) stores; whole vectors are then aligned to their
    /// size.
    pub nontemporal: bool,
    /// Predicate of the stores; `None` stores unconditionally.
    pub store_predicate: Option<Value>,
    /// Prefetch distance of vector loads in bytes; 0 for none.
    pub prefetch: usize,
}

/// Elements that this iteration already has as SSA values.
pub type ForwardedElements = HashMap<Access, LaneValue>;

impl Scope<'_> {
    /// A size as an SSA value of index type.
    pub fn poly(&self, c: Code, p: &Poly) -> Result<Value> {
        let mut sum = c.index(0)?;
        for (symbols, k) in p.in_order() {
            let mut term = c.index(k)?;
            for s in symbols {
                term = c.mul(term, self.scalar(s)?)?;
            }
            sum = c.add(sum, term)?;
        }
        Ok(sum)
    }
    /// An SSA scalar of the old function, in the new one.
    pub fn scalar(&self, v: Value) -> Result<Value> {
        self.scalars
            .get(&v)
            .copied()
            .ok_or_else(|| "takes a scalar that the kernel does not have".to_string().into())
    }
    /// The address of an access, in elements.
    pub fn address(
        &self,
        c: Code,
        at: &LinearExpr,
        dims: &[LaneValue],
        lanes: Lanes,
    ) -> Result<LaneValue> {
        let mut sum = LaneValue::Uniform(self.poly(c, &at.constant)?);
        for (d, p) in &at.dims {
            let x = *dims.get(*d).ok_or("has an index beyond its loops")?;
            sum = lanes.add_or_sub(c, sum, lanes.scaled(c, x, self.poly(c, p)?)?, false)?;
        }
        for (r, p) in &at.divisions {
            let x = lanes.division(
                c,
                self.address(c, &r.dividend, dims, lanes)?,
                r.divisor,
                r.modulo,
            )?;
            sum = lanes.add_or_sub(c, sum, lanes.scaled(c, x, self.poly(c, p)?)?, false)?;
        }
        Ok(sum)
    }
    /// The address of the element of an access at a position of its loops, in elements.
    pub fn element_address(&self, c: Code, a: &Access, position: &[Value]) -> Result<Value> {
        let dims: Vec<LaneValue> = position.iter().map(|i| LaneValue::Uniform(*i)).collect();
        let one = Lanes { count: 1, mask: None };
        one.vector(c, self.address(c, &a.at, &dims, one)?)
    }
    /// The memref of a buffer.
    pub fn buffer(&self, b: usize) -> Result<Value> {
        self.memory
            .get(b)
            .copied()
            .flatten()
            .ok_or_else(|| "reads a buffer that has no memory".to_string().into())
    }
    /// Loads an element, unless this iteration already has it.
    pub fn read(
        &self,
        c: Code,
        a: &Access,
        dims: &[LaneValue],
        lanes: Lanes,
        passed: &ForwardedElements,
    ) -> Result<LaneValue> {
        match passed.get(a) {
            Some(v) => Ok(*v),
            None if self.kernel.pads.contains_key(&a.buffer) => self.load_padded(c, a, dims, lanes),
            None => {
                let (memory, at) = (self.buffer(a.buffer)?, self.address(c, &a.at, dims, lanes)?);
                if self.prefetch > 0 {
                    lanes.prefetch(c, memory, at, self.prefetch)?;
                }
                lanes.load(c, memory, at)
            }
        }
    }
    /// Loads an element of a padded argument: in bounds its own value, else 0.
    fn load_padded(
        &self,
        c: Code,
        a: &Access,
        dims: &[LaneValue],
        lanes: Lanes,
    ) -> Result<LaneValue> {
        let memory = self.buffer(a.buffer)?;
        let (Some(pads), LaneValue::Uniform(mut left), 1) =
            (self.kernel.pads.get(&a.buffer), self.address(c, &a.at, dims, lanes)?, lanes.count)
        else {
            return Err("reads several elements of a padded tensor at once".into());
        };
        let whole =
            &self.kernel.buffers.get(a.buffer).ok_or("reads a buffer that is not there")?.sizes;
        let (mut place, mut stride, mut there) = (c.index(0)?, c.index(1)?, vec![]);
        for ((low, size), all) in pads.iter().zip(whole).rev() {
            let (all, size) = (self.poly(c, all)?, self.poly(c, size)?);
            // A negative position is huge as an unsigned number, so that one comparison suffices.
            let i = c.sub(c.rem(left, all)?, c.index(*low)?)?;
            left = c.div(left, all)?;
            let inside = c.less_than(i, size)?;
            place = c.add(place, c.mul(c.select(inside, i, c.index(0)?)?, stride)?)?;
            stride = c.mul(stride, size)?;
            there.push(inside);
        }
        let LaneValue::Uniform(v) = lanes.load(c, memory, LaneValue::Uniform(place))? else {
            return Err("reads a vector".into());
        };
        let zero = c.number(0.0, v.ty())?;
        let there = c.all_of(&there)?.ok_or("has no dimensions")?;
        Ok(LaneValue::Uniform(c.select(there, v, zero)?))
    }
    /// The initial value of an output.
    pub fn initial_value(
        &self,
        c: Code,
        init: &Init,
        dims: &[LaneValue],
        lanes: Lanes,
        passed: &ForwardedElements,
    ) -> Result<Option<LaneValue>> {
        Ok(match init {
            Init::None => None,
            Init::Fill(v) => Some(LaneValue::Uniform(self.scalar(*v)?)),
            Init::Load(a) => Some(self.read(c, a, dims, lanes, passed)?),
        })
    }
    /// Emits one iteration of these stages. `running`: the loop-carried values of reducing outputs,
    /// in order; they are updated.
    pub fn iteration(
        &self,
        c: Code,
        stages: &[usize],
        dims: &[LaneValue],
        lanes: Lanes,
        running: &mut [Value],
        passed: &mut ForwardedElements,
    ) -> Result<()> {
        let mut next = running.iter_mut();
        for i in stages {
            let s = self.kernel.stages.get(*i).ok_or("has a stage that is not there")?;
            let mut slots = vec![];
            let mut values = vec![];
            for (n, a) in s.inputs.iter().enumerate() {
                // An input that only gives a loop its size may have no memory.
                let unused = matches!(s.body, Body::Block(b) if b.args().get(n).is_some_and(|v| v.uses().is_empty()));
                values.push(if unused {
                    None
                } else {
                    Some(self.read(c, a, dims, lanes, passed)?)
                });
            }
            for o in &s.outputs {
                if o.reduces {
                    let slot = next.next().ok_or("has fewer running values than outputs")?;
                    values.push(Some(if lanes.count == 1 {
                        LaneValue::Uniform(*slot)
                    } else {
                        LaneValue::Vector(*slot)
                    }));
                    slots.push(slot);
                } else {
                    values.push(self.initial_value(c, &o.init, dims, lanes, passed)?);
                }
            }
            let results = self.stage(Code(c.0.at(s.op.loc())), s, values, dims, lanes)?;
            let mut slots = slots.into_iter();
            for (o, v) in s.outputs.iter().zip(results) {
                if o.reduces {
                    let slot = slots.next().ok_or("has fewer running values than outputs")?;
                    *slot = lanes.vector(c, v)?;
                    continue;
                }
                self.write(c, o, dims, lanes, v, self.nontemporal)?;
                passed.insert(o.access.clone(), v);
            }
        }
        Ok(())
    }

    /// Stores an element of an output, if its buffer has memory.
    pub fn write(
        &self,
        c: Code,
        o: &Output,
        dims: &[LaneValue],
        lanes: Lanes,
        v: LaneValue,
        nontemporal: bool,
    ) -> Result<()> {
        let Some(memory) = self.memory.get(o.access.buffer).copied().flatten() else {
            return Ok(());
        };
        let mut store = |c: Code| {
            lanes.store(c, memory, self.address(c, &o.access.at, dims, lanes)?, v, nontemporal)
        };
        match self.store_predicate {
            Some(condition) => c.if_else(condition, &mut store, None),
            None => store(c),
        }
    }

    /// Emits the body of one stage, given the values of its block arguments.
    pub fn stage(
        &self,
        c: Code,
        s: &Stage,
        args: Vec<Option<LaneValue>>,
        dims: &[LaneValue],
        lanes: Lanes,
    ) -> Result<Vec<LaneValue>> {
        let block = match s.body {
            Body::Fill(v) => return Ok(vec![LaneValue::Uniform(self.scalar(v)?)]),
            Body::Copy => return Ok(args.into_iter().take(1).flatten().collect()),
            Body::Block(b) => b,
        };
        let mut values: HashMap<Value, LaneValue> =
            block.args().into_iter().zip(args).filter_map(|(a, v)| Some((a, v?))).collect();
        for op in block.ops() {
            let c = Code(c.0.at(op.loc()));
            let get = |v: Value| -> Result<LaneValue> {
                values.get(&v).copied().map_or_else(|| self.scalar(v).map(LaneValue::Uniform), Ok)
            };
            if op.isa::<linalg::Yield>() {
                return op.operands().into_iter().map(get).collect();
            }
            if is_fused_product(op) {
                continue;
            }
            let result = self.scalar_op(c, s, op, dims, lanes, &get)?;
            values.insert(op.result(0), result);
        }
        Err("has a body without linalg.yield".into())
    }

    /// Emits a value of a stage's body in all lanes, with only its backward slice of the body.
    pub fn body_value(
        &self,
        c: Code,
        s: &Stage,
        v: Value,
        dims: &[LaneValue],
        lanes: Lanes,
        passed: &ForwardedElements,
    ) -> Result<LaneValue> {
        let Body::Block(block) = s.body else { return Err("has no body to compute in".into()) };
        let needed = backward_slice(block, v);
        let mut values: HashMap<Value, LaneValue> = HashMap::new();
        for (i, arg) in block.args().into_iter().enumerate() {
            if needed.contains(&arg) {
                values.insert(
                    arg,
                    self.read(
                        c,
                        s.inputs.get(i).ok_or("takes what is no input")?,
                        dims,
                        lanes,
                        passed,
                    )?,
                );
            }
        }
        for op in
            block.ops().into_iter().filter(|op| op.results().iter().any(|r| needed.contains(r)))
        {
            let get = |v: Value| -> Result<LaneValue> {
                values.get(&v).copied().map_or_else(|| self.scalar(v).map(LaneValue::Uniform), Ok)
            };
            let made = self.scalar_op(Code(c.0.at(op.loc())), s, op, dims, lanes, &get)?;
            values.insert(op.result(0), made);
        }
        values.get(&v).copied().map_or_else(|| self.scalar(v).map(LaneValue::Uniform), Ok)
    }

    /// Emits a scalar value of a stage's body with its backward slice. `dims`: the loops that it
    /// depends on, and any others.
    pub fn scalar_value(&self, c: Code, s: &Stage, v: Value, dims: &[LaneValue]) -> Result<Value> {
        let one = Lanes { count: 1, mask: None };
        let Body::Block(block) = s.body else { return Err("has no body to compute in".into()) };
        let found = match (v.block_arg(), v.def()) {
            (Some((b, i)), _) if b == block => self.read(
                c,
                s.inputs.get(i).ok_or("reads what is no input")?,
                dims,
                one,
                &ForwardedElements::new(),
            )?,
            (None, Some(op)) if op.block() == Some(block) => {
                // `tensor.extract` reads from a tensor, which is no scalar operand.
                let inputs = op.operands().split_off(usize::from(op.isa::<tensor::Extract>()));
                let made = inputs
                    .into_iter()
                    .map(|v| Ok((v, self.scalar_value(c, s, v, dims)?)))
                    .collect::<Result<HashMap<_, _>>>()?;
                let get = |v: Value| {
                    made.get(&v)
                        .map(|v| LaneValue::Uniform(*v))
                        .ok_or_else(|| "takes what is not there".into())
                };
                self.scalar_op(Code(c.0.at(op.loc())), s, op, dims, one, &get)?
            }
            _ => return self.scalar(v),
        };
        match found {
            LaneValue::Uniform(v) => Ok(v),
            _ => Err("has several values where one is wanted".into()),
        }
    }
    /// The valid sequence lengths of queries and keys of an attention, given the loops around them,
    /// clamped to `most`; `None` where no mask states one.
    pub fn lengths(
        &self,
        c: Code,
        at: &Attention,
        around: &[Value],
        most: &dyn Fn(usize) -> Result<Value>,
    ) -> Result<[Option<Value>; 2]> {
        let stage = self.kernel.stages.get(at.seen).ok_or("has no such stage")?;
        let mut dims: Vec<LaneValue> = around.iter().map(|i| LaneValue::Uniform(*i)).collect();
        if at.limits.lengths != [None; 2] {
            dims.resize(stage.extents.len(), LaneValue::Uniform(c.index(0)?));
        }
        let one = |axis: usize| -> Result<Option<Value>> {
            let Some(v) = at.limits.lengths[axis] else { return Ok(None) };
            let n = self.scalar_value(c, stage, v, &dims)?;
            let cast = |v: Value, ty: Type| {
                if v.ty() == ty { Ok(v) } else { arith::index_cast(c, v, ty) }
            };
            let n = arith::maxsi(c, n, c.integer(0, n.ty())?)?;
            let n = arith::minsi(c, n, cast(most(axis)?, n.ty())?)?;
            cast(n, Type::index(c.ctx())).map(Some)
        };
        Ok([one(0)?, one(1)?])
    }

    /// Emits an op of a stage's body, given its operands.
    pub fn scalar_op(
        &self,
        c: Code,
        s: &Stage,
        op: Op,
        dims: &[LaneValue],
        lanes: Lanes,
        get: &dyn Fn(Value) -> Result<LaneValue>,
    ) -> Result<LaneValue> {
        let name = op.name();
        if let Some(index) = op.dyn_cast::<linalg::Index>() {
            let d = index.dim().unwrap_or(0) as usize;
            return self.address(
                c,
                s.dims.get(d).ok_or("asks for a loop that is not there")?,
                dims,
                lanes,
            );
        }
        if let Some(extract) = op.dyn_cast::<tensor::Extract>() {
            let view = self.kernel.views.get(&extract.tensor());
            let view = view.ok_or("reads a tensor that is not there")?;
            let mut at = LaneValue::Uniform(self.poly(c, &view.offset)?);
            for (i, stride) in extract.indices().iter().zip(&view.strides) {
                at = lanes.add_or_sub(
                    c,
                    at,
                    lanes.scaled(c, get(*i)?, self.poly(c, stride)?)?,
                    false,
                )?;
            }
            return lanes.load(c, self.buffer(view.buffer)?, at);
        }
        if op.result_count() != 1 || !op.regions().is_empty() {
            return Err(format!("has a {name} in its body").into());
        }
        let operands: Vec<LaneValue> = match multiply_add_operands(op) {
            // Fused multiply-add: a * b + c with one rounding.
            Some((product, other)) => {
                vec![get(product.operand(0))?, get(product.operand(1))?, get(other)?]
            }
            None => op.operands().into_iter().map(get).collect::<Result<_>>()?,
        };
        let ty = op.result(0).ty();
        match (name.as_str(), operands.as_slice()) {
            (arith::AddI::NAME, [a, b]) => return lanes.add_or_sub(c, *a, *b, false),
            (arith::SubI::NAME, [a, b]) => return lanes.add_or_sub(c, *a, *b, true),
            (arith::IndexCast::NAME, [LaneValue::Strided(base, step)]) => {
                return Ok(LaneValue::Strided(arith::index_cast(c, *base, ty)?, *step));
            }
            _ => {}
        }
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        let (name, attrs) = if operands.len() == op.operand_count() {
            (name.as_str(), attrs)
        } else {
            (math::Fma::NAME, vec![])
        };
        let same: Option<Vec<Value>> = operands
            .iter()
            .map(|v| if let LaneValue::Uniform(x) = v { Some(*x) } else { None })
            .collect();
        if let Some(same) = same {
            return Ok(LaneValue::Uniform(c.op(name, &same, ty, &attrs)?));
        }
        let many: Vec<Value> =
            operands.into_iter().map(|v| lanes.vector(c, v)).collect::<Result<_>>()?;
        Ok(LaneValue::Vector(c.op(name, &many, Type::vector(ty, lanes.count), &attrs)?))
    }
}

/// Backward slice: a value of a body, and all values of the body that it depends on.
pub fn backward_slice(block: Block, v: Value) -> HashSet<Value> {
    let (mut all, mut next) = (HashSet::new(), vec![v]);
    while let Some(v) = next.pop() {
        let inside = v.block_arg().map_or_else(|| v.def().and_then(Op::block), |(b, _)| Some(b))
            == Some(block);
        if inside && all.insert(v) {
            next.extend(v.def().into_iter().flat_map(|op| op.operands()));
        }
    }
    all
}

/// The product and the loop-carried value of a yielded sum of both.
fn multiply_add_operands(sum: Op) -> Option<(Op, Value)> {
    let block = sum.block()?;
    let yielded = sum.isa::<arith::AddF>()
        && sum.result(0).uses().iter().all(|(u, _)| u.isa::<linalg::Yield>());
    let wide =
        sum.operand_count() == 2 && sum.operand(0).ty().dtype().is_ok_and(|d| d.byte_size() >= 4);
    if !yielded || !wide {
        return None;
    }
    let running = |v: Value| v.block_arg().is_some_and(|(b, _)| b == block) && v.uses().len() == 1;
    [(0, 1), (1, 0)].into_iter().find_map(|(i, j)| {
        let product = sum.operand(i).def().filter(|p| {
            p.isa::<arith::MulF>() && p.block() == Some(block) && p.result(0).uses().len() == 1
        })?;
        running(sum.operand(j)).then_some((product, sum.operand(j)))
    })
}

/// Whether the op is a product that may fuse into a multiply-add.
fn is_fused_product(op: Op) -> bool {
    let uses = if op.isa::<arith::MulF>() { op.result(0).uses() } else { vec![] };
    uses.len() == 1
        && uses.iter().all(|(sum, _)| multiply_add_operands(*sum).is_some_and(|(p, _)| p == op))
}
