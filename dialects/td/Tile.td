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
  let summary = "Runs the producer in one thread of the first warpgroup, and the consumer in the `consumers` warpgroups behind it, each on its 64 rows of a tile. `registers`: those of a producer and of a consumer thread (setmaxnreg)";
  let arguments = (ins I64Attr:$consumers, OptionalAttr<DenseI64ArrayAttr>:$registers);
  let regions = (region SizedRegion<1>:$producer, SizedRegion<1>:$consumer);
  let assemblyFormat = "`consumers` $consumers (`registers` $registers^)? `producer` $producer `consumer` $consumer attr-dict";
}
def Kiln_TilePipelineOp : Kiln_Tile<"pipeline"> {
  let summary = "A ring of tiles in shared memory, (stages, rows, columns), swizzled in slices of 64 columns. Each stage has two mbarriers: `full`, which the bytes of TMA complete, and `empty`, at which each consumer warp arrives";
  let results = (outs AnyMemRef:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
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
def Kiln_TileAcquireOp : Kiln_TileStage<"acquire"> { let summary = "The producer waits until a stage is empty"; }
def Kiln_TileWaitOp : Kiln_TileStage<"wait"> { let summary = "A consumer waits until a stage is full"; }
def Kiln_TileReleaseOp : Kiln_TileStage<"release"> { let summary = "A consumer has read a stage"; }
def Kiln_TileTmaLoadOp : Kiln_Tile<"tma_load"> {
  let summary = "Starts the TMA loads of a tile into a stage, a slice at a time. Coordinates are the row's, then those of outer dimensions";
  let arguments = (ins AnyType:$map, Variadic<AnyType>:$coordinates, AnyMemRef:$pipeline, Kiln_StageType:$stage);
  let assemblyFormat = "$map `[` $coordinates `:` type($coordinates) `]` `to` $pipeline `[` $stage `]` attr-dict `:` type($map) `to` type($pipeline)";
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
  let summary = "Starts a product of tiles, whose result nothing may read before `kiln.tile.mma_wait`. The left tile is in shared memory or an operand fragment, the right one in shared memory, with `transposed` as (columns, depth). Rows of the left tile are those of the consumers";
  let formula = "r = init + lhs * rhs, or lhs * rhs without init";
  let reference = "wgmma.mma_async";
  let arguments = (ins AnyType:$lhs, AnyMemRef:$rhs, Optional<Tensor>:$init, UnitAttr:$transposed);
  let results = (outs Tensor:$result);
  let assemblyFormat = "$lhs `,` (`transposed` $transposed^)? $rhs (`init` $init^ `:` type($init))? attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)";
}
def Kiln_TileMmaWaitOp : Kiln_Tile<"mma_wait", [AttrSizedOperandSegments,
    RangedTypesMatchWith<"results are values", "values", "results", "$_self">]> {
  let summary = "Waits until at most `pending` products are under way. Results are the values after it; nothing computes them across the wait. The registers of `alive` stay as they are until then";
  let reference = "wgmma.wait_group";
  let arguments = (ins I64Attr:$pending, Variadic<Tensor>:$values, Variadic<Tensor>:$alive);
  let results = (outs Variadic<Tensor>:$results);
  let assemblyFormat = "$pending `(` $values `:` type($values) `)` (`alive` `(` $alive^ `:` type($alive) `)`)? attr-dict";
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
#endif
