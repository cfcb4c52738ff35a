//! Hopper's copy engine the other way: boxes from shared memory to tensors, and how a warp writes
//! fragments of products there.
use crate::{emit::partials, strategies::gpu::common::ptx::Ptx};
use kiln_dialects::ir::*;

impl Ptx {
    /// Waits for the threads of the warp, and for what they have written to shared memory.
    pub fn warp_barrier(self) -> Result<()> {
        let all = self.0.constant("-1", self.i32())?;
        self.0.effect("nvvm.bar.warp.sync", &[all], &[])
    }
    /// Waits for the threads of a group of so many in the block, and for what they have written to
    /// shared memory. `group`: its number, below 15.
    pub fn group_barrier(self, group: Value, threads: usize) -> Result<()> {
        // The first one is that of the whole block.
        let operands = [self.plus(group, 1)?, self.number(threads)?];
        self.0.effect(
            "nvvm.barrier",
            &operands,
            &[("operandSegmentSizes", Attr::i32s(self.0.ctx(), &[1, 1, 0]))],
        )
    }
    /// What this thread has written to shared memory is there for the copy engine.
    pub fn release(self) -> Result<()> {
        let attrs = [
            ("kind", self.attr("#nvvm.proxy_kind<async.shared>")?),
            ("space", self.attr("#nvvm.shared_space<cta>")?),
        ];
        self.0.effect("nvvm.fence.proxy", &[], &attrs)
    }
    /// The hardware will read this tensor map soon.
    pub fn prefetch(self, map: Value) -> Result<()> {
        self.0.effect("nvvm.prefetch", &[map], &[("tensormap", Attr::unit(self.0.ctx()))])
    }
    /// Starts a copy of pixels, so many as the tensor map says, from these coordinates on: channel,
    /// width, height, image. Each is read so much further on in width and height.
    pub fn copy_pixels(
        self,
        to: Value,
        map: Value,
        coordinates: &[Value],
        further: &[Value; 2],
        barrier: Value,
    ) -> Result<()> {
        let short = Type::parse(self.0.ctx(), "i16").ok_or("has no i16")?;
        let further: Vec<Value> = further
            .iter()
            .map(|v| self.0.op("arith.trunci", &[*v], short, &[]))
            .collect::<Result<_>>()?;
        let to = self.0.op("llvm.addrspacecast", &[self.at(to)?], self.ty("!llvm.ptr<7>")?, &[])?;
        let operands = [&[to, map], coordinates, &[self.at(barrier)?], &further].concat();
        let attrs = [
            ("isCTAOnly", self.attr("false")?),
            ("mode", self.attr("#nvvm.tma_load_mode<im2col>")?),
            (
                "operandSegmentSizes",
                Attr::i32s(self.0.ctx(), &[1, 1, coordinates.len() as i32, 1, 2, 0, 0, 0]),
            ),
        ];
        self.0.effect("nvvm.cp.async.bulk.tensor.shared.cluster.global", &operands, &attrs)
    }
    /// Starts a copy of so many bytes, a multiple of 16, to an address in another block of the
    /// cluster, whose barrier of this address they arrive at.
    pub fn send(
        self,
        from: Value,
        to: Value,
        block: Value,
        bytes: usize,
        barrier: Value,
    ) -> Result<()> {
        // The op wants a pointer to the block's own memory, and takes any.
        let barrier =
            self.0.op("llvm.ptrtoint", &[self.of_block(barrier, block)?], self.i32(), &[])?;
        let operands =
            [self.of_block(to, block)?, self.at(from)?, self.at(barrier)?, self.number(bytes)?];
        self.0.effect("nvvm.cp.async.bulk.shared.cluster.shared.cta", &operands, &[])
    }
    /// Starts a store of a box at these coordinates, the innermost first, as a group of its own.
    /// What is beyond the tensor is not written.
    pub fn store(self, map: Value, from: Value, coordinates: &[Value]) -> Result<()> {
        let operands = [&[map, self.at(from)?], coordinates].concat();
        let counts = [1, 1, coordinates.len() as i32, 0, 0];
        let attrs = [
            ("mode", self.attr("#nvvm.tma_store_mode<tile>")?),
            ("operandSegmentSizes", Attr::i32s(self.0.ctx(), &counts)),
        ];
        self.0.effect("nvvm.cp.async.bulk.tensor.global.shared.cta", &operands, &attrs)?;
        self.0.effect("nvvm.cp.async.bulk.commit.group", &[], &[])
    }
    /// Waits until at most so many of this thread's stores have not read their boxes; until all
    /// have been written if `written`.
    pub fn stored(self, left: usize, written: bool) -> Result<()> {
        let c = self.0.ctx();
        let mut attrs =
            vec![("group", Attr::scalar_int(c, kiln_dialects::value::DType::I32, left as i64))];
        if !written {
            attrs.push(("read", Attr::unit(c)));
        }
        self.0.effect("nvvm.cp.async.bulk.wait_group", &[], &attrs)
    }
    /// A warp writes four matrices of 8 by 8 elements of 16 bits: of the i-th, lane l has the
    /// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 as `parts[i]`, and lane 8 i + r has the
    /// address of row r.
    pub fn matrices(self, address: Value, parts: [Value; 4]) -> Result<()> {
        let attrs = [
            ("eltType", self.attr("#nvvm.ld_st_matrix_elt_type<b16>")?),
            ("layout", self.attr("#nvvm.mma_layout<row>")?),
            ("shape", self.attr("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")?),
        ];
        self.0.effect("nvvm.stmatrix", &[&[self.at(address)?], &parts[..]].concat(), &attrs)
    }
    /// Two neighbours of 16 bits as one number.
    pub fn packed(self, pair: Value) -> Result<Value> {
        self.0.op("llvm.bitcast", &[pair], self.i32(), &[])
    }
    /// Reads an element of 16 bits from shared memory.
    pub fn read(self, address: Value, element: Type) -> Result<Value> {
        let attrs =
            [("alignment", Attr::i64(self.0.ctx(), 2)), ("ordering", Attr::i64(self.0.ctx(), 0))];
        self.0.op("llvm.load", &[self.at(address)?], element, &attrs)
    }
    /// Reads so many neighbours of 32 bits from shared memory at once, at a multiple of what they
    /// take.
    pub fn read_beside(self, address: Value, element: Type, count: usize) -> Result<Vec<Value>> {
        let attrs = [
            ("alignment", Attr::i64(self.0.ctx(), 4 * count as i64)),
            ("ordering", Attr::i64(self.0.ctx(), 0)),
        ];
        let all =
            self.0.op("llvm.load", &[self.at(address)?], Type::vector(element, count), &attrs)?;
        (0..count).map(|i| partials::part(self.0, all, i)).collect()
    }
    /// Two of them.
    pub fn read_two(self, address: Value, element: Type) -> Result<[Value; 2]> {
        let both = self.read_beside(address, element, 2)?;
        Ok([both[0], both[1]])
    }
    /// Writes a vector to shared memory, at a multiple of its size.
    pub fn write(self, address: Value, vector: Value, bytes: usize) -> Result<()> {
        self.0.effect(
            "llvm.store",
            &[vector, self.at(address)?],
            &[
                ("alignment", Attr::i64(self.0.ctx(), bytes as i64)),
                ("ordering", Attr::i64(self.0.ctx(), 0)),
            ],
        )
    }
}
