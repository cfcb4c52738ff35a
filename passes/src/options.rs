//! Pass options: the fields of the pass's struct and their textual form.
pub use kiln_dialects::Result;

/// A type of a pass option. `print` and `parse` are inverse.
pub trait OptionValue: Sized {
    /// Parses the text after `=`. The error says what is expected.
    fn parse(text: &str) -> Result<Self>;
    /// The text after `=`.
    fn print(&self) -> String;
}

macro_rules! from_str {
    ($($ty:ty: $what:literal),*) => { $(
        impl OptionValue for $ty {
            fn parse(text: &str) -> Result<Self> {
                text.parse().map_err(|_| format!("expects {}, not '{text}'", $what).into())
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )* };
}
from_str!(bool: "true or false", usize: "a non-negative integer", i64: "an integer", f64: "a number");

/// Names of an enum's values; the text before the colon is what an error expects.
macro_rules! named_values {
    ($ty:ident, $what:literal: $($name:literal => $value:ident),+) => {
        impl $crate::options::OptionValue for $ty {
            fn parse(text: &str) -> $crate::options::Result<Self> {
                match text {
                    $($name => Ok($ty::$value),)+
                    _ => Err(format!("expects {}, not '{text}'", $what).into()),
                }
            }
            fn print(&self) -> String {
                let name = match self {
                    $($ty::$value => $name,)+
                };
                name.into()
            }
        }
    };
}
pub(crate) use named_values;

impl OptionValue for String {
    fn parse(text: &str) -> Result<Self> {
        Ok(text.into())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// A comma-separated list; empty text is the empty list.
impl<T: OptionValue> OptionValue for Vec<T> {
    fn parse(text: &str) -> Result<Self> {
        text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(T::parse).collect()
    }
    fn print(&self) -> String {
        self.iter().map(T::print).collect::<Vec<_>>().join(",")
    }
}

/// An option as shown in the tables and by `--help`.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionRow {
    /// The field's name with hyphens.
    pub name: String,
    /// The field's doc comment.
    pub help: String,
    /// The printed default.
    pub default: String,
}

/// The options of a pass as text; implemented by [`pass_options!`](crate::pass_options).
pub trait Options: Default {
    /// All options, in field order.
    fn rows() -> Vec<OptionRow>;
    /// The printed values, in field order.
    fn print(&self) -> Vec<String>;
    /// Parses and sets all values, in field order.
    fn set(&mut self, values: &[&str]) -> Result<()>;
}

/// Declares a pass's struct: fields are options, doc comments their help, expressions their
/// defaults.
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
            fn set(&mut self, values: &[&str]) -> $crate::options::Result<()> {
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
