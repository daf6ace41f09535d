/* The other end of a stream speaks its protocol and lies: it announces bytes that are not in the buffer, none at all, or more messages than it was
 * granted. The stream ends with ECONNRESET, and the process reads no byte that was not sent.
 *
 * arguments: long
 * arguments: sum
 * arguments: none
 * arguments: many
 * arguments: honest
 */
#include "sockets.h"
#include <endian.h>
#include <rdma/rdma_cma.h>

enum { HELLO = 40, CREDITS = 16, OWN_BYTES = 1 << 16, DEFAULT_BUFFER = 1 << 17, MESSAGES = 2000 };

struct target {
    uint64_t addr;
    uint32_t key, length;
} __attribute__((packed));

/* A connection by hand. What the stream writes to this end lies in `own`, and is not looked at. */
static struct rdma_cm_id *connect_by_hand(int port, struct target *theirs)
{
    struct sockaddr_in to = loopback(port);
    struct rdma_cm_id *id;
    CHECK_EQUAL(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQUAL(rdma_resolve_addr(id, NULL, (void *)&to, 2000), 0);
    CHECK_EQUAL(rdma_resolve_route(id, 2000), 0);
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    CHECK_EQUAL(rdma_create_qp(id, NULL, &attr), 0);
    void *own = calloc(1, OWN_BYTES);
    struct ibv_mr *mr = ibv_reg_mr(id->pd, own, OWN_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(own && mr);
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    for (int i = 0; i < 64; i++)
        CHECK_EQUAL(ibv_post_recv(id->qp, &receive, &bad), 0);
    struct __attribute__((packed)) {
        uint8_t version, flags;
        uint16_t credits;
        uint8_t unused[3], mappings;
        struct target table, buffer;
    } hello = {1, 0, htobe16(CREDITS), {0}, 0, {htobe64((uintptr_t)own), htobe32(mr->rkey), htobe32(2)},
        {htobe64((uintptr_t)own + 4096), htobe32(mr->rkey), htobe32(OWN_BYTES - 4096)}};
    CHECK_EQUAL(sizeof hello, HELLO);
    struct rdma_conn_param param = {.private_data = &hello, .private_data_len = HELLO, .retry_count = 7, .rnr_retry_count = 7};
    CHECK_EQUAL(rdma_connect(id, &param), 0);
    const char *answer = id->event->param.conn.private_data;
    CHECK(answer && answer[0] == 1);
    memcpy(theirs, answer + 24, sizeof *theirs);
    *theirs = (struct target){be64toh(theirs->addr), be32toh(theirs->key), be32toh(theirs->length)};
    return id;
}

static int posted, completed;

/* A message that says so many bytes, of which `sent` are. The stream `fd` takes messages meanwhile. */
static void say(struct rdma_cm_id *id, int fd, struct ibv_mr *mr, struct target *to, uint32_t bytes, uint32_t sent)
{
    struct ibv_sge sge = {(uintptr_t)mr->addr, sent, mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge, .num_sge = sent ? 1 : 0, .imm_data = htonl(bytes)}, *bad;
    wr.wr.rdma.remote_addr = to->addr;
    wr.wr.rdma.rkey = to->key;
    to->addr += sent;
    int result;
    struct ibv_wc wc;
    posted++;
    while ((result = ibv_post_send(id->qp, &wr, &bad)) == ENOMEM) {
        struct pollfd look = {fd, POLLIN, 0};
        CHECK(rpoll(&look, 1, 0) >= 0);
        while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
            completed++;
    }
    CHECK_EQUAL(result, 0);
}

/* All messages are at the other end: what the stream reads from now on is after the lie. */
static void arrive(struct rdma_cm_id *id)
{
    struct ibv_wc wc;
    while (completed < posted)
        completed += ibv_poll_cq(id->send_cq, 1, &wc) > 0;
}

int main(int count, char **arguments)
{
    static char out[64], in[1 << 20];
    const char *lie = count > 1 ? arguments[1] : "long";
    int port, at = listener(2, &port), is_honest = !strcmp(lie, "honest");
    struct target to;
    struct rdma_cm_id *id = connect_by_hand(port, &to);
    CHECK_EQUAL(to.length, DEFAULT_BUFFER / 2);
    struct ibv_mr *mr = ibv_reg_mr(id->pd, out, sizeof out, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    memset(out, 0x71, sizeof out);
    int fd = raccept(at, NULL, NULL);
    CHECK(fd >= 0);
    say(id, fd, mr, &to, 5, 5);
    CHECK_EQUAL(rrecv(fd, in, sizeof in, 0), 5);
    CHECK(in[4] == 0x71 && in[5] == 0);
    memset(in, 0, sizeof in);

    if (!strcmp(lie, "long")) {
        say(id, fd, mr, &to, 0x1FFFFFFF, 0);
    } else if (!strcmp(lie, "sum")) {
        say(id, fd, mr, &to, DEFAULT_BUFFER - 10, 7);
        say(id, fd, mr, &to, 11, 7);
        arrive(id);
    } else if (!strcmp(lie, "none")) {
        say(id, fd, mr, &to, 0, 0);
    } else if (!strcmp(lie, "many")) {
        for (int i = 0; i < MESSAGES; i++)
            say(id, fd, mr, &to, 1, 0);
    } else {
        say(id, fd, mr, &to, 7, 7);
        CHECK_EQUAL(rrecv(fd, in, sizeof in, 0), 7);
        CHECK(in[6] == 0x71 && in[7] == 0);
        printf("the other end keeps its word\n");
    }
    if (!is_honest) {
        /* What was granted before the lie may still be read; then comes the word that the stream is broken, and no end. */
        ssize_t got;
        long sum = 0;
        while ((got = rrecv(fd, in, sizeof in, 0)) > 0)
            sum += got;
        CHECK_EQUAL(got, -1);
        CHECK_EQUAL(errno, ECONNRESET);
        CHECK(sum <= DEFAULT_BUFFER);
        CHECK(rsend(fd, out, 1, 0) == -1);
    }
    CHECK_EQUAL(rclose(fd), 0);
    CHECK_EQUAL(rclose(at), 0);
    return 0;
}
