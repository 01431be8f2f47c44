//! GROUP BY on one number instead of several columns.
//!
//! DataFusion groups by one number faster than by several columns. It is slowest for dictionaries, which it
//! converts to row format. So text dictionaries are encoded as numbers (`text_numbers.rs`), and as many keys as fit are
//! packed into one 64-bit number (`packed_keys.rs`). A projection above the aggregate decodes the keys of the groups,
//! which are few.

use super::packed_keys::{self, KeyLayout};
use super::text_numbers::{self, TextDictionary};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use std::sync::Arc;

/// Rewrites the aggregates of a fully optimized plan. No rule of DataFusion may run after it.
pub(in crate::query) fn group_by_numbers(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let mut num_groups = 0;
    Ok(plan.transform_down_with_subqueries(|plan| rewrite(plan, &mut num_groups))?.data)
}

fn rewrite(plan: LogicalPlan, num_groups: &mut usize) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => group(aggregate, num_groups),
        // `DISTINCT … LIMIT` stops early only on plain keys, so leave it alone.
        LogicalPlan::Limit(limit) if is_distinct(&limit.input) => {
            Ok(Transformed::new(LogicalPlan::Limit(limit), false, TreeNodeRecursion::Jump))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn is_distinct(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.is_empty())
}

fn group(aggregate: Aggregate, num_groups: &mut usize) -> DataFusionResult<Transformed<LogicalPlan>> {
    // The keys of GROUPING SETS stay as they are.
    let num_keys = match aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        true => 0,
        false => aggregate.group_expr.len(),
    };
    let fields = || aggregate.schema.fields().iter().take(num_keys);
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let is_text: Vec<bool> = fields().map(|field| *field.data_type() == text).collect();
    let layout = KeyLayout::of(fields().zip(&is_text).map(|(field, is_text)| match is_text {
        true => (text_numbers::number_field(field), Some(text_numbers::NUMBER_BITS)),
        false => (Arc::clone(field), packed_keys::width(field.data_type())),
    }));
    if layout.is_none() && !is_text.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let dictionary: Arc<TextDictionary> = Arc::default();
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    *num_groups += 1;
    // DataFusion looks up columns by name across nodes, so the name must be unique.
    let number = format!("a2store: number of keys {num_groups}");
    let (mut grouped, mut packed, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    for (i, (expr, (relation, field))) in group_expr.into_iter().zip(schema.iter()).enumerate() {
        let name = format!("{number}.{i}");
        let texts = is_text[i].then_some(&dictionary);
        let expr = match texts {
            Some(texts) => texts.to_number(expr, field, &name),
            None => expr,
        };
        let key = match layout.as_ref().and_then(|layout| layout.unpack(i, &number)) {
            Some(key) => {
                packed.push(expr);
                key
            }
            None if texts.is_some() => {
                grouped.push(expr.alias(&name));
                Expr::Column(Column::new_unqualified(&name))
            }
            None => {
                grouped.push(expr);
                columns.push(Expr::Column(Column::new(relation.cloned(), field.name())));
                continue;
            }
        };
        let key = match texts {
            Some(texts) => texts.to_text(key, field, &name),
            None => key,
        };
        columns.push(key.alias_qualified(relation.cloned(), field.name()));
    }
    if let Some(layout) = &layout {
        grouped.insert(0, layout.pack(packed, &number));
    }
    let aggregates = schema.iter().skip(num_keys);
    columns.extend(aggregates.map(|(relation, field)| Expr::Column(Column::new(relation.cloned(), field.name()))));
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, grouped, aggr_expr)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(grouped))?)))
}
