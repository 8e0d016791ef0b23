// A server with only the ai service, on the real kernel and the real contract (reduced to the paths of the
// service). Every answer is validated against the contract. The identities are fixed tokens.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import bundle from '../../../src/contract/gateway/bundle.json' with { type: 'json' };
import { memoryLedger, type MemoryLedger } from './memory-ledger.ts';
import {
  ai,
  createLinks,
  type AiOptions,
  type MediaJobs,
  type StoredResponses,
} from '../../../src/gateway/ai/index.ts';
import { identityOfScheme, type Identity } from '../../../src/gateway/identity.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { createContract } from '../../../src/kernel/contract/contract.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { createServer } from '../../../src/kernel/http/server.ts';

/** Resilience for tests with failing providers: retries are sent at once, and no circuit breaker opens. */
export const testResilience = {
  retry: { firstDelayMs: 1, longestDelayMs: 2, budgetFloor: 10_000 },
  breaker: { consecutiveFailures: 10_000, windowCalls: 10_000 },
};

export const userToken = 'user-token';
export const adminToken = 'admin-token';
export const providerKey = 'CANARY-5b0c7a4e-provider-key';

export interface World {
  url: string;
  /** All log lines of the server. */
  logged: string[];
  modelsFile: string;
  env: Map<string, string>;
  /** The ledger of the only user, with a large balance by default. */
  ledger: MemoryLedger;
  openai(options?: { token?: string }): OpenAI;
  post(
    path: string,
    body: unknown,
    options?: { token?: string | null; headers?: Record<string, string>; signal?: AbortSignal },
  ): Promise<Response>;
  get(path: string, options?: { token?: string | null }): Promise<Response>;
  close(): Promise<void>;
}

export interface WorldOptions {
  /** Content of the models file; absent: no file. */
  models?: string;
  env?: Record<string, string>;
  timeouts?: AiOptions['timeouts'];
  heartbeatMs?: number;
  resilience?: AiOptions['resilience'];
  guideDirectory?: string;
  /** False turns the local models off. */
  localModels?: boolean;
  /** The curated models; none by default. */
  curated?: AiOptions['curated'];
  proxies?: AiOptions['proxies'];
  /** Measurements turn it off. */
  validateResponses?: boolean;
  /** `alarmsToStop` of AiOptions. When absent, no number of alarms stops the user's calls. */
  alarmsToStop?: number;
  /** The user's initial credits. */
  balance?: bigint;
  /** The system clock by default. */
  clock?: Clock;
}

export async function startAi(options: WorldOptions = {}): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-ai-'));
  const modelsFile = join(folder, 'models.json');
  if (options.models !== undefined) await writeFile(modelsFile, options.models);
  const env = new Map(Object.entries(options.env ?? { ACME_API_KEY: providerKey }));
  const redactor = createRedactor();
  const ledger = memoryLedger(options.balance);
  const loggedLines: string[] = [];
  const log = createLog({ level: 'debug', redactor, write: (line) => void loggedLines.push(line) });
  const service = await ai({
    env,
    modelsFile: options.models === undefined ? undefined : modelsFile,
    guideDirectory: options.guideDirectory ?? new URL('../../../docs', import.meta.url).pathname,
    localModels: options.localModels ?? true,
    clock: options.clock ?? systemClock,
    log,
    timeouts: options.timeouts ?? {},
    heartbeatMs: options.heartbeatMs ?? 15_000,
    ...(options.resilience ? { resilience: options.resilience } : {}),
    curated: options.curated ?? { providers: [], models: [] },
    proxies: options.proxies ?? {},
    hide: redactor.hide,
    ledger,
    alarmsToStop: options.alarmsToStop ?? Number.MAX_SAFE_INTEGER,
    jobs: idleJobs,
    storedResponses: noStoredResponses,
    links: createLinks({ keys: [Buffer.alloc(32)], baseUrl: () => '', linkSeconds: 60 }),
  }).catch(async (error: unknown) => {
    await rm(folder, { recursive: true });
    throw error;
  });
  const contract = createContract<Identity>({
    definition: aiDefinition(),
    handlers: service.handlers,
    identities: identityOfScheme,
    identify: async (bearer) => identities[bearer] ?? null,
    guest: { kind: 'guest' },
    validateResponses: options.validateResponses ?? true,
  });
  const server = createServer({ contract, log, clock: systemClock, surface: 'gateway' });
  const { url } = await server.listen({ host: '127.0.0.1', port: 0 });

  const headersFor = (token: string | null): Record<string, string> =>
    token === null ? {} : { authorization: `Bearer ${token}` };
  return {
    url,
    logged: loggedLines,
    modelsFile,
    env,
    ledger,
    openai: ({ token = userToken } = {}) =>
      new OpenAI({ baseURL: `${url}/v1/ai`, apiKey: token, maxRetries: 0 }),
    post: (path, body, { token = userToken, headers = {}, signal } = {}) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headersFor(token), ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(signal ? { signal } : {}),
      }),
    get: (path, { token = userToken } = {}) => fetch(`${url}${path}`, { headers: headersFor(token) }),
    async close() {
      await server.close({ drainMs: 0 });
      await service.settled();
      await service.close?.();
      await rm(folder, { recursive: true });
    },
  };
}

// This world has no database and therefore no jobs; media-world.ts has both.
const idleJobs: MediaJobs = {
  useGenerator: () => {},
  create: refuseDatabase,
  find: refuseDatabase,
  cancel: refuseDatabase,
  list: refuseDatabase,
  remove: refuseDatabase,
  openMedia: refuseDatabase,
  start: refuseDatabase,
  ready: refuseDatabase,
  close: refuseDatabase,
};

// The same holds for stored responses; stored-responses.test.ts has a whole gateway.
const noStoredResponses: StoredResponses = {
  summaries: { seal: refuseDatabase, open: refuseDatabase },
  save: refuseDatabase,
  begin: refuseDatabase,
  finish: refuseDatabase,
  endRun: refuseDatabase,
  renew: refuseDatabase,
  findUncanceled: refuseDatabase,
  requestCancel: refuseDatabase,
  find: refuseDatabase,
  remove: refuseDatabase,
  inputItems: refuseDatabase,
  conversation: refuseDatabase,
  start: refuseDatabase,
  close: refuseDatabase,
};

function refuseDatabase(): never {
  throw new Error('This world has no database.');
}

const identities: Record<string, Identity> = {
  [userToken]: { kind: 'user', userId: 'usr_1', bureauId: 'bur_1', tokenId: 'tok_1' },
  [adminToken]: { kind: 'admin', adminId: 'root', tokenId: 'tok_2' },
};

function hasAiOperation(item: Record<string, { tags?: string[] }>): boolean {
  return Object.values(item).some(({ tags }) => tags?.includes('ai') === true);
}

/** The contract, reduced to the paths of the service. */
function aiDefinition(): object {
  return {
    ...bundle,
    paths: Object.fromEntries(Object.entries(bundle.paths).filter(([, item]) => hasAiOperation(item))),
  };
}

/** The `data` of each event of a stream, without comments. */
export async function eventsOf(response: Response): Promise<string[]> {
  const text = await response.text();
  return text
    .split('\n\n')
    .flatMap((event) => event.split('\n').filter((line) => line.startsWith('data: ')))
    .map((line) => line.slice(6));
}

/** The parts of `POST /v1/ai/stream`, and how the stream ended. */
export async function partsOf(
  response: Response,
): Promise<{ parts: Record<string, unknown>[]; done: boolean }> {
  const events = await eventsOf(response);
  const isDone = events.at(-1) === '[DONE]';
  return {
    parts: (isDone ? events.slice(0, -1) : events).map(
      (event) => JSON.parse(event) as Record<string, unknown>,
    ),
    done: isDone,
  };
}

/** The members of a chat completion chunk that tests read. */
export interface Chunk {
  id: string;
  model: string;
  choices: { delta: Record<string, unknown>; finish_reason: string | null }[];
  usage?: Record<string, unknown> | null;
  error?: Record<string, unknown>;
}

/** One event as a chunk. */
export function chunkOf(event: string | undefined): Chunk {
  return JSON.parse(event ?? '') as Chunk;
}

/** The error object of an answer that is an error. */
export async function errorOf(response: Response): Promise<Record<string, unknown>> {
  return ((await response.json()) as { error: Record<string, unknown> }).error;
}
