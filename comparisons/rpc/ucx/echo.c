/* UCX active messages: a client that keeps requests under way and a server that answers each in its handler's
 * turn. Both ends poll. UCX_TLS chooses the transports. The command line has the same words as the echoes in
 * Rust, and the output the same JSON.
 *
 *   cc -O2 -o echo-ucx echo.c -lucp -lucs
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { SIZE = 32, REQUEST = 1, REPLY = 2, HELLO = 3, WINDOW_MAX = 512 };
enum { PATIENCE_S = 20, POLLS_PER_LOOK = 1 << 16, REPLIES_PER_LOOK = 16 };
/* One at a time, at a microsecond each, for a minute. */
enum { TIMES_MAX = 60 * 1000 * 1000 };

static ucp_worker_h worker;
static ucp_ep_h peer;
static char own_address[4096];
static size_t own_length;

static _Noreturn void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

static void check(ucs_status_t status, const char *what) {
    if (status != UCS_OK) {
        fail("%s: %s", what, ucs_status_string(status));
    }
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) {
        fail("a clock: %s", strerror(errno));
    }
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void open_worker(void) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_context_h context;
    ucp_config_t *config;
    ucp_address_t *address;
    check(ucp_config_read(NULL, NULL, &config), "the configuration");
    check(ucp_init(&params, config, &context), "a context");
    ucp_config_release(config);
    check(ucp_worker_create(context, &worker_params, &worker), "a worker");
    check(ucp_worker_get_address(worker, &address, &own_length), "an address");
    if (own_length > sizeof own_address) {
        fail("the address is long: %zu bytes", own_length);
    }
    memcpy(own_address, address, own_length);
    ucp_worker_release_address(worker, address);
}

static void connect_to(const void *address) {
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    check(ucp_ep_create(worker, &params, &peer), "an endpoint");
}

static void handle(unsigned id, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t params = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB, .id = id, .cb = callback};
    check(ucp_worker_set_am_recv_handler(worker, &params), "a handler");
}

static void gone(void *request, ucs_status_t status, void *unused) {
    (void)unused;
    check(status, "a message");
    ucp_request_free(request);
}

/*
 * The bytes stay unchanged until the message has gone: a slot is used again only after the peer has answered,
 * and so received, its message.
 */
static void post(unsigned id, const void *bytes, size_t length) {
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK,
                                  .flags = UCP_AM_SEND_FLAG_EAGER,
                                  .cb.send = gone};
    if (peer == NULL) {
        fail("a message for nobody");
    }
    ucs_status_ptr_t sent = ucp_am_send_nbx(peer, id, NULL, 0, bytes, length, &params);
    if (UCS_PTR_IS_ERR(sent)) {
        check(UCS_PTR_STATUS(sent), "a message");
    }
}

/* The server. */

static char waiting[WINDOW_MAX][SIZE];
static unsigned first_waiting, count_waiting;
static int64_t wrong_reply = -1, replies;

static ucs_status_t on_hello(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param) {
    (void)arg, (void)header, (void)header_length, (void)length;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        fail("the greeting is too long");
    }
    connect_to(data);
    return UCS_OK;
}

static ucs_status_t on_request(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param) {
    (void)arg, (void)header, (void)header_length, (void)param;
    if (length != SIZE || count_waiting == WINDOW_MAX) {
        fail("a request of %zu bytes, with %u before it", length, count_waiting);
    }
    /* UCX forbids long work in a handler: replies go after the poll. */
    memcpy(waiting[(first_waiting + count_waiting++) % WINDOW_MAX], data, SIZE);
    return UCS_OK;
}

static void serve(void) {
    open_worker();
    handle(HELLO, on_hello);
    handle(REQUEST, on_request);
    printf("at ");
    for (size_t place = 0; place < own_length; place++) {
        printf("%02x", (unsigned char)own_address[place]);
    }
    printf("\n");
    fflush(stdout);
    for (;;) {
        for (unsigned polls = 0; polls < POLLS_PER_LOOK; polls++) {
            ucp_worker_progress(worker);
            for (; count_waiting > 0; count_waiting--, first_waiting = (first_waiting + 1) % WINDOW_MAX) {
                char *reply = waiting[first_waiting];
                if (replies++ == wrong_reply) {
                    reply[SIZE - 1] ^= 1;
                }
                post(REPLY, reply, SIZE);
            }
        }
        /* The input stays empty: it ends when the process that started this one ends, or closes it. */
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&input, 1, 0) > 0) {
            exit(0);
        }
    }
}

/* The client. */

static struct {
    char bytes[SIZE];
    uint64_t sent_ns;
} under_way[WINDOW_MAX];
static uint64_t asked, answered, counted, window = 1, length_ns = 500000000;
static uint64_t start_ns, began_ns, ended_ns, cpu_began[2], cpu_ended[2];
static clockid_t server_clock;
static uint32_t *times;

static void ask(void) {
    unsigned place = (unsigned)(asked % window);
    memset(under_way[place].bytes, 0x5A, SIZE);
    memcpy(under_way[place].bytes, &asked, sizeof asked);
    asked++;
    if (window == 1) {
        under_way[place].sent_ns = nanoseconds(CLOCK_MONOTONIC);
    }
    post(REQUEST, under_way[place].bytes, SIZE);
}

static void look(uint64_t sent_ns) {
    uint64_t now = nanoseconds(CLOCK_MONOTONIC);
    if (began_ns == 0) {
        if (now - start_ns >= length_ns / 10) {
            began_ns = now;
            cpu_began[0] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
            cpu_began[1] = nanoseconds(server_clock);
            counted = 0;
        }
        return;
    }
    if (window == 1 && counted <= TIMES_MAX) {
        uint64_t time = now - sent_ns;
        times[counted - 1] = time > UINT32_MAX ? UINT32_MAX : (uint32_t)time;
    }
    if (now - began_ns >= length_ns) {
        ended_ns = now;
        cpu_ended[0] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        cpu_ended[1] = nanoseconds(server_clock);
    }
}

/* One server answers in the order of the requests. */
static ucs_status_t on_reply(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param) {
    (void)arg, (void)header, (void)header_length, (void)param;
    unsigned place = (unsigned)(answered % window);
    if (length != SIZE || memcmp(data, under_way[place].bytes, SIZE) != 0) {
        fail("a wrong reply to request %llu", (unsigned long long)answered);
    }
    answered++;
    if (ended_ns == 0) {
        counted++;
        if (window == 1 || counted % REPLIES_PER_LOOK == 0) {
            look(under_way[place].sent_ns);
        }
    }
    return UCS_OK;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static unsigned digit(char hexadecimal) {
    const char *digits = "0123456789abcdef", *place = strchr(digits, hexadecimal);
    if (hexadecimal == '\0' || place == NULL) {
        fail("the place is not hexadecimal");
    }
    return (unsigned)(place - digits);
}

static void call(const char *at) {
    char address[sizeof own_address];
    size_t digits = strlen(at);
    if (digits == 0 || digits % 2 != 0 || digits / 2 > sizeof address) {
        fail("`%s` is no place", at);
    }
    for (size_t place = 0; place < digits / 2; place++) {
        address[place] = (char)(digit(at[2 * place]) << 4 | digit(at[2 * place + 1]));
    }
    times = window == 1 ? malloc(sizeof *times * TIMES_MAX) : NULL;
    if (window == 1 && times == NULL) {
        fail("no memory");
    }
    open_worker();
    connect_to(address);
    handle(REPLY, on_reply);
    post(HELLO, own_address, own_length);
    start_ns = nanoseconds(CLOCK_MONOTONIC);
    uint64_t heard = 0, heard_ns = start_ns;
    while (ended_ns == 0) {
        for (unsigned polls = 0; polls < POLLS_PER_LOOK && ended_ns == 0; polls++) {
            while (asked - answered < window && ended_ns == 0) {
                ask();
            }
            ucp_worker_progress(worker);
        }
        uint64_t now = nanoseconds(CLOCK_MONOTONIC);
        if (answered != heard) {
            heard = answered;
            heard_ns = now;
        } else if (now - heard_ns > PATIENCE_S * 1000000000ull) {
            fail("no reply for %d s", PATIENCE_S);
        }
    }
    printf("{\"requests\":%llu,\"seconds\":%.9f,\"client_cpu_seconds\":%.9f,\"server_cpu_seconds\":%.9f",
           (unsigned long long)counted, (double)(ended_ns - began_ns) / 1e9, (double)(cpu_ended[0] - cpu_began[0]) / 1e9,
           (double)(cpu_ended[1] - cpu_began[1]) / 1e9);
    if (window == 1) {
        uint64_t kept = counted < TIMES_MAX ? counted : TIMES_MAX;
        qsort(times, kept, sizeof *times, by_size);
        printf(",\"latency_ns\":[%u,%u,%u]", times[kept / 2], times[kept * 99 / 100], times[kept * 999 / 1000]);
    }
    printf("}\n");
    fflush(stdout);
    /* The server polls on, until the process that started it ends it. */
    _exit(0);
}

static long long number(const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0) {
        fail("`%s` is no number", text);
    }
    return value;
}

int main(int count, char **words) {
    const char *at = NULL;
    if (count < 2 || count % 2 != 0) {
        fail("usage: echo-ucx serve|call --NAME VALUE ...");
    }
    for (int place = 2; place < count; place += 2) {
        const char *name = words[place], *value = words[place + 1];
        if (strcmp(name, "--core") == 0) {
            cpu_set_t cores;
            CPU_ZERO(&cores);
            CPU_SET((size_t)number(value), &cores);
            if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
                fail("core %s: %s", value, strerror(errno));
            }
        } else if (strcmp(name, "--at") == 0) {
            at = value;
        } else if (strcmp(name, "--window") == 0) {
            window = (uint64_t)number(value);
        } else if (strcmp(name, "--turn-ms") == 0) {
            length_ns = (uint64_t)number(value) * 1000000u;
        } else if (strcmp(name, "--wrong-reply") == 0) {
            wrong_reply = number(value);
        } else if (strcmp(name, "--server-process") == 0) {
            if (clock_getcpuclockid((pid_t)number(value), &server_clock) != 0) {
                fail("process %s has no clock", value);
            }
        } else if (strcmp(name, "--over") != 0) {
            fail("there is no %s", name);
        }
    }
    if (window < 1 || window > WINDOW_MAX) {
        fail("a window is 1 to %d", WINDOW_MAX);
    }
    if (strcmp(words[1], "serve") == 0) {
        serve();
    } else if (strcmp(words[1], "call") == 0 && at != NULL && server_clock != 0) {
        call(at);
    }
    fail("usage: echo-ucx serve|call --NAME VALUE ...");
}
