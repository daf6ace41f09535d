/*
 * The verbs agent of the interop guest: does with libibverbs what lines of text on a TCP connection ask.
 *
 * Every connection is served by a process of its own, so closing it destroys everything that it made. A request is
 * one line, "command key=value …"; the answer is one line, "ok key=value …" or "err ERRNO text". Numbers are decimal
 * or 0x… in requests; in answers addresses and keys are 0x…, all else is decimal. Objects have small numbers, counted
 * from 0 per kind. A key in brackets may be left out.
 *
 *   open [dev=rxe0]                         -> mtu=BYTES gid=INDEX,ADDRESS …     must come first
 *   pd                                      -> pd=N
 *   cq depth=N                              -> cq=N
 *   srq pd= wr= [sge=4]                     -> srq=N
 *   mr pd= bytes= access=FLAGS              -> mr=N addr= lkey= rkey=
 *   mw pd=                                  -> mw=N rkey=                        type 2, unbound
 *   qp type=rc|uc|ud pd= cq= [srq=] [send_wr=64] [recv_wr=64] [sge=4] [inline=64] [sig_all=0]
 *                                           -> qp=N qpn=N inline=BYTES
 *   ah pd= gid=ADDRESS sgid=INDEX           -> ah=N
 *   init qp= access=FLAGS [qkey=]
 *   rtr qp= [gid=ADDRESS sgid=INDEX qpn= psn= mtu=BYTES rd_atomic=4 min_rnr=12]     UD: qp= alone
 *   rts qp= psn= [timeout=12] [retry=7] [rnr=7] [rd_atomic=4]
 *   error qp=                                                                       to the error state
 *   query qp=                               -> state=NUMBER sq_psn= rq_psn=
 *   destroy qp=N                                                                    also mr=, mw=
 *   fill mr= [offset=0] [length=] seed=                                             writes the pattern of a seed
 *   check mr= [offset=0] [length=] seed=    -> match=1, or match=0 at=OFFSET
 *   poke mr= [offset=0] hex=BYTES
 *   peek mr= [offset=0] length=             -> hex=BYTES
 *   send qp= wr= op=OP [sge=MR:OFFSET:LENGTH,…] [flags=FLAGS] [count=1] and, by operation, raddr= rkey= imm= invalidate=
 *        add= | compare= swap=, ah= qpn= qkey=, mw= mr= addr= length= access=
 *        OP: send send_imm send_inv write write_imm read cas fadd bind local_inv
 *        FLAGS: s signaled, e solicited, i inline, f fence; count posts the same request again, wr counting up
 *   recv qp=|srq= wr= [sge=] [count=1]
 *   poll cq= [count=1] [ms=2000]            -> n=N wc=WR,STATUS,OPCODE,BYTES,QPN,SOURCE_QPN,IMMEDIATE,FLAGS …
 *        waits until count completions are there or ms milliseconds have passed; STATUS, OPCODE and FLAGS
 *        are numbers of enum ibv_wc_*; a SEND_WITH_INV's invalidated rkey stands in IMMEDIATE's place
 *   counters                                -> NAME=N …                          rxe0's hardware counters
 *   run COMMAND                             -> status=N bytes=N, then that many bytes of output
 *   quit
 *
 * Access FLAGS: l local write, w remote write, r remote read, a remote atomic, b window bind.
 */
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdnoreturn.h>

#define KIND_MAX 256 /* objects of one kind on one connection */

/* One request line, cut into words. */
struct request {
    const char *command;
    const char *words[64];
    int count;
    char *rest; /* everything behind the command, uncut */
};

struct region {
    struct ibv_mr *mr;
    uint8_t *bytes;
};

/* All objects of one connection. */
struct objects {
    struct ibv_context *context;
    struct ibv_pd *pd[KIND_MAX];
    struct ibv_cq *cq[KIND_MAX];
    struct ibv_srq *srq[KIND_MAX];
    struct ibv_qp *qp[KIND_MAX];
    struct ibv_mw *mw[KIND_MAX];
    struct ibv_ah *ah[KIND_MAX];
    struct region region[KIND_MAX];
    int pds, cqs, srqs, qps, mws, ahs, regions;
};

extern struct objects objects;

/* agent.c: reading requests, writing answers. */
const char *text(const struct request *request, const char *key);                            /* or an err answer */
const char *text_or(const struct request *request, const char *key, const char *fallback);
uint64_t number(const struct request *request, const char *key);                             /* or an err answer */
uint64_t number_or(const struct request *request, const char *key, uint64_t fallback);
int slot(const struct request *request, const char *key, int count);                         /* an object's number */
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
noreturn void refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Commands; each answers once. */
typedef void command(const struct request *request);
command open_device, make_pd, make_cq, make_srq, make_mr, make_mw, make_qp, make_ah, destroy;              /* objects.c */
command to_init, to_rtr, to_rts, to_error, query;                                                       /* objects.c */
command fill, check, poke, peek, post_send, post_recv, poll_cq;                                            /* work.c */

int access_flags(const char *letters);                                                                  /* objects.c */
