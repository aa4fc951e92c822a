/* A new TLS 1.3 connection for each request: so many in flight at once, each with a full handshake or a resumed one.
 *
 *   handshake PORT PATH CONNECTIONS SECONDS full|resumed
 *
 * With `resumed` each place in flight keeps the newest ticket of its last connection, and spends it on the next one; the
 * first connection of a place has no ticket and is not counted. What the handshake came to be is asked of the TLS
 * library, not assumed. Prints one line of JSON, times in microseconds from connect to the whole answer.
 */
#include "net.h"
#include "tls.h"
#include <fcntl.h>

enum { BATCH = 256, ANSWER_MAX = 4096, LATENCIES_MAX = 1 << 22, SOURCES = 16 };

struct place {
    int fd, sent, has_ticket, resumed;
    SSL *ssl;
    SSL_SESSION *ticket;
    uint32_t events;
    uint64_t began;
    size_t have;
    char in[ANSWER_MAX + 1];
};

static SSL_CTX *context;
static int epoll, port, wants_resumed, in_flight;
static char request[256];
static uint32_t *latencies;
static size_t latency_count;
static uint64_t counted, resumed, bad, ended;

static int keep_ticket(SSL *ssl, SSL_SESSION *ticket)
{
    struct place *place = SSL_get_app_data(ssl);
    if (!wants_resumed)
        return 0;
    SSL_SESSION_free(place->ticket);
    place->ticket = ticket;
    return 1;
}

/* From one of several addresses in turn, so that the ports of connections that have just closed do not run out. */
static int dial_from(uint32_t source)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in from = ipv4(source, 0), to = ipv4(INADDR_LOOPBACK, port);
    if (s < 0)
        fail("socket");
    setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(s, (struct sockaddr *)&from, sizeof from) != 0 || connect(s, (struct sockaddr *)&to, sizeof to) != 0)
        fail("connect");
    no_delay(s);
    fcntl(s, F_SETFL, O_NONBLOCK);
    return s;
}

static void begin(struct place *place)
{
    static uint32_t turn;
    place->began = now_ns();
    place->sent = 0;
    place->have = 0;
    place->fd = dial_from(INADDR_LOOPBACK + turn++ % SOURCES);
    place->ssl = tls_on(context, place->fd);
    SSL_set_app_data(place->ssl, place);
    place->has_ticket = place->ticket != NULL;
    if (place->ticket)
        SSL_set_session(place->ssl, place->ticket);
    place->events = EPOLLOUT;   /* at once: the client speaks first */
    watch(epoll, place->fd, place->events, place);
    in_flight++;
}

static void end(struct place *place, int good)
{
    if (!good)
        bad++;
    ended++;
    if (good && (place->has_ticket || !wants_resumed)) {
        uint64_t took = now_ns() - place->began;
        counted++;
        resumed += (uint64_t)place->resumed;
        if (latency_count < LATENCIES_MAX)
            latencies[latency_count++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    }
    SSL_shutdown(place->ssl);   /* without a farewell the library takes the ticket for spoiled */
    SSL_free(place->ssl);
    close(place->fd);
    ERR_clear_error();
    in_flight--;
}

/* What a call of the TLS library waits for is watched: 0; or the connection is lost: -1. */
static int wait_for(struct place *place, int result)
{
    int why = SSL_get_error(place->ssl, result);
    uint32_t events = why == SSL_ERROR_WANT_WRITE ? EPOLLOUT : EPOLLIN;
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
        return -1;
    if (events != place->events)
        rewatch(epoll, place->fd, events, place);
    place->events = events;
    return 0;
}

/* Goes as far as the socket lets it: 1 the answer is whole, 0 it waits, -1 lost. */
static int go_on(struct place *place)
{
    if (!place->sent) {
        int length = (int)strlen(request), n = SSL_do_handshake(place->ssl);
        if (n != 1)
            return wait_for(place, n);
        place->resumed = SSL_session_reused(place->ssl);
        n = SSL_write(place->ssl, request, length);
        if (n != length)
            return wait_for(place, n);
        place->sent = 1;
    }
    for (;;) {
        size_t length;
        int n = SSL_read(place->ssl, place->in + place->have, (int)(ANSWER_MAX - place->have));
        if (n <= 0)
            return wait_for(place, n);
        place->have += (size_t)n;
        place->in[place->have] = 0;
        length = response_length(place->in);
        if (length > 0 && place->have >= length)
            return 1;
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double share)
{
    return latency_count ? latencies[(size_t)((double)(latency_count - 1) * share)] / 1000.0 : 0.0;
}

int main(int argc, char **argv)
{
    struct epoll_event events[BATCH];
    struct place *places;
    uint64_t began, until, last;
    int count;
    if (argc != 6) {
        fprintf(stderr, "usage: handshake PORT PATH CONNECTIONS SECONDS full|resumed\n");
        return 2;
    }
    prepare_process();
    port = atoi(argv[1]);
    count = atoi(argv[3]);
    wants_resumed = strcmp(argv[5], "resumed") == 0;
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", argv[2]);
    context = tls_client();
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, keep_ticket);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    places = calloc((size_t)count, sizeof *places);
    latencies = malloc(LATENCIES_MAX * sizeof *latencies);
    if (!places || !latencies || epoll < 0)
        fail("set-up");
    began = now_ns();
    until = began + (uint64_t)(atof(argv[4]) * 1e9);
    last = until + 5000000000u;     /* then what is still unanswered is bad */
    for (int i = 0; i < count; i++)
        begin(&places[i]);
    while (in_flight > 0 && now_ns() < last) {
        int n = epoll_wait(epoll, events, BATCH, 100);
        for (int i = 0; i < n; i++) {
            struct place *place = events[i].data.ptr;
            int state = go_on(place);
            if (state == 0)
                continue;
            end(place, state > 0 && response_is_200(place->in));
            if (now_ns() < until)
                begin(place);
        }
    }
    qsort(latencies, latency_count, sizeof *latencies, by_value);
    printf("{\"requests\":%lu,\"connections\":%lu,\"resumed\":%lu,\"bad\":%lu,\"microseconds\":%lu,\"p50\":%.1f,\"p99\":%.1f}\n",
        (unsigned long)counted, (unsigned long)ended, (unsigned long)resumed, (unsigned long)(bad + (uint64_t)in_flight),
        (unsigned long)((now_ns() - began) / 1000), percentile(0.5), percentile(0.99));
    return 0;
}
