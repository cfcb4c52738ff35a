// The whole dialect, in the order of `OpKind::ALL` and docs/ops.md.
include "Structure.td"
include "Elementwise.td"
include "Shape.td"
include "Reduce.td"
include "Control.td"
include "Composite.td"
include "Structured.td"
include "Tile.td"
