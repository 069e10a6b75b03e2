# shellcheck shell=bash disable=SC2154,SC2119,SC2120
# The Makefile in a tree of three small files: what is built again, and when.

cp -r "$root/Makefile" "$root/make" .
mkdir -p base kernels/cpu cli
echo 'int one(void); int one(void) { return 1; }' >base/one.c
echo 'int two(void); int two(void) { return 2; }' >kernels/cpu/two.c
echo 'int main(void) { return 0; }' >cli/main.c
build() { make -j1 "$@"; }
is_quiet() { [ -z "$(build)" ]; }

expect "rebuild: a small tree builds" build
expect "rebuild: the program runs" build/memplan
expect "rebuild: a second make does nothing" is_quiet
expect "rebuild: other flags compile again" prints "CC   base/one.c" build OPT=-O1
expect "rebuild: ... and the old flags too" prints "CC   base/one.c" build
echo "another processor" >build/native.stamp
build >native 2>&1
expect "rebuild: on another processor the fast kernels are compiled again" grep -q "CC   kernels/cpu/two.c" native
expect "rebuild: ... and only they" fails grep -q "CC   base/one.c" native
rm base/one.c
expect "rebuild: a source that is gone leaves the library" prints "AR   build/libmemplan.a" build
expect "rebuild: ... really" fails grep -q one.o <(ar t build/libmemplan.a)
expect "rebuild: whole commands show with V=1" prints "-march=native" build V=1 clean all
expect "rebuild: a build without its libraries is one sentence" \
    prints "memplan cannot be built without no-such-compiler" build BUILD=other CC=no-such-compiler
