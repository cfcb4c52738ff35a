//! `#[derive(Parameters)]`: a struct of a strategy's parameters and `#kiln.schedule`.
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Lit, Meta, Result};

/// The implementation of `crate::strategies::Parameters` for a struct with named fields.
pub fn expand(input: &DeriveInput) -> Result<Tokens> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(name, "parameters are a struct"));
    };
    let fields: Vec<&Field> = match &data.fields {
        Fields::Named(fields) => fields.named.iter().collect(),
        _ => return Err(Error::new_spanned(name, "parameters are a struct with named fields")),
    };
    let rows = fields.iter().map(|f| row(f)).collect::<Result<Vec<_>>>()?;
    let names: Vec<_> = fields.iter().filter_map(|f| f.ident.as_ref()).collect();
    let numbers = 0..names.len();
    Ok(quote! {
        impl crate::strategies::Parameters for #name {
            const ROWS: &'static [crate::strategies::ParameterRow] = &[#(#rows),*];
            fn values(&self) -> Vec<i64> {
                vec![#(crate::strategies::ParameterValue::to_i64(&self.#names)),*]
            }
            fn from_values(values: &[i64]) -> Self {
                Self { #(#names: crate::strategies::ParameterValue::from_i64(values[#numbers])),* }
            }
        }
    })
}

/// One row: name, doc comment, domain.
fn row(field: &Field) -> Result<Tokens> {
    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut help = vec![];
    let mut domain = None;
    for attr in &field.attrs {
        if attr.path().is_ident("doc")
            && let Meta::NameValue(meta) = &attr.meta
            && let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value
        {
            help.push(text.value().trim().to_string());
        } else if attr.path().is_ident("parameter") {
            domain = Some(attr.parse_args::<Expr>()?);
        }
    }
    let domain = domain.ok_or_else(|| {
        Error::new_spanned(field, "a parameter states its domain: #[parameter(Between(1, 8))]")
    })?;
    let help = help.join(" ");
    if help.is_empty() {
        return Err(Error::new_spanned(field, "a parameter has a doc comment"));
    }
    Ok(quote! {
        crate::strategies::ParameterRow {
            name: #name,
            help: #help,
            domain: {
                #[allow(unused_imports)]
                use crate::strategies::Domain::*;
                #domain
            },
        }
    })
}
