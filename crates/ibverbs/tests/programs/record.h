/* How a program of the tests runs itself under `highwire run --record`, and reads what `highwire explain` says. */
#ifndef RECORD_H
#define RECORD_H
#include "rig.h"
#include <signal.h>
#include <sys/wait.h>

/* `record_options` are further ones of `highwire run`. */
static char record_path[64], record_output[64], record_options[64];

static void record_begin(void)
{
    snprintf(record_path, sizeof record_path, "/tmp/highwire-record-%d.hwr", (int)getpid());
    snprintf(record_output, sizeof record_output, "/tmp/highwire-record-%d.out", (int)getpid());
}

static void record_end(void)
{
    CHECK(unlink(record_path) == 0);
    CHECK(unlink(record_output) == 0);
}

/* A whole file as text; it lasts until the next call but one. */
static const char *whole(const char *path)
{
    static char texts[2][1 << 18];
    static int next;
    char *text = texts[next++ % 2];
    FILE *file = fopen(path, "r");
    CHECK(file);
    text[fread(text, 1, sizeof texts[0] - 1, file)] = 0;
    fclose(file);
    return text;
}

/* What a command prints; it must end with this status as a shell sees it. */
static const char *printed_by(const char *command, int status)
{
    char line[512];
    snprintf(line, sizeof line, "%s >%s 2>&1", command, record_output);
    int result = system(line);
    CHECK(WIFEXITED(result));
    if (WEXITSTATUS(result) != status)
        fprintf(stderr, "%s: %s\n", command, whole(record_output));
    CHECK_EQUAL(WEXITSTATUS(result), status);
    return whole(record_output);
}

/* Runs this program under the command; returns what it prints. */
static const char *recorded(const char *self, const char *arguments, int status)
{
    char line[400];
    snprintf(line, sizeof line, "\"$HIGHWIRE_BROKER\" run %s --record %s -- %s %s", record_options, record_path, self, arguments);
    return printed_by(line, status);
}

static const char *explained(const char *options)
{
    char line[400];
    snprintf(line, sizeof line, "\"$HIGHWIRE_BROKER\" explain %s %s", record_path, options);
    return printed_by(line, 0);
}

static const char *replayed(const char *options)
{
    char line[400];
    snprintf(line, sizeof line, "\"$HIGHWIRE_BROKER\" replay %s %s", record_path, options);
    return printed_by(line, 0);
}

static void has(const char *text, const char *word, const char *what)
{
    if (!strstr(text, word)) {
        fprintf(stderr, "%s: `%s` is not in:\n%s\n", what, word, text);
        exit(1);
    }
}

static void lacks(const char *text, const char *word, const char *what)
{
    if (strstr(text, word)) {
        fprintf(stderr, "%s: `%s` is in:\n%s\n", what, word, text);
        exit(1);
    }
}

#endif
