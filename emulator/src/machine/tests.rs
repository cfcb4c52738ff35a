//! Small kernels, written as PTX.
use super::{Fault, FaultKind, Launch, run};
use crate::{
    allocations::{MEMORY, MemoryKind},
    ptx::Module,
};

/// Device memory, freed on drop.
struct Array(u64, usize);

impl Array {
    fn of(values: &[u32]) -> Array {
        let at = MEMORY.allocate(values.len() * 4, MemoryKind::Device).expect("memory");
        // SAFETY: just allocated with this size.
        unsafe { (at as *mut u32).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Array(at, values.len())
    }
    fn values(&self) -> Vec<u32> {
        // SAFETY: of this size; no kernel runs.
        unsafe { std::slice::from_raw_parts(self.0 as *const u32, self.1) }.to_vec()
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        assert!(MEMORY.free(self.0));
    }
}

/// A kernel `k` of two pointers, whose lines begin at the sixth.
fn text(head: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {head} {{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<9>; .shared .align 1024 .b8 room[4096];\n\
         ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n\
         mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %d3, %r4, 4; add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;\n{body}\nret;\n}}\n"
    )
}

fn launched(
    head: &str,
    body: &str,
    blocks: u32,
    threads: u32,
    a: &Array,
    b: &Array,
) -> Result<(), Fault> {
    let module = Module::load(&text(head, body)).unwrap_or_else(|e| panic!("{e}"));
    let kernel = &module.kernels["k"];
    let params = [a.0.to_le_bytes(), b.0.to_le_bytes()].concat();
    run(&Launch {
        kernel,
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared: 0,
        params: &params,
    })
}

fn numbers(n: u32) -> Array {
    Array::of(&(0..n).collect::<Vec<_>>())
}

#[test]
fn thread_indices() {
    let (a, b) = (numbers(192), numbers(192));
    launched(
        "",
        "ld.global.u32 %r5, [%d4]; mad.lo.u32 %r5, %r5, 3, 1; st.global.u32 [%d5], %r5;",
        3,
        64,
        &a,
        &b,
    )
    .unwrap();
    assert_eq!(b.values(), (0..192).map(|i| 3 * i + 1).collect::<Vec<_>>());
}

#[test]
fn warp_and_cta_reductions() {
    let (a, b) = (numbers(256), numbers(256));
    // Sums of warps by butterflies, then of all through shared memory.
    let warp =
        |by: u32| format!("shfl.sync.bfly.b32 %r6, %r5, {by}, 31, -1; add.u32 %r5, %r5, %r6;\n");
    let body = format!(
        "ld.global.u32 %r5, [%d4];\n{} mov.b32 %r10, room; shr.u32 %r7, %r1, 5; shl.b32 %r7, %r7, 2; add.u32 %r10, %r10, %r7; st.shared.u32 [%r10], %r5;\n\
         bar.sync 0; mov.u32 %r8, 0; mov.u32 %r9, 0; mov.b32 %r10, room;\n\
         L: ld.shared.u32 %r11, [%r10]; add.u32 %r8, %r8, %r11; add.u32 %r10, %r10, 4; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 8; @%p1 bra L;\n\
         vote.sync.ballot.b32 %r12, !%p1, -1; add.u32 %r8, %r8, %r12; st.global.u32 [%d5], %r8;",
        [1, 2, 4, 8, 16].map(warp).concat()
    );
    launched("", &body, 1, 256, &a, &b).unwrap();
    // The ballot of 32 lanes that agree is -1.
    assert_eq!(b.values(), vec![255 * 256 / 2 - 1; 256]);
}

#[test]
fn bit_field_insert() {
    let (a, b) = (numbers(32), numbers(32));
    launched("", "ld.global.u32 %r5, [%d4]; mov.u32 %r6, -1; bfi.b32 %r7, %r5, %r6, 8, 4; st.global.u32 [%d5], %r7;", 1, 32, &a, &b)
        .unwrap();
    assert_eq!(b.values(), (0..32).map(|i| 0xffff_f0ff | (i & 15) << 8).collect::<Vec<u32>>());
    launched("", "ld.global.u32 %r5, [%d4]; mov.u32 %r6, 9; bfi.b32 %r7, %r5, %r6, 31, 4; st.global.u32 [%d5], %r7;", 1, 32, &a, &b)
        .unwrap();
    assert_eq!(b.values(), (0..32).map(|i| 9 | (i & 1) << 31).collect::<Vec<u32>>());
}

#[test]
fn faults_have_locations() {
    let (a, b) = (numbers(32), numbers(32));
    let fault = |body: &str, threads| launched("", body, 1, threads, &a, &b).expect_err("a fault");
    let f = fault("mov.u32 %r5, 0;\nld.global.u32 %r5, [%d4+128];", 32);
    assert_eq!((f.kernel.as_str(), f.block, f.thread, f.line), ("k", 0, 0, 9), "{f}");
    assert!(
        matches!(f.what, FaultKind::Address(4, _))
            && f.text.starts_with("ld.global.u32 %r5, [%d4+128]"),
        "{f}"
    );
    // The last lane alone is beyond the memory.
    assert_eq!(fault("st.global.u32 [%d4+4], %r1;", 32).thread, 31);
    assert!(matches!(
        fault("ld.global.v2.u32 {%r5, %r6}, [%d4+4];", 1).what,
        FaultKind::Alignment(8, _)
    ));
    assert!(matches!(fault("ld.shared.u32 %r5, [room+4096];", 1).what, FaultKind::Address(..)));
    assert_eq!(fault("trap;", 1).what, FaultKind::Trap);
    // Half of those that are waited for never come.
    assert_eq!(
        fault("setp.lt.u32 %p1, %r1, 32; @!%p1 bra E; bar.sync 1, 64;\nE:", 33).what,
        FaultKind::Stuck
    );
    let looks = "mbarrier.init.shared.b64 [room], 2; mbarrier.arrive.shared.b64 %d6, [room];\n\
                 L: mbarrier.try_wait.parity.shared.b64 %p1, [room], 0; @!%p1 bra L;";
    assert_eq!(fault(looks, 1).what, FaultKind::Stuck);
    let what = |e: crate::ptx::Error| e.to_string();
    assert_eq!(
        Module::load(&text("", "frobnicate.u32 %r1, %r2;")).map_err(what).err().as_deref(),
        Some("line 8: frobnicate.u32 with 2 operands is not supported")
    );
    assert_eq!(
        Module::load(&text("", "add.u32 %r1, %r2, %q;")).map_err(what).err().as_deref(),
        Some("line 8: %q is not declared")
    );
    assert!(Module::load("what is this").is_err() && Module::load(".visible .entry k(").is_err());
}

#[test]
fn a_dependent_kernel_accesses_memory_after_its_wait() {
    let (a, b) = (numbers(32), numbers(32));
    let run = |body: &str| launched("", body, 1, 32, &a, &b).map_err(|f| f.what);
    let store = "st.global.u32 [%d4], %r1;";
    let wait = "griddepcontrol.launch_dependents; griddepcontrol.wait;";
    let prefetch = "cp.async.bulk.prefetch.L2.global [%d1], 64;";
    assert_eq!(run(&format!("{prefetch}{wait}{store}")), Ok(()));
    let early = FaultKind::early();
    assert_eq!(run(&format!("{store}{wait}")), Err(early.clone()));
    let copy = "mov.b32 %r6, room; cp.async.ca.shared.global [%r6], [%d4], 4;";
    for load in
        ["ld.global.u32 %r5, [%d4];", "ld.global.nc.u32 %r5, [%d4];", "ld.u32 %r5, [%d4];", copy]
    {
        // The launch before has written there, then one that has not.
        assert_eq!(run(&format!("{wait}{store}")), Ok(()));
        assert_eq!(run(&format!("{load}{wait}")), Err(early.clone()), "{load}");
        assert_eq!(run(&format!("{load}{wait}")), Ok(()), "{load}");
        // Other threads have written there.
        assert_eq!(run(&format!("{load}{wait}{store}")), Err(early.clone()), "{load}");
    }
    assert_eq!(run(&format!("st.shared.u32 [room], %r1;{wait}")), Ok(()));
}

#[test]
fn unawaited_copies_are_delayed() {
    let (a, b) = (numbers(4 * 64), numbers(64));
    let body = |wait: &str| {
        format!(
            "shl.b32 %r5, %r2, 4; cvt.u64.u32 %d6, %r5; add.u64 %d6, %d1, %d6; mov.b32 %r6, room;\n\
             cp.async.cg.shared.global [%r6], [%d6], 16; cp.async.commit_group; {wait}\n\
             ld.shared.u32 %r7, [room+4]; st.global.u32 [%d5], %r7;"
        )
    };
    let want: Vec<u32> = (0..64).map(|i| 4 * i + 1).collect();
    launched("", &body("cp.async.wait_group 0;"), 64, 1, &a, &b).unwrap();
    assert_eq!(b.values(), want);
    launched("", &body(""), 64, 1, &a, &b).unwrap();
    let late = b.values().iter().zip(&want).filter(|(have, want)| have != want).count();
    assert!((8..56).contains(&late), "{late} of 64 are late");
}

#[test]
fn mbarriers_have_phases_and_transaction_bytes() {
    let (a, b) = (numbers(64), numbers(64));
    // 32 bytes by the copy engine, three times into the same place, each behind the read of the
    // last.
    let body = "mov.b32 %r6, room; add.u32 %r7, %r6, 2048; mov.u32 %r8, 0; mov.u32 %r9, 0; mov.u64 %d6, %d1;\n\
                mbarrier.init.shared.b64 [%r7], 1;\n\
                N: mbarrier.arrive.expect_tx.shared.b64 %d7, [%r7], 32;\n\
                cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%d6], 32, [%r7];\n\
                W: mbarrier.try_wait.parity.shared.b64 %p1, [%r7], %r8; @!%p1 bra W;\n\
                ld.shared.u32 %r10, [room+28]; add.u32 %r9, %r9, %r10; xor.b32 %r8, %r8, 1; add.u64 %d6, %d6, 32;\n\
                sub.u64 %d8, %d6, %d1; setp.lt.u64 %p2, %d8, 96; @%p2 bra N; st.global.u32 [%d2], %r9;";
    launched("", body, 1, 1, &a, &b).unwrap();
    assert_eq!(b.values()[0], 7 + 15 + 23);
}

#[test]
fn distributed_shared_memory() {
    let (a, b) = (numbers(8), numbers(8));
    let body = "mov.b32 %r6, room; st.shared.u32 [%r6], %r2; barrier.cluster.arrive; barrier.cluster.wait;\n\
                mov.u32 %r7, %cluster_ctarank; xor.b32 %r7, %r7, 1; mapa.shared::cluster.u32 %r8, %r6, %r7;\n\
                ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%d5], %r9; barrier.cluster.arrive; barrier.cluster.wait;";
    launched(".reqnctapercluster 2, 1, 1", body, 8, 1, &a, &b).unwrap();
    assert_eq!(b.values(), [1, 0, 3, 2, 5, 4, 7, 6]);
    // Not of a block that has gone: the first one runs first.
    let leaves = "mov.b32 %r6, room; mov.u32 %r7, %cluster_ctarank; setp.eq.u32 %p1, %r7, 0; @%p1 bra E;\n\
                  mov.u32 %r7, 0; mapa.shared::cluster.u32 %r8, %r6, %r7; ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%d5], %r9;\nE:";
    let f = launched(".reqnctapercluster 2, 1, 1", leaves, 2, 1, &a, &b).expect_err("a fault");
    assert!(f.to_string().contains("CTA 0 of the cluster has exited"), "{f}");
}

#[test]
fn copies_between_ctas_of_a_cluster() {
    let (a, b) = (numbers(8), numbers(8));
    // Each sends four numbers to the other, whose bar counts their bytes; an address says of which
    // block it is.
    let body = "mov.b32 %r6, room; mov.u32 %r7, %cluster_ctarank; shr.u32 %r10, %r6, 24; sub.u32 %r10, %r10, %r7; add.u32 %r11, %r2, %r10;\n\
                st.shared.u32 [%r6+16], %r11; mbarrier.init.shared.b64 [room], 1; mbarrier.arrive.expect_tx.shared.b64 %d6, [room], 16;\n\
                barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n\
                xor.b32 %r7, %r7, 1; mapa.shared::cluster.u32 %r8, %r6, %r7;\n\
                cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8+32], [%r6+16], 16, [%r8];\n\
                L: mbarrier.try_wait.parity.shared.b64 %p1, [room], 0; @!%p1 bra L;\n\
                ld.shared.u32 %r9, [%r6+32]; st.global.u32 [%d5], %r9; barrier.cluster.arrive.relaxed; barrier.cluster.wait;";
    launched(".reqnctapercluster 2, 1, 1", body, 8, 1, &a, &b).unwrap();
    assert_eq!(b.values(), [2, 1, 4, 3, 6, 5, 8, 7]);
}

#[test]
fn mma() {
    // Factors of ones but for the lane's own: 16 x 16 and 16 x 8 of bf16.
    let (a, b) = (numbers(32), Array::of(&[0; 128]));
    let one = 0x3f80_3f80u32;
    let body = format!(
        "mov.b32 %r5, {one}; mov.f32 %f0, 0f40000000; mul.wide.u32 %d6, %r1, 16; add.u64 %d6, %d2, %d6;\n\
         mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%f1, %f2, %f3, %f4}}, {{%r5, %r5, %r5, %r5}}, {{%r5, %r5}}, {{%f0, %f0, %f0, %f0}};\n\
         st.global.v4.f32 [%d6], {{%f1, %f2, %f3, %f4}};"
    );
    launched("", &body, 1, 32, &a, &b).unwrap();
    assert_eq!(b.values(), vec![18f32.to_bits(); 128]);
}

#[test]
fn integer_and_conversion_semantics() {
    // Each computes r22 from -3 (r20) and 0x12345678 (r21).
    let cases: &[(&str, u32)] = &[
        ("prmt.b32 %r22, %r21, %r20, 0x5410", 0xfffd_5678),
        ("prmt.b32 %r22, %r21, %r20, 0x0092", 0x7878_0034),
        ("lop3.b32 %r22, %r21, 0x00ff00ff, %r20, 0xea", 0xffff_fffd),
        ("lop3.b32 %r22, %r21, 0x000f000f, 0x43004300, 0xea", 0x4304_4308),
        ("lop3.b32 %r22, %r20, %r21, 0x0f0f0f0f, 0x96", 0xe2c4_a68a),
        ("bfe.u32 %r22, %r21, 8, 8", 0x56),
        ("bfe.s32 %r22, %r20, 1, 4", 0xffff_fffe),
        ("shf.l.wrap.b32 %r22, %r21, %r20, 8", 0xffff_fd12),
        ("mul.hi.s32 %r22, %r20, %r21", 0xffff_ffff),
        (
            "cvt.u16.u32 %h1, %r20; cvt.u16.u32 %h2, %r21; mul.hi.s16 %h3, %h1, %h2; cvt.s32.s16 %r22, %h3",
            0xffff_fffe,
        ),
        ("mad.hi.u32 %r22, %r20, %r21, 5", 0x1234_567c),
        ("mul.hi.u32 %r22, %r20, %r21", 0x1234_5677),
        ("shr.s32 %r22, %r20, 40", 0xffff_ffff),
        ("shl.b32 %r22, %r21, 32", 0),
        ("div.s32 %r22, %r20, 2", 0xffff_ffff),
        ("rem.s32 %r22, %r20, 2", 0xffff_ffff),
        ("clz.b32 %r22, %r21", 3),
        ("popc.b32 %r22, %r21", 13),
        ("brev.b32 %r22, %r21", 0x1e6a_2c48),
        ("cvt.rn.f32.s32 %r22, %r20", 0xc040_0000),
        ("cvt.rn.f32.u32 %r22, %r20", 0x4f80_0000),
        ("cvt.rn.bf16x2.f32 %r22, 0f3F800000, 0fC0400000", 0x3f80_c040),
        ("cvt.rzi.s32.f32 %r22, 0fC06CCCCD", 0xffff_fffd),
        ("cvt.rni.s32.f32 %r22, 0fC06CCCCD", 0xffff_fffc),
        ("cvt.rzi.u32.f32 %r22, 0fC06CCCCD", 0),
        ("cvt.rzi.s32.f32 %r22, 0f7FC00000", 0),
        ("cvt.rmi.f32.f32 %r22, 0fC0200000", 0xc040_0000),
        ("min.f32 %r22, 0f7FC00000, 0f3F800000", 0x3f80_0000),
        ("max.NaN.f32 %r22, 0f7FC00000, 0f3F800000", 0x7fc0_0000),
        ("copysign.f32 %r22, 0fBF800000, 0f40000000", 0xc000_0000),
        ("cvt.s32.s8 %r22, %r20", 0xffff_fffd),
        ("cvt.u32.u8 %r22, %r20", 0xfd),
        ("cvt.s8.s32 %h1, %r20; cvt.s32.s16 %r22, %h1", 0xffff_fffd),
        ("min.s16x2 %r22, %r20, %r21", 0xffff_fffd),
        ("add.u16x2 %r22, %r20, %r21", 0x1233_5675),
        ("sub.cc.u32 %r23, %r21, %r20; subc.u32 %r22, %r21, 0", 0x1234_5677),
    ];
    let (a, b) = (numbers(1), numbers(1));
    for (op, want) in cases {
        launched(
            "",
            &format!(
                "mov.b32 %r20, -3; mov.b32 %r21, 0x12345678; {op}; st.global.u32 [%d5], %r22;"
            ),
            1,
            1,
            &a,
            &b,
        )
        .unwrap();
        assert_eq!(b.values()[0], *want, "{op}: {:#x}, not {want:#x}", b.values()[0]);
    }
}
