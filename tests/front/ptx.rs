//! Custom ops with PTX, without a GPU: host fallbacks, errors in PTX and launches.
//! `tests/gpu/ptx.rs` runs the PTX.
use super::{control::Case, *};
use kiln::runtime::custom::UserError;
use kiln::{
    Exit, Model, Options, Ptx, custom_op,
    dialects::value::DType::*,
    tensor::{CustomOp, Dim, TensorType, TraceError},
};
use std::{
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// `z = 2.5 x + y`, one thread per element, with a tail.
pub const AXPY: &str = "
.version 7.0
.target sm_80
.address_size 64
// z = 2.5 x + y
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .u64 z, .param .u64 n)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d<8>;
  .reg .f32 %f<4>;
  ld.param.u64 %d0, [x];
  ld.param.u64 %d1, [y];
  ld.param.u64 %d2, [z];
  ld.param.u64 %d3, [n];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d4, %r0, %r1;
  cvt.u64.u32 %d5, %r2;
  add.s64 %d4, %d4, %d5;
  setp.ge.u64 %p, %d4, %d3;
  @%p bra end;
  shl.b64 %d4, %d4, 2;
  add.s64 %d0, %d0, %d4;
  add.s64 %d1, %d1, %d4;
  add.s64 %d2, %d2, %d4;
  ld.global.f32 %f0, [%d0];
  ld.global.f32 %f1, [%d1];
  mov.f32 %f2, 0f40200000;
  fma.rn.f32 %f3, %f0, %f2, %f1;
  st.global.f32 [%d2], %f3;
end:
  ret;
}
";

/// Sums of rows and of their squares: one CTA per row, with dynamic shared memory.
const ROWS: &str = "
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 parts[];
.visible .entry unused() { ret; }
.visible .entry rows(.param .u64 x, .param .u64 sums, .param .u64 squares, .param .u64 columns)
.reqntid 64, 1, 1
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %d<9>;
  .reg .f32 %f<5>;
  ld.param.u64 %d0, [x];
  ld.param.u64 %d1, [sums];
  ld.param.u64 %d2, [squares];
  ld.param.u64 %d3, [columns];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %d4, %r0;
  cvt.u64.u32 %d5, %r1;
  mul.lo.s64 %d6, %d4, %d3;
  shl.b64 %d6, %d6, 2;
  add.s64 %d0, %d0, %d6;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, 0f00000000;
column:
  setp.ge.u64 %p0, %d5, %d3;
  @%p0 bra done;
  shl.b64 %d7, %d5, 2;
  add.s64 %d7, %d0, %d7;
  ld.global.f32 %f2, [%d7];
  add.f32 %f0, %f0, %f2;
  fma.rn.f32 %f1, %f2, %f2, %f1;
  add.s64 %d5, %d5, 64;
  bra column;
done:
  mov.u32 %r2, parts;
  shl.b32 %r3, %r1, 3;
  add.s32 %r3, %r2, %r3;
  st.shared.f32 [%r3], %f0;
  st.shared.f32 [%r3+4], %f1;
  bar.sync 0;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra end;
  mov.u32 %r4, 1;
part:
  add.s32 %r2, %r2, 8;
  ld.shared.f32 %f2, [%r2];
  ld.shared.f32 %f3, [%r2+4];
  add.f32 %f0, %f0, %f2;
  add.f32 %f1, %f1, %f3;
  add.s32 %r4, %r4, 1;
  setp.lt.s32 %p2, %r4, 64;
  @%p2 bra part;
  shl.b64 %d8, %d4, 2;
  add.s64 %d1, %d1, %d8;
  add.s64 %d2, %d2, %d8;
  st.global.f32 [%d1], %f0;
  st.global.f32 [%d2], %f1;
end:
  ret;
}
";

/// The number of host computations of [`axpy`].
pub static BY_HOST: AtomicUsize = AtomicUsize::new(0);

fn count(all: &[TensorType]) -> Dim {
    all[0].1.iter().fold(Dim::from(1), |n, d| n * *d)
}

fn alike(x: &[TensorType]) -> Result<Vec<TensorType>, UserError> {
    if x.len() == 2 {
        Ok(vec![x[0].clone()])
    } else {
        Err(format!("takes 2 tensors, not {}", x.len()).into())
    }
}

fn by_host(x: &[kiln::runtime::View], z: &mut [kiln::runtime::ViewMut]) -> Result<(), UserError> {
    BY_HOST.fetch_add(1, Ordering::Relaxed);
    let [x, y] = [0, 1].map(|i| x[i].elements::<f32>());
    let (x, y, z) = (x?, y?, z[0].elements_mut::<f32>()?);
    z.iter_mut().zip(x.iter().zip(y)).for_each(|(z, (x, y))| *z = 2.5 * x + y);
    Ok(())
}

/// PTX with a host function.
pub fn axpy() -> &'static CustomOp {
    static OP: OnceLock<CustomOp> = OnceLock::new();
    OP.get_or_init(|| {
        let ptx = Ptx::new(AXPY, "axpy").threads(128).sizes(|_, z| vec![count(z)]);
        custom_op("test::axpy").shape(alike).host(by_host).ptx(ptx).register().expect("registered")
    })
}

/// PTX with a body of ops.
fn rows() -> &'static CustomOp {
    static OP: OnceLock<CustomOp> = OnceLock::new();
    OP.get_or_init(|| {
        let ptx = Ptx::new(ROWS, "rows")
            .threads(64)
            .shared(512)
            .blocks(|x, _| x[0].1[0])
            .sizes(|x, _| vec![x[0].1[1]]);
        custom_op("test::rows")
            .shape(|x| Ok(vec![(x[0].0, vec![x[0].1[0]]); 2]))
            .body(|x| Ok(vec![x[0].sum(1, false), (&x[0] * &x[0]).sum(1, false)]))
            .ptx(ptx)
            .register()
            .expect("registered")
    })
}

/// Between other ops, with computed, plain and transposed arguments, in a loop, with an unused
/// result, with one input twice.
pub fn case() -> Case {
    let f: fn(Vec<Tensor>) -> Result<Vec<Tensor>, TraceError> = |x| {
        let (x, y) = (&x[0], &x[1]);
        let z = axpy().one(&[x * 2 + 1, y.tanh()]).relu() - 3;
        let sums = rows().one(std::slice::from_ref(&z));
        let squares = rows().call(std::slice::from_ref(y))?.remove(1);
        let turned = axpy().one(&[y.t(), y.t()]);
        let step = |c: Tensor, row: Tensor| {
            let c = axpy().one(&[c, row]) / 4;
            (c.clone(), c)
        };
        let (last, _) = kiln::scan(step, z.select(0, 0), z.clone())?;
        Ok(vec![axpy().one(&[x.clone(), y.clone()]), z + sums.unsqueeze(1), squares, turned, last])
    };
    let two = |rows: usize, columns: usize| {
        vec![counting(&[rows, columns]) / 100 - 1, 2 - counting(&[rows, columns]) / 50]
    };
    ("ptx", f, vec![two(5, 7), two(9, 131), two(2, 64)])
}

#[test]
fn the_host_fallback_agrees() {
    let before = BY_HOST.load(Ordering::Relaxed);
    control::agree(case());
    assert!(BY_HOST.load(Ordering::Relaxed) > before);
    // A body fuses with the surrounding ops.
    let f = kiln::compile(|x: Tensor| rows().one(&[x * 2]) + 1).backend("kiln").fullgraph(true);
    f.call(counting(&[3, 4])).expect("a result");
    assert_eq!(f.explain().graphs[0].kernels.len(), 1, "{}", f.explain());
}

fn register(name: &str, ptx: Ptx) -> String {
    let made = custom_op(name).shape(alike).host(by_host).ptx(ptx).register();
    made.err().map_or("registered".into(), |e| e.to_string())
}

#[test]
fn invalid_ptx_is_an_error_at_registration() {
    crate::watchdog::arm();
    for (ptx, part) in [
        (
            Ptx::new(AXPY, "saxpy"),
            "custom op 'test::wrong_ptx' has no .entry saxpy in its PTX; there is axpy",
        ),
        (Ptx::new("no PTX", "axpy"), "has PTX without a .version"),
        (Ptx::new(AXPY.replace(".target sm_80", ""), "axpy"), "has PTX without a .target"),
        (
            Ptx::new(AXPY.replace(".param .u64 n", ".param .u32 n"), "axpy"),
            "parameter 3 is '.param .u32 n'; all are .u64",
        ),
        (
            Ptx::new(AXPY, "axpy").threads(2048),
            "is launched with 2048 threads a block; 1 to 1024 are possible",
        ),
        (
            Ptx::new(ROWS, "rows"),
            "is launched with 256 threads a block, and its PTX says .reqntid 64, 1, 1",
        ),
    ] {
        let said = register("test::wrong_ptx", ptx);
        assert!(said.contains(part), "{said}");
    }
    let ptx = || Ptx::new(AXPY, "axpy");
    let said = |made: Result<CustomOp, TraceError>| made.err().expect("refused").to_string();
    assert!(
        said(custom_op("test::no_rule").ptx(ptx()).register())
            .contains("has PTX and no rule of types")
    );
    let effect =
        custom_op("test::effect_ptx").shape(alike).host(by_host).ptx(ptx()).effect(true).register();
    assert!(said(effect).contains("has an effect, which PTX cannot have"));
}

#[test]
fn invalid_launches_are_errors_with_lines() {
    crate::watchdog::arm();
    assert_eq!(register("test::all_sizes", Ptx::new(AXPY, "axpy")), "registered");
    let wrong = |name: &'static str, ptx: Ptx| {
        let op =
            custom_op(name).shape(alike).host(by_host).ptx(ptx).register().expect("registered");
        message(kiln::compile(move |x: Tensor| op.one(&[x.clone(), x])).call(counting(&[3, 2])))
    };
    let e = wrong("test::six_sizes", Ptx::new(AXPY, "axpy"));
    assert!(e.contains("'test::six_sizes' passes 9 parameters (2 inputs, 1 results and 6 sizes) to axpy, which takes 4"), "{e}");
    assert!(e.contains("front/ptx.rs:"), "{e}");
    let e = wrong("test::no_size", Ptx::new(AXPY, "axpy").sizes(|_, z| vec![count(z) / 0]));
    assert!(e.contains("test::no_size") && e.contains("size"), "{e}");
}

/// A module of one op with PTX for a chip, without a fallback.
pub fn ptx_only(name: &str, chip: &str) -> kiln::tensor::Traced {
    let ptx = Ptx::new(AXPY.replace("sm_80", chip), "axpy").sizes(|_, z| vec![count(z)]);
    let op = custom_op(name).shape(alike).ptx(ptx).register().expect("registered");
    let traced = kiln::trace(|g| {
        let x = g.input("x", F32, (g.dim("n", 2..=4096), 3));
        Ok(op.one(&[&x * 2, x.clone()]) + x)
    });
    traced.expect("a module")
}

#[test]
fn ops_without_an_implementation_are_errors() {
    crate::watchdog::arm();
    let traced = ptx_only("test::alone", "sm_90a");
    let model = Model::from_module(traced.module(), Path::new(""));
    let refused = |target: &str, part: &str| {
        let e = model
            .build(&Options { target: Some(target.into()), ..Options::default() }, &|_, _| ())
            .expect_err("refused");
        assert!(
            e.exit() == Exit::Unsupported
                && e.to_string().contains(part)
                && e.to_string().contains("front/ptx.rs"),
            "{e}"
        );
    };
    refused("x86_64:haswell", "custom op 'test::alone' has PTX alone, which processors do not run");
    refused("cuda:sm_80", "custom op 'test::alone' has PTX for sm_90a, which sm_80 does not run");
    let op = custom_op("test::at_once")
        .shape(alike)
        .ptx(Ptx::new(AXPY, "axpy"))
        .register()
        .expect("registered");
    let e = op.call(&[counting(&[2]), counting(&[2])]).expect_err("refused").to_string();
    assert!(
        e.contains("'test::at_once' has PTX alone, and ops that run at once are the host's"),
        "{e}"
    );
}
