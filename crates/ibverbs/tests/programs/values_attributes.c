/* What a program reads back of a queue pair, a shared receive queue, a completion queue, the device and its port is what it has given, field
 * by field. No two fields that could be mistaken for each other have the same value. */
#include "rig.h"

static struct ibv_context *context;
static union ibv_gid gid;

/* Both halves of a queue pair have limits of their own. */
static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv, struct ibv_srq *srq,
    enum ibv_qp_type type, struct ibv_qp_cap *cap)
{
    struct ibv_qp_init_attr attr = {.qp_context = &context, .send_cq = send, .recv_cq = recv, .srq = srq, .qp_type = type,
        .cap = {.max_send_wr = 5, .max_recv_wr = 11, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 70}};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(qp);
    CHECK(qp->qp_context == &context && qp->context == context && qp->pd == pd);
    CHECK(qp->send_cq == send && qp->recv_cq == recv && qp->srq == srq);
    CHECK_EQUAL(qp->qp_type, type);
    CHECK_EQUAL(qp->state, IBV_QPS_RESET);
    *cap = attr.cap;
    return qp;
}

static void check_queue_pair(struct ibv_pd *pd)
{
    struct ibv_cq *send = ibv_create_cq(context, 30, &gid, NULL, 0), *recv = ibv_create_cq(context, 60, &context, NULL, 0);
    CHECK(send && recv);
    CHECK(send->cqe >= 30 && recv->cqe >= 60 && send->cqe < recv->cqe);
    CHECK(send->cq_context == &gid && recv->cq_context == &context);
    struct ibv_qp_cap cap;
    struct ibv_qp *qp = create(pd, send, recv, NULL, IBV_QPT_RC, &cap);
    CHECK(cap.max_send_wr >= 5 && cap.max_recv_wr >= 11 && cap.max_send_sge >= 2 && cap.max_recv_sge >= 3);
    CHECK(cap.max_send_wr < 11 && cap.max_send_sge < 3 && cap.max_inline_data >= 70 && cap.max_inline_data <= 256);
    struct ibv_qp *other = create(pd, send, recv, NULL, IBV_QPT_RC, &cap);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    CHECK_EQUAL(qp->state, IBV_QPS_INIT);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_512, .dest_qp_num = other->qp_num,
        .rq_psn = 0x345678, .max_dest_rd_atomic = 3, .min_rnr_timer = 32 + 17, /* five bits of it count */
        .ah_attr = {.is_global = 1, .port_num = 1, .sl = 5,
            .grh = {.dgid = gid, .hop_limit = 9, .traffic_class = 0x68, .flow_label = 0x1234, .sgid_index = 1}}};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 0xABCDEF, .timeout = 19, .retry_cnt = 6, .rnr_retry = 5,
        .max_rd_atomic = 2};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC), 0);
    CHECK_EQUAL(qp->state, IBV_QPS_RTS);

    struct ibv_qp_init_attr init;
    memset(&attr, 0xA5, sizeof attr);
    memset(&init, 0xA5, sizeof init);
    CHECK_EQUAL(ibv_query_qp(qp, &attr, ~0, &init), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_RTS);
    CHECK_EQUAL(attr.cur_qp_state, IBV_QPS_RTS);
    CHECK_EQUAL(attr.path_mtu, IBV_MTU_512);
    CHECK_EQUAL(attr.path_mig_state, IBV_MIG_MIGRATED);
    CHECK_EQUAL(attr.rq_psn, 0x345678);
    CHECK_EQUAL(attr.sq_psn, 0xABCDEF);
    CHECK_EQUAL(attr.dest_qp_num, other->qp_num);
    CHECK_EQUAL(attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
    CHECK_EQUAL(attr.max_rd_atomic, 2);
    CHECK_EQUAL(attr.max_dest_rd_atomic, 3);
    CHECK_EQUAL(attr.min_rnr_timer, 17);
    CHECK_EQUAL(attr.timeout, 19);
    CHECK_EQUAL(attr.retry_cnt, 6);
    CHECK_EQUAL(attr.rnr_retry, 5);
    CHECK_EQUAL(attr.port_num, 1);
    CHECK_EQUAL(attr.pkey_index, 0);
    CHECK_EQUAL(attr.sq_draining, 0);
    CHECK_EQUAL(attr.ah_attr.is_global, 1);
    CHECK_EQUAL(attr.ah_attr.port_num, 1);
    CHECK_EQUAL(memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof gid), 0);
    CHECK_EQUAL(attr.ah_attr.grh.traffic_class, 0x68);
    CHECK_EQUAL(attr.ah_attr.grh.hop_limit, 9);
    CHECK_EQUAL(attr.cap.max_send_wr, cap.max_send_wr);
    CHECK_EQUAL(attr.cap.max_recv_wr, cap.max_recv_wr);
    CHECK_EQUAL(attr.cap.max_send_sge, cap.max_send_sge);
    CHECK_EQUAL(attr.cap.max_recv_sge, cap.max_recv_sge);
    CHECK_EQUAL(attr.cap.max_inline_data, cap.max_inline_data);
    CHECK(init.qp_context == &context && init.send_cq == send && init.recv_cq == recv && !init.srq);
    CHECK_EQUAL(init.qp_type, IBV_QPT_RC);
    CHECK_EQUAL(init.sq_sig_all, 0);
    CHECK_EQUAL(init.cap.max_send_wr, cap.max_send_wr);
    CHECK_EQUAL(init.cap.max_recv_wr, cap.max_recv_wr);
    CHECK_EQUAL(init.cap.max_send_sge, cap.max_send_sge);
    CHECK_EQUAL(init.cap.max_recv_sge, cap.max_recv_sge);

    /* The depths are kept: as many receives as were asked for, and not one more than were granted. */
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    unsigned posted = 0;
    while (ibv_post_recv(qp, &receive, &bad) == 0)
        posted++;
    CHECK_EQUAL(posted, cap.max_recv_wr);

    /* Values that no card has bits for are cut as cards cut them; others are refused. */
    attr = (struct ibv_qp_attr){.min_rnr_timer = 255};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
    CHECK_EQUAL(ibv_query_qp(qp, &attr, ~0, &init), 0);
    CHECK_EQUAL(attr.min_rnr_timer, 31);
    attr = (struct ibv_qp_attr){.qp_state = 77};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);

    /* Nothing is in flight, so draining ends at once. */
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    struct ibv_sge sge = {.addr = (uintptr_t)&gid, .length = 0};
    struct ibv_send_wr send_request = {.wr_id = 9, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 0}, *bad_send;
    CHECK_EQUAL(ibv_post_send(qp, &send_request, &bad_send), 0);
    CHECK_EQUAL(ibv_query_qp(qp, &attr, ~0, &init), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_SQD);
    CHECK_EQUAL(attr.sq_draining, 0);
    CHECK_EQUAL(ibv_destroy_qp(qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(other), 0);

    /* Queues in use. */
    CHECK_EQUAL(ibv_destroy_cq(send), 0);
    CHECK_EQUAL(ibv_destroy_cq(recv), 0);
}

static void check_shared_queue(struct ibv_pd *pd)
{
    struct ibv_srq_init_attr asked = {.srq_context = &gid, .attr = {.max_wr = 13, .max_sge = 2, .srq_limit = 0}};
    struct ibv_srq *srq = ibv_create_srq(pd, &asked);
    CHECK(srq && srq->srq_context == &gid && srq->pd == pd && srq->context == context);
    CHECK(asked.attr.max_wr >= 13 && asked.attr.max_sge >= 2 && asked.attr.max_sge < 13);
    struct ibv_srq_attr attr = {.srq_limit = 4};
    CHECK_EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    memset(&attr, 0xA5, sizeof attr);
    CHECK_EQUAL(ibv_query_srq(srq, &attr), 0);
    CHECK_EQUAL(attr.max_wr, asked.attr.max_wr);
    CHECK_EQUAL(attr.max_sge, asked.attr.max_sge);
    CHECK_EQUAL(attr.srq_limit, 4);

    /* With a shared queue the queue pair's own receives do not count, whatever is asked for. */
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 5, .max_recv_wr = UINT32_MAX, .max_send_sge = 2, .max_recv_sge = UINT32_MAX}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    CHECK_EQUAL(init.cap.max_recv_wr, 0);
    CHECK_EQUAL(init.cap.max_recv_sge, 0);
    init.srq = NULL;
    init.cap.max_recv_wr = UINT32_MAX;
    CHECK(!ibv_create_qp(pd, &init));
    CHECK_EQUAL(errno, EINVAL);

    /* What is in use is not destroyed. */
    CHECK_EQUAL(ibv_destroy_srq(srq), EBUSY);
    CHECK_EQUAL(ibv_destroy_cq(cq), EBUSY);
    CHECK_EQUAL(ibv_destroy_qp(qp), 0);
    CHECK_EQUAL(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQUAL(ibv_destroy_srq(srq), 0);
    CHECK_EQUAL(ibv_destroy_cq(cq), 0);
}

/* Every object that a domain is made for keeps it. */
static void check_domain(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    CHECK(pd && other && pd->context == context && pd->handle != other->handle);
    static char bytes[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, ALL_ACCESS);
    CHECK(mr && mr->addr == bytes && mr->length == sizeof bytes && mr->pd == pd && mr->context == context);
    CHECK_EQUAL(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    for (int kind = IBV_MW_TYPE_1; kind <= IBV_MW_TYPE_2; kind++) {
        struct ibv_mw *mw = ibv_alloc_mw(pd, kind);
        CHECK(mw && mw->pd == pd && mw->context == context && (int)mw->type == kind);
        CHECK_EQUAL(ibv_dealloc_pd(pd), EBUSY);
        CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
    }
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 3}};
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    CHECK(ah && ah->pd == pd && ah->context == context);
    CHECK_EQUAL(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQUAL(ibv_destroy_ah(ah), 0);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 3, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    CHECK(srq);
    CHECK_EQUAL(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQUAL(ibv_destroy_srq(srq), 0);
    CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
    CHECK_EQUAL(ibv_dealloc_pd(other), 0);
}

static void check_device(void)
{
    struct ibv_device_attr device;
    memset(&device, 0xA5, sizeof device);
    CHECK_EQUAL(ibv_query_device(context, &device), 0);
    CHECK_EQUAL(device.node_guid, ibv_get_device_guid(context->device));
    CHECK_EQUAL(device.sys_image_guid, device.node_guid);
    CHECK_EQUAL(device.phys_port_cnt, 1);
    CHECK_EQUAL(device.max_pkeys, 1);
    CHECK_EQUAL(device.atomic_cap, IBV_ATOMIC_HCA);
    CHECK(device.max_qp > 0 && device.max_qp_wr > 0 && device.max_sge > 0 && device.max_cq > 0 && device.max_cqe > device.max_qp_wr);
    CHECK(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0 && device.max_qp_rd_atom > 0);
    CHECK_EQUAL(device.max_ee, 0);
    CHECK_EQUAL(device.max_fmr, 0);

    struct ibv_port_attr port;
    memset(&port, 0xA5, sizeof port);
    CHECK_EQUAL(ibv_query_port(context, 1, &port), 0);
    CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
    CHECK_EQUAL(port.phys_state, 5);
    CHECK_EQUAL(port.max_mtu, IBV_MTU_4096);
    CHECK(port.active_mtu >= IBV_MTU_1024 && port.active_mtu <= IBV_MTU_4096);
    CHECK_EQUAL(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    CHECK_EQUAL(port.lid, 0);
    CHECK_EQUAL(port.sm_lid, 0);
    CHECK_EQUAL(port.pkey_tbl_len, 1);
    CHECK(port.gid_tbl_len > 1);
    CHECK_EQUAL(ibv_query_port(context, 2, &port), EINVAL);

    union ibv_gid other;
    CHECK_EQUAL(ibv_query_gid(context, 1, 1, &other), 0);
    CHECK_EQUAL(memcmp(&other, &gid, sizeof gid), 0);
    struct ibv_gid_entry entry;
    CHECK_EQUAL(ibv_query_gid_ex(context, 1, 1, &entry, 0), 0);
    CHECK_EQUAL(memcmp(&entry.gid, &gid, sizeof gid), 0);
    CHECK_EQUAL(entry.gid_index, 1);
    CHECK_EQUAL(entry.port_num, 1);
    CHECK_EQUAL(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    uint16_t pkey = 0;
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQUAL(pkey, 0xFFFF);
}

/* A flag without an effect here is refused. */
static void check_flags(struct ibv_pd *pd)
{
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .pd = pd,
        .cap = {.max_send_wr = 2, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB};
    CHECK(!ibv_create_qp_ex(context, &attr));
    CHECK_EQUAL(errno, EOPNOTSUPP);
    attr.create_flags = 0;
    struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
    CHECK(qp);
    CHECK_EQUAL(ibv_destroy_qp(qp), 0);
    CHECK_EQUAL(ibv_destroy_cq(cq), 0);
}

int main(void)
{
    context = rig_open();
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    check_device();
    check_queue_pair(pd);
    check_shared_queue(pd);
    check_domain();
    check_flags(pd);
    CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
    CHECK_EQUAL(ibv_close_device(context), 0);
    return 0;
}
