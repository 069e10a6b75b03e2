#!/bin/bash
# Runs tests/make/test_*.sh, the tests of the build's own scripts, each in a scratch folder of its own.
#
# A test file calls `expect "a sentence" COMMAND...`; the command's output shows only when it fails.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
passed=0 failed=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/memplan-make.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
# The make under test is not a part of the make that runs the tests.
unset MAKEFLAGS MAKELEVEL MFLAGS BUILD MEMPLAN

expect() {
    local sentence=$1
    shift
    if "$@" >"$scratch/output" 2>&1; then
        echo "ok    $sentence"
        ((passed += 1))
    else
        echo "FAIL  $sentence"
        sed 's/^/      /' "$scratch/output"
        ((failed += 1))
    fi
}

# prints TEXT COMMAND...: the command's output has TEXT in it, whatever its exit status.
prints() {
    local text=$1
    shift
    "$@" 2>&1 | tee "$scratch/printed"
    grep -qF -e "$text" "$scratch/printed"
}

fails() { ! "$@"; }

for file in "$root"/tests/make/test_*.sh; do
    mkdir "$scratch/tree" && cd "$scratch/tree" || exit 1
    # shellcheck source=/dev/null
    . "$file"
    cd "$root" && rm -rf "$scratch/tree"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
