# shellcheck shell=bash disable=SC2154
# make/deps.sh against a pretended Debian: `dpkg-query` says what the file "installed" holds, `apt-get` knows packages only
# after an update, as on a fresh machine, and both write down what they were asked.

mkdir bin
cat >bin/dpkg-query <<'END'
#!/bin/sh
sed 's/^/ii  /' installed
END
cat >bin/apt-get <<'END'
#!/bin/sh
echo "$*" >>asked
case "$*" in
*update*) touch updated ;;
*install*)
    [ -e broken ] && echo "E: Could not resolve deb.debian.org" && exit 100
    [ -e updated ] || { echo "E: Unable to locate package"; exit 100; } ;;
esac
END
cat >bin/id <<'END'
#!/bin/sh
cat user
END
chmod +x bin/*
deps() { PATH=$PWD/bin:$PATH TMPDIR=$PWD "$root/make/deps.sh" "$@"; }
asked() { grep -qE -e "$1" asked; }
start() { rm -f asked updated broken; touch asked; echo 0 >user; }

sed -n 's/^build | \([^ ]*\) .*/\1/p' "$root/make/packages.txt" >installed
start
expect "deps: nothing is asked of apt-get when all is there" deps build
expect "deps: ... nothing at all" fails asked .

sed -i /jansson/d installed
expect "deps: -n lists what is missing" prints libjansson-dev deps -n build
expect "deps: ... and installs nothing" fails asked .
expect "deps: what is missing is named, with the reason" prints "JSON in and out" deps build
expect "deps: a machine without package lists is updated first, then served" test -e updated
expect "deps: only what is missing is installed" asked 'install --no-install-recommends libjansson-dev$'

start
touch broken
expect "deps: no network is one sentence" prints "could not install libjansson-dev (E: Could not resolve deb.debian.org)" deps build
expect "deps: ... and a failure" fails deps build

start
echo 1000 >user
cat >bin/sudo <<'END'
#!/bin/sh
echo "sudo $*" >>asked
[ "$1" = -n ] && shift
exec "$@"
END
chmod +x bin/sudo
expect "deps: a user who is not root goes through sudo" deps build
expect "deps: ... for apt-get" asked '^sudo .*apt-get .*install'
