#!/usr/bin/env bash
# stress-ng's file system class, one stressor after another, with --verify, on a plain directory and
# on mounts; as an ordinary user and (if we are) as root.
#
#   evaluation/suites/stress-ng.sh [--modes plain,through,back] [--seconds 1] [--binary PATH]
#                                  [--work DIR]
set -euo pipefail

suite=stress-ng
everything=yes
seconds=1
option() {
    case $1 in
        --seconds) seconds=$2 ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
need stress-ng stress-ng

# Left out: they work on other things than the directory that is given.
leave=" bind-mount binderfs dup eventfd handle ioprio procfs "

as_user() { # part, user; without a user: as who we are
    local stressor status said
    as=()
    [[ -z $2 ]] || become "$2"
    collect "$1"
    mkdir "$root/$1"
    [[ -z $2 ]] || chown "$2:" "$root/$1"
    for stressor in $(stress-ng --class 'filesystem?' 2>&1 | sed 's/.*stressors: //'); do
        [[ $leave != *" $stressor "* ]] || continue
        status=0
        # A stressor that does not end in time is recorded, and the next one has its turn.
        attend "${as[@]}" env -C "$root/$1" timeout --kill-after=20 120 stress-ng "--$stressor" 1 \
            -t "$seconds" --verify --temp-path "$root/$1" > "$out/$1-$stressor" 2>&1 || status=$?
        said=$(grep -m1 -E 'fail:|unsuccessful' "$out/$1-$stressor" | sed 's/.*\] //' || true)
        case $status in
            0) if [[ $said == *fail:* ]]; then record "$stressor" fail "$said"
               else record "$stressor" pass; fi ;;
            3 | 4) record "$stressor" skip "no such resource, or not implemented" ;;
            124 | 137) record "$stressor" fail "did not end within 120 s" ;;
            *) record "$stressor" fail "exit $status $said" ;;
        esac
        if [[ -n $serving ]] && ! kill -0 "$serving" 2> /dev/null; then return; fi
    done
}

run() {
    if ((EUID)); then as_user user ""; return; fi
    as_user user nobody
    as_user root ""
}

each_mode run
