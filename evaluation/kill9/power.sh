#!/usr/bin/env bash
# kill -9 and power failures, again and again, under PostgreSQL or MariaDB that change rows and
# tables on a write-back mount; a ledger outside of it has everything that was acknowledged.
#
#   evaluation/kill9/power.sh --database postgres|mariadb --rounds N --seed S
#       [--binary THERMOCLINE] [--work DIR] [--keep DIR] [--minutes M] [--size SIZE]
#       [--volatile] [--plain] [--only kill|base|flash|both] [--errors] [--lazy]
#
# Prints a table, and ends with 1 if anything was lost, any file damaged or any mount refused. What
# a failed round's restart began with is kept (images of base and cache, logs, ledger). --volatile
# gives both devices caches of their own, which lose what was not flushed; --plain is the control,
# without a mount; --minutes begins no round after so many. --work on tmpfs is faster, and takes
# 3 GiB. What a round does: ../results/power.md. The work is power.py's.
#
# Needs root, FUSE, loop devices, python3, the database, and for MariaDB go-tpc (built with
# `go install` unless GO_TPC names a program).
set -euo pipefail

: "${GO_TPC_VERSION:=682637f4f995}"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ " $* " == *mariadb* && -z ${GO_TPC:-} ]]; then
    GO_TPC=$(mktemp -d "${TMPDIR:-/tmp}/go-tpc-XXXXXX")/go-tpc
    GOBIN=$(dirname "$GO_TPC") go install "github.com/pingcap/go-tpc/cmd/go-tpc@$GO_TPC_VERSION"
fi
export GO_TPC=${GO_TPC:-}
exec python3 "$here/power.py" --thermocline "$here/../../target/release/thermocline" "$@"
