#!/bin/sh
# Installs the Debian packages of the groups named in packages.txt, and nothing when they are all there.
# With -n it only lists what is missing, one package a line.
#
#     make/deps.sh [-n] GROUP...
set -u

list_only=no
if [ "${1-}" = -n ]; then
    list_only=yes
    shift
fi
table=$(dirname "$0")/packages.txt
log=

# "package | why" for every line of the table whose group was asked for.
wanted() {
    awk -F ' *[|] *' -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") { print $2 " | " $3 }' "$table"
}

# Keeps the lines whose package dpkg does not call installed.
missing() {
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
    wanted "$@" | while IFS= read -r line; do
        printf '%s\n' "$installed" | grep -qxF "${line%% | *}" || printf '%s\n' "$line"
    done
}

give_up() {
    echo "deps: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$@" >>"$log" 2>&1
}

# A fresh machine has no package lists yet, and old lists name files that are gone: refresh and try once more.
install_packages() {
    apt install --no-install-recommends "$@" && return
    apt update && apt install --no-install-recommends "$@"
}

if ! command -v dpkg-query >/dev/null; then
    [ $list_only = yes ] && exit 0
    echo "deps: this is not Debian or Ubuntu, so nothing is installed; see \`make config\` for what was found"
    exit 0
fi

lines=$(missing "$@")
if [ $list_only = yes ]; then
    [ -z "$lines" ] || printf '%s\n' "$lines" | sed 's/ | .*//'
    exit 0
fi
[ -n "$lines" ] || exit 0

echo "deps: installing"
printf '%s\n' "$lines" | awk -F ' [|] ' '{ printf "  %-24s %s\n", $1, $2 }'
packages=$(printf '%s\n' "$lines" | sed 's/ | .*//' | tr '\n' ' ')
packages=${packages% }
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    give_up "installing needs root and there is no sudo here; as root, run: apt-get update && apt-get install $packages"
fi
log=$(mktemp "${TMPDIR:-/tmp}/memplan-deps.XXXXXX") || exit 1
# Split on purpose: one word per package.
# shellcheck disable=SC2086
if install_packages $packages; then
    rm -f "$log"
    echo "deps: done"
else
    reason=$(grep -E '^(E:|sudo:)' "$log" | tail -n 1)
    give_up "apt-get could not install $packages (${reason:-no reason given}); try apt-get update && apt-get install by hand, or read $log"
fi
