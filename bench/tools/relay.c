/* The floor: copies bytes between a client and one of the backends, chosen in turn at accept.
 *
 *   relay PORT BACKEND_PORT...
 *
 * A request costs it what no userspace proxy can do without: two receives, two sends, a share of a wait.
 */
#include "net.h"

enum { CHUNK = 64 << 10, BATCH = 256 };

/* One direction's source: what was read here is for `other`. */
struct side {
    struct side *other;
    int fd, dead;
    uint32_t events;
    size_t from, to;            /* bytes of `data` that `other` has not taken */
    char data[CHUNK];
};

static int epoll;

static void want(struct side *side)
{
    uint32_t events = (side->from == side->to ? EPOLLIN : 0) | (side->other->from < side->other->to ? EPOLLOUT : 0);
    if (events != side->events) {
        side->events = events;
        rewatch(epoll, side->fd, events, side);
    }
}

/* Passes on what `side` has read; -1 if the other end is gone. */
static int flush(struct side *side)
{
    while (side->from < side->to) {
        ssize_t n = send(side->other->fd, side->data + side->from, side->to - side->from, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        side->from += (size_t)n;
    }
    side->from = side->to = 0;
    return 0;
}

static int pump(struct side *side, uint32_t events)
{
    if ((events & EPOLLOUT) && flush(side->other) < 0)
        return -1;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && side->from == side->to) {
        ssize_t n = recv(side->fd, side->data, CHUNK, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return -1;
        if (n > 0) {
            side->to = (size_t)n;
            if (flush(side) < 0)
                return -1;
        }
    }
    want(side);
    want(side->other);
    return 0;
}

static struct side *new_side(int fd)
{
    struct side *side = malloc(sizeof *side);
    if (!side)
        fail("malloc");
    memset(side, 0, offsetof(struct side, data));
    side->fd = fd;
    side->events = EPOLLIN;
    return side;
}

static void accept_all(int listener, int backend_port)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), to;
    struct side *client, *backend;
    if (fd < 0)
        return;
    to = dial(backend_port);
    if (to < 0) {
        close(fd);
        return;
    }
    no_delay(fd);
    client = new_side(fd);
    backend = new_side(to);
    client->other = backend;
    backend->other = client;
    watch(epoll, fd, EPOLLIN, client);
    watch(epoll, to, EPOLLIN, backend);
}

int main(int argc, char **argv)
{
    struct epoll_event events[BATCH];
    struct side *buried[BATCH];
    int listener, turn = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: relay PORT BACKEND_PORT...\n");
        return 2;
    }
    prepare_process();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    listener = listen_on(INADDR_LOOPBACK, atoi(argv[1]));
    watch(epoll, listener, EPOLLIN, NULL);
    for (;;) {
        int n = epoll_wait(epoll, events, BATCH, -1), dead = 0;
        for (int i = 0; i < n; i++) {
            struct side *side = events[i].data.ptr;
            if (!side) {
                accept_all(listener, atoi(argv[2 + turn++ % (argc - 2)]));
            } else if (!side->dead && pump(side, events[i].events) < 0) {
                side->dead = side->other->dead = 1;
                close(side->fd);
                close(side->other->fd);
                buried[dead++] = side;  /* freed after the batch: its other end may stand further down in it */
            }
        }
        while (dead > 0) {
            struct side *side = buried[--dead];
            free(side->other);
            free(side);
        }
    }
}
