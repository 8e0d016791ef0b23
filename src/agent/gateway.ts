// The agent's access to the gateway: models by id and their context windows. The token file is read
// for every call, so a new or changed file takes effect without a restart.
import { readFile } from 'node:fs/promises';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../kernel/clock.ts';
import { Problem } from '../kernel/problem.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import { exceedsGatewayLimit, maxPromptBytes } from './prompt-bytes.ts';

export type GatewayToken = { value: string } | { file: string };

export interface GatewayAccess {
  /** Throws a Problem without a token. Sends nothing before the model is called. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /**
   * The model's entry in the gateway's catalog; empty if the catalog lacks the model. While the gateway
   * does not answer, the last catalog is used.
   */
  describe(modelId: string): Promise<ModelDescription>;
}

export interface ModelDescription {
  /** Tokens that fit into one call; null when unknown. */
  contextTokens: number | null;
  /** Kinds of input, such as `text` and `image`; null when unknown. */
  inputs: readonly string[] | null;
  /** The id of the provider; null when unknown. */
  provider: string | null;
}

const unknownModel: ModelDescription = { contextTokens: null, inputs: null, provider: null };

// The catalog changes rarely, and a run can go on without it.
const catalogTtlMs = 5 * 60 * 1000;
const catalogTimeoutMs = 3_000;
// A gateway that is restarting answers again soon.
const catalogRetryMs = 10_000;

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
  return {
    async model(modelId, settings = {}) {
      await readToken();
      return withinGatewayLimit(client.model(modelId, settings));
    },
    describe: cacheCatalog(client, clock),
  };
}

/** Reads the catalog when it is needed and the last read is too old. A failed read keeps the models. */
function cacheCatalog(client: GatewayClient, clock: Clock): GatewayAccess['describe'] {
  let models: ReadonlyMap<string, ModelDescription> = new Map();
  let lastRead: Promise<void> = Promise.resolve();
  let validUntilMs = Number.NEGATIVE_INFINITY;

  function read(): Promise<void> {
    validUntilMs = clock.monotonicMs() + catalogTtlMs;
    return client.ai.listModels(undefined, { timeoutMs: catalogTimeoutMs }).then(
      ({ items }) => {
        models = new Map(items.map((model) => [model.id, describeModel(model)]));
      },
      () => {
        validUntilMs = clock.monotonicMs() + catalogRetryMs;
      },
    );
  }

  return async (modelId) => {
    if (clock.monotonicMs() >= validUntilMs) lastRead = read();
    await lastRead;
    return models.get(modelId) ?? unknownModel;
  };
}

// `inputs` is not in every gateway's catalog.
function describeModel(model: {
  context_window?: number | null;
  owned_by?: string;
  inputs?: unknown;
}): ModelDescription {
  const { context_window: tokens, owned_by: provider, inputs } = model;
  return {
    contextTokens: typeof tokens === 'number' ? tokens : null,
    inputs: Array.isArray(inputs) ? inputs.filter((kind) => typeof kind === 'string') : null,
    provider: provider ?? null,
  };
}

function withinGatewayLimit(model: LanguageModelV3): LanguageModelV3 {
  const requireFit = async (prompt: unknown): Promise<void> => {
    if (!(await exceedsGatewayLimit(prompt))) return;
    throw new Problem(
      'impossible',
      'upstream_refused',
      `The conversation is longer than the ${maxPromptBytes} bytes of JSON that the gateway accepts.`,
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

async function readTokenFile(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw tokenProblem('its --gateway-token-file cannot be read', cause);
  });
  const token = text.trim();
  // Refuse a malformed token here; the gateway's 401 would not say what is wrong with the file.
  if (!/^[\x21-\x7e]{1,256}$/.test(token))
    throw tokenProblem('its --gateway-token-file must contain one word of at most 256 ASCII characters');
  return token;
}

function tokenProblem(reason: string, cause?: unknown): Problem {
  return new Problem('unavailable', 'not_ready', `The agent has no token for the gateway: ${reason}.`, {
    cause,
    headers: { 'retry-after': '5' },
  });
}
