/* What Raft servers, and those who ask them, say to each other. All messages are whole words, in context 0.
 *
 *   clients    WRITE · key, 2 words · value, 8 words      READ · key      PEEK · key: what this server has applied
 *              STATE                                      → OK · term · role · leader · last · committed · applied
 *              CONFIGURE · self · count · addresses (count words) · election timeout in cycles
 *              answers: status · value for READ and PEEK; NOT_HERE · the leader's address, or 0, where another one leads
 *   servers    VOTE · term · last index · last term                               → VOTED · term · yes or no
 *              APPEND · term · previous index · its term · committed · entries    → APPENDED · term · yes or no · index
 *
 * APPENDED's index is up to where the logs agree if yes, and where to try again from if no. */
#ifndef RAFT_H
#define RAFT_H

#define TABLE_ITEMS 16384
#define TABLE_BUCKETS 8192
#define TABLE_VALUE_WORDS 8
#include "status.h"
#include "table.h"

#define SERVERS_MAX 7
/* Entries that the log has room for. */
#define LOG_ENTRIES 1024
/* Entries of one message, and messages that a server may owe an answer to. */
#define BATCH 8
#define WINDOW 4

enum raft_operation {
    WRITE = 1, READ = 2, PEEK = 3, STATE = 4, CONFIGURE = 5,
    VOTE = 16, VOTED = 17, APPEND = 18, APPENDED = 19,
};

enum raft_role { FOLLOWER = 0, CANDIDATE = 1, LEADER = 2 };

/* What is replicated. An entry without an operation is what a new leader begins its term with. */
struct entry {
    uint64_t term, operation;
    struct table_key key;
    uint64_t value[TABLE_VALUE_WORDS];
};
#define ENTRY_WORDS ((int64_t)(sizeof(struct entry) / 8))

#endif
