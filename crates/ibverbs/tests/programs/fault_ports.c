/* One card with two ports: each has a state, GIDs and events of its own, and a queue pair shares the fate of its port alone.
 * scenario: port-2-down apart
 * scenario: port-2-init-at-open opens
 */
#include "rig.h"
#include <poll.h>

static struct ibv_context *context;
static union ibv_gid gids[3];

static enum ibv_port_state state_of_port(int number)
{
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(context, number, &port), 0);
    char path[100], text[20];
    snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_0/ports/%d/state", number);
    rig_read_file(path, text, sizeof text);
    CHECK_EQUAL(atoi(text), port.state);
    return port.state;
}

/* The attributes by which a queue pair goes to RTR at `port`, with the source GID of one place. */
static int to_rtr(struct ibv_qp *qp, int port, int sgid_index)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = port, .grh = {.dgid = gids[2], .sgid_index = sgid_index}}};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static void check_event(enum ibv_event_type kind, int port)
{
    struct ibv_async_event event = rig_event(context);
    CHECK_EQUAL(event.event_type, kind);
    CHECK_EQUAL(event.element.port_num, port);
}

static void check_ports(void)
{
    struct ibv_device_attr device;
    CHECK_EQUAL(ibv_query_device(context, &device), 0);
    CHECK_EQUAL(device.phys_port_cnt, 2);
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(context, 3, &port), EINVAL);
    CHECK_EQUAL(ibv_query_port(context, 0, &port), EINVAL);
    CHECK_EQUAL(access("/sys/class/infiniband/mlx5_0/ports/3", F_OK), -1);
    for (int number = 1; number <= 2; number++) {
        CHECK_EQUAL(ibv_query_gid(context, number, 0, &gids[number]), 0);
        char path[100], text[100], expected[100] = "";
        for (int i = 0; i < 16; i++)
            snprintf(expected + strlen(expected), 4, "%02x%s", gids[number].raw[i], i % 2 && i < 15 ? ":" : "");
        snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_0/ports/%d/gids/0", number);
        rig_read_file(path, text, sizeof text);
        CHECK(!strcmp(text, expected));
    }
    CHECK(memcmp(&gids[1], &gids[2], sizeof gids[1]) != 0);
    struct ibv_gid_entry entries[8];
    CHECK_EQUAL(ibv_query_gid_table(context, entries, 8, 0), 4);
    CHECK_EQUAL(entries[0].port_num, 1);
    CHECK_EQUAL(entries[3].port_num, 2);
    CHECK(!memcmp(&entries[3].gid, &gids[2], sizeof gids[2]));
}

/* A datagram from `from` to `to`, whose receiver may hear it. */
static void datagram(struct end *from, struct end *to, int port)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = port, .grh = {.dgid = gids[port], .hop_limit = 64}};
    struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);
    CHECK(ah);
    struct ibv_sge sge = {(uintptr_t)from->bytes, 8, from->mr->lkey};
    struct ibv_send_wr request = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = 0x1234567}}, *bad;
    CHECK_EQUAL(ibv_post_send(from->qp, &request, &bad), 0);
    CHECK_EQUAL(rig_next(from->send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(ibv_destroy_ah(ah), 0);
}

static void apart(void)
{
    CHECK_EQUAL(state_of_port(1), IBV_PORT_ACTIVE);
    CHECK_EQUAL(state_of_port(2), IBV_PORT_ACTIVE);
    struct end a1, b1, a2, b2, c1, d1, c2, d2;
    rig_pair(&a1, &b1, context, 4096);
    rig_ends(&a2, &b2, context, 4096, IBV_QPT_RC);
    /* The port of the address is that of the queue pair, and the source GID is one of its table. */
    rig_init_at(a2.qp, 2);
    CHECK_EQUAL(to_rtr(a2.qp, 1, 0), EINVAL);
    CHECK_EQUAL(to_rtr(a2.qp, 3, 0), EINVAL);
    CHECK_EQUAL(to_rtr(a2.qp, 2, 0), 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK_EQUAL(ibv_query_qp(a2.qp, &attr, IBV_QP_PORT | IBV_QP_AV, &init), 0);
    CHECK_EQUAL(attr.port_num, 2);
    CHECK_EQUAL(attr.ah_attr.port_num, 2);
    CHECK(!memcmp(&attr.ah_attr.grh.dgid, &gids[2], sizeof gids[2]));
    rig_reset(a2.qp);
    rig_connect_at(&a2, &b2, 2);
    rig_ends(&c1, &d1, context, 4096, IBV_QPT_UD);
    rig_ends(&c2, &d2, context, 4096, IBV_QPT_UD);
    struct end *ends[] = {&c1, &d1, &c2, &d2};
    for (int i = 0; i < 4; i++)
        rig_datagrams(ends[i]->qp, i < 2 ? 1 : 2);

    rig_post(&a1, IBV_WR_RDMA_WRITE, 1, 0, 8, &b1, 0);
    CHECK_EQUAL(rig_next(a1.send_cq).status, IBV_WC_SUCCESS);
    memset(a2.bytes, 3, 8);
    rig_post(&a2, IBV_WR_RDMA_WRITE, 2, 0, 8, &b2, 0);
    CHECK_EQUAL(rig_next(a2.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(b2.bytes[7], 3);

    /* From the third post on the second port is down. Nothing from its queue pairs arrives, and nothing to them. */
    memset(a2.bytes, 4, 8);
    rig_receive(&b2, 70, 100, 8);
    rig_post(&a2, IBV_WR_RDMA_WRITE, 3, 0, 8, &b2, 0);
    check_event(IBV_EVENT_PORT_ERR, 2);
    CHECK_EQUAL(state_of_port(1), IBV_PORT_ACTIVE);
    CHECK_EQUAL(state_of_port(2), IBV_PORT_DOWN);
    CHECK_EQUAL(rig_next(a2.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(b2.bytes[7], 3);
    CHECK_EQUAL(rig_state(b2.qp), IBV_QPS_RTS);
    rig_receive(&d2, 71, 0, 64);
    datagram(&c2, &d2, 2);
    /* The first port's datagram comes behind the lost one, and all of its packets pass. */
    rig_receive(&d1, 72, 0, 64);
    datagram(&c1, &d1, 1);
    CHECK_EQUAL(rig_next(d1.recv_cq).status, IBV_WC_SUCCESS);
    for (int id = 10; id < 20; id++) {
        rig_post(&a1, IBV_WR_RDMA_WRITE, id, 0, 8, &b1, 0);
        CHECK_EQUAL(rig_next(a1.send_cq).status, IBV_WC_SUCCESS);
    }
    struct ibv_wc wc;
    CHECK_EQUAL(ibv_poll_cq(d2.recv_cq, 1, &wc), 0);

    uint16_t pkey;
    CHECK_EQUAL(ibv_query_pkey(context, 2, 0, &pkey), 0);
    check_event(IBV_EVENT_PORT_ACTIVE, 2);
    CHECK_EQUAL(state_of_port(2), IBV_PORT_ACTIVE);
    datagram(&c2, &d2, 2);
    CHECK_EQUAL(rig_next(d2.recv_cq).wr_id, 71);
    rig_reset(a2.qp);
    rig_reset(b2.qp);
    rig_connect_at(&a2, &b2, 2);
    rig_post(&a2, IBV_WR_RDMA_WRITE, 4, 0, 8, &b2, 0);
    CHECK_EQUAL(rig_next(a2.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(b2.bytes[7], 4);

    /* The GIDs of one table move, and those of the other stay. */
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    check_event(IBV_EVENT_GID_CHANGE, 2);
    union ibv_gid now;
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &now), 0);
    CHECK(!memcmp(&now, &gids[1], sizeof now));
    CHECK_EQUAL(ibv_query_gid(context, 2, 0, &now), 0);
    CHECK_EQUAL(now.global.interface_id, 0);
    rig_check_file("/sys/class/infiniband/mlx5_0/ports/2/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
    rig_reset(a2.qp);
    rig_init_at(a2.qp, 2);
    CHECK_EQUAL(to_rtr(a2.qp, 2, 0), EINVAL);
    CHECK_EQUAL(to_rtr(a2.qp, 2, 2), 0);
    struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
    CHECK_EQUAL(poll(&fd, 1, 0), 0);
}

/* The port that is not configured carries nothing, and the other is used. */
static void opens(void)
{
    CHECK_EQUAL(state_of_port(1), IBV_PORT_ACTIVE);
    CHECK_EQUAL(state_of_port(2), IBV_PORT_INIT);
    struct end a1, b1, a2, b2;
    rig_pair(&a1, &b1, context, 4096);
    rig_ends(&a2, &b2, context, 4096, IBV_QPT_RC);
    rig_connect_at(&a2, &b2, 2);
    rig_post(&a2, IBV_WR_RDMA_WRITE, 1, 0, 8, &b2, 0);
    CHECK_EQUAL(rig_next(a2.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    rig_post(&a1, IBV_WR_RDMA_WRITE, 1, 0, 8, &b1, 0);
    CHECK_EQUAL(rig_next(a1.send_cq).status, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    context = rig_open();
    check_ports();
    if (!strcmp(argv[1], "apart"))
        apart();
    else
        opens();
    return 0;
}
