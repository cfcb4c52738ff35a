//! Code of a thread: for each pass its butterflies' numbers, loaded, transformed and stored.
use super::{
    Params, Pattern,
    butterfly::{Butterfly, Complex, times},
    roots::root,
};
use crate::{
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    math::emit::Emit,
    strategies::gpu::common::{ptx::Ptx, threads},
};
use kiln_dialects::{ir::*, ops::FftKind};

const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// Emits the kernel.
pub fn emit(c: Code, scope: &Scope<'_>, pattern: &Pattern<'_>, params: &Params) -> Result<()> {
    let p = Ptx(c);
    let extents = pattern.stage.extents.iter().take(pattern.outer());
    let sizes = extents.map(|n| scope.poly(c, n)).collect::<Result<Vec<_>>>()?;
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let thread = p.thread_id()?;
    let (rows, across) = (params.rows_per_cta, params.row_threads);
    let (thread, row) = match rows {
        1 if params.threads() == across => (thread, p.number(0)?),
        // Threads beyond the last row redo what others of it do.
        _ => {
            let row = p.min(p.div_const(thread, across)?, p.number(rows - 1)?)?;
            (p.rem_const(thread, across)?, row)
        }
    };
    let memory = match pattern.radices.len() {
        0 | 1 => None,
        _ => {
            let base = p.dynamic_shared(scope.kernel.func)?;
            Some(p.add(base, p.mul_const(row, 2 * pattern.part_bytes())?)?)
        }
    };
    threads::for_each_tile_of(c, c.index(rows as i64)?, total, &mut |c, first, _| {
        let p = Ptx(c);
        let row = c.add(first, p.i32_to_index(row)?)?;
        let (mut active, mut own) = (None, row);
        if rows > 1 {
            let there = c.less_than(row, total)?;
            (active, own) = (Some(there), c.select(there, row, first)?);
        }
        let outer = decode(c, own, &sizes)?;
        Row { p, scope, pattern, across, thread, memory, outer, active }.emit()?;
        Ok(vec![])
    })
    .map(drop)
}

/// A pass: its radix, and the length of the transforms before it.
#[derive(Clone, Copy)]
struct Pass {
    radix: usize,
    done: usize,
}

/// A thread's part of a row.
struct Row<'a> {
    p: Ptx,
    scope: &'a Scope<'a>,
    pattern: &'a Pattern<'a>,
    /// Threads of the row.
    across: usize,
    thread: Value,
    /// The address of the row in shared memory.
    memory: Option<Value>,
    /// Indices of the loops around it.
    outer: Vec<Value>,
    /// Predicate: whether its results are stored; `None` if always.
    active: Option<Value>,
}

impl Row<'_> {
    fn emit(&self) -> Result<()> {
        let mut done = 1;
        for radix in self.pattern.radices.iter().map(|r| *r as usize) {
            let pass = Pass { radix, done };
            let places = self.butterflies(pass)?;
            let mut all = vec![];
            for place in &places {
                all.push(self.transformed(pass, *place)?);
            }
            done *= radix;
            if done == self.pattern.n {
                for (place, numbers) in places.iter().zip(&all) {
                    self.write(pass, *place, numbers)?;
                }
                break;
            }
            // WAR barrier: all threads have loaded, of this row or of an earlier one.
            threads::barrier(self.p.0)?;
            for (place, numbers) in places.iter().zip(&all) {
                self.exchange(pass, *place, numbers)?;
            }
            threads::barrier(self.p.0)?;
        }
        Ok(())
    }

    /// The thread's butterflies of a pass. Those past the last one redo it.
    fn butterflies(&self, pass: Pass) -> Result<Vec<Value>> {
        let (p, count) = (self.p, self.pattern.n / pass.radix);
        (0..count.div_ceil(self.across))
            .map(|i| {
                let place = p.add_const(self.thread, i * self.across)?;
                let whole = (i + 1) * self.across <= count;
                if whole { Ok(place) } else { p.min(place, p.number(count - 1)?) }
            })
            .collect()
    }

    fn float(&self) -> Result<Emit> {
        let ty = self.pattern.fft.re.ty();
        Ok(Emit::new(self.p.0.into(), ty, ty.dtype()?).ok_or("is of no float type")?)
    }

    /// The numbers of a butterfly after it.
    fn transformed(&self, pass: Pass, place: Value) -> Result<Vec<Complex>> {
        let (p, e, inverse) = (self.p, self.float()?, self.pattern.fft.inverse);
        let apart = self.pattern.n / pass.radix;
        // Roots of unity are the same for each row of the thread, and too many to keep.
        let within = match pass.done {
            1 => place,
            done => p.pinned(p.rem_const(place, done)?)?,
        };
        let mut all = vec![];
        for q in 0..pass.radix {
            let at = p.add_const(place, q * apart)?;
            let mut x = if pass.done == 1 { self.read(&e, at)? } else { self.load(at)? };
            if pass.done > 1 && q > 0 {
                let m = p.mul_const(within, q)?;
                x = times(&e, x, root(&e, m, pass.done * pass.radix, inverse)?)?;
            }
            all.push(x);
        }
        Butterfly { e: &e, inverse }.transform(&all)
    }

    /// Number `at` of the operand, in memory.
    fn read(&self, e: &Emit, at: Value) -> Result<Complex> {
        let (p, fft, n) = (self.p, &self.pattern.fft, self.pattern.n);
        let c = p.0;
        if fft.kind != FftKind::C2r {
            return Ok(Complex {
                re: self.value(fft.re, at)?,
                im: fft.im.map(|im| self.value(im, at)).transpose()?,
            });
        }
        // The second half of a spectrum are conjugates of the first.
        let middle = p.number(n / 2)?;
        let mirrored = c.compare(CmpIPredicate::Ugt, at, middle)?;
        let from = c.select(mirrored, p.sub(p.number(n)?, at)?, at)?;
        let im = self.value(fft.im.ok_or("has no imaginary part")?, from)?;
        let im = c.select(mirrored, e.neg(im)?, im)?;
        let im = c.select(self.real(at)?, e.c(0.0)?, im)?;
        Ok(Complex { re: self.value(fft.re, from)?, im: Some(im) })
    }

    /// Whether a number of the spectrum of real ones is its own conjugate.
    fn real(&self, at: Value) -> Result<Value> {
        let (p, n) = (self.p, self.pattern.n);
        let first = p.eq_const(at, 0)?;
        match n.is_multiple_of(2) {
            true => arith::ori(p, first, p.eq_const(at, n / 2)?),
            false => Ok(first),
        }
    }

    /// An element of a value of the stage's body.
    fn value(&self, v: Value, at: Value) -> Result<Value> {
        let (c, none) = (self.p.0, ForwardedElements::new());
        let dims = self.dims(c.index(0)?, self.p.i32_to_index(at)?);
        let made = self.scope.body_value(c, self.pattern.stage, v, &dims, ONE_LANE, &none)?;
        ONE_LANE.vector(c, made)
    }

    /// Values of all loops.
    fn dims(&self, result: Value, operand: Value) -> Vec<LaneValue> {
        let outer = self.outer.iter().copied();
        outer.chain([result, operand]).map(LaneValue::Uniform).collect()
    }

    /// Stores the numbers of a butterfly of the last pass as results.
    fn write(&self, pass: Pass, place: Value, numbers: &[Complex]) -> Result<()> {
        let (p, c, e) = (self.p, self.p.0, self.float()?);
        let (n, half) = (self.pattern.n, self.pattern.fft.kind == FftKind::R2c);
        let count = if half { n / 2 + 1 } else { n };
        for (q, x) in numbers.iter().enumerate().filter(|(q, _)| q * pass.done < count) {
            let at = p.add_const(place, q * pass.done)?;
            let inside = match (q + 1) * pass.done <= count {
                true => None,
                false => Some(c.less_than(at, p.number(count)?)?),
            };
            let predicates: Vec<Value> = [self.active, inside].into_iter().flatten().collect();
            let scope = Scope { store_predicate: c.all_of(&predicates)?, ..self.scope.clone() };
            let dims = self.dims(p.i32_to_index(at)?, c.index(0)?);
            let mut im = x.im.map_or_else(|| e.c(0.0), Ok)?;
            if half {
                im = c.select(self.real(at)?, e.c(0.0)?, im)?;
            }
            for (out, v) in self.pattern.stage.outputs.iter().zip([x.re, im]) {
                scope.write(c, out, &dims, ONE_LANE, LaneValue::Uniform(v), false)?;
            }
        }
        Ok(())
    }

    /// The addresses in shared memory of a number's parts.
    fn addresses(&self, at: Value) -> Result<[Value; 2]> {
        let (p, pattern) = (self.p, self.pattern);
        let memory = self.memory.ok_or("has no shared memory")?;
        let padded = p.add(at, p.div_const(at, pattern.gap())?)?;
        let re = p.add(memory, p.mul_const(padded, pattern.size)?)?;
        Ok([re, p.add_const(re, pattern.part_bytes())?])
    }

    fn load(&self, at: Value) -> Result<Complex> {
        let (p, ty) = (self.p, self.pattern.fft.re.ty());
        let [re, im] = self.addresses(at)?;
        let part = |address| p.load_shared_scalar(address, ty, self.pattern.size);
        Ok(Complex { re: part(re)?, im: Some(part(im)?) })
    }

    /// Stores the numbers of a butterfly in the order of the next pass.
    fn exchange(&self, pass: Pass, place: Value, numbers: &[Complex]) -> Result<()> {
        let (p, size) = (self.p, self.pattern.size);
        let (block, within) = (p.div_const(place, pass.done)?, p.rem_const(place, pass.done)?);
        let first = p.add(p.mul_const(block, pass.done * pass.radix)?, within)?;
        let e = self.float()?;
        for (q, x) in numbers.iter().enumerate() {
            let [re, im] = self.addresses(p.add_const(first, q * pass.done)?)?;
            p.store_shared(re, x.re, size)?;
            p.store_shared(im, x.im.map_or_else(|| e.c(0.0), Ok)?, size)?;
        }
        Ok(())
    }
}
