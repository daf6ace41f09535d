/* Registered memory is unmapped and something else takes its place: no operation reads or writes what came later.
 * Private views of ordinary files need the way `protection`: the kernel does not watch their faults.
 * arguments: any alone
 * arguments: any threads
 * arguments: faults,protection threads
 * arguments: thread-faults,protection threads
 * arguments: protection threads */
#include "rig.h"
#include <pthread.h>

#define PAGES 16
#define LENGTH (PAGES * 4096L)

enum kind { PRIVATE, SHARED, FILE_SHARED, FILE_PRIVATE, KINDS };
enum loss { UNMAPPED, MAPPED_OVER, PART_MAPPED_OVER, MOVED_AWAY, LOSSES };

static int backing;

static void *idle(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static char *make(enum kind kind)
{
    static const int flags[] = {MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS, MAP_SHARED, MAP_PRIVATE};
    int has_file = kind == FILE_SHARED || kind == FILE_PRIVATE;
    char *bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags[kind], has_file ? backing : -1, 0);
    CHECK(bytes != MAP_FAILED);
    memset(bytes, 'o', LENGTH);
    return bytes;
}

/* Takes the memory from `from` on away, puts other memory there, full of 'N', and returns its length. */
static size_t lose(char *bytes, enum loss loss, size_t from)
{
    size_t length = LENGTH - from;
    if (loss == PART_MAPPED_OVER)
        length -= 4096;
    if (loss == UNMAPPED)
        CHECK_EQUAL(munmap(bytes + from, length), 0);
    if (loss == MOVED_AWAY)
        CHECK(mremap(bytes + from, length, length, MREMAP_MAYMOVE) != MAP_FAILED || errno == EFAULT);
    char *other = mmap(bytes + from, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(other == bytes + from);
    memset(other, 'N', length);
    return length;
}

static void untouched(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        CHECK_EQUAL(bytes[i], 'N');
}

/* An operation either fails or uses the old pages. A failure ends the connection, so each has its own. */
static void try_all(struct ibv_context *context, enum kind kind, enum loss loss)
{
    /* Pages in front of those that are lost stay the region's. */
    size_t shift = loss == PART_MAPPED_OVER ? 4096 : 0;
    for (int operation = 0; operation < 7; operation++) {
        struct end a, b;
        rig_end(&a, context, 65536);
        rig_end(&b, context, 65536);
        rig_queue_pair(&a, IBV_QPT_RC);
        rig_queue_pair(&b, IBV_QPT_RC);
        rig_connect(&a, &b);
        char *bytes = make(kind);
        struct ibv_mr *mr = ibv_reg_mr(b.pd, bytes, LENGTH, ALL_ACCESS);
        CHECK(mr);
        size_t length = lose(bytes, loss, shift);
        memset(a.bytes, 'E', a.length);
        struct end lost = b;
        lost.bytes = bytes;
        lost.mr = mr;
        struct ibv_sge own = {(uintptr_t)bytes + shift + 64, 5000, mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &own, .num_sge = 1}, *bad_receive;
        struct ibv_send_wr send = {.sg_list = &own, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
        struct ibv_cq *cq = a.send_cq;
        switch (operation) {
        case 0:
            rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 9000, &lost, shift + 100);
            break;
        case 1:
            rig_post(&a, IBV_WR_RDMA_READ, 1, 0, 5000, &lost, shift + 100);
            break;
        case 2:
            CHECK_EQUAL(ibv_post_recv(b.qp, &receive, &bad_receive), 0);
            rig_post(&a, IBV_WR_SEND, 1, 0, 5000, NULL, 0);
            break;
        case 3:
        case 4: {
            struct ibv_sge word = {(uintptr_t)a.bytes, 8, a.mr->lkey};
            struct ibv_send_wr atomic = {.sg_list = &word, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
                .opcode = operation == 3 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP};
            atomic.wr.atomic.remote_addr = (uintptr_t)bytes + shift + 4096;
            atomic.wr.atomic.rkey = mr->rkey;
            atomic.wr.atomic.compare_add = operation == 3 ? 1 : 0x4E4E4E4E4E4E4E4E;
            CHECK_EQUAL(ibv_post_send(a.qp, &atomic, &bad), 0);
            break;
        }
        case 5: /* This side sends from there. */
            send.opcode = IBV_WR_RDMA_WRITE;
            send.wr.rdma.remote_addr = (uintptr_t)a.bytes;
            send.wr.rdma.rkey = a.mr->rkey;
            CHECK_EQUAL(ibv_post_send(b.qp, &send, &bad), 0);
            cq = b.send_cq;
            break;
        default: /* This side reads to there. */
            send.opcode = IBV_WR_RDMA_READ;
            send.wr.rdma.remote_addr = (uintptr_t)a.bytes;
            send.wr.rdma.rkey = a.mr->rkey;
            CHECK_EQUAL(ibv_post_send(b.qp, &send, &bad), 0);
            cq = b.send_cq;
        }
        struct ibv_wc wc = rig_next(cq);
        untouched(bytes + shift, length);
        if (wc.status == IBV_WC_SUCCESS && (operation == 1 || operation == 5))
            for (int i = 0; i < 5000; i++)
                CHECK_EQUAL(a.bytes[i], 'o');
        CHECK_EQUAL(ibv_dereg_mr(mr), 0);
        untouched(bytes + shift, length);
        CHECK_EQUAL(munmap(bytes, LENGTH), 0);
        CHECK_EQUAL(ibv_destroy_qp(a.qp) | ibv_destroy_qp(b.qp), 0);
        CHECK_EQUAL(ibv_dereg_mr(a.mr) | ibv_dereg_mr(b.mr), 0);
        munmap(a.bytes, a.length);
        munmap(b.bytes, b.length);
    }
}

int main(int count, char **arguments)
{
    CHECK_EQUAL(count, 3);
    if (strcmp(arguments[1], "any") != 0)
        setenv("HIGHWIRE_REMAP", arguments[1], 1);
    if (strcmp(arguments[2], "threads") == 0) {
        pthread_t thread;
        CHECK_EQUAL(pthread_create(&thread, NULL, idle, NULL), 0);
    }
    struct ibv_context *context = rig_open();
    char name[] = "/tmp/pinnedXXXXXX";
    CHECK((backing = mkstemp(name)) >= 0);
    unlink(name);
    CHECK_EQUAL(ftruncate(backing, LENGTH), 0);
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (enum loss loss = 0; loss < LOSSES; loss++)
            try_all(context, kind, loss);
    return 0;
}
