//! Epilogues: a body on the elements of tiles, whose results are stored by tensor maps or by lines.
use super::{
    elements::Elements,
    maps::Positions,
    state::{Unit, Val, block},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Value},
    ops::TileEpilogue,
};

/// Bytes of a row of what warps stage at once.
const ROW: usize = 128;

/// The vectors that the body runs on.
struct Vectors {
    /// Row and column in the tile of the first element of each.
    at: Vec<[usize; 2]>,
    /// Elements of each.
    width: usize,
    /// The position of the tile.
    row: i64,
    column: i64,
    /// The bound of columns.
    columns: i64,
    /// Row and column of the elements that are beyond a bound.
    beyond: Vec<[i64; 2]>,
}

impl Vectors {
    fn rows(&self) -> Elements {
        Elements::indices(self.at.iter().map(|[r, _]| self.row + *r as i64).collect())
    }
    /// The column of each, or of the first that lies in as many columns.
    fn columns(&self, each: usize) -> Elements {
        let first = |[_, c]: &[usize; 2]| self.column + (*c / each * each) as i64;
        Elements::indices(self.at.iter().map(first).collect())
    }
    /// Row and column of each element that is within the bounds, with its number.
    fn elements(&self) -> impl Iterator<Item = (usize, i64, i64)> + '_ {
        let one = move |(i, [r, c]): (usize, &[usize; 2])| {
            let (row, first) = (self.row + *r as i64, self.column + *c as i64);
            (0..self.width).map(move |e| (i * self.width + e, row, first + e as i64))
        };
        self.at.iter().enumerate().flat_map(one).filter(|(_, _, c)| *c < self.columns)
    }
}

impl Unit<'_> {
    pub(super) fn epilogue(&mut self, op: Op) -> Result<()> {
        let o = TileEpilogue::of(op).ok_or_malformed(op)?;
        let at = Positions::of(*o.values.first().ok_or_malformed(op)?)?;
        let width = o.vector.max(1) as usize;
        let bound = |v: Option<Value>| v.map_or(Ok(i64::MAX), |v| self.number(v));
        let (rows, columns) = (bound(o.rows)?, bound(o.columns)?);
        let (row, column) = (self.number(o.row)?, self.number(o.column)?);
        let owned = self.role.owned.clone().unwrap_or(0..at.rows);
        let place = |[r, c]: [usize; 2]| [row + r as i64, column + c as i64];
        let all: Vec<[usize; 2]> =
            owned.flat_map(|r| (0..at.columns).map(move |c| [r, c])).collect();
        let inside = |at: &[usize; 2]| {
            let [r, c] = place(*at);
            r < rows && c < columns
        };
        let begins = |at: &&[usize; 2]| at[1].is_multiple_of(width) && inside(at);
        let vectors = Vectors {
            at: all.iter().filter(begins).copied().collect(),
            width,
            row,
            column,
            columns,
            beyond: all.iter().filter(|at| !inside(at)).map(|at| place(*at)).collect(),
        };
        if vectors.at.is_empty() {
            return Ok(());
        }
        let mut args = vec![vectors.rows(), vectors.columns(1)];
        for v in &o.values {
            let x = self.elements(*v)?.spread(at.count());
            let of = |i: usize| {
                let [r, c] = vectors.at[i / width];
                r * at.columns + c + i % width
            };
            args.push(x.picked(vectors.at.len() * width, &of).like(x.dtype, width));
        }
        let made = self.body(block(op, 0)?, args)?;
        let outer = self.numbers(&o.outer)?;
        let mut line = 0;
        for (to, values) in o.destinations.iter().zip(&made) {
            let values = values.spread(vectors.at.len() * width);
            match self.get(*to)? {
                Val::Map(map) => self.store_by_map(map, &vectors, &outer, &values)?,
                _ => {
                    self.store_lines(op, (*to, line), &vectors, &values)?;
                    line += 1;
                }
            }
        }
        Ok(())
    }

    /// TMA stores what lies in the map, whose sizes are the bounds.
    fn store_by_map(
        &mut self,
        map: usize,
        vectors: &Vectors,
        outer: &[i64],
        values: &Elements,
    ) -> Result<()> {
        let map = self.global.maps.get(map).ok_or("takes what is no map")?;
        // TMA stores whole boxes.
        for [row, column] in &vectors.beyond {
            if map.place(&[&[*column, *row], outer].concat()).is_some() {
                return Err(format!(
                    "stores the element at ({row}, {column}), which is beyond its bounds, but in \
                     the tensor map"
                )
                .into());
            }
        }
        let mut places = vec![None; values.len()];
        for (i, row, column) in vectors.elements() {
            let at = [&[column, row], outer].concat();
            map.check(&at)?;
            places[i] = map.place(&at);
        }
        self.global.memory.write(&map.view, &places, values.data())
    }

    /// Lanes store the elements of a row behind the one at which its line begins.
    fn store_lines(
        &mut self,
        op: Op,
        (to, line): (Value, usize),
        vectors: &Vectors,
        values: &Elements,
    ) -> Result<()> {
        let view = self.memory(to)?;
        // A line begins anew at each row that a warp stages.
        let each = ROW / view.dtype.byte_size();
        let args = vec![vectors.rows(), vectors.columns(each)];
        let begin = self.body(block(op, 1)?, args)?;
        let begin = begin.get(line).ok_or("has no such line")?.spread(vectors.at.len());
        let begin = begin.ints()?;
        let (mut at, mut kept) = (vec![0; values.len()], vec![false; values.len()]);
        for (i, _, column) in vectors.elements() {
            let inside = (column - vectors.column) % each as i64;
            (at[i], kept[i]) = (begin[i / vectors.width] + inside, true);
        }
        self.scatter(&view, &at, values, &|i| kept[i])
    }
}
