#!/bin/sh
# symbols.sh OBJECT...: each object of a target must define its table and nothing else that the linker can see. A weak
# symbol there could replace the same function of another file with instructions that the processor lacks.
status=0
for object in "$@"; do
  visible=$(nm --defined-only --extern-only -C "$object" | sed 's/^[0-9a-f]* //')
  case $visible in
    "D fovea::cpu::k"*"Kernels" | "R fovea::cpu::k"*"Kernels" | "D fovea::cpu::k"*"Probes" | "R fovea::cpu::k"*"Probes") ;;
    *) echo "$object defines:"; echo "$visible"; status=1 ;;
  esac
  [ "$(echo "$visible" | wc -l)" = 1 ] || { echo "$object: more than one symbol"; status=1; }
done
exit $status
