/* What `highwire run --record` has kept of a program, in each way that a program can end: it starts itself under that command, and reads
 * what `highwire explain` and `highwire replay` say.
 */
#include "record.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

/* Requests that succeed, a call that is refused, a request that fails, and an end. */
static void play(const char *end)
{
    struct end a, b;
    struct ibv_context *context = rig_open();
    rig_end(&a, context, 4096);
    rig_end(&b, context, 4096);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    memcpy(a.bytes, "a secret", 8);
    for (int i = 0; i < 50; i++) {
        rig_receive(&b, 1000 + i, 64, 64);
        rig_post(&a, IBV_WR_SEND, 2000 + i, 0, 8, NULL, 0);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_SUCCESS);
    }
    if (strcmp(end, "well")) {
        CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0));
        b.mr->rkey ^= 0x5500;
        rig_post(&a, IBV_WR_RDMA_WRITE, 77, 0, 8, &b, 0);
        /* The failure is in the record although the program never polls for it. */
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        do {
            /* Another queue is polled, so that the engine runs. */
            struct ibv_wc wc;
            CHECK_EQUAL(ibv_poll_cq(b.recv_cq, 1, &wc), 0);
            CHECK_EQUAL(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
        } while (attr.qp_state != IBV_QPS_ERR);
    }
    if (!strcmp(end, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(end, "leave"))
        _exit(3);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
}

static void two(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    play("return");
    if (child == 0)
        return;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

static struct rdma_cm_id *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    CHECK_EQUAL(rdma_get_cm_event(channel, &event), 0);
    CHECK_EQUAL(event->event, type);
    struct rdma_cm_id *id = event->id;
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    return id;
}

/* A connection by address and port, from its request to its end. */
static void connect_by_port(void)
{
    struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
    struct rdma_cm_id *listener, *asker, *answerer;
    CHECK(here && there);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQUAL(rdma_create_id(there, &listener, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_bind_addr(listener, (void *)&at), 0);
    CHECK_EQUAL(rdma_listen(listener, 1), 0);
    at.sin_port = rdma_get_src_port(listener);
    CHECK_EQUAL(rdma_create_id(here, &asker, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_resolve_addr(asker, NULL, (void *)&at, 1000), 0);
    next_event(here, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQUAL(rdma_resolve_route(asker, 1000), 0);
    next_event(here, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    CHECK_EQUAL(rdma_create_qp(asker, NULL, &attr), 0);
    CHECK_EQUAL(rdma_connect(asker, NULL), 0);
    answerer = next_event(there, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct ibv_qp_init_attr other = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    CHECK_EQUAL(rdma_create_qp(answerer, NULL, &other), 0);
    CHECK_EQUAL(rdma_accept(answerer, NULL), 0);
    next_event(here, RDMA_CM_EVENT_ESTABLISHED);
    next_event(there, RDMA_CM_EVENT_ESTABLISHED);
    CHECK_EQUAL(rdma_disconnect(asker), 0);
    next_event(here, RDMA_CM_EVENT_DISCONNECTED);
    next_event(there, RDMA_CM_EVENT_DISCONNECTED);
}

static void check_failures(const char *text, const char *what)
{
    has(text, "ibv_create_cq fails with EINVAL: cqe is 0", what);
    has(text, "an RDMA WRITE of 8 bytes, wr_id 77", what);
    has(text, "ends with IBV_WC_REM_ACCESS_ERR: the peer refused it: ", what);
    has(text, "there is no such rkey", what);
    lacks(text, "is not whole", what);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "two")) {
        two();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "connect")) {
        connect_by_port();
        return 0;
    }
    if (argc > 1) {
        if (strcmp(argv[1], "none"))
            play(argv[1]);
        return 0;
    }
    record_begin();
    /* Standard opcodes, whatever the two ends would agree on. */
    strcpy(record_options, "--recovery go-back-n");
    recorded(argv[0], "kill", 128 + SIGKILL);
    const char *text = explained("");
    check_failures(text, "a program that was killed");
    has(text, "did not end by itself", "a program that was killed");
    /* A record has no byte of a message. */
    FILE *file = fopen(record_path, "r");
    CHECK(file);
    int at = 0;
    for (int c; (c = fgetc(file)) != EOF;) {
        at = c == "a secret"[at] ? at + 1 : c == 'a';
        CHECK(at < 8);
    }
    fclose(file);
    recorded(argv[0], "leave", 3);
    text = explained("");
    check_failures(text, "a program that leaves at once");
    has(text, "did not end by itself", "a program that leaves at once");
    recorded(argv[0], "return", 0);
    text = explained("");
    check_failures(text, "a program that returns");
    lacks(text, "did not end by itself", "a program that returns");
    has(replayed("--only completions"), "wr_id 2049: IBV_WC_SUCCESS", "completions");
    has(replayed("--only requests"), "posts a SEND of 8 bytes, wr_id 2000", "requests");
    has(replayed("--only requests"), "posts a receive of 64 bytes, wr_id 1049", "receives");
    has(replayed("--only packets"), "sent RC_SEND_ONLY psn 0x111111", "packets that leave");
    has(replayed("--only packets"), "received RC_SEND_ONLY psn 0x111142", "packets that arrive");
    has(replayed("--only states"), "goes from RTS to ERR", "states");
    lacks(replayed("--only states"), "RC_SEND_ONLY", "states alone");
    has(replayed("--merged --json"), "\"subject\":\"completions\"", "JSON");
    recorded(argv[0], "well", 0);
    has(explained(""), "nothing went wrong", "a program that is in order");
    lacks(explained(""), "again", "nothing was sent twice");
    recorded(argv[0], "two", 0);
    text = explained("");
    check_failures(text, "two processes");
    has(text, "2 processes, 4 queue pairs", "two processes");
    recorded(argv[0], "connect", 0);
    text = replayed("--qp 1");
    const char *messages[] = {"sent REQ", "received REQ", "sent REP", "received REP", "sent RTU", "received RTU", "sent DREQ",
        "received DREQ", "sent DREP", "received DREP"};
    for (int i = 0; i < 10; i++)
        has(text, messages[i], "the messages of a connection");
    text = explained("");
    has(text, "1 process, 2 queue pairs", "a connection");
    has(text, "nothing went wrong", "a connection");
    recorded(argv[0], "none", 0);
    has(explained(""), "no process has looked for RDMA devices", "a program that opens no device");
    record_end();
    printf("every end was recorded\n");
    return 0;
}
