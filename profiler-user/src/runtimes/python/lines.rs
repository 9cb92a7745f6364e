//! Line tables: an instruction's offset to its line. Pure.
//!
//! Formats: CPython's `Objects/lnotab_notes.txt` (3.8 to 3.10) and `locations.md` (3.11 and later).

/// The line of the instruction at a byte offset; `None` for one that belongs to no line.
#[must_use]
pub(super) fn line_at(minor: u8, table: &[u8], first_line: u32, offset: i64) -> Option<u32> {
    if offset < 0 {
        // Not begun yet.
        return Some(first_line);
    }
    match minor {
        ..=9 => Some(lnotab(table, first_line, offset)),
        10 => ranges(table, first_line, offset),
        _ => locations(table, first_line, offset),
    }
}

fn moved(line: u32, delta: i64) -> u32 {
    u32::try_from(i64::from(line) + delta).unwrap_or(0)
}

/// 3.8 and 3.9: pairs of distances to the next line's first instruction, and to its line.
fn lnotab(table: &[u8], first_line: u32, offset: i64) -> u32 {
    let (mut line, mut address) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        address += i64::from(pair[0]);
        if address > offset {
            break;
        }
        line = moved(line, i64::from(pair[1].cast_signed()));
    }
    line
}

/// 3.10: pairs of the length of a range and the distance of its line; -128 marks code without one.
fn ranges(table: &[u8], first_line: u32, offset: i64) -> Option<u32> {
    let (mut line, mut end) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        let delta = pair[1].cast_signed();
        if delta != -128 {
            line = moved(line, i64::from(delta));
        }
        end += i64::from(pair[0]);
        if offset < end {
            return (delta != -128).then_some(line);
        }
    }
    None
}

/// 3.11 and later: entries of a kind, a number of code units, and positions.
fn locations(table: &[u8], first_line: u32, offset: i64) -> Option<u32> {
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    const NONE: u8 = 15;
    let (mut line, mut end) = (first_line, 0);
    let mut bytes = table.iter().copied().peekable();
    while let Some(first) = bytes.next() {
        let kind = first >> 3 & 15;
        end += (i64::from(first & 7) + 1) * 2;
        let delta = match kind {
            LONG | NO_COLUMNS => signed(&mut bytes)?,
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        line = moved(line, delta);
        // What is left of the entry has no top bit; the next entry begins with one.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        if offset < end {
            return (kind != NONE).then_some(line);
        }
    }
    None
}

/// A number in groups of six bits, low ones first; its lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x3f).checked_shl(shift)?;
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
        if shift > 30 {
            return None;
        }
    }
    let magnitude = i64::try_from(value >> 1).ok()?;
    Some(if value & 1 == 0 { magnitude } else { -magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_3_9_gives_lines_up_to_an_address() {
        // 0: line 10; 4: line 11; 10: line 9.
        let table = [0, 0, 4, 1, 6, 0xfe];
        let lines: Vec<_> =
            [-1, 0, 3, 4, 9, 10, 99].map(|at| line_at(9, &table, 10, at)).into_iter().collect();
        assert_eq!(lines, [10, 10, 10, 11, 11, 9, 9].map(Some));
    }

    #[test]
    fn the_table_of_3_10_has_code_without_a_line() {
        let table = [4, 1, 2, 0x80, 6, 1];
        let lines = [0, 3, 4, 5, 6, 11, 12].map(|at| line_at(10, &table, 10, at));
        assert_eq!(lines, [Some(11), Some(11), None, None, Some(12), Some(12), None]);
    }

    #[test]
    fn the_table_of_3_11_has_short_long_and_empty_entries() {
        let table = [
            0x80 | 13 << 3,
            0b10, // one unit, line + 1
            0x80 | 2 << 3 | 1,
            0x23, // two units, same line
            0x80 | 11 << 3,
            1,
            2,              // one unit, line + 1
            0x80 | 15 << 3, // one unit, none
            0x80 | 14 << 3,
            0b11,
            0,
            1,
            1, // one unit, line - 1
        ];
        let lines = [0, 2, 5, 6, 8, 10, 12].map(|at| line_at(12, &table, 5, at));
        assert_eq!(lines, [Some(6), Some(6), Some(6), Some(7), None, Some(6), None]);
    }

    #[test]
    fn garbage_gives_an_answer_or_none_and_never_panics() {
        for seed in 0..=255_u8 {
            let table: Vec<u8> = (0..97_u8)
                .map(|i| seed.wrapping_mul(31).wrapping_add(i.wrapping_mul(seed)))
                .collect();
            for minor in 8..=15 {
                for offset in [-2, 0, 50, i64::MAX] {
                    let _ = line_at(minor, &table, u32::MAX, offset);
                }
            }
        }
    }
}
