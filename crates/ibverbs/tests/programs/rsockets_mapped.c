/* Mapped memory of streams, by several threads at once: on each end of one stream two threads map buffers, two write into the other end's, one
 * reads what the ends say to each other, and signals arrive. The oracle is each buffer's owner, who draws what must be in it.
 *
 * A buffer is mapped, named to the other end, written in parts and in any order, acknowledged over the stream, compared byte by byte with its
 * surroundings, and unmapped. Offsets of neighbours touch each other, so that a write that follows a wrong entry is seen.
 *
 * Arguments: a seed, and how many buffers each thread maps.
 *
 * arguments: 1 150
 * arguments: 90210 150
 */
#include "sockets.h"

enum { SIDES = 2, MAPPERS = 2, WRITERS = 2, ENTRIES = 3, BYTES_MAX = 90000, EDGE = 64, JOBS_MAX = 64 };

enum kind { WRITE_HERE, WRITTEN, NO_MORE };
/* What the ends say to each other. */
struct note {
    uint32_t kind, mapper, length, turn;
    uint64_t offset, seed;
};
struct side {
    int fd, number;
    pthread_mutex_t speaking, lock;
    pthread_cond_t changed;
    struct note jobs[JOBS_MAX];
    unsigned job_first, job_last, written[MAPPERS];
    int ended, mappers_left, writers_left;
};
static struct side sides[SIDES];
static unsigned long seed, turns;
static pthread_t threads[SIDES * (MAPPERS + WRITERS + 1)];
static atomic_int thread_count, is_over;

struct job {
    struct side *side;
    unsigned number;
};

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static unsigned below(uint64_t *state, unsigned end) { return (unsigned)(draw(state) % end); }
static char byte_at(uint64_t of, unsigned at) { return (char)(of + at * 31 + (at >> 8) * 7); }

static void say(struct side *side, struct note note)
{
    CHECK_EQUAL(pthread_mutex_lock(&side->speaking), 0);
    CHECK_EQUAL(rsend(side->fd, &note, sizeof note, 0), sizeof note);
    CHECK_EQUAL(pthread_mutex_unlock(&side->speaking), 0);
}

/* Each mapper's offsets are a stretch of their own, and the stretches touch. One in four buffers has the offset that is its address. */
static void *mapper(void *argument)
{
    struct job *job = argument;
    struct side *side = job->side;
    uint64_t rng = seed * 7919 + side->number * 101 + job->number;
    char *bytes = mmap(NULL, BYTES_MAX + 2 * EDGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    for (unsigned turn = 1; turn <= turns; turn++) {
        unsigned length = 1 + below(&rng, below(&rng, 2) ? 200 : BYTES_MAX - 1);
        /* The first mapper's end where the second's begin. */
        off_t offset = job->number == 0 ? (off_t)BYTES_MAX - length : BYTES_MAX;
        if (below(&rng, 4) == 0)
            offset = -1;
        memset(bytes, 0x6B, BYTES_MAX + 2 * EDGE);
        off_t at = riomap(side->fd, bytes + EDGE, length, PROT_WRITE, 0, offset);
        CHECK(offset < 0 ? at == (off_t)(uintptr_t)(bytes + EDGE) : at == offset);
        struct note note = {WRITE_HERE, job->number, length, turn, (uint64_t)at, draw(&rng)};
        say(side, note);
        CHECK_EQUAL(pthread_mutex_lock(&side->lock), 0);
        while (side->written[job->number] < turn)
            CHECK_EQUAL(pthread_cond_wait(&side->changed, &side->lock), 0);
        CHECK_EQUAL(pthread_mutex_unlock(&side->lock), 0);
        for (int i = 0; i < EDGE; i++)
            CHECK(bytes[i] == 0x6B && bytes[EDGE + length + i] == 0x6B);
        for (unsigned i = 0; i < length; i++)
            if (bytes[EDGE + i] != byte_at(note.seed, i)) {
                fprintf(stderr, "seed %lu: turn %u of mapper %u: byte %u of %u is wrong\n", seed, turn, job->number, i, length);
                exit(1);
            }
        CHECK_EQUAL(riounmap(side->fd, bytes + EDGE, length), 0);
    }
    CHECK_EQUAL(pthread_mutex_lock(&side->lock), 0);
    int is_last = --side->mappers_left == 0;
    CHECK_EQUAL(pthread_mutex_unlock(&side->lock), 0);
    if (is_last)
        say(side, (struct note){.kind = NO_MORE});
    munmap(bytes, BYTES_MAX + 2 * EDGE);
    return NULL;
}

/* All bytes from `at` on, whatever part a call takes. */
static void write_all(int fd, const char *from, size_t length, uint64_t offset, uint64_t *rng)
{
    while (length > 0) {
        int flags = below(rng, 3) == 0 ? MSG_DONTWAIT : 0;
        ssize_t written = (ssize_t)riowrite(fd, from, length, (off_t)offset, flags);
        if (written < 0 && errno == EAGAIN && flags) {
            struct pollfd ready = {fd, POLLOUT, 0};
            CHECK(rpoll(&ready, 1, -1) >= 0 || errno == EINTR);
            continue;
        }
        CHECK(written > 0 && (size_t)written <= length);
        from += written, offset += (uint64_t)written, length -= (size_t)written;
    }
}

static void *writer(void *argument)
{
    struct job *job = argument;
    struct side *side = job->side;
    uint64_t rng = seed * 104729 + side->number * 13 + job->number;
    char *bytes = malloc(BYTES_MAX);
    CHECK(bytes);
    for (;;) {
        CHECK_EQUAL(pthread_mutex_lock(&side->lock), 0);
        while (side->job_first == side->job_last && !side->ended)
            CHECK_EQUAL(pthread_cond_wait(&side->changed, &side->lock), 0);
        int is_done = side->job_first == side->job_last;
        struct note note = side->jobs[side->job_first % JOBS_MAX];
        side->job_first += !is_done;
        CHECK_EQUAL(pthread_mutex_unlock(&side->lock), 0);
        if (is_done)
            break;
        for (unsigned i = 0; i < note.length; i++)
            bytes[i] = byte_at(note.seed, i);
        /* The end first, then the beginning: neither is where the mapping begins by chance. */
        unsigned middle = below(&rng, note.length);
        write_all(side->fd, bytes + middle, note.length - middle, note.offset + middle, &rng);
        write_all(side->fd, bytes, middle, note.offset, &rng);
        note.kind = WRITTEN;
        say(side, note);
    }
    free(bytes);
    return NULL;
}

static void *reader(void *argument)
{
    struct job *job = argument;
    struct side *side = job->side;
    /* The other end's last word comes when all its buffers have been written; this end's buffers are known by their own words. */
    for (int has_ended = 0; !has_ended || side->written[0] < turns || side->written[1] < turns;) {
        struct note note;
        CHECK_EQUAL(rrecv(side->fd, &note, sizeof note, MSG_WAITALL), sizeof note);
        CHECK_EQUAL(pthread_mutex_lock(&side->lock), 0);
        if (note.kind == WRITE_HERE) {
            CHECK(side->job_last - side->job_first < JOBS_MAX);
            side->jobs[side->job_last++ % JOBS_MAX] = note;
        } else if (note.kind == WRITTEN) {
            CHECK_EQUAL(note.turn, side->written[note.mapper] + 1);
            side->written[note.mapper] = note.turn;
        } else {
            has_ended = side->ended = 1;
        }
        CHECK_EQUAL(pthread_cond_broadcast(&side->changed), 0);
        CHECK_EQUAL(pthread_mutex_unlock(&side->lock), 0);
    }
    return NULL;
}

static void *signaller(void *argument)
{
    uint64_t rng = seed;
    (void)argument;
    while (!is_over) {
        pthread_kill(threads[below(&rng, (unsigned)thread_count)], SIGUSR1);
        usleep(below(&rng, 3000));
    }
    return NULL;
}

static void start(void *(*body)(void *), struct side *side, unsigned number)
{
    static struct job jobs[SIDES * (MAPPERS + WRITERS + 1)];
    int at = thread_count++;
    jobs[at] = (struct job){side, number};
    CHECK_EQUAL(pthread_create(&threads[at], NULL, body, &jobs[at]), 0);
}

/* Both ends, with room for a few mappings only, so that entries are used again and again. */
static void connect_ends(int entries, int ends[SIDES])
{
    int port;
    struct sockaddr_in at = loopback(0);
    socklen_t length = sizeof at;
    int listening = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(listening >= 0 && rsetsockopt(listening, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
    CHECK(rbind(listening, (void *)&at, sizeof at) == 0 && rlisten(listening, 1) == 0);
    CHECK_EQUAL(rgetsockname(listening, (void *)&at, &length), 0);
    port = at.sin_port;
    at = loopback(port);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(ends[0] >= 0 && rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0);
    CHECK_EQUAL(rconnect(ends[0], (void *)&at, sizeof at), 0);
    CHECK((ends[1] = raccept(listening, NULL, NULL)) >= 0);
    CHECK_EQUAL(rclose(listening), 0);
}

static void open_ends(void)
{
    int ends[SIDES];
    connect_ends(ENTRIES, ends);
    for (int n = 0; n < SIDES; n++) {
        sides[n] = (struct side){.fd = ends[n], .number = n, .mappers_left = MAPPERS, .writers_left = WRITERS};
        pthread_mutex_init(&sides[n].speaking, NULL);
        pthread_mutex_init(&sides[n].lock, NULL);
        pthread_cond_init(&sides[n].changed, NULL);
    }
}

/* Places that nobody has mapped. */
static void nowhere(int fd)
{
    char byte = 1;
    CHECK((ssize_t)riowrite(fd, &byte, 1, 12345678, 0) == -1 && errno == EINVAL);
    CHECK((ssize_t)riowrite(fd, &byte, 1, -5, 0) == -1 && errno == EINVAL);
}

/* More mappings in a row than messages about them may be under way: whoever hears afterwards that they are there finds all of them. */
static void many_in_a_row(void)
{
    enum { MANY = 40 };
    static char there[MANY][16];
    int ends[SIDES];
    char word = 'r';
    connect_ends(MANY, ends);
    for (int n = 0; n < MANY; n++)
        CHECK_EQUAL(riomap(ends[0], there[n], sizeof there[n], PROT_WRITE, 0, 1000 + 16 * n), 1000 + 16 * n);
    CHECK_EQUAL(rsend(ends[0], &word, 1, 0), 1);
    CHECK_EQUAL(rrecv(ends[1], &word, 1, 0), 1);
    for (int n = MANY - 1; n >= 0; n--) {
        char text[16] = {(char)(n + 1)};
        CHECK_EQUAL((ssize_t)riowrite(ends[1], text, sizeof text, 1000 + 16 * n, 0), sizeof text);
    }
    CHECK_EQUAL(rsend(ends[1], &word, 1, 0), 1);
    CHECK_EQUAL(rrecv(ends[0], &word, 1, 0), 1);
    for (int n = 0; n < MANY; n++)
        CHECK_EQUAL(there[n][0], n + 1);
    for (int n = 0; n < SIDES; n++)
        CHECK_EQUAL(rclose(ends[n]), 0);
}

int main(int count, char **arguments)
{
    seed = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
    turns = count > 2 ? strtoul(arguments[2], NULL, 0) : 150;
    install_handlers();
    many_in_a_row();
    open_ends();
    nowhere(sides[0].fd);
    for (int n = 0; n < SIDES; n++) {
        for (unsigned i = 0; i < MAPPERS; i++)
            start(mapper, &sides[n], i);
        for (unsigned i = 0; i < WRITERS; i++)
            start(writer, &sides[n], i);
        start(reader, &sides[n], 0);
    }
    pthread_t signals;
    CHECK_EQUAL(pthread_create(&signals, NULL, signaller, NULL), 0);
    /* No thread is joined while it may be sent signals. */
    for (int n = 0; n < SIDES; n++) {
        CHECK_EQUAL(pthread_mutex_lock(&sides[n].lock), 0);
        while (!sides[n].ended || sides[n].written[0] < turns || sides[n].written[1] < turns)
            CHECK_EQUAL(pthread_cond_wait(&sides[n].changed, &sides[n].lock), 0);
        CHECK_EQUAL(pthread_mutex_unlock(&sides[n].lock), 0);
    }
    is_over = 1;
    pthread_join(signals, NULL);
    for (int n = 0; n < thread_count; n++)
        CHECK_EQUAL(pthread_join(threads[n], NULL), 0);
    /* All places are free again: as many mappings as there are entries, and not one more. */
    static char left[ENTRIES + 1][8];
    for (int n = 0; n <= ENTRIES; n++)
        CHECK_EQUAL(riomap(sides[0].fd, left[n], 8, PROT_WRITE, 0, 100 * n), n < ENTRIES ? 100 * n : -1);
    CHECK_EQUAL(errno, ENOMEM);
    for (int n = 0; n < SIDES; n++)
        CHECK_EQUAL(rclose(sides[n].fd), 0);
    return 0;
}
