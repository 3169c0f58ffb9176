#!/usr/bin/env bash
# Builds the extension and installs it into a copy of a PostgreSQL, so that the system's own stays
# as it is. Prints the directory of the copy's programs.
#
#   pg/private.sh PG_CONFIG DIRECTORY [MAKE ARGUMENT...]
#
# A PostgreSQL finds its files from where its programs are, as long as they lie the same way.
set -euo pipefail
config=$1 to=$2
shift 2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$("$config" --bindir) share=$("$config" --sharedir) lib=$("$config" --pkglibdir)
root=$bin
while [[ $share != "$root"/* || $lib != "$root"/* ]]; do root=${root%/*}; done
mkdir -p "$to$bin" "$to$share" "$to$lib" "$to/build"
cp "$bin"/* "$to$bin"
cp -rL "$share/." "$to$share"
ln -sf "$lib"/* "$to$lib"
# Shared libraries beside pkglibdir, where a PostgreSQL brings its own.
if [[ -e $lib/../libpq.so.5 ]]; then ln -sf "$lib"/../lib* "$to$lib/.."; fi
cp -r "$source"/{Makefile,sql,expected,thermocline*.sql,thermocline.c,thermocline.control} "$to/build"
make -s -C "$to/build" PG_CONFIG="$config" with_llvm=no "$@" >&2
install -m 755 "$to/build/thermocline.so" "$to$lib/"
install -m 644 "$to/build"/thermocline{.control,--1.0.sql} "$to$share/extension/"
chmod -R a+rX "$to"
echo "$to$bin"
