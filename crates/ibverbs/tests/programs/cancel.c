/* A thread that waits in a call of the library, or polls, is cancelled: it ends there, its cleanup handlers run once, and the rest of the
 * process goes on with the same objects. */
#include "rig.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

static struct end end;
static struct ibv_comp_channel *channel;
static struct ibv_cq *armed;
static struct rdma_event_channel *connections;
static struct rdma_cm_id *listener;
static int has_begun, may_go_on, cleanups;

/* How a thread is cancelled. */
enum manner { WAITING, AT_ONCE, PENDING, ASYNCHRONOUS, MANNERS };

struct task {
    void (*call)(void);
    enum manner manner;
};

static void in_cq_event(void)
{
    struct ibv_cq *cq;
    void *context;
    ibv_get_cq_event(channel, &cq, &context);
}

static void in_async_event(void)
{
    struct ibv_async_event event;
    ibv_get_async_event(end.context, &event);
}

static void in_cm_event(void)
{
    struct rdma_cm_event *event;
    rdma_get_cm_event(connections, &event);
}

static void in_request(void)
{
    struct rdma_cm_id *id;
    rdma_get_request(listener, &id);
}

static void cancel_one(void (*call)(void), enum manner manner);
static int stream_listener, stream, peer_stream;

static void in_rpoll(void)
{
    struct pollfd poll_fd = {.fd = stream, .events = POLLIN};
    rpoll(&poll_fd, 1, -1);
}

static void in_rrecv(void)
{
    char byte;
    rrecv(stream, &byte, 1, 0);
}

static void in_raccept(void)
{
    raccept(stream_listener, NULL, NULL);
}

static void in_rselect(void)
{
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(stream, &reads);
    rselect(stream + 1, &reads, NULL, NULL, NULL);
}

/* By name: headers of older releases do not have them. */
static int (*create_set)(int), (*change_set)(int, int, int, struct epoll_event *), (*wait_for_set)(int, struct epoll_event *, int, int);
static int set;

static void in_repoll_wait(void)
{
    struct epoll_event event;
    wait_for_set(set, &event, 1, -1);
}

static void in_rrecvmsg(void)
{
    char bytes[2];
    struct iovec parts[2] = {{bytes, 1}, {bytes + 1, 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    rrecvmsg(stream, &message, MSG_WAITALL);
}

static int datagrams;

static void in_rrecvfrom(void)
{
    char byte;
    rrecvfrom(datagrams, &byte, 1, 0, NULL, NULL);
}

/* The listener's program answers no request. */
static struct sockaddr_in silent;
static int calling;

static void in_rconnect(void)
{
    rconnect(calling, (struct sockaddr *)&silent, sizeof silent);
}

/* What fills a stream whose other end reads nothing: each call adds to these bytes, of which a cancelled one may have sent a part. */
static char pattern[1 << 20];

static void in_rsend(void)
{
    for (;;)
        rsend(peer_stream, pattern, sizeof pattern, 0);
}

static void in_rwritev(void)
{
    struct iovec parts[3] = {{pattern, 7}, {NULL, 0}, {pattern + 7, sizeof pattern - 7}};
    for (;;)
        rwritev(peer_stream, parts, 3);
}

static struct rdma_addrinfo *to_listener;

static void makes_endpoints(void)
{
    for (;;) {
        struct rdma_cm_id *id;
        CHECK_EQUAL(rdma_create_ep(&id, to_listener, NULL, NULL), 0);
        rdma_destroy_ep(id);
    }
}

static void *accepts(void *unused)
{
    (void)unused;
    peer_stream = raccept(stream_listener, NULL, NULL);
    return NULL;
}

static void open_streams(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK((stream_listener = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK_EQUAL(rbind(stream_listener, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQUAL(rlisten(stream_listener, 3), 0);
    CHECK_EQUAL(rgetsockname(stream_listener, (struct sockaddr *)&at, &size), 0);
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, accepts, NULL), 0);
    CHECK((stream = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK_EQUAL(rconnect(stream, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK(peer_stream >= 0);
}

/* Bytes still arrive, once and in order. */
static void check_streams(void)
{
    char bytes[6] = {0};
    CHECK_EQUAL(rsend(peer_stream, "order", 6, 0), 6);
    for (size_t got = 0; got < 6;) {
        ssize_t more = rrecv(stream, bytes + got, 6 - got, 0);
        CHECK(more > 0);
        got += more;
    }
    CHECK(!strcmp(bytes, "order"));
}

/* A cancelled `rsend` has sent whole bytes in their order, or none: what follows is read right behind them. */
static void check_filled(void (*sends)(void), enum manner manner)
{
    cancel_one(sends, manner);
    static char bytes[65536];
    size_t got = 0;
    ssize_t more;
    struct pollfd poll_fd = {.fd = stream, .events = POLLIN};
    while (rpoll(&poll_fd, 1, 100) > 0) {
        CHECK((more = rrecv(stream, bytes, sizeof bytes, 0)) > 0);
        for (ssize_t i = 0; i < more; i++)
            CHECK_EQUAL(bytes[i], pattern[(got + i) % sizeof pattern]);
        got += more;
    }
    check_streams();
}

/* A connection that a cancelled thread was making is still being made; the listener hears of it, and the connecting end of the refusal. */
static void cancel_connecting(enum manner manner)
{
    struct rdma_cm_id *id;
    CHECK((calling = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    cancel_one(in_rconnect, manner);
    /* It was cancelled before it began, or this call finds a connection that is being made. */
    CHECK_EQUAL(rfcntl(calling, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQUAL(rconnect(calling, (struct sockaddr *)&silent, sizeof silent), -1);
    CHECK(errno == EALREADY || errno == EINPROGRESS);
    CHECK_EQUAL(rdma_get_request(listener, &id), 0);
    CHECK(rdma_reject(id, NULL, 0) == 0);
    CHECK_EQUAL(rdma_destroy_id(id), 0);
    struct pollfd poll_fd = {.fd = calling, .events = POLLOUT};
    CHECK_EQUAL(rpoll(&poll_fd, 1, -1), 1);
    CHECK(poll_fd.revents & POLLERR);
    CHECK_EQUAL(rclose(calling), 0);
}

static void in_destroy(void)
{
    ibv_destroy_cq(armed);
}

static void polls(void)
{
    struct ibv_wc wc;
    for (;;) {
        ibv_poll_cq(end.send_cq, 1, &wc);
        pthread_testcancel();
    }
}

static void posts_and_polls(void)
{
    struct ibv_wc wc;
    for (;;) {
        rig_post(&end, IBV_WR_RDMA_WRITE, 7, 0, 3000, &end, 8192);
        while (ibv_poll_cq(end.send_cq, 1, &wc) == 0)
            ;
        ibv_req_notify_cq(end.recv_cq, 0);
        pthread_testcancel();
    }
}

static void opens_and_closes(void)
{
    for (;;) {
        struct ibv_mr *mr = ibv_reg_mr(end.pd, end.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
        CHECK(mr);
        CHECK_EQUAL(ibv_dereg_mr(mr), 0);
        pthread_testcancel();
    }
}

static void count_cleanup(void *unused)
{
    (void)unused;
    __atomic_fetch_add(&cleanups, 1, __ATOMIC_SEQ_CST);
}

static void *runs(void *argument)
{
    struct task *task = argument;
    int before;
    if (task->manner == ASYNCHRONOUS)
        CHECK_EQUAL(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before), 0);
    if (task->manner == PENDING)
        CHECK_EQUAL(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before), 0);
    pthread_cleanup_push(count_cleanup, NULL);
    __atomic_store_n(&has_begun, 1, __ATOMIC_SEQ_CST);
    if (task->manner == PENDING) {
        while (!__atomic_load_n(&may_go_on, __ATOMIC_SEQ_CST))
            sched_yield();
        CHECK_EQUAL(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before), 0);
    }
    task->call();
    fprintf(stderr, "a call returned in a thread that was cancelled\n");
    exit(1);
    pthread_cleanup_pop(0);
}

/* Time for a thread to get into its call. Nothing depends on whether it does: it is cancelled before, in, or between calls. */
static void a_moment(void)
{
    struct timespec moment = {.tv_nsec = 2000000};
    nanosleep(&moment, NULL);
}

static void cancel_one(void (*call)(void), enum manner manner)
{
    struct task task = {call, manner};
    pthread_t thread;
    has_begun = may_go_on = cleanups = 0;
    CHECK_EQUAL(pthread_create(&thread, NULL, runs, &task), 0);
    while (!__atomic_load_n(&has_begun, __ATOMIC_SEQ_CST))
        sched_yield();
    if (manner == WAITING || manner == ASYNCHRONOUS)
        a_moment();
    CHECK_EQUAL(pthread_cancel(thread), 0);
    __atomic_store_n(&may_go_on, 1, __ATOMIC_SEQ_CST);
    void *result = NULL;
    CHECK_EQUAL(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_EQUAL(cleanups, 1);
}

/* Everything that a cancelled thread used works in this one. */
static void check_the_rest(void)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(end.send_cq, 1, &wc) > 0)
        ;
    CHECK_EQUAL(ibv_req_notify_cq(armed, 0), 0);
    rig_receive(&end, 3, 0, 64);
    rig_post(&end, IBV_WR_SEND, 4, 64, 8, NULL, 0);
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    CHECK_EQUAL(ibv_get_cq_event(channel, &cq, &context), 0);
    CHECK(cq == armed && context == &end);
    ibv_ack_cq_events(cq, 1);
    CHECK_EQUAL(rig_next(armed).wr_id, 3);
    do
        wc = rig_next(end.send_cq);
    while (wc.wr_id != 4);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
}

/* A client of a listener that no thread waits on any more is still told, and the listener as well. */
static void check_connections(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(own);
    CHECK_EQUAL(rdma_create_id(own, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), 0);
    struct rdma_cm_event *event;
    CHECK_EQUAL(rdma_get_cm_event(own, &event), 0);
    CHECK_EQUAL(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQUAL(rdma_ack_cm_event(event), 0);
    CHECK_EQUAL(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(own);
}

int main(void)
{
    struct ibv_context *context = rig_open();
    rig_end(&end, context, 65536);
    CHECK((channel = ibv_create_comp_channel(context)) != NULL);
    CHECK((armed = ibv_create_cq(context, 64, &end, channel, 0)) != NULL);
    CHECK_EQUAL(ibv_destroy_cq(end.recv_cq), 0);
    end.recv_cq = armed;
    rig_queue_pair(&end, IBV_QPT_RC);
    union ibv_gid gid;
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    rig_init(end.qp);
    rig_to(end.qp, end.qp->qp_num, gid, 0x1234, 0x1234);
    CHECK((connections = rdma_create_event_channel()) != NULL);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQUAL(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_bind_addr(listener, (struct sockaddr *)&at), 0);
    CHECK_EQUAL(rdma_listen(listener, 4), 0);
    check_the_rest();

    void (*waits[])(void) = {in_cq_event, in_async_event, in_cm_event, in_request};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        for (int manner = 0; manner < MANNERS; manner++) {
            cancel_one(waits[i], manner);
            check_the_rest();
        }
    open_streams();
    CHECK((create_set = dlsym(RTLD_DEFAULT, "repoll_create")) != NULL);
    CHECK((change_set = dlsym(RTLD_DEFAULT, "repoll_ctl")) != NULL);
    CHECK((wait_for_set = dlsym(RTLD_DEFAULT, "repoll_wait")) != NULL);
    CHECK((set = create_set(0)) >= 0);
    struct epoll_event wish = {.events = EPOLLIN};
    CHECK_EQUAL(change_set(set, EPOLL_CTL_ADD, stream, &wish), 0);
    CHECK((datagrams = rsocket(AF_INET, SOCK_DGRAM, 0)) >= 0);
    void (*stream_waits[])(void) = {in_rpoll, in_rrecv, in_raccept, in_rselect, in_repoll_wait, in_rrecvmsg, in_rrecvfrom};
    for (size_t i = 0; i < sizeof stream_waits / sizeof *stream_waits; i++)
        for (int manner = 0; manner < MANNERS; manner++) {
            cancel_one(stream_waits[i], manner);
            check_streams();
        }
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = i % 251;
    for (int manner = 0; manner < MANNERS; manner++) {
        check_filled(in_rsend, manner);
        check_filled(in_rwritev, manner);
    }
    silent = at;
    silent.sin_port = rdma_get_src_port(listener);
    for (int manner = 0; manner < MANNERS; manner++)
        cancel_connecting(manner);
    char port[8];
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
    snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
    CHECK_EQUAL(rdma_getaddrinfo("127.0.0.1", port, &hints, &to_listener), 0);
    for (int round = 0; round < 10; round++)
        cancel_one(makes_endpoints, round % 2 ? AT_ONCE : WAITING);
    rdma_freeaddrinfo(to_listener);
    void (*loops[])(void) = {polls, posts_and_polls, opens_and_closes};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        for (int round = 0; round < 10; round++) {
            cancel_one(loops[i], round % 2 ? AT_ONCE : WAITING);
            check_the_rest();
        }
    /* Within calls that are not on the data path no cancellation of asynchronous type is acted on, so nothing is left behind there, either. */
    for (int round = 0; round < 10; round++) {
        cancel_one(opens_and_closes, ASYNCHRONOUS);
        check_the_rest();
    }
    check_connections();

    /* A queue with an event that was not acknowledged waits to be destroyed, and is whole after its thread was cancelled. */
    rig_receive(&end, 5, 0, 64);
    CHECK_EQUAL(ibv_req_notify_cq(armed, 0), 0);
    rig_post(&end, IBV_WR_SEND, 6, 64, 8, NULL, 0);
    struct ibv_cq *cq;
    void *unused;
    CHECK_EQUAL(ibv_get_cq_event(channel, &cq, &unused), 0);
    CHECK_EQUAL(rig_next(armed).wr_id, 5);
    CHECK_EQUAL(ibv_destroy_qp(end.qp), 0);
    cancel_one(in_destroy, WAITING);
    cancel_one(in_destroy, PENDING);
    ibv_ack_cq_events(armed, 1);
    CHECK_EQUAL(ibv_destroy_cq(armed), 0);
    CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQUAL(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(connections);
    return 0;
}
