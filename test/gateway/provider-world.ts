// A gateway that serves the models of a scripted provider.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGateway, type GatewayWorld, type GatewayWorldOptions } from '../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';

export interface ProviderWorld {
  world: GatewayWorld;
  provider: ScriptedProvider;
  close(): Promise<void>;
}

/** Starts both. `modelsFileOf` returns the text of the models file. The key of the provider is set. */
export async function startProviderWorld(
  modelsFileOf: (provider: ScriptedProvider) => string,
  options: GatewayWorldOptions = {},
): Promise<ProviderWorld> {
  const provider = await startProvider();
  const modelsFile = await writeModelsFile(modelsFileOf(provider));
  const env = { MODELS_FILE: modelsFile.path, ACME_API_KEY: 'a key for tests', ...options.env };
  const world = await startGateway({ ...options, env });
  return {
    world,
    provider,
    async close() {
      await world.close();
      await provider.close();
      await modelsFile.remove();
    },
  };
}

/** Writes the text to a file in a new folder, which `remove` deletes. */
export async function writeModelsFile(text: string): Promise<{ path: string; remove(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-models-'));
  const path = join(folder, 'models.json');
  await writeFile(path, text);
  return { path, remove: () => rm(folder, { recursive: true, force: true }) };
}
