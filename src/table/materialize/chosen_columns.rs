//! The columns of a query's result that a row gets, by [`MaterializeOptions`].

use crate::error::{Error, Result};
use crate::table::materialize::materialize_options::MaterializeOptions;
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK};
use arrow::datatypes::Schema;

/// The columns of a result that fill the fields of a step. The four values together have the name [`EV_VALUES`].
const OF_STEP: [&str; 9] =
    ["board", "move", "ev_up", "ev_down", "ev_left", "ev_right", "ev_legal", "run_id", STEP_INDEX];
const EV_VALUES: &str = "ev_values";

/// Which columns of a result the rows get.
#[derive(Debug)]
pub(in crate::table) struct ChosenColumns {
    /// The places of these columns in the result; `None` = all of its columns.
    pub(in crate::table) places: Option<Vec<usize>>,
    /// The names of those that become extra columns, in order.
    pub(in crate::table) extra: Vec<String>,
}

impl ChosenColumns {
    /// Finds the columns in a result.
    pub(in crate::table) fn new(schema: &Schema, options: &MaterializeOptions) -> Result<ChosenColumns> {
        let Some(columns) = &options.columns else {
            return Ok(ChosenColumns { places: None, extra: options.extra.clone() });
        };
        if let Some(name) = options.extra.first() {
            return Err(Error::argument("extra", "none together with columns, which names them too", name));
        }
        if let Some((_, name)) = columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name)) {
            return Err(Error::argument("columns", "each column once", name));
        }
        if !columns.iter().any(|name| name == "board") {
            let found = if columns.is_empty() { "none".to_owned() } else { columns.join(", ") };
            return Err(Error::argument("columns", "board and any other columns", found));
        }
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let is_value = |name: &str| name.starts_with("ev_") && OF_STEP.contains(&name) && name != "ev_legal";
        let exists = |name: &&String| match name.as_str() {
            EV_VALUES => names().any(is_value),
            name => names().any(|other| other == name),
        };
        if let Some(name) = columns.iter().find(|name| !exists(name)) {
            let found = format!("the columns {}", names().collect::<Vec<_>>().join(", "));
            return Err(Error::column(name, None, "a column of that name", found));
        }
        let is_named =
            |name: &str| columns.iter().any(|chosen| chosen == name || (chosen == EV_VALUES && is_value(name)));
        let values: Vec<&str> = names().filter(|name| is_value(name)).collect();
        if values.iter().any(|name| is_named(name))
            && let Some(missing) = values.iter().find(|name| !is_named(name))
        {
            let expected = format!("{EV_VALUES}, or {}", values.join(", "));
            return Err(Error::argument("columns", expected, format!("no {missing}")));
        }
        // Without these, boards would lose tiles, and filters and splits would take all rows for one run.
        let is_chosen = |name: &str| is_named(name) || [TILE_MASK, "run_id", STEP_INDEX].contains(&name);
        let is_extra = |name: &&String| !OF_STEP.contains(&name.as_str()) && *name != EV_VALUES;
        Ok(ChosenColumns {
            places: Some(names().enumerate().filter(|(_, name)| is_chosen(name)).map(|(place, _)| place).collect()),
            extra: columns.iter().filter(is_extra).cloned().collect(),
        })
    }
}
