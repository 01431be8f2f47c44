//! Options of an object store that a caller states instead of environment variables.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Options of an object store, such as credentials and endpoints. They override environment variables.
///
/// The names are those of the crate `object_store`, such as `aws_access_key_id`, `aws_endpoint` and `allow_http`. A
/// folder needs no options and ignores them. The text form shows no values.
///
/// ```
/// use a2store::archive::StorageOptions;
/// let options: StorageOptions = [("aws_region", "eu-north-1"), ("aws_secret_access_key", "…")].into_iter().collect();
/// assert_eq!(format!("{options:?}"), r#"StorageOptions["aws_region", "aws_secret_access_key"]"#);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions {
    options: Arc<BTreeMap<String, String>>,
}

impl StorageOptions {
    /// Returns the names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(options: I) -> StorageOptions {
        let options = options.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        StorageOptions { options: Arc::new(options) }
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageOptions")?;
        f.debug_list().entries(self.options.keys()).finish()
    }
}
