#!/bin/sh
# Writes a line of text to a file, but leaves the file alone when it says so already: what depends on the file is then
# rebuilt exactly when the text changes.
#
#     make/stamp.sh FILE TEXT
set -eu

[ "$(cat "$1" 2>/dev/null)" = "$2" ] && exit 0
mkdir -p "$(dirname "$1")"
printf '%s\n' "$2" >"$1"
