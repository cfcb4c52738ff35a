//! `kiln-host-abi`: lowers the host function to kernel calls inside of one fork-join parallel
//! region.
//!
//! Why: a program is called with one array of words (arena, arguments, results, weights, sizes), so
//! the calling overhead is a few loads. All kernels share one `omp.parallel`. A barrier separates
//! two launches only if the second reads what the first wrote, or reuses memory that it used, such
//! as that of a donated argument (`kiln.aliases`). Work too small for threads runs without a
//! parallel region. Kernels keep their own modules; the host function refers to their symbols.
//!
//! A kernel that is a runtime function is called with words on the stack, and its declaration is
//! erased.
//!
//! Each launch is recorded in the call's profile; without a profile this returns at once.
//!
//! What the host functions took and gave is kept as the module's `kiln.programs`.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %e = kiln.arena %c0 …   %0 = kiln.launch @k ins(%x) outs(%e)   %1 = kiln.launch @l ins(%0) outs(%o)
//! after:   omp.parallel { func.call @kiln_k(%x, %e, %tid, %nth)   omp.barrier   func.call @kiln_l(%e, %o, %tid, %nth) }
//! ```
use crate::program::{
    argument_array::ArgumentArray,
    description,
    interface::{entry_symbol, facts, kernel_symbol},
    library_call::{Library, declared_sizes},
    plan::{aliases, host_functions},
    slots::Slots,
};
use kiln_dialects::{
    ir::*,
    ops::{Arena, Launch, OpKind, Output},
    rules::{Level, is_driver, tensor_type},
    sym::Dim as SymDim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use kiln_runtime::profile;
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct HostAbi {
        /// Flops plus four times the bytes moved below which a program runs on one thread
        pub serial_below: i64 = 1000000,
    }
}

impl Pass for HostAbi {
    const FLAG: &'static str = "kiln-host-abi";
    const SUMMARY: &'static str =
        "Lowers host functions to calls of kernels inside one parallel region";
    const LEVELS: &'static [Level] = &[Level::Program];
    const LOWERS_TO: Option<Level> = Some(Level::Target);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;
    const DIALECTS: &'static [&'static str] = &["llvm", "omp", "scf"];

    fn run(&self, root: Op) -> Result<()> {
        description::write(root)?;
        let (mut kernels, mut declarations) = (HashMap::new(), vec![]);
        for m in blocks(root)
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.attr("kiln.kernel").is_some())
        {
            let symbol = kernel_symbol(m);
            let library = Library::of(m).map(|l| (l, declared_sizes(m)));
            if library.is_some() {
                declarations.push(m);
            }
            blocks(m)
                .into_iter()
                .flat_map(|b| b.ops())
                .filter(|o| o.isa::<func::Func>())
                .for_each(|f| f.set_attr("sym_name", Attr::string(m.ctx(), &symbol)));
            kernels.insert(m.symbol().unwrap_or_default(), Callee { symbol, library });
        }
        let mut declared = HashSet::new();
        for func in host_functions(root) {
            let host = Host::read(func, &kernels, self.serial_below)?;
            host.apply(root, &mut declared).at(func)?;
        }
        declarations.into_iter().for_each(Op::erase);
        // The runtime interprets it as plain data.
        let drivers = blocks(root).into_iter().flat_map(|b| b.ops()).filter(|o| is_driver(*o));
        drivers.collect::<Vec<_>>().into_iter().for_each(Op::erase);
        let globals = blocks(root)
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.kind() == Some(OpKind::Global));
        globals.collect::<Vec<_>>().into_iter().for_each(Op::erase);
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Target.name()));
        Ok(())
    }
}

/// The callee of a launch.
struct Callee {
    symbol: String,
    /// A library call, with the sizes of its tensors.
    library: Option<(Library, Vec<Vec<i64>>)>,
}

struct Host<'a> {
    func: Op,
    ops: Vec<Op>,
    slots: Slots,
    kernels: &'a HashMap<String, Callee>,
    serial_below: i64,
    args: Vec<Value>,
    /// The argument whose memory a result may have.
    aliases: HashMap<usize, Value>,
    facts: Facts,
}

impl<'a> Host<'a> {
    fn read(func: Op, kernels: &'a HashMap<String, Callee>, serial_below: i64) -> Result<Host<'a>> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
        Ok(Host {
            func,
            ops: block.ops(),
            slots: Slots::of(func)?,
            kernels,
            serial_below,
            args: block.args(),
            aliases: aliases(func, block),
            facts: facts(func)?,
        })
    }

    fn launches(&self) -> impl Iterator<Item = (Op, Launch)> {
        self.ops.iter().filter_map(|op| Some((*op, Launch::of(*op)?)))
    }

    fn apply(&self, root: Op, declared: &mut HashSet<String>) -> Result<()> {
        let c = root.ctx();
        let ptr = Type::llvm_ptr(c, 0);
        let (int, word) = (Type::integer(c, 32), Type::integer(c, 64));
        let top = Builder::before(self.func).ok_or("is in no block")?;
        for (op, launch) in self.launches() {
            let callee = self
                .kernels
                .get(&launch.kernel)
                .ok_or_else(|| format!("launches @{}, which is no kernel", launch.kernel))?;
            if declared.insert(callee.symbol.clone()) {
                let (pointers, words) = match callee.library {
                    Some(_) => (1, 2),
                    None => (launch.inputs.len() + launch.outs.len(), launch.sizes.len() + 2),
                };
                let inputs = [vec![ptr; pointers], vec![word; words]].concat();
                let ty = Type::function(c, &inputs, &[]);
                func::Func::new(top.at(op.loc()), &callee.symbol, ty)
                    .sym_visibility("private")
                    .build()?;
            }
        }
        let name = entry_symbol(&self.func.symbol().unwrap_or_default());
        top.function(&name, &[ptr, int], &[], &mut |b, args| {
            let mut words = self.argument_array(b, args[0])?;
            let one = words.constant(1, word)?;
            let zero = words.constant(0, word)?;
            let parallel = self.is_worth_threads(&mut words, args[1], int)?;
            let alone =
                |b: Builder| self.calls(&mut self.argument_array(b, args[0])?, zero, one, false);
            match parallel {
                None => alone(b)?,
                Some(condition) => {
                    let mut threads = |b: Builder, _: Vec<Value>| {
                        let mut region = |b: Builder, _: Vec<Value>| {
                            let call = |name: &str| -> Result<Value> {
                                let n = func::call(b, name, &[], &[int])?.result(0);
                                arith::extsi(b, n, word)
                            };
                            let (tid, nth) =
                                (call("omp_get_thread_num")?, call("omp_get_num_threads")?);
                            self.calls(&mut self.argument_array(b, args[0])?, tid, nth, true)?;
                            omp::terminator(b)
                        };
                        omp::Parallel::new(b, &[], &[], &[], &[])
                            .num_threads(args[1])
                            .region((&[], &mut region))
                            .build()?;
                        scf::yield_(b, &[])
                    };
                    let mut serial = |b: Builder, _: Vec<Value>| {
                        alone(b)?;
                        scf::yield_(b, &[])
                    };
                    scf::if_(b, condition, &[], (&[], &mut threads), (&[], &mut serial))?;
                }
            }
            b.ret(&[]).map(|_| ())
        })?;
        for (name, inputs, results) in [
            ("omp_get_thread_num", [].as_slice(), [int].as_slice()),
            ("omp_get_num_threads", &[], &[int]),
            (profile::SYMBOL, &[ptr, word, word], &[]),
        ] {
            if declared.insert(name.into()) {
                let ty = Type::function(c, inputs, results);
                func::Func::new(top, name, ty).sym_visibility("private").build()?;
            }
        }
        self.func.erase();
        Ok(())
    }

    fn argument_array(&self, b: Builder, args: Value) -> Result<ArgumentArray<'_>> {
        ArgumentArray::new(&self.slots, &self.args, b, args)
    }

    /// An i1: more than one thread, and enough work for them. `None` if this is statically false.
    fn is_worth_threads(
        &self,
        w: &mut ArgumentArray,
        threads: Value,
        int: Type,
    ) -> Result<Option<Value>> {
        let mut work = SymDim::Known(0);
        for (_, launch) in self.launches() {
            let elements =
                |v: &Value| self.facts.dims(*v).iter().fold(SymDim::Known(1), |n, d| n.mul(d));
            for v in launch.inputs.iter().filter(|v| !launch.outs.contains(v)).chain(&launch.outs) {
                let bytes = tensor_type(v.ty())?.dtype.byte_size() as i64;
                work = work.add(&elements(v).mul(&SymDim::Known(bytes * 4)));
            }
            if let Some(out) = launch.outs.first() {
                work = work
                    .add(&elements(out).mul(&SymDim::Known(launch.flops_per_element.unwrap_or(0))));
            }
        }
        if work.known().is_some_and(|n| n < self.serial_below) {
            return Ok(None);
        }
        let one = w.constant(1, int)?;
        let many = arith::cmpi(w.b, CmpIPredicate::Sgt, threads, one)?;
        // Work without a size expression counts as enough.
        let terms = work.terms();
        if terms.is_empty() {
            return Ok(Some(many));
        }
        let mut sum = w.constant(0, w.word)?;
        for (factors, n) in terms {
            let mut product = w.constant(n, w.word)?;
            for a in factors {
                let size = match self.named(&SymDim::atom(a)) {
                    Some(v) => w.number(v)?,
                    None => w.constant(128, w.word)?,
                };
                product = arith::muli(w.b, product, size)?;
            }
            sum = arith::addi(w.b, sum, product)?;
        }
        let least = w.constant(self.serial_below, w.word)?;
        let enough = arith::cmpi(w.b, CmpIPredicate::Sgt, sum, least)?;
        arith::andi(w.b, many, enough).map(Some)
    }

    /// The SSA value of a size.
    fn named(&self, size: &SymDim) -> Option<Value> {
        let made =
            |op: &&Op| matches!(op.kind(), Some(OpKind::Sym | OpKind::SymExpr | OpKind::Dim));
        self.ops
            .iter()
            .filter(made)
            .map(|op| op.result(0))
            .find(|v| self.facts.size_value(*v) == *size)
    }

    /// Emits every launch as a call, with the barriers that a team of threads needs.
    fn calls(&self, w: &mut ArgumentArray, tid: Value, nth: Value, team: bool) -> Result<()> {
        let mut open: Vec<(Op, Launch)> = vec![];
        // Runtime calls run one after the other on one thread, so they share the memory for their
        // words.
        let words = self
            .launches()
            .filter_map(|(_, l)| {
                self.kernels[&l.kernel].library.as_ref().map(|(f, _)| f.word_count(&l))
            })
            .max();
        let memory = match words {
            None => None,
            Some(n) => Some(llvm::alloca(w.b, w.constant(n as i64, w.word)?, w.word, w.ptr)?),
        };
        w.launches_over(0, tid)?;
        for (n, (op, launch)) in self.launches().enumerate() {
            if team
                && open.iter().any(|(earlier, other)| self.conflicts(*earlier, other, n, &launch))
            {
                omp::barrier(w.b.at(op.loc()))?;
                open.clear();
            }
            let Callee { symbol, library } = &self.kernels[&launch.kernel];
            let mut operands = vec![];
            if let (Some((library, sizes)), Some(memory)) = (library, memory) {
                library.write(w, &launch, sizes, memory)?;
                operands.push(memory);
            } else {
                for v in launch.inputs.iter().chain(&launch.outs) {
                    operands.push(w.pointer(*v)?);
                }
                for v in &launch.sizes {
                    operands.push(w.number(*v)?);
                }
            }
            operands.extend([tid, nth]);
            func::call(w.b.at(op.loc()), symbol, &operands, &[])?;
            w.launches_over(n as i64 + 1, tid)?;
            open.push((op, launch));
        }
        Ok(())
    }

    /// Whether a launch has to wait at a barrier for an earlier one.
    fn conflicts(&self, earlier: Op, other: &Launch, n: usize, launch: &Launch) -> bool {
        let base = |mut v: Value| {
            while let Some(op) = v.def().filter(|o| o.kind() == Some(OpKind::Reshape)) {
                v = op.operand(0);
            }
            v
        };
        // The memory that a launch writes to: a buffer, or a tensor into which an earlier launch
        // inserted slices.
        let written = |v: Value| -> Option<Value> {
            let op = v.def().filter(|o| o.kind() == Some(OpKind::Launch))?;
            let i = op.results().iter().position(|r| *r == v)?;
            Launch::of(op)?.outs.get(i).copied()
        };
        let of_earlier = |v: Value| {
            std::iter::successors(Some(base(v)), |v| written(*v)).any(|v| v.def() == Some(earlier))
        };
        // Slices of one tensor do not overlap, so launches that write them need no barrier between
        // them.
        let reads = launch.inputs.iter().any(|v| !launch.outs.contains(v) && of_earlier(*v));
        // A launch may reuse arena memory whose last reader ran without a barrier since.
        let arena = |v: &Value| {
            std::iter::successors(Some(base(*v)), |v| written(*v)).last()?.def().and_then(Arena::of)
        };
        let ended = |v: &Value| arena(v).is_some_and(|a| a.last < n as i64);
        let writes = launch.outs.iter().any(|v| arena(v).is_some_and(|a| a.first == n as i64));
        // A result may have the memory of an argument that earlier launches read.
        let overwritten = |v: &Value| {
            let output = Output::of(base(*v).def()?)?;
            self.aliases.get(&(output.index as usize)).copied()
        };
        let aliased = launch
            .outs
            .iter()
            .filter_map(overwritten)
            .any(|v| other.inputs.iter().any(|read| base(*read) == v));
        reads || aliased || (writes && other.inputs.iter().chain(&other.outs).any(ended))
    }
}
