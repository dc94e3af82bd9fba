//! `start_from`: what a consumer gets that was published before it was there.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;
use syn::meta::ParseNestedMeta;

use crate::errors::error;
use crate::options;

/// As the library's type of that name.
#[derive(Clone, Copy)]
pub(super) enum StartFrom {
    Unrouted,
    Beginning,
    Now,
    Since(Duration),
}

pub(super) fn read(meta: &ParseNestedMeta<'_>) -> syn::Result<StartFrom> {
    let text = options::text(meta, r#"start_from = "beginning""#)?;
    Ok(match &*text.value() {
        "unrouted" => StartFrom::Unrouted,
        "beginning" => StartFrom::Beginning,
        "now" => StartFrom::Now,
        time => {
            let Some((seconds, nanos)) = seconds(time) else {
                return Err(error(
                    &text,
                    "`start_from` takes `\"unrouted\"`, `\"beginning\"`, `\"now\"` or a time",
                    "a time is written as in RFC 3339, such as `2026-01-31T12:00:00Z`",
                ));
            };
            let seconds = u64::try_from(seconds).map_err(|_| {
                let help = "for everything there is, say `start_from = \"beginning\"`";
                error(&text, "`start_from` is before 1970", help)
            })?;
            StartFrom::Since(Duration::new(seconds, nanos))
        }
    })
}

pub(super) fn expand(start_from: Option<StartFrom>, krate: &Path) -> TokenStream {
    let private = quote!(#krate::__private);
    match start_from {
        None => quote!(#private::HandlerOptions::DEFAULT.start_from),
        Some(StartFrom::Unrouted) => quote!(#private::StartFrom::Unrouted),
        Some(StartFrom::Beginning) => quote!(#private::StartFrom::Beginning),
        Some(StartFrom::Now) => quote!(#private::StartFrom::Now),
        Some(StartFrom::Since(time)) => {
            let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
            quote!(#private::StartFrom::Since(#private::Duration::new(#seconds, #nanos)))
        }
    }
}

/// Seconds since the beginning of 1970 and nanoseconds, of a time as in RFC 3339, section 5.6.
fn seconds(text: &str) -> Option<(i64, u32)> {
    let (date, rest) = text.split_at_checked(10)?;
    let at = rest.strip_prefix(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, rest) = at.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let (nanos, zone) = fraction(rest)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    let valid = (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('+') { 1 } else { -1 };
            let [hours, minutes] = numbers(zone.strip_prefix(['+', '-'])?, ':', [2, 2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 60 + minutes) * 60
        }
    };
    // Days from 1970, with years that begin in March, so that a leap day is the last.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_years = 365 * years + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
    let day = of_years + (153 * months + 2) / 5 + day - 1 - 719_468;
    valid.then_some((day * 86_400 + hour * 3_600 + minute * 60 + second - offset, nanos))
}

/// Numbers of so many digits each.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<_> = text.split(between).collect();
    let parts: [&str; N] = parts.try_into().ok()?;
    let mut numbers = [0; N];
    for ((part, digits), number) in parts.into_iter().zip(digits).zip(&mut numbers) {
        if part.len() != digits || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    Some(numbers)
}

/// Nanoseconds, and what stands behind.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (digits, zone) = rest.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
    Some((nine.parse().ok()?, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", (0, 0)),
            ("1969-12-31T23:59:59.5Z", (-1, 500_000_000)),
            ("2000-02-29T12:30:15z", (951_827_415, 0)),
            ("2026-01-31T12:00:00+05:30", (1_769_841_000, 0)),
            ("2026-01-31 01:00:00.000001-05:30", (1_769_841_000, 1_000)),
            ("9999-12-31T23:59:59.9999999999Z", (253_402_300_799, 999_999_999)),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:60:00Z",
            "2026-01-31T12:00:60Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00+0530",
            "2026-01-31T12:00:00+24:00",
            "2026-1-31T12:00:00Z",
            "+026-01-31T12:00:00Z",
            "2026-01-31T12:00:00Z ",
            "2026-01-31ä12:00:00Z",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
