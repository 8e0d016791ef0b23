// The agent's access to the gateway: models by id and their context windows. The token file is read for every call, so a
// new or changed file takes effect without a restart.
import { readFile } from 'node:fs/promises';
import { createGatewayClient } from '@townhall/gateway';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../kernel/clock.ts';
import { nextTurn } from '../kernel/async.ts';
import { Problem } from '../kernel/problem.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';

export type GatewayToken = { value: string } | { file: string };

export interface GatewayAccess {
  /** Throws a Problem when there is no token now. Nothing is sent before the model is called. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /** The context window in the gateway's catalog; null when the catalog has none or does not answer. */
  contextTokens(modelId: string): Promise<number | null>;
}

// The catalog changes seldom, and a run can go on without it.
const catalogTtlMs = 5 * 60 * 1000;
const catalogTimeoutMs = 3_000;

export function gatewayAccess(options: {
  url: string;
  token: GatewayToken;
  redactor: Redactor;
  clock: Clock;
}): GatewayAccess {
  const { url, token: source, redactor, clock } = options;
  let currentToken = '';
  let releaseToken = () => {};

  async function readToken(): Promise<string> {
    const token = 'value' in source ? source.value : await readTokenFile(source.file);
    if (token !== currentToken) {
      releaseToken();
      releaseToken = redactor.hold(token);
      currentToken = token;
    }
    return token;
  }

  const client = createGatewayClient({ baseUrl: url, token: readToken });
  let windows: Promise<Map<string, number>> | undefined;
  let windowsUntilMs = 0;

  function readWindows(): Promise<Map<string, number>> {
    windowsUntilMs = clock.monotonicMs() + catalogTtlMs;
    return client.ai.listModels(undefined, { timeoutMs: catalogTimeoutMs }).then(
      ({ items }) =>
        new Map(
          items.flatMap(({ id, context_window: tokens }) =>
            typeof tokens === 'number' ? [[id, tokens] as const] : [],
          ),
        ),
      () => new Map<string, number>(),
    );
  }

  return {
    async model(modelId, settings = {}) {
      await readToken();
      return withinGatewayLimit(client.model(modelId, settings));
    },
    async contextTokens(modelId) {
      windows = windows !== undefined && clock.monotonicMs() < windowsUntilMs ? windows : readWindows();
      return (await windows).get(modelId) ?? null;
    },
  };
}

// The gateway refuses a longer body with 413. Counting first saves serializing it, which takes a second for a session of
// some hundred megabytes, and 120 ms for 8 MiB of control characters.
const maxPromptBytes = 10 * 1024 * 1024;

function withinGatewayLimit(model: LanguageModelV3): LanguageModelV3 {
  const requireFit = async (prompt: unknown): Promise<void> => {
    // The upper bound nearly always decides. The exact count takes a nanosecond a byte; a turn of its own lets other
    // requests in before the serializer runs.
    if (promptBytes(prompt, maxPromptBytes, maxEscapedBytes) <= maxPromptBytes) return;
    await nextTurn();
    const bytes = promptBytes(prompt, maxPromptBytes, escapedBytes);
    await nextTurn();
    if (bytes <= maxPromptBytes) return;
    throw new Problem(
      'impossible',
      'upstream_refused',
      `The conversation is longer than the ${maxPromptBytes} bytes of JSON that the gateway takes; compact it or begin another session.`,
    );
  };
  return {
    ...model,
    async doGenerate(options) {
      await requireFit(options.prompt);
      return model.doGenerate(options);
    },
    async doStream(options) {
      await requireFit(options.prompt);
      return model.doStream(options);
    },
  };
}

/** The bytes of all texts and files in the value; stops counting beyond `limit`. */
function promptBytes(
  value: unknown,
  limit: number,
  textBytes: (text: string, limit: number) => number,
): number {
  if (typeof value === 'string') return textBytes(value, limit);
  if (typeof value !== 'object' || value === null) return 0;
  // Files are sent in base64.
  if (ArrayBuffer.isView(value)) return Math.ceil(value.byteLength / 3) * 4;
  let bytes = 0;
  for (const member of Object.values(value)) {
    bytes += promptBytes(member, limit - bytes, textBytes);
    if (bytes > limit) break;
  }
  return bytes;
}

// An upper bound: JSON writes a control character as \u0000, six bytes.
function maxEscapedBytes(text: string): number {
  return text.length * 6;
}

// What JSON writes for a byte of UTF-8: two characters for \b, \t, \n, \f, \r, \" and \\, six for other control characters.
const escapedLengths = Uint8Array.from({ length: 256 }, (_, byte) =>
  ['\b', '\t', '\n', '\f', '\r', '"', '\\'].includes(String.fromCharCode(byte)) ? 2 : byte < 0x20 ? 6 : 1,
);

function escapedBytes(text: string, limit: number): number {
  const length = Buffer.byteLength(text);
  if (length > limit) return length;
  const utf8 = Buffer.from(text);
  let bytes = 0;
  for (let at = 0; at < utf8.length; at += 1) bytes += escapedLengths[utf8[at] as number] as number;
  return bytes;
}

async function readTokenFile(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw missingTokenProblem(cause);
  });
  const token = text.trim();
  // Refuse a malformed token here; the gateway's 401 would not say what is wrong with the file.
  if (!/^[\x21-\x7e]{1,256}$/.test(token))
    throw missingTokenProblem(new Error('The gateway token file does not hold one word.'));
  return token;
}

function missingTokenProblem(cause: unknown): Problem {
  return new Problem(
    'unavailable',
    'not_ready',
    'The agent has no token for the gateway yet; its --gateway-token-file has to hold one.',
    {
      cause,
      headers: { 'retry-after': '5' },
    },
  );
}
