//! What no etcd that can be installed here shows: a server that says what the test wants, over real sockets.

mod calls;
mod server;
mod watches;
