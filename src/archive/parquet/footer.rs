//! Facts in the footers of data files.

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

/// Returns the first and last run id of a row group, if its statistics have them.
pub(crate) fn group_run_ids(group: &RowGroupMetaData) -> Option<(u32, u32)> {
    match group.columns().first()?.statistics()? {
        // Parquet stores an unsigned integer as a signed one with a logical type.
        Statistics::Int32(statistics) => {
            Some((statistics.min_opt()?.cast_unsigned(), statistics.max_opt()?.cast_unsigned()))
        }
        _ => None,
    }
}
