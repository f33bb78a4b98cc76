//! Decimal numbers as text, without going through a float.

/// Most digits of a DECIMAL.
pub(super) const DIGITS_MAX: usize = 38;

/// Why a text is no value of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    NotOfType,
    OutOfRange,
    HasFraction,
}

/// A number as it is written: its value is `digits` (with the point left out) times ten to `exponent`.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

fn split_digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    bytes.split_at(end)
}

fn parts(text: &str) -> Option<Parts<'_>> {
    let bytes = text.as_bytes();
    let (negative, bytes) = match bytes.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, bytes),
    };
    let (whole, rest) = split_digits(bytes);
    let (fraction, rest) = match rest.split_first() {
        Some((b'.', rest)) => split_digits(rest),
        _ => (&[][..], rest),
    };
    let exponent = match rest.split_first() {
        None => 0,
        Some((b'e' | b'E', rest)) => std::str::from_utf8(rest).ok()?.parse::<i32>().ok()?,
        Some(_) => return None,
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    Some(Parts { negative, whole, fraction, exponent: i64::from(exponent) })
}

/// The number that `text` spells times ten to `scale`, rounded half up (away from zero), with at most
/// `precision` digits; `exact` refuses what would be rounded.
pub(super) fn parse(text: &str, precision: u8, scale: u8, exact: bool) -> Result<i128, Fault> {
    let parts = parts(text).ok_or(Fault::NotOfType)?;
    let digits = || parts.whole.iter().chain(parts.fraction).map(|digit| i128::from(digit - b'0'));
    let zeros = digits().take_while(|digit| *digit == 0).count();
    let significant = parts.whole.len() + parts.fraction.len() - zeros;
    if significant == 0 {
        return Ok(0);
    }
    // How many of the significant digits stand before the new point.
    let kept = significant as i64 + parts.exponent - parts.fraction.len() as i64 + i64::from(scale);
    if kept > DIGITS_MAX as i64 {
        return Err(Fault::OutOfRange);
    }
    let count = kept.max(0) as usize;
    let mut number =
        digits().skip(zeros).chain(std::iter::repeat(0)).take(count).fold(0, |sum, digit| sum * 10 + digit);
    if kept >= 0 {
        let mut dropped = digits().skip(zeros + count);
        number += i128::from(dropped.clone().next().is_some_and(|digit| digit >= 5));
        if exact && dropped.any(|digit| digit != 0) {
            return Err(Fault::HasFraction);
        }
    } else if exact {
        return Err(Fault::HasFraction);
    }
    if number >= 10_i128.pow(u32::from(precision).min(DIGITS_MAX as u32)) {
        return Err(Fault::OutOfRange);
    }
    Ok(if parts.negative { -number } else { number })
}

/// Writes an unscaled number with its point.
pub(super) fn write(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    use std::io::Write;
    let unit = 10_u128.pow(u32::from(scale).min(DIGITS_MAX as u32));
    let (whole, fraction) = (unscaled.unsigned_abs() / unit, unscaled.unsigned_abs() % unit);
    if unscaled < 0 {
        out.push(b'-');
    }
    // Writing to a vector cannot fail.
    let _ = match scale {
        0 => write!(out, "{whole}"),
        _ => write!(out, "{whole}.{fraction:0width$}", width = usize::from(scale)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_half_up_and_knows_its_bounds() {
        let cases = [
            ("12.345", 5, 2, Ok(1235)),
            ("-12.345", 5, 2, Ok(-1235)),
            ("12.344", 5, 2, Ok(1234)),
            ("1e3", 4, 0, Ok(1000)),
            ("1.5E-1", 4, 2, Ok(15)),
            ("0.004", 4, 2, Ok(0)),
            ("0.005", 4, 2, Ok(1)),
            ("0.0005", 4, 2, Ok(0)),
            ("00012", 2, 0, Ok(12)),
            (".5", 1, 1, Ok(5)),
            ("+7", 1, 0, Ok(7)),
            ("99.995", 4, 2, Err(Fault::OutOfRange)),
            ("1e400", 38, 0, Err(Fault::OutOfRange)),
            ("0e999999999", 38, 0, Ok(0)),
            ("1e-999999999", 38, 0, Ok(0)),
            ("1e9999999999", 38, 0, Err(Fault::NotOfType)),
            ("", 1, 0, Err(Fault::NotOfType)),
            ("-", 1, 0, Err(Fault::NotOfType)),
            (".", 1, 0, Err(Fault::NotOfType)),
            ("1x", 2, 0, Err(Fault::NotOfType)),
            ("1e", 2, 0, Err(Fault::NotOfType)),
        ];
        for (text, precision, scale, expected) in cases {
            assert_eq!(parse(text, precision, scale, false), expected, "{text}");
        }
        assert_eq!(parse("1.00", 10, 0, true), Ok(1));
        assert_eq!(parse("1.01", 10, 0, true), Err(Fault::HasFraction));
        assert_eq!(parse("0.001", 10, 0, true), Err(Fault::HasFraction));
        let most = 10_i128.pow(38) - 1;
        assert_eq!(parse(&most.to_string(), 38, 0, false), Ok(most));
        assert_eq!(parse(&format!("-0.{most}"), 38, 38, false), Ok(-most));
        assert_eq!(parse(&(most + 1).to_string(), 38, 0, false), Err(Fault::OutOfRange));
    }
}
