//! The text form of enums whose variants have names.

/// Implements `Display` by an enum's method `name`. With the name of an argument and the expected values, also
/// implements `FromStr` by the constant `ALL`.
#[doc(hidden)]
#[macro_export]
macro_rules! text_form {
    ($enum:ty $(, $argument:expr, $expected:expr)?) => {
        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        $(impl std::str::FromStr for $enum {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> $crate::error::Result<$enum> {
                let found = <$enum>::ALL.into_iter().find(|known| known.name() == name);
                found.ok_or_else(|| $crate::error::Error::argument($argument, $expected, name))
            }
        })?
    };
}

pub use text_form;
