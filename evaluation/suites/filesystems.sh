#!/usr/bin/env bash
# Short passes of the suites with base on each file system that this kernel has, as root and as an
# ordinary user (whose mounts are their own).
#
#   evaluation/suites/filesystems.sh [--systems ext4,xfs,btrfs,overlay,tmpfs] [--users root,nobody]
#                                    [--suites fsx,fio,pjdfstest,postgres] [--binary PATH]
#                                    [--modes plain,through,back] [--work DIR]
#
# Needs root, to make the file systems. A system that the kernel does not have is said to be left
# out. Exit 1 when a test fails on a mount that passes on the same file system without one.
set -euo pipefail

suite=filesystems
systems=ext4,xfs,btrfs,overlay,tmpfs
users=root,nobody
suites=fsx,fio,pjdfstest,postgres
option() {
    case $1 in
        --systems) systems=$2 ;;
        --users) users=$2 ;;
        --suites) suites=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
((EUID == 0)) || die "needs root, to make file systems"

running= made=
finish() {
    if [[ -n $running ]]; then
        kill "$running" 2> /dev/null || true
        wait "$running" 2> /dev/null || true
    fi
    unmake
}
trap finish EXIT

# make_system NAME: mounts a new one at $made; fails if there is no such.
make_system() {
    local disk=$work/disk.img where=$work/system
    mkdir -p "$where"
    case $1 in
        xfs) need mkfs.xfs xfsprogs ;;
        btrfs) need mkfs.btrfs btrfs-progs ;;
    esac
    grep -qw "$1" /proc/filesystems || modprobe "$1" 2> /dev/null || return 1
    case $1 in
        tmpfs) mount -t tmpfs -o size=3g tmpfs "$where" ;;
        overlay) # over the file system that the scratch is on
            rm -rf "$work/layers"
            mkdir -p "$work/layers"/{lower,upper,work}
            local dirs=lowerdir=$work/layers/lower,upperdir=$work/layers/upper
            mount -t overlay -o "$dirs,workdir=$work/layers/work" overlay "$where"
            ;;
        *)
            rm -f "$disk"
            truncate -s 3G "$disk"
            "mkfs.$1" -q "$disk" > /dev/null 2>&1
            mount -o loop "$disk" "$where"
            ;;
    esac
    made=$where
}
unmake() {
    if [[ -n $made ]]; then umount "$made" || umount -l "$made" || true; fi
    made=
    rm -rf "$work/disk.img" "$work/layers"
}

# pass SYSTEM USER SUITE ARGUMENT...
pass() {
    local system=$1 user=$2 each=$3 mine=$work/$2 as=() status=0
    shift 3
    if [[ $user != root ]]; then
        become "$user"
        # Everybody may use the FUSE device of a usual system; here perhaps not, so in a mount
        # namespace of this pass there is one of that kind.
        as=(unshare --mount --propagation private bash -c
            'mount --bind "$0" /dev/fuse && exec "$@"' "$work/fuse" "${as[@]}")
    fi
    echo "== $each on $system as $user"
    "${as[@]}" env SUITES_TOOLS="$work/tools" HOME="$mine" "$work/suites/$each.sh" "$@" \
        --modes "$modes" --binary "$binary" --work "$mine" --base "$made/$user" \
        --label "$system-$user" > "$mine/$each-$system.printed" 2>&1 &
    running=$!
    wait "$running" || status=$?
    running=
    grep -v '^==' "$mine/$each-$system.printed" || true
    cp "$mine/results"/*"@$system-$user".*.tsv "$work/results" 2> /dev/null || true
    # What the pass left behind takes the room of the next.
    rm -rf "$made/$user"/* "$mine"/*"@$system-$user".*/{cache,mnt}
    return "$status"
}

failed=0
need fusermount3 fuse3
if [[ $suites == *postgres* ]]; then
    debian_postgres
fi
SUITES_TOOLS=$work/tools
need_crate fsx 0.3.2
need_crate pjdfstest 0.2.2
# Copies where ordinary users can reach them.
cp "$binary" "$work/program"
binary=$work/program
rm -rf "$work/suites" "$work/fuse"
mknod -m 666 "$work/fuse" c 10 229
cp -r "$here" "$work/suites"
chmod -R a+rX "$work/suites" "$work/tools"
for system in ${systems//,/ }; do
    if ! make_system "$system"; then
        echo "== $system: left out, this kernel does not have it"
        continue
    fi
    for user in ${users//,/ }; do
        mkdir -p "$work/$user" "$made/$user"
        [[ ! -d $work/source ]] || ln -sfn "$work/source" "$work/$user/source"
        chown "$user": "$work/$user" "$made/$user"
        for each in ${suites//,/ }; do
            # Fewer bytes than elsewhere; the tier is smaller as well, so that they move.
            case $each in
                fsx) more=(--files 5 --operations 1000 --size 16MiB --pool 4MiB) ;;
                fio) more=(--megabytes 12 --engines libaio,mmap --size 16MiB --pool 4MiB) ;;
                postgres)
                    more=(--parts regress --schedule "$work/suites/postgres-short.schedule")
                    ;;
                *) more=() ;;
            esac
            pass "$system" "$user" "$each" "${more[@]}" || failed=1
        done
    done
    unmake
done
exit "$failed"
