// Calls that were sent and have no final line yet. Their last lines are copied forward
// when their segment is deleted, and charged as an estimate when their process is gone.
import type { JournalLine } from './journal.ts';

type SentLine = Extract<JournalLine, { kind: 'sent' }>;
type CheckpointLine = Extract<JournalLine, { kind: 'checkpoint' }>;

export interface OpenCall {
  start: SentLine;
  checkpoint: CheckpointLine | null;
}

export interface OpenCalls {
  note(seq: number, line: JournalLine): void;
  /** Calls with a line up to the number, in the order of their last `sent` lines. */
  upTo(seq: number): OpenCall[];
}

interface NumberedCall extends OpenCall {
  startSeq: number;
  checkpointSeq: number;
}

export function createOpenCalls(): OpenCalls {
  const calls = new Map<string, NumberedCall>();

  function noteStart(seq: number, line: SentLine): void {
    const call = calls.get(line.usageId);
    if (call === undefined)
      calls.set(line.usageId, { start: line, startSeq: seq, checkpoint: null, checkpointSeq: Infinity });
    // A retry or a fallback sends the call again under the same usage id. The checkpoint of the
    // earlier attempt stays, as the call costs at least as much.
    else Object.assign(call, { start: line, startSeq: seq });
  }

  function noteCheckpoint(seq: number, line: CheckpointLine): void {
    const call = calls.get(line.usageId);
    if (call !== undefined) Object.assign(call, { checkpoint: line, checkpointSeq: seq });
  }

  return {
    note(seq, line) {
      if (line.kind === 'final') calls.delete(line.usageId);
      else if (line.kind === 'sent') noteStart(seq, line);
      else noteCheckpoint(seq, line);
    },
    upTo: (seq) =>
      [...calls.values()]
        .filter(({ startSeq, checkpointSeq }) => Math.min(startSeq, checkpointSeq) <= seq)
        .sort((left, right) => left.startSeq - right.startSeq),
  };
}
