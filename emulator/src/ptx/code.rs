//! Decoded instructions. All sources are register slots; immediates and special registers have
//! slots that are initialised before a thread starts.

/// A register of a thread.
pub type Slot = u32;
/// A unary operation.
pub type Unary = fn(u64) -> u64;
/// A binary operation.
pub type Binary = fn(u64, u64) -> u64;
/// A ternary operation.
pub type Ternary = fn(u64, u64, u64) -> u64;

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Generic: encoded in the address.
    Generic,
    /// Device memory.
    Global,
    /// Shared memory of the CTA or cluster.
    Shared,
    /// Local memory of the thread.
    Local,
    /// Kernel parameters.
    Param,
}

/// How a loaded value is extended to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadType {
    /// Bytes.
    pub width: u8,
    /// Whether it is sign-extended.
    pub signed: bool,
}

/// An address operand: base register plus offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The register.
    pub base: Slot,
    /// Byte offset.
    pub offset: i64,
}

/// Warp-collective instructions.
#[derive(Clone, Debug)]
pub enum Collective {
    /// `shfl.sync`: mode, destination, predicate, value, lane, clamp and mask.
    Shuffle { kind: Shuffle, out: Slot, valid: Option<Slot>, value: Slot, lane: Slot, limit: Slot },
    /// `vote.sync`.
    Vote { kind: Vote, out: Slot, value: Slot, negate: bool },
    /// `redux.sync`.
    Reduce { of: Binary, out: Slot, value: Slot },
    /// `elect.sync`: the elected lane is the first.
    Elect { out: Option<Slot>, chosen: Slot },
    /// `bar.warp.sync`.
    Sync,
    /// `mma.sync`.
    Mma(Mma),
    /// `ldmatrix`: matrices of 8 by 8 elements of 16 bits.
    LoadMatrix { out: Vec<Slot>, at: Address, transposed: bool },
    /// `stmatrix`.
    StoreMatrix { values: Vec<Slot>, at: Address, transposed: bool },
    /// `wgmma.mma_async`, of a warpgroup.
    Wgmma(Wgmma),
}

/// The mode of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// `down`.
    Down,
    /// `up`.
    Up,
    /// `bfly`.
    Butterfly,
    /// `idx`.
    Index,
}

/// The mode of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// `all`.
    All,
    /// `any`.
    Any,
    /// `uni`.
    Uniform,
    /// `ballot`.
    Ballot,
}

/// Operand types of the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandType {
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// tf32: f32 with 19 significant bits.
    Tf32,
    /// f8E4M3FN.
    E4m3,
    /// f8E5M2.
    E5m2,
    /// int8.
    S8,
}

/// Accumulator types of the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccumulatorType {
    /// f16, two in a register.
    F16,
    /// f32.
    F32,
    /// int32, which wraps around.
    S32,
}

/// `mma.sync.m16n8kK`.
#[derive(Clone, Debug)]
pub struct Mma {
    /// The K dimension.
    pub k: usize,
    /// The operand type.
    pub operand_type: OperandType,
    /// The type of accumulators.
    pub accumulator_type: AccumulatorType,
    /// The result D; A and B; the accumulator C.
    pub d: Vec<Slot>,
    /// As above.
    pub a: Vec<Slot>,
    /// As above.
    pub b: Vec<Slot>,
    /// As above.
    pub c: Vec<Slot>,
}

/// `wgmma.mma_async.m64nNkK`.
#[derive(Clone, Debug)]
pub struct Wgmma {
    /// The N dimension.
    pub n: usize,
    /// The K dimension.
    pub k: usize,
    /// The operand type.
    pub operand_type: OperandType,
    /// The type of accumulators.
    pub accumulator_type: AccumulatorType,
    /// Accumulators.
    pub d: Vec<Slot>,
    /// A: a matrix descriptor, or registers.
    pub a: Vec<Slot>,
    /// B's matrix descriptor.
    pub b: Slot,
    /// `scale-d`: whether to add to the accumulators.
    pub add: Slot,
    /// Signs of A and B (`imm-scale`).
    pub signs: [i32; 2],
    /// Whether A and B are transposed (MN-major).
    pub transposed: [bool; 2],
}

/// mbarrier instructions.
#[derive(Clone, Debug)]
pub enum Mbarrier {
    /// `init`, with the expected arrivals.
    Init(Slot),
    /// `inval`.
    Invalidate,
    /// `arrive`, optionally with `expect_tx` bytes.
    Arrive { bytes: Option<Slot>, count: Option<Slot>, state: Option<Slot> },
    /// `expect_tx`.
    Expect(Slot),
    /// `test_wait` and `try_wait`.
    Test { out: Slot, phase: Slot },
}

/// TMA instructions (`cp.async.bulk`).
#[derive(Clone, Debug)]
pub enum Tma {
    /// A box from a tensor to shared memory, completing on an mbarrier; multicast with a mask.
    Load {
        to: Address,
        map: Slot,
        at: Vec<Slot>,
        offsets: Vec<Slot>,
        mbarrier: Address,
        blocks: Option<Slot>,
    },
    /// A box from shared memory to a tensor.
    Store { from: Address, map: Slot, at: Vec<Slot> },
    /// Contiguous bytes to shared memory.
    LoadBytes { to: Address, of: Space, from: Address, bytes: Slot, mbarrier: Address },
    /// Contiguous bytes from shared memory.
    StoreBytes { to: Address, from: Address, bytes: Slot },
}

/// Types of conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberType {
    /// Unsigned, with its bits.
    Unsigned(u32),
    /// Signed, with its bits.
    Signed(u32),
    /// f16, f32 or f64.
    Float(u32),
    /// bf16.
    Bf16,
    /// tf32: f32 with 19 significant bits.
    Tf32,
}

/// Rounding modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To nearest even.
    Even,
    /// To nearest, ties away from 0.
    Away,
    /// Towards 0.
    Zero,
    /// Towards -inf.
    Down,
    /// Towards +inf.
    Up,
}

/// A decoded operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// `out = of(a)`.
    Unary(Unary, Slot, Slot),
    /// `out = of(a, b)`.
    Binary(Binary, Slot, Slot, Slot),
    /// `out = of(a, b, c)`.
    Ternary(Ternary, Slot, [Slot; 3]),
    /// `lop3`: any function of three bits, by its table of truth.
    Logic { out: Slot, operands: [Slot; 3], table: Slot },
    /// `bfi`: inserts the low bits of `a` into `b`: position, length, width.
    Insert { out: Slot, a: Slot, b: Slot, from: Slot, count: Slot, bits: u32 },
    /// `setp`, combined with a predicate; optionally its negation.
    Compare {
        of: Binary,
        out: Option<Slot>,
        other: Option<Slot>,
        a: Slot,
        b: Slot,
        with: Option<(Binary, Slot, bool)>,
    },
    /// A packed comparison of two 16-bit halves.
    ComparePair { of: Binary, out: [Option<Slot>; 2], a: Slot, b: Slot },
    /// `out = p ? a : b`.
    Select { out: Slot, a: Slot, b: Slot, p: Slot },
    /// `cvt`; saturates to the type, or floats to [0, 1].
    Convert {
        to: NumberType,
        from: NumberType,
        round: Option<Round>,
        saturate: bool,
        relu: bool,
        out: Slot,
        a: Slot,
    },
    /// A packed conversion, the first operand into the upper half.
    ConvertPair { to: NumberType, round: Round, relu: bool, out: Slot, high: Slot, low: Slot },
    /// Packs values of `bits` bits into a register.
    Pack { out: Slot, parts: Vec<Slot>, bits: u32 },
    /// Unpacks a register.
    Unpack { out: Vec<Option<Slot>>, value: Slot, bits: u32 },
    /// Extended-precision add and subtract: destination, operands, carry-in, carry-out, subtract,
    /// bits.
    Carry { out: Slot, a: Slot, b: Slot, reads: bool, writes: bool, minus: bool, bits: u32 },
    /// `ld`.
    Load { space: Space, load_type: LoadType, out: Vec<Option<Slot>>, at: Address },
    /// `st`.
    Store { space: Space, width: u8, values: Vec<Slot>, at: Address },
    /// `atom` and `red`; the last operand is the value that `cas` swaps in.
    Atomic {
        space: Space,
        width: u8,
        of: Binary,
        out: Option<Slot>,
        at: Address,
        value: Slot,
        swap: Option<Slot>,
    },
    /// `cvta` to a generic address.
    ToGeneric(Space, Slot, Slot),
    /// `cvta.to`.
    FromGeneric(Slot, Slot),
    /// `mapa`: the same address in another CTA of the cluster.
    Map { out: Slot, a: Slot, block: Slot, generic: bool },
    /// A branch.
    Branch(usize),
    /// `exit` and `ret`.
    Exit,
    /// `trap`.
    Trap,
    /// `bar.sync`, or without `waits` `bar.arrive`.
    Barrier { id: Slot, threads: Option<Slot>, waits: bool },
    /// `barrier.cluster.arrive`.
    ClusterArrive,
    /// `barrier.cluster.wait`.
    ClusterWait,
    /// A warp collective with its member mask; all lanes if none.
    Collective(Collective, Option<Slot>),
    /// An mbarrier instruction.
    Mbarrier(Mbarrier, Address),
    /// `cp.async`: size, and the bytes to read; the rest is zero-filled.
    Copy { to: Address, from: Address, bytes: u32, read: Option<Slot> },
    /// `cp.async.commit_group`.
    CopyCommit,
    /// `cp.async.wait_group N`.
    CopyWait(u32),
    /// A TMA instruction.
    Tma(Box<Tma>),
    /// `cp.async.bulk.commit_group`.
    TmaCommit,
    /// `cp.async.bulk.wait_group N`.
    TmaWait(u32),
    /// `activemask`.
    ActiveMask(Slot),
    /// `griddepcontrol.wait`.
    DependencyWait,
    /// No effect in the emulator.
    Nothing,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The guard predicate, and whether it is negated.
    pub guard: Option<(Slot, bool)>,
    /// The operation.
    pub op: Op,
    /// Line in the PTX.
    pub line: u32,
}

/// The initial value of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialValue {
    /// An immediate.
    Number(u64),
    /// `%tid`.
    Thread(usize),
    /// `%ntid`.
    Threads(usize),
    /// `%ctaid`.
    Block(usize),
    /// `%nctaid`.
    Blocks(usize),
    /// `%laneid`.
    Lane,
    /// `%warpid`.
    Warp,
    /// `%cluster_ctarank` and `%cluster_ctaid.x`.
    Rank,
    /// `%cluster_nctarank` and `%cluster_nctaid.x`.
    Ranks,
    /// `%clusterid.x`.
    Cluster,
    /// `%nclusterid.x`.
    Clusters,
    /// `%lanemask_lt`, or `_le`.
    Below(bool),
    /// `%lanemask_gt`, or `_ge`.
    Above(bool),
    /// The address of a parameter.
    Param(usize),
    /// The address of shared memory at an offset.
    Shared(u64),
    /// `%dynamic_smem_size`, `%total_smem_size` and the like.
    Dynamic,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its offset in the parameter buffer, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}
