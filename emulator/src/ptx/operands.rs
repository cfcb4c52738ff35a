//! Operands of an instruction, as slots and addresses.
use super::{
    code::{Address, InitialValue, Slot, Space},
    error::Error,
    lex::number,
    parse::{Entry, Operand},
};
use std::collections::{BTreeMap, HashMap};

/// State space and address of variables: an offset in shared or local memory, or a device address.
pub type VariableMap = HashMap<String, (Space, u64)>;

/// The decoder of one kernel's operands.
pub struct OperandDecoder<'a> {
    pub(super) entry: &'a Entry,
    pub(super) variables: &'a VariableMap,
    pub(super) params: HashMap<&'a str, usize>,
    pub(super) initial_values: BTreeMap<String, (Slot, InitialValue)>,
    pub(super) next: Slot,
    pub(super) line: u32,
    pub(super) scope: usize,
}

impl<'a> OperandDecoder<'a> {
    /// An error at this instruction.
    pub fn fail<T>(&self, what: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.line, what: what.into() })
    }
    /// The slot of an initial value.
    pub fn initial(&mut self, initial: InitialValue) -> Slot {
        let next = &mut self.next;
        self.initial_values
            .entry(format!("{initial:?}"))
            .or_insert_with(|| {
                *next += 1;
                (*next - 1, initial)
            })
            .0
    }
    /// The slot of an immediate.
    pub fn constant(&mut self, value: u64) -> Slot {
        self.initial(InitialValue::Number(value))
    }
    fn register(&self, name: &str) -> Option<Slot> {
        let mut scope = Some(self.scope);
        while let Some(s) = scope {
            if let Some(slot) = self.entry.registers.get(&(s, name.to_string())) {
                return Some(*slot);
            }
            let family = self.entry.families.iter().find_map(|(at, prefix, first, count)| {
                let number: u32 =
                    name.strip_prefix(prefix.as_str()).filter(|_| *at == s)?.parse().ok()?;
                (number < *count).then_some(first + number)
            });
            if family.is_some() {
                return family;
            }
            scope = self.entry.scopes[s];
        }
        None
    }
    fn special(name: &str) -> Option<InitialValue> {
        let axis = |rest: &str| ["x", "y", "z"].iter().position(|a| *a == rest);
        Some(match name.trim_start_matches('%').split_once('.') {
            Some(("tid", a)) => InitialValue::Thread(axis(a)?),
            Some(("ntid", a)) => InitialValue::Threads(axis(a)?),
            Some(("ctaid", a)) => InitialValue::Block(axis(a)?),
            Some(("nctaid", a)) => InitialValue::Blocks(axis(a)?),
            Some(("cluster_ctaid", "x")) => InitialValue::Rank,
            Some(("cluster_nctaid", "x")) => InitialValue::Ranks,
            Some(("clusterid", "x")) => InitialValue::Cluster,
            Some(("nclusterid", "x")) => InitialValue::Clusters,
            Some(("cluster_ctaid" | "clusterid", _)) => InitialValue::Number(0),
            Some(("cluster_nctaid" | "nclusterid", _)) => InitialValue::Number(1),
            _ => match name {
                "%laneid" => InitialValue::Lane,
                "%warpid" => InitialValue::Warp,
                "%cluster_ctarank" => InitialValue::Rank,
                "%cluster_nctarank" => InitialValue::Ranks,
                "%lanemask_lt" => InitialValue::Below(false),
                "%lanemask_le" => InitialValue::Below(true),
                "%lanemask_gt" => InitialValue::Above(false),
                "%lanemask_ge" => InitialValue::Above(true),
                "%lanemask_eq" => return None,
                "%dynamic_smem_size" => InitialValue::Dynamic,
                // It has no time.
                "%clock" => InitialValue::Number(0),
                "WARP_SZ" => InitialValue::Number(32),
                _ => return None,
            },
        })
    }
    /// The slot of a source operand.
    pub fn source(&mut self, operand: &Operand) -> Result<Slot, Error> {
        match operand {
            Operand::Number(n) => Ok(self.constant(*n)),
            Operand::Name(name) => {
                if let Some(slot) = self.register(name) {
                    return Ok(slot);
                }
                if let Some(offset) = self.params.get(name.as_str()) {
                    let offset = *offset;
                    return Ok(self.initial(InitialValue::Param(offset)));
                }
                match self.variables.get(name) {
                    Some((Space::Shared, at)) => return Ok(self.initial(InitialValue::Shared(*at))),
                    Some((_, at)) => return Ok(self.constant(*at)),
                    None => {}
                }
                match Self::special(name).or_else(|| number(name).map(InitialValue::Number)) {
                    Some(initial) => Ok(self.initial(initial)),
                    None => self.fail(format!("{name} is not declared")),
                }
            }
            other => self.fail(format!("{other:?} is not a value")),
        }
    }
    /// A source predicate, and whether it is negated.
    pub fn predicate(&mut self, operand: &Operand) -> Result<(Slot, bool), Error> {
        match operand {
            Operand::Not(name) => Ok((self.source(&Operand::Name(name.clone()))?, true)),
            other => Ok((self.source(other)?, false)),
        }
    }
    /// The slot of a destination; None for `_`.
    pub fn maybe(&mut self, operand: &Operand) -> Result<Option<Slot>, Error> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(None),
            Operand::Name(name) => match self.register(name) {
                Some(slot) => Ok(Some(slot)),
                None => self.fail(format!("{name} is not a register")),
            },
            other => self.fail(format!("{other:?} is not a register")),
        }
    }
    /// The slot of a destination that must exist.
    pub fn result(&mut self, operand: &Operand) -> Result<Slot, Error> {
        match self.maybe(operand)? {
            Some(slot) => Ok(slot),
            // A discarded result.
            None => {
                self.next += 1;
                Ok(self.next - 1)
            }
        }
    }
    /// A destination vector in braces, or a scalar.
    pub fn results(&mut self, operand: &Operand) -> Result<Vec<Option<Slot>>, Error> {
        match operand {
            Operand::List(all) => all.iter().map(|o| self.maybe(o)).collect(),
            instruction => Ok(vec![self.maybe(instruction)?]),
        }
    }
    /// A source vector in braces, or a scalar.
    pub fn sources(&mut self, operand: &Operand) -> Result<Vec<Slot>, Error> {
        match operand {
            Operand::List(all) => all.iter().map(|o| self.source(o)).collect(),
            instruction => Ok(vec![self.source(instruction)?]),
        }
    }
    /// An address operand, with the operands that follow in its brackets.
    pub fn address<'o>(&mut self, operand: &'o Operand) -> Result<(Address, &'o [Operand]), Error> {
        match operand {
            Operand::At { base, offset, more } => {
                Ok((Address { base: self.source(base)?, offset: *offset }, more))
            }
            other => self.fail(format!("{other:?} is not an address")),
        }
    }
    pub(super) fn label(&self, name: &str) -> Result<usize, Error> {
        let mut scope = Some(self.scope);
        while let Some(s) = scope {
            if let Some(at) = self.entry.labels.get(&(s, name.to_string())) {
                return Ok(*at);
            }
            scope = self.entry.scopes[s];
        }
        self.fail(format!("label {name} is not defined"))
    }
}

/// The state space of an instruction name such as `ld.global.nc.b32`.
pub fn space(parts: &[&str]) -> Space {
    let named = |p: &&str| match p.split("::").next().unwrap_or_default() {
        "global" | "const" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        "local" => Some(Space::Local),
        "param" => Some(Space::Param),
        _ => None,
    };
    parts.iter().find_map(named).unwrap_or(Space::Generic)
}
