#!/usr/bin/env bash
# The examples of one's own kernel, timed beside the library's best: run_my_kernel.sh FOVEA KERNEL [PYTHON]
# Leaves with 77 (skipped) where the Python is missing or has no NumPy.
set -euo pipefail
fovea=$1 kernel=$2 python=${3-}
arguments=()
if [[ -n $python ]]; then
  "$python" -c "import numpy" 2>/dev/null || { echo "no NumPy in $python"; exit 77; }
  arguments=(--python "$python")
fi
"$fovea" bench --impl "$kernel,flash" --problem "hq=2 lq=64 d=16 mask=causal" --repeat-for 0.05 "${arguments[@]}" --json
