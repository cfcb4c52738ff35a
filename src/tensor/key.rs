//! Cache keys of eager and lazy ops: a hash of the op and its operand types.
use super::{Operand, Tensor, arg::Arg, handle::Repr};
use crate::{capture::aten::Val, runtime::DeviceId};
use kiln_dialects::ir::Size;
use std::hash::{DefaultHasher, Hash, Hasher};

/// 128 bits, so that collisions within a process are negligible.
pub(super) type Key = u128;

/// Two hashes of the same bytes: SipHash, and word-wise FNV-1a.
pub(super) struct Keys(DefaultHasher, u64);

impl Keys {
    pub(super) fn new() -> Keys {
        Keys(DefaultHasher::new(), 0xcbf2_9ce4_8422_2325)
    }
    pub(super) fn key(&self) -> Key {
        u128::from(self.0.finish()) << 64 | u128::from(self.1)
    }
    fn mix(&mut self, word: u64) {
        self.1 = (self.1 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
}

impl Hasher for Keys {
    fn finish(&self) -> u64 {
        self.1
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0.write_u64(n);
        self.mix(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// Key of an op on a backend and a device; tensor arguments count by type only.
pub(super) fn of(
    backend: &str,
    device: DeviceId,
    target: &str,
    args: &[(&'static str, Arg)],
) -> Key {
    let mut h = Keys::new();
    (backend, device.gpu(), target).hash(&mut h);
    h.write_usize(args.len());
    for (name, arg) in args {
        name.hash(&mut h);
        argument(arg, &mut h);
    }
    h.key()
}

fn argument(arg: &Arg, h: &mut Keys) {
    std::mem::discriminant(arg).hash(h);
    match arg {
        Arg::Operand(o) => {
            std::mem::discriminant(o).hash(h);
            match o {
                Operand::Tensor(t) => tensor(t, h),
                Operand::Int(n) => n.hash(h),
                Operand::Float(x) => x.to_bits().hash(h),
                Operand::Bool(b) => b.hash(h),
                Operand::Size(d) => d.to_string().hash(h),
                // The value is an input, not part of the key.
                Operand::Number(s) => (s.dtype() as u8).hash(h),
            }
        }
        Arg::Tensors(all) => {
            h.write_usize(all.len());
            all.iter().for_each(|t| tensor(t, h));
        }
        Arg::Sizes(all) => {
            h.write_usize(all.len());
            for d in all {
                match d.known() {
                    Some(n) => n.hash(h),
                    None => d.to_string().hash(h),
                }
            }
        }
        Arg::Plain(v) => value(v, h),
    }
}

fn tensor(t: &Tensor, h: &mut Keys) {
    match &t.0 {
        Repr::Array(a) => (a.dtype() as u8, a.shape()).hash(h),
        Repr::Lazy(n) => (n.dtype() as u8, n.shape()).hash(h),
        Repr::Node(_) | Repr::Failed(_) => t.type_name().hash(h),
    }
}

fn value(v: &Val, h: &mut Keys) {
    std::mem::discriminant(v).hash(h);
    match v {
        Val::Int(Size::Static(n)) => n.hash(h),
        Val::Float(x) => x.to_bits().hash(h),
        Val::ComplexNumber(re, im) => (re.to_bits(), im.to_bits()).hash(h),
        Val::Bool(b) => b.hash(h),
        Val::Str(s) => s.hash(h),
        Val::DType(d) | Val::ComplexDType(d) => (*d as u8).hash(h),
        Val::List(all) => {
            h.write_usize(all.len());
            all.iter().for_each(|v| value(v, h));
        }
        // Graph values, which do not occur here.
        Val::Tensor(_)
        | Val::Complex(..)
        | Val::Number(..)
        | Val::Fraction(..)
        | Val::Int(Size::Dynamic(_))
        | Val::Condition(..) => format!("{v:?}").hash(h),
        Val::None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(args: &[(&'static str, Arg)]) -> Key {
        of("kiln", DeviceId::Host, "aten.add.Tensor", args)
    }

    #[test]
    fn keys_differ_where_ops_do() {
        let t = |shape: &[usize]| {
            Arg::tensor(
                Tensor::from_slice(shape, &vec![0.0f32; shape.iter().product()]).expect("a tensor"),
            )
        };
        let ints = |all: &[i64]| Arg::from(all);
        let all = [
            key(&[("self", t(&[2, 3]))]),
            key(&[("other", t(&[2, 3]))]),
            key(&[("self", t(&[3, 2]))]),
            key(&[("self", t(&[6]))]),
            key(&[("self", t(&[2, 3])), ("other", Arg::from(1i64))]),
            key(&[("self", t(&[2, 3])), ("other", Arg::from(2i64))]),
            key(&[("self", t(&[2, 3])), ("other", Arg::from(1.0))]),
            key(&[("self", t(&[2, 3])), ("other", Arg::from(true))]),
            key(&[("dims", ints(&[1, 2]))]),
            key(&[("dims", ints(&[2, 1]))]),
            key(&[("dims", ints(&[1])), ("more", ints(&[2]))]),
            of("kiln", DeviceId::Host, "aten.sub.Tensor", &[("self", t(&[2, 3]))]),
            of("interpreter", DeviceId::Host, "aten.add.Tensor", &[("self", t(&[2, 3]))]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "key {i} is another's");
        }
        assert_eq!(all[0], key(&[("self", t(&[2, 3]))]));
    }
}
