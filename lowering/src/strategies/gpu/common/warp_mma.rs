//! Instructions from sm_80 on: `mma.sync` with all operands in registers, `ldmatrix`, and
//! `cp.async`.
use crate::strategies::gpu::common::ptx::Ptx;
use kiln_dialects::{ir::*, value::DType};

impl Ptx {
    /// `mma.m16n8k16`: D = A B + D of a warp. Of lane 4 g + t, each operand register holds elements
    /// 2 t and 2 t + 1 of the first or second 8 of K. `left` has rows g and g + 8 of the first 8 of
    /// K, then of the second 8; `right` has column g. The accumulators are columns 2 t and 2 t + 1
    /// of rows g and g + 8.
    pub fn warp_mma(
        self,
        element: &str,
        left: [Value; 4],
        right: [Value; 2],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let as_operands = |all: &[Value]| -> Result<Vec<Value>> {
            let pair = self.ty("vector<2xf16>")?;
            let of = |v: &Value| {
                if element == "f16" { self.0.op("llvm.bitcast", &[*v], pair, &[]) } else { Ok(*v) }
            };
            all.iter().map(of).collect()
        };
        let kind = self.attr(&format!("#nvvm.mma_type<{element}>"))?;
        let attrs = [
            ("layoutA", self.attr("#nvvm.mma_layout<row>")?),
            ("layoutB", self.attr("#nvvm.mma_layout<col>")?),
            ("multiplicandAPtxType", kind),
            ("multiplicandBPtxType", kind),
            ("operandSegmentSizes", Attr::i32s(self.0.ctx(), &[4, 2, 4])),
            ("shape", self.attr("#nvvm.shape<m = 16, n = 8, k = 16>")?),
        ];
        let operands = [as_operands(&left)?, as_operands(&right)?, sums.to_vec()].concat();
        let done = self.0.op("nvvm.mma.sync", &operands, self.sums(2 * sums.len())?, &attrs)?;
        self.each(done, sums.len())
    }
}

impl Ptx {
    /// Of two registers with two 16-bit elements each, packs the first elements, or the second
    /// ones.
    pub fn turned(self, low: Value, high: Value, second: usize) -> Result<Value> {
        let text =
            format!("prmt.b32 $0, $1, $2, {};", if second == 0 { "0x5410" } else { "0x7632" });
        self.assembly(&text, "=r,r,r", &[low, high], self.i32(), false)
    }
}

/// `cp.async`: copies to shared memory that proceed while their thread computes.
impl Ptx {
    /// Starts a `cp.async` of `most` bytes (4 or 16) to shared memory; bytes after the first
    /// `bytes` are zero-filled.
    pub fn copy_some(self, to: Value, from: Value, bytes: Value, most: usize) -> Result<()> {
        let from = self.0.op("llvm.inttoptr", &[from], self.ty("!llvm.ptr<1>")?, &[])?;
        // `cg` (bypass L1) takes 16 bytes only.
        let cache = if most == 16 { "cg" } else { "ca" };
        let size = Attr::scalar_int(self.0.ctx(), DType::I32, most as i64);
        let attrs = [
            ("modifier", self.attr(&format!("#nvvm<load_cache_modifier {cache}>"))?),
            ("size", size),
        ];
        self.0.effect("nvvm.cp.async.shared.global", &[self.at(to)?, from, bytes], &attrs)
    }
    /// Size in bytes of this many elements, as i64.
    pub fn bytes(self, elements: Value, size: usize) -> Result<Value> {
        let wide = Type::scalar(self.0.ctx(), DType::I64);
        let all = self.0.op("arith.index_cast", &[elements], wide, &[])?;
        self.two("arith.muli", all, self.0.constant(&size.to_string(), wide)?)
    }
    /// `cp.async.commit_group`: commits the copies started so far as one group.
    pub fn copies(self) -> Result<()> {
        self.0.effect("nvvm.cp.async.commit.group", &[], &[])
    }
    /// `cp.async.wait_group`: waits until at most `under_way` of this thread's groups are in
    /// flight.
    pub fn copied(self, under_way: usize) -> Result<()> {
        self.0.effect(
            "nvvm.cp.async.wait.group",
            &[],
            &[("n", Attr::scalar_int(self.0.ctx(), DType::I32, under_way as i64))],
        )
    }
    /// `ldmatrix.x4`: a warp loads four 8 x 8 matrices of 16-bit elements; lane 8 i + r has the
    /// address of row r of matrix i. Of each, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of
    /// row l / 4, or of column l / 4 if `across` (`.trans`).
    pub fn read_matrices(self, address: Value, across: bool) -> Result<[Value; 4]> {
        let attrs = [
            ("eltType", self.attr("#nvvm.ld_st_matrix_elt_type<b16>")?),
            (
                "layout",
                self.attr(if across { "#nvvm.mma_layout<col>" } else { "#nvvm.mma_layout<row>" })?,
            ),
            ("num", Attr::scalar_int(self.0.ctx(), DType::I32, 4)),
            ("shape", self.attr("#nvvm.ld_st_matrix_shape<m = 8, n = 8>")?),
        ];
        let all = self.0.op(
            "nvvm.ldmatrix",
            &[self.at(address)?],
            self.ty("!llvm.struct<(i32, i32, i32, i32)>")?,
            &attrs,
        )?;
        let part = |i: i64| {
            self.0.op(
                "llvm.extractvalue",
                &[all],
                self.i32(),
                &[("position", Attr::i64s(self.0.ctx(), &[i]))],
            )
        };
        Ok([part(0)?, part(1)?, part(2)?, part(3)?])
    }
    /// The address of a buffer's first element, as an integer.
    pub fn begin_of(self, memory: Value) -> Result<Value> {
        let at = self.0.op(
            "memref.extract_aligned_pointer_as_index",
            &[memory],
            Type::index(self.0.ctx()),
            &[],
        )?;
        self.0.op("arith.index_cast", &[at], Type::scalar(self.0.ctx(), DType::I64), &[])
    }
}
