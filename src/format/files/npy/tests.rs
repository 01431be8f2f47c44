use super::*;
use crate::format::files::mapped_rows::RowFields;
use proptest::prelude::*;

const PACKED: &str = "{'descr': [('board', '<u8'), ('move', '|u1'), ('ev_legal', '|u1'), ('ev_values', '<f4', (4,)), \
                      ('run_id', '<u4'), ('step_index', '<u2')], 'fortran_order': False, 'shape': (7,), }";

fn array(text: &str) -> Vec<u8> {
    let len = (text.len() as u16).to_le_bytes();
    [MAGIC, &[1, 0][..], &len, text.as_bytes()].concat()
}

fn refused(bytes: &[u8]) -> String {
    NpyHeader::parse(bytes).unwrap_err().to_string()
}

#[test]
fn reads_headers_of_numpy() {
    let header = NpyHeader::parse(&array(PACKED)).unwrap();
    assert_eq!((header.num_rows, header.stride, header.fields.len()), (7, 32, 6));
    assert_eq!(header.len, 10 + PACKED.len() as u64);
    assert_eq!(header.fields[3], NpyField { name: "ev_values".into(), dtype: "<f4".into(), values: 4, offset: 10 });
    let wide = [MAGIC, &[2, 0][..], &(PACKED.len() as u32).to_le_bytes(), PACKED.as_bytes()].concat();
    assert_eq!(NpyHeader::parse(&wide).unwrap().len, 12 + PACKED.len() as u64);
}

#[test]
fn the_version_determines_the_encoding() {
    let named = |version: u8, name: &[u8]| {
        let text = [b"{'descr': [('", name, b"', '<u8')], 'fortran_order': False, 'shape': (1,), }"].concat();
        let len = (text.len() as u32).to_le_bytes();
        let len = if version == 1 { &len[..2] } else { &len[..] };
        let bytes = [MAGIC, &[version, 0][..], len, &text].concat();
        NpyHeader::parse(&bytes).map(|header| header.fields[0].name.clone()).ok()
    };
    for (version, name, expected) in [
        (1, &b"gr\xf6\xdfe"[..], Some("größe")),
        (2, b"gr\xf6\xdfe", Some("größe")),
        (3, b"gr\xf6\xdfe", None),
        (3, "größe".as_bytes(), Some("größe")),
        (1, "ö".as_bytes(), Some("Ã¶")),
        (1, b"\\x80", None),
        (1, b"\\'\\\\\\\"", Some("'\\\"")),
        (3, b"\\a", None),
    ] {
        assert_eq!(named(version, name).as_deref(), expected, "{version} {}", name.escape_ascii());
    }
}

#[test]
fn rejects_all_but_one_dimensional_structured_arrays() {
    for (from, to, message) in [
        ("(7,)", "(7, 2)", "shape: expected one dimension, found 2 values"),
        ("(7,)", "()", "shape: expected one dimension, found 0 values"),
        ("False", "True", "fortran_order: expected False, found True"),
        ("'shape'", "'form'", "shape: expected a tuple of integers, found none"),
        ("'board'", "'move'", "name of a field: expected unique names, found move"),
        ("]", "", "NumPy's header: expected a dict"),
        ("'<u8'", "'<uX'", "type of a field: expected a type of fixed and small size, found board: <uX"),
        ("'<u8'", "'|O'", "type of a field: expected a type of fixed and small size, found board: |O"),
        ("'<u8'", "'|O8', (2, 2)", "shape of a field: expected one dimension, found 2 dimensions of board"),
        ("'<u8'", "8", "descr: expected a name, a type"),
        ("'<u8'", "[('a', '<u8')]", "NumPy's header: expected a dict"),
        ("'<f4', (4,)", "'<f4', (18446744073709551615,)", "type of a field"),
        ("(7,)", "((((((7,),),),),),)", "NumPy's header: expected a dict"),
    ] {
        assert!(PACKED.contains(from));
        let error = refused(&array(&PACKED.replacen(from, to, 1)));
        assert!(error.contains(message), "{from} -> {to}: {error}");
    }
    let plain = refused(&array("{'descr': '<u8', 'fortran_order': False, 'shape': (7,), }"));
    assert!(plain.contains("descr: expected fields by name"), "{plain}");
    let objects = refused(&array("{'descr': '|O', 'fortran_order': False, 'shape': (7,), }"));
    assert!(objects.contains("descr: expected fields by name"), "{objects}");
}

#[test]
fn reads_two_dimensional_arrays_of_numbers() {
    let text = "{'descr': '<u2', 'fortran_order': False, 'shape': (7, 8), }";
    let header = NpyMatrix::parse(&array(text), false).unwrap();
    assert_eq!((header.num_rows, header.values_per_row, header.dtype.as_str()), (7, 8, "<u2"));
    assert!(header.check_file_len(16, header.len + 112).is_ok() && header.check_file_len(16, header.len).is_err());
    for (from, to, message) in [
        ("(7, 8)", "(7,)", "shape: expected two dimensions, found 1 values"),
        ("(7, 8)", "(7, 8, 1)", "shape: expected two dimensions, found 3 values"),
        ("(7, 8)", "7", "shape: expected a tuple of integers, found none"),
        ("'<u2'", "[('a', '<u2')]", "descr: expected one type of numbers, found fields"),
        ("'descr'", "'type'", "descr: expected a type, found none"),
        ("False", "True", "fortran_order: expected False, found True"),
    ] {
        let error = NpyMatrix::parse(&array(&text.replacen(from, to, 1)), false).unwrap_err().to_string();
        assert!(error.contains(message), "{from} -> {to}: {error}");
    }
}

#[test]
fn errors_before_the_text_name_the_field() {
    assert!(refused(b"\x93NUMPX\x01\0\0\0").starts_with("byte 0: NumPy's magic: expected"));
    assert!(refused(b"\x93NUMPY\x04\0\0\0").contains("byte 6: NumPy's format version: expected 1, 2 or 3, found 4"));
    assert!(refused(b"\x93NUMPY\x01\0\xff\xff").contains("byte 8: length of NumPy's header: expected at most 10000"));
    assert!(refused(b"\x93NUMPY\x02\0\xff\xff\xff\xff").contains("found 4294967295"));
    let good = array(PACKED);
    for len in 0..good.len() {
        assert!(NpyHeader::parse(&good[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_file_must_end_with_its_rows() {
    let header = NpyHeader::parse(&array(PACKED)).unwrap();
    let end = header.len + 7 * 32;
    assert!(header.check_file_len(end).is_ok());
    assert!(header.check_file_len(end - 1).is_err());
    assert!(header.check_file_len(end + 1).is_err());
    let huge = PACKED.replace("(7,)", "(18446744073709551615,)");
    let error = NpyHeader::parse(&array(&huge)).unwrap().check_file_len(end).unwrap_err().to_string();
    assert!(error.contains("expected fewer than 18446744073709551615 rows"), "{error}");
}

/// The header that NumPy 2.4 wrote for rows of these fields.
#[test]
fn headers_equal_those_of_numpy() {
    let fields = NpyField::packed(&[("run_id", "<u8", 1), ("step_idx", "<u4", 1), ("exps", "|u1", 16)]);
    let text = "{'descr': [('run_id', '<u8'), ('step_idx', '<u4'), ('exps', '|u1', (16,))], 'fortran_order': False, \
                'shape': (2398,), }";
    let bytes = header(&fields, 28, 2398, 0).unwrap();
    assert_eq!((bytes.len(), &bytes[..10]), (192, &b"\x93NUMPY\x01\0\xb6\0"[..]));
    assert_eq!(bytes[10..], *format!("{text:<181}\n").as_bytes());
    for num_rows in [0, 9, 1 << 40, u64::MAX] {
        assert_eq!(header(&fields, 28, num_rows, 0).unwrap().len(), 192);
    }
    // A text that ends at a multiple of 64 gets 64 bytes of padding.
    let fields = NpyField::packed(&[(&"x".repeat(32), "<u8", 1)]);
    let len = 11 + "{'descr': [('', '<u8')], 'fortran_order': False, 'shape': (,), }".len() + 32 + 21;
    assert_eq!((len, header(&fields, 8, 5, 0).unwrap().len()), (128, 192));
}

#[test]
fn headers_round_trip() {
    let fields = NpyField::packed(&[("board", "<u8", 1), ("it's", "<f4", 4), ("x\\y", "|u1", 1)]);
    for (num_rows, min_len) in [(0, 0), (u64::MAX, 0), (7, 256), (7, 4096)] {
        let bytes = header(&fields, 32, num_rows, min_len).unwrap();
        assert!(bytes.len().is_multiple_of(64) && bytes.len() >= min_len);
        let back = NpyHeader::parse(&bytes).unwrap();
        assert_eq!((back.len, back.num_rows, back.stride), (bytes.len() as u64, num_rows, 32));
        assert_eq!(back.fields, fields);
    }
    let mut fields = fields;
    (fields[1].offset, fields[2].offset) = (10, 31);
    let bytes = header(&fields, 40, 7, 0).unwrap();
    let descr = r"('board', '<u8'), ('', '|V2'), ('it\'s', '<f4', (4,)), ('', '|V5'), ('x\\y', '|u1'), ('', '|V8')";
    assert!(String::from_utf8_lossy(&bytes).contains(descr));
    assert_eq!(NpyHeader::parse(&bytes).unwrap().fields, fields);
    assert!(header(&NpyField::packed(&[("größe", "<u8", 1)]), 8, 1, 0).is_err());
}

proptest! {
    #[test]
    fn any_header_text_never_panics(text in "[\\[\\](){}',:0-9a-z\\\\ ]{0,80}") {
        let _ = NpyHeader::parse(&array(&text));
        let text = format!("{{'descr': {text}, 'fortran_order': False, 'shape': (1,)}}");
        let _ = NpyHeader::parse(&array(&text));
    }
}

#[test]
fn the_header_of_another_writer_is_read() {
    let text = "{'descr': [('a', '<u1'), ('b', '<u4'), ], 'fortran_order': False, 'shape': (824,), }";
    let len = 128;
    let mut bytes = [&MAGIC[..], &[1, 0, len as u8 - 10, 0], text.as_bytes()].concat();
    bytes.resize(len - 1, b' ');
    bytes.push(b'\n');
    // A byte order of one byte has no meaning.
    let header = NpyHeader::parse(&bytes).unwrap();
    assert!(RowFields::packed(&[("a", "|u1", 1), ("b", "<u4", 1)]).are_of(&header));
    assert_eq!((header.len, header.num_rows), (len as u64, 824));
}
