//! What only Hopper has: barriers in shared memory that count bytes, the copy engine, products by
//! groups of four warps. All numbers are of type i32, and so are addresses of shared memory.
use crate::emit::code::Code;
use kiln_dialects::{ir::*, value::DType};

/// Makes ops at a place.
#[derive(Clone, Copy)]
pub struct Ptx(pub Code);

/// A product of 64 rows: D = A B + D.
pub struct Mma<'a> {
    /// Columns.
    pub columns: usize,
    /// The operands' element.
    pub element: &'a str,
    /// Whether the left operand's depth lies side by side.
    pub left_deep: bool,
    /// The same of the right operand.
    pub right_deep: bool,
}

impl Ptx {
    /// The type f32.
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
    /// A number.
    pub fn number(self, n: usize) -> Result<Value> {
        self.constant(n as i64)
    }
    /// A number that may be negative.
    pub fn constant(self, n: i64) -> Result<Value> {
        self.0.constant(&n.to_string(), self.i32())
    }
    /// A sum with a number that may be negative.
    pub fn shifted(self, a: Value, n: i64) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.constant(n)?) }
    }
    /// A difference.
    pub fn minus(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.subi", a, b)
    }
    /// The lesser of two signed numbers.
    pub fn least(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.minsi", a, b)
    }
    /// The greater of two signed numbers.
    pub fn most(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.maxsi", a, b)
    }
    pub(crate) fn two(self, name: &str, a: Value, b: Value) -> Result<Value> {
        self.0.op(name, &[a, b], a.ty(), &[])
    }
    /// A sum.
    pub fn add(self, a: Value, b: Value) -> Result<Value> {
        self.two("arith.addi", a, b)
    }
    /// A sum with a number.
    pub fn plus(self, a: Value, n: usize) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.number(n)?) }
    }
    /// A product with a number.
    pub fn times(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.muli", a, self.number(n)?)
    }
    /// A quotient by a number.
    pub fn over(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.divui", a, self.number(n)?)
    }
    /// A remainder by a number.
    pub fn rest(self, a: Value, n: usize) -> Result<Value> {
        self.two("arith.remui", a, self.number(n)?)
    }
    /// Whether it is this number.
    pub fn is(self, a: Value, n: usize) -> Result<Value> {
        self.0.compare(0, a, self.number(n)?)
    }
    /// An index as a number.
    pub fn of(self, index: Value) -> Result<Value> {
        self.0.op("arith.index_cast", &[index], self.i32(), &[])
    }
    /// A number as an index.
    pub fn index(self, a: Value) -> Result<Value> {
        self.0.op("arith.index_castui", &[a], Type::index(self.0.ctx()), &[])
    }

    /// The thread's number in its block.
    pub fn thread(self) -> Result<Value> {
        self.0.op("nvvm.read.ptx.sreg.tid.x", &[], self.i32(), &[])
    }
    /// The number of the thread's warp, as one that the whole warp knows to be the same.
    pub fn warp(self, thread: Value) -> Result<Value> {
        let kind = self.attr("#nvvm<shfl_kind idx>")?;
        let operands =
            [self.constant(-1)?, self.over(thread, 32)?, self.number(0)?, self.number(31)?];
        self.0.op("nvvm.shfl.sync", &operands, self.i32(), &[("kind", kind)])
    }
    /// Where the launch's shared memory begins, at a multiple of 1024, which the swizzle wants.
    /// `func`: what asks for it.
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

    /// Waits for all threads of the cluster, and for what they have written.
    pub fn cluster(self) -> Result<()> {
        self.gather("nvvm.cluster.arrive")
    }
    /// Waits for all threads of the cluster, and for nothing that they have written, which would
    /// take a microsecond more.
    pub fn meet(self) -> Result<()> {
        self.gather("nvvm.cluster.arrive.relaxed")
    }
    fn gather(self, arrive: &str) -> Result<()> {
        let aligned = [("aligned", Attr::unit(self.0.ctx()))];
        self.0.effect(arrive, &[], &aligned)?;
        self.0.effect("nvvm.cluster.wait", &[], &aligned)
    }
    /// A pointer to what another block of the cluster has at this address of its shared memory.
    pub fn of_block(self, address: Value, rank: Value) -> Result<Value> {
        self.0.op("nvvm.mapa", &[self.at(address)?, rank], self.ty("!llvm.ptr<7>")?, &[])
    }

    /// The slot behind one of a ring of so many, and the parity of its phase.
    pub fn next(self, slot: Value, parity: Value, count: usize) -> Result<[Value; 2]> {
        let (c, next) = (self.0, self.plus(slot, 1)?);
        let around = self.is(next, count)?;
        let other = c.op("arith.xori", &[parity, self.number(1)?], parity.ty(), &[])?;
        Ok([c.select(around, self.number(0)?, next)?, c.select(around, other, parity)?])
    }

    /// A barrier that so many arrivals complete.
    pub fn barrier(self, address: Value, arrivals: usize) -> Result<()> {
        self.0.effect("nvvm.mbarrier.init", &[self.at(address)?, self.number(arrivals)?], &[])
    }
    /// Barriers that this thread has made are there for all, and for the copy engine.
    pub fn publish(self) -> Result<()> {
        self.0.effect("nvvm.fence.mbarrier.init", &[], &[])?;
        let attrs = [
            ("kind", self.attr("#nvvm.proxy_kind<async.shared>")?),
            ("space", self.attr("#nvvm.shared_space<cta>")?),
        ];
        self.0.effect("nvvm.fence.proxy", &[], &attrs)
    }
    /// Waits for the barrier's phase of this parity.
    pub fn wait(self, address: Value, parity: Value) -> Result<()> {
        // How long one try may sleep, in nanoseconds.
        let tries = self.number(10_000_000)?;
        self.0.effect("nvvm.mbarrier.try_wait.parity", &[self.at(address)?, parity, tries], &[])
    }
    fn scope(self) -> Result<[(&'static str, Attr); 2]> {
        Ok([("relaxed", self.attr("false")?), ("scope", self.attr("#nvvm.mem_scope<cta>")?)])
    }
    /// Arrives.
    pub fn arrive(self, address: Value) -> Result<()> {
        self.0.effect("nvvm.mbarrier.arrive", &[self.at(address)?], &self.scope()?)
    }
    /// Arrives, and has the barrier wait for so many bytes.
    pub fn expect(self, address: Value, bytes: usize) -> Result<()> {
        self.0.effect(
            "nvvm.mbarrier.arrive.expect_tx",
            &[self.at(address)?, self.number(bytes)?],
            &self.scope()?,
        )
    }
    /// Starts a copy of the box at these coordinates, the innermost first; its bytes arrive at the
    /// barrier.
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
    /// How many registers a thread of these warps has from here on.
    pub fn registers(self, count: usize, more: bool) -> Result<()> {
        let action =
            self.attr(if more { "#nvvm<action increase>" } else { "#nvvm<action decrease>" })?;
        let count = Attr::scalar_int(self.0.ctx(), DType::I32, count as i64);
        self.0.effect("nvvm.setmaxregister", &[], &[("action", action), ("regCount", count)])
    }

    /// What products are told about a tile of swizzled rows of 128 bytes: 8 rows are 1024 bytes.
    /// Where the depth does not lie side by side, the tile consists of slabs of 64 by 64.
    pub fn descriptor(self, address: Value, deep: bool) -> Result<Value> {
        self.slabs(address, if deep { 16 } else { 8192 })
    }
    /// The same where slabs of 64 elements a row are so many bytes apart; what lies side by side is
    /// the depth if there is one slab only.
    pub fn slabs(self, address: Value, apart: usize) -> Result<Value> {
        let slab = (apart as i64) >> 4;
        let i64_ty = Type::scalar(self.0.ctx(), DType::I64);
        // The field has 14 bits; above them an address has the block's number in its cluster.
        let field = self.two("arith.andi", self.over(address, 16)?, self.constant(0x3fff)?)?;
        let at = self.0.op("arith.extui", &[field], i64_ty, &[])?;
        let fixed = self
            .0
            .constant(&((1i64 << 62) | ((1024 >> 4) << 32) | (slab << 16)).to_string(), i64_ty)?;
        self.two("arith.ori", at, fixed)
    }
    /// The descriptor so many bytes further on.
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
    /// The type of `columns` columns' sums in a thread.
    pub fn sums(self, columns: usize) -> Result<Type> {
        self.ty(&format!("!llvm.struct<({})>", vec!["f32"; columns / 2].join(", ")))
    }
    /// Sums that nothing may read.
    pub fn nothing(self, columns: usize) -> Result<Value> {
        self.0.op("llvm.mlir.undef", &[], self.sums(columns)?, &[])
    }
    /// Registers that products use may have been written before.
    pub fn begin(self) -> Result<()> {
        self.0.effect("nvvm.wgmma.fence.aligned", &[], &[])
    }
    /// Starts a product, of a depth of 16, of tf32 8; `fresh`: to which nothing is added.
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
    /// What has been started since the last time is one group.
    pub fn group(self) -> Result<()> {
        self.0.effect("nvvm.wgmma.commit.group.sync.aligned", &[], &[])
    }
    /// What has been started since the last time is one group; waits until this is the only one
    /// under way.
    pub fn commit(self) -> Result<()> {
        self.group()?;
        self.0.effect(
            "nvvm.wgmma.wait.group.sync.aligned",
            &[],
            &[("group", Attr::i64(self.0.ctx(), 1))],
        )
    }
    /// The sums of a product one by one.
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
    /// Waits until all products are done, and gives their sums one by one.
    pub fn finish(self, sums: &[Value], columns: usize) -> Result<Vec<Vec<Value>>> {
        let each = columns / 2;
        let values = sums.iter().map(|s| self.each(*s, each)).collect::<Result<Vec<_>>>()?.concat();
        let done = self.until(0, &values, &[])?;
        Ok(done.chunks(each).map(<[Value]>::to_vec).collect())
    }
    /// Waits until at most `under_way` groups of products are not done. Gives these values, which
    /// nothing computes or reads on the other side of it; registers of `alive` stay as they are
    /// until then. The op for it takes no values, so that nothing would keep reads of them behind
    /// it.
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
    /// Starts a product whose left operand, 64 rows by 16, is in registers, four of a thread with
    /// two elements each; the op for it takes it from memory only. `deep`: whether the right
    /// operand's depth lies side by side, else its columns do.
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
    /// Two f32 as 16-bit floats in a register, the first one in the low half.
    pub fn pair(self, element: &str, low: Value, high: Value) -> Result<Value> {
        let both =
            self.0.op("vector.from_elements", &[low, high], self.ty("vector<2xf32>")?, &[])?;
        let narrow =
            self.0.op("arith.truncf", &[both], self.ty(&format!("vector<2x{element}>"))?, &[])?;
        self.0.op("llvm.bitcast", &[narrow], self.i32(), &[])
    }
    /// The hyperbolic tangent as 1 - 2 / (e^2x + 1), within 2^-22 of 1 wherever x is: near 0 that
    /// is far from exact, but enough for a sum with scores.
    pub fn tanh(self, x: Value) -> Result<Value> {
        let number = |n: f32| self.0.constant(&format!("{:#010x}", n.to_bits()), self.f32());
        let power =
            self.exp2(self.two("arith.mulf", x, number(2.0 * std::f32::consts::LOG2_E)?)?)?;
        let sum = self.two("arith.addf", power, number(1.0)?)?;
        let part =
            self.assembly("rcp.approx.ftz.f32 $0, $1;", "=f,f", &[sum], self.f32(), false)?;
        self.0.op("math.fma", &[part, number(-2.0)?, number(1.0)?], self.f32(), &[])
    }
    /// A number that the compiler knows nothing about.
    pub fn opaque(self, a: Value) -> Result<Value> {
        self.assembly("mov.b32 $0, $1;", "=r,r", &[a], self.i32(), false)
    }
    /// A vector of 32 bits as a number.
    pub fn word(self, v: Value) -> Result<Value> {
        self.0.op("llvm.bitcast", &[v], self.i32(), &[])
    }
    /// Numbers as a vector of 16-bit elements.
    pub fn words(self, all: &[Value], element: Type) -> Result<Value> {
        let together =
            self.0.op("vector.from_elements", all, Type::vector(self.i32(), all.len()), &[])?;
        self.0.op("vector.bitcast", &[together], Type::vector(element, 2 * all.len()), &[])
    }
    /// 2 to a power, within 2 units in the last place; what is below 2^-126 is 0. `math.exp2` takes
    /// three instructions more for those.
    pub fn exp2(self, x: Value) -> Result<Value> {
        self.assembly("ex2.approx.ftz.f32 $0, $1;", "=f,f", &[x], self.f32(), false)
    }
}
