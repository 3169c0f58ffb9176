#!/usr/bin/env bash
# Runs a command while the kernel offers FUSE over io_uring (fuse.enable_uring, Linux 6.14 and later),
# and puts the setting back. Needs root. Where the kernel has no such setting it says so and does
# nothing.
#
#   scripts/with-ring.sh COMMAND [ARGUMENT...]
set -euo pipefail
setting=/sys/module/fuse/parameters/enable_uring
if (($# == 0)); then
    echo "usage: scripts/with-ring.sh COMMAND [ARGUMENT...]" >&2
    exit 2
fi
if [[ ! -w $setting ]]; then
    echo "no FUSE over io_uring here ($setting is not there, or not writable): not run: $*" >&2
    exit 0
fi
before=$(cat "$setting")
trap 'echo "$before" > "$setting"' EXIT
echo 1 > "$setting"
"$@"
