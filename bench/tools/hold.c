/* Holds idle connections: one exchange on each, then silence until standard input ends.
 *
 *   hold PORT PATH COUNT [tls|websocket]
 *
 * The exchange is a GET, in the clear or over TLS, or the opening of a WebSocket and one frame each way. Prints
 * "held N failed M" when all are open, and "alive N" at the end.
 */
#include "net.h"
#include "tls.h"

enum { ANSWER_MAX = 8192 };

static const char *path;
static SSL_CTX *context;        /* NULL: in the clear */
static int websocket;

struct connection {
    int fd;
    SSL *ssl;
};

static ssize_t put(struct connection *connection, const void *bytes, size_t length)
{
    return connection->ssl ? SSL_write(connection->ssl, bytes, (int)length) : send(connection->fd, bytes, length, 0);
}

static ssize_t take(struct connection *connection, void *bytes, size_t room)
{
    return connection->ssl ? SSL_read(connection->ssl, bytes, (int)room) : recv(connection->fd, bytes, room, 0);
}

/* Sends `text` and reads a whole response into `in`: 1 if there was one. */
static int exchange(struct connection *connection, const char *text, char *in)
{
    size_t have = 0, length = 0;
    if (put(connection, text, strlen(text)) != (ssize_t)strlen(text))
        return 0;
    while (length == 0 || have < length) {
        ssize_t got = take(connection, in + have, ANSWER_MAX - have);
        if (got <= 0)
            return 0;
        have += (size_t)got;
        in[have] = 0;
        length = response_length(in);
    }
    return 1;
}

static int get(struct connection *connection)
{
    char text[256], in[ANSWER_MAX + 1];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    return exchange(connection, text, in) && response_is_200(in);
}

/* The key and its answer are those of RFC 6455 §1.3, which the backend knows; so nobody here needs SHA-1. */
static int open_websocket(struct connection *connection)
{
    static const unsigned char hello[] = { 0x81, 0x85, 0, 0, 0, 0, 'h', 'e', 'l', 'l', 'o' }, answer[] = { 0x81, 5, 'h', 'e', 'l', 'l', 'o' };
    char text[256], in[ANSWER_MAX + 1];
    size_t have = 0;
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path);
    if (!exchange(connection, text, in) || strncmp(in, "HTTP/1.1 101", 12) != 0 || !strstr(in, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
        return 0;
    if (put(connection, hello, sizeof hello) != sizeof hello)
        return 0;
    while (have < sizeof answer) {
        ssize_t got = take(connection, in + have, sizeof answer - have);
        if (got <= 0)
            return 0;
        have += (size_t)got;
    }
    return memcmp(in, answer, sizeof answer) == 0;
}

static int open_connection(struct connection *connection, int port)
{
    connection->fd = dial(port);
    if (connection->fd < 0)
        return 0;
    if (context) {
        connection->ssl = tls_on(context, connection->fd);
        if (SSL_do_handshake(connection->ssl) != 1)
            return 0;
    }
    return websocket ? open_websocket(connection) : get(connection);
}

int main(int argc, char **argv)
{
    struct connection *connections;
    int count, held = 0, alive = 0;
    char byte;
    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: hold PORT PATH COUNT [tls|websocket]\n");
        return 2;
    }
    prepare_process();
    path = argv[2];
    count = atoi(argv[3]);
    context = argc == 5 && strcmp(argv[4], "tls") == 0 ? tls_client() : NULL;
    websocket = argc == 5 && strcmp(argv[4], "websocket") == 0;
    connections = calloc((size_t)count, sizeof *connections);
    if (!connections)
        fail("calloc");
    for (int i = 0; i < count; i++) {
        if (open_connection(&connections[held], atoi(argv[1]))) {
            held++;
        } else {
            SSL_free(connections[held].ssl);
            connections[held].ssl = NULL;
            if (connections[held].fd >= 0)
                close(connections[held].fd);
        }
    }
    printf("held %d failed %d\n", held, count - held);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    for (int i = 0; i < held; i++)
        alive += recv(connections[i].fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    printf("alive %d\n", alive);
    return 0;
}
