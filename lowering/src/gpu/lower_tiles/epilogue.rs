//! Epilogues: a body on the elements of tiles, whose results warps stage in shared memory, or which
//! stores them itself.
use crate::{
    emit::code::{BranchBody, Code, constant_value},
    gpu::lower_tiles::{
        fragments::registers,
        lines::Lines,
        role::Role,
        staging::{BUFFERS, Destination, Staging},
        thread::ROWS,
        wide_loads::{COLUMNS, RUN, WideLoads},
    },
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{DEPTH, ROW},
    },
};
use kiln_dialects::{ir::*, ops::*};

/// An epilogue of a consumer thread.
struct Epilogue<'a> {
    role: &'a Role<'a>,
    o: TileEpilogue,
    body: Block,
    /// Elements by tile, by 64 rows.
    values: Vec<Vec<Vec<Value>>>,
    /// What the body loads 16 bytes at a time.
    wide: WideLoads,
    /// Columns of a tile.
    columns: usize,
    /// The bounds that the tile may reach.
    bounds: [Option<Value>; 2],
    /// The tile's first row and column, and the warp's first row in it.
    row: Value,
    column: Value,
    warp_row: Value,
}

/// Words that a lane has loaded: by 32 columns, of the upper and the lower 8 rows, by operand.
type Words = Vec<[Vec<Value>; 2]>;

impl Role<'_> {
    pub(super) fn epilogue(&self, c: Code, op: Op) -> Result<()> {
        let o = TileEpilogue::of(op).ok_or_malformed(op)?;
        let (p, thread) = (Ptx(c), self.thread()?);
        let regions: Vec<Block> = op.regions().iter().filter_map(|r| r.first()).collect();
        let ty = o.values.first().ok_or("has no values")?.ty();
        let values = o.values.iter().map(|v| {
            let all = self.elements(*v)?;
            Ok(all.chunks(registers(ty)?).map(<[Value]>::to_vec).collect())
        });
        let values = values.collect::<Result<_>>()?;
        let body = *regions.first().ok_or("has no body")?;
        let e = Epilogue {
            role: self,
            body,
            wide: WideLoads::of(&o, body),
            values,
            columns: 2 * registers(ty)?,
            bounds: [o.rows, o.columns].map(|v| v.map(|v| self.scalar(v))),
            warp_row: p.add(self.group_row(p, ty)?, thread.warp_row)?,
            row: self.scalar(o.row),
            column: self.scalar(o.column),
            o,
        };
        match e.o.destinations.is_empty() {
            true => e.store_fragments(c),
            false => e.stage_results(c, regions.get(1).copied()),
        }
    }
}

impl Epilogue<'_> {
    /// What the body yields at a position. `i`: of the thread's elements of 64 rows. `given`: what
    /// some of its ops have loaded.
    fn element(
        &self,
        c: Code,
        [row, column]: [Value; 2],
        (block, i): (usize, usize),
        given: &[(Value, Value)],
    ) -> Result<Vec<Value>> {
        let mut args = vec![row, column];
        for tile in &self.values {
            let own = &tile[block][i..][..self.vector()];
            args.push(match own {
                [one] => *one,
                _ => vector::from_elements(c, own, Type::vector(own[0].ty(), own.len()))?,
            });
        }
        self.role.inlined_but(c, self.body, &args, given)
    }
    fn vector(&self) -> usize {
        self.o.vector as usize
    }
    fn blocks(&self) -> usize {
        self.values[0].len()
    }

    /// Without results: the body stores, where there is something.
    fn store_fragments(&self, c: Code) -> Result<()> {
        let (p, thread) = (Ptx(c), self.role.thread()?);
        let own = p.add(self.warp_row, p.sub(thread.row, thread.warp_row)?)?;
        let first = [p.add(self.row, own)?, p.add(self.column, thread.column)?];
        let [row, column] = [p.i32_to_index(first[0])?, p.i32_to_index(first[1])?];
        let when = |c: Code, i: Value, n: Option<Value>, then: &mut BranchBody<'_>| match n {
            None => then(c),
            Some(n) => c.if_else(c.less_than(i, n)?, then, None),
        };
        for block in 0..self.blocks() {
            for half in 0..2 {
                let row = c.add(row, c.index((ROWS * block + 8 * half) as i64)?)?;
                when(c, row, self.bounds[0], &mut |c| {
                    for (eight, e) in self.pairs(0..self.columns / 8) {
                        let column = c.add(column, c.index((8 * eight + e) as i64)?)?;
                        when(c, column, self.bounds[1], &mut |c| {
                            let i = 4 * eight + 2 * half + e;
                            self.element(c, [row, column], (block, i), &[]).map(drop)
                        })?;
                    }
                    Ok(())
                })?;
            }
        }
        // wgmma needs converged warps.
        if self.bounds == [None, None] { Ok(()) } else { p.warp_barrier() }
    }
    /// Of each 8 columns the thread's first elements.
    fn pairs(&self, eights: std::ops::Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let by = self.vector();
        eights.flat_map(move |eight| (0..2).step_by(by).map(move |e| (eight, e)))
    }

    /// With results: warps compute and stage 64 columns of 16 rows at a time.
    fn stage_results(&self, c: Code, lines: Option<Block>) -> Result<()> {
        let (p, thread) = (Ptx(c), self.role.thread()?);
        let end = self.body.terminator().ok_or("has no kiln.yield")?;
        let destinations = self.o.destinations.iter().zip(end.operands());
        let destinations: Vec<Destination> = destinations
            .map(|(to, v)| {
                let element = v.ty().element().unwrap_or(v.ty());
                let columns = ROW / element.dtype()?.byte_size();
                Ok(Destination { to: self.role.scalar(*to), element, columns })
            })
            .collect::<Result<_>>()?;
        let slices = self.columns / DEPTH;
        let each: usize = destinations.iter().map(|d| DEPTH / d.columns).sum();
        let buffers = each * slices * self.blocks();
        let mut staging = Staging::of(p, self.role, thread, &destinations, buffers)?;
        let outer: Vec<Value> = self.o.outer.iter().map(|v| self.role.scalar(*v)).collect();
        let row0 = p.add(self.row, self.warp_row)?;
        // Of one result both buffers are stored as lines at once, which have fewer ends.
        let together = if destinations.len() == 1 { BUFFERS } else { 1 };
        let order = (0..self.blocks()).flat_map(|block| (0..slices).map(move |s| (block, s)));
        let mut next = order.clone().skip(1);
        let mut ahead = self.loaded(c, row0, (0, 0))?;
        for block in 0..self.blocks() {
            let mut staged = vec![];
            for slice in 0..slices {
                // The next slice's operands are on their way while this one is computed.
                let following = next.next().map(|at| self.loaded(c, row0, at)).transpose()?;
                let words = std::mem::replace(&mut ahead, following.unwrap_or_default());
                let found = self.slice(c, &destinations, row0, (block, slice), &words)?;
                for (i, (d, found)) in destinations.iter().zip(found).enumerate() {
                    for (part, pairs) in found.chunks(d.columns / 8).enumerate() {
                        let memory = staging.next_buffer(c)?;
                        staging.stage(p, d, memory, pairs)?;
                        let column = p.add_const(self.column, slice * DEPTH + part * d.columns)?;
                        let row = p.add_const(row0, ROWS * block)?;
                        if d.is_tensor_map() {
                            let at = [&[column, row], outer.as_slice()].concat();
                            staging.store_by_tma(c, d, memory, &at)?;
                            continue;
                        }
                        p.warp_barrier()?;
                        staged.push((memory, column));
                        let last = slice + 1 == slices && (part + 1) * d.columns == DEPTH;
                        if staged.len() < together && !last {
                            continue;
                        }
                        let lines = lines.ok_or("has no lines")?;
                        let before = destinations[..i].iter().filter(|d| !d.is_tensor_map());
                        let which = before.count();
                        let begin = |c: Code, at: Value, column: Value| {
                            let all = self.role.inlined(c, lines, &[at, column])?;
                            all.get(which).copied().ok_or_else(|| "has no such line".into())
                        };
                        let (buffer, column) = staged.first().copied().unwrap_or((memory, column));
                        let (to, line, bounds, buffers) = (d, &begin, self.bounds, staged.len());
                        let staged_lines = Lines {
                            staging: &staging,
                            to,
                            buffer,
                            buffers,
                            row,
                            column,
                            bounds,
                            line,
                        };
                        staged_lines.store(c)?;
                        staged.clear();
                        if together > 1 {
                            staging.restart();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a result of one tile ends before a column of it: it is not computed, nor stored.
    fn is_beyond(&self, column: usize) -> bool {
        let last = self.bounds[1].and_then(constant_value).unwrap_or(i64::MAX);
        last <= self.columns as i64 && last <= column as i64
    }

    /// The thread's row of the upper or the lower 8.
    fn row(&self, c: Code, row0: Value, block: usize, half: usize) -> Result<Value> {
        let p = Ptx(c);
        let mine = p.add(row0, p.div_const(self.role.thread()?.lane, 4)?)?;
        let row = p.i32_to_index(p.add_const(mine, ROWS * block + 8 * half)?)?;
        inside(c, row, self.bounds[0], 1)
    }

    /// Wide loads of 64 columns: by 32 columns, of the upper and the lower 8 rows.
    fn loaded(&self, c: Code, row0: Value, (block, slice): (usize, usize)) -> Result<Words> {
        let (p, mut all) = (Ptx(c), Words::default());
        if self.wide.is_empty() {
            return Ok(all);
        }
        let own = p.mul_const(p.rem_const(self.role.thread()?.lane, 4)?, RUN)?;
        for begin in (DEPTH * slice..DEPTH * (slice + 1)).step_by(COLUMNS) {
            if self.is_beyond(begin) {
                continue;
            }
            let column = p.add_const(p.add(self.column, own)?, begin)?;
            let column = inside(c, p.i32_to_index(column)?, self.bounds[1], RUN)?;
            let half = |half: usize| {
                let row = self.row(c, row0, block, half)?;
                self.wide.load(self.role, c, [row, column])
            };
            all.push([half(0)?, half(1)?]);
        }
        Ok(all)
    }

    /// The results of 64 columns: by result, by 8 columns, of the upper and the lower 8 rows.
    fn slice(
        &self,
        c: Code,
        destinations: &[Destination],
        row0: Value,
        (block, slice): (usize, usize),
        words: &Words,
    ) -> Result<Vec<Vec<[Value; 2]>>> {
        let (p, thread) = (Ptx(c), self.role.thread()?);
        let over = p.add(self.column, thread.column)?;
        let mut given = vec![];
        for part in words {
            let [upper, lower] = part.each_ref().map(|v| self.wide.pairs(c, thread.lane, v));
            given.extend(upper?.into_iter().zip(lower?).map(|(a, b)| [a, b]));
        }
        let mut found: Vec<Vec<[Value; 2]>> = vec![vec![]; destinations.len()];
        for eight in 8 * slice..8 * (slice + 1) {
            if self.is_beyond(8 * eight) {
                for (d, all) in destinations.iter().zip(&mut found) {
                    all.push([c.number(0.0, Type::vector(d.element, 2))?; 2]);
                }
                continue;
            }
            let mut halves: Vec<Vec<Value>> = vec![vec![]; destinations.len()];
            for half in 0..2 {
                let row = self.row(c, row0, block, half)?;
                let given = given.get(eight - 8 * slice).map_or(&[][..], |pair| &pair[half]);
                let mut parts = vec![];
                for (_, e) in self.pairs(eight..eight + 1) {
                    let column = p.i32_to_index(p.add_const(over, 8 * eight + e)?)?;
                    let column = inside(c, column, self.bounds[1], self.vector())?;
                    let i = 4 * eight + 2 * half + e;
                    parts.push(self.element(c, [row, column], (block, i), given)?);
                }
                for (i, all) in halves.iter_mut().enumerate() {
                    all.push(match parts.as_slice() {
                        [pair] => pair[i],
                        [a, b] => {
                            let ty = Type::vector(a[i].ty(), 2);
                            vector::from_elements(c, &[a[i], b[i]], ty)?
                        }
                        _ => return Err("has no pairs".into()),
                    });
                }
            }
            for (all, pair) in found.iter_mut().zip(halves) {
                all.push(<[Value; 2]>::try_from(pair).map_err(|_| "has no two halves")?);
            }
        }
        Ok(found)
    }
}

/// Clamps an index so that `count` elements from it are in bounds. What is computed out of bounds
/// is not stored.
fn inside(c: Code, i: Value, size: Option<Value>, count: usize) -> Result<Value> {
    size.map_or(Ok(i), |size| c.min(i, c.sub(size, c.index(count as i64)?)?))
}
