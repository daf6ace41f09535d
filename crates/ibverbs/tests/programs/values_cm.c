/* Every field of every event of connection management: what one end says is what the other is told, with responder_resources and initiator_depth
 * seen from the other side. Both ends are in this process, and no two numbers are the same. */
#include "rig.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum { REQ_PRIVATE = 56, REP_PRIVATE = 196, REJ_PRIVATE = 148, SIDR_REQ_PRIVATE = 180, SIDR_REP_PRIVATE = 136 };
static struct rdma_event_channel *here, *there;
static struct rdma_cm_id *listener;

static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, struct rdma_cm_id *id, int status)
{
    struct rdma_cm_event *event;
    CHECK_EQUAL(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type)
        fprintf(stderr, "%s came\n", rdma_event_str(event->event));
    CHECK_EQUAL(event->event, type);
    CHECK_EQUAL(event->status, status);
    CHECK(!id || event->id == id);
    CHECK(type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id == listener : !event->listen_id);
    return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
    CHECK_EQUAL(rdma_ack_cm_event(expect(channel, type, id, 0)), 0);
}

/* The bytes that were sent, and zeros up to the length of the message's field. */
static void check_private(const void *data, unsigned length, const char *sent, unsigned sent_length, unsigned room)
{
    CHECK_EQUAL(length, room);
    CHECK(!memcmp(data, sent, sent_length));
    for (unsigned i = sent_length; i < room; i++)
        CHECK_EQUAL(((const char *)data)[i], 0);
}

static struct rdma_cm_id *identifier(struct rdma_event_channel *channel, void *own, enum rdma_port_space space)
{
    struct rdma_cm_id *id;
    CHECK_EQUAL(rdma_create_id(channel, &id, own, space), 0);
    CHECK(id->context == own && id->channel == channel && id->ps == space && !id->qp);
    return id;
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int listen_on(enum rdma_port_space space, void *own)
{
    struct sockaddr_in at = loopback(0);
    listener = identifier(there, own, space);
    CHECK_EQUAL(rdma_bind_addr(listener, (void *)&at), 0);
    CHECK_EQUAL(rdma_listen(listener, 3), 0);
    CHECK(rdma_get_src_port(listener) != 0);
    return rdma_get_src_port(listener);
}

/* An identifier whose way to the port is known, with a queue pair of its own. */
static struct rdma_cm_id *resolved(int port, void *own, enum rdma_port_space space)
{
    struct rdma_cm_id *id = identifier(here, own, space);
    struct sockaddr_in to = loopback(port);
    CHECK_EQUAL(rdma_resolve_addr(id, NULL, (void *)&to, 2000), 0);
    struct rdma_cm_event *event = expect(here, RDMA_CM_EVENT_ADDR_RESOLVED, id, 0);
    CHECK(!event->param.conn.private_data && event->param.conn.private_data_len == 0);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    CHECK(id->verbs && id->port_num == 1);
    CHECK_EQUAL(rdma_resolve_route(id, 2000), 0);
    pass(here, RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    CHECK(id->route.num_paths == 1 && id->route.path_rec);
    CHECK_EQUAL(rdma_get_dst_port(id), port);
    return id;
}

static struct ibv_srq *make_queue_pair(struct rdma_cm_id *id, int is_shared)
{
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 3, .max_recv_wr = 5, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC, .srq = is_shared ? ibv_create_srq(pd, &shared) : NULL};
    CHECK(pd && (!is_shared || attr.srq));
    CHECK_EQUAL(rdma_create_qp(id, pd, &attr), 0);
    CHECK(id->qp && id->qp->pd == pd && id->pd == pd && id->qp->srq == attr.srq);
    return attr.srq;
}

static void let_go(struct rdma_cm_id *id)
{
    if (id->qp)
        rdma_destroy_qp(id);
    CHECK_EQUAL(rdma_destroy_id(id), 0);
}

static void check_attributes(struct ibv_qp *qp, unsigned reads, unsigned answers, unsigned retries, unsigned rnr_retries, uint32_t peer)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK_EQUAL(ibv_query_qp(qp, &attr, ~0, &init), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_RTS);
    CHECK_EQUAL(attr.max_rd_atomic, reads);
    CHECK_EQUAL(attr.max_dest_rd_atomic, answers);
    CHECK_EQUAL(attr.retry_cnt, retries);
    CHECK_EQUAL(attr.rnr_retry, rnr_retries);
    CHECK_EQUAL(attr.dest_qp_num, peer);
}

/* A connection from its request to its end. `has_shared` says which end has a shared receive queue and wants flow control. */
static void connection(int has_shared)
{
    int own_here, own_there, port = listen_on(RDMA_PS_TCP, &own_there);
    struct rdma_cm_id *id = resolved(port, &own_here, RDMA_PS_TCP);
    make_queue_pair(id, has_shared);
    struct rdma_conn_param asked = {.private_data = "question", .private_data_len = 9, .responder_resources = 5, .initiator_depth = 3,
        .flow_control = has_shared, .retry_count = 6, .rnr_retry_count = 5, .srq = !has_shared, .qp_num = 0x777};
    CHECK_EQUAL(rdma_connect(id, &asked), 0);

    struct rdma_cm_event *event = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
    struct rdma_cm_id *peer = event->id;
    struct rdma_conn_param *told = &event->param.conn;
    CHECK(peer != listener && peer->context == &own_there && peer->channel == there && peer->ps == RDMA_PS_TCP);
    CHECK(peer->verbs && peer->port_num == 1 && !peer->qp);
    CHECK_EQUAL(rdma_get_src_port(peer), port);
    CHECK_EQUAL(rdma_get_dst_port(peer), rdma_get_src_port(id));
    check_private(told->private_data, told->private_data_len, "question", 9, REQ_PRIVATE);
    /* What the peer begins, this end answers. */
    CHECK_EQUAL(told->responder_resources, 3);
    CHECK_EQUAL(told->initiator_depth, 5);
    CHECK_EQUAL(told->flow_control, has_shared);
    CHECK_EQUAL(told->retry_count, 6);
    CHECK_EQUAL(told->rnr_retry_count, 5);
    /* The queue pair knows better than the parameters. */
    CHECK_EQUAL(told->srq, has_shared);
    CHECK_EQUAL(told->qp_num, id->qp->qp_num);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);

    make_queue_pair(peer, !has_shared);
    struct rdma_conn_param answered = {.private_data = "the answer", .private_data_len = 11, .responder_resources = 2,
        .initiator_depth = 4, .flow_control = !has_shared, .retry_count = 1, .rnr_retry_count = 6, .srq = has_shared, .qp_num = 0x888};
    CHECK_EQUAL(rdma_accept(peer, &answered), 0);
    event = expect(here, RDMA_CM_EVENT_ESTABLISHED, id, 0);
    told = &event->param.conn;
    check_private(told->private_data, told->private_data_len, "the answer", 11, REP_PRIVATE);
    CHECK_EQUAL(told->responder_resources, 4);
    CHECK_EQUAL(told->initiator_depth, 2);
    CHECK_EQUAL(told->flow_control, !has_shared);
    CHECK_EQUAL(told->rnr_retry_count, 6);
    CHECK_EQUAL(told->srq, !has_shared);
    CHECK_EQUAL(told->qp_num, peer->qp->qp_num);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    event = expect(there, RDMA_CM_EVENT_ESTABLISHED, peer, 0);
    CHECK_EQUAL(event->param.conn.qp_num, 0);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    check_attributes(id->qp, 2, 4, 6, 6, peer->qp->qp_num);
    check_attributes(peer->qp, 4, 2, 6, 5, id->qp->qp_num);

    CHECK_EQUAL(rdma_disconnect(has_shared ? id : peer), 0);
    pass(here, RDMA_CM_EVENT_DISCONNECTED, id);
    pass(there, RDMA_CM_EVENT_DISCONNECTED, peer);
    let_go(id);
    let_go(peer);
    let_go(listener);
}

/* Without a queue pair the parameters name it, and the application finishes the connection. */
static void foreign_queue_pairs(void)
{
    int own, port = listen_on(RDMA_PS_TCP, &own);
    struct rdma_cm_id *id = resolved(port, &own, RDMA_PS_TCP);
    struct rdma_conn_param asked = {.responder_resources = 7, .initiator_depth = 9, .retry_count = 4, .rnr_retry_count = 2, .srq = 1,
        .qp_num = 0x123456};
    CHECK_EQUAL(rdma_connect(id, &asked), 0);
    struct rdma_cm_event *event = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
    struct rdma_cm_id *peer = event->id;
    check_private(event->param.conn.private_data, event->param.conn.private_data_len, "", 0, REQ_PRIVATE);
    CHECK(event->param.conn.qp_num == 0x123456 && event->param.conn.srq == 1 && event->param.conn.retry_count == 4);
    CHECK(event->param.conn.responder_resources == 9 && event->param.conn.initiator_depth == 7 && event->param.conn.rnr_retry_count == 2);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    struct rdma_conn_param answered = {.private_data = "x", .private_data_len = 1, .responder_resources = 8, .initiator_depth = 6,
        .rnr_retry_count = 3, .qp_num = 0x654321};
    CHECK_EQUAL(rdma_accept(peer, &answered), 0);
    event = expect(here, RDMA_CM_EVENT_CONNECT_RESPONSE, id, 0);
    struct rdma_conn_param *told = &event->param.conn;
    check_private(told->private_data, told->private_data_len, "x", 1, REP_PRIVATE);
    CHECK(told->responder_resources == 6 && told->initiator_depth == 8 && told->rnr_retry_count == 3 && told->srq == 0);
    CHECK_EQUAL(told->qp_num, 0x654321);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    CHECK_EQUAL(rdma_establish(id), 0);
    pass(there, RDMA_CM_EVENT_ESTABLISHED, peer);
    CHECK_EQUAL(rdma_disconnect(peer), 0);
    pass(here, RDMA_CM_EVENT_DISCONNECTED, id);
    pass(there, RDMA_CM_EVENT_DISCONNECTED, peer);
    let_go(id);
    let_go(peer);
    let_go(listener);
}

/* A refusal says why: the application's word, or nobody's. */
static void refusals(void)
{
    enum { NO_SERVICE = 8, CONSUMER = 28 };
    int own, port = listen_on(RDMA_PS_TCP, &own);
    struct rdma_cm_id *id = resolved(port, &own, RDMA_PS_TCP);
    make_queue_pair(id, 0);
    struct rdma_conn_param asked = {.responder_resources = 1, .initiator_depth = 2};
    CHECK_EQUAL(rdma_connect(id, &asked), 0);
    struct rdma_cm_event *event = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
    struct rdma_cm_id *peer = event->id;
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    CHECK_EQUAL(rdma_reject(peer, "not today", 10), 0);
    event = expect(here, RDMA_CM_EVENT_REJECTED, id, CONSUMER);
    check_private(event->param.conn.private_data, event->param.conn.private_data_len, "not today", 10, REJ_PRIVATE);
    CHECK(event->param.conn.responder_resources == 0 && event->param.conn.initiator_depth == 0 && event->param.conn.qp_num == 0);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK_EQUAL(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_ERR);
    let_go(id);
    let_go(peer);
    let_go(listener);

    /* This port has had a listener a moment ago; the next one has none. */
    listener = NULL;
    id = resolved(htons(ntohs(port) == 65535 ? 1024 : ntohs(port) + 1), &own, RDMA_PS_TCP);
    make_queue_pair(id, 0);
    CHECK_EQUAL(rdma_connect(id, &asked), 0);
    CHECK_EQUAL(rdma_ack_cm_event(expect(here, RDMA_CM_EVENT_REJECTED, id, NO_SERVICE)), 0);
    let_go(id);
}

/* Datagram services: which queue pair, which Q_Key, and the way to it. */
static void datagrams(void)
{
    enum { QKEY = 0x01234567, UNSUPPORTED = 1, REJECTED = 2 };
    int own_here, own_there, port = listen_on(RDMA_PS_UDP, &own_there);
    for (int is_refused = 0; is_refused < 2; is_refused++) {
        struct rdma_cm_id *id = resolved(port, &own_here, RDMA_PS_UDP);
        make_queue_pair(id, 0);
        struct rdma_conn_param asked = {.private_data = "which one", .private_data_len = 10, .qp_num = 0x777};
        CHECK_EQUAL(rdma_connect(id, &asked), 0);
        struct rdma_cm_event *event = expect(there, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
        struct rdma_cm_id *peer = event->id;
        CHECK(peer->context == &own_there && peer->ps == RDMA_PS_UDP);
        check_private(event->param.ud.private_data, event->param.ud.private_data_len, "which one", 10, SIDR_REQ_PRIVATE);
        CHECK_EQUAL(rdma_ack_cm_event(event), 0);
        if (is_refused) {
            CHECK_EQUAL(rdma_reject(peer, "none", 5), 0);
            event = expect(here, RDMA_CM_EVENT_UNREACHABLE, id, REJECTED);
            check_private(event->param.ud.private_data, event->param.ud.private_data_len, "none", 5, SIDR_REP_PRIVATE);
            CHECK_EQUAL(event->param.ud.qp_num, 0);
        } else {
            make_queue_pair(peer, 0);
            struct rdma_conn_param answered = {.private_data = "this one", .private_data_len = 9, .qp_num = 0x888};
            CHECK_EQUAL(rdma_accept(peer, &answered), 0);
            event = expect(here, RDMA_CM_EVENT_ESTABLISHED, id, 0);
            struct rdma_ud_param *told = &event->param.ud;
            check_private(told->private_data, told->private_data_len, "this one", 9, SIDR_REP_PRIVATE);
            CHECK_EQUAL(told->qp_num, peer->qp->qp_num);
            CHECK_EQUAL(told->qkey, QKEY);
            union ibv_gid gid;
            CHECK_EQUAL(ibv_query_gid(id->verbs, 1, 0, &gid), 0);
            CHECK_EQUAL(memcmp(&told->ah_attr.grh.dgid, &gid, sizeof gid), 0);
            CHECK(told->ah_attr.is_global == 1 && told->ah_attr.port_num == 1 && told->ah_attr.grh.hop_limit > 1);
            CHECK_EQUAL(told->ah_attr.dlid, 0);
        }
        CHECK_EQUAL(rdma_ack_cm_event(event), 0);
        let_go(id);
        let_go(peer);
    }
    let_go(listener);
    listener = NULL;
    struct rdma_cm_id *id = resolved(port, &own_here, RDMA_PS_UDP);
    make_queue_pair(id, 0);
    struct rdma_conn_param asked = {.qp_num = 0x777};
    CHECK_EQUAL(rdma_connect(id, &asked), 0);
    CHECK_EQUAL(rdma_ack_cm_event(expect(here, RDMA_CM_EVENT_UNREACHABLE, id, UNSUPPORTED)), 0);
    let_go(id);
}

/* A group's event has what an address handle for it needs, and the application's own word. */
static void groups(void)
{
    enum { QKEY = 0x01234567, EVERYBODY = 0xFFFFFF };
    int own, word;
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xEF070605)}, to = loopback(htons(4000));
    struct rdma_cm_id *id = identifier(here, &own, RDMA_PS_UDP);
    CHECK_EQUAL(rdma_resolve_addr(id, NULL, (void *)&to, 2000), 0);
    pass(here, RDMA_CM_EVENT_ADDR_RESOLVED, id);
    make_queue_pair(id, 0);
    CHECK_EQUAL(rdma_join_multicast(id, (void *)&group, &word), 0);
    struct rdma_cm_event *event = expect(here, RDMA_CM_EVENT_MULTICAST_JOIN, id, 0);
    struct rdma_ud_param *told = &event->param.ud;
    CHECK(told->private_data == &word);
    CHECK_EQUAL(told->private_data_len, 0);
    CHECK_EQUAL(told->qp_num, EVERYBODY);
    CHECK_EQUAL(told->qkey, QKEY);
    const unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 7, 6, 5};
    CHECK_EQUAL(memcmp(told->ah_attr.grh.dgid.raw, mapped, 16), 0);
    CHECK(told->ah_attr.is_global == 1 && told->ah_attr.port_num == 1);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    CHECK_EQUAL(rdma_leave_multicast(id, (void *)&group), 0);
    let_go(id);
}

int main(void)
{
    CHECK((here = rdma_create_event_channel()) && (there = rdma_create_event_channel()));
    connection(0);
    connection(1);
    foreign_queue_pairs();
    refusals();
    datagrams();
    groups();
    rdma_destroy_event_channel(here);
    rdma_destroy_event_channel(there);
    return 0;
}
