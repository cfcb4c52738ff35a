//! Instructions from sm_80 on: `mma.sync` with all operands in registers, `ldmatrix`, and
//! `cp.async`.
use crate::strategies::gpu::common::ptx::{MMA_K_BYTES, Ptx};
use kiln_dialects::{ir::*, value::DType};

impl Ptx {
    /// `mma.m16n8k16`: D = A B + D of a warp. Of lane 4 g + t, each operand register holds elements
    /// 2 t and 2 t + 1 of the first or second 8 of K. `left` has rows g and g + 8 of the first 8 of
    /// K, then of the second 8; `right` has column g. The accumulators are columns 2 t and 2 t + 1
    /// of rows g and g + 8. Of int8 it is `mma.m16n8k32`: a register has 4 elements for 2, and
    /// accumulators are i32.
    pub fn warp_mma(
        self,
        element: DType,
        left: [Value; 4],
        right: [Value; 2],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let as_operands = |all: &[Value]| -> Result<Vec<Value>> {
            let pair = Type::vector(Type::scalar(self.0.ctx(), DType::F16), 2);
            let of = |v: &Value| {
                if element == DType::F16 { llvm::bitcast(self, *v, pair) } else { Ok(*v) }
            };
            all.iter().map(of).collect()
        };
        let kind = match element {
            DType::F16 => nvvm::MMATypes::F16,
            DType::BF16 => nvvm::MMATypes::Bf16,
            DType::I8 => nvvm::MMATypes::S8,
            other => return Err(format!("has no mma.sync of {other}").into()),
        };
        let k = MMA_K_BYTES / element.byte_size();
        let shape = self.attr(&format!("#nvvm.shape<m = 16, n = 8, k = {k}>"))?;
        let sum = Type::scalar(self.0.ctx(), element.accumulator());
        let (left, right) = (as_operands(&left)?, as_operands(&right)?);
        let (row, col, made) = (
            nvvm::MMALayout::Row,
            nvvm::MMALayout::Col,
            self.accumulator_type(sum, 2 * sums.len()),
        );
        let mma = nvvm::Mma::new(self, shape, row, col, &left, &right, sums, made)
            .multiplicand_a_ptx_type(kind)
            .multiplicand_b_ptx_type(kind);
        let done = match element.is_float() {
            true => mma.result()?,
            false => mma.int_overflow_behavior(nvvm::MMAIntOverflow::Wrapped).result()?,
        };
        self.extract_accumulators(done, sum, sums.len())
    }
}

impl Ptx {
    /// Of two registers with two 16-bit elements each, packs the first elements, or the second
    /// ones.
    pub fn permute_pairs(self, low: Value, high: Value, second: usize) -> Result<Value> {
        self.permute_bytes(low, high, if second == 0 { "0x5410" } else { "0x7632" })
    }
    /// `prmt`: each digit of the selector, the lowest first, picks a byte of two registers.
    pub fn permute_bytes(self, low: Value, high: Value, selector: &str) -> Result<Value> {
        let text = format!("prmt.b32 $0, $1, $2, {selector};");
        self.inline_asm(&text, "=r,r,r", &[low, high], self.i32(), false)
    }
    /// `lop3`: `v & mask | bits`; of two constants ptxas would make two instructions.
    pub fn and_or(self, v: Value, mask: Value, bits: Value) -> Result<Value> {
        let text = "lop3.b32 $0, $1, $2, $3, 0xea;";
        self.inline_asm(text, "=r,r,r,r", &[v, mask, bits], self.i32(), false)
    }
}

/// `cp.async`: copies to shared memory that proceed while their thread computes.
impl Ptx {
    /// Starts a `cp.async` of `most` bytes (4 or 16) to shared memory; bytes after the first
    /// `bytes` are zero-filled.
    pub fn cp_async(self, to: Value, from: Value, bytes: Value, most: usize) -> Result<()> {
        let from = llvm::inttoptr(self, from, Type::llvm_ptr(self.0.ctx(), 1))?;
        // `cg` (bypass L1) takes 16 bytes only.
        use nvvm::LoadCacheModifierKind as Cache;
        let cache = if most == 16 { Cache::Cg } else { Cache::Ca };
        nvvm::CpAsync::new(self, self.pointer(to)?, from, most as i64, cache)
            .cp_size(bytes)
            .build()
            .map(drop)
    }
    /// Size in bytes of this many elements, as i64.
    pub fn size_in_bytes(self, elements: Value, size: usize) -> Result<Value> {
        let wide = Type::scalar(self.0.ctx(), DType::I64);
        let all = arith::index_cast(self, elements, wide)?;
        arith::muli(self, all, self.0.integer(size as i64, wide)?)
    }
    /// `cp.async.commit_group`: commits the copies started so far as one group.
    pub fn cp_async_commit_group(self) -> Result<()> {
        nvvm::cp_async_commit_group(self)
    }
    /// `cp.async.wait_group`: waits until at most `under_way` of this thread's groups are in
    /// flight.
    pub fn cp_async_wait_group(self, under_way: usize) -> Result<()> {
        nvvm::cp_async_wait_group(self, under_way as i64)
    }
    /// `ldmatrix.x4`: a warp loads four 8 x 8 matrices of 16-bit elements; lane 8 i + r has the
    /// address of row r of matrix i. Of each, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of
    /// row l / 4, or of column l / 4 if `across` (`.trans`).
    pub fn ldmatrix(self, address: Value, across: bool) -> Result<[Value; 4]> {
        use nvvm::{LdStMatrixEltType, MMALayout};
        let layout = if across { MMALayout::Col } else { MMALayout::Row };
        let shape = self.attr("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")?;
        let words = Type::llvm_struct(self.0.ctx(), &[self.i32(); 4]);
        let (address, element) = (self.pointer(address)?, LdStMatrixEltType::B16);
        let all = nvvm::ldmatrix(self, address, 4, layout, shape, element, words)?;
        let part = |i: i64| llvm::extractvalue(self, all, &[i], self.i32());
        Ok([part(0)?, part(1)?, part(2)?, part(3)?])
    }
    /// The address of a buffer's first element, as an integer.
    pub fn base_address(self, memory: Value) -> Result<Value> {
        let at = memref::extract_aligned_pointer_as_index(self, memory)?;
        arith::index_cast(self, at, Type::scalar(self.0.ctx(), DType::I64))
    }
}
