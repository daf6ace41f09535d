/* A card with connections is taken out, and comes back. Each identifier of the card is told, once and last, in the order in which they got the
 * card; the peers in another process hear nothing.
 * scenario: connections-lose-their-nic
 */
#include "rig.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>

/* One byte for each step of the other process. */
static int from_other, to_other;

static void tell(char what) { CHECK_EQUAL(write(to_other, &what, 1), 1); }

static void await(char what)
{
    char told = 0;
    CHECK_EQUAL(read(from_other, &told, 1), 1);
    CHECK_EQUAL(told, what);
}

static struct rdma_event_channel *new_channel(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    return channel;
}

static struct rdma_cm_id *identifier(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id;
    CHECK_EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    return id;
}

static struct sockaddr_in address(uint32_t ip, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port};
    at.sin_addr.s_addr = htonl(ip);
    return at;
}

static int listen_at(struct rdma_cm_id *id, uint32_t ip, int port)
{
    struct sockaddr_in at = address(ip, port);
    CHECK_EQUAL(rdma_bind_addr(id, (void *)&at), 0);
    CHECK_EQUAL(rdma_listen(id, 8), 0);
    return rdma_get_src_port(id);
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    CHECK_EQUAL(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type)
        fprintf(stderr, "%s came\n", rdma_event_str(event->event));
    CHECK_EQUAL(event->event, type);
    CHECK_EQUAL(event->status, 0);
    struct rdma_cm_id *id = event->id;
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    return id;
}

/* Nothing waits in the channel. */
static void expect_silence(struct rdma_event_channel *channel)
{
    int flags = fcntl(channel->fd, F_GETFL);
    CHECK_EQUAL(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    struct rdma_cm_event *event;
    int got = rdma_get_cm_event(channel, &event);
    if (!got)
        fprintf(stderr, "%s came\n", rdma_event_str(event->event));
    CHECK_EQUAL(got, -1);
    CHECK_EQUAL(errno, EAGAIN);
    CHECK_EQUAL(fcntl(channel->fd, F_SETFL, flags), 0);
}

static void resolve(struct rdma_event_channel *channel, struct rdma_cm_id *id, int port)
{
    struct sockaddr_in to = address(INADDR_LOOPBACK, port);
    CHECK_EQUAL(rdma_resolve_addr(id, NULL, (void *)&to, 2000), 0);
    CHECK(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
    CHECK_EQUAL(rdma_resolve_route(id, 2000), 0);
    CHECK(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
}

static void make_queue_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    CHECK_EQUAL(rdma_create_qp(id, NULL, &attr), 0);
}

static void ask(struct rdma_cm_id *id)
{
    struct rdma_conn_param param = {.retry_count = 3, .rnr_retry_count = 3};
    CHECK_EQUAL(rdma_connect(id, &param), 0);
}

/* Answers the next request. The connection is in use when the asker has taken its event. */
static struct rdma_cm_id *answer(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    make_queue_pair(id);
    CHECK_EQUAL(rdma_accept(id, NULL), 0);
    return id;
}

/* A message without bytes. */
static void post(struct rdma_cm_id *id, int number)
{
    struct ibv_send_wr request = {.wr_id = number, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
    CHECK_EQUAL(ibv_post_send(id->qp, &request, &bad), 0);
}

static void let_go(struct rdma_cm_id *id)
{
    if (id->qp)
        rdma_destroy_qp(id);
    CHECK_EQUAL(rdma_destroy_id(id), 0);
}

#define CHECK_FAILS(call, number)                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK_EQUAL(call, -1);                                                                                         \
        CHECK_EQUAL(errno, number);                                                                                    \
    } while (0)

static struct ibv_context *only_device(int expected)
{
    int count = -1;
    struct ibv_context **list = rdma_get_devices(&count), *first;
    CHECK(list);
    CHECK_EQUAL(count, expected);
    first = list[0];
    CHECK(!list[count]);
    rdma_free_devices(list);
    return first;
}

/* The process whose card is taken out. */
static void bereft(void)
{
    struct rdma_event_channel *here = new_channel(), *there = new_channel();
    struct ibv_context *old = only_device(1);
    CHECK_EQUAL(fcntl(old->async_fd, F_GETFL) & O_NONBLOCK, 0);
    /* They are made in another order than that in which they get the card. */
    struct rdma_cm_id *resolved = identifier(here), *idle = identifier(here), *active = identifier(here),
                      *asking = identifier(here), *bound = identifier(here), *everywhere = identifier(there);
    int port = listen_at(everywhere, INADDR_ANY, 0);
    tell(port >> 8);
    tell(port & 255);
    int bound_port = listen_at(bound, INADDR_LOOPBACK, 0);
    resolve(here, active, port);
    make_queue_pair(active);
    ask(active);
    struct rdma_cm_id *passive = answer(there);
    CHECK(expect(here, RDMA_CM_EVENT_ESTABLISHED) == active);
    CHECK(expect(there, RDMA_CM_EVENT_ESTABLISHED) == passive);
    resolve(here, resolved, port);
    /* The other process connects. */
    tell('c');
    struct rdma_cm_id *for_other = answer(there);
    CHECK(expect(there, RDMA_CM_EVENT_ESTABLISHED) == for_other);
    await('c');
    /* A request that is not taken. */
    resolve(here, asking, port);
    make_queue_pair(asking);
    ask(asking);
    struct pollfd fd = {.fd = there->fd, .events = POLLIN};
    CHECK_EQUAL(poll(&fd, 1, -1), 1);
    CHECK(!idle->verbs && !everywhere->verbs && bound->verbs == old && passive->verbs == old);

    for (int number = 1; number <= 3; number++) {
        post(active, number);
        if (number < 3)
            CHECK_EQUAL(rig_next(active->send_cq).status, IBV_WC_SUCCESS);
    }
    CHECK_EQUAL(rig_event(old).event_type, IBV_EVENT_DEVICE_FATAL);
    struct rdma_cm_id *in_order[] = {bound, active, resolved, asking}, *on_there[] = {passive, for_other};
    for (int i = 0; i < 4; i++)
        CHECK(expect(here, RDMA_CM_EVENT_DEVICE_REMOVAL) == in_order[i]);
    for (int i = 0; i < 2; i++)
        CHECK(expect(there, RDMA_CM_EVENT_DEVICE_REMOVAL) == on_there[i]);
    expect_silence(here);
    /* The request is void. */
    expect_silence(there);
    struct ibv_wc wc;
    CHECK_EQUAL(ibv_poll_cq(active->send_cq, 1, &wc), 0);

    struct rdma_conn_param param = {.retry_count = 3};
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
    struct sockaddr_in at = address(INADDR_LOOPBACK, 0);
    CHECK_FAILS(rdma_connect(resolved, &param), EIO);
    CHECK_FAILS(rdma_create_qp(resolved, NULL, &attr), EIO);
    CHECK_FAILS(rdma_disconnect(active), EIO);
    CHECK_FAILS(rdma_listen(bound, 1), EIO);
    CHECK_FAILS(rdma_migrate_id(bound, there), EIO);
    CHECK_FAILS(rdma_bind_addr(idle, (void *)&at), ENODEV);
    CHECK_FAILS(rdma_resolve_addr(idle, NULL, (void *)&at, 100), ENODEV);
    CHECK(!only_device(0));
    /* The other process finds out by itself, and asks for a connection that nobody answers now. */
    tell('r');
    await('r');
    expect_silence(there);

    struct rdma_event_channel *third = new_channel();
    struct ibv_context *new = only_device(1);
    CHECK(new != old && new->device != old->device);
    /* The listener without a card takes requests again, that of the old card does not, and is in nobody's way. */
    struct rdma_cm_id *late = answer(there);
    CHECK(expect(there, RDMA_CM_EVENT_ESTABLISHED) == late);
    CHECK(late->verbs == new);
    struct rdma_cm_id *again = identifier(third);
    CHECK_EQUAL(listen_at(again, INADDR_LOOPBACK, bound_port), bound_port);
    CHECK(again->verbs == new);
    resolve(here, idle, bound_port);
    make_queue_pair(idle);
    CHECK(idle->verbs == new && idle->pd->context == new);
    ask(idle);
    struct rdma_cm_id *answered = answer(third);
    CHECK(expect(here, RDMA_CM_EVENT_ESTABLISHED) == idle);
    CHECK(expect(third, RDMA_CM_EVENT_ESTABLISHED) == answered);
    post(idle, 7);
    CHECK_EQUAL(rig_next(idle->send_cq).status, IBV_WC_SUCCESS);
    tell('b');
    await('b');
    CHECK_EQUAL(rdma_disconnect(idle), 0);
    CHECK(expect(here, RDMA_CM_EVENT_DISCONNECTED) == idle);
    CHECK(expect(third, RDMA_CM_EVENT_DISCONNECTED) == answered);
    expect_silence(here);
    expect_silence(there);
    let_go(active);
    let_go(passive);
    let_go(asking);
    let_go(resolved);
    let_go(bound);
    let_go(again);
    let_go(idle);
    let_go(answered);
    /* One that has lost its card stays, and so do those of the new card: what is left for them is not to be said. */
    tell('e');
    exit(0);
}

/* The process that is connected with it. */
static void left(int child)
{
    int port = 0;
    for (int i = 0; i < 2; i++) {
        unsigned char byte;
        CHECK_EQUAL(read(from_other, &byte, 1), 1);
        port = port << 8 | byte;
    }
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *id = identifier(channel), *later = identifier(channel);
    await('c');
    resolve(channel, id, port);
    uint8_t timeout = RIG_TIMEOUT;
    CHECK_EQUAL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout), 0);
    make_queue_pair(id);
    ask(id);
    CHECK(expect(channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    resolve(channel, later, port);
    make_queue_pair(later);
    tell('c');
    await('r');
    post(id, 1);
    CHECK_EQUAL(rig_next(id->send_cq).status, IBV_WC_RETRY_EXC_ERR);
    ask(later);
    expect_silence(channel);
    tell('r');
    CHECK(expect(channel, RDMA_CM_EVENT_ESTABLISHED) == later);
    await('b');
    expect_silence(channel);
    tell('b');
    await('e');
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The connection over the new card ends with its process. That over the old one has ended without a word. */
    CHECK(expect(channel, RDMA_CM_EVENT_DISCONNECTED) == later);
    expect_silence(channel);
    let_go(later);
    let_go(id);
}

int main(void)
{
    int there[2], back[2];
    CHECK_EQUAL(pipe(there), 0);
    CHECK_EQUAL(pipe(back), 0);
    int child = fork();
    CHECK(child >= 0);
    from_other = child ? back[0] : there[0];
    to_other = child ? there[1] : back[1];
    CHECK_EQUAL(close(child ? back[1] : there[1]), 0);
    CHECK_EQUAL(close(child ? there[0] : back[0]), 0);
    if (!child)
        bereft();
    left(child);
    return 0;
}
