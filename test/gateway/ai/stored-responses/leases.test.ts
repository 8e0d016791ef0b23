// Leases of running responses, with a store in memory: when a response counts as left by its process.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createBackgroundResponses } from '../../../../src/gateway/ai/responses/background.ts';
import type { ResponsePlan } from '../../../../src/gateway/ai/responses/plan.ts';
import { createResponseRuns } from '../../../../src/gateway/ai/responses/runs/runs.ts';
import {
  storedResponses,
  type StoredResponses,
} from '../../../../src/gateway/ai/responses/stored/stored-responses.ts';
import type {
  StoredResponseRow,
  StoredResponsesStore,
} from '../../../../src/gateway/ai/responses/stored/store.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { rememberNothing } from '../../../../src/kernel/data/idempotency.ts';
import { silentLog } from '../../../support/databases.ts';

const address = { responseId: 'resp_1', owner: { kind: 'user', id: 'usr_1' } } as const;
const runningResponse = { id: 'resp_1', status: 'in_progress' };

/** A store with one response, whose lease has always expired, as after an outage of the database. */
class ExpiredStore {
  isWritable = true;
  #row: StoredResponseRow | undefined;
  #isFinal = false;

  async insert(row: StoredResponseRow) {
    this.#row = row;
  }

  async find() {
    return this.#row === undefined ? null : { ...this.#row, state: this.#isFinal ? 'final' : 'abandoned' };
  }

  async finish({ response }: Pick<StoredResponseRow, 'response'>) {
    if (!this.isWritable) throw new Error('the database is unavailable');
    if (this.#row !== undefined) this.#row = { ...this.#row, response };
    this.#isFinal = true;
    return true;
  }

  async deleteBeyond() {}

  async findUncanceled() {
    return [address.responseId];
  }

  async renewLeases() {}
}

let store: ExpiredStore;
let responses: StoredResponses;
beforeEach(() => {
  store = new ExpiredStore();
  responses = storedResponses({
    store: store as unknown as StoredResponsesStore,
    vault: { primaryKid: 'kid', seal: (_kid, _context, text) => text, open: (_context, text) => text },
    clock: systemClock,
    log: silentLog,
    keepHours: 1,
    maxBytesPerOwner: 1_000_000,
  });
});

describe('a running response with an expired lease', () => {
  const begin = () =>
    responses.begin({ ...address, previousId: null, input: 'hi', response: runningResponse });

  test('stays running in its own process', async () => {
    await begin();
    expect(await responses.find(address)).toMatchObject({ status: 'in_progress' });
    await responses.finish('resp_1', { id: 'resp_1', status: 'completed' });
    expect(await responses.find(address)).toMatchObject({ status: 'completed' });
  });

  test('is failed once its process has given it up', async () => {
    await begin();
    responses.endRun('resp_1');
    expect(await responses.find(address)).toMatchObject({ status: 'failed' });
  });
});

describe('a background response whose final version cannot be stored', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  test('is failed after a minute of tries', async () => {
    const runs = createResponseRuns({ log: silentLog });
    const background = createBackgroundResponses({ runs, storedResponses: responses, log: silentLog });
    const completed = { type: 'response.completed', response: { id: 'resp_1', status: 'completed' } };
    await background.start({
      plan: { ...address, previousId: null, request: { input: 'hi' } } as unknown as ResponsePlan,
      response: runningResponse,
      remember: rememberNothing,
      signal: new AbortController().signal,
      async answer(_detached, beforeSend) {
        await beforeSend();
        store.isWritable = false;
        return { content: Buffer.from(`data: ${JSON.stringify(completed)}\n\n`) };
      },
    });
    // Thirty tries with two seconds between them.
    await vi.advanceTimersByTimeAsync(61_000);
    store.isWritable = true;
    expect(await responses.find(address)).toMatchObject({ status: 'failed' });
    await background.close();
  });
});
