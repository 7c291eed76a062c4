#!/usr/bin/env bash
# No object of the library has a destructor that runs at exit, where callers' destructors may still call it:
# destructors.sh STATIC_LIBRARY
set -euo pipefail
registered=$(nm --print-file-name --undefined-only "$1" | grep -E ' (__cxa_atexit|atexit)$' | grep -vE '\.cu\.o:' || true)
[[ -z $registered ]] || { printf 'destroyed at exit:\n%s\n' "$registered"; exit 1; }
