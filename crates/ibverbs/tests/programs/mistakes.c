/* Mistakes that programs make, and the words that HIGHWIRE_LOG=1 has for each: one mistake, one line.
 *
 * The program reads its own stderr: each case says which words it expects of what was printed since the case before.
 */
#include "words.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

static struct end a, b;
static union ibv_gid gid;

/* A new connection between two queue pairs with these rights at the second. */
static void connect_with(int rights)
{
    if (a.qp)
        CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    if (b.qp)
        CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    struct ibv_qp_attr attr = {.qp_access_flags = rights};
    CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
    printed();
}

static int post(struct end *end, struct ibv_send_wr request)
{
    struct ibv_send_wr *bad;
    request.send_flags |= IBV_SEND_SIGNALED;
    return ibv_post_send(end->qp, &request, &bad);
}

static void refused_arguments(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 0, .qp_access_flags = ALL_ACCESS};
    int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
        IBV_QP_MIN_RNR_TIMER;
    rig_queue_pair(&a, IBV_QPT_RC);
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, init), EINVAL);
    expect("port 0", "ibv_modify_qp", "EINVAL", "port_num is 0");
    attr.port_num = 1;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, init & ~IBV_QP_ACCESS_FLAGS), EINVAL);
    expect("an attribute is missing", "ibv_modify_qp", "EINVAL", "qp_access_flags (IBV_QP_ACCESS_FLAGS)");
    attr.pkey_index = 3;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, init), EINVAL);
    expect("a P_Key that is not there", "ibv_modify_qp", "EINVAL", "pkey_index is 3");
    attr.pkey_index = 0;
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
    expect("a state is left out", "ibv_modify_qp", "EINVAL", "RESET, INIT, RTR, RTS");

    struct ibv_sge sge = {(uintptr_t)a.bytes, 8, a.mr->lkey};
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
    rig_init(a.qp);
    CHECK_EQUAL(post(&a, request), EINVAL);
    expect("a post before RTS", "ibv_post_send", "EINVAL", "sends need RTS");

    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
        .ah_attr = {.port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, rtr), EINVAL);
    expect("no is_global", "ibv_modify_qp", "EINVAL", "is_global is 0");
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 9;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, rtr), EINVAL);
    expect("a bad sgid_index", "ibv_modify_qp", "EINVAL", "sgid_index is 9");
    attr.ah_attr.grh.sgid_index = 0;
    attr.path_mtu = 0;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, rtr), EINVAL);
    expect("MTU 0", "ibv_modify_qp", "EINVAL", "path_mtu is 0");
    attr.path_mtu = IBV_MTU_1024;
    attr.max_dest_rd_atomic = 200;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, rtr), EINVAL);
    expect("too many READs", "ibv_modify_qp", "EINVAL", "max_dest_rd_atomic is 200");

    struct ibv_qp_init_attr large = {.send_cq = a.send_cq, .recv_cq = a.recv_cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1 << 20, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(!ibv_create_qp(a.pd, &large));
    expect("a queue that is too large", "ibv_create_qp", "EINVAL", "cap.max_send_wr is 1048576; at most 16384");
    large.cap.max_send_wr = 1;
    large.cap.max_inline_data = 5000;
    CHECK(!ibv_create_qp(a.pd, &large));
    expect("too much inline data", "ibv_create_qp", "EINVAL", "cap.max_inline_data is 5000");
    large.cap.max_inline_data = 0;
    large.send_cq = NULL;
    CHECK(!ibv_create_qp(a.pd, &large));
    expect("no completion queue", "ibv_create_qp", "EINVAL", "ibv_cq is null");
    CHECK(!ibv_create_cq(a.context, 0, NULL, NULL, 0));
    expect("an empty completion queue", "ibv_create_cq", "EINVAL", "cqe is 0");
    CHECK(!ibv_create_cq(a.context, 16, NULL, NULL, 7));
    expect("a vector that is not there", "ibv_create_cq", "EINVAL", "comp_vector is 7");

    struct ibv_ah_attr without = {.port_num = 1, .dlid = 3};
    CHECK(!ibv_create_ah(a.pd, &without));
    expect("an address handle without GRH", "ibv_create_ah", "EINVAL", "is_global is 0");
    CHECK(!ibv_reg_mr(a.pd, (void *)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE));
    expect("memory that is not there", "ibv_reg_mr", "EFAULT", "4096 bytes at 0x10000");
    CHECK(!ibv_reg_mr(a.pd, a.bytes, 64, IBV_ACCESS_REMOTE_WRITE));
    expect("remote write without local", "ibv_reg_mr", "EINVAL", "need local write");
    CHECK_EQUAL(ibv_dealloc_pd(a.pd), EBUSY);
    expect("a domain in use", "ibv_dealloc_pd", "EBUSY", "destroy those first");
    CHECK_EQUAL(ibv_destroy_qp(NULL), EINVAL);
    expect("a null queue pair", "ibv_destroy_qp", "EINVAL", "ibv_qp is null");
}

static void refused_posts(void)
{
    char large[512] = {0};
    struct ibv_sge sge = {(uintptr_t)large, sizeof large, 0}, many[8] = {{0}};
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_INLINE};
    connect_with(ALL_ACCESS);
    CHECK_EQUAL(post(&a, request), EINVAL);
    expect("inline data that is too long", "ibv_post_send", "EINVAL", "max_inline_data (64)");
    request = (struct ibv_send_wr){.opcode = IBV_WR_SEND, .sg_list = many, .num_sge = 8};
    CHECK_EQUAL(post(&a, request), EINVAL);
    expect("too many SGEs", "ibv_post_send", "EINVAL", "max_send_sge (4)");
    /* Nobody receives, so the queue fills. */
    request = (struct ibv_send_wr){.opcode = IBV_WR_SEND};
    int result = 0;
    for (int i = 0; i < 1000 && result == 0; i++)
        result = post(&a, request);
    CHECK_EQUAL(result, ENOMEM);
    expect("a full send queue", "ibv_post_send", "ENOMEM", "poll the completion queue");
    rig_queue_pair(&b, IBV_QPT_UD);
    rig_init(b.qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    CHECK_EQUAL(post(&b, request), EINVAL);
    expect("a datagram without an address handle", "ibv_post_send", "EINVAL", "wr.ud.ah is null");
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
}

/* One request that fails: what its owner reads, and what the refusing side reads. Both are this process. */
static void fails(const char *what, struct ibv_send_wr request, enum ibv_wc_status status, unsigned reason,
    const char *refusal, const char *line)
{
    CHECK_EQUAL(post(&a, request), 0);
    struct ibv_wc wc = rig_next(a.send_cq);
    CHECK_EQUAL(wc.status, status);
    CHECK_EQUAL(wc.vendor_err, reason);
    /* The refusal is printed by the engine, before the refused side answers. */
    expect(what, refusal, line, NULL);
}

static void failed_requests(void)
{
    struct ibv_mr *readable, *foreign;
    CHECK((readable = ibv_reg_mr(b.pd, b.bytes + 4096, 4096, IBV_ACCESS_REMOTE_READ)) != NULL);
    struct ibv_pd *other = ibv_alloc_pd(b.context);
    CHECK(other && (foreign = ibv_reg_mr(other, b.bytes + 8192, 4096, ALL_ACCESS)) != NULL);
    struct ibv_sge sge = {(uintptr_t)a.bytes, 8, a.mr->lkey};
    struct ibv_send_wr write = {.wr_id = 77, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, request;
    write.wr.rdma.remote_addr = (uintptr_t)b.bytes;
    write.wr.rdma.rkey = b.mr->rkey;

    connect_with(ALL_ACCESS);
    request = write;
    request.wr.rdma.rkey ^= 0x5500;
    fails("a wrong rkey", request, IBV_WC_REM_ACCESS_ERR, 10, "there is no such rkey", "wr_id 77, ends with IBV_WC_REM_ACCESS_ERR");
    connect_with(ALL_ACCESS);
    request = write;
    request.wr.rdma.remote_addr += b.length;
    fails("out of range", request, IBV_WC_REM_ACCESS_ERR, 10, "does not cover it", "IBV_WC_REM_ACCESS_ERR");
    connect_with(ALL_ACCESS);
    request = write;
    request.wr.rdma.remote_addr = (uintptr_t)b.bytes + 4096;
    request.wr.rdma.rkey = readable->rkey;
    fails("a region without the right", request, IBV_WC_REM_ACCESS_ERR, 10, "lacks IBV_ACCESS_REMOTE_WRITE", "IBV_WC_REM_ACCESS_ERR");
    connect_with(ALL_ACCESS);
    request = write;
    request.wr.rdma.remote_addr = (uintptr_t)b.bytes + 8192;
    request.wr.rdma.rkey = foreign->rkey;
    fails("another protection domain", request, IBV_WC_REM_ACCESS_ERR, 10, "another protection domain", "IBV_WC_REM_ACCESS_ERR");
    connect_with(IBV_ACCESS_REMOTE_READ);
    fails("a queue pair without the right", write, IBV_WC_REM_INV_REQ_ERR, 9, "qp_access_flags lack IBV_ACCESS_REMOTE_WRITE",
        "IBV_WC_REM_INV_REQ_ERR");
    connect_with(ALL_ACCESS);
    request = (struct ibv_send_wr){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1};
    request.wr.atomic.remote_addr = (uintptr_t)b.bytes + 4;
    request.wr.atomic.rkey = b.mr->rkey;
    fails("an atomic at an odd place", request, IBV_WC_REM_INV_REQ_ERR, 9, "multiple of 8", "IBV_WC_REM_INV_REQ_ERR");
    connect_with(ALL_ACCESS);
    sge.lkey ^= 0x3300;
    fails("a bad lkey", write, IBV_WC_LOC_PROT_ERR, 64, "there is no such lkey", "IBV_WC_LOC_PROT_ERR");
    sge.lkey = a.mr->lkey;
    connect_with(ALL_ACCESS);
    sge.length = 3 * a.length;
    fails("an SGE beyond its region", write, IBV_WC_LOC_PROT_ERR, 65, "does not cover it", "IBV_WC_LOC_PROT_ERR");
    sge.length = 8;

    connect_with(ALL_ACCESS);
    rig_receive(&b, 5, 0, 4);
    request = (struct ibv_send_wr){.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
    CHECK_EQUAL(post(&a, request), 0);
    struct ibv_wc wc = rig_next(b.recv_cq);
    CHECK_EQUAL(wc.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQUAL(wc.vendor_err, 72);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_REM_INV_REQ_ERR);
    expect("a receive that is too short", "a receive, wr_id 5", "IBV_WC_LOC_LEN_ERR", "longer than the receive");

    connect_with(ALL_ACCESS);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQUAL(post(&a, request), 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_WR_FLUSH_ERR);
    expect("a queue pair in ERR", "a SEND", "IBV_WC_WR_FLUSH_ERR", "was in ERR");
    CHECK_EQUAL(ibv_dereg_mr(readable), 0);
    CHECK_EQUAL(ibv_dereg_mr(foreign), 0);
    CHECK_EQUAL(ibv_dealloc_pd(other), 0);
}

/* The GID of an IPv4 address. */
static void inet4(union ibv_gid *to, int a1, int a2, int a3, int a4)
{
    memset(to, 0, sizeof *to);
    to->raw[10] = to->raw[11] = 0xFF;
    to->raw[12] = a1, to->raw[13] = a2, to->raw[14] = a3, to->raw[15] = a4;
}

/* Requests that nobody answers; retries are few and short. */
static void unanswered(void)
{
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND};
    for (int mistake = 0; mistake < 3; mistake++) {
        union ibv_gid to = gid;
        uint32_t number = b.qp->qp_num;
        if (a.qp)
            CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
        rig_queue_pair(&a, IBV_QPT_RC);
        rig_init(a.qp);
        if (mistake == 0)
            number ^= 0x700000;
        if (mistake == 1)
            inet4(&to, 198, 51, 100, 7);
        if (mistake == 2)
            memset(&to, 0, sizeof to);
        printed();
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
            .max_dest_rd_atomic = 1, .timeout = 8, .retry_cnt = 1, .rnr_retry = 1, .max_rd_atomic = 1,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = to, .hop_limit = 64}}};
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
        attr.qp_state = IBV_QPS_RTS;
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
        CHECK_EQUAL(post(&a, request), 0);
        const char *nowhere[] = {"has no such queue pair", "", "grh.dgid is zero"};
        if (mistake != 1)
            expect("a queue pair that goes nowhere", "goes to RTR", "will not arrive", nowhere[mistake]);
        struct ibv_wc wc = rig_next(a.send_cq);
        CHECK_EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
        /* Whether there is a route to an address elsewhere depends on the machine. */
        CHECK(mistake == 0 ? wc.vendor_err == 81 : mistake == 2 ? wc.vendor_err == 80 : wc.vendor_err >= 82);
        const char *words[] = {"queue pair 0x", "198.51.100.7", "grh.dgid is zero"};
        expect("nobody answers", "IBV_WC_RETRY_EXC_ERR", words[mistake], NULL);
    }
}

static void *destroy(void *cq)
{
    CHECK_EQUAL(ibv_destroy_cq(cq), 0);
    return NULL;
}

/* An event that was got and not acknowledged: the queue is not destroyed before, and after a second a line says so. */
static void unacknowledged(void)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(a.context);
    CHECK(channel);
    struct ibv_cq *cq = ibv_create_cq(a.context, 16, NULL, channel, 0), *found, *before = a.send_cq;
    CHECK(cq);
    CHECK_EQUAL(ibv_req_notify_cq(cq, 0), 0);
    a.send_cq = cq;
    connect_with(ALL_ACCESS);
    struct ibv_sge sge = {(uintptr_t)a.bytes, 8, a.mr->lkey};
    struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
    write.wr.rdma.remote_addr = (uintptr_t)b.bytes;
    write.wr.rdma.rkey = b.mr->rkey;
    CHECK_EQUAL(post(&a, write), 0);
    void *context;
    CHECK_EQUAL(ibv_get_cq_event(channel, &found, &context), 0);
    CHECK(found == cq);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    a.send_cq = before;
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, destroy, cq), 0);
    while (!has_printed())
        usleep(10000);
    expect("an event that was not acknowledged", "1 of its events", "ibv_ack_cq_events", NULL);
    ibv_ack_cq_events(cq, 1);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
}

/* Calls of rdma_cm in the wrong order, with the wrong objects. */
static void connection_manager(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id, *other;
    CHECK(channel);
    printed();
    CHECK_EQUAL(rdma_create_id(channel, &id, NULL, 77), -1);
    expect("a port space that is not there", "rdma_create_id", "EINVAL", "ps is 0x4d");
    CHECK_EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK_EQUAL(rdma_create_qp(id, NULL, &attr), -1);
    expect("a queue pair before an address", "rdma_create_qp", "EINVAL", "rdma_resolve_addr or rdma_bind_addr comes first");
    CHECK_EQUAL(rdma_resolve_route(id, 100), -1);
    expect("a route before an address", "rdma_resolve_route", "EINVAL", "rdma_resolve_addr");
    CHECK_EQUAL(rdma_connect(id, NULL), -1);
    expect("a connection before a route", "rdma_connect", "EINVAL", "rdma_resolve_route come first");
    CHECK_EQUAL(rdma_accept(id, NULL), -1);
    expect("an answer without a request", "rdma_accept", "EINVAL", "RDMA_CM_EVENT_CONNECT_REQUEST");
    CHECK_EQUAL(rdma_disconnect(id), -1);
    expect("an end without a connection", "rdma_disconnect", "EINVAL", "not connected");
    struct sockaddr_in address = {.sin_family = AF_INET};
    inet_pton(AF_INET, "198.51.100.9", &address.sin_addr);
    CHECK_EQUAL(rdma_bind_addr(id, (struct sockaddr *)&address), -1);
    expect("an address of another machine", "rdma_bind_addr", "ENODEV", "198.51.100.9 is no address of this machine");
    address.sin_addr.s_addr = 0;
    CHECK_EQUAL(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    CHECK_EQUAL(rdma_listen(id, 1), 0);
    address.sin_port = rdma_get_src_port(id);
    CHECK_EQUAL(rdma_bind_addr(other, (struct sockaddr *)&address), -1);
    expect("a port that is taken", "rdma_bind_addr", "EADDRINUSE", "has port");
    CHECK_EQUAL(rdma_destroy_id(id), 0);
    CHECK_EQUAL(rdma_destroy_id(other), 0);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    CHECK(setenv("HIGHWIRE_LOG", "1", 1) == 0);
    capture();
    struct ibv_context *context = rig_open();
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    printed();
    refused_arguments();
    refused_posts();
    failed_requests();
    unanswered();
    unacknowledged();
    connection_manager();
    printf("%d mistakes were explained\n", cases);
    return 0;
}
