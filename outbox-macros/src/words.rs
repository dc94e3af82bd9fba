//! Words: those in a name, and those that a typing mistake was meant to be.

/// The words of a name in `CamelCase` or `snake_case`, in lower case.
pub(crate) fn split(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, &char) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        // `HTTPRequest` is two words: the last capital belongs to what follows.
        let starts_word = char.is_uppercase()
            && (before.is_some_and(|before| !before.is_uppercase())
                || after.is_some_and(|after| after.is_lowercase()));
        if starts_word || !char.is_alphanumeric() {
            words.push(String::new());
        }
        if char.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What `name` was probably meant to be.
pub(crate) fn most_similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|known| (distance(name, known), *known));
    let (distance, known) = distances.min()?;
    (distance <= known.len().div_ceil(3)).then_some(known)
}

/// How many letters must be inserted, deleted or replaced to turn one word into the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (deleted, a) in (1..).zip(from.chars()) {
        let mut diagonal = std::mem::replace(&mut row[0], deleted);
        for (at, b) in (1..).zip(to.chars()) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[at];
            row[at] = replaced.min(row[at] + 1).min(row[at - 1] + 1);
        }
    }
    row[to.chars().count()]
}

/// `` `a`, `b` and `c` ``.
pub(crate) fn list(names: &[impl AsRef<str>], conjunction: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} {conjunction} {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("OrderLineItemAdded", "order line item added"),
            ("HTTPRequestSent", "http request sent"),
            ("Order2Paid", "order2 paid"),
            ("order_paid", "order paid"),
            ("order.paid", "order paid"),
            ("_Order__Paid_", "order paid"),
            ("ID", "id"),
            ("A", "a"),
            ("", ""),
        ] {
            assert_eq!(split(name).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn mistakes_are_traced_to_what_was_meant() {
        let known = ["type", "topic", "aggregate", "version"];
        for (name, expected) in [
            ("topc", Some("topic")),
            ("agregate", Some("aggregate")),
            ("aggregate_", Some("aggregate")),
            ("Type", Some("type")),
            ("retry", None),
            ("", None),
        ] {
            assert_eq!(most_similar(name, &known), expected, "{name}");
        }
    }
}
