/* What the bench's small programs share: time, loopback sockets, response heads. */
#ifndef BENCH_NET_H
#define BENCH_NET_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static inline void fail(const char *operation)
{
    perror(operation);
    exit(1);
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* As many descriptors as the hard limit gives; a peer that closes must not kill us. */
static inline void prepare_process(void)
{
    struct rlimit limit;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static inline void no_delay(int socket)
{
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static inline struct sockaddr_in ipv4(uint32_t address, int port)
{
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(address);
    a.sin_port = htons((uint16_t)port);
    return a;
}

/* A non-blocking listening socket. */
static inline int listen_on(uint32_t address, int port)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a = ipv4(address, port);
    if (s < 0)
        fail("socket");
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, (struct sockaddr *)&a, sizeof a) != 0)
        fail("bind");
    if (listen(s, 4096) != 0)
        fail("listen");
    return s;
}

/* A connected, blocking socket to a loopback port, or -1. */
static inline int dial(int port)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = ipv4(INADDR_LOOPBACK, port);
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a) != 0) {
        if (s >= 0)
            close(s);
        return -1;
    }
    no_delay(s);
    return s;
}

static inline void watch(int epoll, int fd, uint32_t events, void *data)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.ptr = data;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0)
        fail("epoll_ctl add");
}

static inline void rewatch(int epoll, int fd, uint32_t events, void *data)
{
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.ptr = data;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &e) != 0)
        fail("epoll_ctl mod");
}

/* The length of the whole response that begins at `text` (a C string), once its head is there; 0 before. */
static inline size_t response_length(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    const char *length;
    if (!end)
        return 0;
    length = strcasestr(text, "\r\ncontent-length:");
    return (size_t)(end + 4 - text) + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
}

static inline int response_is_200(const char *text)
{
    return strncmp(text, "HTTP/1.", 7) == 0 && strncmp(text + 8, " 200", 4) == 0;
}
#endif
