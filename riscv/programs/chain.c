/* A replica of a chain: writes go in at the head and are answered by the tail, which has them last; so it answers reads as well.
 *
 * The head numbers the writes. A replica that has a newer version of a key leaves it and still passes the older one on: messages may overtake each
 * other, and no packet is waited for but the lost one. A chain is made, and shortened after a failure, by CONFIGURE; alone, a
 * replica is head and tail. Messages: chain.h. */
#include "chain.h"

static uint64_t predecessor, successor;
static uint64_t newest_version;

static inline void pass_on(const struct update *update) {
    if (!successor) return chain_reply_version(update->client, update->token, update->version);
    nanopu_write(nanopu_header(successor, 0, sizeof *update));
    nanopu_give(&update->operation, sizeof *update / 8);
}

static void apply(const struct update *update) {
    uint64_t hash = table_hash(&update->key);
    struct table_bucket *home = table_home(hash);
    struct table_item *item = table_find(home, hash, &update->key);
    if (!item) item = table_insert(home, hash, &update->key);
    if (!item) return chain_reply(update->client, update->token, STATUS_FULL);
    if (update->version > newest_version) newest_version = update->version;
    if (update->version > item->version) {
        item->version = update->version;
        for (int i = 0; i < TABLE_VALUE_WORDS; i++) item->value[i] = update->value[i];
    }
    pass_on(update);
}

static void write(uint64_t header, uint64_t token) {
    struct update update = {UPDATE, token, header, newest_version + 1, {{0}}, {0}};
    nanopu_take(update.key.word, 2 + TABLE_VALUE_WORDS);
    if (predecessor) return chain_reply(header, token, STATUS_NOT_HERE);
    apply(&update);
}

static void update(uint64_t header, uint64_t token) {
    struct update update = {.operation = UPDATE, .token = token};
    nanopu_take(&update.client, sizeof update / 8 - 2);
    if (nanopu_peer(header) != predecessor) return chain_reply(header, token, STATUS_NOT_HERE);
    apply(&update);
}

static void read(uint64_t header, uint64_t token, int is_here) {
    struct table_key key;
    nanopu_take(key.word, 2);
    uint64_t hash = table_hash(&key);
    const struct table_item *item = is_here ? table_find(table_home(hash), hash, &key) : 0;
    if (!item) return chain_reply(header, token, is_here ? STATUS_NOT_FOUND : STATUS_NOT_HERE);
    nanopu_write(nanopu_answer(header, 4 + TABLE_VALUE_WORDS));
    nanopu_write(REPLY);
    nanopu_write(token);
    nanopu_write(STATUS_OK);
    nanopu_load(&item->version);
    nanopu_give(item->value, TABLE_VALUE_WORDS);
}

static void configure(uint64_t header, uint64_t token) {
    predecessor = nanopu_read();
    successor = nanopu_read();
    chain_reply(header, token, STATUS_OK);
}

static inline void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    uint64_t token = words > 1 ? nanopu_read() : 0;
    if (operation == REPLY) return nanopu_skip(words - 2);
    if (operation == 0 || operation >= OPERATIONS || words != chain_words[operation]) {
        nanopu_skip(words - 2);
        return chain_reply(header, token, STATUS_MALFORMED);
    }
    switch (operation) {
    case WRITE: return write(header, token);
    case UPDATE: return update(header, token);
    case READ: return read(header, token, successor == 0);
    case PEEK: return read(header, token, 1);
    default: return configure(header, token);
    }
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
