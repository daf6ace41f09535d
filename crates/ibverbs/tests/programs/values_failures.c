/* Each failure names itself at both ends, in every field of its completion; what comes behind it is flushed.
 * arguments: plain
 * arguments: extended
 */
#include "completions.h"

enum failure { BAD_RKEY, TOO_LONG, BAD_LKEY, NO_RECEIVE, FAILURES };

static void fails(struct ibv_pd *pd, enum failure failure)
{
    struct end a, b;
    struct ibv_sge sge;
    open_end(&a, IBV_QPT_RC, NULL, pd);
    open_end(&b, IBV_QPT_RC, NULL, pd);
    rig_connect(&a, &b);
    struct ibv_qp_attr attr = {.rnr_retry = 0};
    if (failure == NO_RECEIVE) {
        /* Without a repetition the first "not ready" ends the request. */
        attr.qp_state = IBV_QPS_SQD;
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_RNR_RETRY), 0);
        attr.qp_state = IBV_QPS_RTS;
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    } else {
        rig_receive(&b, 5, 0, 30);
    }
    struct ibv_send_wr wr = request(&sge, 71, failure == BAD_RKEY ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, &a, 50);
    wr.send_flags = 0; /* a failure is reported of every request */
    if (failure == BAD_RKEY) {
        wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
        wr.wr.rdma.rkey = b.mr->rkey ^ 0x10;
    }
    if (failure == BAD_LKEY) {
        sge.lkey ^= 0x20;
        sge.length = 8;
    }
    post(&a, &wr);
    const enum ibv_wc_status status[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR};
    struct ibv_wc wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 71);
    CHECK_EQUAL(wc.status, status[failure]);
    CHECK(wc.vendor_err != 0);
    CHECK_EQUAL(wc.qp_num, a.qp->qp_num);
    struct ibv_send_wr more = request(&sge, 72, IBV_WR_SEND, &a, 8);
    more.send_flags = 0;
    post(&a, &more);
    wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 72);
    CHECK_EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(wc.qp_num, a.qp->qp_num);
    if (failure == TOO_LONG || failure == BAD_RKEY) {
        wc = next(b.recv_cq);
        CHECK_EQUAL(wc.wr_id, 5);
        CHECK_EQUAL(wc.status, failure == TOO_LONG ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc.qp_num, b.qp->qp_num);
    }
    struct ibv_qp_init_attr unused;
    CHECK_EQUAL(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &unused), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_ERR);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
}

int main(int count, char **arguments)
{
    struct ibv_pd *pd = begin_program(count, arguments);
    for (int failure = 0; failure < FAILURES; failure++)
        fails(pd, failure);
    return 0;
}
