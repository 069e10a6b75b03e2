/* TOML and YAML as dotted keys. The TOML is from the examples of toml.io's specification. */
#include "jobs/toml.h"
#include "jobs/yaml.h"

#include "base/text.h"
#include "tests/test.h"

#include <string.h>

typedef int reader(const char *, size_t, struct arena *, struct pairs *, struct error *);

/* "key=value" with a line each. */
static void assert_reads(reader *read, const char *text, const char *expected)
{
    struct arena *arena = arena_create();
    struct pairs pairs = {.file = "F"};
    struct error err = {0};
    struct text got = {0};
    ASSERT_OK(read(text, strlen(text), arena, &pairs, &err));
    for (int i = 0; i < pairs.count; i++)
        text_printf(&got, "%d %s=%s\n", pairs.list[i].line, pairs.list[i].key, pairs.list[i].value);
    ASSERT_STR(got.data ? got.data : "", expected);
    text_free(&got);
    arena_free(arena);
}

static void assert_refused(reader *read, const char *text, const char *message)
{
    struct arena *arena = arena_create();
    struct pairs pairs = {.file = "F"};
    struct error err = {0};
    ASSERT_INT(read(text, strlen(text), arena, &pairs, &err), -1);
    ASSERT_HAS(err.text, message);
    arena_free(arena);
}

TEST(toml_values, "TOML's strings, numbers, booleans and dates")
{
    assert_reads(
        toml_read,
        "a = 1\nb = \"x y\" # c\n\nc = 'l\\n'\nd = 1_000\ne = 5e8\nf = true\ng = 1979-05-27T07:32:00Z",
        "1 a=1\n2 b=x y\n4 c=l\\n\n5 d=1_000\n6 e=5e8\n7 f=true\n8 g=1979-05-27T07:32:00Z\n");
    assert_reads(toml_read, "a = \"t\\tq\\\"u\\u00e9\"", "1 a=t\tq\"u\xc3\xa9\n");
    assert_reads(toml_read, "a = \"\"\"\none\ntwo\\\n   three\"\"\"\nb = ''", "4 a=one\ntwothree\n5 b=\n");
}

TEST(toml_tables, "TOML's tables, dotted and quoted keys, lists of tables")
{
    assert_reads(toml_read, "[a]\nx = 1\n[a.b]\ny.z = 2\n'k' = 3\n", "2 a.x=1\n4 a.b.y.z=2\n5 a.b.k=3\n");
    assert_reads(toml_read, "p = { x = 1, y = { z = \"q\" } }", "1 p.x=1\n1 p.y.z=q\n");
    assert_reads(toml_read, "[[f]]\nn = 1\n[[f]]\nn = 2", "2 f.0.n=1\n4 f.1.n=2\n");
}

TEST(toml_lists, "TOML's lists are joined by commas, over several lines too")
{
    assert_reads(toml_read, "a = [ 1, 2,\n 3, # three\n]\nb = [\"x\", 'y']\nc = []\n",
                 "3 a=1,2,3\n4 b=x,y\n5 c=\n");
}

TEST(toml_refusals, "what is no TOML is refused with its line")
{
    assert_refused(toml_read, "a = 1\nb", "F:2: a key wants = and a value");
    assert_refused(toml_read, "a = \"x", "F:1: a string is not closed");
    assert_refused(toml_read, "a = \"", "F:1: a string is not closed");
    assert_refused(toml_read, "a = \"x\\\"", "F:1: a string is not closed");
    assert_refused(toml_read, "a = \"\"\"x\"\"", "F:1: a string is not closed");
    assert_refused(toml_read, "a = 1 2", "F:1: something follows the value");
    assert_refused(toml_read, "a = 1\na = 2", "F:2: the key a is given twice");
    assert_refused(toml_read, "[a\nb = 1", "F:1: the name of a table is not closed");
    assert_refused(toml_read, "a = [1", "a list wants , or ]");
    assert_refused(toml_read, "a = nope", "F:1: the value is no string");
    assert_refused(toml_read, "a = \"\\q\"", "a \\ begins no known escape");
}

TEST(yaml_keys, "YAML's keys are nested by indentation; quotes and comments go")
{
    assert_reads(yaml_read, "---\na: 1 # c\nb:\n  c: 'x'\n  d:\n    e: \"y z\"\nf: true\n",
                 "2 a=1\n3 b=\n4 b.c=x\n5 b.d=\n6 b.d.e=y z\n7 f=true\n");
    assert_reads(yaml_read, "a:\n- x\n- y\nb: [p, q]\nc: {}\nd: null\n", "1 a=x,y\n4 b=p,q\n5 c=\n6 d=\n");
    assert_reads(yaml_read, "url: http://x:1\n", "1 url=http://x:1\n");
    assert_reads(yaml_read, "a:\n  t: |\n    x: y\n\n   - &z\n  b: 2\n", "1 a=\n2 a.t=|\n6 a.b=2\n");
}

TEST(yaml_texts, "what stands in quotes is a text, whatever it looks like, on one line or several")
{
    assert_reads(yaml_read, "t: \"{% for m in x %}{{ m['r'] }} \\\"q\\\"{% endfor %}\" # c\nb: 1\n",
                 "1 t={% for m in x %}{{ m['r'] }} \\\"q\\\"{% endfor %}\n2 b=1\n");
    assert_reads(yaml_read, "a: '[x]'\nb: \"|\"\n  \nc: 'it''s'\n", "1 a=[x]\n2 b=|\n4 c=it''s\n");
    assert_reads(yaml_read, "a: \"one\n  two: x\n  three\"\nb: 2\nc: some\n  more words\nd: 3\n",
                 "1 a=one\n4 b=2\n5 c=some\n7 d=3\n");
    assert_reads(yaml_read, "a: >-\n  x: y\nb: !!str 5\n", "1 a=>-\n3 b=5\n");
}

TEST(yaml_braces, "tables in braces have their keys behind the key of the whole")
{
    assert_reads(yaml_read, "k: {use_reentrant: false, \"b\": {c: 'd, e', f: [1, 2]}, }\nz: 1\n",
                 "1 k=\n1 k.use_reentrant=false\n1 k.b=\n1 k.b.c=d, e\n1 k.b.f=1,2\n2 z=1\n");
    assert_reads(yaml_read, "a:\n- {path: x}\n- y\n", "1 a={path: x},y\n");
}

TEST(yaml_anchors, "what an anchor names stands where its name does")
{
    assert_reads(yaml_read, "a: &n 5\nb: *n\n", "1 a=5\n2 b=5\n");
    assert_reads(yaml_read, "d: &d\n  x: 1\n  y: 2\nt:\n  y: 3\n  <<: *d\n  z: 4\nu: *d\n",
                 "1 d=\n2 d.x=1\n3 d.y=2\n4 t=\n5 t.y=3\n6 t.x=1\n7 t.z=4\n8 u=\n8 u.x=1\n8 u.y=2\n");
}

TEST(yaml_refusals, "what is not read of YAML is refused with its line")
{
    assert_refused(yaml_read, "a: 1\nb", "F:2: no key with a colon");
    assert_refused(yaml_read, "a: %x 1", "F:1: this part of YAML is not read");
    assert_refused(yaml_read, "a: {b: 1", "F:1: a table in braces is not closed on its line");
    assert_refused(yaml_read, "a: {b}", "F:1: a key in braces has no value");
    assert_refused(yaml_read, "a: *x", "F:1: a * names what stands nowhere before it");
    assert_refused(yaml_read, "a: \"x\nb: 1", "F:2: a quote is not closed");
    assert_refused(yaml_read, "a: 'x", "a quote is not closed");
    assert_refused(yaml_read, "a:\n\tb: 1", "F:2: YAML is not indented with tabs");
}
