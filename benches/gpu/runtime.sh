#!/usr/bin/env bash
# What calls cost on a GPU, and whether they stay right when there are many:
#
#     runtime.sh KILN STRESS [FOLDER]
#
# KILN is the binary, STRESS runtime/examples/stress/ as a binary (`cargo build --release -p kiln-runtime --example stress`); packages are made in FOLDER,
# by default a temporary one. Goes on after failures; the exit code is 0 if nothing is wrong.
set -u
kiln=$1 stress=$2
here=$(cd "$(dirname "$0")" && pwd)/runtime
folder=${3:-$(mktemp -d)}
limit=${LIMIT:-60}
wrong=0
try() { # exit code that is right, command
  local want=$1 code
  shift
  timeout "$limit" "$@"
  code=$?
  [ $code = "$want" ] || { echo "WRONG: exit code $code instead of $want: $*"; wrong=$((wrong + 1)); }
}
"$kiln" doctor
for source in "$here"/*.mlir; do
  try 0 "$kiln" compile "$source" --target "${TARGET:-cuda:sm_90a}" -o "$folder/$(basename "$source" .mlir).kpkg"
done
echo "== what a call costs: a kernel over 65,536 elements, ten layers of 32x64, small_chain_32x64"
try 0 "$stress" times "$folder/pointwise.kpkg" 65536
try 0 "$stress" times "$folder/layers.kpkg"
try 0 "$stress" times "$folder/small_chain.kpkg"
echo "== rates of copies"
try 0 "$stress" copies "$folder/pointwise.kpkg"
echo "== many calls"
try 0 "$stress" many "$folder/layers.kpkg" 10000
echo "== several threads"
try 0 "$stress" threads "$folder/layers.kpkg"
echo "== what is refused"
try 0 "$stress" wrong "$folder/pointwise.kpkg"
echo "== more memory than there is, by the library and by the command"
try 0 "$stress" memory "$folder/scores.kpkg"
sed 's/tensor<?x8xf32>/tensor<300000x8xf32>/g; s/tensor<8x?xf32>/tensor<8x300000xf32>/g; s/tensor<?x?xf32>/tensor<300000x300000xf32>/g; /kiln.sym/d; /bind_shape/d' \
  "$here/scores.mlir" >"$folder/scores_static.mlir"
try 5 "$kiln" run "$folder/scores_static.mlir" --device cuda --repeat 1
echo "== a fault, found later and found at once"
try 0 "$stress" fault "$folder/pointwise.kpkg"
try 0 "$stress" fault "$folder/pointwise.kpkg" 1
echo "== a trace of a call"
try 0 "$kiln" run "$here/layers.mlir" --device cuda --mode reduce-overhead --profile "$folder/trace.json"
grep -o '"name":"[^"]*"' "$folder/trace.json" | sort | uniq -c | head -20
echo "$wrong wrong"
[ $wrong = 0 ]
