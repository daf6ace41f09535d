/* What replicas of a chain, and those who ask them, say to each other. All messages are whole words.
 *
 *   WRITE · token · key, 2 words · value, 8 words       to the head
 *   READ · token · key                                  to the tail
 *   PEEK · token · key                                  to any replica: what it holds, committed or not
 *   CONFIGURE · token · predecessor · successor         addresses, 0 for none
 *   UPDATE · token · client · version · key · value     from replica to replica
 *   REPLY · token · status [· version [· value]]        the answer to each; only this is never answered
 *
 * A token comes back in the reply, so that whoever asks on behalf of others need remember nothing. */
#ifndef CHAIN_H
#define CHAIN_H

#define TABLE_ITEMS 16384
#define TABLE_BUCKETS 8192
#define TABLE_VALUE_WORDS 8
#include "status.h"
#include "table.h"

enum chain_operation { WRITE = 1, READ = 2, PEEK = 3, CONFIGURE = 4, UPDATE = 5, REPLY = 6, OPERATIONS };

static const uint8_t chain_words[OPERATIONS] = {
    [WRITE] = 4 + TABLE_VALUE_WORDS, [READ] = 4, [PEEK] = 4, [CONFIGURE] = 4, [UPDATE] = 6 + TABLE_VALUE_WORDS,
};

struct update {
    uint64_t operation, token;
    /* The header of the client's request: where the reply goes. */
    uint64_t client;
    uint64_t version;
    struct table_key key;
    uint64_t value[TABLE_VALUE_WORDS];
};

static inline void chain_reply(uint64_t header, uint64_t token, enum status status) {
    nanopu_write(nanopu_answer(header, 3));
    nanopu_write(REPLY);
    nanopu_write(token);
    nanopu_write(status);
}

static inline void chain_reply_version(uint64_t header, uint64_t token, uint64_t version) {
    nanopu_write(nanopu_answer(header, 4));
    nanopu_write(REPLY);
    nanopu_write(token);
    nanopu_write(STATUS_OK);
    nanopu_write(version);
}

#endif
