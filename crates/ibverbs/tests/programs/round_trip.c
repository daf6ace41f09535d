/* A ball between two processes: messages of 64 bytes, each of which comes back with its number. Prints the median round trip in nanoseconds;
 * an argument says how many there are.
 * arguments: 2000
 */
#include "rig.h"
#include <sys/wait.h>

enum { BYTES = 64, DEPTH = 8 };

struct place {
    uint32_t qp_num;
    union ibv_gid gid;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void send_number(struct end *end, uint64_t number)
{
    memcpy(end->bytes, &number, sizeof number);
    struct ibv_sge sge = {(uintptr_t)end->bytes, BYTES, end->mr->lkey};
    struct ibv_send_wr request = {.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
    CHECK_EQUAL(ibv_post_send(end->qp, &request, &bad), 0);
}

/* The number of the next message; its receive is posted again. */
static uint64_t receive_number(struct end *end)
{
    struct ibv_wc wc = rig_next(end->recv_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.byte_len, BYTES);
    uint64_t number;
    memcpy(&number, end->bytes + BYTES * wc.wr_id, sizeof number);
    rig_receive(end, wc.wr_id, BYTES * wc.wr_id, BYTES);
    return number;
}

static void end_of_send(struct end *end, uint64_t number)
{
    struct ibv_wc wc = rig_next(end->send_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.wr_id, number);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    CHECK(count > 0 && count <= 10000000);
    int there[2], back[2];
    CHECK_EQUAL(pipe(there), 0);
    CHECK_EQUAL(pipe(back), 0);
    int child = fork();
    CHECK(child >= 0);
    int from = child ? back[0] : there[0], to = child ? there[1] : back[1];
    CHECK_EQUAL(close(child ? back[1] : there[1]), 0);
    struct end end;
    rig_end(&end, rig_open(), BYTES * (DEPTH + 1));
    rig_queue_pair(&end, IBV_QPT_RC);
    struct place own = {.qp_num = end.qp->qp_num}, peer;
    CHECK_EQUAL(ibv_query_gid(end.context, 1, 0, &own.gid), 0);
    rig_init(end.qp);
    for (int slot = 1; slot <= DEPTH; slot++)
        rig_receive(&end, slot, BYTES * slot, BYTES);
    CHECK_EQUAL(write(to, &own, sizeof own), sizeof own);
    CHECK_EQUAL(read(from, &peer, sizeof peer), sizeof peer);
    rig_to(end.qp, peer.qp_num, peer.gid, child ? 0x111111 : 0x222222, child ? 0x222222 : 0x111111);
    /* Both ends are ready. */
    CHECK_EQUAL(write(to, &own, 1), 1);
    CHECK_EQUAL(read(from, &peer, 1), 1);
    uint64_t *times = calloc(count, sizeof *times);
    CHECK(times);
    /* A tenth comes first, and is not counted. */
    for (uint64_t i = 0; i < count + count / 10; i++) {
        uint64_t begin = now_ns();
        if (child)
            send_number(&end, i);
        CHECK_EQUAL(receive_number(&end), i);
        if (!child)
            send_number(&end, i);
        end_of_send(&end, i);
        if (i >= count / 10)
            times[i - count / 10] = now_ns() - begin;
    }
    rig_close(&end);
    if (!child)
        return 0;
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    qsort(times, count, sizeof *times, compare);
    printf("median %llu ns\n", (unsigned long long)times[count / 2]);
    return 0;
}
