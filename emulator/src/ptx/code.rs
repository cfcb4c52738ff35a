//! Instructions as they are run. All that they read is a slot of the thread's registers; numbers
//! have slots that are filled before a thread begins.

/// A register of a thread.
pub type Slot = u32;
/// Of one value.
pub type Unary = fn(u64) -> u64;
/// Of two.
pub type Binary = fn(u64, u64) -> u64;
/// Of three.
pub type Ternary = fn(u64, u64, u64) -> u64;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// As the address says.
    Generic,
    /// The card's memory.
    Global,
    /// Of the block, or of a block of the cluster.
    Shared,
    /// Of the thread.
    Local,
    /// The kernel's parameters.
    Param,
}

/// How what is read becomes a register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes.
    pub width: u8,
    /// Whether the sign is carried into the register's other bits.
    pub signed: bool,
}

/// An address: a register and a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The register.
    pub base: Slot,
    /// Bytes behind it.
    pub offset: i64,
}

/// What threads of a warp do together.
#[derive(Clone, Debug)]
pub enum Together {
    /// `shfl.sync`: kind, result, predicate, value, lane, limit and mask.
    Shuffle { kind: Shuffle, out: Slot, valid: Option<Slot>, value: Slot, lane: Slot, limit: Slot },
    /// `vote.sync` and `activemask`-like ballots.
    Vote { kind: Vote, out: Slot, value: Slot, negate: bool },
    /// `redux.sync`.
    Reduce { of: Binary, out: Slot, value: Slot },
    /// `elect.sync`: the first lane.
    Elect { out: Option<Slot>, chosen: Slot },
    /// `bar.warp.sync`.
    Sync,
    /// `mma.sync`.
    Mma(Mma),
    /// `ldmatrix`: matrices of 8 by 8 elements of 16 bits.
    LoadMatrix { out: Vec<Slot>, at: Address, transposed: bool },
    /// `stmatrix`.
    StoreMatrix { values: Vec<Slot>, at: Address, transposed: bool },
    /// `wgmma.mma_async`, of four warps.
    Wgmma(Wgmma),
}

/// How lanes are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// The lanes above.
    Down,
    /// The lanes below.
    Up,
    /// The lane with other bits.
    Butterfly,
    /// The lane of a number.
    Index,
}

/// What lanes agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Whether all hold.
    All,
    /// Whether any holds.
    Any,
    /// Whether all say the same.
    Uniform,
    /// Which hold.
    Ballot,
}

/// Types of factors of the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// f32, of which 19 bits count.
    Tf32,
}

/// `mma.sync.m16n8kK`.
#[derive(Clone, Debug)]
pub struct Mma {
    /// Depth.
    pub k: usize,
    /// The factors' type.
    pub factor: Factor,
    /// Whether sums are f16, not f32.
    pub narrow: bool,
    /// Results, first factor, second factor, sums.
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
    /// Columns.
    pub n: usize,
    /// Depth.
    pub k: usize,
    /// The factors' type.
    pub factor: Factor,
    /// Sums of f16, two a register.
    pub narrow: bool,
    /// Sums.
    pub d: Vec<Slot>,
    /// The first factor: a description of shared memory, or registers.
    pub a: Vec<Slot>,
    /// The second factor's description.
    pub b: Slot,
    /// Whether sums count.
    pub add: Slot,
    /// Signs of the factors.
    pub signs: [i32; 2],
    /// Whether rows of the factors lie the other way.
    pub transposed: [bool; 2],
}

/// Bars of shared memory.
#[derive(Clone, Debug)]
pub enum Bar {
    /// For so many arrivals.
    Init(Slot),
    /// No longer one.
    Invalidate,
    /// One arrives, with bytes that are to come first.
    Arrive { bytes: Option<Slot>, count: Option<Slot>, state: Option<Slot> },
    /// Bytes that are to come.
    Expect(Slot),
    /// Whether a phase is over.
    Test { out: Slot, phase: Slot },
}

/// A copy of the copy engine's.
#[derive(Clone, Debug)]
pub enum Bulk {
    /// A box of a tensor into shared memory, that a bar is told of; to many blocks with a mask.
    Load {
        to: Address,
        map: Slot,
        at: Vec<Slot>,
        offsets: Vec<Slot>,
        bar: Address,
        blocks: Option<Slot>,
    },
    /// A box of shared memory into a tensor.
    Store { from: Address, map: Slot, at: Vec<Slot> },
    /// Bytes into shared memory, of this one.
    LoadBytes { to: Address, of: Space, from: Address, bytes: Slot, bar: Address },
    /// Bytes out of it.
    StoreBytes { to: Address, from: Address, bytes: Slot },
}

/// Number types of conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned, of so many bits.
    Unsigned(u32),
    /// Signed.
    Signed(u32),
    /// f16, f32 or f64.
    Float(u32),
    /// bf16.
    Bf16,
    /// f32 of 19 bits.
    Tf32,
}

/// How a conversion rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the nearest, even.
    Even,
    /// To the nearest, away from 0.
    Away,
    /// Towards 0.
    Zero,
    /// Down.
    Down,
    /// Up.
    Up,
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Op {
    /// `out = of(a)`.
    Unary(Unary, Slot, Slot),
    /// `out = of(a, b)`.
    Binary(Binary, Slot, Slot, Slot),
    /// `out = of(a, b, c)`.
    Ternary(Ternary, Slot, [Slot; 3]),
    /// `out = b` with the low bits of `a` in it: from which bit on, how many, of how many in all.
    Insert { out: Slot, a: Slot, b: Slot, from: Slot, count: Slot, bits: u32 },
    /// A comparison, joined with a predicate; also its opposite.
    Compare {
        of: Binary,
        out: Option<Slot>,
        other: Option<Slot>,
        a: Slot,
        b: Slot,
        with: Option<(Binary, Slot, bool)>,
    },
    /// Comparisons of both halves of registers.
    ComparePair { of: Binary, out: [Option<Slot>; 2], a: Slot, b: Slot },
    /// `out = p ? a : b`.
    Select { out: Slot, a: Slot, b: Slot, p: Slot },
    /// Conversion; saturated to the type, or to 0 and 1.
    Convert {
        to: Kind,
        from: Kind,
        round: Option<Round>,
        saturate: bool,
        relu: bool,
        out: Slot,
        a: Slot,
    },
    /// Two conversions, the first into the upper half.
    ConvertPair { to: Kind, round: Round, relu: bool, out: Slot, high: Slot, low: Slot },
    /// Parts of `bits` bits into one register.
    Pack { out: Slot, parts: Vec<Slot>, bits: u32 },
    /// One register into parts.
    Unpack { out: Vec<Option<Slot>>, value: Slot, bits: u32 },
    /// Sums with carry: result, first, second, carry in, carry out, subtraction, bits.
    Carry { out: Slot, a: Slot, b: Slot, reads: bool, writes: bool, minus: bool, bits: u32 },
    /// Reads.
    Load { space: Space, cell: Cell, out: Vec<Option<Slot>>, at: Address },
    /// Writes.
    Store { space: Space, width: u8, values: Vec<Slot>, at: Address },
    /// Reads and writes at once; the last is what `cas` writes.
    Atomic {
        space: Space,
        width: u8,
        of: Binary,
        out: Option<Slot>,
        at: Address,
        value: Slot,
        swap: Option<Slot>,
    },
    /// To another address space's addresses and back.
    ToGeneric(Space, Slot, Slot),
    /// From generic addresses.
    FromGeneric(Slot, Slot),
    /// The same address in another block of the cluster.
    Map { out: Slot, a: Slot, block: Slot, generic: bool },
    /// Goes on elsewhere.
    Branch(usize),
    /// Ends the thread.
    Exit,
    /// Ends the launch.
    Trap,
    /// Waits for threads of the block; arrives only.
    Barrier { id: Slot, threads: Option<Slot>, waits: bool },
    /// Waits for all blocks of the cluster, in two steps.
    ClusterArrive,
    /// The second.
    ClusterWait,
    /// With other lanes; the mask of these, all if none.
    Together(Together, Option<Slot>),
    /// A bar of shared memory.
    Bar(Bar, Address),
    /// `cp.async`: bytes, of which some are read and the others are 0.
    Copy { to: Address, from: Address, bytes: u32, read: Option<Slot> },
    /// `cp.async.commit_group`.
    CopyCommit,
    /// Waits until so many groups are left.
    CopyWait(u32),
    /// The copy engine.
    Bulk(Box<Bulk>),
    /// A group of its stores.
    BulkCommit,
    /// Waits for them.
    BulkWait(u32),
    /// Which lanes run.
    ActiveMask(Slot),
    /// Has no effect here.
    Nothing,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// A predicate in front, and whether it is negated.
    pub guard: Option<(Slot, bool)>,
    /// What it does.
    pub op: Op,
    /// Of the text.
    pub line: u32,
}

/// Slots that are filled before a thread begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A number.
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
    /// Lanes below, also with this one.
    Below(bool),
    /// Lanes above, also with this one.
    Above(bool),
    /// The address of a parameter.
    Param(usize),
    /// The address of shared memory at this offset.
    Shared(u64),
    /// `%dynamic_smem_size`, `%total_smem_size` and the like.
    Dynamic,
}
