//! The PTX lexer.
use super::error::Error;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// An identifier, a number, an instruction with its suffixes, or a directive.
    Word(&'a str),
    /// A string literal.
    Text(&'a str),
    /// Punctuation.
    Sign(char),
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

/// All tokens with their lines.
pub fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, Error> {
    let (mut out, mut line, mut rest) = (vec![], 1, text);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |n| n + 2),
            '"' => {
                let end = rest[1..]
                    .find('"')
                    .ok_or_else(|| Error { line, what: "unterminated string".into() })?;
                out.push((Token::Text(&rest[1..=end]), line));
                end + 2
            }
            _ if in_word(c) => {
                let mut end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
                // As in `shared::cluster`.
                while rest[end..].starts_with("::") {
                    end += 2;
                    end += rest[end..].find(|c| !in_word(c)).unwrap_or(rest.len() - end);
                }
                out.push((Token::Word(&rest[..end]), line));
                end
            }
            _ => {
                if !c.is_whitespace() && c != '\0' {
                    out.push((Token::Sign(c), line));
                }
                c.len_utf8()
            }
        };
        line += rest[..length].matches('\n').count() as u32;
        rest = &rest[length..];
    }
    Ok(out)
}

/// A PTX number: `12`, `0x1f`, `0f3F800000` (f32 bits), `0d…` (f64 bits).
pub fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches('U');
    match (digits.get(..2), digits.get(2..)) {
        (Some("0f" | "0F"), Some(hex)) if hex.len() == 8 => u64::from_str_radix(hex, 16).ok(),
        (Some("0d" | "0D"), Some(hex)) if hex.len() == 16 => u64::from_str_radix(hex, 16).ok(),
        (Some("0x" | "0X"), Some(hex)) => u64::from_str_radix(hex, 16).ok(),
        (Some("0b" | "0B"), Some(bits)) => u64::from_str_radix(bits, 2).ok(),
        _ => digits.parse().ok(),
    }
}
