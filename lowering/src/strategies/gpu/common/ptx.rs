//! Hopper (sm_90a) instructions: mbarriers, TMA loads, `wgmma`, cluster barriers, `setmaxnreg`. All
//! integers are i32, and so are shared-memory addresses.
use crate::emit::code::Code;
use kiln_dialects::{ir::*, value::DType};

/// Emits ops at the insertion point of a [`Code`].
#[derive(Clone, Copy)]
pub struct Ptx(pub Code);

/// One `wgmma` of 64 rows: D = A B + D.
pub struct Mma<'a> {
    /// Columns (N).
    pub columns: usize,
    /// Element type of A and B.
    pub element: &'a str,
    /// Whether A is K-major.
    pub left_deep: bool,
    /// Whether B is K-major.
    pub right_deep: bool,
}

impl Ptx {
    /// `f32`.
    pub fn f32(self) -> Type {
        Type::scalar(self.0.ctx(), DType::F32)
    }
    pub(crate) fn ty(self, text: &str) -> Result<Type> {
        Type::parse(self.0.ctx(), text).ok_or_else(|| format!("'{text}' is no type").into())
    }
    pub(crate) fn attr(self, text: &str) -> Result<Attr> {
        Attr::parse(self.0.ctx(), text).ok_or_else(|| format!("'{text}' is no attribute").into())
    }
    pub(crate) fn i32(self) -> Type {
        Type::scalar(self.0.ctx(), DType::I32)
    }
    /// An i32 constant.
    pub fn number(self, n: usize) -> Result<Value> {
        self.constant(n as i64)
    }
    /// A signed i32 constant.
    pub fn constant(self, n: i64) -> Result<Value> {
        self.0.constant(&n.to_string(), self.i32())
    }
    /// `a + n` for a signed constant `n`.
    pub fn shifted(self, a: Value, n: i64) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.constant(n)?) }
    }
    /// `a - b`.
    pub fn minus(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.subi", a, b)
    }
    /// Signed minimum.
    pub fn least(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.minsi", a, b)
    }
    /// Signed maximum.
    pub fn most(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.maxsi", a, b)
    }
    pub(crate) fn two(self, name: &str, a: Value, b: Value) -> Result<Value> {
        self.0.op(name, &[a, b], a.ty(), &[])
    }
    /// `a + b`.
    pub fn add(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.addi", a, b)
    }
    /// `a + n` for a constant `n`.
    pub fn plus(self, a: Value, n: usize) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.number(n)?) }
    }
    /// `a * n` for a constant `n`.
    pub fn times(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.muli", a, self.number(n)?)
    }
    /// Quotient of `a` by a constant `n`.
    pub fn over(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.divui", a, self.number(n)?)
    }
    /// Remainder of `a` by a constant `n`.
    pub fn rest(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.remui", a, self.number(n)?)
    }
    /// Whether `a` equals the constant `n`.
    pub fn is(self, a: Value, n: usize) -> Result<Value> {
        self.0.compare(0, a, self.number(n)?)
    }
    /// `index` to i32.
    pub fn of(self, index: Value) -> Result<Value> {
        self.0.op("arith.index_cast", &[index], self.i32(), &[])
    }
    /// i32 to `index`.
    pub fn index(self, a: Value) -> Result<Value> {
        self.0.op("arith.index_castui", &[a], Type::index(self.0.ctx()), &[])
    }

    /// The thread index in its CTA.
    pub fn thread(self) -> Result<Value> {
        self.0.op("nvvm.read.ptx.sreg.tid.x", &[], self.i32(), &[])
    }
    /// The warp index of a thread, broadcast so that the compiler knows it to be warp-uniform.
    pub fn warp(self, thread: Value) -> Result<Value> {
        let kind = self.attr("#nvvm<shfl_kind idx>")?;
        let operands =
            [self.constant(-1)?, self.over(thread, 32)?, self.number(0)?, self.number(31)?];
        self.0.op("nvvm.shfl.sync", &operands, self.i32(), &[("kind", kind)])
    }
    /// Base of the kernel's dynamic shared memory, aligned to 1024 bytes for the swizzle. `func`:
    /// the kernel's function, which requests it.
    pub fn memory(self, func: Op) -> Result<Value> {
        let (c, name) = (self.0.ctx(), "shared");
        let top = Builder::before(func).ok_or("is in no module")?;
        let attrs = [
            ("addr_space", Attr::scalar_int(c, DType::I32, 3)),
            ("alignment", Attr::i64(c, 1024)),
            ("global_type", Attr::ty(self.ty("!llvm.array<0 x i8>")?)),
            ("linkage", self.attr("#llvm.linkage<external>")?),
            ("sym_name", Attr::string(c, name)),
        ];
        top.generic_with_empty_region("llvm.mlir.global", &attrs)?;
        let at = self.0.op(
            "llvm.mlir.addressof",
            &[],
            self.ty("!llvm.ptr<3>")?,
            &[("global_name", Attr::symbol(c, name))],
        )?;
        let at = self.0.op("llvm.ptrtoint", &[at], self.i32(), &[])?;
        self.two("arith.andi", self.plus(at, 1023)?, self.constant(-1024)?)
    }
    pub(crate) fn at(self, address: Value) -> Result<Value> {
        self.0.op("llvm.inttoptr", &[address], self.ty("!llvm.ptr<3>")?, &[])
    }

    /// Cluster barrier: waits for all threads of the cluster, and orders their writes (release,
    /// acquire).
    pub fn cluster(self) -> Result<()> {
        self.gather("nvvm.cluster.arrive")
    }
    /// Relaxed cluster barrier: orders no writes, which saves a microsecond.
    pub fn meet(self) -> Result<()> {
        self.gather("nvvm.cluster.arrive.relaxed")
    }
    fn gather(self, arrive: &str) -> Result<()> {
        let aligned = [("aligned", Attr::unit(self.0.ctx()))];
        self.0.effect(arrive, &[], &aligned)?;
        self.0.effect("nvvm.cluster.wait", &[], &aligned)
    }
    /// Pointer to the same shared-memory address in another CTA of the cluster (`mapa`).
    pub fn of_block(self, address: Value, rank: Value) -> Result<Value> {
        self.0.op("nvvm.mapa", &[self.at(address)?, rank], self.ty("!llvm.ptr<7>")?, &[])
    }

    /// The next stage of a ring of `count` stages, and the parity of its phase.
    pub fn next(self, slot: Value, parity: Value, count: usize) -> Result<[Value; 2]> {
        let (c, next) = (self.0, self.plus(slot, 1)?);
        let around = self.is(next, count)?;
        let other = c.op("arith.xori", &[parity, self.number(1)?], parity.ty(), &[])?;
        Ok([c.select(around, self.number(0)?, next)?, c.select(around, other, parity)?])
    }

    /// Initialises an mbarrier with its arrival count.
    pub fn barrier(self, address: Value, arrivals: usize) -> Result<()> {
        self.0.effect("nvvm.mbarrier.init", &[self.at(address)?, self.number(arrivals)?], &[])
    }
    /// Fence: makes this thread's mbarrier initialisations visible to all threads and to TMA.
    pub fn publish(self) -> Result<()> {
        self.0.effect("nvvm.fence.mbarrier.init", &[], &[])?;
        let attrs = [
            ("kind", self.attr("#nvvm.proxy_kind<async.shared>")?),
            ("space", self.attr("#nvvm.shared_space<cta>")?),
        ];
        self.0.effect("nvvm.fence.proxy", &[], &attrs)
    }
    /// Waits for the mbarrier phase of this parity.
    pub fn wait(self, address: Value, parity: Value) -> Result<()> {
        // Suspend-time hint of one `try_wait`, in nanoseconds.
        let tries = self.number(10_000_000)?;
        self.0.effect("nvvm.mbarrier.try_wait.parity", &[self.at(address)?, parity, tries], &[])
    }
    fn scope(self) -> Result<[(&'static str, Attr); 2]> {
        Ok([("relaxed", self.attr("false")?), ("scope", self.attr("#nvvm.mem_scope<cta>")?)])
    }
    /// Arrives at an mbarrier.
    pub fn arrive(self, address: Value) -> Result<()> {
        self.0.effect("nvvm.mbarrier.arrive", &[self.at(address)?], &self.scope()?)
    }
    /// Arrives at an mbarrier and adds to its transaction count (`arrive.expect_tx`), in bytes.
    pub fn expect(self, address: Value, bytes: usize) -> Result<()> {
        self.0.effect(
            "nvvm.mbarrier.arrive.expect_tx",
            &[self.at(address)?, self.number(bytes)?],
            &self.scope()?,
        )
    }
    /// Starts a TMA load of the box at these coordinates, the innermost first; its bytes complete
    /// on the mbarrier.
    pub fn copy(self, to: Value, map: Value, coordinates: &[Value], barrier: Value) -> Result<()> {
        let to = self.0.op("llvm.addrspacecast", &[self.at(to)?], self.ty("!llvm.ptr<7>")?, &[])?;
        let operands = [&[to, map], coordinates, &[self.at(barrier)?]].concat();
        let counts = [1, 1, coordinates.len() as i32, 1, 0, 0, 0, 0];
        let attrs = [
            ("isCTAOnly", self.attr("false")?),
            ("mode", self.attr("#nvvm.tma_load_mode<tile>")?),
            ("operandSegmentSizes", Attr::i32s(self.0.ctx(), &counts)),
        ];
        self.0.effect("nvvm.cp.async.bulk.tensor.shared.cluster.global", &operands, &attrs)
    }
    /// Sets the registers per thread of the executing warpgroup (`setmaxnreg`).
    pub fn registers(self, count: usize, more: bool) -> Result<()> {
        let action =
            self.attr(if more { "#nvvm<action increase>" } else { "#nvvm<action decrease>" })?;
        let count = Attr::scalar_int(self.0.ctx(), DType::I32, count as i64);
        self.0.effect("nvvm.setmaxregister", &[], &[("action", action), ("regCount", count)])
    }

    /// `wgmma` descriptor of a tile with 128-byte swizzle; a swizzle atom of 8 rows is 1024 bytes.
    /// An MN-major tile consists of slices of 64 by 64.
    pub fn descriptor(self, address: Value, deep: bool) -> Result<Value> {
        self.slabs(address, if deep { 16 } else { 8192 })
    }
    /// The same where slices of 64 elements a row are `apart` bytes apart. A tile of one slice only
    /// is K-major.
    pub fn slabs(self, address: Value, apart: usize) -> Result<Value> {
        let slab = (apart as i64) >> 4;
        let i64_ty = Type::scalar(self.0.ctx(), DType::I64);
        // The address field has 14 bits; above them the address holds the CTA rank in its cluster.
        let field = self.two("arith.andi", self.over(address, 16)?, self.constant(0x3fff)?)?;
        let at = self.0.op("arith.extui", &[field], i64_ty, &[])?;
        let fixed = self
            .0
            .constant(&((1i64 << 62) | ((1024 >> 4) << 32) | (slab << 16)).to_string(), i64_ty)?;
        self.two("arith.ori", at, fixed)
    }
    /// Advances a descriptor by this many bytes.
    pub fn further(self, descriptor: Value, bytes: usize) -> Result<Value> {
        if bytes == 0 {
            return Ok(descriptor);
        }
        self.two(
            "arith.addi",
            descriptor,
            self.0.constant(&(bytes / 16).to_string(), descriptor.ty())?,
        )
    }
    /// Type of a thread's accumulators for `columns` columns.
    pub fn sums(self, columns: usize) -> Result<Type> {
        self.ty(&format!("!llvm.struct<({})>", vec!["f32"; columns / 2].join(", ")))
    }
    /// Undefined accumulators, which nothing may read.
    pub fn nothing(self, columns: usize) -> Result<Value> {
        self.0.op("llvm.mlir.undef", &[], self.sums(columns)?, &[])
    }
    /// `wgmma.fence`: orders earlier register writes before `wgmma`.
    pub fn begin(self) -> Result<()> {
        self.0.effect("nvvm.wgmma.fence.aligned", &[], &[])
    }
    /// Starts a `wgmma` with K = 16 (8 for tf32). `fresh`: ignores the accumulators' old values
    /// (scale-D is 0).
    pub fn mma(
        self,
        mma: &Mma<'_>,
        left: Value,
        right: Value,
        sums: Value,
        fresh: bool,
    ) -> Result<Value> {
        let Mma { columns, element, left_deep, right_deep } = mma;
        let major = |row: bool| {
            self.attr(&format!("#nvvm.mma_layout<{}>", if row { "row" } else { "col" }))
        };
        let (kind, one) = (
            self.attr(&format!("#nvvm.wgmma_type<{element}>"))?,
            self.attr("#nvvm.wgmma_scale_in<one>")?,
        );
        let attrs = [
            ("layoutA", major(*left_deep)?),
            ("layoutB", major(!*right_deep)?),
            ("scaleA", one),
            ("scaleB", one),
            (
                "scaleD",
                self.attr(if fresh {
                    "#nvvm.wgmma_scale_out<zero>"
                } else {
                    "#nvvm.wgmma_scale_out<one>"
                })?,
            ),
            (
                "shape",
                self.attr(&format!(
                    "#nvvm.shape<m = 64, n = {columns}, k = {}>",
                    if *element == "tf32" { 8 } else { 16 }
                ))?,
            ),
            ("typeA", kind),
            ("typeB", kind),
            ("typeD", self.attr("#nvvm.wgmma_type<f32>")?),
        ];
        self.0.op("nvvm.wgmma.mma_async", &[sums, left, right], sums.ty(), &attrs)
    }
    /// Commits the `wgmma`s started so far as one group (`wgmma.commit_group`).
    pub fn group(self) -> Result<()> {
        self.0.effect("nvvm.wgmma.commit.group.sync.aligned", &[], &[])
    }
    /// Commits the `wgmma`s started so far as one group, and waits until it is the only one in
    /// flight.
    pub fn commit(self) -> Result<()> {
        self.group()?;
        self.0.effect(
            "nvvm.wgmma.wait.group.sync.aligned",
            &[],
            &[("group", Attr::i64(self.0.ctx(), 1))],
        )
    }
    /// The accumulators of a `wgmma` as single values.
    pub fn each(self, sums: Value, count: usize) -> Result<Vec<Value>> {
        let part = |i: usize| {
            self.0.op(
                "llvm.extractvalue",
                &[sums],
                self.f32(),
                &[("position", Attr::i64s(self.0.ctx(), &[i as i64]))],
            )
        };
        (0..count).map(part).collect()
    }
    /// Waits for all `wgmma`s; returns their accumulators as single values.
    pub fn finish(self, sums: &[Value], columns: usize) -> Result<Vec<Vec<Value>>> {
        let each = columns / 2;
        let values = sums.iter().map(|s| self.each(*s, each)).collect::<Result<Vec<_>>>()?.concat();
        let done = self.until(0, &values, &[])?;
        Ok(done.chunks(each).map(<[Value]>::to_vec).collect())
    }
    /// `wgmma.wait_group`: waits until at most `under_way` groups are in flight. Returns `values`
    /// as new SSA values, so that nothing computes or reads them across the wait. Registers of
    /// `alive` stay untouched until then. The NVVM op takes no values, so that nothing would keep
    /// reads of them after it.
    pub fn until(self, under_way: usize, values: &[Value], alive: &[Value]) -> Result<Vec<Value>> {
        let text = format!("wgmma.wait_group.sync.aligned {under_way};");
        let (made, tied) =
            (values.iter().map(|_| "=f".to_string()), (0..values.len()).map(|i| i.to_string()));
        let constraints: Vec<String> =
            made.chain(tied).chain(alive.iter().map(|_| "r".to_string())).collect();
        let done = self.assembly(
            &text,
            &constraints.join(","),
            &[values, alive].concat(),
            self.sums(2 * values.len())?,
            true,
        )?;
        self.each(done, values.len())
    }
    pub(crate) fn assembly(
        self,
        text: &str,
        constraints: &str,
        operands: &[Value],
        ty: Type,
        effects: bool,
    ) -> Result<Value> {
        let c = self.0.ctx();
        let mut attrs = vec![
            ("asm_dialect", Attr::i64(c, 0)),
            ("asm_string", Attr::string(c, text)),
            ("constraints", Attr::string(c, constraints)),
        ];
        if effects {
            attrs.push(("has_side_effects", Attr::unit(c)));
        }
        self.0.op("llvm.inline_asm", operands, ty, &attrs)
    }
    /// Starts a `wgmma` whose left operand, 64 rows by K = 16, is in registers: four per thread
    /// with two elements each. The NVVM op takes it from shared memory only. `deep`: whether the
    /// right operand is K-major, else MN-major.
    pub fn mma_of_registers(
        self,
        element: &str,
        left: &[Value],
        right: Value,
        deep: bool,
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let n = sums.len();
        let list = |from: usize, count: usize| {
            (from..from + count).map(|i| format!("${i}")).collect::<Vec<_>>().join(",")
        };
        let text = format!(
            "{{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n{}k16.f32.{element}.{element} {{{}}}, {{{}}}, ${}, p, 1, 1, {}; }}",
            2 * n,
            list(0, n),
            list(2 * n, left.len()),
            2 * n + left.len(),
            usize::from(!deep)
        );
        let (made, tied) = (sums.iter().map(|_| "=f".to_string()), (0..n).map(|i| i.to_string()));
        let constraints: Vec<String> = made
            .chain(tied)
            .chain(left.iter().map(|_| "r".to_string()))
            .chain(["l".to_string()])
            .collect();
        let operands = [sums, left, &[right]].concat();
        let done =
            self.assembly(&text, &constraints.join(","), &operands, self.sums(2 * n)?, true)?;
        self.each(done, n)
    }
    /// Packs two f32 as 16-bit floats into one register, the first in the low half.
    pub fn pair(self, element: &str, low: Value, high: Value) -> Result<Value> {
        let both =
            self.0.op("vector.from_elements", &[low, high], self.ty("vector<2xf32>")?, &[])?;
        let narrow =
            self.0.op("arith.truncf", &[both], self.ty(&format!("vector<2x{element}>"))?, &[])?;
        self.0.op("llvm.bitcast", &[narrow], self.i32(), &[])
    }
    /// Hyperbolic tangent as 1 - 2 / (e^2x + 1), with an absolute error within 2^-22 for all x.
    /// Near 0 the relative error is large, but it suffices for a sum with attention scores.
    pub fn tanh(self, x: Value) -> Result<Value> {
        let number = |n: f32| self.0.constant(&format!("{:#010x}", n.to_bits()), self.f32());
        let power =
            self.exp2(self.two("arith.mulf", x, number(2.0 * std::f32::consts::LOG2_E)?)?)?;
        let sum = self.two("arith.addf", power, number(1.0)?)?;
        let part =
            self.assembly("rcp.approx.ftz.f32 $0, $1;", "=f,f", &[sum], self.f32(), false)?;
        self.0.op("math.fma", &[part, number(-2.0)?, number(1.0)?], self.f32(), &[])
    }
    /// An integer that is opaque to the compiler, so that it folds nothing through it.
    pub fn opaque(self, a: Value) -> Result<Value> {
        self.assembly("mov.b32 $0, $1;", "=r,r", &[a], self.i32(), false)
    }
    /// A 32-bit vector as an i32.
    pub fn word(self, v: Value) -> Result<Value> {
        self.0.op("llvm.bitcast", &[v], self.i32(), &[])
    }
    /// i32 values as one vector of 16-bit elements.
    pub fn words(self, all: &[Value], element: Type) -> Result<Value> {
        let together =
            self.0.op("vector.from_elements", all, Type::vector(self.i32(), all.len()), &[])?;
        self.0.op("vector.bitcast", &[together], Type::vector(element, 2 * all.len()), &[])
    }
    /// `ex2.approx.ftz`: 2 to a power, within 2 ulp; results below 2^-126 are flushed to 0.
    /// `math.exp2` takes three instructions more to keep subnormals.
    pub fn exp2(self, x: Value) -> Result<Value> {
        self.assembly("ex2.approx.ftz.f32 $0, $1;", "=f,f", &[x], self.f32(), false)
    }
}
