/* What a program of the tests reads of its own stderr: the words that HIGHWIRE_LOG=1 has for a mistake. */
#ifndef WORDS_H
#define WORDS_H
#include "rig.h"
#include <fcntl.h>
#include <sys/stat.h>

static int saved_stderr, captured;

static void capture(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK((captured = memfd_create("stderr", 0)) >= 0);
    CHECK((saved_stderr = dup(2)) >= 0);
    CHECK(fcntl(captured, F_SETFL, O_APPEND) == 0);
    CHECK(dup2(captured, 2) == 2);
}

/* How much of it was read. Nothing is cut off: another thread may be about to print the next line. */
static off_t taken;

/* What was printed since the last call. */
static const char *printed(void)
{
    static char text[16384];
    ssize_t length = pread(captured, text, sizeof text - 1, taken);
    text[length > 0 ? length : 0] = 0;
    taken += length > 0 ? length : 0;
    return text;
}

static int cases;

/* The words, in this order, and one line with them. */
static void expect(const char *what, const char *first, const char *second, const char *third)
{
    const char *text = printed(), *at = text, *words[] = {first, second, third};
    for (int i = 0; i < 3; i++) {
        if (!words[i])
            continue;
        at = strstr(at, words[i]);
        if (!at) {
            dprintf(saved_stderr, "%s: `%s` is not in: %s\n", what, words[i], *text ? text : "(nothing)");
            exit(1);
        }
    }
    cases++;
    printf("%s\n    %s", what, text);
}

/* Whether a whole line was printed since the last call of printed. */
static int has_printed(void)
{
    struct stat size;
    char last;
    CHECK(fstat(captured, &size) == 0);
    return size.st_size > taken && pread(captured, &last, 1, size.st_size - 1) == 1 && last == '\n';
}

#endif
