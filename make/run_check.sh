#!/bin/sh
# Runs tests/FOLDER/check_NAME.sh, which is what `make check-NAME` stands for.
#
#     make/run_check.sh NAME
set -eu

script=$(ls tests/*/"check_$1.sh" 2>/dev/null || true)
if [ -z "$script" ]; then
    echo "check-$1: there is no tests/*/check_$1.sh; \`make help\` lists the checks"
    exit 1
fi
if [ "$1" = torch ] && [ -n "$(make/deps.sh -n torch)" ]; then
    echo "skip  check-torch: PyTorch is not installed (make deps-torch, some 400 MB)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
exec "$script"
