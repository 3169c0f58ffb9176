#!/usr/bin/env bash
# kill -9 and power failures, again and again, under PostgreSQL or MariaDB that change rows and
# tables on a write-back mount; a ledger outside of it has everything that was acknowledged.
#
#   evaluation/kill9/power.sh --database postgres|mariadb --rounds N --seed S
#       [--binary THERMOCLINE] [--work DIR] [--keep DIR] [--minutes M] [--plain]
#
# Prints a table, and ends with 1 if anything was lost, any file damaged or any mount refused. What
# a failed round began with is kept (images of base and cache, logs, ledger). The work is power.py's.
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
