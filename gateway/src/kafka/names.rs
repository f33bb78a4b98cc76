//! Which topic names are legal, and what Kafka says of those that are not.

use sluice_engine::catalog::View;

/// Longest topic name.
pub(crate) const NAME_LEN_MAX: usize = 249;

/// Names that Kafka keeps for itself; clients expect them to be special.
pub(crate) const RESERVED: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Why a name is no topic name, in Kafka's words.
pub(crate) fn fault(name: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.len() > NAME_LEN_MAX {
        format!("the length of '{name}' is longer than the max allowed length {NAME_LEN_MAX}")
    } else if !name.chars().all(legal) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else if let Some(short) = name.strip_prefix("default.") {
        format!("'{name}' names a table of the default database; its topic is '{short}'")
    } else {
        return None;
    };
    Some(format!("Topic name is invalid: {reason}"))
}

/// A name as metrics show it: they cannot tell dots and underscores apart.
pub(crate) fn folded(name: &str) -> String {
    name.replace('.', "_")
}

/// A topic whose name differs only in dots and underscores, which metrics cannot tell apart.
pub(crate) fn collision(view: &View, name: &str) -> Option<String> {
    if !name.contains(['.', '_']) {
        return None;
    }
    let fold = |byte: u8| if byte == b'.' { b'_' } else { byte };
    let same = |other: &String| {
        other != name && other.len() == name.len() && other.bytes().map(fold).eq(name.bytes().map(fold))
    };
    view.iter().map(|info| info.topic()).find(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_illegal_names() {
        for name in ["", ".", "..", "bad name", "bad/name", "ä", "a$b", "default.x", &"b".repeat(250)] {
            assert!(fault(name).is_some(), "{name}");
        }
        for name in ["a", "__x", "a.b.c", "default", &"b".repeat(249)] {
            assert_eq!(fault(name), None, "{name}");
        }
    }
}
