use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::wire::Fields;
use super::*;

/// A directory of a test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sftp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> Vec<u8> {
        self.0.join(name).to_str().unwrap().as_bytes().to_vec()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut answers = Answers::default();
    answers.string(bytes);
    answers.bytes
}

/// Sends requests after `INIT` and returns the type and the fields of each answer.
fn ask(requests: &[(u8, Vec<u8>)]) -> Vec<(u8, Vec<u8>)> {
    let mut stream = Answers::default();
    stream.begin(1).u32(3).end();
    for (number, (kind, fields)) in requests.iter().enumerate() {
        stream.begin(*kind).u32(number as u32);
        stream.bytes.extend_from_slice(fields);
        stream.end();
    }
    let mut output = Vec::new();
    serve(&stream.bytes[..], &mut output).unwrap();
    let (mut output, mut packet, mut found) = (&output[..], Vec::new(), Vec::new());
    while wire::read_packet(&mut output, &mut packet).unwrap() {
        let mut fields = Fields::new(&packet);
        let kind = fields.byte().unwrap();
        let number = fields.u32().unwrap();
        if kind == 2 {
            assert_eq!(number, 3);
        } else {
            assert_eq!(number as usize, found.len());
            found.push((kind, packet[5..].to_vec()));
        }
    }
    found
}

/// The code of a status.
fn status((kind, fields): &(u8, Vec<u8>)) -> u32 {
    assert_eq!(*kind, 101);
    Fields::new(fields).u32().unwrap()
}

const HANDLE: [u8; 4] = [0, 0, 0, 1];
const NO_ATTRIBUTES: [u8; 4] = [0; 4];

fn open(path: &[u8], flags: u32) -> (u8, Vec<u8>) {
    (3, [&string(path)[..], &flags.to_be_bytes(), &NO_ATTRIBUTES].concat())
}

fn write(offset: u64, data: &[u8]) -> (u8, Vec<u8>) {
    (6, [&string(&HANDLE)[..], &offset.to_be_bytes(), &string(data)].concat())
}

fn read(offset: u64, length: u32) -> (u8, Vec<u8>) {
    (
        5,
        [&string(&HANDLE)[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat(),
    )
}

#[test]
fn a_file_is_written_anywhere_and_read_back() {
    let place = Place::new("write");
    let path = place.path("f");
    let found = ask(&[
        open(&path, 1 | 2 | 8),
        write(3, b"def"),
        write(0, b"abc"),
        read(1, 4),
        read(6, 4),
        (4, string(&HANDLE)),
        read(0, 1),
    ]);
    assert_eq!(found[0], (102, string(&HANDLE)));
    assert_eq!((status(&found[1]), status(&found[2])), (0, 0));
    assert_eq!(found[3], (103, string(b"bcde")));
    assert_eq!(status(&found[4]), 1, "the end");
    assert_eq!((status(&found[5]), status(&found[6])), (0, 4), "closed");
    assert_eq!(std::fs::read(place.0.join("f")).unwrap(), b"abcdef");
}

#[test]
fn appending_disregards_offsets_and_a_new_file_replaces_none() {
    let place = Place::new("append");
    std::fs::write(place.0.join("f"), "abc").unwrap();
    let path = place.path("f");
    let found = ask(&[open(&path, 2 | 4), write(0, b"d"), open(&path, 2 | 8 | 32)]);
    assert_eq!((status(&found[1]), status(&found[2])), (0, 4));
    assert_eq!(std::fs::read(place.0.join("f")).unwrap(), b"abcd");
}

#[test]
fn a_rename_replaces_nothing_but_posix_rename_does() {
    let place = Place::new("rename");
    std::fs::write(place.0.join("a"), "a").unwrap();
    std::fs::write(place.0.join("b"), "b").unwrap();
    let both = [string(&place.path("a")), string(&place.path("b"))].concat();
    let found = ask(&[
        (18, both.clone()),
        (200, [string(b"posix-rename@openssh.com"), both].concat()),
    ]);
    assert_eq!((status(&found[0]), status(&found[1])), (4, 0));
    assert_eq!(std::fs::read(place.0.join("b")).unwrap(), b"a");
}

#[test]
fn a_directory_is_listed_with_dots_and_ends() {
    let place = Place::new("list");
    for number in 0..150 {
        std::fs::write(place.0.join(number.to_string()), "").unwrap();
    }
    let next = (12, string(&HANDLE));
    let found = ask(&[(11, string(&place.path(""))), next.clone(), next.clone(), next]);
    let counts = [1, 2].map(|at| Fields::new(&found[at].1).u32().unwrap());
    assert_eq!(counts.iter().sum::<u32>(), 152);
    let mut fields = Fields::new(&found[1].1);
    fields.u32().unwrap();
    assert_eq!(fields.string().unwrap(), b".");
    assert!(fields.string().unwrap().starts_with(b"drwx"));
    assert_eq!(status(&found[3]), 1);
}

#[test]
fn attributes_are_set_and_told() {
    let place = Place::new("attributes");
    std::fs::write(place.0.join("f"), "abcdef").unwrap();
    let path = string(&place.path("f"));
    let wanted = [
        &(1_u32 | 4 | 8).to_be_bytes()[..],
        &4_u64.to_be_bytes(),
        &0o640_u32.to_be_bytes(),
        &[0, 0, 0, 5, 0, 0, 0, 6],
    ];
    let found = ask(&[(9, [&path[..], &wanted.concat()].concat()), (17, path)]);
    assert_eq!((status(&found[0]), found[1].0), (0, 105));
    let data = std::fs::metadata(place.0.join("f")).unwrap();
    assert_eq!((data.size(), data.mode() & 0o777, data.mtime()), (4, 0o640, 6));
    assert_eq!(found[1].1[4..12], 4_u64.to_be_bytes());
}

#[test]
fn links_have_the_target_first_as_with_openssh() {
    let place = Place::new("links");
    let link = string(&place.path("l"));
    let found = ask(&[(20, [string(b"the target"), link.clone()].concat()), (19, link)]);
    assert_eq!(status(&found[0]), 0);
    let mut fields = Fields::new(&found[1].1);
    assert_eq!(fields.u32().unwrap(), 1);
    assert_eq!(fields.string().unwrap(), b"the target");
}

#[test]
fn limits_are_told_and_what_is_unknown_is_unsupported() {
    let found = ask(&[
        (200, string(b"limits@openssh.com")),
        (200, string(b"x")),
        (99, Vec::new()),
    ]);
    assert_eq!(found[0].0, 201);
    assert_eq!(found[0].1[..8], 262_144_u64.to_be_bytes());
    assert_eq!((status(&found[1]), status(&found[2])), (8, 8));
}

#[test]
fn a_malformed_request_is_answered_and_the_next_one_works() {
    let found = ask(&[(3, vec![0xff; 3]), (5, string(b"no handle")), (17, string(b"/"))]);
    assert_eq!((status(&found[0]), status(&found[1]), found[2].0), (5, 4, 105));
}

#[test]
fn reading_more_than_a_packet_holds_is_cut() {
    let place = Place::new("large");
    std::fs::write(place.0.join("f"), vec![7; 300_000]).unwrap();
    let found = ask(&[open(&place.path("f"), 1), read(0, u32::MAX)]);
    assert_eq!(found[1].1.len(), 4 + 262_144 - 1024);
}

#[test]
fn a_pipe_without_a_writer_does_not_hang_the_server() {
    let place = Place::new("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.0.join("p"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let found = ask(&[open(&place.path("p"), 1), (17, string(b"/"))]);
    assert_eq!(found[1].0, 105);
}

#[test]
fn whoever_does_not_begin_with_init_is_not_served() {
    let mut stream = Answers::default();
    stream.begin(17).u32(0).string(b"/").end();
    assert!(serve(&stream.bytes[..], Vec::new()).is_err());
}
