//! The PTX parser: modules of functions with symbolic operands.
use super::{
    error::Error,
    lex::{Token, number, tokens},
};
use std::collections::BTreeMap;

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register, a variable or a label, or `_`.
    Name(String),
    /// An immediate; negative ones in two's complement.
    Number(u64),
    /// `{a, b}`.
    List(Vec<Operand>),
    /// `[base + offset]`, optionally followed by tensor coordinates or an mbarrier.
    At { base: Box<Operand>, offset: i64, more: Vec<Operand> },
    /// `!p`.
    Not(String),
    /// `a|p`.
    Pair(String, String),
}

/// A parsed instruction.
#[derive(Clone, Debug)]
pub struct ParsedInstruction {
    /// The guard predicate, and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// Its opcode with all suffixes.
    pub name: String,
    /// Its operands.
    pub operands: Vec<Operand>,
    /// Line in the PTX.
    pub line: u32,
    /// The scope (block in braces) that contains it.
    pub scope: usize,
}

/// A variable of a module or function.
#[derive(Clone, Debug)]
pub struct Variable {
    /// `shared`, `global`, `const` or `local`.
    pub space: String,
    /// Its name.
    pub name: String,
    /// Alignment in bytes.
    pub align: usize,
    /// Size in bytes; 0 for `extern` arrays, sized by the launch.
    pub size: usize,
    /// Initial bytes.
    pub bytes: Vec<u8>,
}

/// A parsed kernel.
#[derive(Debug, Default)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters: name, alignment, bytes.
    pub params: Vec<(String, usize, usize)>,
    /// Performance directives after the parameters, such as `reqntid`, with their values.
    pub limits: BTreeMap<String, Vec<u32>>,
    /// Its variables.
    pub variables: Vec<Variable>,
    /// Instructions.
    pub code: Vec<ParsedInstruction>,
    /// Labels: scope, name, index of the next instruction.
    pub labels: BTreeMap<(usize, String), usize>,
    /// The parent of each scope; the first is the kernel's.
    pub scopes: Vec<Option<usize>>,
    /// Registers by scope and name, each with its index.
    pub registers: BTreeMap<(usize, String), u32>,
    /// Parameterised registers (`%r<12>`): scope, prefix, first index, count.
    pub families: Vec<(usize, String, u32, u32)>,
    /// The number of registers.
    pub count: u32,
}

/// A parsed module.
#[derive(Debug, Default)]
pub struct Text {
    /// Module-scope variables.
    pub variables: Vec<Variable>,
    /// Its kernels.
    pub entries: Vec<Entry>,
}

/// Size in bytes of a type such as `.b32`.
pub fn width(kind: &str) -> Option<usize> {
    Some(match kind.trim_start_matches('.') {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => return None,
    })
}

struct Reader<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }
    fn fail<T>(&self, what: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.line(), what: what.into() })
    }
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|t| t.0)
    }
    fn next(&mut self) -> Result<Token<'a>, Error> {
        let Some(token) = self.peek() else { return self.fail("unexpected end of the PTX") };
        self.at += 1;
        Ok(token)
    }
    fn takes(&mut self, c: char) -> bool {
        let has = self.peek() == Some(Token::Sign(c));
        self.at += usize::from(has);
        has
    }
    fn sign(&mut self, c: char) -> Result<(), Error> {
        if self.takes(c) { Ok(()) } else { self.fail(format!("'{c}' is missing")) }
    }
    fn word(&mut self) -> Result<&'a str, Error> {
        match self.next()? {
            Token::Word(w) => Ok(w),
            _ => {
                self.at -= 1;
                self.fail("expected an identifier")
            }
        }
    }
    fn int(&mut self) -> Result<u64, Error> {
        let negative = self.takes('-');
        let word = self.word()?;
        match number(word) {
            Some(n) => Ok(if negative { n.wrapping_neg() } else { n }),
            None => self.fail(format!("{word} is not a number")),
        }
    }
    /// Skips to the next line, for directives without a terminator: `.loc 1 2 3`.
    fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|t| t.1 == line) {
            self.at += 1;
        }
    }
    /// Skips past the next `;`.
    fn skip(&mut self) -> Result<(), Error> {
        while self.next()? != Token::Sign(';') {}
        Ok(())
    }

    /// `.align 4 .b8 name[12] = {1, 2};`, after the state space.
    fn variable(&mut self, space: &str) -> Result<Variable, Error> {
        let (mut align, mut element) = (0, 0);
        let name = loop {
            match self.word()? {
                ".align" => align = self.int()? as usize,
                w if w.starts_with('.') => {
                    element = width(w)
                        .or(if w.starts_with(".v") { Some(element) } else { None })
                        .unwrap_or(element)
                }
                w => break w,
            }
        };
        let mut size = element;
        if self.takes('[') {
            size = if self.takes(']') { 0 } else { self.int()? as usize * element };
            if size != 0 {
                self.sign(']')?;
            }
        }
        let mut bytes = vec![];
        if self.takes('=') {
            let many = self.takes('{');
            loop {
                bytes.extend(&self.int()?.to_le_bytes()[..element.min(8)]);
                if !self.takes(',') {
                    break;
                }
            }
            if many {
                self.sign('}')?;
            }
        }
        self.sign(';')?;
        Ok(Variable {
            space: space.trim_start_matches('.').into(),
            name: name.into(),
            align: align.max(element),
            size,
            bytes,
        })
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        match self.next()? {
            Token::Sign('{') => {
                let mut all = vec![self.operand()?];
                while self.takes(',') {
                    all.push(self.operand()?);
                }
                self.sign('}')?;
                Ok(Operand::List(all))
            }
            Token::Sign('[') => {
                let base = Box::new(self.operand()?);
                let offset = if self.takes('+') { self.int()? as i64 } else { 0 };
                let mut more = vec![];
                while self.takes(',') {
                    more.push(self.operand()?);
                }
                self.sign(']')?;
                Ok(Operand::At { base, offset, more })
            }
            Token::Sign('-') => Ok(Operand::Number(self.int()?.wrapping_neg())),
            Token::Sign('!') => Ok(Operand::Not(self.word()?.into())),
            Token::Word(w) => match number(w) {
                Some(n) => Ok(Operand::Number(n)),
                None if self.takes('|') => Ok(Operand::Pair(w.into(), self.word()?.into())),
                None => Ok(Operand::Name(w.into())),
            },
            _ => {
                self.at -= 1;
                self.fail("no operand")
            }
        }
    }

    fn registers(&mut self, e: &mut Entry, scope: usize) -> Result<(), Error> {
        self.word()?;
        loop {
            let name = self.word()?;
            if self.takes('<') {
                let count = self.int()? as u32;
                self.sign('>')?;
                e.families.push((scope, name.into(), e.count, count));
                e.count += count;
            } else {
                e.registers.insert((scope, name.into()), e.count);
                e.count += 1;
            }
            if !self.takes(',') {
                break;
            }
        }
        self.sign(';')
    }

    fn body(&mut self, e: &mut Entry) -> Result<(), Error> {
        self.sign('{')?;
        e.scopes.push(None);
        let mut scope = 0;
        loop {
            let (token, line) = (self.next()?, self.line());
            match token {
                Token::Sign('{') => {
                    e.scopes.push(Some(scope));
                    scope = e.scopes.len() - 1;
                }
                Token::Sign('}') => match e.scopes[scope] {
                    Some(outer) => scope = outer,
                    None => return Ok(()),
                },
                Token::Sign(';') => {}
                Token::Word(".reg") => self.registers(e, scope)?,
                Token::Word(space @ (".local" | ".shared")) => {
                    let variable = self.variable(space)?;
                    e.variables.push(variable);
                }
                Token::Word(".loc" | ".file") => self.skip_line(line),
                Token::Word(w) if w.starts_with('.') => self.skip()?,
                Token::Word(label) if self.takes(':') => {
                    e.labels.insert((scope, label.into()), e.code.len());
                }
                token => {
                    let mut guard = None;
                    let name = match token {
                        Token::Sign('@') => {
                            let not = self.takes('!');
                            guard = Some((self.word()?.to_string(), not));
                            self.word()?
                        }
                        Token::Word(w) => w,
                        _ => return self.fail("no instruction"),
                    };
                    let mut operands = vec![];
                    while !self.takes(';') {
                        operands.push(self.operand()?);
                        self.takes(',');
                    }
                    e.code.push(ParsedInstruction {
                        guard,
                        name: name.into(),
                        operands,
                        line,
                        scope,
                    });
                }
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, Error> {
        let mut e = Entry { name: self.word()?.into(), ..Entry::default() };
        self.sign('(')?;
        while !self.takes(')') {
            let (mut align, mut element) = (0, 0);
            let name = loop {
                match self.word()? {
                    ".align" => align = self.int()? as usize,
                    w if w.starts_with('.') => element = width(w).unwrap_or(element),
                    w => break w,
                }
            };
            let mut size = element;
            if self.takes('[') {
                size *= self.int()? as usize;
                self.sign(']')?;
            }
            // `.ptr .global .align 1` describes the pointee; aggregate parameters have the stated
            // alignment.
            e.params.push((
                name.into(),
                if size == element { element } else { align.max(element) },
                size,
            ));
            self.takes(',');
        }
        while let Some(Token::Word(w)) = self.peek() {
            self.at += 1;
            let mut numbers = vec![];
            while let Some(Token::Word(n)) = self.peek()
                && let Some(n) = number(n)
            {
                self.at += 1;
                numbers.push(n as u32);
                self.takes(',');
            }
            e.limits.insert(w.trim_start_matches('.').into(), numbers);
        }
        self.body(&mut e)?;
        Ok(e)
    }
}

/// Parses PTX.
pub fn parse(text: &str) -> Result<Text, Error> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0 };
    let mut out = Text::default();
    while let Some((token, line)) = reader.tokens.get(reader.at).copied() {
        reader.at += 1;
        match token {
            Token::Word(".version" | ".target" | ".address_size" | ".file") => {
                reader.skip_line(line)
            }
            Token::Word(".visible" | ".extern" | ".weak") => {}
            Token::Word(".entry") => {
                let entry = reader.entry()?;
                out.entries.push(entry);
            }
            Token::Word(space @ (".shared" | ".global" | ".const")) => {
                let variable = reader.variable(space)?;
                out.variables.push(variable);
            }
            Token::Word(".section") => while reader.next()? != Token::Sign('}') {},
            Token::Word(other) => {
                return reader.fail(format!("directive {other} is not supported"));
            }
            Token::Text(_) | Token::Sign(_) => return reader.fail("expected a directive"),
        }
    }
    Ok(out)
}
