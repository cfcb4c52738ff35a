#!/usr/bin/env bash
# Runs models and small kernels on a GPU and compares their results:
#
#     check.sh KILN FOLDER…
#
# A folder holds MODEL.pt2 with MODEL.safetensors (PyTorch's results), or cases of cases.py. Goes on after failures and prints a table; the exit code
# is 0 if all agree. LIMIT is the seconds that one run may take, MODE how kernels are launched (default or reduce-overhead).
set -u
kiln=$1
shift
log=$(mktemp -d)
agree=0 differ=0 fail=0 refused=0
run() { # what, file, inputs
  timeout "${LIMIT:-120}" "$kiln" run "$2" --device cuda --mode "${MODE:-default}" --inputs "$3" --expect "$3" --repeat "${REPEAT:-3}" >"$log/out" 2>&1
  local code=$?
  local median
  median=$(sed -n 's/^median of [0-9]* calls \([0-9.]* ms\).*/\1/p' "$log/out")
  case $code in
    0) agree=$((agree + 1)); [ "${QUIET:-}" ] || printf '%-44s agrees   %s\n' "$1" "$median" ;;
    1) differ=$((differ + 1)); printf '%-44s DIFFERS  %s\n' "$1" "$(grep -m 3 MISMATCH "$log/out" | tr '\n' ' ' | cut -c 1-220)$(grep -m 2 -E 'output_.*(rel|off|max)' "$log/out" | tr '\n' ' ' | cut -c 1-200)" ;;
    3) refused=$((refused + 1)); printf '%-44s refused  %s\n' "$1" "$(grep -m 2 -o "'[a-z_ .]*' .*has no compiled form.*" "$log/out" | tr '\n' ' ' | cut -c 1-160)" ;;
    *) fail=$((fail + 1)); printf '%-44s FAILS %s %s\n' "$1" "$code" "$(head -c 500 "$log/out" | tr '\n' ' ')" ;;
  esac
}
"$kiln" doctor
for folder in "$@"; do
  for model in "$folder"/*.pt2; do
    [ -e "$model" ] || continue
    name=$(basename "$model" .pt2)
    data="$folder/$name.safetensors"
    [ -e "$data" ] || data="$folder/${name%.core}.safetensors"
    for data in "$data" "$folder/$name.other.safetensors"; do
      [ -e "$data" ] && run "$name, $(basename "$data")" "$model" "$data"
    done
  done
  for source in "$folder"/*.mlir; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .mlir)
    case $name in
      *.open) for data in "$folder/${name%.open}".*.safetensors; do run "$name, $(basename "$data")" "$source" "$data"; done ;;
      *) run "$name" "$source" "$folder/$name.safetensors" ;;
    esac
  done
done
rm -r "$log"
echo "$agree agree, $differ differ, $fail fail, $refused refused"
[ $((differ + fail)) = 0 ]
