#include "trainer/safetensors.h"

#include "base/checked.h"
#include "tests/test.h"
#include "trainer/random.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A new folder per test, and the file in it. */
static char folder[40], path[64], partial_path[80];

static void folder_make(void)
{
    strcpy(folder, "/tmp/memplan-safetensors-XXXXXX");
    ASSERT(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    snprintf(partial_path, sizeof partial_path, "%s.partial", path);
}

static void folder_remove(void)
{
    unlink(path);
    ASSERT_MSG(rmdir(folder) == 0, "something was left in %s", folder);
}

static void file_put(const char *bytes, size_t count)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ASSERT(file >= 0);
    ASSERT(write(file, bytes, count) == (ssize_t)count);
    close(file);
}

static size_t file_get(char *bytes, size_t room)
{
    int file = open(path, O_RDONLY);
    ASSERT(file >= 0);
    ssize_t count = read(file, bytes, room);
    ASSERT(count >= 0);
    close(file);
    return (size_t)count;
}

/* A file with this header and `data_bytes` zeros as data. */
static void header_put(const char *json, int data_bytes)
{
    char bytes[4096] = {0};
    uint64_t length = strlen(json);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, length);
    file_put(bytes, 8 + length + (size_t)data_bytes);
}

/* The message of a safetensors_open() that must fail. */
static const char *must_fail(void)
{
    static struct error err;
    struct safetensors *untouched = NULL;
    ASSERT_INT(safetensors_open(path, &untouched, &err), -1);
    ASSERT(!untouched);
    return err.text;
}

/* Two tensors and a note: weight (2, 2) F32 = 1, -2, 0.5, 3 and ids (3) I32 = 7, 8, 9. */
static void example_write(void)
{
    const struct safetensors_entry entries[] = {{"weight", DTYPE_F32, 2, {2, 2}}, {"ids", DTYPE_I32, 1, {3}}};
    const struct safetensors_note notes[] = {{"step", "12"}};
    const float weight[4] = {1, -2, 0.5f, 3};
    const int32_t ids[3] = {7, 8, 9};
    struct safetensors_writer *writer;
    struct error err;
    ASSERT_OK(safetensors_create(path, entries, 2, notes, 1, &writer, &err));
    ASSERT_OK(safetensors_write_at(writer, 0, 0, weight, 10, &err)); /* in pieces, of no whole numbers even */
    ASSERT_OK(safetensors_write_at(writer, 0, 10, (const char *)weight + 10, 6, &err));
    ASSERT_OK(safetensors_write_at(writer, 1, 0, ids, 12, &err));
    ASSERT_OK(safetensors_commit(writer, &err));
}

/* The JSON has 148 bytes; 8 + 148 = 156 rounds up to 192 = 3 * 64, so the header has 184. The data take 16 + 12
 * bytes: 220 in all. */
TEST(safetensors_bytes,
     "the file is the format's, to the byte: length, JSON, spaces, data on a multiple of 64")
{
    const char *json = "{\"weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                       "\"ids\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[16,28]},"
                       "\"__metadata__\":{\"step\":\"12\"}}";
    const int32_t ids[3] = {7, 8, 9};
    char bytes[1024];
    folder_make();
    example_write();
    ASSERT_INT(file_get(bytes, sizeof bytes), 220);
    ASSERT_INT(strlen(json), 148);
    ASSERT(!memcmp(bytes, "\xb8\0\0\0\0\0\0\0", 8));
    ASSERT(!memcmp(bytes + 8, json, 148));
    for (int i = 8 + 148; i < 192; i++)
        ASSERT_INT(bytes[i], ' ');
    ASSERT(!memcmp(bytes + 192, "\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\x00\x00\x40\x40", 16));
    ASSERT(!memcmp(bytes + 208, ids, 12));
    folder_remove();
}

TEST(safetensors_round_trip, "what was written is found again by name, with its shape and numbers")
{
    struct safetensors *file;
    struct error err;
    float values[2];
    folder_make();
    example_write();
    ASSERT_OK(safetensors_open(path, &file, &err));
    ASSERT_INT(safetensors_count(file), 2);
    const struct safetensors_tensor *weight = safetensors_find(file, "weight");
    ASSERT(weight == safetensors_at(file, 0));
    ASSERT_STR(weight->dtype, "F32");
    ASSERT_INT(weight->dim_count, 2);
    ASSERT_INT(weight->dims[0], 2);
    ASSERT_INT(weight->dims[1], 2);
    ASSERT_INT(weight->elements, 4);
    ASSERT_INT(weight->bytes, 16);
    ASSERT_OK(safetensors_read_f32(file, weight, 1, 2, values, &err));
    ASSERT(values[0] == -2 && values[1] == 0.5f);
    const struct safetensors_tensor *ids = safetensors_find(file, "ids");
    ASSERT(!memcmp(ids->data, (int32_t[]){7, 8, 9}, 12));
    ASSERT_INT(safetensors_read_f32(file, ids, 0, 3, values, &err), -1);
    ASSERT_HAS(err.text, "tensor ids is I32; only F32, BF16, F16 and F64");
    ASSERT(!safetensors_find(file, "id"));
    safetensors_close(file);
    folder_remove();
}

/* 1.5 and -2 are 0x3fc0 and 0xc000 in BF16, 0x3e00 and 0xc000 in F16; the odd U8 before them leaves the rest on odd
 * addresses. */
TEST(safetensors_conversions, "BF16, F16 and F64 read as floats from any address")
{
    const char *json = "{\"odd\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"half\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[1,5]},"
                       "\"other\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[5,9]},"
                       "\"wide\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[9,17]}}";
    struct safetensors *file;
    struct error err;
    char bytes[512];
    float values[2];
    double wide = 0.1;
    folder_make();
    header_put(json, 17);
    size_t count = file_get(bytes, sizeof bytes);
    memcpy(bytes + count - 16, "\xc0\x3f\x00\xc0", 4);
    memcpy(bytes + count - 12, "\x00\x3e\x00\xc0", 4);
    memcpy(bytes + count - 8, &wide, 8);
    file_put(bytes, count);
    ASSERT_OK(safetensors_open(path, &file, &err));
    ASSERT_OK(safetensors_read_f32(file, safetensors_find(file, "half"), 0, 2, values, &err));
    ASSERT(values[0] == 1.5f && values[1] == -2);
    ASSERT_OK(safetensors_read_f32(file, safetensors_find(file, "other"), 0, 2, values, &err));
    ASSERT(values[0] == 1.5f && values[1] == -2);
    ASSERT_OK(safetensors_read_f32(file, safetensors_find(file, "wide"), 0, 1, values, &err));
    ASSERT(values[0] == 0.1f);
    safetensors_close(file);
    folder_remove();
}

TEST(safetensors_other_dtypes,
     "types that we cannot use are listed with their size, and one from the future without")
{
    struct safetensors *file;
    struct error err;
    float value;
    folder_make();
    header_put("{\"a\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[0,6]},"
               "\"b\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[6,10]}}",
               10);
    ASSERT_OK(safetensors_open(path, &file, &err));
    ASSERT_INT(safetensors_find(file, "a")->element_bytes, 2);
    ASSERT_INT(safetensors_find(file, "b")->element_bytes, 0);
    ASSERT_INT(safetensors_find(file, "b")->bytes, 4);
    ASSERT_INT(safetensors_read_f32(file, safetensors_find(file, "a"), 0, 1, &value, &err), -1);
    ASSERT_HAS(err.text, "tensor a is I16");
    ASSERT_INT(safetensors_read_f32(file, safetensors_find(file, "b"), 0, 1, &value, &err), -1);
    safetensors_close(file);
    folder_remove();
}

TEST(safetensors_order,
     "tensors are listed by place, whatever the order of the header, and empty ones are allowed")
{
    struct safetensors *file;
    struct error err;
    folder_make();
    header_put("{\"last\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]},"
               "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[1,1]},"
               "\"first\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}",
               3);
    ASSERT_OK(safetensors_open(path, &file, &err));
    ASSERT_STR(safetensors_at(file, 0)->name, "first");
    ASSERT_STR(safetensors_at(file, 1)->name, "none");
    ASSERT_STR(safetensors_at(file, 2)->name, "last");
    safetensors_close(file);
    folder_remove();
}

TEST(safetensors_unwritten,
     "a file appears when it is committed, in its full size, and what was not written is zero")
{
    const struct safetensors_entry entries[] = {{"a", DTYPE_F32, 1, {2}}, {"b", DTYPE_BF16, 1, {3}}};
    struct safetensors_writer *writer;
    struct error err;
    char bytes[256];
    folder_make();
    ASSERT_OK(safetensors_create(path, entries, 2, NULL, 0, &writer, &err));
    ASSERT(access(path, F_OK) && !access(partial_path, F_OK));
    ASSERT_OK(safetensors_write_at(writer, 1, 2, "\1\2", 2, &err));
    ASSERT_OK(safetensors_commit(writer, &err));
    ASSERT(!access(path, F_OK) && access(partial_path, F_OK));
    int length = file_get(bytes, sizeof bytes);
    ASSERT(!memcmp(bytes + length - 14, "\0\0\0\0\0\0\0\0\0\0\1\2\0\0", 14));
    safetensors_abort(NULL);
    folder_remove();
}

TEST(safetensors_replaces, "a commit replaces the file of that name, and an abort leaves it alone")
{
    const struct safetensors_entry entry = {"a", DTYPE_I32, 0, {0}};
    struct safetensors_writer *writer;
    struct error err;
    char bytes[128];
    folder_make();
    file_put("old", 3);
    ASSERT_OK(safetensors_create(path, &entry, 1, NULL, 0, &writer, &err));
    safetensors_abort(writer);
    ASSERT_INT(file_get(bytes, sizeof bytes), 3);
    ASSERT_OK(safetensors_create(path, &entry, 1, NULL, 0, &writer, &err));
    ASSERT_OK(safetensors_write_at(writer, 0, 0, "\1\2\3\4", 4, &err));
    ASSERT_OK(safetensors_commit(writer, &err));
    /* 8 + the 53 of {"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}, rounded up to 64, then the data */
    ASSERT_INT(file_get(bytes, sizeof bytes), 64 + 4);
    folder_remove();
}

TEST(safetensors_bad_names, "names that the format cannot hold, and folders that are not there, are refused")
{
    struct safetensors_entry twice[] = {{"a", DTYPE_F32, 0, {0}}, {"a", DTYPE_F32, 0, {0}}};
    const struct safetensors_entry latin = {"caf\xe9", DTYPE_F32, 0, {0}};
    const struct safetensors_entry huge = {"a", DTYPE_F32, 2, {1LL << 40, 1LL << 40}};
    const struct safetensors_note note = {"key", "caf\xe9"};
    struct safetensors_writer *writer;
    struct error err;
    folder_make();
    ASSERT_INT(safetensors_create(path, twice, 2, NULL, 0, &writer, &err), -1);
    ASSERT_HAS(err.text, "a tensor cannot be called \"a\"");
    twice[1].name = "__metadata__";
    ASSERT_INT(safetensors_create(path, twice, 2, NULL, 0, &writer, &err), -1);
    ASSERT_INT(safetensors_create(path, &latin, 1, NULL, 0, &writer, &err), -1);
    ASSERT_INT(safetensors_create(path, &huge, 1, NULL, 0, &writer, &err), -1);
    ASSERT_HAS(err.text, "dimension 1 of tensor a cannot be 1099511627776");
    ASSERT_INT(safetensors_create(path, twice, 1, &note, 1, &writer, &err), -1);
    ASSERT_HAS(err.text, "note \"key\"");
    ASSERT_INT(safetensors_create("/tmp/no-such-folder/x", twice, 1, NULL, 0, &writer, &err), -1);
    ASSERT_HAS(err.text, "cannot write /tmp/no-such-folder/x.partial: No such file");
    folder_remove();
}

/* The header takes 64 bytes. A limit of 66 for files of this process leaves 2 for the 4 of the tensor. */
TEST(safetensors_full_disk, "a disk that is full names what did not fit: the header, or the tensors")
{
    const struct safetensors_entry entry = {"a", DTYPE_I32, 0, {0}};
    const struct rlimit limit = {66, RLIM_INFINITY}, no_limit = {RLIM_INFINITY, RLIM_INFINITY};
    struct safetensors_writer *writer;
    struct error err;
    folder_make();
    ASSERT_INT(symlink("/dev/full", partial_path), 0);
    ASSERT_INT(safetensors_create(path, &entry, 1, NULL, 0, &writer, &err), -1);
    ASSERT_HAS(err.text, "cannot write the header of");
    ASSERT_HAS(err.text, "No space left on device");

    signal(SIGXFSZ, SIG_IGN);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int result = safetensors_create(path, &entry, 1, NULL, 0, &writer, &err);
    setrlimit(RLIMIT_FSIZE, &no_limit);
    ASSERT_INT(result, -1);
    ASSERT_HAS(err.text, "cannot write the tensors of");
    ASSERT_HAS(err.text, "File too large");
    ASSERT(access(partial_path, F_OK));
    folder_remove();
}

/* Bytes 1 .. 14 of the two tensors, by two writers, last things first. */
TEST(safetensors_together, "two writers of one file leave the bytes that one would have")
{
    const struct safetensors_entry entries[] = {{"a", DTYPE_F32, 1, {2}}, {"b", DTYPE_BF16, 1, {3}}};
    const struct safetensors_note note = {"format", "pt"};
    const char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    char expected[256], got[256];
    struct safetensors_writer *writer, *other;
    struct error err;
    folder_make();
    ASSERT_OK(safetensors_create(path, entries, 2, &note, 1, &writer, &err));
    ASSERT_OK(safetensors_write_at(writer, 0, 0, bytes, 8, &err));
    ASSERT_OK(safetensors_write_at(writer, 1, 0, bytes + 8, 6, &err));
    ASSERT_OK(safetensors_commit(writer, &err));
    int length = file_get(expected, sizeof expected);

    ASSERT_OK(safetensors_create(path, entries, 2, &note, 1, &writer, &err));
    ASSERT_OK(safetensors_join(path, entries, 2, &note, 1, &other, &err));
    ASSERT_OK(safetensors_write_at(other, 1, 2, bytes + 10, 4, &err));
    ASSERT_OK(safetensors_write_at(writer, 1, 0, bytes + 8, 2, &err));
    ASSERT_OK(safetensors_write_at(other, 0, 0, bytes, 5, &err));
    ASSERT_OK(safetensors_leave(other, &err));
    ASSERT_OK(safetensors_write_at(writer, 0, 5, bytes + 5, 3, &err));
    ASSERT_OK(safetensors_commit(writer, &err));
    ASSERT_INT(file_get(got, sizeof got), length);
    ASSERT(!memcmp(got, expected, (size_t)length));
    folder_remove();
}

/* Each entry's header is as long as the other's, so that only the size tells the second file apart. */
TEST(safetensors_join_refused, "a writer joins no file that is not there, or not the one it expects")
{
    const struct safetensors_entry entry = {"a", DTYPE_F32, 1, {2}}, larger = {"a", DTYPE_F32, 1, {3}};
    struct safetensors_writer *writer, *other;
    struct error err;
    folder_make();
    ASSERT_INT(safetensors_join(path, &entry, 1, NULL, 0, &other, &err), -1);
    ASSERT_HAS(err.text, "which another rank has made: No such file");
    ASSERT_HAS(err.text, "choose a folder that all ranks share");
    ASSERT_OK(safetensors_create(path, &entry, 1, NULL, 0, &writer, &err));
    ASSERT_INT(safetensors_join(path, &larger, 1, NULL, 0, &other, &err), -1);
    ASSERT_HAS(err.text, "is not the file that another rank has made");

    ASSERT_OK(safetensors_join(path, &entry, 1, NULL, 0, &other, &err));
    safetensors_abort(other);
    ASSERT(!access(partial_path, F_OK));
    safetensors_abort(writer);
    ASSERT(access(partial_path, F_OK));
    folder_remove();
}

/* As on a disk whose last bytes others took since the file was created. The header takes 64 bytes. */
TEST(safetensors_full_later, "a disk that is full when a place is written to is told")
{
    const struct safetensors_entry entry = {"a", DTYPE_F32, 1, {2}};
    const struct rlimit limit = {66, RLIM_INFINITY}, no_limit = {RLIM_INFINITY, RLIM_INFINITY};
    struct safetensors_writer *writer;
    struct error err;
    folder_make();
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_OK(safetensors_create(path, &entry, 1, NULL, 0, &writer, &err));
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int written = safetensors_write_at(writer, 0, 4, "\1\2\3\4", 4, &err);
    setrlimit(RLIMIT_FSIZE, &no_limit);
    ASSERT_INT(written, -1);
    ASSERT_HAS(err.text, "cannot write tensor a to");
    ASSERT_HAS(err.text, "free some space");
    safetensors_abort(writer);
    folder_remove();
}

/* Headers that lie, one lie each, over 8 bytes of data. */
TEST(safetensors_lies, "each way in which a header can lie is refused with its own reason")
{
    static const struct {
        const char *json, *message;
    } lies[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", "the header is no JSON"},
        {"[]", "no JSON object"},
        {"{}", "the tensors end at byte 0 of the data, but the file holds 8"},
        {"{\"a\":7}", "tensor a is not described by a JSON object"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "\"dtype\" is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", "\"shape\" is a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}",
         "ends at byte 12 of the data, but the file holds only 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}",
         "3 elements of F32, which do not take 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,\"1\"],\"data_offsets\":[0,8]}}", "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}",
         "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}}",
         "do not take 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
         "has 9 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":"
         "[1],\"data_offsets\":[4,8]}}",
         "duplicate"},
        {"{\"a\":{\"dtype\":\"I8\",\"shape\":[6],\"data_offsets\":[0,6]},\"b\":{\"dtype\":\"F32\",\"shape\":["
         "1],\"data_offsets\":[4,8]}}",
         "tensor b begins at byte 4 of the data, but the one before it ends at 6"},
        {"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"F32\",\"shape\":["
         "1],\"data_offsets\":[4,8]}}",
         "tensor b begins at byte 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "the tensors end at byte 4"},
        {"{\"__metadata__\":[]}", "__metadata__ is no JSON object"},
        {"{\"__metadata__\":{\"step\":3}}", "value of \"step\" in __metadata__ is no string"},
    };
    folder_make();
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        header_put(lies[i].json, 8);
        const char *message = must_fail();
        ASSERT_HAS(message, path);
        ASSERT_HAS(message, lies[i].message);
    }
    folder_remove();
}

TEST(safetensors_lengths, "a file that is no safetensors file at all is refused at its first bytes")
{
    folder_make();
    ASSERT_HAS(must_fail(), "No such file");
    file_put("", 0);
    ASSERT_HAS(must_fail(), "has 0 bytes, too few");
    file_put("{}\n\n\n\n\n\n\n\n", 10);
    ASSERT_HAS(must_fail(), "but at most 2 are possible");
    file_put("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    ASSERT_HAS(must_fail(), "18446744073709551615 bytes");
    file_put("\0\0\0\0\0\0\0\0{}", 10);
    ASSERT_HAS(must_fail(), "no JSON");
    folder_remove();
}

/* Every shorter file: 0 to 219 of the 220 bytes. */
TEST(safetensors_truncated, "a file cut short at any byte is refused")
{
    folder_make();
    example_write();
    for (int length = 219; length >= 0; length--) {
        ASSERT_INT(truncate(path, length), 0);
        must_fail();
    }
    folder_remove();
}

/* Touches every byte that an opened file offers, so that a wrong bound would end the test. */
static int64_t touch_all(const struct safetensors *file)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        struct error err;
        float value;
        for (int64_t byte = 0; byte < tensor->bytes; byte++)
            sum += tensor->data[byte];
        if (tensor->elements)
            safetensors_read_f32(file, tensor, tensor->elements - 1, 1, &value, &err);
        ASSERT(safetensors_find(file, tensor->name) == tensor);
    }
    return sum;
}

/* One to four changes: a random byte, a digit or a sign of JSON at a random place, or a cut at the end. */
static size_t corrupt(struct random_stream stream, const char *good, size_t count, char *bad)
{
    static const char signs[] = "0123456789-{}[]\",:.eE \\";
    memcpy(bad, good, count);
    int64_t changes = 1 + random_below(stream, 0, 4);
    for (uint64_t change = 1; change <= (uint64_t)changes; change++) {
        int64_t place = random_below(stream, 4 * change, (int64_t)count);
        switch (random_below(stream, 4 * change + 1, 8)) {
        case 0:
            count = (size_t)max_i64(place, 1);
            break;
        case 1:
        case 2:
            bad[place] = (char)random_below(stream, 4 * change + 2, 256);
            break;
        default:
            bad[place] = signs[random_below(stream, 4 * change + 2, sizeof signs - 1)];
        }
    }
    return count;
}

TEST(safetensors_fuzz, "20,000 corrupted files are refused with a message or read within their bounds")
{
    char good[512], bad[512];
    int64_t opened = 0, refused = 0;
    folder_make();
    example_write();
    size_t count = file_get(good, sizeof good);
    folder_remove();
    int memory = memfd_create("corrupted", 0); /* a file on a disk takes ten times as long */
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    for (uint64_t i = 0; i < 20000; i++) {
        struct safetensors *file;
        struct error err = {0};
        size_t length = corrupt(random_stream(1, i), good, count, bad);
        ASSERT(ftruncate(memory, (off_t)length) == 0 && pwrite(memory, bad, length, 0) == (ssize_t)length);
        if (safetensors_open(path, &file, &err)) {
            ASSERT_HAS(err.text, path);
            refused++;
            continue;
        }
        ASSERT(touch_all(file) >= 0);
        safetensors_close(file);
        opened++;
    }
    ASSERT_INT(opened + refused, 20000);
    ASSERT(opened > 1000 && refused > 1000); /* both ways were tried */
    close(memory);
}
