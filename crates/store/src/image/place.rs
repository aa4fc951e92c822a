//! Where a table's file lies, and how a new one takes its place.

use rustix::fs::{self, AtFlags, Mode, OFlags, Timestamps};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that this process has put.
static PUTS: AtomicU64 = AtomicU64::new(0);

/// After how many seconds an unfinished file is nobody's.
const LEFT_SECONDS: i64 = 60;

/// Whether a file is to outlive a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// For readers of this machine, until it is switched off: no `fsync`.
    Memory,
    /// For the next start: `fsync` of the file before it is renamed, and of its folder after.
    Disk,
}

/// A folder of ours that files are put into.
///
/// Its parent may be writable for everybody, as `/dev/shm` is. So the folder is made with mode 0755, is never a symbolic link,
/// and must belong to us and be writable for us alone; files are opened in it by its descriptor.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    folder: OwnedFd,
}

impl Place {
    /// Opens the folder at `path`; makes it where it is not there.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`] if it is somebody else's, or others may write to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        match fs::mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let folder = fs::open(path, flags, Mode::empty())?;
        let found = fs::fstat(&folder)?;
        let ours = rustix::process::geteuid().as_raw();
        if found.st_uid != ours {
            let why = format!(
                "{} belongs to user {}, not to user {ours}",
                path.display(),
                found.st_uid
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if found.st_mode & 0o022 != 0 {
            let why = format!(
                "{} is writable for others (mode {:o}): `chmod go-w` it",
                path.display(),
                found.st_mode & 0o7777
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let path = path.to_path_buf();
        let place = Self { path, folder };
        place.sweep()?;
        Ok(place)
    }

    /// Takes away what killed processes have left behind: nobody is at work on a file for so long.
    fn sweep(&self) -> io::Result<()> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        for entry in fs::Dir::read_from(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !(name.starts_with(b".") && name.ends_with(b".tmp")) {
                continue;
            }
            let Ok(found) = fs::statat(&self.folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            if found.st_mtime + LEFT_SECONDS < now.tv_sec {
                // Somebody else may sweep, too.
                let _ = fs::unlinkat(&self.folder, entry.file_name(), AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a file of these bytes there, readable for all, in the place of the one before: in one step for whoever opens it.
    ///
    /// # Errors
    /// The system's. The file before is still there then.
    pub fn put(&self, name: &str, bytes: &[u8], durability: Durability) -> io::Result<()> {
        // Of a name that nobody else has at work: two who write the same file may both be process 1, of two containers.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let (process, nth) = (std::process::id(), PUTS.fetch_add(1, Ordering::Relaxed));
        let time = format!("{}{:09}", now.tv_sec, now.tv_nsec);
        let new = format!(".{name}.{process}.{time}.{nth}.tmp");
        let done = self.put_by_way_of(&new, name, bytes, durability);
        if done.is_err() {
            // It may not be there at all.
            let _ = fs::unlinkat(&self.folder, &new, AtFlags::empty());
        }
        done
    }

    fn put_by_way_of(
        &self,
        new: &str,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o644);
        let file = fs::openat(&self.folder, new, flags | OFlags::CLOEXEC, mode)?;
        // Whatever the mask says: readers are other users.
        fs::fchmod(&file, mode)?;
        let mut file = std::fs::File::from(file);
        file.write_all(bytes)?;
        // The system stamps files in ticks of some milliseconds. Two of one tick, of which the later has the inode of one
        // that is gone, would look the same to a reader.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        fs::futimens(&file, &times)?;
        if durability == Durability::Disk {
            file.sync_all()?;
        }
        fs::renameat(&self.folder, new, &self.folder, name)?;
        if durability == Durability::Disk {
            fs::fsync(&self.folder)?;
        }
        Ok(())
    }

    /// The bytes of a file there; `None`: it is not there.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`] if it is somebody else's.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if fs::fstat(&file)?.st_uid != rustix::process::geteuid().as_raw() {
            let why = format!("{name} in {} is somebody else's", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes)?;
        Ok(Some(bytes))
    }
}
