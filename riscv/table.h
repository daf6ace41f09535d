/* A hash table of fixed-size values, after MICA: an index of cache-line buckets with short tags, and items in a pool.
 *
 * Before including, say TABLE_ITEMS, TABLE_BUCKETS (a power of two), and TABLE_VALUE_WORDS. A bucket is a line of memory:
 *
 *   word 0: lock 32 · next bucket of the chain 32 (0: none)     words 1..7: tag 16 · item 48 (0: free)
 *
 * The home bucket's lock guards its chain and the items in it. Whoever knows the hash of a key need not read it to find it absent. */
#ifndef TABLE_H
#define TABLE_H

#include "nanopu.h"

#define TABLE_ENTRIES 7
#define TABLE_SPARES (TABLE_BUCKETS / 4)
#define TABLE_TAG_SHIFT 48

struct table_key {
    uint64_t word[2];
};

struct table_item {
    struct table_key key;
    /* The write that made it what it is, for those who number their writes. */
    uint64_t version;
    uint64_t value[TABLE_VALUE_WORDS];
};

struct table_bucket {
    uint32_t lock;
    uint32_t next;
    uint64_t entry[TABLE_ENTRIES];
} __attribute__((aligned(64)));

/* Item 0 and spare bucket 0 stand for none. */
static struct table_item table_items[TABLE_ITEMS + 1] __attribute__((aligned(64)));
static struct table_bucket table_buckets[TABLE_BUCKETS];
static struct table_bucket table_spares[TABLE_SPARES + 1];
static uint32_t table_items_used, table_spares_used;

/* For those who have no hash from elsewhere. */
static inline uint64_t table_hash(const struct table_key *key) {
    uint64_t hash = (key->word[0] ^ key->word[1] >> 29) * 0x9e3779b97f4a7c15;
    hash = (hash ^ key->word[1] ^ hash >> 32) * 0xbf58476d1ce4e5b9;
    return hash ^ hash >> 31;
}

static inline struct table_bucket *table_home(uint64_t hash) { return &table_buckets[hash % TABLE_BUCKETS]; }

/* Cores that share the table hold this while they look at, or change, what a hash leads to. */
static inline struct table_bucket *table_lock(uint64_t hash) {
    struct table_bucket *home = table_home(hash);
    while (__atomic_exchange_n(&home->lock, 1, __ATOMIC_ACQUIRE)) {
    }
    return home;
}
static inline void table_unlock(struct table_bucket *home) { __atomic_store_n(&home->lock, 0, __ATOMIC_RELEASE); }

/* The item with this key in the chain of `bucket`, or null. */
static inline struct table_item *table_find(struct table_bucket *bucket, uint64_t hash, const struct table_key *key) {
    for (;; bucket = &table_spares[bucket->next]) {
        for (int i = 0; i < TABLE_ENTRIES; i++) {
            uint64_t entry = bucket->entry[i];
            if (entry >> TABLE_TAG_SHIFT != hash >> TABLE_TAG_SHIFT || entry << 16 == 0) continue;
            struct table_item *item = &table_items[entry << 16 >> 16];
            if (item->key.word[0] == key->word[0] && item->key.word[1] == key->word[1]) return item;
        }
        if (bucket->next == 0) return 0;
    }
}

/* One more of `used`, or 0 if all `count` are in use. Cores count together. */
static inline uint32_t table_allocate(uint32_t *used, uint32_t count) {
    if (__atomic_load_n(used, __ATOMIC_RELAXED) >= count) return 0;
    uint32_t number = __atomic_add_fetch(used, 1, __ATOMIC_RELAXED);
    return number <= count ? number : 0;
}

/* A new item with this key, which the chain does not have; or null if there is no room. */
static inline struct table_item *table_insert(struct table_bucket *bucket, uint64_t hash, const struct table_key *key) {
    for (;; bucket = &table_spares[bucket->next]) {
        for (int i = 0; i < TABLE_ENTRIES; i++) {
            if (bucket->entry[i] != 0) continue;
            uint32_t number = table_allocate(&table_items_used, TABLE_ITEMS);
            if (number == 0) return 0;
            table_items[number].key = *key;
            bucket->entry[i] = hash >> TABLE_TAG_SHIFT << TABLE_TAG_SHIFT | number;
            return &table_items[number];
        }
        if (bucket->next == 0) bucket->next = table_allocate(&table_spares_used, TABLE_SPARES);
        if (bucket->next == 0) return 0;
    }
}

#endif
