//! Tensors as raw little-endian bytes.

use super::{DType, Data, Tensor, count};
use crate::error::Result;

impl DType {
    /// Raw little-endian bytes of the elements, rounded or wrapped to this dtype; one byte per
    /// `i1`.
    pub fn encode(self, tensor: &Tensor) -> Vec<u8> {
        let mut out = Vec::with_capacity(tensor.len() * self.byte_size());
        match tensor.data() {
            Data::F(values) => values.iter().for_each(|&v| self.push_f(v, &mut out)),
            Data::I(values) if self.is_float() => {
                values.iter().for_each(|&v| self.push_f(v as f64, &mut out))
            }
            Data::I(values) => values.iter().for_each(|&v| self.push_i(v, &mut out)),
        }
        out
    }

    fn push_f(self, v: f64, out: &mut Vec<u8>) {
        match (self, self.format()) {
            (DType::F64, _) => out.extend(v.to_le_bytes()),
            (DType::F32, _) => out.extend((v as f32).to_le_bytes()),
            (_, Some(format)) => out.extend(&format.encode(v).to_le_bytes()[..self.byte_size()]),
            _ => self.push_i(v as i64, out),
        }
    }

    fn push_i(self, v: i64, out: &mut Vec<u8>) {
        out.extend(&self.wrap(v).to_le_bytes()[..self.byte_size()]);
    }

    /// Decodes raw little-endian bytes; any nonzero byte is a true `i1`. Err: wrong number of
    /// bytes.
    pub fn decode(self, shape: &[usize], bytes: &[u8]) -> Result<Tensor> {
        let size = self.byte_size();
        let elements = count(shape)?;
        let expected = elements.checked_mul(size).ok_or("is larger than any memory")?;
        if bytes.len() != expected {
            return Err(format!(
                "{} bytes given for {self} of shape {shape:?}, which has {expected}",
                bytes.len()
            )
            .into());
        }
        let words = bytes.chunks_exact(size).map(|chunk| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let data = match (self, self.format()) {
            (DType::F64, _) => Data::F(collected(elements, words.map(f64::from_bits))?),
            (DType::F32, _) => {
                let floats = words.map(|w| f64::from(f32::from_bits(w as u32)));
                Data::F(collected(elements, floats)?)
            }
            (_, Some(format)) => {
                Data::F(collected(elements, words.map(|w| format.decode(w as u32)))?)
            }
            _ => Data::I(collected(elements, words.map(|w| self.wrap(w as i64)))?),
        };
        Tensor::new(self, shape.to_vec(), data)
    }
}

/// All of them in memory, if there is any.
fn collected<T>(count: usize, values: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut all = vec![];
    all.try_reserve_exact(count)
        .map_err(|_| format!("out of memory: {count} elements of {} bytes", size_of::<T>()))?;
    all.extend(values);
    Ok(all)
}
