//! Random control flow: branches, short loops and scans over slices, with random steps inside,
//! nested.
use super::values::{Graph, dtype};
use kiln::dialects::{ir::*, ops::*, value::DType};

/// Nesting limit of control flow.
const DEEPEST: usize = 2;

type Made = Result<Vec<Value>, kiln_dialects::Error>;

fn yields(b: Builder, values: Vec<Value>) -> Result<(), kiln_dialects::Error> {
    b.create_with(&Yield { values }, &[], &mut []).map(|_| ())
}

/// Binds dynamic sizes.
fn bind(b: Builder, value: Value, sizes: &[Size]) -> Result<(), kiln_dialects::Error> {
    if sizes.iter().all(|s| s.known().is_some()) {
        return Ok(());
    }
    b.create_with(&BindShape { value, sizes: sizes.to_vec() }, &[], &mut []).map(|_| ())
}

/// The results of an op, with their sizes.
fn bound(b: Builder, op: Op, sizes: &[&[Size]]) -> Made {
    let results = op.results();
    results.iter().zip(sizes).try_for_each(|(v, sizes)| bind(b, *v, sizes))?;
    Ok(results)
}

impl Graph {
    /// One op with regions; nothing if no value fits.
    pub fn control(&mut self) -> Made {
        match self.random.below(4) {
            0 => self.branch(),
            1 => self.repeated(),
            n => self.sliced(n == 2),
        }
    }

    /// The graph of a region, from these numbers.
    fn with_timeout(&self, b: Builder, args: &[Value], seed: u64) -> Graph {
        Graph {
            b,
            values: [&self.values[..], args].concat(),
            random: crate::support::Random(seed),
            material: self.material,
            exact: false,
            depth: self.depth + 1,
            regional: [&self.regional[..], args].concat(),
        }
    }

    /// A 0-d `i1`, of an exact value or a constant.
    fn condition(&mut self) -> Result<Value, kiln_dialects::Error> {
        let before = std::mem::replace(&mut self.exact, self.material.continuous);
        let found = self.value(|d, _| d.is_empty());
        self.exact = before;
        let constant = self.random.below(2) as f64;
        let Some(lhs) = found.filter(|_| self.random.below(3) > 0) else {
            return self.scalar(DType::I1, constant);
        };
        let rhs = self.scalar(dtype(lhs), 1.0)?;
        self.b.add(&Compare { kind: CompareKind::Ge, lhs, rhs })
    }

    /// Random steps on a value that keep its type and sizes.
    fn grown(&mut self, x: Value) -> Result<Value, kiln_dialects::Error> {
        let all = self.material.steps.split_whitespace();
        let kinds: Vec<&str> = all.filter(|s| *s != "control" || self.depth < DEEPEST).collect();
        let mut last = None;
        for _ in 0..1 + self.random.below(3) {
            let kind = self.pick(&kinds);
            let made = self.any_step(kind)?;
            last = made.last().copied().or(last);
            self.values.extend(made);
        }
        self.exact = false;
        let Some(v) = last.filter(|v| !dtype(*v).is_float() || dtype(x).is_float()) else {
            return self.like(x);
        };
        let b = self.b;
        let wide = if dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
        let to = |input: Value, to: DType| {
            if dtype(input) == to {
                Ok(input)
            } else {
                b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) })
            }
        };
        let dims: Vec<i64> = (0..v.ty().dims().len() as i64).collect();
        let kind = if dtype(v) == DType::I1 { ReduceKind::Any } else { ReduceKind::Sum };
        let sum = b.add(&Reduce { kind, input: v, dims, maybe_empty: false })?;
        let everywhere =
            |input: Value| b.add(&BroadcastInDim { input, dims: vec![], sizes: b.sizes_of(x)? });
        match dtype(x) {
            DType::I1 => {
                let zero = b.splat(dtype(sum), &[], 0.0)?;
                let rhs =
                    everywhere(b.add(&Compare { kind: CompareKind::Ne, lhs: sum, rhs: zero })?)?;
                b.add(&Compare { kind: CompareKind::Ne, lhs: x, rhs })
            }
            t if t.is_float() => {
                // Bounded values stay bounded under repetition.
                let lhs = to(x, wide)?;
                let sum = b.add(&Add { lhs, rhs: everywhere(to(sum, wide)?)? })?;
                to(b.add(&Tanh { input: sum })?, t)
            }
            t => b.add(&Add { lhs: x, rhs: everywhere(to(sum, t)?)? }),
        }
    }

    fn branch(&mut self) -> Made {
        let (x, condition, seeds) =
            (self.any(), self.condition()?, [self.random.bits(), self.random.bits()]);
        let (graph, sizes) = (&*self, self.b.sizes_of(x)?);
        let way = |seed: u64| {
            move |b: Builder, _: Vec<Value>| {
                let mut g = graph.with_timeout(b, &[], seed);
                let y = g.grown(x)?;
                yields(b, vec![y, if g.random.below(2) == 0 { x } else { y }])
            }
        };
        let (mut then, mut otherwise) = (way(seeds[0]), way(seeds[1]));
        let made = graph.b.create_with(
            &If { condition },
            &[x.ty(), x.ty()],
            &mut [(&[], &mut then), (&[], &mut otherwise)],
        )?;
        bound(graph.b, made, &[&sizes, &sizes])
    }

    /// At most 4 iterations by a loop-carried counter; the limit is a value from inside or outside.
    fn repeated(&mut self) -> Made {
        let (x, y) = (self.any(), self.any());
        let counter = self.pick(&[DType::I32, DType::I64, DType::I16]);
        let most = self.random.below(5) as f64;
        let outside =
            if self.random.below(2) == 0 { Some(self.scalar(counter, most)?) } else { None };
        let zero = self.scalar(counter, 0.0)?;
        let (seed, graph) = (self.random.bits(), &*self);
        let (types, sizes) =
            ([zero.ty(), x.ty(), y.ty()], [self.b.sizes_of(x)?, self.b.sizes_of(y)?]);
        let mut condition = |b: Builder, args: Vec<Value>| {
            let rhs = outside.map_or_else(|| b.splat(counter, &[], most), Ok)?;
            yields(b, vec![b.add(&Compare { kind: CompareKind::Lt, lhs: args[0], rhs })?])
        };
        let mut body = |b: Builder, args: Vec<Value>| {
            args[1..].iter().zip(&sizes).try_for_each(|(v, sizes)| bind(b, *v, sizes))?;
            let mut g = graph.with_timeout(b, &args[1..], seed);
            let next = b.add(&Add { lhs: args[0], rhs: b.splat(counter, &[], 1.0)? })?;
            let grown = g.grown(args[1])?;
            // Loop-carried values may swap.
            let same = x.ty() == y.ty() && sizes[0].iter().all(|s| s.known().is_some());
            let kept = if same { args[1] } else { args[2] };
            yields(b, vec![next, grown, kept])
        };
        let made = graph.b.create_with(
            &While { inits: vec![zero, x, y] },
            &types,
            &mut [(&types, &mut condition), (&types, &mut body)],
        )?;
        bound(graph.b, made, &[&[], &sizes[0], &sizes[1]])
    }

    /// `carries`: a scan; otherwise a map over slices.
    fn sliced(&mut self, carries: bool) -> Made {
        let Some(x) = self.value(|d, _| !d.is_empty()) else { return Ok(vec![]) };
        let inputs = if self.random.below(2) == 0 { vec![x] } else { vec![x, self.like(x)?] };
        let (row, sizes) =
            (Type::tensor(self.b.ctx, dtype(x), &x.ty().dims()[1..]), self.b.sizes_of(x)?);
        let inits = if carries { vec![self.b.splat(dtype(x), &sizes[1..], 1.0)?] } else { vec![] };
        let scan = Scan { reverse: self.random.below(2) == 0, inits, inputs };
        let (seed, graph) = (self.random.bits(), &*self);
        let args = vec![row; scan.inits.len() + scan.inputs.len()];
        let mut body = |b: Builder, args: Vec<Value>| {
            args.iter().try_for_each(|v| bind(b, *v, &sizes[1..]))?;
            let mut g = graph.with_timeout(b, &args, seed);
            let mut made = vec![];
            let mut from = args[0];
            if carries {
                made.push(g.grown(from)?);
                from = args[1];
            }
            made.push(g.grown(from)?);
            // The same step again, or the slice itself.
            made.push(if g.random.below(2) == 0 { made[0] } else { args[args.len() - 1] });
            yields(b, made)
        };
        let results = [vec![row; scan.inits.len()], vec![x.ty(), x.ty()]].concat();
        let made = graph.b.create_with(&scan, &results, &mut [(&args, &mut body)])?;
        let all: Vec<&[Size]> =
            scan.inits.iter().map(|_| &sizes[1..]).chain([&sizes[..], &sizes[..]]).collect();
        bound(graph.b, made, &all)
    }
}
