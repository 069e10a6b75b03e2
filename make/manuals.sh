#!/bin/sh
# Man pages and bash completion, printed by the program itself from its option tables.
#
#     make/manuals.sh PROGRAM FOLDER
set -eu

program=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"
"$program" help --man >"$folder/memplan.1"
for command in $("$program" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$program" help --man "$command" >"$folder/memplan-$command.1"
done
"$program" help --completion bash >"$folder/memplan.bash"
