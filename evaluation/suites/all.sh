#!/usr/bin/env bash
# Every suite in every mode, one after another, and the table of evaluation/results/suites.md.
#
#   evaluation/suites/all.sh [--work DIR] [--binary PATH] [--suites NAME,...] [--result FILE]
#
# With a build that has debug assertions, say --label debug: its rows are then named so. MariaDB's
# suites take long: --mariadb main,innodb,innodb_fts,encryption says which, --minutes how long each
# may take in each mode. Exit 1 when any test fails on a mount that passes on the plain directory.
set -euo pipefail

suite=all
suites=fsx,fio,pjdfstest,stress-ng,postgres,mariadb,filesystems
result_file=
mariadb=innodb,innodb_fts,encryption
minutes=45
option() {
    case $1 in
        --suites) suites=$2 ;;
        --mariadb) mariadb=$2 ;;
        --minutes) minutes=$2 ;;
        --result) result_file=$(realpath -m "$2") ;;
        *) return 1 ;;
    esac
}
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
options "$@"
: "${result_file:=$here/../results/suites.md}"

failed=()
for each in ${suites//,/ }; do
    more=()
    [[ -z $label || $each == filesystems ]] || more+=(--label "$label")
    [[ $each != mariadb ]] || more+=(--suites "$mariadb" --minutes "$minutes")
    status=0
    attend "$here/$each.sh" --work "$work" --binary "$binary" --modes "$modes" "${more[@]}" \
        || status=$?
    ((status == 0)) || failed+=("$each")
done
python3 "$here/results.py" table "$work/results" > "$result_file"
echo "== the table: $result_file; the runs: $work"
if ((${#failed[@]})); then
    echo "== failed: ${failed[*]}"
    exit 1
fi
