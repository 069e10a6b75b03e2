#!/bin/sh
# Compiles and links one line of C, to learn whether a library is really here: its header, and something to link with.
#
#     make/probe.sh HEADER FUNCTION FLAGS...     e.g.  make/probe.sh jansson.h json_object -ljansson
# Exits 0 when it links. The compiler is $CC, or gcc.
set -u

header=$1 function=$2
shift 2
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-probe.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
printf '#include <%s>\nint main(void)\n{\n    return (void *)%s == (void *)0;\n}\n' "$header" "$function" >"$folder/probe.c"
${CC:-gcc} -w -o "$folder/probe" "$folder/probe.c" "$@" >/dev/null 2>&1
