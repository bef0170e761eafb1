//! Files that the user names.

use super::{context, invalid};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The largest configuration that makes sense, with room to spare.
pub const MAX_BYTES: u64 = 64 << 20;

/// The text of a file of at most `MAX_BYTES`; whatever is wrong with it is bad input (`InvalidInput`).
pub fn read_text(path: &Path) -> io::Result<String> {
    let shown = path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| invalid(context(error, &shown).to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(invalid(format!("{shown}: expected at most {} MiB", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| invalid(format!("{shown}: expected UTF-8 text")))
}

/// The text of a file that holds secrets, which nobody but its owner may read.
pub fn read_private(path: &Path) -> io::Result<String> {
    let shown = path.display().to_string();
    let known = std::fs::metadata(path).map_err(|error| invalid(context(error, &shown).to_string()))?;
    if known.permissions().mode() & 0o077 != 0 {
        return Err(invalid(format!("{shown}: expected mode 0600: the file holds secrets")));
    }
    read_text(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_secrets_is_its_owners_alone() {
        let path = std::env::temp_dir().join(format!("hyroads-private-{}", std::process::id()));
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            std::fs::write(&path, "secret").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match read_private(&path) {
                Ok(text) => assert!(is_read && text == "secret", "{mode:o}"),
                Err(error) => assert!(!is_read && error.to_string().ends_with("holds secrets"), "{mode:o}: {error}"),
            }
            std::fs::remove_file(&path).unwrap();
        }
        assert!(read_private(&path).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn what_is_no_bounded_text_is_bad_input() {
        for name in ["/nonexistent", "/", "/dev/zero", "/proc/self/exe"] {
            let error = read_text(Path::new(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(error.to_string().starts_with(name), "{error}");
        }
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
    }
}
