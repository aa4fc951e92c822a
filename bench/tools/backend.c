/* The backends: one thread, several ports, HTTP/1.1 with keep-alive, as cheap as can be.
 *
 *   backend COUNT_PORT PORT...        each PORT on 127.0.0.1
 *   backend COUNT_PORT any:PORT       all of 127.0.0.0/8 on one socket: ten thousand backends for the price of one
 *
 *   GET  /SIZE       SIZE bytes; 128 if it is no number (so /healthz works)
 *   POST /...        takes the body (Content-Length) and answers 2 bytes
 *   GET  with Upgrade: websocket   for the sample key of RFC 6455 §1.3; then one frame, "hello", for whatever comes
 *   GET on COUNT_PORT   {"requests":[per port...]}
 */
#include "net.h"

enum { PORTS_MAX = 16, BODY_MAX = 64 << 20, HEAD_MAX = 8192, SCRATCH = 256 << 10, BATCH = 256 };

struct port {
    int fd, number;
    uint64_t requests;
};

struct peer {
    struct port *port;          /* NULL: this is a listener, and `listener` says whose */
    struct port *listener;
    int fd, closing, waits_to_send, websocket;
    uint64_t upload_left;       /* bytes of a request body still to come */
    size_t have;                /* bytes of request heads in `in` */
    size_t head_length, body_length, sent;
    char head[160], in[HEAD_MAX + 1];
};

static struct port ports[PORTS_MAX];
static int port_count, epoll, count_port;
static char *body, scratch[SCRATCH];

static void hang_up(struct peer *peer)
{
    close(peer->fd);
    free(peer);
}

/* Sends what is left of the answer: 1 all sent, 0 the socket is full, -1 gone. */
static int send_answer(struct peer *peer)
{
    size_t total = peer->head_length + peer->body_length;
    while (peer->sent < total) {
        struct iovec parts[2];
        int count = 0;
        size_t in_body = 0;
        ssize_t n;
        if (peer->sent < peer->head_length) {
            parts[count].iov_base = peer->head + peer->sent;
            parts[count++].iov_len = peer->head_length - peer->sent;
        } else {
            in_body = peer->sent - peer->head_length;
        }
        parts[count].iov_base = body + in_body;
        parts[count++].iov_len = peer->body_length - in_body;
        n = writev(peer->fd, parts, count);
        if (n < 0 && errno == EAGAIN) {
            if (!peer->waits_to_send)
                rewatch(epoll, peer->fd, EPOLLOUT, peer);
            peer->waits_to_send = 1;
            return 0;
        }
        if (n <= 0)
            return -1;
        peer->sent += (size_t)n;
    }
    if (peer->waits_to_send)
        rewatch(epoll, peer->fd, EPOLLIN, peer);
    peer->waits_to_send = 0;
    peer->head_length = peer->body_length = peer->sent = 0;
    return peer->closing ? -1 : 1;
}

static int answer(struct peer *peer, size_t length)
{
    peer->port->requests++;
    peer->body_length = length > BODY_MAX ? BODY_MAX : length;
    peer->head_length = (size_t)snprintf(peer->head, sizeof peer->head,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Backend: %d\r\nContent-Length: %zu\r\n\r\n",
        peer->port->number, peer->body_length);
    return send_answer(peer);
}

/* The key is taken for the RFC's own: its answer is known without SHA-1. */
static int answer_websocket(struct peer *peer)
{
    peer->port->requests++;
    peer->websocket = 1;
    peer->body_length = 0;
    peer->head_length = (size_t)snprintf(peer->head, sizeof peer->head,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
    return send_answer(peer);
}

static void answer_counts(struct peer *peer)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"requests\":[");
    for (int i = 0; i < port_count; i++)
        if (ports[i].number != count_port)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%lu", i > 1 ? "," : "", (unsigned long)ports[i].requests);
    n += snprintf(text + n, sizeof text - (size_t)n, "]}");
    if (write(peer->fd, text, (size_t)n) < 0)
        perror("write");
}

/* One head has come, ending before `end`: answers, or learns how long the body is. Like send_answer. */
static int request(struct peer *peer, char *end)
{
    char *path = memchr(peer->in, ' ', (size_t)(end - peer->in)), *length;
    size_t used = (size_t)(end + 4 - peer->in), size;
    if (!path || peer->port->number == count_port) {
        if (path)
            answer_counts(peer);
        return -1;
    }
    *end = 0;
    if (path[1] == '/' && path[2] >= '0' && path[2] <= '9')
        size = strtoul(path + 2, NULL, 10);
    else
        size = 128;
    peer->closing = strcasestr(peer->in, "\r\nconnection: close") != NULL
        || (strstr(peer->in, " HTTP/1.0") && !strcasestr(peer->in, "\r\nconnection: keep-alive"));
    if (strcasestr(peer->in, "\r\nupgrade: websocket")) {
        peer->have = 0;         /* no frame can have come before the 101 */
        return answer_websocket(peer);
    }
    length = strcasestr(peer->in, "\r\ncontent-length:");
    peer->upload_left = length ? strtoull(length + 17, NULL, 10) : 0;
    memmove(peer->in, peer->in + used, peer->have - used);
    peer->have -= used;
    if (peer->upload_left == 0)
        return answer(peer, size);
    used = peer->upload_left < peer->have ? (size_t)peer->upload_left : peer->have;
    memmove(peer->in, peer->in + used, peer->have - used);
    peer->have -= used;
    peer->upload_left -= used;
    return peer->upload_left == 0 ? answer(peer, 2) : 1;
}

/* Answers all whole requests at hand, as far as the socket takes it. -1: gone. */
static int requests(struct peer *peer)
{
    while (peer->upload_left == 0 && peer->head_length == 0 && !peer->websocket) {
        char *end;
        peer->in[peer->have] = 0;
        end = memmem(peer->in, peer->have, "\r\n\r\n", 4);
        if (!end)
            return peer->have >= HEAD_MAX ? -1 : 0;
        if (request(peer, end) < 0)
            return -1;
    }
    return 0;
}

static int readable(struct peer *peer)
{
    ssize_t n;
    if (peer->websocket) {
        n = recv(peer->fd, scratch, SCRATCH, 0);
        if (n > 0 && send(peer->fd, "\x81\x05hello", 7, 0) != 7)
            return -1;
    } else if (peer->upload_left > 0) {
        size_t want = peer->upload_left < SCRATCH ? (size_t)peer->upload_left : SCRATCH;
        n = recv(peer->fd, scratch, want, 0);
        if (n > 0 && (peer->upload_left -= (uint64_t)n) == 0)
            return answer(peer, 2) < 0 ? -1 : 0;
    } else {
        n = recv(peer->fd, peer->in + peer->have, HEAD_MAX - peer->have, 0);
        if (n > 0) {
            peer->have += (size_t)n;
            return requests(peer);
        }
    }
    return n > 0 || (n < 0 && errno == EAGAIN) ? 0 : -1;
}

static void accept_all(struct port *port)
{
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        struct peer *peer;
        int fd = accept4(port->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if ((ntohl(from.sin_addr.s_addr) >> 24) != 127 || !(peer = malloc(sizeof *peer))) {
            close(fd);          /* nobody but this machine */
            continue;
        }
        memset(peer, 0, offsetof(struct peer, in));
        peer->fd = fd;
        peer->port = port;
        no_delay(fd);
        watch(epoll, fd, EPOLLIN, peer);
    }
}

static void open_port(const char *text)
{
    int any = strncmp(text, "any:", 4) == 0;
    struct port *port = &ports[port_count++];
    struct peer *listener = calloc(1, sizeof *listener);
    port->number = atoi(any ? text + 4 : text);
    port->fd = listen_on(any ? INADDR_ANY : INADDR_LOOPBACK, port->number);
    if (!listener)
        fail("calloc");
    listener->listener = port;
    watch(epoll, port->fd, EPOLLIN, listener);
}

int main(int argc, char **argv)
{
    struct epoll_event events[BATCH];
    prepare_process();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    body = malloc(BODY_MAX);
    if (argc < 3 || argc > PORTS_MAX || epoll < 0 || !body) {
        fprintf(stderr, "usage: backend COUNT_PORT PORT|any:PORT...\n");
        return 2;
    }
    memset(body, 'm', BODY_MAX);
    count_port = atoi(argv[1]);
    for (int i = 1; i < argc; i++)
        open_port(argv[i]);
    for (;;) {
        int n = epoll_wait(epoll, events, BATCH, -1);
        for (int i = 0; i < n; i++) {
            struct peer *peer = events[i].data.ptr;
            int state;
            if (peer->listener) {
                accept_all(peer->listener);
                continue;
            }
            if (peer->waits_to_send) {
                state = send_answer(peer);
                if (state > 0)
                    state = requests(peer);
            } else {
                state = readable(peer);
            }
            if (state < 0)
                hang_up(peer);
        }
    }
}
