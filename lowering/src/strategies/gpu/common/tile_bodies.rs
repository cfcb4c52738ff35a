//! Builds the ops of tile programs that have a body: maps, loads and stores by address, sums over a
//! cluster, epilogues.
use crate::{emit::code::Code, strategies::gpu::common::tile::Tile};
use kiln_dialects::{
    ir::*,
    ops::{TileClusterReduce, TileEpilogue, TileLoad, TileMap, TileStore},
};

/// The body of a map: from elements of its operands to those of its results.
pub type MapBody<'a> = dyn FnMut(Code, &[Value]) -> Result<Vec<Value>> + 'a;

impl Tile {
    /// Computes fragments element by element.
    pub fn map(
        self,
        inputs: &[Value],
        results: &[Type],
        body: &mut MapBody<'_>,
    ) -> Result<Vec<Value>> {
        self.map_as(inputs, results, false, body)
    }
    /// As [`Tile::map`], `fast`: where sums and products of floats may contract and reassociate.
    pub fn map_as(
        self,
        inputs: &[Value],
        results: &[Type],
        fast: bool,
        body: &mut MapBody<'_>,
    ) -> Result<Vec<Value>> {
        let types: Vec<Type> = inputs.iter().map(element).collect();
        let mut fill = |b: Builder, args: Vec<Value>| {
            let made = body(Code(b), &args)?;
            Tile(Code(b)).end(&made)
        };
        let node = TileMap { inputs: inputs.to_vec(), fast };
        Ok(self.0.0.create_with(&node, results, &mut [(&types, &mut fill)])?.results())
    }
    /// As [`Tile::map`] with one result.
    pub fn map_one(
        self,
        inputs: &[Value],
        result: Type,
        body: &mut dyn FnMut(Code, &[Value]) -> Result<Value>,
    ) -> Result<Value> {
        let all = self.map(inputs, &[result], &mut |c, x| Ok(vec![body(c, x)?]))?;
        all.first().copied().ok_or_else(|| "has no result".into())
    }
    /// Reads an element a column where the body says, as vectors of so many; `prefetch`: before a map
    /// takes it.
    pub fn load(
        self,
        memory: Value,
        columns: Value,
        (vector, prefetch): (usize, bool),
        address: &mut dyn FnMut(Code, Value) -> Result<Value>,
        ty: Type,
    ) -> Result<Value> {
        let mut fill = |b: Builder, args: Vec<Value>| {
            let at = address(Code(b), args[0])?;
            Tile(Code(b)).end(&[at])
        };
        let node = TileLoad { prefetch, memory, columns, vector: vector as i64 };
        let body: RegionBody<'_> = (&[element(&columns)], &mut fill);
        Ok(self.0.0.create_with(&node, &[ty], &mut [body])?.result(0))
    }
    /// Stores a tile, or an element a row, where the body says, as aligned vectors of so many
    /// elements. Rows from `bound` on are not stored.
    pub fn store(
        self,
        value: Value,
        memory: Value,
        positions: &[Value],
        (vector, bound): (usize, Option<Value>),
        address: &mut dyn FnMut(Code, &[Value]) -> Result<Value>,
    ) -> Result<()> {
        let types: Vec<Type> = positions.iter().map(element).collect();
        let mut fill = |b: Builder, args: Vec<Value>| {
            let at = address(Code(b), &args)?;
            Tile(Code(b)).end(&[at])
        };
        let node = TileStore {
            value,
            memory,
            positions: positions.to_vec(),
            bound,
            vector: vector as i64,
        };
        self.0.0.create_with(&node, &[], &mut [(&types, &mut fill)]).map(drop)
    }
    /// Sums a tile over the CTAs of a cluster; the owners of its rows run the body.
    pub fn cluster_reduce(
        self,
        value: Value,
        rank: Value,
        ctas: usize,
        body: &mut dyn FnMut(Code, Value) -> Result<()>,
    ) -> Result<()> {
        let mut fill = |b: Builder, args: Vec<Value>| {
            body(Code(b), args[0])?;
            Tile(Code(b)).end(&[])
        };
        let node = TileClusterReduce { value, rank, ctas: ctas as i64 };
        self.0.0.create_with(&node, &[], &mut [(&[value.ty()], &mut fill)]).map(drop)
    }
    /// Runs a body on the elements of tiles: from row, column and elements to those of results.
    /// `lines`: from row and column to where a row of each memref begins.
    pub fn epilogue(
        self,
        node: TileEpilogue,
        body: &mut MapBody<'_>,
        lines: Option<&mut MapBody<'_>>,
    ) -> Result<()> {
        let index = Type::index(self.0.ctx());
        let some =
            |t: Type| if node.vector > 1 { Type::vector(t, node.vector as usize) } else { t };
        let elements = node.values.iter().map(|v| some(element(v)));
        let types: Vec<Type> = [index; 2].into_iter().chain(elements).collect();
        let region = |body: &mut MapBody<'_>, b: Builder, args: &[Value]| {
            let all = body(Code(b), args)?;
            Tile(Code(b)).end(&all)
        };
        let mut fill = |b: Builder, args: Vec<Value>| region(body, b, &args);
        let first: RegionBody<'_> = (&types, &mut fill);
        let Some(lines) = lines else {
            return self.0.0.create_with(&node, &[], &mut [first]).map(drop);
        };
        let mut lines = |b: Builder, args: Vec<Value>| region(lines, b, &args);
        self.0.0.create_with(&node, &[], &mut [first, (&[index; 2], &mut lines)]).map(drop)
    }
}

/// The type of an element of a fragment, or of a scalar.
fn element(v: &Value) -> Type {
    v.ty().element().unwrap_or(v.ty())
}
