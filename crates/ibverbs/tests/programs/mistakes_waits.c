/* Mistakes after which a program waits for what never comes: HIGHWIRE_LOG=1 says after a second who waits for what.
 *
 * Each case makes the mistake, waits as a program would until a line is printed, and says which words it expects. A line that does not come
 * is a hang, which the runner ends.
 */
#include "words.h"
#include <pthread.h>

static struct end a, b;
static union ibv_gid gid;

static void fresh(enum ibv_qp_type type)
{
    if (a.qp)
        CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    if (b.qp)
        CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
    rig_queue_pair(&a, type);
    rig_queue_pair(&b, type);
    printed();
}

/* A request that is posted as a program does which forgets the flag, or which does not. */
static void post(enum ibv_wr_opcode opcode, int flags)
{
    struct ibv_sge sge = {(uintptr_t)a.bytes, 8, a.mr->lkey};
    struct ibv_send_wr request = {.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags}, *bad;
    request.wr.rdma.remote_addr = (uintptr_t)b.bytes;
    request.wr.rdma.rkey = b.mr->rkey;
    CHECK_EQUAL(ibv_post_send(a.qp, &request, &bad), 0);
}

/* Polls until a line is printed, as a program does that waits for a completion; none comes. */
static void poll_in_vain(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    while (!has_printed())
        CHECK_EQUAL(ibv_poll_cq(cq, 1, &wc), 0);
}

static void unsignaled(void)
{
    fresh(IBV_QPT_RC);
    rig_connect(&a, &b);
    post(IBV_WR_RDMA_WRITE, 0);
    poll_in_vain(a.send_cq);
    expect("an unsignaled request whose completion queue is polled", "queue pair 0x", "none of its requests, 1 so far,", "IBV_SEND_SIGNALED");
}

static void *wait_for_event(void *channel)
{
    struct ibv_cq *cq;
    void *context;
    CHECK_EQUAL(ibv_get_cq_event(channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* A queue that was never armed; then one that was not armed again after its event. */
static void unarmed(void)
{
    struct ibv_cq *before = a.send_cq;
    struct ibv_comp_channel *channel = ibv_create_comp_channel(a.context);
    CHECK(channel && (a.send_cq = ibv_create_cq(a.context, 16, NULL, channel, 0)) != NULL);
    fresh(IBV_QPT_RC);
    rig_connect(&a, &b);
    for (int again = 0; again < 2; again++) {
        pthread_t thread;
        if (again) {
            CHECK_EQUAL(ibv_req_notify_cq(a.send_cq, 0), 0);
            wait_for_event(channel);
            CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        }
        post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        CHECK_EQUAL(pthread_create(&thread, NULL, wait_for_event, channel), 0);
        while (!has_printed())
            usleep(10000);
        expect("a completion queue that was not armed", "1 completion waits", "no event was asked for", again ? "since the last" : "yet");
        CHECK_EQUAL(ibv_req_notify_cq(a.send_cq, 0), 0);
        CHECK_EQUAL(pthread_join(thread, NULL), 0);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        if (!again)
            post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    }
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
    CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
    a.send_cq = before;
}

static void no_receive(void)
{
    fresh(IBV_QPT_RC);
    rig_connect(&a, &b);
    post(IBV_WR_SEND, IBV_SEND_SIGNALED);
    poll_in_vain(a.send_cq);
    expect("rnr_retry 7 and no receive at the peer", "1 request needs a receive at queue pair 0x", "rnr_retry 7", NULL);
    rig_receive(&b, 1, 64, 64);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_SUCCESS);
}

/* The receiver expects another first packet, behind or ahead of the one that comes; the sender's timeout has no end. */
static void wrong_psn(uint32_t expected)
{
    fresh(IBV_QPT_RC);
    rig_init(a.qp);
    rig_init(b.qp);
    rig_to(b.qp, a.qp->qp_num, gid, 0x222222, expected);
    rig_to(a.qp, b.qp->qp_num, gid, 0x111111, 0x222222);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    attr.timeout = 0;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_TIMEOUT), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    rig_receive(&b, 1, 64, 64);
    post(IBV_WR_SEND, IBV_SEND_SIGNALED);
    char words[64], all[16384] = "";
    snprintf(words, sizeof words, "waits for its first packet, PSN %#x", expected);
    /* Both ends tell, each after a second of its own. */
    while (!strstr(all, words) || !strstr(all, "acknowledged nothing")) {
        poll_in_vain(a.send_cq);
        strncat(all, printed(), sizeof all - strlen(all) - 1);
    }
    CHECK(strstr(all, "sends PSN 0x111111") && strstr(all, "timeout 0 means") && strstr(all, "1 packet from PSN"));
    printf("wrong PSN\n    %s", all);
    cases++;
}

static void datagram(uint32_t qkey, uint32_t room)
{
    fresh(IBV_QPT_UD);
    rig_datagrams(a.qp, 1);
    rig_datagrams(b.qp, 1);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
    struct ibv_ah *ah = ibv_create_ah(a.pd, &to);
    CHECK(ah);
    rig_receive(&b, 1, 64, room);
    struct ibv_sge sge = {(uintptr_t)a.bytes, 8, a.mr->lkey};
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = qkey}}, *bad;
    /* Strangers can send any number: the first is told. */
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(ibv_post_send(a.qp, &request, &bad), 0);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    }
    poll_in_vain(b.recv_cq);
    CHECK_EQUAL(ibv_destroy_ah(ah), 0);
}

static void dropped_datagrams(void)
{
    datagram(0x7654321, 64);
    expect("a wrong Q_Key", "(UD) drops a datagram", "its Q_Key is 0x7654321", "0x1234567");
    datagram(0x1234567, 16);
    expect("a receive without room for the GRH", "(UD) drops a datagram of 8 bytes", "room for 16", "40 more");
}

/* What is right is not told: a program that waits for its peer with everything in place. */
static void nothing_wrong(void)
{
    fresh(IBV_QPT_RC);
    rig_connect(&a, &b);
    rig_receive(&b, 1, 64, 64);
    post(IBV_WR_SEND, IBV_SEND_SIGNALED);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_SUCCESS);
    /* The mistake of another queue pair is told after the same time. */
    struct end other = a;
    rig_queue_pair(&other, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&other, &b);
    uint32_t innocent = a.qp->qp_num;
    a.qp = other.qp;
    post(IBV_WR_RDMA_WRITE, 0);
    poll_in_vain(a.send_cq);
    char words[32];
    snprintf(words, sizeof words, "queue pair %#x ", innocent);
    CHECK(!strstr(printed(), words));
}

static void wrong_psns(void)
{
    wrong_psn(0x111000);
    wrong_psn(0x111151);
    wrong_psn(0x991111);
}

static const struct {
    const char *name;
    void (*run)(void);
} waits[] = {{"unsignaled", unsignaled}, {"unarmed", unarmed}, {"no_receive", no_receive}, {"wrong_psn", wrong_psns},
    {"datagrams", dropped_datagrams}, {"nothing_wrong", nothing_wrong}};

/* All of them, or the one that is named. */
int main(int argc, char **argv)
{
    CHECK(setenv("HIGHWIRE_LOG", "1", 1) == 0);
    capture();
    struct ibv_context *context = rig_open();
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++)
        if (argc < 2 || !strcmp(argv[1], waits[i].name))
            waits[i].run();
    printf("%d waits were explained\n", cases);
    return 0;
}
