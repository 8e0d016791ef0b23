// Decides which inputs of a batch start at once, which wait until this process has a free place for one more
// run, and which are refused because too many wait already.
import type { UnitOfWork } from '../event-log/unit.ts';
import { waitingAhead } from './store.ts';
import type { AdmissionRules } from './submission.ts';

export type Slot = 'start' | 'full' | { wait: 'capacity'; ahead: number };

export interface Capacity {
  /** Takes a slot for a run whose session is idle. A further call for the run returns the same slot. */
  take(runId: string): Promise<Slot>;
  /** Claims a free place for a run that must not wait; false when no place is free. */
  takeNow(runId: string): boolean;
  /** Counts one more input that waits for a free place, and returns the number of inputs ahead of it. */
  queueUp(): Promise<number>;
}

/** Creates the capacity for one attempt to write one batch. A run that starts is claimed. */
export function createCapacity(unit: UnitOfWork, rules: AdmissionRules): Capacity {
  const slots = new Map<string, Slot>();
  let waitingCount: number | undefined;

  /** All inputs that wait for a free place, including those of this batch. */
  async function countWaiting(): Promise<number> {
    waitingCount ??= await waitingAhead(unit.tx, rules.agentId);
    return waitingCount;
  }

  async function queueUp(): Promise<number> {
    const runsAhead = await countWaiting();
    waitingCount = runsAhead + 1;
    return runsAhead;
  }

  function takeNow(runId: string): boolean {
    const isFree = rules.mayStart();
    if (isFree) rules.claim(runId);
    return isFree;
  }

  async function chooseSlot(runId: string): Promise<Slot> {
    if (takeNow(runId)) return 'start';
    if ((await countWaiting()) >= rules.maxQueuedRuns) return 'full';
    return { wait: 'capacity', ahead: await queueUp() };
  }

  return {
    async take(runId) {
      const slot = slots.get(runId) ?? (await chooseSlot(runId));
      slots.set(runId, slot);
      return slot;
    },
    takeNow,
    queueUp,
  };
}
