// Tile programs of GPU kernels: what the warpgroups of a CTA do with tiles in shared memory and in
// registers, until `kiln-lower-tiles` writes it as the code of one thread.
#ifndef KILN_TILE_TD
#define KILN_TILE_TD
include "Reduce.td"

def Kiln_StageType : TypeDef<Kiln_Dialect, "Stage"> {
  let mnemonic = "stage";
  let summary = "A place in the rings of pipelines: the index of a stage, and the phase of its barriers";
}
def Kiln_FragmentLayout : I64EnumAttr<"FragmentLayout", "", [I64EnumAttrCase<"accumulator", 0>, I64EnumAttrCase<"operand", 1>,
    I64EnumAttrCase<"rows", 2>, I64EnumAttrCase<"partial_rows", 3>, I64EnumAttrCase<"columns", 4>]> {
  let cppNamespace = "::kiln";
}
def Kiln_FragmentAttr : Kiln_Attr<"Fragment", "fragment"> {
  let summary = "How the consumer warpgroups hold a tile in registers. accumulator: as wgmma's result; operand: as its left operand; rows: an element a row, in each lane of that row; partial_rows: the same, each lane with its part of a sum; columns: an element a column";
  let parameters = (ins EnumParameter<Kiln_FragmentLayout>:$layout);
  let assemblyFormat = "`<` $layout `>`";
}

class Kiln_Tile<string mnemonic, list<Trait> traits = []> : Kiln_Op<!strconcat("tile.", mnemonic), traits> {
  let family = "tile";
}
class Kiln_TileBody<string mnemonic, list<Trait> traits = []> : Kiln_Op<!strconcat("tile.", mnemonic),
    !listconcat([SingleBlock], traits), regionHook> {
  let family = "tile";
  let hasRegionVerifier = 1;
}
def Kiln_TileWarpSpecializeOp : Kiln_TileBody<"warp_specialize"> {
  let summary = "Runs the producer in one thread of the first warpgroup, and the consumer in the `consumers` warpgroups behind it, each on its part of a tile's rows, 64 or a multiple. `registers`: those of a producer and of a consumer thread (setmaxnreg). Tensor maps to `prefetch` are fetched first";
  let arguments = (ins I64Attr:$consumers, OptionalAttr<DenseI64ArrayAttr>:$registers, Variadic<AnyType>:$prefetch);
  let regions = (region SizedRegion<1>:$producer, SizedRegion<1>:$consumer);
  let assemblyFormat = "`consumers` $consumers (`registers` $registers^)? (`prefetch` `(` $prefetch^ `:` type($prefetch) `)`)? `producer` $producer `consumer` $consumer attr-dict";
}
def Kiln_TilePipelineOp : Kiln_Tile<"pipeline"> {
  let summary = "A ring of tiles in shared memory, (stages, rows, columns), swizzled in slices of 128 bytes a row; or of several tiles a stage, each a result, any of which stands for the ring. Each stage has two mbarriers: `full`, which the bytes of TMA complete, and `empty`, at which each consumer warp arrives, or with `warpgroups` one warp of each consumer warpgroup";
  let arguments = (ins UnitAttr:$warpgroups);
  let results = (outs Variadic<AnyMemRef>:$results);
  let assemblyFormat = "(`warpgroups` $warpgroups^)? attr-dict `:` type($results)";
}
def Kiln_TileFirstStageOp : Kiln_Tile<"first_stage"> {
  let summary = "The first stage of a ring: for the producer empty, for a consumer not yet full";
  let results = (outs Kiln_StageType:$result);
  let assemblyFormat = "attr-dict";
}
def Kiln_TileNextStageOp : Kiln_Tile<"next_stage"> {
  let summary = "The stage after another one in the ring of a pipeline";
  let arguments = (ins AnyMemRef:$pipeline, Kiln_StageType:$stage);
  let results = (outs Kiln_StageType:$result);
  let assemblyFormat = "$pipeline `[` $stage `]` attr-dict `:` type($pipeline)";
}
class Kiln_TileStage<string mnemonic> : Kiln_Tile<mnemonic> {
  let arguments = (ins AnyMemRef:$pipeline, Kiln_StageType:$stage);
  let assemblyFormat = "$pipeline `[` $stage `]` attr-dict `:` type($pipeline)";
}
def Kiln_TileAcquireOp : Kiln_TileStage<"acquire"> { let summary = "The producer waits until a stage is empty; `full` then expects the bytes of all its tiles"; }
def Kiln_TileWaitOp : Kiln_TileStage<"wait"> { let summary = "A consumer waits until a stage is full"; }
def Kiln_TileReleaseOp : Kiln_TileStage<"release"> { let summary = "A consumer has read a stage"; }
def Kiln_TileTmaLoadOp : Kiln_Tile<"tma_load", [AttrSizedOperandSegments]> {
  let summary = "Starts the TMA loads of a tile into a stage, a slice at a time, or `whole`, where the map has slices as a dimension. Coordinates are as the map has them, the contiguous one first. `part` [i, n] fills the i-th of n equal parts of the tile. With a `window` the map is in im2col mode: each pixel is read at these offsets";
  let arguments = (ins AnyType:$map, Variadic<AnyType>:$coordinates, Variadic<I32>:$window, AnyMemRef:$pipeline, Kiln_StageType:$stage,
                       UnitAttr:$whole, OptionalAttr<DenseI64ArrayAttr>:$part);
  let assemblyFormat = "(`whole` $whole^)? $map `[` $coordinates `:` type($coordinates) `]` (`window` `(` $window^ `)`)? `to` (`part` $part^ `of`)? $pipeline `[` $stage `]` attr-dict `:` type($map) `to` type($pipeline)";
}
def Kiln_TileViewOp : Kiln_Tile<"view"> {
  let summary = "The tile in a stage";
  let arguments = (ins AnyMemRef:$pipeline, Kiln_StageType:$stage);
  let results = (outs AnyMemRef:$result);
  let assemblyFormat = "$pipeline `[` $stage `]` attr-dict `:` type($pipeline) `->` type($result)";
}
def Kiln_TileZeroRowsOp : Kiln_Tile<"zero_rows"> {
  let summary = "A warpgroup writes zeros over the rows of a tile from one on";
  let arguments = (ins AnyMemRef:$tile, I32:$from);
  let assemblyFormat = "$tile `from` $from attr-dict `:` type($tile)";
}
def Kiln_TileMmaOp : Kiln_Tile<"mma"> {
  let summary = "Starts a product of tiles, whose result nothing but a further product may read before `kiln.tile.mma_wait`. The left tile is an operand fragment or in shared memory, with `transposed` as (depth, rows); the right one is in shared memory, with `transposed` as (columns, depth). Rows of the left tile are those of the consumers";
  let formula = "r = init + lhs * rhs, or lhs * rhs without init";
  let reference = "wgmma.mma_async";
  let arguments = (ins AnyType:$lhs, AnyMemRef:$rhs, Optional<Tensor>:$init, UnitAttr:$transposed_lhs, UnitAttr:$transposed);
  let results = (outs Tensor:$result);
  let assemblyFormat = "(`transposed` $transposed_lhs^)? $lhs `,` (`transposed` $transposed^)? $rhs (`init` $init^ `:` type($init))? attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)";
}
def Kiln_TileMmaWaitOp : Kiln_Tile<"mma_wait", [AttrSizedOperandSegments,
    RangedTypesMatchWith<"results are values", "values", "results", "$_self">]> {
  let summary = "Waits until at most `pending` products are under way. Results are the values after it; nothing computes them across the wait. The registers of `alive` stay as they are until then";
  let reference = "wgmma.wait_group";
  let arguments = (ins I64Attr:$pending, Variadic<Tensor>:$values, Variadic<Tensor>:$alive);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "$pending (`(` $values^ `:` type($values) `)`)? (`alive` `(` $alive^ `:` type($alive) `)`)? attr-dict";
}
def Kiln_TileIotaOp : Kiln_Tile<"iota"> {
  let summary = "Positions of rows or columns: `first` and those behind it, none beyond `last`";
  let arguments = (ins I32:$first, Optional<I32>:$last);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$first (`to` $last^)? attr-dict `:` type($result)";
}
def Kiln_TileBroadcastOp : Kiln_Tile<"broadcast", [Pure]> {
  let summary = "A tile whose columns are all the given rows";
  let formula = "r[i, j] = x[i]";
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}
def Kiln_TileMapOp : Kiln_TileBody<"map"> {
  let summary = "Computes fragments element by element, where that takes positions or memory; ops of arith and math take fragments themselves. The body takes an element of each operand: of a tile, of its row or column, or a scalar. Without a tile among the operands the results are rows. With `fast`, sums and products of floats may contract and reassociate, and divisions by constants are products";
  let formula = "r[i, j] = body(x[i, j], rows[i], columns[j], scalar)";
  let reference = "linalg.map";
  let arguments = (ins Variadic<AnyType>:$inputs, UnitAttr:$fast);
  let results = (outs Variadic<Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`fast` $fast^)? `(` ($inputs^ `:` type($inputs))? `)` `->` type($results) $body attr-dict";
}
def Kiln_TileReduceOp : Kiln_Tile<"reduce"> {
  let summary = "Reduces a tile along its rows, by sum or max, to rows or to partial rows; or partial rows to rows, which exchanges them between lanes. A max takes NaN for no number";
  let formula = "r[i] = kind over j of x[i, j]";
  let arguments = (ins Kiln_ReduceKind:$kind, Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$kind $input attr-dict `:` type($input) `->` type($result)";
}
def Kiln_TileConvertOp : Kiln_Tile<"convert"> {
  let summary = "A tile with another element type, or another layout; or rows as partial rows";
  let arguments = (ins Tensor:$input);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}
def Kiln_TileStoreOp : Kiln_TileBody<"store", [AttrSizedOperandSegments]> {
  let summary = "Stores a tile, or an element a row. The body takes positions, the row's first, and gives the element of `memory`; columns are contiguous. `vectors of` so many elements are aligned. Rows from `below` on are not stored";
  let formula = "memory[body(i, j)] = value[i, j]";
  let arguments = (ins Tensor:$value, AnyMemRef:$memory, Variadic<AnyType>:$positions, Optional<I32>:$bound,
                       I64Attr:$vector);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$value `to` $memory `(` $positions `:` type($positions) `)` `vectors` `of` $vector (`below` $bound^)? $body attr-dict `:` type($value) `to` type($memory)";
}
def Kiln_TileLocalLoadOp : Kiln_Tile<"local_load"> {
  let summary = "Reads a tile from shared memory: a warp its own rows, as wgmma's result has them, or its left operand";
  let reference = "ldmatrix";
  let arguments = (ins AnyMemRef:$tile);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($result)";
}
def Kiln_TileLoadOp : Kiln_TileBody<"load"> {
  let summary = "Reads an element a column where a map takes it, or with `prefetch` where the op is, into registers. The body takes a column's position and gives the element of `memory`; `vectors of` so many elements are contiguous and aligned";
  let formula = "r[j] = memory[body(columns[j])]";
  let arguments = (ins UnitAttr:$prefetch, AnyMemRef:$memory, Tensor:$columns, I64Attr:$vector);
  let results = (outs Tensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`prefetch` $prefetch^)? $memory `(` $columns `:` type($columns) `)` `vectors` `of` $vector $body attr-dict `:` type($memory) `->` type($result)";
}
def Kiln_TileSplitOp : Kiln_Tile<"split", [Pure]> {
  let summary = "A tile as adjacent tiles of equally many columns";
  let arguments = (ins Tensor:$input);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($results)";
}
def Kiln_TileClusterReduceOp : Kiln_TileBody<"cluster_reduce"> {
  let summary = "Sums a tile over the `ctas` CTAs of a cluster, of which this one has a `rank`. Each owns some rows, whole warps of them: the others send it their elements, over the stages of all pipelines, and its warps run the body on the sums. A program has one such op at most and runs it once";
  let reference = "cp.async.bulk.shared::cluster";
  let arguments = (ins Tensor:$value, I32:$rank, I64Attr:$ctas);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$value `rank` $rank `of` $ctas $body attr-dict `:` type($value)";
}
def Kiln_TileEpilogueOp : Kiln_TileBody<"epilogue", [AttrSizedOperandSegments]> {
  let summary = "Runs the body on the elements of tiles whose first one is at a row and a column. It takes a row, a column, and of each tile an element, or a vector of adjacent ones. Elements beyond a bound, where a tile may reach it, are not stored. With `to` the body yields elements of results, which warps stage in shared memory: TMA stores them to a tensor map, at the column, the row and the `outer` coordinates; lanes store them to a memref, at the element where `lines` says that a row begins. Without, the body stores. What the body accesses is `aligned` from each column on that is a multiple of so many, and so many elements are contiguous if two are";
  let formula = "to[row + i, column + j] = body(row + i, column + j, values[i, j])";
  let reference = "cp.async.bulk.tensor, stmatrix";
  let arguments = (ins Variadic<Tensor>:$values, I32:$row, I32:$column, Optional<Index>:$rows, Optional<Index>:$columns,
                       Variadic<AnyType>:$destinations, Variadic<I32>:$outer, I64Attr:$vector,
                       OptionalAttr<I64Attr>:$aligned);
  let regions = (region SizedRegion<1>:$body, VariadicRegion<SizedRegion<1>>:$lines);
  let assemblyFormat = "`(` $values `:` type($values) `)` `at` `(` $row `,` $column `)` (`rows` `below` $rows^)? (`columns` `below` $columns^)? `vectors` `of` $vector (`aligned` `to` $aligned^)? (`to` `(` $destinations^ `:` type($destinations) `)`)? (`outer` `(` $outer^ `)`)? $body (`lines` $lines^)? attr-dict";
}
#endif
