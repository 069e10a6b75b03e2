/* Parameters counted in safetensors headers. */
#include "jobs/weights_header.h"

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/memplan-weights-XXXXXX";

/* A file of that header and so many bytes behind it. */
static const char *write_file(const char *name, const char *header, long data_bytes)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    uint64_t length = strlen(header);
    fwrite(&length, 1, sizeof length, out);
    fputs(header, out);
    if (data_bytes)
        fseek(out, data_bytes - 1, SEEK_CUR), fputc(0, out);
    fclose(out);
    return path;
}

static void assert_refused(const char *header, long data_bytes, const char *message)
{
    struct weights_count count;
    struct error err = {0};
    ASSERT_INT(weights_header_count(write_file("model.safetensors", header, data_bytes), &count, &err), -1);
    ASSERT_HAS(err.text, message);
}

#define TWO                                                                                                  \
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[4,8],\"data_offsets\":[0,"   \
    "64]},"                                                                                                  \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[64,68]}}"

TEST(weights_count, "the parameters of a file are the products of its shapes")
{
    struct weights_count count;
    struct error err = {0};
    ASSERT(mkdtemp(folder));
    ASSERT_OK(weights_header_count(write_file("model.safetensors", TWO, 68), &count, &err));
    ASSERT_INT(count.parameters, 4 * 8 + 1);
    ASSERT_INT(count.bytes, 68);
    ASSERT_INT(count.tensors, 2);
    ASSERT_STR(count.dtype, "BF16");
    ASSERT_OK(weights_header_count(folder, &count, &err));
    ASSERT_INT(count.parameters, 33);
}

TEST(weights_index, "the files of an index are added up, each once")
{
    struct weights_count count;
    struct error err = {0};
    char path[200];
    ASSERT(mkdtemp(folder));
    write_file("one.safetensors", TWO, 68);
    write_file("two.safetensors", TWO, 68);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    FILE *out = fopen(path, "w");
    fputs("{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"one.safetensors\", \"c\": "
          "\"two.safetensors\"}}",
          out);
    fclose(out);
    ASSERT_OK(weights_header_count(folder, &count, &err));
    ASSERT_INT(count.parameters, 66);
}

TEST(weights_refusals, "headers that lie are refused")
{
    ASSERT(mkdtemp(folder));
    assert_refused(TWO, 66, "tensor b ends behind the file");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8,
                   "does not have the bytes of its shape");
    assert_refused("{\"a\":{\"dtype\":\"F99\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8, "no known dtype");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
                   "an impossible shape");
    /* 2^61 - 1 elements of 4 bits: seven bits more are not counted in 63 */
    assert_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[2305843009213693951],"
                   "\"data_offsets\":[0,1152921504606846976]}}",
                   8, "tensor a ends behind the file");
    assert_refused("{\"a\":", 8, "its header is no JSON");
}
