//! Options of passes: the fields of the pass's struct, as text and back.

/// A type that an option may have. `print` and `parse` are inverse.
pub trait OptionValue: Sized {
    /// From the text behind `=`. The error says what is wanted.
    fn parse(text: &str) -> Result<Self, String>;
    /// The text behind `=`.
    fn print(&self) -> String;
}

macro_rules! from_str {
    ($($ty:ty: $what:literal),*) => { $(
        impl OptionValue for $ty {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("wants {}, not '{text}'", $what))
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )* };
}
from_str!(bool: "true or false", usize: "a whole number", i64: "an integer", f64: "a number");

impl OptionValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// A list, separated by commas; the empty text is the empty list.
impl<T: OptionValue> OptionValue for Vec<T> {
    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(T::parse).collect()
    }
    fn print(&self) -> String {
        self.iter().map(T::print).collect::<Vec<_>>().join(",")
    }
}

/// One option as the tables and `--help` show it.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionRow {
    /// The name: the field's, with hyphens.
    pub name: String,
    /// The field's doc comment.
    pub help: String,
    /// The default as text.
    pub default: String,
}

/// The textual side of a pass's fields; [`pass_options!`](crate::pass_options) implements it.
pub trait Options: Default {
    /// All options in order.
    fn rows() -> Vec<OptionRow>;
    /// The values in order.
    fn print(&self) -> Vec<String>;
    /// Sets all values, in order.
    fn set(&mut self, values: &[&str]) -> Result<(), String>;
}

/// Declares a pass's struct: the fields are its options, their doc comments the help, the
/// expressions the defaults.
#[macro_export]
macro_rules! pass_options {
    ($(#[$doc:meta])* pub struct $name:ident { $( $(#[doc = $help:literal])+ pub $field:ident: $ty:ty = $default:expr ),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $help])+ pub $field: $ty, )*
        }
        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default ),* }
            }
        }
        impl $crate::options::Options for $name {
            fn rows() -> Vec<$crate::options::OptionRow> {
                #[allow(unused_variables)]
                let defaults = Self::default();
                vec![$( $crate::options::OptionRow {
                    name: stringify!($field).replace('_', "-"),
                    help: concat!($($help),+).trim().to_string(),
                    default: $crate::options::OptionValue::print(&defaults.$field),
                } ),*]
            }
            fn print(&self) -> Vec<String> {
                vec![$( $crate::options::OptionValue::print(&self.$field) ),*]
            }
            #[allow(unused_variables, unused_mut)]
            fn set(&mut self, values: &[&str]) -> Result<(), String> {
                let mut values = values.iter();
                $(
                    let name = stringify!($field).replace('_', "-");
                    let text = values.next().ok_or_else(|| format!("{name} has no value"))?;
                    self.$field = <$ty as $crate::options::OptionValue>::parse(text).map_err(|e| format!("{name} {e}"))?;
                )*
                Ok(())
            }
        }
    };
}
