//! The rings of pipelines: tiles in shared memory, and the phases of the mbarriers of each stage.
//!
//! A stage is told by its index and by the round in which its ring reaches it. The parity that a
//! GPU waits for says less: a wait for a phase that is over may pass, or never return. Here it is
//! an error, as is every access of a stage by a role that does not hold it.
use crate::{
    error::{OptionExt, Result},
    ir::Op,
    sym::Dim,
    value::DType,
};

/// Bytes of a row of a slice, which the swizzle needs.
const ROW: usize = 128;

/// A place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) index: usize,
    pub(super) round: u64,
}

/// The form of a ring's tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileForm {
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Columns of a slice, whose rows have 128 bytes.
    pub(super) slice: usize,
}

impl TileForm {
    /// Elements of a tile, whose last slice may be wider than its columns.
    fn elements(&self) -> usize {
        self.rows * self.slice * self.columns.div_ceil(self.slice)
    }
    fn place(&self, row: usize, column: usize) -> usize {
        (column / self.slice * self.rows + row) * self.slice + column % self.slice
    }
}

/// The tiles of a stage, and how far its mbarriers are.
#[derive(Default)]
struct StageState {
    tiles: Vec<Vec<f64>>,
    /// Completed phases of `full` and of `empty`.
    filled: u64,
    released: u64,
    /// Bytes that `full` expects, from the acquisition on.
    expected: Option<usize>,
    /// The last round for which the consumers waited.
    waited: Option<u64>,
}

/// A pipeline.
pub(super) struct Ring {
    pub(super) tiles: Vec<TileForm>,
    stages: Vec<StageState>,
}

/// Whether an op has run, or what it waits for.
pub(super) type Attempt = std::result::Result<(), String>;

impl Ring {
    /// The ring of a `kiln.tile.pipeline`, all of whose stages are empty.
    pub(super) fn of(op: Op) -> Result<Ring> {
        let mut ring = Ring { tiles: vec![], stages: vec![] };
        for v in op.results() {
            let sizes = v.ty().dims();
            let [Dim::Known(stages), Dim::Known(rows), Dim::Known(columns)] = sizes.as_slice()
            else {
                return Err("has a pipeline of dynamic sizes".into());
            };
            let dtype = v.ty().element().ok_or_malformed(op)?.dtype()?;
            let [rows, columns] = [*rows, *columns].map(|n| n as usize);
            let slice = ROW / dtype.byte_size();
            ring.tiles.push(TileForm { dtype, rows, columns, slice });
            ring.stages.resize_with(*stages as usize, StageState::default);
        }
        for stage in &mut ring.stages {
            stage.tiles = ring.tiles.iter().map(|t| vec![f64::NAN; t.elements()]).collect();
        }
        Ok(ring)
    }
    /// The stage behind another one.
    pub(super) fn next(&self, s: Stage) -> Stage {
        match s.index + 1 {
            n if n < self.stages.len() => Stage { index: n, ..s },
            _ => Stage { index: 0, round: s.round + 1 },
        }
    }
    fn bytes(&self) -> usize {
        self.tiles.iter().map(|t| t.elements() * t.dtype.byte_size()).sum()
    }
    fn stage(&mut self, s: Stage) -> Result<&mut StageState> {
        let count = self.stages.len();
        let found = self.stages.get_mut(s.index);
        Ok(found.ok_or_else(|| format!("takes stage {} of {count}", s.index))?)
    }

    /// The producer waits until the stage is empty; `full` then expects the bytes of its tiles.
    pub(super) fn acquire(&mut self, s: Stage) -> Result<Attempt> {
        let bytes = self.bytes();
        let stage = self.stage(s)?;
        if stage.released < s.round {
            return Ok(Err(format!("waits until stage {} is empty", s.index)));
        }
        if stage.expected.is_some() || stage.filled != s.round || stage.released != s.round {
            return Err(format!(
                "acquires stage {} for round {}, but it has been filled {} times and released {}",
                s.index, s.round, stage.filled, stage.released
            )
            .into());
        }
        stage.expected = Some(bytes);
        stage.tiles.iter_mut().for_each(|t| t.fill(f64::NAN));
        Ok(Ok(()))
    }
    /// TMA writes elements of a tile from one on, and completes so many bytes of `full`.
    pub(super) fn fill(
        &mut self,
        s: Stage,
        tile: usize,
        from: usize,
        elements: &[f64],
    ) -> Result<()> {
        let width = self.tiles.get(tile).ok_or("fills no tile")?.dtype.byte_size();
        let stage = self.stage(s)?;
        let left = stage.expected.filter(|_| stage.filled == s.round);
        let left = left
            .ok_or_else(|| format!("loads into stage {}, which is not acquired", s.index))?
            .checked_sub(elements.len() * width)
            .ok_or_else(|| format!("loads more bytes than stage {} has", s.index))?;
        let to = stage.tiles.get_mut(tile).and_then(|t| t.get_mut(from..from + elements.len()));
        to.ok_or("loads beyond the end of a tile")?.copy_from_slice(elements);
        stage.expected = (left > 0).then_some(left);
        stage.filled += u64::from(left == 0);
        Ok(())
    }
    /// The consumers wait until the stage is full.
    pub(super) fn wait(&mut self, s: Stage) -> Result<Attempt> {
        let stage = self.stage(s)?;
        if stage.filled <= s.round {
            return Ok(Err(format!("waits until stage {} is full", s.index)));
        }
        if stage.filled > s.round + 1 || stage.expected.is_some() {
            return Err(format!(
                "waits for phase {} of stage {}, which is over: it has been acquired again",
                s.round, s.index
            )
            .into());
        }
        stage.waited = Some(s.round);
        Ok(Ok(()))
    }
    /// The consumers have read the stage.
    pub(super) fn release(&mut self, s: Stage) -> Result<()> {
        self.held(s, "releases")?;
        self.stage(s)?.released += 1;
        Ok(())
    }
    /// Checks that the consumers have waited for the stage and not released it.
    fn held(&mut self, s: Stage, what: &str) -> Result<&mut StageState> {
        let stage = self.stage(s)?;
        if stage.waited != Some(s.round) {
            return Err(format!(
                "{what} stage {} without a kiln.tile.wait until it is full",
                s.index
            )
            .into());
        }
        match stage.released > s.round {
            true => Err(format!("{what} stage {}, which has been released", s.index).into()),
            false => Ok(stage),
        }
    }
    /// The elements of a tile that the consumers hold, row by row.
    pub(super) fn read(&mut self, s: Stage, tile: usize) -> Result<Vec<f64>> {
        let form = *self.tiles.get(tile).ok_or("reads no tile")?;
        let all = self.held(s, "reads")?.tiles.get(tile).ok_or("reads no tile")?;
        let row = |r: usize| (0..form.columns).map(move |c| form.place(r, c));
        Ok((0..form.rows).flat_map(row).map(|i| all[i]).collect())
    }
    /// The consumers write zeros over the rows of a tile from one on.
    pub(super) fn zero_rows(&mut self, s: Stage, tile: usize, from: usize) -> Result<()> {
        let form = *self.tiles.get(tile).ok_or("zeroes no tile")?;
        let all = self.held(s, "writes")?.tiles.get_mut(tile).ok_or("zeroes no tile")?;
        let slices = form.columns.div_ceil(form.slice);
        for row in from.min(form.rows)..form.rows {
            for slice in 0..slices {
                let begin = form.place(row, slice * form.slice);
                all[begin..begin + form.slice].fill(0.0);
            }
        }
        Ok(())
    }
    /// A stage that is acquired, or full and not released.
    pub(super) fn left_over(&self) -> Option<usize> {
        self.stages.iter().position(|s| s.expected.is_some() || s.filled != s.released)
    }
}
