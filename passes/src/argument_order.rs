//! `kiln-argument-order`: gives an argument whose memory is permuted the type of its memory order,
//! and transposes it in the body.
//!
//! Why: a channels-last or column-major input then needs no copy before the call. The transpose
//! cancels with those of `kiln-layout` or folds into the kernel that reads it. Exports record
//! `#kiln.layout`, and callers may request one. Upstream has layouts for memrefs only.
//!
//! Callers still pass the logical tensor. `kiln.order` lists its dimensions from the outermost to
//! the innermost stride. Arguments with gaps or broadcast (stride 0) dimensions keep their type,
//! and the call copies them.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  func @main(%x: tensor<8x3xf32> {kiln.layout = #kiln.layout<[1, 8]>}) …
//! after:   func @main(%0: tensor<3x8xf32> {kiln.order = array<i64: 1, 0>}) …   %x = kiln.transpose %0 [1, 0]
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, is_driver, tensor_type},
};

crate::pass_options! {
    /// The pass.
    pub struct ArgumentOrder {}
}

impl Pass for ArgumentOrder {
    const FLAG: &'static str = "kiln-argument-order";
    const SUMMARY: &'static str = "Takes permuted arguments in memory order and transposes them";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in blocks(root)
            .into_iter()
            .flat_map(|b| b.ops())
            .filter(|o| o.isa::<func::Func>() && !is_driver(*o))
        {
            function(func).at(func)?;
        }
        Ok(())
    }
}

fn function(func: Op) -> Result<()> {
    let Some(listed) = func.attr("arg_attrs").and_then(Attr::as_array) else { return Ok(()) };
    let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
    let (c, args) = (func.ctx(), block.args());
    let mut attrs = listed.clone();
    for (i, arg) in args.iter().enumerate() {
        let Some((strides, ..)) =
            listed.get(i).and_then(|a| a.entry("kiln.layout")).and_then(Attr::as_layout)
        else {
            continue;
        };
        let t = tensor_type(arg.ty())?;
        let sizes: Vec<Option<i64>> = t.dims.iter().map(|d| d.known()).collect();
        let Some(order) = order(&sizes, &strides) else { continue };
        let kept = attrs[i].without_entries(c, &["kiln.layout"]);
        attrs[i] = kept.with_entry(c, "kiln.order", Attr::i64s(c, &order));
        let dims: Vec<_> = order.iter().map(|d| t.dims[*d as usize].clone()).collect();
        transpose_argument(block, *arg, &order, Type::tensor(c, t.dtype, &dims))?;
    }
    let types = |values: Vec<Value>| values.into_iter().map(Value::ty).collect::<Vec<_>>();
    let results = block.terminator().ok_or("has no return")?.operands();
    func.set_attr("function_type", Attr::ty(Type::function(c, &types(args), &types(results))));
    func.set_attr("arg_attrs", Attr::array(c, &attrs));
    Ok(())
}

/// Changes the argument's type and inserts the transpose before its uses.
fn transpose_argument(block: Block, arg: Value, order: &[i64], ty: Type) -> Result<()> {
    let first =
        block.ops().first().copied().and_then(Builder::before).ok_or("has an empty body")?;
    arg.set_ty(ty);
    let permutation = (0..order.len() as i64)
        .map(|d| order.iter().position(|o| *o == d).unwrap_or(0) as i64)
        .collect();
    let whole = first.add(&Transpose { input: arg, permutation })?;
    let transpose_op = whole.def().ok_or("has no transpose")?;
    let bound: Vec<Op> = arg
        .uses()
        .into_iter()
        .map(|(user, _)| user)
        .filter(|o| o.kind() == Some(OpKind::BindShape))
        .collect();
    arg.replace_uses_except(whole, &[transpose_op]);
    // Shape bindings of the argument hold for its transposed type too.
    for fact in bound {
        let sizes = BindShape::of(fact).ok_or_malformed(fact)?.sizes;
        let b = Builder::before(fact).ok_or("is in no block")?;
        let sizes = order
            .iter()
            .map(|d| sizes.get(*d as usize).copied())
            .collect::<Option<_>>()
            .ok_or("binds a shape of lower rank than the value")?;
        b.create_with(&BindShape { value: arg, sizes }, &[], &mut [])?;
    }
    Ok(())
}

/// Dimensions from the outermost to the innermost stride, if the memory is dense and not row-major.
/// Strides of unit dimensions are ignored.
fn order(sizes: &[Option<i64>], strides: &[i64]) -> Option<Vec<i64>> {
    let (ones, mut rest): (Vec<usize>, Vec<usize>) =
        (0..sizes.len()).partition(|d| sizes[*d] == Some(1));
    rest.sort_by_key(|d| std::cmp::Reverse(strides[*d]));
    let mut expected = Some(1);
    for d in rest.iter().rev() {
        // Only the outermost dimension may be dynamic.
        if strides[*d] != expected? {
            return None;
        }
        expected = sizes[*d].and_then(|n| n.checked_mul(strides[*d]));
    }
    let sorted = rest.is_sorted();
    (!sorted).then(|| ones.into_iter().chain(rest).map(|d| d as i64).collect())
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn dense_permutations_have_a_memory_order() {
        let known = |n: &[i64]| n.iter().map(|n| Some(*n)).collect::<Vec<_>>();
        assert_eq!(order(&known(&[2, 3, 4, 5]), &[60, 1, 15, 3]), Some(vec![0, 2, 3, 1]));
        assert_eq!(order(&[None, Some(3), Some(4)], &[12, 1, 3]), Some(vec![0, 2, 1]));
        assert_eq!(order(&known(&[4, 1, 3]), &[1, 99, 4]), Some(vec![1, 2, 0]));
        // Row-major, with gaps, broadcast, and dynamic in an inner dimension.
        assert_eq!(order(&known(&[4, 1, 3]), &[3, 7, 1]), None);
        assert_eq!(order(&known(&[4, 3]), &[1, 5]), None);
        assert_eq!(order(&known(&[4, 3]), &[0, 1]), None);
        assert_eq!(order(&[Some(3), None], &[1, 3]), Some(vec![1, 0]));
        assert_eq!(order(&[Some(3), None], &[5, 1]), None);
    }
}
