//! The page of a report.

use super::report::{Report, ReportTable};
use a2store::error::Result;
use a2store::query::{json_rows, json_scalar, type_name};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The page without data. `web/` builds it.
const TEMPLATE: &str = include_str!("../../assets/report.html");

/// Returns a template of a page with its data.
pub(crate) fn with_data(template: &str, data: &Value) -> String {
    const PLACE: &str = "<script type=\"application/json\" id=\"data\">{}</script>";
    // Only `<` can end the data of a script element. In JSON, `<` occurs only in strings, where it can be escaped.
    let data = data.to_string().replace('<', "\\u003c");
    template.replacen(PLACE, &PLACE.replacen("{}", &data, 1), 1)
}

/// Returns the page's Content-Security-Policy for a server's header. It allows only the page's own script and
/// styles.
pub(crate) fn page_policy() -> String {
    let content =
        TEMPLATE.split_once("\"Content-Security-Policy\"").and_then(|(_, rest)| rest.split_once("content=\""));
    let policy = content.and_then(|(_, rest)| rest.split_once('"')).map_or("default-src 'none'", |(policy, _)| policy);
    policy.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Report {
    /// Returns the page: HTML that needs no other file and no network.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](a2store::ErrorKind::Query) for rows that JSON cannot hold. Named queries have no such
    /// rows.
    pub fn to_html(&self) -> Result<String> {
        let result = |table: &ReportTable| table_json(table).map(|json| (table.query.to_owned(), json));
        let results = self.tables.iter().map(result).collect::<Result<Map<String, Value>>>()?;
        let name = Path::new(&self.archive)
            .file_name()
            .map_or_else(|| self.archive.clone().into(), |name| name.to_string_lossy());
        let data = json!({
            "title": name,
            "version": self.version,
            "written": self.written,
            "program": concat!("a2store ", env!("CARGO_PKG_VERSION")),
            "where": self.options.condition,
            "by": self.options.groups.name(),
            "compare": self.options.compare,
            "too_many_groups": self.has_too_many_groups,
            "explorer": self.options.explorer,
            "phases": { "mid": self.phases[0], "late": self.phases[1] },
            "results": results,
        });
        Ok(with_data(TEMPLATE, &data))
    }
}

fn table_json(table: &ReportTable) -> Result<Value> {
    let parameters: Map<String, Value> =
        table.parameters.iter().map(|(name, value)| ((*name).to_owned(), json_scalar(value))).collect();
    let (columns, types, rows, error) = match &table.rows {
        Ok(batch) => {
            let schema = batch.schema();
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let types: Vec<String> = schema.fields().iter().map(|field| type_name(field.data_type())).collect();
            (json!(names), json!(types), json!(json_rows(batch)?), None)
        }
        Err(error) => (json!([]), json!([]), json!([]), Some(error)),
    };
    Ok(json!({
        "query": table.query,
        "parameters": parameters,
        "columns": columns,
        "types": types,
        "rows": rows,
        "seconds": (table.elapsed.as_secs_f64() * 1e3).round() / 1e3,
        "error": error,
        "note": table.note,
    }))
}
