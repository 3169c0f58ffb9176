# What the suites share: options, packages, mounting and unmounting, records. Sourced, not run.
#
# A suite sets `suite` and `page`, sources this file, calls `options "$@"`, installs what it needs
# with `need`, and calls `each_mode FUNCTION`. The function finds the directory under test in $root
# and a directory for what it prints in $out, and records each test with `record`. The results are
# $work/results/SUITE.MODE.tsv; results.py compares the modes and makes the table.
#
# Options of every suite:
#   --modes plain,through,back  a plain directory, a mount in write-through, one in write-back
#   --binary PATH               the program; default: target/release/thermocline
#   --work DIR                  scratch; base, cache and results are there. Kept, for a look later
#   --base DIR                  base and the plain directory are under DIR instead, for example on
#                               another file system
#   --label NAME                added to the suite's name in the results
#   --policy NAME, --size SIZE, --pool SIZE  of the mount

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modes=plain,through,back
binary=$here/../../target/release/thermocline
work= base_on= label= size=64MiB pool=16MiB
: "${page:=8KiB}"
: "${policy:=}"       # as configured by default
: "${everything:=no}" # yes: no file passes by the tier, whatever its name
server= serving= attended= mode= root= out= result=

die() { echo "$suite: $*" >&2; exit 2; }

# Options that are not of every suite go to the suite's own `option NAME VALUE`.
options() {
    while (($#)); do
        (($# >= 2)) || die "$1 needs a value"
        case $1 in
            --modes) modes=$2 ;;
            --binary) binary=$2 ;;
            --work) work=$2 ;;
            --base) base_on=$2 ;;
            --label) label=$2 ;;
            --policy) policy=$2 ;;
            --size) size=$2 ;;
            --pool) pool=$2 ;;
            *) option "$1" "$2" || die "no such option: $1" ;;
        esac
        shift 2
    done
    [[ $modes =~ ^((plain|through|back)(,|$))+$ ]] || die "--modes $modes: plain, through, back"
    [[ $modes == plain || -x $binary ]] || die "no program at $binary: build it, or say --binary"
    binary=$(realpath "$binary")
    [[ -n $work ]] || work=$(mktemp -d "${TMPDIR:-/tmp}/thermocline-suites-XXXXXX")
    mkdir -p "$work/results"
    work=$(realpath "$work")
    base_on=$(realpath "${base_on:-$work}")
    # Servers run as other users.
    [[ $EUID != 0 ]] || chmod a+rx "$work"
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap clean_up EXIT
}

# need PROGRAM PACKAGE...: installs the packages if the program (a name or a path) is missing.
need() {
    local program=$1
    shift
    PATH=$PATH:/usr/sbin:/sbin
    if type -P "$program" > /dev/null || [[ -e $program ]]; then return; fi
    install_packages "$@"
    type -P "$program" > /dev/null || [[ -e $program ]] || die "$* did not bring $program"
}

install_packages() {
    [[ $EUID == 0 ]] && type -P apt-get > /dev/null || die "missing; Debian packages: $*"
    echo "== installing $*"
    again install_now "$@" || die "cannot install $*"
}

install_now() {
    apt-get update -q > /dev/null \
        && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" > /dev/null
}

# need_crate NAME VERSION: sets $crate to the program, installed into the scratch or found on PATH.
need_crate() {
    crate=$(type -P "$1" || true)
    if [[ -n $crate ]]; then return; fi
    local tools=${SUITES_TOOLS:-$work/tools}
    crate=$tools/bin/$1
    if [[ -x $crate ]]; then return; fi
    # From outside of the workspace: its toolchain file and profiles do not apply.
    (cd / && nice -n 10 cargo install --quiet --locked --root "$tools" "$1@$2") \
        || die "cannot install the crate $1"
}

# again COMMAND...: until it succeeds, five times at most, with longer and longer pauses. An archive
# that is being brought up to date, or a network that is busy, fails for a minute and then serves.
again() {
    local pause
    for pause in 2 10 30 60; do
        if "$@"; then return; fi
        sleep "$pause"
    done
    "$@"
}

# Ends the suite and shows what apt said.
die_of_apt() {
    echo "$suite: $1; the end of $work/apt/log:" >&2
    tail -n 15 "$work/apt/log" >&2 || true
    exit 2
}

# ours apt-get|apt-cache ARGUMENTS...: with lists of our own, sources among them; the machine's are
# not touched.
ours() {
    local apt=$work/apt program=$1
    shift
    # An update that could not fetch a list says it went well unless it is told not to.
    "$program" -q -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$apt/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root -o Acquire::Retries=3 -o APT::Update::Error-Mode=any \
        "$@" 2>> "$apt/log"
}

# Where this machine's packages of Debian come from, each as one line with sources and one without.
archives() {
    local format='$(CREATED_BY) $(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)'
    apt-get indextargets --format "$format" \
        | awk -v key=/usr/share/keyrings/debian-archive-keyring.gpg \
            '$1 == "Packages" && $2 ~ /^Debian/ {
                print "deb [signed-by=" key "]", $3, $4, $5
                print "deb-src [signed-by=" key "]", $3, $4, $5
            }' | sort -u
}

our_lists() {
    mkdir -p "$work/apt/lists/partial"
    archives > "$work/apt/sources.list"
    if [[ ! -s $work/apt/sources.list ]]; then
        # Nothing is said of an archive whose lists this machine never fetched.
        apt-get update -q >> "$work/apt/log" 2>&1
        archives > "$work/apt/sources.list"
    fi
    ours apt-get update >> "$work/apt/log"
}

# The versions of a package that the lists name, newest first. An archive may name sources that it
# does not have (yet): whoever fetches tries one after the other.
versions() { # source|download, package
    local kind=Packages
    if [[ $1 == source ]]; then kind=Sources; fi
    ours apt-cache madison "$2" | awk -F'|' -v kind="$kind" '$3 ~ kind {print $2}' \
        | tr -d ' ' | sort -ruV
}

# fetch_into DIRECTORY source|download PACKAGE VERSION: of this version while the archive has it,
# else of the newest that it has, with today's lists.
fetch_into() {
    rm -rf "$1"
    mkdir -p "$1"
    our_lists || return
    local version
    for version in "$4" $(versions "$2" "$3"); do
        if (cd "$1" && ours apt-get "$2" --only-source "$3=$version" >> "$work/apt/log"); then
            return
        fi
    done
    return 1
}

# Sources of a Debian package below $work/source, of the version that is installed if they can be had.
# Sets $sources.
debian_source() { # package
    local version new=$work/source/new
    version=$(dpkg-query -W -f '${Version}' "$1")
    sources=$work/source/$1-$version
    if [[ -e $sources ]]; then return; fi
    need dpkg-source dpkg-dev
    again fetch_into "$new" source "$1" "$version" || die_of_apt "no source of $1"
    mv "$new"/*/ "$sources"
    rm -rf "$new"
}

# Unpacks a Debian package below $work/source; does not install it. Sets $unpacked.
debian_unpack() { # package, version
    local new=$work/source/new
    unpacked=$work/source/$1-$2
    if [[ -e $unpacked ]]; then return; fi
    again fetch_into "$new" download "$1" "$2" || die_of_apt "no package $1"
    dpkg -x "$new"/*.deb "$new/unpacked"
    mv "$new/unpacked" "$unpacked"
    rm -rf "$new"
}

# Sources of PostgreSQL, and a server and headers of their version: the installed ones, or where the
# archive has other sources those that belong to them, unpacked. A server of another version fails
# tests whose output changed. Sets $sources, $version, $server_home and $headers.
debian_postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' > /dev/null || install_packages postgresql
    local home major
    home=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -1)
    server_home=${home%/bin/initdb}
    major=${server_home##*/}
    debian_source "postgresql-$major"
    version=$(dpkg-parsechangelog -l "$sources/debian/changelog" -S Version)
    if [[ $version != "$(dpkg-query -W -f '${Version}' "postgresql-$major")" ]]; then
        debian_unpack "postgresql-client-$major" "$version"
        local clients=$unpacked
        debian_unpack "postgresql-$major" "$version"
        server_home=$unpacked$server_home
        # Programs look for each other where they are themselves.
        [[ -e $server_home/bin/psql ]] || cp -r "$clients/usr" "$unpacked"
        echo "$suite: no sources of the PostgreSQL that is installed; $version is tested" >&2
    fi
    headers=/usr/include/postgresql/$major/server
    local headers_of
    headers_of=$(dpkg-query -W -f '${Version}' "postgresql-server-dev-$major" 2> /dev/null || true)
    if [[ $headers_of != "$version" ]]; then
        debian_unpack "postgresql-server-dev-$major" "$version"
        headers=$unpacked$headers
    fi
}

# record TEST pass|fail|skip [REMARK]: the last record of a test counts.
record() { printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" >> "$result"; }
remark() { printf '#%s\t%s\n' "$1" "$2" >> "$result"; }
# attend COMMAND...: runs it, and a signal meanwhile is handled at once: a shell whose command is in
# the foreground handles signals only after it.
attend() {
    local status=0
    "$@" &
    attended=$!
    wait "$attended" || status=$?
    attended=
    return "$status"
}
# judge TEST COMMAND...: passes when the command does; what it prints goes to $out/TEST.
judge() {
    local test=$1 status=0
    shift
    attend "$@" > "$out/$test" 2>&1 || status=$?
    if ((status == 0)); then record "$test" pass; else record "$test" fail "exit $status"; fi
    return 0
}

# collect NAME: what is recorded from here on is results of SUITE-NAME.
collect() {
    # The part before is done.
    [[ -z $result || ! -s $result ]] || remark seconds "$((SECONDS - began))"
    result=$work/results/$suite${1:+-$1}${label:+@$label}.$mode.tsv
    collected+=("$result")
    : > "$result"
    local mount=
    if [[ $mode != plain ]]; then
        mount="$("$binary" --version), $size, pool $pool, ${policy:-tac}"
        # Builds of one version differ.
        remark build "$(md5sum < "$binary" | cut -c 1-8)"
    fi
    remark mount "$mount"
    remark base "$(findmnt -n -o FSTYPE -T "$base")"
}

each_mode() { # function
    for mode in ${modes//,/ }; do
        echo "== $suite${label:+@$label}: $mode"
        began=$SECONDS result=
        begin
        collected=()
        collect ""
        "$1"
        [[ -z $server ]] || stop_server
        end
        local each
        for each in "${collected[@]}"; do
            # A suite of several parts has nothing under its own name.
            if ! grep -qv '^#' "$each"; then
                rm "$each"
            else
                printf '#seconds\t%s\n' "$((SECONDS - began))" >> "$each"
            fi
        done
    done
    python3 "$here/results.py" verdict "$work/results" "$suite" "${label-}"
}

# The directory under test, empty.
begin() {
    # No @: the suites of MariaDB take it for a reference.
    local scratch=$work/$suite${label:+_$label}.$mode
    local place=$base_on/$suite${label:+_$label}.$mode
    # Not the former one's base, when it is still mounted.
    ! mountpoint -q "$scratch/mnt" || die "$scratch/mnt is still mounted"
    rm -rf "$scratch" "$place"
    mkdir -p "$scratch"/{mnt,out} "$place/base"
    out=$scratch/out
    mounted=$scratch/mnt
    base=$place/base
    if [[ $mode == plain ]]; then
        root=$base
        return
    fi
    root=$mounted
    local config=$scratch/config.toml arguments=()
    : > "$config"
    ((EUID == 0)) || printf '[mount]\nallow_other = false\n' >> "$config"
    [[ $everything == no ]] || printf '%s\n' '[[rules]]' 'path = "**"' 'cache = true' \
        'kind = "relation"' 'dialect = "none"' >> "$config"
    [[ $mode != back ]] || arguments+=(--write-back)
    [[ -z $policy ]] || arguments+=(--policy "$policy")
    "$binary" mount "$base" "$root" --cache "$scratch/cache" --size "$size" --pool "$pool" \
        --page-size "$page" --config "$config" --foreground "${arguments[@]}" \
        > "$scratch/log" 2>&1 &
    serving=$!
    local i
    for ((i = 0; i < 300; i++)); do
        if mountpoint -q "$root"; then return; fi
        kill -0 "$serving" 2> /dev/null || break
        sleep 0.1
    done
    cat "$scratch/log" >&2
    die "no mount at $root"
}

# Unmounts. That it ends well, and its end's exit code, are tests as well.
end() {
    if [[ $mode == plain ]]; then return; fi
    local status=0
    if ! kill -0 "$serving" 2> /dev/null; then
        wait "$serving" || status=$?
        serving=
        umount -l "$root" 2> /dev/null || true
        record "(the mount)" fail "it ended by itself, exit $status"
        return
    fi
    if ! timeout 300 "$binary" umount "$root" > "$out/umount" 2>&1; then
        record "(the mount)" fail "umount: $(tail -1 "$out/umount")"
        kill -9 "$serving"
        wait "$serving" 2> /dev/null || true
        serving=
        umount -l "$root" 2> /dev/null || fusermount3 -uz "$root" 2> /dev/null || true
        return
    fi
    wait "$serving" || status=$?
    serving=
    if ((status)) || grep -q -e panicked -e 'ERROR' "${out%/out}/log"; then
        record "(the mount)" fail \
            "exit $status, $(grep -m1 -e panicked -e ERROR "${out%/out}/log")"
    else
        record "(the mount)" pass
    fi
    judge "(the cache)" sound
    # What a suite says of base once nothing is mounted.
    if declare -F unmounted > /dev/null; then unmounted; fi
}

# After `umount` the cache is sound, and base has everything.
sound() {
    local said
    said=$(timeout --kill-after=20 300 "$binary" check "${out%/out}/cache" --data) || return 1
    echo "$said"
    [[ $said == *" 0 dirty "* ]]
}

# A server of the suite: its process, and `stop_server` to end it.
stop_server() {
    local pid=$server i
    server=
    kill -INT "$pid" 2> /dev/null || return 0
    for ((i = 0; i < 600; i++)); do
        kill -0 "$pid" 2> /dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
}

clean_up() {
    trap - EXIT
    # shellcheck disable=SC2086 # may be several
    if [[ -n $attended ]]; then kill $attended 2> /dev/null || true; fi
    # First the mount, if it hangs: then whoever waits for it gets an error.
    if [[ -n $server ]]; then kill -INT "$server" 2> /dev/null || true; fi
    if [[ -n $serving ]]; then
        timeout 30 "$binary" umount --lazy "$root" > /dev/null 2>&1 || true
        kill "$serving" 2> /dev/null || true
        local i
        for ((i = 0; i < 100; i++)); do
            kill -0 "$serving" 2> /dev/null || break
            sleep 0.1
        done
        kill -9 "$serving" 2> /dev/null || true
        umount -l "$root" 2> /dev/null || fusermount3 -uz "$root" 2> /dev/null || true
    fi
    if [[ -n $server ]]; then kill -9 "$server" 2> /dev/null || true; fi
}


# become USER: "${as[@]}" COMMAND runs it as that user when we are root, else as who we are.
become() {
    as=()
    if ((EUID == 0)); then as=(setpriv "--reuid=$1" "--regid=$(id -g "$1")" --init-groups); fi
}
