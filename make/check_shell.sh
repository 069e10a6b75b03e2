#!/bin/sh
# Reads the shell scripts with shellcheck, where there is one.
set -eu

if ! command -v shellcheck >/dev/null; then
    echo "skip  check-shell: shellcheck is not installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
shellcheck -x "$@"
echo "check-shell: shellcheck has nothing to say about $# scripts"
