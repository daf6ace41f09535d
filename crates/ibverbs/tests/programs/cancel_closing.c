/* A thread that closes a stream, or shuts it down, beside a peer that is stopped is cancelled there. The peer still gets all bytes and the end,
 * and nothing is left of the stream.
 */
#include "sockets.h"

enum { STREAMS = 6, BYTES = 3000 };
static int streams[STREAMS];

static void *closes(void *stream)
{
    rclose(*(int *)stream);
    return NULL;
}

static void *shuts_down(void *stream)
{
    rshutdown(*(int *)stream, SHUT_WR);
    return NULL;
}

/* The peer: tells its port, accepts all streams, and reads each to its end. */
static void peer(int tell, int hear)
{
    int port, at = listener(STREAMS, &port), accepted[STREAMS];
    char text[BYTES];
    CHECK_EQUAL(write(tell, &port, sizeof port), sizeof port);
    for (int i = 0; i < STREAMS; i++)
        CHECK((accepted[i] = raccept(at, NULL, NULL)) >= 0);
    CHECK_EQUAL(write(tell, &port, 1), 1);
    /* It is stopped about here. */
    CHECK_EQUAL(read(hear, text, 1), 1);
    for (int i = 0; i < STREAMS; i++) {
        for (int got = 0; got < BYTES;) {
            ssize_t more = rrecv(accepted[i], text + got, BYTES - got, 0);
            CHECK(more > 0);
            for (ssize_t j = 0; j < more; j++)
                CHECK_EQUAL(text[got + j], (char)(got + j + i));
            got += more;
        }
        CHECK_EQUAL(rrecv(accepted[i], text, 1, 0), 0);
        CHECK_EQUAL(rclose(accepted[i]), 0);
    }
    exit(0);
}

int main(void)
{
    int from[2], to[2], port, status;
    char bytes[BYTES];
    CHECK_EQUAL(pipe(from), 0);
    CHECK_EQUAL(pipe(to), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        peer(from[1], to[0]);
    CHECK_EQUAL(read(from[0], &port, sizeof port), sizeof port);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = connected(port);
    CHECK_EQUAL(read(from[0], bytes, 1), 1);
    CHECK_EQUAL(kill(child, SIGSTOP), 0);
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
    for (int i = 0; i < STREAMS; i++) {
        for (int j = 0; j < BYTES; j++)
            bytes[j] = (char)(j + i);
        CHECK_EQUAL(rsend(streams[i], bytes, BYTES, 0), BYTES);
        pthread_t thread;
        CHECK_EQUAL(pthread_create(&thread, NULL, i % 2 ? shuts_down : closes, &streams[i]), 0);
        struct timespec moment = {.tv_nsec = 50000000};
        /* Nothing depends on where it is cancelled: before the call, within, or behind it. */
        nanosleep(&moment, NULL);
        CHECK_EQUAL(pthread_cancel(thread), 0);
        void *result;
        CHECK_EQUAL(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED || !result);
        fprintf(stderr, "%s: %s\n", i % 2 ? "rshutdown" : "rclose", result ? "cancelled" : "returned");
    }
    CHECK_EQUAL(kill(child, SIGCONT), 0);
    CHECK_EQUAL(write(to[1], "x", 1), 1);
    /* Those that were not closed yet. */
    for (int i = 0; i < STREAMS; i++)
        CHECK(rclose(streams[i]) == 0 || (i % 2 == 0 && errno == EBADF));
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
