//! Dates and times as text: `yyyy-MM-dd`, `HH:mm[:ss[.f…]]`, and both with a blank or `T` between.

use std::io::Write;

use super::TimestampStyle;

const DAY_NANOS: i64 = 86_400_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar; years from 0. Years begin in
/// March here, so that the leap day is the last one.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since 1970-01-01: the inverse of [`days_of`].
fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// A run of digits of a fixed length, or nothing.
fn digits(bytes: &[u8]) -> Option<i64> {
    let each = |sum: i64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    bytes.iter().try_fold(0, each)
}

/// Days since 1970-01-01.
pub(super) fn parse_date(text: &str) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text.as_bytes() else { return None };
    let (year, month, day) = (digits(&[y1, y2, y3, y4])?, digits(&[m1, m2])?, digits(&[d1, d2])?);
    let days = days_of(year, month, day);
    // A day that does not exist comes back as another one.
    ((1..=12).contains(&month) && civil_of(days) == (year, month, day)).then_some(days as i32)
}

/// Nanoseconds of the day, cut to `precision` digits of the second.
pub(super) fn parse_time(text: &str, precision: u8) -> Option<i64> {
    let (clock, fraction) = match text.split_once('.') {
        Some((clock, fraction)) if clock.len() == 8 => (clock, parse_fraction(fraction, precision)?),
        Some(_) => return None,
        None => (text, 0),
    };
    let (hour, minute, second) = match *clock.as_bytes() {
        [h1, h2, b':', m1, m2] => (digits(&[h1, h2])?, digits(&[m1, m2])?, 0),
        [h1, h2, b':', m1, m2, b':', s1, s2] => (digits(&[h1, h2])?, digits(&[m1, m2])?, digits(&[s1, s2])?),
        _ => return None,
    };
    let real = hour < 24 && minute < 60 && second < 60;
    real.then_some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction)
}

/// Nanoseconds of one to nine digits after the point, cut to `precision` of them.
fn parse_fraction(fraction: &str, precision: u8) -> Option<i64> {
    let length = fraction.len();
    let nanos = digits(fraction.as_bytes()).filter(|_| (1..=9).contains(&length))? * 10_i64.pow(9 - length as u32);
    let unit = 10_i64.pow(9 - u32::from(precision.min(9)));
    Some(nanos - nanos % unit)
}

/// Milliseconds since 1970-01-01T00:00:00, and nanoseconds of the millisecond.
pub(super) fn parse_timestamp(text: &str, precision: u8) -> Option<(i64, u32)> {
    let (date, rest) = text.split_at_checked(10)?;
    let time = rest.strip_prefix([' ', 'T'])?;
    let nanos = i64::from(parse_date(date)?).checked_mul(DAY_MS)?;
    let of_day = parse_time(time, precision)?;
    Some((nanos + of_day / 1_000_000, (of_day % 1_000_000) as u32))
}

/// As [`parse_timestamp`], with a zone at the end: `Z` or an offset such as `+02:00`.
pub(super) fn parse_instant(text: &str, precision: u8) -> Option<(i64, u32)> {
    if let Some(text) = text.strip_suffix('Z') {
        return parse_timestamp(text, precision);
    }
    let (text, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = *zone.as_bytes() else { return None };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    let offset = (hours <= 18 && minutes < 60).then_some((hours * 60 + minutes) * 60_000)?;
    let (ms, nanos) = parse_timestamp(text, precision)?;
    Some((if sign == b'+' { ms - offset } else { ms + offset }, nanos))
}

// Writing to a vector cannot fail, so its results say nothing.

pub(super) fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_of(days);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

/// Writes a time of day; the fraction without the zeros at its end.
pub(super) fn write_time(out: &mut Vec<u8>, nanos_of_day: i64) {
    let (seconds, mut fraction) = (nanos_of_day / 1_000_000_000, nanos_of_day % 1_000_000_000);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let mut width = 9;
    while fraction != 0 && fraction % 10 == 0 {
        fraction /= 10;
        width -= 1;
    }
    if fraction != 0 {
        let _ = write!(out, ".{fraction:0width$}");
    }
}

pub(super) fn write_timestamp(out: &mut Vec<u8>, ms: i64, nanos: u32, style: TimestampStyle) {
    write_date(out, ms.div_euclid(DAY_MS));
    out.push(if style == TimestampStyle::Sql { b' ' } else { b'T' });
    write_time(out, (ms.rem_euclid(DAY_MS) * 1_000_000 + i64::from(nanos)).min(DAY_NANOS - 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_agree_with_the_calendar() {
        let cases = [("1970-01-01", 0), ("1969-12-31", -1), ("2000-02-29", 11_016), ("0000-01-01", -719_528)];
        for (text, days) in cases {
            assert_eq!(parse_date(text), Some(days), "{text}");
        }
        assert_eq!(parse_date("9999-12-31"), Some(2_932_896));
        for text in
            ["2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "2024-04-31", "2024-1-1", "24-01-01", "+024-01-01"]
        {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for days in (-719_528..2_932_896).step_by(97) {
            let mut text = Vec::new();
            write_date(&mut text, days);
            assert_eq!(parse_date(std::str::from_utf8(&text).expect("text")), Some(days as i32));
        }
    }

    #[test]
    fn times_are_cut_to_their_precision() {
        assert_eq!(parse_time("23:59:59.999999999", 9), Some(DAY_NANOS - 1));
        assert_eq!(parse_time("00:00:01.2345", 3), Some(1_234_000_000));
        assert_eq!(parse_time("03:04", 0), Some(11_040_000_000_000));
        for text in ["24:00:00", "00:60:00", "00:00:60", "1:00:00", "00:00:00.", "00:00.5", "00:00:00.1234567890", ""] {
            assert_eq!(parse_time(text, 9), None, "{text}");
        }
        assert_eq!(parse_timestamp("1969-12-31 23:59:59.9999", 4), Some((-1, 900_000)));
        assert_eq!(parse_instant("1970-01-01T02:00:00+02:00", 3), Some((0, 0)));
        assert_eq!(parse_instant("1970-01-01T02:00:00", 3), None);
        assert_eq!(parse_timestamp("1970-01-01T02:00:00Z", 3), None);
    }
}
