//! Classes of one name that are different locks: two files of a C program may both have a `static pthread_mutex_t lock`. The reports
//! add to each name what tells the class from the others.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// What tells classes of one kind and one name from each other. Classes that are equal in it are one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The module's file. Empty: the program itself named the class, or debug information says where its site is.
    pub module: PathBuf,
    /// Of a static variable: where it begins, as its module counts addresses.
    pub start: Option<u64>,
    /// Of a static variable that only its source file can name: that file.
    pub file: String,
}

impl Identity {
    fn module(&self) -> String {
        self.module.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn place(&self) -> String {
        match self.start {
            Some(start) if self.module.file_name().is_some() => format!("{}+{start:#x}", self.module()),
            _ => self.module(),
        }
    }

    /// The same in each look at a recording, also if another class of that name comes later.
    pub fn key(&self, name: &str) -> String {
        format!("{name}\n{}\n{:#x}", self.module.display(), self.start.unwrap_or(0))
    }
}

/// Makes names longer that stand for several classes. The source file is enough in most cases, or else the module.
pub fn distinguish<'a>(names: impl Iterator<Item = &'a mut String>, identities: &[Identity]) {
    let mut names: Vec<&mut String> = names.collect();
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, name) in names.iter().enumerate() {
        groups.entry(name.to_string()).or_default().push(number);
    }
    for group in groups.values() {
        let different: HashSet<&Identity> = group.iter().map(|number| &identities[*number]).collect();
        if different.len() < 2 {
            continue;
        }
        let ways: [fn(&Identity) -> String; 3] = [|one| one.file.clone(), Identity::module, Identity::place];
        let tells = |way: &fn(&Identity) -> String| {
            let labels: HashSet<String> = different.iter().map(|one| way(one)).collect();
            labels.len() == different.len() && !labels.contains("")
        };
        let way = ways.into_iter().find(tells).unwrap_or(Identity::place);
        for number in group {
            let label = way(&identities[*number]);
            if !label.is_empty() {
                *names[*number] += &format!(" ({label})");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(module: &str, start: u64, file: &str) -> Identity {
        Identity { module: module.into(), start: Some(start), file: file.into() }
    }

    fn named(identities: &[Identity]) -> Vec<String> {
        let mut names = vec!["lock".to_owned(); identities.len()];
        distinguish(names.iter_mut(), identities);
        names
    }

    #[test]
    fn classes_of_one_name_are_told_apart() {
        let (first, second) = (at("/bin/a", 1, "a.c"), at("/bin/a", 2, "b.c"));
        // One class only, as the locks of an array.
        assert_eq!(named(&[first.clone(), first.clone()]), ["lock", "lock"]);
        assert_eq!(
            named(&[first.clone(), second.clone(), first.clone()]),
            ["lock (a.c)", "lock (b.c)", "lock (a.c)"]
        );
        // One file in two modules, and two files of one name in one module.
        assert_eq!(named(&[first.clone(), at("/lib/so", 1, "a.c")]), ["lock (a)", "lock (so)"]);
        assert_eq!(named(&[first.clone(), at("/bin/a", 0x40, "a.c")]), ["lock (a+0x1)", "lock (a+0x40)"]);
        // A name that the program gave stays as it is.
        assert_eq!(named(&[first, Identity::default()]), ["lock (a+0x1)", "lock"]);
        let mut names = ["lock", "other"].map(String::from);
        distinguish(names.iter_mut(), &[second, Identity::default()]);
        assert_eq!(names, ["lock", "other"]);
    }
}
