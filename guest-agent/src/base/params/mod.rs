//! Decodes the parameters of a request into the types that declare them.
//!
//! The fields of a type have the names of its parameters. A parameter that is null counts as
//! absent. Bytes that are not UTF-8 come as base64, under the name of the field with `_b64` after
//! it. A type takes the parameters that it has fields for. So several types may share the
//! parameters of one request, and a parameter without a field is ignored. Every error names the
//! parameter.

mod kinds;

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

use super::base64;
use super::error::{Error, Result};
pub use kinds::{Mode, Moment, Place, Raw, Seconds, yes};

/// The parameters of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub struct Params {
    values: Map<String, Value>,
    /// Tells whether numbers and flags are texts, too, as in a query.
    are_texts: bool,
}

impl From<Map<String, Value>> for Params {
    fn from(values: Map<String, Value>) -> Self {
        Self {
            values,
            are_texts: false,
        }
    }
}

impl Params {
    /// Makes parameters whose numbers and flags are texts.
    pub fn of_texts(values: Map<String, Value>) -> Self {
        Self {
            values,
            are_texts: true,
        }
    }

    /// Decodes the variant of an enum that has the name of the method, or returns `None` when there
    /// is none. Fails with `Param` when a parameter is wrong.
    pub fn decode<T: DeserializeOwned>(&mut self, method: &str) -> Result<Option<T>> {
        match T::deserialize(Named { method, params: self }) {
            Err(Error::Method(_)) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Decodes one type. Fails with `Param` when a parameter is wrong.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T> {
        T::deserialize(Shared(self))
    }
}

/// Returns the error for a parameter that is wrong. `want` completes the sentence that begins with
/// its name.
pub fn wrong(name: &str, want: impl Into<Cow<'static, str>>) -> Error {
    Error::Param {
        name: name.to_owned(),
        want: want.into(),
    }
}

impl de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self::BadRequest(message.to_string())
    }

    fn missing_field(name: &'static str) -> Self {
        wrong(name, "is required")
    }

    fn unknown_variant(method: &str, _: &'static [&'static str]) -> Self {
        Self::Method(method.to_owned())
    }
}

/// A method and its parameters. serde makes a variant of an enum of them.
struct Named<'a> {
    method: &'a str,
    params: &'a mut Params,
}

impl<'de> Deserializer<'de> for Named<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'a, 'de> de::EnumAccess<'de> for Named<'a> {
    type Error = Error;
    type Variant = Parts<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Parts<'a>)> {
        let method: StrDeserializer<'_, Error> = self.method.into_deserializer();
        Ok((seed.deserialize(method)?, Parts(self.params)))
    }
}

/// The parameters of a variant, which is a type, or has fields, or consists of several types.
struct Parts<'a>(&'a mut Params);

impl<'de> de::VariantAccess<'de> for Parts<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(Shared(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        visitor.visit_seq(self)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value> {
        visitor.visit_map(Fields::new(self.0, fields))
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        seed.deserialize(Shared(self.0)).map(Some)
    }
}

/// The parameters of a request, from which a type takes its own.
struct Shared<'a>(&'a mut Params);

impl<'de> Deserializer<'de> for Shared<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_map(Fields::new(self.0, &[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_map(Fields::new(self.0, fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The parameters that have the names of a type's fields.
struct Fields<'a> {
    params: &'a mut Params,
    names: &'static [&'static str],
    /// The number of names that were looked for already.
    passed: usize,
    value: Option<Given>,
}

impl<'a> Fields<'a> {
    fn new(params: &'a mut Params, names: &'static [&'static str]) -> Self {
        Self {
            params,
            names,
            passed: 0,
            value: None,
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Given> {
        let Params { values, are_texts } = self.params;
        let plain = values.get_mut(name).map(Value::take);
        if let Some(value) = plain.filter(|value| !value.is_null()) {
            let form = match (name.ends_with(CODED), are_texts) {
                (true, _) => Form::Coded,
                (false, true) => Form::Text,
                (false, false) => Form::Plain,
            };
            return Some(Given { value, form });
        }
        let is_coded = |key: &str| key.strip_suffix(CODED) == Some(name);
        if self.names.iter().any(|name| is_coded(name)) {
            return None;
        }
        let (_, value) = values.iter_mut().find(|(key, _)| is_coded(key))?;
        Some(value.take()).filter(|value| !value.is_null()).map(Given::coded)
    }
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        while let Some(name) = self.names.get(self.passed) {
            self.passed += 1;
            self.value = self.take(name);
            if self.value.is_some() {
                let name: StrDeserializer<'_, Error> = (*name).into_deserializer();
                return seed.deserialize(name).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let value = self.value.take().unwrap_or(Given::coded(Value::Null));
        seed.deserialize(value).map_err(|error| match error {
            Error::BadRequest(why) => wrong(self.names[self.passed - 1], why),
            error => error,
        })
    }
}

/// The names of parameters that are base64 end with this.
const CODED: &str = "_b64";

/// The value of a parameter.
struct Given {
    value: Value,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// The texts in the value are base64.
    Coded,
    /// Numbers and flags are texts.
    Text,
}

impl Given {
    fn coded(value: Value) -> Self {
        let form = Form::Coded;
        Self { value, form }
    }

    /// Returns the text of a number or of a flag.
    fn text(&self) -> Option<&str> {
        self.value.as_str().filter(|_| self.form == Form::Text)
    }

    /// Parses a decimal number, or an octal one such as `0o644`, as modes are usually written.
    fn deserialize_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Some(text) = self.text() else {
            return self.deserialize_any(visitor);
        };
        let number = match text.strip_prefix("0o") {
            Some(octal) => i128::from_str_radix(octal, 8),
            None => text.parse(),
        };
        // As in JSON, the sign decides which type the number has.
        match number.map(|number| (u64::try_from(number), i64::try_from(number))) {
            Ok((Ok(number), _)) => visitor.visit_u64(number),
            Ok((_, Ok(number))) => visitor.visit_i64(number),
            _ => Err(de::Error::custom("must be a whole number of at most 64 bits")),
        }
    }
}

impl<'de> Deserializer<'de> for Given {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            Value::String(text) if self.form == Form::Coded => match base64::decode(&text) {
                Some(bytes) => visitor.visit_byte_buf(bytes),
                None => Err(de::Error::custom("is not base64")),
            },
            Value::Array(items) if self.form == Form::Coded => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self::coded)))
            }
            value => value.deserialize_any(visitor).map_err(de::Error::custom),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.text() {
            None => self.deserialize_any(visitor),
            Some("" | "true" | "1") => visitor.visit_bool(true),
            Some("false" | "0") => visitor.visit_bool(false),
            Some(_) => Err(de::Error::custom("must be true or false")),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_number(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_number(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_number(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.value
            .deserialize_enum(name, variants, visitor)
            .map_err(de::Error::custom)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Given {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Code;
    use serde_json::json;
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    fn params_of(value: Value) -> Params {
        serde_json::from_value::<Option<Params>>(value)
            .unwrap()
            .unwrap_or_default()
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Asked {
        Nothing,
        Sizes(Sizes),
        Both(Sizes, Names),
        Inline {
            path: Place,
            #[serde(default = "yes")]
            follow: bool,
        },
    }

    #[derive(Debug, Deserialize)]
    struct Sizes {
        window: Option<u16>,
        #[serde(default)]
        timeout: Seconds,
    }

    #[derive(Debug, Deserialize)]
    struct Names {
        argv: Vec<Raw>,
        #[serde(default)]
        env_b64: Vec<Raw>,
        env: Option<Vec<String>>,
        user: Option<String>,
    }

    fn ask(method: &str, params: Value) -> Result<Asked> {
        params_of(params)
            .decode(method)?
            .ok_or_else(|| Error::Method(method.to_owned()))
    }

    fn refused(method: &str, params: Value) -> String {
        let error = ask(method, params).unwrap_err();
        assert_eq!(error.code(), Code::BadRequest);
        error.to_string()
    }

    #[test]
    fn errors_name_the_parameter() {
        assert!(refused("sizes", json!({"window": "big"})).contains("\"window\""));
        assert!(refused("sizes", json!({"window": 65536})).contains("\"window\""));
        assert!(refused("both", json!({})).contains("\"argv\": is required"));
        assert!(refused("both", json!({"argv_b64": ["?"]})).contains("\"argv\": is not base64"));
        assert!(refused("both", json!({"argv": [7]})).contains("\"argv\""));
        assert!(refused("inline", json!({"path": "etc"})).contains("\"path\": must be an absolute path"));
    }

    #[test]
    fn a_method_that_nobody_has_is_told_from_a_wrong_parameter() {
        let error = ask("other", json!({})).unwrap_err();
        assert_eq!(error.code(), Code::NoSuchMethod);
        assert!(error.to_string().contains("other"));
    }

    #[test]
    fn null_is_absent_and_zero_seconds_are_no_limit() {
        let Ok(Asked::Sizes(sizes)) = ask("sizes", json!({"window": null, "timeout": 0, "other": []})) else {
            panic!();
        };
        assert_eq!((sizes.window, sizes.timeout.0), (None, None));
        let Ok(Asked::Sizes(sizes)) = ask("sizes", json!({"window": 7, "timeout": 0.5})) else {
            panic!();
        };
        assert_eq!(
            (sizes.window, sizes.timeout.0),
            (Some(7), Some(Duration::from_millis(500)))
        );
        for bad in [json!(-1), json!(1e300), json!("1")] {
            refused("sizes", json!({"timeout": bad}));
        }
        assert!(matches!(ask("nothing", Value::Null), Ok(Asked::Nothing)));
    }

    #[test]
    fn a_path_may_be_any_bytes_but_absolute() {
        let coded = json!({"path": null, "path_b64": base64::encode(b"/tmp/\xff")});
        let Ok(Asked::Inline { path, follow }) = ask("inline", coded) else {
            panic!();
        };
        assert_eq!(path.0.into_os_string().into_vec(), b"/tmp/\xff");
        assert!(follow);
    }

    #[test]
    fn several_types_take_their_own_of_the_parameters() {
        let coded = |bytes: &[u8]| base64::encode(bytes);
        let asked = ask(
            "both",
            json!({"window": 1, "argv_b64": [coded(b"x\xff"), ""], "env": ["a"], "env_b64": [coded(b"\xfe")]}),
        );
        let Ok(Asked::Both(sizes, names)) = asked else {
            panic!();
        };
        assert_eq!(sizes.window, Some(1));
        assert_eq!(names.argv, [Raw(b"x\xff".to_vec()), Raw(Vec::new())]);
        assert_eq!(
            (names.env, names.env_b64),
            (Some(vec!["a".into()]), vec![Raw(b"\xfe".to_vec())])
        );
        // A user that is not text is refused rather than ignored: the command would run as root.
        assert!(refused("both", json!({"argv": ["x"], "user_b64": coded(b"\xff")})).contains("\"user\""));
        assert!(names.user.is_none());
    }
}
