//! Whatever a real scheduler does, the state machine agrees with the model.

use profiler_common::cause;
use proptest::prelude::*;

use crate::drive::Played;
use crate::history::History;
use crate::model::Expected;
use crate::scripts::script;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_turn_is_the_model_s(script in script()) {
        let history = History::of(&script);
        let (played, expected) = (Played::of(&history), Expected::of(&history));
        for (found, wanted) in played.turns.iter().zip(&expected.turns) {
            prop_assert_eq!(found, wanted);
        }
        prop_assert_eq!(played.turns.len(), expected.turns.len());
        prop_assert_eq!(played.missed, 0);
    }

    #[test]
    fn a_ledger_explains_all_of_its_turn(script in script()) {
        for turn in Played::of(&History::of(&script)).turns {
            prop_assert_eq!(turn.ledger.iter().sum::<u64>(), turn.end - turn.start);
            prop_assert_eq!(turn.ledger[cause::UNEXPLAINED as usize], 0);
        }
    }

    #[test]
    fn busy_and_parked_time_are_all_of_the_observed_time(script in script()) {
        let history = History::of(&script);
        let (played, expected) = (Played::of(&history), Expected::of(&history));
        let stats = &played.state.stats;
        prop_assert_eq!(stats.parked_ns, expected.parked_ns);
        prop_assert_eq!(stats.busy_ns, stats.ledger.iter().sum::<u64>());
        prop_assert_eq!(stats.turns, expected.turns.len() as u64);
        prop_assert_eq!(
            stats.max_ns,
            expected.turns.iter().map(|turn| turn.end - turn.start).max().unwrap_or(0)
        );
        let until = expected.open.or(expected.turns.last().map(|turn| turn.end));
        prop_assert_eq!(stats.since_ns, expected.since.unwrap_or(0));
        if let (Some(since), Some(until)) = (expected.since, until) {
            prop_assert_eq!(stats.busy_ns + stats.parked_ns, until - since);
        }
    }

    #[test]
    fn samples_never_stand_for_more_than_the_cpu_time(script in script()) {
        let played = Played::of(&History::of(&script));
        for (turn, sampled) in played.turns.iter().zip(played.sampled) {
            prop_assert!(sampled <= turn.ledger[cause::CPU as usize]);
        }
    }
}
