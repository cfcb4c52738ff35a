#!/usr/bin/env bash
# compute-sanitizer over the suites of tests/gpu/card, from the repository's root:
#
#     sanitize.sh TEST_BINARY [LOGS]
#
# TEST_BINARY is what `cargo test --release --no-run --test all` makes. SANITIZER is the tool if it is neither on the PATH nor in
# /usr/local/cuda/bin. RUNS are lines of TOOL SUITE ITEMS (tools are
# memcheck, racecheck, synccheck and initcheck, which does not see what the copy engine writes and reports results of products that are right): which of a suite's items, as FIRST..END or FIRST..END/STEP, those behind the last are
# left out. JOBS processes share them out, each for at most LIMIT seconds; it begins no item in the last quarter. Prints a table and the first lines of what is reported; the exit code is 0 if
# nothing is, every result is right, and every process ended by itself. LOGS keeps all that was said.
set -u
binary=$1
logs=${2:-$(mktemp -d)}
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
jobs=${JOBS:-$(nproc)}
limit=${LIMIT:-300}
runs=${RUNS:-"memcheck kernels 0..10000
racecheck kernels 0..10000
synccheck kernels 0..10000
memcheck rows 0..10000
memcheck graphs 0..200"}
mkdir -p "$logs"
"$sanitizer" --version | head -3
bad=0
one() { # tool, suite, first, step, end, number
  local log=$logs/$1.$2.$6
  # A report ends the kernel, not the process; memory has a border on each side. The driver is asked where memory lies, and says of the host's that it does not know it: no report.
  local how=(--show-backtrace device --destroy-on-device-error kernel --require-cuda-init no --report-api-errors no)
  [ "$1" = memcheck ] && how+=(--padding 64)
  [ "$1" = racecheck ] && how+=(--racecheck-num-workers 1)
  seq "$3" "$4" "$5" | KILN_CARD_SUITE=$2 KILN_CACHE_DIR=$logs/cache KILN_CARD_UNTIL=$((limit * 3 / 4)) timeout "$limit" "$sanitizer" --tool "$1" "${how[@]}" --print-limit 20 \
    --error-exitcode 99 --port $((49152 + 16 * $6)) --target-processes application-only \
    "$binary" gpu::card::worker --exact --ignored --nocapture --test-threads=1 >"$log" 2>&1
  echo "exit $?" >>"$log"
}
printf '%-10s %-8s %6s %6s %8s %6s %8s %6s %5s\n' tool suite items agree 'no form' wrong reports ended s
while read -r tool suite items; do
  [ "$tool" ] || continue
  first=${items%%..*} end=${items#*..} step=1
  case $end in */*) step=${end#*/} end=${end%/*} ;; esac
  start=$SECONDS
  rm -f "$logs/$tool.$suite."*
  for j in $(seq 0 $((jobs - 1))); do one "$tool" "$suite" $((first + j * step)) $((jobs * step)) $((end - 1)) "$j" & done
  wait
  all=("$logs/$tool.$suite."*)
  count() { cat "${all[@]}" | grep -c -e "$1"; }
  reports=$(sed -n 's/^========= .*SUMMARY: \([0-9]*\) \(error\|hazard\).*/\1/p' "${all[@]}" | awk '{n += $1} END {print n + 0}')
  done_=$(count '=card= ') agree=$(count '=card= "Agrees"') refused=$(count '=card= {"Refused"') wrong=$(count '=card= {"Wrong"')
  # Each process says that its tests are ok; one that was killed or has faulted does not.
  ended=$(grep -l 'test result: ok' "${all[@]}" | wc -l)
  printf '%-10s %-8s %6s %6s %8s %6s %8s %3s/%-2s %5s\n' "$tool" "$suite" "$done_" "$agree" "$refused" "$wrong" "$reports" "$ended" "$jobs" $((SECONDS - start))
  if [ $((reports + wrong)) != 0 ] || [ "$ended" != "$jobs" ] || [ "$agree" = 0 ]; then
    bad=1
    # What is reported stands behind the name of the item that it is of; one report a kernel and a kind.
    awk '/=item= / {item = substr($0, index($0, "=item= ") + 7)}
         /=card= {"Wrong"/ {print "  WRONG " item ": " substr($0, 1, 300)}
         /^========= (Invalid|Uninitialized|Error|Warning|Barrier|Race|Program hit|Potential|Divergent|Out-of)/ {what = substr($0, 11, 160)}
         /^=========     +(at|by|and) / && what {key = what $0; sub(/0x[0-9a-f]+.*/, "", key); if (!seen[key]++ && shown++ < 12) print "  " item ": " what; print_more = 3}
         /^=========     / && print_more-- > 0 && shown <= 12 {print "      " substr($0, 11, 160)}' "${all[@]}"
    for log in "${all[@]}"; do
      grep -q 'test result: ok' "$log" || { echo "  $(basename "$log") did not end: $(tail -1 "$log"); last: $(grep '=item= ' "$log" | tail -1)"; grep -v '=card=' "$log" | tail -4 | cut -c 1-200; }
    done
  fi
done <<<"$runs"
echo "logs in $logs"
exit $bad
