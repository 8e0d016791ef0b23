// The gateway as this agent sees it: models by id, under a token that is looked at anew for every call, so that a
// file which changes or appears later counts at once and without a restart.
import { readFile } from 'node:fs/promises';
import { createGatewayClient } from '@townhall/gateway';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../kernel/clock.ts';
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

export function gatewayAccess(options: { url: string; token: GatewayToken; redactor: Redactor; clock: Clock }): GatewayAccess {
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
      ({ items }) => new Map(items.flatMap(({ id, context_window: tokens }) => (typeof tokens === 'number' ? [[id, tokens] as const] : []))),
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

// The gateway refuses a longer body with 413. Counting its texts first saves writing it all as JSON, which takes a second
// for the history of a session that has grown to hundreds of megabytes.
const mostPromptLength = 10 * 1024 * 1024;

function withinGatewayLimit(model: LanguageModelV3): LanguageModelV3 {
  const require = (prompt: unknown): void => {
    if (textLength(prompt) <= mostPromptLength) return;
    throw new Problem('impossible', 'upstream_refused', `The conversation is longer than the ${mostPromptLength} bytes that the gateway takes; compact it or begin another session.`);
  };
  return {
    ...model,
    async doGenerate(options) {
      require(options.prompt);
      return model.doGenerate(options);
    },
    async doStream(options) {
      require(options.prompt);
      return model.doStream(options);
    },
  };
}

function textLength(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return 0;
  return Object.values(value).reduce<number>((sum, member) => sum + textLength(member), 0);
}

async function readTokenFile(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw missing(cause);
  });
  const token = text.trim();
  // A credential is one word; anything else would only be refused later, and less clearly.
  if (!/^[\x21-\x7e]{1,256}$/.test(token)) throw missing(new Error('The gateway token file does not hold one word.'));
  return token;
}

function missing(cause: unknown): Problem {
  return new Problem('unavailable', 'not_ready', 'The agent has no token for the gateway yet; its --gateway-token-file has to hold one.', {
    cause,
    headers: { 'retry-after': '5' },
  });
}
