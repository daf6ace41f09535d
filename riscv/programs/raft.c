/* Raft: servers elect a leader, and it replicates a log of writes and reads to a key-value table.
 *
 * What a real server keeps on disk lies in memory here, so a server that was cut off may come back, but not one that forgot; nor, as
 * there are no snapshots, one that missed more than the log holds. Reads go through the log like writes. Messages: raft.h. */
#include "raft.h"

struct peer {
    uint64_t address;
    /* The next entry to send, the last that is known to be there, and the answers that it owes. */
    uint64_t next, match;
    int64_t owed;
    int is_for_us;
};

static struct peer peers[SERVERS_MAX];
static uint64_t server_count, self;

static uint64_t current_term, voted_for;
static enum raft_role role;
static uint64_t leader;
static uint64_t last, committed, applied;
/* Entry i is at i modulo the size; entry 0 has term 0. The request of a client that waits for it stands beside it. */
static struct entry entries[LOG_ENTRIES];
static uint64_t clients[LOG_ENTRIES];

static uint64_t election_cycles, deadline, heartbeat, random_state;

static inline struct entry *at(uint64_t index) { return &entries[index % LOG_ENTRIES]; }

static uint64_t random_below(uint64_t bound) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* Nobody is waited for longer than this; every server's wait is another one. */
static void put_off_election(void) { deadline = nanopu_cycle() + election_cycles + random_below(election_cycles); }

static void answer_leader(uint64_t header) {
    nanopu_write(nanopu_answer(header, 2));
    nanopu_write(STATUS_NOT_HERE);
    nanopu_write(leader == self ? 0 : leader);
}

static void answer_item(uint64_t header, const struct table_item *item) {
    if (!item) return answer_status(header, STATUS_NOT_FOUND);
    nanopu_write(nanopu_answer(header, 1 + TABLE_VALUE_WORDS));
    nanopu_write(STATUS_OK);
    nanopu_give(item->value, TABLE_VALUE_WORDS);
}

/* Does what has been agreed on, and tells the client that asked here. */
static void apply(void) {
    while (applied < committed) {
        const struct entry *entry = at(++applied);
        uint64_t client = clients[applied % LOG_ENTRIES];
        clients[applied % LOG_ENTRIES] = 0;
        uint64_t hash = table_hash(&entry->key);
        struct table_bucket *home = table_home(hash);
        struct table_item *item = entry->operation ? table_find(home, hash, &entry->key) : 0;
        if (entry->operation == WRITE) {
            if (!item) item = table_insert(home, hash, &entry->key);
            for (int i = 0; item && i < TABLE_VALUE_WORDS; i++) item->value[i] = entry->value[i];
            if (client) answer_status(client, item ? STATUS_OK : STATUS_FULL);
        } else if (client) {
            answer_item(client, item);
        }
    }
}

/* Forgets entries from `index` on, and tells clients that theirs may be lost. */
static void cut(uint64_t index) {
    for (; last >= index; last--) {
        uint64_t *client = &clients[last % LOG_ENTRIES];
        if (*client) answer_status(*client, STATUS_UNKNOWN);
        *client = 0;
    }
}

static void follow(uint64_t term, uint64_t whom) {
    if (role != FOLLOWER) put_off_election();
    if (term > current_term) {
        current_term = term;
        voted_for = 0;
    }
    role = FOLLOWER;
    leader = whom;
}

/* The oldest entry that is still here. */
static uint64_t oldest(void) { return last < LOG_ENTRIES ? 0 : last - LOG_ENTRIES + 1; }

/* Sends a server what it lacks, or, if nothing, that the leader is still there. One that lacks more than the log holds hears only that. */
static void append_to(struct peer *peer) {
    if (peer->owed >= WINDOW) return;
    if (peer->next <= oldest()) peer->next = oldest() + 1;
    uint64_t count = last + 1 - peer->next;
    if (count > BATCH) count = BATCH;
    peer->owed++;
    nanopu_write(nanopu_header(peer->address, 0, 8 * (5 + count * ENTRY_WORDS)));
    nanopu_write(APPEND);
    nanopu_write(current_term);
    nanopu_write(peer->next - 1);
    nanopu_write(at(peer->next - 1)->term);
    nanopu_write(committed);
    for (; count > 0; count--) nanopu_give(&at(peer->next++)->term, ENTRY_WORDS);
}

static void append_to_all(int even_nothing) {
    for (uint64_t i = 0; i < server_count; i++) {
        if (peers[i].address != self && (even_nothing || peers[i].next <= last)) append_to(&peers[i]);
    }
    if (even_nothing) heartbeat = nanopu_cycle() + election_cycles / 4;
}

/* Commits what most servers have; of earlier terms only together with something of this one (Raft §5.4.2). */
static void commit(void) {
    uint64_t index = last;
    for (; index > committed && at(index)->term == current_term; index--) {
        uint64_t holders = 0;
        for (uint64_t i = 0; i < server_count; i++) holders += peers[i].address == self || peers[i].match >= index;
        if (2 * holders <= server_count) continue;
        committed = index;
        apply();
        return;
    }
}

static void lead(void) {
    role = LEADER;
    leader = self;
    for (uint64_t i = 0; i < server_count; i++) {
        peers[i].next = last + 1;
        peers[i].match = 0;
    }
    struct entry *entry = at(++last);
    entry->term = current_term;
    entry->operation = 0;
    clients[last % LOG_ENTRIES] = 0;
    append_to_all(1);
    commit();
}

static void count_votes(void) {
    uint64_t votes = 0;
    for (uint64_t i = 0; i < server_count; i++) votes += peers[i].is_for_us;
    if (2 * votes > server_count) lead();
}

static void stand_for_election(void) {
    role = CANDIDATE;
    leader = 0;
    current_term++;
    voted_for = self;
    put_off_election();
    for (uint64_t i = 0; i < server_count; i++) {
        struct peer *peer = &peers[i];
        peer->is_for_us = peer->address == self;
        if (peer->is_for_us || peer->owed >= WINDOW) continue;
        peer->owed++;
        nanopu_write(nanopu_header(peer->address, 0, 8 * 4));
        nanopu_write(VOTE);
        nanopu_write(current_term);
        nanopu_write(last);
        nanopu_write(at(last)->term);
    }
    count_votes();
}

static void on_vote(uint64_t header, uint64_t term) {
    uint64_t their_last = nanopu_read(), their_term = nanopu_read();
    if (term > current_term) follow(term, 0);
    uint64_t our_term = at(last)->term;
    int is_recent = their_term > our_term || (their_term == our_term && their_last >= last);
    int is_yes = term == current_term && is_recent && (!voted_for || voted_for == nanopu_peer(header));
    if (is_yes) {
        voted_for = nanopu_peer(header);
        put_off_election();
    }
    nanopu_write(nanopu_answer(header, 3));
    nanopu_write(VOTED);
    nanopu_write(current_term);
    nanopu_write(is_yes);
}

static void on_voted(struct peer *peer, uint64_t term) {
    uint64_t is_yes = nanopu_read();
    if (term > current_term) return follow(term, 0);
    if (role != CANDIDATE || term < current_term) return;
    peer->is_for_us |= is_yes != 0;
    count_votes();
}

static void answer_append(uint64_t header, int is_yes, uint64_t index) {
    nanopu_write(nanopu_answer(header, 4));
    nanopu_write(APPENDED);
    nanopu_write(current_term);
    nanopu_write(is_yes);
    nanopu_write(index);
}

/* The leader has committed so far, and we agree with it up to `index`. */
static void learn(uint64_t leader_committed, uint64_t index) {
    uint64_t known = leader_committed < index ? leader_committed : index;
    if (known > committed) committed = known;
    apply();
}

static void on_append(uint64_t header, uint64_t term, int64_t words) {
    uint64_t previous = nanopu_read(), previous_term = nanopu_read(), leader_committed = nanopu_read();
    if (term < current_term) {
        nanopu_skip(words);
        return answer_append(header, 0, last);
    }
    follow(term, nanopu_peer(header));
    put_off_election();
    /* What is applied is the same everywhere, so below it nothing needs comparing. */
    if (previous > last || (previous > applied && at(previous)->term != previous_term)) {
        nanopu_skip(words);
        return answer_append(header, 0, previous > last ? last : applied);
    }
    learn(leader_committed, previous);
    uint64_t index = previous;
    for (; words > 0; words -= ENTRY_WORDS) {
        struct entry entry;
        nanopu_take(&entry.term, ENTRY_WORDS);
        /* No room: the leader hears that it has to send the rest again. */
        if (index + 1 >= applied + LOG_ENTRIES) continue;
        index++;
        if (index <= applied || (index <= last && at(index)->term == entry.term)) continue;
        if (index <= last) cut(index);
        last = index;
        *at(index) = entry;
        clients[index % LOG_ENTRIES] = 0;
    }
    answer_append(header, 1, index);
    learn(leader_committed, index);
}

static void on_appended(struct peer *peer, uint64_t term) {
    uint64_t is_yes = nanopu_read(), index = nanopu_read();
    if (term > current_term) return follow(term, 0);
    if (role != LEADER || term < current_term) return;
    if (!is_yes) {
        /* An old refusal must not undo what is known by now. */
        peer->next = (index > peer->match ? index : peer->match) + 1;
        if (peer->next > last + 1) peer->next = last + 1;
        if (peer->next <= oldest()) return;
    } else if (index > peer->match && index <= last) {
        peer->match = index;
        if (peer->next <= index) peer->next = index + 1;
        commit();
    }
    if (peer->next <= last) append_to(peer);
}

/* Puts a client's request into the log. */
static void submit(uint64_t header, uint64_t operation, int64_t words) {
    if (role != LEADER) {
        nanopu_skip(words);
        return answer_leader(header);
    }
    if (last + 2 >= committed + LOG_ENTRIES) return refuse(header, words, STATUS_FULL);
    struct entry *entry = at(++last);
    entry->term = current_term;
    entry->operation = operation;
    nanopu_take(entry->key.word, words);
    clients[last % LOG_ENTRIES] = header;
    append_to_all(0);
    commit();
}

static void peek(uint64_t header) {
    struct table_key key;
    nanopu_take(key.word, 2);
    uint64_t hash = table_hash(&key);
    answer_item(header, table_find(table_home(hash), hash, &key));
}

static void state(uint64_t header) {
    nanopu_write(nanopu_answer(header, 7));
    nanopu_write(STATUS_OK);
    nanopu_write(current_term);
    nanopu_write(role);
    nanopu_write(leader);
    nanopu_write(last);
    nanopu_write(committed);
    nanopu_write(applied);
}

/* Once, before anything else. */
static void configure(uint64_t header, int64_t words) {
    uint64_t number = nanopu_read(), count = nanopu_read();
    if (server_count || count < 1 || count > SERVERS_MAX || number >= count || words != 3 + (int64_t)count) {
        return refuse(header, words - 2, STATUS_MALFORMED);
    }
    for (uint64_t i = 0; i < count; i++) peers[i].address = nanopu_read();
    uint64_t cycles = nanopu_read();
    election_cycles = cycles < 1000 ? 1000 : cycles;
    self = peers[number].address;
    random_state = nanopu_cycle() * 2 + 1 + (number << 32);
    server_count = count;
    put_off_election();
    answer_status(header, STATUS_OK);
}

/* From one server to another. An answer pays a debt, whatever it says. */
static void serve_peer(struct peer *peer, uint64_t header, uint64_t operation, int64_t words) {
    if ((operation == VOTED || operation == APPENDED) && peer->owed > 0) peer->owed--;
    uint64_t term = words > 0 ? nanopu_read() : 0;
    words--;
    if (operation == VOTE && words == 2) return on_vote(header, term);
    if (operation == VOTED && words == 1) return on_voted(peer, term);
    if (operation == APPEND && words >= 3 && (words - 3) % ENTRY_WORDS == 0) return on_append(header, term, words - 3);
    if (operation == APPENDED && words == 2) return on_appended(peer, term);
    nanopu_skip(words);
}

static void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    words--;
    if (operation >= VOTE && operation <= APPENDED) {
        for (uint64_t i = 0; i < server_count; i++) {
            if (peers[i].address == nanopu_peer(header)) return serve_peer(&peers[i], header, operation, words);
        }
        return nanopu_skip(words);
    }
    if (operation == WRITE && words == 2 + TABLE_VALUE_WORDS) return submit(header, WRITE, words);
    if (operation == READ && words == 2) return submit(header, READ, words);
    if (operation == PEEK && words == 2) return peek(header);
    if (operation == STATE && words == 0) return state(header);
    if (operation == CONFIGURE && words >= 4) return configure(header, words);
    refuse(header, words, STATUS_MALFORMED);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    nanopu_add_context(0, 0);
    for (;;) {
        if (nanopu_csr_read(NANOPU_MESSAGES_READY)) {
            serve(nanopu_read());
            nanopu_done();
        } else {
            nanopu_csr_write(NANOPU_THREAD_COMMAND, 2);
        }
        uint64_t now = nanopu_cycle();
        if (role == LEADER ? now >= heartbeat : server_count && now >= deadline) {
            if (role == LEADER) append_to_all(1);
            else stand_for_election();
        }
    }
}
