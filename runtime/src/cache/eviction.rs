//! Eviction of the least recently used entries.
//!
//! A file beside the entries counts their bytes, so that a compile that stores an entry need not
//! read the metadata of all of them. The count is an estimate: an entry that replaces another
//! counts twice, and one written during an eviction may be missed. Each eviction counts anew.
use super::{Remark, SUFFIX, Store, list};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Age at which a temporary file is taken for a dead writer's.
const STALE: Duration = Duration::from_secs(3600);
/// Age at which entries are counted anew.
const RECOUNT: Duration = Duration::from_secs(24 * 3600);
/// Name of the file that counts.
const USAGE: &str = "usage";

/// Bytes of all entries, and when they were last counted.
struct Usage {
    bytes: u64,
    since: SystemTime,
}

impl Store {
    /// Keeps the folder within `limit` bytes: evicts down to 15/16 of it where the counted bytes
    /// exceed it, so that not every entry of a full cache evicts. Returns the bytes freed.
    pub fn keep_within(&self, limit: u64) -> Result<u64, Remark> {
        let usage = File::open(self.usage_file()).and_then(|mut file| {
            file.lock_shared()?;
            Usage::read(&mut file)
        });
        let is_young = |u: &Usage| u.since.elapsed().is_ok_and(|age| age < RECOUNT);
        match usage {
            Ok(usage) if usage.bytes <= limit && is_young(&usage) => Ok(0),
            _ => self.evict(limit, limit - limit / 16),
        }
    }

    /// LRU eviction: deletes the least recently used entries until at most `bytes` remain, and
    /// stale temporary files. Returns the bytes freed.
    pub fn trim(&self, bytes: u64) -> Result<u64, Remark> {
        self.evict(bytes, bytes)
    }

    /// Adds a new entry's bytes to the count. Best effort: without a count the next call of
    /// [`Store::keep_within`] makes one.
    pub(super) fn account(&self, bytes: u64) {
        let add = || -> io::Result<()> {
            let mut file = File::options().read(true).write(true).open(self.usage_file())?;
            file.lock()?;
            let Usage { bytes: before, since } = Usage::read(&mut file)?;
            Usage { bytes: before.saturating_add(bytes), since }.write(&mut file)
        };
        let _ = add();
    }

    fn usage_file(&self) -> PathBuf {
        self.dir.join(USAGE)
    }

    /// Deletes the least recently used entries down to `target` bytes if they exceed `limit`.
    fn evict(&self, limit: u64, target: u64) -> Result<u64, Remark> {
        let mut entries = vec![];
        let mut freed = 0;
        for folder in list(&self.dir)?.into_iter().filter(|p| p.is_dir()) {
            for path in list(&folder)? {
                // Another process may be trimming, too.
                let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                if path.extension().is_some_and(|e| e == SUFFIX) {
                    entries.push((used, meta.len(), path));
                } else if is_temporary(&path)
                    && used.elapsed().is_ok_and(|age| age > STALE)
                    && std::fs::remove_file(&path).is_ok()
                {
                    freed += meta.len();
                }
            }
        }
        let mut total: u64 = entries.iter().map(|e| e.1).sum();
        if total > limit {
            entries.sort();
            for (_, len, path) in entries {
                if total <= target {
                    break;
                }
                match std::fs::remove_file(&path) {
                    Ok(()) => freed += len,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(Remark::new(&path, e)),
                }
                total -= len;
            }
        }
        let _ = self.recount(total);
        Ok(freed)
    }

    /// Best effort, as [`Store::account`].
    fn recount(&self, bytes: u64) -> io::Result<()> {
        let mut options = File::options();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(self.usage_file())?;
        file.lock()?;
        Usage { bytes, since: SystemTime::now() }.write(&mut file)
    }
}

impl Usage {
    /// Two little-endian 64-bit numbers: bytes, and seconds since 1970.
    fn read(file: &mut File) -> io::Result<Usage> {
        let mut numbers = [[0; 8]; 2];
        file.rewind()?;
        for number in &mut numbers {
            file.read_exact(number)?;
        }
        let [bytes, seconds] = numbers.map(u64::from_le_bytes);
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        Ok(Usage { bytes, since: since.ok_or(io::ErrorKind::InvalidData)? })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let seconds = self.since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        file.rewind()?;
        file.write_all(&[self.bytes.to_le_bytes(), seconds.to_le_bytes()].concat())
    }
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(".new-"))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::store, *};

    fn age(path: &Path, seconds: u64) {
        let file = File::options().write(true).open(path).expect("the entry");
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("changed");
    }

    #[test]
    fn trimming_keeps_what_was_used_last() {
        let (_dir, s) = store();
        for (seconds, key) in [(500, "a"), (400, "b"), (300, "c"), (200, "d")] {
            s.put(key, &[0; 948]).expect("written");
            age(&s.path(key), seconds);
        }
        assert!(s.get("a").expect("readable").is_some());
        assert_eq!(s.size(), Ok((4, 4000)));
        assert_eq!(s.trim(1 << 20), Ok(0));
        assert_eq!(s.trim(2000), Ok(2000));
        let left: Vec<_> =
            ["a", "b", "c", "d"].into_iter().filter(|k| s.path(k).exists()).collect();
        assert_eq!(left, ["a", "d"]);
        let old = s.path("a").with_file_name(".new-dead");
        std::fs::write(&old, [0; 10]).expect("written");
        age(&old, 2 * STALE.as_secs());
        assert_eq!((s.trim(2000), old.exists()), (Ok(10), false));
        assert_eq!((s.trim(0), s.path("d").exists()), (Ok(2000), false));
    }

    /// Only a count above the limit, a missing one and an old one make `keep_within` walk.
    #[test]
    fn entries_are_counted_as_they_are_written() {
        let (_dir, s) = store();
        let count = || Usage::read(&mut File::open(s.usage_file()).expect("a count"));
        s.put("a", &[0; 948]).expect("written");
        age(&s.path("a"), 100);
        assert!(!s.usage_file().exists());
        assert_eq!(s.keep_within(3000), Ok(0));
        assert_eq!(count().expect("a count").bytes, 1000);
        s.put("b", &[0; 948]).expect("written");
        assert_eq!(count().expect("a count").bytes, 2000);
        // An entry that nothing counted is not seen.
        for key in ["c", "d"] {
            let path = s.path(key);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::copy(s.path("b"), path).expect("copied");
        }
        assert_eq!((s.keep_within(3000), s.size()), (Ok(0), Ok((4, 4000))));
        s.put("e", &[0; 948]).expect("written");
        s.put("e", &[0; 948]).expect("written");
        assert_eq!(s.keep_within(3000), Ok(3000));
        assert!(!s.path("a").exists());
        assert_eq!((s.size(), count().expect("a count").bytes), (Ok((2, 2000)), 2000));
        let old = Usage { bytes: 0, since: SystemTime::now() - 2 * RECOUNT };
        old.write(&mut File::create(s.usage_file()).expect("a file")).expect("written");
        assert_eq!((s.keep_within(1500), s.size()), (Ok(1000), Ok((1, 1000))));
        std::fs::write(s.usage_file(), "rubbish").expect("written");
        assert_eq!((s.keep_within(500), s.size()), (Ok(1000), Ok((0, 0))));
    }

    #[test]
    fn writers_at_the_same_time_are_all_counted() {
        let (_dir, s) = store();
        assert_eq!(s.keep_within(u64::MAX), Ok(0));
        std::thread::scope(|scope| {
            for who in 0..4 {
                let s = &s;
                scope.spawn(move || {
                    for i in 0..50 {
                        s.put(&format!("{who} {i}"), &[0; 948]).expect("written");
                    }
                });
            }
        });
        let count = Usage::read(&mut File::open(s.usage_file()).expect("a count"));
        assert_eq!(count.expect("a count").bytes, 200_000);
    }
}
