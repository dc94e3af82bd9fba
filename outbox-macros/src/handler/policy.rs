//! The policies of a handler: `retry(..)`, `timeout`, `on_dead`, `ordered`, `group`, `batch`, `concurrency`, `lease`,
//! `start_from`, `rate`, `inbox`.

use std::time::Duration;

use proc_macro2::{Literal, Span, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Lit, LitStr, Path, token};

use super::start_from::{self, StartFrom};
use crate::errors::{Errors, error};
use crate::options::{self, Place, Reader};

pub(super) static RETRY: Place = Place {
    name: "a retry policy",
    location: "`retry(..)`",
    options: &["max_attempts", "base", "multiplier", "max", "jitter"],
    others: &[&super::attr::HANDLER],
};

/// What the attribute says; the library's defaults hold where it says nothing.
#[derive(Default)]
pub(super) struct Policy {
    max_attempts: Option<u32>,
    base: Option<Time>,
    multiplier: Option<f64>,
    max: Option<Time>,
    jitter: Option<f64>,
    timeout: Option<Time>,
    skips: Option<bool>,
    ordered: Option<bool>,
    group: Option<u32>,
    /// With the place of its name.
    batch: Option<(u32, Span)>,
    concurrency: Option<(u32, Span)>,
    lease: Option<(Time, Span)>,
    start_from: Option<StartFrom>,
    /// So many messages in so many seconds.
    rate: Option<(u32, u64)>,
    inbox: Option<(bool, Span)>,
}

/// A time, and where it is written.
struct Time {
    duration: Duration,
    text: LitStr,
}

impl Policy {
    pub(super) fn option(&mut self, name: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match name {
            "retry" => self.retry(meta)?,
            "timeout" => self.timeout = Some(time(meta, r#"timeout = "30s""#, false)?),
            "on_dead" => self.skips = Some(on_dead(meta)?),
            "ordered" => self.ordered = Some(options::boolean(meta, "ordered = false")?),
            "group" => self.group = Some(options::positive(meta, u32::MAX, "group = 1")?),
            "batch" => {
                let most = options::positive(meta, u32::MAX, "batch = 500")?;
                self.batch = Some((most, meta.path.span()));
            }
            "concurrency" => {
                let most = options::positive(meta, u32::MAX, "concurrency = 4")?;
                self.concurrency = Some((most, meta.path.span()));
            }
            "lease" => self.lease = Some((time(meta, r#"lease = "1m""#, false)?, meta.path.span())),
            "start_from" => self.start_from = Some(start_from::read(meta)?),
            "rate" => self.rate = Some(rate(meta)?),
            "inbox" => self.inbox = Some((options::boolean(meta, "inbox = false")?, meta.path.span())),
            _ => return Err(meta.error("this option is read nowhere")),
        }
        Ok(())
    }

    fn retry(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        if !meta.input.peek(token::Paren) {
            return Err(options::wrong_value(
                meta,
                None,
                "its options in parentheses",
                r#"retry(max_attempts = 5, base = "1s", max = "5m")"#,
            ));
        }
        let mut errors = Errors::default();
        let mut reader = Reader::new(&RETRY, &mut errors);
        let read = meta.parse_nested_meta(|meta| {
            reader.option(&meta, |name, meta| self.retry_option(name, meta));
            Ok(())
        });
        errors.take(read);
        if let (Some(base), Some(max)) = (&self.base, &self.max)
            && base.duration > max.duration
        {
            let help = "the pauses grow from `base` up to `max`";
            errors.add(&base.text, "`base` is longer than `max`", help);
        }
        errors.into_result()
    }

    fn retry_option(&mut self, name: &str, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        match name {
            "max_attempts" => {
                self.max_attempts = Some(options::positive(meta, u32::MAX, "max_attempts = 5")?);
            }
            "base" => self.base = Some(time(meta, r#"base = "1s""#, true)?),
            "max" => self.max = Some(time(meta, r#"max = "5m""#, true)?),
            "multiplier" => {
                let expected = "a number from 1 on";
                self.multiplier = Some(options::number(meta, 1.0..=f64::MAX, expected, "multiplier = 2.0")?);
            }
            "jitter" => {
                let expected = "a number from 0 to 1";
                self.jitter = Some(options::number(meta, 0.0..=1.0, expected, "jitter = 0.2")?);
            }
            _ => return Err(meta.error("this option is read nowhere")),
        }
        Ok(())
    }

    /// Where `batch` is written, which only a handler of a `Vec` may say.
    pub(super) fn batch_option(&self) -> Option<Span> {
        self.batch.map(|(_, span)| span)
    }

    /// What only a handler says that runs in no transaction, and where it is written.
    pub(super) fn external_options(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let concurrency = self.concurrency.as_ref().map(|(_, span)| ("concurrency", *span));
        let lease = self.lease.as_ref().map(|(_, span)| ("lease", *span));
        concurrency.into_iter().chain(lease)
    }

    /// Where marks are switched off, which a handler that runs in no transaction cannot do.
    pub(super) fn unmarked_option(&self) -> Option<Span> {
        self.inbox.filter(|(inbox, _)| !inbox).map(|(_, span)| span)
    }

    /// A constant `HandlerOptions`.
    pub(super) fn expand(&self, krate: &Path) -> TokenStream {
        let private = quote!(#krate::__private);
        let (options, retry) = (quote!(#private::HandlerOptions), quote!(#private::Retry));
        let time = |time: Option<&Time>, default: TokenStream| {
            time.map_or(default, |Time { duration, .. }| {
                let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
                quote!(#private::Duration::new(#seconds, #nanos))
            })
        };
        let number = |number: Option<f64>, default: TokenStream| {
            number.map(Literal::f64_suffixed).map_or(default, |number| quote!(#number))
        };
        let base = time(self.base.as_ref(), quote!(#retry::DEFAULT.base));
        let max = time(self.max.as_ref(), quote!(#retry::DEFAULT.max));
        let multiplier = number(self.multiplier, quote!(#retry::DEFAULT.multiplier));
        let jitter = number(self.jitter, quote!(#retry::DEFAULT.jitter));
        let attempts = self.max_attempts.map_or(quote!(#retry::DEFAULT.max_attempts), |most| quote!(#most));
        let timeout = time(self.timeout.as_ref(), quote!(#options::DEFAULT.timeout));
        let on_dead = match self.skips {
            None => quote!(#options::DEFAULT.on_dead),
            Some(true) => quote!(#private::OnDead::Skip),
            Some(false) => quote!(#private::OnDead::Block),
        };
        let ordered = self.ordered.map_or(quote!(#options::DEFAULT.ordered), |ordered| quote!(#ordered));
        let group = self.group.map_or(quote!(#options::DEFAULT.group), |group| quote!(#group));
        let batch = self.batch.map_or(quote!(#options::DEFAULT.batch), |(batch, _)| quote!(#batch));
        let concurrency =
            self.concurrency.map_or(quote!(#options::DEFAULT.concurrency), |(most, _)| quote!(#most));
        let lease = time(self.lease.as_ref().map(|(time, _)| time), quote!(#options::DEFAULT.lease));
        let start_from = start_from::expand(self.start_from, krate);
        let rate = self.rate.map_or(quote!(#options::DEFAULT.rate), |(messages, seconds)| {
            let per = quote!(#private::Duration::new(#seconds, 0));
            quote!(#private::Option::Some(#private::Rate { messages: #messages, per: #per }))
        });
        let inbox = self.inbox.map_or(quote!(#options::DEFAULT.inbox), |(inbox, _)| quote!(#inbox));
        quote! {
            #options {
                retry: #retry {
                    max_attempts: #attempts,
                    base: #base,
                    multiplier: #multiplier,
                    max: #max,
                    jitter: #jitter,
                },
                timeout: #timeout,
                on_dead: #on_dead,
                ordered: #ordered,
                group: #group,
                batch: #batch,
                concurrency: #concurrency,
                lease: #lease,
                start_from: #start_from,
                rate: #rate,
                inbox: #inbox,
            }
        }
    }
}

fn on_dead(meta: &ParseNestedMeta<'_>) -> syn::Result<bool> {
    let text = options::text(meta, r#"on_dead = "skip""#)?;
    match &*text.value() {
        "skip" => Ok(true),
        "block" => Ok(false),
        _ => Err(error(
            &text,
            "`on_dead` takes `\"block\"` or `\"skip\"`",
            "later messages of a dead one's key wait with `block`, and go on with `skip`",
        )),
    }
}

fn rate(meta: &ParseNestedMeta<'_>) -> syn::Result<(u32, u64)> {
    const EXAMPLE: &str = r#"rate = "100/s""#;
    let text = options::text(meta, EXAMPLE)?;
    match parse_rate(&text.value()) {
        Some((0, _)) => {
            Err(options::wrong_value(meta, Some(&Lit::Str(text)), "a rate that is not 0", EXAMPLE))
        }
        Some(rate) => Ok(rate),
        None => {
            let what = format!("`{}` is no rate", text.value());
            Err(error(&text, what, "a number of messages and one of /s, /m, /h, /d; such as `100/s`, `30/m`"))
        }
    }
}

/// So many messages in so many seconds.
fn parse_rate(text: &str) -> Option<(u32, u64)> {
    let (messages, unit) = text.split_once('/')?;
    let messages = messages.trim_end();
    if !messages.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((messages.parse().ok()?, seconds(unit.trim_start())?))
}

fn seconds(unit: &str) -> Option<u64> {
    match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        "d" => Some(24 * 60 * 60),
        _ => None,
    }
}

fn time(meta: &ParseNestedMeta<'_>, example: &str, zero: bool) -> syn::Result<Time> {
    let text = options::text(meta, example)?;
    match parse(&text.value()) {
        Some(duration) if zero || !duration.is_zero() => Ok(Time { duration, text }),
        Some(_) => Err(options::wrong_value(meta, Some(&Lit::Str(text)), "a time that is not 0", example)),
        None => {
            let what = format!("`{}` is no time", text.value());
            Err(error(&text, what, "a number and one of ms, s, m, h, d; such as `500ms`, `30s`, `5m`"))
        }
    }
}

/// A whole number and its unit. One of each: what needs more is easier to read as a smaller unit.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    match unit.trim_start() {
        "ms" => Some(Duration::from_millis(number)),
        unit => number.checked_mul(seconds(unit)?).map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_and_a_unit() {
        assert_eq!(parse_rate("100/s"), Some((100, 1)));
        assert_eq!(parse_rate("30 / m"), Some((30, 60)));
        assert_eq!(parse_rate("1/h"), Some((1, 3600)));
        assert_eq!(parse_rate("0/d"), Some((0, 86_400)));
        for wrong in ["", "5", "/s", "5/", "-1/s", "+1/s", "1.5/s", "5/2s", "5/ms", "99999999999/s", "1/s/s"]
        {
            assert_eq!(parse_rate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("30 s"), Some(Duration::from_secs(30)));
        assert_eq!(parse("5m"), Some(Duration::from_mins(5)));
        assert_eq!(parse("2h"), Some(Duration::from_hours(2)));
        assert_eq!(parse("1d"), Some(Duration::from_hours(24)));
        for wrong in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 fortnight",
            "1s2",
            "99999999999999999999s",
            "9999999999999999999d",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
