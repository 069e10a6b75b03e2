# shellcheck shell=bash disable=SC2154
# make/check_unused.sh: a tree whose shared names are all used passes; one that only tests use is reported with its place.

unused() { "$root/make/check_unused.sh" .; }

mkdir -p base cli tests/base bench
printf '%s\n' '/* Not a use: base_spare(). */' 'int base_open(const char *path);' 'int base_read(void);' \
    'extern const char base_names[];' 'static inline int base_twice(int x)' '{' '    return 2 * x;' '}' >base/base.h
printf '%s\n' '#include "base/base.h"' 'const char base_names[] = "a";' 'int base_open(const char *path)' '{' \
    '    return path[0] + base_names[0] + base_twice(2);' '}' 'int base_read(void)' '{' '    return 0; // base_read() is that' '}' >base/base.c
printf '%s\n' 'int main(void)' '{' '    return base_open("base_read");' '}' >cli/main.c
printf '%s\n' 'base_read(); base_twice(1); base_spare();' >tests/base/test_base.c
expect "unused: what is called, or asked for by its name in a string, is used" prints "every one of 4 shared names" unused

printf '%s\n' 'int main(void)' '{' '    return base_open("a");' '}' >cli/main.c
expect "unused: a function that tests alone call is named, with the place of its declaration" \
    prints "base/base.h:3: nothing but tests uses base_read" unused
expect "unused: ... and that is a failure" fails unused

printf '%s\n' 'base_read();' >bench/bench_base.c
expect "unused: a benchmark is a use" unused

sed -i 's/ + base_twice(2)//; s/ + base_names\[0\]//' base/base.c
expect "unused: so are variables" prints "base/base.h:4: nothing but tests uses base_names" unused
expect "unused: and what a header defines itself" prints "base/base.h:5: nothing but tests uses base_twice" unused
