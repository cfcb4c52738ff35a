//! Launches of library functions in `kiln_runtime::library`, which take their arguments as an array
//! of words on the stack.
use crate::{program::argument_array::ArgumentArray, target::kernel_attrs::SIZES};
use kiln_dialects::{error::Kind, ir::*, ops::Launch, rules::tensor_type};
use kiln_runtime::library::DtypeCode;

/// The entry of `kiln.kernel` for a library call.
pub struct Library {
    /// Symbol of the library function.
    pub callee: String,
    /// For each tensor operand of the op, the launch input it is.
    pub operands: Vec<usize>,
    /// For each result of the op, the launch output it is; `None` if nobody reads it.
    pub results: Vec<Option<usize>>,
    /// The op's attributes, encoded as words.
    pub config: Vec<i64>,
}

impl Library {
    /// Reads a kernel's module; `None` for a kernel that kiln compiles.
    pub fn of(kernel: Op) -> Option<Library> {
        let about = kernel.attr("kiln.kernel")?;
        let list = |key: &str| about.entry(key).and_then(Attr::as_i64s);
        Some(Library {
            callee: about.entry("callee")?.as_string()?,
            operands: list("operands")?.into_iter().map(|i| i as usize).collect(),
            results: list("results")?.into_iter().map(|i| usize::try_from(i).ok()).collect(),
            config: list("config")?,
        })
    }
    /// Adds this to the attributes of a kernel's module.
    pub fn describe(&self, kernel: Op) {
        let c = kernel.ctx();
        let old = kernel.attr("kiln.kernel").and_then(|a| a.entries()).unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> =
            old.iter().filter(|(n, _)| n != "kind").map(|(n, a)| (n.as_str(), *a)).collect();
        let operands: Vec<i64> = self.operands.iter().map(|i| *i as i64).collect();
        let results: Vec<i64> = self.results.iter().map(|r| r.map_or(-1, |i| i as i64)).collect();
        entries.push(("kind", Attr::string(c, "library")));
        entries.push(("callee", Attr::string(c, &self.callee)));
        entries.push(("operands", Attr::i64s(c, &operands)));
        entries.push(("results", Attr::i64s(c, &results)));
        entries.push(("config", Attr::i64s(c, &self.config)));
        kernel.set_attr("kiln.kernel", Attr::dictionary(c, &entries));
    }

    /// Number of words that a call takes.
    pub fn word_count(&self, launch: &Launch) -> usize {
        let rank = |v: &Value| 3 + v.ty().dims().len();
        let operands = self.operands.iter().filter_map(|i| launch.inputs.get(*i)).map(rank);
        let results =
            self.results.iter().map(|r| r.and_then(|i| launch.outs.get(i)).map_or(3, rank));
        2 + operands.chain(results).sum::<usize>() + self.config.len()
    }

    /// Stores the words of a launch to `memory`. `sizes` are the sizes in the declaration, inputs
    /// first.
    pub(crate) fn write(
        &self,
        w: &mut ArgumentArray,
        launch: &Launch,
        sizes: &[Vec<i64>],
        memory: Value,
    ) -> Result<()> {
        let mut at = 0;
        let mut put = |w: &ArgumentArray, v: Value| -> Result<()> {
            let place = w.offset(memory, Some(at), None, 64)?;
            at += 1;
            llvm::store(w.b, v, place)
        };
        put(w, w.constant((self.operands.len() + self.results.len()) as i64, w.word)?)?;
        let operands = self.operands.iter().map(|i| Some(*i));
        for place in operands.chain(self.results.iter().map(|r| r.map(|i| launch.inputs.len() + i)))
        {
            let Some(place) = place else {
                let zero = w.constant(0, w.word)?;
                (0..3).try_for_each(|_| put(w, zero))?;
                continue;
            };
            let v = *launch
                .inputs
                .iter()
                .chain(&launch.outs)
                .nth(place)
                .ok_or("has fewer tensors than its kernel")?;
            let dtype = tensor_type(v.ty())?.dtype;
            let code = DtypeCode::of(dtype.name()).ok_or_else(|| {
                Error::new(
                    Kind::Unsupported,
                    format!("has a tensor of {dtype}, which has no compiled form yet"),
                )
            })?;
            let sizes = sizes.get(place).ok_or("has more tensors than its kernel")?;
            let pointer = w.pointer(v)?;
            put(w, pointer)?;
            put(w, w.constant(code as i64, w.word)?)?;
            put(w, w.constant(sizes.len() as i64, w.word)?)?;
            for n in sizes {
                let size = match usize::try_from(-1 - n) {
                    Ok(k) => {
                        w.number(*launch.sizes.get(k).ok_or("has a size that is not known")?)?
                    }
                    Err(_) => w.constant(*n, w.word)?,
                };
                put(w, size)?;
            }
        }
        put(w, w.constant(self.config.len() as i64, w.word)?)?;
        self.config.iter().try_for_each(|n| put(w, w.constant(*n, w.word)?))
    }
}

/// Tensor sizes in a kernel's declaration: static sizes, or -1 - k for the launch's k-th size.
pub fn declared_sizes(kernel: Op) -> Vec<Vec<i64>> {
    let func = blocks(kernel).into_iter().flat_map(|b| b.ops()).find(|o| o.isa::<func::Func>());
    let attrs = func.and_then(|f| f.attr("arg_attrs")).and_then(Attr::as_array).unwrap_or_default();
    attrs.into_iter().map_while(|a| a.entry(SIZES)?.as_i64s()).collect()
}
