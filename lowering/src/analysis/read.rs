//! Reads a kernel's function into plain data.
use crate::analysis::{
    copy::Generalized,
    structure::{has_body, loops_of},
    *,
};
use kiln_dialects::{ir::*, sym::Dim};

/// Reads a kernel. Structured ops are read as the loop nests that they stand for, of a copy that
/// the kernel owns; each stage keeps what its op says.
///
/// # Errors
/// The function contains an op that cannot be read.
pub fn read(func: Op) -> Result<Kernel> {
    let copy = Generalized::of(func)?.map(Rc::new);
    let source = copy.as_ref().map_or(func, |c| c.func);
    let block = source.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let kernel = Kernel {
        func,
        block,
        copy,
        buffers: vec![],
        stages: vec![],
        views: HashMap::new(),
        scalars: vec![],
        positions: HashMap::new(),
        attention: None,
        attention_gradient: None,
        pads: HashMap::new(),
    };
    let mut reader = Reader {
        k: kernel,
        fills: HashMap::new(),
        fresh: HashMap::new(),
        slices: HashMap::new(),
        leading_fills: 0,
    };
    reader.arguments(block)?;
    for op in block.ops() {
        reader.op(op).at(op)?;
    }
    let mut kernel = reader.k;
    let nests = kernel.copy.as_ref().and_then(|c| c.attention.as_ref());
    kernel.attention = nests.and_then(|n| Attention::of(&kernel, n));
    let nests = kernel.copy.as_ref().and_then(|c| c.attention_gradient.as_ref());
    kernel.attention_gradient = nests.and_then(|n| AttentionGradient::of(&kernel, n));
    Ok(kernel)
}

struct Reader {
    k: Kernel,
    /// Fills with a scalar that are not materialised yet.
    fills: HashMap<Value, Value>,
    /// Empty tensors (`tensor.empty`), with their sizes.
    fresh: HashMap<Value, Vec<Poly>>,
    /// Slices of a destination: stores to them go to the destination once they are inserted.
    slices: HashMap<Value, Value>,
    /// The number of leading stages that fill destinations.
    leading_fills: usize,
}

fn size(d: &Dim, dynamic: &mut impl Iterator<Item = Poly>) -> Result<Poly> {
    match d.known() {
        Some(n) => Ok(Poly::number(n)),
        None => dynamic.next().ok_or_else(|| "has a size that nothing states".to_string().into()),
    }
}

impl Reader {
    fn arguments(&mut self, block: Block) -> Result<()> {
        let func = self.k.func;
        let args = block.args();
        let indices: Vec<Value> = args.iter().copied().filter(|a| a.ty().is_index()).collect();
        let attrs = func.attr("arg_attrs").and_then(|a| a.as_array()).unwrap_or_default();
        for (i, a) in args.iter().enumerate().filter(|(_, a)| a.ty().is_tensor()) {
            let stated = attrs.get(i).and_then(|d| d.entry("kiln.sizes")).and_then(|s| s.as_i64s());
            let mut sizes = vec![];
            for (axis, d) in a.ty().dims().iter().enumerate() {
                let number =
                    d.known().or_else(|| stated.as_ref().and_then(|s| s.get(axis).copied()));
                let symbol = number.filter(|n| *n < 0).and_then(|n| indices.get((-1 - n) as usize));
                sizes.push(match (number, symbol) {
                    (Some(n), _) if n >= 0 => Poly::number(n),
                    (_, Some(v)) => Poly::symbol(*v),
                    _ => {
                        return Err(Error::at(
                            func,
                            format!(
                                "has argument {i}, whose kiln.sizes do not state dimension {axis}"
                            ),
                        ));
                    }
                });
            }
            self.buffer(*a, sizes, Role::Input(i)).at(func)?;
        }
        Ok(())
    }

    /// Allocates a buffer for a tensor.
    fn buffer(&mut self, tensor: Value, sizes: Vec<Poly>, role: Role) -> Result<StridedView> {
        let element = tensor.ty().element().ok_or("is no tensor")?;
        self.k.buffers.push(Buffer { element, sizes: sizes.clone(), role });
        let view = StridedView {
            buffer: self.k.buffers.len() - 1,
            offset: Poly::default(),
            strides: row_major(&sizes),
            sizes,
        };
        self.k.views.insert(tensor, view.clone());
        Ok(view)
    }

    fn poly(&self, v: Value) -> Poly {
        let constant = v
            .def()
            .filter(|d| d.isa::<arith::Constant>())
            .and_then(|d| d.attr("value"))
            .and_then(|a| a.as_i64());
        constant.map_or_else(|| Poly::symbol(v), Poly::number)
    }

    /// The sizes of a tensor of this type with these dynamic sizes.
    fn sizes(&self, ty: Type, dynamic: &[Value]) -> Result<Vec<Poly>> {
        let mut dynamic = dynamic.iter().map(|v| self.poly(*v));
        ty.dims().iter().map(|d| size(d, &mut dynamic)).collect()
    }

    fn op(&mut self, op: Op) -> Result<()> {
        match op.name().as_str() {
            tensor::Empty::NAME => {
                let sizes = self.sizes(op.result(0).ty(), &op.operands())?;
                self.fresh.insert(op.result(0), sizes);
                Ok(())
            }
            linalg::Fill::NAME => {
                let (value, out) = (op.operand(0), op.operand(1));
                let sizes = self.sizes_of(out)?;
                self.fresh.insert(op.result(0), sizes);
                self.fills.insert(op.result(0), value);
                if let Some(source) = self.slices.get(&out).copied() {
                    self.slices.insert(op.result(0), source);
                }
                Ok(())
            }
            linalg::Generic::NAME | "linalg.contract" => self.stage(op),
            tensor::ExpandShape::NAME | tensor::CollapseShape::NAME => self.reshape(op),
            tensor::ExtractSlice::NAME => self.extract(op),
            tensor::Pad::NAME => self.pad(op),
            tensor::InsertSlice::NAME => self.insert(op),
            tensor::Extract::NAME => self.position(op),
            func::Return::NAME => self.results(op),
            _ if op.results().iter().all(|r| !r.ty().is_tensor())
                && op.operands().iter().all(|r| !r.ty().is_tensor()) =>
            {
                self.k.scalars.push(op);
                Ok(())
            }
            _ => Err("is not known to the host's code generator".into()),
        }
    }

    fn sizes_of(&self, v: Value) -> Result<Vec<Poly>> {
        let view = self.k.views.get(&v).map(|w| &w.sizes).or_else(|| self.fresh.get(&v));
        view.cloned().ok_or_else(|| "takes a tensor that nothing defines".to_string().into())
    }

    /// The view of a tensor that is read; materialises a pending fill as a stage.
    fn view(&mut self, v: Value) -> Result<StridedView> {
        match self.k.views.get(&v) {
            Some(view) => Ok(view.clone()),
            None => self.own_buffer(v, v),
        }
    }

    /// Allocates a buffer for `tensor`, initialised as `source`, a fill or an empty tensor.
    fn own_buffer(&mut self, tensor: Value, source: Value) -> Result<StridedView> {
        let sizes = self.sizes_of(source)?;
        let view = self.buffer(tensor, sizes, Role::Temporary)?;
        if let (Some(value), Some(op)) = (self.fills.get(&source).copied(), source.def()) {
            let index: Vec<LinearExpr> = (0..view.sizes.len()).map(LinearExpr::dim).collect();
            let stage = Stage::moved(op, &view, index, vec![], Body::Fill(value));
            // First, since stages that write slices of it precede the insertion that names it.
            self.k.stages.insert(self.leading_fills, stage);
            self.leading_fills += 1;
        }
        Ok(view)
    }

    fn reshape(&mut self, op: Op) -> Result<()> {
        let source = op.operand(0);
        let old = self.sizes_of(source)?;
        let groups: Vec<Vec<i64>> = match op.attr("reassociation").and_then(|a| a.as_array()) {
            Some(all) => all
                .iter()
                .map(|g| {
                    g.as_array().unwrap_or_default().iter().filter_map(|i| i.as_i64()).collect()
                })
                .collect(),
            None => return Err("has no reassociation".into()),
        };
        let sizes = if op.isa::<tensor::CollapseShape>() {
            groups
                .iter()
                .map(|g| Poly::product(g.iter().filter_map(|i| old.get(*i as usize))))
                .collect()
        } else {
            self.sizes(op.result(0).ty(), &op.operands()[1..])?
        };
        let result = op.result(0);
        if let Some(view) = self.k.views.get(&source) {
            if view.strides != row_major(&view.sizes) {
                return Err("reshapes a slice of a tensor".into());
            }
            let view = StridedView { strides: row_major(&sizes), sizes, ..view.clone() };
            self.k.views.insert(result, view);
        } else {
            self.fresh.insert(result, sizes);
            if let Some(value) = self.fills.get(&source).copied() {
                self.fills.insert(result, value);
            }
        }
        Ok(())
    }

    /// A zero-padded argument.
    fn pad(&mut self, op: Op) -> Result<()> {
        let counts = |name: &str| {
            op.attr(name).and_then(|a| a.as_i64s()).filter(|all| all.iter().all(|n| *n >= 0))
        };
        let (low, high) = counts("static_low")
            .zip(counts("static_high"))
            .ok_or("pads by what is no known number")?;
        let end = op
            .regions()
            .first()
            .and_then(|r| r.first())
            .and_then(|b| b.terminator())
            .ok_or("has no body")?;
        let value = end.operands().first().and_then(|v| v.def()?.attr("value")?.as_f64());
        let source = self.view(op.operand(0))?;
        let Some(Buffer { role: Role::Input(argument), sizes, .. }) =
            self.k.buffers.get(source.buffer)
        else {
            return Err("pads what is no argument".into());
        };
        if value != Some(0.0) || *sizes != source.sizes || !source.offset.is_zero() {
            return Err("pads a slice of an argument, or with a value other than 0".into());
        }
        let (argument, sizes) = (*argument, sizes.clone());
        let padded = sizes
            .iter()
            .zip(low.iter().zip(&high))
            .map(|(n, (l, h))| n.plus(&Poly::number(l + h)))
            .collect();
        let place = self.buffer(op.result(0), padded, Role::Padded(argument))?;
        self.k.pads.insert(place.buffer, low.into_iter().zip(sizes).collect());
        Ok(())
    }

    /// Offsets, sizes and strides of a slice, whose operands follow the first `skip` ones.
    fn slice(&self, op: Op, skip: usize) -> Result<[Vec<Poly>; 3]> {
        let mut operands = op.operands().into_iter().skip(skip);
        let mut list = |name: &str| -> Result<Vec<Poly>> {
            let fixed = op
                .attr(name)
                .and_then(|a| a.as_i64s())
                .ok_or("has no offsets, sizes and strides")?;
            let one = |k: &i64| match *k == i64::MIN {
                true => {
                    operands.next().map(|v| self.poly(v)).ok_or_else(|| "lacks an operand".into())
                }
                false => Ok(Poly::number(*k)),
            };
            fixed.iter().map(one).collect()
        };
        Ok([list("static_offsets")?, list("static_sizes")?, list("static_strides")?])
    }

    fn extract(&mut self, op: Op) -> Result<()> {
        let [offsets, sizes, strides] = self.slice(op, 1)?;
        if op.result(0).ty().dims().len() != sizes.len() {
            return Err("drops dimensions".into());
        }
        let (source, result) = (op.operand(0), op.result(0));
        let destination =
            result.uses().iter().all(|(user, _)| has_body(*user) || user.isa::<linalg::Fill>());
        if destination
            && (self.fresh.contains_key(&source)
                || source.def().is_some_and(|d| d.isa::<tensor::InsertSlice>()))
        {
            self.fresh.insert(result, sizes);
            self.slices.insert(result, source);
            return Ok(());
        }
        let view = self.view(source)?;
        let offset = offsets
            .iter()
            .zip(&view.strides)
            .fold(view.offset.clone(), |o, (k, s)| o.plus(&k.times(s)));
        let strides = view.strides.iter().zip(&strides).map(|(a, b)| a.times(b)).collect();
        self.k.views.insert(result, StridedView { buffer: view.buffer, offset, sizes, strides });
        Ok(())
    }

    /// An element of an argument that is a position: a scalar that is loaded once.
    fn position(&mut self, op: Op) -> Result<()> {
        let view = self.view(op.operand(0))?;
        let argument = matches!(self.k.buffers[view.buffer].role, Role::Input(_));
        let first = view.sizes.iter().all(|n| n.known() == Some(1)) && view.offset.is_zero();
        if !argument || !first {
            return Err("takes a position from what is no argument of one element".into());
        }
        self.k.scalars.push(op);
        self.k.positions.insert(op, view.buffer);
        Ok(())
    }

    fn insert(&mut self, op: Op) -> Result<()> {
        let (piece, whole, result) = (op.operand(0), op.operand(1), op.result(0));
        let [offsets, sizes, steps] = self.slice(op, 2)?;
        if piece.ty().dims().len() != sizes.len() {
            return Err("adds dimensions".into());
        }
        let running =
            whole.uses().iter().filter(|(u, _)| !u.isa::<tensor::ExtractSlice>()).count() == 1;
        let target = match self.k.views.get(&whole) {
            // Several ops may share an empty tensor as their destination; each gets its own buffer.
            None => self.own_buffer(result, whole)?,
            Some(view) if running => view.clone(),
            Some(_) => return Err("writes to a tensor that is used elsewhere".into()),
        };
        let offset = offsets
            .iter()
            .zip(&target.strides)
            .fold(target.offset.clone(), |o, (k, s)| o.plus(&k.times(s)));
        let strides: Vec<Poly> =
            target.strides.iter().zip(&steps).map(|(a, b)| a.times(b)).collect();
        let place = StridedView { buffer: target.buffer, offset, sizes, strides };
        let writer = piece.def().filter(|d| has_body(*d) && piece.uses().len() == 1);
        let written =
            writer.and_then(|d| self.k.stages.iter_mut().find(|s| s.op == d)).and_then(|s| {
                let old = self.k.views.get(&piece)?.buffer;
                s.outputs.iter_mut().find(|o| o.access.buffer == old)
            });
        match written {
            // The producer writes to its slice of the destination directly.
            Some(out) if matches!(out.init, Init::None | Init::Fill(_)) => {
                out.access = Access { buffer: place.buffer, at: place.at(&out.index) };
            }
            _ => {
                let from = self.view(piece)?;
                let index: Vec<LinearExpr> = (0..from.sizes.len()).map(LinearExpr::dim).collect();
                let input = Access { buffer: from.buffer, at: from.at(&index) };
                self.k.stages.push(Stage::moved(op, &place, index, vec![input], Body::Copy));
            }
        }
        self.k.views.insert(result, target);
        Ok(())
    }

    fn results(&mut self, op: Op) -> Result<()> {
        for (i, v) in op.operands().into_iter().enumerate() {
            let view = self.view(v)?;
            let whole = self.k.buffers.get(view.buffer).ok_or("has no buffer")?;
            let contiguous =
                view.offset.is_zero() && Poly::product(&whole.sizes) == Poly::product(&view.sizes);
            let written = self
                .k
                .stages
                .iter()
                .any(|s| s.outputs.iter().any(|o| o.access.buffer == view.buffer));
            let read = || self.k.stages.iter().any(|s| s.reads_buffer(view.buffer));
            // Destination-passing style: an argument with inserted slices is the memory of the
            // result, which the launch passes on.
            let handed_on = matches!(whole.role, Role::Input(_)) && written;
            if handed_on && (read() || !contiguous) {
                return Err("reads the tensor that it inserts slices into".into());
            }
            if (whole.role == Role::Temporary || handed_on) && contiguous {
                let b = &mut self.k.buffers[view.buffer];
                (b.role, b.sizes) = (Role::Output(i), view.sizes);
                continue;
            }
            let element = v.ty().element().ok_or("returns what is no tensor")?;
            self.k.buffers.push(Buffer {
                element,
                sizes: view.sizes.clone(),
                role: Role::Output(i),
            });
            let copy = StridedView {
                buffer: self.k.buffers.len() - 1,
                offset: Poly::default(),
                strides: row_major(&view.sizes),
                sizes: view.sizes.clone(),
            };
            let index: Vec<LinearExpr> = (0..view.sizes.len()).map(LinearExpr::dim).collect();
            let input = Access { buffer: view.buffer, at: view.at(&index) };
            self.k.stages.push(Stage::moved(op, &copy, index, vec![input], Body::Copy));
        }
        Ok(())
    }

    fn stage(&mut self, op: Op) -> Result<()> {
        let (maps, reduction) = loops_of(op)?;
        let outs = op.result_count();
        let ins = op.operand_count().checked_sub(outs).ok_or("has fewer operands than results")?;
        let block = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let (args, end) = (block.args(), block.terminator().ok_or("has no terminator")?);
        let shapes: Vec<Vec<Poly>> =
            op.operands().into_iter().map(|v| self.sizes_of(v)).collect::<Result<_, _>>()?;
        let mut extents: Vec<Option<Poly>> = vec![None; reduction.len()];
        for (results, shape) in maps.iter().zip(&shapes) {
            for (e, n) in results.iter().zip(shape) {
                if let Some(d) = e.as_dim()
                    && let Some(slot) = extents.get_mut(d)
                    && slot.as_ref().is_none_or(|old| old.known().is_none())
                {
                    *slot = Some(n.clone());
                }
            }
        }
        let extents: Vec<Poly> = extents
            .into_iter()
            .collect::<Option<_>>()
            .ok_or("has a loop dimension whose size no operand states")?;
        let index = |i: usize| -> Result<Vec<LinearExpr>> {
            maps.get(i)
                .ok_or("has too few indexing maps")?
                .iter()
                .map(|e| LinearExpr::of(e, &extents))
                .collect()
        };
        let mut stage = Stage {
            op,
            extents: extents.clone(),
            reduction,
            inputs: vec![],
            outputs: vec![],
            body: Body::Block(block),
            structure: match &self.k.copy {
                Some(copy) if copy.structures.contains_key(&op) => {
                    copy.structures.get(&op).cloned()
                }
                _ => Structure::of(op)?,
            },
            captured: vec![],
            indexed: vec![],
            dims: (0..extents.len()).map(LinearExpr::dim).collect(),
            merges: op.attr(MERGES).is_some(),
        };
        for i in 0..ins {
            let view = self.view(op.operand(i))?;
            stage.inputs.push(Access { buffer: view.buffer, at: view.at(&index(i)?) });
        }
        for inner in block.ops() {
            if inner.isa::<tensor::Extract>() {
                let view = self.view(inner.operand(0))?;
                stage.captured.push(view.buffer);
            } else if inner.isa::<linalg::Index>() {
                stage
                    .indexed
                    .extend(inner.attr("dim").and_then(|a| a.as_i64()).map(|d| d as usize));
            } else if !inner.regions().is_empty() {
                return Err(format!("has a {} in its body", inner.name()).into());
            }
        }
        for o in 0..outs {
            let (index, old) = (index(ins + o)?, op.operand(ins + o));
            let running = *args.get(ins + o).ok_or("has too few block arguments")?;
            let init = match (running.uses().is_empty(), self.fills.get(&old)) {
                (true, _) => Init::None,
                (_, Some(v)) => Init::Fill(*v),
                _ => {
                    let view = self.view(old)?;
                    Init::Load(Access { buffer: view.buffer, at: view.at(&index) })
                }
            };
            let view = self.buffer(op.result(o), shapes[ins + o].clone(), Role::Temporary)?;
            let reduces =
                (0..extents.len()).any(|d| stage.reduction[d] && !index.iter().any(|i| i.uses(d)));
            let combine = if reduces && !stage.merges {
                Combine::of(block, running, end.operand(o))
            } else {
                None
            };
            let access = Access { buffer: view.buffer, at: view.at(&index) };
            stage.outputs.push(Output { access, index, init, reduces, combine });
        }
        if stage.merges {
            stage.merge_is_sound()?;
        }
        self.k.stages.push(stage);
        Ok(())
    }
}
