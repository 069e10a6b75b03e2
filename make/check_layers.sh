#!/bin/sh
# Enforces the table of docs/design.md: reads the includes of every source of the tree and says which break a rule.
#
#     make/check_layers.sh [ROOT]
#
# The rules: a folder includes only what its line below allows; a project include names its folder; the back ends of
# kernels/ know nothing of each other; each vendor's header is included by at most two files outside the tests; no two
# files share a stem, so that a name leads to its file (NAME.c + NAME.h in one folder are one name).
set -eu

cd "${1:-.}"
folders=
for folder in base model device kernels comm profiler planner jobs reports trainer cli tests bench examples make; do
    [ -d $folder ] && folders="$folders $folder"
done

# Split on purpose, here and below: one word per folder.
# shellcheck disable=SC2086
find $folders -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' \) | LC_ALL=C sort |
    awk '
BEGIN {
    allowed["base"] = ""
    allowed["model"] = allowed["device"] = "base"
    allowed["kernels"] = allowed["comm"] = allowed["profiler"] = "base device"
    allowed["planner"] = allowed["reports"] = "base model profiler/store.h"
    allowed["jobs"] = "base model planner/frameworks/workload.h"
    allowed["trainer"] = "base model device kernels comm"
    # Absent from the table: cli, tests, bench and examples, which may include everything.
    vendor = "^(sqlite3|dnnl|jansson|mpi|cuda.*|cublas.*|nccl|cupti.*)[.]h$"
    most_users = 2
}

{
    files++
    check_stem($0)
    if ($0 ~ /[.](c|h|cu|cuh)$/)
        read_includes($0)
}

END {
    for (header in users)
        if (users[header] > most_users)
            complain(header " is included by " users[header] " files, at most " most_users " may:" who[header])
    if (bad) {
        print "check-layers: " bad " breaches in " files " files" | "cat >&2"
        exit 1
    }
    print "check-layers: " files " files keep to the table"
}

function complain(text) {
    print text | "cat >&2"
    bad++
}

function top(path) {
    sub("/.*", "", path)
    return path
}

# "cpu" for kernels/cpu/attention.c, nothing for any other place.
function backend(path,    part) {
    return split(path, part, "/") == 3 && part[1] == "kernels" ? part[2] : ""
}

function check_stem(file,    stem, pair) {
    stem = file
    sub(".*/", "", stem)
    sub("[.][^.]*$", "", stem)
    pair = file
    sub("[.](c|h|cu|cuh)$", "", pair)
    # Every program has its main.c.
    if (stem == "main")
        return
    if (stem in first && first_pair[stem] != pair)
        complain(file ": the name is taken by " first[stem] "; file names are unique in the tree")
    if (!(stem in first)) {
        first[stem] = file
        first_pair[stem] = pair
    }
}

function read_includes(file,    line, number) {
    while ((getline line < file) > 0) {
        number++
        if (line ~ /^[ \t]*#[ \t]*include[ \t]*["<]/)
            check_include(file, file ":" number, line)
    }
    close(file)
}

function check_include(file, place, line,    ours, header) {
    ours = line ~ /include[ \t]*"/
    header = line
    sub(/^[^"<]*["<]/, "", header)
    sub(/[">].*/, "", header)
    if (ours)
        check_ours(file, place, header)
    else if (header ~ vendor && top(file) !~ /^(tests|bench|examples)$/) {
        users[header]++
        who[header] = who[header] " " file
    }
}

function check_ours(file, place, header,    from, to) {
    from = top(file)
    to = top(header)
    if (to == header || to ~ /^[.]/)
        complain(place ": \"" header "\" names no folder of the project; write \"" from "/...\", or <...> for a system header")
    else if (from in allowed && from != to && !index(" " allowed[from] " ", " " to " ") && !index(" " allowed[from] " ", " " header " "))
        complain(place ": " from "/ may not include " header "; it may include " (allowed[from] == "" ? "nothing" : allowed[from]))
    else if (backend(file) != "" && backend(header) != "" && backend(file) != backend(header))
        complain(place ": kernels/" backend(file) " may not include " header "; back ends share only kernels/*.h")
}
'
