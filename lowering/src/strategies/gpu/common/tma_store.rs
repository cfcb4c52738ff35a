//! TMA stores from shared memory to global memory, and how a warp stages accumulator fragments in
//! shared memory for them.
use crate::{emit::partials, strategies::gpu::common::ptx::Ptx};
use kiln_dialects::ir::*;

impl Ptx {
    /// Warp barrier: orders shared-memory writes among the lanes (`bar.warp.sync`).
    pub fn warp_barrier(self) -> Result<()> {
        let all = self.0.constant("-1", self.i32())?;
        self.0.effect("nvvm.bar.warp.sync", &[all], &[])
    }
    /// Named barrier of a group of `threads` threads of the CTA; orders their shared-memory writes.
    /// `group`: its index, below 15.
    pub fn group_barrier(self, group: Value, threads: usize) -> Result<()> {
        // Barrier 0 is the CTA's.
        let operands = [self.plus(group, 1)?, self.number(threads)?];
        self.0.effect(
            "nvvm.barrier",
            &operands,
            &[("operandSegmentSizes", Attr::i32s(self.0.ctx(), &[1, 1, 0]))],
        )
    }
    /// Proxy fence: makes this thread's shared-memory writes visible to TMA (async proxy).
    pub fn release(self) -> Result<()> {
        let attrs = [
            ("kind", self.attr("#nvvm.proxy_kind<async.shared>")?),
            ("space", self.attr("#nvvm.shared_space<cta>")?),
        ];
        self.0.effect("nvvm.fence.proxy", &[], &attrs)
    }
    /// Prefetches a tensor map.
    pub fn prefetch(self, map: Value) -> Result<()> {
        self.0.effect("nvvm.prefetch", &[map], &[("tensormap", Attr::unit(self.0.ctx()))])
    }
    /// Starts a TMA im2col load of as many pixels as the tensor map says, from coordinates channel,
    /// width, height, image. Each pixel is read at the given offsets in width and height.
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
    /// Starts a bulk copy of this many bytes, a multiple of 16, to the shared memory of another CTA
    /// of the cluster. It completes on that CTA's mbarrier of this address.
    pub fn send(
        self,
        from: Value,
        to: Value,
        block: Value,
        bytes: usize,
        barrier: Value,
    ) -> Result<()> {
        // The op's operand type is a pointer to the CTA's own shared memory; it takes any address.
        let barrier =
            self.0.op("llvm.ptrtoint", &[self.of_block(barrier, block)?], self.i32(), &[])?;
        let operands =
            [self.of_block(to, block)?, self.at(from)?, self.at(barrier)?, self.number(bytes)?];
        self.0.effect("nvvm.cp.async.bulk.shared.cluster.shared.cta", &operands, &[])
    }
    /// Starts a TMA store of a box at these coordinates, the innermost first, as a bulk group of
    /// its own. Elements out of bounds are not written.
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
    /// Waits until at most `left` of this thread's TMA stores are in flight. A store is done when
    /// it has read shared memory, with `written` when it has written global memory.
    pub fn stored(self, left: usize, written: bool) -> Result<()> {
        let c = self.0.ctx();
        let mut attrs =
            vec![("group", Attr::scalar_int(c, kiln_dialects::value::DType::I32, left as i64))];
        if !written {
            attrs.push(("read", Attr::unit(c)));
        }
        self.0.effect("nvvm.cp.async.bulk.wait_group", &[], &attrs)
    }
    /// `stmatrix.x4`: a warp stores four 8 x 8 matrices of 16-bit elements. Of matrix i, lane l
    /// holds elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 as `parts[i]`; lane 8 i + r has the
    /// address of row r.
    pub fn matrices(self, address: Value, parts: [Value; 4]) -> Result<()> {
        let attrs = [
            ("eltType", self.attr("#nvvm.ld_st_matrix_elt_type<b16>")?),
            ("layout", self.attr("#nvvm.mma_layout<row>")?),
            ("shape", self.attr("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")?),
        ];
        self.0.effect("nvvm.stmatrix", &[&[self.at(address)?], &parts[..]].concat(), &attrs)
    }
    /// Packs two contiguous 16-bit elements into one i32.
    pub fn packed(self, pair: Value) -> Result<Value> {
        self.0.op("llvm.bitcast", &[pair], self.i32(), &[])
    }
    /// Loads a 16-bit element from shared memory.
    pub fn read(self, address: Value, element: Type) -> Result<Value> {
        let attrs =
            [("alignment", Attr::i64(self.0.ctx(), 2)), ("ordering", Attr::i64(self.0.ctx(), 0))];
        self.0.op("llvm.load", &[self.at(address)?], element, &attrs)
    }
    /// Vector load of `count` contiguous 32-bit elements from shared memory, aligned to its size.
    pub fn read_beside(self, address: Value, element: Type, count: usize) -> Result<Vec<Value>> {
        let attrs = [
            ("alignment", Attr::i64(self.0.ctx(), 4 * count as i64)),
            ("ordering", Attr::i64(self.0.ctx(), 0)),
        ];
        let all =
            self.0.op("llvm.load", &[self.at(address)?], Type::vector(element, count), &attrs)?;
        (0..count).map(|i| partials::part(self.0, all, i)).collect()
    }
    /// The same for two elements.
    pub fn read_two(self, address: Value, element: Type) -> Result<[Value; 2]> {
        let both = self.read_beside(address, element, 2)?;
        Ok([both[0], both[1]])
    }
    /// Vector store to shared memory, aligned to its size.
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
