// What a run writes down as it goes. Text reaches followers as it comes and the database in pieces; everything else is
// in the log before it counts. The rule it keeps: one order, so that no event overtakes another and no text its part.
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { isRolledBack } from '../event-log/batches.ts';
import type { Bus, OpenPart } from '../event-log/bus.ts';
import type { Committer, Unit } from '../event-log/committer.ts';
import {
  append,
  insertCheckpoint,
  deleteCheckpoints,
  type LogEntry,
  type SessionChange,
} from '../event-log/store.ts';

export interface JournalNeeds {
  sessionKey: string;
  runId: string;
  committer: Committer;
  bus: Bus;
  clock: Clock;
  /** Called once, when something could not be written. */
  failed(error: unknown): void;
}

export interface RunWriter {
  /** Resolves once the events are durable, and with them all that was deferred; throws when the run may not write any more. */
  record(
    events: readonly SessionEvent[],
    change?: SessionChange,
    more?: (unit: Unit) => Promise<void>,
  ): Promise<void>;
  /** The same for what depends on how the session stands: it is made in the transaction that writes it, and null writes nothing. */
  recordFrom(
    make: (unit: Unit) => Promise<{ events: readonly LogEntry[]; change: SessionChange } | null>,
  ): Promise<void>;
  /** Written with whatever is written next. */
  defer(events: readonly SessionEvent[]): void;
  /** Text of a block; the first of it begins a part. */
  addText(type: 'text' | 'reasoning', block: string, delta: string): void;
  endText(type: 'text' | 'reasoning', block: string): void;
  /** The message that parts belong to from now on. */
  setMessage(messageId: string): void;
  /** Waits for what is under way and gives back what is still deferred, for the settlement. Nothing may be written after. */
  close(): Promise<{ events: SessionEvent[]; hasCheckpoints: boolean }>;
  /** Followers need no snapshots of its parts any more. */
  dispose(): void;
}

interface Writing {
  part: OpenPart;
  block: string;
  isOpen: boolean;
  /** Text that came before the part was in the log. */
  early: string;
  savedLength: number;
}

// A quarter of a second is what may be lost at most; the rest of it is for a machine that is busy and for the commit.
const checkpointEveryMs = 100;
const checkpointLength = 4 * 1024;

export function createRunWriter({
  sessionKey,
  runId,
  committer,
  bus,
  clock,
  failed,
}: JournalNeeds): RunWriter {
  const blocks = new Map<string, Writing>();
  const all = new Set<Writing>();
  let messageId = '';
  const deferred: SessionEvent[] = [];
  const ended: Writing[] = [];
  let last: Promise<unknown> = Promise.resolve();
  let isBroken = false;
  let timer: NodeJS.Timeout | undefined;
  let hasCheckpoints = false;
  let isSaveDue = false;

  function enqueue<T>(work: () => Promise<T>): Promise<T> {
    const next = last.then(() => {
      if (isBroken) throw runLost();
      return work();
    });
    last = next.catch(() => {});
    return next;
  }

  // What nobody waits for breaks the run all the same.
  function unwatched(work: () => Promise<unknown>): void {
    enqueue(work).catch((error: unknown) => {
      if (isBroken) return;
      isBroken = true;
      failed(error);
    });
  }

  /** What was deferred goes with it, and is deferred no more once it is written. */
  async function put(
    work: (deferred: readonly SessionEvent[], saved: readonly string[]) => Promise<number | null>,
  ): Promise<number | null> {
    const [rows, done] = [[...deferred], [...ended]];
    const forget = () => {
      deferred.splice(0, rows.length);
      for (const { part } of ended.splice(0, done.length)) bus.closePart(sessionKey, part.partId);
    };
    try {
      const head = await work(
        rows,
        done.flatMap(({ savedLength, part }) => (savedLength > 0 ? [part.partId] : [])),
      );
      if (head !== null) forget();
      return head;
    } catch (error) {
      // It may be written all the same, and must not be twice.
      if (!isRolledBack(error)) forget();
      throw error;
    }
  }

  async function write(
    events: readonly SessionEvent[],
    change: SessionChange | undefined,
    more?: (unit: Unit) => Promise<void>,
  ): Promise<number> {
    const head = await put(async (before, saved) => {
      const own = {
        sessionKey,
        runId,
        fence: runId,
        events: [...before, ...events],
        ...(change ? { change } : {}),
      };
      if (more === undefined && saved.length === 0) return committer.append(own);
      return committer.commit(async (unit) => {
        const seq = await append(unit, own, deleteCheckpoints(unit.tx, runId, saved));
        if (seq !== null) await more?.(unit);
        return seq;
      });
    });
    if (head === null) throw runLost();
    return head;
  }

  async function begin(writing: Writing): Promise<void> {
    const { part } = writing;
    part.startedSeq = await write(
      [{ type: 'part.started', messageId: part.messageId, partId: part.partId, partType: part.partType }],
      undefined,
    );
    bus.openPart(sessionKey, part);
    writing.isOpen = true;
    const { early } = writing;
    writing.early = '';
    show(writing, early);
  }

  function show(writing: Writing, text: string): void {
    if (text !== '') bus.addText(sessionKey, writing.part.partId, text, clock.now().toISOString());
  }

  function save(): void {
    clearTimeout(timer);
    timer = undefined;
    if (isSaveDue) return;
    isSaveDue = true;
    unwatched(async () => {
      isSaveDue = false;
      const due = [...all].filter(
        ({ part, savedLength, isOpen }) => isOpen && part.text.length > savedLength,
      );
      const pieces = due
        .filter((writing) => !ended.includes(writing))
        .map((writing) => ({
          writing,
          from: writing.savedLength,
          piece: writing.part.text.slice(writing.savedLength),
        }));
      if (deferred.length > 0) await write([], undefined);
      if (pieces.length === 0) return;
      hasCheckpoints = true;
      for (const { writing, from, piece } of pieces) writing.savedLength = from + piece.length;
      await committer.commit(async (unit) => {
        for (const { writing, from, piece } of pieces)
          await insertCheckpoint(unit, sessionKey, writing.part, from, piece);
      });
    });
  }

  function saveSoon(): void {
    timer ??= setTimeout(save, checkpointEveryMs);
  }

  return {
    async record(events, change, more) {
      await enqueue(() => write(events, change, more));
    },
    async recordFrom(make) {
      await enqueue(() =>
        put((before, saved) =>
          committer.commit(async (unit) => {
            const made = await make(unit);
            return (
              made &&
              append(
                unit,
                { sessionKey, runId, fence: runId, events: [...before, ...made.events], change: made.change },
                deleteCheckpoints(unit.tx, runId, saved),
              )
            );
          }),
        ),
      );
    },
    defer(events) {
      // In its turn: the end of a part that is on its way stands before it.
      unwatched(async () => {
        deferred.push(...events);
        saveSoon();
      });
    },
    addText(type, block, delta) {
      if (delta === '') return;
      const key = `${type}:${block}`;
      let writing = blocks.get(key);
      if (!writing) {
        const part: OpenPart = {
          runId,
          messageId,
          partId: id('prt'),
          partType: type,
          startedSeq: 0,
          text: '',
        };
        writing = { part, block: key, isOpen: false, early: '', savedLength: 0 };
        blocks.set(key, writing);
        all.add(writing);
        const opening = writing;
        unwatched(() => begin(opening));
      }
      if (!writing.isOpen) writing.early += delta;
      else show(writing, delta);
      if (writing.part.text.length - writing.savedLength >= checkpointLength) {
        save();
      } else saveSoon();
    },
    endText(type, block) {
      const key = `${type}:${block}`;
      const writing = blocks.get(key);
      if (!writing) return;
      blocks.delete(key);
      // In its turn behind the beginning of the part; the event itself goes with the next write.
      unwatched(async () => {
        const { part } = writing;
        deferred.push({
          type: 'part.ended',
          messageId: part.messageId,
          partId: part.partId,
          partType: part.partType,
          text: part.text,
        });
        ended.push(writing);
        all.delete(writing);
        saveSoon();
      });
    },
    setMessage(next) {
      messageId = next;
    },
    async close() {
      for (const { block } of Array.from(blocks.values())) {
        const [type = 'text', ...rest] = block.split(':');
        this.endText(type as 'text' | 'reasoning', rest.join(':'));
      }
      await last;
      clearTimeout(timer);
      timer = undefined;
      return { events: deferred.splice(0), hasCheckpoints };
    },
    dispose() {
      clearTimeout(timer);
      for (const { part } of [...all, ...ended]) bus.closePart(sessionKey, part.partId);
    },
  };
}

export function runLost(): Problem {
  return new Problem(
    'unavailable',
    'run_interrupted',
    'Another process of this agent took this one for dead and has ended the run.',
  );
}
