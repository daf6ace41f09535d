/* Which documents hold all of these words: the intersection of sorted lists.
 *
 *   APPEND · list · elements, ascending and above all that are there     → status
 *   INTERSECT · one to eight lists                                       → status · how many · the first of them, up to 250
 *
 * Any core serves any request. A list only grows, and its length is written last, so readers need no lock. */
#include "status.h"

#define LISTS 256
#define LIST_MAX 1024
#define TERMS_MAX 8
#define ANSWER_MAX 250

enum operation { APPEND = 1, INTERSECT = 2 };

struct list {
    uint32_t lock;
    uint32_t length;
    uint64_t element[LIST_MAX];
};

static struct list lists[LISTS];

/* A list and how far one has come in it. */
struct cursor {
    const uint64_t *next, *end;
};

/* Moves on to the first element that is not below `wanted`: in steps that double, and back in halves. Whether it is `wanted`. */
static inline int seek(struct cursor *cursor, uint64_t wanted) {
    const uint64_t *low = cursor->next, *end = cursor->end;
    uint64_t step = 1;
    while (step <= (uint64_t)(end - low) && low[step - 1] < wanted) {
        low += step;
        step *= 2;
    }
    uint64_t count = step - 1 < (uint64_t)(end - low) ? step - 1 : (uint64_t)(end - low);
    while (count > 0) {
        uint64_t half = count / 2;
        if (low[half] < wanted) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    cursor->next = low;
    return low < end && *low == wanted;
}

static void intersect(uint64_t header, int64_t terms) {
    struct cursor cursor[TERMS_MAX];
    int are_known = 1;
    for (int64_t i = 0; i < terms; i++) {
        uint64_t number = nanopu_read();
        are_known &= number < LISTS;
        const struct list *list = &lists[number % LISTS];
        cursor[i].next = list->element;
        cursor[i].end = list->element + __atomic_load_n(&list->length, __ATOMIC_ACQUIRE);
        /* The shortest goes first: each of its elements is looked for in all others. */
        if (cursor[i].end - cursor[i].next < cursor[0].end - cursor[0].next) {
            struct cursor shorter = cursor[i];
            cursor[i] = cursor[0];
            cursor[0] = shorter;
        }
    }
    if (!are_known) return answer_status(header, STATUS_NOT_FOUND);
    uint64_t found[ANSWER_MAX], count = 0;
    for (; cursor[0].next < cursor[0].end; cursor[0].next++) {
        uint64_t element = *cursor[0].next;
        int64_t i = 1;
        while (i < terms && seek(&cursor[i], element)) i++;
        if (i < terms) continue;
        if (count < ANSWER_MAX) found[count] = element;
        count++;
    }
    uint64_t sent = count < ANSWER_MAX ? count : ANSWER_MAX;
    nanopu_write(nanopu_answer(header, 2 + sent));
    nanopu_write(STATUS_OK);
    nanopu_write(count);
    nanopu_give(found, (int64_t)sent);
}

static void append(uint64_t header, int64_t elements) {
    uint64_t number = nanopu_read();
    if (number >= LISTS) return refuse(header, elements, STATUS_NOT_FOUND);
    struct list *list = &lists[number];
    while (__atomic_exchange_n(&list->lock, 1, __ATOMIC_ACQUIRE)) {
    }
    uint32_t length = list->length;
    enum status status = STATUS_OK;
    for (; elements > 0; elements--) {
        uint64_t element = nanopu_read();
        if (status == STATUS_OK && length == LIST_MAX) status = STATUS_FULL;
        if (status == STATUS_OK && length > 0 && element <= list->element[length - 1]) status = STATUS_MALFORMED;
        if (status == STATUS_OK) list->element[length++] = element;
    }
    /* All of them, or none. */
    if (status == STATUS_OK) __atomic_store_n(&list->length, length, __ATOMIC_RELEASE);
    __atomic_store_n(&list->lock, 0, __ATOMIC_RELEASE);
    answer_status(header, status);
}

static inline void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    words--;
    if (operation == INTERSECT && words >= 1 && words <= TERMS_MAX) return intersect(header, words);
    if (operation == APPEND && words >= 1) return append(header, words - 1);
    refuse(header, words, STATUS_MALFORMED);
}

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
