#!/bin/bash
# Proves that all formats of an answer say the same: tests/cli/same_figures.py.
#
#     MEMPLAN=build/memplan tests/cli/check_figures.sh [FILTER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "skip  check-figures: no python3"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export OMP_WAIT_POLICY=passive LC_ALL=C NO_COLOR=1
MEMPLAN=$(realpath "${MEMPLAN:-build/memplan}") exec python3 "$here/same_figures.py" "$@"
