//! The machine's log daemon as a place for lines: one datagram each, in the form that syslog(3) sends (RFC 3164 §4.1
//! without its time, which daemons add; the line has its own).

use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// `local0.info`, as HAProxy has it by default: facility 16 × 8 + severity 6.
const PRIORITY: &str = "<134>";

/// A sink that takes whole lines.
pub(super) struct Syslog {
    path: PathBuf,
    socket: UnixDatagram,
    datagram: Vec<u8>,
    /// What stands before each line.
    tag: String,
}

impl Syslog {
    /// Connects to the daemon's socket.
    ///
    /// # Errors
    /// If nobody listens there; the error names the path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            socket: connect(path)?,
            datagram: Vec::new(),
            tag: format!("{PRIORITY}mizan[{}]: ", std::process::id()),
        })
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.datagram.clear();
        self.datagram.extend_from_slice(self.tag.as_bytes());
        self.datagram.extend_from_slice(line);
        match self.socket.send(&self.datagram) {
            Ok(_) => return Ok(()),
            // Longer than a datagram may be: another socket takes no more.
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                return Err(error);
            }
            // The daemon was restarted: its socket is another now.
            Err(_) => {}
        }
        self.socket = connect(&self.path)?;
        self.socket.send(&self.datagram).map(drop)
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("syslog at {}: {error}", path.display()),
        )
    })?;
    Ok(socket)
}

impl super::writer::Lines for Syslog {
    fn write_lines(&mut self, text: &[u8], _: u64) -> (u64, Option<io::Error>) {
        let (mut lost, mut why) = (0, None);
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            if let Err(error) = self.send(line) {
                lost += 1;
                why = Some(error);
            }
        }
        (lost, why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::Lines;
    use super::*;

    #[test]
    fn each_line_is_a_datagram_also_to_a_daemon_that_was_restarted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        assert!(Syslog::open(&path).is_err());
        let mut received = [0; 256];
        let mut next = |daemon: &UnixDatagram| {
            let length = daemon.recv(&mut received).expect("a datagram");
            String::from_utf8_lossy(&received[..length]).into_owned()
        };
        let daemon = UnixDatagram::bind(&path).expect("a free path");
        let mut syslog = Syslog::open(&path).expect("it listens");
        let long = [&b"x".repeat(1 << 22)[..], b"\n"].concat();
        let lines = [b"{\"a\":1}\n", &long[..], b"{\"b\":2}\n"].concat();
        assert_eq!(syslog.write_lines(&lines, 3).0, 1, "one line is too long");
        let tag = format!("<134>mizan[{}]: ", std::process::id());
        assert_eq!(next(&daemon), format!("{tag}{{\"a\":1}}"));
        assert_eq!(next(&daemon), format!("{tag}{{\"b\":2}}"));
        drop(daemon);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(syslog.write_lines(b"lost\n", 1).0, 1);
        let daemon = UnixDatagram::bind(&path).expect("a free path");
        assert_eq!(syslog.write_lines(b"{\"c\":3}\n", 1).0, 0);
        assert_eq!(next(&daemon), format!("{tag}{{\"c\":3}}"));
    }
}
