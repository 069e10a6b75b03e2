#!/bin/sh
# Finds functions and variables of the headers that nothing but tests uses.
#
#     make/check_unused.sh [ROOT]
#
# Each name that a header shares stands once in it and once where it is defined; what is used stands somewhere else too, in
# the program, its libraries or a benchmark. Names are looked for as words of the sources, comments left out, because a
# linker sees neither what is built only where there is CUDA nor what the compiler has put into its callers. Strings count:
# libraries that are opened at run time are asked for names.
set -eu

cd "${1:-.}"
folders=
for folder in base model device kernels comm profiler planner jobs reports trainer cli bench; do
    [ -d $folder ] && folders="$folders $folder"
done

# Split on purpose: one word per folder.
# shellcheck disable=SC2086
find $folders -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort |
    awk '
BEGIN {
    # The definition that the fast kernels are tested against; and a table that tests hold against that of jobs/.
    kept["kernels_reference"] = kept["hub_config_checked_types"] = 1
}

{
    read_source($0)
}

END {
    for (name in place) {
        names++
        if (seen[name] > idle[name] || name in kept)
            continue
        print place[name] ": nothing but tests uses " name "; remove it, or move it to the tests" | "LC_ALL=C sort >&2"
        bad++
    }
    if (bad) {
        close("LC_ALL=C sort >&2")
        print "check-unused: " bad " of " names " shared names are unused" | "cat >&2"
        exit 1
    }
    print "check-unused: every one of " names + 0 " shared names is used"
}

# Comments are taken out here; what begins one inside a string does not occur.
function read_source(file,    line, number, inside, rest) {
    while ((getline line < file) > 0) {
        number++
        if (inside) {
            if (!index(line, "*/"))
                continue
            line = substr(line, index(line, "*/") + 2)
            inside = 0
        }
        while (match(line, /\/\*/)) {
            rest = substr(line, RSTART + 2)
            line = substr(line, 1, RSTART - 1)
            inside = !index(rest, "*/")
            line = line " " (inside ? "" : substr(rest, index(rest, "*/") + 2))
        }
        sub("//.*", "", line)
        count_words(line)
        if (file ~ /[.](h|cuh)$/ && file !~ /^bench/)
            read_declaration(file ":" number, line)
    }
    close(file)
}

function count_words(line,    words, count, i) {
    count = split(line, words, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= count; i++)
        seen[words[i]]++
}

# A function or variable, whose type begins the line. What a header defines itself stands in it alone.
function read_declaration(at, line,    name) {
    if (line !~ /^[a-z]/ || line ~ /^(typedef|struct [a-z0-9_]+ [{;]|enum|union)/)
        return
    name = line
    if (line ~ /^extern const / && line !~ /\(/)
        sub(/[\[;,].*/, "", name)
    else if (!sub(/\(.*/, "", name))
        return
    sub(/.*[ *]/, "", name)
    if (name !~ /^[a-z][a-z0-9_]+$/)
        return
    place[name] = at
    idle[name] = line ~ /^(static|template) / ? 1 : 2
}
'
