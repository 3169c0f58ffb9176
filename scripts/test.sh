#!/usr/bin/env bash
# The test command: installs what the tests need, then checks format, lints and tests.
#
#   scripts/test.sh               everything; nothing is skipped
#   scripts/test.sh --no-install  the same, but a missing package is an error
#
# Needs Rust (rust-toolchain.toml says which) and a C compiler. The last step is PostgreSQL's own
# regression suite, from Debian's source package (scripts/suite-postgres.sh). The tests run PostgreSQL,
# MariaDB and SQLite on mounts of their own, on directories of their own; they touch no database
# of yours. As root they run the servers as the users postgres and mysql, because the servers
# refuse to run as root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

install=yes
case "${1-}" in
    "") ;;
    --no-install) install=no ;;
    *) echo "usage: scripts/test.sh [--no-install]" >&2; exit 2 ;;
esac

# Debian package for each program the tests start; Debian 12 brings PostgreSQL 15 and
# MariaDB 10.11. The servers' directories are not on everyone's PATH.
export PATH="$PATH:/usr/sbin:/sbin"
postgres_programs() { compgen -G "/usr/lib/postgresql/*/bin/$1" > /dev/null || type -P "$1" > /dev/null; }
missing=()
type -P cc > /dev/null || missing+=(build-essential)
type -P git > /dev/null || missing+=(git)
type -P python3 > /dev/null || missing+=(python3)
type -P dpkg-source > /dev/null || missing+=(dpkg-dev)
type -P fusermount3 > /dev/null || missing+=(fuse3)
type -P bindfs > /dev/null || missing+=(bindfs)
type -P sqlite3 > /dev/null || missing+=(sqlite3)
type -P mariadbd > /dev/null || missing+=(mariadb-server)
for program in initdb pgbench pg_amcheck; do
    if ! postgres_programs "$program"; then
        missing+=(postgresql postgresql-contrib)
        break
    fi
done

compgen -G "/usr/include/postgresql/*/server/postgres.h" > /dev/null || missing+=(postgresql-server-dev-15)

if ((${#missing[@]})); then
    if [[ $install == no ]] || ! type -P apt-get > /dev/null; then
        echo "missing; Debian packages: ${missing[*]}" >&2
        exit 1
    fi
    as_root=()
    if ((EUID != 0)); then as_root=(sudo); fi
    echo "== installing ${missing[*]}"
    # An archive that is being brought up to date, or a busy network, fails for a minute.
    for pause in 5 20 60 0; do
        if "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "${missing[@]}"; then
            break
        fi
        if ((pause == 0)); then
            echo "cannot install ${missing[*]}" >&2
            exit 1
        fi
        sleep "$pause"
    done
fi
if ! type -P cargo > /dev/null; then
    echo "missing: cargo (see https://rustup.rs)" >&2
    exit 1
fi

step() {
    local start=$SECONDS
    echo "== $*"
    "$@"
    echo "== done in $((SECONDS - start)) s"
}

# Tests that need FUSE or a database fail instead of being skipped.
export THERMOCLINE_REQUIRE_ALL=1
step cargo fmt --all --check
step cargo clippy --locked --workspace --all-targets -- -D warnings
# Always the whole workspace: of one package alone, dependencies have other features, and all is
# built once more.
step cargo test --locked --workspace
# The mount's tests again, with the other transport.
mount=()
for test in crates/mount/tests/*.rs; do mount+=(--test "$(basename "$test" .rs)"); done
step scripts/with-ring.sh cargo test --locked --workspace "${mount[@]}"
# The engine's threads in orders that a scheduler chooses.
step cargo test --locked --workspace --features thermocline/shuttle --test shuttle
step pg/test.sh
step scripts/suite-postgres.sh "${CARGO_TARGET_DIR:-target}/debug/thermocline"
