//! Calls of every function with nulls, all types, wrong lengths, invalid values, and the documented examples.

use super::*;
use crate::query::functions::arguments::Argument;
use arrow::compute::cast;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Returns valid arguments for a function, of its natural types.
fn some_arguments(function: &Function, num_rows: usize) -> Vec<ArrayRef> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let of_kind = |argument: &Argument| -> ArrayRef {
        let mut number = |count: u64| uint8((0..num_rows).map(|_| (random.next_u64() % count) as u8));
        match argument.kind {
            ArgumentKind::Board => uint64((0..num_rows).map(|_| random.next_u64() & random.next_u64())),
            ArgumentKind::Number(limit) => number(u64::from(limit) + 1),
            // The boards are random, so no cell surely has the exponent 15. Only the mask 0 fits them.
            ArgumentKind::Mask => number(1),
            ArgumentKind::Ev => cast(&number(100), &DataType::Float32).unwrap(),
            ArgumentKind::Flag => cast(&number(2), &DataType::Boolean).unwrap(),
        }
    };
    function.arguments.iter().chain(function.optional).map(of_kind).collect()
}

pub(super) fn text(array: &ArrayRef) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(array, &options).unwrap();
    (0..array.len()).map(|row| formatter.value(row).to_string()).collect()
}

/// Compares every function on sliced arrays that have nulls over invalid values with itself on arrays without
/// nulls.
#[test]
fn values_under_nulls_have_no_effect() {
    for function in functions() {
        let arguments = some_arguments(function, 200);
        let plain = text(&function.call(&arguments, Phases::default()).unwrap());
        let all = function.arguments.iter().chain(function.optional).enumerate();
        for (index, argument) in all.filter(|(_, argument)| argument.kind != ArgumentKind::Flag) {
            // Every third row is null, over a value out of range.
            let valid = |row: usize| row % 3 != 1;
            let wide = cast(
                &arguments[index],
                if argument.kind == ArgumentKind::Board { &DataType::UInt64 } else { &DataType::Int32 },
            );
            let nulls = Some((0..200).map(valid).collect());
            let with_nulls: ArrayRef = match argument.kind {
                ArgumentKind::Board => {
                    Arc::new(UInt64Array::new(wide.unwrap().as_primitive::<UInt64Type>().values().clone(), nulls))
                }
                _ => {
                    let wide = wide.unwrap();
                    let values = wide.as_primitive::<Int32Type>().values().iter().enumerate();
                    let values: Vec<i32> = values.map(|(row, &value)| if valid(row) { value } else { -1000 }).collect();
                    Arc::new(Int32Array::new(values.into(), nulls))
                }
            };
            let mut changed = arguments.clone();
            changed[index] = with_nulls;
            let changed: Vec<ArrayRef> = changed.iter().map(|array| array.slice(5, 150)).collect();
            let found = function.call(&changed, Phases::default()).unwrap();
            assert_eq!((found.len(), found.data_type()), (150, &function.return_type()));
            for (row, (found, plain)) in text(&found).iter().zip(&plain[5..]).enumerate() {
                if valid(row + 5) || argument.kind == ArgumentKind::Mask {
                    assert_eq!(found, plain, "{} row {row}", function.name);
                } else if argument.kind != ArgumentKind::Ev {
                    assert_eq!(found, "NULL", "{} row {row}", function.name);
                }
            }
            // An untyped null array.
            let mut changed = arguments.clone();
            changed[index] = Arc::new(NullArray::new(200));
            let found = function.call(&changed, Phases::default()).unwrap();
            assert_eq!(found.data_type(), &function.return_type());
            let may_be_null = matches!(argument.kind, ArgumentKind::Ev | ArgumentKind::Mask);
            assert!(may_be_null || found.logical_null_count() == 200, "{}", function.name);
        }
    }
}

#[test]
fn every_type_that_holds_the_values_is_accepted() {
    use DataType::{Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    for function in functions() {
        // Boards with tiles only in the last cells fit every type.
        let small = |argument: &Argument, array: &ArrayRef| match argument.kind {
            ArgumentKind::Board => uint64(array.as_primitive::<UInt64Type>().values().iter().map(|board| board & 0x77)),
            _ => Arc::clone(array),
        };
        let arguments = some_arguments(function, 50);
        let arguments: Vec<ArrayRef> =
            function.arguments.iter().chain(function.optional).zip(&arguments).map(|(a, b)| small(a, b)).collect();
        let expected = function.call(&arguments, Phases::default()).unwrap();
        for data_type in [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64] {
            let takes = |argument: &&Argument| match argument.kind {
                ArgumentKind::Ev => true,
                ArgumentKind::Flag => false,
                _ => data_type.is_integer(),
            };
            let casts = function.arguments.iter().chain(function.optional).zip(&arguments);
            let changed: Vec<ArrayRef> = casts
                .map(
                    |(argument, array)| {
                        if takes(&argument) { cast(array, &data_type).unwrap() } else { Arc::clone(array) }
                    },
                )
                .collect();
            assert_eq!(
                &function.call(&changed, Phases::default()).unwrap(),
                &expected,
                "{} {data_type}",
                function.name
            );
        }
    }
}

#[test]
fn zero_rows_give_zero_rows() {
    for function in functions() {
        let found = function.call(&some_arguments(function, 0), Phases::default()).unwrap();
        assert_eq!((found.len(), found.data_type()), (0, &function.return_type()));
    }
}

#[test]
fn errors_name_the_invalid_argument() {
    let int64 = |value: i64| array_of::<Int64Type>([value]);
    let message = |name, arguments: &[ArrayRef]| call(name, arguments).unwrap_err().to_string();
    let board = uint64([u64::MAX]);
    assert_eq!(message("tile", &[board.clone(), int64(16)]), "tile: cell: expected 0..=15, found 16");
    assert_eq!(message("tile", &[board.clone(), int64(-1)]), "tile: cell: expected 0..=15, found -1");
    assert_eq!(message("reward", &[board.clone(), int64(256)]), "reward: move: expected 0..=3, found 256");
    assert_eq!(message("transform", &[board.clone(), uint8([8])]), "transform: symmetry: expected 0..=7, found 8");
    assert_eq!(message("phase_of", &[uint64([1 << 32])]), "phase_of: max_exp: expected 0..=16, found 4294967296");
    assert_eq!(
        message("exps", &[int64(-1)]),
        "exps: board: expected a uint64, as a board uses the top bit, found -1 (Int64)"
    );
    let words: ArrayRef = Arc::new(StringArray::from(vec!["2"]));
    assert_eq!(message("exps", std::slice::from_ref(&words)), "exps: board: expected an integer, found Utf8");
    assert_eq!(message("tile", &[board.clone(), words.clone()]), "tile: cell: expected an integer, found Utf8");
    let (none, one) = (uint8([]), array_of::<Float32Type>([1.0]));
    let evs = [one.clone(), one.clone(), words, one];
    assert_eq!(message("ev_gap", &evs), "ev_gap: ev_left: expected a number, found Utf8");
    assert_eq!(message("tile", &[board.clone(), none]), "tile: cell: expected 1 rows as in board, found 0");
    assert_eq!(
        message("tile", std::slice::from_ref(&board)),
        "tile(board, cell[, tile_65536_mask]): expected 2 or 3 arguments, found 1"
    );
    let count = |found: usize| format!("exps(board[, tile_65536_mask]): expected 1 or 2 arguments, found {found}");
    assert_eq!(message("exps", &[board.clone(), uint8([0]), uint8([0])]), count(3));
    assert_eq!(message("exps", &[]), count(0));
    let evs = "ev_gap(ev_up, ev_down, ev_left, ev_right[, raw_evs]): expected 4 or 5 arguments, found 1";
    assert_eq!(message("ev_gap", std::slice::from_ref(&board)), evs);
    assert_eq!(
        message("exps", &[board.clone(), int64(1 << 16)]),
        "exps: tile_65536_mask: expected 0..=65535, found 65536"
    );
    // The invalid row is found among valid rows and nulls.
    let cells: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(99), Some(100)]));
    assert_eq!(message("tile", &[uint64([0; 4]), cells]), "tile: cell: expected 0..=15, found 99");
}

/// Parses a literal as SQL does: int64 if it fits, else uint64; float64; NULL as an untyped null.
fn literal(text: &str) -> ArrayRef {
    match text {
        "NULL" => Arc::new(NullArray::new(1)),
        _ if text.contains('.') => array_of::<Float64Type>([text.parse().unwrap()]),
        _ => text.parse().map_or_else(|_| uint64([text.parse().unwrap()]), |value| array_of::<Int64Type>([value])),
    }
}

#[test]
fn documented_examples_hold() {
    for function in functions() {
        let (call, expected) = function.example;
        let literals =
            call.strip_prefix(function.name).and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')')).unwrap();
        let arguments: Vec<ArrayRef> = literals.split(", ").map(literal).collect();
        assert_eq!(text(&function.call(&arguments, Phases::default()).unwrap()), [expected], "{call}");
    }
}

#[test]
fn the_list_is_in_order() {
    let signatures: Vec<String> = functions().iter().map(Function::signature).collect();
    assert_eq!(signatures[1], "tile(board, cell[, tile_65536_mask])");
    assert_eq!(signatures.last().unwrap(), "phase_of(max_exp)");
    let mut names: Vec<&str> = functions().iter().map(|function| function.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), functions().len());
    let types = function("ev_loss").arguments[..2].iter().map(|argument| argument.kind.data_type());
    assert_eq!(types.collect::<Vec<_>>(), [DataType::UInt8, DataType::Float32]);
}
