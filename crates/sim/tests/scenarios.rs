//! The scenario files that ship.

use mizan_sim::shipped;

#[test]
fn every_file_is_listed_and_right_and_has_its_faults_within_its_time() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|file| {
            let name = file.expect("readable").file_name();
            name.to_string_lossy().trim_end_matches(".toml").to_owned()
        })
        .collect();
    files.sort_unstable();
    let names: Vec<&str> = shipped().iter().map(|one| one.name).collect();
    assert_eq!(names, files);
    for one in shipped() {
        let scenario = one.scenario();
        assert_eq!(scenario.name, one.name);
        assert!(scenario.about.ends_with(['.', '?']), "{}", one.name);
        for fault in &scenario.faults {
            assert!(fault.from < scenario.time, "{}", one.name);
        }
    }
}
