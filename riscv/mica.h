/* A key-value store after MICA: keys of 16 bytes, values of 512, hashed by the client.
 *
 *   request: operation · hash · key, 2 words [· value, 64 words: SET]     answer: status [· value: GET]
 *
 * GET of an absent key is NOT_FOUND. SET overwrites, or inserts while there is room. */
#ifndef MICA_H
#define MICA_H

#define TABLE_ITEMS 12288
#define TABLE_BUCKETS 4096
#define TABLE_VALUE_WORDS 64
#include "status.h"
#include "table.h"

enum mica_operation { MICA_GET = 1, MICA_SET = 2 };

static inline void mica_get(uint64_t header, uint64_t hash, const struct table_key *key) {
    struct table_bucket *home = table_lock(hash);
    const struct table_item *item = table_find(home, hash, key);
    if (item) {
        nanopu_write(nanopu_answer(header, 1 + TABLE_VALUE_WORDS));
        nanopu_write(STATUS_OK);
        nanopu_give(item->value, TABLE_VALUE_WORDS);
    } else {
        answer_status(header, STATUS_NOT_FOUND);
    }
    table_unlock(home);
}

static inline void mica_set(uint64_t header, uint64_t hash, const struct table_key *key) {
    struct table_bucket *home = table_lock(hash);
    struct table_item *item = table_find(home, hash, key);
    if (!item) item = table_insert(home, hash, key);
    if (item) {
        nanopu_take(item->value, TABLE_VALUE_WORDS);
        answer_status(header, STATUS_OK);
    } else {
        refuse(header, TABLE_VALUE_WORDS, STATUS_FULL);
    }
    table_unlock(home);
}

static inline void mica_serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    if (operation == MICA_GET ? words != 4 : operation != MICA_SET || words != 4 + TABLE_VALUE_WORDS) {
        refuse(header, words - 1, STATUS_MALFORMED);
        return;
    }
    uint64_t hash = nanopu_read();
    struct table_key key;
    key.word[0] = nanopu_read();
    key.word[1] = nanopu_read();
    if (operation == MICA_GET) {
        mica_get(header, hash, &key);
    } else {
        mica_set(header, hash, &key);
    }
}

static inline __attribute__((noreturn)) void mica_run(uint64_t context) {
    nanopu_add_context(context, 0);
    for (;;) {
        nanopu_wait();
        mica_serve(nanopu_read());
        nanopu_done();
    }
}

#endif
