#!/bin/sh
# Text files as C strings: page.css becomes `const char page_css[]`. What they are for is declared by the header.
#
#     make/embed.sh HEADER FILE... > OUT.c
set -eu

header=$1
shift
echo "/* Made by make/embed.sh from $*. */"
echo "#include \"$header\""
for file in "$@"; do
    printf '\nconst char %s[] =\n' "$(basename "$file" | tr . _)"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
    echo '    "";'
done
