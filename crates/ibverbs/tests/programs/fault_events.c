/* Devices that change while the program runs: ports, GIDs, the whole device.
 * scenario: port-flaps flaps
 * scenario: port-dies dies
 * scenario: silent-switch silent
 * scenario: port-down-at-open opens
 * scenario: gid-moves gid
 * scenario: device-fatal fatal
 * scenario: told-twice twice
 */
/* Two seconds: a flap is far shorter, on a busy machine too. */
#define RIG_TIMEOUT 16
#include "rig.h"
#include <poll.h>

static struct end a, b;
static struct ibv_context *context;

/* The next event, of the first port if it is one of a port. */
static enum ibv_event_type next_event(void)
{
    struct ibv_async_event event = rig_event(context);
    if (event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE)
        CHECK_EQUAL(event.element.port_num, 1);
    return event.event_type;
}

static int has_event(void)
{
    struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
    return poll(&fd, 1, 0);
}

static enum ibv_port_state port_state(void)
{
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(context, 1, &port), 0);
    CHECK_EQUAL(port.phys_state, port.state == IBV_PORT_DOWN ? 3 : 5);
    return port.state;
}

/* What programs read that do not ask verbs. */
static void check_file(const char *name, const char *expected)
{
    char path[300];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/%s", ibv_get_device_name(context->device), name);
    rig_check_file(path, expected);
}

static void connect_both(void) { rig_pair(&a, &b, context, 4096); }

static void write_to(int id) { rig_post(&a, IBV_WR_RDMA_WRITE, id, 0, 8, &b, 0); }

/* The queue pair stays in RTS, posting goes on, and all is delivered when the port is back. */
static void flaps(void)
{
    connect_both();
    for (int id = 1; id <= 2; id++) {
        write_to(id);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    }
    check_file("state", "4: ACTIVE");
    for (int id = 3; id <= 5; id++)
        write_to(id);
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ERR);
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ACTIVE);
    CHECK_EQUAL(port_state(), IBV_PORT_ACTIVE);
    check_file("state", "4: ACTIVE");
    check_file("phys_state", "5: LinkUp");
    for (int id = 3; id <= 5; id++) {
        struct ibv_wc wc = rig_next(a.send_cq);
        CHECK_EQUAL(wc.wr_id, id);
        CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    }
    CHECK_EQUAL(rig_state(a.qp), IBV_QPS_RTS);
    CHECK_EQUAL(has_event(), 0);
}

/* One completion says that retries ran out, the others are flushed; the receiver is told nothing. */
static void dies(int is_told)
{
    connect_both();
    rig_receive(&b, 70, 0, 8);
    for (int id = 1; id <= 2; id++) {
        write_to(id);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    }
    memset(a.bytes, 7, 8);
    for (int id = 3; id <= 5; id++)
        write_to(id);
    if (is_told) {
        CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ERR);
        check_file("state", "1: DOWN");
        check_file("phys_state", "3: Disabled");
    }
    CHECK_EQUAL(port_state(), is_told ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
    struct ibv_wc wc = rig_next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 3);
    CHECK_EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
    for (int id = 4; id <= 5; id++) {
        wc = rig_next(a.send_cq);
        CHECK_EQUAL(wc.wr_id, id);
        CHECK_EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    CHECK_EQUAL(rig_state(a.qp), IBV_QPS_ERR);
    CHECK_EQUAL(rig_state(b.qp), IBV_QPS_RTS);
    CHECK_EQUAL(ibv_poll_cq(b.recv_cq, 1, &wc), 0);
    CHECK_EQUAL(b.bytes[0], 0);
    CHECK_EQUAL(has_event(), 0);
}

/* A program that opens a device whose port is down waits for it, and then works. */
static void opens(void)
{
    CHECK_EQUAL(port_state(), IBV_PORT_DOWN);
    check_file("state", "1: DOWN");
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ACTIVE);
    CHECK_EQUAL(port_state(), IBV_PORT_ACTIVE);
    check_file("state", "4: ACTIVE");
    connect_both();
    write_to(1);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
}

/* A stale index is refused; a program that asks again connects. */
static void gid(void)
{
    union ibv_gid before, after;
    uint16_t pkey;
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &before), 0);
    rig_end(&a, context, 4096);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_init(a.qp);
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQUAL(next_event(), IBV_EVENT_GID_CHANGE);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = a.qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = before}}};
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, mask), EINVAL);
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &after), 0);
    CHECK_EQUAL(after.global.interface_id, 0);
    check_file("gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    struct ibv_gid_entry entries[16];
    ssize_t count = ibv_query_gid_table(context, entries, 16, 0);
    CHECK(count > 0);
    CHECK(entries[0].gid_index > 1);
    CHECK(!memcmp(&entries[0].gid, &before, sizeof before));
    char name[40];
    snprintf(name, sizeof name, "gid_attrs/types/%u", entries[0].gid_index);
    check_file(name, "RoCE v2");
    attr.ah_attr.grh.sgid_index = entries[0].gid_index;
    CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, mask), 0);
}

/* Requests are taken in vain, no completion comes, nothing can be made, and everything can be released. */
static void fatal(void)
{
    connect_both();
    write_to(1);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    struct ibv_send_wr request = {.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {(uintptr_t)b.bytes, b.mr->rkey}}, *bad;
    /* As a card's library does, which asks nobody: the request is taken, and never carried out. */
    CHECK_EQUAL(ibv_post_send(a.qp, &request, &bad), 0);
    CHECK_EQUAL(next_event(), IBV_EVENT_DEVICE_FATAL);
    struct ibv_async_event event;
    CHECK_EQUAL(ibv_get_async_event(context, &event), -1);
    CHECK_EQUAL(errno, EIO);
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(context, 1, &port), EIO);
    CHECK(!ibv_alloc_pd(context));
    CHECK_EQUAL(errno, EIO);
    CHECK(!ibv_reg_mr(a.pd, a.bytes, 64, ALL_ACCESS));
    struct ibv_wc wc;
    CHECK_EQUAL(ibv_poll_cq(a.send_cq, 1, &wc), 0);
    check_file("state", "1: DOWN");
    rig_close(&a);
    rig_close(&b);
    CHECK_EQUAL(ibv_close_device(context), 0);
}

static void twice(void)
{
    uint16_t pkey;
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ERR);
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ACTIVE);
    CHECK_EQUAL(next_event(), IBV_EVENT_PORT_ACTIVE);
    CHECK_EQUAL(has_event(), 0);
    CHECK_EQUAL(port_state(), IBV_PORT_ACTIVE);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    context = rig_open();
    if (!strcmp(argv[1], "flaps"))
        flaps();
    else if (!strcmp(argv[1], "dies"))
        dies(1);
    else if (!strcmp(argv[1], "silent"))
        dies(0);
    else if (!strcmp(argv[1], "opens"))
        opens();
    else if (!strcmp(argv[1], "gid"))
        gid();
    else if (!strcmp(argv[1], "fatal"))
        fatal();
    else
        twice();
    return 0;
}
