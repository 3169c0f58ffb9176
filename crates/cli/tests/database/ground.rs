//! What a test stands on: its turn, the programs it needs, a directory of its own.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The number in environment variable `name`, or `default`.
pub(crate) fn number(name: &str, default: u32) -> u32 {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

/// The program `name`, from the search path or a directory where Debian keeps servers.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        let mut found: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
        // Programs of one version: the newest, before the wrappers on the search path.
        found.sort();
        places.splice(0..0, found.into_iter().rev());
    }
    let mut files = places.into_iter().map(|place| place.join(name));
    files.find(|file| file.is_file())
}

/// A user: who runs a server and owns its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// The user `name` for root, who cannot run servers; otherwise whoever runs the test.
    pub(crate) fn for_server(name: &str) -> Option<Self> {
        let id = |what: &str, user: &[&str]| {
            let output = Command::new("id").arg(what).args(user).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            text.trim().parse().ok().filter(|_| output.status.success())
        };
        let user: &[&str] = match id("-u", &[])? {
            0 => &[name],
            _ => &[],
        };
        Some(Self {
            uid: id("-u", user)?,
            gid: id("-g", user)?,
        })
    }
}

/// A directory that every user can reach into, removed at the end.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) user: User,
    directory: TempDir,
}

impl Ground {
    /// `None`, with a word on it, when something is missing.
    ///
    /// `user` runs the server as far as root runs the test.
    pub(crate) fn prepare(test: &str, user: &str, programs: &[&str]) -> Option<Self> {
        if let Some(missing) = missing(user, programs) {
            let required = env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "{test} cannot run: {missing}");
            eprintln!("skipped: {test}: {missing}");
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("thermocline-")
            .tempdir()
            .expect("directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        Some(Self {
            user: User::for_server(user)?,
            directory,
        })
    }

    /// The path of `name` in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new directory that belongs to the server's user.
    pub(crate) fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.give(&path);
        path
    }

    /// Makes the server's user the owner of `path`.
    pub(crate) fn give(&self, path: &Path) {
        chown(path, Some(self.user.uid), Some(self.user.gid)).expect("owner");
    }
}

/// What the test lacks.
fn missing(user: &str, programs: &[&str]) -> Option<String> {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    match fuse.map_err(|error| error.kind()) {
        Ok(_) => {}
        Err(ErrorKind::NotFound) => return Some("there is no /dev/fuse".into()),
        Err(error) => return Some(format!("/dev/fuse: {error}")),
    }
    if User::for_server(user).is_none() {
        return Some(format!("there is no user {user}"));
    }
    let absent = programs.iter().find(|name| program(name).is_none())?;
    Some(format!("there is no program {absent}"))
}
