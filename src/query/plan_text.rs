//! Plans as text, without the names of the archive's files.

/// Replaces the file list of each scan by its number of partitions.
pub(super) fn without_files(plan: &str) -> String {
    // DataFusion begins a line with this marker, so no text of the statement precedes it.
    const FILES: &str = "DataSourceExec: file_groups={";
    let mut text = String::with_capacity(plan.len());
    let mut rest = plan;
    while let Some(at) = rest.find(FILES) {
        let (before, list) = rest.split_at(at + FILES.len());
        text.push_str(before);
        // Example of a list: "3 groups: [[steps/a.parquet:0..1, …], …]}"
        let count = list.split(':').next().unwrap_or_default();
        let end = list.find("]]}").map_or_else(|| list.find('}').map_or(list.len(), |end| end + 1), |end| end + 3);
        text.push_str(count.split('}').next().unwrap_or_default());
        text.push('}');
        rest = &list[end..];
    }
    text.push_str(rest);
    without_names(&text)
}

/// Removes the file name from each metric.
fn without_names(plan: &str) -> String {
    const NAME: &str = "filename=";
    let mut parts = plan.split(NAME);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(NAME);
        text.push('…');
        text.push_str(part.find(['}', ',', ']', '\n']).map_or("", |end| &part[end..]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_files;

    #[test]
    fn a_plan_names_no_files() {
        let plan = "DataSourceExec: file_groups={2 groups: [[steps/ab.parquet:4..5, steps/cd.parquet], [x]]}, projection=[a]\n\
                    DataSourceExec: file_groups={1 group: [[y.parquet]]}, b=file_groups={c}";
        assert_eq!(
            without_files(plan),
            "DataSourceExec: file_groups={2 groups}, projection=[a]\nDataSourceExec: file_groups={1 group}, b=file_groups={c}"
        );
        let metric = "x{partition=0, filename=steps/ab.parquet:4..5}=7, y{filename=c.parquet}=8";
        assert_eq!(without_files(metric), "x{partition=0, filename=…}=7, y{filename=…}=8");
        assert_eq!(without_files("nothing"), "nothing");
        assert_eq!(without_files("DataSourceExec: file_groups={"), "DataSourceExec: file_groups={}");
    }
}
