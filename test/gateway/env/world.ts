// A whole gateway with a scripted provider whose key is not set yet, so that a change of the
// environment is visible from outside.
import { expect } from 'vitest';
import { startGateway, type GatewayWorld, type GatewayWorldOptions } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { writeModelsFile } from '../provider-world.ts';
import { dumpTables } from '../stored-text.ts';

export interface EnvWorld extends GatewayWorld {
  provider: ScriptedProvider;
  /** The keys that the provider received, by call. */
  keysSent(): (string | undefined)[];
  /** All text of all tables, binary columns in several encodings. */
  dump(): Promise<string>;
}

/** Starts a gateway whose only model of an external provider is `acme/fast`, which needs ACME_API_KEY. */
export async function startEnvWorld(options: GatewayWorldOptions = {}): Promise<EnvWorld> {
  const provider = await startProvider();
  const modelsFile = await writeModelsFile(provider.modelsFile({ fast: 'ok' }));
  const world = await startGateway({
    withAdmin: true,
    ...options,
    env: { MODELS_FILE: modelsFile.path, ...options.env },
  });
  return Object.defineProperties(world, {
    ...Object.getOwnPropertyDescriptors({
      provider,
      keysSent: () => provider.calls.map(({ headers }) => headers.authorization?.replace('Bearer ', '')),
      dump: () => dumpTables(world.sql, schemas),
    }),
    close: {
      value: closeBefore(world, async () => {
        await provider.close();
        await modelsFile.remove();
      }),
    },
  }) as EnvWorld;
}

/** The world's `close`, and then the rest. */
function closeBefore(world: GatewayWorld, closeRest: () => Promise<void>): () => Promise<void> {
  const close = world.close.bind(world);
  return async () => {
    await close();
    await closeRest();
  };
}

export const modelIds = async (world: GatewayWorld): Promise<string[]> =>
  (await world.user.ai.listModels()).items.map(({ id }) => id);

/** The error of a refused call. */
export async function refusal(call: Promise<unknown>): Promise<{
  status: number;
  code: string;
  param: string | null;
  message: string;
  details: readonly { path: string; message: string }[];
}> {
  const error = await call.then(
    () => expect.unreachable('the call was not refused'),
    (error: unknown) => error,
  );
  const { status, code, param, message, details } = error as Awaited<ReturnType<typeof refusal>>;
  return { status, code, param, message, details };
}

export const schemas = ['gateway', 'agent', 'pgboss'];
