#!/usr/bin/env bash
# Builds and runs the consumer with the flags that pkg-config gives: pkg_config.sh CXX PREFIX SOURCE static|shared
set -euo pipefail
cxx=$1 prefix=$2 source=$3 kind=$4
export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name fovea.pc)")
program=$prefix/consumer_$kind
if [[ $kind == static ]]; then
  $cxx -std=c++20 $(pkg-config --cflags fovea) "$source" -o "$program" -static $(pkg-config --static --libs fovea)
else
  library=$(pkg-config --variable=libdir fovea)
  $cxx -std=c++20 $(pkg-config --cflags fovea) "$source" -o "$program" $(pkg-config --libs fovea) -Wl,-rpath,"$library"
  readelf -d "$program" | grep -q 'NEEDED.*libfovea\.so\.0\.[0-9]*\]' || { echo "not linked by SONAME"; exit 1; }
fi
"$program"
