#!/bin/sh
# Says which C sources clang-format would change. Other versions of clang-format have other opinions, so only the one
# that wrote the tree (Debian 12's) is listened to.
set -eu

want=14
version=$(clang-format --version 2>/dev/null | sed 's/.*version \([0-9]*\).*/\1/' || true)
if [ "$version" != $want ]; then
    echo "skip  check-format: needs clang-format $want, found ${version:-none}"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
clang-format --dry-run --Werror "$@" || {
    echo "check-format: run \`make format\`" >&2
    exit 1
}
echo "check-format: $# files are as clang-format writes them"
