//! Steps on a fake device that fails where a GPU would fault, and records its operations.
use super::{
    run::{Backend, CountedBuffer, Interpreter, Location},
    *,
};
use crate::program::{Dim, Expr, ExprKind, Unbacked};
use crate::{View, ViewMut};

/// A program that adds `add` to each byte; of two inputs, their sum; with `less`, whether the first
/// byte is less than `add`.
struct Kind {
    add: u8,
    less: Option<u8>,
}

#[derive(Default)]
struct Recorder {
    kinds: Vec<Kind>,
    buffers: Vec<Vec<u128>>,
    calls: usize,
    waits: usize,
    row_copies: usize,
    copies: usize,
}

/// The bytes of a tensor.
fn bytes<'a>(v: &View<'a>) -> &'a [u8] {
    // SAFETY: from a slice that long.
    unsafe { std::slice::from_raw_parts(v.data, v.shape().iter().product()) }
}

impl Backend for Recorder {
    const ALIGNMENT: usize = 16;
    fn device(&self) -> crate::DeviceId {
        crate::DeviceId::Host
    }
    fn memory(&self) -> Vec<CountedBuffer> {
        self.buffers
            .iter()
            .map(|b| CountedBuffer {
                at: b.as_ptr().cast_mut().cast(),
                len: 16 * b.len(),
                references: 0,
            })
            .collect()
    }
    fn ensure(&mut self, i: usize, bytes: usize) -> Result<(*mut u8, usize), CallError> {
        if i == self.buffers.len() {
            self.buffers.push(vec![]);
        }
        self.buffers[i] = vec![0x55; bytes.div_ceil(16).max(1)];
        Ok((self.buffers[i].as_mut_ptr().cast(), 16 * self.buffers[i].len()))
    }
    fn copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), CallError> {
        self.copies += 1;
        // SAFETY: values of that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }
    fn copy_rows(
        &mut self,
        from: (*const u8, usize),
        to: (*mut u8, usize),
        bytes: usize,
        rows: usize,
    ) -> Result<(), CallError> {
        self.row_copies += 1;
        for i in 0..rows {
            // SAFETY: rows of that many bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(from.0.add(i * from.1), to.0.add(i * to.1), bytes)
            };
        }
        Ok(())
    }
    fn read_size(&mut self, at: *const u8) -> Result<i64, CallError> {
        self.waits += 1;
        // SAFETY: the scalar of a step.
        Ok(unsafe { at.cast::<i64>().read_unaligned() })
    }
    fn read_condition(&mut self, at: *const u8) -> Result<bool, CallError> {
        self.waits += 1;
        // SAFETY: a byte.
        Ok(unsafe { *at != 0 })
    }
    fn call(
        &mut self,
        part: usize,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        self.calls += 1;
        let at =
            inputs.iter().map(|v| v.data as usize).chain(outputs.iter().map(|v| v.data as usize));
        assert!(
            at.into_iter().all(|a| a.is_multiple_of(16)),
            "a tensor begins where wide accesses do not"
        );
        let (kind, first) = (&self.kinds[part], bytes(&inputs[0]));
        let made: Vec<u8> = match kind.less {
            Some(limit) => vec![u8::from(first[0] < limit)],
            None => (0..first.len())
                .map(|i| first[i] + kind.add + inputs.get(1).map_or(0, |v| bytes(v)[i]))
                .collect(),
        };
        for out in outputs {
            assert!(
                inputs.iter().all(|v| v.data != out.data.cast_const()),
                "a result lies where an argument is read"
            );
            out.bytes_mut().copy_from_slice(&made);
        }
        Ok(())
    }
    fn custom(
        &mut self,
        _: &str,
        f: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        f(inputs, outputs).map_err(|e| tensor_error("custom call", "", e.to_string()))
    }
}

fn tensor(dims: &[i64]) -> Tensor {
    Tensor {
        name: "x".into(),
        dtype: "i8".into(),
        dims: dims.iter().map(|d| Dim::Known(*d)).collect(),
        order: vec![],
    }
}

fn part(inputs: usize, outputs: usize) -> Program {
    Program {
        inputs: vec![tensor(&[3]); inputs],
        outputs: vec![tensor(&[3]); outputs],
        ..Default::default()
    }
}

/// A control-flow program with values of these sizes; the first are the arguments.
fn program(
    values: &[&[i64]],
    steps: Vec<Step>,
    args: &[usize],
    yields: &[usize],
    parts: Vec<Program>,
) -> Program {
    let value = |dims: &&[i64]| Value {
        dtype: "i8".into(),
        dims: dims.iter().map(|d| Dim::Known(*d)).collect(),
    };
    let of = |all: &[usize]| all.iter().map(|i| tensor(values[*i])).collect();
    let body = Body { args: args.to_vec(), steps, yields: yields.to_vec() };
    let control = Control { parts, values: values.iter().map(value).collect(), body };
    Program {
        inputs: of(args),
        outputs: of(yields),
        control: Some(control.into()),
        ..Default::default()
    }
}

fn run(program: &Program, backend: &mut Recorder, inputs: &[&[u8]], outputs: &mut [Vec<u128>]) {
    let flow = ControlFlow::new(program).expect("a program");
    let sizes = CallSizes::new(program, vec![]).expect("sizes");
    let shapes = flow.shapes(program, &sizes).expect("shapes");
    let copies: Vec<Vec<u128>> = inputs
        .iter()
        .map(|b| {
            let mut copy = vec![0u128; b.len().div_ceil(16)];
            // SAFETY: room for them.
            unsafe { std::ptr::copy_nonoverlapping(b.as_ptr(), copy.as_mut_ptr().cast(), b.len()) };
            copy
        })
        .collect();
    let args: Vec<Location> =
        copies.iter().map(|c| Location::borrowed(c.as_ptr().cast_mut().cast())).collect();
    let results: Vec<Location> =
        outputs.iter_mut().map(|o| Location::borrowed(o.as_mut_ptr().cast())).collect();
    Interpreter::new(&flow, program, &sizes, &shapes, backend)
        .execute(&args, &results)
        .expect("a call");
}

fn first(of: &[u128], n: usize) -> Vec<u8> {
    of.iter().flat_map(|w| w.to_ne_bytes()).take(n).collect()
}

fn call(part: usize, inputs: &[usize], results: &[usize]) -> Step {
    Step::Call { part, inputs: inputs.to_vec(), results: results.to_vec() }
}

#[test]
fn a_scan_never_waits_and_its_slices_lie_where_programs_can_read_them() {
    // Rows of 3 bytes: carried 2 = 2 + 3, and the stacked slices are the same sums.
    let body = Body { args: vec![2, 3], steps: vec![call(0, &[2, 3], &[4])], yields: vec![4, 4] };
    let scan = Step::Scan {
        inits: vec![0],
        inputs: vec![1],
        reverse: true,
        body,
        results: vec![5, 6],
        source: String::new(),
    };
    let p = program(
        &[&[3], &[4, 3], &[3], &[3], &[3], &[3], &[4, 3]],
        vec![scan],
        &[0, 1],
        &[5, 6],
        vec![part(2, 1)],
    );
    let mut backend = Recorder { kinds: vec![Kind { add: 0, less: None }], ..Default::default() };
    let mut outputs = vec![vec![0u128; 1], vec![0u128; 1]];
    for turn in 0..3 {
        run(
            &p,
            &mut backend,
            &[&[1, 1, 1], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]],
            &mut outputs,
        );
        assert_eq!(first(&outputs[0], 3), [23, 27, 31]);
        assert_eq!(first(&outputs[1], 12), [23, 27, 31, 22, 25, 28, 18, 20, 22, 11, 12, 13]);
        assert_eq!(
            (backend.waits, backend.calls, backend.row_copies),
            (0, 4 * (turn + 1), 2 * (turn + 1))
        );
    }
    assert_eq!(
        backend.buffers.len(),
        2,
        "padded slices, one argument and one result; rows are the carried values themselves"
    );
}

#[test]
fn a_loop_waits_once_a_step_and_takes_turns_with_few_buffers() {
    // While its first byte is less than 200: add 1, in a branch that is always taken.
    let condition = Body { args: vec![1], steps: vec![call(1, &[1], &[2])], yields: vec![2] };
    let then = Body { steps: vec![call(0, &[3], &[4])], yields: vec![4], ..Default::default() };
    let otherwise = Body { yields: vec![3], ..Default::default() };
    let choose =
        Step::If { condition: 6, then, otherwise, results: vec![5], source: String::new() };
    let body = Body { args: vec![3], steps: vec![call(1, &[3], &[6]), choose], yields: vec![5] };
    let step =
        Step::While { inits: vec![0], condition, body, results: vec![7], source: String::new() };
    let less =
        Program { inputs: vec![tensor(&[3])], outputs: vec![tensor(&[])], ..Default::default() };
    let values: [&[i64]; 8] = [&[3], &[3], &[], &[3], &[3], &[3], &[], &[3]];
    let p = program(&values, vec![step], &[0], &[7], vec![part(1, 1), less]);
    let kinds = vec![Kind { add: 1, less: None }, Kind { add: 0, less: Some(200) }];
    let mut backend = Recorder { kinds, ..Default::default() };
    let mut outputs = vec![vec![0u128; 1]];
    run(&p, &mut backend, &[&[100, 2, 3]], &mut outputs);
    assert_eq!(first(&outputs[0], 3), [200, 102, 103]);
    // One condition of the loop and one of the branch for each of 100 steps, and the loop's last.
    assert_eq!((backend.waits, backend.calls), (201, 301));
    assert!(backend.buffers.len() <= 4, "{} buffers", backend.buffers.len());
    // The loop-carried value is copied once, to the caller.
    assert_eq!(backend.copies, 1);
}

#[test]
fn what_a_program_does_not_have_is_an_error() {
    let p = |step: Step| program(&[&[3], &[3]], vec![step], &[0], &[1], vec![part(1, 1)]);
    let said = |step| ControlFlow::new(&p(step)).err().expect("refused").to_string();
    assert!(said(call(1, &[0], &[1])).contains("calls part 1, which does not exist"));
    assert!(said(call(0, &[0], &[2])).contains("has a step with value 2, which does not exist"));
    assert!(said(call(0, &[0, 0], &[1])).contains("has a call that does not fit"));
    let custom = Step::Custom {
        callee: "test::nobody".into(),
        inputs: vec![0],
        results: vec![1],
        source: String::new(),
    };
    assert!(said(custom).contains("is not registered in this process"));
    let mut other = p(call(0, &[0], &[1]));
    other.outputs[0].dtype = "f32".into();
    assert!(
        ControlFlow::new(&other)
            .err()
            .expect("refused")
            .to_string()
            .contains("other arguments and results")
    );
}

/// A result of 9 - u elements, of a size u up to 9: the caller has memory for none.
#[test]
fn a_result_larger_than_its_bound_is_an_error() {
    let value = |dtype: &str, dims: &[Dim]| Value { dtype: dtype.into(), dims: dims.to_vec() };
    let spec = |v: &Value| Tensor {
        name: "x".into(),
        dtype: v.dtype.clone(),
        dims: v.dims.clone(),
        order: vec![],
    };
    let exprs = vec![
        Expr { kind: ExprKind::Mul, lhs: Dim::Symbol(0), rhs: Dim::Known(-1) },
        Expr { kind: ExprKind::Add, lhs: Dim::Known(9), rhs: Dim::Expr(0) },
    ];
    let values = vec![
        value("i64", &[]),
        value("i8", &[Dim::Symbol(0), Dim::Known(0)]),
        value("i8", &[Dim::Expr(1)]),
    ];
    let read = Step::UnbackedSize { value: 0, result: vec![1], source: String::new() };
    let part = Program {
        inputs: vec![spec(&values[1])],
        outputs: vec![spec(&values[2])],
        ..Default::default()
    };
    let body = Body { args: vec![0], steps: vec![read, call(0, &[1], &[2])], yields: vec![2] };
    let unbacked = Unbacked { name: "u".into(), min: 0, max: Dim::Known(9), output: None };
    let p = Program {
        inputs: vec![spec(&values[0])],
        outputs: vec![spec(&values[2])],
        exprs,
        unbacked: vec![unbacked],
        control: Some(Control { parts: vec![part], values, body }.into()),
        ..Default::default()
    };
    let flow = ControlFlow::new(&p).expect("a program");
    let sizes = CallSizes::new(&p, vec![]).expect("sizes");
    let shapes = flow.shapes(&p, &sizes).expect("shapes");
    let (u, mut out) = (2i64, [0u128]);
    let args = [Location::borrowed(std::ptr::from_ref(&u).cast_mut().cast())];
    let results = [Location::borrowed(out.as_mut_ptr().cast())];
    let mut backend = Recorder::default();
    let e = Interpreter::new(&flow, &p, &sizes, &shapes, &mut backend).execute(&args, &results);
    let e = e.expect_err("an error").to_string();
    assert!(e.contains("[7]") && e.contains("[0]") && backend.calls == 0, "{e}");
}
