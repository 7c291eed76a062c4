#!/usr/bin/env bash
# The shared library exports the public names and no others: exports.sh LIBRARY
set -euo pipefail
names=$(nm -DC --defined-only "$1" | cut -d' ' -f3-)
grep -q '^fovea::attention_forward(' <<<"$names" || { echo "attention_forward is not exported"; exit 1; }
foreign=$(grep -vE '^(fovea::|fovea_|typeinfo (name )?for fovea::|vtable for fovea::)' <<<"$names" || true)
inner=$(grep -E '^fovea::(core|cpu|cuda|reference)::' <<<"$names" || true)
[[ -z $foreign$inner ]] || { printf 'exported, but not public:\n%s\n' "$foreign$inner"; exit 1; }
