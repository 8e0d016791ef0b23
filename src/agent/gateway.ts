// The gateway as this agent sees it: models by id, under a token that is looked at anew for every call, so that a
// file which changes or appears later counts at once and without a restart.
import { readFile } from 'node:fs/promises';
import { createGatewayClient } from '@townhall/gateway';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../kernel/clock.ts';
import { nextTurn } from '../kernel/async.ts';
import { Problem } from '../kernel/problem.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';

export type GatewayToken = { value: string } | { file: string };

export interface GatewayAccess {
  /** The model; throws a Problem when there is no token now. Nothing is sent before the model is called. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /** How many tokens the model takes, as the gateway's catalog says; null when it does not, or does not answer. */
  contextTokens(modelId: string): Promise<number | null>;
}

// The catalog changes seldom, and no run should wait long for it.
const catalogKeptMs = 5 * 60 * 1000;
const catalogLimitMs = 3_000;

export function gatewayAccess(options: {
  url: string;
  token: GatewayToken;
  redactor: Redactor;
  clock: Clock;
}): GatewayAccess {
  const { url, token: source, redactor, clock } = options;
  let held = '';
  let release = () => {};

  async function readToken(): Promise<string> {
    const token = 'value' in source ? source.value : await readTokenFile(source.file);
    if (token !== held) {
      release();
      release = redactor.hold(token);
      held = token;
    }
    return token;
  }

  const client = createGatewayClient({ baseUrl: url, token: readToken });
  let windows: Promise<Map<string, number>> | undefined;
  let windowsUntilMs = 0;

  function readWindows(): Promise<Map<string, number>> {
    windowsUntilMs = clock.monotonicMs() + catalogKeptMs;
    return client.ai.listModels(undefined, { timeoutMs: catalogLimitMs }).then(
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

// The gateway refuses a longer body with 413. Counting first saves writing it all as JSON, which takes a second for the
// history of a session that has grown to hundreds of megabytes, and 120 ms for 8 MiB of control characters.
const mostPromptBytes = 10 * 1024 * 1024;

function withinGatewayLimit(model: LanguageModelV3): LanguageModelV3 {
  const requireRoom = async (prompt: unknown): Promise<void> => {
    // The bound alone decides nearly always. Counting takes a nanosecond a byte, in a turn of its own before that of the
    // serializer.
    if (promptBytes(prompt, mostPromptBytes, mostBytesOf) <= mostPromptBytes) return;
    await nextTurn();
    const bytes = promptBytes(prompt, mostPromptBytes, escapedBytesOf);
    await nextTurn();
    if (bytes <= mostPromptBytes) return;
    throw new Problem(
      'impossible',
      'upstream_refused',
      `The conversation is longer than the ${mostPromptBytes} bytes of JSON that the gateway takes; compact it or begin another session.`,
    );
  };
  return {
    ...model,
    async doGenerate(options) {
      await requireRoom(options.prompt);
      return model.doGenerate(options);
    },
    async doStream(options) {
      await requireRoom(options.prompt);
      return model.doStream(options);
    },
  };
}

/** The bytes of all texts and files in the value, once there are more than `room` no further. */
function promptBytes(value: unknown, room: number, ofText: (text: string, room: number) => number): number {
  if (typeof value === 'string') return ofText(value, room);
  if (typeof value !== 'object' || value === null) return 0;
  // Files are sent in base64.
  if (ArrayBuffer.isView(value)) return Math.ceil(value.byteLength / 3) * 4;
  let bytes = 0;
  for (const member of Object.values(value)) {
    bytes += promptBytes(member, room - bytes, ofText);
    if (bytes > room) break;
  }
  return bytes;
}

/** At most: JSON writes a control character with six. */
function mostBytesOf(text: string): number {
  return text.length * 6;
}

// What JSON writes for a byte of UTF-8: \b, \t, \n, \f, \r, \" and \\ have two characters, other control characters six.
const escapedLengths = Uint8Array.from({ length: 256 }, (_, byte) =>
  ['\b', '\t', '\n', '\f', '\r', '"', '\\'].includes(String.fromCharCode(byte)) ? 2 : byte < 0x20 ? 6 : 1,
);

function escapedBytesOf(text: string, room: number): number {
  const length = Buffer.byteLength(text);
  if (length > room) return length;
  const utf8 = Buffer.from(text);
  let bytes = 0;
  for (let at = 0; at < utf8.length; at += 1) bytes += escapedLengths[utf8[at] as number] as number;
  return bytes;
}

async function readTokenFile(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw missing(cause);
  });
  const token = text.trim();
  // A credential is one word; anything else would only be refused later, and less clearly.
  if (!/^[\x21-\x7e]{1,256}$/.test(token))
    throw missing(new Error('The gateway token file does not hold one word.'));
  return token;
}

function missing(cause: unknown): Problem {
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
