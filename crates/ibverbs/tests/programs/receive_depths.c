/* A receive queue takes as many receives as it was made for, while other threads of the process run the device: not one more, so that no completion
 * queue of that size overflows, and not one less, once a completion has been polled. Of queue pairs and of shared queues.
 *
 * arguments: own
 * arguments: shared
 */
#include "rig.h"
#include <pthread.h>
#include <stdatomic.h>

enum { DEPTH = 24, ROUNDS = 400, THREADS = 2 };
static struct ibv_context *context;
static atomic_int is_over;
static int is_shared;
static uint32_t granted;

/* Polls a queue of its own, and so runs the device again and again. */
static void *busy(void *argument)
{
    struct ibv_cq *cq = argument;
    struct ibv_wc wc;
    while (!is_over)
        CHECK_EQUAL(ibv_poll_cq(cq, 1, &wc), 0);
    return NULL;
}

static int post(struct end *end)
{
    struct ibv_sge sge = {(uintptr_t)end->bytes, 64, end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    int result = end->srq ? ibv_post_srq_recv(end->srq, &wr, &bad) : ibv_post_recv(end->qp, &wr, &bad);
    CHECK(result ? bad == &wr : !bad);
    return result;
}

static void open_end(struct end *end)
{
    rig_end(end, context, 4096);
    if (is_shared) {
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
        CHECK((end->srq = ibv_create_srq(end->pd, &attr)) != NULL);
        granted = attr.attr.max_wr;
    }
    struct ibv_qp_init_attr attr = {.send_cq = end->send_cq, .recv_cq = end->recv_cq, .srq = end->srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK((end->qp = ibv_create_qp(end->pd, &attr)) != NULL);
    if (!is_shared)
        granted = attr.cap.max_recv_wr;
}

static void fill(struct end *end)
{
    unsigned posted = 0;
    int result;
    while ((result = post(end)) == 0)
        CHECK(++posted <= granted);
    CHECK_EQUAL(result, ENOMEM);
    CHECK_EQUAL(posted, granted);
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    is_shared = count > 1 && !strcmp(arguments[1], "shared");
    context = rig_open();
    for (int i = 0; i < THREADS; i++) {
        struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
        CHECK(cq && pthread_create(&threads[i], NULL, busy, cq) == 0);
    }
    struct end a, b;
    rig_end(&a, context, 4096);
    rig_queue_pair(&a, IBV_QPT_RC);
    open_end(&b);
    rig_connect(&a, &b);
    fill(&b);
    for (int round = 0; round < ROUNDS; round++) {
        /* One is used, and one fits. */
        rig_post(&a, IBV_WR_SEND, 2, 0, 8, NULL, 0);
        CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_SUCCESS);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        CHECK_EQUAL(post(&b), 0);
        CHECK_EQUAL(post(&b), ENOMEM);
    }
    /* Emptied by a reset, and filled again: a queue that begins anew. */
    for (int round = 0; round < ROUNDS / 4 && !is_shared; round++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
        rig_init(b.qp);
        fill(&b);
        /* And in the error state all come back. */
        if (round % 2) {
            attr.qp_state = IBV_QPS_ERR;
            CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
            for (unsigned i = 0; i < granted; i++)
                CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_WR_FLUSH_ERR);
        }
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    return 0;
}
