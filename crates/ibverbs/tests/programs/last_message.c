/* A program that has seen a message arrive may end the queue pair, or itself, at once. A card has acknowledged the message by then: its sender's
 * request succeeds. One process sends, the other ends in one of these ways.
 * arguments: error
 * arguments: reset
 * arguments: destroy
 * arguments: exit
 */
#include "rig.h"
#include <sys/wait.h>

enum { BYTES = 64, ROUNDS = 40 };

struct place {
    uint32_t qp_num;
    union ibv_gid gid;
};

static void swap_places(struct end *end, int from, int to, struct place *peer)
{
    struct place own = {.qp_num = end->qp->qp_num};
    CHECK_EQUAL(ibv_query_gid(end->context, 1, 0, &own.gid), 0);
    CHECK_EQUAL(write(to, &own, sizeof own), sizeof own);
    CHECK_EQUAL(read(from, peer, sizeof *peer), sizeof *peer);
}

static void wait_for_each_other(int from, int to)
{
    char byte = 0;
    CHECK_EQUAL(write(to, &byte, 1), 1);
    CHECK_EQUAL(read(from, &byte, 1), 1);
}

/* An end that is connected, with room for a message. */
static void begin(struct end *end, struct ibv_context *context, int from, int to, uint32_t own_psn, uint32_t peer_psn)
{
    struct place peer;
    rig_end(end, context, BYTES);
    rig_queue_pair(end, IBV_QPT_RC);
    rig_init(end->qp);
    rig_receive(end, 1, 0, BYTES);
    swap_places(end, from, to, &peer);
    rig_to(end->qp, peer.qp_num, peer.gid, own_psn, peer_psn);
    wait_for_each_other(from, to);
}

/* The end that receives one message. */
static void receive_one(struct ibv_context *context, int from, int to, const char *way)
{
    struct end end;
    begin(&end, context, from, to, 0x222222, 0x111111);
    struct ibv_wc wc = rig_next(end.recv_cq);
    if (!strcmp(way, "exit"))
        exit(wc.status == IBV_WC_SUCCESS ? 0 : 1);
    if (!strcmp(way, "error") || !strcmp(way, "reset")) {
        struct ibv_qp_attr attr = {.qp_state = strcmp(way, "error") ? IBV_QPS_RESET : IBV_QPS_ERR};
        CHECK_EQUAL(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
    } else {
        CHECK_EQUAL(strcmp(way, "destroy"), 0);
        CHECK_EQUAL(ibv_destroy_qp(end.qp), 0);
        end.qp = NULL;
    }
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    wait_for_each_other(from, to);
    rig_close(&end);
}

/* The end that sends it: the request succeeds, though nobody answers any more. */
static void send_one(struct ibv_context *context, int from, int to, const char *way)
{
    struct end end;
    begin(&end, context, from, to, 0x111111, 0x222222);
    rig_post(&end, IBV_WR_SEND, 7, 0, BYTES, NULL, 0);
    struct ibv_wc wc = rig_next(end.send_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.wr_id, 7);
    if (strcmp(way, "exit"))
        wait_for_each_other(from, to);
    rig_close(&end);
}

int main(int argc, char **argv)
{
    CHECK_EQUAL(argc, 2);
    const char *way = argv[1];
    /* A process that ends is another one each time. */
    int receivers = strcmp(way, "exit") ? 1 : ROUNDS, rounds = ROUNDS / receivers;
    int there[2], back[2], turns[2];
    CHECK_EQUAL(pipe(there), 0);
    CHECK_EQUAL(pipe(back), 0);
    CHECK_EQUAL(pipe(turns), 0);
    /* They begin in turn, and before this process has a device. */
    for (int i = 0; i < receivers; i++) {
        int child = fork();
        CHECK(child >= 0);
        if (child)
            continue;
        char turn;
        CHECK_EQUAL(read(turns[0], &turn, 1), 1);
        struct ibv_context *context = rig_open();
        for (int round = 0; round < rounds; round++)
            receive_one(context, there[0], back[1], way);
        CHECK_EQUAL(ibv_close_device(context), 0);
        return 0;
    }
    struct ibv_context *context = rig_open();
    for (int i = 0; i < receivers; i++) {
        int status;
        CHECK_EQUAL(write(turns[1], "", 1), 1);
        for (int round = 0; round < rounds; round++)
            send_one(context, back[0], there[1], way);
        /* Any of them may have taken its turn. */
        CHECK(waitpid(-1, &status, 0) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK_EQUAL(ibv_close_device(context), 0);
    return 0;
}
