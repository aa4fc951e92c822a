//! The scenario files that ship.

use mizan_sim::{Scenario, shipped};

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

#[test]
fn the_page_on_scenarios_shows_one_that_is_right_and_names_every_kind_of_fault() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let block = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let scenario = Scenario::parse("scenarios.md", block.expect("an example"));
    assert_eq!(scenario.expect("it is right").faults.len(), 1);
    for one in shipped() {
        for fault in one.scenario().faults {
            let row = format!("\n| `{}` |", fault.kind.name());
            assert!(page.contains(&row), "{row}");
        }
    }
}
