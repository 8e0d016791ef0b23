// A gateway and an agent in processes of their own, with a scripted provider behind the gateway's
// models. Their event loops are measured inside the processes, so that the test's own work does not
// count.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cloudEnvironment, cloudKinds, cloudProviders } from './cloud-providers.ts';
import { issueGatewayTokens } from './gateway-tokens.ts';
import type { LoopReport, LoopRequest } from './loop-watch.ts';
import { readListeningUrl } from './listening-url.ts';
import { kill } from './processes.ts';
import { type ScriptedProvider, startProvider } from './provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from './token-endpoint.ts';

export interface WatchedServer {
  url: string;
  /** Bearer tokens by the name of their security scheme. */
  tokens: Readonly<Record<string, string>>;
  /** Resets the measurement. */
  reset(): Promise<void>;
  /** Waits until the server is idle, then returns the longest block since the reset. */
  waitForIdle(): Promise<LoopReport>;
  /** Blocks the event loop, to check that the measurement sees it. */
  block(ms: number): Promise<void>;
  /** Samples the running functions until `stopProfile`, which returns the functions with the most time. */
  startProfile(): Promise<void>;
  stopProfile(): Promise<string[]>;
  /** Processor time of a fixed piece of work now, in milliseconds. */
  referenceMs(): Promise<number>;
}

export interface WatchedServers {
  gateway: WatchedServer;
  agent: WatchedServer;
  provider: ScriptedProvider;
  close(): Promise<void>;
}

const root = join(import.meta.dirname, '..', '..');
const preload = join(import.meta.dirname, 'loop-watch.ts');
// Idle means at most this processor time in a tenth of a second; the system counts it in steps of 4 ms.
const idleWorkMs = 8;
const idleRoundMs = 100;
const idleRounds = 300;
const administrator = { admin_id: 'admin', password: 'a password for tests only' };

/** Starts the servers. Their logs are discarded; what they print to standard error appears in this process. */
export async function startWatchedServers(): Promise<WatchedServers> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-watched-'));
  const provider = await startProvider();
  const endpoint = await startTokenEndpoint();
  const children: ChildProcess[] = [];
  const start = async (command: string, flags: readonly string[], env: NodeJS.ProcessEnv) => {
    const child = spawnServer(folder, [command, ...flags], env);
    children.push(child);
    return { child, url: await readListeningUrl(child) };
  };
  const close = async (): Promise<void> => {
    await Promise.all(children.map(kill));
    await provider.close();
    await endpoint.close();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const modelsFile = join(folder, 'models.json');
    await writeFile(modelsFile, modelsOf(provider, endpoint));
    const gateway = await start('gateway', [], gatewaySettings(folder, modelsFile, endpoint));
    const tokens = await issueGatewayTokens(gateway.url, administrator);
    const dataDir = join(folder, 'agent');
    const agent = await start(
      'agent',
      ['--port', '0', '--data-dir', dataDir, '--gateway-url', gateway.url, '--model', 'acme/ok'],
      {
        AGENT_GATEWAY_TOKEN: tokens.userToken,
        AGENT_MODEL_RETRIES: '0',
        AGENT_MAX_RUNS: '1000',
      },
    );
    const agentToken = (await readFile(join(dataDir, 'agent.token'), 'utf8')).trim();
    return {
      gateway: watchCalls(gateway, tokens),
      agent: watchCalls(agent, { agentToken }),
      provider,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function spawnServer(folder: string, words: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  return spawn(process.execPath, ['--import', preload, join(root, 'src/cli/main.ts'), ...words], {
    cwd: folder,
    // The line with the address has the level `info`.
    env: { PATH: process.env['PATH'], HOME: folder, LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
}

function gatewaySettings(folder: string, modelsFile: string, endpoint: TokenEndpoint): NodeJS.ProcessEnv {
  return {
    HOST: '127.0.0.1',
    PORT: '0',
    DATABASE_PATH: join(folder, 'gateway.db'),
    TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'watched').toString('base64'),
    ADMIN_ID: administrator.admin_id,
    ADMIN_PASSWORD: administrator.password,
    MODELS_FILE: modelsFile,
    ACME_API_KEY: 'key-of-the-script',
    ...cloudEnvironment(endpoint),
    STARTING_CREDITS: '1000000000000',
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    RATE_LIMIT_ADMIN: 'off',
    RATE_LIMIT_LOGIN: 'off',
  };
}

/**
 * A model for each kind of provider and each kind of call. All answer at once, and all have a
 * price.
 */
function modelsOf(provider: ScriptedProvider, endpoint: TokenEndpoint): string {
  const model = {
    rates: { input: 1, output: 1, image: 1, speech_character: 1, audio_second: 1 },
    max_output_tokens: 1_000,
    context_window: 100_000_000,
  };
  const otherKinds = ['anthropic', 'google', 'openai'];
  const modalities = ['text', 'stream', 'openai', 'embedding', 'image', 'tts', 'asr'];
  const scripts = { ok: 'ok', painter: 'images', speaker: 'speech', whisper: 'whisper' };
  const formats = {
    formats: ['chat', 'embeddings', 'responses', 'rerank'],
    output_limit_member: 'max_tokens',
  };
  return provider.modelsFile(scripts, {
    provider: formats,
    model: { ...model, modalities },
    providers: [
      ...otherKinds.map((kind) => ({
        id: kind,
        kind,
        base_url: provider.url,
        // No format of their own, so that every call is translated.
        formats: [],
        api_key_env: 'ACME_API_KEY',
      })),
      ...cloudProviders(provider.url, endpoint),
    ],
    models: [...otherKinds, ...cloudKinds].map((kind) => ({
      id: `${kind}/ok`,
      provider: kind,
      upstream_model: 'ok',
      ...model,
      modalities: ['text', 'stream', 'openai'],
    })),
  });
}

function watchCalls(
  { child, url }: { child: ChildProcess; url: string },
  tokens: Readonly<Record<string, string>>,
): WatchedServer {
  const request = async <Answer = LoopReport>(message: LoopRequest): Promise<Answer> => {
    if (!child.connected) throw new Error('The server has exited.');
    child.send(message);
    const [answer] = (await once(child, 'message')) as [Answer];
    return answer;
  };
  return {
    url,
    tokens,
    reset: async () => void (await request({ watch: 'reset' })),
    block: async (ms) => void (await request({ watch: 'block', ms })),
    startProfile: async () => void (await request({ watch: 'startProfile' })),
    stopProfile: async () => (await request<{ lines: string[] }>({ watch: 'stopProfile' })).lines,
    referenceMs: async () => (await request<{ referenceMs: number }>({ watch: 'reference' })).referenceMs,
    async waitForIdle() {
      let report = await request({ watch: 'read' });
      for (let round = 0; round < idleRounds; round += 1) {
        await sleep(idleRoundMs);
        const next = await request({ watch: 'read' });
        if (next.spentMs - report.spentMs <= idleWorkMs) return next;
        report = next;
      }
      throw new Error('The server was not idle within 30 seconds.');
    },
  };
}
