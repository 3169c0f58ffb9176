//! A line-based reader of Rust source: enough to tell code from comments, strings and tests, and
//! to find functions and their lengths. It is no parser: it counts brackets in code from which
//! comments and literals were blanked out.

/// A Rust source file, blanked and marked.
pub(crate) struct Source {
    /// The text with comments, strings and characters blanked; same lines as the original.
    pub(crate) code: String,
    /// For each line whether it belongs to test code.
    test: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of the word `fn`, from 1.
    pub(crate) line: usize,
    /// Lines from the word `fn` to the closing brace.
    pub(crate) lines: usize,
    pub(crate) test: bool,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let code = blank(text);
        let test = test_lines(&code);
        Self { code, test }
    }

    /// Lines that are not test code, with their numbers from 1.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.code.lines()).zip(&self.test);
        lines.filter(|(_, test)| !**test).map(|(line, _)| line)
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let bytes = self.code.as_bytes();
        let mut found = Vec::new();
        for at in word_positions(&self.code, "fn") {
            let rest = self.code[at + 2..].trim_start();
            let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
            let Some(end) = body_end(bytes, at) else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            let (first, last) = (line_of(bytes, at), line_of(bytes, end));
            let test = self.test[first];
            found.push(Function {
                name,
                line: first + 1,
                lines: last - first + 1,
                test,
            });
        }
        found
    }

    /// Names of modules in other files that are only there for tests.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let mut found = Vec::new();
        for at in word_positions(&self.code, "mod") {
            let line = line_of(self.code.as_bytes(), at);
            let rest = self.code[at + 3..].trim_start();
            let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
            let declared = rest[name.len()..].trim_start().starts_with(';');
            if self.test[line] && declared {
                found.push(name);
            }
        }
        found
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte positions at which `word` stands as a whole word.
pub(crate) fn word_positions<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// Line of a position, from 0.
fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|&&byte| byte == b'\n').count()
}

/// The end of the item that begins at `at`: its closing brace, or `None` when a semicolon ends it
/// before a brace opens.
fn body_end(code: &[u8], at: usize) -> Option<usize> {
    let mut round = 0;
    for (place, &byte) in code.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b';' if round == 0 => return None,
            b'{' if round == 0 => return closing_brace(code, place),
            // The parameter list or block around a function type ended.
            b'}' | b',' if round <= 0 => return None,
            _ => {}
        }
        if round < 0 {
            return None;
        }
    }
    None
}

/// The first block in braces after `at`, braces included; empty where there is none.
pub(crate) fn block(code: &str, at: usize) -> &str {
    let open = code[at..].find('{').map(|open| at + open);
    let end = open.and_then(|open| closing_brace(code.as_bytes(), open));
    open.zip(end).map_or("", |(open, end)| &code[open..=end])
}

fn closing_brace(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (place, &byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

/// Marks the lines of items under `#[cfg(test)]` and the like, and of `#[test]` functions.
fn test_lines(code: &str) -> Vec<bool> {
    let mut test = vec![false; code.lines().count() + 1];
    let bytes = code.as_bytes();
    for start in [
        "#[cfg(test)]",
        "#[cfg(all(test",
        "#[cfg(any(test",
        "#[test]",
        "#[bench]",
    ] {
        for (at, _) in code.match_indices(start) {
            let end = item_end(bytes, at);
            test[line_of(bytes, at)..=line_of(bytes, end)].fill(true);
        }
    }
    test
}

/// The last byte of the item whose first attribute begins at `at`.
fn item_end(code: &[u8], at: usize) -> usize {
    let mut place = at;
    // Over the attributes.
    while code.get(place) == Some(&b'#') {
        let mut depth = 0;
        while place < code.len() {
            depth += i32::from(code[place] == b'[') - i32::from(code[place] == b']');
            place += 1;
            if depth == 0 && code[place - 1] == b']' {
                break;
            }
        }
        while code.get(place).is_some_and(u8::is_ascii_whitespace) {
            place += 1;
        }
    }
    let semicolon = || (place..code.len()).find(|&at| matches!(code[at], b';' | b','));
    body_end(code, place)
        .or_else(semicolon)
        .unwrap_or(code.len() - 1)
}

/// Replaces comments, strings and character literals by blanks; newlines stay.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.extend(
            chars[at..end]
                .iter()
                .map(|&c| if c == '\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    out
}

/// The end of the comment or literal that begins at `at`; `at` itself when none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    let in_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at),
        'r' if !in_word => raw_string_end(chars, at).unwrap_or(at),
        'b' | 'c' if !in_word && next == Some('r') => raw_string_end(chars, at + 1).unwrap_or(at),
        '\'' => character_end(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..chars.len())
        .find(|&at| wanted(chars[at]))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut place = at;
    while place < chars.len() {
        match (chars[place], chars.get(place + 1)) {
            ('/', Some('*')) => (depth, place) = (depth + 1, place + 2),
            ('*', Some('/')) => (depth, place) = (depth - 1, place + 2),
            _ => place += 1,
        }
        if depth == 0 {
            return place;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut place = at + 1;
    while place < chars.len() {
        match chars[place] {
            '\\' => place += 2,
            '"' => return place + 1,
            _ => place += 1,
        }
    }
    chars.len()
}

/// `at` is the `r`; `None` when no raw string follows (an identifier, `r#type`).
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let quote = find(chars, at + 1, |c| c != '#');
    let hashes = quote - at - 1;
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let closes = |place: usize| {
        chars[place] == '"'
            && chars[place + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes
    };
    let end = (quote + 1..chars.len()).find(|&place| closes(place));
    Some(end.map_or(chars.len(), |place| place + 1 + hashes))
}

/// A character literal; a lifetime is code and ends where it begins.
fn character_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => find(chars, at + 3, |c| c == '\'') + 1,
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Vec<(String, usize, usize, bool)> {
        let found = Source::new(text).functions();
        found
            .into_iter()
            .map(|f| (f.name, f.line, f.lines, f.test))
            .collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let cases = [
            ("a // b {\nc", "a       \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"x("}\"{", y)"#, r#"x(      , y)"#),
            (r###"x(r#"}"{"#, y)"###, r###"x(        , y)"###),
            (r"m('{', '\'', '\u{7d}')", r"m(   ,     ,         )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("let r#type = br\"{\";", "let r#type =      ;"),
        ];
        for (text, expected) in cases {
            assert_eq!(blank(text), expected, "{text}");
        }
    }

    #[test]
    fn lengths_count_from_fn_to_the_brace() {
        let text = "/// Doc {\nfn one() { \"}\"; }\n\npub fn two(\n    a: [u8; 4],\n\
                    ) -> u8\n{\n    { 1 }\n}\n";
        let expected = [("one".into(), 2, 1, false), ("two".into(), 4, 6, false)];
        assert_eq!(functions(text), expected);
    }

    #[test]
    fn declarations_and_function_types_are_no_functions() {
        let text = "trait T { fn a(&self); fn b(&self) -> fn(u8) -> u8 { c } }\n\
                    struct S { f: fn(u8), g: fn() }\ntype F = fn(u8) -> u8;";
        assert_eq!(functions(text), [("b".into(), 1, 1, false)]);
    }

    #[test]
    fn tests_are_told_from_the_product() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\n\
                    fn c() {}\n#[cfg(test)]\nmod model;\nfn d() {}\n";
        let source = Source::new(text);
        let names: Vec<_> = functions(text).into_iter().map(|f| (f.0, f.3)).collect();
        let expected = [("a", false), ("b", true), ("c", false), ("d", false)];
        assert_eq!(names, expected.map(|(name, test)| (name.to_string(), test)));
        assert_eq!(source.test_modules(), ["model"]);
        let lines: Vec<usize> = source.product_lines().map(|(number, _)| number).collect();
        assert_eq!(lines, [1, 7, 10]);
    }

    #[test]
    fn a_test_field_or_statement_ends_where_it_ends() {
        let text = "struct S {\n    #[cfg(test)]\n    hook: u8,\n    real: u8,\n}\nfn f() {}\n";
        let lines: Vec<usize> = Source::new(text).product_lines().map(|(n, _)| n).collect();
        assert_eq!(lines, [1, 4, 5, 6]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            word_positions("fn fnord _fn fn", "fn").collect::<Vec<_>>(),
            [0, 13]
        );
    }
}
