//! What every chip from sm_80 on has: products of a warp with all operands in registers, and copies
//! to shared memory that a thread starts.
use crate::strategies::gpu::common::ptx::Ptx;
use kiln_dialects::{ir::*, value::DType};

impl Ptx {
    /// D = A B + D of a warp: 16 rows, 8 columns, a depth of 16. Of lane 4 g + t, each register of
    /// an operand has the elements 2 t and 2 t + 1 of the depth's first or second 8: `left` those
    /// of rows g and g + 8, then again of the second 8; `right` those of column g. Its sums are the
    /// columns 2 t and 2 t + 1 of rows g and g + 8.
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
    /// Of two registers with two 16-bit elements each the first elements, or the second ones, as a
    /// pair.
    pub fn turned(self, low: Value, high: Value, second: usize) -> Result<Value> {
        let text =
            format!("prmt.b32 $0, $1, $2, {};", if second == 0 { "0x5410" } else { "0x7632" });
        self.assembly(&text, "=r,r,r", &[low, high], self.i32(), false)
    }
}

/// Copies to shared memory that go on while their thread computes.
impl Ptx {
    /// Starts a copy of 4 or of 16 bytes (`most`) to shared memory, of which those behind the first
    /// `bytes` are zeros.
    pub fn copy_some(self, to: Value, from: Value, bytes: Value, most: usize) -> Result<()> {
        let from = self.0.op("llvm.inttoptr", &[from], self.ty("!llvm.ptr<1>")?, &[])?;
        // Fewer than 16 go by way of the first-level cache only.
        let cache = if most == 16 { "cg" } else { "ca" };
        let size = Attr::scalar_int(self.0.ctx(), DType::I32, most as i64);
        let attrs = [
            ("modifier", self.attr(&format!("#nvvm<load_cache_modifier {cache}>"))?),
            ("size", size),
        ];
        self.0.effect("nvvm.cp.async.shared.global", &[self.at(to)?, from, bytes], &attrs)
    }
    /// So many elements of a size as bytes, in 64 bits.
    pub fn bytes(self, elements: Value, size: usize) -> Result<Value> {
        let wide = Type::scalar(self.0.ctx(), DType::I64);
        let all = self.0.op("arith.index_cast", &[elements], wide, &[])?;
        self.two("arith.muli", all, self.0.constant(&size.to_string(), wide)?)
    }
    /// What this thread has started since the last time is one group.
    pub fn copies(self) -> Result<()> {
        self.0.effect("nvvm.cp.async.commit.group", &[], &[])
    }
    /// Waits until at most so many groups of this thread's copies are under way.
    pub fn copied(self, under_way: usize) -> Result<()> {
        self.0.effect(
            "nvvm.cp.async.wait.group",
            &[],
            &[("n", Attr::scalar_int(self.0.ctx(), DType::I32, under_way as i64))],
        )
    }
    /// A warp reads four matrices of 8 by 8 elements of 16 bits, of whose rows lane 8 i + r has the
    /// address of row r of the i-th: of each, lane l has the elements 2 (l % 4) and 2 (l % 4) + 1
    /// of row l / 4, or of column l / 4 if `across`.
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
    /// The address of a buffer's first element, as a number.
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
