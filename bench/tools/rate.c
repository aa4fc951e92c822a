/* An open-loop client: requests are due at a fixed rate, whether or not earlier ones have been answered.
 *
 *   rate PORT PATH REQUESTS_PER_SECOND CONNECTIONS SECONDS
 *
 * A latency counts from when the request was due, so a stall is paid for by every request that it held up (a closed
 * loop would send fewer instead, and look fine). Prints one line of JSON, times in microseconds.
 */
#include "net.h"

enum { BATCH = 256, ANSWER_MAX = 4096 };

struct connection {
    int fd;
    uint64_t due;
    size_t have;
    char in[ANSWER_MAX + 1];
};

static struct connection *connections;
static int *idle, idle_count, idle_first, connection_count, epoll, port;
static uint64_t sent, bad, in_flight;

static void put_idle(int index)
{
    idle[(idle_first + idle_count++) % connection_count] = index;
}

static int take_idle(void)
{
    int index = idle[idle_first];
    idle_first = (idle_first + 1) % connection_count;
    idle_count--;
    return index;
}

static void open_connection(int index)
{
    struct connection *connection = &connections[index];
    connection->fd = dial(port);
    if (connection->fd < 0)
        fail("connect");
    watch(epoll, connection->fd, EPOLLIN, connection);
}

/* Reads an answer's bytes; returns 1 once it is whole. */
static int answered(struct connection *connection)
{
    ssize_t n = recv(connection->fd, connection->in + connection->have, ANSWER_MAX - connection->have, MSG_DONTWAIT);
    size_t length;
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        bad++;
        close(connection->fd);
        open_connection((int)(connection - connections));
        return 1;
    }
    connection->have += (size_t)n;
    connection->in[connection->have] = 0;
    length = response_length(connection->in);
    if (length == 0 || connection->have < length)
        return 0;
    if (!response_is_200(connection->in))
        bad++;
    return 1;
}

static void wait_until(uint64_t when, struct epoll_event *events, int *count)
{
    uint64_t t = now_ns(), left = when > t ? when - t : 0;
    struct timespec timeout = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
    *count = epoll_pwait2(epoll, events, BATCH, &timeout, NULL);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(uint32_t *latencies, size_t n)
{
    static const struct { const char *name; double share; } points[] = {
        { "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p999", 0.999 }, { "max", 1.0 },
    };
    qsort(latencies, n, sizeof *latencies, by_value);
    printf("{\"requests\":%zu,\"sent\":%lu,\"bad\":%lu", n, (unsigned long)sent, (unsigned long)(bad + in_flight));
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        printf(",\"%s\":%.1f", points[i].name, n ? latencies[(size_t)((double)(n - 1) * points[i].share)] / 1000.0 : 0.0);
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct epoll_event events[BATCH];
    char text[256];
    uint32_t *latencies;
    size_t n = 0, room;
    uint64_t gap, due, end, last;
    int length;
    if (argc != 6) {
        fprintf(stderr, "usage: rate PORT PATH REQUESTS_PER_SECOND CONNECTIONS SECONDS\n");
        return 2;
    }
    prepare_process();
    port = atoi(argv[1]);
    connection_count = atoi(argv[4]);
    gap = (uint64_t)(1e9 / atof(argv[3]));
    room = (size_t)(atof(argv[3]) * atof(argv[5])) + 16;
    length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", argv[2]);
    connections = calloc((size_t)connection_count, sizeof *connections);
    idle = calloc((size_t)connection_count, sizeof *idle);
    latencies = malloc(room * sizeof *latencies);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!connections || !idle || !latencies || epoll < 0)
        fail("set-up");
    for (int i = 0; i < connection_count; i++) {
        open_connection(i);
        put_idle(i);
    }
    due = now_ns() + 1000000u;
    end = due + (uint64_t)(atof(argv[5]) * 1e9);
    last = end + 2000000000u;   /* then what is still unanswered is bad */
    while ((due < end || in_flight > 0) && now_ns() < last) {
        int count;
        wait_until(due < end && idle_count > 0 ? due : now_ns() + 20000000u, events, &count);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (!answered(connection))
                continue;
            if (n < room) {
                uint64_t took = now_ns() - connection->due;
                latencies[n++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
            }
            in_flight--;
            put_idle((int)(connection - connections));
        }
        while (due < end && idle_count > 0 && due <= now_ns()) {
            struct connection *connection = &connections[take_idle()];
            connection->due = due;
            connection->have = 0;
            due += gap;
            sent++;
            in_flight++;
            if (send(connection->fd, text, (size_t)length, 0) != length)
                bad++;
        }
    }
    report(latencies, n);
    return 0;
}
