//! Source locations.
use super::*;

/// A location: file:line:col, a name, a call site, or fused locations.
#[derive(Clone, Copy, Debug)]
pub struct Loc(pub(crate) MlirLocation);

impl Loc {
    /// No location. For tests and IR without a source; ops derived from ops take theirs.
    pub fn unknown(c: Ctx) -> Loc {
        Loc(unsafe { mlirLocationUnknownGet(c.raw()) })
    }
    /// A file location; lines and columns count from 1.
    pub fn file(c: Ctx, file: &str, line: u32, col: u32) -> Loc {
        Loc(unsafe { mlirLocationFileLineColGet(c.raw(), sref(file), line, col) })
    }
    /// A named location; SSA names come from it.
    pub fn named(self, name: &str) -> Loc {
        Loc(unsafe { mlirLocationNameGet(mlirLocationGetContext(self.0), sref(name), self.0) })
    }
    /// A call-site location.
    pub fn called_from(self, caller: Loc) -> Loc {
        Loc(unsafe { mlirLocationCallSiteGet(self.0, caller.0) })
    }
    /// A fused location without duplicates.
    pub fn fused(c: Ctx, all: &[Loc]) -> Loc {
        let all: Vec<MlirLocation> = all.iter().map(|l| l.0).collect();
        Loc(unsafe {
            mlirLocationFusedGet(c.raw(), all.len() as isize, all.as_ptr(), mlirAttributeGetNull())
        })
    }
    /// The locations of a fused (or named fused) location; else itself.
    pub fn parts(self) -> Vec<Loc> {
        unsafe {
            let inner = if mlirLocationIsAName(self.0) {
                mlirLocationNameGetChildLoc(self.0)
            } else {
                self.0
            };
            if !mlirLocationIsAFused(inner) {
                return vec![self];
            }
            let mut parts = vec![inner; mlirLocationFusedGetNumLocations(inner) as usize];
            mlirLocationFusedGetLocations(inner, parts.as_mut_ptr());
            parts.into_iter().map(Loc).collect()
        }
    }
    /// The source locations, innermost first: `file:line:col` and `"name"`.
    pub fn chain(self) -> Vec<String> {
        let mut out = vec![];
        // Iterative, since untrusted files may nest locations deeply.
        let mut stack = vec![self.0];
        while let Some(l) = stack.pop() {
            unsafe {
                if mlirLocationIsAFileLineColRange(l) {
                    let file = text(mlirIdentifierStr(mlirLocationFileLineColRangeGetFilename(l)));
                    let (line, col) = (
                        mlirLocationFileLineColRangeGetStartLine(l),
                        mlirLocationFileLineColRangeGetStartColumn(l),
                    );
                    out.push(format!("{file}:{line}:{col}"));
                } else if mlirLocationIsACallSite(l) {
                    stack.push(mlirLocationCallSiteGetCaller(l));
                    stack.push(mlirLocationCallSiteGetCallee(l));
                } else if mlirLocationIsAName(l) {
                    out.push(format!(
                        "\"{}\"",
                        text(mlirIdentifierStr(mlirLocationNameGetName(l)))
                    ));
                    stack.push(mlirLocationNameGetChildLoc(l));
                } else if mlirLocationIsAFused(l) {
                    let mut parts = vec![l; mlirLocationFusedGetNumLocations(l) as usize];
                    mlirLocationFusedGetLocations(l, parts.as_mut_ptr());
                    stack.extend(parts.into_iter().rev());
                }
            }
        }
        out
    }
    /// The innermost file, line and column.
    pub fn file_line_col(self) -> Option<(String, u32, u32)> {
        self.chain().iter().find_map(|part| {
            let (rest, col) = part.rsplit_once(':')?;
            let (file, line) = rest.rsplit_once(':')?;
            Some((file.to_string(), line.parse().ok()?, col.parse().ok()?))
        })
    }
    /// Emits an error diagnostic here.
    pub fn emit_error(self, message: &str) {
        let message = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
        unsafe { mlirEmitError(self.0, message.as_ptr()) }
    }
    /// The outermost name, if the location is a name.
    pub fn name(self) -> Option<String> {
        unsafe {
            mlirLocationIsAName(self.0)
                .then(|| text(mlirIdentifierStr(mlirLocationNameGetName(self.0))))
        }
    }
    /// The source locations of the ops that this location fuses, such as `gelu (model.py:12)`, in
    /// order, without duplicates.
    pub fn sources(self) -> Vec<String> {
        let mut all: Vec<String> = vec![];
        for part in self.parts().into_iter().rev() {
            let place = part.file_line_col().map(|(file, line, _)| format!("{file}:{line}"));
            let text = match (part.name(), place) {
                (Some(name), Some(place)) => format!("{name} ({place})"),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => continue,
            };
            if !all.contains(&text) {
                all.push(text);
            }
        }
        all
    }
}

impl PartialEq for Loc {
    fn eq(&self, other: &Loc) -> bool {
        unsafe { mlirLocationEqual(self.0, other.0) }
    }
}
impl Eq for Loc {}

impl std::fmt::Display for Loc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let chain = self.chain();
        if chain.is_empty() {
            f.write_str("unknown location")
        } else {
            f.write_str(&chain.join(" <- "))
        }
    }
}
