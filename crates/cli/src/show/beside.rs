//! Files that a command writes beside its answer: pictures, tables.

use crate::failure::{Failure, Outcome};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thermocline_trace::parts_of;

/// Refuses `path`, which `option` names, when it is one of `traces` or a part of one.
pub(crate) fn apart(option: &str, path: Option<&PathBuf>, traces: &[PathBuf]) -> Outcome {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some((path, written)) = path.and_then(|path| Some((path, file(path)?))) else {
        return Ok(());
    };
    for trace in traces {
        let parts = parts_of(trace).unwrap_or_default();
        let mut all = parts.iter().chain([trace]);
        if let Some(read) = all.find(|read| file(read) == Some(written)) {
            let fact = format!(
                "{option} {} is {}, which is read: it would be lost",
                path.display(),
                read.display()
            );
            return Err(Failure::usage(fact).advise(format!("another file for {option}")));
        }
    }
    Ok(())
}

/// Writes `text` to the file at `path`, which has what it had before until all is written.
pub(crate) fn write(path: &Path, text: &str) -> Outcome {
    let failed = |error| Failure::io("write", path, &error);
    let found = path.metadata().ok();
    // A terminal or a pipe is written to where it is.
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return fs::write(path, text).map_err(failed);
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let new = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(new)
        .tempfile_in(directory)
        .map_err(failed)?;
    if let Some(found) = found {
        let kept = fs::set_permissions(file.path(), found.permissions());
        kept.map_err(failed)?;
    }
    file.write_all(text.as_bytes()).map_err(failed)?;
    let named = file.persist(&path);
    named.map(drop).map_err(|error| failed(error.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let directory = tempfile::tempdir().expect("dir");
        let path = directory.path().join("page.html");
        let names = || fs::read_dir(directory.path()).expect("list").count();
        write(&path, "one").expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mode");
        let link = directory.path().join("link.html");
        std::os::unix::fs::symlink("page.html", &link).expect("link");
        write(&link, "two").expect("writes");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "two");
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o640);
        assert!(link.is_symlink() && names() == 2);
        write(Path::new("/dev/null"), "three").expect("writes");
        let nowhere = directory.path().join("none/page.html");
        let failure = write(&nowhere, "four").expect_err("no directory");
        assert!(failure.message.contains("none/page.html"), "{failure}");
    }
}
