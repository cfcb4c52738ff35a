//! `#[kiln::compile]`, which `kiln` exports, and `#[derive(Parameters)]` for kernel strategies.
mod parameters;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{
    Error, Expr, FnArg, Ident, ItemFn, Lit, LitBool, Pat, Result, ReturnType, Token, Type,
    parse::Parse, parse::ParseStream, parse_macro_input,
};

/// Compiles a function, as `kiln::compile` does a closure: it returns a `Result` of its return
/// type, and all callers share its programs.
///
/// Arguments: `mode`, `backend`, `device`, `name` with a string; `dynamic`, `fullgraph`, `freeze`,
/// `disable` alone or with a boolean; `options("name" = "value", …)`.
#[proc_macro_attribute]
pub fn compile(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Settings);
    let function = parse_macro_input!(function as ItemFn);
    expand(&arguments, function).unwrap_or_else(Error::into_compile_error).into()
}

/// Connects a struct with `#kiln.schedule<"NAME", {…}>`: each field is a parameter, its doc comment
/// the help, `#[parameter(DOMAIN)]` the values that it may have.
#[proc_macro_derive(Parameters, attributes(parameter))]
pub fn parameters(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as syn::DeriveInput);
    parameters::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Calls of the builder's methods.
struct Settings {
    calls: Vec<Tokens>,
    named: bool,
}

const STRINGS: &[&str] = &["mode", "backend", "device", "name"];
const FLAGS: &[&str] = &["dynamic", "fullgraph", "freeze", "disable"];

impl Parse for Settings {
    fn parse(input: ParseStream) -> Result<Settings> {
        let mut settings = Settings { calls: vec![], named: false };
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let text = name.to_string();
            let call = if STRINGS.contains(&text.as_str()) {
                input.parse::<Token![=]>()?;
                let value: Expr = input.parse()?;
                settings.named |= text == "name";
                quote!(.#name(#value))
            } else if FLAGS.contains(&text.as_str()) {
                let value = if input.peek(Token![=]) {
                    input.parse::<Token![=]>()?;
                    input.parse()?
                } else {
                    LitBool::new(true, name.span())
                };
                quote!(.#name(#value))
            } else if text == "options" {
                let inner;
                syn::parenthesized!(inner in input);
                let pairs = inner.parse_terminated(pair, Token![,])?;
                let pairs = pairs.iter().map(|(name, value)| quote!((#name, #value)));
                quote!(.options([#(#pairs),*]))
            } else {
                let all = [STRINGS, FLAGS, &["options"]].concat().join(", ");
                return Err(Error::new(
                    name.span(),
                    format!("kiln::compile has no argument '{text}'; it has {all}"),
                ));
            };
            settings.calls.push(call);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(settings)
    }
}

/// `"name" = "value"`.
fn pair(input: ParseStream) -> Result<(Lit, Lit)> {
    let name = input.parse()?;
    input.parse::<Token![=]>()?;
    Ok((name, input.parse()?))
}

fn expand(settings: &Settings, function: ItemFn) -> Result<Tokens> {
    let signature = &function.sig;
    let refuse = |tokens: &dyn quote::ToTokens, why: &str| {
        Err(Error::new_spanned(tokens, format!("kiln::compile is for plain functions: {why}")))
    };
    if !signature.generics.params.is_empty() {
        return refuse(
            &signature.generics,
            "a generic one has no programs of its own; compile a closure for each type instead",
        );
    }
    if let Some(token) = &signature.asyncness {
        return refuse(token, "an async one is not called when it is traced");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(token, "an unsafe one is called by nobody who could keep its promise");
    }
    let (mut names, mut types) = (vec![], vec![]);
    for argument in &signature.inputs {
        let FnArg::Typed(argument) = argument else {
            return refuse(
                argument,
                "a method reads self; compile a closure, or a module with Module::compile",
            );
        };
        let Pat::Ident(name) = &*argument.pat else {
            return refuse(&argument.pat, "its arguments have names");
        };
        if let Type::Reference(_) = &*argument.ty {
            return refuse(
                &argument.ty,
                "its arguments are values, such as Tensor, which is cheap to clone",
            );
        }
        names.push(&name.ident);
        types.push(&argument.ty);
    }
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    let (attributes, visibility, ident, body) =
        (&function.attrs, &function.vis, &signature.ident, &function.block);
    let (inputs, calls) = (&signature.inputs, &settings.calls);
    let name = ident.to_string();
    let named = (!settings.named).then(|| quote!(.name(#name)));
    Ok(quote! {
        #(#attributes)*
        #[track_caller]
        #visibility fn #ident(#(#names: #types),*) -> ::std::result::Result<<#output as ::kiln::compile::Returns>::Tree, ::kiln::Error> {
            fn body(#inputs) -> #output #body
            static COMPILED: ::std::sync::LazyLock<::kiln::Compiled<fn(#(#types),*) -> #output, (#(#types,)*)>> =
                ::std::sync::LazyLock::new(|| ::kiln::compile(body as fn(#(#types),*) -> #output) #named #(#calls)*);
            COMPILED.call((#(#names,)*))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn text(arguments: &str, function: ItemFn) -> String {
        let made =
            syn::parse_str::<Settings>(arguments).and_then(|settings| expand(&settings, function));
        made.map_or_else(|e| format!("error: {e}"), |tokens| tokens.to_string())
    }

    #[test]
    fn arguments_become_calls_of_the_builder() {
        let made = text(
            r#"mode = "default", dynamic, fullgraph = false, options("threads" = "1")"#,
            parse_quote!(
                fn f(x: Tensor, n: i64) -> Tensor {
                    x * n
                }
            ),
        );
        for part in [
            r#". mode ("default")"#,
            ". dynamic (true)",
            ". fullgraph (false)",
            r#". options ([("threads" , "1")])"#,
            r#". name ("f")"#,
        ] {
            assert!(made.contains(part), "no {part} in {made}");
        }
        let named = text(
            r#"name = "g""#,
            parse_quote!(
                pub fn f() {}
            ),
        );
        assert!(named.contains(r#". name ("g")"#) && !named.contains(r#". name ("f")"#), "{named}");
    }

    #[test]
    fn what_cannot_be_is_said() {
        let plain = || {
            parse_quote!(
                fn f(x: Tensor) -> Tensor {
                    x
                }
            )
        };
        assert!(
            text("fulgraph", plain())
                .contains("kiln::compile has no argument 'fulgraph'; it has mode, ")
        );
        assert!(text("dynamic = 3", plain()).starts_with("error: "));
        assert!(
            text(
                "",
                parse_quote!(
                    fn f<T>(x: T) -> T {
                        x
                    }
                )
            )
            .contains("a generic one has no programs of its own")
        );
        assert!(
            text(
                "",
                parse_quote!(
                    async fn f(x: Tensor) -> Tensor {
                        x
                    }
                )
            )
            .contains("an async one")
        );
        assert!(
            text(
                "",
                parse_quote!(
                    fn f(&self) -> Tensor {
                        x
                    }
                )
            )
            .contains("a method reads self")
        );
        assert!(
            text(
                "",
                parse_quote!(
                    fn f(x: &Tensor) -> Tensor {
                        x
                    }
                )
            )
            .contains("its arguments are values")
        );
        assert!(
            text(
                "",
                parse_quote!(
                    fn f((x, y): (Tensor, Tensor)) -> Tensor {
                        x
                    }
                )
            )
            .contains("its arguments have names")
        );
    }
}
