//! Requested argument layouts, as `#kiln.layout` attributes on the function, and donated arguments.
use super::Donation;
use crate::dialects::{ir::*, rules::tensor_type};
use std::collections::BTreeMap;

/// Attaches the requested dimension orders to the arguments, for `kiln-argument-order`, and marks
/// those that are donated, for `kiln-alias-results` and `kiln-plan`.
pub fn request(
    module: &Module,
    function: &str,
    orders: &BTreeMap<usize, Vec<usize>>,
    donated: &BTreeMap<usize, Donation>,
) -> Result<()> {
    if orders.is_empty() && donated.is_empty() {
        return Ok(());
    }
    let found = blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .find(|o| o.isa::<func::Func>() && o.symbol().as_deref() == Some(function));
    let func = found.ok_or_else(|| format!("there is no function @{function}"))?;
    let args = func.regions().first().and_then(|r| r.first()).map(|b| b.args()).unwrap_or_default();
    let (c, empty) = (func.ctx(), Attr::dictionary(func.ctx(), &[]));
    let mut attrs =
        func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_else(|| vec![empty; args.len()]);
    for (i, order) in orders {
        let arg = args
            .get(*i)
            .ok_or_else(|| format!("there is no argument {i}; @{function} has {}", args.len()))?;
        let dims = tensor_type(arg.ty())?.dims;
        if order.len() != dims.len() || (0..dims.len()).any(|d| !order.contains(&d)) {
            return Err(format!(
                "argument {i} has {} dimensions; {order:?} is no order of them",
                dims.len()
            )
            .into());
        }
        let (mut strides, mut next) = (vec![0; dims.len()], Some(1i64));
        for d in order.iter().rev() {
            strides[*d] = next.ok_or_else(|| {
                format!(
                    "argument {i}: of the sizes in memory only the outermost may be open, not {:?}",
                    dims
                )
            })?;
            next = next.and_then(|n| n.checked_mul(dims[*d].known()?));
        }
        attrs[*i] = attrs[*i].with_entry(c, "kiln.layout", Attr::layout(c, &strides, 0, 0));
    }
    for (i, donation) in donated {
        let about = attrs.get(*i).copied();
        let about = about.ok_or_else(|| format!("there is no argument {i} to donate"))?;
        let value = match donation {
            Donation::Intermediates => Attr::unit(c),
            Donation::Results => Attr::string(c, "results"),
            Donation::Update(result) => Attr::i64(c, *result as i64),
        };
        attrs[*i] = about.with_entry(c, "kiln.donated", value);
    }
    func.set_attr("arg_attrs", Attr::array(c, &attrs));
    Ok(())
}
