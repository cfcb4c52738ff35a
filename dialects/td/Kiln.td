// The whole dialect; the order here is the order of `OpKind::ALL` and of docs/ops.md.
include "Structure.td"
include "Elementwise.td"
include "Shape.td"
include "Reduce.td"
include "Control.td"
include "Composite.td"
