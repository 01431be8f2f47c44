//! Grouping by one number instead of by several columns.
//!
//! The engine groups by one number several times as fast as by several columns, and by columns faster than by dictionaries, for which
//! it goes through row format. So, where a plan groups by dictionaries of text, texts get numbers ([`texts`]); and of the
//! keys, whatever fits is put into one 64-bit number ([`packed`]). Groups, of which there are few, are turned back.

mod packed;
mod texts;
mod unique;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, ScalarUDF, ScalarUDFImpl};
use packed::Layout;
use std::sync::Arc;
use texts::Texts;

pub(super) use unique::ForgetKeysOfGroups;

/// The rows of `steps` are in the order of this column. Groups by it are complete when it changes, which the engine
/// makes use of as long as it sees the column.
const ORDERED: &str = "run_id";

/// Rewrites a plan that no other rule will see.
pub(super) fn group_by_numbers(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(rewrite)?.data)
}

fn rewrite(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let keys = Keys::of(&aggregate);
    if keys.texts.is_none() && keys.layout.is_none() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    let mut prefix = "number of key ".to_owned();
    while schema.fields().iter().any(|field| field.name().starts_with(&prefix)) {
        prefix.push('_');
    }
    let (mut grouped, mut packed) = (Vec::new(), Vec::new());
    for (i, expr) in group_expr.into_iter().enumerate() {
        let expr = match &keys.texts {
            Some(texts) if keys.is_text(i) => call(texts.to_numbers(), vec![expr]),
            _ => expr,
        };
        if keys.is_packed(i) {
            packed.push(expr);
        } else {
            grouped.push(if keys.is_text(i) { expr.alias(format!("{prefix}{i}")) } else { expr });
        }
    }
    if let Some(layout) = &keys.layout {
        grouped.insert(0, call(layout.pack(), packed).alias(&prefix));
    }
    let columns = schema.iter().enumerate().map(|(i, (relation, field))| {
        let number = match &keys.layout {
            Some(layout) if keys.is_packed(i) => {
                call(layout.unpack(i), vec![Expr::Column(Column::new_unqualified(&prefix))])
            }
            _ if keys.is_text(i) => Expr::Column(Column::new_unqualified(format!("{prefix}{i}"))),
            _ => return Expr::Column(Column::new(relation.cloned(), field.name())),
        };
        let key = match &keys.texts {
            Some(texts) if keys.is_text(i) => call(texts.to_texts(field), vec![number]),
            _ => number,
        };
        key.alias_qualified(relation.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, grouped, aggr_expr)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(grouped))?)))
}

/// What becomes of the keys of an aggregate.
struct Keys {
    is_text: Vec<bool>,
    texts: Option<Arc<Texts>>,
    layout: Option<Layout>,
}

impl Keys {
    fn of(aggregate: &Aggregate) -> Keys {
        let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        let keys: &[Expr] = if has_sets { &[] } else { &aggregate.group_expr };
        let fields: Vec<&FieldRef> = aggregate.schema.fields().iter().take(keys.len()).collect();
        let is_text: Vec<bool> = fields.iter().map(|field| *field.data_type() == texts::dictionary()).collect();
        let texts = is_text.contains(&true).then(Arc::default);
        let is_ordered = keys.iter().any(|key| matches!(key, Expr::Column(column) if column.name == ORDERED));
        let layout = if is_ordered {
            None
        } else {
            let number = |(field, is_text): (&&FieldRef, &bool)| {
                if *is_text {
                    (texts::number(field), Some(texts::BITS))
                } else {
                    ((*field).clone(), packed::width(field.data_type()))
                }
            };
            Layout::of(fields.iter().zip(&is_text).map(number))
        };
        Keys { is_text, texts, layout }
    }

    fn is_text(&self, key: usize) -> bool {
        self.is_text.get(key) == Some(&true)
    }

    fn is_packed(&self, key: usize) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.has(key))
    }
}

fn call(function: impl ScalarUDFImpl + 'static, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: Arc::new(ScalarUDF::new_from_impl(function)), args })
}
