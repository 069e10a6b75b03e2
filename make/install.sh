#!/bin/sh
# Puts what was built where a system looks for it, or takes it away again.
#
#     make/install.sh install|uninstall BUILD ROOT        ROOT is DESTDIR and PREFIX
#
# The libraries go to ROOT/lib, where the program looks for them from its own place (../lib), so that no path is built in and
# the whole tree can be moved.
set -eu

action=$1 build=$2 root=$3
man=$root/share/man/man1
completion=$root/share/bash-completion/completions
docs=$root/share/doc/memplan
examples=$root/share/memplan/examples

install_all() {
    install -D -m 755 "$build/memplan" "$root/bin/memplan"
    for library in "$build/libmemplan_mpi.so" "$build/libmemplan_cuda.so"; do
        [ ! -e "$library" ] || install -D -m 755 "$library" "$root/lib/${library##*/}"
    done
    rm -rf "$examples"
    install -d "$man" "$completion" "$docs/commands" "$examples"
    install -m 644 "$build"/man/*.1 "$man"
    install -m 644 "$build/man/memplan.bash" "$completion/memplan"
    install -m 644 docs/*.md "$docs"
    install -m 644 docs/commands/*.md "$docs/commands"
    cp -R examples/launch "$examples"
    echo "installed in $root; the program is $root/bin/memplan"
}

# Folders that others use too stay, unless they are empty now.
uninstall_all() {
    rm -f "$root/bin/memplan" "$root/lib/libmemplan_mpi.so" "$root/lib/libmemplan_cuda.so"
    rm -f "$man/memplan.1" "$man"/memplan-*.1 "$completion/memplan"
    rm -rf "$docs" "$examples"
    for folder in /bin /lib /share/man/man1 /share/man /share/bash-completion/completions /share/bash-completion /share/doc /share/memplan /share ''; do
        [ ! -d "$root$folder" ] || rmdir "$root$folder" 2>/dev/null || true
    done
}

"${action}_all"
