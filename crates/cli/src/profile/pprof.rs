//! The profile as `go tool pprof` and Google's pprof read it: a protocol buffer, packed by gzip.
//!
//! The message is `perftools.profiles.Profile` (`profile.proto` of the pprof project). It is small, so that it is written
//! here field by field. Samples have three values:
//!
//! | type | unit | of |
//! |---|---|---|
//! | `contentions` | `count` | the stacks of waiting threads |
//! | `delay` | `nanoseconds` | the same; this is what the tools show first |
//! | `blame` | `nanoseconds` | the stacks at which holders acquired: the waiting that they caused |
//!
//! The label `lock` has the lock's name (`-tagfocus`).

use super::model::{Profile, StackId};
use flate2::{Compression, write::GzEncoder};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// The file's content.
pub fn bytes(profile: &Profile) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&message(profile)).expect("memory can be written");
    packer.finish().expect("memory can be written")
}

/// Numbers of the fields that are used.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING: u64 = 6;
    pub const DURATION: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_TYPE: u64 = 14;
}

fn message(profile: &Profile) -> Vec<u8> {
    let mut writer = Writer::new(profile);
    let mut out = Message::default();
    let types = [("contentions", "count"), ("delay", "nanoseconds"), ("blame", "nanoseconds")];
    for (name, unit) in types {
        out.message(field::SAMPLE_TYPE, &writer.value_type(name, unit));
    }
    for class in &profile.locks {
        for waiter in &class.waiters {
            let sample = writer.sample(waiter.stack, &class.name, [waiter.count, waiter.wait_ns, 0]);
            out.message(field::SAMPLE, &sample);
        }
        for holder in class.holders.iter().filter(|holder| holder.caused_wait_ns > 0) {
            let sample = writer.sample(holder.stack, &class.name, [0, 0, holder.caused_wait_ns]);
            out.message(field::SAMPLE, &sample);
        }
    }
    out.number(field::DURATION, (profile.seconds * 1e9) as u64);
    out.message(field::PERIOD_TYPE, &writer.value_type("contentions", "count"));
    out.number(field::PERIOD, 1);
    for note in &profile.notes {
        let note = writer.strings.number(note);
        out.number(field::COMMENT, note);
    }
    let default = writer.strings.number("delay");
    out.number(field::DEFAULT_TYPE, default);
    writer.mappings(&mut out);
    out.bytes.extend(&writer.code.bytes);
    for string in &writer.strings.list {
        out.bytes(field::STRING, string.as_bytes());
    }
    out.bytes
}

struct Writer<'a> {
    profile: &'a Profile,
    strings: Strings,
    /// Frames of one return address, and the number of the location.
    locations: HashMap<Vec<usize>, u64>,
    /// The numbers of the functions that `code` has.
    functions: HashSet<u64>,
    /// The module with number 1, 2, ...
    modules: Vec<&'a str>,
    /// Locations and functions.
    code: Message,
}

impl<'a> Writer<'a> {
    fn new(profile: &'a Profile) -> Self {
        let mut modules: Vec<&str> = profile.frames.iter().map(|frame| frame.module.as_str()).collect();
        modules.sort_unstable();
        modules.dedup();
        Self {
            profile,
            strings: Strings::new(),
            locations: HashMap::new(),
            functions: HashSet::new(),
            modules,
            code: Message::default(),
        }
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.strings.number(name));
        message.number(2, self.strings.number(unit));
        message
    }

    fn sample(&mut self, stack: StackId, lock: &str, values: [u64; 3]) -> Message {
        let profile = self.profile;
        let frames = profile.stacks.get(stack).map_or(&[][..], Vec::as_slice);
        // Inlined functions belong to the location of the function that they were inlined into.
        let addresses = frames.split_inclusive(|frame| !profile.frames[*frame].inlined);
        let locations: Vec<u64> = addresses.map(|frames| self.location(frames)).collect();
        let mut label = Message::default();
        label.number(1, self.strings.number("lock"));
        label.number(2, self.strings.number(lock));
        let mut message = Message::default();
        message.packed(1, &locations);
        message.packed(2, &values);
        message.message(3, &label);
        message
    }

    fn location(&mut self, frames: &[usize]) -> u64 {
        if let Some(number) = self.locations.get(frames) {
            return *number;
        }
        let number = self.locations.len() as u64 + 1;
        self.locations.insert(frames.to_vec(), number);
        let mut location = Message::default();
        location.number(1, number);
        location.number(2, self.mapping(frames));
        for frame in frames {
            let found = &self.profile.frames[*frame];
            let (id, line) = (*frame as u64 + 1, u64::from(found.line));
            let mut of_frame = Message::default();
            of_frame.number(1, id);
            of_frame.number(2, line);
            location.message(4, &of_frame);
            if self.functions.insert(id) {
                let mut function = Message::default();
                let name = self.strings.number(&found.function);
                function.number(1, id);
                function.number(2, name);
                function.number(3, name);
                function.number(4, self.strings.number(&found.file));
                self.code.message(field::FUNCTION, &function);
            }
        }
        self.code.message(field::LOCATION, &location);
        number
    }

    fn mapping(&self, frames: &[usize]) -> u64 {
        let module = frames.last().map_or("", |frame| self.profile.frames[*frame].module.as_str());
        self.modules.binary_search(&module).map_or(0, |position| position as u64 + 1)
    }

    /// Says of each module that its functions have names already, so that no tool looks for the file.
    fn mappings(&mut self, out: &mut Message) {
        for (number, module) in self.modules.iter().enumerate() {
            let mut mapping = Message::default();
            mapping.number(1, number as u64 + 1);
            mapping.number(5, self.strings.number(module));
            (7..=10).for_each(|known| mapping.number(known, 1));
            out.message(field::MAPPING, &mapping);
        }
    }
}

/// The table of strings, the first of which is empty.
struct Strings {
    list: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Self {
        Self { list: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Fields of a protocol buffer, one after the other.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Wire type 0. A field that is 0 is left out, as the format wants it.
    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    /// Wire type 2.
    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.bytes);
    }

    fn packed(&mut self, field: u64, numbers: &[u64]) {
        let mut packed = Message::default();
        numbers.iter().for_each(|number| packed.varint(*number));
        self.message(field, &packed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;
    use std::io::Read;

    /// A field as it is found in the file.
    enum Found {
        Number(u64),
        Bytes(Vec<u8>),
    }

    impl Found {
        fn number(&self) -> u64 {
            let Self::Number(number) = self else { panic!("a number was expected") };
            *number
        }

        fn bytes(&self) -> &[u8] {
            let Self::Bytes(bytes) = self else { panic!("bytes were expected") };
            bytes
        }
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }

    fn decode(mut bytes: &[u8]) -> Vec<(u64, Found)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let found = match key & 7 {
                0 => Found::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    Found::Bytes(content.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, found));
        }
        fields
    }

    fn numbers(mut packed: &[u8]) -> Vec<u64> {
        let mut numbers = Vec::new();
        while !packed.is_empty() {
            numbers.push(varint(&mut packed));
        }
        numbers
    }

    #[test]
    fn the_file_says_what_the_profile_says() {
        let profile = sample::profile();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes(&profile)[..]).read_to_end(&mut plain).unwrap();
        let fields = decode(&plain);
        let all = |field: u64| fields.iter().filter(move |found| found.0 == field).map(|found| &found.1);
        let strings: Vec<String> =
            all(field::STRING).map(|found| String::from_utf8(found.bytes().to_vec()).unwrap()).collect();
        assert_eq!(strings[0], "");
        let one = |fields: &[(u64, Found)], number: u64| {
            fields.iter().find(|found| found.0 == number).map_or(0, |found| found.1.number())
        };
        let text = |fields: &[(u64, Found)], number: u64| strings[one(fields, number) as usize].clone();
        let types: Vec<_> = all(field::SAMPLE_TYPE).map(|found| decode(found.bytes())).collect();
        let types: Vec<_> = types.iter().map(|fields| (text(fields, 1), text(fields, 2))).collect();
        assert_eq!(types[0], ("contentions".into(), "count".into()));
        assert_eq!(types[1], ("delay".into(), "nanoseconds".into()));
        assert_eq!(strings[one(&fields, field::DEFAULT_TYPE) as usize], "delay");
        // Every number that a message refers to is there.
        let ids = |number| all(number).map(|found| one(&decode(found.bytes()), 1)).collect::<Vec<_>>();
        let without_repeats = |mut ids: Vec<u64>| {
            let length = ids.len();
            ids.sort_unstable();
            ids.dedup();
            ids.len() == length
        };
        assert!(without_repeats(ids(field::FUNCTION)) && without_repeats(ids(field::LOCATION)));
        let (functions, locations, mappings) =
            (ids(field::FUNCTION), ids(field::LOCATION), ids(field::MAPPING));
        for location in all(field::LOCATION).map(|found| decode(found.bytes())) {
            assert!(mappings.contains(&one(&location, 2)));
            for (_, line) in location.iter().filter(|found| found.0 == 4) {
                assert!(functions.contains(&one(&decode(line.bytes()), 1)));
            }
        }
        let mut sums = [0; 3];
        let mut first_stack = Vec::new();
        for sample in all(field::SAMPLE).map(|found| decode(found.bytes())) {
            let content = |number| sample.iter().find(|found| found.0 == number).unwrap().1.bytes();
            let stack = numbers(content(1));
            assert!(stack.iter().all(|location| locations.contains(location)), "{stack:?}");
            if first_stack.is_empty() {
                first_stack = stack;
            }
            for (sum, value) in sums.iter_mut().zip(numbers(content(2))) {
                *sum += value;
            }
            assert_eq!(text(&decode(content(3)), 1), "lock");
        }
        let caused: u64 =
            profile.locks.iter().flat_map(|class| &class.holders).map(|holder| holder.caused_wait_ns).sum();
        assert_eq!(sums, [6_000, profile.lost_ns(), caused]);
        // `std::mutex::lock` is inlined into `Cache::get`: four frames, three locations.
        assert_eq!(first_stack.len(), 3);
    }
}
