//! TMA stores from shared memory to global memory, and how a warp stages accumulator fragments in
//! shared memory for them.
use crate::{emit::partials, strategies::gpu::common::ptx::Ptx};
use kiln_dialects::{ir::*, value::DType};

impl Ptx {
    /// Warp barrier: orders shared-memory writes among the lanes (`bar.warp.sync`).
    pub fn warp_barrier(self) -> Result<()> {
        let all = self.constant(-1)?;
        nvvm::bar_warp_sync(self, all)
    }
    /// Named barrier of a group of `threads` threads of the CTA; orders their shared-memory writes.
    /// `group`: its index, below 15.
    pub fn named_barrier(self, group: Value, threads: usize) -> Result<()> {
        // Barrier 0 is the CTA's.
        let (group, threads) = (self.add_const(group, 1)?, self.number(threads)?);
        nvvm::Barrier::new(self, &[]).barrier_id(group).number_of_threads(threads).build().map(drop)
    }
    /// Proxy fence: makes this thread's shared-memory writes visible to TMA (async proxy).
    pub fn fence_proxy_async(self) -> Result<()> {
        nvvm::FenceProxy::new(self, nvvm::ProxyKind::AsyncShared)
            .space(nvvm::SharedSpace::SharedCta)
            .build()
            .map(drop)
    }
    /// Prefetches a tensor map.
    pub fn prefetch_tensor_map(self, map: Value) -> Result<()> {
        nvvm::Prefetch::new(self, map).tensormap(true).build().map(drop)
    }
    /// Starts a TMA im2col load of as many pixels as the tensor map says, from coordinates channel,
    /// width, height, image. Each pixel is read at the given offsets in width and height.
    pub fn tma_load_im2col(
        self,
        to: Value,
        map: Value,
        coordinates: &[Value],
        further: &[Value; 2],
        barrier: Value,
    ) -> Result<()> {
        let short = Type::integer(self.0.ctx(), 16);
        let further: Vec<Value> =
            further.iter().map(|v| arith::trunci(self, *v, short)).collect::<Result<_>>()?;
        let to = llvm::addrspacecast(self, self.pointer(to)?, self.cluster_ptr())?;
        let barrier = self.pointer(barrier)?;
        nvvm::CpAsyncBulkTensorGlobalToSharedCluster::new(
            self,
            to,
            map,
            coordinates,
            barrier,
            &further,
        )
        .is_cta_only(false)
        .mode(nvvm::TMALoadMode::Im2col)
        .build()
        .map(drop)
    }
    /// Starts a bulk copy of this many bytes, a multiple of 16, to the shared memory of another CTA
    /// of the cluster. It completes on that CTA's mbarrier of this address.
    pub fn bulk_copy_to_cluster(
        self,
        from: Value,
        to: Value,
        block: Value,
        bytes: usize,
        barrier: Value,
    ) -> Result<()> {
        // The op's operand type is a pointer to the CTA's own shared memory; it takes any address.
        let barrier = llvm::ptrtoint(self, self.mapa(barrier, block)?, self.i32())?;
        let (to, from) = (self.mapa(to, block)?, self.pointer(from)?);
        let (barrier, bytes) = (self.pointer(barrier)?, self.number(bytes)?);
        nvvm::cp_async_bulk_shared_cluster_shared_cta(self, to, from, barrier, bytes)
    }
    /// Starts a TMA store of a box at these coordinates, the innermost first, as a bulk group of
    /// its own. Elements out of bounds are not written.
    pub fn tma_store(self, map: Value, from: Value, coordinates: &[Value]) -> Result<()> {
        let from = self.pointer(from)?;
        nvvm::CpAsyncBulkTensorSharedCTAToGlobal::new(self, map, from, coordinates)
            .mode(nvvm::TMAStoreMode::Tile)
            .build()?;
        nvvm::cp_async_bulk_commit_group(self)
    }
    /// Waits until at most `left` of this thread's TMA stores are in flight. A store is done when
    /// it has read shared memory, with `written` when it has written global memory.
    pub fn tma_store_wait(self, left: usize, written: bool) -> Result<()> {
        nvvm::CpAsyncBulkWaitGroup::new(self, left as i64).read(!written).build().map(drop)
    }
    /// `stmatrix.x4`: a warp stores four 8 x 8 matrices of 16-bit elements. Of matrix i, lane l
    /// holds elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 as `parts[i]`; lane 8 i + r has the
    /// address of row r.
    pub fn stmatrix(self, address: Value, parts: [Value; 4]) -> Result<()> {
        let shape = self.attr("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")?;
        let (layout, element) = (nvvm::MMALayout::Row, nvvm::LdStMatrixEltType::B16);
        nvvm::stmatrix(self, self.pointer(address)?, &parts, layout, shape, element)
    }
    /// Packs two contiguous 16-bit elements into one i32.
    pub fn pack_elements(self, pair: Value) -> Result<Value> {
        llvm::bitcast(self, pair, self.i32())
    }
    /// Loads a 16-bit element from shared memory.
    pub fn load_shared(self, address: Value, element: Type) -> Result<Value> {
        self.aligned_load(address, element, 2)
    }
    /// Loads an element of `bytes` bytes from shared memory.
    pub fn load_shared_scalar(self, address: Value, element: Type, bytes: usize) -> Result<Value> {
        self.aligned_load(address, element, bytes)
    }
    fn aligned_load(self, address: Value, ty: Type, bytes: usize) -> Result<Value> {
        llvm::Load::new(self, self.pointer(address)?, ty)
            .alignment(bytes as i64)
            .ordering(llvm::AtomicOrdering::NotAtomic)
            .result()
    }
    /// Vector load of `count` contiguous 32-bit elements from shared memory, aligned to its size.
    pub fn load_shared_vector(
        self,
        address: Value,
        element: Type,
        count: usize,
    ) -> Result<Vec<Value>> {
        let bytes = element.dtype()?.byte_size() * count;
        let all = self.aligned_load(address, Type::vector(element, count), bytes)?;
        (0..count).map(|i| partials::extract_lane(self.0, all, i)).collect()
    }
    /// The same for two elements.
    pub fn load_shared_pair(self, address: Value, element: Type) -> Result<[Value; 2]> {
        let both = self.load_shared_vector(address, element, 2)?;
        Ok([both[0], both[1]])
    }
    /// The address of an element of memory whose first one has an address, given as an integer.
    pub fn element_address(self, memory: Value, element: Value, bytes: usize) -> Result<Value> {
        let at = arith::index_cast(self, element, memory.ty())?;
        let bytes = self.0.integer(bytes as i64, memory.ty())?;
        arith::addi(self, memory, arith::muli(self, at, bytes)?)
    }
    /// Stores an element of 16 or 32 bits, or a vector of words, to global memory if a condition
    /// holds: one predicated instruction, no branch. Aligned to the size of what it stores.
    pub fn store_global_if(self, condition: Value, address: Value, values: &[Value]) -> Result<()> {
        let narrow = values.iter().all(|v| v.ty().dtype() == Ok(DType::I16));
        let (bits, kind) = if narrow { (16, "h") } else { (32, "r") };
        let list: Vec<String> = (0..values.len()).map(|i| format!("${}", i + 2)).collect();
        let (vector, list) = match list.as_slice() {
            [one] => (String::new(), one.clone()),
            all => (format!(".v{}", all.len()), format!("{{{}}}", all.join(", "))),
        };
        let text = format!(
            "{{ .reg .pred p; setp.ne.b32 p, $0, 0; @p st.global{vector}.b{bits} [$1], {list}; }}"
        );
        let constraints = ["r", "l"].into_iter().chain(values.iter().map(|_| kind));
        let constraints = constraints.collect::<Vec<_>>().join(",");
        let condition = arith::extui(self, condition, self.i32())?;
        let operands = [&[condition, address], values].concat();
        llvm::InlineAsm::new(self, &operands, &text, &constraints, &[])
            .asm_dialect(llvm::AsmDialect::AdAtt)
            .has_side_effects(true)
            .build()
            .map(drop)
    }
    /// Vector store to shared memory, aligned to its size.
    pub fn store_shared(self, address: Value, vector: Value, bytes: usize) -> Result<()> {
        llvm::Store::new(self, vector, self.pointer(address)?)
            .alignment(bytes as i64)
            .ordering(llvm::AtomicOrdering::NotAtomic)
            .build()
            .map(drop)
    }
}
