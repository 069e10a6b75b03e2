#!/bin/sh
# Stops a build that cannot work with one sentence, instead of a compiler's page about a missing header.
set -u

probe=$(dirname "$0")/probe.sh
absent=
"$probe" sqlite3.h sqlite3_open -lsqlite3 || absent="$absent libsqlite3-dev"
"$probe" jansson.h json_object -ljansson || absent="$absent libjansson-dev"
"$probe" dnnl.h dnnl_sgemm -ldnnl || absent="$absent libdnnl-dev"
[ -z "$absent" ] && exit 0
command -v "${CC:-gcc}" >/dev/null || absent=" ${CC:-gcc}"
echo "memplan cannot be built without$absent; run \`make deps\`, or \`make config\` to see what was found" >&2
exit 1
