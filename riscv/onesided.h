/* What one-sided RDMA does, as messages to a program: reads, writes and atomic operations on a table of 3.2 MB.
 *
 *   request: operation · address [· operand [· operand]]          answer: status [· word]
 *   READ                → the word            INDIRECT            → the word at the address that is there
 *   WRITE value                               FETCH_ADD addend    → the word as it was
 *   CAS expected, new   → the word as it was
 *
 * Addresses count bytes from the table's beginning and are multiples of eight. At the beginning word i holds the address of word
 * 154321 i, modulo the table. */
#ifndef ONESIDED_H
#define ONESIDED_H

#include "status.h"

#define ONESIDED_WORDS 400000UL

enum onesided_operation { READ = 1, WRITE = 2, CAS = 3, FETCH_ADD = 4, INDIRECT = 5, OPERATIONS };

/* Words of each request; none has the length that stands for what is no operation. */
static const uint8_t onesided_request_words[OPERATIONS] = {
    [0] = 255, [READ] = 2, [WRITE] = 3, [CAS] = 4, [FETCH_ADD] = 3, [INDIRECT] = 2,
};

#endif
