//! Functions: what they return.
use super::*;

/// Lets a function return these values: replaces its terminator and its type. Its lists of
/// attributes get as many entries as there are arguments and results; new ones are empty.
pub fn set_returned(func: Op, values: &[Value]) -> Result<()> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let end = block.terminator().ok_or_at(func, "has no return")?;
    Builder::before(end).ok_or_at(end, "is in no block")?.ret(values)?;
    end.erase();
    let types = |values: &[Value]| values.iter().map(|v| v.ty()).collect::<Vec<_>>();
    let (ctx, args) = (func.ctx(), block.args());
    let ty = Type::function(ctx, &types(&args), &types(values));
    func.set_attr("function_type", Attr::ty(ty));
    for (name, n) in [("arg_attrs", args.len()), ("res_attrs", values.len())] {
        let Some(mut listed) = func.attr(name).and_then(Attr::as_array) else { continue };
        listed.resize(n, Attr::dictionary(ctx, &[]));
        func.set_attr(name, Attr::array(ctx, &listed));
    }
    Ok(())
}
