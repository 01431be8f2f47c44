//! Parsers of option values: formats and numbers of bytes.

use a2store::export::ExportFormat;
use a2store_explore::ReportGroups;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Returns the parser of the allowed formats of an export or a conversion.
pub(crate) fn formats(is_allowed: fn(ExportFormat) -> bool) -> impl TypedValueParser<Value = ExportFormat> {
    let allowed = ExportFormat::ALL.into_iter().filter(|&format| is_allowed(format));
    PossibleValuesParser::new(allowed.map(ExportFormat::name)).try_map(|name| name.parse::<ExportFormat>())
}

/// Returns the parser of the groups of a report.
pub(crate) fn report_groups() -> impl TypedValueParser<Value = ReportGroups> {
    PossibleValuesParser::new(ReportGroups::ALL.map(ReportGroups::name)).try_map(|name| name.parse::<ReportGroups>())
}

/// Parses a number of bytes, plain or with a binary unit: `512MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "kib" | "k" => Some(10),
        "mib" | "m" => Some(20),
        "gib" | "g" => Some(30),
        "tib" | "t" => Some(40),
        _ => None,
    };
    let bytes =
        digits.trim_end().parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes such as 4096, 512MiB or 2GiB".into())
}
