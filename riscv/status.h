/* What services answer: the first word says how it went. */
#ifndef STATUS_H
#define STATUS_H

#include "nanopu.h"

enum status {
    STATUS_OK = 0,
    STATUS_NOT_FOUND = 1,
    /* An unknown operation, or a message too short or too long for its own. */
    STATUS_MALFORMED = 2,
    /* No room left. */
    STATUS_FULL = 3,
    /* An address outside, or between words. */
    STATUS_BAD_ADDRESS = 4,
    /* Somebody else has to be asked. */
    STATUS_NOT_HERE = 5,
    /* It may have happened, or may yet. */
    STATUS_UNKNOWN = 6,
};

/* Answers with nothing but a status. */
static inline void answer_status(uint64_t header, enum status status) {
    nanopu_write(nanopu_answer(header, 1));
    nanopu_write(status);
}

/* The same, and throws away the words of the request that have not been read. */
static inline void refuse(uint64_t header, int64_t words_left, enum status status) {
    nanopu_skip(words_left);
    answer_status(header, status);
}

#endif
