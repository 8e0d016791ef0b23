// Stored responses: sealed with the master key, readable only by their owner, and deleted by age or beyond
// a quota. A conversation is a chain of responses, each of which continues its predecessor.
import { pause } from '../../../../kernel/async.ts';
import { type Background, createBackground } from '../../../../kernel/background.ts';
import type { Clock } from '../../../../kernel/clock.ts';
import type { JsonRecord } from '../../../../kernel/json-value.ts';
import type { Log } from '../../../../kernel/log.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { Tx } from '../../../../kernel/data/database.ts';
import { SealError, type Vault } from '../../../../kernel/secrets/vault.ts';
import { toStoredItems } from './items.ts';
import { createSummaries, type Summaries } from './summaries.ts';
import {
  type ResponseAddress,
  sealedTable,
  type SealedTexts,
  type StoredResponseRow,
  type StoredResponsesStore,
} from './store.ts';

export interface NewResponse extends ResponseAddress {
  /** The response that the new response continues. */
  previousId: string | null;
  /** The member `input` of the request. */
  input: unknown;
  response: JsonRecord;
}

export interface StoredResponses {
  /** Seals summaries of compacted conversations, which are not stored. */
  readonly summaries: Summaries;
  save(response: NewResponse): Promise<void>;
  /**
   * Throws a 404. Marks a running response as failed if its lease has expired and it does not run in this
   * process.
   */
  find(address: ResponseAddress): Promise<JsonRecord>;
  /**
   * Stores a response that runs in this process; `alongside` runs in the same transaction. Call `renew` at
   * least every 30 seconds until the response ends.
   */
  begin(response: NewResponse, alongside?: (tx: Tx) => Promise<unknown>): Promise<void>;
  /** Replaces a running response with its final version; no effect when it is deleted or already final. */
  finish(responseId: string, response: JsonRecord): Promise<void>;
  /**
   * Records that this process no longer runs the response. If its final version could not be stored, it
   * counts as failed once its lease has expired.
   */
  endRun(responseId: string): void;
  renew(responseIds: readonly string[]): Promise<void>;
  /** The responses among these that run and are neither canceled nor deleted. */
  findUncanceled(responseIds: readonly string[]): Promise<string[]>;
  /** Records a cancellation for the process that runs the response. Throws a 404. */
  requestCancel(address: ResponseAddress): Promise<void>;
  /** Throws a 404. */
  remove(address: ResponseAddress): Promise<void>;
  /** All items that the model read for the response, the oldest first. Throws a 404 and a 400. */
  inputItems(address: ResponseAddress): Promise<JsonRecord[]>;
  /**
   * The whole conversation up to the response and with its output, the oldest item first. Throws a
   * 400 when a response is missing, and a 413 when it is longer than a request may be.
   */
  conversation(address: ResponseAddress): Promise<JsonRecord[]>;
  /** Starts deleting expired responses. Safe on several replicas. */
  start(): void;
  close(): Promise<void>;
}

export interface StoredResponsesOptions {
  store: StoredResponsesStore;
  vault: Pick<Vault, 'primaryKid' | 'seal' | 'open'>;
  clock: Pick<Clock, 'sleep'>;
  log: Log;
  keepHours: number;
  maxBytesPerOwner: number;
  /**
   * Whether no other process uses the database. Then a response that is running when this process starts was
   * left by a process that has stopped.
   */
  isAlone?: boolean;
}

// The process of a response renews the lease every ten seconds.
const leaseSeconds = 30;

// A conversation is read as a whole: one statement reads the chain, and one reads all of its texts.
const maxLinks = 1_000;
/** The limit of a request's body; a conversation counts as one. */
export const maxConversationBytes = 10 * 1024 * 1024;
// Base64 of the sealed texts is a third longer, and each of up to 1,000 rows counts 1 KiB in addition: 14.3
// MiB.
const maxSealedBytes = Math.ceil(maxConversationBytes * 1.5);
const cleanEveryMs = 600_000;
const cleanBatch = 500;

export function storedResponses(options: StoredResponsesOptions): StoredResponses {
  const { store, log } = options;
  const background = createBackground(log);
  /** The ids of the responses that run in this process. */
  const runningIds = new Set<string>();
  const cleanup = createCleanup(options, runningIds, background);

  async function insert(response: NewResponse, { alongside, ...lease }: InsertOptions = {}): Promise<void> {
    const { responseId, owner } = response;
    const row = { ...sealRow(options, response), ...lease };
    await store.insert(row, options.keepHours * 3_600, alongside);
    background.run(`enforce the quota after ${responseId}`, () =>
      store.deleteBeyond(owner, options.maxBytesPerOwner),
    );
  }

  return {
    summaries: createSummaries(options.vault),
    save: (response) => insert(response),
    async begin(response, alongside) {
      runningIds.add(response.responseId);
      try {
        await insert(response, { leaseSeconds, alongside });
      } catch (error) {
        runningIds.delete(response.responseId);
        throw error;
      }
    },
    async finish(responseId, response) {
      const sealedResponse = sealText(options, responseId, { member: 'response', value: response });
      await store.finish({ responseId, response: sealedResponse });
      runningIds.delete(responseId);
    },
    endRun: (responseId) => void runningIds.delete(responseId),
    renew: (responseIds) => store.renewLeases(responseIds, leaseSeconds),
    findUncanceled: (responseIds) => store.findUncanceled(responseIds),
    async requestCancel(address) {
      if ((await store.find(address)) === null) throw responseNotFound(address.responseId);
      await store.requestCancel(address);
    },
    find: (address) => findResponse(options, runningIds, address),
    async remove(address) {
      runningIds.delete(address.responseId);
      if (!(await store.remove(address))) throw responseNotFound(address.responseId);
    },
    inputItems: (address) => readInputItems(options, address),
    conversation: (address) => readConversation(options, address),
    start: () => cleanup.start(),
    async close() {
      await cleanup.stop();
      await background.untilSettled();
    },
  };
}

/**
 * Every ten minutes, deletes expired responses and marks responses as failed whose process has stopped. When
 * it starts, a process that is alone on the database marks every running response as failed.
 */
function createCleanup(
  options: StoredResponsesOptions,
  runningIds: ReadonlySet<string>,
  background: Background,
) {
  const { store, clock, log, isAlone = false } = options;
  const stop = new AbortController();
  let loop: Promise<void> | undefined;

  async function failAbandoned({ all }: { all: boolean }): Promise<void> {
    for (;;) {
      const rows = await store.findAbandoned({ all, runningIds, limit: cleanBatch });
      // Skip a response that this process has begun since the query.
      for (const row of rows) if (!runningIds.has(row.responseId)) await failOne(options, row);
      if (rows.length < cleanBatch) return;
    }
  }

  async function clean(): Promise<void> {
    try {
      while ((await store.deleteExpired(cleanBatch)) === cleanBatch);
      await failAbandoned({ all: false });
    } catch (error) {
      log.warn({ err: error }, 'expired responses could not be deleted');
    }
  }

  async function cleanRegularly(): Promise<void> {
    background.run('fail responses of stopped processes', () => failAbandoned({ all: isAlone }));
    for (;;) {
      await pause(cleanEveryMs, { clock, signal: stop.signal });
      if (stop.signal.aborted) return;
      await clean();
    }
  }

  return {
    start: () => void (loop ??= cleanRegularly()),
    async stop() {
      stop.abort();
      await loop;
    },
  };
}

interface InsertOptions {
  /** The lease of a running response; absent for a final response. */
  leaseSeconds?: number;
  /** A write in the same transaction. */
  alongside?: ((tx: Tx) => Promise<unknown>) | undefined;
}

function sealRow(
  options: StoredResponsesOptions,
  { responseId, owner, previousId, input, response }: NewResponse,
): StoredResponseRow {
  const sealedTexts = {
    input: sealText(options, responseId, { member: 'input', value: toStoredItems(input) }),
    response: sealText(options, responseId, { member: 'response', value: response }),
  };
  const bytes = sealedTexts.input.length + sealedTexts.response.length;
  return { responseId, owner, previousId, ...sealedTexts, bytes };
}

async function findResponse(
  options: StoredResponsesOptions,
  runningIds: ReadonlySet<string>,
  address: ResponseAddress,
): Promise<JsonRecord> {
  const { store } = options;
  let row = await store.find(address);
  // After an outage of the database, the lease of a response that runs here may be expired until it is
  // renewed.
  if (row?.state === 'abandoned' && !runningIds.has(row.responseId)) {
    await failOne(options, row);
    row = await store.find(address);
  }
  const response = row && openText(options, row, 'response');
  if (!response) throw responseNotFound(address.responseId);
  return response as JsonRecord;
}

async function readInputItems(
  options: StoredResponsesOptions,
  { responseId, owner }: ResponseAddress,
): Promise<JsonRecord[]> {
  const row = await options.store.find({ responseId, owner });
  const input = row && openText(options, row, 'input');
  if (!input) throw responseNotFound(responseId);
  const { previousId } = row;
  const earlierItems =
    previousId === null ? [] : await readConversation(options, { responseId: previousId, owner });
  return [...earlierItems, ...(input as JsonRecord[])];
}

type TextMember = 'input' | 'response';

function contextOf(responseId: string, member: TextMember) {
  return { table: sealedTable, key: `${responseId}/${member}`, version: 1 };
}

function sealText(
  { vault }: StoredResponsesOptions,
  responseId: string,
  { member, value }: { member: TextMember; value: unknown },
): string {
  return vault.seal(vault.primaryKid, contextOf(responseId, member), JSON.stringify(value));
}

/** Marks a response as failed. Its charge is booked from the journal of the process that has stopped. */
async function failOne(options: StoredResponsesOptions, row: SealedTexts): Promise<void> {
  const response = openText(options, row, 'response') as JsonRecord | undefined;
  const failedResponse = {
    ...response,
    status: 'failed',
    error: {
      code: 'server_error',
      message: 'The gateway that ran this response has stopped; create it again.',
    },
  };
  // A response that no key opens cannot be changed; it only becomes final.
  const sealedResponse =
    response === undefined
      ? row.response
      : sealText(options, row.responseId, { member: 'response', value: failedResponse });
  await options.store.finish({ responseId: row.responseId, response: sealedResponse });
}

/** Undefined when no configured master key opens the text; its owner then gets a 404. */
function openText(
  { vault, log }: StoredResponsesOptions,
  { responseId, ...sealed }: SealedTexts,
  member: TextMember,
): unknown {
  try {
    return JSON.parse(vault.open(contextOf(responseId, member), sealed[member]));
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    log.warn({ err: error, responseId }, 'a stored response cannot be decrypted');
    return undefined;
  }
}

async function readConversation(
  options: StoredResponsesOptions,
  address: ResponseAddress,
): Promise<JsonRecord[]> {
  const { store } = options;
  const links = await store.chain(address, maxLinks + 1);
  if (links.reduce((sum, { bytes }) => sum + bytes, 0) > maxSealedBytes || links.length > maxLinks)
    throw conversationTooLong();
  const missingId = links.length === 0 ? address.responseId : (links.at(-1)?.previousId ?? null);
  if (missingId !== null) throw previousNotFound(missingId);
  const responseIds = links.map(({ responseId }) => responseId);
  const rows = new Map((await store.read(address.owner, responseIds)).map((row) => [row.responseId, row]));
  return links.toReversed().flatMap(({ responseId }) => {
    const row = rows.get(responseId);
    const input = row && (openText(options, row, 'input') as JsonRecord[] | undefined);
    const response = row && (openText(options, row, 'response') as JsonRecord | undefined);
    if (input === undefined || response === undefined || isRunning(response))
      throw previousNotFound(responseId);
    return [...input, ...outputOf(response)];
  });
}

/** Whether the response is not final yet, so that it can be canceled but not continued. */
export function isRunning({ status }: JsonRecord): boolean {
  return status === 'queued' || status === 'in_progress';
}

function outputOf({ output }: JsonRecord): JsonRecord[] {
  return Array.isArray(output) ? (output as JsonRecord[]) : [];
}

function responseNotFound(responseId: string): Problem {
  return new Problem('not_found', 'response_not_found', `Response with id '${responseId}' not found.`, {
    param: 'response_id',
  });
}

function previousNotFound(responseId: string): Problem {
  return new Problem(
    'bad_request',
    'previous_response_not_found',
    `Previous response with id '${responseId}' not found, or still running. ` +
      'Create responses with store: true to continue them.',
    { param: 'previous_response_id' },
  );
}

/** A 413 for a conversation that is, with the new input, longer than a request may be. */
export function conversationTooLong(): Problem {
  return new Problem(
    'too_large',
    'request_too_large',
    `The conversation of previous_response_id is longer than a request may be: 10 MiB or ${maxLinks} ` +
      'responses. Send a shorter one in input.',
    { param: 'previous_response_id' },
  );
}
