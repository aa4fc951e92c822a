/* Holds idle keep-alive connections: one request on each, then silence until standard input ends.
 *
 *   hold PORT PATH COUNT
 *
 * Prints "held N failed M" when all are open, and "alive N" at the end.
 */
#include "net.h"

enum { ANSWER_MAX = 8192 };

/* One GET and its whole answer: 1 if that was a 200. */
static int exchange(int fd, const char *path)
{
    char text[256], in[ANSWER_MAX + 1];
    size_t have = 0, length = 0;
    int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path);
    if (send(fd, text, (size_t)n, 0) != n)
        return 0;
    while (length == 0 || have < length) {
        ssize_t got = recv(fd, in + have, ANSWER_MAX - have, 0);
        if (got <= 0)
            return 0;
        have += (size_t)got;
        in[have] = 0;
        length = response_length(in);
    }
    return response_is_200(in);
}

int main(int argc, char **argv)
{
    int count, held = 0, alive = 0, *fds;
    char byte;
    if (argc != 4) {
        fprintf(stderr, "usage: hold PORT PATH COUNT\n");
        return 2;
    }
    prepare_process();
    count = atoi(argv[3]);
    fds = calloc((size_t)count, sizeof *fds);
    if (!fds)
        fail("calloc");
    for (int i = 0; i < count; i++) {
        int fd = dial(atoi(argv[1]));
        if (fd >= 0 && exchange(fd, argv[2]))
            fds[held++] = fd;
        else if (fd >= 0)
            close(fd);
    }
    printf("held %d failed %d\n", held, count - held);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    for (int i = 0; i < held; i++)
        alive += recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    printf("alive %d\n", alive);
    return 0;
}
