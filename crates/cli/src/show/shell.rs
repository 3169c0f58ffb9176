//! Names in commands that can be pasted.

/// `path` as a shell and the command take it, which would take what begins with `-` for an option.
pub(crate) fn operand(path: &str) -> String {
    match path.starts_with('-') {
        true => format!("-- {}", quoted(path)),
        false => quoted(path),
    }
}

/// `path` as a shell takes it.
pub(crate) fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:".contains(c);
    if path.contains(char::is_control) {
        // The terminal takes none, and the shell reads their escapes.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'\'';
        let bytes = path.bytes().map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("\\x{byte:02x}"),
        });
        return format!("$'{}'", bytes.collect::<String>());
    }
    match path.chars().all(plain) && !path.is_empty() {
        true => path.to_string(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_the_command_take_a_name_for_a_name() {
        for (name, shown) in [
            ("/srv/data", "/srv/data"),
            ("/srv/my data;rm", "'/srv/my data;rm'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
            ("-v", "-- -v"),
            ("-v w", "-- '-v w'"),
            ("", "''"),
            ("a b\u{1b}[2J'\n", "$'a\\x20b\\x1b[2J\\x27\\x0a'"),
        ] {
            assert_eq!(operand(name), shown);
        }
    }
}
