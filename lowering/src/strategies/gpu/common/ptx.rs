//! Hopper (sm_90a) instructions: mbarriers, TMA loads, `wgmma`, cluster barriers, `setmaxnreg`. All
//! integers are i32, and so are shared-memory addresses.
use crate::{
    emit::code::{Code, constant_value},
    target::launch::SHARED_SPACE,
};
use kiln_dialects::{ir::*, value::DType};

/// Emits ops at the insertion point of a [`Code`].
#[derive(Clone, Copy)]
pub struct Ptx(pub Code);

impl From<Ptx> for Builder {
    fn from(p: Ptx) -> Builder {
        p.0.into()
    }
}

/// One `wgmma` of 64 rows: D = A B + D.
pub struct Mma {
    /// Columns (N).
    pub columns: usize,
    /// Element type of A and B.
    pub element: DType,
    /// Whether A is K-major.
    pub a_k_major: bool,
    /// Whether B is K-major.
    pub b_k_major: bool,
}

impl Mma {
    /// The type of its operands: f32 is rounded to tf32.
    fn operand_type(&self) -> nvvm::WGMMATypes {
        match self.element {
            DType::F32 => nvvm::WGMMATypes::Tf32,
            DType::F16 => nvvm::WGMMATypes::F16,
            DType::F8E4M3FN => nvvm::WGMMATypes::E4m3,
            DType::F8E5M2 => nvvm::WGMMATypes::E5m2,
            DType::I8 => nvvm::WGMMATypes::S8,
            _ => nvvm::WGMMATypes::Bf16,
        }
    }
    /// Type of its accumulators: int8 is summed in i32.
    pub fn accumulator(&self, c: Code) -> Type {
        Type::scalar(c.ctx(), self.element.accumulator())
    }
}

/// Bytes of K of a `wgmma` or an `mma.sync`: K is 16 for elements of 16 bits.
pub const MMA_K_BYTES: usize = 32;

impl Ptx {
    /// `f32`.
    pub fn f32(self) -> Type {
        Type::scalar(self.0.ctx(), DType::F32)
    }
    /// An `nvvm` attribute of a tile's sizes, which the C API cannot build.
    pub(crate) fn attr(self, text: &str) -> Result<Attr> {
        Attr::parse(self.0.ctx(), text).ok_or_else(|| format!("'{text}' is no attribute").into())
    }
    /// A pointer to shared memory.
    pub(crate) fn shared_ptr(self) -> Type {
        Type::llvm_ptr(self.0.ctx(), SHARED_SPACE as u32)
    }
    /// A pointer to shared memory of the cluster.
    pub(crate) fn cluster_ptr(self) -> Type {
        Type::llvm_ptr(self.0.ctx(), 7)
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
        self.0.integer(n, self.i32())
    }
    /// `a + n` for a signed constant `n`.
    pub fn add_signed(self, a: Value, n: i64) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.constant(n)?) }
    }
    /// A constant if it is one of an i32, else what the op gives.
    fn folded(self, n: Option<i64>, op: impl FnOnce() -> Result<Value>) -> Result<Value> {
        match n.filter(|n| i32::try_from(*n).is_ok()) {
            Some(n) => self.constant(n),
            None => op(),
        }
    }
    /// `a - b`.
    pub fn sub(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (_, Some(0)) => Ok(a),
            (x, y) => self.folded(x.zip(y).map(|(x, y)| x - y), || arith::subi(self, a, b)),
        }
    }
    /// Signed minimum.
    pub fn min(self, a: Value, b: Value) -> Result<Value> {
        arith::minsi(self, a, b)
    }
    /// Signed maximum.
    pub fn max(self, a: Value, b: Value) -> Result<Value> {
        arith::maxsi(self, a, b)
    }
    /// `a + b`.
    pub fn add(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(0), _) => Ok(b),
            (_, Some(0)) => Ok(a),
            (x, y) => self.folded(x.zip(y).map(|(x, y)| x + y), || arith::addi(self, a, b)),
        }
    }
    /// `a + n` for a constant `n`.
    pub fn add_const(self, a: Value, n: usize) -> Result<Value> {
        if n == 0 { Ok(a) } else { self.add(a, self.number(n)?) }
    }
    /// `a * n` for a constant `n`.
    pub fn mul_const(self, a: Value, n: usize) -> Result<Value> {
        if n == 1 {
            return Ok(a);
        }
        let product = constant_value(a).and_then(|x| x.checked_mul(n as i64));
        self.folded(product, || arith::muli(self, a, self.number(n)?))
    }
    /// Quotient of `a` by a constant `n`.
    pub fn div_const(self, a: Value, n: usize) -> Result<Value> {
        arith::divui(self, a, self.number(n)?)
    }
    /// Remainder of `a` by a constant `n`.
    pub fn rem_const(self, a: Value, n: usize) -> Result<Value> {
        arith::remui(self, a, self.number(n)?)
    }
    /// Whether `a` equals the constant `n`.
    pub fn eq_const(self, a: Value, n: usize) -> Result<Value> {
        self.0.compare(CmpIPredicate::Eq, a, self.number(n)?)
    }
    /// `index` to i32.
    pub fn index_to_i32(self, index: Value) -> Result<Value> {
        arith::index_cast(self, index, self.i32())
    }
    /// i32 to `index`.
    pub fn i32_to_index(self, a: Value) -> Result<Value> {
        arith::index_castui(self, a, Type::index(self.0.ctx()))
    }

    /// The thread index in its CTA.
    pub fn thread_id(self) -> Result<Value> {
        nvvm::read_ptx_sreg_tid_x(self, self.i32())
    }
    /// The warp index of a thread, broadcast so that the compiler knows it to be warp-uniform.
    pub fn warp_id(self, thread: Value) -> Result<Value> {
        let (all, index) = (self.constant(-1)?, self.div_const(thread, 32)?);
        let (first, limit) = (self.number(0)?, self.number(31)?);
        nvvm::shfl_sync(self, all, index, first, limit, nvvm::ShflKind::Idx, self.i32())
    }
    /// The value of the lane whose number differs in bit `by`.
    pub fn exchange(self, v: Value, by: usize) -> Result<Value> {
        let (all, by, limit) = (self.constant(-1)?, self.number(by)?, self.number(31)?);
        nvvm::shfl_sync(self, all, v, by, limit, nvvm::ShflKind::Bfly, v.ty())
    }
    /// Base of the kernel's dynamic shared memory, aligned to 1024 bytes for the swizzle. `func`:
    /// the kernel's function, which requests it.
    pub fn dynamic_shared(self, func: Op) -> Result<Value> {
        let (c, name) = (self.0.ctx(), "shared");
        let top = Builder::before(func).ok_or("is in no module")?;
        let bytes = Type::llvm_array(Type::integer(c, 8), 0);
        llvm::Global::new(top, bytes, name, llvm::Linkage::External)
            .addr_space(SHARED_SPACE)
            .alignment(1024)
            .build()?;
        let at = llvm::mlir_addressof(self, name, self.shared_ptr())?;
        let at = llvm::ptrtoint(self, at, self.i32())?;
        arith::andi(self, self.add_const(at, 1023)?, self.constant(-1024)?)
    }
    pub(crate) fn pointer(self, address: Value) -> Result<Value> {
        llvm::inttoptr(self, address, self.shared_ptr())
    }

    /// Waits until the kernels before this one have ended and their writes are visible
    /// (`griddepcontrol.wait`); does nothing unless it was launched as a dependent one.
    pub fn wait_for_dependencies(self) -> Result<()> {
        nvvm::griddepcontrol(self, nvvm::GridDepActionKind::Wait).map(drop)
    }
    /// Prefetches contiguous bytes, a multiple of 16, from an element of a buffer on to L2.
    pub fn prefetch_l2(
        self,
        buffer: Value,
        element: Value,
        dtype: DType,
        bytes: usize,
    ) -> Result<()> {
        let offset = self.0.mul(element, self.0.index(dtype.byte_size() as i64)?)?;
        let i64 = Type::scalar(self.0.ctx(), DType::I64);
        let address =
            arith::addi(self, self.base_address(buffer)?, arith::index_cast(self, offset, i64)?)?;
        let pointer = llvm::inttoptr(self, address, Type::llvm_ptr(self.0.ctx(), 1))?;
        let size = self.number(bytes)?;
        nvvm::CpAsyncBulkPrefetch::new(self, pointer, size).build().map(drop)
    }

    /// Cluster barrier: waits for all threads of the cluster, and orders their writes (release,
    /// acquire).
    pub fn cluster_barrier(self) -> Result<()> {
        self.cluster_arrive()?;
        self.cluster_wait()
    }
    /// Arrives at the cluster barrier (release).
    pub fn cluster_arrive(self) -> Result<()> {
        nvvm::ClusterArrive::new(self).aligned(true).build().map(drop)
    }
    /// Waits until all threads of the cluster have arrived (acquire).
    pub fn cluster_wait(self) -> Result<()> {
        nvvm::ClusterWait::new(self).aligned(true).build().map(drop)
    }
    /// Relaxed cluster barrier: orders no writes, which saves a microsecond.
    pub fn cluster_barrier_relaxed(self) -> Result<()> {
        nvvm::ClusterArriveRelaxed::new(self).aligned(true).build()?;
        nvvm::ClusterWait::new(self).aligned(true).build().map(drop)
    }
    /// Pointer to the same shared-memory address in another CTA of the cluster (`mapa`).
    pub fn mapa(self, address: Value, rank: Value) -> Result<Value> {
        nvvm::mapa(self, self.pointer(address)?, rank, self.cluster_ptr())
    }

    /// The next stage of a ring of `count` stages, and the parity of its phase.
    pub fn next_stage(self, stage: Value, parity: Value, count: usize) -> Result<[Value; 2]> {
        let next = self.add_const(stage, 1)?;
        let around = self.eq_const(next, count)?;
        let other = arith::xori(self, parity, self.number(1)?)?;
        let first = arith::select(self, around, self.number(0)?, next)?;
        Ok([first, arith::select(self, around, other, parity)?])
    }

    /// Initialises an mbarrier with its arrival count.
    pub fn mbarrier_init(self, address: Value, arrivals: usize) -> Result<()> {
        nvvm::mbarrier_init(self, self.pointer(address)?, self.number(arrivals)?)
    }
    /// Fence: makes this thread's mbarrier initialisations visible to all threads and to TMA.
    pub fn fence_mbarrier_init(self) -> Result<()> {
        nvvm::fence_mbarrier_init(self)?;
        self.fence_proxy_async()
    }
    /// Waits for the mbarrier phase of this parity.
    pub fn mbarrier_wait(self, address: Value, parity: Value) -> Result<()> {
        // Suspend-time hint of one `try_wait`, in nanoseconds.
        let tries = self.number(10_000_000)?;
        nvvm::mbarrier_try_wait_parity(self, self.pointer(address)?, parity, tries)
    }
    /// Arrives at an mbarrier.
    pub fn mbarrier_arrive(self, address: Value) -> Result<()> {
        nvvm::MBarrierArrive::new(self, self.pointer(address)?, &[])
            .relaxed(false)
            .scope(nvvm::MemScopeKind::Cta)
            .build()
            .map(drop)
    }
    /// Arrives at an mbarrier and adds to its transaction count (`arrive.expect_tx`), in bytes.
    pub fn mbarrier_arrive_expect_tx(self, address: Value, bytes: usize) -> Result<()> {
        let (address, bytes) = (self.pointer(address)?, self.number(bytes)?);
        nvvm::MBarrierArriveExpectTx::new(self, address, bytes, &[])
            .relaxed(false)
            .scope(nvvm::MemScopeKind::Cta)
            .build()
            .map(drop)
    }
    /// Starts a TMA load of the box at these coordinates, the innermost first; its bytes complete
    /// on the mbarrier.
    pub fn tma_load(
        self,
        to: Value,
        map: Value,
        coordinates: &[Value],
        barrier: Value,
    ) -> Result<()> {
        let to = llvm::addrspacecast(self, self.pointer(to)?, self.cluster_ptr())?;
        let barrier = self.pointer(barrier)?;
        nvvm::CpAsyncBulkTensorGlobalToSharedCluster::new(self, to, map, coordinates, barrier, &[])
            .is_cta_only(false)
            .mode(nvvm::TMALoadMode::Tile)
            .build()
            .map(drop)
    }
    /// Sets the registers per thread of the executing warpgroup (`setmaxnreg`).
    pub fn setmaxnreg(self, count: usize, more: bool) -> Result<()> {
        use nvvm::SetMaxRegisterAction as Action;
        let action = if more { Action::Increase } else { Action::Decrease };
        nvvm::setmaxregister(self, count as i64, action)
    }

    /// `wgmma` descriptor of a tile with 128-byte swizzle; a swizzle atom of 8 rows is 1024 bytes.
    /// An MN-major tile consists of slices of 64 by 64.
    pub fn wgmma_descriptor(self, address: Value, k_major: bool) -> Result<Value> {
        self.wgmma_descriptor_strided(address, if k_major { 16 } else { 8192 })
    }
    /// The same where slices of 64 elements a row are `apart` bytes apart. A tile of one slice only
    /// is K-major.
    pub fn wgmma_descriptor_strided(self, address: Value, apart: usize) -> Result<Value> {
        let slice = (apart as i64) >> 4;
        let i64_ty = Type::scalar(self.0.ctx(), DType::I64);
        // The address field has 14 bits; above them the address holds the CTA rank in its cluster.
        let field = arith::andi(self, self.div_const(address, 16)?, self.constant(0x3fff)?)?;
        let at = arith::extui(self, field, i64_ty)?;
        let fixed = self.0.integer((1i64 << 62) | ((1024 >> 4) << 32) | (slice << 16), i64_ty)?;
        arith::ori(self, at, fixed)
    }
    /// Advances a descriptor by this many bytes.
    pub fn advance_descriptor(self, descriptor: Value, bytes: usize) -> Result<Value> {
        if bytes == 0 {
            return Ok(descriptor);
        }
        arith::addi(self, descriptor, self.0.integer((bytes / 16) as i64, descriptor.ty())?)
    }
    /// Type of a thread's accumulators for `columns` columns.
    pub fn accumulator_type(self, element: Type, columns: usize) -> Type {
        Type::llvm_struct(self.0.ctx(), &vec![element; columns / 2])
    }
    /// Undefined accumulators, which nothing may read.
    pub fn undef_accumulators(self, element: Type, columns: usize) -> Result<Value> {
        llvm::mlir_undef(self, self.accumulator_type(element, columns))
    }
    /// `wgmma.fence`: orders earlier register writes before `wgmma`.
    pub fn wgmma_fence(self) -> Result<()> {
        nvvm::wgmma_fence_aligned(self)
    }
    /// Starts a `wgmma` with K of 32 bytes. `fresh`: ignores the accumulators' old values (scale-D is
    /// 0).
    pub fn wgmma(
        self,
        mma: &Mma,
        left: Value,
        right: Value,
        sums: Value,
        fresh: bool,
    ) -> Result<Value> {
        let Mma { columns, element, a_k_major, b_k_major } = mma;
        use nvvm::{MMALayout, WGMMAScaleIn, WGMMAScaleOut, WGMMATypes};
        let sum = if element.is_float() { WGMMATypes::F32 } else { WGMMATypes::S32 };
        let major = |row: bool| if row { MMALayout::Row } else { MMALayout::Col };
        let scale = if fresh { WGMMAScaleOut::Zero } else { WGMMAScaleOut::One };
        let depth = MMA_K_BYTES / element.byte_size();
        nvvm::wgmma_mma_async(
            self,
            sums,
            left,
            right,
            self.attr(&format!("#nvvm.shape<m = 64, n = {columns}, k = {depth}>"))?,
            mma.operand_type(),
            mma.operand_type(),
            sum,
            scale,
            WGMMAScaleIn::One,
            WGMMAScaleIn::One,
            major(*a_k_major),
            major(!*b_k_major),
            sums.ty(),
        )
    }
    /// Commits the `wgmma`s started so far as one group (`wgmma.commit_group`).
    pub fn wgmma_commit_group(self) -> Result<()> {
        nvvm::wgmma_commit_group_sync_aligned(self)
    }
    /// The accumulators of a `wgmma` as single values.
    pub fn extract_accumulators(
        self,
        sums: Value,
        element: Type,
        count: usize,
    ) -> Result<Vec<Value>> {
        let part = |i: usize| llvm::extractvalue(self, sums, &[i as i64], element);
        (0..count).map(part).collect()
    }
    /// `wgmma.wait_group`: waits until at most `under_way` groups are in flight. Returns `values`
    /// as new SSA values, so that nothing computes or reads them across the wait. Registers of
    /// `alive` stay untouched until then. The NVVM op takes no values, so that nothing would keep
    /// reads of them after it.
    pub fn wgmma_wait_group(
        self,
        under_way: usize,
        values: &[Value],
        alive: &[Value],
    ) -> Result<Vec<Value>> {
        let text = format!("wgmma.wait_group.sync.aligned {under_way};");
        let is_float = |v: &Value| v.ty().dtype().is_ok_and(DType::is_float);
        let made = values.iter().map(|v| if is_float(v) { "=f" } else { "=r" }.to_string());
        let tied = (0..values.len()).map(|i| i.to_string());
        let constraints: Vec<String> =
            made.chain(tied).chain(alive.iter().map(|_| "r".to_string())).collect();
        let done = self.inline_asm(
            &text,
            &constraints.join(","),
            &[values, alive].concat(),
            Type::llvm_struct(self.0.ctx(), &values.iter().map(|v| v.ty()).collect::<Vec<_>>()),
            true,
        )?;
        let value = |(i, v): (usize, &Value)| llvm::extractvalue(self, done, &[i as i64], v.ty());
        values.iter().enumerate().map(value).collect()
    }
    pub(crate) fn inline_asm(
        self,
        text: &str,
        constraints: &str,
        operands: &[Value],
        ty: Type,
        effects: bool,
    ) -> Result<Value> {
        llvm::InlineAsm::new(self, operands, text, constraints, &[ty])
            .asm_dialect(llvm::AsmDialect::AdAtt)
            .has_side_effects(effects)
            .result()
    }
    /// Starts a `wgmma` whose left operand, 64 rows by K = 16, is in registers: four per thread
    /// with two elements each. The NVVM op takes it from shared memory only. `k_major`: whether the
    /// right operand is K-major, else MN-major. `fresh`: ignores the old sums.
    pub fn wgmma_register_operand(
        self,
        element: DType,
        left: &[Value],
        (right, k_major): (Value, bool),
        (sums, fresh): (&[Value], bool),
    ) -> Result<Vec<Value>> {
        let n = sums.len();
        let list = |from: usize, count: usize| {
            (from..from + count).map(|i| format!("${i}")).collect::<Vec<_>>().join(",")
        };
        let element = element.name();
        let text = format!(
            "{{ .reg .pred p; setp.ne.b32 p, {}, 0; wgmma.mma_async.sync.aligned.m64n{}k16.f32.{element}.{element} {{{}}}, {{{}}}, ${}, p, 1, 1, {}; }}",
            usize::from(!fresh),
            2 * n,
            list(0, n),
            list(2 * n, left.len()),
            2 * n + left.len(),
            usize::from(!k_major)
        );
        let (made, tied) = (sums.iter().map(|_| "=f".to_string()), (0..n).map(|i| i.to_string()));
        let constraints: Vec<String> = made
            .chain(tied)
            .chain(left.iter().map(|_| "r".to_string()))
            .chain(["l".to_string()])
            .collect();
        let operands = [sums, left, &[right]].concat();
        let done = self.inline_asm(
            &text,
            &constraints.join(","),
            &operands,
            self.accumulator_type(self.f32(), 2 * n),
            true,
        )?;
        self.extract_accumulators(done, self.f32(), n)
    }
    /// Packs two f32 as 16-bit floats into one register, the first in the low half.
    pub fn pack_pair(self, element: DType, low: Value, high: Value) -> Result<Value> {
        let both = vector::from_elements(self, &[low, high], Type::vector(self.f32(), 2))?;
        let short = Type::vector(Type::scalar(self.0.ctx(), element), 2);
        llvm::bitcast(self, arith::truncf(self, both, short)?, self.i32())
    }
    /// Hyperbolic tangent as 1 - 2 / (e^2x + 1), with an absolute error within 2^-22 for all x.
    /// Near 0 the relative error is large, but it suffices for a sum with attention scores.
    pub fn tanh(self, x: Value) -> Result<Value> {
        let number = |n: f32| self.0.number(n.into(), self.f32());
        let power = self.exp2(arith::mulf(self, x, number(2.0 * std::f32::consts::LOG2_E)?)?)?;
        let sum = arith::addf(self, power, number(1.0)?)?;
        let part =
            self.inline_asm("rcp.approx.ftz.f32 $0, $1;", "=f,f", &[sum], self.f32(), false)?;
        math::fma(self, part, number(-2.0)?, number(1.0)?)
    }
    /// An integer that is opaque to the compiler, so that it folds nothing through it.
    pub fn opaque(self, a: Value) -> Result<Value> {
        self.inline_asm("mov.b32 $0, $1;", "=r,r", &[a], self.i32(), false)
    }
    /// An integer that is computed here and nowhere else: nothing that depends on it moves out of a
    /// loop, where it would take registers.
    pub fn pinned(self, a: Value) -> Result<Value> {
        self.inline_asm("mov.b32 $0, $1;", "=r,r", &[a], self.i32(), true)
    }
    /// A 32-bit vector as an i32.
    pub fn bitcast_i32(self, v: Value) -> Result<Value> {
        llvm::bitcast(self, v, self.i32())
    }
    /// i32 values as one vector of 16-bit elements.
    pub fn bitcast_vector(self, all: &[Value], element: Type) -> Result<Value> {
        let words = Type::vector(self.i32(), all.len());
        let together = vector::from_elements(self, all, words)?;
        vector::bitcast(self, together, Type::vector(element, 2 * all.len()))
    }
    /// `ex2.approx.ftz`: 2 to a power, within 2 ulp; results below 2^-126 are flushed to 0.
    /// `math.exp2` takes three instructions more to keep subnormals.
    pub fn exp2(self, x: Value) -> Result<Value> {
        self.inline_asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", &[x], self.f32(), false)
    }
}
