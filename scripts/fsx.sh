#!/usr/bin/env bash
# Prints the path of the `fsx` program (File System eXerciser), installing it on first use.
# It is a development tool: it goes to target/fsx, not into the workspace's dependencies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.3.2
root="${CARGO_TARGET_DIR:-$PWD/target}/fsx"
if [[ ! -x "$root/bin/fsx" ]] || [[ "$("$root/bin/fsx" --version)" != "fsx $version" ]]; then
    # From outside the workspace: its toolchain file and profiles do not apply to the tool.
    (cd / && cargo install --quiet --locked --root "$root" "fsx@$version") >&2
fi
echo "$root/bin/fsx"
