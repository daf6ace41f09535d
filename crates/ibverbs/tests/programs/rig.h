/* What the programs here share: checks that say where they failed, and ends of a connection within one process. */
#ifndef RIG_H
#define RIG_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Two numbers that must be equal; both are printed if they are not. */
#define CHECK_EQUAL(left, right)                                                                                       \
    do {                                                                                                               \
        long long left_ = (long long)(left), right_ = (long long)(right);                                              \
        if (left_ != right_) {                                                                                         \
            fprintf(stderr, "%s:%d: %s is %lld, %s is %lld\n", __FILE__, __LINE__, #left, left_, #right, right_);      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* An attempt's time-out as verbs code it: with seven retries, half a second. */
#ifndef RIG_TIMEOUT
#define RIG_TIMEOUT 14
#endif

#define ALL_ACCESS                                                                                                     \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *bytes;
    size_t length;
};

static struct ibv_context *rig_open(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

/* A protection domain, two completion queues and `length` registered bytes, all zero. */
static void rig_end(struct end *end, struct ibv_context *context, size_t length)
{
    memset(end, 0, sizeof *end);
    end->context = context;
    CHECK((end->pd = ibv_alloc_pd(context)) != NULL);
    CHECK((end->send_cq = ibv_create_cq(context, 256, NULL, NULL, 0)) != NULL);
    CHECK((end->recv_cq = ibv_create_cq(context, 256, NULL, NULL, 0)) != NULL);
    end->length = length;
    end->bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(end->bytes != MAP_FAILED);
    CHECK((end->mr = ibv_reg_mr(end->pd, end->bytes, length, ALL_ACCESS)) != NULL);
}

static void rig_queue_pair(struct end *end, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr attr = {.send_cq = end->send_cq, .recv_cq = end->recv_cq, .srq = end->srq, .qp_type = type,
        .cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64}};
    CHECK((end->qp = ibv_create_qp(end->pd, &attr)) != NULL);
}

/* Two ends of one device, each with a queue pair, not connected. */
static void rig_ends(struct end *a, struct end *b, struct ibv_context *context, size_t length, enum ibv_qp_type type)
{
    rig_end(a, context, length);
    rig_end(b, context, length);
    rig_queue_pair(a, type);
    rig_queue_pair(b, type);
}

/* Destroys what an end has, and gives its memory back. */
static void rig_close(struct end *end)
{
    if (end->qp)
        CHECK_EQUAL(ibv_destroy_qp(end->qp), 0);
    CHECK_EQUAL(ibv_destroy_cq(end->send_cq), 0);
    CHECK_EQUAL(ibv_destroy_cq(end->recv_cq), 0);
    CHECK_EQUAL(ibv_dereg_mr(end->mr), 0);
    CHECK_EQUAL(ibv_dealloc_pd(end->pd), 0);
    CHECK_EQUAL(munmap(end->bytes, end->length), 0);
    memset(end, 0, sizeof *end);
}

/* To INIT, at a port. */
static void rig_init_at(struct ibv_qp *qp, int port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = ALL_ACCESS, .qkey = 0x1234567};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask), 0);
}

static void rig_init(struct ibv_qp *qp) { rig_init_at(qp, 1); }

static void rig_reset(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static enum ibv_qp_state rig_state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK_EQUAL(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* A datagram's queue pair, ready to send. */
static void rig_datagrams(struct ibv_qp *qp, int port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    rig_init_at(qp, port);
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

/* Both directions of a reliable or unreliable connection, ready to send; PSNs differ by direction. */
static void rig_to_at(struct ibv_qp *qp, int port, uint32_t peer, union ibv_gid gid, uint32_t own_psn, uint32_t peer_psn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = peer_psn,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1, .timeout = RIG_TIMEOUT, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = own_psn,
        .max_rd_atomic = 4, .ah_attr = {.is_global = 1, .port_num = port, .grh = {.dgid = gid, .hop_limit = 64}}};
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    int is_rc = qp->qp_type == IBV_QPT_RC;
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask | (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)), 0);
    attr.qp_state = IBV_QPS_RTS;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    is_rc = is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask | is_rc), 0);
}

static void rig_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid, uint32_t own_psn, uint32_t peer_psn)
{
    rig_to_at(qp, 1, peer, gid, own_psn, peer_psn);
}

/* Both ends at a port of this number. */
static void rig_connect_at(struct end *a, struct end *b, int port)
{
    union ibv_gid gid_a, gid_b;
    CHECK_EQUAL(ibv_query_gid(a->context, port, 0, &gid_a), 0);
    CHECK_EQUAL(ibv_query_gid(b->context, port, 0, &gid_b), 0);
    rig_init_at(a->qp, port);
    rig_init_at(b->qp, port);
    rig_to_at(a->qp, port, b->qp->qp_num, gid_b, 0x111111, 0x222222);
    rig_to_at(b->qp, port, a->qp->qp_num, gid_a, 0x222222, 0x111111);
}

static void rig_connect(struct end *a, struct end *b) { rig_connect_at(a, b, 1); }

/* Two ends of one device with a reliable connection between them. */
static void rig_pair(struct end *a, struct end *b, struct ibv_context *context, size_t length)
{
    rig_ends(a, b, context, length, IBV_QPT_RC);
    rig_connect(a, b);
}

/* A connection after an error, from the beginning. */
static void rig_connect_again(struct end *a, struct end *b)
{
    rig_reset(a->qp);
    rig_reset(b->qp);
    rig_connect(a, b);
}

/* The next event, acknowledged; the runner's time-out is the guard against one that never comes. */
static struct ibv_async_event rig_event(struct ibv_context *context)
{
    struct ibv_async_event event;
    CHECK_EQUAL(ibv_get_async_event(context, &event), 0);
    ibv_ack_async_event(&event);
    return event;
}

/* The first line of a file. */
static void rig_read_file(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fprintf(stderr, "%s\n", path);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, room - 1);
    CHECK(length >= 0);
    close(fd);
    text[length] = 0;
    text[strcspn(text, "\n")] = 0;
}

static void rig_check_file(const char *path, const char *expected)
{
    char text[256];
    rig_read_file(path, text, sizeof text);
    if (strcmp(text, expected)) {
        fprintf(stderr, "%s is %s, not %s\n", path, text, expected);
        exit(1);
    }
}

/* The next completion. The runner's time-out is the guard against one that never comes. */
static struct ibv_wc rig_next(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    CHECK_EQUAL(count, 1);
    return wc;
}

static void rig_receive(struct end *end, uint64_t id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)end->bytes + offset, length, end->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQUAL(end->srq ? ibv_post_srq_recv(end->srq, &request, &bad) : ibv_post_recv(end->qp, &request, &bad), 0);
}

/* A SEND, or a WRITE or READ of the peer's bytes at `remote`. */
static void rig_post(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset, uint32_t length,
    struct end *peer, size_t remote)
{
    struct ibv_sge sge = {(uintptr_t)end->bytes + offset, length, end->mr->lkey};
    struct ibv_send_wr request = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (peer) {
        request.wr.rdma.remote_addr = (uintptr_t)peer->bytes + remote;
        request.wr.rdma.rkey = peer->mr->rkey;
    }
    CHECK_EQUAL(ibv_post_send(end->qp, &request, &bad), 0);
}

#endif
