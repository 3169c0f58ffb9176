#!/usr/bin/env bash
# Ten million mutations of what PostgreSQL's extension publishes, decoded and made hints of: none may
# panic, and no hint may be out of its range. About a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export THERMOCLINE_MUTATIONS=${1:-10000000}
cargo test --release --locked -p thermocline --lib a_hostile_writer -- --nocapture
