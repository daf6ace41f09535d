/* The agent's server: connections, request lines, answers. See agent.h for the protocol. */
#include "agent.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct objects objects;

static FILE *answers;
static jmp_buf next_request;

static const char *find(const struct request *request, const char *key)
{
    size_t length = strlen(key);
    for (int i = 0; i < request->count; i++)
        if (!strncmp(request->words[i], key, length) && request->words[i][length] == '=')
            return request->words[i] + length + 1;
    return NULL;
}

const char *text(const struct request *request, const char *key)
{
    const char *value = find(request, key);
    if (!value)
        refuse(EINVAL, "%s needs %s=", request->command, key);
    return value;
}

const char *text_or(const struct request *request, const char *key, const char *fallback)
{
    const char *value = find(request, key);
    return value ? value : fallback;
}

uint64_t number(const struct request *request, const char *key)
{
    const char *value = text(request, key);
    char *end;
    uint64_t result = strtoull(value, &end, 0);
    if (!*value || *end)
        refuse(EINVAL, "%s=%s is no number", key, value);
    return result;
}

uint64_t number_or(const struct request *request, const char *key, uint64_t fallback)
{
    return find(request, key) ? number(request, key) : fallback;
}

int slot(const struct request *request, const char *key, int count)
{
    uint64_t result = number(request, key);
    if (result >= (uint64_t)count)
        refuse(ENOENT, "there is no %s %llu", key, (unsigned long long)result);
    return (int)result;
}

void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(answers, format, arguments);
    va_end(arguments);
}

noreturn void refuse(int error, const char *format, ...)
{
    va_list arguments;
    fprintf(answers, "err %d ", error);
    va_start(arguments, format);
    vfprintf(answers, format, arguments);
    va_end(arguments);
    fprintf(answers, ": %s\n", strerror(error));
    longjmp(next_request, 1);
}

static void counters(const struct request *request)
{
    (void)request;
    const char *folder = "/sys/class/infiniband/rxe0/ports/1/hw_counters";
    DIR *dir = opendir(folder);
    if (!dir)
        refuse(errno, "no %s", folder);
    answer("ok");
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        unsigned long long value;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%llu", &value) == 1)
            answer(" %s=%llu", entry->d_name, value);
        if (file)
            fclose(file);
    }
    closedir(dir);
    answer("\n");
}

static void run(const struct request *request)
{
    static char output[1 << 16];
    char line[4096];
    snprintf(line, sizeof line, "exec 2>&1; %s", request->rest);
    FILE *pipe = popen(line, "r");
    if (!pipe)
        refuse(errno, "no shell");
    size_t length = fread(output, 1, sizeof output, pipe);
    int status = pclose(pipe);
    answer("ok status=%d bytes=%zu\n", status < 0 ? -1 : status >> 8, length);
    fwrite(output, 1, length, answers);
}

static void quit(const struct request *request)
{
    (void)request;
    answer("ok\n");
    fflush(answers);
    exit(0);
}

static const struct {
    const char *name;
    command *command;
} commands[] = {
    {"open", open_device}, {"pd", make_pd},       {"cq", make_cq},       {"srq", make_srq},   {"mr", make_mr},
    {"mw", make_mw},       {"qp", make_qp},       {"ah", make_ah},       {"destroy", destroy}, {"init", to_init},
    {"rtr", to_rtr},       {"rts", to_rts},       {"error", to_error},   {"query", query},    {"fill", fill},
    {"check", check},      {"poke", poke},        {"peek", peek},        {"send", post_send}, {"recv", post_recv},
    {"poll", poll_cq},     {"counters", counters}, {"run", run},         {"quit", quit},
};

static void dispatch(const struct request *request)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, request->command))
            continue;
        if (!objects.context && commands[i].command != open_device && commands[i].command != run)
            refuse(ENODEV, "open comes first");
        commands[i].command(request);
        return;
    }
    refuse(ENOSYS, "no command %s", request->command);
}

/* Cuts a line into words; `uncut` keeps a copy for commands that take the rest as it is. */
static struct request parse(char *line, char *uncut, size_t size)
{
    struct request request = {.command = ""};
    char *save;
    snprintf(uncut, size, "%s", line);
    request.rest = uncut + strcspn(uncut, " ");
    const char *word = strtok_r(line, " ", &save);
    if (word)
        request.command = word;
    while ((word = strtok_r(NULL, " ", &save)) && request.count < 64)
        request.words[request.count++] = word;
    return request;
}

static noreturn void serve(int connection)
{
    static char line[1 << 17], uncut[1 << 17];
    /*
     * The agent waits for the applications that `run` starts; only the server leaves its children to the
     * kernel.
     */
    signal(SIGCHLD, SIG_DFL);
    FILE *requests = fdopen(connection, "r");
    answers = fdopen(dup(connection), "w");
    while (requests && answers && fgets(line, sizeof line, requests)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!setjmp(next_request)) {
            struct request request = parse(line, uncut, sizeof uncut);
            dispatch(&request);
        }
        fflush(answers);
    }
    exit(0);
}

int main(int argc, char **argv)
{
    int port = argc > 1 ? atoi(argv[1]) : 7471, one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 16)) {
        perror("interop-agent");
        return 1;
    }
    /* The guest's init may go on as soon as the agent listens. */
    if (fork())
        return 0;
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!fork())
            serve(connection);
        close(connection);
    }
}
