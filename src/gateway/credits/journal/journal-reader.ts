// Reads the segments of a journal in the order of their lines, one segment in memory at a time.
// A failed segment and its replacement may both have a number, or either of them alone after a
// power loss; each number is delivered once.
import { nextTurn } from '../../../kernel/async.ts';
import { readIfExists } from '../../../kernel/file-errors.ts';
import type { ChargeLine, JournalLine } from './journal.ts';
import { type Frame, readFrames } from './line-format.ts';
import { textToLine, toCharge } from './line-text.ts';
import { listSegments, type SegmentPath } from './segment-file.ts';

export interface NumberedLine {
  seq: number;
  line: JournalLine;
}

/** A range of numbers without an intact line. */
interface Gap {
  from: number;
  to: number;
  /** The segment that should contain them. */
  segment: string;
}

/** What a reading finds besides the lines; complete once all lines are read. */
export interface JournalFacts {
  lastSeq: number;
  /** The highest number that the writer recorded as on disk. */
  syncedSeq: number;
  gaps: Gap[];
}

const batchLines = 500;

export function emptyFacts(): JournalFacts {
  return { lastSeq: 0, syncedSeq: 0, gaps: [] };
}

/**
 * Segments with missing numbers that were on disk. A number above `syncedSeq` may be
 * missing without damage: a power loss keeps pages of an unsynced write in any order.
 */
export function damagedSegments({ gaps, syncedSeq }: JournalFacts): string[] {
  return [...new Set(gaps.filter(({ from }) => from <= syncedSeq).map(({ segment }) => segment))];
}

/**
 * Lines in order, at most 500 at a time. A segment that is deleted in the meantime counts as a gap: the
 * readers that look at the gaps have the journal to themselves, and the journal of this process deletes
 * segments whose charges are applied.
 */
export async function* readLines(folder: string, facts: JournalFacts): AsyncGenerator<NumberedLine[]> {
  const segments = await listSegments(folder);
  facts.lastSeq = (segments[0]?.firstSeq ?? 1) - 1;
  let heldFrames: Frame[] = [];
  for (const [index, segment] of segments.entries()) {
    const bytes = await readIfExists(segment.path);
    noteGap(facts, segment.firstSeq, segments[index - 1]?.name ?? segment.name);
    facts.lastSeq = Math.max(facts.lastSeq, segment.firstSeq - 1);
    const frames = mergeFrames(heldFrames, bytes === null ? [] : readFrames(bytes));
    heldFrames = [];
    const endSeq = segments[index + 1]?.firstSeq ?? Number.POSITIVE_INFINITY;
    yield* readSegmentLines(holdFrom(endSeq, frames, heldFrames), segment, facts);
  }
}

/** The frames in the order of their numbers. */
function mergeFrames(heldFrames: readonly Frame[], frames: Iterable<Frame>): Iterable<Frame> {
  if (heldFrames.length === 0) return frames;
  return [...heldFrames, ...frames].sort((left, right) => left.seq - right.seq);
}

/**
 * Adds the frames that belong to the next segment to `heldFrames`: those of a failed segment that its
 * replacement repeats.
 */
function* holdFrom(endSeq: number, frames: Iterable<Frame>, heldFrames: Frame[]): Generator<Frame> {
  for (const frame of frames)
    if (frame.seq < endSeq) yield frame;
    else heldFrames.push(frame);
}

async function* readSegmentLines(
  frames: Iterable<Frame>,
  segment: SegmentPath,
  facts: JournalFacts,
): AsyncGenerator<NumberedLine[]> {
  let batch: NumberedLine[] = [];
  for (const { seq, syncedSeq, text } of frames) {
    facts.syncedSeq = Math.max(facts.syncedSeq, syncedSeq);
    if (seq <= facts.lastSeq) continue;
    const line = textToLine(text);
    if (line === null) continue;
    noteGap(facts, seq, segment.name);
    facts.lastSeq = seq;
    batch.push({ seq, line });
    if (batch.length < batchLines) continue;
    yield batch;
    batch = [];
    // Parsing a whole segment takes some 40 ms; other work continues between batches.
    await nextTurn();
  }
  if (batch.length > 0) yield batch;
}

function noteGap(facts: JournalFacts, seq: number, segment: string): void {
  if (seq > facts.lastSeq + 1) facts.gaps.push({ from: facts.lastSeq + 1, to: seq - 1, segment });
}

/** Final lines with `after` < number ≤ `upTo`. */
export async function* readCharges(
  folder: string,
  range: { after: number; upTo: number },
): AsyncGenerator<ChargeLine[]> {
  for await (const lines of readLines(folder, emptyFacts())) {
    const charges = lines.flatMap(({ seq, line }) =>
      line.kind === 'final' && seq > range.after && seq <= range.upTo ? [toCharge(seq, line)] : [],
    );
    if (charges.length > 0) yield charges;
    if ((lines.at(-1)?.seq ?? 0) >= range.upTo) return;
  }
}
