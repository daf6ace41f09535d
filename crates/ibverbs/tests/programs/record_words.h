/* Compares the words of a log with those of `highwire explain`. */
#ifndef RECORD_WORDS_H
#define RECORD_WORDS_H
#include "record.h"

/* A failure of a request is explained by the reason of the end that refused: the head of the line is to be found, and its status. */
static void find_failure(const char *all, char *line)
{
    char *status = strstr(line, "ends with IBV_WC_"), *number = strstr(line, "wr_id ");
    CHECK(status && number);
    *strchr(status, ':') = 0;
    *strchr(number, ',') = 0;
    char *pair_end = strstr(line, "): ");
    CHECK(pair_end);
    pair_end[2] = 0;
    const char *at = strstr(all, line);
    for (; at; at = strstr(at + 1, line)) {
        const char *end = strchr(at, '\n');
        const char *found_number = strstr(at, number), *found_status = strstr(at, status);
        if (end && found_number && found_number < end && found_status && found_status < end)
            return;
    }
    fprintf(stderr, "`%s … %s … %s` is not explained in:\n%s\n", line, number, status, all);
    exit(1);
}

/* Runs the program itself with this argument; each of at least so many lines of its log is explained. */
static int explain_all(const char *self, const char *argument, int wanted)
{
    record_begin();
    static char log[1 << 18];
    strcpy(log, recorded(self, argument, 0));
    const char *all = explained("");
    int lines = 0;
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        char *words = strstr(line, "highwire: "), *often = strstr(line, " (said ");
        if (!words)
            continue;
        words += strlen("highwire: ");
        if (often)
            *often = 0;
        if (strstr(words, ", ends with IBV_WC_"))
            find_failure(all, words);
        else
            has(all, words, "a line of the log");
        lines++;
    }
    CHECK(lines >= wanted);
    record_end();
    printf("%d lines were explained\n", lines);
    return 0;
}

#endif
