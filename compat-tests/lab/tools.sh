#!/usr/bin/env bash
# tools.sh: what a build of the server needs beside git, make and a Rust toolchain: a C and C++ compiler,
# clang's library (RocksDB's bindings) and zlib's headers (librdkafka, for the tests). Installs them where
# it may (root on Debian or Ubuntu), else says exactly what to install.
set -eu
packages=()
command -v cargo > /dev/null || { echo "tools: Rust is missing: install it from https://rustup.rs (the version is in rust-toolchain.toml)" >&2; exit 1; }
command -v c++ > /dev/null || packages+=(g++)
command -v make > /dev/null || packages+=(make)
command -v clang > /dev/null || packages+=(clang)
ls /usr/lib/llvm*/lib/libclang.so* /usr/lib/*/libclang*.so* /usr/lib64/libclang.so* /opt/homebrew/opt/llvm/lib/libclang.dylib 2> /dev/null \
  | grep -q . || packages+=(libclang-dev)
[ -e /usr/include/zlib.h ] || packages+=(zlib1g-dev)
[ ${#packages[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  echo "tools: installing ${packages[*]}" >&2
  apt-get update -q > /dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q "${packages[@]}" > /dev/null
else
  echo "tools: missing: ${packages[*]} (Debian and Ubuntu: sudo apt-get install -y ${packages[*]})" >&2
  exit 1
fi
