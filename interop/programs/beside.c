/* Two processes that play ping-pong over a reliable connection and sleep for their messages beside other descriptors: the server in
 * `poll` or `select`, on its completion channel and a pipe; the client in `epoll_wait`, on a set that holds a set that holds its channel.
 *
 *     beside MESSAGES HIGHWIRE {poll|select}
 *
 * Now and then the client writes a byte to the pipe instead of a message, and waits for a message that says so. Every MESSAGES turns it
 * asks `HIGHWIRE stats --json` how both have waited, and ends when that is known, or never will be: devices tell it from time to
 * time only. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every so many turns of the client are a byte in the pipe. */
#define BYTE_EVERY 16
#define OF_PIPE UINT64_C(0x8000000000000000)
#define SLOTS 8
/* Nothing is known of threads that do not wait with the verbs library's help. */
#define ROUNDS_MAX 50
/* Longer than what `stats` prints of the devices that share the address. */
#define TEXT_MAX 65536

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct end {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    /* What arrives, by slot, and what is sent. */
    uint64_t words[SLOTS + 1];
};

struct address {
    uint32_t qpn;
    union ibv_gid gid;
};

static void receive(struct end *end, int slot)
{
    struct ibv_sge sge = {(uintptr_t)&end->words[slot], sizeof(uint64_t), end->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(end->qp, &request, &bad) == 0);
}

static void say(struct end *end, uint64_t word)
{
    end->words[SLOTS] = word;
    struct ibv_sge sge = {(uintptr_t)&end->words[SLOTS], sizeof(uint64_t), end->mr->lkey};
    struct ibv_send_wr request = {.wr_id = SLOTS, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    request.send_flags = IBV_SEND_INLINE;
    CHECK(ibv_post_send(end->qp, &request, &bad) == 0);
}

/* Sends its address to the other process and returns the other's. */
static struct address exchange(int socket, struct address mine)
{
    struct address other;
    CHECK(write(socket, &mine, sizeof mine) == sizeof mine);
    CHECK(read(socket, &other, sizeof other) == sizeof other);
    return other;
}

static void open_end(struct end *end, int socket)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0]);
    CHECK(end->context = ibv_open_device(devices[0]));
    struct ibv_pd *pd = ibv_alloc_pd(end->context);
    CHECK(pd && (end->channel = ibv_create_comp_channel(end->context)));
    CHECK(fcntl(end->channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(end->cq = ibv_create_cq(end->context, 64, NULL, end->channel, 0));
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
    CHECK(end->mr = ibv_reg_mr(pd, end->words, sizeof end->words, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 16, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1};
    init.cap.max_inline_data = sizeof(uint64_t);
    init.sq_sig_all = 1;
    CHECK(end->qp = ibv_create_qp(pd, &init));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    for (int slot = 0; slot < SLOTS; slot++)
        receive(end, slot);
    struct address mine = {.qpn = end->qp->qp_num};
    CHECK(ibv_query_gid(end->context, 1, 0, &mine.gid) == 0);
    struct address other = exchange(socket, mine);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.qpn};
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
    attr.ah_attr.grh = (struct ibv_global_route){.dgid = other.gid, .hop_limit = 64};
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    attr.max_rd_atomic = 1;
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    /* Both can receive before either sends. */
    exchange(socket, mine);
}

/* Takes the channel's events and asks for the next one. Returns whether a message has come, which is then in `word`: no more than one is
 * under way. */
static int take(struct end *end, uint64_t *word)
{
    struct ibv_cq *cq;
    void *context;
    while (ibv_get_cq_event(end->channel, &cq, &context) == 0) {
        CHECK(cq == end->cq);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
    }
    CHECK(errno == EAGAIN);
    struct ibv_wc wc;
    int came = 0, count;
    while ((count = ibv_poll_cq(end->cq, 1, &wc)) > 0) {
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.opcode != IBV_WC_RECV)
            continue;
        CHECK(!came++);
        *word = end->words[wc.wr_id];
        receive(end, (int)wc.wr_id);
    }
    CHECK(count == 0);
    return came;
}

/* Sleeps until one of two descriptors can be read, and tells of each. */
static void wait_for_two(struct pollfd *fds, int in_select)
{
    if (!in_select) {
        CHECK(poll(fds, 2, -1) > 0);
        return;
    }
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fds[0].fd, &reads);
    FD_SET(fds[1].fd, &reads);
    CHECK(select((fds[0].fd > fds[1].fd ? fds[0].fd : fds[1].fd) + 1, &reads, NULL, NULL, NULL) > 0);
    for (int i = 0; i < 2; i++)
        fds[i].revents = FD_ISSET(fds[i].fd, &reads) ? POLLIN : 0;
}

static void serve(struct end *end, int bytes, int in_select)
{
    struct pollfd fds[2] = {{end->channel->fd, POLLIN, 0}, {bytes, POLLIN, 0}};
    for (uint64_t seen = 0;;) {
        wait_for_two(fds, in_select);
        uint64_t word;
        if (fds[1].revents) {
            char byte;
            ssize_t got = read(bytes, &byte, 1);
            CHECK(got >= 0);
            if (got == 0)
                return;
            say(end, OF_PIPE | ++seen);
        }
        if (fds[0].revents && take(end, &word))
            say(end, word + 1);
    }
}

static uint64_t next_word(struct end *end, int outer, int inner)
{
    for (uint64_t word;;) {
        struct epoll_event event;
        CHECK(epoll_wait(outer, &event, 1, -1) == 1 && event.data.fd == inner);
        CHECK(epoll_wait(inner, &event, 1, 0) == 1 && event.data.fd == end->channel->fd);
        if (take(end, &word))
            return word;
    }
}

/* What `stats` prints; whether it knows of the channels of both ends. */
static int ask_stats(const char *highwire, char *text)
{
    char command[4096];
    /* What is preloaded is not for that program. */
    CHECK(snprintf(command, sizeof command, "LD_PRELOAD= '%s' stats --json", highwire) < (int)sizeof command);
    FILE *stats = popen(command, "r");
    CHECK(stats);
    size_t length = fread(text, 1, TEXT_MAX - 1, stats);
    CHECK(length < TEXT_MAX - 1 && pclose(stats) == 0);
    text[length] = 0;
    int channels = 0;
    for (const char *at = text; (at = strstr(at, "\"channel ")); at++)
        channels++;
    return channels >= 2;
}

static void ask(struct end *end, int bytes, uint64_t messages, const char *highwire)
{
    static char text[TEXT_MAX];
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = end->channel->fd};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, end->channel->fd, &event) == 0);
    event.data.fd = inner;
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    uint64_t sent = 0, written = 0;
    int rounds = 0;
    do {
        for (uint64_t i = 0; i < messages; i++) {
            if (i % BYTE_EVERY == 0) {
                CHECK(write(bytes, "x", 1) == 1);
                CHECK(next_word(end, outer, inner) == (OF_PIPE | ++written));
            }
            say(end, 2 * ++sent);
            CHECK(next_word(end, outer, inner) == 2 * sent + 1);
        }
    } while (!ask_stats(highwire, text) && ++rounds < ROUNDS_MAX);
    printf("messages %llu bytes %llu\n%s", (unsigned long long)sent, (unsigned long long)written, text);
}

int main(int count, char **args)
{
    static struct end end;
    int sockets[2], bytes[2], status;
    CHECK(count == 4 && strtoull(args[1], NULL, 10) > 0);
    int in_select = strcmp(args[3], "select") == 0;
    CHECK(in_select || strcmp(args[3], "poll") == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && pipe(bytes) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        CHECK(close(bytes[1]) == 0 && close(sockets[1]) == 0);
        open_end(&end, sockets[0]);
        serve(&end, bytes[0], in_select);
        return 0;
    }
    CHECK(close(bytes[0]) == 0 && close(sockets[0]) == 0);
    open_end(&end, sockets[1]);
    ask(&end, bytes[1], strtoull(args[1], NULL, 10), args[2]);
    /* The server ends with the pipe. */
    CHECK(close(bytes[1]) == 0);
    CHECK(waitpid(server, &status, 0) == server && status == 0);
    return 0;
}
